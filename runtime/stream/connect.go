package stream

import (
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// KeyedCoFunction takes records of two streams that have the same keys: Flink's
// KeyedCoProcessFunction. It may implement what a KeyedFunction may.
type KeyedCoFunction[K comparable, A, B, OUT any] interface {
	Open(rt *KeyedRuntime[K]) error
	Process1(c *KeyedContext[K, OUT], v A) error
	Process2(c *KeyedContext[K, OUT], v B) error
}

// Connect runs a function on two keyed streams.
func Connect[K comparable, A, B, OUT any](a *Keyed[K, A], b *Keyed[K, B], make func() KeyedCoFunction[K, A, B, OUT], opts ...Option) *Stream[OUT] {
	n := a.job.add("Co-Process", a.parallelism(), func() task.Wired {
		return &coOperator[K, A, B, OUT]{keyedBase: keyedBase[K, OUT]{f: make(), ser: a.key}, ofA: a.of, ofB: b.of}
	}, opts)
	a.into(n, 0)
	b.into(n, 1)
	return newStream[OUT](a.job, n, "")
}

type coOperator[K comparable, A, B, OUT any] struct {
	keyedBase[K, OUT]
	ofA func(A) K
	ofB func(B) K
	fn  KeyedCoFunction[K, A, B, OUT]
	in  twoInputs
}

func (p *coOperator[K, A, B, OUT]) Open(e *task.Env) error {
	p.fn = p.f.(KeyedCoFunction[K, A, B, OUT])
	p.in.init(p.watermark, p.outputs.Idle)
	rt, err := p.open(e)
	if err != nil {
		return err
	}
	if err := p.fn.Open(rt); err != nil {
		return err
	}
	return p.timers.start(rt.Keyed.Err())
}

func (p *coOperator[K, A, B, OUT]) Input(i int) any {
	if i == 0 {
		return task.Input[A](&inputOf[A]{&p.in, 0, func(b *task.Batch[A]) error {
			for i := range b.Values {
				p.c.Key, p.c.at = p.keys.Make(p.ofA(b.Values[i])), b.Time(i)
				if err := p.fn.Process1(&p.c, b.Values[i]); err != nil {
					return err
				}
			}
			return p.flush()
		}})
	}
	return task.Input[B](&inputOf[B]{&p.in, 1, func(b *task.Batch[B]) error {
		for i := range b.Values {
			p.c.Key, p.c.at = p.keys.Make(p.ofB(b.Values[i])), b.Time(i)
			if err := p.fn.Process2(&p.c, b.Values[i]); err != nil {
				return err
			}
		}
		return p.flush()
	}})
}

// inputOf is one of two inputs.
type inputOf[T any] struct {
	in    *twoInputs
	index int
	batch func(b *task.Batch[T]) error
}

func (i *inputOf[T]) Batch(b *task.Batch[T]) error { return i.batch(b) }
func (i *inputOf[T]) Watermark(at int64) error     { return i.in.watermark(i.index, at) }
func (i *inputOf[T]) Idle(idle bool) error         { return i.in.setIdle(i.index, idle) }

// twoInputs combines the watermarks of two inputs: Flink's IndexedCombinedWatermarkStatus.
type twoInputs struct {
	at    [2]int64
	idle  [2]bool
	out   int64
	quiet bool
	emit  func(at int64) error
	tell  func(idle bool) error
}

func (t *twoInputs) init(emit func(int64) error, tell func(bool) error) {
	t.at, t.out = [2]int64{task.NoTimestamp, task.NoTimestamp}, task.NoTimestamp
	t.emit, t.tell = emit, tell
}

func (t *twoInputs) watermark(i int, at int64) error {
	t.at[i] = max(t.at[i], at)
	return t.update()
}

func (t *twoInputs) setIdle(i int, idle bool) error {
	t.idle[i] = idle
	if quiet := t.idle[0] && t.idle[1]; quiet != t.quiet {
		t.quiet = quiet
		if err := t.tell(quiet); err != nil {
			return err
		}
	}
	return t.update()
}

func (t *twoInputs) update() error {
	at := int64(task.MaxWatermark)
	for i := range t.at {
		if !t.idle[i] {
			at = min(at, t.at[i])
		}
	}
	if t.quiet || at <= t.out {
		return nil
	}
	t.out = at
	return t.emit(at)
}

// BroadcastDescriptor names a broadcast state: Flink's MapStateDescriptor of it.
type BroadcastDescriptor[K comparable, V any] struct {
	Name  string
	Key   serializer.Serializer[K]
	Value serializer.Serializer[V]
}

// Open registers the state in a function's Open.
func (d BroadcastDescriptor[K, V]) Open(rt *Runtime) (*operatorstate.BroadcastState[K, V], error) {
	b, err := rt.State()
	if err != nil {
		return nil, err
	}
	return operatorstate.Broadcast(b, d.Name, d.Key, d.Value)
}

// BroadcastFunction takes the records of a keyed stream, and those of another stream
// of which every subtask gets all: Flink's KeyedBroadcastProcessFunction. It may
// implement what a KeyedFunction may.
//
// Broadcast state must be the same in all subtasks, so only ProcessBroadcast may
// change it, and only by what it is given.
type BroadcastFunction[K comparable, IN, B, OUT any] interface {
	Open(rt *KeyedRuntime[K]) error
	Process(c *KeyedContext[K, OUT], v IN) error
	// ProcessBroadcast has no key.
	ProcessBroadcast(c *Context[OUT], v B) error
}

// ConnectBroadcast runs a function on a keyed stream and a broadcast one.
func ConnectBroadcast[K comparable, IN, B, OUT any](in *Keyed[K, IN], rules *Stream[B], make func() BroadcastFunction[K, IN, B, OUT], opts ...Option) *Stream[OUT] {
	n := in.job.add("Co-Process-Broadcast-Keyed", in.parallelism(), func() task.Wired {
		return &broadcastOperator[K, IN, B, OUT]{keyedBase: keyedBase[K, OUT]{f: make(), ser: in.key}, of: in.of}
	}, opts)
	in.into(n, 0)
	rules.Broadcast().into(n, 1)
	return newStream[OUT](in.job, n, "")
}

type broadcastOperator[K comparable, IN, B, OUT any] struct {
	keyedBase[K, OUT]
	of func(IN) K
	fn BroadcastFunction[K, IN, B, OUT]
	in twoInputs
}

func (p *broadcastOperator[K, IN, B, OUT]) Open(e *task.Env) error {
	p.fn = p.f.(BroadcastFunction[K, IN, B, OUT])
	p.in.init(p.watermark, p.outputs.Idle)
	rt, err := p.open(e)
	if err != nil {
		return err
	}
	if err := p.fn.Open(rt); err != nil {
		return err
	}
	return p.timers.start(rt.Keyed.Err())
}

func (p *broadcastOperator[K, IN, B, OUT]) Input(i int) any {
	if i == 0 {
		return task.Input[IN](&inputOf[IN]{&p.in, 0, func(b *task.Batch[IN]) error {
			for i := range b.Values {
				p.c.Key, p.c.at = p.keys.Make(p.of(b.Values[i])), b.Time(i)
				if err := p.fn.Process(&p.c, b.Values[i]); err != nil {
					return err
				}
			}
			return p.flush()
		}})
	}
	return task.Input[B](&inputOf[B]{&p.in, 1, func(b *task.Batch[B]) error {
		var none keyed.Key[K]
		for i := range b.Values {
			p.c.Key, p.c.at = none, b.Time(i)
			if err := p.fn.ProcessBroadcast(&p.c.Context, b.Values[i]); err != nil {
				return err
			}
		}
		return p.flush()
	}})
}
