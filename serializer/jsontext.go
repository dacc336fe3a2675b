package serializer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// parseJSON reads JSON as encoding/json does with UseNumber, but keeps unpaired
// surrogates, which Java strings may have: as the three bytes that AppendJSON
// escapes.
func parseJSON(text []byte) (any, error) {
	p := jsonParser{s: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.i < len(p.s) {
		return nil, p.fail("text after the value")
	}
	return v, nil
}

type jsonParser struct {
	s []byte
	i int
}

const maxJSONDepth = 1000

func (p *jsonParser) fail(what string) error { return fmt.Errorf("JSON byte %d: %s", p.i, what) }

func (p *jsonParser) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t' || p.s[p.i] == '\n' || p.s[p.i] == '\r') {
		p.i++
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *jsonParser) peek() byte {
	if p.space(); p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, p.fail("nested too deep")
	}
	switch c := p.peek(); {
	case c == '"':
		return p.text()
	case c == '[':
		list := []any{}
		err := p.parts(']', func() error {
			v, err := p.value(depth + 1)
			list = append(list, v)
			return err
		})
		return list, err
	case c == '{':
		m := map[string]any{}
		err := p.parts('}', func() error {
			if p.peek() != '"' {
				return p.fail("a name expected")
			}
			name, err := p.text()
			if err != nil {
				return err
			}
			if p.peek() != ':' {
				return p.fail("':' expected")
			}
			p.i++
			m[name], err = p.value(depth + 1)
			return err
		})
		return m, err
	case c == '-' || c >= '0' && c <= '9':
		from := p.i
		for p.i < len(p.s) {
			switch c := p.s[p.i]; {
			case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
				p.i++
				continue
			}
			break
		}
		if n := p.s[from:p.i]; json.Valid(n) {
			return json.Number(n), nil
		}
		p.i = from
		return nil, p.fail("not a number")
	}
	for word, v := range map[string]any{"null": nil, "true": true, "false": false} {
		if end := p.i + len(word); end <= len(p.s) && string(p.s[p.i:end]) == word {
			p.i = end
			return v, nil
		}
	}
	return nil, p.fail("a value expected")
}

// parts reads the parts of an array or object up to its end.
func (p *jsonParser) parts(end byte, part func() error) error {
	p.i++
	if p.peek() == end {
		p.i++
		return nil
	}
	for {
		if err := part(); err != nil {
			return err
		}
		switch p.peek() {
		case ',':
			p.i++
		case end:
			p.i++
			return nil
		default:
			return p.fail("',' or the end expected")
		}
	}
}

func (p *jsonParser) text() (string, error) {
	p.i++
	from := p.i
	for p.i < len(p.s) && p.s[p.i] != '"' && p.s[p.i] != '\\' && p.s[p.i] >= 0x20 && p.s[p.i] < utf8.RuneSelf {
		p.i++
	}
	out := append([]byte(nil), p.s[from:p.i]...)
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case c == '"':
			p.i++
			return string(out), nil
		case c < 0x20:
			return "", p.fail("a control character in a string")
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(p.s[p.i:])
			out = utf8.AppendRune(out, r)
			p.i += n
		case c != '\\':
			out = append(out, c)
			p.i++
		default:
			if p.i++; p.i >= len(p.s) {
				return "", p.fail("a string without its end")
			}
			c = p.s[p.i]
			p.i++
			switch c {
			case '"', '\\', '/':
				out = append(out, c)
			case 'b':
				out = append(out, '\b')
			case 'f':
				out = append(out, '\f')
			case 'n':
				out = append(out, '\n')
			case 'r':
				out = append(out, '\r')
			case 't':
				out = append(out, '\t')
			case 'u':
				if len(p.s)-p.i < 4 {
					return "", p.fail("a string without its end")
				}
				u, err := strconv.ParseUint(string(p.s[p.i:p.i+4]), 16, 16)
				if err != nil {
					return "", p.fail("not a \\u escape")
				}
				p.i += 4
				out = appendUnit(out, uint16(u))
			default:
				return "", p.fail("an unknown escape")
			}
		}
	}
	return "", p.fail("a string without its end")
}
