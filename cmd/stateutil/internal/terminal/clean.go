package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes text from a file safe to print: names in a checkpoint are
// untrusted, and a control character among them could move the cursor, change
// colours or end a line. Such characters and invalid UTF-8 are shown as Go
// escapes (\x1b, \u202e); everything else stays as it is.
func Clean(s string) string {
	if isClean(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(`\x`)
			b.WriteString(hexByte(s[i]))
		case printable(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += n
	}
	return b.String()
}

func isClean(s string) bool {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !printable(r) {
			return false
		}
		i += n
	}
	return true
}

// printable is what neither controls the terminal nor hides or reorders text:
// marks and the joiners that scripts and emoji need are kept.
func printable(r rune) bool {
	return r == ' ' || r == '\u200d' || r == '\u200c' || unicode.IsPrint(r) || unicode.Is(unicode.M, r)
}

func hexByte(c byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[c>>4], digits[c&15]})
}

// OneLine is Clean for a message: line breaks become "; ", so that an error of
// several lines stays one.
func OneLine(s string) string {
	if strings.ContainsAny(s, "\r\n") {
		parts := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
		kept := parts[:0]
		for _, p := range parts {
			if p = strings.TrimSpace(p); p != "" {
				kept = append(kept, p)
			}
		}
		s = strings.Join(kept, "; ")
	}
	return Clean(s)
}
