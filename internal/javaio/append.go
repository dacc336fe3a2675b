package javaio

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The Append functions write as java.io.DataOutput does and return the
// extended slice.

// AppendBool appends 1 or 0.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendI16 appends two bytes.
func AppendI16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }

// AppendI32 appends four bytes.
func AppendI32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendI64 appends eight bytes.
func AppendI64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendF32 appends the bits of a float. As with Java's DataOutput all NaNs are one, or
// keys that are NaN would differ.
func AppendF32(b []byte, v float32) []byte {
	if v != v {
		return binary.BigEndian.AppendUint32(b, 0x7fc00000)
	}
	return binary.BigEndian.AppendUint32(b, math.Float32bits(v))
}

// AppendF64 appends the bits of a double; all NaNs are one.
func AppendF64(b []byte, v float64) []byte {
	if v != v {
		return binary.BigEndian.AppendUint64(b, 0x7ff8000000000000)
	}
	return binary.BigEndian.AppendUint64(b, math.Float64bits(v))
}

// AppendUTF appends a uint16 length and the bytes of s. Longer than
// MaxStringBytes is an error, as in Java; nothing is truncated.
func AppendUTF(b []byte, s String) ([]byte, error) {
	if len(s) > MaxStringBytes {
		return b, fmt.Errorf("string of %d encoded bytes, at most %d fit", len(s), MaxStringBytes)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...), nil
}
