package table

const (
	segmentMin = 8
	segmentMax = 1024
)

// segment is a piece of a key group's index: open addressing with linear probing
// over slots of hash<<32 | number+1; 0 is empty. All its hashes begin with the
// same depth bits.
type segment struct {
	slots []uint64
	n     int
	depth uint8
}

// place is a place of a directory: the segment and, to save a step to each lookup, its
// slots.
type place struct {
	slots []uint64
	seg   *segment
}

func (sh *shard[K, N, V]) link(hash, num uint32) {
	if sh.dir == nil {
		seg := &segment{slots: make([]uint64, segmentMin)}
		sh.dir, sh.shift = []place{{seg.slots, seg}}, 32
	}
	seg := sh.dir[hash>>sh.shift].seg
	for 4*(seg.n+1) > 3*len(seg.slots) {
		sh.grow(seg, hash)
		seg = sh.dir[hash>>sh.shift].seg
	}
	seg.put(uint64(hash)<<32 | uint64(num+1))
}

func (g *segment) put(s uint64) {
	mask := uint32(len(g.slots) - 1)
	i := uint32(s>>32) & mask
	for g.slots[i] != 0 {
		i = (i + 1) & mask
	}
	g.slots[i] = s
	g.n++
}

// grow doubles a segment or splits it in two.
func (sh *shard[K, N, V]) grow(seg *segment, hash uint32) {
	old := seg.slots
	// Entries whose 32 bits are all alike cannot be told apart by splitting.
	if len(old) < segmentMax || seg.depth >= 22 {
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
		dir := make([]place, 2*len(sh.dir))
		for i, g := range sh.dir {
			dir[2*i], dir[2*i+1] = g, g
		}
		sh.dir = dir
		sh.shift--
	}
	a := &segment{slots: make([]uint64, len(old)), depth: seg.depth + 1}
	b := &segment{slots: make([]uint64, len(old)), depth: seg.depth + 1}
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
			sh.dir[i] = place{a.slots, a}
		} else {
			sh.dir[i] = place{b.slots, b}
		}
	}
}

// places are those of the directory that begin with the segment's bits, which are
// the first of the hash.
func (sh *shard[K, N, V]) places(seg *segment, hash uint32) (from, end uint32) {
	width := uint32(1) << (32 - sh.shift - seg.depth)
	from = hash >> sh.shift &^ (width - 1)
	return from, from + width
}

// unlink removes a number and closes the gap.
func (sh *shard[K, N, V]) unlink(hash, num uint32) {
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
