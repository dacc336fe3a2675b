package snapshot

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
)

// Sample is a part of the data to verify. The unit is a data block of a RocksDB
// table, a key group of other keyed state, a state of an operator state file, a
// change set and a channel; what leads to them (metadata, indexes, filters, small
// files) is verified always.
//
// With Parts, the units of each object are dealt out in turn, beginning at a place
// that follows from the object's name: the same in every run, so that Parts runs
// with Part 1 to Parts verify each unit exactly once, as long as the objects stay
// the same. With Share, each unit is chosen by lot, which Seed decides.
type Sample struct {
	Part, Parts int
	Share       float64 // 0 to 1
	Seed        uint64
}

// ParseSample reads "3/10" (the third of ten parts) and "5%", also "5%:SEED", which
// repeats a run. seed is taken where none is given.
func ParseSample(text string, seed uint64) (*Sample, error) {
	bad := func() (*Sample, error) {
		return nil, fmt.Errorf("sample is %q: PART/PARTS such as 1/7, or a share such as 5%%", text)
	}
	if part, parts, ok := strings.Cut(text, "/"); ok {
		n, err1 := strconv.ParseUint(part, 10, 31)
		t, err2 := strconv.ParseUint(parts, 10, 31)
		if err1 != nil || err2 != nil || n < 1 || n > t {
			return bad()
		}
		return &Sample{Part: int(n), Parts: int(t)}, nil
	}
	share, given, hasSeed := strings.Cut(text, ":")
	share, ok := strings.CutSuffix(share, "%")
	percent, err := strconv.ParseFloat(share, 64)
	if !ok || err != nil || !(percent > 0 && percent <= 100) {
		return bad()
	}
	if hasSeed {
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			return bad()
		}
	}
	return &Sample{Share: percent / 100, Seed: seed}, nil
}

// String is what ParseSample reads, with the seed.
func (s *Sample) String() string {
	if s == nil {
		return ""
	}
	if s.Parts > 0 {
		return fmt.Sprintf("%d/%d", s.Part, s.Parts)
	}
	return strconv.FormatFloat(s.Share*100, 'g', 6, 64) + "%:" + strconv.FormatUint(s.Seed, 10)
}

// choose gives the choice among the units of an object; nil for all.
func (s *Sample) choose(object string) func(unit uint64) bool {
	if s == nil || s.Parts == 1 || s.Parts == 0 && s.Share >= 1 {
		return nil
	}
	h := fnv.New64a()
	h.Write([]byte(baseName(object)))
	first := mix(h.Sum64())
	if s.Parts > 0 {
		parts, part := uint64(s.Parts), uint64(s.Part-1)
		first %= parts
		return func(unit uint64) bool { return (first+unit%parts)%parts == part }
	}
	limit := uint64(s.Share * math.MaxUint64)
	return func(unit uint64) bool { return mix(first^mix(unit^mix(s.Seed))) < limit }
}

// mix spreads the bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
