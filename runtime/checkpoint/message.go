package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// EventKind says what happened.
type EventKind uint8

// Kinds of events, with the fields of Event that they use.
const (
	// EvStart begins periodic checkpoints, the first of them after Delay ms.
	EvStart EventKind = iota
	// EvStop ends them, and aborts what is pending.
	EvStop
	// EvTask says that a task has come to a State. Whatever the job knows of a task
	// must come in order; a task of a new Attempt starts as TaskCreated or TaskRunning.
	EvTask
	// EvTrigger asks for a checkpoint: Request.
	EvTrigger
	// EvTimer is a timer that fired: Timer, ID.
	EvTimer
	// EvReserved answers ActReserve: IDs below ID may be used, or Err.
	EvReserved
	// EvLocation answers ActLocation: ID, Dir, or Err.
	EvLocation
	// EvCoordinator answers ActCoordinator: ID, Operator, Data, or Err.
	EvCoordinator
	// EvHook answers ActHook: ID, Hook, Master, or Err. A nil Master.Payload with
	// an empty name is a hook without state.
	EvHook
	// EvAck and EvDecline come from tasks.
	EvAck
	EvDecline
	// EvPassed says that the barrier ID passed the coordinated Operator in Task
	// (Flink's AcknowledgeCheckpointEvent). An acknowledgement says the same.
	EvPassed
	// EvSend is an event from the coordinator of Operator to Subtask: Data.
	EvSend
	// EvCommitted answers ActCommit: ID, Outcome, Dir (the metadata object), Err.
	EvCommitted
	// EvBacklog says whether the source Operator works through a backlog: On.
	EvBacklog
	// EvAbort aborts the checkpoint ID, on a user's wish.
	EvAbort
	// EvFailover says that the job restarts, all tasks of it or, if On, those that
	// were reported as failed. What is pending is aborted with Reason and, once no
	// checkpoint is being completed, ActRestore says from which to restart. The
	// tasks come back as new attempts; EvStart begins periodic checkpoints again.
	EvFailover
	// EvShutdown ends the coordinator: Status.
	EvShutdown
	// EvStored answers ActStore: Err.
	EvStored
)

var eventKinds = [...]string{"start", "stop", "task", "trigger", "timer", "reserved", "location", "coordinator", "hook", "ack", "decline",
	"passed", "send", "committed", "backlog", "abort", "failover", "shutdown", "stored"}

func (k EventKind) String() string {
	if int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Event is something that happened; Kind says which fields count.
type Event struct {
	Kind     EventKind
	Timer    Timer
	State    TaskState
	Outcome  Outcome
	Status   JobStatus
	Reason   event.Reason
	On       bool
	ID       int64
	Delay    int64
	Hook     int
	Subtask  int32
	Task     event.Task
	Operator metadata.OperatorID
	Request  *Request
	Ack      *event.Ack
	Decline  *event.Decline
	Master   metadata.MasterState
	Dir      string
	Data     []byte
	Err      error
}

// Timer is what a timer is for.
type Timer uint8

// Timers.
const (
	TimerTrigger Timer = iota // the next periodic checkpoint
	TimerExpire               // of checkpoint ID
	TimerHooks                // the master hooks of checkpoint ID
)

var timers = [...]string{"trigger", "expire", "hooks"}

func (t Timer) String() string {
	if int(t) < len(timers) {
		return timers[t]
	}
	return "timer"
}

// Outcome of ActCommit.
type Outcome uint8

// Outcomes.
const (
	// Committed: the metadata object and the store's record are durable.
	Committed Outcome = iota
	// NotWritten: there is no metadata object, and none will come.
	NotWritten
	// NotAdded: the metadata object is there (Dir), but the store has not taken the
	// checkpoint and will not.
	NotAdded
	// Fenced is NotAdded since another coordinator has taken over.
	Fenced
	// InDoubt: nobody knows. Nothing may be deleted; only reading the store again,
	// as a new coordinator does, tells.
	InDoubt
)

var outcomes = [...]string{"committed", "not written", "not added", "fenced", "in doubt"}

func (o Outcome) String() string {
	if int(o) < len(outcomes) {
		return outcomes[o]
	}
	return "outcome"
}

// JobStatus is how a job ended.
type JobStatus uint8

// Job statuses.
const (
	JobSuspended JobStatus = iota // the coordinator goes, the job will go on: all is kept
	JobFinished
	JobCanceled
	JobFailed
)

var jobStatuses = [...]string{"suspended", "finished", "canceled", "failed"}

func (s JobStatus) String() string {
	if int(s) < len(jobStatuses) {
		return jobStatuses[s]
	}
	return "status"
}

// ActionKind says what is to be done.
type ActionKind uint8

// Kinds of actions, with the fields of Action that they use. Those that are
// answered by an event must be answered exactly once.
const (
	// ActStartTimer replaces the timer of the same Timer and ID: it fires at At.
	ActStartTimer ActionKind = iota
	ActStopTimer
	// ActReserve asks for the right to use the IDs below ID. Answer: EvReserved.
	ActReserve
	// ActLocation prepares the place of checkpoint ID: Options. Answer: EvLocation.
	ActLocation
	// ActDiscardLocation gives it up. Its state files are the registry's, or named
	// in the event that brought them; only an empty folder may be left.
	ActDiscardLocation
	// ActCoordinator takes the state of Operator's coordinator. Answer: EvCoordinator.
	ActCoordinator
	// ActHook triggers master hook Hook for checkpoint ID at At. Answer: EvHook.
	ActHook
	// ActTrigger triggers Task: Barrier. A task that cannot be reached is declined
	// by whoever finds out.
	ActTrigger
	// ActCommit writes Checkpoint as metadata object and then adds it to the store,
	// whose content is Retained from then on. A savepoint is not added: Retained is
	// nil. But if the job is stopped with it, Stop, the store notes it as such, which
	// another coordinator that has taken over does not let happen. Answer: EvCommitted.
	ActCommit
	// ActStore makes Retained the store's content. Answer: EvStored.
	ActStore
	// ActNotifyComplete and ActNotifyAborted tell Task.
	ActNotifyComplete
	ActNotifyAborted
	// ActCoordinatorComplete and ActCoordinatorAborted tell Operator's coordinator.
	ActCoordinatorComplete
	ActCoordinatorAborted
	// ActHooksComplete tells all master hooks.
	ActHooksComplete
	// ActDeliver gives Data to Operator in Subtask: Task is its current attempt.
	ActDeliver
	// ActResult answers Request: checkpoint ID with the metadata object Dir, or
	// Reason and Err.
	ActResult
	// ActRestore says that the job may restart now, from Retained[0]; from nothing
	// if that is empty.
	ActRestore
	// ActFailJob ends the attempt of the job: Err. Fatal says that this coordinator
	// must not go on.
	ActFailJob
	// ActEnded says that after EvShutdown nothing is under way any more.
	ActEnded
	// ActCompleted and ActFailed are for logs, statistics and metrics: Stats.
	ActCompleted
	ActFailed
)

var actionKinds = [...]string{"start timer", "stop timer", "reserve", "location", "discard location", "coordinator", "hook", "trigger", "commit",
	"store", "notify complete", "notify aborted", "coordinator complete", "coordinator aborted", "hooks complete", "deliver", "result", "restore",
	"fail job", "ended", "completed", "failed"}

func (k ActionKind) String() string {
	if int(k) < len(actionKinds) {
		return actionKinds[k]
	}
	return fmt.Sprintf("action(%d)", uint8(k))
}

// Action is something to be done; Kind says which fields count.
type Action struct {
	Kind       ActionKind
	Timer      Timer
	Reason     event.Reason
	Fatal      bool
	Stop       bool
	ID         int64
	At         int64
	Hook       int
	Subtask    int32
	Task       event.Task
	Operator   metadata.OperatorID
	Barrier    event.Barrier
	Request    *Request
	Checkpoint *metadata.Checkpoint
	Retained   []Completed
	Stats      *Stats
	Dir        string
	Data       []byte
	Err        error
}

// ErrTooManyFailures is why a job is failed after more failed checkpoints than
// are tolerable.
var ErrTooManyFailures = errors.New("more checkpoints failed than are tolerable")

// ErrFenced says that another coordinator of the job has taken over.
var ErrFenced = errors.New("another coordinator of this job has taken over")

// ErrStopped says that the job was stopped with a savepoint, which it has to be
// started from.
var ErrStopped = errors.New("the job was stopped with a savepoint")

// ErrInDoubt says that it is not known whether a checkpoint was completed.
var ErrInDoubt = errors.New("not known whether the checkpoint was completed")

// Describe prints an action in one line, with the names of the job.
func (c *Core) Describe(a *Action) string {
	var b strings.Builder
	b.WriteString(a.Kind.String())
	id := func() { fmt.Fprintf(&b, " %d", a.ID) }
	text := func(s string) {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	switch a.Kind {
	case ActStartTimer:
		text(a.Timer.String())
		if a.Timer != TimerTrigger {
			id()
		}
		fmt.Fprintf(&b, " at %d", a.At)
	case ActStopTimer:
		text(a.Timer.String())
		if a.Timer != TimerTrigger {
			id()
		}
	case ActReserve:
		fmt.Fprintf(&b, " IDs below %d", a.ID)
	case ActLocation:
		id()
		fmt.Fprintf(&b, " (%s)", a.Barrier.Options)
	case ActDiscardLocation, ActHooksComplete:
		id()
	case ActCoordinator, ActCoordinatorComplete, ActCoordinatorAborted:
		id()
		text(c.g.operatorName(a.Operator))
	case ActHook:
		id()
		fmt.Fprintf(&b, " %s", c.opts.Hooks[a.Hook])
	case ActTrigger:
		text(c.g.taskName(a.Task))
		fmt.Fprintf(&b, " %s", a.Barrier)
	case ActCommit:
		id()
		fmt.Fprintf(&b, " %s", summary(a.Checkpoint))
		if a.Retained != nil {
			fmt.Fprintf(&b, ", store %s", completedList(a.Retained))
		}
		if a.Stop {
			b.WriteString(", the job stops with it")
		}
	case ActStore, ActRestore:
		fmt.Fprintf(&b, " %s", completedList(a.Retained))
	case ActNotifyComplete, ActNotifyAborted:
		id()
		text(c.g.taskName(a.Task))
	case ActDeliver:
		fmt.Fprintf(&b, " %q to %s in %s", a.Data, c.g.operatorName(a.Operator), c.g.taskName(a.Task))
	case ActResult:
		fmt.Fprintf(&b, " of request %d:", a.Request.Number)
		if a.Reason == event.NoFailure {
			id()
			text(a.Dir)
		} else {
			text(a.Reason.String())
		}
	case ActFailJob:
		if a.Fatal {
			b.WriteString(" for good")
		}
	case ActCompleted, ActFailed:
		id()
		if a.Kind == ActFailed {
			text(a.Reason.String())
		}
	}
	if a.Err != nil {
		fmt.Fprintf(&b, ": %v", a.Err)
	}
	return b.String()
}

// summary counts what stands in a checkpoint: "4 operators, 3 subtasks with state".
func summary(m *metadata.Checkpoint) string {
	subtasks, finished, coordinators := 0, 0, 0
	for i := range m.Operators {
		o := &m.Operators[i]
		if o.FullyFinished() {
			finished++
		}
		if o.Coordinator != nil {
			coordinators++
		}
		for k := range o.Subtasks {
			if !o.Subtasks[k].Finished {
				subtasks++
			}
		}
	}
	s := fmt.Sprintf("%d operators, %d subtasks with state", len(m.Operators), subtasks)
	if finished > 0 {
		s += fmt.Sprintf(", %d operators finished", finished)
	}
	if coordinators > 0 {
		s += fmt.Sprintf(", %d coordinators", coordinators)
	}
	if n := len(m.MasterStates); n > 0 {
		s += fmt.Sprintf(", %d master states", n)
	}
	return s
}

func completedList(list []Completed) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d", list[i].ID)
		if list[i].Mode != Own {
			fmt.Fprintf(&b, " (%s)", list[i].Mode)
		}
	}
	b.WriteByte(']')
	return b.String()
}
