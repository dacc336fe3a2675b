package serializer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// walk visits the value of t at i and returns where it ends. It and skip agree
// on every input.
func (d *Decoder) walk(t *Type, b []byte, i int, v Visitor) (int, error) {
	if fixedSizes[t.enc] > 0 && len(b)-i < int(t.size) {
		return i, ErrShort
	}
	switch t.enc {
	case encOpaque:
		if !d.framed {
			return i, &OpaqueError{Class: t.JavaClass, Offset: i}
		}
		d.swallowed = true
		v.Opaque(t, t.JavaClass, b[i:])
		return len(b), nil
	case encBool:
		x, err := d.flagAt(b, i)
		if err != nil {
			return i, err
		}
		v.Bool(t, x)
		return i + 1, nil
	case encI8:
		v.Int(t, int64(int8(b[i])))
		return i + 1, nil
	case encI16:
		v.Int(t, int64(int16(binary.BigEndian.Uint16(b[i:]))))
		return i + 2, nil
	case encI32:
		v.Int(t, int64(be32(b[i:])))
		return i + 4, nil
	case encI64, encCountWindow:
		v.Int(t, be64(b[i:]))
		return i + 8, nil
	case encF32:
		v.Float(t, float64(math.Float32frombits(uint32(be32(b[i:])))))
		return i + 4, nil
	case encF64:
		v.Float(t, math.Float64frombits(uint64(be64(b[i:]))))
		return i + 8, nil
	case encChar:
		d.text = appendUnit(d.text[:0], binary.BigEndian.Uint16(b[i:]))
		v.Text(t, d.text)
		return i + 2, nil
	case encVoid, encUnit:
		v.Null(t)
		return i + 1, d.zeroByte(b, i, 0, "placeholder")
	case encVoidNamespace:
		v.Null(t)
		return i + 1, d.zeroByte(b, i, 0, "namespace")
	case encEmpty:
		v.Null(t)
		return i, nil
	case encGlobalWindow:
		v.Text(t, globalWindow)
		return i + 1, d.zeroByte(b, i, 0, "window")
	case encTuple0:
		v.Begin(t, 0)
		v.End(t)
		return i + 1, d.zeroByte(b, i, 0x2a, "Tuple0")
	case encString, encStringValue:
		s, end, ok, err := d.string16(b, i, t.enc == encString)
		if err != nil {
			return i, err
		}
		if !ok {
			v.Null(t)
		} else {
			v.Text(t, s)
		}
		return end, nil
	case encUTF8:
		s, end, err := blob(b, i)
		if err != nil {
			return i, err
		}
		v.Text(t, s)
		return end, nil
	case encBytes:
		s, end, err := blob(b, i)
		if err != nil {
			return i, err
		}
		v.Bytes(t, s)
		return end, nil
	case encBigInt, encBigDec:
		return d.walkBig(t, b, i, v)
	case encMillis:
		if ms := be64(b[i:]); ms == math.MinInt64 {
			v.Null(t)
		} else {
			v.Int(t, ms)
		}
		return i + 8, nil
	case encSQLTimestamp, encLocalDateTime, encInstant:
		read := sqlTimestamp
		switch t.enc {
		case encLocalDateTime:
			read = localDateTime
		case encInstant:
			read = instant
		}
		secs, nanos, null, err := read(b, i)
		if err != nil {
			return i, err
		}
		if null {
			v.Null(t)
		} else {
			v.Time(t, secs, nanos)
		}
		return i + int(t.size), nil
	case encLocalDate:
		days, null, err := localDate(b, i)
		if err != nil {
			return i, err
		}
		if null {
			v.Null(t)
		} else {
			v.Int(t, days)
		}
		return i + 6, nil
	case encLocalTime:
		nanos, null, err := localTime(b, i)
		if err != nil {
			return i, err
		}
		if null {
			v.Null(t)
		} else {
			v.Int(t, nanos)
		}
		return i + 7, nil
	case encTimestamp:
		if len(b)-i < int(t.size) {
			return i, ErrShort
		}
		ms, nanos := be64(b[i:]), int32(0)
		if t.size == 12 {
			if nanos = be32(b[i+8:]); nanos < 0 || nanos > 999_999 {
				return i, bad(i+8, "nanos of the millisecond", fmt.Sprintf("are %d", nanos))
			}
		}
		sec := floorDiv(ms, 1000)
		v.Time(t, sec, int32(ms-sec*1000)*1e6+nanos)
		return i + int(t.size), nil
	case encDays:
		v.Int(t, int64(be32(b[i:])))
		return i + 4, nil
	case encTimeMillis:
		ms := be32(b[i:])
		if ms < 0 || ms >= 86_400_000 {
			return i, bad(i, "time of day", fmt.Sprintf("is %d ms", ms))
		}
		v.Int(t, int64(ms)*1e6)
		return i + 4, nil
	case encDecimal:
		if t.size == 8 {
			if len(b)-i < 8 {
				return i, ErrShort
			}
			v.Decimal(t, b[i:i+8], t.Scale)
			return i + 8, nil
		}
		s, end, err := blob(b, i)
		if err != nil {
			return i, err
		}
		if len(s) == 0 {
			return i, bad(i, "decimal", "has no bytes")
		}
		v.Decimal(t, s, t.Scale)
		return end, nil
	case encEnum:
		k := be32(b[i:])
		if k < 0 || int(k) >= len(t.Symbols) {
			return i, bad(i, "enum index", fmt.Sprintf("is %d of %d", k, len(t.Symbols)))
		}
		v.Text(t, d.scratch(t.Symbols[k]))
		return i + 4, nil
	case encScalaEnum:
		id := be32(b[i:])
		for k, x := range t.symbolIDs {
			if x == id {
				v.Text(t, d.scratch(t.Symbols[k]))
				return i + 4, nil
			}
		}
		return i, bad(i, "enum id", fmt.Sprintf("is %d", id))
	case encPrimArray, encStringArray, encList:
		return d.walkElements(t, b, i, v)
	case encMap:
		return d.walkMap(t, b, i, v)
	case encNullAwareMap:
		key, val := t.Args[0], t.Args[1]
		n, i, err := d.count(b, i, 2)
		if err != nil {
			return i, err
		}
		v.Begin(t, n)
		for k := range n {
			for _, part := range [2]*Type{key, val} {
				if i, err = d.walkUnless(part, b, i, true, v); err != nil {
					return i, inElement(err, k)
				}
			}
		}
		v.End(t)
		return i, nil
	case encObjectArray, encSet:
		n, i, err := d.count(b, i, 1)
		if err != nil {
			return i, err
		}
		v.Begin(t, n)
		for k := range n {
			if i, err = d.walkUnless(t.Args[0], b, i, t.enc == encSet, v); err != nil {
				return i, inElement(err, k)
			}
		}
		v.End(t)
		return i, nil
	case encLinkedList:
		return d.walkLinkedList(t, b, i, v)
	case encNullable:
		null, err := d.flagAt(b, i)
		if err != nil {
			return i, err
		}
		i++
		if !null {
			return d.walk(t.Args[0], b, i, v)
		}
		if len(b)-i < int(t.pad) {
			return i, ErrShort
		}
		v.Null(t)
		return i + int(t.pad), nil
	case encOption:
		return d.walkUnless(t.Args[0], b, i, false, v)
	case encEither:
		left, err := d.flagAt(b, i)
		if err != nil {
			return i, err
		}
		k, name := 1, "right"
		if left {
			k, name = 0, "left"
		}
		if t.Kind == KindTry {
			name = [...]string{"success", "failure"}[k]
		}
		v.Begin(t, 1)
		v.Field(k, name)
		if i, err = d.walk(t.Args[k], b, i+1, v); err != nil {
			return i, in(err, name)
		}
		v.End(t)
		return i, nil
	case encTagged:
		return d.walkTagged(t, b, i, v)
	case encTuple:
		v.Begin(t, len(t.Fields))
		var err error
		for k := range t.Fields {
			v.Field(k, t.Fields[k].Name)
			if i, err = d.walk(t.Fields[k].Type, b, i, v); err != nil {
				return i, inField(err, t, k)
			}
		}
		v.End(t)
		return i, nil
	case encRow:
		return d.walkRow(t, b, i, v)
	case encPOJO:
		return d.walkPOJO(t, b, i, v)
	case encTTL:
		if len(b)-i < 8 {
			return i, ErrShort
		}
		d.seeTTL(be64(b[i:]))
		return d.walk(t.Args[1], b, i+8, v)
	case encTimer:
		return d.walkTimer(t, b, i, v)
	case encTimeWindow:
		v.Begin(t, 2)
		v.Field(0, "window_start")
		v.Int(typeLong, be64(b[i:]))
		v.Field(1, "window_end")
		v.Int(typeLong, be64(b[i+8:]))
		v.End(t)
		return i + 16, nil
	case encEventID:
		v.Begin(t, 2)
		v.Field(0, "id")
		v.Int(typeInt, int64(be32(b[i:])))
		v.Field(1, "timestamp")
		v.Int(typeLong, be64(b[i+4:]))
		v.End(t)
		return i + 12, nil
	case encDewey:
		return d.walkDewey(t, b, i, v)
	case encNodeID, encSharedNode, encNFAState:
		return d.walkCEP(t, b, i, v)
	case encStreamElement:
		return d.walkStreamElement(t, b, i, v)
	case encTwoPhase:
		return d.walkTwoPhase(t, b, i, v)
	case encBinaryRow, encBinaryArray, encBinaryMap:
		return d.walkBinary(t, b, i, v)
	case encRaw:
		return d.walkRaw(t, b, i, v)
	case encKryo:
		return d.walkKryo(t, b, i, v)
	case encUnion:
		return d.walkUnion(t, b, i, v)
	case encFixed:
		if len(b)-i < int(t.Length) {
			return i, ErrShort
		}
		v.Bytes(t, b[i:i+int(t.Length)])
		return i + int(t.Length), nil
	case encAvroArray, encAvroMap:
		return d.walkBlocks(t, b, i, v)
	case encReference:
		return d.walkReference(t, b, i, v)
	case encJava:
		return d.walkJava(t, b, i, v)
	}
	panic(fmt.Sprintf("serializer: encoding %d has no reader", t.enc))
}

var globalWindow = []byte("GlobalWindow")

// scratch copies a string for a call of Text.
func (d *Decoder) scratch(s string) []byte {
	d.text = append(d.text[:0], s...)
	return d.text
}

// walkUnless reads a flag at i and, unless it is null, the value; null is the
// flag's value that means there is none.
func (d *Decoder) walkUnless(t *Type, b []byte, i int, null bool, v Visitor) (int, error) {
	flag, err := d.flagAt(b, i)
	if err != nil {
		return i, err
	}
	if flag == null {
		v.Null(t)
		return i + 1, nil
	}
	return d.walk(t, b, i+1, v)
}

// walkElements reads i32 n and n elements.
func (d *Decoder) walkElements(t *Type, b []byte, i int, v Visitor) (int, error) {
	elem := t.Args[0]
	n, i, err := d.count(b, i, elem.min)
	if err != nil {
		return i, err
	}
	v.Begin(t, n)
	for k := range n {
		start := i
		if i, err = d.walk(elem, b, i, v); err != nil {
			return i, inElement(err, k)
		}
		if i == start {
			if err := d.zero(i); err != nil {
				return i, err
			}
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkMap(t *Type, b []byte, i int, v Visitor) (int, error) {
	key, val := t.Args[0], t.Args[1]
	n, i, err := d.count(b, i, key.min+1)
	if err != nil {
		return i, err
	}
	v.Begin(t, n)
	for k := range n {
		if i, err = d.walk(key, b, i, v); err != nil {
			return i, in(inElement(err, k), "key")
		}
		if i, err = d.walkUnless(val, b, i, true, v); err != nil {
			return i, inElement(err, k)
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkLinkedList(t *Type, b []byte, i int, v Visitor) (int, error) {
	if len(b)-i < 4 {
		return i, ErrShort
	}
	if !t.flag {
		return d.walkElements(t, b, i, v)
	}
	// The mask has a bit for each element, so that none is free.
	n := int(be32(b[i:]))
	if n < 0 {
		return i, bad(i, "count", fmt.Sprintf("is %d", n))
	}
	i += 4
	if len(b)-i < n/8 || len(b)-i < (n+7)/8 {
		return i, ErrShort
	}
	mask := b[i : i+(n+7)/8]
	i += len(mask)
	var err error
	v.Begin(t, n)
	for k := range n {
		if maskBit(mask, k) {
			v.Null(t.Args[0])
		} else if i, err = d.walk(t.Args[0], b, i, v); err != nil {
			return i, inElement(err, k)
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkRow(t *Type, b []byte, i int, v Visitor) (int, error) {
	mask, i, bit, err := d.rowMask(t, b, i)
	if err != nil {
		return i, err
	}
	v.Begin(t, len(t.Fields))
	if t.flag {
		kind := RowKind(mask[0] >> 7)
		kind |= RowKind(mask[0]>>6&1) << 1
		v.RowKind(kind)
	} else {
		v.RowKind(Insert)
	}
	for k := range t.Fields {
		f := &t.Fields[k]
		v.Field(k, f.Name)
		if maskBit(mask, bit+k) {
			v.Null(f.Type)
		} else if i, err = d.walk(f.Type, b, i, v); err != nil {
			return i, inField(err, t, k)
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkPOJO(t *Type, b []byte, i int, v Visitor) (int, error) {
	sub, flags, i, err := d.pojoHead(t, b, i)
	if err != nil {
		return i, err
	}
	if flags&pojoNull != 0 {
		v.Null(t)
		return i, nil
	}
	if sub != nil {
		return d.walk(sub, b, i, v)
	}
	v.Begin(t, len(t.Fields))
	for k := range t.Fields {
		f := &t.Fields[k]
		v.Field(k, f.Name)
		if i, err = d.walkUnless(f.Type, b, i, true, v); err != nil {
			return i, inField(err, t, k)
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkTimer(t *Type, b []byte, i int, v Visitor) (int, error) {
	if len(b)-i < 8 {
		return i, ErrShort
	}
	v.Begin(t, 3)
	v.Field(0, "timestamp")
	v.Int(typeLong, be64(b[i:])^math.MinInt64)
	v.Field(1, "key")
	i, err := d.walk(t.Fields[1].Type, b, i+8, v)
	if err != nil {
		return i, in(err, "key")
	}
	v.Field(2, "namespace")
	if i, err = d.walk(t.Fields[2].Type, b, i, v); err != nil {
		return i, in(err, "namespace")
	}
	v.End(t)
	return i, nil
}

// bigCodes are the numbers that Flink writes as a length of 1, 2 or 3.
var bigCodes = [4][]byte{1: {0}, 2: {1}, 3: {10}}

// walkBig reads a BigInteger or, with a scale after it, a BigDecimal.
func (d *Decoder) walkBig(t *Type, b []byte, i int, v Visitor) (int, error) {
	if len(b)-i < 4 {
		return i, ErrShort
	}
	n := be32(b[i:])
	i += 4
	var digits []byte
	switch {
	case n == 0:
		v.Null(t)
		return i, nil
	case n > 0 && n < 4:
		digits = bigCodes[n]
	case n < 5:
		return i, bad(i-4, "big integer length", fmt.Sprintf("is %d", n))
	default:
		if n-4 > maxBigBytes {
			return i, bad(i-4, "big integer length", fmt.Sprintf("is %d", n))
		}
		if int(n)-4 > len(b)-i {
			return i, ErrShort
		}
		digits = b[i : i+int(n)-4]
		i += int(n) - 4
	}
	scale := int32(0)
	if t.enc == encBigDec {
		if len(b)-i < 4 {
			return i, ErrShort
		}
		scale = be32(b[i:])
		i += 4
	}
	v.Decimal(t, digits, scale)
	return i, nil
}

func (d *Decoder) walkTagged(t *Type, b []byte, i int, v Visitor) (int, error) {
	if i >= len(b) {
		return i, ErrShort
	}
	k := int(b[i]) - 1
	if k != 0 && k != 1 {
		return i, bad(i, "union tag", fmt.Sprintf("is %d", b[i]))
	}
	name := t.Fields[k].Name
	v.Begin(t, 1)
	v.Field(k, name)
	i, err := d.walk(t.Fields[k].Type, b, i+1, v)
	if err != nil {
		return i, in(err, name)
	}
	v.End(t)
	return i, nil
}

// walkRaw reads a RAW value: the inner serializer's value with a length.
func (d *Decoder) walkRaw(t *Type, b []byte, i int, v Visitor) (int, error) {
	s, end, err := blob(b, i)
	if err != nil {
		return i, err
	}
	return end, d.framedPart(t.Args[0], s, v)
}

// framedPart visits a part of a value that fills s. If it cannot be read it is
// opaque; what follows s can be read all the same.
func (d *Decoder) framedPart(t *Type, s []byte, v Visitor) error {
	framed, swallowed := d.framed, d.swallowed
	d.framed, d.swallowed = true, false
	defer func() { d.framed, d.swallowed = framed, swallowed }()
	n, err := d.skip(t, s, 0)
	if d.mustBeOpaque(s, n, err) {
		class := d.opaqueClass(err)
		if c, ok := t.IsOpaque(); ok {
			class = c
		}
		v.Opaque(t, class, s)
		return nil
	}
	if n, err = d.walk(t, s, 0, v); err == nil && n != len(s) {
		err = bad(n, "framed value", fmt.Sprintf("leaves %d bytes", len(s)-n))
	} else if err == ErrShort {
		err = bad(len(s), "framed value", "ends too early")
	}
	return err
}
