package serializer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A BinaryRow is the image of a row in Flink's table runtime, little-endian:
//
//	byte 0           row kind
//	bits from 8 on   null bits of the columns, least significant first
//	at H             a slot of 8 bytes per column, H = (columns+8+63)/64*8
//	at H+8*columns   the variable part, items padded to 8 bytes
//
// A slot holds a fixed-size value in its low bytes; a text or binary of up to 7
// bytes with the length and 0x80 in byte 7; or size (low half) and offset (high
// half) of an item, counted from byte 0 of the row. A timestamp above precision 3
// has offset and nanoseconds of the millisecond. A BinaryArray is
//
//	i32 n, null bits in words of 4 bytes, n slots of the element's width, padded to 8,
//	variable part
//
// and a BinaryMap i32 size of the key array, key array, value array. Source:
// Flink, BinaryRowData.java, BinaryArrayData.java, BinaryMapData.java.

// overlap bounds how often a byte of a row may be read: once for each level of
// nesting, of which a type has at most so many. Damaged offsets could otherwise
// make every element point at the same large item.
const overlap = maxSnapshotDepth

// walkBinary reads i32 n and an image of n bytes.
func (d *Decoder) walkBinary(t *Type, b []byte, i int, v Visitor) (int, error) {
	s, end, err := blob(b, i)
	if err != nil {
		return i, err
	}
	if !d.inImage { // else it is a RAW column's value, which has its row's budget
		d.budget = overlap * (len(s) + 8)
		d.inImage = true
		defer func() { d.inImage = false }()
	}
	if err := d.image(t, s, v); err != nil {
		return i, err
	}
	return end, nil
}

// image reads a BinaryRow, BinaryArray or BinaryMap that fills s.
func (d *Decoder) image(t *Type, s []byte, v Visitor) error {
	if d.budget -= len(s) + 1; d.budget < 0 {
		return bad(0, "binary data", "overlaps itself")
	}
	switch t.enc {
	case encBinaryRow:
		if t.untyped() {
			if len(s) < rowHeader(int(t.Length))+8*int(t.Length) {
				return bad(0, "row", fmt.Sprintf("has %d bytes for %d columns", len(s), t.Length))
			}
			v.Opaque(t, t.JavaClass, s)
			return nil
		}
		return d.rowImage(t, s, v)
	case encBinaryArray:
		n, nulls, slots, err := arrayParts(t.Args[0], s)
		if err != nil {
			return err
		}
		v.Begin(t, n)
		for k := range n {
			if err := d.element(t.Args[0], s, nulls, slots, k, v); err != nil {
				return inElement(err, k)
			}
		}
		v.End(t)
		return nil
	}
	if len(s) < 4 {
		return bad(0, "map", "has no key size")
	}
	size := int(int32(binary.LittleEndian.Uint32(s)))
	if size < 4 || size > len(s)-8 {
		return bad(0, "map key size", fmt.Sprintf("is %d of %d bytes", size, len(s)))
	}
	keys, values := s[4:4+size], s[4+size:]
	valueType := typeCount
	if t.Kind == KindMap {
		valueType = t.Args[1]
	}
	n, keyNulls, keySlots, err := arrayParts(t.Args[0], keys)
	if err != nil {
		return in(err, "keys")
	}
	m, valueNulls, valueSlots, err := arrayParts(valueType, values)
	if err != nil {
		return in(err, "values")
	}
	if n != m {
		return bad(0, "map", fmt.Sprintf("has %d keys and %d values", n, m))
	}
	v.Begin(t, n)
	for k := range n {
		if err := d.element(t.Args[0], keys, keyNulls, keySlots, k, v); err != nil {
			return in(inElement(err, k), "key")
		}
		if err := d.element(valueType, values, valueNulls, valueSlots, k, v); err != nil {
			return inElement(err, k)
		}
	}
	v.End(t)
	return nil
}

// typeCount is how often an element is in a multiset.
var typeCount = &Type{Kind: KindInt, enc: encI32, slot: slotI32, size: 4, min: 4}

func rowHeader(columns int) int { return (columns + 8 + 63) / 64 * 8 }

func (d *Decoder) rowImage(t *Type, s []byte, v Visitor) error {
	n := len(t.Fields)
	head := rowHeader(n)
	if len(s) < head+8*n {
		return bad(0, "row", fmt.Sprintf("has %d bytes for %d columns", len(s), n))
	}
	if s[0] > byte(Delete) {
		return bad(0, "row kind", fmt.Sprintf("is %d", s[0]))
	}
	v.Begin(t, n)
	v.RowKind(RowKind(s[0]))
	for k := range t.Fields {
		f := &t.Fields[k]
		v.Field(k, f.Name)
		if bit := k + 8; s[bit>>3]&(1<<(bit&7)) != 0 {
			v.Null(f.Type)
		} else if err := d.column(f.Type, s, s[head+8*k:head+8*k+8], head+8*n, v); err != nil {
			return inField(err, t, k)
		}
	}
	v.End(t)
	return nil
}

// arrayParts finds null bits and slots of an array of elem.
func arrayParts(elem *Type, s []byte) (n, nulls, slots int, err error) {
	if len(s) < 4 {
		return 0, 0, 0, bad(0, "array", "has no size")
	}
	n = int(int32(binary.LittleEndian.Uint32(s)))
	if n < 0 || n > len(s)*8 {
		return 0, 0, 0, bad(0, "array size", fmt.Sprintf("is %d", n))
	}
	slots = 4 + (n+31)/32*4
	if slots > len(s) || n > (len(s)-slots)/elem.slot.width() {
		return 0, 0, 0, bad(0, "array size", fmt.Sprintf("is %d in %d bytes", n, len(s)))
	}
	return n, 4, slots, nil
}

func (d *Decoder) element(elem *Type, s []byte, nulls, slots, k int, v Visitor) error {
	if s[nulls+k>>3]&(1<<(k&7)) != 0 {
		v.Null(elem)
		return nil
	}
	w := elem.slot.width()
	at := slots + w*k
	return d.column(elem, s, s[at:at+w], slots, v)
}

// item is the part of s that a slot's offset and size point at; it lies behind
// the slots.
func item(s, slot []byte, least int) ([]byte, error) {
	x := binary.LittleEndian.Uint64(slot)
	off, size := x>>32, x&math.MaxUint32
	if off+size > uint64(len(s)) || off < uint64(least) {
		return nil, bad(0, "item", fmt.Sprintf("of %d bytes at %d lies outside %d bytes", size, off, len(s)))
	}
	return s[off : off+size], nil
}

// column reads one slot. s is the row or array it belongs to, least where its
// variable part begins at the earliest.
func (d *Decoder) column(t *Type, s, slot []byte, least int, v Visitor) error {
	switch t.slot {
	case slotBool:
		v.Bool(t, slot[0] != 0)
		if d.strict && slot[0] > 1 {
			return bad(0, "boolean", fmt.Sprintf("is %d", slot[0]))
		}
	case slotI8:
		v.Int(t, int64(int8(slot[0])))
	case slotI16:
		v.Int(t, int64(int16(binary.LittleEndian.Uint16(slot))))
	case slotI32:
		x := int64(int32(binary.LittleEndian.Uint32(slot)))
		if t.Kind == KindLocalTime {
			if x < 0 || x >= 86_400_000 {
				return bad(0, "time of day", fmt.Sprintf("is %d ms", x))
			}
			x *= 1e6
		}
		v.Int(t, x)
	case slotI64:
		v.Int(t, int64(binary.LittleEndian.Uint64(slot)))
	case slotF32:
		v.Float(t, float64(math.Float32frombits(binary.LittleEndian.Uint32(slot))))
	case slotF64:
		v.Float(t, math.Float64frombits(binary.LittleEndian.Uint64(slot)))
	case slotDecimal:
		binary.BigEndian.PutUint64(d.num[:8], binary.LittleEndian.Uint64(slot))
		v.Decimal(t, d.num[:8], t.Scale)
	case slotMillis:
		ms := int64(binary.LittleEndian.Uint64(slot))
		sec := floorDiv(ms, 1000)
		v.Time(t, sec, int32(ms-sec*1000)*1e6)
	case slotTimestamp:
		x := binary.LittleEndian.Uint64(slot)
		off, nanos := x>>32, int32(x&math.MaxUint32)
		if off+8 > uint64(len(s)) || off < uint64(least) || nanos < 0 || nanos > 999_999 {
			return bad(0, "timestamp", fmt.Sprintf("has %d ns and its milliseconds at %d of %d bytes", nanos, off, len(s)))
		}
		ms := int64(binary.LittleEndian.Uint64(s[off:]))
		sec := floorDiv(ms, 1000)
		v.Time(t, sec, int32(ms-sec*1000)*1e6+nanos)
	case slotText, slotBytes:
		var text []byte
		if c := slot[7]; c&0x80 != 0 {
			if c&0x7f > 7 {
				return bad(0, "text", fmt.Sprintf("of %d bytes lies in 7", c&0x7f))
			}
			text = slot[:c&0x7f]
		} else {
			var err error
			if text, err = item(s, slot, least); err != nil {
				return err
			}
			if d.budget -= len(text); d.budget < 0 {
				return bad(0, "binary data", "overlaps itself")
			}
		}
		if t.slot == slotText {
			v.Text(t, text)
		} else {
			v.Bytes(t, text)
		}
	case slotBigDecimal, slotArray, slotMap, slotRow, slotRaw:
		part, err := item(s, slot, least)
		if err != nil {
			return err
		}
		switch t.slot {
		case slotBigDecimal:
			if len(part) == 0 || len(part) > 16 {
				return bad(0, "decimal", fmt.Sprintf("has %d bytes", len(part)))
			}
			v.Decimal(t, part, t.Scale)
		case slotRaw:
			if d.budget -= len(part) + 1; d.budget < 0 {
				return bad(0, "binary data", "overlaps itself")
			}
			return d.framedPart(t.Args[0], part, v)
		default:
			return d.image(t, part, v)
		}
	case slotNull:
		v.Null(t)
	default:
		v.Opaque(t, t.JavaClass, slot)
	}
	return nil
}
