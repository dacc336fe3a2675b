package incremental

import (
	"hash/maphash"

	"github.com/tidemark/tidemark/metadata"
)

// identityTable finds what an Identity was first registered as. It keeps each once:
// a map of hashes, and chains of those with the same.
type identityTable struct {
	seed   maphash.Seed
	byHash map[uint64]int32
	list   []logicalFile
	free   []int32
}

// logicalFile is what an identity was first registered as.
type logicalFile struct {
	id     Identity
	handle metadata.StreamHandle
	file   int32
	next   int32 // of the same physical file; none
	chain  int32 // of the same hash; none
}

func (t *identityTable) init() { t.seed, t.byHash = maphash.MakeSeed(), map[uint64]int32{} }

func (t *identityTable) hash(id *Identity) uint64 { return maphash.Comparable(t.seed, *id) }

// find gives what was registered; valid until the next add.
func (t *identityTable) find(id *Identity) *logicalFile {
	k, ok := t.byHash[t.hash(id)]
	if !ok {
		return nil
	}
	for ; k != none; k = t.list[k].chain {
		if t.list[k].id == *id {
			return &t.list[k]
		}
	}
	return nil
}

// add registers an identity that is not there, and gives its number.
func (t *identityTable) add(l logicalFile) int32 {
	h := t.hash(&l.id)
	l.chain = none
	if k, ok := t.byHash[h]; ok {
		l.chain = k
	}
	var k int32
	if n := len(t.free); n > 0 {
		k, t.free = t.free[n-1], t.free[:n-1]
		t.list[k] = l
	} else {
		k = int32(len(t.list))
		t.list = append(t.list, l)
	}
	t.byHash[h] = k
	return k
}

// removeFile removes all identities of a physical file, from number k on.
func (t *identityTable) removeFile(k int32) {
	for k != none {
		h := t.hash(&t.list[k].id)
		if first := t.byHash[h]; first != k {
			for t.list[first].chain != k {
				first = t.list[first].chain
			}
			t.list[first].chain = t.list[k].chain
		} else if t.list[k].chain != none {
			t.byHash[h] = t.list[k].chain
		} else {
			delete(t.byHash, h)
		}
		next := t.list[k].next
		t.list[k] = logicalFile{}
		t.free = append(t.free, k)
		k = next
	}
}
