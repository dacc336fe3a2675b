package stream

import (
	"encoding/binary"
	"errors"
)

// Opaque is implemented by a Skipper's error that says: this value cannot be read
// and nothing tells where it ends.
type Opaque interface{ Opaque() bool }

// maxOpaque bounds the bytes of a key group that are held to find the ends of
// values that cannot be read.
const maxOpaque = 256 << 20

func isOpaque(err error) bool {
	var o Opaque
	return errors.As(err, &o) && o.Opaque()
}

// element found past an opaque value.
type heapPart struct{ ns, key, value []byte }

// pastOpaque finds the elements of the current block from the current position on,
// in which a value cannot be read. Where the block ends is told by what must
// follow it: the head of a state block that has not come yet, from which the rest
// of the key group can be read, or the key group's end. Inside the block an
// element begins wherever a namespace and a key stand that hash to the key group.
// If there are just as many places as elements, the values lie between them;
// otherwise the elements are passed over and reported to Lost.
//
// It reports false if not even the block's end can be told.
func (h *Heap) pastOpaque(st *HeapState) bool {
	w := &h.w
	for w.end-w.pos <= maxOpaque && w.fill() {
	}
	if w.err != nil || w.end-w.pos > maxOpaque {
		return false
	}
	b := w.buffered()
	end := h.blockEnd(b)
	if end < 0 {
		return false
	}
	starts := h.elementStarts(st, b[:end])
	if len(starts) != int(h.count) {
		if h.Lost != nil {
			h.Lost(h.state, int(h.count), h.offset)
		}
		w.pos += end
		h.count = 0
		return true
	}
	h.parts = h.parts[:0]
	for i, s := range starts {
		to := end
		if i+1 < len(starts) {
			to = starts[i+1].at
		}
		v := s.at + s.ns + s.key
		h.parts = append(h.parts, heapPart{b[s.at : s.at+s.ns : s.at+s.ns], b[s.at+s.ns : v : v], b[v:to:to]})
	}
	h.partsEnd = w.pos + end
	return true
}

type elementStart struct{ at, ns, key int }

// elementStarts finds the places in a block where an element may begin. The first
// is 0 if there is any. If there are more than elements, only those remain whose
// value begins with the same byte as the first one's.
func (h *Heap) elementStarts(st *HeapState, b []byte) []elementStart {
	if st.Queue { // its elements have no key of their own that could tell
		return nil
	}
	var all []elementStart
	for at := 0; at < len(b); at++ {
		n, err := st.Namespace.Skip(b[at:])
		if err != nil || at+n > len(b) {
			continue
		}
		k, err := st.Key.Skip(b[at+n:])
		if err != nil || at+n+k >= len(b) || h.Fits == nil || !h.Fits(h.kg, b[at+n:at+n+k]) {
			continue
		}
		all = append(all, elementStart{at, n, k})
		if len(all) > 16*int(h.count)+64 {
			return nil
		}
	}
	if len(all) == 0 || all[0].at != 0 {
		return nil
	}
	if len(all) == int(h.count) {
		return all
	}
	first := b[all[0].ns+all[0].key]
	var kept []elementStart
	for _, s := range all {
		if b[s.at+s.ns+s.key] == first {
			kept = append(kept, s)
		}
	}
	return kept
}

// blockEnd finds the first place in b, the rest of the key group, from which the
// remaining state blocks can be read; -1 if there is none.
func (h *Heap) blockEnd(b []byte) int {
	if h.blocks == 0 {
		return len(b)
	}
	seen := make([]bool, len(h.seen))
	for at := 1; at+6 <= len(b); at++ {
		copy(seen, h.seen)
		if h.readable(b[at:], seen, h.blocks) {
			return at
		}
	}
	return -1
}

// readable reports whether b is that many state blocks and nothing more, as far
// as its serializers tell.
func (h *Heap) readable(b []byte, seen []bool, blocks int) bool {
	for ; blocks > 0; blocks-- {
		if len(b) < 6 {
			return false
		}
		id := int(binary.BigEndian.Uint16(b))
		count := int32(binary.BigEndian.Uint32(b[2:]))
		if id >= len(seen) || seen[id] || count < 0 || int64(count) > int64(len(b)) {
			return false
		}
		seen[id] = true
		b = b[6:]
		st := &h.states[id]
		for range count {
			n, err := elementSize(st, b)
			if isOpaque(err) {
				return true // no more can be told
			}
			if err != nil {
				return false
			}
			b = b[n:]
		}
	}
	return len(b) == 0
}

func elementSize(st *HeapState, b []byte) (int, error) {
	if st.Queue {
		return st.Element.Skip(b)
	}
	n := 0
	for _, s := range [...]Skipper{st.Namespace, st.Key, st.Value} {
		m, err := s.Skip(b[n:])
		if err != nil {
			return 0, err
		}
		n += m
	}
	return n, nil
}
