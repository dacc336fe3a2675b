package event

// Reason is why a checkpoint failed, by the names of Flink's
// CheckpointFailureReason. The zero value is no failure.
type Reason uint8

// Reasons. The first group is pre-flight: the checkpoint never got an ID that
// anybody saw.
const (
	NoFailure Reason = iota
	PeriodicSchedulerShutdown
	TooManyCheckpointRequests
	MinimumTimeBetweenCheckpoints
	NotAllRequiredTasksRunning
	IOException
	BlockingOutputExist

	CheckpointAsyncException
	ChannelStateSharedStreamException
	CheckpointExpired
	CheckpointSubsumed
	CheckpointDeclined
	DeclinedTaskNotReady
	DeclinedTaskClosing
	DeclinedSubsumed
	DeclinedOnCancellationBarrier
	DeclinedInputEndOfStream
	CoordinatorShutdown
	CoordinatorSuspend
	JobFailoverRegion
	TaskFailure
	TaskCheckpointFailure
	UnknownTaskNotificationFailure
	FinalizeFailure
	TriggerFailure
)

var reasons = [...]struct{ name, text string }{
	NoFailure:                         {"NONE", "no failure"},
	PeriodicSchedulerShutdown:         {"PERIODIC_SCHEDULER_SHUTDOWN", "the periodic checkpoint scheduler is shut down"},
	TooManyCheckpointRequests:         {"TOO_MANY_CHECKPOINT_REQUESTS", "the maximum number of queued checkpoint requests is exceeded"},
	MinimumTimeBetweenCheckpoints:     {"MINIMUM_TIME_BETWEEN_CHECKPOINTS", "the minimum pause between checkpoints has not passed"},
	NotAllRequiredTasksRunning:        {"NOT_ALL_REQUIRED_TASKS_RUNNING", "not all required tasks are running"},
	IOException:                       {"IO_EXCEPTION", "input or output failed while the checkpoint was triggered"},
	BlockingOutputExist:               {"BLOCKING_OUTPUT_EXIST", "a running task has a blocking output"},
	CheckpointAsyncException:          {"CHECKPOINT_ASYNC_EXCEPTION", "the asynchronous part of a task failed"},
	ChannelStateSharedStreamException: {"CHANNEL_STATE_SHARED_STREAM_EXCEPTION", "another subtask that shares the channel state file failed"},
	CheckpointExpired:                 {"CHECKPOINT_EXPIRED", "the checkpoint timed out"},
	CheckpointSubsumed:                {"CHECKPOINT_SUBSUMED", "a newer checkpoint completed first"},
	CheckpointDeclined:                {"CHECKPOINT_DECLINED", "a task declined the checkpoint"},
	DeclinedTaskNotReady:              {"CHECKPOINT_DECLINED_TASK_NOT_READY", "a task was not ready"},
	DeclinedTaskClosing:               {"CHECKPOINT_DECLINED_TASK_CLOSING", "a task is closing"},
	DeclinedSubsumed:                  {"CHECKPOINT_DECLINED_SUBSUMED", "the barrier of a newer checkpoint came first"},
	DeclinedOnCancellationBarrier:     {"CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER", "a task was told by an input to give the checkpoint up"},
	DeclinedInputEndOfStream:          {"CHECKPOINT_DECLINED_INPUT_END_OF_STREAM", "an input ended before its barrier"},
	CoordinatorShutdown:               {"CHECKPOINT_COORDINATOR_SHUTDOWN", "the checkpoint coordinator is shut down"},
	CoordinatorSuspend:                {"CHECKPOINT_COORDINATOR_SUSPEND", "the checkpoint coordinator is suspended"},
	JobFailoverRegion:                 {"JOB_FAILOVER_REGION", "tasks are being restarted"},
	TaskFailure:                       {"TASK_FAILURE", "a task failed"},
	TaskCheckpointFailure:             {"TASK_CHECKPOINT_FAILURE", "a task could not take its snapshot"},
	UnknownTaskNotificationFailure:    {"UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE", "the task to be notified is not known"},
	FinalizeFailure:                   {"FINALIZE_CHECKPOINT_FAILURE", "the checkpoint could not be completed"},
	TriggerFailure:                    {"TRIGGER_CHECKPOINT_FAILURE", "the checkpoint could not be triggered"},
}

// String is Flink's name of the reason.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].name
	}
	return "UNKNOWN"
}

// Text is a sentence for people.
func (r Reason) Text() string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return "unknown reason"
}

// PreFlight says that the checkpoint failed before it was a PendingCheckpoint.
func (r Reason) PreFlight() bool {
	return r >= PeriodicSchedulerShutdown && r <= BlockingOutputExist
}

// ParseReason gives the reason of a Flink name.
func ParseReason(name string) (Reason, bool) {
	for i := range reasons {
		if reasons[i].name == name {
			return Reason(i), true
		}
	}
	return NoFailure, false
}
