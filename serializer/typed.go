package serializer

import (
	"encoding/binary"
	"math"
	"math/big"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
)

// Serializer writes and reads Go values of type T as one of Flink's serializers
// does. Implementations are immutable and may be used by many goroutines.
type Serializer[T any] interface {
	// Append appends the value's bytes to dst.
	Append(dst []byte, v T) []byte
	// Read reads the value at the start of b and tells its size. Nothing in v
	// aliases b. Errors are ErrShort or damage.
	Read(b []byte) (v T, n int, err error)
	// Type is the schema; its AppendSnapshot gives the serializer snapshot.
	Type() *Type
}

// Serializers of basic types. Those of fixed size never allocate. A null, which
// Flink allows for strings, numbers and times, is read as the zero value; see
// Nullable and pointers in structs for values that may be null.
var (
	Bool    Serializer[bool]    = boolSerializer{}    // java.lang.Boolean
	Int8    Serializer[int8]    = int8Serializer{}    // java.lang.Byte
	Int16   Serializer[int16]   = int16Serializer{}   // java.lang.Short
	Int32   Serializer[int32]   = int32Serializer{}   // java.lang.Integer
	Int64   Serializer[int64]   = int64Serializer{}   // java.lang.Long
	Float32 Serializer[float32] = float32Serializer{} // java.lang.Float
	Float64 Serializer[float64] = float64Serializer{} // java.lang.Double
	Char    Serializer[uint16]  = charSerializer{}    // java.lang.Character, a UTF-16 unit
	String  Serializer[string]  = stringSerializer{}  // java.lang.String
	Bytes   Serializer[[]byte]  = bytesSerializer{}   // byte[]
	// Instant is java.time.Instant; the location is UTC when read.
	Instant Serializer[time.Time] = timeSerializer(KindInstant)
	// SQLTimestamp is java.sql.Timestamp.
	SQLTimestamp Serializer[time.Time] = timeSerializer(KindSQLTimestamp)
	// LocalDateTime is java.time.LocalDateTime: what a clock shows, as if in UTC.
	LocalDateTime Serializer[time.Time] = timeSerializer(KindLocalDateTime)
	// Date is java.util.Date, milliseconds of the epoch.
	Date Serializer[time.Time] = timeSerializer(KindDate)
	// LocalDate is java.time.LocalDate.
	LocalDate Serializer[CivilDate] = dateSerializer{}
	// LocalTime is java.time.LocalTime, the time since midnight.
	LocalTime Serializer[time.Duration] = dayTimeSerializer{}
	// BigInteger is java.math.BigInteger; nil is null.
	BigInteger Serializer[*big.Int] = bigIntSerializer{}
	// Decimals is java.math.BigDecimal; a nil Unscaled is null.
	Decimals Serializer[BigDecimal] = bigDecSerializer{}
	// Void is java.lang.Void and VoidNamespace the namespace of state without one.
	Void          Serializer[struct{}] = unitSerializer(KindNull)
	VoidNS        Serializer[struct{}] = unitSerializer(KindVoidNamespace)
	TimeWindows   Serializer[Window]   = windowSerializer{}
	GlobalWindows Serializer[struct{}] = unitSerializer(KindGlobalWindow)
)

// Window is a TimeWindow: milliseconds, End exclusive.
type Window struct{ Start, End int64 }

type boolSerializer struct{}

func (boolSerializer) Append(dst []byte, v bool) []byte { return javaio.AppendBool(dst, v) }
func (boolSerializer) Type() *Type                      { return basicTypes[KindBoolean] }
func (boolSerializer) Read(b []byte) (bool, int, error) {
	if len(b) < 1 {
		return false, 0, ErrShort
	}
	return b[0] != 0, 1, nil
}

type int8Serializer struct{}

func (int8Serializer) Append(dst []byte, v int8) []byte { return append(dst, byte(v)) }
func (int8Serializer) Type() *Type                      { return basicTypes[KindByte] }
func (int8Serializer) Read(b []byte) (int8, int, error) {
	if len(b) < 1 {
		return 0, 0, ErrShort
	}
	return int8(b[0]), 1, nil
}

type int16Serializer struct{}

func (int16Serializer) Append(dst []byte, v int16) []byte { return javaio.AppendI16(dst, v) }
func (int16Serializer) Type() *Type                       { return basicTypes[KindShort] }
func (int16Serializer) Read(b []byte) (int16, int, error) {
	if len(b) < 2 {
		return 0, 0, ErrShort
	}
	return int16(binary.BigEndian.Uint16(b)), 2, nil
}

type charSerializer struct{}

func (charSerializer) Append(dst []byte, v uint16) []byte {
	return binary.BigEndian.AppendUint16(dst, v)
}
func (charSerializer) Type() *Type { return basicTypes[KindChar] }
func (charSerializer) Read(b []byte) (uint16, int, error) {
	if len(b) < 2 {
		return 0, 0, ErrShort
	}
	return binary.BigEndian.Uint16(b), 2, nil
}

type int32Serializer struct{}

func (int32Serializer) Append(dst []byte, v int32) []byte { return javaio.AppendI32(dst, v) }
func (int32Serializer) Type() *Type                       { return basicTypes[KindInt] }
func (int32Serializer) Read(b []byte) (int32, int, error) {
	if len(b) < 4 {
		return 0, 0, ErrShort
	}
	return be32(b), 4, nil
}

type int64Serializer struct{}

func (int64Serializer) Append(dst []byte, v int64) []byte { return javaio.AppendI64(dst, v) }
func (int64Serializer) Type() *Type                       { return basicTypes[KindLong] }
func (int64Serializer) Read(b []byte) (int64, int, error) {
	if len(b) < 8 {
		return 0, 0, ErrShort
	}
	return int64(binary.BigEndian.Uint64(b)), 8, nil
}

type float32Serializer struct{}

func (float32Serializer) Append(dst []byte, v float32) []byte { return javaio.AppendF32(dst, v) }
func (float32Serializer) Type() *Type                         { return basicTypes[KindFloat] }
func (float32Serializer) Read(b []byte) (float32, int, error) {
	if len(b) < 4 {
		return 0, 0, ErrShort
	}
	return math.Float32frombits(binary.BigEndian.Uint32(b)), 4, nil
}

type float64Serializer struct{}

func (float64Serializer) Append(dst []byte, v float64) []byte { return javaio.AppendF64(dst, v) }
func (float64Serializer) Type() *Type                         { return basicTypes[KindDouble] }
func (float64Serializer) Read(b []byte) (float64, int, error) {
	if len(b) < 8 {
		return 0, 0, ErrShort
	}
	return math.Float64frombits(binary.BigEndian.Uint64(b)), 8, nil
}

type stringSerializer struct{}

func (stringSerializer) Append(dst []byte, v string) []byte { return AppendString(dst, v) }
func (stringSerializer) Type() *Type                        { return basicTypes[KindString] }
func (stringSerializer) Read(b []byte) (string, int, error) {
	s, n, _, err := readString(b)
	return s, n, err
}

// readString reads a string of Flink's StringSerializer; ok is false for null.
func readString(b []byte) (s string, n int, ok bool, err error) {
	n, i, ok, err := units(b, 0, true)
	if err != nil || !ok {
		return "", i, ok, err
	}
	if ascii(b[i : i+n]) {
		return string(b[i : i+n]), i + n, true, nil
	}
	var d Decoder
	text, end, _, err := d.string16(b, 0, true)
	return string(text), end, true, err
}

type bytesSerializer struct{}

func (bytesSerializer) Append(dst, v []byte) []byte {
	return append(javaio.AppendI32(dst, int32(len(v))), v...)
}
func (bytesSerializer) Type() *Type { return basicTypes[KindBytes] }
func (bytesSerializer) Read(b []byte) ([]byte, int, error) {
	p, n, err := blob(b, 0)
	if err != nil {
		return nil, 0, err
	}
	return append(make([]byte, 0, len(p)), p...), n, nil
}

type unitSerializer Kind

func (unitSerializer) Append(dst []byte, _ struct{}) []byte { return append(dst, 0) }
func (s unitSerializer) Type() *Type                        { return basicTypes[s] }
func (unitSerializer) Read(b []byte) (struct{}, int, error) {
	if len(b) < 1 {
		return struct{}{}, 0, ErrShort
	}
	return struct{}{}, 1, nil
}

type windowSerializer struct{}

func (windowSerializer) Append(dst []byte, v Window) []byte {
	return javaio.AppendI64(javaio.AppendI64(dst, v.Start), v.End)
}
func (windowSerializer) Type() *Type { return basicTypes[KindTimeWindow] }
func (windowSerializer) Read(b []byte) (Window, int, error) {
	if len(b) < 16 {
		return Window{}, 0, ErrShort
	}
	return Window{be64(b), be64(b[8:])}, 16, nil
}

// timeSerializer is of the types whose values are a point in time, by kind.
type timeSerializer Kind

func (s timeSerializer) Type() *Type { return basicTypes[s] }

func (s timeSerializer) Append(dst []byte, v time.Time) []byte {
	switch Kind(s) {
	case KindDate:
		return javaio.AppendI64(dst, v.UnixMilli())
	case KindSQLTimestamp:
		return javaio.AppendI32(javaio.AppendI64(dst, v.UnixMilli()), int32(v.Nanosecond()))
	case KindInstant:
		return javaio.AppendI32(javaio.AppendI64(dst, v.Unix()), int32(v.Nanosecond()))
	}
	_, zone := v.Zone()
	secs := v.Unix() + int64(zone) // what the clock shows
	days := floorDiv(secs, 86400)
	return appendLocalTime(appendLocalDate(dst, days), (secs-days*86400)*1e9+int64(v.Nanosecond()))
}

func (s timeSerializer) Read(b []byte) (time.Time, int, error) {
	n := int(basicTypes[s].size)
	if len(b) < n {
		return time.Time{}, 0, ErrShort
	}
	var secs int64
	var nanos int32
	null, err := false, error(nil)
	switch Kind(s) {
	case KindDate:
		ms := be64(b)
		secs = floorDiv(ms, 1000)
		nanos, null = int32(ms-secs*1000)*1e6, ms == math.MinInt64
	case KindSQLTimestamp:
		secs, nanos, null, err = sqlTimestamp(b, 0)
	case KindInstant:
		secs, nanos, null, err = instant(b, 0)
	default:
		secs, nanos, null, err = localDateTime(b, 0)
	}
	if err != nil || null {
		return time.Time{}, n, err
	}
	return time.Unix(secs, int64(nanos)).UTC(), n, nil
}

type dateSerializer struct{}

func (dateSerializer) Append(dst []byte, v CivilDate) []byte {
	return append(javaio.AppendI32(dst, v.Year), byte(v.Month), byte(v.Day))
}
func (dateSerializer) Type() *Type { return basicTypes[KindLocalDate] }
func (dateSerializer) Read(b []byte) (CivilDate, int, error) {
	if len(b) < 6 {
		return CivilDate{}, 0, ErrShort
	}
	_, null, err := localDate(b, 0)
	if err != nil || null {
		return CivilDate{}, 6, err
	}
	return CivilDate{be32(b), int8(b[4]), int8(b[5])}, 6, nil
}

type dayTimeSerializer struct{}

func (dayTimeSerializer) Append(dst []byte, v time.Duration) []byte {
	return appendLocalTime(dst, int64(v))
}
func (dayTimeSerializer) Type() *Type { return basicTypes[KindLocalTime] }
func (dayTimeSerializer) Read(b []byte) (time.Duration, int, error) {
	if len(b) < 7 {
		return 0, 0, ErrShort
	}
	nanos, _, err := localTime(b, 0)
	return time.Duration(nanos), 7, err
}

type bigIntSerializer struct{}

func (bigIntSerializer) Append(dst []byte, v *big.Int) []byte {
	if v == nil {
		return javaio.AppendI32(dst, 0)
	}
	return AppendBigInt(dst, v)
}
func (bigIntSerializer) Type() *Type { return basicTypes[KindBigInt] }
func (bigIntSerializer) Read(b []byte) (*big.Int, int, error) {
	var v bigVisitor
	var d Decoder
	n, err := d.walkBig(basicTypes[KindBigInt], b, 0, &v)
	return v.x, n, err
}

type bigDecSerializer struct{}

func (bigDecSerializer) Append(dst []byte, v BigDecimal) []byte {
	if v.Unscaled == nil {
		return javaio.AppendI32(dst, 0)
	}
	return javaio.AppendI32(AppendBigInt(dst, v.Unscaled), v.Scale)
}
func (bigDecSerializer) Type() *Type { return basicTypes[KindBigDec] }
func (bigDecSerializer) Read(b []byte) (BigDecimal, int, error) {
	var v bigVisitor
	var d Decoder
	n, err := d.walkBig(basicTypes[KindBigDec], b, 0, &v)
	return BigDecimal{v.x, v.scale}, n, err
}

type bigVisitor struct {
	discard
	x     *big.Int
	scale int32
}

func (v *bigVisitor) Decimal(_ *Type, unscaled []byte, scale int32) {
	v.x, v.scale = bigOf(unscaled), scale
}
