package sim

import (
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

const (
	sources  = 2
	counters = 2
	keyCount = 4
)

// Numbers of tasks: sources, counters, the sink.
const (
	firstCounter = sources
	theSink      = sources + counters
	taskCount    = theSink + 1
)

type element struct {
	kind  byte // r record, b barrier, c cancel, e end
	line  line
	id    int64
	b     event.Barrier
	ahead bool // a barrier that will overtake what is in front of it
}

// state of a task: what a file has.
type state struct {
	splits   []split           // of a source; not changed in place
	ended    bool              // of a source: all records are out
	counts   [keyCount]int32   // of a counter
	changed  uint32            // keys that a delta has
	pending  []pendingTxn      // of the sink
	inFlight map[int][]element // channel state
}

type pendingTxn struct {
	id  int64
	txn int
}

// task is a model of one task's attempt.
type task struct {
	p           *process
	i           int
	t           event.Task
	h           *barrier.Handler
	in          [][]element
	out         []target
	state       state
	txn         int
	dead        bool
	ending      int64  // its operators have finished: the checkpoint that has to be complete
	over        bool   // finished
	latest      int64  // triggered by the coordinator
	noMore      bool   // splits
	asked       int64  // for a split: not again before
	lastArrival int64  // of a message from the coordinator
	ended       int    // input channels
	busy        bool   // a step is due
	stepFunc    func() // due, made once
	snaps       map[int64]*snap
	files       []metadata.NamedHandle // shared files of the last confirmed checkpoint
	changed     uint32                 // since it
}

type target struct {
	t       *task
	channel int
}

// snap is a snapshot under way.
type snap struct {
	id        int64
	state     state
	taken     bool
	received  bool
	uploaded  bool
	finished  bool
	unaligned bool
	savepoint string // its folder
	capturing map[int]bool
	base      []metadata.NamedHandle
	files     []metadata.NamedHandle // what it will have
	changed   uint32
}

func (k *task) channels() int {
	switch {
	case k.i < firstCounter:
		return 0
	case k.i < theSink:
		return sources
	}
	return counters
}

// wire connects the tasks of a process.
func (p *process) wire() {
	for _, k := range p.tasks {
		switch {
		case k.i < firstCounter:
			for c := range counters {
				k.out = append(k.out, target{p.tasks[firstCounter+c], k.i})
			}
		case k.i < theSink:
			k.out = []target{{p.tasks[theSink], k.i - firstCounter}}
		}
	}
}

// schedule lets the task make its next step, if it has something to do.
func (k *task) schedule() {
	if k.busy || k.dead || k.over {
		return
	}
	k.busy = true
	k.p.w.after(1+k.p.w.r.Int64N(4), k.stepFunc)
}

func (k *task) due() {
	k.busy = false
	if !k.dead && !k.over {
		k.step()
	}
}

func (k *task) step() {
	w := k.p.w
	if w.happens(FaultTaskCrash, 1) {
		k.crash()
		return
	}
	if k.i < firstCounter {
		k.read()
		return
	}
	// One of the channels that have something and are not blocked.
	n, pick := 0, -1
	for c := range k.in {
		if len(k.in[c]) > 0 && !k.h.Blocked(c) {
			n++
			if w.r.IntN(n) == 0 {
				pick = c
			}
		}
	}
	if pick < 0 {
		return
	}
	e := k.in[pick][0]
	k.in[pick] = k.in[pick][1:]
	switch e.kind {
	case 'r':
		k.process(e.line)
	case 'b':
		k.handle(barrier.Event{Kind: barrier.BarrierArrived, Channel: int32(pick), Barrier: e.b}, 0)
	case 'c':
		k.handle(barrier.Event{Kind: barrier.Cancelled, Channel: int32(pick), ID: e.id}, 0)
	case 'e':
		k.handle(barrier.Event{Kind: barrier.EndOfPartition, Channel: int32(pick)}, 0)
		k.ended++
	}
	k.schedule()
}

func (k *task) process(l line) {
	if k.i == theSink {
		if k.txn == 0 {
			k.txn = k.p.w.sink.begin()
		}
		t := k.p.w.sink.txns[k.txn]
		t.lines = append(t.lines, l)
		return
	}
	k.state.counts[l.key]++
	k.changed |= 1 << l.key
	k.emit(0, line{l.key, k.state.counts[l.key]})
}

func (k *task) emit(out int, l line) {
	k.out[out].t.push(k.out[out].channel, element{kind: 'r', line: l})
}

// push puts an element into an input channel.
func (k *task) push(channel int, e element) {
	if k.dead || k.over {
		return
	}
	k.in[channel] = append(k.in[channel], e)
	if e.kind == 'r' {
		for _, s := range k.snaps { // each captures for itself: the order does not matter
			if s.capturing[channel] {
				k.capture(s, channel, e)
			}
		}
	}
	if s := k.snaps[e.id]; e.kind == 'b' && s != nil {
		delete(s.capturing, channel) // what comes behind its barrier is not of it
	}
	k.schedule()
}

func (k *task) capture(s *snap, channel int, e element) {
	if s.state.inFlight == nil {
		s.state.inFlight = map[int][]element{}
	}
	s.state.inFlight[channel] = append(s.state.inFlight[channel], e)
	k.p.w.res.Captured++
}

// broadcast sends a barrier downstream.
func (k *task) broadcast(b event.Barrier) {
	w := k.p.w
	for _, o := range k.out {
		ahead := b.Options.Alignment == event.Unaligned
		o.t.push(o.channel, element{kind: 'b', b: b, id: b.ID, ahead: ahead})
		switch {
		case ahead:
			w.after(w.r.Int64N(4), func() { o.t.overtake(o.channel, b.ID) })
		case b.Options.Timeoutable():
			w.after(w.r.Int64N(4), func() {
				if !o.t.dead && !o.t.over && o.t.find(o.channel, b.ID) >= 0 {
					o.t.handle(barrier.Event{Kind: barrier.Announced, Channel: int32(o.channel), Barrier: b}, 0)
				}
			})
		}
	}
}

func (k *task) find(channel int, id int64) int {
	return slices.IndexFunc(k.in[channel], func(e element) bool { return e.kind == 'b' && e.id == id })
}

// overtake lets a barrier come out of its channel ahead of what is in front of it.
func (k *task) overtake(channel int, id int64) {
	if k.dead || k.over {
		return
	}
	j := k.find(channel, id)
	if j < 0 {
		return // it came out in its place already
	}
	b := k.in[channel][j].b
	b.Options = b.Options.ToUnaligned()
	k.in[channel] = slices.Delete(slices.Clone(k.in[channel]), j, j+1)
	k.handle(barrier.Event{Kind: barrier.BarrierArrived, Channel: int32(channel), Barrier: b}, j)
	k.schedule()
}

// handle gives the barrier handler an event and does what it says. overtaken is how
// many elements of the channel the barrier has overtaken.
func (k *task) handle(ev barrier.Event, overtaken int) {
	w := k.p.w
	ev.At = w.now * 1e6
	arrived := int32(-1)
	if ev.Kind == barrier.BarrierArrived {
		arrived = ev.Channel
	}
	var convert []barrier.Action
	for _, a := range k.h.Handle(ev) {
		switch a.Kind {
		case barrier.Trigger:
			k.snapshot(a.Barrier)
		case barrier.AllReceived:
			s := k.snap(a.ID)
			s.received = true
			k.finishSnap(s)
		case barrier.StartCapture:
			s := k.snap(a.ID)
			// What is in the channel in front of the barrier.
			n := len(k.in[a.Channel])
			switch j := k.find(int(a.Channel), a.ID); {
			case a.Channel == arrived:
				n = overtaken
			case j >= 0:
				n = j
			default:
				s.capturing[int(a.Channel)] = true
			}
			for _, e := range k.in[a.Channel][:n] {
				if e.kind == 'r' {
					k.capture(s, int(a.Channel), e)
				}
			}
		case barrier.StopCapture:
			delete(k.snap(a.ID).capturing, int(a.Channel))
		case barrier.Convert:
			convert = append(convert, a)
		case barrier.Abort:
			w.trace("%s gives up checkpoint %d: %s", k.name(), a.ID, a.Reason)
			delete(k.snaps, a.ID)
			for _, o := range k.out {
				o.t.push(o.channel, element{kind: 'c', id: a.ID})
			}
			k.p.toCoordinator(func() *checkpoint.Event {
				return &checkpoint.Event{Kind: checkpoint.EvDecline, Decline: &event.Decline{ID: a.ID, Task: k.t, Reason: a.Reason}}
			}, nil)
		case barrier.StartTimer:
			id := a.ID
			w.after(max((a.At-ev.At+999_999)/1e6, 0), func() {
				if !k.dead && !k.over {
					k.handle(barrier.Event{Kind: barrier.TimerFired, ID: id}, 0)
					k.schedule()
				}
			})
		}
	}
	for _, a := range convert {
		k.overtake(int(a.Channel), a.ID)
	}
	k.schedule()
}

func (k *task) snap(id int64) *snap {
	s := k.snaps[id]
	if s == nil {
		s = &snap{id: id, capturing: map[int]bool{}}
		k.snaps[id] = s
	}
	return s
}

// trigger is the coordinator's.
func (k *task) trigger(b event.Barrier) {
	switch {
	case k.dead || k.over || b.ID <= k.latest:
		return
	case k.i >= firstCounter && k.ended < len(k.in):
		return // a barrier will come: the coordinator knew of the end of the inputs before this task
	}
	k.latest = b.ID
	if k.p.w.happens(FaultDecline, 5) {
		for _, o := range k.out {
			o.t.push(o.channel, element{kind: 'c', id: b.ID})
		}
		k.p.toCoordinator(func() *checkpoint.Event {
			return &checkpoint.Event{Kind: checkpoint.EvDecline, Decline: &event.Decline{ID: b.ID, Task: k.t, Reason: event.CheckpointDeclined}}
		}, nil)
		return
	}
	k.snap(b.ID).received = true
	k.snapshot(b)
}

// snapshot is the synchronous part: the barrier goes on first.
func (k *task) snapshot(b event.Barrier) {
	w := k.p.w
	k.confirm(b.Base) // the notification may have been lost
	k.broadcast(b)
	s := k.snap(b.ID)
	flight := s.state.inFlight
	s.state, s.taken = k.state, true
	s.state.inFlight = flight
	s.unaligned = b.Options.Alignment == event.Unaligned
	if b.Options.Type.IsSavepoint() {
		s.savepoint = b.Options.Target
	}
	if s.unaligned {
		w.res.Unaligned++
	}
	if k.i == theSink {
		if k.txn != 0 {
			w.sink.txns[k.txn].prepared = true
			k.state.pending = append(slices.Clip(k.state.pending), pendingTxn{b.ID, k.txn})
			k.txn = 0
		}
		s.state.pending = slices.Clone(k.state.pending)
	}
	s.base, s.changed = k.files, k.changed
	if w.cfg.Finish && k.ending == 0 && (k.i < firstCounter && k.state.ended || k.i >= firstCounter && k.ended == len(k.in)) {
		k.ending, s.finished = b.ID, true
	} else if k.ending != 0 {
		k.ending, s.finished = b.ID, true
	}
	took := 1 + w.r.Int64N(15)
	if w.happens(FaultSlowUpload, 5) {
		took += 300
	}
	w.after(took, func() { k.upload(s) })
}

// upload is the asynchronous part.
func (k *task) upload(s *snap) {
	if k.dead || k.snaps[s.id] != s {
		return
	}
	if k.p.w.happens(FaultUpload, 5) {
		delete(k.snaps, s.id)
		k.p.toCoordinator(func() *checkpoint.Event {
			return &checkpoint.Event{Kind: checkpoint.EvDecline, Decline: &event.Decline{ID: s.id, Task: k.t, Reason: event.CheckpointAsyncException}}
		}, nil)
		return
	}
	s.uploaded = true
	k.finishSnap(s)
}

// finishSnap writes the files of a snapshot that is taken and received, and
// acknowledges it.
func (k *task) finishSnap(s *snap) {
	if !s.taken || !s.received || !s.uploaded || k.snaps[s.id] != s {
		return
	}
	w := k.p.w
	delete(k.snaps, s.id)
	unique := fmt.Sprintf("%d-%d-%d-%d", k.p.number, k.t.Attempt, k.i, s.id)
	own := fmt.Sprintf("file:/ckp/chk-%d/%s", s.id, unique)
	if s.savepoint != "" {
		own = s.savepoint + "/" + unique
	}
	content := s.state
	st := &metadata.SubtaskState{}
	var written []string
	if w.cfg.Incremental && s.savepoint == "" && k.i >= firstCounter && k.i < theSink {
		shared := fmt.Sprintf("file:/ckp/shared/%s", unique)
		base := s.base
		content.changed = s.changed
		if len(base) >= 3 { // a compaction
			base, content.changed = nil, 1<<keyCount-1
		}
		h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: s.id, BackendID: javaio.NewString(unique), Range: metadata.KeyGroupRange{Count: 1}, Meta: &metadata.ByteStreamHandle{}}
		h.Shared = append(slices.Clone(base), metadata.NamedHandle{Name: javaio.NewString(unique), Handle: fileHandle(shared)})
		s.files = h.Shared
		delta := content
		delta.inFlight = nil
		w.store.write(shared, &delta)
		written = append(written, shared)
		st.ManagedKeyed = h
		st.RawKeyed = &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Count: 1}, Offsets: []int64{0}, Delegate: fileHandle(own)}
	} else {
		st.ManagedKeyed = &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Count: 1}, Offsets: []int64{0}, Delegate: fileHandle(own)}
	}
	w.store.write(own, &content)
	written = append(written, own)
	k.p.uploads[s.id] = append(k.p.uploads[s.id], s)
	s.state = state{}
	k.snapsDone(s)
	ack := event.Ack{ID: s.id, Task: k.t, Finished: s.finished, State: []event.OperatorSubtask{{ID: k.t.Vertex, State: st}}}
	k.p.toCoordinator(func() *checkpoint.Event {
		a := ack
		return &checkpoint.Event{Kind: checkpoint.EvAck, Ack: &a}
	}, func(number int) {
		for _, f := range written {
			if x := w.store.files[f]; x != nil {
				x.heard = number
			}
		}
	})
}

func fileHandle(name string) metadata.StreamHandle {
	return &metadata.FileHandle{Path: javaio.NewString(name), Size: 1}
}

// snapsDone remembers what a later checkpoint may build on.
func (k *task) snapsDone(s *snap) {
	if s.files != nil {
		k.p.built[buildKey{k.i, s.id}] = s
	}
}

// complete is the coordinator's notification: it may come late, twice, or never.
func (k *task) complete(id int64) {
	if k.dead || k.over {
		return
	}
	if k.i == theSink {
		rest := k.state.pending[:0:0]
		for _, p := range k.state.pending {
			if p.id <= id {
				k.p.w.sink.commit(p.txn)
			} else {
				rest = append(rest, p)
			}
		}
		k.state.pending = rest
	}
	k.confirm(id)
	if k.ending != 0 && id >= k.ending {
		k.finish()
	}
}

// confirm has the next snapshot build on a checkpoint that is complete. What this
// task does not know the files of, it does not build on.
func (k *task) confirm(id int64) {
	if s := k.p.built[buildKey{k.i, id}]; s != nil && id > k.p.confirmedID[k.i] {
		k.files = s.files
		k.p.confirmedID[k.i] = id
		// What changed up to that checkpoint is in its files; the model does not keep
		// what has changed since and writes all keys.
		k.changed = 1<<keyCount - 1
	}
}

// abort is the coordinator's notification.
func (k *task) abort(id int64) {
	if !k.dead && k.snaps[id] != nil {
		delete(k.snaps, id)
	}
}

// finish ends a task whose last checkpoint is complete.
func (k *task) finish() {
	k.over = true
	for _, o := range k.out {
		o.t.push(o.channel, element{kind: 'e'})
	}
	k.p.taskState(k, checkpoint.TaskFinished)
}

func (k *task) crash() {
	k.p.w.trace("%s crashes", k.name())
	k.dead = true
	k.p.taskFailed(k)
}

func (k *task) name() string { return fmt.Sprintf("task %d#%d", k.i, k.t.Attempt) }
