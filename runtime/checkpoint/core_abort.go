package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/event"
)

func (c *Core) declined(d *event.Decline) {
	if d == nil {
		return
	}
	p := c.find(d.ID)
	i := c.g.task(d.Task)
	if p == nil || i < 0 || d.Task.Attempt != c.tasks[i].attempt || p.phase == phaseCommitting || !slices.Contains(p.plan.wait, i) {
		return
	}
	reason := d.Reason
	if reason == event.NoFailure {
		reason = event.CheckpointDeclined
	}
	text := d.Err
	if text == "" {
		text = reason.Text()
	}
	c.abort(p, reason, fmt.Errorf("task %s: %s", c.g.taskName(d.Task), text), &d.Task)
}

// abort ends a pending checkpoint: everything written for it is deleted, what is
// written later for it too, and all who take part are told.
func (c *Core) abort(p *pending, reason event.Reason, err error, by *event.Task) {
	if p.phase < phaseReady {
		c.do(Action{Kind: ActStopTimer, Timer: TimerExpire, ID: p.id})
	}
	if p.phase == phaseHooks && p.hooksLeft > 0 {
		c.do(Action{Kind: ActStopTimer, Timer: TimerHooks, ID: p.id})
	}
	c.drop(p)
	if !c.inDoubt {
		c.files.Update(func(reg *incremental.Registry) error {
			if p.savepoint() {
				reg.Discard(p.files, uploadedTo(p.dir)...)
			} else {
				reg.Abort(p.id)
			}
			return nil
		})
		c.do(Action{Kind: ActDiscardLocation, ID: p.id, Dir: p.dir})
	}
	c.openGateways(-1, p.id)
	if p.phase >= phaseTasks {
		c.notify(p, ActNotifyAborted)
	}
	if p.phase >= phaseCoordinators {
		for _, op := range c.g.coordinators {
			c.do(Action{Kind: ActCoordinatorAborted, ID: p.id, Operator: op})
		}
	}
	c.failed(p, reason, err, by)
	v := c.failures.failed(p.id, p.req.Type, p.req.Post, reason, by != nil)
	c.judge(v, reason, err)
}

// drop takes a checkpoint out of all lists.
func (c *Core) drop(p *pending) {
	is := func(o *pending) bool { return o == p }
	c.pending = slices.DeleteFunc(c.pending, is)
	c.ready = slices.DeleteFunc(c.ready, is)
	if c.starting == p {
		c.starting = nil
	}
}

// failed reports the failure of a checkpoint, and to whoever asked for it.
func (c *Core) failed(p *pending, reason event.Reason, err error, by *event.Task) {
	c.history.failed(c, p, reason, err, by)
	c.do(Action{Kind: ActFailed, ID: p.id, Reason: reason, Err: err, Stats: p.stats})
	if !p.req.periodic() {
		c.do(Action{Kind: ActResult, Request: p.req, ID: p.id, Reason: reason, Err: err})
	}
	if p.req == c.stopping {
		c.stopFailed()
	}
}

func (c *Core) judge(v verdict, reason event.Reason, err error) {
	switch v {
	case tooMany:
		c.do(Action{Kind: ActFailJob, Err: fmt.Errorf("%w: the last one with %s: %w", ErrTooManyFailures, reason, errOr(err))})
	case stopFailed:
		c.do(Action{Kind: ActFailJob, Err: fmt.Errorf("the savepoint to stop with failed: %s: %w", reason, errOr(err))})
	}
}

func (c *Core) abortAll(reason event.Reason, err error) {
	for _, p := range slices.Clone(c.pending) {
		if p.phase != phaseCommitting {
			c.abort(p, reason, err, nil)
		}
	}
}

// fail is the job's restart, of all tasks or only of those that failed: Flink
// aborts what is pending; periodic checkpoints stop until EvStart.
func (c *Core) fail(reason event.Reason, err error, partly bool) {
	if c.down {
		return
	}
	if reason == event.NoFailure {
		reason = event.JobFailoverRegion
	}
	c.resume = false
	if c.stopped != "" {
		c.stopScheduler()
		c.failStopped()
		return
	}
	// A restart beside that of a coordinator which has taken over would have sinks drop
	// what the other one's have begun.
	c.failover, c.askStore = true, true
	// A job that was being stopped goes on after all.
	defer func() { c.stopping = nil }()
	c.stopScheduler()
	c.rejectQueued(event.CoordinatorSuspend, err)
	c.abortAll(reason, err)
	c.failures.clear()
	if partly {
		return
	}
	clear(c.backlog)
	for i := range c.tasks {
		c.tasks[i].state = TaskFailed
		c.resetGateways(i)
	}
}

// failStopped ends a job that failed after the savepoint it was to be stopped with is
// complete. It must not restart: sinks may have committed what is in the savepoint,
// and whoever asked for it may have started the job again elsewhere.
func (c *Core) failStopped() {
	c.failover, c.askStore = false, false
	c.do(Action{Kind: ActFailJob, Err: fmt.Errorf("%w, and failed before all of its tasks had ended: it goes on from %s", ErrStopped, c.stopped), Fatal: true})
}

// shutdown ends the coordinator. Whether the retained checkpoints stay depends on
// how the job ended.
func (c *Core) shutdown(status JobStatus) {
	if c.down {
		return
	}
	c.down, c.endStatus, c.failover = true, status, false
	c.stopScheduler()
	c.rejectQueued(event.CoordinatorShutdown, nil)
	c.abortAll(event.CoordinatorShutdown, nil)
	if !c.inDoubt && slices.Contains(c.opts.Discard, status) {
		c.storeDo, c.storeNext = true, nil
	}
}

// startStore changes the store's content when no commit does, or only writes it
// again to find out whether another coordinator has taken over.
func (c *Core) startStore() {
	if c.storing || c.committing != nil {
		return
	}
	if c.inDoubt {
		c.askStore = false
		return
	}
	switch {
	case c.storeDo:
		c.storing, c.storeDo, c.askStore = true, false, false
		c.do(Action{Kind: ActStore, Retained: c.storeNext})
	case c.askStore:
		c.storing, c.askStore = true, false
		c.storeNext = c.retained
		c.do(Action{Kind: ActStore, Retained: c.storeNext})
	}
}

func (c *Core) stored(ev *Event) {
	if !c.storing {
		return
	}
	c.storing = false
	switch {
	case errors.Is(ev.Err, ErrFenced), errors.Is(ev.Err, ErrInDoubt):
		c.endErr = ev.Err
		c.giveUp(ev.Err)
		return
	case !c.down:
		return // it was only asked; what does not answer now may do so once the tasks run
	}
	if ev.Err != nil {
		// The checkpoints stay where they are, and in the store.
		c.endErr = fmt.Errorf("the retained checkpoints are not discarded: %w", ev.Err)
		return
	}
	c.retained = c.storeNext
	c.files.Update(func(reg *incremental.Registry) error {
		ids := make([]int64, len(c.retained))
		for i := range c.retained {
			ids[i] = c.retained[i].ID
		}
		reg.Retain(ids...)
		return nil
	})
}
