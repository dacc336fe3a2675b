package channel

import (
	"encoding/binary"
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
)

// Records iterates over the stream elements of a channel, buffer by buffer,
// without copying; only an element that spans buffers is put together.
type Records struct {
	data []byte
	pos  int
	// span is an element, with its length, whose end is in a buffer to come.
	span    []byte
	spanned bool // span was given out
	err     error
	name    string
	offset  int64 // in the channel, of data
}

// Next gives the next element, its tag first. It is valid until the next call; the
// caller must not keep or change it. ok is false at the end of the buffer and
// after an error.
func (r *Records) Next() (element []byte, ok bool) {
	if rest := r.data[r.pos:]; len(rest) >= 4 && len(r.span) == 0 {
		if n := int(binary.BigEndian.Uint32(rest)); uint(n-1) < uint(len(rest)-4) {
			r.pos += 4 + n
			return rest[4 : 4+n : 4+n], true
		}
	}
	return r.slow()
}

// slow is Next for elements that span buffers, the end of a buffer, and damage.
func (r *Records) slow() ([]byte, bool) {
	if r.spanned {
		r.span, r.spanned = r.span[:0], false
		return r.Next()
	}
	for r.err == nil && r.pos < len(r.data) {
		want := 4
		if len(r.span) >= 4 {
			n := binary.BigEndian.Uint32(r.span)
			if n == 0 || n > maxElement {
				r.err = &damage.Error{Name: r.name, Offset: r.offset + int64(r.pos), Field: "record length", Detail: fmt.Sprintf("is %d", int32(n)), Err: damage.ErrCorrupt}
				return nil, false
			}
			want += int(n)
		}
		take := min(want-len(r.span), len(r.data)-r.pos)
		r.span = append(r.span, r.data[r.pos:r.pos+take]...)
		r.pos += take
		if want > 4 && len(r.span) == want {
			r.spanned = true
			return r.span[4:want:want], true
		}
	}
	return nil, false
}

// maxElement bounds an element's length, so that a hostile length is an error and
// not a buffer that never fills: 1 GiB.
const maxElement = 1 << 30

// Err is the damage that ended the iteration.
func (r *Records) Err() error { return r.err }

// Done says that the buffer has no further element.
func (r *Records) Done() bool { return r.pos == len(r.data) }

// Rest is what was not given out: the start of an element that spans buffers, and
// what the buffer has left. The slices alias the reader's.
func (r *Records) rest() (span, data []byte) {
	span = r.span
	if r.spanned {
		span = nil
	}
	return span, r.data[r.pos:]
}

// set gives the reader the next buffer.
func (r *Records) set(data []byte) {
	r.offset += int64(len(r.data))
	r.data, r.pos = data, 0
}
