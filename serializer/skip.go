package serializer

import "fmt"

// skip returns where the value of t at i ends, having checked what walk checks.
// What is common in state has its own code here; the rest is walked.
func (d *Decoder) skip(t *Type, b []byte, i int) (int, error) {
	switch t.enc {
	case encBool:
		_, err := d.flagAt(b, i)
		return i + 1, err
	case encI8, encI16, encI32, encI64, encF32, encF64, encChar, encMillis, encTimeWindow, encCountWindow, encEventID, encDays:
		if len(b)-i < int(t.size) {
			return i, ErrShort
		}
		return i + int(t.size), nil
	case encVoidNamespace:
		return i + 1, d.zeroByte(b, i, 0, "namespace")
	case encString:
		return skipString(b, i, true)
	case encStringValue:
		return skipString(b, i, false)
	case encBytes:
		return skipBytes(b, i)
	case encList:
		elem := t.Args[0]
		n, i, err := d.count(b, i, elem.min)
		if err != nil {
			return i, err
		}
		for k := range n {
			start := i
			if i, err = d.skip(elem, b, i); err != nil {
				return i, inElement(err, k)
			}
			if i == start {
				if err := d.zero(i); err != nil {
					return i, err
				}
			}
		}
		return i, nil
	case encMap:
		key, val := t.Args[0], t.Args[1]
		n, i, err := d.count(b, i, key.min+1)
		if err != nil {
			return i, err
		}
		for k := range n {
			if i, err = d.skip(key, b, i); err != nil {
				return i, in(inElement(err, k), "key")
			}
			null, err := d.flagAt(b, i)
			if err != nil {
				return i, inElement(err, k)
			}
			i++
			if !null {
				if i, err = d.skip(val, b, i); err != nil {
					return i, inElement(err, k)
				}
			}
		}
		return i, nil
	case encObjectArray, encSet:
		elem := t.Args[0]
		n, i, err := d.count(b, i, 1)
		if err != nil {
			return i, err
		}
		for k := range n {
			flag, err := d.flagAt(b, i)
			if err != nil {
				return i, inElement(err, k)
			}
			i++
			if flag == (t.enc == encObjectArray) {
				if i, err = d.skip(elem, b, i); err != nil {
					return i, inElement(err, k)
				}
			}
		}
		return i, nil
	case encPrimArray:
		elem := t.Args[0]
		n, i, err := d.count(b, i, elem.size)
		if err != nil {
			return i, err
		}
		if elem.enc == encBool && d.strict {
			for k := range n {
				if _, err := d.flagAt(b, i+k); err != nil {
					return i, inElement(err, k)
				}
			}
		}
		return i + n*int(elem.size), nil
	case encNullable:
		null, err := d.flagAt(b, i)
		if err != nil {
			return i, err
		}
		i++
		if !null {
			return d.skip(t.Args[0], b, i)
		}
		if len(b)-i < int(t.pad) {
			return i, ErrShort
		}
		return i + int(t.pad), nil
	case encTuple:
		var err error
		for k := range t.Fields {
			if i, err = d.skip(t.Fields[k].Type, b, i); err != nil {
				return i, inField(err, t, k)
			}
		}
		return i, nil
	case encRow:
		mask, i, bit, err := d.rowMask(t, b, i)
		if err != nil {
			return i, err
		}
		for k := range t.Fields {
			if maskBit(mask, bit+k) {
				continue
			}
			if i, err = d.skip(t.Fields[k].Type, b, i); err != nil {
				return i, inField(err, t, k)
			}
		}
		return i, nil
	case encPOJO:
		return d.skipPOJO(t, b, i)
	case encTTL:
		if len(b)-i < 8 {
			return i, ErrShort
		}
		d.seeTTL(be64(b[i:]))
		return d.skip(t.Args[1], b, i+8)
	case encEither:
		left, err := d.flagAt(b, i)
		if err != nil {
			return i, err
		}
		arg := t.Args[1]
		if left {
			arg = t.Args[0]
		}
		return d.skip(arg, b, i+1)
	case encTimer:
		if len(b)-i < 8 {
			return i, ErrShort
		}
		i, err := d.skip(t.Fields[1].Type, b, i+8)
		if err != nil {
			return i, in(err, "key")
		}
		i, err = d.skip(t.Fields[2].Type, b, i)
		return i, in(err, "namespace")
	}
	return d.walk(t, b, i, &d.checked)
}

func skipBytes(b []byte, i int) (int, error) {
	if len(b)-i < 4 {
		return i, ErrShort
	}
	n := be32(b[i:])
	if n < 0 {
		return i, bad(i, "length", fmt.Sprintf("is %d", n))
	}
	if int64(n) > int64(len(b)-i-4) {
		return i, ErrShort
	}
	return i + 4 + int(n), nil
}

// blob reads i32 n and n bytes.
func blob(b []byte, i int) ([]byte, int, error) {
	end, err := skipBytes(b, i)
	if err != nil {
		return nil, i, err
	}
	return b[i+4 : end], end, nil
}

func (d *Decoder) skipPOJO(t *Type, b []byte, i int) (int, error) {
	sub, flags, i, err := d.pojoHead(t, b, i)
	if err != nil || flags&pojoNull != 0 {
		return i, err
	}
	if sub != nil {
		return d.skip(sub, b, i)
	}
	for k := range t.Fields {
		null, err := d.flagAt(b, i)
		if err != nil {
			return i, inField(err, t, k)
		}
		i++
		if !null {
			if i, err = d.skip(t.Fields[k].Type, b, i); err != nil {
				return i, inField(err, t, k)
			}
		}
	}
	return i, nil
}

func inElement(err error, k int) error {
	if err == ErrShort {
		return err
	}
	return in(err, fmt.Sprintf("[%d]", k))
}

func inField(err error, t *Type, k int) error {
	if err == ErrShort {
		return err
	}
	name := t.Fields[k].Name
	if name == "" {
		name = fmt.Sprintf("f%d", k)
	}
	return in(err, name)
}

func be64(b []byte) int64 { return int64(be32(b))<<32 | int64(uint32(be32(b[4:]))) }

// rowMask checks the mask of a Row and returns it, with the index of the first
// field's bit. Bits are counted from the most significant of the first byte.
func (d *Decoder) rowMask(t *Type, b []byte, i int) (mask []byte, next, bit int, err error) {
	if t.flag {
		bit = 2
	}
	n := (len(t.Fields) + bit + 7) / 8
	if len(b)-i < n {
		return nil, i, 0, ErrShort
	}
	mask = b[i : i+n]
	if used := (len(t.Fields) + bit) & 7; used != 0 && d.strict && mask[n-1]<<used != 0 {
		return nil, i, 0, bad(i+n-1, "null mask", fmt.Sprintf("has bits for more than %d fields", len(t.Fields)))
	}
	return mask, i + n, bit, nil
}

func maskBit(mask []byte, k int) bool { return mask[k>>3]&(0x80>>(k&7)) != 0 }

// Flags of a POJO value.
const (
	pojoNull       = 1
	pojoNoSubclass = 2
	pojoSubclass   = 4
	pojoTagged     = 8
)

// pojoHead reads the flags and, for a subclass, which one: sub is its type. A
// subclass that the snapshot does not know is an OpaqueError.
func (d *Decoder) pojoHead(t *Type, b []byte, i int) (sub *Type, flags byte, next int, err error) {
	if i >= len(b) {
		return nil, 0, i, ErrShort
	}
	switch flags = b[i]; flags {
	case pojoNull, pojoNoSubclass:
		return nil, flags, i + 1, nil
	case pojoSubclass:
		if len(b)-i < 3 {
			return nil, flags, i, ErrShort
		}
		n := int(b[i+1])<<8 | int(b[i+2])
		if len(b)-i-3 < n {
			return nil, flags, i, ErrShort
		}
		name := b[i+3 : i+3+n]
		for k := range t.Unregistered {
			if s := &t.Unregistered[k]; s.Class == string(name) && s.Type != nil {
				return s.Type, flags, i + 3 + n, nil
			}
		}
		if c := d.classes[string(name)]; c != nil && c.Kind == KindPOJO {
			return c, flags, i + 3 + n, nil
		}
		return nil, flags, i, &OpaqueError{Class: string(name), Offset: i}
	case pojoTagged:
		if len(b)-i < 2 {
			return nil, flags, i, ErrShort
		}
		tag := int(b[i+1])
		if tag >= len(t.Registered) {
			return nil, flags, i, bad(i+1, "subclass tag", fmt.Sprintf("is %d of %d", tag, len(t.Registered)))
		}
		if s := t.Registered[tag].Type; s != nil {
			return s, flags, i + 2, nil
		}
		return nil, flags, i, &OpaqueError{Class: t.Registered[tag].Class, Offset: i}
	}
	return nil, flags, i, bad(i, "POJO flags", fmt.Sprintf("are %#02x", flags))
}
