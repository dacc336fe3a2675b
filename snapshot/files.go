package snapshot

import (
	"iter"
	"slices"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// File is one physical object that a snapshot references.
type File struct {
	URL   string `json:"url"`
	Class Class  `json:"class"`
	Owner string `json:"owner,omitempty"` // job ID
	// Claimed: it lies in another job's folder.
	Claimed bool `json:"claimed,omitempty"`
	// Bytes is the object's size as the handles say: for segments the highest end
	// seen; -1 unknown.
	Bytes int64 `json:"bytes"`
	// ReferencedBytes of it: the sum of its segments, each once.
	ReferencedBytes int64 `json:"referencedBytes"`
	References      int   `json:"references"` // handles
	Segments        int   `json:"segments,omitempty"`
	// Operator, Subtask and Role of the first reference.
	Operator  string `json:"operator"`
	Subtask   int32  `json:"subtask"`
	Role      Role   `json:"role"`
	Part      Part   `json:"part"`
	LocalName string `json:"localName,omitempty"`
	Refused   string `json:"refused,omitempty"`

	Location blobstore.Location `json:"-"`
}

// Files yields every physical object the snapshot references, each once, in the
// order of their addresses; refused ones last. It asks no store.
func Files(s *Snapshot) iter.Seq[File] {
	return func(yield func(File) bool) {
		c := checker{s: s, maxProblems: -1}
		c.collect()
		c.objectsOf()
		refs := make([]handleRef, 0, len(c.needs)+len(c.refused))
		for p, h := range s.Checkpoint.StreamHandles() {
			r := handleRef{operator: int32(p.OperatorPos), subtask: -1, role: Role(p.Slot), part: partOf(p.Part), localName: p.Name}
			if p.Subtask != nil {
				r.subtask = p.Subtask.Index
			}
			if seg, ok := h.(*metadata.SegmentHandle); ok {
				r.segment = seg
			}
			refs = append(refs, r)
		}
		fill := func(f *File, r *handleRef) {
			f.Operator = s.Checkpoint.Operators[r.operator].ID.String()
			f.Subtask, f.Role, f.Part, f.LocalName = r.subtask, r.role, r.part, r.localName.Go()
		}
		var ranges [][2]int64
		for i := range c.objects {
			o := &c.objects[i]
			place := c.placeOf(o)
			f := File{Class: place.class, Owner: place.owner, Claimed: place.claimed, Bytes: -1,
				References: int(o.last - o.first + 1), Location: place.loc.Join(c.nameOf(o))}
			f.URL = f.Location.String()
			fill(&f, &refs[c.needs[o.first].ordinal])
			whole := false
			ranges = ranges[:0]
			for _, n := range c.needs[o.first : o.last+1] {
				f.Bytes = max(f.Bytes, n.size)
				if seg := refs[n.ordinal].segment; seg != nil {
					ranges = append(ranges, [2]int64{seg.Start, seg.Start + seg.Length})
				} else {
					whole = true
				}
			}
			if len(ranges) > 0 {
				slices.SortFunc(ranges, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
				ranges = slices.Compact(ranges)
				f.Segments = len(ranges)
			}
			g := group{whole: whole, ranges: ranges}
			f.ReferencedBytes = g.covered(max(f.Bytes, 0))
			if !yield(f) {
				return
			}
		}
		for _, r := range c.refused {
			f := File{URL: r.written, Class: r.place.class, Owner: r.place.owner, Claimed: r.place.claimed, Bytes: r.size, References: 1, Refused: r.err.Error()}
			fill(&f, &refs[r.ordinal])
			if !yield(f) {
				return
			}
		}
	}
}

// handleRef is where a handle stands.
type handleRef struct {
	localName metadata.String
	segment   *metadata.SegmentHandle
	operator  int32
	subtask   int32
	role      Role
	part      Part
}
