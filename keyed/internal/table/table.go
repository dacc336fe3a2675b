// Package table holds the entries of keyed state as native Go values: a hash table
// for each key group whose entries never move while they are read, with frozen
// views that other goroutines read while the owner changes the table.
//
// # Layout
//
// Entries lie in chunks of a key group and are found through an index of
// extendible hashing: a directory of segments of at most 1024 slots of 8 bytes,
// each the hash's 32 bits and the entry's number. A full segment splits in two, so
// that growth never costs more than the copy of one segment and of the directory,
// and no array is larger than 32 KiB. Chunks of pointer-free types are memory the
// garbage collector does not look into.
//
// # Frozen views
//
// Only the owner goroutine uses the index and changes entries. While a view is
// open, the first change of an entry since then keeps the entry's old version in
// a list beside the key group: copy-on-write at entry grain. A reader takes a
// batch of entries under the key group's lock, each from the table if it is as old
// as the view, else from the list. Without an open view nothing is locked.
package table

import (
	"sync"
	"unsafe"
)

// Entry is one entry of a table: live if the lowest bit of ver is set; the other
// bits are the epoch of its last change.
type Entry[K, N comparable, V any] struct {
	Key K
	NS  N
	Val V
	ver uint32
}

// Equal compares the keys and namespaces of entries for which == would be wrong.
type Equal[K, N comparable] func(k1 K, n1 N, k2 K, n2 N) bool

// Table maps keys and namespaces to values, for each key group apart.
//
// Methods belong to the owner goroutine, except those that take a View.
type Table[K, N comparable, V any] struct {
	shards []shard[K, N, V]
	first  int // key group of shards[0]
	views  *Views
	equal  Equal[K, N] // nil: ==
	hash   func(K, N) uint32
	bits   uint // of an entry's number within a chunk
	live   int
}

// shard is the table of one key group.
type shard[K, N comparable, V any] struct {
	mu     sync.Mutex // held by readers, and by the owner while a view is open
	dir    []place    // by the first bits of the hash
	shift  uint8      // 32 - bits of dir
	chunks [][]Entry[K, N, V]
	used   uint32 // entries of chunks that were ever used
	free   []uint32
	live   int
	old    *oldVersions[K, N, V]
}

// New is an empty table for count key groups from first on. hash gives the hash
// under which an entry is found.
func New[K, N comparable, V any](views *Views, first, count int, equal Equal[K, N], hash func(K, N) uint32) *Table[K, N, V] {
	t := &Table[K, N, V]{views: views, first: first, equal: equal, hash: hash, shards: make([]shard[K, N, V], count)}
	const chunkBytes = 32 << 10
	for t.bits = 3; t.bits < 8 && unsafe.Sizeof(Entry[K, N, V]{})<<(t.bits+1) <= chunkBytes; {
		t.bits++
	}
	return t
}

// Len is the number of live entries.
func (t *Table[K, N, V]) Len() int { return t.live }

// Views are those the table was made with.
func (t *Table[K, N, V]) Views() *Views { return t.views }

// Ref is an entry's place, valid until the entry is removed.
type Ref struct {
	kg  uint32 // index of the shard
	num uint32
}

func (t *Table[K, N, V]) at(sh *shard[K, N, V], num uint32) *Entry[K, N, V] {
	return &sh.chunks[num>>t.bits][num&(1<<t.bits-1)]
}

// At is the entry at a place.
func (t *Table[K, N, V]) At(r Ref) *Entry[K, N, V] { return t.at(&t.shards[r.kg], r.num) }

// Find gives the entry of a key, nil if there is none. It must not be changed in
// place.
func (t *Table[K, N, V]) Find(group int, hash uint32, key K, ns N) (*Entry[K, N, V], Ref) {
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
func (t *Table[K, N, V]) Set(e *Entry[K, N, V], r Ref, v V) {
	if newest := t.views.newest.Load(); newest != 0 {
		t.setShared(e, r, v, newest)
		return
	}
	e.Val = v
}

func (t *Table[K, N, V]) setShared(e *Entry[K, N, V], r Ref, v V, newest uint32) {
	sh := &t.shards[r.kg]
	sh.mu.Lock()
	t.keep(sh, e, r.num, newest)
	e.Val = v
	sh.mu.Unlock()
}

// Frozen reports whether an open view reads the entry as it is, so that what its
// value points to must not change.
func (t *Table[K, N, V]) Frozen(e *Entry[K, N, V]) bool {
	newest := t.views.newest.Load()
	return newest != 0 && e.ver>>1 <= newest
}

// Insert adds an entry that Find did not find.
func (t *Table[K, N, V]) Insert(group int, hash uint32, key K, ns N, v V) Ref {
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

func (t *Table[K, N, V]) insert(sh *shard[K, N, V], hash uint32, key K, ns N, v V, newest uint32) uint32 {
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
			sh.chunks = append(sh.chunks, make([]Entry[K, N, V], size))
		case c == 0 && int(num) == len(sh.chunks[0]): // a key group's first chunk grows
			grown := make([]Entry[K, N, V], min(2*len(sh.chunks[0]), 1<<t.bits))
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
func (t *Table[K, N, V]) Remove(hash uint32, e *Entry[K, N, V], r Ref) {
	sh := &t.shards[r.kg]
	t.live--
	newest := t.views.newest.Load()
	if newest == 0 {
		sh.old = nil
		*e = Entry[K, N, V]{}
		sh.unlink(hash, r.num)
		sh.free = append(sh.free, r.num)
		sh.live--
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t.keep(sh, e, r.num, newest)
	*e = Entry[K, N, V]{ver: t.views.epoch << 1}
	sh.unlink(hash, r.num)
	sh.free = append(sh.free, r.num)
	sh.live--
}

// Next gives the first live entry at or behind a number of a key group, and the
// number to go on with; nil at the end. Between two calls the table may change:
// an entry added meanwhile may be seen or not.
func (t *Table[K, N, V]) Next(group int, from uint32) (e *Entry[K, N, V], next uint32) {
	sh := &t.shards[group-t.first]
	for ; from < sh.used; from++ {
		if e := t.at(sh, from); e.ver&1 != 0 {
			return e, from + 1
		}
	}
	return nil, from
}

// RefOf is the place of an entry that Next gave with that next number.
func (t *Table[K, N, V]) RefOf(group int, next uint32) Ref {
	return Ref{uint32(group - t.first), next - 1}
}

// Groups are the first key group and their count.
func (t *Table[K, N, V]) Groups() (first, count int) { return t.first, len(t.shards) }

// Load adds or replaces an entry. Loads of different key groups may go on at a time;
// nothing else may, until Loaded.
func (t *Table[K, N, V]) Load(group int, hash uint32, key K, ns N, v V) (e *Entry[K, N, V], added bool) {
	sh := &t.shards[group-t.first]
	if e, _ := t.Find(group, hash, key, ns); e != nil {
		e.Val = v
		return e, false
	}
	return t.at(sh, t.insert(sh, hash, key, ns, v, 0)), true
}

// Loaded ends loading.
func (t *Table[K, N, V]) Loaded() {
	t.live = 0
	for i := range t.shards {
		t.live += t.shards[i].live
	}
}

// Live reports whether the entry is there.
func (e *Entry[K, N, V]) Live() bool { return e.ver&1 != 0 }

// Number is the entry's number in its key group.
func (r Ref) Number() uint32 { return r.num }
