package checkpoint

import "slices"

// gateway holds back the events that an operator coordinator sends to one subtask
// from the moment the coordinator's state was taken until the barrier has passed
// the subtask. Otherwise the subtask might have in its state what, by the
// coordinator's state, it was never sent: a split would be read twice.
//
//	mark   the checkpoint is about to ask the coordinator
//	close  the coordinator's state is there: what it sends from now on waits
//	open   the barrier passed, or the checkpoint ended
//
// With several checkpoints under way an event waits for all that were closed
// before it. Flink's SubtaskGatewayImpl.
type gateway struct {
	marks []mark // ascending by checkpoint
}

type mark struct {
	id     int64
	closed bool
	held   [][]byte // sent after this close and before the next
}

func (g *gateway) mark(id int64) { g.marks = append(g.marks, mark{id: id}) }

func (g *gateway) close(id int64) {
	if i := g.find(id); i >= 0 {
		g.marks[i].closed = true
	}
}

// send says whether an event may go now; otherwise it is held.
func (g *gateway) send(ev []byte) bool {
	for i := len(g.marks) - 1; i >= 0; i-- {
		if g.marks[i].closed {
			g.marks[i].held = append(g.marks[i].held, ev)
			return false
		}
	}
	return true
}

// open ends a checkpoint's mark and gives the events that may go now, in order.
func (g *gateway) open(id int64) [][]byte {
	i := g.find(id)
	if i < 0 {
		return nil
	}
	held := g.marks[i].held
	g.marks = slices.Delete(g.marks, i, i+1)
	for k := i - 1; k >= 0; k-- {
		if g.marks[k].closed { // an older one still waits for its barrier
			g.marks[k].held = append(g.marks[k].held, held...)
			return nil
		}
	}
	return held
}

// reset drops what was held: the subtask that it was for is gone, and its
// coordinator is told so.
func (g *gateway) reset() int {
	n := 0
	for _, m := range g.marks {
		n += len(m.held)
	}
	g.marks = nil
	return n
}

func (g *gateway) find(id int64) int {
	return slices.IndexFunc(g.marks, func(m mark) bool { return m.id == id })
}
