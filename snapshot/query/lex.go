package query

import (
	"strings"
)

// token is a part of a statement as SQLite's tokenizer sees it.
type token struct {
	kind tokenKind
	text string // an identifier without its quotes, else as written
	from int    // offsets in the statement
	to   int
}

type tokenKind uint8

const (
	tokenName   tokenKind = iota // an identifier or keyword
	tokenQuoted                  // an identifier in quotes
	tokenString                  // 'text': SQLite takes it for an identifier where only one can stand
	tokenOther
)

// lex splits a statement; comments and space are left out. What is not closed ends
// with the statement: SQLite will say what is wrong with it.
func lex(s string) []token {
	var out []token
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c >= '\t' && c <= '\r':
			i++
		case c == '-' && strings.HasPrefix(s[i:], "--"):
			i = end(s, i, "\n")
		case c == '/' && strings.HasPrefix(s[i:], "/*"):
			i = end(s, i+2, "*/")
		case c == '\'' || c == '"' || c == '`' || c == '[':
			t := token{kind: tokenQuoted, from: i}
			closing := c
			if c == '[' {
				closing = ']'
			}
			if c == '\'' {
				t.kind = tokenString
			}
			t.text, i = quoted(s, i+1, closing)
			t.to = i
			out = append(out, t)
		case nameByte(c) && (c < '0' || c > '9'):
			from := i
			for i < len(s) && nameByte(s[i]) {
				i++
			}
			if i-from == 1 && (c == 'x' || c == 'X') && i < len(s) && s[i] == '\'' { // a blob
				_, i = quoted(s, i+1, '\'')
				out = append(out, token{kind: tokenOther, text: s[from:i], from: from, to: i})
				continue
			}
			out = append(out, token{kind: tokenName, text: s[from:i], from: from, to: i})
		case c >= '0' && c <= '9':
			from := i
			for i < len(s) && (nameByte(s[i]) || s[i] == '.') {
				i++
			}
			out = append(out, token{kind: tokenOther, text: s[from:i], from: from, to: i})
		default:
			out = append(out, token{kind: tokenOther, text: s[i : i+1], from: i, to: i + 1})
			i++
		}
	}
	return out
}

// end is the place behind the next closing, or the end.
func end(s string, i int, closing string) int {
	if k := strings.Index(s[i:], closing); k >= 0 {
		return i + k + len(closing)
	}
	return len(s)
}

func quoted(s string, i int, closing byte) (text string, next int) {
	var b strings.Builder
	for i < len(s) {
		if s[i] == closing {
			if closing == ']' || i+1 == len(s) || s[i+1] != closing {
				return b.String(), i + 1
			}
			i++ // doubled
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String(), i
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// fold is how SQLite compares names: ASCII letters regardless of case.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// quote makes an identifier of any text. SQLite ends at a NUL.
func quote(s string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(s, "\x00", "\uFFFD"), `"`, `""`) + `"`
}

// mentions are the names that a statement could mean something by, folded.
func mentions(tokens []token) map[string]bool {
	m := map[string]bool{}
	for _, t := range tokens {
		if t.kind != tokenOther {
			m[fold(t.text)] = true
		}
	}
	return m
}

// parts of a row whose fields have columns of their own.
var partNames = map[string]bool{"key": true, "map_key": true, "namespace": true, "value": true}

// joinFields writes value.price, which SQL takes for column price of a table
// value, as the column "value.price", where there is one. Columns are folded.
func joinFields(s string, tokens []token, columns map[string]bool) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(tokens); i++ {
		if tokens[i].kind > tokenQuoted || i > 0 && tokens[i-1].text == "." && tokens[i-1].kind == tokenOther {
			continue
		}
		// A chain: names with dots between them.
		last := i
		for last+2 < len(tokens) && tokens[last+1].kind == tokenOther && tokens[last+1].text == "." && tokens[last+2].kind <= tokenQuoted {
			last += 2
		}
		for k := i; k < last; k += 2 {
			if !partNames[fold(tokens[k].text)] {
				continue
			}
			joined := tokens[k].text
			for n := k + 2; n <= last; n += 2 {
				joined += "." + tokens[n].text
			}
			if columns[fold(joined)] {
				b.WriteString(s[done:tokens[k].from])
				b.WriteString(quote(joined))
				done = tokens[last].to
				break
			}
		}
		i = last
	}
	b.WriteString(s[done:])
	return b.String()
}
