package stream

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemark/tidemark/serializer"
)

// Coordinator is the part of an operator that there is once in a job: Flink's
// OperatorCoordinator. It is called from one goroutine.
type Coordinator interface {
	// Start begins, with the state of the snapshot that the job starts from; nil is a
	// fresh start.
	Start(c CoordinatorContext, restored []byte) error
	// Event takes what a subtask sent.
	Event(subtask int, data []byte) error
	// Checkpoint gives the state for a checkpoint.
	Checkpoint(id int64) ([]byte, error)
	// Complete and Aborted say what became of a checkpoint.
	Complete(id int64) error
	Aborted(id int64) error
	Close() error
}

// CoordinatorContext is what a coordinator has of the job. Its methods may be called
// from any goroutine.
type CoordinatorContext interface {
	Parallelism() int
	// Send gives data to the operator in a subtask. While a checkpoint is under way it is
	// held back until the barrier has passed there.
	Send(subtask int, data []byte)
	// Execute runs f in the coordinator's goroutine; an error fails the job.
	Execute(f func() error)
}

// coordinatorVersion is that of Flink's SourceCoordinatorSerdeUtils.
const coordinatorVersion = 1

// sourceCoordinator is Flink's SourceCoordinator. Its state is
//
//	int32  1
//	int32  version of the enumerator's serializer
//	int32  length, then the enumerator's state
type sourceCoordinator[T, S, C any] struct {
	source     Source[T, S, C]
	c          CoordinatorContext
	enumerator Enumerator[S, C]
}

func (o *sourceCoordinator[T, S, C]) Start(c CoordinatorContext, restored []byte) error {
	o.c = c
	var state *C
	if restored != nil {
		if len(restored) < 4 || binary.BigEndian.Uint32(restored) != coordinatorVersion {
			return fmt.Errorf("state of a source's coordinator is not of version %d", coordinatorVersion)
		}
		v, n, err := serializer.ReadVersioned(restored[4:])
		if err == nil && n != len(restored)-4 {
			err = fmt.Errorf("%d bytes follow it", len(restored)-4-n)
		}
		if err != nil {
			return fmt.Errorf("state of a source's coordinator: %w", err)
		}
		s, err := o.source.Checkpoints().Deserialize(v.Version, v.Data)
		if err != nil {
			return fmt.Errorf("state of a source's enumerator: %w", err)
		}
		state = &s
	}
	var err error
	if o.enumerator, err = o.source.NewEnumerator(o, state); err != nil {
		return err
	}
	return o.enumerator.Start()
}

func (o *sourceCoordinator[T, S, C]) Event(subtask int, data []byte) error {
	if len(data) != 1 {
		return errors.New("an event of a reader that is not known")
	}
	switch data[0] {
	case eventRegister:
		return o.enumerator.AddReader(subtask)
	case eventRequest:
		return o.enumerator.RequestSplit(subtask)
	}
	return fmt.Errorf("an event of a reader of kind %q", data[0])
}

func (o *sourceCoordinator[T, S, C]) Checkpoint(id int64) ([]byte, error) {
	s, err := o.enumerator.Snapshot(id)
	if err != nil {
		return nil, err
	}
	return appendVersioned(binary.BigEndian.AppendUint32(nil, coordinatorVersion), o.source.Checkpoints(), s)
}

func (o *sourceCoordinator[T, S, C]) Complete(int64) error { return nil }
func (o *sourceCoordinator[T, S, C]) Aborted(int64) error  { return nil }

func (o *sourceCoordinator[T, S, C]) Close() error {
	if o.enumerator == nil {
		return nil
	}
	return o.enumerator.Close()
}

// Parallelism implements EnumeratorContext.
func (o *sourceCoordinator[T, S, C]) Parallelism() int { return o.c.Parallelism() }

// Assign implements EnumeratorContext.
func (o *sourceCoordinator[T, S, C]) Assign(subtask int, splits ...S) error {
	b := binary.BigEndian.AppendUint32([]byte{eventAdd}, uint32(o.source.Splits().Version()))
	for _, s := range splits {
		x, err := o.source.Splits().Serialize(s)
		if err != nil {
			return err
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(x))), x...)
	}
	o.c.Send(subtask, b)
	return nil
}

// NoMoreSplits implements EnumeratorContext.
func (o *sourceCoordinator[T, S, C]) NoMoreSplits(subtask int) {
	o.c.Send(subtask, []byte{eventNoMore})
}

// Execute implements EnumeratorContext.
func (o *sourceCoordinator[T, S, C]) Execute(f func() error) { o.c.Execute(f) }
