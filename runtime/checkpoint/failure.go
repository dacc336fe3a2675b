package checkpoint

import "github.com/tidemark/tidemark/runtime/event"

// failures counts failed checkpoints and says when there are too many. Flink's
// CheckpointFailureManager:
//
//   - Only failures that a restart might help against are counted, and each
//     checkpoint once, until one with a higher ID succeeds.
//   - A failure on the coordinator's side of a savepoint is never counted.
//   - A task's failure in a stop-with-savepoint fails the job at once, since tasks
//     that already stopped would wait for ever.
type failures struct {
	tolerable     int // negative: any number
	count         int
	counted       map[int64]bool
	lastSucceeded int64
}

// counts says whether a reason goes against the tolerable failures.
func counts(r event.Reason) bool {
	switch r {
	case event.IOException, event.CheckpointAsyncException, event.CheckpointDeclined, event.CheckpointExpired, event.FinalizeFailure:
		return true
	}
	return false
}

// verdict of a failure.
type verdict uint8

const (
	goOn verdict = iota
	tooMany
	stopFailed // a stop-with-savepoint failed on the tasks' side
)

// failed notes the failure of a checkpoint; id is 0 if it never got one, byTask
// that a task reported it.
func (f *failures) failed(id int64, t event.SnapshotType, post event.PostAction, reason event.Reason, byTask bool) verdict {
	if byTask && !reason.PreFlight() {
		if t.IsSavepoint() && post != event.None {
			return stopFailed
		}
	} else if t.IsSavepoint() {
		return goOn
	}
	if f.tolerable < 0 || !counts(reason) || id != 0 && (id <= f.lastSucceeded || f.counted[id]) {
		return goOn
	}
	if id != 0 {
		if f.counted == nil {
			f.counted = map[int64]bool{}
		}
		f.counted[id] = true
	}
	f.count++
	if f.count <= f.tolerable {
		return goOn
	}
	f.clear()
	return tooMany
}

func (f *failures) succeeded(id int64) {
	if id > f.lastSucceeded {
		f.lastSucceeded = id
		f.clear()
	}
}

func (f *failures) clear() { f.count = 0; clear(f.counted) }
