package table

import (
	"math/bits"
	"reflect"
	"sync/atomic"
	"unsafe"
)

// Run is a piece of an arena: n elements, with room for those of its class. Zero is
// the empty run, which has no room.
type Run struct {
	n     uint32
	epoch uint32 // when it was allocated
	low   uint32 // of the place, see Arena
	high  uint16
	class uint8
	kind  runKind
}

type runKind uint8

const (
	noRun runKind = iota
	arenaRun
	treeRun // of a SortedStore: low is the tree's number
)

// Len is the number of elements.
func (r Run) Len() int { return int(r.n) }

func (r Run) place() uint64 { return uint64(r.high)<<32 | uint64(r.low) }

// Arena holds runs of elements whose number varies, in blocks of 16 KiB
// or one larger run, so that lists of pointer-free elements are no objects for the
// garbage collector. A run's place is its block's number and, in the lowest bits, its
// first element in the block. Runs have room for 1, 2, 3, 4, 6, 8, 12 and so on
// elements: their class. A run that a view may read is not overwritten: see Free.
//
// Methods belong to the owner, except At.
type Arena[T any] struct {
	views    *Views
	blocks   []*T
	shared   atomic.Pointer[[]*T] // blocks, for other goroutines
	shift    uint8                // elements of a block
	pointers bool                 // T has pointers: what is freed is cleared
	mem      memory[T]
	classes  [64]arenaClass
	limbo    []limboRun
	drained  int // of limbo
}

type arenaClass struct {
	free      []uint64 // places
	next, end uint64   // of the block that is being used
}

// limboRun is a run that was freed while a view saw it: it was there from an epoch until
// another.
type limboRun struct {
	from, until uint32
	class       uint8
	place       uint64
}

// NewArena is an empty arena.
func NewArena[T any](views *Views) *Arena[T] {
	a := &Arena[T]{views: views, pointers: HasPointers(reflect.TypeFor[T]())}
	var e T
	for a.shift < 14 && unsafe.Sizeof(e)<<(a.shift+1) <= 16<<10 {
		a.shift++
	}
	a.mem.size = 1 << a.shift
	return a
}

// HasPointers tells whether the garbage collector looks into values of a type.
func HasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && HasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if HasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.String, reflect.Slice, reflect.Pointer, reflect.Map, reflect.Chan, reflect.Func, reflect.Interface, reflect.UnsafePointer:
		return true
	}
	return false
}

// classOf is the class of runs with room for n elements.
func classOf(n int) uint8 {
	if n <= 2 {
		return uint8(max(n, 1) - 1)
	}
	b := bits.Len(uint(n - 1))
	if n <= 3<<(b-2) {
		return uint8(2*b - 2)
	}
	return uint8(2*b - 1)
}

// rooms are the numbers of elements that runs of a class have room for.
var rooms = func() (r [64]int) {
	for c := range r {
		if r[c] = 3 << max(c/2-1, 0); c&1 == 1 {
			r[c] = 1 << (c/2 + 1)
		}
	}
	r[0] = 1
	return r
}()

func roomOf(class uint8) int { return rooms[class&63] }

func elements[T any](blocks []*T, shift uint8, place uint64, n, room int) []T {
	p := unsafe.Add(unsafe.Pointer(blocks[place>>(shift&63)]), uintptr(place&(1<<(shift&63)-1))*unsafe.Sizeof(*new(T)))
	return *(*[]T)(unsafe.Pointer(&slice{p, n, room}))
}

// room is a run's memory, with its whole capacity. Owner only.
func (a *Arena[T]) room(place uint64, class uint8) []T {
	n := roomOf(class)
	return elements(a.blocks, a.shift, place, n, n)
}

// Get are the elements of a run, for the owner.
func (a *Arena[T]) Get(r Run) []T {
	if r.kind != arenaRun {
		return nil
	}
	return elements(a.blocks, a.shift, r.place(), int(r.n), int(r.n))
}

// Elements is Get of a run where it stands, for what is done for each record.
func (a *Arena[T]) Elements(r *Run) []T {
	if r.kind != arenaRun {
		return nil
	}
	// unsafe.Slice checks what cannot be.
	return *(*[]T)(unsafe.Pointer(&slice{a.first(r), int(r.n), int(r.n)}))
}

type slice struct {
	first    unsafe.Pointer
	len, cap int
}

// first is a run's first element.
func (a *Arena[T]) first(r *Run) unsafe.Pointer {
	low, shift := r.low, a.shift&31
	var e T
	block := a.blocks[(uint64(r.high)<<32|uint64(low))>>shift]
	return unsafe.Add(unsafe.Pointer(block), uintptr(low&(1<<shift-1))*unsafe.Sizeof(e))
}

// Push appends an element to a run where it stands, if there is room.
func (a *Arena[T]) Push(r *Run, v T) bool {
	if r.kind != arenaRun || int(r.n) >= rooms[r.class&63] {
		return false
	}
	*(*T)(unsafe.Add(a.first(r), uintptr(r.n)*unsafe.Sizeof(v))) = v
	r.n++
	return true
}

// At are the elements of a run that a view holds, for any goroutine.
func (a *Arena[T]) At(r Run) []T {
	if r.kind != arenaRun {
		return nil
	}
	return elements(*a.shared.Load(), a.shift, r.place(), int(r.n), int(r.n))
}

// Alloc is a run with n elements of any content.
func (a *Arena[T]) Alloc(n int) Run {
	class := classOf(n)
	if len(a.limbo) > 0 {
		a.recycle()
	}
	c := &a.classes[class]
	room := roomOf(class)
	var place uint64
	switch k := len(c.free); {
	case k > 0:
		place = c.free[k-1]
		c.free = c.free[:k-1]
		if b := &a.blocks[place>>a.shift]; *b == nil { // a large one that was let go
			*b = unsafe.SliceData(make([]T, room))
		}
	case room > 1<<a.shift:
		place = a.addBlock(make([]T, room))
	default:
		if c.end-c.next < uint64(room) {
			b, _ := a.mem.take()
			c.next = a.addBlock(b)
			c.end = c.next + uint64(len(b))
		}
		place = c.next
		c.next += uint64(room)
	}
	return Run{n: uint32(n), epoch: a.views.epoch, low: uint32(place), high: uint16(place >> 32), class: class, kind: arenaRun}
}

func (a *Arena[T]) addBlock(b []T) (place uint64) {
	a.blocks = append(a.blocks, unsafe.SliceData(b))
	shared := a.blocks
	a.shared.Store(&shared)
	return uint64(len(a.blocks)-1) << a.shift
}

// Frozen reports whether a view may read a run's elements, so that they must not
// be overwritten. What stands behind them may: versions of a list share a run.
func (a *Arena[T]) Frozen(r Run) bool {
	newest := a.views.newest.Load()
	return newest != 0 && r.epoch <= newest
}

// Resize gives a run with n elements of any content in place of another: the same
// one if its room may be used, else a new one, and the other is still to be freed.
func (a *Arena[T]) Resize(r Run, n int) (to Run, same bool) {
	if r.kind == arenaRun {
		if room := roomOf(r.class); n <= room && n*4 > room && !a.Frozen(r) {
			r.n = uint32(n)
			return r, true
		}
	}
	return a.Alloc(n), false
}

// Trim clears the elements behind a run that had n before it was resized.
func (a *Arena[T]) Trim(r Run, n int) {
	if n > int(r.n) && a.pointers {
		clear(a.room(r.place(), r.class)[r.n:n])
	}
}

// Append adds elements behind a run: in place if there is room, since who reads a
// frozen version does not look behind its end, else in a larger run.
func (a *Arena[T]) Append(r Run, v ...T) Run {
	n := int(r.n) + len(v)
	if r.kind != arenaRun || n > roomOf(r.class) {
		grown := a.Alloc(n)
		to := a.Get(grown)
		copy(to, a.Get(r))
		copy(to[r.n:], v)
		a.Free(r)
		return grown
	}
	copy(a.room(r.place(), r.class)[r.n:n], v)
	r.n = uint32(n)
	return r
}

// Append1 is Append of one element.
func (a *Arena[T]) Append1(r Run, v T) Run {
	if r.kind == arenaRun && int(r.n) < roomOf(r.class) {
		a.room(r.place(), r.class)[r.n] = v
		r.n++
		return r
	}
	grown := a.Alloc(int(r.n) + 1)
	to := a.Get(grown)
	copy(to, a.Get(r))
	to[r.n] = v
	a.Free(r)
	return grown
}

// Free gives a run back. It waits for the views that see it.
func (a *Arena[T]) Free(r Run) {
	if r.kind != arenaRun {
		return
	}
	if a.Frozen(r) {
		a.limbo = append(a.limbo, limboRun{r.epoch, a.views.epoch, r.class, r.place()})
		return
	}
	a.release(r.place(), r.class)
}

func (a *Arena[T]) release(place uint64, class uint8) {
	switch {
	case roomOf(class) > 1<<a.shift:
		a.blocks[place>>a.shift] = nil
	case a.pointers:
		clear(a.room(place, class)) // lets go what the elements point to
	}
	c := &a.classes[class]
	c.free = append(c.free, place)
}

// recycle gives back some of the runs that no open view can read any more. Those that one
// can, which may be open for long, go behind the others.
func (a *Arena[T]) recycle() {
	for range 4 {
		l := a.limbo[a.drained]
		if a.drained++; a.views.needed(l.from, l.until) {
			a.limbo = append(a.limbo, l)
			break
		}
		if a.release(l.place, l.class); a.drained == len(a.limbo) {
			a.limbo, a.drained = a.limbo[:0], 0
			if cap(a.limbo) > 1<<16 {
				a.limbo = nil
			}
			return
		}
	}
	if a.drained > 1<<10 && a.drained > len(a.limbo)/2 {
		a.limbo = append(a.limbo[:0], a.limbo[a.drained:]...)
		a.drained = 0
	}
}

// Room is the number of elements that a run of n has room for.
func Room(n int) int { return roomOf(classOf(n)) }
