package table

// cacheVersions are the versions of a key group's entries that open views read and
// that have been changed since.
type cacheVersions[K, N comparable, V any] struct {
	// heads has, for each chunk with old versions, the newest one of each entry
	// as its position in list + 1.
	heads [][]uint32
	list  []cacheVersion[K, N, V]
	// byHash finds old versions by the hash of their key while a view is asked for
	// single keys.
	byHash map[uint32]uint32
	// full is the length of list at which versions that no view needs are dropped.
	full int
}

type cacheVersion[K, N comparable, V any] struct {
	Entry    CacheEntry[K, N, V]
	older    uint32 // position + 1 in list of the same entry's version before
	nextHash uint32 // likewise, another with the same hash
	num      uint32
}

// keep saves an entry before it changes, if an open view needs it, and marks the
// entry as changed now. The caller holds the lock.
func (t *Cache[K, N, V]) keep(sh *cacheShard[K, N, V], e *CacheEntry[K, N, V], num, newest uint32) {
	ver := e.ver
	e.ver = t.views.epoch<<1 | ver&1
	if ver>>1 > newest || t.views.readers.Load() == 0 {
		return
	}
	c, i := num>>t.bits, num&(1<<t.bits-1)
	o := sh.old
	if ver&1 == 0 && (o == nil || int(c) >= len(o.heads) || o.heads[c] == nil || o.heads[c][i] == 0) {
		return // never lived: nothing to hide
	}
	if o == nil {
		o = &cacheVersions[K, N, V]{}
		sh.old = o
	}
	if int(c) >= len(o.heads) {
		heads := make([][]uint32, max(int(c)+1, len(sh.chunks)))
		copy(heads, o.heads)
		o.heads = heads
	}
	if o.heads[c] == nil {
		o.heads[c] = make([]uint32, 1<<t.bits)
	}
	if len(o.list) >= max(o.full, 64) {
		t.compact(sh, num, ver)
	}
	head := &o.heads[c][i]
	v := cacheVersion[K, N, V]{Entry: *e, older: *head, num: num}
	v.Entry.ver = ver
	if p := *head; p != 0 && t.views.lookups.Load() == 0 && o.byHash == nil && !t.views.needed(o.list[p-1].Entry.ver>>1, ver>>1) {
		v.older = o.list[p-1].older
		o.list[p-1] = v // the one before is not needed any more
		return
	}
	o.list = append(o.list, v)
	*head = uint32(len(o.list))
	if t.views.lookups.Load() > 0 && ver&1 != 0 {
		if o.byHash == nil {
			o.byHash = map[uint32]uint32{}
		}
		h := t.hash(v.Entry.Key, v.Entry.NS)
		o.list[len(o.list)-1].nextHash = o.byHash[h]
		o.byHash[h] = uint32(len(o.list))
	}
}

// compact drops versions that no open view sees: while one view is open for long others
// come and go, and each leaves versions of what changed since. The entry of number num
// is about to be kept, as of ver.
func (t *Cache[K, N, V]) compact(sh *cacheShard[K, N, V], num, ver uint32) {
	o := sh.old
	var kept []cacheVersion[K, N, V]
	var chain []uint32 // of an entry, newest first
	for c, heads := range o.heads {
		for i, p := range heads {
			if p == 0 {
				continue
			}
			of := uint32(c)<<t.bits | uint32(i)
			until := t.at(sh, of).ver >> 1
			if of == num {
				until = ver >> 1
			}
			for chain = chain[:0]; p != 0; p = o.list[p-1].older {
				from := o.list[p-1].Entry.ver >> 1
				if t.views.needed(from, until) {
					chain = append(chain, p)
				}
				until = from
			}
			older := uint32(0)
			for k := len(chain) - 1; k >= 0; k-- {
				v := o.list[chain[k]-1]
				v.older, v.nextHash = older, 0
				kept = append(kept, v)
				older = uint32(len(kept))
			}
			heads[i] = older
		}
	}
	o.list, o.full = kept, 2*len(kept)
	if o.byHash == nil {
		return
	}
	clear(o.byHash)
	for i := range kept {
		if e := &kept[i].Entry; e.ver&1 != 0 {
			h := t.hash(e.Key, e.NS)
			kept[i].nextHash = o.byHash[h]
			o.byHash[h] = uint32(i + 1)
		}
	}
}

// asOf gives the version of an entry that a view sees, nil if it did not live.
func (t *Cache[K, N, V]) asOf(w *View, sh *cacheShard[K, N, V], num uint32) *CacheEntry[K, N, V] {
	e := t.at(sh, num)
	if e.ver>>1 <= w.epoch {
		return e.ifLive()
	}
	o := sh.old
	c, i := num>>t.bits, num&(1<<t.bits-1)
	if o == nil || int(c) >= len(o.heads) || o.heads[c] == nil {
		return nil
	}
	for p := o.heads[c][i]; p != 0; p = o.list[p-1].older {
		if v := &o.list[p-1].Entry; v.ver>>1 <= w.epoch {
			return v.ifLive()
		}
	}
	return nil
}

func (e *CacheEntry[K, N, V]) ifLive() *CacheEntry[K, N, V] {
	if e.ver&1 == 0 {
		return nil
	}
	return e
}

// cacheBatch is how many entries a reader looks at under the lock.
const cacheBatch = 64

// Batch appends the entries of a key group that a view sees, from a number on, to
// buf, about 64 at a time, and gives the number to go on with; done at the end.
// Any goroutine may call it.
func (t *Cache[K, N, V]) Batch(w *View, group int, from uint32, buf []CacheEntry[K, N, V]) (out []CacheEntry[K, N, V], next uint32, done bool) {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	to := min(from+cacheBatch, sh.used)
	for num := from; num < to; num++ {
		if e := t.asOf(w, sh, num); e != nil {
			buf = append(buf, *e)
		}
	}
	return buf, to, to >= sh.used
}

// Seen gives the entry at a place as a view sees it. Any goroutine may call it.
func (t *Cache[K, N, V]) Seen(w *View, r Ref) (e CacheEntry[K, N, V], ok bool) {
	sh := &t.shards[r.kg]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if v := t.asOf(w, sh, r.num); v != nil {
		return *v, true
	}
	return e, false
}

// Count is how many entries of a key group a view sees. Any goroutine may call it.
func (t *Cache[K, N, V]) Count(w *View, group int) int {
	sh := &t.shards[group-t.first]
	n := 0
	for from := uint32(0); ; {
		sh.mu.Lock()
		to := min(from+4*cacheBatch, sh.used)
		for ; from < to; from++ {
			if t.asOf(w, sh, from) != nil {
				n++
			}
		}
		end := to >= sh.used
		sh.mu.Unlock()
		if end {
			return n
		}
	}
}

// Lookup finds the entry of a key that a view opened for lookups sees. Any
// goroutine may call it.
func (t *Cache[K, N, V]) Lookup(w *View, group int, hash uint32, key K, ns N) (e CacheEntry[K, N, V], ok bool) {
	sh := &t.shards[group-t.first]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if now, r := t.Find(group, hash, key, ns); now != nil {
		if v := t.asOf(w, sh, r.num); v != nil && t.same(v, key, ns) {
			return *v, true
		}
	}
	if sh.old != nil {
		for p := sh.old.byHash[hash]; p != 0; p = sh.old.list[p-1].nextHash {
			num := sh.old.list[p-1].num
			if v := t.asOf(w, sh, num); v != nil && t.same(v, key, ns) {
				return *v, true
			}
		}
	}
	return e, false
}

func (t *Cache[K, N, V]) same(e *CacheEntry[K, N, V], key K, ns N) bool {
	if t.equal == nil {
		return e.Key == key && e.NS == ns
	}
	return t.equal(e.Key, e.NS, key, ns)
}

// Release drops the old versions if the view was the last that needed any. It is
// called before the view is closed, by any goroutine, and nothing may be read from
// the view any more. Of views that are released at the same time, the last one
// drops them. A view that is opened meanwhile has lost nothing: what is kept for it
// is kept under a shard's lock after it was opened, and this looks under the lock
// whether there is one.
func (t *Cache[K, N, V]) Release(w *View) {
	if w.Closed() {
		return
	}
	w.retire()
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		if t.views.readers.Load() == 0 {
			sh.old = nil
		}
		sh.mu.Unlock()
	}
}

// OldVersions is how many old versions are kept. It belongs to the owner.
func (t *Cache[K, N, V]) OldVersions() int {
	n := 0
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		if sh.old != nil {
			n += len(sh.old.list)
		}
		sh.mu.Unlock()
	}
	return n
}
