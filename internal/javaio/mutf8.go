package javaio

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// String is a Java string as it stands in a file: its modified UTF-8 bytes
// without the length in front. Keeping the raw bytes makes decode and encode
// byte-identical, keeps lone surrogates and over-long forms, and costs nothing
// for the ASCII that nearly all names are. Two Strings that differ may be the
// same text for Java (over-long forms); compare Go() when that matters.
//
// Modified UTF-8, per UTF-16 code unit: U+0001..U+007F one byte; U+0000 and
// U+0080..U+07FF two bytes (NUL is C0 80); U+0800..U+FFFF three bytes. A
// supplementary character is a surrogate pair of two three-byte groups.
// Source: java.io.DataInput, "Modified UTF-8".
type String string

// MaxStringBytes is the longest String that fits behind its uint16 length.
const MaxStringBytes = 65535

// ErrMalformedString says that bytes are not modified UTF-8 as Java's
// DataInput.readUTF accepts it.
var ErrMalformedString = errors.New("malformed modified UTF-8")

// NewString encodes Go text. Invalid UTF-8 becomes U+FFFD, as in a range loop,
// except the three-byte form of a lone surrogate (ED A0..BF xx), which is kept,
// so that NewString(s.Go()) gives s back for everything a Java writer makes.
func NewString(s string) String {
	ascii := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0 || c >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return String(s)
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	for i := 0; i < len(s); {
		if isSurrogateAt(s, i) {
			b.WriteString(s[i : i+3])
			i += 3
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == 0:
			b.WriteString("\xc0\x80")
		case r > 0xffff:
			r -= 0x10000
			writeUnit(&b, 0xd800+uint16(r>>10))
			writeUnit(&b, 0xdc00+uint16(r&0x3ff))
		default:
			b.WriteRune(r)
		}
	}
	return String(b.String())
}

func isSurrogateAt(s string, i int) bool {
	return i+2 < len(s) && s[i] == 0xed && s[i+1] >= 0xa0 && s[i+1] <= 0xbf && s[i+2] >= 0x80 && s[i+2] <= 0xbf
}

// writeUnit writes a UTF-16 code unit of 0x0800 or more.
func writeUnit(b *strings.Builder, u uint16) {
	b.WriteByte(0xe0 | byte(u>>12))
	b.WriteByte(0x80 | byte(u>>6)&0x3f)
	b.WriteByte(0x80 | byte(u)&0x3f)
}

// Valid reports whether s is well-formed: what DataInput.readUTF accepts.
func (s String) Valid() bool {
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c < 0x80:
			i++
		case c&0xe0 == 0xc0:
			if i+1 >= len(s) || s[i+1]&0xc0 != 0x80 {
				return false
			}
			i += 2
		case c&0xf0 == 0xe0:
			if i+2 >= len(s) || s[i+1]&0xc0 != 0x80 || s[i+2]&0xc0 != 0x80 {
				return false
			}
			i += 3
		default:
			return false
		}
	}
	return true
}

// Go returns the text as UTF-8. A lone surrogate keeps its three-byte form,
// which is not valid UTF-8 but loses nothing; printing it shows U+FFFD. Bytes
// that are not modified UTF-8 at all are passed through.
func (s String) Go() string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0xc0 || c == 0xc1 || c == 0xe0 || c == 0xed {
			plain = false
			break
		}
	}
	if plain {
		return string(s)
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		u, n := s.unit(i)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		if u >= 0xd800 && u < 0xdc00 {
			if lo, m := s.unit(i + n); m == 3 && lo >= 0xdc00 && lo < 0xe000 {
				b.WriteRune(0x10000 + (rune(u)-0xd800)<<10 + rune(lo) - 0xdc00)
				i += n + m
				continue
			}
		}
		if u >= 0xd800 && u < 0xe000 {
			b.WriteString(string(s[i : i+n]))
		} else {
			b.WriteRune(rune(u))
		}
		i += n
	}
	return b.String()
}

// unit decodes the UTF-16 code unit at byte i; n is 0 if there is none.
func (s String) unit(i int) (u uint16, n int) {
	if i >= len(s) {
		return 0, 0
	}
	switch c := s[i]; {
	case c < 0x80:
		return uint16(c), 1
	case c&0xe0 == 0xc0 && i+1 < len(s) && s[i+1]&0xc0 == 0x80:
		return uint16(c&0x1f)<<6 | uint16(s[i+1]&0x3f), 2
	case c&0xf0 == 0xe0 && i+2 < len(s) && s[i+1]&0xc0 == 0x80 && s[i+2]&0xc0 == 0x80:
		return uint16(c&0x0f)<<12 | uint16(s[i+1]&0x3f)<<6 | uint16(s[i+2]&0x3f), 3
	}
	return 0, 0
}

// String implements fmt.Stringer: the Go form.
func (s String) String() string { return s.Go() }
