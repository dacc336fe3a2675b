package sim

import (
	"errors"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// taskFailed is told of a crash: by the end of a connection.
func (p *process) taskFailed(k *task) {
	p.later(1+p.w.r.Int64N(20), func() {
		if p.find(k.t) != k {
			return
		}
		err := errors.New("crash")
		if p.w.cfg.Shape == Keyed {
			p.failed(k, err)
			p.restart(err)
			return
		}
		p.pipelineFailed(int(k.at.subtask), err)
	})
}

// failed tells the coordinators of the end of a task's attempt.
func (p *process) failed(k *task, err error) {
	p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskFailed, Err: err})
	if k.at.vertex == theSource && !p.dead {
		if err := p.source.SubtaskFailed(k.at.subtask, k.t.Attempt, err); err != nil {
			p.w.fail("%v", err)
		}
	}
}

// restart is a failover of the whole job.
func (p *process) restart(err error) {
	if p.dead || p.restarting && p.whole {
		return
	}
	p.restarting, p.whole = true, true
	p.failovers++
	p.all(func(k *task) { k.end() })
	p.feed(&checkpoint.Event{Kind: checkpoint.EvFailover, Reason: event.TaskFailure, Err: err})
}

// pipelineFailed is the failover of one pipeline: the others go on.
func (p *process) pipelineFailed(i int, err error) {
	if p.dead || p.broken[i] || p.restarting && p.whole {
		return
	}
	p.restarting = true
	p.broken[i] = true
	p.failovers++
	for v := range p.tasks {
		k := p.tasks[v][i]
		finished := k.over
		k.end()
		if !finished || v == theSource {
			p.failed(k, err)
		}
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvFailover, Reason: event.TaskFailure, Err: err, On: true})
}

// restored begins the next attempt of what has failed: the coordinator has said from
// which checkpoint.
func (p *process) restored() {
	whole := p.whole
	broken := p.broken
	p.restarting, p.whole, p.broken = false, false, map[int]bool{}
	if whole {
		p.deploy()
		return
	}
	p.w.res.Partial++
	p.deployTasks(func(at place) bool { return broken[int(at.subtask)] })
}

// deploy starts all tasks from the newest retained checkpoint.
func (p *process) deploy() { p.deployTasks(nil) }

// newest is the checkpoint to restore from, nil for none.
func (p *process) newest() (m *metadata.Checkpoint, ok bool) {
	list := p.core.Retained()
	if len(list) == 0 {
		return nil, true
	}
	c := list[len(list)-1]
	if m = p.w.store.metas[c.Path]; m == nil {
		p.lost("checkpoint %d has no metadata at a restore", c.ID)
		return nil, false
	}
	p.w.res.Restores++
	p.w.trace("restore from %d", m.ID)
	return m, true
}

// lost is a restore that finds nothing: a coordinator that was taken over may have
// that, and gives up.
func (p *process) lost(format string, args ...any) {
	if p != p.w.proc {
		p.die()
		return
	}
	p.w.fail(format, args...)
}

// deployTasks starts the tasks for which only is true, or all if it is nil.
func (p *process) deployTasks(only func(place) bool) {
	w := p.w
	p.stopped = false
	p.attempt++
	m, ok := p.newest()
	if !ok {
		return
	}
	var a *checkpoint.Assignment
	if m != nil {
		var err error
		if a, err = checkpoint.Assign(m, p.graph, nil); err != nil {
			w.fail("checkpoint %d: %v", m.ID, err)
			return
		}
	}
	var fresh []*task
	for v := range p.tasks {
		if only == nil {
			p.tasks[v] = make([]*task, p.degrees[v])
		}
		for s := range p.tasks[v] {
			at := place{v, int32(s)}
			if only != nil && !only(at) {
				continue
			}
			k := &task{p: p, at: at, t: event.Task{Vertex: vertices[v], Subtask: at.subtask, Attempt: p.attempt}, snaps: map[int64]*snap{}, built: map[int64]*snap{}, aborted: map[int64]bool{}}
			k.stepFunc = k.due
			n := w.channels(p.degrees, v)
			k.in = make([][]element, n)
			k.h = barrier.New(barrier.Options{Channels: n, AtLeastOnce: w.cfg.Alignment == event.AtLeastOnce})
			p.tasks[v][s] = k
			fresh = append(fresh, k)
		}
	}
	for _, k := range fresh {
		k.wire()
	}
	finished := map[*task]bool{}
	var pending []pendingTxn
	for _, k := range fresh {
		if a != nil {
			finished[k] = p.restore(k, a)
		}
		if p.dead || w.err != nil {
			return
		}
		if k.at.vertex == theSink {
			pending = append(pending, k.state.pending...)
			k.state.pending = nil
		}
		if err := k.openBackend(a); err != nil {
			p.lost("%s: %v", k.name(), err)
			return
		}
	}
	if !w.sink.recover(p.number, pending, only) {
		p.lost("the sink refuses a coordinator that was taken over")
		return
	}
	if only == nil {
		p.resetSource(m)
	} else {
		p.giveBack(m, fresh)
	}
	if w.happens(FaultRestore, 20) {
		w.after(0, func() {
			if !p.dead && !p.restarting {
				fresh[0].crash()
			}
		})
	}
	p.begin(fresh, finished)
}

// giveBack has the enumerator take back the splits that readers do not have which
// restart alone.
func (p *process) giveBack(m *metadata.Checkpoint, fresh []*task) {
	id := int64(0)
	if m != nil {
		id = m.ID
	}
	for _, k := range fresh {
		if k.at.vertex != theSource {
			continue
		}
		if err := p.source.SubtaskReset(k.at.subtask, id); err != nil {
			p.w.fail("%v", err)
		}
	}
}

// begin lets tasks run. All are there before the first one speaks.
func (p *process) begin(fresh []*task, finished map[*task]bool) {
	w := p.w
	for _, k := range fresh {
		if !finished[k] {
			p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskRunning})
		}
	}
	for _, k := range fresh {
		if p.dead {
			return
		}
		if finished[k] {
			k.over = true
			k.closeBackend()
			for _, o := range k.out {
				o.t.push(o.channel, element{kind: 'e'})
			}
			p.feed(&checkpoint.Event{Kind: checkpoint.EvTask, Task: k.t, State: checkpoint.TaskFinished})
			continue
		}
		if k.at.vertex == theSource {
			p.tell(k, event.RegisterReader)
			w.after(7, k.schedule) // behind the registration
			continue
		}
		k.schedule()
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvStart, Delay: 5 + w.r.Int64N(40)})
	if w.cfg.Savepoints {
		at := p.attempt
		p.later(10+w.r.Int64N(200), func() { p.savepoint(at) })
	}
	p.later(1, p.maybeEnd) // all may have finished before
}

// restore gives a task its state. finished says that it had ended.
func (p *process) restore(k *task, a *checkpoint.Assignment) (finished bool) {
	r := a.Subtask(k.t.Vertex, k.at.subtask)
	switch {
	case a.FinishedVertices[k.at.vertex], r.Finished:
		return true
	case r.Operator == nil:
		p.w.fail("checkpoint %d has no state of %s", a.Checkpoint.ID, k.name())
		return false
	}
	id := a.Checkpoint.ID
	get := func(h metadata.StreamHandle) *state {
		f := p.w.store.files[pathOf(h)]
		if f == nil {
			p.lost("checkpoint %d is restored, and its file %s is missing", id, pathOf(h))
			return &state{}
		}
		return f.content
	}
	for _, part := range r.ManagedOperator {
		from := get(part.Handle.Delegate)
		for _, s := range part.States {
			for _, i := range s.Offsets {
				switch k.at.vertex {
				case theSource:
					k.state.splits = append(k.state.splits, from.splits[i])
				case theSink:
					k.state.pending = append(k.state.pending, from.pending[i])
				}
			}
		}
	}
	if k.at.vertex == theCounter {
		k.restoreCounts(r, get, id)
	}
	p.restoreChannels(k, r, get)
	return false
}

// restoreChannels gives a task what was in flight to it.
func (p *process) restoreChannels(k *task, r *checkpoint.SubtaskRestore, get func(metadata.StreamHandle) *state) {
	if len(k.in) == 0 || p.w.cfg.bug == bugLostInFlight {
		return
	}
	mapper := channel.Range
	if p.w.cfg.Shape == Pipelines {
		mapper = channel.RoundRobin
	}
	old := []int{int(k.at.subtask)}
	if r.Rescaled {
		old = mapper.OldSubtasks(int(k.at.subtask), int(r.Operator.Parallelism), int(p.degrees[k.at.vertex]), maxParallelism)
	}
	for i := range r.Operator.Subtasks {
		s := &r.Operator.Subtasks[i]
		if s.Finished || !slices.Contains(old, int(s.Index)) {
			continue
		}
		for _, h := range s.InputChannels {
			from := get(h.Delegate)
			for up, list := range from.inFlight {
				for _, e := range list {
					if p.w.cfg.Shape == Keyed && ownerOf(e.line.key, p.degrees[k.at.vertex]) != k.at.subtask {
						continue
					}
					c := up % len(k.in)
					k.in[c] = append(k.in[c], e)
				}
			}
		}
	}
}

// restoreCounts gives a counter the counts of its keys.
func (k *task) restoreCounts(r *checkpoint.SubtaskRestore, get func(metadata.StreamHandle) *state, id int64) {
	if k.real() {
		return
	}
	mine := func(h metadata.KeyedHandle, key int) bool {
		return h.KeyGroups().Contains(groups[key]) && r.KeyGroups.Contains(groups[key])
	}
	handles := r.ManagedKeyed
	if k.p.w.cfg.bug == bugForgetsKeys {
		handles = handles[:min(len(handles), 1)]
	}
	for _, h := range handles {
		switch h := h.(type) {
		case *metadata.KeyGroupsHandle:
			from := get(h.Delegate)
			for key := range k.state.counts {
				if mine(h, key) {
					k.state.counts[key] = from.counts[key]
				}
			}
		case *metadata.IncrementalHandle:
			for _, f := range h.Shared {
				from := get(f.Handle)
				for key := range k.state.counts {
					if mine(h, key) && from.changed&(1<<key) != 0 {
						k.state.counts[key] = from.counts[key]
					}
				}
			}
			if !r.Rescaled {
				k.files, k.confirmed = h.Shared, id
			}
		}
	}
}
