package table

import (
	"bytes"
	"math"
	"math/big"
	"math/bits"
	"unicode/utf8"

	"github.com/tidemark/tidemark/serializer"
)

// assembler is the Visitor that appends one part of a row to a vector. What does
// not fit is null there, and misfit is set.
type assembler struct {
	root   *Vector
	stack  []frame
	skip   int // open values that nothing is kept of
	json   serializer.JSON
	inJSON int     // open values that go to json
	target *Vector // of the JSON

	misfit bool
	opaque bool   // a part could not be read
	class  string // of the first such part
}

type frame struct {
	v    *Vector
	next *Vector // Struct: the field that comes
	n    int     // Map: keys and values so far
}

// begin prepares for a value of v.
func (a *assembler) begin(v *Vector) {
	a.root, a.stack, a.skip, a.inJSON = v, a.stack[:0], 0, 0
	a.misfit = false
}

// where is the vector that the next value belongs to; nil if there is none.
func (a *assembler) where() *Vector {
	if len(a.stack) == 0 {
		return a.root
	}
	f := &a.stack[len(a.stack)-1]
	switch f.v.Column.Type {
	case Struct:
		v := f.next
		f.next = nil
		if v == nil {
			a.misfit = true
		}
		return v
	case Map:
		f.n++
		return f.v.Fields[(f.n-1)&1]
	}
	return f.v.Fields[0]
}

// unfit appends a null for a value that the column cannot hold.
func (a *assembler) unfit(v *Vector) {
	a.misfit = true
	v.null()
}

// text appends what json has, without its quotes if it is a string.
func (a *assembler) text(v *Vector) {
	s := a.json.Result()
	if v.Column.Type == Text && len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	if !v.bytes(s) {
		a.misfit = true
	}
}

func (a *assembler) Null(t *serializer.Type) {
	switch {
	case a.skip > 0:
	case a.inJSON > 0:
		a.json.Null(t)
	default:
		if v := a.where(); v != nil {
			if !v.Column.Nullable {
				a.misfit = true
			}
			v.null()
		}
	}
}

func (a *assembler) Bool(t *serializer.Type, x bool) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Bool(t, x)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Boolean:
		if x {
			v.int(1)
		} else {
			v.int(0)
		}
	case JSON:
		a.json.Reset()
		a.json.Bool(t, x)
		a.text(v)
	default:
		a.unfit(v)
	}
}

func (a *assembler) Int(t *serializer.Type, x int64) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Int(t, x)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Int64:
		v.int(x)
	case Int32, Date, Int16, Int8:
		if w := 64 - 8*v.width; x<<w>>w != x {
			a.unfit(v)
		} else {
			v.int(x)
		}
	case Time:
		unit := nanosOf(v.Column)
		a.misfit = a.misfit || x%unit != 0 // what is finer stands in other_json
		v.int(x / unit)
	case Timestamp: // java.util.Date and its like
		a.millis(v, x)
	case JSON:
		a.json.Reset()
		a.json.Int(t, x)
		a.text(v)
	default:
		a.unfit(v)
	}
}

// mostMillis is the last millisecond that also counts in microseconds: readers
// convert to them, and fail on what does not.
const mostMillis = math.MaxInt64 / 1000

func (a *assembler) millis(v *Vector, ms int64) {
	if ms > mostMillis || ms < -mostMillis {
		a.unfit(v)
		return
	}
	v.int(ms)
}

func (a *assembler) Float(t *serializer.Type, x float64) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Float(t, x)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Float64:
		v.float(x)
	case Float32:
		if t.Kind != serializer.KindFloat {
			a.unfit(v)
			return
		}
		v.float(x)
	case JSON:
		a.json.Reset()
		a.json.Float(t, x)
		a.text(v)
	default:
		a.unfit(v)
	}
}

func (a *assembler) Text(t *serializer.Type, s []byte) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Text(t, s)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Text:
		if !utf8.Valid(s) {
			a.misfit = true
			s = bytes.ToValidUTF8(s, []byte("\ufffd"))
		}
		if !v.bytes(s) {
			a.misfit = true
		}
	case JSON:
		a.json.Reset()
		a.json.Text(t, s)
		a.text(v)
	default:
		a.unfit(v)
	}
}

func (a *assembler) Bytes(t *serializer.Type, b []byte) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Bytes(t, b)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Binary:
		if !v.bytes(b) {
			a.misfit = true
		}
	case Text, JSON:
		if v.Column.Type == Text && (t == nil || t.Kind != serializer.KindUUID) {
			a.unfit(v)
			return
		}
		a.json.Reset()
		a.json.Bytes(t, b)
		a.text(v)
	default:
		a.unfit(v)
	}
}

func (a *assembler) Decimal(t *serializer.Type, unscaled []byte, scale int32) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Decimal(t, unscaled, scale)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch c := v.Column; c.Type {
	case Decimal:
		hi, lo, ok := int128(unscaled)
		if !ok || scale != c.Scale || !within(hi, lo, c.Precision) {
			a.unfit(v)
			return
		}
		for x := range [2]uint64{} {
			w := lo
			if x == 1 {
				w = uint64(hi)
			}
			for i := range 8 {
				v.Data = append(v.Data, byte(w>>(8*i)))
			}
		}
		v.one(true)
	case Text, JSON:
		a.json.Reset()
		a.json.Decimal(t, unscaled, scale)
		a.text(v)
	default:
		a.unfit(v)
	}
}

// int128 reads a big-endian two's complement number.
func int128(b []byte) (hi int64, lo uint64, ok bool) {
	for len(b) > 16 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	if len(b) > 16 || len(b) == 0 {
		return 0, 0, false
	}
	if b[0] >= 0x80 {
		hi, lo = -1, math.MaxUint64
	}
	for _, c := range b {
		hi = hi<<8 | int64(lo>>56)
		lo = lo<<8 | uint64(c)
	}
	return hi, lo, true
}

// tens are the powers of ten up to 38 as high and low word.
var tens = func() (t [39][2]uint64) {
	x := big.NewInt(1)
	low := new(big.Int).SetUint64(math.MaxUint64)
	for i := range t {
		t[i][0] = new(big.Int).Rsh(x, 64).Uint64()
		t[i][1] = new(big.Int).And(x, low).Uint64()
		x.Mul(x, big.NewInt(10))
	}
	return t
}()

// within reports whether a number has at most so many digits.
func within(hi int64, lo uint64, digits int32) bool {
	h, l := uint64(hi), lo
	if hi < 0 {
		var carry uint64
		l, carry = bits.Add64(^lo, 1, 0)
		h, _ = bits.Add64(^uint64(hi), 0, carry)
	}
	most := tens[digits]
	return h < most[0] || h == most[0] && l < most[1]
}

func (a *assembler) Time(t *serializer.Type, secs int64, nanos int32) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Time(t, secs, nanos)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch v.Column.Type {
	case Timestamp:
		per, below := int64(1000), int32(1e6)
		switch v.Column.Precision {
		case 6:
			per, below = 1e6, 1e3
		case 9:
			per, below = 1e9, 1
		}
		most := int64(math.MaxInt64) / per
		if per == 1000 {
			most = mostMillis / 1000
		}
		if secs >= most || secs <= -most || nanos%below != 0 {
			a.unfit(v)
			return
		}
		v.int(secs*per + int64(nanos/below))
	case JSON:
		a.json.Reset()
		a.json.Time(t, secs, nanos)
		a.text(v)
	default:
		a.unfit(v)
	}
}

func (a *assembler) Begin(t *serializer.Type, n int) {
	switch {
	case a.skip > 0:
		a.skip++
		return
	case a.inJSON > 0:
		a.inJSON++
		a.json.Begin(t, n)
		return
	}
	v := a.where()
	if v == nil {
		a.skip = 1
		return
	}
	c := v.Column
	fits := false
	switch t.Kind {
	case serializer.KindList, serializer.KindSet, serializer.KindArray:
		fits = c.Type == List
	case serializer.KindMap, serializer.KindMultiset:
		fits = c.Type == Map
	default:
		fits = c.Type == Struct && (c.class == "" || c.class == t.JavaClass)
	}
	switch {
	case fits:
		a.stack = append(a.stack, frame{v: v})
		if c.kind == classStruct {
			v.Fields[0].bytes([]byte(t.JavaClass))
		}
	case c.Type == JSON:
		a.target, a.inJSON = v, 1
		a.json.Reset()
		a.json.Begin(t, n)
	default:
		a.unfit(v)
		a.skip = 1
	}
}

func (a *assembler) RowKind(kind serializer.RowKind) {
	switch {
	case a.skip > 0:
	case a.inJSON > 0:
		a.json.RowKind(kind)
	case len(a.stack) > 0:
		f := &a.stack[len(a.stack)-1]
		if f.v.Column.kind == rowStruct && f.v.Fields[0].Len == f.v.Len {
			f.v.Fields[0].bytes([]byte(kind.String()))
		}
	}
}

func (a *assembler) Field(i int, name string) {
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Field(i, name)
		return
	}
	f := &a.stack[len(a.stack)-1]
	c := f.v.Column
	if c.kind == classStruct {
		k, ok := c.names[name]
		if !ok && name == "" {
			k, ok = c.names[fieldName(i)]
		}
		if ok {
			f.next = f.v.Fields[k]
		}
	} else {
		if c.kind == rowStruct {
			i++
		}
		if i < len(c.Fields) && (c.keys[i] == name || c.keys[i] == "" || name == "") {
			f.next = f.v.Fields[i]
		}
	}
	if f.next != nil && f.next.Len > f.v.Len {
		f.next = nil // two fields of one name
	}
}

func (a *assembler) End(t *serializer.Type) {
	switch {
	case a.skip > 0:
		a.skip--
		return
	case a.inJSON > 0:
		a.json.End(t)
		if a.inJSON--; a.inJSON == 0 {
			a.text(a.target)
		}
		return
	}
	f := a.stack[len(a.stack)-1]
	a.stack = a.stack[:len(a.stack)-1]
	if f.v.Column.Type != Struct {
		f.v.end()
		return
	}
	for _, c := range f.v.Fields {
		if c.Len == f.v.Len {
			c.null()
		}
	}
	f.v.one(true)
}

func (a *assembler) Opaque(t *serializer.Type, class string, b []byte) {
	if !a.opaque {
		a.opaque, a.class = true, class
	}
	switch {
	case a.skip > 0:
		return
	case a.inJSON > 0:
		a.json.Opaque(t, class, b)
		return
	}
	v := a.where()
	if v == nil {
		return
	}
	switch {
	case v.Column.Type == JSON:
		a.json.Reset()
		a.json.Opaque(t, class, b)
		a.text(v)
	case v.Column.opaque() && v.bytes(b):
	case v.Column.opaque():
		a.misfit = true
	default:
		a.unfit(v)
	}
}
