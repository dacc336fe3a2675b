package serializer

// Package prefixes of Flink's snapshot classes.
const (
	pkgBase    = "org.apache.flink.api.common.typeutils.base."
	pkgArray   = pkgBase + "array."
	pkgRuntime = "org.apache.flink.api.java.typeutils.runtime."
	pkgTable   = "org.apache.flink.table.runtime.typeutils."
	pkgView    = "org.apache.flink.table.dataview."
	pkgScala1  = "org.apache.flink.api.scala.typeutils."
	pkgScala2  = "org.apache.flink.table.api.typeutils."
	pkgState   = "org.apache.flink.runtime.state."
	pkgCEP     = "org.apache.flink.cep.nfa."
	pkgStream  = "org.apache.flink.streaming."
	pkgWindow  = "org.apache.flink.streaming.api.windowing.windows."
	pkgTypes   = "org.apache.flink.types."
	pkgSQLWin  = "org.apache.flink.table.runtime.operators.window."
)

// Classes that this package writes as well as reads.
const (
	classList          = pkgBase + "ListSerializerSnapshot"
	classMap           = pkgBase + "MapSerializerSnapshot"
	classSet           = pkgBase + "SetSerializerSnapshot"
	classEnum          = pkgBase + "EnumSerializer$EnumSerializerSnapshot"
	classGenericArray  = pkgBase + "GenericArraySerializerSnapshot"
	classStringArray   = pkgArray + "StringArraySerializer$StringArraySerializerSnapshot"
	classEither        = pkgRuntime + "JavaEitherSerializerSnapshot"
	classTuple         = pkgRuntime + "TupleSerializerSnapshot"
	classTuple0        = pkgRuntime + "Tuple0SerializerSnapshot"
	classRow           = pkgRuntime + "RowSerializer$RowSerializerSnapshot"
	classNullable      = pkgRuntime + "NullableSerializer$NullableSerializerSnapshot"
	classPOJO          = pkgRuntime + "PojoSerializerSnapshot"
	classKryo          = pkgRuntime + "kryo.KryoSerializerSnapshot"
	classAvro          = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
	classVoidNamespace = pkgState + "VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
	classTimeWindow    = pkgWindow + "TimeWindow$Serializer$TimeWindowSerializerSnapshot"
	classGlobalWindow  = pkgWindow + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot"
	classTTL           = pkgState + "ttl.TtlStateFactory$TtlSerializerSnapshot"
	classTTLv2         = pkgState + "v2.ttl.TtlStateFactory$TtlSerializerSnapshot"
	classTTLAware      = pkgState + "ttl.TtlAwareSerializerSnapshot"
	classTimer         = pkgStream + "api.operators.TimerSerializerSnapshot"
	classRowData       = pkgTable + "RowDataSerializer$RowDataSerializerSnapshot"
	classBinaryRow     = pkgTable + "BinaryRowDataSerializer$BinaryRowDataSerializerSnapshot"
	classArrayData     = pkgTable + "ArrayDataSerializer$ArrayDataSerializerSnapshot"
	classMapData       = pkgTable + "MapDataSerializer$MapDataSerializerSnapshot"
	classDecimalData   = pkgTable + "DecimalDataSerializer$DecimalSerializerSnapshot"
	classTimestampData = pkgTable + "TimestampDataSerializer$TimestampDataSerializerSnapshot"
	classStringData    = pkgTable + "StringDataSerializer$StringDataSerializerSnapshot"
	classRawData       = pkgTable + "RawValueDataSerializer$RawValueDataSerializerSnapshot"
)

// baseClass is the snapshot class of a basic type's serializer, by the name
// that Flink gives the serializer: "Long", "LocalDate".
func baseClass(name string) string {
	return pkgBase + name + "Serializer$" + name + "SerializerSnapshot"
}

// arrayClass is that of an array of primitives.
func arrayClass(name string) string {
	return pkgArray + name + "PrimitiveArraySerializer$" + name + "PrimitiveArraySerializerSnapshot"
}

type kindEncoding struct {
	name string
	kind Kind
	enc  encoding
}

// basics are the serializers without parameters in pkgBase.
var basics = []kindEncoding{
	{"Boolean", KindBoolean, encBool}, {"Byte", KindByte, encI8}, {"Short", KindShort, encI16}, {"Int", KindInt, encI32},
	{"Long", KindLong, encI64}, {"Float", KindFloat, encF32}, {"Double", KindDouble, encF64}, {"Char", KindChar, encChar},
	{"String", KindString, encString}, {"BigInt", KindBigInt, encBigInt}, {"BigDec", KindBigDec, encBigDec},
	{"Date", KindDate, encMillis}, {"SqlDate", KindSQLDate, encMillis}, {"SqlTime", KindSQLTime, encMillis},
	{"SqlTimestamp", KindSQLTimestamp, encSQLTimestamp}, {"LocalDate", KindLocalDate, encLocalDate},
	{"LocalTime", KindLocalTime, encLocalTime}, {"LocalDateTime", KindLocalDateTime, encLocalDateTime},
	{"Instant", KindInstant, encInstant}, {"Void", KindNull, encVoid}, {"NullValue", KindNull, encEmpty},
	{"BooleanValue", KindBoolean, encBool}, {"ByteValue", KindByte, encI8}, {"ShortValue", KindShort, encI16},
	{"IntValue", KindInt, encI32}, {"LongValue", KindLong, encI64}, {"FloatValue", KindFloat, encF32},
	{"DoubleValue", KindDouble, encF64}, {"CharValue", KindChar, encChar}, {"StringValue", KindString, encStringValue},
}

// primitives are the element types of arrays of primitives, Byte excepted,
// which is Bytes.
var primitives = []kindEncoding{
	{"Boolean", KindBoolean, encBool}, {"Short", KindShort, encI16}, {"Int", KindInt, encI32}, {"Long", KindLong, encI64},
	{"Float", KindFloat, encF32}, {"Double", KindDouble, encF64}, {"Char", KindChar, encChar},
}

// valueClasses are the classes behind classOnly snapshots whose bytes are known:
// Flink's Value types, and the Hadoop Writables that wrap one number.
var valueClasses = map[string]kindEncoding{
	pkgTypes + "BooleanValue":              {"", KindBoolean, encBool},
	pkgTypes + "ByteValue":                 {"", KindByte, encI8},
	pkgTypes + "ShortValue":                {"", KindShort, encI16},
	pkgTypes + "IntValue":                  {"", KindInt, encI32},
	pkgTypes + "LongValue":                 {"", KindLong, encI64},
	pkgTypes + "FloatValue":                {"", KindFloat, encF32},
	pkgTypes + "DoubleValue":               {"", KindDouble, encF64},
	pkgTypes + "CharValue":                 {"", KindChar, encChar},
	pkgTypes + "StringValue":               {"", KindString, encStringValue},
	pkgTypes + "NullValue":                 {"", KindNull, encVoid},
	"org.apache.hadoop.io.BooleanWritable": {"", KindBoolean, encBool},
	"org.apache.hadoop.io.ByteWritable":    {"", KindByte, encI8},
	"org.apache.hadoop.io.ShortWritable":   {"", KindShort, encI16},
	"org.apache.hadoop.io.IntWritable":     {"", KindInt, encI32},
	"org.apache.hadoop.io.LongWritable":    {"", KindLong, encI64},
	"org.apache.hadoop.io.FloatWritable":   {"", KindFloat, encF32},
	"org.apache.hadoop.io.DoubleWritable":  {"", KindDouble, encF64},
	"org.apache.hadoop.io.BytesWritable":   {"", KindBytes, encBytes},
}

// bodies reads the body of each known snapshot class.
var bodies map[string]func(*snapReader, *Type)

func init() {
	m := map[string]func(*snapReader, *Type){
		classEnum:         readEnum,
		classList:         composite(KindList, encList, 1),
		classMap:          composite(KindMap, encMap, 2),
		classSet:          composite(KindSet, encSet, 1),
		classGenericArray: readGenericArray,
		pkgBase + "GenericArraySerializerConfigSnapshot":  readGenericArray,
		pkgState + "ArrayListSerializerSnapshot":          composite(KindList, encList, 1),
		pkgView + "ListViewSerializerSnapshot":            viewOf(KindList, encList),
		pkgView + "MapViewSerializerSnapshot":             viewOf(KindMap, encMap),
		pkgView + "NullAwareMapSerializerSnapshot":        composite(KindMap, encNullAwareMap, 2),
		pkgView + "NullSerializer$NullSerializerSnapshot": simple(KindNull, encVoid),

		classEither:                             composite(KindEither, encEither, 2),
		pkgRuntime + "EitherSerializerSnapshot": readOldEither,
		classTuple:                              readTuple,
		classTuple0:                             simple(KindTuple, encTuple0),
		classRow:                                readRow,
		classNullable:                           readNullable,
		classPOJO:                               readPOJO,
		classKryo:                               readKryo,
		pkgRuntime + "ValueSerializer$ValueSerializerSnapshot":                 classOnly,
		pkgRuntime + "CopyableValueSerializer$CopyableValueSerializerSnapshot": classOnly,
		pkgRuntime + "WritableSerializer$WritableSerializerSnapshot":           classOnly,
		classAvro: readAvro,
		pkgState + "JavaSerializer$JavaSerializerSnapshot": simple(KindDynamic, encJava),

		classVoidNamespace: simple(KindVoidNamespace, encVoidNamespace),
		"org.apache.flink.queryablestate.client.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot": simple(KindVoidNamespace, encVoidNamespace),
		classTimeWindow:   simple(KindTimeWindow, encTimeWindow),
		classGlobalWindow: simple(KindGlobalWindow, encGlobalWindow),
		pkgSQLWin + "TimeWindow$Serializer$TimeWindowSerializerSnapshot":     simple(KindTimeWindow, encTimeWindow),
		pkgSQLWin + "CountWindow$Serializer$CountWindowSerializerSnapshot":   simple(KindCountWindow, encCountWindow),
		pkgSQLWin + "GlobalWindow$Serializer$GlobalWindowSerializerSnapshot": simple(KindGlobalWindow, encGlobalWindow),
		classTTL:      composite(KindTTL, encTTL, 2),
		classTTLv2:    composite(KindTTL, encTTL, 2),
		classTTLAware: readTTLAware,
		classTimer:    readTimer,

		pkgStream + "api.operators.co.IntervalJoinOperator$BufferEntrySerializerSnapshot":          readBufferEntry,
		pkgStream + "api.datastream.CoGroupedStreams$UnionSerializerSnapshot":                      readUnion,
		pkgStream + "runtime.streamrecord.StreamElementSerializer$StreamElementSerializerSnapshot": composite(KindRecord, encStreamElement, 1),
		pkgStream + "api.functions.sink.TwoPhaseCommitSinkFunction$StateSerializerSnapshot":        readTwoPhase,
		pkgStream + "api.functions.sink.legacy.TwoPhaseCommitSinkFunction$StateSerializerSnapshot": readTwoPhase,
		pkgStream + "api.utils.ByteArrayWrapperSerializer$ByteArrayWrapperSerializerSnapshot":      simple(KindBytes, encBytes),

		classRowData:       readRowData,
		classBinaryRow:     readBinaryRow,
		classArrayData:     readArrayData,
		classMapData:       readMapData,
		classDecimalData:   readDecimalData,
		classTimestampData: readTimestampData,
		classStringData:    simple(KindString, encUTF8),
		classRawData:       composite(KindRaw, encRaw, 1),
		pkgTable + "LinkedListSerializer$LinkedListSerializerSnapshot": readLinkedList,
		pkgTable + "WindowKeySerializer$WindowKeySerializerSnapshot":   readWindowKey,
		pkgTable + "ExternalSerializer$ExternalSerializerSnapshot":     readExternal,
		pkgTable + "SortedMapSerializerSnapshot":                       readSortedMap,

		pkgCEP + "sharedbuffer.EventId$EventIdSerializer$EventIdSerializerSnapshot":                            readEventID,
		pkgCEP + "DeweyNumber$DeweyNumberSerializer$DeweyNumberSerializerSnapshot":                             readDewey,
		pkgCEP + "sharedbuffer.NodeId$NodeIdSerializer$NodeIdSerializerSnapshot":                               readNodeID,
		pkgCEP + "sharedbuffer.SharedBufferEdge$SharedBufferEdgeSerializer$SharedBufferEdgeSerializerSnapshot": record(KindRecord, encTuple, "node", "version"),
		pkgCEP + "sharedbuffer.LockableTypeSerializerSnapshot":                                                 readLockable,
		pkgCEP + "sharedbuffer.SharedBufferNodeSerializerSnapshotV2":                                           readSharedNode,
		pkgCEP + "NFAStateSerializerSnapshot":                                                                  readNFAState,

		classStringArray:   arrayOf(encStringArray, typeString),
		arrayClass("Byte"): simple(KindBytes, encBytes),
	}
	for _, b := range basics {
		m[baseClass(b.name)] = simple(b.kind, b.enc)
	}
	for _, p := range primitives {
		m[arrayClass(p.name)] = arrayOf(encPrimArray, plain(p.kind, p.enc))
	}
	for _, pkg := range []string{pkgScala1, pkgScala2} {
		m[pkg+"ScalaCaseClassSerializerSnapshot"] = readTuple
		m[pkg+"Tuple2CaseClassSerializerSnapshot"] = readTuple
		m[pkg+"ScalaOptionSerializerSnapshot"] = composite(KindOption, encOption, 1)
		m[pkg+"ScalaEitherSerializerSnapshot"] = composite(KindEither, encEither, 2)
		m[pkg+"ScalaTrySerializerSnapshot"] = composite(KindTry, encEither, 2)
		m[pkg+"TraversableSerializerSnapshot"] = readTraversable
		m[pkg+"ScalaEnumSerializerSnapshot"] = readScalaEnum
		m[pkg+"UnitSerializer$UnitSerializerSnapshot"] = simple(KindNull, encUnit)
		m[pkg+"NothingSerializerSnapshot"] = simple(KindOpaque, encOpaque)
	}
	bodies = m
}

// Types without a snapshot of their own, for parts of others.
var (
	typeBool   = plain(KindBoolean, encBool)
	typeByte   = plain(KindByte, encI8)
	typeShort  = plain(KindShort, encI16)
	typeInt    = plain(KindInt, encI32)
	typeLong   = plain(KindLong, encI64)
	typeFloat  = plain(KindFloat, encF32)
	typeDouble = plain(KindDouble, encF64)
	typeChar   = plain(KindChar, encChar)
	typeString = plain(KindString, encString)
	typeBytes  = plain(KindBytes, encBytes)
)

func plain(kind Kind, enc encoding) *Type { return (&Type{Kind: kind, enc: enc}).finish() }

// arrayOf reads the parameterless snapshot of an array of elem.
func arrayOf(enc encoding, elem *Type) func(*snapReader, *Type) {
	read := simple(KindArray, enc)
	return func(s *snapReader, t *Type) {
		read(s, t)
		if !s.stop() {
			t.Args = []*Type{elem}
		}
	}
}
