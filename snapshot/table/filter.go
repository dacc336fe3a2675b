package table

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tidemark/tidemark/snapshot"
)

// Filter is a condition on rows, such as
//
//	value.price > 3 and (key = 'x' or not map_key in ('a', 'b')) and namespace is null
//
//	condition  = and { "or" and }
//	and        = not { "and" not }
//	not        = [ "not" ] ( "(" condition ")" | comparison )
//	comparison = field ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) literal
//	           | field [ "not" ] "in" "(" literal { "," literal } ")"
//	           | field "is" [ "not" ] "null"
//	field      = name { "." name }
//	name       = letter, "_", "@" or "$", then also digits and "-" | '"' any '"'
//	literal    = number | 'text', with '' for a quote | x'hex' | "true" | "false"
//
// Words are not case sensitive, names are. A comparison with null is neither true
// nor false, as in SQL; a row is chosen if the condition is true. Dates, times and
// timestamps compare with text: '2026-11-29', '12:30:00.5', '2026-11-29T12:30:00Z'.
// A Filter is not changed by use.
type Filter struct {
	text string
	root expr
}

// ErrNoField says that a state has no field of a name that a filter uses.
var ErrNoField = errors.New("no such field")

// String is the condition as it was written.
func (f *Filter) String() string { return f.text }

type expr interface{}

type (
	boolExpr struct {
		or   bool
		args []expr
	}
	notExpr     struct{ arg expr }
	compareExpr struct {
		field []string
		op    string // = != < <= > >= in null
		args  []literal
	}
)

type literalKind uint8

const (
	litNumber literalKind = iota
	litText
	litBytes
	litBool
)

type literal struct {
	kind literalKind
	text string
	num  *big.Rat
}

func (l literal) String() string {
	switch l.kind {
	case litText:
		return "'" + strings.ReplaceAll(l.text, "'", "''") + "'"
	case litBytes:
		return "x'" + hex.EncodeToString([]byte(l.text)) + "'"
	}
	return l.text
}

// verdict is true, false or unknown.
type verdict uint8

const (
	no verdict = iota
	unknown
	yes
)

// Bound is a filter for the rows of one state. It belongs to one goroutine.
type Bound struct {
	batch *Batch
	eval  func() verdict
}

// Bind resolves the fields of a filter in a state's table. The error is ErrNoField
// where the state lacks one; another says which field does not compare with what.
func (f *Filter) Bind(s *Schema) (*Bound, error) {
	sub := &Schema{State: s.State}
	b := &binder{from: s, to: sub}
	if err := b.columns(f.root); err != nil {
		return nil, err
	}
	bound := &Bound{batch: NewBatch(sub)}
	b.batch = bound.batch
	var err error
	bound.eval, err = b.bind(f.root)
	return bound, err
}

// Match reports whether a row of the state is chosen.
func (b *Bound) Match(r *snapshot.StateRow) bool {
	b.batch.Reset()
	b.batch.Add(r)
	return b.eval() == yes
}

type binder struct {
	from, to *Schema
	batch    *Batch
}

// columns takes the columns that an expression needs into the smaller table.
func (b *binder) columns(e expr) error {
	need := func(name string) error {
		for i, c := range b.from.Columns {
			if c.Name != name {
				continue
			}
			if p := b.from.Parts[i]; (p == PartTTLMin || p == PartTTLMax) && !slices.Contains(b.to.Parts, PartValue) {
				at := slices.Index(b.from.Parts, PartValue) // whose decoding tells the TTL
				b.to.add(b.from, at)
			}
			if !slices.Contains(b.to.Columns, c) {
				b.to.add(b.from, i)
			}
			return nil
		}
		return fmt.Errorf("%s: %w; there are %s", name, ErrNoField, strings.Join(namesOf(b.from.Columns), ", "))
	}
	switch e := e.(type) {
	case boolExpr:
		for _, a := range e.args {
			if err := b.columns(a); err != nil {
				return err
			}
		}
	case notExpr:
		return b.columns(e.arg)
	case compareExpr:
		return need(e.field[0])
	}
	return nil
}

func (s *Schema) add(from *Schema, i int) {
	s.Columns, s.Parts, s.Const = append(s.Columns, from.Columns[i]), append(s.Parts, from.Parts[i]), append(s.Const, from.Const[i])
}

func namesOf(columns []*Column) []string {
	var out []string
	for _, c := range columns {
		out = append(out, c.Name)
	}
	return out
}

func (b *binder) bind(e expr) (func() verdict, error) {
	switch e := e.(type) {
	case boolExpr:
		var fs []func() verdict
		for _, a := range e.args {
			f, err := b.bind(a)
			if err != nil {
				return nil, err
			}
			fs = append(fs, f)
		}
		if e.or {
			return func() verdict {
				v := no
				for _, f := range fs {
					if v = max(v, f()); v == yes {
						break
					}
				}
				return v
			}, nil
		}
		return func() verdict {
			v := yes
			for _, f := range fs {
				if v = min(v, f()); v == no {
					break
				}
			}
			return v
		}, nil
	case notExpr:
		f, err := b.bind(e.arg)
		if err != nil {
			return nil, err
		}
		return func() verdict { return yes - f() }, nil
	}
	return b.compare(e.(compareExpr))
}

func (b *binder) compare(e compareExpr) (func() verdict, error) {
	at := slices.IndexFunc(b.to.Columns, func(c *Column) bool { return c.Name == e.field[0] })
	c, v := b.to.Columns[at], b.batch.Vectors[at]
	path := []*Vector{v}
	for i, name := range e.field[1:] {
		if c.Type != Struct {
			return nil, fmt.Errorf("%s is %s: it has no field %s", strings.Join(e.field[:i+1], "."), plainType(c), name)
		}
		k := slices.IndexFunc(c.Fields, func(f *Column) bool { return f.Name == name })
		if k < 0 {
			return nil, fmt.Errorf("%s of %s: %w; there are %s", name, strings.Join(e.field[:i+1], "."), ErrNoField, strings.Join(namesOf(c.Fields), ", "))
		}
		c, v = c.Fields[k], v.Fields[k]
		path = append(path, v)
	}
	null := func() bool {
		for _, v := range path {
			if v.Null(0) {
				return true
			}
		}
		return false
	}
	if path[0] == nil { // a constant
		x := b.to.Const[at]
		null = func() bool { return x == "" && c.Nullable }
	}
	if e.op == "null" {
		return func() verdict {
			if null() {
				return yes
			}
			return no
		}, nil
	}
	name := strings.Join(e.field, ".")
	var tests []func() (order int, ok bool)
	for _, l := range e.args {
		t, err := b.literal(name, c, v, b.to.Const[at], l, e.op != "=" && e.op != "!=" && e.op != "in")
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	holds := map[string]func(int) bool{
		"=": func(o int) bool { return o == 0 }, "in": func(o int) bool { return o == 0 }, "!=": func(o int) bool { return o != 0 },
		"<": func(o int) bool { return o < 0 }, "<=": func(o int) bool { return o <= 0 }, ">": func(o int) bool { return o > 0 }, ">=": func(o int) bool { return o >= 0 },
	}[e.op]
	return func() verdict {
		if null() {
			return unknown
		}
		for _, t := range tests {
			if o, ok := t(); ok && holds(o) || !ok && e.op == "!=" {
				return yes
			}
		}
		return no
	}, nil
}

// plainType is a column's type without whether it may be null.
func plainType(c *Column) string { return strings.TrimSuffix(c.String(), " not null") }

// literal makes the comparison of a column's value with a literal: below, at or
// above 0; not ok for NaN, which compares with nothing.
func (b *binder) literal(name string, c *Column, v *Vector, constant string, l literal, ordered bool) (func() (int, bool), error) {
	wrong := fmt.Errorf("%s is %s: it cannot be compared with %s", name, plainType(c), l)
	switch c.Type {
	case Boolean:
		if l.kind == litBool && !ordered {
			want := byte(0)
			if l.text == "true" {
				want = 1
			}
			return func() (int, bool) { return int(v.Data[0]) - int(want), true }, nil
		}
	case Int8, Int16, Int32, Int64:
		if l.kind != litNumber {
			return nil, wrong
		}
		compare := intComparer(l.num)
		return func() (int, bool) { return compare(v.Int(0)), true }, nil
	case Float32, Float64:
		if l.kind != litNumber {
			return nil, wrong
		}
		want, _ := l.num.Float64()
		if c.Type == Float32 {
			f, _ := l.num.Float32()
			want = float64(f)
		}
		return func() (int, bool) {
			x := v.Float(0)
			switch {
			case x < want:
				return -1, true
			case x > want:
				return 1, true
			}
			return 0, x == want
		}, nil
	case Decimal:
		if l.kind != litNumber {
			return nil, wrong
		}
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(c.Scale)), nil)
		want := new(big.Rat).Mul(l.num, new(big.Rat).SetInt(scale))
		if c.Precision <= 18 {
			compare := intComparer(want)
			return func() (int, bool) { return compare(int64(binary.LittleEndian.Uint64(v.Data))), true }, nil
		}
		return func() (int, bool) { return new(big.Rat).SetInt(v.DecimalInt(0)).Cmp(want), true }, nil
	case Text:
		if l.kind != litText {
			return nil, wrong
		}
		want := []byte(l.text)
		if v == nil {
			o := strings.Compare(constant, l.text)
			return func() (int, bool) { return o, true }, nil
		}
		return func() (int, bool) { return bytes.Compare(v.Bytes(0), want), true }, nil
	case JSON:
		if ordered || l.kind == litBytes {
			return nil, fmt.Errorf("%s is of no fixed type: it compares by = and != with text, numbers and booleans only", name)
		}
		return func() (int, bool) {
			x := v.Bytes(0)
			if l.kind == litText {
				var s string
				if json.Unmarshal(x, &s) == nil {
					return strings.Compare(s, l.text), true
				}
			} else if l.kind == litNumber {
				if n, ok := new(big.Rat).SetString(string(x)); ok {
					return n.Cmp(l.num), true
				}
			}
			return strings.Compare(string(x), l.text), true
		}, nil
	case Binary:
		if l.kind == litBytes {
			want := []byte(l.text)
			return func() (int, bool) { return bytes.Compare(v.Bytes(0), want), true }, nil
		}
	case Date, Time, Timestamp:
		if l.kind != litText {
			return nil, wrong
		}
		want, err := instant(c, l.text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", wrong, err)
		}
		compare := intComparer(new(big.Rat).SetFrac(want, big.NewInt(nanosOf(c))))
		return func() (int, bool) { return compare(v.Int(0)), true }, nil
	default:
		return nil, fmt.Errorf("%s is %s: compare one of its parts, or ask whether it is null", name, plainType(c))
	}
	return nil, wrong
}

// intComparer compares integers with a number, which it rounds down once.
func intComparer(want *big.Rat) func(int64) int {
	floor, rest := new(big.Int).DivMod(want.Num(), want.Denom(), new(big.Int))
	if !floor.IsInt64() {
		sign := -floor.Sign()
		return func(int64) int { return sign }
	}
	at, equal := floor.Int64(), 0
	if rest.Sign() > 0 {
		equal = -1
	}
	return func(x int64) int {
		if x == at {
			return equal
		}
		return cmp.Compare(x, at)
	}
}

// nanosOf is how many nanoseconds a column's unit has.
func nanosOf(c *Column) int64 {
	switch {
	case c.Type == Date:
		return 86400 * 1e9
	case c.Precision == 3:
		return 1e6
	case c.Precision == 6:
		return 1e3
	}
	return 1
}

// instant reads a literal's text in nanoseconds.
func instant(c *Column, s string) (*big.Int, error) {
	layouts := []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04", "2006-01-02"}
	switch {
	case c.Type == Date:
		layouts = layouts[5:]
	case c.Type == Time:
		layouts = []string{"15:04:05.999999999", "15:04"}
	case !c.UTC:
		layouts = layouts[1:]
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if c.Type == Time {
			return big.NewInt(int64(t.Sub(t.Truncate(24 * time.Hour)))), nil
		}
		x := new(big.Int).Mul(big.NewInt(t.Unix()), big.NewInt(1e9))
		return x.Add(x, big.NewInt(int64(t.Nanosecond()))), nil
	}
	return nil, fmt.Errorf("a %s is written as in %q", typeNames[c.Type], strings.TrimSuffix(layouts[0], "Z07:00"))
}
