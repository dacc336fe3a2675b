package barrier

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/runtime/event"
)

// world is a subtask with a Handler, its channels, and what is sent into them. It
// does what the handler says and keeps what the model below needs.
type world struct {
	t           *rapid.T
	h           *Handler
	atLeastOnce bool
	channels    []*wire
	now         time.Duration
	timer       int64 // 0 for none
	timerAt     time.Duration

	log       []logged
	triggered map[int64]*taken
	received  map[int64]bool
	aborted   map[int64]int
	last      int64 // the newest triggered
}

// wire is a channel: what was sent in order, what is in flight, what was read.
type wire struct {
	future   []message
	inFlight []message
	sent     []message // for the model: the order in which the sender wrote
	consumed int       // data messages read
	blocked  bool
	capture  int64 // 0 for none
	captured map[int64][]int
	overtook []int // by the barrier read last
}

// message is data (a number, from 1 in each channel), or what Event can hold.
type message struct {
	data      int
	kind      EventKind
	b         event.Barrier
	overtaken []int
}

// logged is an event that the handler saw.
type logged struct {
	ev      Event
	actions []Action
}

// taken is the snapshot of a checkpoint: what each channel had given until then.
type taken struct {
	consumed []int
	barrier  event.Barrier
}

func (w *world) handle(ev Event) {
	ev.At = int64(w.now)
	actions := slices.Clone(w.h.Handle(ev))
	w.log = append(w.log, logged{ev, actions})
	for _, a := range actions {
		var c *wire
		switch a.Kind {
		case Block, StartCapture, StopCapture, Convert:
			c = w.channels[a.Channel]
		}
		switch a.Kind {
		case Block:
			if w.atLeastOnce {
				w.t.Fatalf("an input is blocked at least once")
			}
			c.blocked = true
		case UnblockAll:
			for _, c := range w.channels {
				c.blocked = false
			}
		case Trigger:
			if a.ID <= w.last {
				w.t.Fatalf("checkpoint %d is triggered after %d", a.ID, w.last)
			}
			w.last = a.ID
			s := &taken{barrier: a.Barrier}
			for _, c := range w.channels {
				s.consumed = append(s.consumed, c.consumed)
			}
			w.triggered[a.ID] = s
		case Abort:
			if w.aborted[a.ID]++; w.aborted[a.ID] > 1 || w.received[a.ID] {
				w.t.Fatalf("abort of %d after its end", a.ID)
			}
			for _, c := range w.channels {
				if c.capture == a.ID {
					c.capture = 0
				}
			}
		case StartTimer:
			if w.timer != 0 {
				w.t.Fatalf("timer %d starts while %d runs", a.ID, w.timer)
			}
			w.timer, w.timerAt = a.ID, time.Duration(a.At)
		case StopTimer:
			if w.timer != a.ID {
				w.t.Fatalf("timer %d stops, %d runs", a.ID, w.timer)
			}
			w.timer = 0
		case StartCapture:
			if c.capture != 0 {
				w.t.Fatalf("capture for %d while there is one for %d", a.ID, c.capture)
			}
			c.capture = a.ID
			c.captured[a.ID] = nil
		case StopCapture:
			if c.capture != a.ID {
				w.t.Fatalf("no capture for %d", a.ID)
			}
			c.captured[a.ID] = append(c.captured[a.ID], c.overtook...)
			c.capture, c.overtook = 0, nil
		case Convert:
			for i, m := range c.inFlight {
				if m.data == 0 && m.kind == BarrierArrived && m.b.ID == a.ID && m.b.Options.Timeoutable() {
					c.inFlight = slices.Delete(c.inFlight, i, i+1)
					m.b.Options = m.b.Options.ToUnaligned()
					c.overtake(m, i)
					break
				}
			}
		case AllReceived:
			if w.received[a.ID] {
				w.t.Fatalf("all barriers of %d are received twice", a.ID)
			}
			w.received[a.ID] = true
			for i, c := range w.channels {
				if c.capture == a.ID {
					w.t.Fatalf("channel %d is still captured for %d", i, a.ID)
				}
			}
		}
	}
}

// overtake puts m in front of the data among the first n messages.
func (c *wire) overtake(m message, n int) {
	at := 0
	for at < len(c.inFlight) && c.inFlight[at].priority() {
		at++
	}
	for _, o := range c.inFlight[at:max(at, n)] {
		if o.data > 0 {
			m.overtaken = append(m.overtaken, o.data)
		}
	}
	c.inFlight = slices.Insert(c.inFlight, at, m)
}

func (m message) priority() bool {
	return m.data == 0 && (m.kind == Announced || m.kind == BarrierArrived && m.b.Options.Alignment == event.Unaligned)
}

// send moves the next message of the sender into the channel.
func (c *wire) send() {
	m := c.future[0]
	c.future = c.future[1:]
	c.sent = append(c.sent, m)
	switch {
	case m.priority():
		c.overtake(m, len(c.inFlight))
	case m.data == 0 && m.kind == BarrierArrived && m.b.Options.Timeoutable() && len(c.inFlight) > 0:
		c.inFlight = append(c.inFlight, m)
		c.overtake(message{kind: Announced, b: m.b}, 0)
	default:
		c.inFlight = append(c.inFlight, m)
	}
}

func (c *wire) readable() bool {
	return len(c.inFlight) > 0 && (!c.blocked || c.inFlight[0].priority())
}

// read takes the next message out of the channel.
func (w *world) read(i int) {
	c := w.channels[i]
	m := c.inFlight[0]
	c.inFlight = c.inFlight[1:]
	if m.data > 0 {
		c.consumed++
		if m.data != c.consumed {
			w.t.Fatalf("channel %d gives %d after %d", i, m.data, c.consumed-1)
		}
		if c.capture != 0 {
			c.captured[c.capture] = append(c.captured[c.capture], m.data)
		}
		return
	}
	c.overtook = m.overtaken
	w.handle(Event{Kind: m.kind, Channel: int32(i), Barrier: m.b, ID: m.b.ID})
}

var modes = map[string]event.Options{
	"aligned":   {Alignment: event.Aligned},
	"forced":    {Alignment: event.ForcedAligned},
	"unaligned": {Alignment: event.Unaligned},
	"timeout":   {Alignment: event.Aligned, AlignedTimeout: 5 * time.Millisecond},
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, triggered: map[int64]*taken{}, received: map[int64]bool{}, aborted: map[int64]int{}, atLeastOnce: rapid.Bool().Draw(t, "at least once")}
	n := rapid.IntRange(1, 4).Draw(t, "channels")
	w.h = New(Options{Channels: n, AtLeastOnce: w.atLeastOnce})
	checkpoints := rapid.IntRange(1, 5).Draw(t, "checkpoints")
	mode := make([]event.Options, checkpoints)
	for i := range mode {
		mode[i] = modes[rapid.SampledFrom([]string{"aligned", "unaligned", "timeout"}).Draw(t, "mode")]
		if w.atLeastOnce {
			mode[i] = event.Options{}
		}
	}
	faults := rapid.Bool().Draw(t, "faults")
	for i := range n {
		c := &wire{captured: map[int64][]int{}}
		data := 0
		more := func() {
			for range rapid.IntRange(0, 3).Draw(t, "data") {
				data++
				c.future = append(c.future, message{data: data})
			}
		}
		ends := rapid.IntRange(1, checkpoints+1).Draw(t, "ends before")
		force := rapid.Bool().Draw(t, "forces alignment")
		for k := range min(ends, checkpoints) {
			more()
			b := event.Barrier{ID: int64(k + 1), Timestamp: int64(8 * k), Options: mode[k]}
			if force && i > 0 && !w.atLeastOnce && mode[k].Alignment == event.Unaligned {
				b.Options.Alignment = event.ForcedAligned
			}
			kind := BarrierArrived
			if faults {
				switch rapid.IntRange(0, 9).Draw(t, "fault") {
				case 0:
					continue // the barrier is lost
				case 1:
					kind = Cancelled
				}
			}
			c.future = append(c.future, message{kind: kind, b: b})
		}
		more()
		c.future = append(c.future, message{kind: EndOfPartition})
		w.channels = append(w.channels, c)
	}
	return w
}

// run plays until everything is sent and read.
func (w *world) run() {
	for {
		var moves []func()
		for i, c := range w.channels {
			if len(c.future) > 0 {
				moves = append(moves, c.send)
			}
			if c.readable() {
				moves = append(moves, func() { w.read(i) })
			}
		}
		if w.timer != 0 {
			moves = append(moves, func() {
				w.now = max(w.now, w.timerAt)
				id := w.timer
				w.timer = 0
				w.handle(Event{Kind: TimerFired, ID: id})
			})
		}
		if len(moves) == 0 {
			return
		}
		moves[rapid.IntRange(0, len(moves)-1).Draw(w.t, "move")]()
		w.now += time.Duration(rapid.IntRange(0, 1).Draw(w.t, "passes")) * time.Millisecond
	}
}

// cut is how much data the sender wrote in front of its barrier of checkpoint id,
// or of its end if that comes first; ok is false if the barrier was lost.
func (c *wire) cut(id int64) (n int, ok bool) {
	for _, m := range c.sent {
		switch {
		case m.data > 0:
			n = m.data
		case m.kind == BarrierArrived && m.b.ID == id, m.kind == EndOfPartition:
			return n, true
		case (m.kind == BarrierArrived || m.kind == Cancelled) && m.b.ID >= id:
			return n, false
		}
	}
	return n, false
}

func TestHandlerAgainstModel(t *testing.T) {
	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.run()
		// Nothing is stuck: all was sent and read, though channels were blocked.
		for i, c := range w.channels {
			if len(c.inFlight) > 0 || c.blocked || c.capture != 0 {
				t.Fatalf("channel %d: %d messages left, blocked %v, capture %d", i, len(c.inFlight), c.blocked, c.capture)
			}
		}
		if id, pending := w.h.Pending(); pending {
			t.Fatalf("%d is pending though all inputs ended", id)
		}
		for id, s := range w.triggered {
			if !w.received[id] {
				if w.aborted[id] == 0 {
					t.Fatalf("%d was triggered and neither completed nor aborted", id)
				}
				kinds["aborted after trigger"]++
				continue
			}
			kinds[fmt.Sprint(s.barrier.Options.Alignment)]++
			if s.barrier.Options.Alignment == event.Unaligned && slices.ContainsFunc(w.channels[0].sent, func(m message) bool { return m.b.ID == id && m.b.Options.Timeoutable() }) {
				kinds["timed out"]++
			}
			// The snapshot is exactly the data in front of the barriers: processed
			// before it, or captured, in order.
			for i, c := range w.channels {
				cut, ok := c.cut(id)
				// At least once, the end of a channel also stands for a barrier that was lost.
				if !ok && !w.atLeastOnce {
					t.Fatalf("%d was completed without the barrier of channel %d", id, i)
				}
				if w.atLeastOnce {
					if s.consumed[i] < cut {
						t.Fatalf("%d, channel %d: %d of %d messages are in the snapshot", id, i, s.consumed[i], cut)
					}
					continue
				}
				var want []int
				for n := s.consumed[i] + 1; n <= cut; n++ {
					want = append(want, n)
				}
				if s.consumed[i] > cut || !slices.Equal(want, c.captured[id]) {
					t.Fatalf("%d, channel %d: %d processed before, %v captured, the barrier is behind %d", id, i, s.consumed[i], c.captured[id], cut)
				}
				if len(want) > 0 {
					kinds["captured data"]++
				}
			}
		}
		w.checkOutcomes(kinds)
	})
	for _, k := range []string{"aligned", "unaligned", "at-least-once", "captured data", "aborted after trigger", "subsumed", "cancelled", "never heard in time", "timed out"} {
		if kinds[k] == 0 {
			t.Errorf("no case of %q: %v", k, kinds)
		}
	}
}

// checkOutcomes compares each checkpoint's end with what the log of events says
// about it, read as a whole.
func (w *world) checkOutcomes(kinds map[string]int) {
	ids := map[int64]bool{}
	for _, l := range w.log {
		if l.ev.Barrier.ID > 0 {
			ids[l.ev.Barrier.ID] = true
		}
	}
	for id := range ids {
		want := w.outcome(id)
		got := "passed over"
		switch {
		case w.received[id] && w.triggered[id] != nil:
			got = "completed"
		case w.aborted[id] > 0:
			got = "given up"
		}
		if got != want {
			w.t.Fatalf("%d is %s, should be %s: %v", id, got, want, w.log)
		}
		switch want {
		case "given up":
			if slices.ContainsFunc(w.log, func(l logged) bool {
				return slices.ContainsFunc(l.actions, func(a Action) bool {
					return a.Kind == Abort && a.ID == id && a.Reason == event.DeclinedOnCancellationBarrier
				})
			}) {
				kinds["cancelled"]++
				break
			}
			kinds["subsumed"]++
		case "passed over":
			kinds["never heard in time"]++
		}
	}
}

// outcome is the declarative model. A checkpoint is completed if for each channel its
// barrier was heard, or the channel's end, before anything that ends it; it is given
// up if it had begun; and passed over if a newer one was first.
func (w *world) outcome(id int64) string {
	begun := false
	have := make([]bool, len(w.channels))
	ended := make([]bool, len(w.channels))
	all := func() bool { return !slices.Contains(have, false) }
	// At least once, a newer checkpoint ends an older one when it completes, not when
	// it begins.
	for k, l := range w.log {
		ev := l.ev
		if ev.Kind != TimerFired && ended[ev.Channel] {
			continue
		}
		switch {
		case ev.Kind == EndOfPartition:
			ended[ev.Channel] = true
			have[ev.Channel] = true
		case ev.Kind == BarrierArrived && ev.Barrier.ID == id:
			begun = true
			have[ev.Channel] = true
		case ev.Kind == Announced && ev.Barrier.ID == id:
			begun = true
		case ev.Kind == Cancelled && ev.ID == id:
			return "given up"
		case !w.atLeastOnce && ev.Kind != TimerFired && ev.Barrier.ID > id, w.atLeastOnce && ev.Kind == Cancelled && ev.ID > id && w.gaveUp(k):
			if begun {
				return "given up"
			}
			return "passed over"
		}
		if begun && all() {
			return "completed"
		}
		if w.atLeastOnce && w.newerCompleted(id, k) {
			if begun {
				return "given up"
			}
			return "passed over"
		}
		if w.atLeastOnce && !begun && w.newerBegan(id, k) {
			return "passed over"
		}
	}
	return "given up"
}

// newerCompleted says that the k-th event completed a newer checkpoint.
func (w *world) newerCompleted(id int64, k int) bool {
	return slices.ContainsFunc(w.log[k].actions, func(a Action) bool { return a.Kind == Trigger && a.ID > id })
}

func (w *world) newerBegan(id int64, k int) bool {
	ev := w.log[k].ev
	return (ev.Kind == BarrierArrived || ev.Kind == Cancelled) && ev.Barrier.ID > id
}

// gaveUp says that the k-th event, a cancellation, was not of a checkpoint that had
// ended already.
func (w *world) gaveUp(k int) bool {
	l := w.log[k]
	return slices.ContainsFunc(l.actions, func(a Action) bool { return a.Kind == Abort && a.ID == l.ev.ID })
}
