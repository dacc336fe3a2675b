package checkpoint

import (
	"slices"

	"github.com/tidemark/tidemark/runtime/event"
)

// Request asks for a checkpoint or savepoint.
type Request struct {
	// Number is chosen by whoever asks and stands in the ActResult; 0 is the
	// periodic trigger, which gets no answer.
	Number  int64
	Type    event.SnapshotType
	Post    event.PostAction
	Target  string // folder for a savepoint
	arrived int64
	seq     int64 // order of arrival
}

func (r *Request) periodic() bool { return r.Number == 0 }

// forced says that limits on the number of checkpoints and their pause do not count.
func (r *Request) forced() bool { return r.Type.IsSavepoint() }

// maxQueued is Flink's bound of queued requests.
const maxQueued = 1000

// decider queues requests and picks the next one: savepoints first, then manual
// checkpoints, then the periodic one, each in the order they came. It is Flink's
// CheckpointRequestDecider, but for two things: of the periodic trigger only one
// waits, since a second could only be taken at once after the first; and
// deletions in progress hold up no checkpoint (the store's own limits do).
type decider struct {
	queue []*Request
	seq   int64
}

func before(a, b *Request) bool {
	switch {
	case a.forced() != b.forced():
		return a.forced()
	case a.periodic() != b.periodic():
		return b.periodic()
	}
	return a.seq < b.seq
}

// add queues a request. What is dropped for it is returned: itself, or one that
// was queued and matters less.
func (d *decider) add(r *Request) (dropped *Request) {
	d.seq++
	r.seq = d.seq
	if r.periodic() && slices.ContainsFunc(d.queue, (*Request).periodic) {
		return r
	}
	i, _ := slices.BinarySearchFunc(d.queue, r, func(a, b *Request) int {
		if before(a, b) {
			return -1
		}
		return 1
	})
	d.queue = slices.Insert(d.queue, i, r)
	if len(d.queue) > maxQueued {
		dropped = d.queue[maxQueued]
		d.queue = d.queue[:maxQueued]
	}
	return dropped
}

// next picks the request to be carried out now, nil for none. tooEarly is a
// periodic one that came within the minimum pause, and wait how long is left of it.
func (d *decider) next(now, pauseUntil int64, pending, limit int) (r, tooEarly *Request, wait int64) {
	if len(d.queue) == 0 {
		return nil, nil, 0
	}
	first := d.queue[0]
	if !first.forced() {
		if pending >= limit {
			return nil, nil, 0
		}
		if first.periodic() && now < pauseUntil {
			d.queue = d.queue[1:]
			return nil, first, pauseUntil - now
		}
	}
	d.queue = d.queue[1:]
	return first, nil, 0
}
