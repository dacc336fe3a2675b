package checkpoint

import (
	"fmt"
	"math"
	"slices"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// acknowledge takes a task's part of a checkpoint, or deletes what the task wrote
// for one that has ended.
func (c *Core) acknowledge(a *event.Ack) {
	if a == nil {
		return
	}
	i := c.g.task(a.Task)
	if a.ID < c.firstID || a.ID >= c.nextID {
		// Of a former life of the coordinator: a checkpoint of that life may have it.
		return
	}
	p := c.find(a.ID)
	if p == nil || i < 0 {
		c.discard(a)
		return
	}
	if a.Task.Attempt != c.tasks[i].attempt || p.phase != phaseTasks || !p.waits(i) {
		// Twice, or of an attempt that was not asked. What it brings is garbage unless
		// the checkpoint has it; of a savepoint only we know.
		if !p.acked[i] || a.Task.Attempt != c.tasks[i].attempt && !p.savepoint() {
			c.discard(a)
		}
		return
	}
	if err := c.register(p, a); err != nil {
		c.abort(p, event.FinalizeFailure, fmt.Errorf("acknowledgement of %s: %w", c.g.taskName(a.Task), err), nil)
		return
	}
	v, subtask := c.g.place(i)
	for k := range a.State {
		s := &a.State[k]
		if s.State == nil || isEmpty(s.State) {
			continue
		}
		o := p.operator(c, v, s.ID)
		if o == nil {
			c.abort(p, event.FinalizeFailure, fmt.Errorf("acknowledgement of %s has state of operator %s, which is not in that task", c.g.taskName(a.Task), s.ID), nil)
			return
		}
		st := *s.State
		st.Index = subtask
		o.Subtasks = append(o.Subtasks, st)
	}
	if a.Finished {
		if p.finishing == nil {
			p.finishing = map[int]bool{}
		}
		p.finishing[i] = true
	}
	if a.FinishedBefore {
		if p.finishedBefore == nil {
			p.finishedBefore = map[int]bool{}
		}
		p.finishedBefore[i] = true
	}
	p.acked[i] = true
	p.acksLeft--
	p.stats.acked(c, i, a)
	c.openGateways(i, p.id)
	if p.acksLeft == 0 {
		p.phase = phaseReady
		c.do(Action{Kind: ActStopTimer, Timer: TimerExpire, ID: p.id})
		c.ready = append(c.ready, p)
	}
}

func isEmpty(s *metadata.SubtaskState) bool {
	return s.ManagedOperator == nil && s.RawOperator == nil && s.ManagedKeyed == nil && s.RawKeyed == nil && len(s.InputChannels) == 0 && len(s.OutputChannels) == 0
}

// operator is the state of an operator of a vertex; nil if the vertex has no such.
func (p *pending) operator(c *Core, vertex int, id metadata.OperatorID) *metadata.OperatorState {
	if o := p.operators[id]; o != nil {
		return o
	}
	at, ok := c.g.operators[id]
	if !ok || at.vertex != vertex {
		return nil
	}
	o := newOperatorState(c, id)
	p.operators[id] = o
	return o
}

func newOperatorState(c *Core, id metadata.OperatorID) *metadata.OperatorState {
	at := c.g.operators[id]
	v := &c.g.Vertices[at.vertex]
	o := &metadata.OperatorState{ID: id, Parallelism: v.Parallelism, MaxParallelism: v.MaxParallelism}
	if c.opts.FormatVersion >= 5 {
		o.Name, o.UID = javaio.NewString(v.Operators[at.index].Name), javaio.NewString(v.Operators[at.index].UID)
	}
	return o
}

// register tells the shared state registry of what was acknowledged. The files of
// a savepoint are only remembered: they are its own.
func (c *Core) register(p *pending, a *event.Ack) error {
	if p.savepoint() {
		var missing error
		eachHandle(a.State, func(metadata.StreamHandle) {}, func(_ *metadata.IncrementalHandle, f *metadata.NamedHandle) {
			if f.Handle == nil { // a placeholder: a savepoint builds on no checkpoint
				missing = fmt.Errorf("shared file %q of a savepoint: %w", f.Name.Go(), incremental.ErrUnknownFile)
			}
		})
		p.files = append(p.files, c.ackFiles(p.dir, a.State)...)
		return missing
	}
	var files []incremental.AckFile
	var named []*metadata.NamedHandle // for each file, nil if it is no shared one
	eachHandle(a.State, func(h metadata.StreamHandle) {
		files, named = append(files, incremental.AckFile{Handle: absolute(p.dir, h)}), append(named, nil)
	}, func(in *metadata.IncrementalHandle, f *metadata.NamedHandle) {
		file := incremental.AckFile{Handle: absolute(p.dir, f.Handle)}
		if file.Handle == nil && f.Handle != nil {
			return // it lies in the metadata object itself
		}
		if c.opts.Identity != nil { // without one a placeholder is refused
			file.Identity = c.opts.Identity(in, f)
		}
		files, named = append(files, file), append(named, f)
	})
	brought := make([]metadata.StreamHandle, len(files))
	n := 0
	for i := range files {
		if files[i].Handle == nil && named[i] == nil {
			continue // it lies in the metadata object itself
		}
		files[n], named[n], brought[n] = files[i], named[i], files[i].Handle
		n++
	}
	files = files[:n]
	if err := c.files.Update(func(reg *incremental.Registry) error { return reg.Register(p.id, files) }); err != nil {
		return err
	}
	// Where another upload of the same file stays, the checkpoint names that one.
	for i := range files {
		if named[i] != nil && files[i].Handle != brought[i] {
			named[i].Handle = files[i].Handle
		}
	}
	return nil
}

// discard deletes what an acknowledgement brings that belongs to no checkpoint.
func (c *Core) discard(a *event.Ack) {
	if c.savepoints[a.ID] || c.inDoubt {
		return
	}
	dir := c.dirs[a.ID]
	files := c.ackFiles(dir, a.State)
	if len(files) == 0 {
		return
	}
	c.files.Update(func(reg *incremental.Registry) error { reg.Discard(files, uploadedTo(dir)...); return nil })
}

// uploadedTo is the folder of a checkpoint or savepoint, for Registry.Discard; none
// if it is not known.
func uploadedTo(dir string) []blobstore.Location {
	if dir == "" {
		return nil
	}
	loc, err := blobstore.ParsePath(dir)
	if err != nil {
		return nil // its files stay: they are left to gc
	}
	return []blobstore.Location{loc}
}

func (c *Core) ackFiles(dir string, states []event.OperatorSubtask) []incremental.AckFile {
	var files []incremental.AckFile
	add := func(h metadata.StreamHandle) {
		if h = absolute(dir, h); h != nil {
			files = append(files, incremental.AckFile{Handle: h})
		}
	}
	eachHandle(states, add, func(_ *metadata.IncrementalHandle, f *metadata.NamedHandle) { add(f.Handle) })
	return files
}

// eachHandle visits the stream handles of an acknowledgement; shared files of
// incremental handles by their own function.
func eachHandle(states []event.OperatorSubtask, f func(metadata.StreamHandle), shared func(*metadata.IncrementalHandle, *metadata.NamedHandle)) {
	for i := range states {
		if states[i].State == nil {
			continue
		}
		one := metadata.Checkpoint{Operators: []metadata.OperatorState{{Subtasks: []metadata.SubtaskState{*states[i].State}}}}
		for _, k := range one.KeyedHandles() {
			if h, ok := k.(*metadata.IncrementalHandle); ok {
				for n := range h.Shared {
					shared(h, &h.Shared[n])
				}
			}
		}
		for p, h := range one.StreamHandles() {
			if p.Part != metadata.PartShared {
				f(h)
			}
		}
	}
}

// absolute is the handle of a file whose path is below the checkpoint's folder;
// nil if it names no file that can be told.
func absolute(dir string, h metadata.StreamHandle) metadata.StreamHandle {
	switch r := metadata.Innermost(h).(type) {
	case *metadata.RelativeFileHandle:
		if dir == "" {
			return nil
		}
		return &metadata.FileHandle{Path: javaio.NewString(dir + "/" + r.Path.Go()), Size: r.Size}
	case *metadata.FileHandle, *metadata.SegmentHandle:
		return h
	}
	return nil
}

// startCommit has the next acknowledged checkpoint written: one at a time, so that
// the store changes in one order only.
func (c *Core) startCommit() {
	for c.committing == nil && !c.storing && len(c.ready) > 0 && !c.inDoubt {
		p := c.ready[0]
		c.ready = c.ready[1:]
		meta, err := c.finish(p)
		if err != nil {
			reason := event.FinalizeFailure
			if _, ok := err.(*partlyFinishedError); ok {
				reason = event.DeclinedTaskClosing
			}
			c.abort(p, reason, err, nil)
			continue
		}
		p.phase, p.meta = phaseCommitting, meta
		c.committing = p
		a := Action{Kind: ActCommit, ID: p.id, Checkpoint: meta}
		if !p.savepoint() {
			p.after, p.gone = retain(c.retained, Completed{ID: p.id, Path: p.dir + "/_metadata"}, c.opts.Retained)
			a.Retained = p.after
		}
		a.Stop = p.req.Post != event.None
		c.do(a)
	}
}

// partlyFinishedError: Flink's PartialFinishingNotSupportedByStateException.
type partlyFinishedError struct{ vertex, state string }

func (e *partlyFinishedError) Error() string {
	return fmt.Sprintf("some tasks of %s have finished and others not, while it has the union list state %q: the state of those that finished would be lost", e.vertex, e.state)
}

// finish makes the metadata of a checkpoint that all have acknowledged.
func (c *Core) finish(p *pending) (*metadata.Checkpoint, error) {
	m := &metadata.Checkpoint{Version: c.opts.FormatVersion, ID: p.id}
	for i := range p.masters {
		if s := &p.masters[i]; s.Payload != nil || s.Name != "" {
			m.MasterStates = append(m.MasterStates, *s)
		}
	}
	for v := range c.g.Vertices {
		if err := c.finishVertex(p, v, m); err != nil {
			return nil, err
		}
	}
	if c.opts.FormatVersion >= 4 {
		raw, err := metadata.NewProperties(c.properties(p))
		if err != nil {
			return nil, err
		}
		m.Properties = raw
	}
	if c.opts.FormatVersion >= 6 {
		// The tasks' channel handles have no tag.
		m.Version = 5
		return metadata.Convert(m, c.opts.FormatVersion, nil)
	}
	return m, nil
}

func (c *Core) finishVertex(p *pending, v int, m *metadata.Checkpoint) error {
	vertex := &c.g.Vertices[v]
	var gone []int32 // subtasks that had finished before
	first, end := c.g.first[v], c.g.first[v+1]
	for _, i := range p.plan.finished {
		if i >= first && i < end {
			gone = append(gone, int32(i-first))
		}
	}
	for i := range p.finishedBefore {
		if i >= first && i < end {
			gone = append(gone, int32(i-first))
		}
	}
	if len(gone) == end-first {
		for k := range vertex.Operators {
			o := newOperatorState(c, vertex.Operators[k].ID)
			o.FinishedCount = -1 // its coordinator has no state any more either
			m.Operators = append(m.Operators, *o)
		}
		return nil
	}
	finishing := 0
	for i := first; i < end; i++ {
		if p.finishing[i] && !p.finishedBefore[i] {
			finishing++
		}
	}
	partly := (len(gone) > 0 || finishing > 0) && len(gone)+finishing < end-first
	for k := range vertex.Operators {
		op := &vertex.Operators[k]
		o := p.operators[op.ID]
		if o == nil {
			o = newOperatorState(c, op.ID)
		}
		if partly {
			if name, ok := unionState(o); ok {
				return &partlyFinishedError{vertex.label(), name}
			}
		}
		o.Coordinator = p.coordinatorState[op.ID]
		for _, s := range gone {
			o.Subtasks = append(o.Subtasks, metadata.SubtaskState{Index: s, Finished: true})
		}
		slices.SortFunc(o.Subtasks, func(a, b metadata.SubtaskState) int { return int(a.Index - b.Index) })
		m.Operators = append(m.Operators, *o)
	}
	return nil
}

// unionState is the name of a union list state that an operator has.
func unionState(o *metadata.OperatorState) (string, bool) {
	for i := range o.Subtasks {
		if h := o.Subtasks[i].ManagedOperator; h != nil {
			for k := range h.States {
				if h.States[k].Mode == metadata.ModeUnion {
					return h.States[k].Name.Go(), true
				}
			}
		}
	}
	return "", false
}

func (c *Core) properties(p *pending) metadata.Properties {
	t := p.barrier.Options.Type
	if !t.IsSavepoint() {
		policy := metadata.RetainOnCancellation
		switch {
		case slices.Contains(c.opts.Discard, JobFailed):
			policy = metadata.NeverRetained
		case slices.Contains(c.opts.Discard, JobCanceled):
			policy = metadata.RetainOnFailure
		}
		props := metadata.CheckpointProperties(policy)
		if t == event.FullCheckpoint {
			props.Kind, props.Name, props.Sharing = metadata.KindFullCheckpoint, "", ""
		}
		return props
	}
	format := metadata.FormatCanonical
	if t == event.SavepointNative {
		format = metadata.FormatNative
	}
	props := metadata.SavepointProperties(format)
	switch p.req.Post {
	case event.Suspend:
		props.Kind = metadata.KindSuspendSavepoint
	case event.Terminate:
		props.Kind = metadata.KindTerminateSavepoint
	}
	return props
}

// committed ends the commit of a checkpoint.
func (c *Core) committed(ev *Event) {
	p := c.committing
	if p == nil || p.id != ev.ID {
		return
	}
	c.committing = nil
	switch ev.Outcome {
	case Committed:
		c.completed(p, ev.Dir)
	case NotWritten:
		c.abort(p, event.FinalizeFailure, ev.Err, nil)
	case NotAdded, Fenced:
		c.withdraw(p, ev)
		if ev.Outcome == Fenced {
			c.giveUp(ErrFenced)
		}
	case InDoubt:
		// Neither its files nor those of older checkpoints may be touched.
		c.drop(p)
		c.failed(p, event.FinalizeFailure, ev.Err, nil)
		c.giveUp(fmt.Errorf("checkpoint %d: %w: %w", p.id, ErrInDoubt, errOr(ev.Err)))
	}
}

// withdraw deletes a checkpoint whose metadata object is there but which the store
// has not taken: the metadata object first, so that nobody finds it without its files.
func (c *Core) withdraw(p *pending, ev *Event) {
	path := ev.Dir
	if path == "" {
		path = p.dir + "/_metadata"
	}
	c.files.Update(func(reg *incremental.Registry) error {
		if p.savepoint() {
			return Sweep(reg, []Orphan{{Path: path, Meta: p.meta}})
		}
		if err := reg.Confirm(p.id, path); err != nil {
			return err
		}
		reg.Subsume(p.id)
		return nil
	})
	if !p.savepoint() {
		// Confirming ended older ones in the registry.
		c.abortOlder(p.id)
	}
	c.abort(p, event.FinalizeFailure, ev.Err, nil)
}

// giveUp ends this coordinator without touching anything that is stored.
func (c *Core) giveUp(err error) {
	c.inDoubt = true
	c.stopScheduler()
	c.rejectQueued(event.CoordinatorShutdown, err)
	c.abortAll(event.CoordinatorShutdown, err)
	c.do(Action{Kind: ActFailJob, Err: err, Fatal: true})
}

// completed is Flink's completePendingCheckpoint from the store on.
func (c *Core) completed(p *pending, path string) {
	c.drop(p)
	if path == "" {
		path = p.dir + "/_metadata"
	}
	if p.savepoint() {
		c.savepoints[p.id] = true
		if p.req.Post != event.None {
			c.stopped = path
		}
	} else {
		c.retained = p.after
		err := c.files.Update(func(reg *incremental.Registry) error {
			return reg.Confirm(p.id, path)
		})
		c.subsumed = append(c.subsumed, p.gone...)
		if err != nil {
			// The checkpoint is there all the same; its files are only not deleted in time.
			c.do(Action{Kind: ActFailJob, Err: fmt.Errorf("checkpoint %d is complete but not in the registry: %w", p.id, err)})
		}
		for _, s := range p.gone {
			c.history.discarded(s.ID)
		}
	}
	c.pauseUntil = c.now + c.opts.MinPauseMillis
	c.failures.succeeded(p.id)
	c.history.completed(c, p, path)
	c.do(Action{Kind: ActCompleted, ID: p.id, Dir: path, Stats: p.stats})
	if !p.req.periodic() {
		c.do(Action{Kind: ActResult, Request: p.req, ID: p.id, Dir: path})
	}
	c.openGateways(-1, p.id)
	if c.stopped != "" && c.failover { // the failure came while it was being completed
		c.failStopped()
		return
	}
	if p.savepoint() && p.req.Post == event.None {
		return // a savepoint commits nothing outside: tasks are not told
	}
	c.abortOlder(p.id)
	c.notify(p, ActNotifyComplete)
	for _, op := range c.g.coordinators {
		c.do(Action{Kind: ActCoordinatorComplete, ID: p.id, Operator: op})
	}
	if len(c.opts.Hooks) > 0 {
		c.do(Action{Kind: ActHooksComplete, ID: p.id})
	}
}

// release gives up subsumed checkpoints on which no pending one can build. A task
// builds its part of a checkpoint on what was complete when the checkpoint was
// triggered, or has been completed since; and its acknowledgement may be on its way
// while a third checkpoint completes and subsumes that one.
func (c *Core) release() {
	if len(c.subsumed) == 0 || c.inDoubt {
		return
	}
	oldest := int64(math.MaxInt64)
	for _, p := range c.pending {
		if p.barrier.Options.Type == event.Checkpoint { // also one with base 0: what has completed since
			oldest = min(oldest, p.barrier.Base)
		}
	}
	keep := c.subsumed[:0]
	for _, s := range c.subsumed {
		if s.ID >= oldest {
			keep = append(keep, s)
			continue
		}
		c.files.Update(func(reg *incremental.Registry) error { reg.Subsume(s.ID); return nil })
	}
	c.subsumed = keep
}

// abortOlder aborts checkpoints that a newer one made useless; savepoints stay.
func (c *Core) abortOlder(id int64) {
	for _, o := range slices.Clone(c.pending) {
		if o.id < id && !o.savepoint() && o.phase != phaseCommitting {
			c.abort(o, event.CheckpointSubsumed, fmt.Errorf("checkpoint %d completed first", id), nil)
		}
	}
}

// notify tells the tasks that took part and are still there.
func (c *Core) notify(p *pending, kind ActionKind) {
	for _, i := range p.plan.wait {
		if c.tasks[i].state == TaskRunning {
			c.do(Action{Kind: kind, ID: p.id, Task: c.attempt(i)})
		}
	}
}
