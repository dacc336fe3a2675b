package table

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/tidwall/btree"
)

// Pair is an entry of a map.
type Pair[A, B any] struct {
	Key   A
	Value B
}

// Sorted is the content of one map state's key: a sorted run, or a tree from
// treeFrom entries on.
type Sorted struct {
	run Run
}

func (s Sorted) tree() bool { return s.run.kind == treeRun }

// Len is the number of entries.
func (s Sorted) Len() int { return int(s.run.n) }

// SmallMap is the most entries of a map that is no tree.
const SmallMap = 64

// Large reports whether a map is a tree.
func (s Sorted) Large() bool { return s.tree() }

const (
	treeFrom = SmallMap + 1 // entries
	runTo    = 32           // and back
	scanTo   = 12           // entries are compared one by one
)

// SortedStore holds the maps of a state. Small ones are runs of an Arena, larger
// ones are B-trees with copy-on-write nodes.
//
// Methods belong to the owner, except Frozen.
type SortedStore[A comparable, B any] struct {
	arena *Arena[Pair[A, B]]
	order func(a, b A) int
	equal func(a, b A) bool // nil: ==

	// hints are where user keys were found last, by their hash: maps of a state often
	// have the same keys. They are for keys of 8 bytes that are compared by ==.
	hints [64]uint8
	word  bool
	// doubt counts down lookups without hints after one that was wrong.
	doubt uint8

	mu    sync.RWMutex // guards the slice, not the trees
	trees []*btree.BTreeG[Pair[A, B]]
	free  []uint32
	limbo []limboRun
}

// NewSortedStore is an empty store. order sorts the keys; equal is nil where ==
// tells whether keys are the same.
func NewSortedStore[A comparable, B any](views *Views, order func(a, b A) int, equal func(a, b A) bool) *SortedStore[A, B] {
	t := reflect.TypeFor[A]()
	return &SortedStore[A, B]{arena: NewArena[Pair[A, B]](views), order: order, equal: equal, word: equal == nil && t.Size() == 8 && !HasPointers(t)}
}

// search gives where a key stands or belongs in a sorted run.
func (st *SortedStore[A, B]) search(p []Pair[A, B], key A) (int, bool) {
	lo, hi := 0, len(p)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := st.order(p[mid].Key, key); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true
		}
	}
	return lo, false
}

// find gives where a key stands.
func (st *SortedStore[A, B]) find(p []Pair[A, B], key A) (int, bool) {
	if st.equal == nil && len(p) <= scanTo {
		for i := range p {
			if p[i].Key == key {
				return i, true
			}
		}
		return 0, false
	}
	return st.search(p, key)
}

const (
	hintBehind = 0xff // the key was behind the last one of the map
	hintPause  = 15   // lookups
)

// Find gives the entry of a key, nil if there is none; of a tree, a copy of it.
//
// What is done with memory that is waited for keeps the processor from beginning
// the next lookup. So where a hint is right only one key is compared.
func (st *SortedStore[A, B]) Find(s *Sorted, key A) *Pair[A, B] {
	n := uintptr(s.run.n)
	if !st.word || st.doubt > 0 || s.run.kind != arenaRun || n-1 >= scanTo {
		return st.findAll(s, key)
	}
	hint := st.hints[*(*uint64)(unsafe.Pointer(&key))*0x9e3779b97f4a7c15>>58]
	first := st.arena.first(&s.run)
	if hint == hintBehind {
		if last := (*Pair[A, B])(unsafe.Add(first, (n-1)*unsafe.Sizeof(Pair[A, B]{}))); st.order(last.Key, key) < 0 {
			return nil
		}
	} else if uintptr(hint) < n {
		if p := (*Pair[A, B])(unsafe.Add(first, uintptr(hint)*unsafe.Sizeof(Pair[A, B]{}))); p.Key == key {
			return p
		}
	}
	st.doubt = hintPause
	return st.findAll(s, key)
}

// findAll is Find without hints, and makes one.
func (st *SortedStore[A, B]) findAll(s *Sorted, key A) *Pair[A, B] {
	if st.doubt > 0 {
		st.doubt--
	}
	n := uintptr(s.run.n)
	if st.equal != nil || n > scanTo || s.run.kind != arenaRun {
		return st.findFar(s, key)
	}
	// All are compared, in a loop of which the number of rounds depends on the length
	// alone: a branch that is guessed wrong is found out when the entries have come from
	// memory, and all that was begun since is lost.
	size := unsafe.Sizeof(Pair[A, B]{})
	first := st.arena.first(&s.run)
	at := ^uintptr(0)
	for i := range n {
		if (*Pair[A, B])(unsafe.Add(first, i*size)).Key == key {
			at = i
		}
	}
	if st.word {
		hint := uint8(at)
		if at > n && st.order((*Pair[A, B])(unsafe.Add(first, (n-1)*size)).Key, key) > 0 {
			hint = 0 // between others
		}
		st.hints[*(*uint64)(unsafe.Pointer(&key))*0x9e3779b97f4a7c15>>58] = hint
	}
	if at > n {
		return nil
	}
	return (*Pair[A, B])(unsafe.Add(first, at*size))
}

func (st *SortedStore[A, B]) findFar(s *Sorted, key A) *Pair[A, B] {
	if s.run.kind == treeRun {
		if p, ok := st.trees[s.run.low].Get(Pair[A, B]{Key: key}); ok {
			return &p
		}
		return nil
	}
	p := st.arena.Get(s.run)
	if i, ok := st.find(p, key); ok {
		return &p[i]
	}
	return nil
}

// Insert adds a key that is not there to a small map where it stands, if there is room.
// No view is open.
func (st *SortedStore[A, B]) Insert(s *Sorted, key A, v B) bool {
	n := int(s.run.n)
	if s.run.kind != arenaRun || n >= roomOf(s.run.class) || n >= SmallMap {
		return false
	}
	s.run.n++
	p := st.arena.Elements(&s.run)
	i := n
	if st.order(p[n-1].Key, key) > 0 {
		i, _ = st.search(p[:n], key)
		copy(p[i+1:], p[i:])
	}
	p[i] = Pair[A, B]{key, v}
	return true
}

// Delete removes a key from a small map where it stands, if it need not move and is
// not empty then: done is false otherwise, or there was no such key. No view is open.
func (st *SortedStore[A, B]) Delete(s *Sorted, key A) (done bool) {
	n := int(s.run.n)
	if s.run.kind != arenaRun || n < 2 || s.run.class >= 3 && (n-1)*4 <= roomOf(s.run.class) {
		return false
	}
	p := st.arena.Elements(&s.run)
	if p[n-1].Key != key || st.equal != nil {
		at := st.Find(s, key)
		if at == nil {
			return false
		}
		i := int((uintptr(unsafe.Pointer(at)) - uintptr(unsafe.Pointer(&p[0]))) / max(1, unsafe.Sizeof(*at)))
		copy(p[i:], p[i+1:])
	}
	if st.arena.pointers {
		p[n-1] = Pair[A, B]{}
	}
	s.run.n--
	return true
}

// Get gives the value of a key.
func (st *SortedStore[A, B]) Get(s Sorted, key A) (v B, ok bool) {
	if s.tree() {
		p, ok := st.trees[s.run.low].Get(Pair[A, B]{Key: key})
		return p.Value, ok
	}
	p := st.arena.Get(s.run)
	if i, ok := st.find(p, key); ok {
		return p[i].Value, true
	}
	return v, false
}

// Put sets the value of a key.
func (st *SortedStore[A, B]) Put(s Sorted, key A, v B) Sorted {
	if s.tree() {
		s = st.thaw(s)
		t := st.trees[s.run.low]
		t.Set(Pair[A, B]{key, v})
		s.run.n = uint32(t.Len())
		return s
	}
	p := st.arena.Get(s.run)
	i, ok := st.find(p, key)
	if ok {
		if !st.arena.Frozen(s.run) {
			p[i].Value = v
			return s
		}
		to := st.arena.Alloc(len(p))
		q := st.arena.Get(to)
		copy(q, p)
		q[i].Value = v
		st.arena.Free(s.run)
		return Sorted{run: to}
	}
	if len(p) > 0 && st.order(p[len(p)-1].Key, key) < 0 {
		i = len(p)
	} else {
		i, _ = st.search(p, key)
	}
	if len(p)+1 >= treeFrom {
		return st.plant(s, Pair[A, B]{key, v})
	}
	if i == len(p) { // behind the end no view looks
		s.run = st.arena.Append1(s.run, Pair[A, B]{key, v})
		return s
	}
	if s.run.kind == arenaRun && !st.arena.Frozen(s.run) && len(p) < roomOf(s.run.class) {
		p = st.arena.room(s.run.place(), s.run.class)[:len(p)+1]
		copy(p[i+1:], p[i:])
		p[i] = Pair[A, B]{key, v}
		s.run.n++
		return s
	}
	to := st.arena.Alloc(len(p) + 1)
	q := st.arena.Get(to)
	copy(q, p[:i])
	q[i] = Pair[A, B]{key, v}
	copy(q[i+1:], p[i:])
	st.arena.Free(s.run)
	return Sorted{run: to}
}

// Remove removes a key that may be there.
func (st *SortedStore[A, B]) Remove(s Sorted, key A) (Sorted, bool) {
	if s.tree() {
		if _, ok := st.trees[s.run.low].Get(Pair[A, B]{Key: key}); !ok {
			return s, false
		}
		s = st.thaw(s)
		t := st.trees[s.run.low]
		t.Delete(Pair[A, B]{Key: key})
		s.run.n = uint32(t.Len())
		if t.Len() > runTo {
			return s, true
		}
		to := st.arena.Alloc(t.Len())
		q := st.arena.Get(to)[:0]
		t.Scan(func(p Pair[A, B]) bool {
			q = append(q, p)
			return true
		})
		st.fell(s.run)
		return Sorted{run: to}, true
	}
	p := st.arena.Get(s.run)
	i, ok := st.find(p, key)
	if !ok {
		return s, false
	}
	if len(p) == 1 {
		st.arena.Free(s.run)
		return Sorted{}, true
	}
	// A run that is mostly empty moves to a smaller one.
	if st.arena.Frozen(s.run) || s.run.class >= 3 && (len(p)-1)*4 <= roomOf(s.run.class) {
		to := st.arena.Alloc(len(p) - 1)
		q := st.arena.Get(to)
		copy(q, p[:i])
		copy(q[i:], p[i+1:])
		st.arena.Free(s.run)
		return Sorted{run: to}, true
	}
	copy(p[i:], p[i+1:])
	if st.arena.pointers {
		clear(p[len(p)-1:])
	}
	s.run.n--
	return s, true
}

// Each calls f for each entry in order until it returns false, beginning with the
// first key that is not below from, if from is not nil. The map must not change
// meanwhile.
func (st *SortedStore[A, B]) Each(s Sorted, from *A, f func(k A, v B) bool) {
	if s.tree() {
		visit := func(p Pair[A, B]) bool { return f(p.Key, p.Value) }
		if from != nil {
			st.trees[s.run.low].Ascend(Pair[A, B]{Key: *from}, visit)
		} else {
			st.trees[s.run.low].Scan(visit)
		}
		return
	}
	p := st.arena.Get(s.run)
	if from != nil {
		i, _ := st.search(p, *from)
		p = p[i:]
	}
	for i := range p {
		if !f(p[i].Key, p[i].Value) {
			return
		}
	}
}

// Run is the content of a small map, in order; ok is false for a tree.
func (st *SortedStore[A, B]) Run(s Sorted) (p []Pair[A, B], ok bool) {
	if s.tree() {
		return nil, false
	}
	return st.arena.Get(s.run), true
}

// Frozen calls f for each entry of a map that a view holds. Any goroutine may
// call it.
func (st *SortedStore[A, B]) Frozen(s Sorted, f func(k A, v B) bool) {
	if !s.tree() {
		for _, p := range st.arena.At(s.run) {
			if !f(p.Key, p.Value) {
				return
			}
		}
		return
	}
	st.mu.RLock()
	t := st.trees[s.run.low]
	st.mu.RUnlock()
	t.Scan(func(p Pair[A, B]) bool { return f(p.Key, p.Value) })
}

// Free gives a map back.
func (st *SortedStore[A, B]) Free(s Sorted) {
	if s.tree() {
		st.fell(s.run)
		return
	}
	st.arena.Free(s.run)
}

// plant makes a tree of a full run and one more entry.
func (st *SortedStore[A, B]) plant(s Sorted, more Pair[A, B]) Sorted {
	t := btree.NewBTreeGOptions(func(a, b Pair[A, B]) bool { return st.order(a.Key, b.Key) < 0 }, btree.Options{NoLocks: true, Degree: 16})
	for _, p := range st.arena.Get(s.run) {
		t.Load(p)
	}
	t.Set(more)
	st.arena.Free(s.run)
	return Sorted{Run{low: st.add(t), n: uint32(t.Len()), epoch: st.arena.views.epoch, kind: treeRun}}
}

// thaw makes a tree that may change: of a frozen one a copy that shares its nodes.
func (st *SortedStore[A, B]) thaw(s Sorted) Sorted {
	if !st.arena.Frozen(s.run) {
		return s
	}
	t := st.trees[s.run.low].Copy()
	old := s.run
	s.run.low, s.run.epoch = st.add(t), st.arena.views.epoch
	st.fell(old)
	return s
}

func (st *SortedStore[A, B]) add(t *btree.BTreeG[Pair[A, B]]) uint32 {
	st.recycle()
	st.mu.Lock()
	defer st.mu.Unlock()
	if n := len(st.free); n > 0 {
		off := st.free[n-1]
		st.free = st.free[:n-1]
		st.trees[off] = t
		return off
	}
	st.trees = append(st.trees, t)
	return uint32(len(st.trees) - 1)
}

// fell gives a tree's number back, as soon as no view can read it.
func (st *SortedStore[A, B]) fell(r Run) {
	if st.arena.Frozen(r) {
		st.limbo = append(st.limbo, limboRun{from: r.epoch, until: st.arena.views.epoch, place: uint64(r.low)})
		return
	}
	st.drop(r.low)
}

func (st *SortedStore[A, B]) drop(off uint32) {
	st.mu.Lock()
	st.trees[off] = nil
	st.mu.Unlock()
	st.free = append(st.free, off)
}

// recycle drops some of the trees that no open view can read any more.
func (st *SortedStore[A, B]) recycle() {
	for range min(8, len(st.limbo)) {
		l := st.limbo[0]
		st.limbo = st.limbo[1:]
		if st.arena.views.needed(l.from, l.until) {
			st.limbo = append(st.limbo, l)
		} else {
			st.drop(uint32(l.place))
		}
	}
}

// From is the end of a small map that begins with the first key not below from.
func (st *SortedStore[A, B]) From(s Sorted, from A) []Pair[A, B] {
	p := st.arena.Get(s.run)
	i, _ := st.search(p, from)
	return p[i:]
}

// Hold is Each of a map that may change meanwhile: f sees it as it is now.
func (st *SortedStore[A, B]) Hold(s Sorted, from *A, f func(k A, v B) bool) {
	if !s.tree() {
		p := st.arena.Get(s.run)
		if from != nil {
			p = st.From(s, *from)
		}
		for _, e := range append([]Pair[A, B](nil), p...) {
			if !f(e.Key, e.Value) {
				return
			}
		}
		return
	}
	// The tree goes on under its number; what is iterated shares its nodes.
	t := st.trees[s.run.low].Copy()
	visit := func(p Pair[A, B]) bool { return f(p.Key, p.Value) }
	if from != nil {
		t.Ascend(Pair[A, B]{Key: *from}, visit)
	} else {
		t.Scan(visit)
	}
}

// FrozenGet is Get of a map that a view holds. Any goroutine may call it.
func (st *SortedStore[A, B]) FrozenGet(s Sorted, key A) (v B, ok bool) {
	if s.tree() {
		st.mu.RLock()
		t := st.trees[s.run.low]
		st.mu.RUnlock()
		p, ok := t.Get(Pair[A, B]{Key: key})
		return p.Value, ok
	}
	p := st.arena.At(s.run)
	if i, ok := st.find(p, key); ok {
		return p[i].Value, true
	}
	return v, false
}
