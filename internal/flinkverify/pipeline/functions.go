package pipeline

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

type keyedContext = stream.KeyedContext[int64, string]
type windowContext = stream.WindowContext[int64, string]
type noted = serializer.Pair[int64, string]

// accounts counts the records of a key, all of them and by parity, with a time to
// live. It counts those of each bucket of event time, and says so at its end. For some
// early records it sets an alarm in processing time.
type accounts struct {
	numbers int64
	slow    time.Duration
	opened  *atomic.Int64
	count   *keyed.ValueState[int64, int64]
	parity  *keyed.MapState[int64, string, int64]
	buckets *keyed.MapState[int64, int64, int64]
	alarms  *keyed.MapState[int64, int64, int64]
	pairs   *keyed.ListState[int64, noted]
}

func (a *accounts) Open(rt *stream.KeyedRuntime[int64]) error {
	a.count = keyed.Value(rt.Keyed, "count", serializer.Int64)
	a.parity = keyed.Map(rt.Keyed, "parity", serializer.String, serializer.Int64, keyed.TTL(time.Hour))
	a.buckets = keyed.Map(rt.Keyed, "buckets", serializer.Int64, serializer.Int64)
	a.alarms = keyed.Map(rt.Keyed, "alarms", serializer.Int64, serializer.Int64)
	a.pairs = keyed.List(rt.Keyed, "pairs", serializer.Tuple2(serializer.Int64, serializer.String))
	a.opened.Add(1)
	return nil
}

func bucketEnd(v int64) int64 { return (v/bucket + 1) * bucket }
func parityOf(v int64) string { return [...]string{"even", "odd"}[v/keys%2] }
func hasAlarm(v, n int64) bool {
	return v < n/4 && v/keys%8 == 0
}
func isNoted(v int64) bool { return v/keys%64 == 0 }

// increase adds one to an entry of a map.
func increase[UK comparable](m *keyed.MapState[int64, UK, int64], k keyed.Key[int64], uk UK) (int64, error) {
	n, _, err := m.Get(k, uk)
	if err != nil {
		return 0, err
	}
	return n + 1, m.Put(k, uk, n+1)
}

func (a *accounts) Process(c *keyedContext, v int64) error {
	key := c.Key.Value()
	if a.slow > 0 && key < 2 {
		time.Sleep(a.slow)
	}
	n, _, err := a.count.Get(c.Key)
	if err != nil {
		return err
	}
	if err := a.count.Set(c.Key, n+1); err != nil {
		return err
	}
	c.Emit(fmt.Sprintf("count %d %d", key, n+1))
	if n, err = increase(a.parity, c.Key, parityOf(v)); err != nil {
		return err
	}
	c.Emit(fmt.Sprintf("parity %d %s %d", key, parityOf(v), n))
	if _, err := increase(a.buckets, c.Key, bucketEnd(v)); err != nil {
		return err
	}
	if err := c.At(bucketEnd(v) - 1); err != nil {
		return err
	}
	if hasAlarm(v, a.numbers) {
		if err := a.alarm(c, v); err != nil {
			return err
		}
	}
	if isNoted(v) {
		return a.pairs.Add(c.Key, noted{F0: v, F1: fmt.Sprintf("of %d", key)})
	}
	return nil
}

func (a *accounts) alarm(c *keyedContext, v int64) error {
	at := c.Now() + 250
	for ; ; at++ {
		if there, err := a.alarms.Contains(c.Key, at); err != nil {
			return err
		} else if !there {
			break
		}
	}
	if err := a.alarms.Put(c.Key, at, v); err != nil {
		return err
	}
	return c.AtProcessing(at)
}

func (a *accounts) OnTimer(c *keyedContext, at int64, of stream.TimeDomain) error {
	key := c.Key.Value()
	if of == stream.ProcessingTime {
		v, ok, err := a.alarms.Get(c.Key, at)
		if err != nil || !ok {
			return fmt.Errorf("no alarm at %d of key %d: %w", at, key, err)
		}
		c.Emit(fmt.Sprintf("alarm %d %d", key, v))
		return a.alarms.Remove(c.Key, at)
	}
	n, ok, err := a.buckets.Get(c.Key, at+1)
	if err != nil || !ok {
		return fmt.Errorf("no bucket ends at %d of key %d: %w", at+1, key, err)
	}
	c.Emit(fmt.Sprintf("bucket %d %d %d", key, at+1, n))
	if err := a.buckets.Remove(c.Key, at+1); err != nil || at+1 < a.numbers {
		return err
	}
	list, err := a.pairs.Get(c.Key) // the last timer: all of them are there
	for _, p := range list {
		c.Emit(fmt.Sprintf("pair %d %d %s", key, p.F0, p.F1))
	}
	return err
}

func tumbled(c *windowContext, v int64) error {
	c.Emit(fmt.Sprintf("tumbling %d %d %d", c.Key.Value(), c.Window.Start, v))
	return nil
}

// sumAndCount is a window's sum and count.
type sumAndCount struct{}

func (sumAndCount) New() pair                { return pair{} }
func (sumAndCount) Add(a pair, v int64) pair { return pair{F0: a.F0 + v, F1: a.F1 + 1} }
func (sumAndCount) Result(a pair) pair       { return a }
func (sumAndCount) Merge(a, b pair) pair     { return pair{F0: a.F0 + b.F0, F1: a.F1 + b.F1} }

func slid(c *windowContext, a pair) error {
	c.Emit(fmt.Sprintf("sliding %d %d %d %d", c.Key.Value(), c.Window.Start, a.F0, a.F1))
	return nil
}

func session(c *windowContext, records []int64) error {
	total := int64(0)
	for _, v := range records {
		total += v
	}
	c.Emit(fmt.Sprintf("session %d %d %d %d %d", c.Key.Value(), c.Window.Start, c.Window.End, len(records), total))
	return nil
}

func tens(c *windowContext, p pair) error {
	c.Emit(fmt.Sprintf("tens %d %d %d", c.Key.Value(), c.Window.Start, p.F1))
	return nil
}

// matches gives each record the value of its rule. One whose rule has not come waits,
// with a timer that cannot fire before all rules are there.
type matches struct {
	rules   *operatorstate.BroadcastState[string, int64]
	waiting *keyed.MapState[int64, int64, string]
}

var ruleState = stream.BroadcastDescriptor[string, int64]{Name: "rules", Key: serializer.String, Value: serializer.Int64}

func (m *matches) Open(rt *stream.KeyedRuntime[int64]) (err error) {
	m.waiting = keyed.Map(rt.Keyed, "waiting", serializer.Int64, serializer.String)
	m.rules, err = ruleState.Open(&rt.Runtime)
	return err
}

func (m *matches) Process(c *keyedContext, v int64) error {
	rule := fmt.Sprintf("rule %d", v%rules)
	if value, ok := m.rules.Get(rule); ok {
		c.Emit(fmt.Sprintf("match %d %d", v, value))
		return nil
	}
	if err := m.waiting.Put(c.Key, v, rule); err != nil {
		return err
	}
	return c.At(v)
}

func (m *matches) ProcessBroadcast(_ *stream.Context[string], v int64) error {
	m.rules.Put(fmt.Sprintf("rule %d", v), 1000+v)
	return nil
}

func (m *matches) OnTimer(c *keyedContext, at int64, _ stream.TimeDomain) error {
	rule, ok, err := m.waiting.Get(c.Key, at)
	if err != nil || !ok {
		return fmt.Errorf("nothing waits for %d: %w", at, err)
	}
	value, ok := m.rules.Get(rule)
	if !ok {
		return fmt.Errorf("%s has not come", rule)
	}
	c.Emit(fmt.Sprintf("match %d %d", at, value))
	return m.waiting.Remove(c.Key, at)
}

// seen hands records on seven at a time (list state), and says at the end how many
// there were (union state).
type seen struct {
	counts, held *operatorstate.ListState[int64]
	n            int64
	buffer       []int64
}

func (s *seen) Open(rt *stream.Runtime) error {
	b, err := rt.State()
	if err != nil {
		return err
	}
	if s.counts, err = operatorstate.Union(b, "counts", serializer.Int64); err != nil {
		return err
	}
	if s.held, err = operatorstate.List(b, "held", serializer.Int64); err != nil {
		return err
	}
	if rt.Subtask == 0 { // each subtask has all of them
		for _, n := range s.counts.All() {
			s.n += n
		}
	}
	for _, v := range s.held.All() {
		s.buffer = append(s.buffer, v)
	}
	return nil
}

func (s *seen) Process(c *stream.Context[string], v int64) error {
	s.n++
	if s.buffer = append(s.buffer, v); len(s.buffer) >= 7 {
		s.pass(c)
	}
	return nil
}

func (s *seen) pass(c *stream.Context[string]) {
	for _, v := range s.buffer {
		c.Emit(fmt.Sprintf("pass %d", v))
	}
	s.buffer = s.buffer[:0]
}

func (s *seen) Snapshot(*task.Snapshotting) error {
	s.counts.Replace([]int64{s.n})
	s.held.Replace(append([]int64(nil), s.buffer...))
	return nil
}

func (s *seen) Finish(c *stream.Context[string]) error {
	s.pass(c)
	c.Emit(fmt.Sprintf("seen %d", s.n))
	return nil
}
