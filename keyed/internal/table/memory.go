package table

import (
	"sync"
	"unsafe"
)

// memory gives out blocks of one size, cut from slabs of up to 4 MiB, so that the
// system can back them with huge pages: half of the cost of a random access
// in small pages is finding the page. Blocks come from the first slab that has any, so
// that a table that shrinks leaves the later ones, which are then let go.
type memory[E any] struct {
	mu    sync.Mutex // restoring takes blocks from several goroutines
	size  int        // elements of a block
	slabs []*slab[E]
	first int // no slab before it has a free block
	given int // blocks in use
}

type slab[E any] struct {
	mem  []E // nil while no block is in use
	free []uint16
	n    int // blocks
	at   int // in slabs
}

const slabBytes = 4 << 20

// take gives a block. Blocks of types with pointers are zero.
func (m *memory[E]) take() ([]E, *slab[E]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.first < len(m.slabs) && m.slabs[m.first].mem != nil && len(m.slabs[m.first].free) == 0 {
		m.first++
	}
	if m.first == len(m.slabs) {
		var e E
		n := max(1, min(m.given/2, slabBytes/(m.size*max(1, int(unsafe.Sizeof(e))))))
		m.slabs = append(m.slabs, &slab[E]{n: n, at: m.first})
	}
	s := m.slabs[m.first]
	if s.mem == nil {
		s.mem = make([]E, s.n*m.size)
		if bytes := uintptr(len(s.mem)) * unsafe.Sizeof(s.mem[0]); bytes >= slabBytes/4 {
			hugePages(unsafe.Pointer(&s.mem[0]), bytes)
		}
		for i := s.n - 1; i >= 0; i-- {
			s.free = append(s.free, uint16(i))
		}
	}
	last := len(s.free) - 1
	i := int(s.free[last])
	s.free = s.free[:last]
	m.given++
	return s.mem[i*m.size : (i+1)*m.size : (i+1)*m.size], s
}

// give takes a block back that nobody uses any more.
func (m *memory[E]) give(b []E, s *slab[E]) {
	clear(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	i := (uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&s.mem[0]))) / (max(1, unsafe.Sizeof(b[0])) * uintptr(m.size))
	s.free = append(s.free, uint16(i))
	m.given--
	m.first = min(m.first, s.at)
	if len(s.free) == s.n {
		s.mem, s.free = nil, nil
	}
}
