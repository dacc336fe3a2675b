package sim

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

var vertices = [...]metadata.OperatorID{metadata.OperatorIDFromUID("source"), metadata.OperatorIDFromUID("count"), metadata.OperatorIDFromUID("sink")}

// process is a coordinator and its tasks: what dies together.
type process struct {
	w       *world
	number  int
	core    *checkpoint.Core
	reg     *incremental.Registry
	dead    bool
	tasks   []*task
	attempt int32
	out     []checkpoint.Action

	timers      map[timerKey]int // generation of each
	generation  int
	restarting  bool
	uploads     map[int64][]*snap
	built       map[buildKey]*snap
	confirmedID [taskCount]int64
	shutdown    bool
	over        bool
	stopped     bool
	requests    int64
	source      *checkpoint.SourceCoordinator[split, []split]
}

type timerKey struct {
	t  checkpoint.Timer
	id int64
}

type buildKey struct {
	task int
	id   int64
}

var simGraph = checkpoint.Graph{Vertices: []checkpoint.Vertex{
	{ID: vertices[0], Name: "source", Parallelism: sources, MaxParallelism: 8, Operators: []checkpoint.Operator{{ID: vertices[0], Coordinator: true}}},
	{ID: vertices[1], Name: "count", Parallelism: counters, MaxParallelism: 8, Operators: []checkpoint.Operator{{ID: vertices[1]}}, Inputs: []checkpoint.Input{{From: 0}}},
	{ID: vertices[2], Name: "sink", Parallelism: 1, MaxParallelism: 8, Operators: []checkpoint.Operator{{ID: vertices[2]}}, Inputs: []checkpoint.Input{{From: 1}}},
}}

func taskOf(i int, attempt int32) event.Task {
	switch {
	case i < firstCounter:
		return event.Task{Vertex: vertices[0], Subtask: int32(i), Attempt: attempt}
	case i < theSink:
		return event.Task{Vertex: vertices[1], Subtask: int32(i - firstCounter), Attempt: attempt}
	}
	return event.Task{Vertex: vertices[2], Attempt: attempt}
}

func taskNumber(t event.Task) int {
	switch t.Vertex {
	case vertices[0]:
		return int(t.Subtask)
	case vertices[1]:
		return firstCounter + int(t.Subtask)
	}
	return theSink
}

// Update implements checkpoint.Files.
func (p *process) Update(f func(*incremental.Registry) error) error { return f(p.reg) }

// startProcess begins a life: it takes the store over and starts the job.
func (w *world) startProcess() {
	p := &process{w: w, reg: incremental.NewRegistry(), timers: map[timerKey]int{}, uploads: map[int64][]*snap{}, built: map[buildKey]*snap{}}
	w.res.Coordinators++
	p.number = w.res.Coordinators
	w.proc = p
	w.store.owner = p.number
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
	opts := checkpoint.Options{IntervalMillis: 40, MinPauseMillis: int64(w.cfg.Seed % 3 * 10), TimeoutMillis: 200, MaxConcurrent: w.cfg.Concurrent, Retained: w.cfg.Retained,
		TolerableFailures: -1, Alignment: w.cfg.Alignment, AlignedTimeoutMillis: w.cfg.AlignedMs, ReserveIDs: 4}
	core, err := checkpoint.NewCore(simGraph, p, opts, checkpoint.Start{NextID: w.store.content.NextID, Retained: w.store.content.Retained})
	if err != nil {
		w.fail("%v", err)
		return
	}
	p.core = core
	w.trace("coordinator %d begins with %d retained", p.number, len(w.store.content.Retained))
	p.clean()
	// Attempts go on over lives, so that messages of old ones can be told apart.
	p.attempt = int32(p.number * 1000)
	p.deploy()
}

// deploy starts all tasks from the newest retained checkpoint.
func (p *process) deploy() {
	w := p.w
	p.stopped = false
	p.attempt++
	var m *metadata.Checkpoint
	if list := p.core.Retained(); len(list) > 0 {
		m = w.store.metas[list[len(list)-1].Path]
		if m == nil {
			w.fail("checkpoint %d has no metadata at a restore", list[len(list)-1].ID)
			return
		}
		w.res.Restores++
		w.trace("restore from %d", m.ID)
	}
	for _, k := range p.tasks {
		k.dead = true
	}
	p.tasks = nil
	p.confirmedID = [taskCount]int64{}
	for i := range taskCount {
		k := &task{p: p, i: i, t: taskOf(i, p.attempt), snaps: map[int64]*snap{}}
		k.stepFunc = k.due
		n := k.channels()
		k.in = make([][]element, n)
		k.h = barrier.New(barrier.Options{Channels: n, AtLeastOnce: w.cfg.Alignment == event.AtLeastOnce})
		p.tasks = append(p.tasks, k)
	}
	p.wire()
	var finished [taskCount]bool
	if m != nil {
		for i := range finished {
			finished[i] = p.restore(p.tasks[i], m)
		}
	}
	var pending []pendingTxn
	if s := p.tasks[theSink]; m != nil {
		pending = s.state.pending
		s.state.pending = nil
	}
	w.sink.recover(pending)
	p.resetSource(m)
	// All are there before the first one speaks.
	for i, k := range p.tasks {
		if finished[i] {
			continue
		}
		p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskRunning})
	}
	for i, k := range p.tasks {
		if finished[i] {
			k.over = true
			for _, o := range k.out {
				o.t.push(o.channel, element{kind: 'e'})
			}
			p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskFinished})
		}
		if i < firstCounter && !finished[i] {
			p.tell(k, event.RegisterReader)
			p.w.after(7, k.schedule) // behind the registration
			continue
		}
		k.schedule()
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvStart, Delay: 5 + w.r.Int64N(40)})
	if w.cfg.Savepoints {
		at := p.attempt
		p.later(10+w.r.Int64N(200), func() { p.savepoint(at) })
	}
}

// savepoint asks for one now and then.
func (p *process) savepoint(attempt int32) {
	if p.attempt != attempt || p.stopped {
		return
	}
	p.requests++
	p.feed(&checkpoint.Event{Kind: checkpoint.EvTrigger, Request: &checkpoint.Request{Number: p.requests, Type: event.SavepointCanonical, Target: "file:/sp"}})
	p.later(100+p.w.r.Int64N(300), func() { p.savepoint(attempt) })
}

// restore gives a task its state. finished says that it had ended.
func (p *process) restore(k *task, m *metadata.Checkpoint) (finished bool) {
	for i := range m.Operators {
		o := &m.Operators[i]
		if o.ID != k.t.Vertex {
			continue
		}
		if o.FullyFinished() {
			return true
		}
		for n := range o.Subtasks {
			s := &o.Subtasks[n]
			if s.Index != k.t.Subtask {
				continue
			}
			if s.Finished {
				return true
			}
			p.load(k, s, m.ID)
			return false
		}
	}
	p.w.fail("checkpoint %d has no state of %s", m.ID, k.name())
	return false
}

func (p *process) load(k *task, s *metadata.SubtaskState, id int64) {
	get := func(h metadata.StreamHandle) *state {
		f := p.w.store.files[pathOf(h)]
		if f == nil {
			p.w.fail("checkpoint %d is restored, and its file %s is missing", id, pathOf(h))
			return &state{}
		}
		return f.content
	}
	own := s.RawKeyed
	if own == nil {
		own = s.ManagedKeyed
	}
	k.state = *get(own.(*metadata.KeyGroupsHandle).Delegate)
	if h, ok := s.ManagedKeyed.(*metadata.IncrementalHandle); ok {
		k.state.counts = [keyCount]int32{}
		for _, f := range h.Shared {
			d := get(f.Handle)
			for key := range k.state.counts {
				if d.changed&(1<<key) != 0 {
					k.state.counts[key] = d.counts[key]
				}
			}
		}
		k.files = h.Shared
		p.confirmedID[k.i] = id
	}
	for c, list := range k.state.inFlight {
		k.in[c] = append(k.in[c], list...)
	}
	k.state.inFlight = nil
	k.changed = 0
	k.state.changed = 0
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
	for _, k := range p.tasks {
		k.dead = true
	}
	w.after(1+w.r.Int64N(60), w.startProcess)
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
	p.w.after(1+p.w.r.Int64N(8), func() {
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
			} else {
				ev.Err = w.store.put(p.number, func(c *checkpoint.Content) { c.NextID = max(c.NextID, id) })
			}
			return ev
		})
	case checkpoint.ActLocation:
		id, dir := a.ID, fmt.Sprintf("file:/ckp/chk-%d", a.ID)
		if a.Barrier.Options.Type.IsSavepoint() {
			dir = fmt.Sprintf("file:/sp/savepoint-%d", id)
		}
		if id <= w.store.highest {
			w.fail("checkpoint ID %d is used after %d", id, w.store.highest)
		}
		w.store.highest = id
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
		k := p.tasks[taskNumber(a.Task)]
		p.toTask(a.Task, func(k *task) { k.trigger(b) }, k.lastArrival)
	case checkpoint.ActCommit:
		p.commit(a)
	case checkpoint.ActStore:
		retained := a.Retained
		p.io(func() *checkpoint.Event {
			return &checkpoint.Event{Kind: checkpoint.EvStored, Err: w.store.put(p.number, func(c *checkpoint.Content) { c.Retained = retained })}
		})
	case checkpoint.ActNotifyComplete:
		id := a.ID
		p.toTask(a.Task, func(k *task) { k.complete(id) })
	case checkpoint.ActNotifyAborted:
		id := a.ID
		p.toTask(a.Task, func(k *task) { k.abort(id) })
	case checkpoint.ActRestore:
		p.later(1+w.r.Int64N(30), func() { p.restarting = false; p.deploy() })
	case checkpoint.ActFailJob:
		if a.Fatal {
			p.die()
		} else {
			p.restart(a.Err)
		}
	case checkpoint.ActCompleted:
		w.res.Completed++
		if a.Stats.Type.IsSavepoint() {
			w.res.Savepoints++
		}
	case checkpoint.ActFailed:
		w.res.Failed++
	case checkpoint.ActEnded:
		p.over = true
	}
}

// commit writes the metadata object, and then changes the store.
func (p *process) commit(a *checkpoint.Action) {
	w := p.w
	id, m, retained := a.ID, a.Checkpoint, a.Retained
	path := fmt.Sprintf("file:/ckp/chk-%d/_metadata", id)
	if retained == nil {
		path = fmt.Sprintf("file:/sp/savepoint-%d/_metadata", id)
	}
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
	w.after(1+w.r.Int64N(8), func() {
		if w.happens(FaultMetadata, 10) {
			answer(checkpoint.NotWritten, errBroken)
			return
		}
		if !w.store.writeMeta(p, path, m) {
			w.fail("checkpoint %d: there is a metadata object already", id)
			return
		}
		if retained == nil {
			answer(checkpoint.Committed, nil)
			return
		}
		w.after(1+w.r.Int64N(8), func() {
			if w.happens(FaultPut, 10) {
				answer(checkpoint.NotAdded, errBroken)
				return
			}
			err := w.store.put(p.number, func(c *checkpoint.Content) { c.Retained, c.NextID = retained, max(c.NextID, id+1) })
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
func (p *process) message(least int64, f func()) {
	w := p.w
	delay := max(1+w.r.Int64N(6), least)
	if w.happens(FaultLost, 2) {
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
func (p *process) toTask(t event.Task, f func(*task), notBefore ...int64) {
	k := p.tasks[taskNumber(t)]
	if k.t != t {
		return
	}
	least := int64(0)
	for _, at := range notBefore {
		least = max(least, at-p.w.now)
	}
	p.message(least, func() {
		if !k.dead && !k.over {
			f(k)
		}
	})
}

// toCoordinator is a message from a task to whatever coordinator lives when it
// comes.
func (p *process) toCoordinator(ev func() *checkpoint.Event, heard func(number int)) {
	w := p.w
	p.message(0, func() {
		q := w.proc
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
		if p.tasks[k.i] == k {
			p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: s})
			p.maybeEnd()
		}
	})
}

func (p *process) taskFailed(k *task) {
	p.later(1+p.w.r.Int64N(20), func() {
		if p.tasks[k.i] != k {
			return
		}
		p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskFailed, Err: errors.New("crash")})
		p.restart(errors.New("crash"))
	})
}

// restart is a failover of the whole job.
func (p *process) restart(err error) {
	if p.restarting || p.dead {
		return
	}
	p.restarting = true
	for _, k := range p.tasks {
		k.dead = true
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvFailover, Reason: event.TaskFailure, Err: err})
}

// maybeEnd shuts down once all tasks have finished.
func (p *process) maybeEnd() {
	for _, k := range p.tasks {
		if !k.over {
			return
		}
	}
	if !p.shutdown {
		p.shutdown = true
		p.feed(&checkpoint.Event{Kind: checkpoint.EvShutdown, Status: checkpoint.JobSuspended})
	}
}

// done says that the job has done all it had to: everything is read, processed and
// committed, and nothing is left to be deleted.
func (p *process) done() bool {
	if p.dead || p.restarting || p.core == nil || p.stopped && p.reg.Unfinished() > 0 {
		return false
	}
	if p.w.cfg.Finish {
		return p.over && p.reg.Unfinished() == 0
	}
	if len(p.core.Pending()) == 0 && p.stopped {
		return true
	}
	for _, k := range p.tasks {
		if k.dead || k.txn != 0 || len(k.state.pending) > 0 || k.i < firstCounter && !k.state.ended {
			return false
		}
		for _, in := range k.in {
			for _, e := range in {
				if e.kind == 'r' {
					return false
				}
			}
		}
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
	for _, k := range p.tasks {
		fmt.Fprintf(&b, "; %s dead %v over %v splits %v no more %v ending %d", k.name(), k.dead, k.over, k.state.splits, k.noMore, k.ending)
		for c, in := range k.in {
			fmt.Fprintf(&b, " in[%d] %d blocked %v", c, len(in), k.h.Blocked(c))
		}
	}
	return b.String()
}

// finish checks the results of a run that has come to its end.
func (w *world) finish() {
	var want, got [keyCount]map[int32]int
	for key := range want {
		want[key], got[key] = map[int32]int{}, map[int32]int{}
	}
	var total [keyCount]int32
	for _, s := range w.cfg.allSplits() {
		for pos := s.pos; pos < s.end; pos++ {
			total[recordKey(s.id, pos)]++
		}
	}
	for _, l := range w.sink.lines {
		got[l.key][l.count]++
	}
	exact := w.cfg.Alignment != event.AtLeastOnce
	for key, n := range total {
		for c := int32(1); c <= n; c++ {
			if got[key][c] == 0 {
				w.fail("the result of key %d with count %d of %d is missing", key, c, n)
			}
			if exact && got[key][c] > 1 {
				w.fail("the result of key %d with count %d is there %d times", key, c, got[key][c])
			}
		}
		if exact && len(got[key]) != int(n) {
			w.fail("key %d has %d results, %d are right", key, len(got[key]), n)
		}
	}
	leaked, left := w.store.leaks(w.proc.number)
	if len(leaked) > 0 {
		w.fail("files are left that the coordinator knew of and nobody needs: %v", leaked)
	}
	w.res.LeftToGC = left
}
