package task

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/mailbox"
	"github.com/tidemark/tidemark/snapshot"
)

// Descriptor is all that a task needs to run: Flink's TaskDeploymentDescriptor.
type Descriptor struct {
	Task           event.Task
	Name           string // for people
	Parallelism    int
	MaxParallelism int
	Run            string // see Place
	// Operators of the chain, the head first.
	Operators []OperatorDescriptor
	Wires     []Wire
	Inputs    []InputDescriptor
	Outputs   []OutputDescriptor

	State    *StateOptions
	Restored *Restored // nil for a fresh start
	// FinishedBefore: in the restored snapshot the whole vertex had finished. The task
	// only says so to those behind it.
	FinishedBefore bool
	// Checkpoints are taken, so that at the end of its input the task waits for one.
	Checkpoints bool
	AtLeastOnce bool
	// FlushMillis is Flink's execution.buffer-timeout: how long a record waits in a
	// buffer at most. 0 is 100 ms, negative is after each batch.
	FlushMillis int64
	// Writer gives the place where a checkpoint's files go.
	Writer func(b event.Barrier) (*snapshot.Writer, error)
	// Owner is told what the task does. Its methods must not block.
	Owner Owner
	Clock Clock
}

// OperatorDescriptor is one operator of the chain.
type OperatorDescriptor struct {
	ID   metadata.OperatorID
	UID  string
	Name string
	New  func() Wired
}

// Wire connects two operators of the chain, by index.
type Wire struct {
	From  int
	Tag   string // side output
	To    int
	Input int
}

// InputDescriptor is an exchange that the task reads.
type InputDescriptor struct {
	Gate     *channel.Gate
	Operator int
	Input    int
	Codec    Codec
	// Recovery is what was in flight in the restored snapshot; nil for nothing.
	Recovery *channel.Recovery
}

// OutputDescriptor is an exchange that the task writes.
type OutputDescriptor struct {
	Partition *channel.Partition
	Operator  int
	Tag       string
	Route     Route
	// MaxParallelism of the receivers.
	MaxParallelism int
	Codec          Codec
}

// Owner is the task's manager.
type Owner interface {
	// Running says that the task's operators are open.
	Running(t event.Task)
	Ack(a event.Ack)
	Decline(d event.Decline)
	// EndOfData says that the task has processed its last record.
	EndOfData(t event.Task)
	// ToCoordinator takes an event for an operator's coordinator.
	ToCoordinator(t event.Task, op metadata.OperatorID, data []byte)
}

// Clock is the time of tasks.
type Clock interface {
	Millis() int64
	// AfterFunc calls f after a duration, unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type systemClock struct{}

func (systemClock) Millis() int64 { return time.Now().UnixMilli() }
func (systemClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// SystemClock is the computer's.
var SystemClock Clock = systemClock{}

// Task is Flink's StreamTask: one subtask of a chain of operators. Run is its
// goroutine; the other methods may be called from any.
type Task struct {
	d     Descriptor
	clock Clock
	mail  *mailbox.Mailbox
	ctx   context.Context
	chain []link // head first

	source  SourceOperator // the head, if it is one
	inputs  []input
	bases   []int // first channel of each gate, and their number at the end
	handler *barrier.Handler
	turn    int // the gate to look at next

	woken      atomic.Bool
	suspension atomic.Pointer[mailbox.Suspension]
	flushDue   atomic.Bool
	sent       atomic.Bool // a mail may have sent something that waits for a flush
	stopFlush  func()

	// Life, in the task's goroutine.
	opened       int // operators, from the tail
	running      bool
	early        []coordinatorEvent // sent before the task was running, when it could get no answer
	finished     bool               // Finish was called: no record comes or goes
	dataEnds     int                // channels whose data has ended
	drained      bool
	stopping     int64 // a savepoint after which the task ends; 0 is none
	draining     int64 // the one for which the source was ended; 0 is none
	finalAt      int64 // the first checkpoint after finished
	ending       bool
	barrierTimer func()

	checkpoints checkpoints
	async       sync.WaitGroup
}

type coordinatorEvent struct {
	op   metadata.OperatorID
	data []byte
}

// link is an operator in the chain.
type link struct {
	op  Wired
	env *Env
}

type input struct {
	InputDescriptor
	end *inputEnd
}

// New prepares a task. Nothing runs before Run.
func New(d Descriptor) *Task {
	t := &Task{d: d, clock: d.Clock, mail: mailbox.New()}
	if t.clock == nil {
		t.clock = SystemClock
	}
	if t.d.State == nil {
		t.d.State = &StateOptions{}
	}
	if t.d.FlushMillis == 0 {
		t.d.FlushMillis = 100
	}
	t.checkpoints.init()
	return t
}

// ID is the task's attempt.
func (t *Task) ID() event.Task { return t.d.Task }

// Run runs the task until it has finished, failed or ctx ends, whose cause it
// returns then. All that the task has taken is given back when it returns; its
// gates and partitions are closed by the caller, once both ends are done.
func (t *Task) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.ctx = ctx
	stop := context.AfterFunc(ctx, func() {
		for _, o := range t.d.Outputs {
			o.Partition.Cancel(context.Cause(ctx))
		}
	})
	defer stop()
	defer func() {
		// What is written for checkpoints in the background ends with the task.
		cancel(err)
		t.checkpoints.abortAll(errTaskEnded)
		t.async.Wait()
		t.mail.Close()
		err = errors.Join(err, t.close())
	}()
	if err := t.guard(t.open); err != nil {
		return t.cause(err)
	}
	t.d.Owner.Running(t.d.Task)
	t.running = true
	for _, m := range t.early {
		t.d.Owner.ToCoordinator(t.d.Task, m.op, m.data)
	}
	t.early = nil
	return t.cause(t.guard(func() error { return t.mail.Run(ctx, t.action) }))
}

var errTaskEnded = errors.New("the task has ended")

// cause makes an error that comes of the cancellation that error.
func (t *Task) cause(err error) error {
	if err != nil && t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	return err
}

// PanicError is a panic of a user's function.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// guard makes a panic an error: it must not end the process and its other tasks.
func (t *Task) guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}

// open makes the chain, the tail first, so that each operator can send when it is
// opened.
func (t *Task) open() error {
	n := len(t.d.Operators)
	t.chain = make([]link, n)
	for i, d := range t.d.Operators {
		t.chain[i] = link{op: d.New(), env: &Env{
			Place: Place{Operator: d.ID, Name: d.Name, UID: d.UID, Subtask: int(t.d.Task.Subtask), Parallelism: t.d.Parallelism,
				MaxParallelism: t.d.MaxParallelism, Attempt: int(t.d.Task.Attempt), Run: t.d.Run},
			Context: t.ctx, Timers: (*timerService)(t), Checkpoints: t.d.Checkpoints, host: t, slot: &slot{opts: t.d.State, from: t.d.Restored},
		}}
	}
	for _, w := range t.d.Wires {
		t.chain[w.From].op.Connect(w.Tag, t.chain[w.To].op.Input(w.Input))
	}
	for _, o := range t.d.Outputs {
		t.chain[o.Operator].op.Connect(o.Tag, o.Codec.output(o.Partition, o.Route, int(t.d.Task.Subtask), o.MaxParallelism))
	}
	t.bases = []int{0}
	for _, in := range t.d.Inputs {
		t.inputs = append(t.inputs, input{in, nil})
		t.bases = append(t.bases, t.bases[len(t.bases)-1]+in.Gate.Channels())
		in.Gate.OnPriority(t.urgent)
	}
	if err := t.recoverChannels(); err != nil {
		return err
	}
	t.connectInputs()
	t.source, _ = t.chain[0].op.(SourceOperator)
	if (t.source == nil) == (len(t.inputs) == 0) {
		return fmt.Errorf("task %s has %d inputs, but its head is source: %v", t.d.Name, len(t.inputs), t.source != nil)
	}
	if len(t.inputs) > 0 {
		t.handler = barrier.New(barrier.Options{Channels: t.bases[len(t.inputs)], AtLeastOnce: t.d.AtLeastOnce})
	}
	if t.d.FinishedBefore {
		t.armFlush()
		return nil
	}
	for i := n - 1; i >= 0; i-- {
		t.opened++
		if err := t.chain[i].op.Open(t.chain[i].env); err != nil {
			return fmt.Errorf("operator %s: %w", t.d.Operators[i].Name, err)
		}
	}
	t.armFlush()
	return nil
}

// connectInputs gives the gates that lead to the same input of an operator, those of
// a union, one valve.
func (t *Task) connectInputs() {
	type place struct{ operator, input int }
	ends := map[place]int{}
	for _, in := range t.inputs {
		ends[place{in.Operator, in.Input}] += in.Gate.Channels()
	}
	valves := map[place]*valve{}
	for i := range t.inputs {
		in := &t.inputs[i]
		at := place{in.Operator, in.Input}
		in.end = in.Codec.input(t.chain[in.Operator].op.Input(in.Input), ends[at])
		if v := valves[at]; v != nil {
			in.end.valve = v
			in.end.first = v.taken
		} else {
			valves[at] = in.end.valve
		}
		in.end.valve.taken += in.Gate.Channels()
	}
}

func (t *Task) close() error {
	if t.stopFlush != nil {
		t.stopFlush()
	}
	if t.barrierTimer != nil {
		t.barrierTimer()
	}
	var errs []error
	for i := range t.chain {
		l := &t.chain[i]
		if len(t.chain)-i <= t.opened {
			if err := t.guard(l.op.Close); err != nil {
				errs = append(errs, fmt.Errorf("operator %s: close: %w", t.d.Operators[i].Name, err))
			}
		}
		if err := l.env.slot.close(); err != nil {
			errs = append(errs, fmt.Errorf("operator %s: %w", t.d.Operators[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// armFlush sets flushDue now and then.
func (t *Task) armFlush() {
	if len(t.d.Outputs) == 0 {
		return
	}
	if t.d.FlushMillis < 0 {
		t.flushDue.Store(true) // and it stays so
		return
	}
	var mu sync.Mutex
	stopped := false
	var stop func()
	var again func()
	again = func() {
		t.flushDue.Store(true)
		if t.sent.Swap(false) { // the action may be suspended
			_ = t.mail.Put(mailbox.Mail{Name: "flush", Run: func() error { t.flush(); return nil }})
		}
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			stop = t.clock.AfterFunc(time.Duration(t.d.FlushMillis)*time.Millisecond, again)
		}
	}
	again()
	t.stopFlush = func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		stop()
	}
}

func (t *Task) flush() {
	if t.d.FlushMillis > 0 {
		t.flushDue.Store(false)
	}
	for _, o := range t.d.Outputs {
		o.Partition.Flush()
	}
}

// wake implements host.
func (t *Task) wake() {
	t.woken.Store(true)
	if s := t.suspension.Load(); s != nil {
		s.Resume()
	}
}

// suspend stops the default action until wake; one that comes before it is not lost.
func (t *Task) suspend(c *mailbox.Controller) {
	s := c.Suspend()
	t.suspension.Store(s)
	if t.woken.Load() {
		s.Resume()
	}
}

// execute implements host.
func (t *Task) execute(f func() error) {
	// A task that has ended runs nothing more.
	_ = t.mail.Put(mailbox.Mail{Name: "operator", Run: func() error {
		err := f()
		if t.d.FlushMillis < 0 {
			t.flush()
		} else {
			t.sent.Store(true)
		}
		return err
	}})
}

// toCoordinator implements host.
func (t *Task) toCoordinator(op metadata.OperatorID, data []byte) error {
	if !t.running {
		t.early = append(t.early, coordinatorEvent{op, data})
		return nil
	}
	t.d.Owner.ToCoordinator(t.d.Task, op, data)
	return nil
}

// timerService is the task as Timers.
type timerService Task

// Now implements Timers.
func (s *timerService) Now() int64 { return s.clock.Millis() }

// At implements Timers.
func (s *timerService) At(millis int64, f func() error) (stop func()) {
	stopped := false // in the task's goroutine
	cancel := s.clock.AfterFunc(s.until(millis), func() {
		(*Task)(s).execute(func() error {
			if stopped || s.finished {
				return nil
			}
			return f()
		})
	})
	return func() {
		stopped = true
		cancel()
	}
}

// until is how long it is to a time: what has passed is now, and what is further away
// than a Duration goes, some 292 years, as far as it goes.
func (s *timerService) until(millis int64) time.Duration {
	now := s.clock.Millis()
	if millis <= now {
		return 0
	}
	return time.Duration(min(uint64(millis)-uint64(now), uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
