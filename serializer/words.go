package serializer

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark/tidemark/internal/javaio"
)

// Classes are types by the Java class of their values: what a snapshot does not
// tell, learned from other snapshots or given by the user.
type Classes map[string]*Type

// Learn adds the POJO types in t, with their subclasses, that are not there yet.
func (c Classes) Learn(t *Type) {
	t.Walk(func(n *Type) bool {
		if n.Kind == KindPOJO && c[n.JavaClass] == nil {
			c[n.JavaClass] = n
		}
		return true
	})
}

// ParseType makes a type of its words, as flink-verify's descriptions and
// Type.String have them:
//
//	boolean byte short int long float double char string bytes bigint bigdec
//	instant date sqldate sqltime sqltimestamp localdate localtime localdatetime void
//	voidnamespace timewindow globalwindow
//	int[] long[] … string[]  array<T>  list<T>  set<T>  map<K,V>  either<A,B>
//	tuple<A,B,…>  row<T,…>  row<name:T,…>  row<name T,…>
//	ttl<T>  timer<K,N>  T?             what TtlSerializer and NullableSerializer wrap
//	enum:Class<CONSTANT,…>  pojo:Class<name:T,…>  avro<SCHEMA>
//
// enum:Class and pojo:Class alone are looked up in classes, by the full name or,
// where that is not ambiguous, by its last part. Array elements that are
// primitives are boxed: array<int> is Integer[].
func ParseType(words string, classes Classes) (*Type, error) {
	p := wordParser{s: words, classes: classes}
	t := p.parse(0)
	p.space()
	if p.err == nil && p.i < len(p.s) {
		p.fail("%s is left over", quotedShort(p.s[p.i:]))
	}
	if p.err != nil {
		return nil, p.err
	}
	return t, nil
}

type wordParser struct {
	s       string
	i       int
	classes Classes
	err     error
}

func (p *wordParser) fail(format string, args ...any) *Type {
	if p.err == nil {
		p.err = fmt.Errorf("type %s: byte %d: %s", quotedShort(p.s), p.i, fmt.Sprintf(format, args...))
	}
	return basicTypes[KindNull]
}

// quotedShort quotes the beginning of what may be long.
func quotedShort(s string) string {
	if len(s) <= 200 {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:200]) + "…"
}

// maxName bounds names of classes, fields and constants in bytes: a snapshot has room
// for 65535, and an array's class has some more than its element's.
const maxName = 65000

func (p *wordParser) space() {
	for p.i < len(p.s) && p.s[p.i] == ' ' {
		p.i++
	}
}

func (p *wordParser) take(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *wordParser) need(c byte) {
	if !p.take(c) {
		p.fail("%q expected", c)
	}
}

// word reads up to a delimiter.
func (p *wordParser) word(delims string) string {
	p.space()
	from := p.i
	for p.i < len(p.s) && !strings.ContainsRune(delims, rune(p.s[p.i])) {
		p.i++
	}
	w := p.s[from:p.i]
	if n := len(javaio.NewString(w)); n > maxName {
		p.fail("a name of %d bytes is longer than %d", n, maxName)
		return ""
	}
	return w
}

// wordKinds are the kinds of parameterless serializers by their words.
var wordKinds = sync.OnceValue(func() map[string]Kind {
	m := map[string]Kind{}
	for k := range kindCount {
		if basicTypes[k] != nil {
			m[k.String()] = k
		}
	}
	return m
})

func (p *wordParser) parse(depth int) *Type {
	if depth > maxSnapshotDepth {
		return p.fail("is nested too deep")
	}
	t := p.plain(depth)
	for p.err == nil && p.take('?') {
		t = NewNullable(t)
	}
	return t
}

func (p *wordParser) list(depth int) []*Type {
	var list []*Type
	p.need('<')
	for p.err == nil && !p.take('>') {
		if len(list) > 0 {
			p.need(',')
		}
		list = append(list, p.parse(depth+1))
	}
	return list
}

func (p *wordParser) exactly(n, depth int) []*Type {
	list := p.list(depth)
	if p.err == nil && len(list) != n {
		p.fail("%d types expected, not %d", n, len(list))
	}
	for len(list) < n {
		list = append(list, basicTypes[KindNull])
	}
	return list
}

// fields reads names with types. A name ends at a colon or a space.
func (p *wordParser) fields(depth int, named bool) []Field {
	fields := []Field{}
	p.need('<')
	for p.err == nil && !p.take('>') {
		if len(fields) > 0 {
			p.need(',')
		}
		f := Field{}
		at := p.i
		name := p.word(":, <>?[")
		if p.take(':') || p.i < len(p.s) && p.s[p.i] != ',' && p.s[p.i] != '>' && p.s[p.i] != '<' && p.s[p.i] != '?' && p.s[p.i] != '[' {
			f.Name = name
		} else {
			p.i = at
		}
		if f.Name == "enum" || f.Name == "pojo" || f.Name == "kryo" { // enum:Class is a type without a name
			f.Name, p.i = "", at
		}
		if named && f.Name == "" {
			p.fail("the name of a field expected")
		}
		f.Type = p.parse(depth + 1)
		fields = append(fields, f)
	}
	return fields
}

func (p *wordParser) plain(depth int) *Type {
	name := p.word(":, <>?[")
	switch name {
	case "list":
		return NewList(p.exactly(1, depth)[0])
	case "set":
		return NewSet(p.exactly(1, depth)[0])
	case "map":
		a := p.exactly(2, depth)
		return NewMap(a[0], a[1])
	case "either":
		a := p.exactly(2, depth)
		return NewEither(a[0], a[1])
	case "array":
		e := p.exactly(1, depth)[0]
		if p.err == nil && e.javaName() == "" {
			return p.fail("an array of %s has no Java class", e)
		}
		return NewObjectArray(e, "")
	case "ttl":
		return NewTTL(p.exactly(1, depth)[0])
	case "timer":
		a := p.exactly(2, depth)
		return NewTimer(a[0], a[1])
	case "tuple":
		list := p.list(depth)
		if len(list) > 25 {
			return p.fail("a tuple has at most 25 fields")
		}
		return NewTuple(list...)
	case "row":
		return NewRow(p.fields(depth, false)...)
	case "avro":
		return p.avro()
	case "enum", "pojo":
		return p.class(name, depth)
	}
	kind, ok := wordKinds()[name]
	if !ok {
		return p.fail("unknown type %s", quotedShort(name))
	}
	if p.take('[') {
		p.need(']')
		t := NewArray(kind)
		if t == nil {
			return p.fail("no array %s[]", name)
		}
		return t
	}
	return basicTypes[kind]
}

func (p *wordParser) class(word string, depth int) *Type {
	p.need(':')
	class := p.word(", <>?")
	if class == "" {
		return p.fail("the class of a %s expected", word)
	}
	if p.i < len(p.s) && p.s[p.i] == '<' {
		if word == "pojo" {
			return NewPOJO(class, p.fields(depth, true)...)
		}
		var constants []string
		p.need('<')
		for p.err == nil && !p.take('>') {
			if len(constants) > 0 {
				p.need(',')
			}
			constants = append(constants, strings.TrimSpace(p.word(",>")))
		}
		return NewEnum(class, constants...)
	}
	want := map[string]Kind{"pojo": KindPOJO, "enum": KindEnum}[word]
	if t := p.classes[class]; t != nil && t.Kind == want {
		return t
	}
	var found *Type
	for name, t := range p.classes {
		if t.Kind == want && (strings.HasSuffix(name, "."+class) || strings.HasSuffix(name, "$"+class)) {
			if found != nil {
				return p.fail("class %s could be %s or %s", class, found.JavaClass, name)
			}
			found = t
		}
	}
	if found == nil {
		return p.fail("class %s is not known", class)
	}
	return found
}

// avro reads avro<SCHEMA>; angle brackets inside the JSON belong to it.
func (p *wordParser) avro() *Type {
	p.need('<')
	p.space()
	from, quoted, open := p.i, false, 0
	for ; p.err == nil; p.i++ {
		if p.i >= len(p.s) {
			return p.fail("%q expected", '>')
		}
		c := p.s[p.i]
		switch {
		case quoted && c == '\\':
			p.i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			open++
		case c == '}' || c == ']':
			open--
		case c == '>' && open == 0:
			schema := p.s[from:p.i]
			p.i++
			if !strings.ContainsAny(schema, `"{[`) {
				schema = strconv.Quote(schema) // avro<long>
			}
			t, err := NewAvro(GenericRecord, schema)
			if err != nil {
				return p.fail("%v", err)
			}
			return t
		}
	}
	return basicTypes[KindNull]
}
