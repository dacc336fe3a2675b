package serializer

// Kind says what a value is, whatever serializer wrote it: a Long of a Flink
// POJO, an Avro record or a SQL row is a Long.
type Kind uint8

// Kinds. The comment tells which calls of a Visitor a value makes, beside Null.
const (
	KindOpaque Kind = iota // Opaque: bytes of a class that nobody here can read

	KindNull      // only ever null (Void, NullValue, SQL NULL)
	KindBoolean   // Bool
	KindByte      // Int
	KindShort     // Int
	KindInt       // Int
	KindLong      // Int
	KindFloat     // Float
	KindDouble    // Float
	KindChar      // Text, one UTF-16 unit
	KindString    // Text; Length is the limit of a SQL VARCHAR or CHAR, 0 none
	KindBytes     // Bytes; Length as for String
	KindBigInt    // Decimal with scale 0
	KindBigDec    // Decimal
	KindDecimal   // Decimal; SQL DECIMAL(Precision, Scale)
	KindDate      // Int: java.util.Date, epoch milliseconds
	KindSQLDate   // Int: java.sql.Date, epoch milliseconds
	KindSQLTime   // Int: java.sql.Time, epoch milliseconds
	KindLocalDate // Int: days since the epoch; also SQL DATE
	KindLocalTime // Int: nanoseconds of the day; also SQL TIME(Precision)

	KindSQLTimestamp  // Time: java.sql.Timestamp
	KindLocalDateTime // Time, as if the clock showed UTC
	KindInstant       // Time
	KindTimestamp     // Time: SQL TIMESTAMP(Precision), as if the clock showed UTC
	KindTimestampLTZ  // Time: SQL TIMESTAMP_LTZ(Precision)
	KindIntervalYM    // Int: months
	KindIntervalDT    // Int: milliseconds
	KindUUID          // Bytes, 16 of them
	KindEnum          // Text: the constant's name

	KindList     // Begin, elements, End
	KindSet      // Begin, elements, End
	KindArray    // Begin, elements, End; of primitives, strings or objects
	KindMap      // Begin, key, value, …, End
	KindMultiset // Begin, element, count (an Int), …, End

	KindTuple  // Begin, fields, End; also Scala case classes
	KindRow    // Begin, RowKind, fields, End; Flink's Row and RowData
	KindPOJO   // Begin, fields, End; the Type given may be that of a subclass
	KindRecord // Begin, fields, End; an Avro record, a Java-serialized or Kryo object
	KindEither // Begin, field 0 (left) or field 1 (right), End

	KindTTL      // its value alone; the Decoder keeps the timestamp
	KindNullable // its value, or Null
	KindOption   // its value, or Null
	KindTry      // as Either: field 0 success, field 1 failure
	KindUnion    // the value of the branch; an Avro union
	KindRaw      // its value, or Opaque; SQL RAW

	KindVoidNamespace // Null
	KindTimeWindow    // Begin, fields 0 start and 1 end (end exclusive, milliseconds), End
	KindCountWindow   // Int
	KindGlobalWindow  // Text "GlobalWindow"
	KindTimer         // Begin, fields timestamp, key, namespace, End

	KindDynamic // what stands in the bytes: a Kryo or Java-serialized value

	kindCount
)

var kindNames = [kindCount]string{
	KindOpaque: "opaque", KindNull: "void", KindBoolean: "boolean", KindByte: "byte", KindShort: "short", KindInt: "int", KindLong: "long",
	KindFloat: "float", KindDouble: "double", KindChar: "char", KindString: "string", KindBytes: "bytes", KindBigInt: "bigint", KindBigDec: "bigdec",
	KindDecimal: "decimal", KindDate: "date", KindSQLDate: "sqldate", KindSQLTime: "sqltime", KindLocalDate: "localdate", KindLocalTime: "localtime",
	KindSQLTimestamp: "sqltimestamp", KindLocalDateTime: "localdatetime", KindInstant: "instant", KindTimestamp: "timestamp",
	KindTimestampLTZ: "timestamp_ltz", KindIntervalYM: "interval_year_month", KindIntervalDT: "interval_day_time", KindUUID: "uuid", KindEnum: "enum",
	KindList: "list", KindSet: "set", KindArray: "array", KindMap: "map", KindMultiset: "multiset", KindTuple: "tuple", KindRow: "row", KindPOJO: "pojo",
	KindRecord: "record", KindEither: "either", KindTTL: "ttl", KindNullable: "nullable", KindOption: "option", KindTry: "try", KindUnion: "union", KindRaw: "raw",
	KindVoidNamespace: "voidnamespace", KindTimeWindow: "timewindow", KindCountWindow: "countwindow", KindGlobalWindow: "globalwindow",
	KindTimer: "timer", KindDynamic: "dynamic",
}

// String is the kind in flink-verify's words, where it has one.
func (k Kind) String() string {
	if k < kindCount {
		return kindNames[k]
	}
	return "?"
}
