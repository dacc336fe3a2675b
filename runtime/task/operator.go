package task

import (
	"context"

	"github.com/tidemark/tidemark/metadata"
)

// Operator is one operator of a chain in one subtask. All methods are called from
// the task's goroutine, in this order: Open, then records, watermarks and
// checkpoints, then Finish if the input ended, then Close, always. An error fails
// the task.
type Operator interface {
	// Open makes the operator ready: it registers its state, which is restored then.
	Open(e *Env) error
	// PrepareBarrier is Flink's prepareSnapshotPreBarrier: what must be sent before
	// the barrier of a checkpoint is sent here.
	PrepareBarrier(id int64) error
	// Snapshot puts into the operator state what belongs to a checkpoint. Managed
	// state is snapshotted by the task after it.
	Snapshot(s *Snapshotting) error
	// Complete says that a checkpoint is complete. It may come late, twice, never and
	// out of order.
	Complete(id int64) error
	// Aborted says that a checkpoint came to nothing.
	Aborted(id int64) error
	// Finish sends what is left at the end of the input. It may be called again after a
	// restart, with the state of a checkpoint that was taken after the first call: that
	// of other subtasks had not come so far.
	Finish() error
	// Close frees what Open took; also after an error, and if Open failed.
	Close() error
}

// Base is an Operator that does nothing, to be embedded.
type Base struct{}

// Open implements Operator.
func (Base) Open(*Env) error { return nil }

// PrepareBarrier implements Operator.
func (Base) PrepareBarrier(int64) error { return nil }

// Snapshot implements Operator.
func (Base) Snapshot(*Snapshotting) error { return nil }

// Complete implements Operator.
func (Base) Complete(int64) error { return nil }

// Aborted implements Operator.
func (Base) Aborted(int64) error { return nil }

// Finish implements Operator.
func (Base) Finish() error { return nil }

// Close implements Operator.
func (Base) Close() error { return nil }

// Wired is an operator that can be connected with others. The values are Input[T]
// of the types that the job's graph was checked for when it was built.
type Wired interface {
	Operator
	// Input is the i-th input of the operator.
	Input(i int) any
	// Connect adds an input behind the operator's main output, for an empty tag, or
	// one of its side outputs.
	Connect(tag string, in any)
}

// SourceOperator is an operator without input: the task polls it.
type SourceOperator interface {
	Wired
	// Poll sends some records on. It must not wait.
	Poll() (PollResult, error)
	// Event takes what the source's coordinator sent.
	Event(b []byte) error
	// Stop makes Poll answer PollEnd soon, for a stop with savepoint.
	Stop()
}

// PollResult says what a source has.
type PollResult uint8

// Results of a poll.
const (
	PollMore PollResult = iota // poll again soon
	PollNone                   // nothing now: the source calls Env.Wake
	PollEnd                    // nothing ever
)

// ID of an operator and where it runs, for messages and for naming files.
type Place struct {
	Operator       metadata.OperatorID
	Name           string
	UID            string
	Subtask        int
	Parallelism    int
	MaxParallelism int
	// Attempt counts the restarts of the job; Run is another string for each of them,
	// and for each process.
	Attempt int
	Run     string
}

// Timers calls back in the task's goroutine. Processing time of a job is what it
// says.
type Timers interface {
	// Now is the time in epoch milliseconds.
	Now() int64
	// At calls f at a time or soon after it, unless stop is called before.
	At(millis int64, f func() error) (stop func())
}

// Env is what an operator has of its task.
type Env struct {
	Place
	// Context ends when the task is cancelled.
	Context context.Context
	Timers  Timers
	// Checkpoints are taken: the last one after the end of the input.
	Checkpoints bool

	host host
	slot *slot
}

// host is the task as its operators see it.
type host interface {
	wake()
	execute(f func() error)
	toCoordinator(op metadata.OperatorID, event []byte) error
}

// Wake makes the task poll its source again. It may be called from any goroutine.
func (e *Env) Wake() { e.host.wake() }

// Execute runs f in the task's goroutine, between two batches. It may be called
// from any goroutine.
func (e *Env) Execute(f func() error) { e.host.execute(f) }

// ToCoordinator sends an event to the operator's coordinator.
func (e *Env) ToCoordinator(event []byte) error { return e.host.toCoordinator(e.Operator, event) }
