package checkpoint

import (
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// phase of a pending checkpoint.
type phase uint8

const (
	phaseLocation     phase = iota // its place is being made
	phaseCoordinators              // operator coordinators
	phaseHooks
	phaseTasks
	phaseReady      // all have acknowledged; another one is being committed
	phaseCommitting // its metadata object may be there
)

// pending is a checkpoint under way: Flink's PendingCheckpoint.
type pending struct {
	id      int64
	req     *Request
	barrier event.Barrier
	phase   phase
	dir     string
	plan    *plan

	coordinatorsLeft int
	coordinatorState map[metadata.OperatorID]metadata.StreamHandle
	coordinatorDone  map[metadata.OperatorID]bool
	hookDone         []bool
	hooksLeft        int
	masters          []metadata.MasterState // by hook

	acked     map[int]bool // of plan.wait
	acksLeft  int
	operators map[metadata.OperatorID]*metadata.OperatorState
	// finishing are tasks that acknowledged after their operators had finished.
	finishing map[int]bool
	// finishedBefore are tasks that run only to say that they had finished in the
	// snapshot that they were started from.
	finishedBefore map[int]bool
	// files of a savepoint, which the registry does not know.
	files []incremental.AckFile
	meta  *metadata.Checkpoint
	after []Completed // the store's content once it is committed
	gone  []Completed // subsumed by it
	stats *Stats
}

func (p *pending) savepoint() bool { return p.req.Type.IsSavepoint() }

// waits says that a task takes part and has not acknowledged.
func (p *pending) waits(task int) bool {
	if p.acked[task] {
		return false
	}
	for _, t := range p.plan.wait {
		if t == task {
			return true
		}
	}
	return false
}

// waitsFor says whose answer a checkpoint waits for.
func (c *Core) waitsFor(p *pending) string {
	switch p.phase {
	case phaseLocation:
		return "its place is not ready"
	case phaseCoordinators:
		for _, op := range c.g.coordinators {
			if !p.coordinatorDone[op] {
				return "the coordinator of " + c.g.operatorName(op) + " has not answered"
			}
		}
	case phaseHooks:
		if p.hooksLeft == 0 {
			return "an event to a task is held back for an older checkpoint"
		}
		return "master hooks have not answered"
	case phaseTasks:
		var names []string
		n := 0
		for _, t := range p.plan.wait {
			if !p.acked[t] {
				if n++; n <= 3 {
					names = append(names, c.g.taskName(c.attempt(t)))
				}
			}
		}
		if n > 3 {
			names = append(names, fmt.Sprintf("%d more", n-3))
		}
		return "no acknowledgement of " + strings.Join(names, ", ")
	}
	return "it is being completed"
}
