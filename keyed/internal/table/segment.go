package table

import (
	"sync/atomic"
	"unsafe"
)

const (
	groupSlots = 7
	maxGroups  = 128
	// maxDepth is the most bits of a hash that tell segments apart. Entries whose 32
	// bits are all alike cannot be, so that their segment grows instead.
	maxDepth = 22
)

// segment is a piece of a key group's table: the entries whose hashes begin with
// the same depth bits, in groups of 7 slots. A group's word of tags has, from the
// lowest byte on, a byte for each slot: 0 if it is free, else the highest bit and 7 bits
// of the entry's hash. The 8th byte counts the entries that stand in a later group
// since this one was full; at 255 it stays. An entry stands in the first
// group with room from that of its hash's lowest bits on.
//
// A lookup looks at one word of tags, which is nearly always in the cache, and then at
// the entry itself: it waits for memory once, and no branch depends on what it
// waits for, so that the processor goes on to the next lookup meanwhile.
type segment[K, N comparable, V any] struct {
	tags   []uint64
	slots  []Entry[K, N, V]
	hashes []uint32 // of the entries; nil where they are computed anew
	n      int      // entries
	depth  uint8

	// changed is what was changed while views were open; nil if nothing was, or if no
	// view needs it any more.
	changed atomic.Pointer[changes[K, N, V]]

	slab  *slab[Entry[K, N, V]] // nil: slots are an object of their own
	tslab *slab[uint64]
}

// place is a place of a directory: a segment with what lookups need of it.
type place[K, N comparable, V any] struct {
	tags  unsafe.Pointer // of the first word
	slots unsafe.Pointer
	mask  uint32 // groups - 1
	seg   *segment[K, N, V]
}

func placeOf[K, N comparable, V any](seg *segment[K, N, V]) place[K, N, V] {
	p := place[K, N, V]{tags: unsafe.Pointer(unsafe.SliceData(seg.tags)), mask: uint32(len(seg.tags) - 1), seg: seg}
	if len(seg.slots) > 0 {
		p.slots = unsafe.Pointer(unsafe.SliceData(seg.slots))
	}
	return p
}

const (
	lowBits  = 0x0001010101010101
	highBits = 0x0080808080808080
	overOne  = 1 << 56 // one in the count of entries that went on
	// firstByte times the highest bit of byte i is i in the highest byte, which gives
	// the place of a tag. bits.TrailingZeros64 would do, but as Go compiles it (BSF) it
	// waits for what its result's register had before: for the entry of the lookup
	// before this one, to come from memory.
	firstByte = 0x00020406080a0c
)

// tagOf is the tag of a hash.
func tagOf(hash uint32) uint64 { return uint64(hash>>7&0x7f | 0x80) }

// claim takes a free slot for a hash. The segment has one.
func (g *segment[K, N, V]) claim(hash uint32) uint32 {
	mask := uint32(len(g.tags) - 1)
	at := hash & mask
	for {
		w := g.tags[at]
		if free := ^w & highBits; free != 0 {
			i := uint32((free & -free) * firstByte >> 56)
			g.tags[at] = w | tagOf(hash)<<(8*i)
			g.n++
			return at*groupSlots + i
		}
		if w>>56 < 255 {
			g.tags[at] = w + overOne
		}
		at = (at + 1) & mask
	}
}

// vacate gives a slot back.
func (g *segment[K, N, V]) vacate(hash, slot uint32) {
	mask := uint32(len(g.tags) - 1)
	of := slot / groupSlots
	for at := hash & mask; at != of; at = (at + 1) & mask {
		if g.tags[at]>>56 < 255 {
			g.tags[at] -= overOne
		}
	}
	g.tags[of] &^= 0xff << (8 * (slot % groupSlots))
	g.n--
}

// used tells whether a slot has an entry.
func (g *segment[K, N, V]) used(slot uint32) bool {
	return g.tags[slot/groupSlots]>>(8*(slot%groupSlots))&0x80 != 0
}

// full tells whether a segment must grow before it takes another entry: from 6/7 on,
// a single group when no slot is left.
func (g *segment[K, N, V]) full() bool {
	return g.n >= len(g.slots)-len(g.tags) && (g.n == len(g.slots) || len(g.tags) > 1)
}

// hashOf is the hash of a slot's entry.
func (t *Table[K, N, V]) hashOf(g *segment[K, N, V], slot uint32) uint32 {
	if g.hashes != nil {
		return g.hashes[slot]
	}
	e := &g.slots[slot]
	return t.hash(e.Key, e.NS)
}

// newSegment has room for up to 7 * groups entries.
func (t *Table[K, N, V]) newSegment(groups int, depth uint8) *segment[K, N, V] {
	g := &segment[K, N, V]{depth: depth}
	if groups == t.groups {
		g.slots, g.slab = t.mem.take()
		g.tags, g.tslab = t.tagMem.take()
	} else {
		g.slots, g.tags = make([]Entry[K, N, V], groups*groupSlots), make([]uint64, groups)
	}
	if t.keepHash {
		g.hashes = make([]uint32, groups*groupSlots)
	}
	return g
}

func (t *Table[K, N, V]) freeSegment(g *segment[K, N, V]) {
	if g.slab != nil {
		t.mem.give(g.slots, g.slab)
		t.tagMem.give(g.tags, g.tslab)
	}
	*g = segment[K, N, V]{}
}

// renew makes a segment's changes, if it has any, of the present.
func (t *Table[K, N, V]) renew(g *segment[K, N, V]) {
	if g.changed.Load() != nil {
		g.changes(t.views)
	}
}

// move takes a slot's entry over into another segment.
func (g *segment[K, N, V]) move(views *Views, from *segment[K, N, V], slot, hash uint32) {
	to := g.claim(hash)
	g.slots[to] = from.slots[slot]
	if g.hashes != nil {
		g.hashes[to] = hash
	}
	if c := from.changed.Load(); c != nil {
		if epoch := c.at(slot); epoch != 0 {
			g.changes(views).set(to, epoch)
		}
	}
}

// room makes room for one more entry in the segment of a hash.
func (t *Table[K, N, V]) room(sh *shard[K, N, V], hash uint32) {
	for {
		seg := sh.place(hash).seg
		if !seg.full() {
			return
		}
		sh.moves++
		switch {
		case seg == t.none:
			sh.dir = []place[K, N, V]{placeOf(t.newSegment(1, 0))}
		case len(seg.tags) < t.groups || seg.depth >= maxDepth:
			t.replace(sh, seg, hash, t.resized(seg, 2*len(seg.tags)))
		default:
			t.split(sh, seg, hash)
		}
	}
}

// resized is a segment's content in another number of groups.
func (t *Table[K, N, V]) resized(seg *segment[K, N, V], groups int) *segment[K, N, V] {
	to := t.newSegment(groups, seg.depth)
	t.renew(seg)
	for i := range uint32(len(seg.slots)) {
		if seg.used(i) {
			to.move(t.views, seg, i, t.hashOf(seg, i))
		}
	}
	to.inherit(t.views, seg, 0, 0)
	return to
}

// replace puts a segment in another's places, which is let go.
func (t *Table[K, N, V]) replace(sh *shard[K, N, V], old *segment[K, N, V], hash uint32, seg *segment[K, N, V]) {
	p := placeOf(seg)
	for i, end := sh.places(old.depth, hash); i < end; i++ {
		sh.dir[i] = p
	}
	t.freeSegment(old)
}

// split makes two segments of one.
func (t *Table[K, N, V]) split(sh *shard[K, N, V], seg *segment[K, N, V], hash uint32) {
	if 32-sh.shift == seg.depth { // one place of the directory: double it
		dir := make([]place[K, N, V], 2*len(sh.dir))
		for i, p := range sh.dir {
			dir[2*i], dir[2*i+1] = p, p
		}
		sh.dir = dir
		sh.shift--
		sh.deepest = 0
	}
	t.renew(seg)
	var half [2]*segment[K, N, V]
	for i := range half {
		half[i] = t.newSegment(len(seg.tags), seg.depth+1)
	}
	bit := 31 - seg.depth
	for i := range uint32(len(seg.slots)) {
		if seg.used(i) {
			h := t.hashOf(seg, i)
			half[h>>bit&1].move(t.views, seg, i, h)
		}
	}
	half[0].inherit(t.views, seg, 1<<bit, 0)
	half[1].inherit(t.views, seg, 1<<bit, 1<<bit)
	from, end := sh.places(seg.depth, hash)
	mid := (from + end) / 2
	for i := from; i < end; i++ {
		if i < mid {
			sh.dir[i] = placeOf(half[0])
		} else {
			sh.dir[i] = placeOf(half[1])
		}
	}
	if 32-sh.shift == half[0].depth {
		sh.deepest += 2
	}
	t.freeSegment(seg)
}

// shrink follows the removal of an entry: a segment that is nearly empty is merged
// with the one it was split from, if that one has little too. The other one often has
// it soon, so that a segment is made smaller by itself only when it is nearly
// empty still.
func (t *Table[K, N, V]) shrink(sh *shard[K, N, V], hash uint32) {
	seg := sh.place(hash).seg
	if seg.depth > 0 {
		other := sh.place(hash ^ 1<<(32-seg.depth)).seg
		if other.depth == seg.depth && 4*(seg.n+other.n) < t.groups*groupSlots {
			sh.moves++
			t.merge(sh, seg, other, hash)
			return
		}
	}
	if len(seg.tags) > 1 && (seg.depth == 0 || 16*seg.n < len(seg.slots)) {
		sh.moves++
		t.replace(sh, seg, hash, t.resized(seg, len(seg.tags)/2))
	}
}

func (t *Table[K, N, V]) merge(sh *shard[K, N, V], a, b *segment[K, N, V], hash uint32) {
	groups := 1
	for groups < t.groups && groups*groupSlots < 2*(a.n+b.n) {
		groups *= 2
	}
	to := t.newSegment(groups, a.depth-1)
	for _, seg := range []*segment[K, N, V]{a, b} {
		t.renew(seg)
		for i := range uint32(len(seg.slots)) {
			if seg.used(i) {
				to.move(t.views, seg, i, t.hashOf(seg, i))
			}
		}
		to.inherit(t.views, seg, 0, 0)
	}
	if 32-sh.shift == a.depth {
		sh.deepest -= 2
	}
	p := placeOf(to)
	for i, end := sh.places(to.depth, hash); i < end; i++ {
		sh.dir[i] = p
	}
	t.freeSegment(a)
	t.freeSegment(b)
	for sh.deepest == 0 && len(sh.dir) > 1 { // half of the directory is enough
		dir := make([]place[K, N, V], len(sh.dir)/2)
		for i := range dir {
			dir[i] = sh.dir[2*i]
		}
		sh.dir = dir
		sh.shift++
		for i := range dir {
			if dir[i].seg.depth == 32-sh.shift {
				sh.deepest++
			}
		}
	}
}

// place is that of a hash.
func (sh *shard[K, N, V]) place(hash uint32) *place[K, N, V] {
	return &sh.dir[uint64(hash)>>(sh.shift&63)]
}

// places are those of the directory that begin with depth bits of a hash.
func (sh *shard[K, N, V]) places(depth uint8, hash uint32) (from, end uint32) {
	width := uint32(1) << (32 - sh.shift - depth)
	from = uint32(uint64(hash)>>sh.shift) &^ (width - 1)
	return from, from + width
}

// behind is the first hash behind a segment that has pos.
func (g *segment[K, N, V]) behind(pos uint64) uint64 {
	width := uint64(1) << (32 - g.depth)
	return pos&^(width-1) + width
}
