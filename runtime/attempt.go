package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
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

// deploy starts an attempt: channels, coordinators, tasks.
func (e *Execution) deploy() {
	if e.Status().Ended() || e.Status() == Canceling || e.Status() == Failing {
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run{tasks: map[event.Task]*running{}, cancel: cancel, coordinators: map[metadata.OperatorID]stream.Coordinator{}, ended: map[event.Task]bool{}}
	e.run = r
	if err := e.build(ctx, r); err != nil {
		e.failed(err)
		return
	}
	for id, x := range r.tasks {
		r.left++
		e.handle(checkpoint.Event{Kind: checkpoint.EvTask, Task: id, State: checkpoint.TaskCreated})
		go func() {
			err := x.t.Run(ctx)
			e.inbox.put(func() { e.taskEnded(r, id, err) })
		}()
	}
	e.setStatus(Running)
}

// build makes what an attempt consists of. Nothing runs but coordinators.
func (e *Execution) build(ctx context.Context, r *run) error {
	made := map[*exchange]*ends{}
	for _, v := range e.plan.vertices {
		for i, x := range v.inputs {
			p := 0
			for x.from.outputs[p] != x {
				p++
			}
			c, err := x.connect(e.channels, p, i)
			if err != nil {
				return err
			}
			made[x] = c
			r.ends = append(r.ends, c)
		}
	}
	name := uuid.NewString()
	for _, v := range e.plan.vertices {
		for _, n := range v.nodes {
			if n.Coordinator == nil {
				continue
			}
			c := n.Coordinator()
			r.coordinators[n.ID] = c
			r.order = append(r.order, n.ID)
			if err := c.Start(&coordinatorContext{e, r, n}, e.coordinatorState(n.ID)); err != nil {
				return fmt.Errorf("coordinator of operator %s: %w", n.Name, err)
			}
		}
		for s := range v.parallelism() {
			t := e.task(v, s, name, made)
			r.tasks[t.ID()] = &running{t: t, name: v.name()}
		}
	}
	return nil
}

func (e *Execution) coordinatorState(op metadata.OperatorID) []byte {
	o := e.restored.Operator(op)
	if o == nil {
		return nil
	}
	if h, ok := o.Coordinator.(*metadata.ByteStreamHandle); ok && h != nil {
		return h.Data
	}
	return nil
}

// task makes a task of a vertex.
func (e *Execution) task(v *vertex, subtask int, run string, made map[*exchange]*ends) *task.Task {
	d := task.Descriptor{Task: v.task(subtask, e.attempt), Name: v.name(), Parallelism: v.parallelism(), MaxParallelism: v.max, Run: run,
		State: &e.opts.State, Restored: e.restored, FinishedBefore: e.finishedBefore(v), Checkpoints: e.opts.Interval > 0, AtLeastOnce: e.opts.Mode == AtLeastOnce,
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
		d.Inputs = append(d.Inputs, task.InputDescriptor{Gate: made[x].gates[subtask], Operator: index[x.edge.To], Input: x.edge.Input, Codec: x.edge.Codec})
	}
	for _, x := range v.outputs {
		d.Outputs = append(d.Outputs, task.OutputDescriptor{Partition: made[x].partitions[subtask], Operator: index[x.edge.From], Tag: x.edge.Tag,
			Route: x.route(), MaxParallelism: x.to.max, Codec: x.edge.Codec})
	}
	return task.New(d)
}

func (e *Execution) finishedBefore(v *vertex) bool {
	if e.restored == nil {
		return false
	}
	for i, x := range e.plan.vertices {
		if x == v && i < len(e.finishedVertices) {
			return e.finishedVertices[i]
		}
	}
	return false
}

// owner is the Execution as its tasks see it: they call it from their goroutines.
type owner Execution

// Running implements task.Owner.
func (o *owner) Running(t event.Task) {
	e := (*Execution)(o)
	e.inbox.put(func() { e.taskRunning(t) })
}

// Ack implements task.Owner.
func (o *owner) Ack(a event.Ack) {
	e := (*Execution)(o)
	e.inbox.put(func() { e.handle(checkpoint.Event{Kind: checkpoint.EvAck, Ack: &a}) })
}

// Decline implements task.Owner.
func (o *owner) Decline(d event.Decline) {
	e := (*Execution)(o)
	e.inbox.put(func() { e.handle(checkpoint.Event{Kind: checkpoint.EvDecline, Decline: &d}) })
}

// EndOfData implements task.Owner.
func (o *owner) EndOfData(t event.Task) {
	e := (*Execution)(o)
	e.inbox.put(func() { e.endOfData(t) })
}

// ToCoordinator implements task.Owner.
func (o *owner) ToCoordinator(t event.Task, op metadata.OperatorID, data []byte) {
	e := (*Execution)(o)
	e.inbox.put(func() {
		if c := e.coordinator(op); c != nil && t.Attempt == e.attempt {
			e.check(op, c.Event(int(t.Subtask), data))
		}
	})
}

func (e *Execution) coordinator(op metadata.OperatorID) stream.Coordinator {
	if e.run == nil {
		return nil
	}
	return e.run.coordinators[op]
}

// check fails the job with an error of a coordinator.
func (e *Execution) check(op metadata.OperatorID, err error) {
	if err != nil {
		e.failed(fmt.Errorf("coordinator of operator %s: %w", op, err))
	}
}

// coordinatorContext is what a coordinator has of the job.
type coordinatorContext struct {
	e *Execution
	r *run
	n *stream.Node
}

// Parallelism implements stream.CoordinatorContext.
func (c *coordinatorContext) Parallelism() int { return c.n.Parallelism }

// Send implements stream.CoordinatorContext. It is called in the job's goroutine
// mostly, while the checkpoint core may be at work: so it goes by the inbox.
func (c *coordinatorContext) Send(subtask int, data []byte) {
	c.e.inbox.put(func() {
		if c.e.run == c.r {
			c.e.handle(checkpoint.Event{Kind: checkpoint.EvSend, Operator: c.n.ID, Subtask: int32(subtask), Data: data})
		}
	})
}

// Execute implements stream.CoordinatorContext.
func (c *coordinatorContext) Execute(f func() error) {
	c.e.inbox.put(func() {
		if c.e.run == c.r {
			c.e.check(c.n.ID, f())
		}
	})
}

func (e *Execution) taskRunning(t event.Task) {
	if e.run == nil || e.run.tasks[t] == nil {
		return
	}
	e.handle(checkpoint.Event{Kind: checkpoint.EvTask, Task: t, State: checkpoint.TaskRunning})
	if !e.started && e.opts.Interval > 0 {
		e.started = true
		e.handle(checkpoint.Event{Kind: checkpoint.EvStart, Delay: e.opts.Interval.Milliseconds()})
	}
}

// endOfData triggers the last checkpoint at once when all tasks have processed their
// last record, so that nobody waits for the next periodic one.
func (e *Execution) endOfData(t event.Task) {
	r := e.run
	if r == nil || r.tasks[t] == nil {
		return
	}
	r.ended[t] = true
	if len(r.ended) == len(r.tasks) && e.opts.Interval > 0 && e.Status() == Running {
		e.nextRequest++
		e.handle(checkpoint.Event{Kind: checkpoint.EvTrigger, Request: &checkpoint.Request{Number: e.nextRequest}})
	}
}

// taskEnded is told of the end of a task's goroutine.
func (e *Execution) taskEnded(r *run, id event.Task, err error) {
	r.left--
	x := r.tasks[id]
	x.finished = true
	state := checkpoint.TaskFinished
	if err != nil {
		state = checkpoint.TaskFailed
	}
	if e.run == r {
		e.handle(checkpoint.Event{Kind: checkpoint.EvTask, Task: id, State: state, Err: err})
	}
	if err != nil && !errors.Is(err, errAttemptOver) {
		e.failed(&TaskError{Name: x.name, Subtask: int(id.Subtask), Attempt: int(id.Attempt), Err: err})
	}
	if r.left == 0 {
		e.runEnded(r)
	}
}

// errAttemptOver is why tasks of an attempt are cancelled.
var errAttemptOver = errors.New("the attempt of the job is over")

// runEnded is the end of all tasks of an attempt.
func (e *Execution) runEnded(r *run) {
	e.dispose(r)
	switch e.Status() {
	case Running:
		e.setStatus(Finished)
		e.handle(checkpoint.Event{Kind: checkpoint.EvShutdown, Status: checkpoint.JobFinished})
	case Canceling:
		e.setStatus(Canceled)
		e.handle(checkpoint.Event{Kind: checkpoint.EvShutdown, Status: checkpoint.JobCanceled})
	case Failing:
		e.setStatus(Failed)
		e.handle(checkpoint.Event{Kind: checkpoint.EvShutdown, Status: checkpoint.JobFailed})
	case Restarting:
		e.maybeRestart()
	}
}

// dispose frees what an attempt has.
func (e *Execution) dispose(r *run) {
	if r.watchdog != nil {
		r.watchdog.Stop()
	}
	for _, op := range r.order {
		if err := r.coordinators[op].Close(); err != nil {
			e.opts.Log.Warn("coordinator", "operator", op, "error", err)
		}
	}
	for _, c := range r.ends {
		c.close()
	}
	r.cancel(nil)
	e.run = nil
}

// cancelRun cancels the tasks of the attempt. Those that do not end are reported.
func (e *Execution) cancelRun() {
	r := e.run
	if r == nil || !r.cancelled.IsZero() {
		return
	}
	r.cancelled = time.Now()
	r.cancel(errAttemptOver)
	r.watchdog = time.AfterFunc(e.opts.CancelTimeout, func() { e.inbox.put(func() { e.stuck(r) }) })
	if r.left == 0 { // no task was started
		e.inbox.put(func() {
			if e.run == r {
				e.runEnded(r)
			}
		})
	}
}

// stuck gives up on tasks that do not end: the job fails, since another attempt must
// not run beside them.
func (e *Execution) stuck(r *run) {
	if e.run != r || r.left == 0 {
		return
	}
	err := &CancelError{}
	for id, x := range r.tasks {
		if !x.finished {
			err.Tasks = append(err.Tasks, fmt.Sprintf("%s, subtask %d", x.name, id.Subtask))
		}
	}
	e.opts.Log.Error("cancellation", "error", err)
	e.result = errors.Join(e.result, err)
	e.run = nil // their memory stays with them
	e.setStatus(Failed)
	e.handle(checkpoint.Event{Kind: checkpoint.EvShutdown, Status: checkpoint.JobFailed})
}

// cancelled is the end of the job's context.
func (e *Execution) cancelled(cause error) {
	switch e.Status() {
	case Finished, Canceled, Failed, Canceling:
		return
	}
	e.result = cause
	e.setStatus(Canceling)
	e.endOrCancel()
}

func (e *Execution) endOrCancel() {
	if e.run != nil {
		e.cancelRun()
		return
	}
	status, job := Canceled, checkpoint.JobCanceled
	if e.Status() == Failing {
		status, job = Failed, checkpoint.JobFailed
	}
	e.setStatus(status)
	e.handle(checkpoint.Event{Kind: checkpoint.EvShutdown, Status: job})
}

// failed is a failure of a task, a coordinator or of too many checkpoints.
func (e *Execution) failed(err error) {
	switch e.Status() {
	case Created, Running:
	default:
		return // it is being dealt with
	}
	e.opts.Log.Warn("failure", "error", err)
	delay, again := e.opts.Restart.Failed(time.Now().UnixMilli())
	if !again {
		e.failForGood(err)
		return
	}
	e.setStatus(Restarting)
	e.failure, e.restoreKnown, e.delayOver, e.started = err, false, false, false
	e.handle(checkpoint.Event{Kind: checkpoint.EvFailover, Reason: event.JobFailoverRegion, Err: err})
	time.AfterFunc(delay, func() {
		e.inbox.put(func() {
			e.delayOver = true
			e.maybeRestart()
		})
	})
	e.cancelRun()
}

func (e *Execution) failForGood(err error) {
	if e.Status().Ended() || e.Status() == Failing {
		return
	}
	if e.result == nil {
		e.result = fmt.Errorf("job %s failed: %w", e.plan.job.Name, err)
	}
	e.setStatus(Failing)
	e.endOrCancel()
}

// maybeRestart begins the next attempt once the old one has ended, the delay is over
// and it is known from which checkpoint.
func (e *Execution) maybeRestart() {
	if e.Status() != Restarting || e.run != nil || !e.delayOver || !e.restoreKnown {
		return
	}
	e.attempt++
	e.statusMu.Lock()
	e.restarts++
	e.statusMu.Unlock()
	e.deploy()
}
