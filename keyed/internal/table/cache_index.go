package table

const (
	cacheSegmentMin = 8
	cacheSegmentMax = 1024
)

// segment is a piece of a key group's index: open addressing with linear probing
// over slots of hash<<32 | number+1; 0 is empty. All its hashes begin with the
// same depth bits.
type cacheSegment struct {
	slots []uint64
	n     int
	depth uint8
}

// place is a place of a directory: the cacheSegment and, to save a step to each lookup, its
// slots.
type cachePlace struct {
	slots []uint64
	seg   *cacheSegment
}

func (sh *cacheShard[K, N, V]) link(hash, num uint32) {
	if sh.dir == nil {
		seg := &cacheSegment{slots: make([]uint64, cacheSegmentMin)}
		sh.dir, sh.shift = []cachePlace{{seg.slots, seg}}, 32
	}
	seg := sh.dir[hash>>sh.shift].seg
	for 4*(seg.n+1) > 3*len(seg.slots) {
		sh.grow(seg, hash)
		seg = sh.dir[hash>>sh.shift].seg
	}
	seg.put(uint64(hash)<<32 | uint64(num+1))
}

func (g *cacheSegment) put(s uint64) {
	mask := uint32(len(g.slots) - 1)
	i := uint32(s>>32) & mask
	for g.slots[i] != 0 {
		i = (i + 1) & mask
	}
	g.slots[i] = s
	g.n++
}

// grow doubles a segment or splits it in two.
func (sh *cacheShard[K, N, V]) grow(seg *cacheSegment, hash uint32) {
	old := seg.slots
	// Entries whose 32 bits are all alike cannot be told apart by splitting.
	if len(old) < cacheSegmentMax || seg.depth >= 22 {
		seg.slots, seg.n = make([]uint64, 2*len(old)), 0
		for _, s := range old {
			if s != 0 {
				seg.put(s)
			}
		}
		for i, end := sh.places(seg, hash); i < end; i++ {
			sh.dir[i].slots = seg.slots
		}
		return
	}
	if 32-sh.shift == seg.depth { // one place of the directory: double it
		dir := make([]cachePlace, 2*len(sh.dir))
		for i, g := range sh.dir {
			dir[2*i], dir[2*i+1] = g, g
		}
		sh.dir = dir
		sh.shift--
	}
	a := &cacheSegment{slots: make([]uint64, len(old)), depth: seg.depth + 1}
	b := &cacheSegment{slots: make([]uint64, len(old)), depth: seg.depth + 1}
	for _, s := range old {
		if s == 0 {
			continue
		}
		if s>>(63-seg.depth)&1 == 0 {
			a.put(s)
		} else {
			b.put(s)
		}
	}
	i, end := sh.places(seg, hash)
	for half := (i + end) / 2; i < end; i++ {
		if i < half {
			sh.dir[i] = cachePlace{a.slots, a}
		} else {
			sh.dir[i] = cachePlace{b.slots, b}
		}
	}
}

// places are those of the directory that begin with the cacheSegment's bits, which are
// the first of the hash.
func (sh *cacheShard[K, N, V]) places(seg *cacheSegment, hash uint32) (from, end uint32) {
	width := uint32(1) << (32 - sh.shift - seg.depth)
	from = hash >> sh.shift &^ (width - 1)
	return from, from + width
}

// unlink removes a number and closes the gap.
func (sh *cacheShard[K, N, V]) unlink(hash, num uint32) {
	g := sh.dir[hash>>sh.shift].seg
	mask := uint32(len(g.slots) - 1)
	want := uint64(hash)<<32 | uint64(num+1)
	i := hash & mask
	for g.slots[i] != want {
		i = (i + 1) & mask
	}
	g.n--
	for j := i; ; {
		j = (j + 1) & mask
		s := g.slots[j]
		if s == 0 {
			break
		}
		home := uint32(s>>32) & mask
		if (j-home)&mask >= (j-i)&mask { // it may stand at i
			g.slots[i] = s
			i = j
		}
	}
	g.slots[i] = 0
}
