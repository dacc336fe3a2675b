package keyed

import "math"

// dueNode is a timer in a heap: its time and its number in the table.
type dueNode struct {
	at  int64
	num uint32
}

// timerHeap is a 4-ary heap by time: four children lie in one cache line.
type timerHeap struct {
	nodes []dueNode
	stale int // nodes whose timer was deleted
}

// head is the first time, the end of time if there is none.
func (h *timerHeap) head() int64 {
	if len(h.nodes) == 0 {
		return math.MaxInt64
	}
	return h.nodes[0].at
}

// push adds a node and tells whether it is the first now.
func (h *timerHeap) push(at int64, num uint32) bool {
	h.nodes = append(h.nodes, dueNode{at, num})
	i := len(h.nodes) - 1
	for i > 0 {
		p := (i - 1) / 4
		if h.nodes[p].at <= at {
			break
		}
		h.nodes[i] = h.nodes[p]
		i = p
	}
	h.nodes[i] = dueNode{at, num}
	return i == 0
}

// pop removes the first node.
func (h *timerHeap) pop() {
	last := len(h.nodes) - 1
	n := h.nodes[last]
	h.nodes = h.nodes[:last]
	if last > 0 {
		h.down(0, n)
	}
	if c := cap(h.nodes); c > 1024 && last < c/8 {
		h.nodes = append(make([]dueNode, 0, c/4), h.nodes...)
	}
}

// down puts a node at a place or below it.
func (h *timerHeap) down(i int, n dueNode) {
	for {
		c := 4*i + 1
		if c >= len(h.nodes) {
			break
		}
		least := c
		for j := c + 1; j < min(c+4, len(h.nodes)); j++ {
			if h.nodes[j].at < h.nodes[least].at {
				least = j
			}
		}
		if h.nodes[least].at >= n.at {
			break
		}
		h.nodes[i] = h.nodes[least]
		i = least
	}
	h.nodes[i] = n
}

func (h *timerHeap) heapify() {
	for i := len(h.nodes)/4 + 1; i >= 0; i-- {
		if i < len(h.nodes) {
			h.down(i, h.nodes[i])
		}
	}
}

// filter keeps some nodes.
func (h *timerHeap) filter(keep func(dueNode) bool) []dueNode {
	kept := h.nodes[:0]
	for _, n := range h.nodes {
		if keep(n) {
			kept = append(kept, n)
		}
	}
	h.nodes, h.stale = kept, 0
	h.heapify()
	return kept
}

// tournament knows which of a number of queues has the least time: a complete
// binary tree over them in which each inner place has the winner of its two.
type tournament struct {
	times []int64 // of the queues, padded to a power of two
	won   []int32 // won[1] is the winner of all
}

func newTournament(n int) tournament {
	size := 1
	for size < n {
		size *= 2
	}
	t := tournament{times: make([]int64, size), won: make([]int32, 2*size)}
	for i := range t.times {
		t.times[i] = math.MaxInt64
		t.won[size+i] = int32(i)
	}
	for i := size - 1; i > 0; i-- {
		t.won[i] = t.won[2*i]
	}
	return t
}

// set changes the time of a queue.
func (t *tournament) set(i int, at int64) {
	t.times[i] = at
	for p := (len(t.times) + i) / 2; p > 0; p /= 2 {
		a, b := t.won[2*p], t.won[2*p+1]
		if t.times[b] < t.times[a] {
			a = b
		}
		t.won[p] = a
	}
}

// winner is the queue with the least time; the first of several.
func (t *tournament) winner() int { return int(t.won[1]) }
