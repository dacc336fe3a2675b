package checkpoint

import "github.com/tidemark/tidemark/metadata"

// OperatorCoordinator is an operator's part that runs beside the checkpoint
// coordinator and talks to the operator's subtasks by events: a source's split
// enumerator above all. Flink's OperatorCoordinator. Its methods are called one at
// a time, in the order in which things happened; a method may take its time, which
// delays checkpoints and nothing else.
type OperatorCoordinator interface {
	// Start comes first, after a Reset if there is something to restore.
	Start() error
	// HandleEvent is an event from a subtask's attempt.
	HandleEvent(subtask, attempt int32, data []byte) error
	// SubtaskReady says that events may be sent to a subtask's attempt.
	SubtaskReady(subtask, attempt int32) error
	// SubtaskFailed says that an attempt is gone; what was sent to it may be lost.
	SubtaskFailed(subtask, attempt int32, err error) error
	// SubtaskReset says that a subtask restarts alone, from checkpoint id (0 for
	// none), while the coordinator keeps its state.
	SubtaskReset(subtask int32, id int64) error
	// Checkpoint takes the coordinator's state; nil is none.
	Checkpoint(id int64) ([]byte, error)
	// Completed and Aborted may come late, twice, never and out of order.
	Completed(id int64) error
	Aborted(id int64) error
	// Reset gives back the state of checkpoint id, or says with id 0 that there is
	// none: before Start, or whenever the whole job restarts.
	Reset(id int64, state []byte) error
	Close() error
}

// CoordinatorContext is what an OperatorCoordinator may do. Its methods may be
// called from any goroutine.
type CoordinatorContext interface {
	Operator() metadata.OperatorID
	Parallelism() int32
	// Send sends an event to a subtask; one that is not running gets nothing, and
	// SubtaskFailed tells of it.
	Send(subtask int32, data []byte)
	// Fail fails the job.
	Fail(err error)
	// Backlog says whether the source works through a backlog, during which
	// checkpoints are taken at another interval.
	Backlog(on bool)
}
