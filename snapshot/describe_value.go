package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark/tidemark/serializer"
)

// describer writes values as the JSON of a description: flink-verify's forms. It
// is a serializer.Visitor.
//
//	bytes                            hex
//	bigint bigdec, java.time         strings; date, sqldate, sqltime milliseconds
//	arrays, lists, sets, tuples      arrays, sets sorted
//	maps                             array of [key, value], sorted by the key's text
//	rows, POJOs, Avro records        objects; unnamed fields are f0, f1, …
//	either                           {"left": …} or {"right": …}
//	what cannot be read              {"@class": …, "hex": …}
type describer struct {
	dst   []byte
	stack []describeFrame
}

type describeFrame struct {
	kind  serializer.Kind
	n     int
	start int
	cuts  []int // where the parts of a container that is to be sorted begin
	pair  bool  // the next part of a map is a value
}

func (d *describer) reset(dst []byte) { d.dst, d.stack = dst, d.stack[:0] }

// part writes what stands before a part.
func (d *describer) part() {
	if len(d.stack) == 0 {
		return
	}
	f := &d.stack[len(d.stack)-1]
	switch f.kind {
	case serializer.KindMap, serializer.KindMultiset:
		if f.pair {
			d.dst = append(d.dst, ',')
			return
		}
		if f.n > 0 {
			d.dst = append(d.dst, ',')
		}
		f.cuts = append(f.cuts, len(d.dst))
		d.dst = append(d.dst, '[')
	case serializer.KindList, serializer.KindArray, serializer.KindTuple, serializer.KindSet:
		if f.n > 0 {
			d.dst = append(d.dst, ',')
		}
		if f.kind == serializer.KindSet {
			f.cuts = append(f.cuts, len(d.dst))
		}
		f.n++
	}
}

// done ends a part.
func (d *describer) done() {
	if len(d.stack) == 0 {
		return
	}
	f := &d.stack[len(d.stack)-1]
	if f.kind == serializer.KindMap || f.kind == serializer.KindMultiset {
		if f.pair {
			d.dst = append(d.dst, ']')
			f.n++
		}
		f.pair = !f.pair
	}
}

func (d *describer) raw(s string) {
	d.part()
	d.dst = append(d.dst, s...)
	d.done()
}

func (d *describer) text(s string) {
	d.part()
	d.dst = appendJSONString(d.dst, s)
	d.done()
}

// Null implements serializer.Visitor.
func (d *describer) Null(*serializer.Type) { d.raw("null") }

// Bool implements serializer.Visitor.
func (d *describer) Bool(_ *serializer.Type, v bool) { d.raw(strconv.FormatBool(v)) }

// Int implements serializer.Visitor.
func (d *describer) Int(t *serializer.Type, v int64) {
	switch t.Kind {
	case serializer.KindLocalDate:
		d.text(serializer.DateOfDays(v).String())
	case serializer.KindLocalTime:
		d.text(localTime(v))
	default:
		d.raw(strconv.FormatInt(v, 10))
	}
}

// localTime is java.time.LocalTime.toString of nanoseconds of the day.
func localTime(nanos int64) string {
	t := time.Unix(0, nanos).UTC()
	s := t.Format("15:04")
	if t.Second() != 0 || t.Nanosecond() != 0 {
		s += t.Format(":05")
	}
	return s + javaFraction(t.Nanosecond())
}

// javaFraction is a fraction of a second as java.time prints it: 3, 6 or 9 digits.
func javaFraction(nanos int) string {
	s := "." + strconv.Itoa(1_000_000_000 + nanos)[1:]
	switch {
	case nanos == 0:
		return ""
	case nanos%1_000_000 == 0:
		return s[:4]
	case nanos%1_000 == 0:
		return s[:7]
	}
	return s
}

// Float implements serializer.Visitor.
func (d *describer) Float(t *serializer.Type, v float64) {
	switch {
	case math.IsNaN(v):
		d.text("NaN")
	case math.IsInf(v, 0):
		s := "Infinity"
		if v < 0 {
			s = "-" + s
		}
		d.text(s)
	default:
		size := 64
		if t.Kind == serializer.KindFloat {
			size = 32
		}
		s := strconv.FormatFloat(v, 'g', -1, size)
		if !strings.ContainsAny(s, ".e") {
			s += ".0" // a floating number shows as one, also -0.0
		}
		d.raw(s)
	}
}

// Text implements serializer.Visitor.
func (d *describer) Text(_ *serializer.Type, s []byte) {
	d.part()
	d.dst = appendJSONText(d.dst, s)
	d.done()
}

// appendJSONText quotes UTF-8 in which an unpaired surrogate has its three bytes.
func appendJSONText(dst, s []byte) []byte {
	if b, err := json.Marshal(string(s)); err == nil && !bytes.Contains(s, []byte{0xed}) {
		return append(dst, b...)
	}
	dst = append(dst, '"')
	for len(s) > 0 {
		if len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 {
			u := 0xd000 | int(s[1]&0x3f)<<6 | int(s[2]&0x3f)
			dst = append(dst, '\\', 'u')
			dst = strconv.AppendInt(dst, int64(u), 16)
			s = s[3:]
			continue
		}
		n := 1
		for n < len(s) && s[n] != 0xed {
			n++
		}
		b, _ := json.Marshal(string(s[:n]))
		dst = append(dst, b[1:len(b)-1]...)
		s = s[n:]
	}
	return append(dst, '"')
}

// Bytes implements serializer.Visitor.
func (d *describer) Bytes(t *serializer.Type, b []byte) {
	if t.Kind == serializer.KindUUID && len(b) == 16 {
		h := hex.EncodeToString(b)
		d.text(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
		return
	}
	d.text(hex.EncodeToString(b))
}

// Decimal implements serializer.Visitor.
func (d *describer) Decimal(t *serializer.Type, unscaled []byte, scale int32) {
	n := new(big.Int)
	if len(unscaled) > 0 {
		n.SetBytes(unscaled)
		if unscaled[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(unscaled))))
		}
	}
	if t.Kind == serializer.KindBigInt {
		d.text(n.String())
		return
	}
	d.text(serializer.BigDecimal{Unscaled: n, Scale: scale}.String())
}

// Time implements serializer.Visitor.
func (d *describer) Time(t *serializer.Type, seconds int64, nanos int32) {
	at := time.Unix(seconds, int64(nanos)).UTC()
	day := at.Format("2006-01-02T15:04")
	if y := at.Year(); y > 9999 || y < 0 { // java.time writes a sign and as many digits as needed, at least four
		day = fmt.Sprintf("%+05d", y) + at.Format("-01-02T15:04")
	}
	local := t.Kind == serializer.KindLocalDateTime || t.Kind == serializer.KindTimestamp
	if !local || at.Second() != 0 || nanos != 0 {
		day += at.Format(":05")
	}
	day += javaFraction(int(nanos))
	if !local {
		day += "Z"
	}
	d.text(day)
}

// Begin implements serializer.Visitor.
func (d *describer) Begin(t *serializer.Type, n int) {
	d.part()
	f := describeFrame{kind: t.Kind, start: len(d.dst)}
	d.stack = append(d.stack, f)
	switch t.Kind {
	case serializer.KindList, serializer.KindArray, serializer.KindTuple, serializer.KindSet, serializer.KindMap, serializer.KindMultiset:
		d.dst = append(d.dst, '[')
	default:
		d.dst = append(d.dst, '{')
	}
}

// RowKind implements serializer.Visitor.
func (d *describer) RowKind(kind serializer.RowKind) {
	if kind == serializer.Insert {
		return
	}
	f := &d.stack[len(d.stack)-1]
	d.dst = append(d.dst, `"@row_kind":`...)
	d.dst = appendJSONString(d.dst, kind.String())
	f.n++
}

// Field implements serializer.Visitor.
func (d *describer) Field(i int, name string) {
	f := &d.stack[len(d.stack)-1]
	switch f.kind {
	case serializer.KindTuple:
		return
	case serializer.KindEither, serializer.KindTry:
		name = [...]string{"left", "right"}[i&1]
	}
	if name == "" {
		name = "f" + strconv.Itoa(i)
	}
	if f.n > 0 {
		d.dst = append(d.dst, ',')
	}
	f.n++
	d.dst = appendJSONString(d.dst, name)
	d.dst = append(d.dst, ':')
}

// End implements serializer.Visitor.
func (d *describer) End(*serializer.Type) {
	f := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	switch f.kind {
	case serializer.KindSet, serializer.KindMap, serializer.KindMultiset:
		d.sort(f)
		d.dst = append(d.dst, ']')
	case serializer.KindList, serializer.KindArray, serializer.KindTuple:
		d.dst = append(d.dst, ']')
	default:
		d.dst = append(d.dst, '}')
	}
	d.done()
}

// sort brings the parts of a container into the order of their text.
func (d *describer) sort(f describeFrame) {
	if len(f.cuts) < 2 {
		return
	}
	parts := make([][]byte, len(f.cuts))
	for i, c := range f.cuts {
		end := len(d.dst)
		if i+1 < len(f.cuts) {
			end = f.cuts[i+1] - 1 // the comma
		}
		parts[i] = bytes.Clone(d.dst[c:end])
	}
	slices.SortFunc(parts, bytes.Compare)
	d.dst = append(d.dst[:f.cuts[0]], bytes.Join(parts, []byte{','})...)
}

// Opaque implements serializer.Visitor.
func (d *describer) Opaque(_ *serializer.Type, class string, b []byte) {
	d.part()
	d.dst = append(d.dst, `{"@class":`...)
	d.dst = appendJSONString(d.dst, class)
	d.dst = append(d.dst, `,"hex":"`...)
	d.dst = hex.AppendEncode(d.dst, b)
	d.dst = append(d.dst, `"}`...)
	d.done()
}

// value describes a value that fills b.
func (d *describer) value(dec *serializer.Decoder, b []byte) []byte {
	d.reset(nil)
	if dec == nil {
		d.Opaque(nil, "", b)
		return d.dst
	}
	n, err := dec.Visit(b, d)
	if err != nil || n != len(b) {
		d.reset(nil)
		d.Opaque(nil, classOf(dec, err), b)
	}
	return d.dst
}
