package table

import (
	"encoding/binary"
	"math"
)

// Vector holds the values of one column, or of a part of one, in the layout of an
// Arrow array: numbers little-endian, a Decimal in 16 bytes of two's complement, a
// Boolean in one byte. Null has a place of its own in each vector, and in those of a
// Struct's fields.
type Vector struct {
	Column *Column
	Len    int
	Nulls  int
	// Valid has a bit for each value, least significant first; nil if the column
	// is not Nullable.
	Valid []byte
	// Data are the values of fixed width, or the bytes of Text, JSON and Binary.
	Data []byte
	// Offsets of Text, JSON, Binary into Data, of List and Map into Fields: Len+1 of them.
	Offsets []int32
	// Fields are those of a Struct, a List's elements, a Map's keys and values.
	Fields []*Vector

	width int
}

// widths are the bytes of a value of fixed width.
var widths = [...]int{Boolean: 1, Int8: 1, Int16: 2, Int32: 4, Int64: 8, Float32: 4, Float64: 8, Decimal: 16, Date: 4, Timestamp: 8, Time: 8, Map: 0}

// NewVector makes an empty vector of a column.
func NewVector(c *Column) *Vector {
	v := &Vector{Column: c, width: widths[c.Type]}
	if c.Type == Time && c.Precision == 3 {
		v.width = 4
	}
	switch c.Type {
	case Text, JSON, Binary, List, Map:
		v.Offsets = append(v.Offsets, 0)
	}
	for _, f := range c.Fields {
		v.Fields = append(v.Fields, NewVector(f))
	}
	return v
}

// Width is the number of bytes of each value in Data, 0 if they differ.
func (v *Vector) Width() int { return v.width }

// Null reports whether value i is null.
func (v *Vector) Null(i int) bool { return v.Valid != nil && v.Valid[i>>3]&(1<<(i&7)) == 0 }

// Bytes is value i of Text, JSON or Binary.
func (v *Vector) Bytes(i int) []byte { return v.Data[v.Offsets[i]:v.Offsets[i+1]] }

// Int is value i of an integer, Date, Time or Timestamp.
func (v *Vector) Int(i int) int64 {
	switch v.width {
	case 1:
		return int64(int8(v.Data[i]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(v.Data[2*i:])))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(v.Data[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(v.Data[8*i:]))
}

// Float is value i of a Float32 or Float64.
func (v *Vector) Float(i int) float64 {
	if v.width == 4 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*i:])))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(v.Data[8*i:]))
}

// Reset empties the vector and keeps its memory.
func (v *Vector) Reset() { v.truncate(0) }

// truncate takes back the values from n on.
func (v *Vector) truncate(n int) {
	if v.Len == n {
		for _, f := range v.Fields { // a value that was begun and not ended
			if v.Offsets != nil {
				f.truncate(int(v.Offsets[n]))
			} else {
				f.truncate(n)
			}
		}
		return
	}
	if v.Valid != nil {
		for i := n; i < v.Len; i++ {
			if v.Null(i) {
				v.Nulls--
			}
		}
		v.Valid = v.Valid[:(n+7)/8]
		if n&7 != 0 {
			v.Valid[n>>3] &= 1<<(n&7) - 1
		}
	}
	v.Len = n
	if v.Offsets != nil {
		v.Offsets = v.Offsets[:n+1]
	}
	switch v.Column.Type {
	case Text, JSON, Binary:
		v.Data = v.Data[:v.Offsets[n]]
	case List, Map:
		for _, f := range v.Fields {
			f.truncate(int(v.Offsets[n]))
		}
	case Struct:
		for _, f := range v.Fields {
			f.truncate(n)
		}
	default:
		v.Data = v.Data[:n*v.width]
	}
}

// Size is about how much memory the values take.
func (v *Vector) Size() int {
	n := len(v.Data) + len(v.Valid) + 4*len(v.Offsets)
	for _, f := range v.Fields {
		n += f.Size()
	}
	return n
}

// one counts a value that was appended.
func (v *Vector) one(valid bool) {
	if v.Column.Nullable {
		if v.Len&7 == 0 {
			v.Valid = append(v.Valid, 0)
		}
		if valid {
			v.Valid[v.Len>>3] |= 1 << (v.Len & 7)
		} else {
			v.Nulls++
		}
	}
	v.Len++
}

// null appends a null; in a column that has none, a zero.
func (v *Vector) null() {
	switch v.Column.Type {
	case Text, JSON, Binary, List, Map:
		v.Offsets = append(v.Offsets, v.Offsets[v.Len])
	case Struct:
		for _, f := range v.Fields {
			f.null()
		}
	default:
		for range v.width {
			v.Data = append(v.Data, 0)
		}
	}
	v.one(false)
}

func (v *Vector) int(x int64) {
	switch v.width {
	case 1:
		v.Data = append(v.Data, byte(x))
	case 2:
		v.Data = binary.LittleEndian.AppendUint16(v.Data, uint16(x))
	case 4:
		v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(x))
	default:
		v.Data = binary.LittleEndian.AppendUint64(v.Data, uint64(x))
	}
	v.one(true)
}

func (v *Vector) float(x float64) {
	if v.width == 4 {
		v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(x)))
	} else {
		v.Data = binary.LittleEndian.AppendUint64(v.Data, math.Float64bits(x))
	}
	v.one(true)
}

// bytes appends a text or bytes; false if they are too many for one vector.
func (v *Vector) bytes(b []byte) bool {
	if len(b) > math.MaxInt32-len(v.Data) {
		v.null()
		return false
	}
	v.Data = append(v.Data, b...)
	v.Offsets = append(v.Offsets, int32(len(v.Data)))
	v.one(true)
	return true
}

// end closes a List or Map whose elements are in Fields.
func (v *Vector) end() {
	v.Offsets = append(v.Offsets, int32(v.Fields[0].Len))
	v.one(true)
}
