package serializer

import (
	"encoding/binary"
	"unicode/utf8"
)

const highBits = 0x8080808080808080

// ascii reports whether no byte of b has its high bit set.
func ascii(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b)&highBits != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// units reads the length varint of a string. ok is false for a null, which only
// nullable strings have: there the varint is the length plus one.
func units(b []byte, i int, nullable bool) (n, next int, ok bool, err error) {
	if i >= len(b) {
		return 0, i, false, ErrShort
	}
	v := uint64(b[i])
	i++
	if v >= 0x80 {
		v &= 0x7f
		for shift := uint(7); ; shift += 7 {
			if i >= len(b) {
				return 0, i, false, ErrShort
			}
			c := b[i]
			i++
			v |= uint64(c&0x7f) << shift
			if c < 0x80 {
				break
			}
			if shift >= 28 {
				return 0, i, false, bad(i, "string length", "has more than five bytes")
			}
		}
		if v > 1<<31 {
			return 0, i, false, bad(i, "string length", "exceeds 2^31")
		}
	}
	if nullable {
		if v == 0 {
			return 0, i, false, nil
		}
		v--
	}
	if v > uint64(len(b)-i) {
		return 0, i, true, ErrShort
	}
	return int(v), i, true, nil
}

// unit reads one UTF-16 unit.
func unit(b []byte, i int) (u uint16, next int, err error) {
	if i >= len(b) {
		return 0, i, ErrShort
	}
	c := b[i]
	if c < 0x80 {
		return uint16(c), i + 1, nil
	}
	if i+1 >= len(b) {
		return 0, i, ErrShort
	}
	v := uint32(c&0x7f) | uint32(b[i+1]&0x7f)<<7
	if b[i+1] < 0x80 {
		return uint16(v), i + 2, nil
	}
	if i+2 >= len(b) {
		return 0, i, ErrShort
	}
	if b[i+2] > 3 {
		return 0, i, bad(i, "character", "exceeds 16 bits")
	}
	return uint16(v | uint32(b[i+2])<<14), i + 3, nil
}

// skipString is the end of a string of Flink's StringSerializer.
func skipString(b []byte, i int, nullable bool) (int, error) {
	n, i, ok, err := units(b, i, nullable)
	if err != nil || !ok {
		return i, err
	}
	if ascii(b[i : i+n]) {
		return i + n, nil
	}
	for ; n > 0; n-- {
		if _, i, err = unit(b, i); err != nil {
			return i, err
		}
	}
	return i, nil
}

// string16 decodes a string of Flink's StringSerializer. The text aliases b if it
// is ASCII, else the scratch buffer, and is valid until the next call.
func (d *Decoder) string16(b []byte, i int, nullable bool) (text []byte, next int, ok bool, err error) {
	n, i, ok, err := units(b, i, nullable)
	if err != nil || !ok {
		return nil, i, ok, err
	}
	if ascii(b[i : i+n]) {
		return b[i : i+n], i + n, true, nil
	}
	out := d.text[:0]
	var u uint16
	for ; n > 0; n-- {
		if u, i, err = unit(b, i); err != nil {
			return nil, i, true, err
		}
		out = appendUnit(out, u)
	}
	d.text = out
	return out, i, true, nil
}

// appendUnit appends a UTF-16 unit to UTF-8, joining it with a high surrogate at
// the end. An unpaired surrogate keeps its three-byte form.
func appendUnit(out []byte, u uint16) []byte {
	switch {
	case u < 0x80:
		return append(out, byte(u))
	case u < 0x800:
		return append(out, 0xc0|byte(u>>6), 0x80|byte(u&0x3f))
	case u >= 0xdc00 && u < 0xe000:
		if n := len(out); n >= 3 && out[n-3] == 0xed && out[n-2] >= 0xa0 && out[n-2] < 0xb0 {
			hi := uint32(out[n-2]&0x0f)<<6 | uint32(out[n-1]&0x3f) // ten bits of the high surrogate
			return utf8.AppendRune(out[:n-3], rune(0x10000+hi<<10+uint32(u-0xdc00)))
		}
	}
	return append(out, 0xe0|byte(u>>12), 0x80|byte(u>>6)&0x3f, 0x80|byte(u&0x3f))
}

// forEachUnit calls f for each UTF-16 unit of UTF-8 text in which unpaired
// surrogates may have their three-byte form. Invalid bytes are U+FFFD.
func forEachUnit(text []byte, f func(u uint16)) {
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			f(uint16(c))
			i++
			continue
		}
		if loneSurrogate(text[i:]) {
			f(0xd000 | uint16(text[i+1]&0x3f)<<6 | uint16(text[i+2]&0x3f))
			i += 3
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		i += n
		if r > 0xffff {
			r -= 0x10000
			f(0xd800 + uint16(r>>10))
			f(0xdc00 + uint16(r&0x3ff))
			continue
		}
		f(uint16(r))
	}
}

// loneSurrogate reports whether text begins with a surrogate's three-byte form.
func loneSurrogate(text []byte) bool {
	return len(text) >= 3 && text[0] == 0xed && text[1] >= 0xa0 && text[1] <= 0xbf && text[2]&0xc0 == 0x80
}

// compareJava orders UTF-8 text as Java's String.compareTo does, by UTF-16 units:
// supplementary characters come before U+E000 to U+FFFF.
func compareJava(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
				if x >= 0xf0 {
					return -1
				}
				return 1
			}
			if x < y {
				return -1
			}
			return 1
		}
	}
	return len(a) - len(b)
}
