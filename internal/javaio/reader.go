// Package javaio reads and writes what Java's DataOutput writes, and reads
// Java object streams without executing anything.
//
// Integers and floats are big-endian; a boolean is one byte; a UTF string is
// modified UTF-8 behind a uint16 byte length. Source: java.io.DataInput and the
// Java Object Serialization Specification, "Object Serialization Stream
// Protocol".
package javaio

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/tidemark/tidemark/internal/damage"
)

// Reader decodes DataOutput data from bytes in memory. The first error sticks:
// every later call returns a zero value, so that a decoder checks once per
// record. It never allocates by a length before it was compared with the bytes
// that are left. Byte slices it returns alias the input. Not for concurrent use.
type Reader struct {
	b   []byte
	off int
	err error
}

// NewReader reads b from its start.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Offset is the number of bytes consumed.
func (r *Reader) Offset() int { return r.off }

// Len is the number of bytes left.
func (r *Reader) Len() int { return len(r.b) - r.off }

// Err is the first error: io.ErrUnexpectedEOF for a read past the end, or what
// Fail was given.
func (r *Reader) Err() error { return r.err }

// Fail makes err the Reader's error unless it has one already.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Corrupt fails with a damage.Error at the current offset.
func (r *Reader) Corrupt(field, detail string) {
	if r.err == nil {
		r.err = &damage.Error{Offset: int64(r.off), Field: field, Detail: detail, Err: damage.ErrCorrupt}
	}
}

// Next consumes n bytes and returns them without copying; nil after an error.
func (r *Reader) Next(n int) []byte {
	if r.err != nil {
		return nil
	}
	if n < 0 {
		r.err = errors.New("negative length")
		return nil
	}
	if n > len(r.b)-r.off {
		r.err = io.ErrUnexpectedEOF
		return nil
	}
	p := r.b[r.off : r.off+n : r.off+n]
	r.off += n
	return p
}

// Peek returns all that is left without consuming it.
func (r *Reader) Peek() []byte { return r.b[r.off:len(r.b):len(r.b)] }

// Since returns what was consumed from offset from on.
func (r *Reader) Since(from int) []byte {
	if from < 0 || from > r.off {
		return nil
	}
	return r.b[from:r.off:r.off]
}

// Rest consumes all that is left.
func (r *Reader) Rest() []byte { return r.Next(r.Len()) }

// U8 reads one unsigned byte.
func (r *Reader) U8() uint8 {
	if p := r.Next(1); p != nil {
		return p[0]
	}
	return 0
}

// I8 reads one signed byte.
func (r *Reader) I8() int8 { return int8(r.U8()) }

// Bool reads a byte; as in Java any value but 0 is true.
func (r *Reader) Bool() bool { return r.U8() != 0 }

// U16 reads two bytes.
func (r *Reader) U16() uint16 {
	if p := r.Next(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

// I16 reads two bytes, signed.
func (r *Reader) I16() int16 { return int16(r.U16()) }

// I32 reads four bytes.
func (r *Reader) I32() int32 {
	if p := r.Next(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// I64 reads eight bytes.
func (r *Reader) I64() int64 {
	if p := r.Next(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// F32 reads an IEEE 754 float by its bits.
func (r *Reader) F32() float32 { return math.Float32frombits(uint32(r.I32())) }

// F64 reads an IEEE 754 double by its bits.
func (r *Reader) F64() float64 { return math.Float64frombits(uint64(r.I64())) }

// UTF reads a uint16 length and that many bytes of modified UTF-8, which are
// checked.
func (r *Reader) UTF() String {
	n := int(r.U16())
	s := String(r.Next(n))
	if r.err == nil && !s.Valid() {
		r.off -= n
		r.err = ErrMalformedString
	}
	return s
}

// Count reads a signed 32-bit count of elements that take at least minBytes
// each, and fails if it is negative or cannot fit in the bytes left.
func (r *Reader) Count(minBytes int) int {
	n := r.I32()
	if r.err != nil {
		return 0
	}
	if n < 0 || (minBytes > 0 && int(n) > r.Len()/minBytes) {
		r.off -= 4
		r.err = ErrCount
		return 0
	}
	return int(n)
}

// ErrCount says that a count is negative or larger than what is left can hold.
var ErrCount = errors.New("impossible count")
