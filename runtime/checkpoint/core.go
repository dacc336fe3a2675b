package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// Options are the settings of a Core: plain data, in Flink's terms.
type Options struct {
	// IntervalMillis between the triggers of periodic checkpoints; 0 is none.
	IntervalMillis int64
	// BacklogIntervalMillis is the interval while a source works through a backlog:
	// 0 is none in that time, and never below IntervalMillis. Used if
	// HasBacklogInterval.
	BacklogIntervalMillis int64
	HasBacklogInterval    bool
	// MinPauseMillis between the end of a checkpoint and the next periodic trigger.
	MinPauseMillis int64
	// TimeoutMillis after which a checkpoint is aborted; 0 is 10 minutes.
	TimeoutMillis int64
	// HookTimeoutMillis bounds the master hooks; 0 is TimeoutMillis.
	HookTimeoutMillis int64
	// MaxConcurrent checkpoints; 0 is 1. Savepoints do not count against it.
	MaxConcurrent int
	// TolerableFailures in a row before the job fails; negative is any number.
	TolerableFailures int
	// Retained completed checkpoints; 0 is 1.
	Retained int
	// Alignment and AlignedTimeoutMillis of checkpoints (0: no timeout).
	// Savepoints are always aligned, as in Flink, or at-least-once if checkpoints are.
	Alignment            event.Alignment
	AlignedTimeoutMillis int64
	// Hooks are the names of the master hooks, in the order in which they are called.
	Hooks []string
	// Discard says which ends of a job discard its retained checkpoints; nil is
	// Flink's DELETE_ON_CANCELLATION: JobFinished and JobCanceled.
	Discard []JobStatus
	// FormatVersion of the metadata object; 0 is metadata.DefaultVersion.
	FormatVersion int32
	// ReserveIDs is how many checkpoint IDs are reserved at a time; 0 is 16. After
	// a crash as many numbers may be left out.
	ReserveIDs int64
	// HistorySize is how many checkpoints History remembers; 0 is 10.
	HistorySize int
	// Identity tells what makes the upload of a shared file the same as another
	// one; nil for none: see incremental.Registry.RegisterState.
	Identity func(*metadata.IncrementalHandle, *metadata.NamedHandle) incremental.Identity
}

// Files is the shared state registry as the Core uses it: an *incremental.Cleaner
// is one. Update must call f at once, and deletions that result from it come later.
type Files interface {
	Update(f func(*incremental.Registry) error) error
}

// Start is where a Core begins.
type Start struct {
	// NextID is the lowest checkpoint ID that was never used; 0 is 1.
	NextID int64
	// Retained are the completed checkpoints of the store, ascending; they are in
	// the registry.
	Retained []Completed
}

// Core is the checkpoint coordinator as a state machine: Flink's
// CheckpointCoordinator with the gateways of the operator coordinators, the
// failure manager and the bookkeeping of the completed checkpoint store. It has no
// clock, no goroutine and does no I/O; the same events give the same actions. Not
// for concurrent use.
type Core struct {
	opts  Options
	g     *graph
	files Files
	out   []Action
	now   int64

	tasks []task

	// IDs below reserved may be used.
	firstID, nextID, reserved int64
	reserving                 bool
	reserveErr                error

	scheduling bool
	nextAt     int64 // when the periodic timer fires, if it runs
	timerOn    bool
	backlog    map[metadata.OperatorID]bool
	pauseUntil int64
	decider    decider
	failures   failures

	// triggering is the request on its way from its choice to the tasks; one at a time.
	triggering *Request
	starting   *pending
	pending    []*pending // ascending by ID
	ready      []*pending // acknowledged by all, in that order
	committing *pending

	retained []Completed
	// subsumed checkpoints whose files a pending one may still build on.
	subsumed   []Completed
	savepoints map[int64]bool // completed in this life: their files are not garbage
	// dirs of the last checkpoints: where files of a late acknowledgement lie.
	dirs     map[int64]string
	gateways map[metadata.OperatorID][]gateway

	storing   bool
	storeNext []Completed // waits for storing
	storeDo   bool
	askStore  bool // whether it is still ours: before tasks restart

	stopping  *Request // stop-with-savepoint under way or done
	stopped   string   // the savepoint, once it is complete
	resume    bool     // periodic checkpoints are to go on if it fails
	failover  bool     // ActRestore is owed
	inDoubt   bool     // a commit's outcome is unknown, or we are fenced
	down      bool
	ended     bool
	endStatus JobStatus
	endErr    error // why what is retained was not discarded
	history   *History
}

// rememberedDirs bounds Core.dirs.
const rememberedDirs = 4096

type task struct {
	state   TaskState
	attempt int32
}

// NewCore makes a Core. All its tasks are TaskCreated, attempt 0.
func NewCore(g Graph, files Files, opts Options, start Start) (*Core, error) {
	n, err := newGraph(g)
	if err != nil {
		return nil, err
	}
	setDefault(&opts.TimeoutMillis, 10*60*1000)
	setDefault(&opts.HookTimeoutMillis, opts.TimeoutMillis)
	setDefault(&opts.MaxConcurrent, 1)
	setDefault(&opts.Retained, 1)
	setDefault(&opts.FormatVersion, metadata.DefaultVersion)
	setDefault(&opts.ReserveIDs, 16)
	setDefault(&opts.HistorySize, 10)
	setDefault(&start.NextID, 1)
	if opts.Discard == nil {
		opts.Discard = []JobStatus{JobFinished, JobCanceled}
	}
	for _, v := range []struct {
		name string
		of   int64
	}{{"interval", opts.IntervalMillis}, {"interval during backlog", opts.BacklogIntervalMillis}, {"minimum pause", opts.MinPauseMillis},
		{"timeout", opts.TimeoutMillis}, {"alignment timeout", opts.AlignedTimeoutMillis}} {
		if v.of < 0 {
			return nil, fmt.Errorf("checkpoint %s of %d ms is negative", v.name, v.of)
		}
	}
	if opts.HasBacklogInterval && opts.BacklogIntervalMillis > 0 && opts.BacklogIntervalMillis < opts.IntervalMillis {
		return nil, fmt.Errorf("checkpoint interval during backlog of %d ms is below the interval of %d ms", opts.BacklogIntervalMillis, opts.IntervalMillis)
	}
	c := &Core{opts: opts, g: n, files: files, tasks: make([]task, n.tasks()), firstID: start.NextID, nextID: start.NextID, reserved: start.NextID,
		retained: slices.Clone(start.Retained), savepoints: map[int64]bool{}, dirs: map[int64]string{}, gateways: map[metadata.OperatorID][]gateway{},
		backlog: map[metadata.OperatorID]bool{}, failures: failures{tolerable: opts.TolerableFailures}, history: newHistory(opts.HistorySize)}
	for _, id := range n.coordinators {
		c.gateways[id] = make([]gateway, n.Vertices[n.operators[id].vertex].Parallelism)
	}
	return c, nil
}

func setDefault[T int | int32 | int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Retained are the completed checkpoints of the store, ascending. The slice is the Core's.
func (c *Core) Retained() []Completed { return c.retained }

// History of checkpoints; it belongs to the Core.
func (c *Core) History() *History { return c.history }

// Restored notes in the history that the job was restored.
func (c *Core) Restored(r Restored) { c.history.restored(r) }

// Pending are the IDs of the pending checkpoints, ascending.
func (c *Core) Pending() []int64 {
	var ids []int64
	for _, p := range c.pending {
		ids = append(ids, p.id)
	}
	return ids
}

// Ended says that ActEnded was given: events have no effect any more.
func (c *Core) Ended() bool { return c.ended }

// Handle takes an event at time now, in milliseconds, and appends to out what is
// to be done for it, in this order.
func (c *Core) Handle(now int64, ev *Event, out []Action) []Action {
	c.out, c.now = out, now
	c.handle(ev)
	c.proceed()
	out, c.out = c.out, nil
	return out
}

func (c *Core) do(a Action) { c.out = append(c.out, a) }

func (c *Core) handle(ev *Event) {
	switch ev.Kind {
	case EvStart:
		c.startPeriodic(ev.Delay)
	case EvStop:
		c.resume = false // nor do they begin again when the savepoint to stop with fails
		c.stopPeriodic()
	case EvTask:
		c.taskChanged(ev)
	case EvTrigger:
		c.request(ev.Request)
	case EvTimer:
		c.timer(ev)
	case EvReserved:
		c.reserving = false
		if ev.Err != nil {
			c.reserveErr = ev.Err
		} else {
			c.reserved = max(c.reserved, ev.ID)
		}
	case EvLocation:
		c.located(ev)
	case EvCoordinator:
		c.coordinatorDone(ev)
	case EvHook:
		c.hookDone(ev)
	case EvAck:
		c.acknowledge(ev.Ack)
	case EvDecline:
		c.declined(ev.Decline)
	case EvPassed:
		if i := c.g.task(ev.Task); i >= 0 && c.tasks[i].attempt == ev.Task.Attempt {
			c.openGateway(ev.Operator, ev.Task.Subtask, ev.ID)
		}
	case EvSend:
		c.send(ev)
	case EvCommitted:
		c.committed(ev)
	case EvStored:
		c.stored(ev)
	case EvBacklog:
		c.setBacklog(ev.Operator, ev.On)
	case EvAbort:
		if p := c.find(ev.ID); p != nil && p.phase != phaseCommitting {
			err := ev.Err
			if err == nil {
				err = errors.New("aborted by a user")
			}
			c.abort(p, event.CheckpointDeclined, err, nil)
		}
	case EvFailover:
		c.fail(ev.Reason, ev.Err, ev.On)
	case EvShutdown:
		c.shutdown(ev.Status)
	}
}

// proceed does what has become possible: commit the next checkpoint, trigger the
// next request, restart, end.
func (c *Core) proceed() {
	c.release()
	c.startCommit()
	c.startStore()
	if c.starting != nil {
		c.hooksDone(c.starting) // what it waited for may have happened
	}
	c.trigger()
	idle := c.committing == nil && !c.storing && !c.askStore
	if c.failover && idle && !c.inDoubt {
		c.failover = false
		a := Action{Kind: ActRestore}
		if n := len(c.retained); n > 0 {
			a.Retained = []Completed{c.retained[n-1]}
		}
		c.do(a)
	}
	if c.down && !c.ended && idle && !c.storeDo {
		c.ended = true
		c.do(Action{Kind: ActEnded, Err: c.endErr})
	}
}

func (c *Core) find(id int64) *pending {
	for _, p := range c.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}

// interval is the current one; 0 is none.
func (c *Core) interval() int64 {
	if c.opts.HasBacklogInterval && len(c.backlog) > 0 {
		return c.opts.BacklogIntervalMillis
	}
	return c.opts.IntervalMillis
}

func (c *Core) startPeriodic(delay int64) {
	if c.down || c.inDoubt || c.opts.IntervalMillis == 0 || c.scheduling {
		return
	}
	if c.stopping != nil { // they begin if the savepoint fails
		c.resume = true
		return
	}
	c.scheduling = true
	c.armTrigger(c.now + max(delay, 0))
}

func (c *Core) armTrigger(at int64) {
	if c.interval() == 0 {
		if c.timerOn {
			c.do(Action{Kind: ActStopTimer, Timer: TimerTrigger})
		}
		c.timerOn = false
		return
	}
	c.nextAt, c.timerOn = at, true
	c.do(Action{Kind: ActStartTimer, Timer: TimerTrigger, At: at})
}

func (c *Core) stopScheduler() {
	if c.timerOn {
		c.do(Action{Kind: ActStopTimer, Timer: TimerTrigger})
	}
	c.scheduling, c.timerOn = false, false
	for i := 0; i < len(c.decider.queue); {
		if c.decider.queue[i].periodic() {
			c.decider.queue = slices.Delete(c.decider.queue, i, i+1)
		} else {
			i++
		}
	}
}

// stopPeriodic is Flink's stopCheckpointScheduler: what is pending ends with it.
func (c *Core) stopPeriodic() {
	c.stopScheduler()
	c.rejectQueued(event.CoordinatorSuspend, nil)
	c.abortAll(event.CoordinatorSuspend, nil)
}

func (c *Core) setBacklog(op metadata.OperatorID, on bool) {
	if on == c.backlog[op] {
		return
	}
	if on {
		c.backlog[op] = true
	} else {
		delete(c.backlog, op)
	}
	if !c.scheduling || c.interval() == 0 {
		return // the timer, when it fires, looks at the interval itself
	}
	if at := c.now + c.interval(); !c.timerOn || at < c.nextAt {
		c.armTrigger(at)
	}
}

func (c *Core) timer(ev *Event) {
	switch ev.Timer {
	case TimerTrigger:
		if !c.scheduling || !c.timerOn || c.now < c.nextAt {
			return // an old one
		}
		c.timerOn = false
		if n := c.interval(); n > 0 {
			// Not in steps behind: what was missed is not made up for.
			c.armTrigger(max(c.nextAt+n, c.now+min(n, 1)))
		} else {
			return
		}
		c.request(&Request{Type: event.Checkpoint})
	case TimerExpire:
		if p := c.find(ev.ID); p != nil && p.phase < phaseReady {
			c.abort(p, event.CheckpointExpired, fmt.Errorf("not complete after %d ms: %s", c.opts.TimeoutMillis, c.waitsFor(p)), nil)
		}
	case TimerHooks:
		if p := c.find(ev.ID); p != nil && p.phase == phaseHooks {
			var open []string
			for i, name := range c.opts.Hooks {
				if !p.hookDone[i] {
					open = append(open, name)
				}
			}
			c.abort(p, event.TriggerFailure, fmt.Errorf("master hooks %q gave no state within %d ms", open, c.opts.HookTimeoutMillis), nil)
		}
	}
}

func (c *Core) taskChanged(ev *Event) {
	i := c.g.task(ev.Task)
	if i < 0 || ev.Task.Attempt < c.tasks[i].attempt {
		return
	}
	newAttempt := ev.Task.Attempt > c.tasks[i].attempt
	if !newAttempt && ev.State == c.tasks[i].state {
		return
	}
	c.tasks[i] = task{ev.State, ev.Task.Attempt}
	if ev.State == TaskRunning && !newAttempt {
		return
	}
	c.resetGateways(i)
	// Whoever waits for what this attempt has not acknowledged waits in vain; and if
	// it failed, no checkpoint may complete behind the back of its restore.
	reason := event.TaskFailure
	finished := ev.State == TaskFinished && !newAttempt
	if finished {
		reason = event.DeclinedTaskClosing
	}
	for _, p := range slices.Clone(c.pending) {
		if p.phase == phaseCommitting || finished && !p.waits(i) {
			continue
		}
		t := c.attempt(i)
		c.abort(p, reason, fmt.Errorf("task %s is %s: %w", c.g.taskName(t), ev.State, errOr(ev.Err)), &t)
	}
}

func errOr(err error) error {
	if err == nil {
		return errors.New("no cause was given")
	}
	return err
}

// Operator coordinators and their gateways.

func (c *Core) send(ev *Event) {
	g := c.gateways[ev.Operator]
	if ev.Subtask < 0 || int(ev.Subtask) >= len(g) {
		return
	}
	i := c.g.first[c.g.operators[ev.Operator].vertex] + int(ev.Subtask)
	if c.tasks[i].state != TaskRunning {
		return // the coordinator hears of the task's end, or heard of it
	}
	if g[ev.Subtask].send(ev.Data) {
		c.deliver(ev.Operator, ev.Subtask, ev.Data)
	}
}

func (c *Core) deliver(op metadata.OperatorID, subtask int32, data []byte) {
	i := c.g.first[c.g.operators[op].vertex] + int(subtask)
	c.do(Action{Kind: ActDeliver, Operator: op, Subtask: subtask, Task: c.attempt(i), Data: data})
}

func (c *Core) openGateway(op metadata.OperatorID, subtask int32, id int64) {
	g := c.gateways[op]
	if subtask < 0 || int(subtask) >= len(g) {
		return
	}
	for _, data := range g[subtask].open(id) {
		c.deliver(op, subtask, data)
	}
}

// openGateways opens those of a task, or, if it is negative, of all tasks.
func (c *Core) openGateways(task int, id int64) {
	for _, op := range c.g.coordinators {
		v := c.g.operators[op].vertex
		first, end := c.g.first[v], c.g.first[v+1]
		for i := first; i < end; i++ {
			if task < 0 || task == i {
				c.openGateway(op, int32(i-first), id)
			}
		}
	}
}

func (c *Core) resetGateways(task int) {
	for _, op := range c.g.coordinators {
		v := c.g.operators[op].vertex
		if task >= c.g.first[v] && task < c.g.first[v+1] {
			c.gateways[op][task-c.g.first[v]].reset()
		}
	}
}
