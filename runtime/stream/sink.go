package stream

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// VersionedSerializer is Flink's SimpleVersionedSerializer: the version stands beside
// the bytes in a snapshot, and all versions so far can be read.
type VersionedSerializer[T any] = checkpoint.Versioned[T]

// Sink writes records to the outside exactly once, by two-phase commit: Flink's
// TwoPhaseCommittingSink. What a writer has written becomes a committable before each
// checkpoint's barrier (pre-commit), stands in the checkpoint, and is committed once
// that is complete. After a failure what the restored checkpoint has is committed
// (recover), and what it has not is dropped (abort).
type Sink[T, C any] interface {
	// NewWriter begins to write in one subtask.
	NewWriter(e *task.Env) (SinkWriter[T, C], error)
	// Committables is how they stand in a checkpoint.
	Committables() VersionedSerializer[C]
	// Commit makes committables visible. It may be called again for those that were
	// committed, which is no error.
	Commit(ctx context.Context, e *task.Env, committables []C) error
	// Recover drops what earlier runs (task.Place.Run) left uncommitted. One subtask
	// calls it once in each run, after the first complete checkpoint: by then all that
	// the restored one had is committed.
	Recover(ctx context.Context, e *task.Env) error
}

// SinkWriter writes the records of one subtask.
type SinkWriter[T, C any] interface {
	Write(v T, at int64) error
	// PreCommit ends what was written so far and gives it as committables, which are
	// durable now, but not visible.
	PreCommit() ([]C, error)
	// Close frees what the writer holds. What was not pre-committed is dropped.
	Close() error
}

// To writes a stream to a sink.
func To[T, C any](in *Stream[T], s Sink[T, C], opts ...Option) *Node {
	n := in.job.add("Sink", in.parallelism(), func() task.Wired { return &sinkOperator[T, C]{sink: s} }, opts)
	in.into(n, 0)
	return n
}

// sinkOperator is Flink's SinkWriterOperator and CommitterOperator in one.
type sinkOperator[T, C any] struct {
	task.Base
	sink      Sink[T, C]
	env       *task.Env
	w         SinkWriter[T, C]
	state     *operatorstate.ListState[[]byte]
	epochs    []epoch[C] // ascending by checkpoint
	recovered bool
	held      []C // pre-committed, of no checkpoint yet
}

// epoch is what was pre-committed for a checkpoint.
type epoch[C any] struct {
	id           int64
	committables []C
}

// committableState is a list whose elements are dealt out when the parallelism
// changes: it does not matter who commits. An element is
//
//	int64  checkpoint ID
//	int32  version of the committables' serializer
//	bytes  the committable
const committableState = "committables"

func (s *sinkOperator[T, C]) Input(int) any       { return task.Input[T](s) }
func (s *sinkOperator[T, C]) Connect(string, any) { panic("a sink has no output") }

func (s *sinkOperator[T, C]) Open(e *task.Env) error {
	s.env = e
	b, err := e.OperatorState()
	if err != nil {
		return err
	}
	if s.state, err = operatorstate.List(b, committableState, serializer.Bytes); err != nil {
		return err
	}
	var restored []C
	for i, element := range s.state.All() {
		c, err := s.read(element)
		if err != nil {
			return fmt.Errorf("state %s, element %d: %w", committableState, i, err)
		}
		restored = append(restored, c)
	}
	s.state.Clear()
	if len(restored) > 0 {
		if err := s.sink.Commit(e.Context, e, restored); err != nil {
			return fmt.Errorf("commit of what checkpoint %d has: %w", e.RestoredID(), err)
		}
	}
	s.w, err = s.sink.NewWriter(e)
	return err
}

func (s *sinkOperator[T, C]) read(element []byte) (c C, err error) {
	if len(element) < 12 {
		return c, fmt.Errorf("has %d bytes, 12 at least are needed: %w", len(element), serializer.ErrShort)
	}
	return s.sink.Committables().Deserialize(int32(binary.BigEndian.Uint32(element[8:])), element[12:])
}

func (s *sinkOperator[T, C]) Batch(b *task.Batch[T]) error {
	for i := range b.Values {
		if err := s.w.Write(b.Values[i], b.Time(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *sinkOperator[T, C]) Watermark(int64) error { return nil }
func (s *sinkOperator[T, C]) Idle(bool) error       { return nil }

// preCommit gathers what was written; the next checkpoint takes it.
func (s *sinkOperator[T, C]) preCommit() error {
	list, err := s.w.PreCommit()
	s.held = append(s.held, list...)
	return err
}

func (s *sinkOperator[T, C]) PrepareBarrier(int64) error { return s.preCommit() }

// Finish ends what is written. The last checkpoint commits it; without checkpoints
// nothing else would.
func (s *sinkOperator[T, C]) Finish() error {
	if err := s.preCommit(); err != nil || s.env.Checkpoints {
		return err
	}
	if err := s.sink.Commit(s.env.Context, s.env, s.held); err != nil {
		return fmt.Errorf("commit at the end of the input: %w", err)
	}
	s.held = nil
	return nil
}

func (s *sinkOperator[T, C]) Snapshot(x *task.Snapshotting) error {
	if len(s.held) > 0 {
		s.epochs, s.held = append(s.epochs, epoch[C]{x.ID, s.held}), nil
	}
	s.state.Clear()
	for _, e := range s.epochs {
		for _, c := range e.committables {
			b, err := s.sink.Committables().Serialize(c)
			if err != nil {
				return fmt.Errorf("committable of checkpoint %d: %w", e.id, err)
			}
			element := binary.BigEndian.AppendUint64(make([]byte, 0, 12+len(b)), uint64(e.id))
			element = binary.BigEndian.AppendUint32(element, uint32(s.sink.Committables().Version()))
			s.state.Append(append(element, b...))
		}
	}
	return nil
}

// Complete commits what a checkpoint has: of it and of those before it, whose
// notifications may be lost, or which were aborted.
func (s *sinkOperator[T, C]) Complete(id int64) error {
	if s.env.Subtask == 0 && !s.recovered {
		// A checkpoint is taken only when all subtasks run, so all of them have committed
		// what they were given.
		s.recovered = true
		if err := s.sink.Recover(s.env.Context, s.env); err != nil {
			return fmt.Errorf("recovery: %w", err)
		}
	}
	n := 0
	var due []C
	for n < len(s.epochs) && s.epochs[n].id <= id {
		due = append(due, s.epochs[n].committables...)
		n++
	}
	if n == 0 {
		return nil
	}
	if err := s.sink.Commit(s.env.Context, s.env, due); err != nil {
		return fmt.Errorf("commit of checkpoint %d: %w", id, err)
	}
	s.epochs = slices.Delete(s.epochs, 0, n)
	return nil
}

func (s *sinkOperator[T, C]) Close() error {
	if s.w == nil {
		return nil
	}
	return s.w.Close()
}

// ForEach calls f for each record. Records that were processed after the last
// checkpoint come again after a failure.
func ForEach[T any](in *Stream[T], f func(v T) error, opts ...Option) *Node {
	n := in.job.add("Sink: For Each", in.parallelism(), func() task.Wired { return &forEach[T]{f: f} }, opts)
	in.into(n, 0)
	return n
}

type forEach[T any] struct {
	task.Base
	f func(T) error
}

func (s *forEach[T]) Input(int) any         { return task.Input[T](s) }
func (s *forEach[T]) Connect(string, any)   { panic("a sink has no output") }
func (s *forEach[T]) Watermark(int64) error { return nil }
func (s *forEach[T]) Idle(bool) error       { return nil }
func (s *forEach[T]) Batch(b *task.Batch[T]) error {
	for i := range b.Values {
		if err := s.f(b.Values[i]); err != nil {
			return err
		}
	}
	return nil
}

// Discard drops the records.
func Discard[T any](in *Stream[T], opts ...Option) *Node {
	n := in.job.add("Sink: Discard", in.parallelism(), func() task.Wired { return &discard[T]{} }, opts)
	in.into(n, 0)
	return n
}

type discard[T any] struct{ task.Base }

func (s *discard[T]) Input(int) any              { return task.Input[T](s) }
func (s *discard[T]) Connect(string, any)        { panic("a sink has no output") }
func (s *discard[T]) Watermark(int64) error      { return nil }
func (s *discard[T]) Idle(bool) error            { return nil }
func (s *discard[T]) Batch(*task.Batch[T]) error { return nil }
