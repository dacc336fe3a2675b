package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/runtime/event"
)

// Versioned writes and reads values with a version of its own: Flink's
// SimpleVersionedSerializer.
type Versioned[T any] interface {
	Version() int32
	Serialize(T) ([]byte, error)
	Deserialize(version int32, data []byte) (T, error)
}

// SplitEnumerator finds the splits of a source and assigns them to readers: Flink's
// interface of FLIP-27. S is a split, C the enumerator's state.
type SplitEnumerator[S, C any] interface {
	Start() error
	// HandleSplitRequest is a reader's wish for a split; host may be empty.
	HandleSplitRequest(subtask int32, host string) error
	// AddSplitsBack gives back splits whose reader failed before they were in a
	// checkpoint. The reader is not registered; it comes again by AddReader.
	AddSplitsBack(splits []S, subtask int32) error
	AddReader(subtask int32) error
	// Snapshot is the enumerator's state: all splits that no reader has.
	Snapshot(id int64) (C, error)
	Close() error
}

// SourceEventHandler is implemented by enumerators whose readers send own events.
type SourceEventHandler interface {
	HandleSourceEvent(subtask int32, data []byte) error
}

// CheckpointListener is implemented by enumerators that want to know of completed
// checkpoints.
type CheckpointListener interface {
	CheckpointComplete(id int64) error
}

// EnumeratorContext is what an enumerator may do, within a call of its methods.
type EnumeratorContext[S any] interface {
	Parallelism() int32
	// Readers are the registered subtasks, ascending.
	Readers() []int32
	// Assign gives splits to a registered reader.
	Assign(subtask int32, splits ...S) error
	// NoMoreSplits tells a reader that it will get no more.
	NoMoreSplits(subtask int32) error
	SendSourceEvent(subtask int32, data []byte) error
	Backlog(on bool)
}

// SourceOptions are the parts of a source that its coordinator needs.
type SourceOptions[S, C any] struct {
	// New makes the enumerator, with nil for a job that begins, and with the state
	// of a checkpoint otherwise.
	New    func(ctx EnumeratorContext[S], state *C) (SplitEnumerator[S, C], error)
	Splits Versioned[S]
	States Versioned[C]
}

// SourceCoordinator runs a source's enumerator: Flink's SourceCoordinator. Its
// state is that of the enumerator, in Flink's frame:
//
//	bytes  field
//	4      version of this frame, 1
//	4      version of the enumerator's serializer
//	4      length, then the enumerator's bytes
//
// Source: Flink, SourceCoordinator.java and SourceCoordinatorSerdeUtils.java. Like
// every OperatorCoordinator it is called by one goroutine at a time.
type SourceCoordinator[S, C any] struct {
	ctx     CoordinatorContext
	opts    SourceOptions[S, C]
	enum    SplitEnumerator[S, C]
	tracker SplitAssignmentTracker[S]
	readers map[int32]string // registered, with their host
	state   *C               // restored, not yet given to an enumerator
	started bool
}

// NewSourceCoordinator makes the coordinator of a source. Reset, if at all, and
// then Start come next.
func NewSourceCoordinator[S, C any](ctx CoordinatorContext, opts SourceOptions[S, C]) *SourceCoordinator[S, C] {
	return &SourceCoordinator[S, C]{ctx: ctx, opts: opts, readers: map[int32]string{}}
}

// Start implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) Start() error {
	if s.started {
		return nil
	}
	s.started = true
	return s.begin()
}

func (s *SourceCoordinator[S, C]) begin() error {
	e, err := s.opts.New((*enumeratorContext[S, C])(s), s.state)
	if err != nil {
		return fmt.Errorf("split enumerator: %w", err)
	}
	s.enum, s.state = e, nil
	return e.Start()
}

// HandleEvent implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) HandleEvent(subtask, attempt int32, data []byte) error {
	if s.enum == nil {
		return errors.New("source coordinator: an event before the start")
	}
	e, err := event.DecodeSource(data)
	if err != nil {
		return fmt.Errorf("from reader %d: %w", subtask, err)
	}
	switch e.Kind {
	case event.RegisterReader:
		s.readers[subtask] = e.Host
		return s.enum.AddReader(subtask)
	case event.RequestSplit:
		if _, ok := s.readers[subtask]; !ok {
			return fmt.Errorf("reader %d asks for a split before it registered", subtask)
		}
		return s.enum.HandleSplitRequest(subtask, e.Host)
	case event.SourceUser:
		h, ok := s.enum.(SourceEventHandler)
		if !ok {
			return fmt.Errorf("reader %d sent an event that its enumerator does not take", subtask)
		}
		return h.HandleSourceEvent(subtask, e.Data)
	}
	return fmt.Errorf("reader %d sent %q, which only a coordinator sends", subtask, e.Kind)
}

// SubtaskReady implements OperatorCoordinator; a reader registers itself.
func (s *SourceCoordinator[S, C]) SubtaskReady(_, _ int32) error { return nil }

// SubtaskFailed implements OperatorCoordinator: the reader is not registered any more.
func (s *SourceCoordinator[S, C]) SubtaskFailed(subtask, _ int32, _ error) error {
	delete(s.readers, subtask)
	return nil
}

// SubtaskReset implements OperatorCoordinator: the splits that the restored reader
// does not have go back to the enumerator.
func (s *SourceCoordinator[S, C]) SubtaskReset(subtask int32, id int64) error {
	delete(s.readers, subtask)
	splits := s.tracker.Take(subtask, id)
	if len(splits) == 0 || s.enum == nil {
		return nil
	}
	return s.enum.AddSplitsBack(splits, subtask)
}

const sourceFrameVersion = 1

// Checkpoint implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) Checkpoint(id int64) ([]byte, error) {
	if s.enum == nil {
		return nil, errors.New("source coordinator: not started")
	}
	state, err := s.enum.Snapshot(id)
	if err != nil {
		return nil, fmt.Errorf("split enumerator: %w", err)
	}
	data, err := s.opts.States.Serialize(state)
	if err != nil {
		return nil, fmt.Errorf("state of the split enumerator: %w", err)
	}
	b := make([]byte, 0, 12+len(data))
	b = binary.BigEndian.AppendUint32(b, sourceFrameVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(s.opts.States.Version()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	s.tracker.Snapshot(id)
	return append(b, data...), nil
}

// Completed implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) Completed(id int64) error {
	s.tracker.Completed(id)
	if l, ok := s.enum.(CheckpointListener); ok {
		return l.CheckpointComplete(id)
	}
	return nil
}

// Aborted implements OperatorCoordinator. What was assigned up to the aborted
// checkpoint is in the next one that completes.
func (s *SourceCoordinator[S, C]) Aborted(int64) error { return nil }

// Reset implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) Reset(id int64, data []byte) error {
	s.state = nil
	if id != 0 && data != nil {
		state, err := s.decode(data)
		if err != nil {
			return fmt.Errorf("source coordinator, checkpoint %d: %w", id, err)
		}
		s.state = &state
	}
	s.tracker.Reset()
	clear(s.readers)
	if !s.started {
		return nil
	}
	if s.enum != nil {
		if err := s.enum.Close(); err != nil {
			return fmt.Errorf("split enumerator: %w", err)
		}
		s.enum = nil
	}
	return s.begin()
}

func (s *SourceCoordinator[S, C]) decode(data []byte) (state C, err error) {
	if len(data) < 12 {
		return state, fmt.Errorf("state of %d bytes is cut off", len(data))
	}
	frame := int32(binary.BigEndian.Uint32(data))
	if frame < 0 || frame > sourceFrameVersion {
		return state, fmt.Errorf("version %d of the coordinator's state is not known", frame)
	}
	version, n := int32(binary.BigEndian.Uint32(data[4:])), binary.BigEndian.Uint32(data[8:])
	rest := data[12:]
	// Version 0, of Flink 1.11 and 1.12, goes on with what the readers have as well.
	if uint64(n) > uint64(len(rest)) || frame > 0 && uint64(n) < uint64(len(rest)) {
		return state, fmt.Errorf("state of the split enumerator has %d bytes, and %d are there", n, len(rest))
	}
	return s.opts.States.Deserialize(version, rest[:n])
}

// Close implements OperatorCoordinator.
func (s *SourceCoordinator[S, C]) Close() error {
	if s.enum == nil {
		return nil
	}
	e := s.enum
	s.enum = nil
	return e.Close()
}

// enumeratorContext keeps the enumerator's calls apart from the coordinator's.
type enumeratorContext[S, C any] SourceCoordinator[S, C]

func (c *enumeratorContext[S, C]) Parallelism() int32 { return c.ctx.Parallelism() }

func (c *enumeratorContext[S, C]) Readers() []int32 {
	readers := make([]int32, 0, len(c.readers))
	for r := range c.readers {
		readers = append(readers, r)
	}
	slices.Sort(readers)
	return readers
}

func (c *enumeratorContext[S, C]) registered(subtask int32) error {
	if _, ok := c.readers[subtask]; !ok {
		return fmt.Errorf("reader %d is not registered", subtask)
	}
	return nil
}

func (c *enumeratorContext[S, C]) Assign(subtask int32, splits ...S) error {
	if err := c.registered(subtask); err != nil {
		return err
	}
	e := event.SourceEvent{Kind: event.AddSplits, Version: c.opts.Splits.Version()}
	for _, s := range splits {
		b, err := c.opts.Splits.Serialize(s)
		if err != nil {
			return fmt.Errorf("split for reader %d: %w", subtask, err)
		}
		e.Splits = append(e.Splits, b)
	}
	c.tracker.Record(subtask, splits...)
	c.ctx.Send(subtask, e.Encode())
	return nil
}

func (c *enumeratorContext[S, C]) NoMoreSplits(subtask int32) error {
	if err := c.registered(subtask); err != nil {
		return err
	}
	c.ctx.Send(subtask, (&event.SourceEvent{Kind: event.NoMoreSplits}).Encode())
	return nil
}

func (c *enumeratorContext[S, C]) SendSourceEvent(subtask int32, data []byte) error {
	if err := c.registered(subtask); err != nil {
		return err
	}
	c.ctx.Send(subtask, (&event.SourceEvent{Kind: event.SourceUser, Data: data}).Encode())
	return nil
}

func (c *enumeratorContext[S, C]) Backlog(on bool) { c.ctx.Backlog(on) }
