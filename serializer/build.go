package serializer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

// The constructors here make the Types that a job's serializers have, with the
// snapshot that Flink 1.16 and newer write for them, byte for byte.

// sealed finishes a type that has a snapshot of its own and writes the snapshot.
func sealed(t *Type) *Type {
	t.finish()
	raw, err := t.encodeSnapshot(nil)
	if err != nil {
		panic("serializer: " + err.Error()) // a name over 65535 bytes
	}
	t.Raw = raw
	return t
}

// AppendSnapshot appends the snapshot as it stands in a meta block, with the
// proxy version in front. It fails for a type that has no snapshot of its own: a
// column, a part of an Avro schema.
func (t *Type) AppendSnapshot(dst []byte) ([]byte, error) {
	return t.AppendVersionedSnapshot(javaio.AppendI32(dst, proxyVersion))
}

// AppendVersionedSnapshot appends class name, version and body: the bytes that
// were read, or those of a constructed type.
func (t *Type) AppendVersionedSnapshot(dst []byte) ([]byte, error) {
	if t.Raw == nil {
		return nil, fmt.Errorf("type %s has no serializer snapshot", t)
	}
	return append(dst, t.Raw...), nil
}

// encodeSnapshot writes class name, version and body of a constructed type.
func (t *Type) encodeSnapshot(b []byte) ([]byte, error) {
	w := snapWriter{b: b}
	w.utf(t.Class)
	w.i32(t.Version)
	switch t.Class {
	case classList, classMap, classSet, classEither, classTTL:
		w.composite(t.OuterVersion)
		w.nested(t.Args...)
	case classGenericArray, classTuple:
		w.composite(t.OuterVersion)
		w.utf(t.JavaClass)
		w.nested(t.parts()...)
	case classRow:
		w.composite(t.OuterVersion)
		w.bool(t.flag)
		w.nested(t.parts()...)
	case classNullable:
		w.composite(t.OuterVersion)
		w.i32(t.pad)
		w.nested(t.Args...)
	case classTimer:
		w.composite(t.OuterVersion)
		w.nested(t.Fields[1].Type, t.Fields[2].Type)
	case classEnum:
		w.utf(t.JavaClass)
		w.i32(int32(len(t.Symbols)))
		for _, s := range t.Symbols {
			w.utf(s)
		}
	case classAvro:
		w.b = AppendString(w.b, t.JavaClass)
		w.b = AppendString(w.b, t.Schema)
	case classPOJO:
		w.pojo(t)
	case classDecimalData:
		w.i32(t.Precision)
		w.i32(t.Scale)
	case classTimestampData:
		w.i32(t.Precision)
	}
	return w.b, w.err
}

// parts are the nested types of a composite.
func (t *Type) parts() []*Type {
	if t.Fields == nil {
		return t.Args
	}
	parts := make([]*Type, len(t.Fields))
	for i := range parts {
		parts[i] = t.Fields[i].Type
	}
	return parts
}

type snapWriter struct {
	b   []byte
	err error
}

func (w *snapWriter) i32(v int32) { w.b = javaio.AppendI32(w.b, v) }
func (w *snapWriter) bool(v bool) { w.b = javaio.AppendBool(w.b, v) }

func (w *snapWriter) utf(s string) {
	b, err := javaio.AppendUTF(w.b, javaio.NewString(s))
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("serializer snapshot: %w", err)
	}
	w.b = b
}

func (w *snapWriter) composite(outer int32) {
	w.i32(compositeMagic)
	w.i32(outer)
}

func (w *snapWriter) nested(types ...*Type) {
	w.i32(nestedMagic)
	w.i32(nestedVersion)
	w.i32(int32(len(types)))
	for _, t := range types {
		w.snapshot(t)
	}
}

func (w *snapWriter) snapshot(t *Type) {
	b, err := t.AppendVersionedSnapshot(w.b)
	if err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.b = b
}

// frame writes a length and what f writes.
func (w *snapWriter) frame(f func()) {
	at := len(w.b)
	w.i32(0)
	f()
	n := len(w.b) - at - 4
	copy(w.b[at:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func (w *snapWriter) pojo(t *Type) {
	w.utf(t.JavaClass)
	w.b = javaio.AppendI64(w.b, optionalMapID)
	w.i32(int32(len(t.Fields)))
	for i := range t.Fields {
		f := &t.Fields[i]
		w.utf(f.Name)
		w.bool(true)
		w.frame(func() {
			class := f.DeclaringClass
			if class == "" {
				class = t.JavaClass
			}
			w.utf(class)
			w.utf(f.Name)
		})
		w.bool(true)
		w.frame(func() { w.snapshot(f.Type) })
	}
	for _, list := range [2][]Subclass{t.Registered, t.Unregistered} {
		w.b = javaio.AppendI64(w.b, optionalMapID)
		w.i32(int32(len(list)))
		for _, s := range list {
			w.utf(s.Class)
			w.bool(true)
			w.frame(func() {})
			w.bool(true)
			w.frame(func() { w.snapshot(s.Type) })
		}
	}
}

// basicTypes are the types of parameterless serializers, by kind.
var basicTypes [kindCount]*Type

// arrayTypes are the types of arrays of primitives and of strings, by the kind of
// the element.
var arrayTypes [kindCount]*Type

func init() {
	for _, b := range basics {
		if strings.HasSuffix(b.name, "Value") {
			continue // the mutable twins
		}
		basicTypes[b.kind] = sealed(&Type{Kind: b.kind, enc: b.enc, Class: baseClass(b.name), Version: simpleVersion})
	}
	basicTypes[KindBytes] = sealed(&Type{Kind: KindBytes, enc: encBytes, Class: arrayClass("Byte"), Version: simpleVersion})
	basicTypes[KindVoidNamespace] = sealed(&Type{Kind: KindVoidNamespace, enc: encVoidNamespace, Class: classVoidNamespace, Version: simpleVersion})
	basicTypes[KindTimeWindow] = sealed(&Type{Kind: KindTimeWindow, enc: encTimeWindow, Class: classTimeWindow, Version: simpleVersion})
	basicTypes[KindGlobalWindow] = sealed(&Type{Kind: KindGlobalWindow, enc: encGlobalWindow, Class: classGlobalWindow, Version: simpleVersion})
	for _, p := range primitives {
		arrayTypes[p.kind] = sealed(&Type{Kind: KindArray, enc: encPrimArray, Class: arrayClass(p.name), Version: simpleVersion, Args: []*Type{basicTypes[p.kind]}})
	}
	arrayTypes[KindString] = sealed(&Type{Kind: KindArray, enc: encStringArray, Class: classStringArray, Version: simpleVersion, Args: []*Type{basicTypes[KindString]}})
}

// Basic is the type of Flink's serializer without parameters for a kind:
// KindBoolean to KindDouble, KindChar, KindString, KindBytes, KindBigInt, KindBigDec,
// the dates and times of java.util, java.sql and java.time, KindNull (Void),
// KindVoidNamespace, KindTimeWindow, KindGlobalWindow. It is nil for other kinds.
func Basic(kind Kind) *Type {
	if kind < kindCount {
		return basicTypes[kind]
	}
	return nil
}

// NewList is the type of ListSerializer.
func NewList(elem *Type) *Type {
	return sealed(&Type{Kind: KindList, enc: encList, Class: classList, Version: compositeVersion, OuterVersion: 1, Args: []*Type{elem}})
}

// NewSet is the type of SetSerializer, which Flink has from 2.0 on.
func NewSet(elem *Type) *Type {
	return sealed(&Type{Kind: KindSet, enc: encSet, Class: classSet, Version: compositeVersion, OuterVersion: 1, Args: []*Type{elem}})
}

// NewMap is the type of MapSerializer.
func NewMap(key, value *Type) *Type {
	return sealed(&Type{Kind: KindMap, enc: encMap, Class: classMap, Version: compositeVersion, OuterVersion: 1, Args: []*Type{key, value}})
}

// NewArray is the type of an array: of primitives for KindBoolean, KindShort,
// KindInt, KindLong, KindFloat, KindDouble and KindChar, Flink's String[] for
// KindString, byte[] for KindByte. For other elements, and for boxed ones, see
// NewObjectArray.
func NewArray(elem Kind) *Type {
	if elem == KindByte {
		return basicTypes[KindBytes]
	}
	if elem < kindCount {
		return arrayTypes[elem]
	}
	return nil
}

// NewObjectArray is the type of GenericArraySerializer; elements may be null.
// The component's Java class follows from elem; it is javaClass where elem has
// none.
func NewObjectArray(elem *Type, javaClass string) *Type {
	if c := elem.javaName(); c != "" {
		javaClass = c
	}
	return sealed(&Type{Kind: KindArray, enc: encObjectArray, Class: classGenericArray, Version: compositeVersion, OuterVersion: 1, JavaClass: javaClass, Args: []*Type{elem}})
}

// NewEither is the type of EitherSerializer.
func NewEither(left, right *Type) *Type {
	return sealed(&Type{Kind: KindEither, enc: encEither, Class: classEither, Version: compositeVersion, OuterVersion: 1, Args: []*Type{left, right}})
}

// NewTuple is the type of a Tuple0 to Tuple25. More fields panic.
func NewTuple(fields ...*Type) *Type {
	if len(fields) > 25 {
		panic("serializer: a tuple has at most 25 fields")
	}
	if len(fields) == 0 {
		return sealed(&Type{Kind: KindTuple, enc: encTuple0, Class: classTuple0, Version: simpleVersion})
	}
	t := &Type{Kind: KindTuple, enc: encTuple, Class: classTuple, Version: compositeVersion, OuterVersion: 2, JavaClass: fmt.Sprintf("%s%d", javaTuple, len(fields)), Args: fields}
	t.fieldsOf()
	return sealed(t)
}

// NewRow is the type of RowSerializer with row kinds. Names are kept in the Type
// for printing; neither the snapshot nor the values have them.
func NewRow(fields ...Field) *Type {
	return sealed(&Type{Kind: KindRow, enc: encRow, Class: classRow, Version: compositeVersion, OuterVersion: 4, flag: true, Fields: slices.Clone(fields)})
}

// NewNullable is the type of NullableSerializer without padding.
func NewNullable(inner *Type) *Type {
	return sealed(&Type{Kind: KindNullable, enc: encNullable, Class: classNullable, Version: compositeVersion, OuterVersion: 2, Args: []*Type{inner}})
}

// NewPaddedNullable is the type of NullableSerializer with padding: every value
// takes as many bytes, for which the inner type must have a fixed size.
func NewPaddedNullable(inner *Type) *Type {
	if inner.size < 0 {
		panic("serializer: padding needs a fixed size")
	}
	return sealed(&Type{Kind: KindNullable, enc: encNullable, Class: classNullable, Version: compositeVersion, OuterVersion: 2, pad: inner.size, Args: []*Type{inner}})
}

// NewTTL is the type of a value with a TTL timestamp in front.
func NewTTL(value *Type) *Type {
	return sealed(&Type{Kind: KindTTL, enc: encTTL, Class: classTTL, Version: compositeVersion, OuterVersion: 2, Args: []*Type{basicTypes[KindLong], value}})
}

// NewTimer is the type of a timer.
func NewTimer(key, namespace *Type) *Type {
	return sealed(&Type{
		Kind: KindTimer, enc: encTimer, Class: classTimer, Version: compositeVersion, OuterVersion: 2,
		Fields: []Field{{Name: "timestamp", Type: typeLong}, {Name: "key", Type: key}, {Name: "namespace", Type: namespace}},
	})
}

// NewEnum is the type of a Java enum with its constants in the order of their
// ordinals.
func NewEnum(javaClass string, constants ...string) *Type {
	return sealed(&Type{Kind: KindEnum, enc: encEnum, Class: classEnum, Version: 3, JavaClass: javaClass, Symbols: slices.Clone(constants)})
}

// NewPOJO is the type of a POJO or a Java record. As Flink does when it first
// makes a serializer, it orders the fields by name. A field's DeclaringClass is
// the POJO's class unless it is set.
func NewPOJO(javaClass string, fields ...Field) *Type {
	fields = slices.Clone(fields)
	slices.SortStableFunc(fields, func(a, b Field) int { return compareJava([]byte(a.Name), []byte(b.Name)) })
	for i := range fields {
		if fields[i].DeclaringClass == "" {
			fields[i].DeclaringClass = javaClass
		}
	}
	return sealed(&Type{Kind: KindPOJO, enc: encPOJO, Class: classPOJO, Version: 2, JavaClass: javaClass, Fields: fields})
}

// WithSubclasses is a POJO type with subclasses registered, whose values carry an
// index, and others known, whose values carry their class name.
func (t *Type) WithSubclasses(registered, others []*Type) *Type {
	if t.Kind != KindPOJO {
		panic("serializer: only a POJO has subclasses")
	}
	c := *t
	c.Registered, c.Unregistered = nil, nil
	for _, s := range registered {
		c.Registered = append(c.Registered, Subclass{s.JavaClass, s})
	}
	for _, s := range others {
		c.Unregistered = append(c.Unregistered, Subclass{s.JavaClass, s})
	}
	return sealed(&c)
}

// GenericRecord is the class of Avro records without a generated class.
const GenericRecord = "org.apache.avro.generic.GenericRecord"

// NewAvro is the type of AvroSerializer for a schema; javaClass is the generated
// class or GenericRecord.
func NewAvro(javaClass, schema string) (*Type, error) {
	root, err := ParseAvroSchema(schema)
	if err != nil {
		return nil, err
	}
	t := *root
	t.Class, t.Version, t.JavaClass, t.Schema = classAvro, 3, javaClass, schema
	return sealed(&t), nil
}

// javaNames are the classes of the values of basic types.
var javaNames = map[Kind]string{
	KindBoolean: "java.lang.Boolean", KindByte: "java.lang.Byte", KindShort: "java.lang.Short", KindInt: "java.lang.Integer",
	KindLong: "java.lang.Long", KindFloat: "java.lang.Float", KindDouble: "java.lang.Double", KindChar: "java.lang.Character",
	KindString: "java.lang.String", KindBytes: "[B", KindBigInt: "java.math.BigInteger", KindBigDec: "java.math.BigDecimal",
	KindDate: "java.util.Date", KindSQLDate: "java.sql.Date", KindSQLTime: "java.sql.Time", KindSQLTimestamp: "java.sql.Timestamp",
	KindLocalDate: "java.time.LocalDate", KindLocalTime: "java.time.LocalTime", KindLocalDateTime: "java.time.LocalDateTime",
	KindInstant: "java.time.Instant", KindNull: "java.lang.Void", KindList: "java.util.List", KindMap: "java.util.Map",
	KindSet: "java.util.Set", KindRow: "org.apache.flink.types.Row", KindEither: "org.apache.flink.types.Either", KindUUID: "java.util.UUID",
}

// javaName is the Java class of t's values as Class.getName gives it, or "".
func (t *Type) javaName() string {
	switch t.Kind {
	case KindTuple, KindPOJO, KindEnum, KindDynamic:
		if t.Kind == KindTuple && t.JavaClass == "" {
			return javaTuple + "0"
		}
		return t.JavaClass
	case KindRecord:
		return t.JavaClass
	case KindArray:
		switch t.enc {
		case encPrimArray:
			return "[" + map[Kind]string{KindBoolean: "Z", KindShort: "S", KindInt: "I", KindLong: "J", KindFloat: "F", KindDouble: "D", KindChar: "C"}[t.Args[0].Kind]
		case encStringArray:
			return "[Ljava.lang.String;"
		}
		if strings.HasPrefix(t.JavaClass, "[") {
			return "[" + t.JavaClass
		}
		return "[L" + t.JavaClass + ";"
	case KindNullable, KindTTL:
		return t.Elem().javaName()
	}
	return javaNames[t.Kind]
}
