package table

import (
	"math/bits"
	"sync"
)

// Run is a piece of an arena: n elements of room for 1<<class.
type Run struct {
	off   uint32
	n     uint32
	epoch uint32 // when it was allocated
	class uint8
	used  bool // false: the empty run, which has no room
}

// Len is the number of elements.
func (r Run) Len() int { return int(r.n) }

// Arena holds runs of elements whose number varies, in blocks of 1024 elements
// or one larger run, so that lists of pointer-free elements are no objects for the
// garbage collector. A run that a view may read is not overwritten: see Free.
//
// Methods belong to the owner, except At.
type Arena[T any] struct {
	views   *Views
	mu      sync.RWMutex // guards the slices of blocks, not the elements
	classes [32]arenaClass[T]
	limbo   []limboRun
	drained int // of limbo
}

type arenaClass[T any] struct {
	blocks [][]T
	next   uint32 // runs ever used
	free   []uint32
}

// limboRun is a run that was freed while views were open.
type limboRun struct {
	epoch uint32
	off   uint32
	class uint8
}

const blockShift = 10

// NewArena is an empty arena.
func NewArena[T any](views *Views) *Arena[T] { return &Arena[T]{views: views} }

// perBlock is the number of runs of a block, as a shift.
func perBlock(class uint8) uint8 {
	if class >= blockShift {
		return 0
	}
	return blockShift - class
}

// room is the run's memory, with its whole capacity. Owner only.
func (a *Arena[T]) room(off uint32, class uint8) []T {
	s := perBlock(class)
	at := (off & (1<<s - 1)) << class
	return a.classes[class].blocks[off>>s][at : at+1<<class : at+1<<class]
}

// Get are the elements of a run, for the owner.
func (a *Arena[T]) Get(r Run) []T {
	if !r.used {
		return nil
	}
	return a.room(r.off, r.class)[:r.n]
}

// At are the elements of a run that a view holds, for any goroutine.
func (a *Arena[T]) At(r Run) []T {
	if !r.used {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.room(r.off, r.class)[:r.n:r.n]
}

// Class is the class of runs with room for n elements.
func Class(n int) uint8 {
	if n <= 1 {
		return 0
	}
	return uint8(bits.Len(uint(n - 1)))
}

// Alloc is a run with n elements of any content.
func (a *Arena[T]) Alloc(n int) Run {
	class := Class(n)
	a.recycle()
	c := &a.classes[class]
	if k := len(c.free); k > 0 {
		off := c.free[k-1]
		c.free = c.free[:k-1]
		if class >= blockShift && c.blocks[off] == nil {
			b := make([]T, 1<<class)
			a.mu.Lock()
			c.blocks[off] = b
			a.mu.Unlock()
		}
		return Run{off, uint32(n), a.views.epoch, class, true}
	}
	s := perBlock(class)
	if int(c.next>>s) == len(c.blocks) {
		b := make([]T, 1<<class<<s)
		a.mu.Lock()
		c.blocks = append(c.blocks, b)
		a.mu.Unlock()
	}
	off := c.next
	c.next++
	return Run{off, uint32(n), a.views.epoch, class, true}
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
	if r.used && n <= 1<<r.class && n*4 > 1<<r.class && !a.Frozen(r) {
		r.n = uint32(n)
		return r, true
	}
	return a.Alloc(n), false
}

// Trim clears the elements behind a run that had n before it was resized.
func (a *Arena[T]) Trim(r Run, n int) {
	if n > int(r.n) {
		clear(a.room(r.off, r.class)[r.n:n])
	}
}

// Append adds elements behind a run: in place if there is room, since who reads a
// frozen version does not look behind its end, else in a larger run.
func (a *Arena[T]) Append(r Run, v ...T) Run {
	n := int(r.n) + len(v)
	if !r.used || n > 1<<r.class {
		grown := a.Alloc(n)
		to := a.Get(grown)
		copy(to, a.Get(r))
		copy(to[r.n:], v)
		a.Free(r)
		return grown
	}
	copy(a.room(r.off, r.class)[r.n:n], v)
	r.n = uint32(n)
	return r
}

// Append1 is Append of one element.
func (a *Arena[T]) Append1(r Run, v T) Run {
	if r.used && int(r.n) < 1<<r.class {
		a.room(r.off, r.class)[r.n] = v
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

// Free gives a run back. While views are open it waits for those that are.
func (a *Arena[T]) Free(r Run) {
	if !r.used {
		return
	}
	if a.views.newest.Load() != 0 {
		a.limbo = append(a.limbo, limboRun{a.views.epoch, r.off, r.class})
		return
	}
	a.release(r.off, r.class)
}

func (a *Arena[T]) release(off uint32, class uint8) {
	c := &a.classes[class]
	if class >= blockShift {
		a.mu.Lock()
		c.blocks[off] = nil
		a.mu.Unlock()
	} else {
		clear(a.room(off, class)) // lets go what the elements point to
	}
	c.free = append(c.free, off)
}

// recycle gives back some of the runs that no open view can read any more.
func (a *Arena[T]) recycle() {
	if len(a.limbo) == 0 {
		return
	}
	oldest := a.views.oldest.Load()
	for range 4 {
		l := a.limbo[a.drained]
		if l.epoch > oldest {
			return
		}
		a.release(l.off, l.class)
		if a.drained++; a.drained == len(a.limbo) {
			a.limbo, a.drained = a.limbo[:0], 0
			if cap(a.limbo) > 1<<16 {
				a.limbo = nil
			}
			return
		}
	}
	if a.drained > 1<<16 && a.drained > len(a.limbo)/2 {
		a.limbo = append(a.limbo[:0], a.limbo[a.drained:]...)
		a.drained = 0
	}
}
