package table

import (
	"encoding/hex"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"
)

// ParseFilter reads a condition; see Filter for its grammar. The error says at
// which character it is wrong.
func ParseFilter(text string) (*Filter, error) {
	p := &filterParser{s: text}
	p.next()
	e, err := p.or(0)
	if err == nil && p.kind != 0 {
		err = p.fail("the end, and or or expected")
	}
	if err != nil {
		return nil, err
	}
	return &Filter{text: text, root: e}, nil
}

// filterParser is a reader of tokens with one of look-ahead.
type filterParser struct {
	s     string
	from  int  // of the token
	at    int  // behind it
	kind  byte // 0 end, 'a' word, 'n' number, '\” text, 'x' bytes, '"' quoted name, '=' operator, else the character; '?' none
	token string
}

func (p *filterParser) fail(what string) error {
	found := "the end"
	if p.kind != 0 {
		found = fmt.Sprintf("%q", p.s[p.from:p.at])
	}
	return fmt.Errorf("character %d: %s, not %s", utf8.RuneCountInString(p.s[:p.from])+1, what, found)
}

var (
	wordToken   = regexp.MustCompile(`^[\pL_@$][\pL\pN_@$-]*`)
	numberToken = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?`)
	opToken     = regexp.MustCompile(`^(==|=|!=|<>|<=|>=|<|>)`)
)

func (p *filterParser) next() {
	for p.at < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.at]) >= 0 {
		p.at++
	}
	p.from = p.at
	rest := p.s[p.at:]
	take := func(kind byte, n int) { p.kind, p.token, p.at = kind, rest[:n], p.at+n }
	switch {
	case rest == "":
		take(0, 0)
	case rest[0] == '\'' || rest[0] == '"':
		p.quoted(rest[0], 0)
	case (rest[0] == 'x' || rest[0] == 'X') && len(rest) > 1 && rest[1] == '\'':
		p.quoted('x', 1)
	case numberToken.MatchString(rest):
		take('n', len(numberToken.FindString(rest)))
	case wordToken.MatchString(rest):
		take('a', len(wordToken.FindString(rest)))
	case opToken.MatchString(rest):
		take('=', len(opToken.FindString(rest)))
	case strings.IndexByte("().,", rest[0]) >= 0:
		take(rest[0], 1)
	default:
		_, n := utf8.DecodeRuneInString(rest)
		take('?', n)
	}
}

// quoted reads text in quotes; a quote inside is doubled.
func (p *filterParser) quoted(kind byte, skip int) {
	quote := p.s[p.at+skip]
	var b strings.Builder
	for i := p.at + skip + 1; i < len(p.s); i++ {
		if p.s[i] == quote {
			if i+1 >= len(p.s) || p.s[i+1] != quote {
				p.kind, p.token, p.at = kind, b.String(), i+1
				return
			}
			i++
		}
		b.WriteByte(p.s[i])
	}
	p.kind, p.token, p.at = '?', "", len(p.s)
}

// word reports whether the next token is a word of the language.
func (p *filterParser) word(w string) bool { return p.kind == 'a' && strings.EqualFold(p.token, w) }

const maxFilterDepth = 100

func (p *filterParser) or(depth int) (expr, error) { return p.list("or", true, p.and, depth) }

func (p *filterParser) and(depth int) (expr, error) { return p.list("and", false, p.not, depth) }

func (p *filterParser) list(word string, or bool, part func(int) (expr, error), depth int) (expr, error) {
	e, err := part(depth)
	if err != nil || !p.word(word) {
		return e, err
	}
	b := boolExpr{or: or, args: []expr{e}}
	for p.word(word) {
		p.next()
		if e, err = part(depth); err != nil {
			return nil, err
		}
		b.args = append(b.args, e)
	}
	return b, nil
}

func (p *filterParser) not(depth int) (expr, error) {
	if depth > maxFilterDepth {
		return nil, p.fail("fewer levels expected")
	}
	if p.word("not") {
		p.next()
		e, err := p.not(depth + 1)
		return notExpr{e}, err
	}
	if p.kind != '(' {
		return p.comparison()
	}
	p.next()
	e, err := p.or(depth + 1)
	if err != nil {
		return nil, err
	}
	if p.kind != ')' {
		return nil, p.fail("and, or or ) expected")
	}
	p.next()
	return e, nil
}

func (p *filterParser) comparison() (expr, error) {
	var c compareExpr
	for {
		if p.kind != 'a' && p.kind != '"' {
			return nil, p.fail("the name of a field expected")
		}
		c.field = append(c.field, p.token)
		if p.next(); p.kind != '.' {
			break
		}
		p.next()
	}
	negated := p.word("not")
	if negated {
		p.next()
	}
	var err error
	switch {
	case p.word("in"):
		c.op = "in"
		if p.next(); p.kind != '(' {
			return nil, p.fail("( expected")
		}
		for {
			p.next()
			if err = p.literal(&c); err != nil {
				return nil, err
			}
			if p.kind != ',' {
				break
			}
		}
		if p.kind != ')' {
			return nil, p.fail(", or ) expected")
		}
		p.next()
	case negated:
		return nil, p.fail("in expected")
	case p.word("is"):
		c.op = "null"
		if p.next(); p.word("not") {
			negated = true
			p.next()
		}
		if !p.word("null") {
			return nil, p.fail("null expected")
		}
		p.next()
	case p.kind == '=':
		c.op = map[string]string{"==": "=", "<>": "!="}[p.token]
		if c.op == "" {
			c.op = p.token
		}
		p.next()
		if err = p.literal(&c); err != nil {
			return nil, err
		}
	default:
		return nil, p.fail("=, !=, <, <=, >, >=, in or is expected")
	}
	if negated {
		return notExpr{c}, nil
	}
	return c, nil
}

func (p *filterParser) literal(c *compareExpr) error {
	l := literal{text: p.token}
	switch {
	case p.kind == 'n':
		n, ok := new(big.Rat).SetString(p.token)
		if !ok {
			return p.fail("a number expected")
		}
		l.num = n
	case p.kind == '\'':
		l.kind = litText
	case p.kind == 'x':
		b, err := hex.DecodeString(p.token)
		if err != nil {
			return p.fail("bytes in hexadecimal digits expected")
		}
		l.kind, l.text = litBytes, string(b)
	case p.word("true"), p.word("false"):
		l.kind, l.text = litBool, strings.ToLower(p.token)
	case p.word("null"):
		return p.fail("a number, 'text', x'hex', true or false expected (null: is null)")
	default:
		return p.fail("a number, 'text', x'hex', true or false expected")
	}
	c.args = append(c.args, l)
	p.next()
	return nil
}
