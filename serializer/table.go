package serializer

import (
	"github.com/tidemark/tidemark/internal/javaio"
)

// viewOf reads the snapshot of a data view, whose values are those of the list
// or map serializer inside.
func viewOf(kind Kind, enc encoding) func(*snapReader, *Type) {
	return func(s *snapReader, t *Type) {
		s.outer(t, "data view serializer snapshot")
		if s.stop() {
			return
		}
		args := s.nested(1)
		if s.stop() {
			t.Args = args
			s.incomplete(t)
			return
		}
		if args[0].Kind != kind {
			s.corrupt("data view serializer snapshot", "has a %s inside", args[0].Kind)
			return
		}
		t.Kind, t.enc, t.Args = kind, args[0].enc, args[0].Args
	}
}

// object reads a Java object stream, which ends by itself.
func (s *snapReader) object(field string) javaio.Value {
	if s.stop() {
		return nil
	}
	v, n, err := javaio.ReadObjectStream(s.Peek())
	if err != nil {
		s.Fail(s.shifted(err, field))
		return nil
	}
	s.Next(n)
	return v
}

// readRowData reads i32 n, n × JOBJ of a logical type, NESTED of n serializers.
// The values are one BinaryRow, for which the types are enough; the serializers
// tell what the types do not: how a RAW column's values look.
func readRowData(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	n := s.Count(4)
	t.Kind, t.enc, t.slot = KindRow, encBinaryRow, slotRow
	for i := 0; i < n && !s.stop(); i++ {
		t.Fields = append(t.Fields, Field{Type: logicalType(s.object("column type"), 0)})
	}
	if s.stop() {
		return
	}
	nested := s.nested(n)
	if s.unknown != nil {
		// The types alone do, but where the snapshot ends nobody knows.
		return
	}
	if s.Err() != nil {
		return
	}
	for i := range t.Fields {
		t.Fields[i].Type = columnOf(t.Fields[i].Type, nested[i])
	}
}

// readBinaryRow reads i32 arity; the types of the columns are not there.
func readBinaryRow(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	n := s.I32()
	if s.Err() == nil && (n < 0 || n > maxColumns) {
		s.corrupt("binary row arity", "is %d", n)
		return
	}
	t.Kind, t.enc, t.slot, t.flag, t.Length = KindRow, encBinaryRow, slotRow, true, n
	t.JavaClass = binaryRowClass
}

const (
	maxColumns     = 1 << 16
	binaryRowClass = "org.apache.flink.table.data.binary.BinaryRowData"
)

// readArrayData reads JOBJ element type, JOBJ element serializer.
func readArrayData(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	elem := logicalType(s.object("element type"), 0)
	s.object("element serializer")
	t.Kind, t.enc, t.slot, t.Args = KindArray, encBinaryArray, slotArray, []*Type{elem}
}

// readMapData reads JOBJ key type, value type, key serializer, value serializer.
func readMapData(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	key := logicalType(s.object("key type"), 0)
	value := logicalType(s.object("value type"), 0)
	s.object("key serializer")
	s.object("value serializer")
	t.Kind, t.enc, t.slot, t.Args = KindMap, encBinaryMap, slotMap, []*Type{key, value}
}

func readDecimalData(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	t.Precision, t.Scale = s.I32(), s.I32()
	t.Kind, t.enc, t.slot = KindDecimal, encDecimal, decimalSlot(t.Precision)
}

func readTimestampData(s *snapReader, t *Type) {
	if !s.version(t, 1) {
		return
	}
	t.Precision = s.I32()
	t.Kind, t.enc, t.slot = KindTimestamp, encTimestamp, timestampSlot(t.Precision)
}

func decimalSlot(precision int32) slot {
	if precision <= maxCompactPrecision {
		return slotDecimal
	}
	return slotBigDecimal
}

func timestampSlot(precision int32) slot {
	if precision <= 3 {
		return slotMillis
	}
	return slotTimestamp
}

func readWindowKey(s *snapReader, t *Type) {
	args, ok := s.parts(t, "window key serializer snapshot", 1)
	if !ok {
		return
	}
	t.Kind, t.enc = KindRecord, encTuple
	t.Fields = []Field{{Name: "window", Type: typeLong}, {Name: "key", Type: args[0]}}
}

// readExternal reads JOBJ data type, bool is internal input, NESTED of the
// internal serializer, whose values the external one writes.
func readExternal(s *snapReader, t *Type) {
	s.outer(t, "external serializer snapshot")
	if s.stop() {
		return
	}
	dataType := s.object("data type")
	s.Bool()
	args := s.nested(1)
	if s.incomplete(t) {
		t.Args = args
		return
	}
	class, version, outer := t.Class, t.Version, t.OuterVersion
	*t = *args[0]
	t.Class, t.Version, t.OuterVersion = class, version, outer
	// The data type has what the internal serializer's snapshot lacks: names.
	if o, ok := dataType.(*javaio.Object); ok {
		if lt, ok := o.Field("logicalType"); ok {
			nameColumns(t, logicalType(lt, 0))
		}
	}
}

// nameColumns gives the columns of t the names that named has.
func nameColumns(t, named *Type) {
	if t.Kind != named.Kind || len(t.Fields) != len(named.Fields) || len(t.Args) != len(named.Args) || t.Kind != KindRow {
		return
	}
	t.Fields = append([]Field(nil), t.Fields...)
	for i := range t.Fields {
		t.Fields[i].Name = named.Fields[i].Name
	}
}

// readSortedMap reads JOBJ comparator, NESTED(key, value).
func readSortedMap(s *snapReader, t *Type) {
	if !s.version(t, 3) {
		return
	}
	s.object("comparator")
	if s.stop() {
		return
	}
	t.Args = s.nested(2)
	if s.incomplete(t) {
		return
	}
	t.Kind, t.enc = KindMap, encMap
}
