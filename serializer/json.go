package serializer

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// AppendJSON appends the value at the start of b to dst as JSON, in the forms of
// the goldens' expected.jsonl, and returns the value's size:
//
//   - numbers, strings and booleans as such; NaN and the infinities as strings;
//     BigInteger, BigDecimal, DECIMAL, UUID and the java.time types as strings in
//     Java's form; char as a string of one unit. An unpaired surrogate is escaped
//   - Flink's mutable Value types (IntValue and so on) as strings, their toString
//   - bytes as {"base64":…}; Date, SQL Date and Time as epoch milliseconds; SQL
//     Timestamp as {"millis":…,"nanos":…}
//   - tuples, arrays, lists and sets as arrays, sets sorted by their elements' text;
//     maps as an array of [key, value], sorted likewise
//   - a row as {"row_kind":…,"fields":…}, fields an object where names are known and
//     an array where not; Either as {"left":…} or {"right":…}; an enum as its name;
//     a POJO as an object with "@class" and its fields; an Avro record as an object
//   - TimeWindow as {"window_start":…,"window_end":…}, GlobalWindow as "GlobalWindow"
//   - what a TTL, Nullable or Option wraps as itself; the TTL timestamp is Decoder.TTL
//   - what cannot be read as {"@class":…,"base64":…}
//
// After an error dst is returned as it was given.
func (d *Decoder) AppendJSON(dst, b []byte) (out []byte, n int, err error) {
	j := &d.json
	j.begin(dst)
	n, err = d.Visit(b, j)
	if err != nil {
		return dst, n, err
	}
	return j.dst, n, nil
}

// Undecoded reports whether the value last given to AppendJSON had a part that
// could not be read, and the class of the first such part.
func (d *Decoder) Undecoded() (class string, ok bool) { return d.json.class, d.json.opaque }

// JSON is a Visitor that writes what it is given as AppendJSON does, for a visitor
// of columns that wants a part of a value as text. The zero JSON is ready for a
// value; Reset makes it so again.
type JSON struct{ jsonVisitor }

// Reset forgets what was written.
func (j *JSON) Reset() { j.begin(j.dst[:0]) }

// Result is the JSON so far, valid until the next call.
func (j *JSON) Result() []byte { return j.dst }

// jsonVisitor writes JSON.
type jsonVisitor struct {
	opaque bool   // a part could not be read
	class  string // of the first such part
	dst    []byte
	stack  []jsonFrame
	parts  []jsonPart // of the sorted containers that are open
	sorted []byte     // scratch
}

type jsonFrame struct {
	mode  jsonMode
	n     int  // parts written
	start int  // of the content in dst
	parts int  // first of the frame's own in parts
	open  bool // Row: "fields" was written
}

type jsonMode uint8

const (
	jsonArray  jsonMode = iota // parts separated by commas
	jsonSet                    // sorted at the end
	jsonMap                    // [key,value] pairs, sorted at the end
	jsonObject                 // names before parts
)

type jsonPart struct{ start, end int }

func (j *jsonVisitor) begin(dst []byte) {
	j.dst, j.stack, j.parts = dst, j.stack[:0], j.parts[:0]
	j.opaque, j.class = false, ""
}

// value writes what stands before a part.
func (j *jsonVisitor) value() {
	if len(j.stack) == 0 {
		return
	}
	f := &j.stack[len(j.stack)-1]
	switch f.mode {
	case jsonArray, jsonSet:
		if f.n > 0 {
			j.dst = append(j.dst, ',')
		}
		if f.mode == jsonSet {
			j.parts = append(j.parts, jsonPart{start: len(j.dst)})
		}
		f.n++
	case jsonMap:
		if f.n%2 == 0 {
			if f.n > 0 {
				j.dst = append(j.dst, ',')
			}
			j.parts = append(j.parts, jsonPart{start: len(j.dst)})
			j.dst = append(j.dst, '[')
		} else {
			j.dst = append(j.dst, ',')
		}
		f.n++
	}
}

// done closes a part of a sorted container.
func (j *jsonVisitor) done() {
	if len(j.stack) == 0 {
		return
	}
	switch f := &j.stack[len(j.stack)-1]; f.mode {
	case jsonSet:
		j.parts[len(j.parts)-1].end = len(j.dst)
	case jsonMap:
		if f.n%2 == 0 {
			j.dst = append(j.dst, ']')
			j.parts[len(j.parts)-1].end = len(j.dst)
		}
	}
}

func (j *jsonVisitor) Null(*Type) {
	j.value()
	j.dst = append(j.dst, "null"...)
	j.done()
}

func (j *jsonVisitor) Bool(t *Type, v bool) {
	j.value()
	if t.asText {
		j.dst = append(j.dst, '"')
	}
	j.dst = strconv.AppendBool(j.dst, v)
	if t.asText {
		j.dst = append(j.dst, '"')
	}
	j.done()
}

func (j *jsonVisitor) Int(t *Type, v int64) {
	j.value()
	switch t.Kind {
	case KindLocalDate:
		j.dst = append(appendDate(append(j.dst, '"'), v), '"')
	case KindLocalTime:
		j.dst = append(appendTime(append(j.dst, '"'), v/1e9, int32(v%1e9), false), '"')
	default:
		if t.asText {
			j.dst = append(appendInt(append(j.dst, '"'), v), '"')
		} else {
			j.dst = appendInt(j.dst, v)
		}
	}
	j.done()
}

func (j *jsonVisitor) Float(t *Type, v float64) {
	j.value()
	bits := 64
	if t.Kind == KindFloat {
		bits = 32
	}
	if math.IsNaN(v) || math.IsInf(v, 0) || t.asText {
		j.dst = append(appendFloat(append(j.dst, '"'), v, bits), '"')
	} else {
		j.dst = appendFloat(j.dst, v, bits)
	}
	j.done()
}

func (j *jsonVisitor) Text(_ *Type, s []byte) {
	j.value()
	j.dst = appendQuoted(j.dst, s)
	j.done()
}

func (j *jsonVisitor) Bytes(t *Type, b []byte) {
	j.value()
	if t.Kind == KindUUID && len(b) == 16 {
		j.dst = append(appendUUID(append(j.dst, '"'), b), '"')
	} else {
		j.dst = appendBase64(append(j.dst, `{"base64":"`...), b)
		j.dst = append(j.dst, `"}`...)
	}
	j.done()
}

func (j *jsonVisitor) Decimal(t *Type, unscaled []byte, scale int32) {
	j.value()
	j.dst = append(appendDecimal(append(j.dst, '"'), unscaled, scale), '"')
	j.done()
}

func (j *jsonVisitor) Time(t *Type, secs int64, nanos int32) {
	j.value()
	switch t.Kind {
	case KindSQLTimestamp:
		j.dst = appendInt(append(j.dst, `{"millis":`...), secs*1000+int64(nanos/1e6))
		j.dst = appendInt(append(j.dst, `,"nanos":`...), int64(nanos))
		j.dst = append(j.dst, '}')
	case KindInstant, KindTimestampLTZ:
		j.dst = append(appendDateTime(append(j.dst, '"'), secs, nanos, true), '"')
	default:
		j.dst = append(appendDateTime(append(j.dst, '"'), secs, nanos, false), '"')
	}
	j.done()
}

func (j *jsonVisitor) Begin(t *Type, n int) {
	j.value()
	f := jsonFrame{parts: len(j.parts)}
	switch t.Kind {
	case KindSet:
		f.mode = jsonSet
		j.dst = append(j.dst, '[')
	case KindMap, KindMultiset:
		f.mode = jsonMap
		j.dst = append(j.dst, '[')
	case KindList, KindArray, KindTuple:
		j.dst = append(j.dst, '[')
	case KindRow:
		j.dst = append(j.dst, '{')
		if hasNames(t.Fields) {
			f.mode = jsonObject
		}
	case KindPOJO:
		f.mode = jsonObject
		j.dst = appendQuotedString(append(j.dst, `{"@class":`...), t.JavaClass)
		f.n = 1
	default:
		f.mode = jsonObject
		j.dst = append(j.dst, '{')
		if t.classShown() {
			j.dst = appendQuotedString(append(j.dst, `"@class":`...), t.JavaClass)
			f.n = 1
		}
	}
	f.start = len(j.dst)
	j.stack = append(j.stack, f)
}

// classShown reports whether a Record's JSON names its class: Kryo and Java
// objects do, Avro records do not.
func (t *Type) classShown() bool {
	return t.Kind == KindRecord && t.JavaClass != "" && t.label == ""
}

func (j *jsonVisitor) RowKind(kind RowKind) {
	f := &j.stack[len(j.stack)-1]
	if f.open {
		return
	}
	f.open = true
	j.dst = append(append(j.dst, `"row_kind":"`...), kind.String()...)
	if f.mode == jsonObject {
		j.dst = append(j.dst, `","fields":{`...)
	} else {
		j.dst = append(j.dst, `","fields":[`...)
	}
	f.start = len(j.dst)
}

func (j *jsonVisitor) Field(i int, name string) {
	f := &j.stack[len(j.stack)-1]
	if f.mode != jsonObject {
		return
	}
	if f.n > 0 {
		j.dst = append(j.dst, ',')
	}
	f.n++
	if name == "" {
		j.dst = append(appendInt(append(j.dst, `"f`...), int64(i)), `":`...)
		return
	}
	j.dst = append(appendQuotedString(j.dst, name), ':')
}

func (j *jsonVisitor) End(t *Type) {
	f := j.stack[len(j.stack)-1]
	j.stack = j.stack[:len(j.stack)-1]
	switch f.mode {
	case jsonSet, jsonMap:
		j.sort(f)
		j.dst = append(j.dst, ']')
	case jsonArray:
		j.dst = append(j.dst, ']')
	default:
		j.dst = append(j.dst, '}')
	}
	if f.open {
		j.dst = append(j.dst, '}')
	}
	j.done()
}

// sort orders the parts of f by their text.
func (j *jsonVisitor) sort(f jsonFrame) {
	parts := j.parts[f.parts:]
	j.parts = j.parts[:f.parts]
	text := j.dst
	byText := func(a, b jsonPart) int { return compareJava(text[a.start:a.end], text[b.start:b.end]) }
	if slices.IsSortedFunc(parts, byText) {
		return
	}
	slices.SortStableFunc(parts, byText)
	out := j.sorted[:0]
	for i, p := range parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, text[p.start:p.end]...)
	}
	j.sorted = out
	copy(j.dst[f.start:], out)
}

func (j *jsonVisitor) Opaque(t *Type, class string, b []byte) {
	if !j.opaque {
		j.opaque, j.class = true, class
	}
	j.value()
	j.dst = append(j.dst, '{')
	if class != "" {
		j.dst = append(appendQuotedString(append(j.dst, `"@class":`...), class), ',')
	}
	j.dst = appendBase64(append(j.dst, `"base64":"`...), b)
	j.dst = append(j.dst, `"}`...)
	j.done()
}

func appendBase64(dst, b []byte) []byte { return base64.StdEncoding.AppendEncode(dst, b) }

const hexDigits = "0123456789abcdef"

func appendUUID(dst, b []byte) []byte {
	for i, c := range b {
		switch i {
		case 4, 6, 8, 10:
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// plainJSON marks the ASCII bytes that stand for themselves in a JSON string.
var plainJSON = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

func appendQuotedString(dst []byte, s string) []byte {
	return appendQuoted(dst, unsafe.Slice(unsafe.StringData(s), len(s))) // which is not changed
}

// appendQuoted writes s as a JSON string. Control characters and unpaired
// surrogates are escaped; invalid UTF-8 becomes U+FFFD.
func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plainJSON[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRune(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[from:i]...)
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
			i++
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			i++
		case loneSurrogate(s[i:]):
			u := 0xd000 | uint16(s[i+1]&0x3f)<<6 | uint16(s[i+2]&0x3f)
			dst = append(dst, '\\', 'u', hexDigits[u>>12], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
			i += 3
		default:
			dst = append(dst, "\ufffd"...)
			i++
		}
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
