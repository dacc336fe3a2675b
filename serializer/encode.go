package serializer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
)

// AppendString appends a string as Flink's StringSerializer writes it: a varint
// of the UTF-16 units plus one, then a varint for each. Invalid UTF-8 becomes
// U+FFFD; the three-byte form of an unpaired surrogate is that unit.
func AppendString(dst []byte, s string) []byte {
	if isASCII(s) {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
		return append(dst, s...)
	}
	return appendUnits(dst, []byte(s), 1)
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func appendUnits(dst, s []byte, plus int) []byte {
	n := plus
	forEachUnit(s, func(uint16) { n++ })
	dst = binary.AppendUvarint(dst, uint64(n))
	forEachUnit(s, func(u uint16) { dst = binary.AppendUvarint(dst, uint64(u)) })
	return dst
}

// AppendBigInt appends a number as BigIntSerializer writes one that is not one of
// its constants: always in the long form, so that a number has one encoding.
func AppendBigInt(dst []byte, x *big.Int) []byte {
	b := twosOf(x)
	dst = javaio.AppendI32(dst, int32(len(b))+4)
	return append(dst, b...)
}

// EncodeError says that a value does not fit its type.
type EncodeError struct {
	Path string // of the part: "fields.total", "[3]"; empty for the value itself
	Type *Type
	Err  error
}

func (e *EncodeError) Error() string {
	path := e.Path
	if path == "" {
		path = "value"
	}
	return fmt.Sprintf("%s of %s: %v", path, shortWords(e.Type), e.Err)
}

// shortWords is a type for a message: of a class without its fields, and the beginning of
// one that is long.
func shortWords(t *Type) string {
	if t != nil && t.JavaClass != "" && (t.Kind == KindPOJO || t.Kind == KindEnum) {
		return t.Kind.String() + ":" + t.JavaClass
	}
	s := t.String()
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…" // not half a character
	}
	return s
}

// Unwrap gives the cause.
func (e *EncodeError) Unwrap() error { return e.Err }

// AppendValue appends v as t's serializer writes it. v is what Decode returns for
// the type, or what JSON in the forms of AppendJSON or of flink-verify's
// descriptions decodes to: numbers as json.Number, float64 or strings, bytes as
// {"base64":…} or a hex string, dates and times in ISO 8601, a row as an array or
// object of its fields with or without "row_kind", a POJO as an object; a field
// that is left out of one is zero if it is a number, boolean or char, else null. Errors are
// *EncodeError, and dst is returned as it was.
//
// Types that only their class can write (Kryo, Java, opaque) are an error.
func (t *Type) AppendValue(dst []byte, v Value) ([]byte, error) {
	out, err := t.encode(dst, v)
	if err != nil {
		return dst, err
	}
	return out, nil
}

// AppendFromJSON is AppendValue of a JSON text. A set that has an element twice, or a
// map a key, is an error too: whoever wrote it would miss one.
func (t *Type) AppendFromJSON(dst, text []byte) ([]byte, error) {
	v, err := parseJSON(text)
	if err != nil {
		return dst, &EncodeError{Type: t, Err: err}
	}
	out, err := t.AppendValue(dst, v)
	if err == nil {
		if err = t.distinct(v); err != nil {
			return dst, err
		}
	}
	return out, err
}

func (t *Type) refuse(v any) error {
	if v == nil {
		return &EncodeError{Type: t, Err: fmt.Errorf("must not be null")}
	}
	return &EncodeError{Type: t, Err: fmt.Errorf("cannot be %s", shape(v))}
}

// shape is what a value is to somebody who wrote it as JSON.
func shape(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number, float32, float64, int, int8, int16, int32, int64, uint16, *big.Int, BigDecimal:
		return "a number"
	case []any, []Entry:
		return "an array"
	case map[string]any, Object, RowValue, EitherValue:
		return "an object"
	case []byte:
		return "bytes"
	case time.Time, time.Duration, CivilDate:
		return "a time"
	}
	return fmt.Sprintf("a %T", v) // which only a caller in Go can give
}

func inPath(err error, path string) error {
	if e, ok := err.(*EncodeError); ok {
		if e.Path == "" || strings.HasPrefix(e.Path, "[") {
			e.Path = path + e.Path
		} else {
			e.Path = path + "." + e.Path
		}
	}
	return err
}

func (t *Type) encode(dst []byte, v any) ([]byte, error) {
	switch t.enc {
	case encBool:
		b, ok := v.(bool)
		if s, isText := v.(string); isText && t.asText && (s == "true" || s == "false") {
			b, ok = s == "true", true
		}
		if !ok {
			return nil, t.refuse(v)
		}
		return javaio.AppendBool(dst, b), nil
	case encI8, encI16, encI32, encI64, encCountWindow:
		x, err := t.integer(v)
		if err != nil {
			return nil, err
		}
		switch t.enc {
		case encI8:
			return append(dst, byte(x)), nil
		case encI16:
			return javaio.AppendI16(dst, int16(x)), nil
		case encI32:
			return javaio.AppendI32(dst, int32(x)), nil
		}
		return javaio.AppendI64(dst, x), nil
	case encF32, encF64:
		x, err := t.floating(v)
		if err != nil {
			return nil, err
		}
		if t.enc == encF32 {
			return javaio.AppendF32(dst, float32(x)), nil
		}
		return javaio.AppendF64(dst, x), nil
	case encChar:
		u, err := t.char(v)
		return javaio.AppendI16(dst, int16(u)), err
	case encVoid, encUnit, encVoidNamespace:
		if v != nil {
			return nil, t.refuse(v)
		}
		return append(dst, 0), nil
	case encEmpty:
		if v != nil {
			return nil, t.refuse(v)
		}
		return dst, nil
	case encGlobalWindow:
		if v != nil && v != "GlobalWindow" {
			return nil, t.refuse(v)
		}
		return append(dst, 0), nil
	case encTuple0:
		if _, _, _, err := t.parted(v); err != nil {
			return nil, err
		}
		return append(dst, 0x2a), nil
	case encString, encStringValue:
		if v == nil && t.enc == encString {
			return append(dst, 0), nil
		}
		s, ok := v.(string)
		if !ok {
			return nil, t.refuse(v)
		}
		if t.enc == encString {
			return AppendString(dst, s), nil
		}
		return appendUnits(dst, []byte(s), 0), nil
	case encUTF8:
		s, ok := v.(string)
		if !ok {
			return nil, t.refuse(v)
		}
		return append(javaio.AppendI32(dst, int32(len(s))), s...), nil
	case encBytes:
		b, err := t.blob(v)
		if err != nil {
			return nil, err
		}
		return append(javaio.AppendI32(dst, int32(len(b))), b...), nil
	case encFixed:
		b, err := t.blob(v)
		if err == nil && len(b) != int(t.Length) {
			err = &EncodeError{Type: t, Err: fmt.Errorf("has %d bytes, not %d", len(b), t.Length)}
		}
		return append(dst, b...), err
	case encBigInt:
		if v == nil {
			return javaio.AppendI32(dst, 0), nil
		}
		x, _, err := t.decimal(v)
		if err != nil {
			return nil, err
		}
		return AppendBigInt(dst, x), nil
	case encBigDec:
		if v == nil {
			return javaio.AppendI32(dst, 0), nil
		}
		x, scale, err := t.decimal(v)
		if err != nil {
			return nil, err
		}
		return javaio.AppendI32(AppendBigInt(dst, x), scale), nil
	case encDecimal:
		b, err := t.scaled(v)
		if err != nil {
			return nil, err
		}
		if t.size == 8 {
			return javaio.AppendI64(dst, smallOf(b)), nil
		}
		return append(javaio.AppendI32(dst, int32(len(b))), b...), nil
	case encMillis:
		if v == nil {
			return javaio.AppendI64(dst, math.MinInt64), nil
		}
		if x, ok := v.(time.Time); ok {
			return javaio.AppendI64(dst, x.UnixMilli()), nil
		}
		x, err := t.integer(v)
		return javaio.AppendI64(dst, x), err
	case encSQLTimestamp, encInstant, encTimestamp, encLocalDateTime, encLocalDate, encLocalTime, encDays, encTimeMillis:
		return t.encodeTime(dst, v)
	case encEnum, encScalaEnum:
		s, ok := v.(string)
		if !ok {
			return nil, t.refuse(v)
		}
		k := slices.Index(t.Symbols, s)
		if k < 0 {
			return nil, &EncodeError{Type: t, Err: fmt.Errorf("has no constant %q", s)}
		}
		if t.enc == encScalaEnum {
			return javaio.AppendI32(dst, t.symbolIDs[k]), nil
		}
		return javaio.AppendI32(dst, int32(k)), nil
	case encPrimArray, encStringArray, encList, encSet, encObjectArray, encLinkedList, encAvroArray, encDewey:
		return t.encodeList(dst, v)
	case encMap, encNullAwareMap, encAvroMap:
		return t.encodeMap(dst, v)
	case encNullable:
		if v == nil {
			return append(append(dst, 1), make([]byte, t.pad)...), nil
		}
		return t.Args[0].encode(append(dst, 0), v)
	case encOption:
		if v == nil {
			return append(dst, 0), nil
		}
		return t.Args[0].encode(append(dst, 1), v)
	case encEither:
		right, x, err := t.either(v)
		if err != nil {
			return nil, err
		}
		if right {
			return t.Args[1].encode(append(dst, 0), x)
		}
		return t.Args[0].encode(append(dst, 1), x)
	case encTuple:
		parts, _, _, err := t.parted(v)
		if err != nil {
			return nil, err
		}
		for k := range t.Fields {
			if dst, err = t.Fields[k].Type.encode(dst, parts[k]); err != nil {
				return nil, inPath(err, t.fieldName(k))
			}
		}
		return dst, nil
	case encRow:
		return t.encodeRow(dst, v)
	case encPOJO:
		return t.encodePOJO(dst, v)
	case encTTL:
		x, ok := v.(TTLValue)
		if !ok {
			return nil, t.refuse(v)
		}
		return t.Args[1].encode(javaio.AppendI64(dst, x.Timestamp), x.Value)
	case encTimer:
		parts, _, _, err := t.parted(v)
		if err != nil {
			return nil, err
		}
		ts, err := typeLong.integer(parts[0])
		if err != nil {
			return nil, inPath(err, "timestamp")
		}
		dst = javaio.AppendI64(dst, ts^math.MinInt64)
		for k := 1; k < 3; k++ {
			if dst, err = t.Fields[k].Type.encode(dst, parts[k]); err != nil {
				return nil, inPath(err, t.fieldName(k))
			}
		}
		return dst, nil
	case encTimeWindow:
		return encodeWindow(t, dst, v)
	case encUnion:
		return t.encodeUnion(dst, v)
	case encReference:
		return t.ref.encode(dst, v)
	case encRaw:
		at := len(dst)
		dst, err := t.Args[0].encode(javaio.AppendI32(dst, 0), v)
		if err == nil {
			binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		}
		return dst, err
	case encBinaryRow, encBinaryArray, encBinaryMap:
		image, err := t.appendImage(nil, v)
		if err != nil {
			return nil, err
		}
		return append(javaio.AppendI32(dst, int32(len(image))), image...), nil
	}
	return nil, &EncodeError{Type: t, Err: fmt.Errorf("only its class can write it")}
}

// TTLValue is a value with its TTL timestamp in epoch milliseconds, as AppendValue
// takes it for a TTL type. Decode gives the value alone.
type TTLValue struct {
	Timestamp int64
	Value     any
}

func (t *Type) fieldName(k int) string {
	if n := t.Fields[k].Name; n != "" {
		return n
	}
	return "f" + strconv.Itoa(k)
}

// limits of integer kinds.
func (t *Type) fits(x int64) bool {
	switch t.enc {
	case encI8:
		return x == int64(int8(x))
	case encI16:
		return x == int64(int16(x))
	case encI32, encDays, encTimeMillis:
		return x == int64(int32(x))
	}
	return true
}

func (t *Type) integer(v any) (int64, error) {
	var x int64
	switch v := v.(type) {
	case int8:
		x = int64(v)
	case int16:
		x = int64(v)
	case int32:
		x = int64(v)
	case int64:
		x = v
	case int:
		x = int64(v)
	case float64:
		if x = int64(v); float64(x) != v {
			return 0, &EncodeError{Type: t, Err: fmt.Errorf("%v is no integer", v)}
		}
	case json.Number, string:
		s := fmt.Sprint(v)
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, &EncodeError{Type: t, Err: fmt.Errorf("%q is no integer", s)}
		}
		x = n
	default:
		return 0, t.refuse(v)
	}
	if !t.fits(x) {
		return 0, &EncodeError{Type: t, Err: fmt.Errorf("%d is out of range", x)}
	}
	return x, nil
}

func (t *Type) floating(v any) (float64, error) {
	switch v := v.(type) {
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	case json.Number, string:
		s := fmt.Sprint(v)
		switch s {
		case "NaN":
			return math.NaN(), nil
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		}
		bits := 64
		if t.Kind == KindFloat {
			bits = 32
		}
		x, err := strconv.ParseFloat(s, bits)
		if err != nil {
			return 0, &EncodeError{Type: t, Err: fmt.Errorf("%q is no number", s)}
		}
		return x, nil
	}
	x, err := typeLong.integer(v)
	if err != nil {
		return 0, t.refuse(v)
	}
	return float64(x), nil
}

func (t *Type) char(v any) (uint16, error) {
	switch v := v.(type) {
	case uint16:
		return v, nil
	case string:
		var unit uint16
		n := 0
		forEachUnit([]byte(v), func(u uint16) { unit, n = u, n+1 })
		if n == 1 {
			return unit, nil
		}
		return 0, &EncodeError{Type: t, Err: fmt.Errorf("%q is not one UTF-16 unit", v)}
	}
	return 0, t.refuse(v)
}

func (t *Type) blob(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case string:
		b, err := hex.DecodeString(v)
		if err != nil {
			return nil, &EncodeError{Type: t, Err: fmt.Errorf("%.40q is not hex", v)}
		}
		return b, nil
	case map[string]any:
		if s, ok := v["base64"].(string); ok {
			b, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return nil, &EncodeError{Type: t, Err: err}
			}
			return b, nil
		}
	}
	return nil, t.refuse(v)
}

// decimal is v as unscaled number and scale.
func (t *Type) decimal(v any) (*big.Int, int32, error) {
	switch v := v.(type) {
	case *big.Int:
		return v, 0, nil
	case BigDecimal:
		return v.Unscaled, v.Scale, nil
	case string, json.Number:
		x, scale, ok := parseDecimal(fmt.Sprint(v))
		if !ok || t.Kind == KindBigInt && scale != 0 {
			return nil, 0, &EncodeError{Type: t, Err: fmt.Errorf("%.60q is no such number", v)}
		}
		return x, scale, nil
	}
	x, err := typeLong.integer(v)
	if err != nil {
		return nil, 0, t.refuse(v)
	}
	return big.NewInt(x), 0, nil
}

// parseDecimal reads what Java's BigDecimal constructor does; the scale counts.
func parseDecimal(s string) (x *big.Int, scale int32, ok bool) {
	mantissa, exp := s, int64(0)
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.ParseInt(strings.TrimPrefix(s[i+1:], "+"), 10, 32)
		if err != nil {
			return nil, 0, false
		}
		mantissa, exp = s[:i], e
	}
	digits := mantissa
	if i := strings.IndexByte(mantissa, '.'); i >= 0 {
		digits = mantissa[:i] + mantissa[i+1:]
		exp -= int64(len(mantissa) - i - 1)
	}
	if len(digits) > maxBigBytes || strings.ContainsAny(digits, "_") {
		return nil, 0, false
	}
	x, ok = new(big.Int).SetString(digits, 10)
	if exp < -math.MaxInt32 || exp > math.MaxInt32 {
		return nil, 0, false
	}
	return x, int32(-exp), ok
}

// scaled is v as a DECIMAL's unscaled bytes; digits are not rounded away.
func (t *Type) scaled(v any) ([]byte, error) {
	x, scale, err := t.decimal(v)
	if err != nil {
		return nil, err
	}
	if x.Sign() == 0 {
		return twosOf(x), nil
	}
	if int64(t.Precision)-int64(t.Scale)+int64(scale) < 0 { // digits before the point
		return nil, &EncodeError{Type: t, Err: fmt.Errorf("%v has more than %d digits", v, t.Precision)}
	}
	x = new(big.Int).Set(x)
	for ; scale < t.Scale; scale++ {
		x.Mul(x, big.NewInt(10))
	}
	for ; scale > t.Scale; scale-- {
		var rest big.Int
		if x.QuoRem(x, big.NewInt(10), &rest); rest.Sign() != 0 {
			return nil, &EncodeError{Type: t, Err: fmt.Errorf("%v has more than %d decimals", v, t.Scale)}
		}
	}
	if digits := len(new(big.Int).Abs(x).String()); x.Sign() != 0 && digits > int(t.Precision) {
		return nil, &EncodeError{Type: t, Err: fmt.Errorf("%v has more than %d digits", v, t.Precision)}
	}
	return twosOf(x), nil
}

// elements are the parts of a list.
func (t *Type) elements(v any) ([]any, error) {
	if list, ok := v.([]any); ok {
		return list, nil
	}
	return nil, t.refuse(v)
}

func (t *Type) encodeList(dst []byte, v any) ([]byte, error) {
	list, err := t.elements(v)
	if err != nil {
		return nil, err
	}
	elem := t.Args[0]
	switch t.enc {
	case encAvroArray:
		if len(list) > 0 {
			dst = binary.AppendUvarint(dst, uint64(len(list)))
		}
	default:
		dst = javaio.AppendI32(dst, int32(len(list)))
	}
	if t.enc == encLinkedList && t.flag {
		mask := make([]byte, (len(list)+7)/8)
		for k, e := range list {
			if e == nil {
				mask[k>>3] |= 0x80 >> (k & 7)
			}
		}
		dst = append(dst, mask...)
	}
	for k, e := range list {
		switch t.enc {
		case encSet:
			dst = javaio.AppendBool(dst, e == nil)
		case encObjectArray:
			dst = javaio.AppendBool(dst, e != nil)
		}
		if e == nil && (t.enc == encSet || t.enc == encObjectArray || t.enc == encLinkedList && t.flag) {
			continue
		}
		if dst, err = elem.encode(dst, e); err != nil {
			return nil, inPath(err, "["+strconv.Itoa(k)+"]")
		}
	}
	if t.enc == encAvroArray {
		dst = append(dst, 0)
	}
	return dst, nil
}

// entries are the parts of a map: []Entry, or JSON's array of pairs or object.
func (t *Type) entries(v any) ([]Entry, error) {
	switch v := v.(type) {
	case []Entry:
		return v, nil
	case []any:
		list := make([]Entry, 0, len(v))
		for _, e := range v {
			pair, ok := e.([]any)
			if !ok || len(pair) != 2 {
				return nil, &EncodeError{Type: t, Err: fmt.Errorf("needs [key, value] pairs")}
			}
			list = append(list, Entry{pair[0], pair[1]})
		}
		return list, nil
	case map[string]any:
		var list []Entry
		for _, k := range slices.Sorted(mapKeys(v)) {
			list = append(list, Entry{k, v[k]})
		}
		return list, nil
	}
	return nil, t.refuse(v)
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (t *Type) encodeMap(dst []byte, v any) ([]byte, error) {
	list, err := t.entries(v)
	if err != nil {
		return nil, err
	}
	if t.enc != encAvroMap {
		dst = javaio.AppendI32(dst, int32(len(list)))
	} else if len(list) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(list)))
	}
	for k, e := range list {
		path := "[" + strconv.Itoa(k) + "]"
		if t.enc == encNullAwareMap {
			dst = javaio.AppendBool(dst, e.Key == nil)
		}
		if e.Key != nil || t.enc != encNullAwareMap {
			if dst, err = t.Args[0].encode(dst, e.Key); err != nil {
				return nil, inPath(err, path+".key")
			}
		}
		if t.enc != encAvroMap {
			dst = javaio.AppendBool(dst, e.Value == nil)
			if e.Value == nil {
				continue
			}
		}
		if dst, err = t.Args[1].encode(dst, e.Value); err != nil {
			return nil, inPath(err, path)
		}
	}
	if t.enc == encAvroMap {
		dst = append(dst, 0)
	}
	return dst, nil
}

// distinct refuses a value that t can write if a set in it has an element twice, or a
// map a key.
func (t *Type) distinct(v any) error {
	if v == nil {
		return nil
	}
	switch t.Kind {
	case KindNullable, KindOption:
		return t.Args[0].distinct(v)
	case KindList, KindArray, KindSet:
		list, _ := v.([]any)
		for k, e := range list {
			if err := t.Args[0].distinct(e); err != nil {
				return inPath(err, "["+strconv.Itoa(k)+"]")
			}
		}
		if t.Kind != KindSet {
			break
		}
		if k := t.Args[0].twice(len(list), func(k int) any { return list[k] }); k >= 0 {
			return &EncodeError{Path: "[" + strconv.Itoa(k) + "]", Type: t, Err: fmt.Errorf("is in the set already")}
		}
	case KindMap:
		list, err := t.entries(v)
		if err != nil || len(t.Args) < 2 {
			return err
		}
		for k, e := range list {
			if err := t.Args[1].distinct(e.Value); err != nil {
				return inPath(err, "["+strconv.Itoa(k)+"]")
			}
			if err := t.Args[0].distinct(e.Key); err != nil {
				return inPath(err, "["+strconv.Itoa(k)+"].key")
			}
		}
		if k := t.Args[0].twice(len(list), func(k int) any { return list[k].Key }); k >= 0 {
			return &EncodeError{Path: "[" + strconv.Itoa(k) + "].key", Type: t, Err: fmt.Errorf("is in the map already")}
		}
	case KindEither:
		right, x, err := t.either(v)
		if err != nil {
			return err
		}
		if right {
			return t.Args[1].distinct(x)
		}
		return t.Args[0].distinct(x)
	case KindTuple, KindRow, KindPOJO, KindRecord:
		parts, _, class, err := t.parted(v)
		if err != nil || class != "" && class != t.JavaClass {
			return nil // of a subclass
		}
		for k := range t.Fields {
			if err := t.Fields[k].Type.distinct(parts[k]); err != nil {
				return inPath(err, t.fieldName(k))
			}
		}
	}
	return nil
}

// twice is the first of n values that is there before, by its bytes; else -1.
func (t *Type) twice(n int, value func(k int) any) int {
	if n < 2 {
		return -1
	}
	seen := make(map[string]bool, n)
	for k := range n {
		b, null := []byte(nil), value(k) == nil
		if !null {
			var err error
			if b, err = t.encode(nil, value(k)); err != nil {
				continue // it has no bytes of its own
			}
		}
		key := strconv.FormatBool(null) + string(b)
		if seen[key] {
			return k
		}
		seen[key] = true
	}
	return -1
}

func (t *Type) either(v any) (right bool, x any, err error) {
	switch v := v.(type) {
	case EitherValue:
		return v.Right, v.Value, nil
	case map[string]any:
		if len(v) == 1 {
			for name, x := range v {
				switch name {
				case "left", "success":
					return false, x, nil
				case "right", "failure":
					return true, x, nil
				}
			}
		}
	}
	return false, nil, t.refuse(v)
}

// initial is what a field holds that nothing was ever put into. Whether a number
// may be null its serializer does not tell, but a primitive must not be.
func (t *Type) initial() any {
	switch t.enc {
	case encBool:
		return false
	case encI8, encI16, encI32, encI64, encF32, encF64:
		return int64(0)
	case encChar:
		return uint16(0)
	}
	return nil
}

// unknownField is the name, in quotes behind a space, of a member of an object that is
// no field; empty if v is something else.
func (t *Type) unknownField(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	for _, name := range slices.Sorted(mapKeys(m)) {
		known := name == "@class" || name == "@row_kind"
		for k := range t.Fields {
			known = known || t.fieldName(k) == name
		}
		if !known {
			return fmt.Sprintf(" %.60q", name)
		}
	}
	return ""
}

// parted are the fields of v in t's order. kind and class are what v says.
func (t *Type) parted(v any) (parts []any, kind RowKind, class string, err error) {
	byName := func(get func(name string) (any, bool), n int) error {
		parts = make([]any, len(t.Fields))
		seen := 0
		for k := range t.Fields {
			x, ok := get(t.fieldName(k))
			if ok {
				seen++
			} else if t.Fields[k].Missing {
				continue
			} else if t.Kind != KindPOJO && t.Kind != KindRow {
				return &EncodeError{Type: t, Err: fmt.Errorf("lacks the field %s", t.fieldName(k))}
			}
			parts[k] = x
		}
		if seen != n {
			return &EncodeError{Type: t, Err: fmt.Errorf("has a field%s that the type lacks", t.unknownField(v))}
		}
		return nil
	}
	switch x := v.(type) {
	case []any:
		parts = x
	case RowValue:
		kind = x.Kind
		if x.Names == nil || !hasNames(t.Fields) {
			parts = x.Fields
			break
		}
		err = byName(func(name string) (any, bool) {
			k := slices.Index(x.Names, name)
			if k < 0 || k >= len(x.Fields) {
				return nil, false
			}
			return x.Fields[k], true
		}, len(x.Names))
	case Object:
		class = x.Class
		err = byName(x.Get, len(x.Fields))
	case map[string]any:
		n := len(x)
		if c, ok := x["@class"].(string); ok {
			class = c
			n--
		}
		if k, ok := x["row_kind"].(string); ok && t.Kind == KindRow && len(x) == 2 {
			i := slices.Index(rowKinds[:], k)
			if i < 0 {
				return nil, 0, "", &EncodeError{Type: t, Err: fmt.Errorf("has the row kind %q", k)}
			}
			parts, _, _, err = t.parted(x["fields"])
			return parts, RowKind(i), "", err
		}
		if k, ok := x["@row_kind"].(string); ok && t.Kind == KindRow {
			i := slices.Index(rowKinds[:], k)
			if i < 0 {
				return nil, 0, "", &EncodeError{Type: t, Err: fmt.Errorf("has the row kind %q", k)}
			}
			kind = RowKind(i)
			n--
		}
		if err = byName(func(name string) (any, bool) { v, ok := x[name]; return v, ok }, n); err != nil || t.Kind != KindPOJO {
			break
		}
		for k := range parts {
			if _, ok := x[t.fieldName(k)]; !ok && !t.Fields[k].Missing {
				parts[k] = t.Fields[k].Type.initial()
			}
		}
	case string:
		if x != "" || t.Kind != KindPOJO { // flink-verify writes an object without fields so
			return nil, 0, "", t.refuse(v)
		}
		return t.parted(map[string]any{})
	default:
		return nil, 0, "", t.refuse(v)
	}
	if err == nil && len(parts) != len(t.Fields) {
		err = &EncodeError{Type: t, Err: fmt.Errorf("has %d fields, not %d", len(parts), len(t.Fields))}
	}
	return parts, kind, class, err
}

func (t *Type) encodeRow(dst []byte, v any) ([]byte, error) {
	parts, kind, _, err := t.parted(v)
	if err != nil {
		return nil, err
	}
	bit := 0
	if t.flag {
		bit = 2
	}
	at := len(dst)
	dst = append(dst, make([]byte, (len(parts)+bit+7)/8)...)
	if t.flag {
		dst[at] = byte(kind&1)<<7 | byte(kind>>1)<<6
	}
	for k, x := range parts {
		if x == nil {
			dst[at+(bit+k)>>3] |= 0x80 >> ((bit + k) & 7)
			continue
		}
		if dst, err = t.Fields[k].Type.encode(dst, x); err != nil {
			return nil, inPath(err, t.fieldName(k))
		}
	}
	return dst, nil
}

func (t *Type) encodePOJO(dst []byte, v any) ([]byte, error) {
	if v == nil {
		return append(dst, pojoNull), nil
	}
	class := ""
	switch v := v.(type) {
	case Object:
		class = v.Class
	case map[string]any:
		class, _ = v["@class"].(string)
	}
	if class != "" && class != t.JavaClass {
		for k, s := range t.Registered {
			if s.Class == class {
				return s.Type.encode(append(dst, pojoTagged, byte(k)), v)
			}
		}
		for _, s := range t.Unregistered {
			if s.Class == class {
				dst, err := javaio.AppendUTF(append(dst, pojoSubclass), javaio.NewString(class))
				if err != nil {
					return nil, &EncodeError{Type: t, Err: err}
				}
				return s.Type.encode(dst, v)
			}
		}
		return nil, &EncodeError{Type: t, Err: fmt.Errorf("has no subclass %s", class)}
	}
	parts, _, _, err := t.parted(v)
	if err != nil {
		return nil, err
	}
	dst = append(dst, pojoNoSubclass)
	for k, x := range parts {
		dst = javaio.AppendBool(dst, x == nil)
		if x == nil {
			continue
		}
		if dst, err = t.Fields[k].Type.encode(dst, x); err != nil {
			return nil, inPath(err, t.fieldName(k))
		}
	}
	return dst, nil
}

func encodeWindow(t *Type, dst []byte, v any) ([]byte, error) {
	var parts [2]any
	switch v := v.(type) {
	case Object:
		parts[0], _ = v.Get("window_start")
		parts[1], _ = v.Get("window_end")
	case map[string]any:
		parts[0], parts[1] = v["window_start"], v["window_end"]
	default:
		return nil, t.refuse(v)
	}
	for k, p := range parts {
		x, err := typeLong.integer(p)
		if err != nil {
			return nil, inPath(err, [...]string{"window_start", "window_end"}[k])
		}
		dst = javaio.AppendI64(dst, x)
	}
	return dst, nil
}

// encodeUnion writes the first branch that v fits.
func (t *Type) encodeUnion(dst []byte, v any) ([]byte, error) {
	for k, branch := range t.Args {
		if (v == nil) != (branch.Kind == KindNull) {
			continue
		}
		if out, err := branch.encode(javaio.AppendI32(dst, int32(k)), v); err == nil {
			return out, nil
		}
	}
	return nil, &EncodeError{Type: t, Err: fmt.Errorf("%s fits no branch", shape(v))}
}
