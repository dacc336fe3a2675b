package serializer

import (
	"strconv"
	"strings"
)

// Type is the schema of a value: a node of the tree that a serializer snapshot
// is. It is immutable once ReadSnapshot, ParseType or a constructor returned it
// and may be shared between goroutines.
type Type struct {
	Kind Kind
	// Class is Flink's class of the snapshot, as a Java binary name, and Version
	// the version of its body. Both are zero for a type that has no snapshot of
	// its own: a column of a RowData, a field of an Avro record.
	Class   string
	Version int32
	// OuterVersion is the version of a composite snapshot's own content.
	OuterVersion int32
	// JavaClass is the class of the values where the snapshot names it: POJO,
	// enum, tuple, case class, Kryo and Writable types, the component class of an
	// array. For Opaque it is the class that could not be read.
	JavaClass string
	// Fields are those of Tuple, Row, POJO, Record, Timer and TimeWindow, in the
	// order of the bytes. Names are empty where nothing knows them (Tuple, Row).
	Fields []Field
	// Args are the nested types: the element; key and value; left and right; the
	// wrapped type; an Avro union's branches.
	Args []*Type
	// Symbols are an enum's constants in the order of the bytes' index, which
	// need not be that of the Java source.
	Symbols []string
	// Precision and Scale belong to Decimal, Timestamp, TimestampLTZ and LocalTime
	// of SQL. Length is the limit of CHAR, VARCHAR, BINARY and VARBINARY; 0 is none.
	Precision, Scale, Length int32
	// NotNull is set for SQL types declared NOT NULL.
	NotNull bool
	// Registered and Unregistered are a POJO's known subclasses; the bytes name a
	// registered one by its index, another by its class name. A Type is nil if the
	// snapshot had none.
	Registered, Unregistered []Subclass
	// Kryo is what a Kryo snapshot registers.
	Kryo *KryoConfig
	// Schema is the writer's schema of an Avro snapshot, as JSON.
	Schema string
	// Raw is the snapshot as it was read: class name, version and body, without
	// the proxy version in front. It is nil where Class is empty.
	Raw []byte

	enc            encoding
	slot           slot  // how it lies in a BinaryRow or BinaryArray
	flag           bool  // row kind bits, null mask, optional field: by encoding
	size           int32 // bytes of every value; -1 if they differ
	min            int32 // least bytes of a value
	asText         bool  // one of Flink's mutable Value types, whose JSON is their toString
	pad            int32 // Nullable: bytes after a null
	symbolIDs      []int32
	label          string // full name of an Avro type
	ref            *Type  // encReference
	rawFrom, rawTo int64  // of the snapshot, in the bytes it was read from
	innerClass     string // of the snapshot that a TtlAwareSerializerSnapshot wraps
}

// Field is a field of a composite type.
type Field struct {
	Name string
	// DeclaringClass is the class in a POJO's hierarchy that declares the field.
	DeclaringClass string
	// Missing is set for a POJO field that the class no longer had when the
	// snapshot was taken. Its bytes are still there; it has no name.
	Missing bool
	Type    *Type
}

// Subclass is a subclass of a POJO.
type Subclass struct {
	Class string
	Type  *Type
}

// Elem is the element type of List, Set, Array and Multiset, the wrapped type
// of TTL, Nullable, Option; nil for others.
func (t *Type) Elem() *Type {
	switch t.Kind {
	case KindList, KindSet, KindArray, KindMultiset, KindNullable, KindOption:
		if len(t.Args) > 0 {
			return t.Args[0]
		}
	case KindTTL:
		return t.Args[1]
	}
	return nil
}

// Key is the key type of Map, else nil.
func (t *Type) Key() *Type {
	if t.Kind == KindMap && len(t.Args) == 2 {
		return t.Args[0]
	}
	return nil
}

// Value is the value type of Map, else nil.
func (t *Type) Value() *Type {
	if t.Kind == KindMap && len(t.Args) == 2 {
		return t.Args[1]
	}
	return nil
}

// Size is the number of bytes that every value takes, or -1 if they differ.
func (t *Type) Size() int { return int(t.size) }

// FixedLength is what Flink's TypeSerializer.getLength answers: the number by
// which a canonical or RocksDB key decides whether lengths follow key and
// namespace. It is -1 for a variable length. It is 0, not 1, for VoidNamespace,
// and a tuple with a field of length 0 has none.
func (t *Type) FixedLength() int {
	switch t.enc {
	case encVoidNamespace, encEmpty:
		return 0
	case encTuple:
		if t.Kind != KindTuple || len(t.Fields) == 0 {
			break
		}
		sum := 0
		for i := range t.Fields {
			n := t.Fields[i].Type.FixedLength()
			if n <= 0 {
				return -1
			}
			sum += n
		}
		return sum
	case encTimer:
		key, ns := t.Fields[1].Type.FixedLength(), t.Fields[2].Type.FixedLength()
		if key < 0 || ns < 0 {
			return -1
		}
		return 8 + key + ns
	case encNullable:
		if t.pad == 0 {
			return -1
		}
		return 1 + int(t.pad)
	case encTTL, encBool, encI8, encI16, encI32, encI64, encF32, encF64, encChar, encMillis, encSQLTimestamp, encLocalDate,
		encLocalTime, encLocalDateTime, encInstant, encEnum, encScalaEnum, encTimeWindow, encCountWindow, encGlobalWindow,
		encTimestamp, encVoid, encUnit, encEventID:
		return int(t.size)
	}
	return -1
}

// IsOpaque reports whether the type or anything inside it is Opaque, and the
// class that could not be read.
func (t *Type) IsOpaque() (class string, opaque bool) {
	t.Walk(func(n *Type) bool {
		if !opaque && n.Kind == KindOpaque {
			class, opaque = n.JavaClass, true
		}
		return !opaque
	})
	return class, opaque
}

// Walk calls f for t and, where f returns true, for everything inside it.
func (t *Type) Walk(f func(*Type) bool) {
	if t == nil || !f(t) {
		return
	}
	for i := range t.Fields {
		t.Fields[i].Type.Walk(f)
	}
	for _, a := range t.Args {
		a.Walk(f)
	}
	for _, s := range t.Registered {
		s.Type.Walk(f)
	}
	for _, s := range t.Unregistered {
		s.Type.Walk(f)
	}
}

// String is the type in readable words: row<id long, total decimal(10,2)>,
// map<string, list<int>>, pojo:com.example.Order<id long>, kryo:java.util.UUID.
// A question mark marks what a NullableSerializer wraps.
func (t *Type) String() string {
	if t == nil {
		return "none"
	}
	var b strings.Builder
	t.describe(&b, wordsReadable)
	return b.String()
}

// Words is the type in flink-verify's own grammar, row<id:long,total:…>, which
// ParseType reads. What that grammar lacks is written as String writes it.
func (t *Type) Words() string {
	if t == nil {
		return "none"
	}
	var b strings.Builder
	t.describe(&b, wordsVerify)
	return b.String()
}

type wordStyle uint8

const (
	wordsReadable wordStyle = iota
	wordsVerify
)

func (t *Type) describe(b *strings.Builder, style wordStyle) {
	comma := ", "
	if style == wordsVerify {
		comma = ","
	}
	args := func(name string) {
		b.WriteString(name)
		b.WriteByte('<')
		for i, a := range t.Args {
			if i > 0 {
				b.WriteString(comma)
			}
			a.describe(b, style)
		}
		b.WriteByte('>')
	}
	fields := func(name string, sep byte, numbered bool) {
		b.WriteString(name)
		b.WriteByte('<')
		for i := range t.Fields {
			if i > 0 {
				b.WriteString(comma)
			}
			if f := &t.Fields[i]; sep != 0 {
				switch {
				case f.Name != "":
					b.WriteString(f.Name)
				case f.Missing:
					b.WriteString("(missing)")
				case numbered:
					b.WriteByte('f')
					b.WriteString(strconv.Itoa(i))
				}
				if f.Name != "" || f.Missing || numbered {
					b.WriteByte(sep)
				}
			}
			t.Fields[i].Type.describe(b, style)
		}
		b.WriteByte('>')
	}
	sep := byte(' ')
	if style == wordsVerify {
		sep = ':'
	}
	switch t.Kind {
	case KindOpaque:
		if len(t.Args) > 0 && t.Class == t.JavaClass { // a composite whose parts are known
			args("opaque:" + t.JavaClass)
			break
		}
		b.WriteString("opaque:")
		b.WriteString(t.JavaClass)
	case KindString, KindBytes:
		name := t.Kind.String()
		if t.Length > 0 && style == wordsReadable {
			switch {
			case t.Kind == KindString && t.flag:
				name = "char"
			case t.Kind == KindString:
				name = "varchar"
			case t.flag:
				name = "binary"
			default:
				name = "varbinary"
			}
			b.WriteString(name + "(" + strconv.Itoa(int(t.Length)) + ")")
		} else {
			b.WriteString(name)
		}
	case KindDecimal:
		b.WriteString("decimal(" + strconv.Itoa(int(t.Precision)) + "," + strconv.Itoa(int(t.Scale)) + ")")
	case KindTimestamp, KindTimestampLTZ:
		b.WriteString(t.Kind.String() + "(" + strconv.Itoa(int(t.Precision)) + ")")
	case KindLocalTime:
		if t.slot == slotI32 {
			b.WriteString("time(" + strconv.Itoa(int(t.Precision)) + ")")
		} else {
			b.WriteString("localtime")
		}
	case KindLocalDate:
		if t.slot == slotI32 {
			b.WriteString("date")
		} else {
			b.WriteString("localdate")
		}
	case KindEnum:
		b.WriteString("enum")
		if t.JavaClass != "" {
			b.WriteByte(':')
			b.WriteString(t.JavaClass)
		}
	case KindArray:
		switch e := t.Args[0]; t.enc {
		case encPrimArray, encStringArray:
			e.describe(b, style)
			b.WriteString("[]")
		default:
			args("array")
		}
	case KindList, KindSet, KindMap, KindMultiset, KindEither, KindOption, KindTry, KindUnion, KindRaw:
		args(t.Kind.String())
	case KindTTL:
		b.WriteString("ttl<")
		t.Args[1].describe(b, style)
		b.WriteByte('>')
	case KindNullable:
		t.Args[0].describe(b, style)
		b.WriteByte('?')
	case KindTuple:
		name := "tuple"
		if t.JavaClass != "" && !strings.HasPrefix(t.JavaClass, javaTuple) {
			name = "tuple:" + t.JavaClass
		}
		fields(name, 0, false)
	case KindRow:
		name := "row"
		if t.JavaClass != "" {
			name = "row:" + t.JavaClass
		}
		if t.untyped() {
			b.WriteString("row<?>")
			break
		}
		fields(name, sep, style == wordsVerify || hasNames(t.Fields))
	case KindPOJO:
		if style == wordsVerify {
			b.WriteString("pojo:")
			b.WriteString(t.JavaClass)
		} else {
			fields("pojo:"+t.JavaClass, sep, false)
		}
	case KindRecord:
		switch {
		case style == wordsVerify && t.Schema != "":
			b.WriteString("avro<")
			b.WriteString(t.Schema)
			b.WriteByte('>')
		case t.enc == encReference:
			b.WriteString("avro:" + t.label)
		case t.label != "":
			fields("avro:"+t.label, sep, false)
		case t.JavaClass != "":
			fields("record:"+t.JavaClass, sep, false)
		default:
			fields("record", sep, false)
		}
	case KindTimer:
		b.WriteString("timer<")
		t.Fields[1].Type.describe(b, style)
		b.WriteString(comma)
		t.Fields[2].Type.describe(b, style)
		b.WriteByte('>')
	case KindDynamic:
		switch {
		case t.Kryo != nil:
			b.WriteString("kryo:")
			b.WriteString(t.JavaClass)
		case t.JavaClass != "":
			b.WriteString("java:")
			b.WriteString(t.JavaClass)
		default:
			b.WriteString("java")
		}
	default:
		b.WriteString(t.Kind.String())
	}
	if t.NotNull && style == wordsReadable {
		b.WriteString(" not null")
	}
}

// untyped reports whether t is a BinaryRow whose snapshot told the number of its
// columns but not their types.
func (t *Type) untyped() bool { return t.enc == encBinaryRow && t.flag }

func hasNames(f []Field) bool {
	for i := range f {
		if f[i].Name != "" {
			return true
		}
	}
	return false
}

const javaTuple = "org.apache.flink.api.java.tuple.Tuple"
