package table

// Each calls f for each entry of a key group until it returns false, and tells
// whether it never did. f may change the table: an entry that was added meanwhile may
// be seen or not, one that was removed is not, and values are those of the moment.
func (t *Table[K, N, V]) Each(group int, f func(e *Entry[K, N, V]) bool) bool {
	sh := &t.shards[group-t.first]
	type place struct {
		key  K
		ns   N
		hash uint32
	}
	var places []place // of a segment's entries
	for pos := uint64(0); pos < 1<<32; {
		seg := sh.place(uint32(pos)).seg
		end, whole := seg.behind(pos), pos&(1<<(32-seg.depth)-1) == 0
		places = places[:0]
		for i := range uint32(len(seg.slots)) {
			if !seg.used(i) {
				continue
			}
			if h := t.hashOf(seg, i); whole || uint64(h) >= pos {
				e := &seg.slots[i]
				places = append(places, place{e.Key, e.NS, h})
			}
		}
		for i := range places {
			p := &places[i]
			if e := t.Find(group, p.hash, p.key, p.ns); e != nil && !f(e) {
				return false
			}
		}
		pos = end
	}
	return true
}

// Cursor is a place in a key group; zero is its beginning.
type Cursor struct {
	pos  uint64 // first hash of the segment
	slot uint32
}

// Step gives an entry and its hash and moves the cursor to the next; nil at the
// end. Entries that move between two calls may be missed or met twice.
func (t *Table[K, N, V]) Step(group int, c *Cursor) (e *Entry[K, N, V], hash uint32) {
	sh := &t.shards[group-t.first]
	for c.pos < 1<<32 {
		seg := sh.place(uint32(c.pos)).seg
		for c.slot < uint32(len(seg.slots)) {
			i := c.slot
			c.slot++
			if seg.used(i) {
				return &seg.slots[i], t.hashOf(seg, i)
			}
		}
		c.pos, c.slot = seg.behind(c.pos), 0
	}
	return nil, 0
}
