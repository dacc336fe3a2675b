package sim

import (
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// keyCount is how many keys records have.
const keyCount = 6

type element struct {
	kind  byte // r record, b barrier, c cancel, e end
	line  line
	id    int64
	b     event.Barrier
	ahead bool // a barrier that will overtake what is in front of it
}

// state of a task: what a file has.
type state struct {
	splits   []split         // of a source; not changed in place
	ended    bool            // of a source: all records are out
	counts   [keyCount]int32 // of a counter
	changed  uint32          // keys that a delta has
	pending  []pendingTxn    // of the sink
	inFlight [][]element     // channel state, by channel; nil for none
}

type pendingTxn struct {
	id  int64
	txn int
}

// task is a model of one task's attempt.
type task struct {
	p           *process
	at          place
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
	last        int64  // barrier that its snapshot was taken for, the newest
	noMore      bool   // splits
	asked       int64  // for a split: not again before
	lastArrival int64  // of a message from the coordinator
	ended       int    // input channels
	busy        bool   // a step is due
	stepFunc    func() // due, made once
	snaps       map[int64]*snap
	built       map[int64]*snap        // what later snapshots may build on
	confirmed   int64                  // the newest of them that is complete
	aborted     map[int64]bool         // before their barriers came
	stop        int64                  // savepoint that it waits for, to end with it
	files       []metadata.NamedHandle // shared files of the last confirmed checkpoint
	changed     uint32                 // since it
	backend     *realCounts            // nil for ModelBackend
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
	options   event.Options
	frozen    keyed.Snapshot // of a real backend
	capturing map[int]bool
	base      []metadata.NamedHandle
	files     []metadata.NamedHandle // what it will have
	changed   uint32
}

// wire connects a task with those behind it, which are there, and those in front.
func (k *task) wire() {
	p := k.p
	if p.w.cfg.Shape == Pipelines {
		if k.at.vertex != theSink {
			k.out = []target{{p.tasks[k.at.vertex+1][k.at.subtask], 0}}
		}
		return
	}
	if k.at.vertex != theSink {
		for _, t := range p.tasks[k.at.vertex+1] {
			k.out = append(k.out, target{t, int(k.at.subtask)})
		}
	}
}

// end is the end of an attempt, without a word to anybody.
func (k *task) end() {
	k.dead = true
	k.closeBackend()
}

// idle says that a task has nothing left to do.
func (k *task) idle() bool {
	if k.dead || k.txn != 0 || len(k.state.pending) > 0 || k.at.vertex == theSource && !k.state.ended && !k.over {
		return false
	}
	for _, in := range k.in {
		for _, e := range in {
			if e.kind == 'r' {
				return false
			}
		}
	}
	return true
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
	if k.at.vertex == theSource {
		k.read()
		return
	}
	if k.stop != 0 {
		return // a savepoint decides how it goes on
	}
	// One of the channels that have something and are not blocked.
	n, pick := 0, -1
	for c := range k.in {
		if len(k.in[c]) > 0 && (!k.h.Blocked(c) || w.cfg.bug == bugNotBlocking) {
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
	if k.at.vertex == theSink {
		if k.txn == 0 {
			k.txn = k.p.w.sink.begin(k.at.subtask)
		}
		t := k.p.w.sink.txns[k.txn]
		t.lines = append(t.lines, l)
		return
	}
	if k.p.w.cfg.Shape == Pipelines {
		k.state.counts[l.key%keyCount]++
		k.changed |= 1 << (l.key % keyCount)
		k.emit(0, l)
		return
	}
	var n int32
	if k.backend != nil {
		var err error
		if n, err = k.backend.add(l.key); err != nil {
			k.p.w.fail("%s: %v", k.name(), err)
			return
		}
	} else {
		k.state.counts[l.key]++
		n = k.state.counts[l.key]
	}
	k.changed |= 1 << l.key
	k.emit(int(ownerOf(l.key, int32(len(k.out)))), line{l.key, n})
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
		s.state.inFlight = make([][]element, len(k.in))
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
			k.drop(a.ID)
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

// drop forgets a snapshot under way.
func (k *task) drop(id int64) {
	if s := k.snaps[id]; s != nil {
		s.release()
	}
	delete(k.snaps, id)
}

// release gives up what a snapshot holds.
func (s *snap) release() {
	if s.frozen != nil {
		s.frozen.Release()
		s.frozen = nil
	}
}

// trigger is the coordinator's.
func (k *task) trigger(b event.Barrier) {
	switch {
	case k.dead || k.over || b.ID <= k.latest:
		return
	case k.ended < len(k.in):
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
	gone := k.aborted[b.ID]
	for id := range k.aborted {
		if id <= b.ID {
			delete(k.aborted, id)
		}
	}
	if gone { // those behind must not wait for it
		delete(k.snaps, b.ID)
		for _, o := range k.out {
			o.t.push(o.channel, element{kind: 'c', id: b.ID})
		}
		return
	}
	k.last = max(k.last, b.ID)
	k.confirm(b.Base) // the notification may have been lost
	k.broadcast(b)
	s := k.snap(b.ID)
	flight := s.state.inFlight
	s.state, s.taken = k.state, true
	s.state.inFlight = flight
	s.unaligned = b.Options.Alignment == event.Unaligned
	s.options = b.Options
	if b.Options.Type.IsSavepoint() {
		s.savepoint = b.Options.Target
	}
	if b.Options.Post != event.None {
		k.stop = b.ID
	}
	if !k.freeze(s) {
		return
	}
	if s.unaligned {
		w.res.Unaligned++
	}
	if k.at.vertex == theSink {
		if k.txn != 0 {
			w.sink.txns[k.txn].prepared = true
			k.state.pending = append(slices.Clip(k.state.pending), pendingTxn{b.ID, k.txn})
			k.txn = 0
		}
		s.state.pending = slices.Clone(k.state.pending)
	}
	s.base, s.changed = k.files, k.changed
	if b.Options.Type != event.Checkpoint {
		s.base, s.changed = nil, 1<<keyCount-1
	}
	if w.cfg.Finish && (k.ending != 0 || k.at.vertex == theSource && k.state.ended || k.at.vertex != theSource && k.ended == len(k.in)) {
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
		k.drop(s.id)
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
	st, written, err := k.write(s)
	if err != nil {
		w.fail("%s: checkpoint %d: %v", k.name(), s.id, err)
		return
	}
	if s.files != nil {
		k.built[s.id] = s
	}
	s.state = state{}
	if w.cfg.bug == bugCommitsEarly && k.at.vertex == theSink {
		k.complete(s.id)
	}
	if w.cfg.bug == bugStaleBase {
		k.confirm(s.id)
	}
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

// complete is the coordinator's notification: it may come late, twice, or never.
func (k *task) complete(id int64) {
	if k.dead || k.over {
		return
	}
	if k.at.vertex == theSink {
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
	if k.ending != 0 && id >= k.ending || k.stop != 0 && id == k.stop {
		k.finish()
	}
}

// confirm has the next snapshot build on a checkpoint that is complete. What this
// task does not know the files of, it does not build on.
func (k *task) confirm(id int64) {
	if k.backend != nil && id != 0 {
		k.backend.Confirmed(id)
	}
	if s := k.built[id]; s != nil && id > k.confirmed {
		k.files = s.files
		k.confirmed = id
		// What changed up to that checkpoint is in its files; the model does not keep
		// what has changed since and writes all keys.
		k.changed = 1<<keyCount - 1
	}
}

// abort is the coordinator's notification.
func (k *task) abort(id int64) {
	if k.dead || k.over {
		return
	}
	if id > k.last {
		k.aborted[id] = true
	}
	k.drop(id)
	if k.backend != nil {
		k.backend.Aborted(id)
	}
	if k.stop == id {
		k.stop = 0
		k.schedule()
	}
}

// finish ends a task whose last checkpoint is complete.
func (k *task) finish() {
	k.over = true
	k.closeBackend()
	for _, o := range k.out {
		o.t.push(o.channel, element{kind: 'e'})
	}
	k.p.taskState(k, checkpoint.TaskFinished)
}

func (k *task) crash() {
	k.p.w.trace("%s crashes", k.name())
	k.end()
	k.p.taskFailed(k)
}

func (k *task) name() string {
	return fmt.Sprintf("%s[%d]#%d", vertexNames[k.at.vertex], k.at.subtask, k.t.Attempt)
}
