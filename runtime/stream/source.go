package stream

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// Source is where records come from, in Flink's (FLIP-27) shape: an enumerator, of
// which there is one, finds splits S and assigns them to readers, one in each
// subtask. Readers have the splits they read in their state, with how far they are; C
// is the state of the enumerator, which has the splits that are not assigned.
type Source[T, S, C any] interface {
	Splits() VersionedSerializer[S]
	Checkpoints() VersionedSerializer[C]
	// NewEnumerator makes the enumerator; restored is its state in the snapshot that the
	// job starts from, nil for a fresh start.
	NewEnumerator(c checkpoint.EnumeratorContext[S], restored *C) (checkpoint.SplitEnumerator[S, C], error)
	NewReader(e *task.Env) (Reader[T, S], error)
}

// Reader reads splits in one subtask, in the task's goroutine. It may also implement
// SourceEventHandler and CheckpointListener.
type Reader[T, S any] interface {
	// Start is called after the splits of a restored job were added.
	Start() error
	// Add gives splits to read.
	Add(splits []S) error
	// NoMoreSplits says that none will come.
	NoMoreSplits() error
	// Poll sends some records, up to a batch, and watermarks if the source knows event
	// time. If it has nothing it says PollNone and later calls task.Env.Wake.
	Poll(out *task.Collector[T]) (task.PollResult, error)
	// Snapshot gives the splits with how far they are.
	Snapshot(id int64) ([]S, error)
	Close() error
}

// RequestSplit asks the enumerator for a split; for readers.
func RequestSplit(e *task.Env) error {
	return e.ToCoordinator((&event.SourceEvent{Kind: event.RequestSplit}).Encode())
}

// SourceEventHandler is a reader that takes what its enumerator sends with
// SendSourceEvent. It is dropped by one that is none, as in Flink.
type SourceEventHandler interface {
	HandleSourceEvent(data []byte) error
}

// SendSourceEvent sends something to the enumerator, which has to be a
// checkpoint.SourceEventHandler; for readers.
func SendSourceEvent(e *task.Env, data []byte) error {
	return e.ToCoordinator((&event.SourceEvent{Kind: event.SourceUser, Data: data}).Encode())
}

// From begins a stream with a source. Its watermarks, if it makes none, come at its
// end; see Watermarks.
func From[T, S, C any](j *Job, s Source[T, S, C], opts ...Option) *Stream[T] {
	n := j.add("Source", j.opts.Parallelism, func() task.Wired { return &sourceOperator[T, S, C]{source: s} }, opts)
	n.Coordinator = func(c checkpoint.CoordinatorContext) (checkpoint.OperatorCoordinator, error) {
		return checkpoint.NewSourceCoordinator(c, checkpoint.SourceOptions[S, C]{New: s.NewEnumerator, Splits: s.Splits(), States: s.Checkpoints()}), nil
	}
	return newStream[T](j, n, "")
}

// readerState is the name of Flink's SourceOperator for the splits of a reader.
const readerState = "SourceReaderState"

// sourceOperator is Flink's SourceOperator.
type sourceOperator[T, S, C any] struct {
	single[T]
	source Source[T, S, C]
	reader Reader[T, S]
	state  *operatorstate.ListState[[]byte]
	ended  bool
}

func (o *sourceOperator[T, S, C]) Input(int) any { panic("a source has no input") }

func (o *sourceOperator[T, S, C]) Open(e *task.Env) error {
	b, err := e.OperatorState()
	if err != nil {
		return err
	}
	if o.state, err = operatorstate.List(b, readerState, serializer.Bytes); err != nil {
		return err
	}
	var splits []S
	for i, element := range o.state.All() {
		v, n, err := serializer.ReadVersioned(element)
		if err == nil && n != len(element) {
			err = fmt.Errorf("%d bytes follow the split", len(element)-n)
		}
		if err != nil {
			return fmt.Errorf("state %s, element %d: %w", readerState, i, err)
		}
		s, err := o.source.Splits().Deserialize(v.Version, v.Data)
		if err != nil {
			return fmt.Errorf("state %s, element %d: %w", readerState, i, err)
		}
		splits = append(splits, s)
	}
	if o.reader, err = o.source.NewReader(e); err != nil {
		return err
	}
	if len(splits) > 0 {
		if err := o.reader.Add(splits); err != nil {
			return err
		}
	}
	if err := e.ToCoordinator((&event.SourceEvent{Kind: event.RegisterReader}).Encode()); err != nil {
		return err
	}
	return o.reader.Start()
}

func (o *sourceOperator[T, S, C]) Poll() (task.PollResult, error) {
	if o.ended {
		return task.PollEnd, nil
	}
	r, err := o.reader.Poll(&o.out)
	if err != nil {
		return r, err
	}
	return r, o.out.Flush()
}

func (o *sourceOperator[T, S, C]) Stop() { o.ended = true }

// End sends what ends event time. Nobody takes a watermark of a source that is idle.
func (o *sourceOperator[T, S, C]) End() error {
	if err := o.outputs.Idle(false); err != nil {
		return err
	}
	return o.outputs.Watermark(task.MaxWatermark)
}

func (o *sourceOperator[T, S, C]) Event(b []byte) error {
	e, err := event.DecodeSource(b)
	if err != nil {
		return err
	}
	switch e.Kind {
	case event.NoMoreSplits:
		return o.reader.NoMoreSplits()
	case event.AddSplits:
		splits := make([]S, len(e.Splits))
		for i, x := range e.Splits {
			if splits[i], err = o.source.Splits().Deserialize(e.Version, x); err != nil {
				return err
			}
		}
		return o.reader.Add(splits)
	case event.SourceUser:
		if h, ok := o.reader.(SourceEventHandler); ok {
			return h.HandleSourceEvent(e.Data)
		}
		return nil
	}
	return fmt.Errorf("%q came from a source's coordinator", e.Kind)
}

func (o *sourceOperator[T, S, C]) Snapshot(x *task.Snapshotting) error {
	splits, err := o.reader.Snapshot(x.ID)
	if err != nil {
		return err
	}
	o.state.Clear()
	for _, s := range splits {
		b, err := appendVersioned(nil, o.source.Splits(), s)
		if err != nil {
			return err
		}
		o.state.Append(b)
	}
	return nil
}

func (o *sourceOperator[T, S, C]) Complete(id int64) error { return completeOf(o.reader, id) }
func (o *sourceOperator[T, S, C]) Aborted(id int64) error  { return abortedOf(o.reader, id) }

// appendVersioned appends int32 version, int32 length and the bytes.
func appendVersioned[T any](dst []byte, ser VersionedSerializer[T], v T) ([]byte, error) {
	b, err := ser.Serialize(v)
	if err != nil {
		return nil, err
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(ser.Version()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}

func (o *sourceOperator[T, S, C]) Close() error {
	if o.reader == nil {
		return nil
	}
	return o.reader.Close()
}
