package keyed

import (
	"math/bits"
	"slices"
)

// timerNode is a timer in a queue.
type timerNode[K, N comparable] struct {
	ns    N
	at    uint64 // time with its sign bit turned, so that it sorts as unsigned
	key   K
	hash  uint32 // as in Key
	group uint16 // as in Key
	gen   uint16 // that of the entry it was made for
}

func (t *timerNode[K, N]) before(o *timerNode[K, N]) bool {
	return t.at < o.at || t.at == o.at && t.group < o.group
}

// timerQueue gives nodes in the order of their time and key group. Most nodes wait
// in buckets by time without order: 256 of them for each byte of the time, the
// first byte in which a node differs from the time the queue has come to. When it
// gets to a bucket, a large one is spread over those of lower bytes and a small one
// sorted. So a node is moved a few times in its life, each time with its neighbours.
//
//	near     sorted; what comes next
//	early    a heap of those that were added since with a time before low
//	levels   the others, none before low
type timerQueue[K, N comparable] struct {
	near   []timerNode[K, N]
	head   int // of near
	early  []timerNode[K, N]
	low    uint64
	end    bool   // all time is before low
	base   uint64 // what levels are relative to: low, or what comes before it
	levels [8]timerLevel[K, N]
	filled uint8 // levels with nodes
	count  int   // nodes, also stale ones
	free   *timerChunk[K, N]
	frees  int
	order  []uint64 // of sorting
	sweep  timerSweep[K, N]
}

type timerLevel[K, N comparable] struct {
	buckets []*timerChunk[K, N] // 256, made when first used
	filled  [4]uint64
}

const (
	timerChunkNodes = 32
	nearNodes       = 512 // most nodes of a bucket that is sorted
)

// timerChunk is a piece of a bucket. Only the first one has room.
type timerChunk[K, N comparable] struct {
	next  *timerChunk[K, N]
	n     int
	nodes [timerChunkNodes]timerNode[K, N]
}

// push adds a node.
func (q *timerQueue[K, N]) push(t *timerNode[K, N]) {
	q.count++
	if t.at >= q.low && !q.end {
		q.put(t)
		return
	}
	if q.pushEarly(t); len(q.early) > 2*nearNodes {
		q.rebase()
	}
}

// rebase moves near and early into the levels, so that early stays small.
func (q *timerQueue[K, N]) rebase() {
	base := min(q.early[0].at, q.base)
	if q.head < len(q.near) {
		base = min(base, q.near[q.head].at)
	}
	level := (bits.Len64(base^q.base|1) - 1) / 8
	digit := uint8(q.base >> (8 * level))
	for i := range level { // what is there now differs from base in a higher byte
		for d, c := range q.levels[i].buckets {
			if c == nil {
				continue
			}
			q.detach(i, uint8(d))
			last := c
			for last.next != nil {
				last = last.next
			}
			l := q.level(level)
			last.next = l.buckets[digit]
			q.set(level, digit, c)
		}
	}
	q.low, q.base, q.end = base, base, false
	for i := range q.early {
		q.put(&q.early[i])
	}
	for i := q.head; i < len(q.near); i++ {
		q.put(&q.near[i])
	}
	clear(q.early)
	clear(q.near)
	q.early, q.near, q.head = q.early[:0], q.near[:0], 0
}

// level is one whose buckets are there.
func (q *timerQueue[K, N]) level(i int) *timerLevel[K, N] {
	l := &q.levels[i]
	if l.buckets == nil {
		l.buckets = make([]*timerChunk[K, N], 256)
	}
	return l
}

// set makes a chunk the first of a bucket.
func (q *timerQueue[K, N]) set(level int, digit uint8, c *timerChunk[K, N]) {
	l := &q.levels[level]
	l.buckets[digit] = c
	l.filled[digit/64] |= 1 << (digit % 64)
	q.filled |= 1 << level
}

// put puts a node that is not before low into its bucket.
func (q *timerQueue[K, N]) put(t *timerNode[K, N]) {
	level := (bits.Len64(t.at^q.base|1) - 1) / 8
	digit := uint8(t.at >> (8 * level))
	c := q.level(level).buckets[digit]
	if c == nil || c.n == timerChunkNodes {
		c = q.chunk(c)
		q.set(level, digit, c)
	}
	c.nodes[c.n] = *t
	c.n++
}

func (q *timerQueue[K, N]) chunk(next *timerChunk[K, N]) *timerChunk[K, N] {
	c := q.free
	if c == nil {
		return &timerChunk[K, N]{next: next}
	}
	q.free = c.next
	q.frees--
	c.next = next
	return c
}

func (q *timerQueue[K, N]) release(c *timerChunk[K, N]) {
	if q.frees > q.count/timerChunkNodes/4+8 {
		return
	}
	*c = timerChunk[K, N]{next: q.free}
	q.free = c
	q.frees++
}

// first gives the bucket with the first nodes of the levels.
func (q *timerQueue[K, N]) first() (level int, digit uint8, ok bool) {
	if q.filled == 0 {
		return 0, 0, false
	}
	level = bits.TrailingZeros8(q.filled)
	for i, w := range q.levels[level].filled {
		if w != 0 {
			return level, uint8(64*i + bits.TrailingZeros64(w)), true
		}
	}
	panic("keyed: a level of timers without any")
}

// detach takes a bucket out.
func (q *timerQueue[K, N]) detach(level int, digit uint8) *timerChunk[K, N] {
	l := &q.levels[level]
	c := l.buckets[digit]
	l.buckets[digit] = nil
	if l.filled[digit/64] &^= 1 << (digit % 64); l.filled == [4]uint64{} {
		q.filled &^= 1 << level
	}
	if q.sweep.level == level && q.sweep.digit == int(digit) {
		q.sweep.chunk = nil
	}
	return c
}

// fill moves what comes next from the buckets to near, which is empty; false if there
// is nothing.
func (q *timerQueue[K, N]) fill() bool {
	for {
		level, digit, ok := q.first()
		if !ok {
			return false
		}
		c := q.detach(level, digit)
		least, most, n := ^uint64(0), uint64(0), 0
		for x := c; x != nil; x = x.next {
			n += x.n
			for i := range x.nodes[:x.n] {
				least, most = min(least, x.nodes[i].at), max(most, x.nodes[i].at)
			}
		}
		if n <= nearNodes || least == most {
			q.sort(c, n, least, most)
			q.base, q.low = most, most+1
			q.end = q.low == 0
			return true
		}
		q.low, q.base = least, least
		for c != nil {
			for i := range c.nodes[:c.n] {
				q.put(&c.nodes[i])
			}
			next := c.next
			q.release(c)
			c = next
		}
	}
}

// sort puts the nodes of a bucket into near, and frees it.
func (q *timerQueue[K, N]) sort(c *timerChunk[K, N], n int, least, most uint64) {
	q.near, q.head = slices.Grow(q.near[:0], n), 0
	for x := c; x != nil; {
		q.near = append(q.near, x.nodes[:x.n]...)
		next := x.next
		q.release(x)
		x = next
	}
	if n > nearNodes || most-least >= 1<<32 {
		slices.SortFunc(q.near, func(a, b timerNode[K, N]) int {
			switch {
			case a.before(&b):
				return -1
			case b.before(&a):
				return 1
			}
			return 0
		})
		return
	}
	// Numbers of time, key group and place sort faster than nodes.
	q.order = q.order[:0]
	for i := range q.near {
		q.order = append(q.order, (q.near[i].at-least)<<24|uint64(q.near[i].group)<<9|uint64(i))
	}
	slices.Sort(q.order)
	q.near = slices.Grow(q.near, n)
	all := q.near[:2*n]
	for i, o := range q.order {
		all[n+i] = all[o&(nearNodes-1)]
	}
	copy(all, all[n:])
	clear(all[n:])
}

// peek gives the first node without removing it, nil if there is none.
func (q *timerQueue[K, N]) peek() *timerNode[K, N] {
	if q.head == len(q.near) && len(q.early) == 0 {
		return nil
	}
	if q.head == len(q.near) || len(q.early) > 0 && q.early[0].before(&q.near[q.head]) {
		return &q.early[0]
	}
	return &q.near[q.head]
}

// pop removes the node that peek gives.
func (q *timerQueue[K, N]) pop() {
	q.count--
	if q.head < len(q.near) && (len(q.early) == 0 || !q.early[0].before(&q.near[q.head])) {
		q.near[q.head] = timerNode[K, N]{}
		q.head++
		return
	}
	last := len(q.early) - 1
	n := q.early[last]
	q.early[last] = timerNode[K, N]{}
	q.early = q.early[:last]
	if last == 0 {
		if cap(q.early) > 1024 {
			q.early = nil
		}
		return
	}
	i := 0
	for {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && q.early[c+1].before(&q.early[c]) {
			c++
		}
		if !q.early[c].before(&n) {
			break
		}
		q.early[i] = q.early[c]
		i = c
	}
	q.early[i] = n
}

func (q *timerQueue[K, N]) pushEarly(t *timerNode[K, N]) {
	q.early = append(q.early, *t)
	i := len(q.early) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !t.before(&q.early[p]) {
			break
		}
		q.early[i] = q.early[p]
		i = p
	}
	q.early[i] = *t
}

// timerSweep is where clean goes on.
type timerSweep[K, N comparable] struct {
	level, digit int
	chunk        *timerChunk[K, N] // nil: at the next bucket
	i            int
}

// clean looks at some nodes of the buckets and removes those that are stale. It
// gives how many it removed.
func (q *timerQueue[K, N]) clean(n int, alive func(*timerNode[K, N]) bool) (removed int) {
	s := &q.sweep
	for range n {
		if s.chunk == nil && !q.nextBucket() {
			return removed
		}
		c := s.chunk
		if s.i >= c.n {
			s.chunk, s.i = c.next, 0
			continue
		}
		if alive(&c.nodes[s.i]) {
			s.i++
			continue
		}
		// The bucket's last node takes its place.
		l := &q.levels[s.level]
		first := l.buckets[s.digit]
		first.n--
		c.nodes[s.i] = first.nodes[first.n]
		first.nodes[first.n] = timerNode[K, N]{}
		removed++
		if q.count--; first.n > 0 {
			continue
		}
		if first == c {
			s.chunk, s.i = c.next, 0
		}
		if l.buckets[s.digit] = first.next; first.next == nil {
			q.detach(s.level, uint8(s.digit))
		}
		q.release(first)
	}
	return removed
}

// nextBucket moves the sweep to the beginning of the next bucket that has nodes.
func (q *timerQueue[K, N]) nextBucket() bool {
	s := &q.sweep
	if q.filled == 0 {
		return false
	}
	for range len(q.levels) * 256 {
		if s.digit++; s.digit > 255 {
			s.digit, s.level = 0, (s.level+1)%len(q.levels)
		}
		l := &q.levels[s.level]
		if l.filled == [4]uint64{} {
			s.digit = 255
			continue
		}
		if c := l.buckets[s.digit]; c != nil {
			s.chunk, s.i = c, 0
			return true
		}
	}
	return false
}
