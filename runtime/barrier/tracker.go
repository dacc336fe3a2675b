package barrier

import (
	"slices"
	"time"

	"github.com/tidemark/tidemark/runtime/event"
)

// maxTracked is how many checkpoints an at-least-once handler follows at a time;
// of more the oldest is given up (Flink's MAX_CHECKPOINTS_TO_TRACK).
const maxTracked = 50

// tracker is the at-least-once half of a Handler: it counts barriers by checkpoint.
type tracker struct {
	latest int64 // the newest checkpoint heard of
	list   []*tracked
	spare  []*tracked
}

type tracked struct {
	barrier event.Barrier
	arrived []bool
	count   int
	target  int
	start   int64
	bytes   int64
}

func newTracker(int) *tracker { return &tracker{latest: -1} }

func (t *tracker) newest() (int64, bool) {
	if len(t.list) == 0 {
		return t.latest, false
	}
	return t.list[len(t.list)-1].barrier.ID, true
}

func (t *tracker) index(id int64) int {
	return slices.IndexFunc(t.list, func(p *tracked) bool { return p.barrier.ID == id })
}

func (t *tracker) remove(i int) {
	t.spare = append(t.spare, t.list[i])
	t.list = slices.Delete(t.list, i, i+1)
}

// track is Handle at least once.
func (h *Handler) track(ev Event) {
	t := h.tracker
	switch ev.Kind {
	case BarrierArrived:
		if !h.channels[ev.Channel].finished {
			h.trackBarrier(ev)
		}
	case Cancelled:
		if !h.channels[ev.Channel].finished {
			h.trackCancel(ev)
		}
	case EndOfPartition:
		c := &h.channels[ev.Channel]
		if c.finished {
			return
		}
		c.finished = true
		h.open--
		for i := 0; i < len(t.list); {
			p := t.list[i]
			if h.trackArrival(p, ev) {
				i = 0 // it and those in front of it are gone
			} else {
				i++
			}
		}
	}
}

func (h *Handler) trackBarrier(ev Event) {
	t, id := h.tracker, ev.Barrier.ID
	i := t.index(id)
	switch {
	case i >= 0:
	case id <= t.latest:
		return // completed, aborted or passed over
	default:
		if len(t.list) == maxTracked {
			h.trackAbort(0, event.DeclinedSubsumed)
		}
		t.latest = id
		i = len(t.list)
		t.list = append(t.list, t.take(ev, h.open, len(h.channels)))
	}
	h.trackArrival(t.list[i], ev)
}

func (t *tracker) take(ev Event, target, channels int) *tracked {
	var p *tracked
	if n := len(t.spare); n > 0 {
		p, t.spare = t.spare[n-1], t.spare[:n-1]
		clear(p.arrived)
	} else {
		p = &tracked{arrived: make([]bool, channels)}
	}
	p.barrier, p.count, p.target, p.start, p.bytes = ev.Barrier, 0, target, ev.At, 0
	return p
}

// trackArrival counts a barrier, or an end in place of one, and triggers if it was
// the last. Older checkpoints, which lack barriers that will not come any more, are
// given up then.
func (h *Handler) trackArrival(p *tracked, ev Event) bool {
	if p.arrived[ev.Channel] {
		return false
	}
	p.arrived[ev.Channel] = true
	p.count++
	if p.count < p.target {
		return false
	}
	for h.tracker.list[0] != p {
		h.trackAbort(0, event.DeclinedSubsumed)
	}
	h.tracker.remove(0)
	h.do(Action{Kind: AllReceived, ID: p.barrier.ID, Alignment: max(0, time.Duration(ev.At-p.start)), Bytes: p.bytes})
	h.do(Action{Kind: Trigger, ID: p.barrier.ID, Barrier: p.barrier, StartDelay: max(0, time.Duration(p.start-p.barrier.Timestamp*int64(time.Millisecond)))})
	return true
}

func (h *Handler) trackAbort(i int, reason event.Reason) {
	h.do(Action{Kind: Abort, ID: h.tracker.list[i].barrier.ID, Reason: reason})
	h.tracker.remove(i)
}

// trackCancel gives up the checkpoint and those before it.
func (h *Handler) trackCancel(ev Event) {
	t := h.tracker
	known := t.index(ev.ID)
	if known < 0 && ev.ID <= t.latest {
		return
	}
	for len(t.list) > 0 && t.list[0].barrier.ID < ev.ID {
		h.trackAbort(0, event.DeclinedSubsumed)
	}
	if known >= 0 {
		h.trackAbort(0, event.DeclinedOnCancellationBarrier)
		return
	}
	t.latest = ev.ID
	h.do(Action{Kind: Abort, ID: ev.ID, Reason: event.DeclinedOnCancellationBarrier})
}
