// Package table holds the entries of keyed state as native Go values: a hash table
// for each key group, with frozen views that other goroutines read while the owner
// changes the table.
//
// # Layout
//
// A key group is a directory of segments, by the first bits of the hash (extendible
// hashing). A segment holds up to 896 entries themselves, in groups of 7 with a word
// of tags, which see. A full segment splits in two, so that growth never costs more
// than moving one segment and copying the directory; nearly empty ones are merged. The
// memory of segments with pointer-free types is not looked into by the
// garbage collector.
//
// # Frozen views
//
// Only the owner goroutine finds and changes entries without a lock. While a view is
// open, the first change of an entry since then keeps the entry's old version in
// a list of its segment: copy-on-write at entry grain. A reader takes a segment at a
// time under the key group's lock, in the order of hashes, which splitting
// and merging do not change: what is as old as the view from the slots, the rest from
// the list. Without an open view nothing is locked.
package table

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Entry is one entry of a table. Those without size stand first, or Go would pad them.
type Entry[K, N comparable, V any] struct {
	NS  N
	Val V
	Key K
}

// Equal compares the keys and namespaces of entries for which == would be wrong.
type Equal[K, N comparable] func(k1 K, n1 N, k2 K, n2 N) bool

// Table maps keys and namespaces to values, for each key group apart.
//
// Methods belong to the owner goroutine, except those that take a View. Pointers to
// entries are valid until an entry is inserted or removed.
type Table[K, N comparable, V any] struct {
	shards   []shard[K, N, V]
	first    int  // key group of shards[0]
	plain    uint // number of shards; 0 with equal
	views    *Views
	equal    Equal[K, N] // nil: ==
	hash     func(K, N) uint32
	keepHash bool
	pointers bool // entries have pointers
	groups   int  // of a full-grown segment
	none     *segment[K, N, V]
	mem      memory[Entry[K, N, V]]
	tagMem   memory[uint64]
	live     int
}

// shard is the table of one key group.
type shard[K, N comparable, V any] struct {
	dir   []place[K, N, V] // by the first bits of the hash
	shift uint8            // 32 - bits of dir
	mu    sync.Mutex       // held by readers, and by the owner while a view is open
	live  int
	// tally and spares are changed under mu.
	tally  tally
	spares spares[K, N, V]
	moves  uint32 // counts when entries moved or were removed
	// passed is the epoch up to which no view reads anything here any more, see Passed.
	// There are no old versions then; the first that is kept sets it to 0. It is
	// changed under mu.
	passed atomic.Uint32
	// deepest counts the segments with one place of the directory, unless it has but one.
	deepest int
}

// Options of a table.
type Options[K, N comparable] struct {
	// First and Count are the key groups.
	First, Count int
	// Equal is nil where == will do.
	Equal Equal[K, N]
	// Hash gives the hash under which an entry is found.
	Hash func(K, N) uint32
	// KeepHash keeps hashes beside the entries, where computing them when entries are
	// moved is dear.
	KeepHash bool
}

// New is an empty table.
func New[K, N comparable, V any](views *Views, o Options[K, N]) *Table[K, N, V] {
	t := &Table[K, N, V]{views: views, first: o.First, equal: o.Equal, hash: o.Hash, keepHash: o.KeepHash, pointers: HasPointers(reflect.TypeFor[Entry[K, N, V]]()), shards: make([]shard[K, N, V], o.Count)}
	if o.Equal == nil {
		t.plain = uint(o.Count)
	}
	const segmentBytes = 32 << 10
	size := int(max(1, unsafe.Sizeof(Entry[K, N, V]{})))
	for t.groups = 1; t.groups < maxGroups && 2*t.groups*groupSlots*size <= segmentBytes; {
		t.groups *= 2
	}
	t.mem.size, t.tagMem.size = t.groups*groupSlots, t.groups
	t.none = &segment[K, N, V]{tags: make([]uint64, 1)}
	empty := []place[K, N, V]{placeOf(t.none)} // never changed: room makes another
	for i := range t.shards {
		t.shards[i].dir, t.shards[i].shift = empty, 32
	}
	return t
}

// Len is the number of live entries.
func (t *Table[K, N, V]) Len() int { return t.live }

// Views are those the table was made with.
func (t *Table[K, N, V]) Views() *Views { return t.views }

// Groups are the first key group and their count.
func (t *Table[K, N, V]) Groups() (first, count int) { return t.first, len(t.shards) }

// Find gives the entry of a key, nil if there is none or the key group is not one of
// the table's. It must not be changed in place, except by Val.
func (t *Table[K, N, V]) Find(group int, hash uint32, key K, ns N) *Entry[K, N, V] {
	if t.equal != nil {
		return t.findEqual(group, hash, key, ns)
	}
	return t.FindPlain(group, hash, key, ns)
}

// Pointers tells whether entries have pointers.
func (t *Table[K, N, V]) Pointers() bool { return t.pointers }

// Plain tells whether keys and namespaces are compared by ==.
func (t *Table[K, N, V]) Plain() bool { return t.equal == nil }

// FindPlain is Find, except that a table with Options.Equal finds nothing.
//
// Nothing is called here and no bound is checked, so that it needs no frame: how many
// lookups the processor works on at a time, and with it the time that each waits for
// memory, depends on how few instructions each has. In generic code of another package
// even small functions are not inlined.
func (t *Table[K, N, V]) FindPlain(group int, hash uint32, key K, ns N) *Entry[K, N, V] {
	i := uint(group - t.first)
	if i >= t.plain {
		return nil
	}
	sh := (*shard[K, N, V])(unsafe.Add(unsafe.Pointer(unsafe.SliceData(t.shards)), uintptr(i)*unsafe.Sizeof(shard[K, N, V]{})))
	// A hash without its lowest shift bits is always a place of the directory.
	p := (*place[K, N, V])(unsafe.Add(unsafe.Pointer(unsafe.SliceData(sh.dir)), uintptr(uint64(hash)>>(sh.shift&63))*unsafe.Sizeof(place[K, N, V]{})))
	tags, slots, mask := p.tags, p.slots, p.mask
	want := uint64(hash>>7&0x7f|0x80) * lowBits
	at := hash & mask
	for {
		w := *(*uint64)(unsafe.Add(tags, uintptr(at)*8))
		x := w ^ want
		for m := (x - lowBits) & ^x & highBits; m != 0; m &= m - 1 {
			slot := uintptr(at)*groupSlots + uintptr((m&-m)*firstByte>>56)
			e := (*Entry[K, N, V])(unsafe.Add(slots, slot*unsafe.Sizeof(Entry[K, N, V]{})))
			if e.Key == key && e.NS == ns {
				return e
			}
		}
		if w < overOne {
			return nil
		}
		if at = (at + 1) & mask; at == hash&mask {
			return nil
		}
	}
}

func (t *Table[K, N, V]) findEqual(group int, hash uint32, key K, ns N) *Entry[K, N, V] {
	i := uint(group - t.first)
	if i >= uint(len(t.shards)) {
		return nil
	}
	seg := t.shards[i].place(hash).seg
	mask := uint32(len(seg.tags) - 1)
	for i := range mask + 1 {
		at := (hash + i) & mask
		w := seg.tags[at]
		x := w ^ tagOf(hash)*lowBits
		for m := (x - lowBits) & ^x & highBits; m != 0; m &= m - 1 {
			e := &seg.slots[uint64(at)*groupSlots+(m&-m)*firstByte>>56]
			if t.equal(e.Key, e.NS, key, ns) {
				return e
			}
		}
		if w < overOne {
			break
		}
	}
	return nil
}

// Touch brings the entry of a hash, if there is one, into the cache. A loop of calls
// waits for many entries at a time; what they return must be used.
func (t *Table[K, N, V]) Touch(group int, hash uint32) (x byte) {
	sh := &t.shards[group-t.first]
	p := &sh.dir[uint64(hash)>>(sh.shift&63)]
	at := hash & p.mask
	y := *(*uint64)(unsafe.Add(p.tags, uintptr(at)*8)) ^ uint64(hash>>7&0x7f|0x80)*lowBits
	if m := (y - lowBits) & ^y & highBits; m != 0 {
		slot := uintptr(at)*groupSlots + uintptr((m&-m)*firstByte>>56)
		x = *(*byte)(unsafe.Add(p.slots, slot*unsafe.Sizeof(Entry[K, N, V]{})))
	}
	return x
}

// Shared tells whether a view is open, so that entries are changed by Set. Otherwise
// their Val may be changed in place.
func (t *Table[K, N, V]) Shared() bool { return t.views.newest.Load() != 0 }

// read tells whether a key group is read from an open view, now or later.
func (t *Table[K, N, V]) read(sh *shard[K, N, V]) bool {
	newest := t.views.newest.Load()
	return newest != 0 && newest > sh.passed.Load()
}

// slotOf is the slot of an entry of a segment.
func (g *segment[K, N, V]) slotOf(e *Entry[K, N, V]) uint32 {
	return uint32((uintptr(unsafe.Pointer(e)) - uintptr(unsafe.Pointer(&g.slots[0]))) / max(1, unsafe.Sizeof(*e)))
}

// Set changes the value of an entry that Find gave for the key group and hash.
func (t *Table[K, N, V]) Set(group int, hash uint32, e *Entry[K, N, V], v V) {
	newest := t.views.newest.Load()
	if newest == 0 {
		e.Val = v
		return
	}
	sh := &t.shards[group-t.first]
	if newest <= sh.passed.Load() {
		e.Val = v
		return
	}
	// What the lock would wait for is asked for in front of it, all at a time.
	seg := sh.place(hash).seg
	slot := seg.slotOf(e)
	if c := seg.changed.Load(); c != nil {
		if c.epoch > newest && c.now(slot) { // no view sees it, so that nobody reads it
			e.Val = v
			return
		}
		c.touch()
	}
	sh.lock()
	t.keep(sh, seg, slot, hash)
	e.Val = v
	sh.mu.Unlock()
}

// lock is mu.Lock for the owner. Readers hold mu for some microseconds, which is less
// than it takes to sleep and be woken.
func (sh *shard[K, N, V]) lock() {
	for range 2000 {
		if sh.mu.TryLock() {
			return
		}
	}
	sh.mu.Lock()
}

// Insert adds an entry that Find did not find.
func (t *Table[K, N, V]) Insert(group int, hash uint32, key K, ns N, v V) *Entry[K, N, V] {
	sh := &t.shards[group-t.first]
	t.live++
	if !t.read(sh) {
		return t.insert(sh, hash, key, ns, v)
	}
	sh.lock()
	defer sh.mu.Unlock()
	sh.tally.note(t.views.epoch, sh.live)
	e := t.insert(sh, hash, key, ns, v)
	if t.views.readers.Load() > 0 {
		sh.passed.Store(0)
		seg := sh.place(hash).seg
		c := sh.changes(seg, t.views)
		c.set(seg.slotOf(e), c.epoch)
	}
	return e
}

func (t *Table[K, N, V]) insert(sh *shard[K, N, V], hash uint32, key K, ns N, v V) *Entry[K, N, V] {
	if sh.place(hash).seg.full() {
		t.room(sh, hash)
	}
	sh.live++
	seg := sh.place(hash).seg
	slot := seg.claim(hash)
	if seg.hashes != nil {
		seg.hashes[slot] = hash
	}
	if c := seg.changed.Load(); c != nil {
		c.set(slot, 0)
	}
	e := &seg.slots[slot]
	e.Key, e.NS, e.Val = key, ns, v
	return e
}

// Remove removes an entry that Find gave for the key group and hash.
func (t *Table[K, N, V]) Remove(group int, hash uint32, e *Entry[K, N, V]) {
	sh := &t.shards[group-t.first]
	seg := sh.place(hash).seg
	t.live--
	slot := seg.slotOf(e)
	if t.read(sh) {
		sh.lock()
		defer sh.mu.Unlock()
		sh.tally.note(t.views.epoch, sh.live)
		t.keep(sh, seg, slot, hash)
	}
	*e = Entry[K, N, V]{}
	seg.vacate(hash, slot)
	sh.live--
	sh.moves++
	if 8*seg.n < len(seg.slots) {
		t.shrink(sh, hash)
	}
}

// Moves counts the changes of a key group that may have moved its entries.
func (t *Table[K, N, V]) Moves(group int) uint32 { return t.shards[group-t.first].moves }

// Load adds or replaces an entry. Loads of different key groups may go on at a time;
// nothing else may, until Loaded.
func (t *Table[K, N, V]) Load(group int, hash uint32, key K, ns N, v V) (e *Entry[K, N, V], added bool) {
	if e := t.Find(group, hash, key, ns); e != nil {
		e.Val = v
		return e, false
	}
	return t.insert(&t.shards[group-t.first], hash, key, ns, v), true
}

// Loaded ends loading.
func (t *Table[K, N, V]) Loaded() {
	t.live = 0
	for i := range t.shards {
		t.live += t.shards[i].live
	}
}
