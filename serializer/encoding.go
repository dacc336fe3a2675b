package serializer

// encoding says how the bytes of a value lie, where Kind says what it means: a
// Long of a POJO and a BIGINT of a SQL row share both, a String of a POJO and
// one of an Avro record only the Kind.
type encoding uint8

const (
	encOpaque        encoding = iota // unknown; to the end of the frame, if there is one
	encBool                          // 1 byte
	encI8                            // 1
	encI16                           // 2
	encI32                           // 4
	encI64                           // 8
	encF32                           // 4
	encF64                           // 8
	encChar                          // 2: a UTF-16 unit
	encVoid                          // 1: zero; the value is null
	encUnit                          // 1: zero; Scala's Unit
	encEmpty                         // none; the value is null
	encString                        // varint units+1 (0 is null), varint per unit
	encStringValue                   // varint units, varint per unit
	encBigInt                        // i32 n: 0 null, 1 to 3 the numbers 0, 1 and 10, else n-4 bytes
	encBigDec                        // encBigInt, then i32 scale unless null
	encMillis                        // i64; its minimum is null
	encSQLTimestamp                  // i64 millis, i32 nanos; null as encMillis with 0
	encLocalDate                     // i32 year, i8 month, i8 day
	encLocalTime                     // i8 hour, i8 minute, i8 second, i32 nano
	encLocalDateTime                 // both
	encInstant                       // i64 seconds, i32 nano
	encBytes                         // i32 n, n bytes
	encPrimArray                     // i32 n, n elements of fixed size
	encStringArray                   // i32 n, n encString
	encEnum                          // i32 index into Symbols
	encScalaEnum                     // i32 id
	encList                          // i32 n, n elements
	encMap                           // i32 n, n × (key, bool value is null, [value])
	encNullAwareMap                  // i32 n, n × (bool key is null, [key], bool value is null, [value])
	encSet                           // i32 n, n × (bool is null, [element])
	encObjectArray                   // i32 n, n × (bool is present, [element]); also Scala's Traversable
	encNullable                      // bool is null, then the value or pad bytes
	encOption                        // bool is some, [value]
	encEither                        // bool is left, value of Args[0] or Args[1]
	encTuple                         // the fields
	encTuple0                        // 1: 0x2a
	encRow                           // mask, then the fields that are not null
	encPOJO                          // flags, …
	encKryo                          // see kryo.go
	encUnion                         // i32 branch, its value (Avro)
	encFixed                         // Length bytes (Avro)
	encAvroArray                     // see avro.go
	encAvroMap
	encReference     // the type in ref: an Avro record inside itself
	encJava          // a Java object stream
	encTTL           // i64 timestamp, value
	encTimer         // i64 timestamp with the sign flipped, key, namespace
	encTagged        // i8 1 or 2, value of Args[0] or Args[1] (CoGroupedStreams)
	encStreamElement // tag byte, …
	encTwoPhase      // TwoPhaseCommitSinkFunction.State
	encTimeWindow    // i64 start, i64 end
	encCountWindow   // i64
	encGlobalWindow  // 1: zero
	encVoidNamespace // 1: zero
	encEventID       // i32 id, i64 timestamp (CEP)
	encDewey         // i32 n, n × i32
	encNodeID        // i8 present, [event id, page name]
	encSharedNode    // i32 n, n × (i32 references, edge)
	encNFAState      // see cep.go
	// Table.
	encBinaryRow // i32 size, a BinaryRow of size bytes
	encBinaryArray
	encBinaryMap
	encUTF8       // i32 n, n bytes of UTF-8
	encDecimal    // i64, or i32 n and n bytes
	encTimestamp  // i64 millis, i32 nanos of the millisecond if the precision is above 3
	encDays       // i32 days
	encTimeMillis // i32 milliseconds of the day
	encRaw        // i32 n, n bytes that hold the value of Args[0]
	encLinkedList // i32 n, [mask], elements that are not null
)

// slot says how a column lies in the eight bytes that a BinaryRow has for it.
type slot uint8

const (
	slotNone slot = iota
	slotBool
	slotI8
	slotI16
	slotI32
	slotI64
	slotF32
	slotF64
	slotText
	slotBytes
	slotDecimal    // i64
	slotBigDecimal // offset and size of two's complement bytes
	slotMillis     // timestamp of precision 0 to 3
	slotTimestamp  // offset of the millis, nanos
	slotArray
	slotMap
	slotRow
	slotRaw
	slotNull // SQL NULL
)

// width is the size of a slot in a BinaryArray.
func (s slot) width() int {
	switch s {
	case slotBool, slotI8:
		return 1
	case slotI16:
		return 2
	case slotI32, slotF32:
		return 4
	}
	return 8
}

// fixedSizes holds the size of encodings that have one.
var fixedSizes = [256]int32{
	encBool: 1, encI8: 1, encI16: 2, encI32: 4, encI64: 8, encF32: 4, encF64: 8, encChar: 2, encVoid: 1, encUnit: 1, encMillis: 8,
	encSQLTimestamp: 12, encLocalDate: 6, encLocalTime: 7, encLocalDateTime: 13, encInstant: 12, encEnum: 4, encScalaEnum: 4,
	encTuple0: 1, encTimeWindow: 16, encCountWindow: 8, encGlobalWindow: 1, encVoidNamespace: 1, encEventID: 12, encDays: 4,
	encTimeMillis: 4,
}

// minSizes holds the least size of those that have none.
var minSizes = [256]int32{
	encString: 1, encStringValue: 1, encBigInt: 4, encBigDec: 4, encBytes: 4, encPrimArray: 4, encStringArray: 4, encList: 4, encMap: 4, encUnion: 4, encAvroArray: 1, encAvroMap: 1,
	encNullAwareMap: 4, encSet: 4, encObjectArray: 4, encNullable: 1, encOption: 1, encEither: 1, encRow: 0, encPOJO: 1, encKryo: 1,
	encJava: 5, encTTL: 8, encTimer: 8, encTagged: 1, encStreamElement: 1, encTwoPhase: 5, encDewey: 4, encNodeID: 1, encSharedNode: 4,
	encNFAState: 8, encBinaryRow: 12, encBinaryArray: 8, encBinaryMap: 8, encUTF8: 4, encDecimal: 5, encTimestamp: 8, encRaw: 4,
	encLinkedList: 4,
}

// finish computes the sizes of t from those of its parts.
func (t *Type) finish() *Type {
	t.size, t.min = -1, minSizes[t.enc]
	if n := fixedSizes[t.enc]; n > 0 {
		t.size, t.min = n, n
		return t
	}
	switch t.enc {
	case encEmpty:
		t.size, t.min = 0, 0
	case encTuple:
		t.sumSizes(0)
	case encTimer:
		t.sumSizes(0)
	case encFixed:
		t.size, t.min = t.Length, t.Length
	case encTTL:
		t.min = satAdd(8, t.Args[1].min)
		if n := t.Args[1].size; n >= 0 {
			t.size = satAdd(8, n)
		}
	case encNullable:
		inner := t.Args[0]
		t.min = 1 + t.pad
		if inner.min < t.pad {
			t.min = 1 + inner.min
		}
		if inner.size >= 0 && inner.size == t.pad {
			t.size = 1 + t.pad
		}
	case encRow:
		bits := len(t.Fields)
		if t.flag {
			bits += 2
		}
		t.min = int32((bits + 7) / 8)
	case encTimestamp:
		t.size = 8
		if t.Precision > 3 {
			t.size = 12
		}
		t.min = t.size
	case encDecimal:
		if t.Precision <= maxCompactPrecision {
			t.size, t.min = 8, 8
		}
	}
	return t
}

func (t *Type) sumSizes(size int32) {
	t.min = size
	for i := range t.Fields {
		f := t.Fields[i].Type
		t.min = satAdd(t.min, f.min)
		if f.size < 0 {
			size = -1
		} else if size >= 0 {
			size = satAdd(size, f.size)
		}
	}
	t.size = size
}

// satAdd adds sizes that a hostile snapshot might let overflow.
func satAdd(a, b int32) int32 {
	if s := a + b; s >= a {
		return s
	}
	return 1 << 30
}

const maxCompactPrecision = 18
