package channel

import (
	"fmt"

	"github.com/tidemark/tidemark/serializer"
)

// Mapper says which old subtasks' state a new subtask takes over when the
// parallelism changed (Flink's SubtaskStateMapper). That of an exchange follows
// from how it picks the target of a record.
type Mapper uint8

// Mappers.
const (
	// RoundRobin: old subtask i goes to new subtask i modulo the parallelism. For
	// rebalance and shuffle, where any subtask may take any record (also Flink's
	// ARBITRARY).
	RoundRobin Mapper = iota
	// Range: each old subtask goes to the new subtasks that have one of its key
	// groups, which take the records of their own. For hash by key group.
	Range
	// First: all goes to subtask 0. For global.
	First
	// Full: all old subtasks go to each new one, which takes the records that the
	// partitioner would send to it. For custom partitioners.
	Full
	// Replicate: each new subtask takes one old one's, that whose broadcast state it
	// takes. For broadcast, whose records all subtasks get. (Flink refuses to
	// change the parallelism then; it has such data in flight only where another
	// input of the subtask was unaligned.)
	Replicate
)

var mappers = [...]string{"round robin", "range", "first", "full", "replicate"}

func (m Mapper) String() string {
	if int(m) < len(mappers) {
		return mappers[m]
	}
	return fmt.Sprintf("mapper(%d)", uint8(m))
}

// OldSubtasks lists the old subtasks whose state a new subtask takes over, in
// order. maxParallelism is for Range.
func (m Mapper) OldSubtasks(subtask, oldParallelism, newParallelism, maxParallelism int) []int {
	var out []int
	switch m {
	case RoundRobin:
		for i := subtask; i < oldParallelism; i += newParallelism {
			out = append(out, i)
		}
	case Range:
		first, last := serializer.KeyGroupRange(subtask, newParallelism, maxParallelism)
		for i := range oldParallelism {
			if f, l := serializer.KeyGroupRange(i, oldParallelism, maxParallelism); f <= last && first <= l {
				out = append(out, i)
			}
		}
	case First:
		if subtask == 0 {
			for i := range oldParallelism {
				out = append(out, i)
			}
		}
	case Full:
		for i := range oldParallelism {
			out = append(out, i)
		}
	case Replicate:
		out = append(out, subtask%oldParallelism)
	}
	return out
}

// filters says that records have to be picked when the parallelism changed: an old
// subtask's state goes to several new ones.
func (m Mapper) filters() bool { return m == Range || m == Full }
