package serializer

import (
	"encoding/binary"
	"fmt"
)

// appendImage writes a BinaryRow, BinaryArray or BinaryMap as Flink's writers do.
func (t *Type) appendImage(dst []byte, v any) ([]byte, error) {
	start := len(dst)
	switch t.enc {
	case encBinaryRow:
		if t.untyped() {
			return nil, &EncodeError{Type: t, Err: fmt.Errorf("the columns' types are not known")}
		}
		parts, kind, _, err := t.parted(v)
		if err != nil {
			return nil, err
		}
		head := rowHeader(len(parts))
		dst = append(dst, make([]byte, head+8*len(parts))...)
		dst[start] = byte(kind)
		for k, x := range parts {
			if x == nil {
				dst[start+(k+8)>>3] |= 1 << ((k + 8) & 7)
				if dst, err = t.Fields[k].Type.appendNull(dst, start, start+head+8*k); err != nil {
					return nil, err
				}
				continue
			}
			if dst, err = t.Fields[k].Type.appendColumn(dst, start, start+head+8*k, x); err != nil {
				return nil, inPath(err, t.fieldName(k))
			}
		}
		return dst, nil
	case encBinaryArray:
		list, err := t.elements(v)
		if err != nil {
			return nil, err
		}
		return appendBinaryArray(dst, t.Args[0], list)
	}
	entries, err := t.entries(v)
	if err != nil {
		return nil, err
	}
	keys, values := make([]any, len(entries)), make([]any, len(entries))
	for k, e := range entries {
		keys[k], values[k] = e.Key, e.Value
	}
	valueType := typeCount
	if t.Kind == KindMap {
		valueType = t.Args[1]
	}
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	if dst, err = appendBinaryArray(dst, t.Args[0], keys); err != nil {
		return nil, inPath(err, "keys")
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	if dst, err = appendBinaryArray(dst, valueType, values); err != nil {
		return nil, inPath(err, "values")
	}
	return dst, nil
}

func appendBinaryArray(dst []byte, elem *Type, list []any) ([]byte, error) {
	start := len(dst)
	n, w := len(list), elem.slot.width()
	slots := 4 + (n+31)/32*4
	dst = append(dst, make([]byte, (slots+n*w+7)/8*8)...)
	binary.LittleEndian.PutUint32(dst[start:], uint32(n))
	var err error
	for k, x := range list {
		if x == nil {
			dst[start+4+k>>3] |= 1 << (k & 7)
			continue
		}
		if dst, err = elem.appendColumn(dst, start, start+slots+k*w, x); err != nil {
			return nil, inPath(err, fmt.Sprintf("[%d]", k))
		}
	}
	return dst, nil
}

// appendNull reserves the bytes that Flink keeps for a null that may be set later.
func (t *Type) appendNull(dst []byte, start, at int) ([]byte, error) {
	n := 0
	switch t.slot {
	case slotBigDecimal:
		n = 16
	case slotTimestamp:
		n = 8
	default:
		return dst, nil
	}
	binary.LittleEndian.PutUint64(dst[at:], uint64(len(dst)-start)<<32)
	return append(dst, make([]byte, n)...), nil
}

// appendColumn writes the slot at at of the row or array that begins at start, and
// its item behind all others.
func (t *Type) appendColumn(dst []byte, start, at int, v any) ([]byte, error) {
	item := func(b []byte) []byte {
		binary.LittleEndian.PutUint64(dst[at:], uint64(len(dst)-start)<<32|uint64(len(b)))
		dst = append(dst, b...)
		return append(dst, make([]byte, -len(b)&7)...)
	}
	switch t.slot {
	case slotText, slotBytes:
		var b []byte
		if t.slot == slotText {
			s, ok := v.(string)
			if !ok {
				return nil, t.refuse(v)
			}
			b = []byte(s)
		} else {
			var err error
			if b, err = t.blob(v); err != nil {
				return nil, err
			}
		}
		if len(b) > 7 {
			return item(b), nil
		}
		copy(dst[at:], b)
		dst[at+7] = 0x80 | byte(len(b))
		return dst, nil
	case slotArray, slotMap, slotRow:
		b, err := t.appendImage(nil, v)
		if err != nil {
			return nil, err
		}
		return item(b), nil
	case slotRaw:
		b, err := t.Args[0].encode(nil, v)
		if err != nil {
			return nil, err
		}
		return item(b), nil
	case slotBigDecimal:
		b, err := t.scaled(v)
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint64(dst[at:], uint64(len(dst)-start)<<32|uint64(len(b)))
		dst = append(dst, b...)
		return append(dst, make([]byte, 16-len(b))...), nil
	case slotTimestamp:
		secs, nanos, err := t.moment(v)
		if err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint64(dst[at:], uint64(len(dst)-start)<<32|uint64(nanos%1e6))
		return binary.LittleEndian.AppendUint64(dst, uint64(secs*1000+int64(nanos/1e6))), nil
	case slotNull:
		return nil, t.refuse(v)
	case slotNone:
		return nil, &EncodeError{Type: t, Err: fmt.Errorf("only its class can write it")}
	}
	// The rest is what the standalone serializer writes, turned round.
	b, err := t.encode(nil, v)
	if err != nil {
		return nil, err
	}
	for k, c := range b {
		dst[at+len(b)-1-k] = c
	}
	return dst, nil
}
