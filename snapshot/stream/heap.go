package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/tidemark/tidemark/incremental/sst"
)

// HeapState is what a Heap reader must know of one state of the meta block.
type HeapState struct {
	Name string
	// Queue: the elements are timers, whole, in Element. Else an element is a
	// namespace, a key and a value.
	Queue                          bool
	Namespace, Key, Value, Element Skipper
}

// Heap reads the key groups of the heap backend's own format:
//
//	keyGroup   := int32 keyGroup stateBlock*    one block for each state of the meta block
//	stateBlock := D( int16 state int32 count element* )
//	element    := namespace key value, or timer
//
// D is the identity or a snappy framed stream for each block.
//
// A value that cannot be read is given out as bytes where its end can be found.
type Heap struct {
	// Fits reports whether a key hashes to a key group: by it elements are found
	// behind values that cannot be read. Nil finds none.
	Fits func(keyGroup int32, key []byte) bool
	// Lost, if not nil, is told of elements of a state that could not be told apart.
	Lost func(state, count int, offset int64)

	ctx        context.Context
	src        sst.Source
	name       string
	compressed bool
	states     []HeapState

	w        window
	snappy   unframe
	kg       int32
	blocks   int   // state blocks not yet begun
	count    int32 // elements left in the current block
	state    int
	seen     []bool
	ns, key  []byte
	value    []byte
	offset   int64
	live     bool
	err      error
	expected int64      // where the region ends
	parts    []heapPart // elements found past an opaque value, not yet given out
	partsEnd int        // in the window
}

// NewHeap reads from src; name goes into errors. The states are those of the
// meta block, in its order.
func NewHeap(ctx context.Context, src sst.Source, name string, compressed bool, states []HeapState) *Heap {
	return &Heap{ctx: ctx, src: src, name: name, compressed: compressed, states: states, seen: make([]bool, len(states))}
}

// Open moves to the start of a key group.
func (h *Heap) Open(r Region) {
	h.kg, h.blocks, h.count, h.live, h.err, h.expected, h.parts = r.KeyGroup, len(h.states), 0, true, nil, r.To, h.parts[:0]
	clear(h.seen)
	read := sequential(h.ctx, h.src, r.From, r.To)
	h.w.reset(read, r.From)
	if err := h.w.need(4); err != nil {
		h.fail("key group", err)
		return
	}
	if kg := int32(binary.BigEndian.Uint32(h.w.buf[h.w.pos:])); kg != r.KeyGroup {
		h.damage(r.From, "key group", "is "+strconv.Itoa(int(kg))+" where "+strconv.Itoa(int(r.KeyGroup))+" was expected")
		return
	}
	if !h.compressed {
		h.w.pos += 4
		return
	}
	h.w.reset(h.snappy.reset(sequential(h.ctx, h.src, r.From+4, r.To)), 0)
}

// Next moves to the next element of the key group; false at its end or on damage.
func (h *Heap) Next() bool {
	if !h.live {
		return false
	}
	if len(h.parts) > 0 {
		return h.nextPart()
	}
	w := &h.w
	for h.count == 0 {
		if h.blocks == 0 {
			h.live = false
			if !h.compressed && w.offset() != h.expected {
				return h.damage(w.offset(), "key group "+strconv.Itoa(int(h.kg)), "ends before its region does, at byte "+strconv.FormatInt(h.expected, 10))
			}
			if h.compressed && !w.atEnd() {
				return h.damage(w.offset(), "key group "+strconv.Itoa(int(h.kg)), "has bytes after its last state")
			}
			return false
		}
		if err := w.need(6); err != nil {
			return h.fail("state block", err)
		}
		id := int(binary.BigEndian.Uint16(w.buf[w.pos:]))
		count := int32(binary.BigEndian.Uint32(w.buf[w.pos+2:]))
		switch {
		case id >= len(h.states):
			return h.damage(w.offset(), "state id", "is "+strconv.Itoa(id)+" of "+strconv.Itoa(len(h.states))+" states")
		case h.seen[id]:
			return h.damage(w.offset(), "state id", strconv.Itoa(id)+" comes twice")
		case count < 0:
			return h.damage(w.offset()+2, "element count", "is "+strconv.Itoa(int(count)))
		}
		h.seen[id] = true
		w.pos += 6
		h.state, h.count = id, count
		h.blocks--
	}
	st := &h.states[h.state]
	h.offset = w.offset()
	for {
		ok, err := h.element(st)
		if err != nil && isOpaque(err) && h.pastOpaque(st) {
			return h.Next()
		}
		if err != nil {
			h.live = false
			h.err = &elementError{state: st.Name, err: readFailed(h.name, h.offset, "element", err)}
			return false
		}
		if ok {
			h.count--
			return true
		}
		if !w.fill() {
			err := w.err
			if err == nil {
				err = errShort
			}
			return h.fail("element of state "+st.Name, err)
		}
	}
}

// nextPart gives out an element found past an opaque value.
func (h *Heap) nextPart() bool {
	p := h.parts[0]
	h.parts = h.parts[1:]
	h.ns, h.key, h.value = p.ns, p.key, p.value
	if h.count--; len(h.parts) == 0 {
		h.w.pos = h.partsEnd
	}
	return true
}

// element tries to find the ends of the parts of the next element in what is
// buffered; false asks for more.
func (h *Heap) element(st *HeapState) (bool, error) {
	b := h.w.buffered()
	if st.Queue {
		n, err := st.Element.Skip(b)
		if err != nil {
			return short(err)
		}
		h.ns, h.key, h.value = nil, b[:n:n], nil
		h.w.pos += n
		return true, nil
	}
	n, err := st.Namespace.Skip(b)
	if err != nil {
		return short(err)
	}
	k, err := st.Key.Skip(b[n:])
	if err != nil {
		return short(err)
	}
	v, err := st.Value.Skip(b[n+k:])
	if err != nil {
		return short(err)
	}
	h.ns, h.key, h.value = b[:n:n], b[n:n+k:n+k], b[n+k:n+k+v:n+k+v]
	h.w.pos += n + k + v
	return true, nil
}

func short(err error) (bool, error) {
	if errors.Is(err, errShort) {
		return false, nil
	}
	return false, err
}

// elementError names the state in which an element could not be read.
type elementError struct {
	state string
	err   error
}

func (e *elementError) Error() string { return e.err.Error() + " (state " + e.state + ")" }
func (e *elementError) Unwrap() error { return e.err }

// Close gives the reader's memory back: what it gave out becomes invalid.
func (h *Heap) Close() {
	h.w.release()
	h.live, h.ns, h.key, h.value = false, nil, nil, nil
}

// State is the position in the meta block's list of the element's state.
func (h *Heap) State() int { return h.state }

// Namespace is the element's namespace, valid until Next; nil for a timer.
func (h *Heap) Namespace() []byte { return h.ns }

// Key is the element's key, or the whole timer; valid until Next.
func (h *Heap) Key() []byte { return h.key }

// Value is the element's value, valid until Next; nil for a timer.
func (h *Heap) Value() []byte { return h.value }

// Offset is where the element stands.
func (h *Heap) Offset() int64 { return h.offset }

// Err is the damage that ended the key group; nil at its natural end.
func (h *Heap) Err() error { return h.err }

func (h *Heap) fail(field string, err error) bool {
	h.live = false
	h.err = readFailed(h.name, h.w.offset(), field, err)
	return false
}

func (h *Heap) damage(offset int64, field, detail string) bool {
	h.live = false
	h.err = damaged(h.name, offset, field, detail)
	return false
}
