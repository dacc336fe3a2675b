package table

import (
	"math/bits"
	"slices"
	"unsafe"
)

// oldVersion is an entry as it was from one epoch until another.
type oldVersion[K, N comparable, V any] struct {
	entry       Entry[K, N, V]
	hash        uint32
	from, until uint32
}

func (o *oldVersion[K, N, V]) seen(w *View) bool { return o.from <= w.epoch && w.epoch < o.until }

// changes are what was changed in a segment while views were open. The owner alone
// writes them, under the shard's lock while a view is open; it may read them without.
//
// What was changed since the newest view is a bit for each slot: these stay in the cache
// where epochs of all slots would not.
type changes[K, N comparable, V any] struct {
	epoch uint32   // in which the slots with a bit were set
	bits  []uint64 // one for each slot
	vers  []uint32 // epochs of the others; nil, like 0, is older than all views
	old   []oldVersion[K, N, V]
	kept  int                                 // of the old versions, those since epoch began
	few   [maxGroups * groupSlots / 64]uint64 // bits, of a segment that is not overgrown
}

// changes are those of a segment, made with the first, whose bits are of the present.
func (g *segment[K, N, V]) changes(views *Views) *changes[K, N, V] {
	c := g.changed.Load()
	if c == nil {
		c = &changes[K, N, V]{}
		c.begin(views, len(g.slots))
		g.changed.Store(c)
	} else if c.epoch != views.epoch {
		c.renew(views)
	}
	return c
}

func (c *changes[K, N, V]) begin(views *Views, slots int) {
	c.epoch = views.epoch
	if n := (slots + 63) / 64; n <= len(c.few) {
		c.bits = c.few[:n]
	} else {
		c.bits = make([]uint64, n)
	}
}

// spareBytes is how much memory of old versions a key group keeps from one view for the
// next: allocating it was a third of what a snapshot of small values cost the owner.
const spareBytes = 32 << 10

// spares are changes that no view needs any more.
type spares[K, N comparable, V any] struct {
	all   []*changes[K, N, V]
	bytes int
}

func (c *changes[K, N, V]) bytes() int {
	return cap(c.old) * int(unsafe.Sizeof(oldVersion[K, N, V]{}))
}

// drop lets a segment's changes go. The owner may be looking at them: they stay as
// they are until it takes them for another segment.
func (t *Table[K, N, V]) drop(sh *shard[K, N, V], seg *segment[K, N, V]) {
	c := seg.changed.Load()
	if c == nil {
		return
	}
	seg.changed.Store(nil)
	if s := &sh.spares; !t.pointers && s.bytes+c.bytes() <= spareBytes {
		s.all = append(s.all, c)
		s.bytes += c.bytes()
	}
}

// changes are those of a segment, which begin with spare memory if there is any.
func (sh *shard[K, N, V]) changes(g *segment[K, N, V], views *Views) *changes[K, N, V] {
	n := len(sh.spares.all)
	if n == 0 || g.changed.Load() != nil {
		return g.changes(views)
	}
	c := sh.spares.all[n-1]
	sh.spares.all[n-1] = nil
	sh.spares.all = sh.spares.all[:n-1]
	sh.spares.bytes -= c.bytes()
	*c = changes[K, N, V]{old: c.old[:0]}
	c.begin(views, len(g.slots))
	g.changed.Store(c)
	return c
}

// renew makes the bits of the present. Epochs of what they said before are only needed
// for views that do not see it.
func (c *changes[K, N, V]) renew(views *Views) {
	if views.needed(0, c.epoch) {
		if c.vers == nil {
			c.vers = make([]uint32, 64*len(c.bits))
		}
		for i, b := range c.bits {
			for ; b != 0; b &= b - 1 {
				c.vers[64*i+bits.TrailingZeros64(b)] = c.epoch
			}
		}
	}
	clear(c.bits)
	c.epoch, c.kept = views.epoch, 0
}

// now tells whether a slot was set in the epoch of the bits.
func (c *changes[K, N, V]) now(slot uint32) bool { return c.bits[slot/64]>>(slot%64)&1 != 0 }

// at is the epoch in which a slot was set.
func (c *changes[K, N, V]) at(slot uint32) uint32 {
	switch {
	case c.now(slot):
		return c.epoch
	case c.vers != nil:
		return c.vers[slot]
	}
	return 0
}

// set sets the epoch in which a slot was set.
func (c *changes[K, N, V]) set(slot, epoch uint32) {
	if epoch == c.epoch {
		c.bits[slot/64] |= 1 << (slot % 64)
		return
	}
	c.bits[slot/64] &^= 1 << (slot % 64)
	if c.vers == nil && epoch != 0 {
		c.vers = make([]uint32, 64*len(c.bits))
	}
	if c.vers != nil {
		c.vers[slot] = epoch
	}
}

// touch brings the place of the next old version into the cache.
func (c *changes[K, N, V]) touch() {
	if n := len(c.old); n < cap(c.old) && c.old[:n+1][n].from == ^uint32(0) {
		panic("table: an epoch that is never reached")
	}
}

// inherit takes old versions over from a segment: those whose hashes have want
// under mask.
func (g *segment[K, N, V]) inherit(views *Views, from *segment[K, N, V], mask, want uint32) {
	old := from.changed.Load()
	if old == nil || len(old.old) == 0 {
		return
	}
	c := g.changes(views)
	if mask == 0 && len(c.old) == 0 {
		c.old = old.old
		return
	}
	for i := range old.old {
		if old.old[i].hash&mask == want {
			c.old = append(c.old, old.old[i])
		}
	}
}

// keep saves a slot's entry before it changes, if an open view needs it, and marks it
// as changed now. The caller holds the lock.
func (t *Table[K, N, V]) keep(sh *shard[K, N, V], seg *segment[K, N, V], slot, hash uint32) {
	if t.views.readers.Load() == 0 {
		return
	}
	if sh.passed.Load() != 0 { // storing waits for all that was stored before
		sh.passed.Store(0)
	}
	c := sh.changes(seg, t.views)
	// The newest view is older than this epoch: it sees the entry, or none does.
	if from := c.at(slot); from <= t.views.newest.Load() {
		if len(c.old) == cap(c.old) {
			c.prune(t.views, len(seg.slots))
		}
		c.old = append(c.old, oldVersion[K, N, V]{seg.slots[slot], hash, from, t.views.epoch})
		c.kept++
	}
	c.set(slot, c.epoch)
	if denseShare*c.kept >= seg.n {
		t.keepRest(seg, c)
	}
}

// denseShare says when a segment's entries are kept all at once: when one of so many has
// changed since the newest view. Most others are then likely to change soon, each for the
// price of a lock, and in a row they cost a quarter of that (BenchmarkSetUnderView). Old
// versions are at most so many times what has changed.
const denseShare = 8

// keepRest saves all of a segment's entries that an open view needs, as if they were
// about to change. The caller holds the lock.
func (t *Table[K, N, V]) keepRest(seg *segment[K, N, V], c *changes[K, N, V]) {
	c.kept = 0
	newest := t.views.newest.Load()
	if cap(c.old)-len(c.old) < seg.n {
		c.sift(t.views)
		c.old = slices.Grow(c.old, seg.n)
	}
	for g, word := range seg.tags {
		for i := range uint32(groupSlots) {
			slot := uint32(g)*groupSlots + i
			if word>>(8*i)&0x80 == 0 || c.now(slot) {
				continue
			}
			if from := c.at(slot); from <= newest {
				c.old = append(c.old, oldVersion[K, N, V]{seg.slots[slot], t.hashOf(seg, slot), from, c.epoch})
				c.bits[slot/64] |= 1 << (slot % 64)
			}
		}
	}
}

// prune makes room in the list of old versions: first by dropping what no open
// view sees.
func (c *changes[K, N, V]) prune(views *Views, slots int) {
	c.sift(views)
	if n := cap(c.old); 2*len(c.old) >= n {
		c.old = append(make([]oldVersion[K, N, V], 0, max(8, min(4*n, n+slots/4))), c.old...)
	}
}

// sift drops the old versions that no open view sees.
func (c *changes[K, N, V]) sift(views *Views) {
	kept := c.old[:0]
	for i := range c.old {
		if views.needed(c.old[i].from, c.old[i].until) {
			kept = append(kept, c.old[i])
		}
	}
	clear(c.old[len(kept):])
	c.old = kept
}

// sees tells whether a view sees a slot's entry as it is.
func (g *segment[K, N, V]) sees(w *View, slot uint32) bool {
	c := g.changed.Load()
	return c == nil || c.at(slot) <= w.epoch
}

// Batch appends the entries of a segment of a key group that a view sees to buf, and
// gives the position to go on with; done at the end. The first is 0. Any goroutine
// may call it.
func (t *Table[K, N, V]) Batch(w *View, group int, pos uint64, buf []Entry[K, N, V]) (out []Entry[K, N, V], next uint64, done bool) {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	seg := sh.place(uint32(pos)).seg
	// Segments that were merged since the last call have entries that were given.
	whole := pos&(1<<(32-seg.depth)-1) == 0
	c := seg.changed.Load()
	for g, word := range seg.tags {
		for i := range uint32(groupSlots) {
			if word>>(8*i)&0x80 == 0 {
				continue
			}
			slot := uint32(g)*groupSlots + i
			if (c == nil || c.at(slot) <= w.epoch) && (whole || uint64(t.hashOf(seg, slot)) >= pos) {
				buf = append(buf, seg.slots[slot])
			}
		}
	}
	if c != nil {
		for i := range c.old {
			if o := &c.old[i]; o.seen(w) && uint64(o.hash) >= pos {
				buf = append(buf, o.entry)
			}
		}
	}
	next = seg.behind(pos)
	return buf, next, next >= 1<<32
}

// tally knows how many entries there were in the past: live of them when the first was
// added or removed in an epoch, and as many at any time since from, the epoch of the
// change before, had ended.
type tally struct {
	from, epoch uint32
	live        int
}

// note is called before an entry is added or removed while a view may read it.
func (c *tally) note(epoch uint32, live int) {
	if c.epoch != epoch {
		*c = tally{c.epoch, epoch, live}
	}
}

// Count is how many entries of a key group a view sees. Any goroutine may call it. It
// takes the same time for any number of them, except for a view in
// whose presence entries were added or removed both before and after a later view was opened.
func (t *Table[K, N, V]) Count(w *View, group int) int {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	live, c := sh.live, sh.tally
	sh.mu.Unlock()
	switch {
	case w.epoch >= c.epoch:
		return live
	case w.epoch >= c.from:
		return c.live
	}
	return t.countEach(w, sh)
}

func (t *Table[K, N, V]) countEach(w *View, sh *shard[K, N, V]) int {
	n := 0
	for pos := uint64(0); pos < 1<<32; {
		sh.mu.Lock()
		seg := sh.place(uint32(pos)).seg
		whole := pos&(1<<(32-seg.depth)-1) == 0
		c := seg.changed.Load()
		if whole && c == nil {
			n += seg.n
		} else {
			for slot := range uint32(len(seg.slots)) {
				if seg.used(slot) && (c == nil || c.at(slot) <= w.epoch) && (whole || uint64(t.hashOf(seg, slot)) >= pos) {
					n++
				}
			}
		}
		if c != nil {
			for i := range c.old {
				if o := &c.old[i]; o.seen(w) && uint64(o.hash) >= pos {
					n++
				}
			}
		}
		pos = seg.behind(pos)
		sh.mu.Unlock()
	}
	return n
}

// Lookup finds the entry of a key that a view sees. Any goroutine may call it.
func (t *Table[K, N, V]) Lookup(w *View, group int, hash uint32, key K, ns N) (e Entry[K, N, V], ok bool) {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	seg := sh.place(hash).seg
	if now := t.Find(group, hash, key, ns); now != nil && seg.sees(w, seg.slotOf(now)) {
		return *now, true
	}
	if c := seg.changed.Load(); c != nil {
		for i := range c.old {
			if o := &c.old[i]; o.hash == hash && o.seen(w) && t.same(&o.entry, key, ns) {
				return o.entry, true
			}
		}
	}
	return e, false
}

func (t *Table[K, N, V]) same(e *Entry[K, N, V], key K, ns N) bool {
	if t.equal == nil {
		return e.Key == key && e.NS == ns
	}
	return t.equal(e.Key, e.NS, key, ns)
}

// Passed says that nothing will be read from a view in a key group any more: if
// there is no other view, the old versions are dropped and the owner changes the
// group's entries as if the view were closed. The view's reader calls it.
func (t *Table[K, N, V]) Passed(w *View, group int) {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	newest := t.views.newest.Load() // first: readers counts a view before it is the newest
	if w.Closed() || w.retired.Load() || t.views.readers.Load() != 1 {
		return
	}
	for pos := uint64(0); pos < 1<<32; {
		seg := sh.place(uint32(pos)).seg
		if seg != t.none {
			t.drop(sh, seg)
		}
		pos = seg.behind(pos)
	}
	// A view that was opened since has a greater epoch: the owner takes the lock for it.
	sh.passed.Store(newest)
}

// Release drops the old versions if the view was the last that needed any. It is
// called before the view is closed, by any goroutine, and nothing may be read from
// the view any more. Of views that are released at the same time, the last one
// drops them. A view that is opened meanwhile has lost nothing: what is kept for it
// is kept under a shard's lock after it was opened, and this looks under the lock
// whether there is one.
func (t *Table[K, N, V]) Release(w *View) {
	if w.Closed() {
		return
	}
	w.retire()
	for i := range t.shards {
		sh := &t.shards[i]
		for pos := uint64(0); pos < 1<<32; {
			sh.mu.Lock()
			for range 64 { // segments
				if t.views.readers.Load() > 0 || sh.passed.Load() > 0 {
					pos = 1 << 32 // another one does it, or there is nothing
					break
				}
				seg := sh.place(uint32(pos)).seg
				if seg != t.none {
					t.drop(sh, seg)
				}
				if pos = seg.behind(pos); pos >= 1<<32 {
					break
				}
			}
			sh.mu.Unlock()
		}
	}
}

// OldVersions is how many old versions are kept. It belongs to the owner.
func (t *Table[K, N, V]) OldVersions() int {
	n := 0
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for pos := uint64(0); pos < 1<<32; {
			seg := sh.place(uint32(pos)).seg
			if c := seg.changed.Load(); c != nil {
				n += len(c.old)
			}
			pos = seg.behind(pos)
		}
		sh.mu.Unlock()
	}
	return n
}
