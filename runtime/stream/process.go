package stream

import (
	"errors"

	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/task"
)

// Function is a process function without keys: Flink's ProcessFunction and
// CheckpointedFunction. It may also implement Snapshotter, Finisher, io.Closer and
// CheckpointListener.
type Function[IN, OUT any] interface {
	// Open registers state.
	Open(rt *Runtime) error
	// Process takes a record.
	Process(c *Context[OUT], v IN) error
}

// Runtime is what a function has of its subtask.
type Runtime struct{ *task.Env }

// State is the list, union and broadcast state of the subtask, restored if the job
// was.
func (r *Runtime) State() (*operatorstate.Backend, error) { return r.OperatorState() }

// Snapshotter is a function that puts into its state, at a checkpoint, what it keeps
// elsewhere: Flink's snapshotState.
type Snapshotter interface {
	Snapshot(s *task.Snapshotting) error
}

// Finisher is a function that sends something at the end of a bounded input. As in
// Flink, Finish may be called again: after a restart from a checkpoint in which other
// subtasks had not come so far, with the state as the first call left it. So what it
// sends from its state it takes out of it. It is no place to commit anything.
type Finisher[OUT any] interface {
	Finish(c *Context[OUT]) error
}

// CheckpointListener is a function that is told what became of a checkpoint: late,
// twice or never, as it happens.
type CheckpointListener interface {
	Complete(id int64) error
	Aborted(id int64) error
}

// closer is io.Closer.
type closer interface{ Close() error }

// Context is what a function has while it is called. It is of use only then.
type Context[OUT any] struct {
	out       *outputs[OUT]
	env       *task.Env
	at        int64
	watermark int64
}

// Emit sends a record with the timestamp of that which is processed, or of the timer.
func (c *Context[OUT]) Emit(v OUT) { c.out.out.Add(v, c.at) }

// EmitAt sends a record with a timestamp in epoch milliseconds.
func (c *Context[OUT]) EmitAt(v OUT, at int64) { c.out.out.Add(v, at) }

// Timestamp is that of the record or timer, in epoch milliseconds; false if it has
// none.
func (c *Context[OUT]) Timestamp() (int64, bool) { return c.at, c.at != task.NoTimestamp }

// Watermark is the time of the operator's input, task.NoTimestamp before the first.
func (c *Context[OUT]) Watermark() int64 { return c.watermark }

// Now is processing time in epoch milliseconds.
func (c *Context[OUT]) Now() int64 { return c.env.Timers.Now() }

// sideways lets ToSide take any context.
type sideways interface{ side() (*sides, int64) }

func (c *Context[OUT]) side() (*sides, int64) { return &c.out.sides, c.at }

// ToSide sends a record to a side output.
func ToSide[T any](c sideways, tag *Tag[T], v T) {
	s, at := c.side()
	emitSide(s, tag, v, at)
}

// Apply runs a process function; make is called for each subtask.
func Apply[IN, OUT any](in *Stream[IN], make func() Function[IN, OUT], opts ...Option) *Stream[OUT] {
	return unary[IN, OUT](in, "Process", func() task.Wired { return &processOperator[IN, OUT]{f: make()} }, opts)
}

type processOperator[IN, OUT any] struct {
	single[OUT]
	f Function[IN, OUT]
	c Context[OUT]
}

func (p *processOperator[IN, OUT]) Input(int) any { return task.Input[IN](p) }

func (p *processOperator[IN, OUT]) Open(e *task.Env) error {
	p.c = Context[OUT]{out: &p.outputs, env: e, at: task.NoTimestamp, watermark: task.NoTimestamp}
	return p.f.Open(&Runtime{e})
}

func (p *processOperator[IN, OUT]) Batch(b *task.Batch[IN]) error {
	for i := range b.Values {
		p.c.at = b.Time(i)
		if err := p.f.Process(&p.c, b.Values[i]); err != nil {
			return err
		}
	}
	return p.flush()
}

func (p *processOperator[IN, OUT]) Watermark(at int64) error {
	p.c.watermark = at
	return p.outputs.Watermark(at)
}

func (p *processOperator[IN, OUT]) Snapshot(s *task.Snapshotting) error { return snapshotOf(p.f, s) }
func (p *processOperator[IN, OUT]) Complete(id int64) error             { return completeOf(p.f, id) }
func (p *processOperator[IN, OUT]) Aborted(id int64) error              { return abortedOf(p.f, id) }
func (p *processOperator[IN, OUT]) Close() error                        { return closeOf(p.f) }

func (p *processOperator[IN, OUT]) Finish() error {
	if f, ok := p.f.(Finisher[OUT]); ok {
		p.c.at = task.NoTimestamp
		if err := f.Finish(&p.c); err != nil {
			return err
		}
	}
	return p.flush()
}

func snapshotOf(f any, s *task.Snapshotting) error {
	if f, ok := f.(Snapshotter); ok {
		return f.Snapshot(s)
	}
	return nil
}

func completeOf(f any, id int64) error {
	if f, ok := f.(CheckpointListener); ok {
		return f.Complete(id)
	}
	return nil
}

func abortedOf(f any, id int64) error {
	if f, ok := f.(CheckpointListener); ok {
		return f.Aborted(id)
	}
	return nil
}

func closeOf(f any) error {
	if f, ok := f.(closer); ok {
		return f.Close()
	}
	return nil
}

var errNoTimers = errors.New("a timer is registered by a function that has no OnTimer")
