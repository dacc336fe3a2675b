package table

// oldVersion is an entry as it was from one epoch until another.
type oldVersion[K, N comparable, V any] struct {
	entry       Entry[K, N, V]
	hash        uint32
	from, until uint32
}

func (o *oldVersion[K, N, V]) seen(w *View) bool { return o.from <= w.epoch && w.epoch < o.until }

// keep saves an entry before it changes, if an open view needs it, and marks the
// entry as changed now. The caller holds the lock.
func (t *Table[K, N, V]) keep(sh *shard[K, N, V], seg *segment[K, N, V], e *Entry[K, N, V], hash uint32) {
	if t.views.readers.Load() == 0 {
		return
	}
	sh.passed.Store(0)
	slot, from := seg.slotOf(e), uint32(0)
	if seg.vers != nil {
		from = seg.vers[slot]
	}
	// The newest view is older than this epoch: it sees the entry, or none does.
	if from <= t.views.newest.Load() {
		if len(seg.old) == cap(seg.old) {
			seg.prune(t.views)
		}
		seg.old = append(seg.old, oldVersion[K, N, V]{*e, hash, from, t.views.epoch})
	}
	seg.stamp(slot, t.views.epoch)
}

// prune makes room in the list of old versions: first by dropping what no open
// view sees.
func (g *segment[K, N, V]) prune(views *Views) {
	kept := g.old[:0]
	for i := range g.old {
		if views.needed(g.old[i].from, g.old[i].until) {
			kept = append(kept, g.old[i])
		}
	}
	clear(g.old[len(kept):])
	g.old = kept
	if 2*len(kept) >= cap(kept) {
		g.old = append(make([]oldVersion[K, N, V], 0, max(8, min(2*cap(kept), cap(kept)+len(g.slots)/4))), kept...)
	}
}

// sees tells whether a view sees a slot's entry as it is.
func (g *segment[K, N, V]) sees(w *View, slot uint32) bool {
	return g.vers == nil || g.vers[slot] <= w.epoch
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
	for g, word := range seg.tags {
		for i := range uint32(groupSlots) {
			if word>>(8*i)&0x80 == 0 {
				continue
			}
			slot := uint32(g)*groupSlots + i
			if seg.sees(w, slot) && (whole || uint64(t.hashOf(seg, slot)) >= pos) {
				buf = append(buf, seg.slots[slot])
			}
		}
	}
	for i := range seg.old {
		if o := &seg.old[i]; o.seen(w) && uint64(o.hash) >= pos {
			buf = append(buf, o.entry)
		}
	}
	next = seg.behind(pos)
	return buf, next, next >= 1<<32
}

// Count is how many entries of a key group a view sees. Any goroutine may call it.
func (t *Table[K, N, V]) Count(w *View, group int) int {
	sh := &t.shards[group-t.first]
	n := 0
	for pos := uint64(0); pos < 1<<32; {
		sh.mu.Lock()
		seg := sh.place(uint32(pos)).seg
		whole := pos&(1<<(32-seg.depth)-1) == 0
		if whole && seg.vers == nil {
			n += seg.n
		} else {
			for slot := range uint32(len(seg.slots)) {
				if seg.used(slot) && seg.sees(w, slot) && (whole || uint64(t.hashOf(seg, slot)) >= pos) {
					n++
				}
			}
		}
		for i := range seg.old {
			if o := &seg.old[i]; o.seen(w) && uint64(o.hash) >= pos {
				n++
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
	for i := range seg.old {
		if o := &seg.old[i]; o.hash == hash && o.seen(w) && t.same(&o.entry, key, ns) {
			return o.entry, true
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
			seg.old, seg.vers = nil, nil
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
					seg.old, seg.vers = nil, nil
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
			n += len(seg.old)
			pos = seg.behind(pos)
		}
		sh.mu.Unlock()
	}
	return n
}
