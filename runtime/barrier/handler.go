// Package barrier is the handler of checkpoint barriers of one subtask: it decides
// when the subtask takes its snapshot, which inputs wait until then, and which of
// the data in flight becomes channel state. It is a pure state machine: Handle gets
// what happened and tells what to do. It has no clock, goroutine or I/O.
//
// Inputs are channels, numbered from 0 over all gates of the subtask. The modes:
//
//   - Aligned: a channel whose barrier came is blocked until the barriers of all
//     channels are there; then the snapshot is triggered.
//   - Unaligned: the first barrier triggers the snapshot. What each channel still
//     brings in front of its barrier is captured as channel state.
//   - Aligned with a timeout: aligned, until the time since the trigger is over;
//     then it goes on unaligned.
//   - Forced aligned: as aligned; the barrier says so where an exchange cannot do
//     without.
//   - At least once: no channel is ever blocked; the last barrier triggers.
//
// The counterpart in Flink is SingleCheckpointBarrierHandler with its
// BarrierHandlerStates (AlternatingWaitingForFirstBarrier, -CollectingBarriers,
// -CollectingBarriersUnaligned), and CheckpointBarrierTracker for at least once.
package barrier

import (
	"math"
	"time"

	"github.com/tidemark/tidemark/runtime/event"
)

// Options of a Handler.
type Options struct {
	// Channels is how many input channels there are, over all gates.
	Channels int
	// AtLeastOnce never blocks and never captures, whatever barriers say.
	AtLeastOnce bool
}

// Handler is the state machine. It is for one goroutine.
type Handler struct {
	current   int64 // the newest checkpoint that was heard of; -1 at first
	pending   bool  // current waits for barriers
	barrier   event.Barrier
	unaligned bool // current was triggered; barriers still to come end captures
	timedOut  bool // current is to go on unaligned as soon as a barrier is there
	timer     bool // a timer for current runs
	arrived   int
	target    int // barriers that current needs
	open      int // channels that have not ended
	channels  []channel

	alignmentStart int64
	bytes          int64 // processed during the alignment

	tracker *tracker
	out     []Action
}

type channel struct {
	arrived   bool // the barrier of current, or the channel's end, is there
	blocked   bool
	announced bool // the barrier of current waits behind buffers
	capturing bool
	finished  bool
}

// New makes a Handler that has heard of no checkpoint.
func New(o Options) *Handler {
	h := &Handler{current: -1, open: o.Channels, channels: make([]channel, o.Channels)}
	if o.AtLeastOnce {
		h.tracker = newTracker(o.Channels)
	}
	return h
}

// Handle takes an event and tells what to do, in that order. The slice is the
// handler's and valid until the next call.
//
// What a Trigger asks for has to be done before more input is processed: the bytes
// of an unaligned checkpoint are counted from there. An Abort ends all captures of
// its checkpoint.
func (h *Handler) Handle(ev Event) []Action {
	h.out = h.out[:0]
	if ev.Channel < 0 || int(ev.Channel) >= len(h.channels) {
		if ev.Kind != TimerFired {
			return h.out // no such channel: there is nothing to decide
		}
	}
	switch {
	case h.tracker != nil:
		h.track(ev)
	case ev.Kind == TimerFired:
		h.timeout(ev)
	case h.channels[ev.Channel].finished:
	case ev.Kind == BarrierArrived:
		h.barrierArrived(ev)
	case ev.Kind == Announced:
		h.announced(ev)
	case ev.Kind == Cancelled:
		h.cancelled(ev)
	case ev.Kind == EndOfPartition:
		h.endOfPartition(ev)
	}
	return h.out
}

func (h *Handler) do(a Action) { h.out = append(h.out, a) }

// Pending is the checkpoint whose barriers are being waited for.
func (h *Handler) Pending() (id int64, ok bool) {
	if h.tracker != nil {
		return h.tracker.newest()
	}
	return h.current, h.pending
}

// Latest is the newest checkpoint that any input told of; -1 if none did.
func (h *Handler) Latest() int64 {
	if h.tracker != nil {
		return h.tracker.latest
	}
	return h.current
}

// Open is how many channels have not ended.
func (h *Handler) Open() int { return h.open }

// Blocked says that the channel waits for the barriers of others.
func (h *Handler) Blocked(channel int) bool { return h.channels[channel].blocked }

// AddProcessedBytes counts input that was processed, for the metric of bytes
// during the alignment. A task calls it once for each buffer.
func (h *Handler) AddProcessedBytes(n int) {
	if h.pending && h.arrived > 0 {
		h.bytes += int64(n)
	}
	if h.tracker != nil {
		for _, p := range h.tracker.list {
			p.bytes += int64(n)
		}
	}
}

// obsolete says that what belongs to id comes too late.
func (h *Handler) obsolete(id int64) bool {
	return id < h.current || id == h.current && !h.pending
}

// begin makes b the current checkpoint if it is a newer one. Of the same checkpoint
// the barrier of an exchange that can time out tells more than one of an exchange
// that forces alignment.
func (h *Handler) begin(b event.Barrier, now int64) {
	if b.ID <= h.current {
		if b.Options.Timeoutable() && !h.barrier.Options.Timeoutable() && !h.unaligned {
			h.barrier = b
			h.startTimer(now)
		}
		return
	}
	if h.pending {
		h.abort(h.current, event.DeclinedSubsumed)
	}
	h.current, h.pending, h.barrier = b.ID, true, b
	h.unaligned, h.timedOut, h.arrived, h.target, h.bytes = false, false, 0, h.open, 0
	h.startTimer(now)
}

func (h *Handler) startTimer(now int64) {
	if h.barrier.Options.Timeoutable() && !h.isTimedOut(now) {
		h.timer = true
		h.do(Action{Kind: StartTimer, ID: h.current, At: h.deadline()})
	}
}

// deadline is when an aligned checkpoint turns unaligned: its timeout counts from
// the coordinator's trigger, not from the barrier's arrival.
func (h *Handler) deadline() int64 {
	at, timeout := h.barrier.Timestamp*int64(time.Millisecond), int64(h.barrier.Options.AlignedTimeout)
	if at > math.MaxInt64-timeout {
		return math.MaxInt64
	}
	return at + timeout
}

func (h *Handler) isTimedOut(now int64) bool {
	return h.timedOut || h.barrier.Options.Timeoutable() && now >= h.deadline()
}

// arrive counts the barrier of a channel, or its end in place of one.
func (h *Handler) arrive(c *channel, now int64) {
	if c.arrived {
		return
	}
	c.arrived, c.announced = true, false
	h.arrived++
	if h.arrived == 1 {
		h.alignmentStart = now
	}
}

func (h *Handler) barrierArrived(ev Event) {
	if h.obsolete(ev.Barrier.ID) {
		return
	}
	h.begin(ev.Barrier, ev.At)
	c := &h.channels[ev.Channel]
	if c.arrived {
		return // a second barrier of the same checkpoint
	}
	h.arrive(c, ev.At)
	overtook := ev.Barrier.Options.Alignment == event.Unaligned
	switch {
	case h.unaligned:
		h.stopCapture(ev.Channel)
		h.finishIfAll(ev.At)
	case !overtook && h.arrived == h.target:
		h.triggerAligned(ev.At)
	case overtook:
		h.goUnaligned(ev.At, ev.Channel)
		h.finishIfAll(ev.At)
	case h.isTimedOut(ev.At):
		h.goUnaligned(ev.At, -1)
		h.finishIfAll(ev.At)
	case !ev.RPC:
		c.blocked = true
		h.do(Action{Kind: Block, Channel: ev.Channel})
	}
}

// triggerAligned takes the snapshot: each channel is at its barrier.
func (h *Handler) triggerAligned(now int64) {
	h.stopTimer()
	h.allReceived(now)
	h.do(Action{Kind: Trigger, ID: h.current, Barrier: h.barrier, StartDelay: h.startDelay()})
	h.complete()
}

// goUnaligned takes the snapshot now. What a channel brings in front of its barrier
// is captured from here on; overtaker is the channel whose barrier has just
// overtaken its data, -1 for none. A channel that is blocked is at its barrier and
// has nothing to capture.
func (h *Handler) goUnaligned(now int64, overtaker int32) {
	h.stopTimer()
	h.unaligned = true
	h.barrier.Options = h.barrier.Options.ToUnaligned()
	for i := range h.channels {
		c := &h.channels[i]
		if c.finished || c.arrived && int32(i) != overtaker {
			continue
		}
		c.capturing = true
		h.do(Action{Kind: StartCapture, Channel: int32(i), ID: h.current})
	}
	h.do(Action{Kind: Trigger, ID: h.current, Barrier: h.barrier, StartDelay: h.startDelay()})
	if overtaker >= 0 {
		h.stopCapture(overtaker)
	}
	h.unblockAll()
	h.convertAnnounced()
}

func (h *Handler) startDelay() time.Duration {
	return max(0, time.Duration(h.alignmentStart-h.barrier.Timestamp*int64(time.Millisecond)))
}

func (h *Handler) stopCapture(channel int32) {
	if c := &h.channels[channel]; c.capturing {
		c.capturing = false
		h.do(Action{Kind: StopCapture, Channel: channel, ID: h.current})
	}
}

func (h *Handler) stopTimer() {
	if h.timer {
		h.timer = false
		h.do(Action{Kind: StopTimer, ID: h.current})
	}
}

// convertAnnounced lets the barriers that wait behind buffers overtake them.
func (h *Handler) convertAnnounced() {
	for i := range h.channels {
		if c := &h.channels[i]; c.announced {
			c.announced = false
			h.do(Action{Kind: Convert, Channel: int32(i), ID: h.current})
		}
	}
}

func (h *Handler) unblockAll() {
	blocked := false
	for i := range h.channels {
		blocked = blocked || h.channels[i].blocked
		h.channels[i].blocked = false
	}
	if blocked {
		h.do(Action{Kind: UnblockAll})
	}
}

func (h *Handler) allReceived(now int64) {
	h.do(Action{Kind: AllReceived, ID: h.current, Alignment: max(0, time.Duration(now-h.alignmentStart)), Bytes: h.bytes})
}

// finishIfAll ends an unaligned checkpoint whose last barrier is there.
func (h *Handler) finishIfAll(now int64) {
	if h.unaligned && h.arrived == h.target {
		h.allReceived(now)
		h.complete()
	}
}

// complete forgets what belongs to the checkpoint and lets all channels go on.
func (h *Handler) complete() {
	h.pending = false
	h.unblockAll()
	for i := range h.channels {
		c := &h.channels[i]
		c.arrived, c.announced, c.capturing = false, false, false
	}
}

// abort gives the pending checkpoint up.
func (h *Handler) abort(id int64, reason event.Reason) {
	h.stopTimer()
	h.do(Action{Kind: Abort, ID: id, Reason: reason})
	h.complete()
}

func (h *Handler) announced(ev Event) {
	if h.obsolete(ev.Barrier.ID) {
		return
	}
	h.begin(ev.Barrier, ev.At)
	c := &h.channels[ev.Channel]
	if c.arrived {
		return
	}
	c.announced = true
	if h.unaligned || h.isTimedOut(ev.At) {
		h.convertAnnounced()
	}
}

// timeout turns the pending checkpoint unaligned. If no barrier is there yet, the
// announced ones are called, and the first of them triggers.
func (h *Handler) timeout(ev Event) {
	if !h.pending || ev.ID != h.current || h.unaligned {
		return
	}
	h.timer = false
	h.timedOut = true
	if h.arrived == 0 {
		h.convertAnnounced()
		return
	}
	h.goUnaligned(ev.At, -1)
	h.finishIfAll(ev.At)
}

func (h *Handler) cancelled(ev Event) {
	if h.obsolete(ev.ID) {
		return
	}
	if h.pending && ev.ID > h.current {
		h.abort(h.current, event.DeclinedSubsumed)
	}
	h.current, h.pending = ev.ID, true
	h.abort(ev.ID, event.DeclinedOnCancellationBarrier)
}

// endOfPartition counts the end of a channel in place of its barrier: there is
// nothing in front of it that the snapshot would lack.
func (h *Handler) endOfPartition(ev Event) {
	c := &h.channels[ev.Channel]
	c.finished = true
	h.open--
	if !h.pending || c.arrived {
		return
	}
	h.arrive(c, ev.At)
	if h.unaligned {
		h.stopCapture(ev.Channel)
		h.finishIfAll(ev.At)
	} else if h.arrived == h.target {
		h.triggerAligned(ev.At)
	}
}
