package runtime_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

// lines gathers results as text.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return nil
}

func (l *lines) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.all)
	return l.all
}

// timed is a stream of the numbers below n, each at its own millisecond, with so many
// milliseconds of disorder: blocks of that size come backwards.
func timed(j *stream.Job, n, disorder int64) *stream.Stream[int64] {
	nums := stream.From(j, stream.Sequence(0, n-1), stream.UID("numbers"), stream.Parallelism(1))
	if disorder > 1 {
		nums = stream.Map(nums, func(v int64) int64 { return v/disorder*disorder + disorder - 1 - v%disorder }, stream.Parallelism(1))
	}
	return stream.Watermarks(nums, stream.WatermarkStrategy[int64]{
		Timestamp: func(v, _ int64) int64 { return v }, OutOfOrder: time.Duration(disorder) * time.Millisecond, Interval: time.Millisecond}, stream.Parallelism(1))
}

func byMod(in *stream.Stream[int64], keys int64) *stream.Keyed[int64, int64] {
	return stream.KeyBy(in, serializer.Int64, func(v int64) int64 { return v % keys })
}

func sum(a, b int64) int64 { return a + b }

func TestTumblingAndSlidingWindows(t *testing.T) {
	const n, keys = 10_000, 7
	for _, w := range []struct {
		name        string
		a           stream.Assigner
		size, slide int64
	}{{"tumbling", stream.Tumbling(100 * time.Millisecond), 100, 100}, {"sliding", stream.Sliding(100*time.Millisecond, 30*time.Millisecond), 100, 30}} {
		t.Run(w.name, func(t *testing.T) {
			j := stream.NewJob("windows", &stream.JobOptions{Parallelism: 2})
			var got lines
			sums := stream.ReduceWindowWith(stream.Windows(byMod(timed(j, n, 20), keys), w.a), sum, func(c *stream.WindowContext[int64, string], v int64) error {
				at, ok := c.Timestamp()
				if !ok || at != c.Window.End-1 {
					return fmt.Errorf("a result at %d of window %v", at, c.Window)
				}
				c.Emit(fmt.Sprintf("%d [%d %d] %d", c.Key.Value(), c.Window.Start, c.Window.End, v))
				return nil
			}, stream.UID("sums"))
			stream.ForEach(sums, got.add)
			require.NoError(t, runtime.Run(t.Context(), j, nil))
			model := map[[2]int64]int64{}
			for v := range int64(n) {
				for s := v - v%w.slide; s > v-w.size; s -= w.slide {
					model[[2]int64{v % keys, s}] += v
				}
			}
			var want []string
			for k, s := range model {
				want = append(want, fmt.Sprintf("%d [%d %d] %d", k[0], k[1], k[1]+w.size, s))
			}
			slices.Sort(want)
			require.Equal(t, want, got.sorted())
		})
	}
}

// TestSessionsOverFailures has sessions that merge, and a restart in the middle.
func TestSessionsOverFailures(t *testing.T) {
	const n, keys, gap = 20_000, 5, 40
	// A key's records come every 5 ms; those of each second 500 ms are left out.
	live := func(v int64) bool { return v/500%2 == 0 }
	var got lines
	var seen, failures atomic.Int64
	j := stream.NewJob("sessions", &stream.JobOptions{Parallelism: 2})
	in := stream.Filter(timed(j, n, 50), func(v int64) bool {
		if i := seen.Add(1); (i == 7_000 || i == 15_000) && failures.Add(1) > 0 {
			panic("injected")
		}
		if v%128 == 0 {
			time.Sleep(200 * time.Microsecond)
		}
		return live(v)
	}, stream.Parallelism(1))
	counts := stream.ProcessWindow(stream.Windows(byMod(in, keys), stream.Sessions(gap*time.Millisecond)), func(c *stream.WindowContext[int64, string], v []int64) error {
		c.Emit(fmt.Sprintf("%d [%d %d] %d", c.Key.Value(), c.Window.Start, c.Window.End, len(v)))
		return nil
	}, stream.UID("sessions"))
	to := t.TempDir()
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(counts, sink, stream.UID("sink"))
	require.NoError(t, runtime.Run(t.Context(), j, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir()), Interval: 5 * time.Millisecond,
		TolerableFailures: 1000, Restart: fixedDelay(t, 5)}))
	require.EqualValues(t, 2, failures.Load())
	var want []string
	for k := range int64(keys) {
		first, last, count := int64(-1), int64(0), 0
		for v := k; v < n; v += keys {
			if !live(v) {
				continue
			}
			if first >= 0 && v > last+gap {
				want = append(want, fmt.Sprintf("%d [%d %d] %d", k, first, last+gap, count))
				first, count = -1, 0
			}
			if first < 0 {
				first = v
			}
			last, count = v, count+1
		}
		want = append(want, fmt.Sprintf("%d [%d %d] %d", k, first, last+gap, count))
	}
	got.all = readLines(t, to)
	slices.Sort(want)
	require.Equal(t, want, got.sorted())
}

func TestLateRecords(t *testing.T) {
	j := stream.NewJob("late", nil)
	late := stream.NewTag[int64]("late")
	// 0..99 with timestamps that jump ahead at 50: what follows is late.
	nums := stream.From(j, stream.Sequence(0, 99))
	stamped := stream.Watermarks(nums, stream.WatermarkStrategy[int64]{
		Timestamp: func(v, _ int64) int64 {
			if v == 50 {
				return 10_000
			}
			return v
		},
		Generator: func() stream.WatermarkGenerator[int64] { return punctuated{} },
	})
	w := stream.Windows(byMod(stamped, 1), stream.Tumbling(10*time.Millisecond)).LateTo(late)
	sums := stream.ReduceWindow(w, sum)
	var got, lateGot lines
	stream.ForEach(sums, func(v int64) error { return got.add(fmt.Sprint(v)) })
	stream.ForEach(stream.Side(sums, late), func(v int64) error { return lateGot.add(fmt.Sprint(v)) })
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	require.Equal(t, []string{"145", "245", "345", "445", "45", "50"}, got.sorted())
	require.Len(t, lateGot.sorted(), 49)
}

type punctuated struct{}

func (punctuated) OnRecord(_ int64, at int64) int64 { return at }
func (punctuated) OnPeriodic() int64                { return -1 << 63 }

// alarm sends a record for each key when event time has come to 1000, and one when
// processing time has gone on.
type alarm struct{}

func (alarm) Open(*stream.KeyedRuntime[int64]) error { return nil }
func (alarm) Process(c *stream.KeyedContext[int64, string], v int64) error {
	if err := c.AtProcessing(c.Now() + 5); err != nil {
		return err
	}
	if err := c.At(2000); err != nil {
		return err
	}
	if err := c.Unset(2000); err != nil {
		return err
	}
	return c.At(1000)
}

func (alarm) OnTimer(c *stream.KeyedContext[int64, string], at int64, of stream.TimeDomain) error {
	if of == stream.EventTime {
		c.Emit(fmt.Sprintf("%d at %d", c.Key.Value(), at))
	}
	return nil
}

func TestTimers(t *testing.T) {
	j := stream.NewJob("timers", &stream.JobOptions{Parallelism: 2})
	var got lines
	stream.ForEach(stream.Process(byMod(timed(j, 3000, 1), 10), func() stream.KeyedFunction[int64, int64, string] { return alarm{} }), got.add)
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	all := got.sorted()
	// Records after 1000 set the timer again, for a time that has passed: it fires at
	// the next watermark.
	require.GreaterOrEqual(t, len(all), 10)
	require.Len(t, slices.Compact(slices.Clone(all)), 10)
	for _, s := range all {
		require.True(t, strings.HasSuffix(s, " at 1000"), s)
	}
}

// limits passes on the numbers above the broadcast limit.
type limits struct {
	state *operatorstate.BroadcastState[string, int64]
}

var limitState = stream.BroadcastDescriptor[string, int64]{Name: "limits", Key: serializer.String, Value: serializer.Int64}

func (l *limits) Open(rt *stream.KeyedRuntime[int64]) (err error) {
	l.state, err = limitState.Open(&rt.Runtime)
	return err
}

func (l *limits) Process(c *stream.KeyedContext[int64, string], v int64) error {
	if limit, ok := l.state.Get("limit"); ok && v >= limit {
		c.Emit(fmt.Sprint(v))
	}
	return nil
}

func (l *limits) ProcessBroadcast(c *stream.Context[string], v int64) error {
	l.state.Put("limit", v)
	c.Emit(fmt.Sprintf("limit %d", v))
	return nil
}

func TestBroadcast(t *testing.T) {
	j := stream.NewJob("broadcast", &stream.JobOptions{Parallelism: 3})
	var got lines
	slow := stream.From(j, stream.SlowSequence(0, 299, 1000), stream.UID("numbers"), stream.Parallelism(1))
	rules := stream.From(j, stream.Sequence(290, 290), stream.UID("rules"), stream.Parallelism(1))
	out := stream.ConnectBroadcast(byMod(slow, 10), rules, func() stream.BroadcastFunction[int64, int64, int64, string] { return &limits{} }, stream.UID("limits"))
	stream.ForEach(out, got.add)
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	require.Equal(t, []string{"290", "291", "292", "293", "294", "295", "296", "297", "298", "299", "limit 290", "limit 290", "limit 290"}, got.sorted())
}

// both counts the records of two streams by key.
type both struct {
	n *keyed.MapState[int64, string, int64]
}

func (b *both) Open(rt *stream.KeyedRuntime[int64]) error {
	b.n = keyed.Map(rt.Keyed, "n", serializer.String, serializer.Int64)
	return nil
}

func (b *both) count(c *stream.KeyedContext[int64, string], of string) error {
	n, _, err := b.n.Get(c.Key, of)
	if err != nil {
		return err
	}
	c.Emit(fmt.Sprintf("%d %s %d", c.Key.Value(), of, n+1))
	return b.n.Put(c.Key, of, n+1)
}

func (b *both) Process1(c *stream.KeyedContext[int64, string], _ int64) error { return b.count(c, "a") }
func (b *both) Process2(c *stream.KeyedContext[int64, string], _ string) error {
	return b.count(c, "b")
}

func TestConnectUnionAndSide(t *testing.T) {
	j := stream.NewJob("both", &stream.JobOptions{Parallelism: 2})
	a := stream.Union(stream.From(j, stream.Sequence(0, 49), stream.UID("a1")), stream.From(j, stream.Sequence(50, 99), stream.UID("a2")))
	odd := stream.NewTag[int64]("odd")
	split := stream.Apply(a, func() stream.Function[int64, int64] { return oddAside{odd} }, stream.UID("split"))
	text := stream.Map(stream.Side(split, odd), func(v int64) string { return fmt.Sprint(v) })
	var got lines
	out := stream.Connect(byMod(split, 2), stream.KeyBy(text, serializer.Int64, func(s string) int64 { return int64(len(s) - 1) }), func() stream.KeyedCoFunction[int64, int64, string, string] { return &both{} })
	stream.ForEach(out, got.add)
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	all := got.sorted()
	require.Len(t, all, 100)
	require.Contains(t, all, "0 a 50") // the even ones
	require.Contains(t, all, "0 b 5")  // odd ones of one digit
	require.Contains(t, all, "1 b 45")
}

type oddAside struct{ tag *stream.Tag[int64] }

func (oddAside) Open(*stream.Runtime) error { return nil }
func (o oddAside) Process(c *stream.Context[int64], v int64) error {
	if v%2 != 0 {
		stream.ToSide(c, o.tag, v)
	} else {
		c.Emit(v)
	}
	return nil
}

func TestJobErrors(t *testing.T) {
	j := stream.NewJob("wrong", nil)
	a := stream.From(j, stream.Sequence(0, 1), stream.UID("same"))
	stream.Discard(stream.Map(a, func(v int64) int64 { return v }, stream.UID("same"), stream.Parallelism(0)))
	stream.Discard(stream.Map(a.Rebalance(), func(v int64) chan int { return nil }).Rebalance())
	err := runtime.Run(t.Context(), j, nil)
	require.ErrorContains(t, err, `operators Source and Map have the same uid "same"`)
	require.ErrorContains(t, err, "parallelism 0 is not from 1 to 32768")
	require.ErrorContains(t, err, "its input has no serializer")
	require.ErrorContains(t, runtime.Run(t.Context(), stream.NewJob("empty", nil), nil), "has no operator")
}
