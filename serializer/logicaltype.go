package serializer

import (
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

const pkgLogical = "org.apache.flink.table.types.logical."

// logicalType makes a Type of a Java-serialized LogicalType. What is not known
// gives an Opaque type without a slot, named by its class; columnOf may mend it.
func logicalType(v javaio.Value, depth int) *Type {
	o, ok := v.(*javaio.Object)
	if !ok || depth > maxSnapshotDepth {
		return &Type{}
	}
	t := logicalOf(o, depth)
	if nullable, ok := javaio.Get[bool](o, "isNullable"); ok {
		t.NotNull = !nullable
	}
	return t.finish()
}

func logicalOf(o *javaio.Object, depth int) *Type {
	class := o.ClassName()
	sub := func(field string) *Type {
		v, _ := o.Field(field)
		return logicalType(v, depth+1)
	}
	number := func(field string) int32 {
		n, _ := javaio.Get[int32](o, field)
		return n
	}
	name, ok := strings.CutPrefix(class, pkgLogical)
	if !ok {
		return &Type{JavaClass: class} // LegacyTypeInformationType and its like moved packages in 2.x
	}
	switch name {
	case "CharType":
		return &Type{Kind: KindString, enc: encUTF8, slot: slotText, Length: number("length"), flag: true}
	case "VarCharType":
		return &Type{Kind: KindString, enc: encUTF8, slot: slotText, Length: unlimited(number("length"))}
	case "BinaryType":
		return &Type{Kind: KindBytes, enc: encBytes, slot: slotBytes, Length: number("length"), flag: true}
	case "VarBinaryType":
		return &Type{Kind: KindBytes, enc: encBytes, slot: slotBytes, Length: unlimited(number("length"))}
	case "BooleanType":
		return &Type{Kind: KindBoolean, enc: encBool, slot: slotBool}
	case "TinyIntType":
		return &Type{Kind: KindByte, enc: encI8, slot: slotI8}
	case "SmallIntType":
		return &Type{Kind: KindShort, enc: encI16, slot: slotI16}
	case "IntType":
		return &Type{Kind: KindInt, enc: encI32, slot: slotI32}
	case "BigIntType":
		return &Type{Kind: KindLong, enc: encI64, slot: slotI64}
	case "FloatType":
		return &Type{Kind: KindFloat, enc: encF32, slot: slotF32}
	case "DoubleType":
		return &Type{Kind: KindDouble, enc: encF64, slot: slotF64}
	case "DateType":
		return &Type{Kind: KindLocalDate, enc: encDays, slot: slotI32}
	case "TimeType":
		return &Type{Kind: KindLocalTime, enc: encTimeMillis, slot: slotI32, Precision: number("precision")}
	case "NullType":
		return &Type{Kind: KindNull, enc: encVoid, slot: slotNull}
	case "YearMonthIntervalType":
		return &Type{Kind: KindIntervalYM, enc: encI32, slot: slotI32, Precision: number("yearPrecision")}
	case "DayTimeIntervalType":
		return &Type{Kind: KindIntervalDT, enc: encI64, slot: slotI64, Precision: number("dayPrecision"), Scale: number("fractionalPrecision")}
	case "DecimalType":
		p := number("precision")
		return &Type{Kind: KindDecimal, enc: encDecimal, slot: decimalSlot(p), Precision: p, Scale: number("scale")}
	case "TimestampType":
		p := number("precision")
		return &Type{Kind: KindTimestamp, enc: encTimestamp, slot: timestampSlot(p), Precision: p}
	case "LocalZonedTimestampType":
		p := number("precision")
		return &Type{Kind: KindTimestampLTZ, enc: encTimestamp, slot: timestampSlot(p), Precision: p}
	case "ArrayType":
		return &Type{Kind: KindArray, enc: encBinaryArray, slot: slotArray, Args: []*Type{sub("elementType")}}
	case "MultisetType":
		return &Type{Kind: KindMultiset, enc: encBinaryMap, slot: slotMap, Args: []*Type{sub("elementType")}}
	case "MapType":
		return &Type{Kind: KindMap, enc: encBinaryMap, slot: slotMap, Args: []*Type{sub("keyType"), sub("valueType")}}
	case "RowType":
		return columns(&Type{Kind: KindRow, enc: encBinaryRow, slot: slotRow}, o, "fields", depth)
	case "StructuredType":
		t := &Type{Kind: KindRow, enc: encBinaryRow, slot: slotRow, JavaClass: structuredName(o)}
		return columns(t, o, "attributes", depth)
	case "DistinctType":
		t := *sub("sourceType")
		return &t
	case "RawType":
		t := &Type{Kind: KindRaw, enc: encRaw, slot: slotRaw, JavaClass: classField(o, "clazz")}
		t.Args = []*Type{{JavaClass: t.JavaClass}}
		return t
	}
	return &Type{JavaClass: class}
}

// unlimited turns the length of a VARCHAR or VARBINARY without a limit into 0.
func unlimited(n int32) int32 {
	if n == 1<<31-1 {
		return 0
	}
	return n
}

func columns(t *Type, o *javaio.Object, field string, depth int) *Type {
	v, _ := o.Field(field)
	list, ok := javaio.List(v)
	if !ok {
		return &Type{JavaClass: o.ClassName()}
	}
	for _, e := range list {
		f, ok := e.(*javaio.Object)
		if !ok {
			return &Type{JavaClass: o.ClassName()}
		}
		name, _ := javaio.Get[javaio.String](f, "name")
		ft, _ := f.Field("type")
		t.Fields = append(t.Fields, Field{Name: name.Go(), Type: logicalType(ft, depth+1)})
	}
	return t
}

// structuredName is the class of a structured type, or its identifier in the
// catalog.
func structuredName(o *javaio.Object) string {
	if s, ok := javaio.Get[javaio.String](o, "className"); ok {
		return s.Go()
	}
	if c := classField(o, "implementationClass"); c != "" {
		return c
	}
	if id, ok := javaio.Get[*javaio.Object](o, "objectIdentifier"); ok {
		if s, ok := javaio.Get[javaio.String](id, "objectName"); ok {
			return s.Go()
		}
	}
	return ""
}

func classField(o *javaio.Object, field string) string {
	c, ok := javaio.Get[*javaio.Class](o, field)
	if !ok || c.Desc == nil {
		return ""
	}
	return c.Desc.Name.Go()
}

// columnOf joins what a column's logical type and its field serializer tell: the
// type has names and nullability, the serializer how a RAW value looks and, for a
// type that is not known, how the column lies in a row.
func columnOf(logical, field *Type) *Type {
	switch {
	case logical.Kind == KindOpaque:
		t := *field
		t.Class, t.Version, t.Raw, t.NotNull = "", 0, nil, logical.NotNull
		if t.slot = slotOf(field); t.slot == slotNone {
			t.Kind, t.enc, t.JavaClass = KindOpaque, encOpaque, logical.JavaClass
		}
		return &t
	case logical.slot == slotRaw && field.enc == encRaw:
		t := *logical
		t.Args = field.Args
		return t.finish()
	case logical.Kind == KindRow && field.enc == encBinaryRow && len(logical.Fields) == len(field.Fields):
		t := *logical
		t.Fields = append([]Field(nil), t.Fields...)
		for i := range t.Fields {
			t.Fields[i].Type = columnOf(t.Fields[i].Type, field.Fields[i].Type)
		}
		return t.finish()
	}
	return logical
}

// slotOf is how a value of a field serializer lies in a row.
func slotOf(t *Type) slot {
	if t.slot != slotNone {
		return t.slot
	}
	switch t.enc {
	case encBool:
		return slotBool
	case encI8:
		return slotI8
	case encI16:
		return slotI16
	case encI32:
		return slotI32
	case encI64:
		return slotI64
	case encF32:
		return slotF32
	case encF64:
		return slotF64
	case encUTF8:
		return slotText
	case encBytes:
		return slotBytes
	case encRaw:
		return slotRaw
	case encVoid:
		return slotNull
	}
	return slotNone
}
