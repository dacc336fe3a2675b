package checkpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// request queues a request; proceed carries it out when it may.
func (c *Core) request(r *Request) {
	if r == nil {
		return
	}
	r.arrived = c.now
	switch {
	case c.down, c.inDoubt:
		c.rejected(r, event.CoordinatorShutdown, nil)
		return
	case c.stopping != nil:
		c.rejected(r, event.PeriodicSchedulerShutdown, errors.New("the job is being stopped with a savepoint"))
		return
	case r.Post != event.None && !r.Type.IsSavepoint():
		c.rejected(r, event.TriggerFailure, errors.New("only a savepoint can stop a job"))
		return
	}
	if r.Post != event.None {
		// Flink's stop-with-savepoint: no other checkpoint beside it or after it.
		c.resume = c.scheduling
		c.stopPeriodic()
		c.stopping = r
	}
	if dropped := c.decider.add(r); dropped != nil {
		c.rejected(dropped, event.TooManyCheckpointRequests, nil)
	}
}

// rejected ends a request before it became a checkpoint.
func (c *Core) rejected(r *Request, reason event.Reason, err error) {
	c.history.rejected()
	if !r.periodic() {
		c.do(Action{Kind: ActResult, Request: r, Reason: reason, Err: err})
	}
	if r == c.stopping {
		c.stopFailed()
	}
	c.judge(c.failures.failed(0, r.Type, r.Post, reason, false), reason, err)
}

func (c *Core) rejectQueued(reason event.Reason, err error) {
	if r := c.triggering; r != nil {
		c.triggering = nil
		c.rejected(r, reason, err)
	}
	for len(c.decider.queue) > 0 {
		r := c.decider.queue[0]
		c.decider.queue = c.decider.queue[1:]
		c.rejected(r, reason, err)
	}
}

// stopFailed lets the job go on after a stop-with-savepoint failed.
func (c *Core) stopFailed() {
	c.stopping = nil
	if c.resume {
		c.resume = false
		c.startPeriodic(c.opts.IntervalMillis)
	}
}

// trigger begins the next checkpoint if one is asked for and may begin.
func (c *Core) trigger() {
	for !c.down && !c.inDoubt && !c.failover && c.starting == nil {
		if c.triggering == nil {
			r, early, wait := c.decider.next(c.now, c.pauseUntil, c.pendingCheckpoints(), c.opts.MaxConcurrent)
			if early != nil {
				c.rejected(early, event.MinimumTimeBetweenCheckpoints, nil)
				if c.scheduling {
					c.armTrigger(c.now + wait)
				}
				continue
			}
			if r == nil {
				return
			}
			c.triggering = r
		}
		r := c.triggering
		p, notRunning, ok := c.plan()
		if !ok {
			c.triggering = nil
			err := errors.New("all tasks have finished")
			if notRunning >= 0 {
				err = fmt.Errorf("task %s is %s", c.g.taskName(c.attempt(notRunning)), c.tasks[notRunning].state)
			}
			c.rejected(r, event.NotAllRequiredTasksRunning, err)
			continue
		}
		if c.nextID >= c.reserved {
			if err := c.reserveErr; err != nil {
				c.reserveErr, c.triggering = nil, nil
				c.rejected(r, event.IOException, fmt.Errorf("no checkpoint ID: %w", err))
				continue
			}
			c.reserve()
			return
		}
		c.triggering = nil
		c.begin(r, p)
	}
}

// reserve asks for IDs, ahead of their need.
func (c *Core) reserve() {
	if !c.reserving {
		c.reserving = true
		c.do(Action{Kind: ActReserve, ID: c.nextID + c.opts.ReserveIDs})
	}
}

// pendingCheckpoints are those that count against the limit.
func (c *Core) pendingCheckpoints() int { return len(c.pending) }

// oldest is the lowest ID of a checkpoint in progress, nextID if there is none.
func (c *Core) oldest() int64 {
	id := c.nextID
	for _, p := range c.pending {
		id = min(id, p.id)
	}
	if c.committing != nil {
		id = min(id, c.committing.id)
	}
	return id
}

// begin makes a PendingCheckpoint.
func (c *Core) begin(r *Request, pl *plan) {
	id := c.nextID
	c.nextID++
	if c.nextID+c.opts.ReserveIDs/2 >= c.reserved {
		c.reserve()
	}
	opts := event.Options{Type: r.Type, Post: r.Post, Target: r.Target, Alignment: c.opts.Alignment}
	if opts.Alignment == event.Aligned {
		opts.AlignedTimeout = time.Duration(c.opts.AlignedTimeoutMillis) * time.Millisecond
	}
	if r.Type.IsSavepoint() {
		opts.AlignedTimeout = 0
		if opts.Alignment != event.AtLeastOnce || r.Post != event.None {
			opts.Alignment = event.Aligned
		}
	} else if c.lastUnclaimed() {
		// The first checkpoint must not build on a snapshot that is not ours.
		opts.Type = event.FullCheckpoint
	}
	p := &pending{id: id, req: r, plan: pl, barrier: event.Barrier{ID: id, Timestamp: c.now, Options: opts}, acked: map[int]bool{},
		acksLeft: len(pl.wait), operators: map[metadata.OperatorID]*metadata.OperatorState{}}
	if n := len(c.retained); n > 0 && !p.savepoint() && opts.Type != event.FullCheckpoint {
		p.barrier.Base = c.retained[n-1].ID
	}
	p.stats = c.history.begin(c, p)
	c.pending = append(c.pending, p)
	c.starting = p
	c.do(Action{Kind: ActStartTimer, Timer: TimerExpire, ID: id, At: c.now + c.opts.TimeoutMillis})
	if !p.savepoint() {
		if err := c.files.Update(func(reg *incremental.Registry) error { return reg.Begin(id) }); err != nil {
			c.abort(p, event.TriggerFailure, err, nil)
			return
		}
	}
	c.do(Action{Kind: ActLocation, ID: id, Barrier: p.barrier})
}

func (c *Core) lastUnclaimed() bool {
	n := len(c.retained)
	return n > 0 && c.retained[n-1].Mode == NotClaimed
}

// located goes on with a checkpoint that has a place: its gateways are marked and
// the operator coordinators asked, before anything else.
func (c *Core) located(ev *Event) {
	p := c.find(ev.ID)
	if p == nil && ev.Err == nil && !c.inDoubt {
		c.do(Action{Kind: ActDiscardLocation, ID: ev.ID, Dir: ev.Dir}) // it was aborted meanwhile
	}
	if p == nil || p.phase != phaseLocation {
		return
	}
	if ev.Err != nil {
		c.abort(p, event.IOException, ev.Err, nil)
		return
	}
	p.dir = ev.Dir
	if p.savepoint() {
		p.barrier.Options.Target = ev.Dir // of all tasks the same one
	}
	c.dirs[p.id] = p.dir
	delete(c.dirs, p.id-rememberedDirs)
	p.stats.Located = c.now
	p.phase = phaseCoordinators
	p.coordinatorsLeft = len(c.g.coordinators)
	p.coordinatorDone = map[metadata.OperatorID]bool{}
	p.coordinatorState = map[metadata.OperatorID]metadata.StreamHandle{}
	for _, op := range c.g.coordinators {
		v := c.g.operators[op].vertex
		for s := range c.gateways[op] {
			if c.tasks[c.g.first[v]+s].state == TaskRunning {
				c.gateways[op][s].mark(p.id)
			}
		}
		c.do(Action{Kind: ActCoordinator, ID: p.id, Operator: op})
	}
	c.coordinatorsDone(p)
}

func (c *Core) coordinatorDone(ev *Event) {
	p := c.find(ev.ID)
	if p == nil || p.phase != phaseCoordinators || p.coordinatorDone[ev.Operator] {
		return
	}
	if _, ok := c.gateways[ev.Operator]; !ok {
		return
	}
	if ev.Err != nil {
		c.abort(p, event.TriggerFailure, fmt.Errorf("the coordinator of %s: %w", c.g.operatorName(ev.Operator), ev.Err), nil)
		return
	}
	p.coordinatorDone[ev.Operator] = true
	if ev.Data != nil {
		p.coordinatorState[ev.Operator] = &metadata.ByteStreamHandle{Name: javaio.NewString(ev.Operator.String()), Data: ev.Data}
	}
	// What the coordinator sent before this event was taken along; from here on it waits.
	for s := range c.gateways[ev.Operator] {
		c.gateways[ev.Operator][s].close(p.id)
	}
	p.coordinatorsLeft--
	c.coordinatorsDone(p)
}

// coordinatorsDone goes on to the master hooks.
func (c *Core) coordinatorsDone(p *pending) {
	if p.coordinatorsLeft > 0 {
		return
	}
	p.stats.Coordinated = c.now
	p.phase = phaseHooks
	p.hooksLeft = len(c.opts.Hooks)
	p.hookDone = make([]bool, len(c.opts.Hooks))
	p.masters = make([]metadata.MasterState, len(c.opts.Hooks))
	for i := range c.opts.Hooks {
		c.do(Action{Kind: ActHook, ID: p.id, Hook: i, At: p.barrier.Timestamp})
	}
	if p.hooksLeft > 0 {
		c.do(Action{Kind: ActStartTimer, Timer: TimerHooks, ID: p.id, At: c.now + c.opts.HookTimeoutMillis})
	}
	c.hooksDone(p)
}

func (c *Core) hookDone(ev *Event) {
	p := c.find(ev.ID)
	if p == nil || p.phase != phaseHooks || ev.Hook < 0 || ev.Hook >= len(p.hookDone) || p.hookDone[ev.Hook] {
		return
	}
	if ev.Err != nil {
		c.abort(p, event.TriggerFailure, fmt.Errorf("master hook %s: %w", c.opts.Hooks[ev.Hook], ev.Err), nil)
		return
	}
	p.hookDone[ev.Hook] = true
	p.masters[ev.Hook] = ev.Master
	p.hooksLeft--
	if p.hooksLeft == 0 {
		c.do(Action{Kind: ActStopTimer, Timer: TimerHooks, ID: p.id})
	}
	c.hooksDone(p)
}

// hooksDone triggers the tasks. An event that is held back for an older checkpoint
// is, in the state of this one, sent: it has to arrive before the barrier, and the
// tasks are triggered once it has been let go.
func (c *Core) hooksDone(p *pending) {
	if p.phase != phaseHooks || p.hooksLeft > 0 || c.holdsBefore(p.id) {
		return
	}
	p.stats.Mastered = c.now
	p.phase = phaseTasks
	for _, i := range p.plan.trigger {
		c.do(Action{Kind: ActTrigger, Task: c.attempt(i), Barrier: p.barrier})
	}
	c.starting = nil
}

// holdsBefore says whether a gateway holds an event that was sent before the state
// for checkpoint id was taken.
func (c *Core) holdsBefore(id int64) bool {
	if len(c.pending) < 2 {
		return false
	}
	for _, op := range c.g.coordinators {
		for s := range c.gateways[op] {
			for _, m := range c.gateways[op][s].marks {
				if m.id < id && len(m.held) > 0 {
					return true
				}
			}
		}
	}
	return false
}
