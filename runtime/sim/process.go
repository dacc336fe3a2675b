package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// process is a coordinator and its tasks: what dies together.
type process struct {
	w       *world
	number  int
	degrees degrees
	graph   checkpoint.Graph
	core    *checkpoint.Core
	reg     *incremental.Registry
	dead    bool
	tasks   [vertexCount][]*task
	attempt int32
	out     []checkpoint.Action

	timers     map[timerKey]int // generation of each
	generation int
	failovers  int          // asked for
	whole      bool         // the failover under way is of all tasks
	broken     map[int]bool // pipelines that the failover under way restarts
	restarting bool
	shutdown   bool
	over       bool // the coordinator has ended
	stopped    bool // periodic checkpoints, at the end of the run
	requests   int64
	highest    int64 // checkpoint ID begun
	stopID     int64 // of the savepoint that the job is being stopped with
	stopDone   bool  // it is complete
	source     *checkpoint.SourceCoordinator[split, []split]
}

type timerKey struct {
	t  checkpoint.Timer
	id int64
}

// Update implements checkpoint.Files.
func (p *process) Update(f func(*incremental.Registry) error) error { return f(p.reg) }

// startProcess begins a life: it takes the store over and starts the job.
func (w *world) startProcess() {
	p := &process{w: w, reg: incremental.NewRegistry(location("file:/ckp")), timers: map[timerKey]int{}, broken: map[int]bool{}, degrees: w.drawDegrees()}
	w.res.Coordinators++
	p.number = w.res.Coordinators
	if old := w.proc; old != nil && old.degrees != p.degrees {
		w.res.Rescales++
	}
	w.proc = p
	p.graph = w.graph(p.degrees)
	w.store.owner = p.number
	if w.happens(FaultTakeOver, 20) { // after the takeover, which fences the one before
		p.core, _ = checkpoint.NewCore(p.graph, p, checkpoint.Options{}, checkpoint.Start{})
		p.die()
		return
	}
	if path := w.store.content.Stopped; path != "" {
		w.adopt(path)
	}
	for _, c := range w.store.content.Retained {
		m := w.store.metas[c.Path]
		if m == nil {
			w.fail("retained checkpoint %d has no metadata at a restart", c.ID)
			return
		}
		if _, err := p.reg.Restore(m, c.Path, c.Mode.Mode(), nil); err != nil {
			w.fail("retained checkpoint %d: %v", c.ID, err)
			return
		}
	}
	if err := w.store.sweep(p.reg); err != nil {
		w.fail("%v", err)
		return
	}
	w.store.recoverClaims(p.reg)
	opts := checkpoint.Options{IntervalMillis: 40, MinPauseMillis: int64(w.cfg.Seed % 3 * 10), TimeoutMillis: 200, MaxConcurrent: w.cfg.Concurrent, Retained: w.cfg.Retained,
		TolerableFailures: -1, Alignment: w.cfg.Alignment, AlignedTimeoutMillis: w.cfg.AlignedMs, ReserveIDs: 4}
	core, err := checkpoint.NewCore(p.graph, p, opts, checkpoint.Start{NextID: w.store.content.NextID, Retained: w.store.content.Retained})
	if err != nil {
		w.fail("%v", err)
		return
	}
	p.core = core
	w.trace("coordinator %d begins with %d retained, parallelism %d", p.number, len(w.store.content.Retained), p.degrees)
	p.clean()
	// Attempts go on over lives, so that messages of old ones can be told apart.
	p.attempt = int32(p.number * 1000)
	p.deploy()
	if w.stops > 0 {
		w.stops--
		p.later(50+w.r.Int64N(400), p.stop)
	}
}

// adopt is what a user does whose job was stopped with a savepoint: it is started
// again from there, in one of the three modes.
func (w *world) adopt(path string) {
	m := w.store.metas[path]
	if m == nil {
		w.fail("the job was stopped with savepoint %s, which is not there", path)
		return
	}
	mode := []checkpoint.Ownership{checkpoint.Claimed, checkpoint.NotClaimed, checkpoint.Legacy}[w.r.IntN(3)]
	w.trace("started again from savepoint %d, %s", m.ID, mode)
	w.res.Stops++
	if mode == checkpoint.Claimed {
		w.store.claimed[path] = true
	}
	w.store.content.Stopped = ""
	w.store.content.Retained = []checkpoint.Completed{{ID: m.ID, Path: path, Mode: mode, Savepoint: true}}
	w.store.commits[m.ID]++
	w.store.lastID = m.ID
}

// all calls f for each task.
func (p *process) all(f func(*task)) {
	for _, list := range p.tasks {
		for _, k := range list {
			f(k)
		}
	}
}

// find is the task of an attempt, nil if it is not the current one.
func (p *process) find(t event.Task) *task {
	at := placeOf(t)
	if k := p.tasks[at.vertex][at.subtask]; k.t == t {
		return k
	}
	return nil
}

// savepoint asks for one now and then.
func (p *process) savepoint(attempt int32) {
	if p.attempt != attempt || p.stopped {
		return
	}
	p.requests++
	t := event.SavepointCanonical
	if p.w.r.IntN(2) == 0 {
		t = event.SavepointNative
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvTrigger, Request: &checkpoint.Request{Number: p.requests, Type: t, Target: "file:/sp"}})
	p.later(100+p.w.r.Int64N(300), func() { p.savepoint(attempt) })
}

// stop asks for the savepoint to stop the job with, until it is complete.
func (p *process) stop() {
	if p.stopped || p.shutdown || p.stopDone {
		return
	}
	p.requests++
	post := event.Suspend
	if p.w.r.IntN(2) == 0 {
		post = event.Terminate
	}
	t := event.SavepointCanonical
	if p.w.r.IntN(2) == 0 {
		t = event.SavepointNative
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvTrigger, Request: &checkpoint.Request{Number: p.requests, Type: t, Post: post, Target: "file:/sp"}})
	p.later(500+p.w.r.Int64N(300), p.stop)
}

// feed gives the coordinator an event and does what it says.
func (p *process) feed(ev *checkpoint.Event) {
	if p.dead || p.w.err != nil {
		return
	}
	if p.w.happens(FaultCoordinatorDies, 1) {
		p.die()
		return
	}
	if p == p.w.proc && !p.w.calm && p.w.happens(FaultSecond, 1) {
		p.w.after(1+p.w.r.Int64N(100), func() {
			if p == p.w.proc && !p.dead {
				p.w.trace("coordinator %d is thought dead", p.number)
				p.w.startProcess()
			}
		})
	}
	if p.w.cfg.bug == bugLateAck && ev.Ack != nil && !slices.Contains(p.core.Pending(), ev.Ack.ID) {
		return
	}
	if p.w.cfg.Trace != nil {
		p.w.trace("%s %d%s", ev.Kind, ev.ID, describe(ev))
	}
	buf := p.out // an action may feed another event: that one finds no buffer
	p.out = nil
	buf = p.core.Handle(p.w.now, ev, buf[:0])
	for i := range buf {
		if p.dead {
			return
		}
		if p.w.cfg.Trace != nil {
			p.w.trace("    %s", p.core.Describe(&buf[i]))
		}
		p.act(&buf[i])
	}
	clear(buf)
	p.out = buf
	p.clean()
}

func describe(ev *checkpoint.Event) string {
	switch {
	case ev.Ack != nil:
		return " " + ev.Ack.String()
	case ev.Decline != nil:
		return " " + ev.Decline.String()
	case ev.Kind == checkpoint.EvTask:
		return fmt.Sprintf(" %s %s", ev.Task, ev.State)
	case ev.Kind == checkpoint.EvCommitted:
		return " " + ev.Outcome.String()
	}
	return ""
}

// die ends the process, its tasks with it; another one takes over after a while.
// What its store calls were at goes on.
func (p *process) die() {
	w := p.w
	w.trace("coordinator %d dies", p.number)
	p.dead = true
	p.all(func(k *task) { k.end() })
	if p == w.proc {
		w.after(1+w.r.Int64N(60), w.startProcess)
	}
}

// later calls f after a while, unless the process is dead by then.
func (p *process) later(ms int64, f func()) {
	p.w.after(ms, func() {
		if !p.dead {
			f()
		}
	})
}

// io is a call of the store: it goes on after the process died.
func (p *process) io(do func() *checkpoint.Event) {
	p.w.after(p.w.storeTime(), func() {
		ev := do()
		p.later(p.w.r.Int64N(3), func() { p.feed(ev) })
	})
}

func (p *process) act(a *checkpoint.Action) {
	w := p.w
	switch a.Kind {
	case checkpoint.ActStartTimer:
		p.generation++
		g, k := p.generation, timerKey{a.Timer, a.ID}
		p.timers[k] = g
		p.later(max(a.At-w.now, 0), func() {
			if p.timers[k] == g {
				delete(p.timers, k)
				p.feed(&checkpoint.Event{Kind: checkpoint.EvTimer, Timer: k.t, ID: k.id})
			}
		})
	case checkpoint.ActStopTimer:
		delete(p.timers, timerKey{a.Timer, a.ID})
	case checkpoint.ActReserve:
		id := a.ID
		p.io(func() *checkpoint.Event {
			ev := &checkpoint.Event{Kind: checkpoint.EvReserved, ID: id}
			if w.happens(FaultReserve, 5) {
				ev.Err = errBroken
			} else if w.cfg.bug != bugIDReused {
				ev.Err = w.store.put(p.number, func(c *checkpoint.Content) { c.NextID = max(c.NextID, id) })
			}
			return ev
		})
	case checkpoint.ActLocation:
		id, dir := a.ID, p.dir(a.ID, a.Barrier.Options.Type.IsSavepoint())
		if id <= p.highest || w.store.ids[id] {
			w.fail("checkpoint ID %d is used after %d or twice", id, p.highest)
		}
		p.highest = id
		w.store.ids[id] = true
		p.io(func() *checkpoint.Event {
			ev := &checkpoint.Event{Kind: checkpoint.EvLocation, ID: id, Dir: dir}
			if w.happens(FaultLocation, 5) {
				ev.Err = errBroken
			}
			return ev
		})
	case checkpoint.ActCoordinator:
		id, op := a.ID, a.Operator
		p.later(1+w.r.Int64N(8), func() { // its state, and what it sends, come in order
			ev := &checkpoint.Event{Kind: checkpoint.EvCoordinator, ID: id, Operator: op}
			if ev.Data, ev.Err = p.source.Checkpoint(id); w.happens(FaultCoordinator, 5) {
				ev.Err = errBroken
			}
			p.feed(ev)
		})
	case checkpoint.ActCoordinatorComplete:
		if err := p.source.Completed(a.ID); err != nil {
			w.fail("%v", err)
		}
	case checkpoint.ActDeliver:
		p.deliver(a.Task, a.Data)
	case checkpoint.ActTrigger:
		b := a.Barrier
		if b.Options.Post != event.None {
			p.stopID = b.ID
		}
		if k := p.find(a.Task); k != nil {
			p.toTask(k, false, max(k.lastArrival-w.now, 0), func() { k.trigger(b) })
		}
	case checkpoint.ActCommit:
		p.commit(a)
	case checkpoint.ActStore:
		retained := a.Retained
		p.io(func() *checkpoint.Event {
			ev := &checkpoint.Event{Kind: checkpoint.EvStored}
			if w.happens(FaultPut, 10) {
				ev.Err = errBroken
				return ev
			}
			ev.Err = w.store.put(p.number, func(c *checkpoint.Content) {
				c.Retained = retained
			})
			return ev
		})
	case checkpoint.ActNotifyComplete:
		id := a.ID
		if k := p.find(a.Task); k != nil {
			p.toTask(k, id == p.stopID, 0, func() { k.complete(id) })
		}
	case checkpoint.ActNotifyAborted:
		id := a.ID
		if k := p.find(a.Task); k != nil {
			p.toTask(k, id == p.stopID, 0, func() { k.abort(id) })
		}
	case checkpoint.ActRestore:
		n := p.failovers
		p.later(1+w.r.Int64N(30), func() {
			if p.failovers == n {
				p.restored()
			}
		})
	case checkpoint.ActFailJob:
		switch {
		case a.Fatal:
			p.die()
		case !p.shutdown:
			p.restart(a.Err)
		}
	case checkpoint.ActCompleted:
		w.res.Completed++
		if a.Stats.Type.IsSavepoint() {
			w.res.Savepoints++
		}
		if a.ID == p.stopID {
			p.stopDone = true
		}
		if a.Stats.Type.IsSavepoint() {
			w.store.complete[a.Dir] = true
		}
	case checkpoint.ActFailed:
		w.res.Failed++
	case checkpoint.ActEnded:
		p.over = true
		if p.stopDone {
			p.later(20, func() { p.startAgain(100) })
		}
	}
}

// dir is the folder of a checkpoint or savepoint.
func (p *process) dir(id int64, savepoint bool) string {
	if savepoint {
		return fmt.Sprintf("file:/sp/savepoint-%d", id)
	}
	return fmt.Sprintf("file:/ckp/chk-%d", id)
}

// startAgain starts a job that was stopped, once what nobody needs of it is deleted.
func (p *process) startAgain(tries int) {
	if tries > 0 && p.reg.Unfinished() > 0 {
		p.later(20, func() { p.startAgain(tries - 1) })
		return
	}
	p.dead = true
	if p != p.w.proc {
		return
	}
	if tries > 0 {
		p.w.leaks()
	}
	p.w.startProcess()
}

// commit writes the metadata object, and then changes the store.
func (p *process) commit(a *checkpoint.Action) {
	w := p.w
	id, m, retained, stop := a.ID, a.Checkpoint, a.Retained, a.Stop
	path := p.dir(id, retained == nil) + "/_metadata"
	if w.happens(FaultDiesInCommit, 10) {
		w.after(w.r.Int64N(12), func() {
			if !p.dead {
				p.die()
			}
		})
	}
	answer := func(o checkpoint.Outcome, err error) {
		p.later(w.r.Int64N(3), func() {
			p.feed(&checkpoint.Event{Kind: checkpoint.EvCommitted, ID: id, Outcome: o, Dir: path, Err: err})
		})
	}
	if w.cfg.bug == bugEarlyConfirm {
		answer(checkpoint.Committed, nil)
		answer = func(checkpoint.Outcome, error) {}
	}
	w.after(w.storeTime(), func() {
		if w.happens(FaultMetadata, 10) {
			answer(checkpoint.NotWritten, errBroken)
			return
		}
		if !w.store.writeMeta(p, path, m) {
			w.fail("checkpoint %d: there is a metadata object already", id)
			return
		}
		if retained == nil && (!stop || w.cfg.bug == bugUnfencedStop) {
			answer(checkpoint.Committed, nil)
			return
		}
		w.after(w.storeTime(), func() {
			if w.happens(FaultPut, 10) {
				answer(checkpoint.NotAdded, errBroken)
				return
			}
			err := w.store.put(p.number, func(c *checkpoint.Content) {
				c.NextID = max(c.NextID, id+1)
				if stop {
					c.Stopped = path
				} else {
					if w.cfg.bug == bugDeletesShared {
						w.store.dropShared(c.Retained, retained)
					}
					c.Retained = retained
				}
			})
			switch {
			case errors.Is(err, checkpoint.ErrFenced):
				answer(checkpoint.Fenced, err)
			case w.happens(FaultPutLost, 10):
				answer(checkpoint.InDoubt, errBroken)
			default:
				answer(checkpoint.Committed, nil)
			}
		})
	})
}

// clean carries the registry's deletions out.
func (p *process) clean() {
	for _, d := range p.reg.Take(time.UnixMilli(p.w.now), 1000) {
		p.w.after(1+p.w.r.Int64N(20), func() {
			name := "file:/" + strings.TrimLeft(strings.TrimPrefix(d.Location.String(), "file:"), "/")
			var err error
			if p.w.happens(FaultDelete, 20) {
				err = errBroken
			} else {
				p.w.trace("delete %s", name)
				p.w.store.remove(name)
			}
			if p.dead {
				return
			}
			p.reg.Done(d, err, time.UnixMilli(p.w.now+50))
			if err != nil {
				p.later(60, p.clean)
			}
			p.clean()
		})
	}
}

// message delivers after a while, least ms at least, with the faults of a network.
// One that has to arrive, or the connection counts as broken, is not lost.
func (p *process) message(least int64, sure bool, f func()) {
	w := p.w
	delay := max(1+w.r.Int64N(6), least)
	if !sure && w.happens(FaultLost, 2) {
		return
	}
	if w.happens(FaultLate, 2) {
		delay += w.r.Int64N(400)
	}
	if w.happens(FaultDoubled, 2) {
		w.after(delay+w.r.Int64N(300), f)
	}
	w.after(delay, f)
}

// toTask is a message from the coordinator to a task's attempt.
func (p *process) toTask(k *task, sure bool, least int64, f func()) {
	p.message(least, sure, func() {
		if !k.dead && !k.over {
			f()
		}
	})
}

// toCoordinator is a message from a task to its coordinator or, if that is dead, to
// whatever coordinator lives when it comes.
func (p *process) toCoordinator(ev func() *checkpoint.Event, heard func(number int)) {
	w := p.w
	p.message(0, false, func() {
		q := p
		if q.dead {
			q = w.proc
		}
		if q.dead {
			return
		}
		if heard != nil && q == p {
			heard(q.number)
		}
		q.feed(ev())
	})
}

// taskState is told reliably: the coordinator sees the end of a connection.
func (p *process) taskState(k *task, s checkpoint.TaskState) {
	p.later(p.w.r.Int64N(5), func() {
		if p.find(k.t) == k {
			p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: s})
			p.maybeEnd()
		}
	})
}

// maybeEnd shuts down once all tasks have finished.
func (p *process) maybeEnd() {
	ended := true
	p.all(func(k *task) { ended = ended && k.over })
	if !ended || p.shutdown || p.restarting {
		return
	}
	p.shutdown = true
	status := checkpoint.JobSuspended
	if p.stopDone {
		status = checkpoint.JobFinished
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvShutdown, Status: status})
}

// done says that the job has done all it had to: everything is read, processed and
// committed, and nothing is left to be deleted.
func (p *process) done() bool {
	if p.dead || p.restarting || p.stopDone || p.core == nil || p.stopped && p.reg.Unfinished() > 0 {
		return false
	}
	if p.w.cfg.Finish {
		return p.over && p.reg.Unfinished() == 0
	}
	if len(p.core.Pending()) == 0 && p.stopped {
		return true
	}
	if slices.Contains(p.core.Pending(), p.stopID) {
		return false
	}
	idle := true
	p.all(func(k *task) { idle = idle && k.idle() })
	if !idle {
		return false
	}
	if !p.stopped {
		p.stopped = true
		p.feed(&checkpoint.Event{Kind: checkpoint.EvStop})
	}
	return false
}

func (p *process) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dead %v, restarting %v, pending %v, unfinished deletions %d", p.dead, p.restarting, p.core.Pending(), p.reg.Unfinished())
	p.all(func(k *task) {
		fmt.Fprintf(&b, "; %s dead %v over %v splits %v no more %v ending %d stop %d", k.name(), k.dead, k.over, k.state.splits, k.noMore, k.ending, k.stop)
		for c, in := range k.in {
			fmt.Fprintf(&b, " in[%d] %d blocked %v", c, len(in), k.h.Blocked(c))
		}
	})
	return b.String()
}
