package stream

import (
	"fmt"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// Keyed is a stream whose records of the same key go to the same subtask.
type Keyed[K comparable, T any] struct {
	*Stream[T]
	key serializer.Serializer[K]
	of  func(T) K
}

// KeyBy gives each record a key, which is all that of must depend on. The serializer
// of keys decides, with Flink's hash of them, the key group.
func KeyBy[K comparable, T any](in *Stream[T], key serializer.Serializer[K], of func(T) K) *Keyed[K, T] {
	s := *in
	s.exchange = Hash
	hash, err := serializer.HashFunc(key, nil)
	if err != nil {
		s.job.errs = append(s.job.errs, fmt.Errorf("key of a stream: %w", err))
	}
	s.group = func(max int) func(T) int {
		return func(v T) int { return serializer.AssignKeyGroup(hash(of(v)), max) }
	}
	return &Keyed[K, T]{&s, key, of}
}

// KeyedFunction is Flink's KeyedProcessFunction. It may also implement
// TimerFunction, Snapshotter, Finisher, io.Closer and CheckpointListener.
type KeyedFunction[K comparable, IN, OUT any] interface {
	// Open registers state.
	Open(rt *KeyedRuntime[K]) error
	// Process takes a record of the key c.Key.
	Process(c *KeyedContext[K, OUT], v IN) error
}

// TimerFunction is a keyed function with timers.
type TimerFunction[K comparable, OUT any] interface {
	// OnTimer is called when a timer that the function registered for the key c.Key is
	// due.
	OnTimer(c *KeyedContext[K, OUT], at int64, of TimeDomain) error
}

// TimeDomain is event time or processing time.
type TimeDomain uint8

// Time domains.
const (
	EventTime TimeDomain = iota
	ProcessingTime
)

func (d TimeDomain) String() string { return [...]string{"event time", "processing time"}[d] }

// KeyedRuntime is what a keyed function has of its subtask.
type KeyedRuntime[K comparable] struct {
	Runtime
	// Keyed is where states are registered: keyed.Value(rt.Keyed, "visits", serializer.Int64).
	Keyed keyed.Backend[K]
}

// KeyedContext is what a keyed function has while it is called.
type KeyedContext[K comparable, OUT any] struct {
	Context[OUT]
	// Key is that of the record or timer, for all states.
	Key keyed.Key[K]

	timers *timers[K, struct{}]
}

// At registers an event-time timer, in epoch milliseconds, for the key. There is one
// for each time and key.
func (c *KeyedContext[K, OUT]) At(at int64) error {
	return c.timers.registerEvent(c.Key, struct{}{}, at)
}

// AtProcessing registers a processing-time timer.
func (c *KeyedContext[K, OUT]) AtProcessing(at int64) error {
	return c.timers.registerProcessing(c.Key, struct{}{}, at)
}

// Unset removes an event-time timer of the key; it need not be there.
func (c *KeyedContext[K, OUT]) Unset(at int64) error {
	_, err := c.timers.service.Event.Delete(c.Key, struct{}{}, at)
	return err
}

// UnsetProcessing removes a processing-time timer of the key.
func (c *KeyedContext[K, OUT]) UnsetProcessing(at int64) error {
	_, err := c.timers.service.Processing.Delete(c.Key, struct{}{}, at)
	return err
}

// Process runs a keyed function; make is called for each subtask.
func Process[K comparable, IN, OUT any](in *Keyed[K, IN], make func() KeyedFunction[K, IN, OUT], opts ...Option) *Stream[OUT] {
	return unary[IN, OUT](in.Stream, "KeyedProcess", func() task.Wired {
		return &keyedOperator[K, IN, OUT]{keyedBase: keyedBase[K, OUT]{f: make(), ser: in.key}, of: in.of}
	}, opts)
}

// keyedBase is what operators that run functions on keys have in common.
type keyedBase[K comparable, OUT any] struct {
	single[OUT]
	f      any
	ser    serializer.Serializer[K]
	keys   *keyed.Keys[K]
	warm   keyed.Toucher[K] // nil if the backend is none
	timers timers[K, struct{}]
	c      KeyedContext[K, OUT]
	onFire TimerFunction[K, OUT]
}

// open makes the backend and the timers; then the function's Open is to be called.
func (p *keyedBase[K, OUT]) open(e *task.Env) (*KeyedRuntime[K], error) {
	b, err := task.OpenKeyed(e, p.ser)
	if err != nil {
		return nil, err
	}
	// The keys of the backend, without its interface.
	p.keys, err = keyed.NewKeys(keyed.Config[K]{Key: p.ser, MaxParallelism: e.MaxParallelism, KeyGroups: e.KeyGroups()})
	if err != nil {
		return nil, err
	}
	p.c = KeyedContext[K, OUT]{Context: Context[OUT]{out: &p.outputs, env: e, at: task.NoTimestamp, watermark: task.NoTimestamp}, timers: &p.timers}
	p.onFire, _ = p.f.(TimerFunction[K, OUT])
	p.warm, _ = b.(keyed.Toucher[K])
	p.timers.open(e, b, "user-timers", serializer.VoidNS, p.fire)
	p.timers.flush = p.flush
	return &KeyedRuntime[K]{Runtime{e}, b}, nil
}

func (p *keyedBase[K, OUT]) fire(t keyed.Timer[K, struct{}], of TimeDomain) error {
	if p.onFire == nil {
		return errNoTimers
	}
	p.c.Key, p.c.at = t.Key, t.At
	if of == ProcessingTime {
		p.c.at = task.NoTimestamp
	}
	return p.onFire.OnTimer(&p.c, t.At, of)
}

func (p *keyedBase[K, OUT]) watermark(at int64) error {
	p.c.watermark = at
	if err := p.timers.advance(at); err != nil {
		return err
	}
	return p.outputs.Watermark(at)
}

func (p *keyedBase[K, OUT]) Snapshot(s *task.Snapshotting) error { return snapshotOf(p.f, s) }
func (p *keyedBase[K, OUT]) Complete(id int64) error             { return completeOf(p.f, id) }
func (p *keyedBase[K, OUT]) Aborted(id int64) error              { return abortedOf(p.f, id) }

// Finish has no key.
func (p *keyedBase[K, OUT]) Finish() error {
	if f, ok := p.f.(Finisher[OUT]); ok {
		var none keyed.Key[K]
		p.c.Key, p.c.at = none, task.NoTimestamp
		if err := f.Finish(&p.c.Context); err != nil {
			return err
		}
	}
	return p.flush()
}

func (p *keyedBase[K, OUT]) Close() error {
	p.timers.close()
	return closeOf(p.f)
}

type keyedOperator[K comparable, IN, OUT any] struct {
	keyedBase[K, OUT]
	of   func(IN) K
	fn   KeyedFunction[K, IN, OUT]
	made [keyedAhead]keyed.Key[K]
}

func (p *keyedOperator[K, IN, OUT]) Input(int) any { return task.Input[IN](p) }

func (p *keyedOperator[K, IN, OUT]) Open(e *task.Env) error {
	p.fn = p.f.(KeyedFunction[K, IN, OUT])
	rt, err := p.open(e)
	if err != nil {
		return err
	}
	if err := p.fn.Open(rt); err != nil {
		return err
	}
	return p.timers.start(rt.Keyed.Err())
}

// keyedAhead is how many records have their keys made, and the entries of those
// brought into the cache, before the first of them is processed.
const keyedAhead = 64

func (p *keyedOperator[K, IN, OUT]) Batch(b *task.Batch[IN]) error {
	for at := 0; at < len(b.Values); at += keyedAhead {
		values := b.Values[at:min(at+keyedAhead, len(b.Values))]
		keys := p.made[:len(values)]
		for i := range values {
			keys[i] = p.keys.Make(p.of(values[i]))
		}
		if p.warm != nil {
			p.warm.TouchKeys(keys)
		}
		for i := range values {
			p.c.Key = keys[i]
			p.c.at = b.Time(at + i)
			if err := p.fn.Process(&p.c, values[i]); err != nil {
				return err
			}
		}
	}
	return p.flush()
}

func (p *keyedOperator[K, IN, OUT]) Watermark(at int64) error { return p.watermark(at) }

// Reduce folds the records of a key into one and sends it each time. The state is
// that of Flink's StreamGroupedReduceOperator.
func Reduce[K comparable, T any](in *Keyed[K, T], f func(a, b T) T, opts ...Option) *Stream[T] {
	if in.serErr != nil {
		in.job.errs = append(in.job.errs, fmt.Errorf("reduce: its state has no serializer, see Stream.As: %w", in.serErr))
	}
	s := Process(in, func() KeyedFunction[K, T, T] { return &reducer[K, T]{f: f, ser: in.ser} }, append([]Option{Name("Keyed Reduce")}, opts...)...)
	s.ser, s.serErr = in.ser, in.serErr
	return s
}

type reducer[K comparable, T any] struct {
	f     func(a, b T) T
	ser   serializer.Serializer[T]
	state *keyed.ValueState[K, T]
}

func (r *reducer[K, T]) Open(rt *KeyedRuntime[K]) error {
	r.state = keyed.Value(rt.Keyed, "_op_state", r.ser)
	return nil
}

func (r *reducer[K, T]) Process(c *KeyedContext[K, T], v T) error {
	old, ok, err := r.state.Get(c.Key)
	if err != nil {
		return err
	}
	if ok {
		v = r.f(old, v)
	}
	if err := r.state.Set(c.Key, v); err != nil {
		return err
	}
	c.Emit(v)
	return nil
}
