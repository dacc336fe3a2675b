package snapshot

import (
	"hash/maphash"
	"math/bits"
)

// fileSet finds files again. It is a map for one purpose: most files are named
// once, so that a look mostly finds an empty slot and touches nothing else, while a
// map of strings touches its 40-byte entries.
type fileSet struct {
	seed  maphash.Seed
	facts []fileFacts
	// slots is a hash table with linear probing, a power of two long and at most
	// half full: 0, or the upper half of the hash and below it the position in
	// facts plus 1.
	slots []uint64
}

// fileFacts is what is known of a file.
type fileFacts struct {
	file
	size     int64 // -1 unknown
	operator int32 // the last one that named it; -1 none
}

// newFileSet makes a set with room for n files.
func newFileSet(n int) *fileSet {
	s := &fileSet{seed: maphash.MakeSeed(), facts: make([]fileFacts, 0, n)}
	s.slots = make([]uint64, 1<<bits.Len(uint(2*max(n, 8)-1)))
	return s
}

// get gives the facts of a file, new ones if it is new. The pointer is valid until
// the next call.
func (s *fileSet) get(f file) (facts *fileFacts, isNew bool) {
	h := maphash.String(s.seed, f.name)
	if f.place != nil {
		h ^= uint64(f.place.id+1) * 0x9e3779b97f4a7c15
	}
	mask := uint64(len(s.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		slot := s.slots[i]
		if slot == 0 {
			if 2*len(s.facts) >= len(s.slots) {
				s.grow()
				return s.get(f)
			}
			s.facts = append(s.facts, fileFacts{file: f, size: -1, operator: -1})
			s.slots[i] = h>>32<<32 | uint64(len(s.facts))
			return &s.facts[len(s.facts)-1], true
		}
		if slot>>32 == h>>32 {
			if facts := &s.facts[uint32(slot)-1]; facts.file == f {
				return facts, false
			}
		}
	}
}

// grow doubles the table. The lower half of a hash is not kept, so it is computed
// again.
func (s *fileSet) grow() {
	s.slots = make([]uint64, 2*len(s.slots))
	old := s.facts
	s.facts = s.facts[:0]
	for i := range old {
		facts := old[i]
		added, _ := s.get(facts.file)
		*added = facts
	}
}
