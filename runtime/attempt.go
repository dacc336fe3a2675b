package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TaskError is the failure of a task.
type TaskError struct {
	Name    string
	Subtask int
	Attempt int
	Err     error
}

func (e *TaskError) Error() string {
	return fmt.Sprintf("task %s, subtask %d: %v", e.Name, e.Subtask, e.Err)
}

func (e *TaskError) Unwrap() error { return e.Err }

// CancelError says that tasks have not ended although they were cancelled: a function
// of theirs waits for something that is none of the runtime's.
type CancelError struct{ Tasks []string }

func (e *CancelError) Error() string {
	return fmt.Sprintf("%d tasks cannot be cancelled: %v", len(e.Tasks), e.Tasks)
}

// deploy starts an attempt: state is restored, channels and tasks are made.
func (e *Execution) deploy() {
	if e.Status() != Created && e.Status() != Restarting {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run{ctx: ctx, tasks: map[event.Task]*running{}, cancel: cancel, dataEnds: map[event.Task]bool{}}
	e.run = r
	// A failure from here on is one of this attempt.
	e.setStatus(Running)
	if err := e.build(ctx, r); err != nil {
		if errors.Is(err, blobstore.ErrTemporary) { // a store that does not answer is no end of a job
			e.failed(err)
		} else {
			e.failForGood(err)
		}
		return
	}
	e.mu.Lock()
	clear(e.current)
	for id, x := range r.tasks {
		e.current[id] = x.t
	}
	e.mu.Unlock()
	r.left = len(r.tasks)
	for id, x := range r.tasks {
		e.coordinator.TaskState(id, checkpoint.TaskCreated, nil)
		go func() {
			err := x.t.Run(ctx)
			e.inbox.put(func() { e.taskEnded(r, id, err) })
		}()
	}
}

// build makes what an attempt consists of. Nothing of it runs yet. A checkpoint that
// cannot be read fails the job: an older one in its place would be a silent loss.
func (e *Execution) build(ctx context.Context, r *run) (err error) {
	if e.restored, err = e.coordinator.Restore(ctx, e.from, e.plan.fixedMax); err != nil {
		return err
	}
	e.state = nil
	if e.restored != nil {
		e.state = task.NewRestored(e.restored.Snapshot)
		e.state.Own = e.restored.From.Mode != checkpoint.NotClaimed
		for i, v := range e.plan.vertices {
			v.max = int(e.restored.MaxParallelism[i])
		}
		if err = e.plan.takesInFlight(e.restored.Snapshot); err != nil {
			return err
		}
	}
	r.links, err = e.opts.Transport.Open(channel.LinkOptions{Context: ctx, Pool: e.channels, Buffers: e.opts.BuffersPerChannel, Failed: func(err error) {
		e.inbox.put(func() {
			if e.run == r {
				e.failed(err)
			}
		})
	}})
	if err != nil {
		return err
	}
	made := map[*exchange]*madeExchange{}
	for _, v := range e.plan.vertices {
		for i, x := range v.inputs {
			p := slices.Index(x.from.outputs, x)
			c, err := x.connect(e.channels, r.links, p, i, e.opts.BuffersPerChannel)
			r.ends = append(r.ends, c)
			if err != nil {
				return err
			}
			made[x] = &madeExchange{c, p, i}
		}
	}
	name := uuid.NewString()
	for _, v := range e.plan.vertices {
		for s := range v.parallelism() {
			t, err := e.task(v, s, name, made)
			if err != nil {
				return err
			}
			r.tasks[t.ID()] = &running{t: t, name: v.name()}
		}
	}
	return nil
}

type madeExchange struct {
	*ends
	partition, gate int
}

// task makes a task of a vertex.
func (e *Execution) task(v *vertex, subtask int, run string, made map[*exchange]*madeExchange) (*task.Task, error) {
	d := task.Descriptor{Task: v.task(subtask, e.attempt), Name: v.name(), Parallelism: v.parallelism(), MaxParallelism: v.max, Run: run,
		State: &e.opts.State, Restored: e.state, FinishedBefore: e.finishedBefore(v), Checkpoints: e.opts.Checkpoints != "", AtLeastOnce: e.opts.Mode == AtLeastOnce,
		FlushMillis: e.opts.FlushInterval.Milliseconds(), Writer: e.writer, Owner: (*owner)(e)}
	index := map[*stream.Node]int{}
	for i, n := range v.nodes {
		index[n] = i
		d.Operators = append(d.Operators, task.OperatorDescriptor{ID: n.ID, UID: n.UID, Name: n.Name, New: n.New})
		for _, in := range n.In {
			if i > 0 {
				d.Wires = append(d.Wires, task.Wire{From: index[in.From], Tag: in.Tag, To: i, Input: in.Input})
			}
		}
	}
	for _, x := range v.inputs {
		in := task.InputDescriptor{Gate: made[x].gates[subtask], Operator: index[x.edge.To], Input: x.edge.Input, Codec: x.edge.Codec}
		if e.restored != nil {
			r, err := x.recovery(e.restored.Snapshot, made[x].partition, made[x].gate, subtask)
			if err != nil {
				return nil, err
			}
			in.Recovery = r
		}
		d.Inputs = append(d.Inputs, in)
	}
	for _, x := range v.outputs {
		d.Outputs = append(d.Outputs, task.OutputDescriptor{Partition: made[x].partitions[subtask], Operator: index[x.edge.From], Tag: x.edge.Tag,
			Route: x.route(), MaxParallelism: x.to.max, Codec: x.edge.Codec})
	}
	return task.New(d), nil
}

func (e *Execution) finishedBefore(v *vertex) bool {
	return e.restored != nil && e.restored.FinishedVertices[slices.Index(e.plan.vertices, v)]
}

// writer gives a task the place of a checkpoint.
func (e *Execution) writer(b event.Barrier) (*snapshot.Writer, error) {
	return e.coordinator.Writer(b.ID)
}

// owner is the Execution as its tasks and its coordinator see it: they call it from
// their goroutines.
type owner Execution

// Running implements task.Owner.
func (o *owner) Running(t event.Task) {
	e := (*Execution)(o)
	e.coordinator.TaskState(t, checkpoint.TaskRunning, nil)
	e.inbox.put(func() { e.taskRunning(t) })
}

// Ack implements task.Owner.
func (o *owner) Ack(a event.Ack) { o.coordinator.Acknowledge(a) }

// Decline implements task.Owner.
func (o *owner) Decline(d event.Decline) { o.coordinator.Decline(d) }

// EndOfData implements task.Owner.
func (o *owner) EndOfData(t event.Task) {
	e := (*Execution)(o)
	e.inbox.put(func() { e.endOfData(t) })
}

// ToCoordinator implements task.Owner.
func (o *owner) ToCoordinator(t event.Task, op metadata.OperatorID, data []byte) {
	o.coordinator.OperatorEvent(t, op, data)
}

func (o *owner) task(t event.Task) *task.Task {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current[t]
}

// Trigger implements checkpoint.Tasks.
func (o *owner) Trigger(t event.Task, b event.Barrier) {
	if x := o.task(t); x != nil {
		x.Trigger(b)
		return
	}
	o.coordinator.Decline(event.Decline{ID: b.ID, Task: t, Reason: event.DeclinedTaskNotReady})
}

// NotifyComplete implements checkpoint.Tasks.
func (o *owner) NotifyComplete(t event.Task, id int64) {
	if x := o.task(t); x != nil {
		x.NotifyComplete(id)
	}
}

// NotifyAborted implements checkpoint.Tasks.
func (o *owner) NotifyAborted(t event.Task, id int64) {
	if x := o.task(t); x != nil {
		x.NotifyAborted(id)
	}
}

// OperatorEvent implements checkpoint.Tasks.
func (o *owner) OperatorEvent(t event.Task, op metadata.OperatorID, data []byte) {
	if x := o.task(t); x != nil {
		x.OperatorEvent(op, data)
	}
}

// Fail implements checkpoint.Tasks.
func (o *owner) Fail(err error, fatal bool) {
	e := (*Execution)(o)
	e.inbox.put(func() {
		if fatal {
			e.failForGood(err)
		} else {
			e.failed(err)
		}
	})
}

// taskRunning begins periodic checkpoints once all tasks run.
func (e *Execution) taskRunning(t event.Task) {
	r := e.run
	if r == nil || r.tasks[t] == nil {
		return
	}
	if r.ready++; r.ready == len(r.tasks) && e.opts.Interval > 0 {
		e.coordinator.StartPeriodic()
	}
}

// endOfData triggers the last checkpoint at once when all tasks have processed their
// last record, so that nobody waits for the next periodic one.
func (e *Execution) endOfData(t event.Task) {
	r := e.run
	if r == nil || r.tasks[t] == nil {
		return
	}
	r.dataEnds[t] = true
	if len(r.dataEnds) == len(r.tasks) && e.opts.Checkpoints != "" && e.Status() == Running {
		e.background.Go(func() { e.lastCheckpoint(r) })
	}
}

// lastCheckpoint takes a checkpoint, or tries until the attempt is over.
func (e *Execution) lastCheckpoint(r *run) {
	for {
		_, err := e.coordinator.Trigger(r.ctx, event.Checkpoint, event.None, "")
		if err == nil {
			return
		}
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// taskEnded is told of the end of a task's goroutine.
func (e *Execution) taskEnded(r *run, id event.Task, err error) {
	r.left--
	x := r.tasks[id]
	x.finished = true
	e.mu.Lock()
	if e.current[id] == x.t {
		delete(e.current, id)
	}
	e.mu.Unlock()
	state := checkpoint.TaskFinished
	if err != nil {
		state = checkpoint.TaskFailed
	}
	e.coordinator.TaskState(id, state, err)
	if err != nil && !errors.Is(err, errAttemptOver) {
		var panicked *task.PanicError
		if errors.As(err, &panicked) {
			e.opts.Log.Error("panic", "task", x.name, "subtask", id.Subtask, "value", panicked.Value, "stack", string(panicked.Stack))
		}
		e.failed(&TaskError{Name: x.name, Subtask: int(id.Subtask), Attempt: int(id.Attempt), Err: err})
	}
	if r.left == 0 && e.run == r {
		e.runEnded(r)
	}
}

// errAttemptOver is why tasks of an attempt are cancelled.
var errAttemptOver = errors.New("the attempt of the job is over")

// runEnded is the end of all tasks of an attempt.
func (e *Execution) runEnded(r *run) {
	if r.watchdog != nil {
		r.watchdog.Stop()
	}
	r.cancel(nil)
	if r.links != nil {
		if err := r.links.Close(); err != nil {
			e.opts.Log.Warn("connections between tasks", "error", err)
		}
	}
	for _, c := range r.ends {
		c.close()
	}
	e.run = nil
	switch e.Status() {
	case Running:
		e.end(Finished)
	case Canceling:
		e.end(Canceled)
	case Failing:
		e.end(Failed)
	case Restarting:
		e.maybeRestart()
	}
}

// cancelRun cancels the tasks of the attempt. Those that do not end are reported.
func (e *Execution) cancelRun() {
	r := e.run
	if r.cancelled {
		return
	}
	r.cancelled = true
	r.cancel(errAttemptOver)
	if r.left == 0 { // no task was started
		e.runEnded(r)
		return
	}
	r.watchdog = time.AfterFunc(e.opts.CancelTimeout, func() { e.inbox.put(func() { e.stuck(r) }) })
}

// stuck gives up on tasks that do not end: the job fails, since another attempt must
// not run beside them.
func (e *Execution) stuck(r *run) {
	if e.run != r {
		return
	}
	err := &CancelError{}
	for id, x := range r.tasks {
		if !x.finished {
			err.Tasks = append(err.Tasks, fmt.Sprintf("%s, subtask %d", x.name, id.Subtask))
		}
	}
	slices.Sort(err.Tasks)
	e.opts.Log.Error("cancellation", "error", err)
	e.result = errors.Join(e.result, err)
	e.run = nil // what they use stays with them
	e.end(Failed)
}

// cancelled is the end of the job's context.
func (e *Execution) cancelled(cause error) {
	if s := e.Status(); s.Ended() || s == Canceling || s == Failing {
		return
	}
	e.result = cause
	e.setStatus(Canceling)
	if e.run != nil {
		e.cancelRun()
	} else {
		e.end(Canceled)
	}
}

func (e *Execution) failForGood(err error) {
	if s := e.Status(); s.Ended() || s == Canceling || s == Failing {
		return
	}
	e.result = fmt.Errorf("job %s failed: %w", e.plan.job.Name, err)
	e.setStatus(Failing)
	if e.run != nil {
		e.cancelRun()
	} else {
		e.end(Failed)
	}
}

// failed is a failure of a task, of a coordinator or of too many checkpoints.
func (e *Execution) failed(err error) {
	if e.Status() != Running {
		return // it is being dealt with
	}
	e.opts.Log.Warn("failure", "error", err, "strategy", e.opts.Restart)
	d := e.opts.Restart.Failed(time.Now())
	if !d.Restart {
		e.failForGood(fmt.Errorf("%w (%s)", err, d.Why))
		return
	}
	e.setStatus(Restarting)
	e.restoreKnown, e.delayOver = false, false
	time.AfterFunc(d.Delay, func() {
		e.inbox.put(func() {
			e.delayOver = true
			e.maybeRestart()
		})
	})
	e.background.Go(func() {
		from, failed := e.coordinator.Failover(context.Background(), err, false)
		e.inbox.put(func() {
			if failed != nil {
				e.failForGood(failed)
				return
			}
			e.from, e.restoreKnown = from, true
			e.maybeRestart()
		})
	})
	e.cancelRun()
}

// maybeRestart begins the next attempt once the old one has ended, the delay is over
// and it is known from which checkpoint.
func (e *Execution) maybeRestart() {
	if e.Status() != Restarting || e.run != nil || !e.delayOver || !e.restoreKnown {
		return
	}
	e.attempt++
	e.mu.Lock()
	e.restarts++
	e.mu.Unlock()
	e.deploy()
}
