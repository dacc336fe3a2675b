package table

import (
	"sync"
	"unsafe"
)

// A Cache is a Table for entries that come and go: they have numbers, which stay theirs
// until they are removed, so that lists of what was changed, and a clock's bits, can name
// them. Its index is beside the entries, which never move; a lookup costs one miss of the
// processor's cache more than that of a Table. Memory of removed entries is kept for new
// ones. Frozen views are those of Tables.

// CacheEntry is one entry of a table: live if the lowest bit of ver is set; the other
// bits are the epoch of its last change.
type CacheEntry[K, N comparable, V any] struct {
	Key K
	NS  N
	Val V
	ver uint32
}

// Cache maps keys and namespaces to values, for each key group apart.
//
// Methods belong to the owner goroutine, except those that take a View.
type Cache[K, N comparable, V any] struct {
	shards []cacheShard[K, N, V]
	first  int // key group of shards[0]
	views  *Views
	equal  Equal[K, N] // nil: ==
	hash   func(K, N) uint32
	bits   uint // of an entry's number within a chunk
	live   int
}

// shard is the table of one key group.
type cacheShard[K, N comparable, V any] struct {
	mu     sync.Mutex   // held by readers, and by the owner while a view is open
	dir    []cachePlace // by the first bits of the hash
	shift  uint8        // 32 - bits of dir
	chunks [][]CacheEntry[K, N, V]
	used   uint32 // entries of chunks that were ever used
	free   []uint32
	live   int
	old    *cacheVersions[K, N, V]
}

// NewCache is an empty table for count key groups from first on. hash gives the hash
// under which an entry is found.
func NewCache[K, N comparable, V any](views *Views, first, count int, equal Equal[K, N], hash func(K, N) uint32) *Cache[K, N, V] {
	t := &Cache[K, N, V]{views: views, first: first, equal: equal, hash: hash, shards: make([]cacheShard[K, N, V], count)}
	const chunkBytes = 32 << 10
	for t.bits = 3; t.bits < 8 && unsafe.Sizeof(CacheEntry[K, N, V]{})<<(t.bits+1) <= chunkBytes; {
		t.bits++
	}
	return t
}

// Len is the number of live entries.
func (t *Cache[K, N, V]) Len() int { return t.live }

// Views are those the table was made with.
func (t *Cache[K, N, V]) Views() *Views { return t.views }

// Ref is an entry's place, valid until the entry is removed.
type Ref struct {
	kg  uint32 // index of the shard
	num uint32
}

func (t *Cache[K, N, V]) at(sh *cacheShard[K, N, V], num uint32) *CacheEntry[K, N, V] {
	return &sh.chunks[num>>t.bits][num&(1<<t.bits-1)]
}

// At is the entry at a place.
func (t *Cache[K, N, V]) At(r Ref) *CacheEntry[K, N, V] { return t.at(&t.shards[r.kg], r.num) }

// Find gives the entry of a key, nil if there is none. It must not be changed in
// place.
func (t *Cache[K, N, V]) Find(group int, hash uint32, key K, ns N) (*CacheEntry[K, N, V], Ref) {
	kg := uint32(group - t.first)
	sh := &t.shards[kg]
	if sh.dir == nil {
		return nil, Ref{}
	}
	slots := sh.dir[hash>>sh.shift].slots
	mask := uint32(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := slots[i]
		if s == 0 {
			return nil, Ref{}
		}
		if uint32(s>>32) != hash {
			continue
		}
		num := uint32(s) - 1
		e := &sh.chunks[num>>t.bits][num&(1<<t.bits-1)]
		if t.equal == nil {
			if e.Key == key && e.NS == ns {
				return e, Ref{kg, num}
			}
		} else if t.equal(e.Key, e.NS, key, ns) {
			return e, Ref{kg, num}
		}
	}
}

// Set changes the value of an entry that Find gave.
func (t *Cache[K, N, V]) Set(e *CacheEntry[K, N, V], r Ref, v V) {
	if newest := t.views.newest.Load(); newest != 0 {
		t.setShared(e, r, v, newest)
		return
	}
	e.Val = v
}

func (t *Cache[K, N, V]) setShared(e *CacheEntry[K, N, V], r Ref, v V, newest uint32) {
	sh := &t.shards[r.kg]
	sh.mu.Lock()
	t.keep(sh, e, r.num, newest)
	e.Val = v
	sh.mu.Unlock()
}

// Frozen reports whether an open view reads the entry as it is, so that what its
// value points to must not change.
func (t *Cache[K, N, V]) Frozen(e *CacheEntry[K, N, V]) bool {
	newest := t.views.newest.Load()
	return newest != 0 && e.ver>>1 <= newest
}

// Insert adds an entry that Find did not find.
func (t *Cache[K, N, V]) Insert(group int, hash uint32, key K, ns N, v V) Ref {
	kg := uint32(group - t.first)
	sh := &t.shards[kg]
	t.live++
	newest := t.views.newest.Load()
	if newest == 0 {
		sh.old = nil
		return Ref{kg, t.insert(sh, hash, key, ns, v, 0)}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return Ref{kg, t.insert(sh, hash, key, ns, v, newest)}
}

func (t *Cache[K, N, V]) insert(sh *cacheShard[K, N, V], hash uint32, key K, ns N, v V, newest uint32) uint32 {
	var num uint32
	if n := len(sh.free); n > 0 {
		num = sh.free[n-1]
		sh.free = sh.free[:n-1]
	} else {
		num = sh.used
		c := num >> t.bits
		switch {
		case int(c) == len(sh.chunks):
			size := 1 << t.bits
			if c == 0 {
				size = 4
			}
			sh.chunks = append(sh.chunks, make([]CacheEntry[K, N, V], size))
		case c == 0 && int(num) == len(sh.chunks[0]): // a key group's first chunk grows
			grown := make([]CacheEntry[K, N, V], min(2*len(sh.chunks[0]), 1<<t.bits))
			copy(grown, sh.chunks[0])
			sh.chunks[0] = grown
		}
		sh.used++
	}
	e := t.at(sh, num)
	if newest != 0 {
		t.keep(sh, e, num, newest)
	}
	e.Key, e.NS, e.Val, e.ver = key, ns, v, t.views.epoch<<1|1
	sh.live++
	sh.link(hash, num)
	return num
}

// Remove removes an entry that Find gave.
func (t *Cache[K, N, V]) Remove(hash uint32, e *CacheEntry[K, N, V], r Ref) {
	sh := &t.shards[r.kg]
	t.live--
	newest := t.views.newest.Load()
	if newest == 0 {
		sh.old = nil
		*e = CacheEntry[K, N, V]{}
		sh.unlink(hash, r.num)
		sh.free = append(sh.free, r.num)
		sh.live--
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t.keep(sh, e, r.num, newest)
	*e = CacheEntry[K, N, V]{ver: t.views.epoch << 1}
	sh.unlink(hash, r.num)
	sh.free = append(sh.free, r.num)
	sh.live--
}

// Next gives the first live entry at or behind a number of a key group, and the
// number to go on with; nil at the end. Between two calls the table may change:
// an entry added meanwhile may be seen or not.
func (t *Cache[K, N, V]) Next(group int, from uint32) (e *CacheEntry[K, N, V], next uint32) {
	sh := &t.shards[group-t.first]
	for ; from < sh.used; from++ {
		if e := t.at(sh, from); e.ver&1 != 0 {
			return e, from + 1
		}
	}
	return nil, from
}

// RefOf is the place of an entry that Next gave with that next number.
func (t *Cache[K, N, V]) RefOf(group int, next uint32) Ref {
	return Ref{uint32(group - t.first), next - 1}
}

// Groups are the first key group and their count.
func (t *Cache[K, N, V]) Groups() (first, count int) { return t.first, len(t.shards) }

// Live reports whether the entry is there.
func (e *CacheEntry[K, N, V]) Live() bool { return e.ver&1 != 0 }

// Number is the entry's number in its key group.
func (r Ref) Number() uint32 { return r.num }

// Shard is the key group's position among those of the table.
func (r Ref) Shard() int { return int(r.kg) }

// RefTo is the place of an entry by its Shard and Number.
func RefTo(shard int, num uint32) Ref { return Ref{uint32(shard), num} }
