package serializer

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
)

// An Avro value in Flink's state is not Avro's binary encoding: the datum is
// walked in the order of the writer's schema with Flink's own primitives, so that
// nearly every part has an encoding that other serializers have too.
//
//	null            nothing
//	boolean         1 byte
//	int, enum, union branch   i32
//	long            i64
//	float, double   IEEE 754, big-endian
//	string, bytes   i32 n, n bytes
//	fixed           its bytes
//	array, map      blocks of uvarint n (not zero) and n items, then a 0; a map's item is
//	                a string and a value
//	record          its fields
//
// Source: Flink, DataOutputEncoder.java and DataInputDecoder.java of flink-avro.

// readAvro reads the runtime class and the writer's schema: version 3 as strings
// of Flink's StringSerializer, version 2 as utf, version 1 the schema alone.
func readAvro(s *snapReader, t *Type) {
	if !s.version(t, 1, 2, 3) {
		return
	}
	text := s.utf
	if t.Version == 3 {
		text = s.string16
	}
	class := ""
	if t.Version >= 2 {
		class = text()
	}
	schema := text()
	if s.Err() != nil {
		return
	}
	root, err := ParseAvroSchema(schema)
	if err != nil {
		// The snapshot itself could be read: its values are opaque, no more.
		t.JavaClass, t.Schema = class, schema
		return
	}
	name, version := t.Class, t.Version
	*t = *root
	t.Class, t.Version, t.JavaClass, t.Schema = name, version, class, schema
}

// string16 reads a string of Flink's StringSerializer.
func (s *snapReader) string16() string {
	var d Decoder
	b, n, _, err := d.string16(s.Peek(), 0, true)
	if err != nil {
		s.Fail(err)
		return ""
	}
	text := string(b)
	s.Next(n)
	return text
}

// ParseAvroSchema makes the Type of values that Flink's AvroSerializer wrote with
// a schema. A record inside itself is a Record without fields that has the name
// of the outer one.
func ParseAvroSchema(schema string) (*Type, error) {
	dec := json.NewDecoder(strings.NewReader(schema))
	dec.UseNumber()
	var x any
	if err := dec.Decode(&x); err != nil {
		return nil, fmt.Errorf("avro schema: %w: %v", damage.ErrCorrupt, err)
	}
	p := avroParser{named: map[string]*avroNamed{}}
	t := p.parse(x, "", 0)
	if p.err != nil {
		return nil, p.err
	}
	t.avroSizes(map[*Type]bool{})
	return t, nil
}

type avroParser struct {
	named map[string]*avroNamed
	nodes int // of the tree, had every name been replaced by its definition
	err   error
}

type avroNamed struct {
	t     *Type
	nodes int  // size of its tree
	open  bool // still being read: a mention of it is a recursion
}

const maxAvroNodes = 20000

func (p *avroParser) fail(format string, args ...any) *Type {
	if p.err == nil {
		p.err = fmt.Errorf("avro schema: %w: %s", damage.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	return typeString
}

var avroPrimitives = map[string]kindEncoding{
	"null": {"", KindNull, encEmpty}, "boolean": {"", KindBoolean, encBool}, "int": {"", KindInt, encI32}, "long": {"", KindLong, encI64},
	"float": {"", KindFloat, encF32}, "double": {"", KindDouble, encF64}, "string": {"", KindString, encUTF8}, "bytes": {"", KindBytes, encBytes},
}

func (p *avroParser) parse(x any, space string, depth int) *Type {
	if depth > maxSnapshotDepth {
		return p.fail("is nested too deep")
	}
	if p.nodes++; p.nodes > maxAvroNodes {
		return p.fail("has more than %d nodes", maxAvroNodes)
	}
	switch x := x.(type) {
	case string:
		return p.name(x, space)
	case []any:
		t := &Type{Kind: KindUnion, enc: encUnion}
		for _, branch := range x {
			t.Args = append(t.Args, p.parse(branch, space, depth+1))
		}
		return t
	case map[string]any:
		switch kind := x["type"].(type) {
		case string:
			return p.complex(kind, x, space, depth)
		case nil:
			return p.fail("has an object without a type")
		default:
			return p.parse(kind, space, depth+1)
		}
	}
	return p.fail("has a %T for a type", x)
}

func (p *avroParser) name(name, space string) *Type {
	if k, ok := avroPrimitives[name]; ok {
		return &Type{Kind: k.kind, enc: k.enc}
	}
	full := name
	if !strings.Contains(name, ".") && space != "" {
		full = space + "." + name
	}
	def := p.named[full]
	if def == nil {
		if def = p.named[name]; def == nil {
			return p.fail("mentions the unknown name %q", name)
		}
	}
	if p.nodes += def.nodes; def.open || p.nodes > maxAvroNodes {
		p.nodes -= def.nodes
		return &Type{Kind: KindRecord, enc: encReference, label: full, ref: def.t}
	}
	return def.t
}

func (p *avroParser) complex(kind string, x map[string]any, space string, depth int) *Type {
	switch kind {
	case "array":
		return &Type{Kind: KindList, enc: encAvroArray, Args: []*Type{p.parse(x["items"], space, depth+1)}}
	case "map":
		key := &Type{Kind: KindString, enc: encUTF8}
		return &Type{Kind: KindMap, enc: encAvroMap, Args: []*Type{key, p.parse(x["values"], space, depth+1)}}
	case "record", "error", "enum", "fixed":
	default:
		return p.name(kind, space)
	}
	name, _ := x["name"].(string)
	if name == "" {
		return p.fail("has a %s without a name", kind)
	}
	if ns, ok := x["namespace"].(string); ok {
		space = ns
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		space = name[:i]
	} else if space != "" {
		name = space + "." + name
	}
	t := &Type{label: name}
	def := &avroNamed{t: t, open: true}
	p.named[name] = def
	start := p.nodes
	switch kind {
	case "fixed":
		size, ok := x["size"].(json.Number)
		n, err := size.Int64()
		if !ok || err != nil || n < 0 || n > 1<<28 {
			return p.fail("has a fixed of size %v", x["size"])
		}
		t.Kind, t.enc, t.Length = KindBytes, encFixed, int32(n)
	case "enum":
		list, _ := x["symbols"].([]any)
		for _, s := range list {
			text, _ := s.(string)
			t.Symbols = append(t.Symbols, text)
		}
		t.Kind, t.enc, t.JavaClass = KindEnum, encEnum, name
	default:
		list, ok := x["fields"].([]any)
		if !ok {
			return p.fail("has a record %q without fields", name)
		}
		t.Kind, t.enc = KindRecord, encTuple
		for _, f := range list {
			field, _ := f.(map[string]any)
			name, _ := field["name"].(string)
			if name == "" {
				return p.fail("has a field without a name")
			}
			t.Fields = append(t.Fields, Field{Name: name, Type: p.parse(field["type"], space, depth+1)})
		}
	}
	def.open, def.nodes = false, p.nodes-start
	return t
}

// avroSizes finishes the types of a schema from the leaves up. A record inside
// itself counts for nothing.
func (t *Type) avroSizes(done map[*Type]bool) {
	if done[t] {
		return
	}
	done[t] = true
	for i := range t.Fields {
		t.Fields[i].Type.avroSizes(done)
	}
	for _, a := range t.Args {
		a.avroSizes(done)
	}
	t.finish()
}

// walkBlocks reads an Avro array or map.
func (d *Decoder) walkBlocks(t *Type, b []byte, i int, v Visitor) (int, error) {
	v.Begin(t, -1)
	for k := 0; ; {
		n, next, err := uvarint64(b, i)
		if err != nil {
			return i, err
		}
		i = next
		if n == 0 {
			break
		}
		least := uint64(t.Args[0].min)
		if len(t.Args) == 2 {
			least += uint64(t.Args[1].min)
		}
		if least > 0 && n > uint64(len(b)-i)/least {
			if n > 1<<31 {
				return i, bad(i, "block", fmt.Sprintf("has %d items", n))
			}
			return i, ErrShort
		}
		for ; n > 0; n-- {
			start := i
			for _, part := range t.Args {
				if i, err = d.walk(part, b, i, v); err != nil {
					return i, inElement(err, k)
				}
			}
			if i == start {
				if err := d.zero(i); err != nil {
					return i, err
				}
			}
			k++
		}
	}
	v.End(t)
	return i, nil
}

func (d *Decoder) walkUnion(t *Type, b []byte, i int, v Visitor) (int, error) {
	if len(b)-i < 4 {
		return i, ErrShort
	}
	k := be32(b[i:])
	if k < 0 || int(k) >= len(t.Args) {
		return i, bad(i, "union branch", fmt.Sprintf("is %d of %d", k, len(t.Args)))
	}
	return d.walk(t.Args[k], b, i+4, v)
}

// walkReference reads a record inside itself.
func (d *Decoder) walkReference(t *Type, b []byte, i int, v Visitor) (int, error) {
	if d.depth++; d.depth > maxDepth {
		return i, bad(i, "record", "is nested too deep")
	}
	i, err := d.walk(t.ref, b, i, v)
	d.depth--
	return i, err
}

// uvarint64 reads an unsigned LEB128 number of up to 64 bits.
func uvarint64(b []byte, i int) (v uint64, next int, err error) {
	for shift := uint(0); ; shift += 7 {
		if i >= len(b) {
			return 0, i, ErrShort
		}
		c := b[i]
		i++
		if shift == 63 && c > 1 {
			return 0, i, bad(i-1, "varint", "exceeds 64 bits")
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i, nil
		}
	}
}
