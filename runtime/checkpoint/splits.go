package checkpoint

import "slices"

// SplitAssignmentTracker remembers which splits were assigned to which subtask
// since which checkpoint, so that those a failed reader does not have in its
// restored state are given back to the enumerator. Flink's class of that name.
//
//	Record(1, a)     a was assigned to subtask 1
//	Snapshot(7)      checkpoint 7 was taken: a is in the state of reader 1 there
//	Record(1, b)
//	Completed(7)     a reader restored now has a
//	Take(1, 7)       reader 1 restarts from 7: b has to be assigned again
//
// Not for concurrent use.
type SplitAssignmentTracker[S any] struct {
	since []assignments[S] // ascending by checkpoint; the last, of ID 0, since the last one
}

type assignments[S any] struct {
	id int64 // the first checkpoint that has them; 0: none yet
	of map[int32][]S
}

// Record notes an assignment.
func (t *SplitAssignmentTracker[S]) Record(subtask int32, splits ...S) {
	if n := len(t.since); n == 0 || t.since[n-1].id != 0 {
		t.since = append(t.since, assignments[S]{of: map[int32][]S{}})
	}
	a := &t.since[len(t.since)-1]
	a.of[subtask] = append(a.of[subtask], splits...)
}

// Snapshot notes that a checkpoint has all that was assigned so far.
func (t *SplitAssignmentTracker[S]) Snapshot(id int64) {
	if n := len(t.since); n > 0 && t.since[n-1].id == 0 {
		t.since[n-1].id = id
	}
}

// Completed forgets what a checkpoint has that is complete: no reader will be
// restored from an older one.
func (t *SplitAssignmentTracker[S]) Completed(id int64) {
	t.since = slices.DeleteFunc(t.since, func(a assignments[S]) bool { return a.id != 0 && a.id <= id })
}

// Take gives and forgets the splits of a subtask that checkpoint id does not have,
// in the order in which they were assigned. With id 0 that is all of them.
func (t *SplitAssignmentTracker[S]) Take(subtask int32, id int64) []S {
	var splits []S
	for _, a := range t.since {
		if a.id == 0 || a.id > id {
			splits = append(splits, a.of[subtask]...)
			delete(a.of, subtask)
		}
	}
	return splits
}

// Reset forgets everything: the whole job restarts, and the enumerator with it.
func (t *SplitAssignmentTracker[S]) Reset() { t.since = nil }
