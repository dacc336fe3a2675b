package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Type is what a column holds.
type Type uint8

// Types of columns.
const (
	Boolean Type = iota
	Int8
	Int16
	Int32
	Int64
	Float32
	Float64
	Text      // UTF-8
	JSON      // UTF-8, a JSON value
	Binary    // bytes
	Decimal   // Precision and Scale; up to 38 digits
	Date      // days since 1970-01-01, 32 bits
	Time      // of day, since midnight: Precision 3 or 6 says the unit; 32 or 64 bits
	Timestamp // since 1970-01-01: Precision 3, 6 or 9 says the unit; 64 bits
	Struct    // Fields
	List      // of Fields[0]
	Map       // from Fields[0] to Fields[1], in the order of the bytes
)

var typeNames = [...]string{Boolean: "boolean", Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64", Float32: "float32", Float64: "float64",
	Text: "text", JSON: "json", Binary: "binary", Decimal: "decimal", Date: "date", Time: "time", Timestamp: "timestamp", Struct: "struct", List: "list", Map: "map"}

// Column is a column of a table, or a part of one. It is not changed once made.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
	// Precision and Scale belong to Decimal, Precision to Time and Timestamp.
	Precision, Scale int32
	// UTC: a Timestamp is an instant. Else it is what the clock on the wall shows.
	UTC bool
	// Fields are a Struct's fields, a List's element, a Map's key and value.
	Fields []*Column

	kind  structKind
	class string         // of a POJO, if there is but one
	names map[string]int // union of classes: field by name
	keys  []string       // Struct: the names as the Visitor gives them
}

// structKind is where a Struct's fields come from.
type structKind uint8

const (
	plainStruct structKind = iota // field i of the value is field i
	rowStruct                     // @row_kind before them
	classStruct                   // @class before them, found by name
)

// String is the type in words: struct<id int64, total decimal(10,2)>.
func (c *Column) String() string {
	var b strings.Builder
	c.describe(&b)
	return b.String()
}

func (c *Column) describe(b *strings.Builder) {
	b.WriteString(typeNames[c.Type])
	switch c.Type {
	case Decimal:
		fmt.Fprintf(b, "(%d,%d)", c.Precision, c.Scale)
	case Time, Timestamp:
		fmt.Fprintf(b, "(%d)", c.Precision)
		if c.UTC {
			b.WriteString(" utc")
		}
	case Struct, List, Map:
		b.WriteByte('<')
		for i, f := range c.Fields {
			if i > 0 {
				b.WriteString(", ")
			}
			if c.Type == Struct {
				b.WriteString(f.Name + " ")
			}
			f.describe(b)
		}
		b.WriteByte('>')
	}
	if !c.Nullable {
		b.WriteString(" not null")
	}
}

// Part is where a table's column gets its values from.
type Part uint8

// Parts of a row.
const (
	PartOperatorUID Part = iota
	PartOperatorName
	PartOperatorID
	PartState
	PartKind
	PartSubtask
	PartKey
	PartKeyGroup
	PartNamespace
	PartMapKey
	PartTimestamp
	PartValue
	PartTTLMin
	PartTTLMax
	PartVersion
	PartOther
)

// Schema is the table of one state.
type Schema struct {
	State   *snapshot.State
	Columns []*Column
	Parts   []Part // of each column
	Const   []string
}

// Of makes the table of a state. Its columns have the names of the members of JSON
// lines (docs/format/rows.md); subtask is there for keyed state too, and other_json
// is added. A state whose handles declare different types (State.Variants) has key,
// namespace, map_key and value as JSON.
func Of(s *snapshot.State) *Schema {
	t := &Schema{State: s}
	add := func(p Part, c *Column, constant string) {
		t.Columns, t.Parts, t.Const = append(t.Columns, c), append(t.Parts, p), append(t.Const, constant)
	}
	text := func(name string, p Part, v string) {
		add(p, &Column{Name: name, Type: Text, Nullable: v == ""}, v)
	}
	part := func(name string, p Part, c *Column) {
		if s.Variants > 0 {
			c = &Column{Type: JSON}
		}
		c.Name, c.Nullable = name, true
		add(p, c, "")
	}
	text("operator_uid", PartOperatorUID, s.Operator.UID)
	text("operator_name", PartOperatorName, s.Operator.Name)
	text("operator_id", PartOperatorID, s.Operator.ID)
	text("state", PartState, s.Name)
	text("kind", PartKind, string(s.Kind))
	add(PartSubtask, &Column{Name: "subtask", Type: Int32, Nullable: true}, "")
	if s.Kind.Keyed() {
		part("key", PartKey, columnOf(s.Key))
	}
	if s.Kind.Keyed() || s.Kind == snapshot.StateRawKeyed {
		add(PartKeyGroup, &Column{Name: "key_group", Type: Int32, Nullable: true}, "")
	}
	if s.Kind.Keyed() {
		ns := &Column{Type: Text}
		if s.Namespace != nil {
			ns = columnOf(s.Namespace)
		}
		part("namespace", PartNamespace, ns)
	}
	if s.Kind == snapshot.StateMap || s.Kind == snapshot.StateBroadcast {
		part("map_key", PartMapKey, columnOf(s.UserKey))
	}
	if s.Kind == snapshot.StateTimer {
		add(PartTimestamp, &Column{Name: "timestamp", Type: Int64}, "")
		add(PartOther, &Column{Name: "other_json", Type: JSON, Nullable: true}, "")
		return t
	}
	part("value", PartValue, valueColumn(s))
	if s.TTL {
		for i, name := range []string{"ttl_timestamp_min", "ttl_timestamp_max"} {
			add(PartTTLMin+Part(i), &Column{Name: name, Type: Timestamp, Precision: 3, UTC: true, Nullable: true}, "")
		}
	}
	if mayHaveVersion(s) {
		add(PartVersion, &Column{Name: "serializer_version", Type: Int32, Nullable: true}, "")
	}
	add(PartOther, &Column{Name: "other_json", Type: JSON, Nullable: true}, "")
	return t
}

// mayHaveVersion reports whether a SimpleVersionedSerializer wrote the state's
// values, or may have.
func mayHaveVersion(s *snapshot.State) bool {
	switch s.Kind {
	case snapshot.StateSinkWriter, snapshot.StateCommittables, snapshot.StateCoordinator, snapshot.StateSourceCoordinator, snapshot.StateMaster:
		return true
	case snapshot.StateOperatorList:
		return s.Element != nil && s.Element.Kind == serializer.KindBytes
	}
	return false
}

func valueColumn(s *snapshot.State) *Column {
	switch s.Kind {
	case snapshot.StateList, snapshot.StateOperatorList, snapshot.StateUnion, snapshot.StateSinkWriter, snapshot.StateCommittables:
		if s.Element == nil || s.Element.Kind == serializer.KindOpaque {
			return columnOf(nil) // nothing tells the elements apart
		}
		b := builder{leaves: maxLeaves}
		return listColumn(b.column(s.Element, 1))
	case snapshot.StateRawOperator:
		return listColumn(&Column{Type: Binary, Nullable: true})
	}
	return columnOf(s.Value)
}

func listColumn(e *Column) *Column {
	e.Name = "element"
	return &Column{Type: List, Nullable: true, Fields: []*Column{e}}
}

// Bounds of a schema: what lies deeper or is more is a JSON column. A hostile
// snapshot could describe a tree that doubles at each level.
const (
	maxDepth  = 32
	maxLeaves = 2000
)

type builder struct{ leaves int }

// columnOf is the column of a type, nullable where values may be.
func columnOf(t *serializer.Type) *Column {
	b := builder{leaves: maxLeaves}
	return b.column(t, 0)
}

// opaque reports whether the column has bytes of which nothing is known.
func (c *Column) opaque() bool { return c.Type == Binary && c.class == opaqueClass }

const opaqueClass = "?"

func (b *builder) column(t *serializer.Type, depth int) *Column {
	if t == nil {
		return &Column{Type: Binary, Nullable: true, class: opaqueClass}
	}
	b.leaves--
	if depth > maxDepth || b.leaves < 0 {
		return &Column{Type: JSON, Nullable: true}
	}
	scalar := func(typ Type) *Column { return &Column{Type: typ, Nullable: true} }
	stamp := func(precision int32, utc bool) *Column {
		return &Column{Type: Timestamp, Precision: precision, UTC: utc, Nullable: true}
	}
	primitive := func(typ Type) *Column { return &Column{Type: typ} }
	switch t.Kind {
	case serializer.KindOpaque:
		return &Column{Type: Binary, Nullable: true, class: opaqueClass}
	case serializer.KindBoolean:
		return primitive(Boolean)
	case serializer.KindByte:
		return primitive(Int8)
	case serializer.KindShort:
		return primitive(Int16)
	case serializer.KindInt, serializer.KindIntervalYM:
		return primitive(Int32)
	case serializer.KindLong, serializer.KindIntervalDT, serializer.KindCountWindow:
		return primitive(Int64)
	case serializer.KindFloat:
		return primitive(Float32)
	case serializer.KindDouble:
		return primitive(Float64)
	case serializer.KindChar, serializer.KindString, serializer.KindEnum, serializer.KindUUID, serializer.KindGlobalWindow,
		serializer.KindBigInt, serializer.KindBigDec, serializer.KindNull, serializer.KindVoidNamespace:
		return &Column{Type: Text, Nullable: !t.NotNull}
	case serializer.KindBytes:
		return &Column{Type: Binary, Nullable: !t.NotNull}
	case serializer.KindDecimal:
		if t.Precision < 1 || t.Precision > 38 || t.Scale < 0 || t.Scale > t.Precision {
			return scalar(Text)
		}
		return &Column{Type: Decimal, Precision: t.Precision, Scale: t.Scale, Nullable: true}
	case serializer.KindDate, serializer.KindSQLDate, serializer.KindSQLTime:
		return stamp(3, true)
	case serializer.KindLocalDate:
		return scalar(Date)
	case serializer.KindLocalTime:
		p := int32(6)                               // readers have no finer time of day
		if strings.HasPrefix(t.String(), "time(") { // of SQL: milliseconds
			p = 3
		}
		return &Column{Type: Time, Precision: p, Nullable: true}
	case serializer.KindSQLTimestamp, serializer.KindInstant:
		return stamp(9, true)
	case serializer.KindLocalDateTime:
		return stamp(9, false)
	case serializer.KindTimestamp, serializer.KindTimestampLTZ:
		return stamp((max(t.Precision, 1)+2)/3*3, t.Kind == serializer.KindTimestampLTZ)
	case serializer.KindTTL, serializer.KindNullable, serializer.KindOption, serializer.KindRaw:
		inner := t.Elem()
		if t.Kind == serializer.KindRaw && len(t.Args) == 1 {
			inner = t.Args[0]
		}
		c := b.column(inner, depth+1)
		c.Nullable = c.Nullable || t.Kind != serializer.KindTTL
		return c
	case serializer.KindList, serializer.KindSet, serializer.KindArray:
		e := b.column(t.Elem(), depth+1)
		e.Nullable = e.Nullable || !t.Elem().NotNull
		return listColumn(e)
	case serializer.KindMap, serializer.KindMultiset:
		if len(t.Args) == 0 {
			break
		}
		k, v := b.column(t.Args[0], depth+1), &Column{Type: Int32, Nullable: true}
		if len(t.Args) == 2 {
			v = b.column(t.Args[1], depth+1)
			v.Nullable = v.Nullable || !t.Args[1].NotNull
		}
		k.Name, k.Nullable, v.Name = "key", false, "value"
		return &Column{Type: Map, Nullable: true, Fields: []*Column{k, v}}
	case serializer.KindEither, serializer.KindTry:
		if len(t.Args) != 2 {
			break
		}
		names := []string{"left", "right"}
		if t.Kind == serializer.KindTry {
			names = []string{"success", "failure"}
		}
		c := &Column{Type: Struct, Nullable: true}
		for i, a := range t.Args {
			f := b.column(a, depth+1)
			f.Name, f.Nullable = names[i], true
			c.Fields, c.keys = append(c.Fields, f), append(c.keys, names[i])
		}
		return c
	case serializer.KindUnion:
		var branch *serializer.Type
		for _, a := range t.Args {
			if a.Kind == serializer.KindNull {
				continue
			}
			if branch != nil {
				return scalar(JSON)
			}
			branch = a
		}
		if branch != nil {
			c := b.column(branch, depth+1)
			c.Nullable = true
			return c
		}
		return scalar(Text)
	case serializer.KindTimeWindow:
		return &Column{Type: Struct, Nullable: true, Fields: []*Column{{Name: "window_start", Type: Int64}, {Name: "window_end", Type: Int64}}, keys: []string{"window_start", "window_end"}}
	case serializer.KindPOJO:
		if len(t.Registered)+len(t.Unregistered) > 0 {
			return b.classes(t, depth)
		}
		return b.fields(t, depth, plainStruct)
	case serializer.KindRow:
		return b.fields(t, depth, rowStruct)
	case serializer.KindTuple, serializer.KindRecord, serializer.KindTimer:
		return b.fields(t, depth, plainStruct)
	}
	return scalar(JSON)
}

// fields is a struct of a type's fields. A struct without fields is JSON: Parquet
// has none.
func (b *builder) fields(t *serializer.Type, depth int, kind structKind) *Column {
	if len(t.Fields) == 0 {
		return &Column{Type: JSON, Nullable: true}
	}
	c := &Column{Type: Struct, Nullable: true, kind: kind, class: t.JavaClass}
	if kind == rowStruct {
		c.Fields, c.keys = append(c.Fields, &Column{Name: "@row_kind", Type: Text, Nullable: true}), append(c.keys, "")
	}
	var names uniqueNames
	for i := range t.Fields {
		f := b.column(t.Fields[i].Type, depth+1)
		f.Nullable = f.Nullable || t.Kind == serializer.KindPOJO || t.Kind == serializer.KindRow && !t.Fields[i].Type.NotNull
		c.keys = append(c.keys, t.Fields[i].Name)
		f.Name = names.of(t.Fields[i].Name, i)
		c.Fields = append(c.Fields, f)
	}
	return c
}

// classes is a struct of the fields of a POJO class and of all its subclasses that
// the snapshot describes, with the name of the class. Fields that two classes have
// under one name and with another type are JSON.
func (b *builder) classes(t *serializer.Type, depth int) *Column {
	c := &Column{Type: Struct, Nullable: true, kind: classStruct, names: map[string]int{}}
	c.Fields = []*Column{{Name: "@class", Type: Text, Nullable: true}}
	words := []string{""}
	var names uniqueNames
	add := func(t *serializer.Type) {
		for i := range t.Fields {
			name := t.Fields[i].Name
			if name == "" {
				name = "f" + strconv.Itoa(i)
			}
			w := t.Fields[i].Type.String()
			if k, ok := c.names[name]; ok {
				if words[k] != w {
					c.Fields[k] = &Column{Name: c.Fields[k].Name, Type: JSON, Nullable: true}
				}
				continue
			}
			f := b.column(t.Fields[i].Type, depth+1)
			f.Name, f.Nullable = names.of(name, i), true
			c.names[name] = len(c.Fields)
			c.Fields, words = append(c.Fields, f), append(words, w)
		}
	}
	add(t)
	for _, list := range [][]serializer.Subclass{t.Registered, t.Unregistered} {
		for _, s := range list {
			if s.Type != nil && s.Type.Kind == serializer.KindPOJO {
				add(s.Type)
			}
		}
	}
	return c
}

// uniqueNames tells names apart without regard to case, as most readers of
// Parquet do.
type uniqueNames map[string]bool

func (u *uniqueNames) of(name string, i int) string {
	if *u == nil {
		*u = uniqueNames{}
	}
	if name == "" {
		name = "f" + strconv.Itoa(i)
	}
	name = strings.ToValidUTF8(name, "\ufffd")
	try := name
	for n := 1; (*u)[strings.ToLower(try)]; n++ {
		try = name + "_" + strconv.Itoa(n)
	}
	(*u)[strings.ToLower(try)] = true
	return try
}
