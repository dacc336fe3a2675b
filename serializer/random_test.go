package serializer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
)

// maker makes random types and values.
type maker struct{ *rand.Rand }

func (m maker) name(prefix string) string { return prefix + strconv.Itoa(m.IntN(1000)) }

var makerKinds = []Kind{
	KindBoolean, KindByte, KindShort, KindInt, KindLong, KindFloat, KindDouble, KindChar, KindString, KindBytes, KindBigInt, KindBigDec,
	KindDate, KindSQLDate, KindSQLTime, KindSQLTimestamp, KindLocalDate, KindLocalTime, KindLocalDateTime, KindInstant, KindNull,
	KindVoidNamespace, KindTimeWindow, KindGlobalWindow,
}

// typ makes a type that has a snapshot.
func (m maker) typ(depth int) *Type {
	if depth <= 0 || m.IntN(3) == 0 {
		switch m.IntN(6) {
		case 0:
			return NewEnum(m.name("com.x.E"), "A", "B", "C")
		case 1:
			return NewArray([]Kind{KindBoolean, KindByte, KindShort, KindInt, KindLong, KindFloat, KindDouble, KindChar, KindString}[m.IntN(9)])
		}
		return Basic(makerKinds[m.IntN(len(makerKinds))])
	}
	list := func(most int) (l []*Type) {
		for range m.IntN(most + 1) {
			l = append(l, m.typ(depth-1))
		}
		return l
	}
	switch m.IntN(13) {
	case 0:
		return NewList(m.typ(depth - 1))
	case 1:
		return NewSet(m.typ(depth - 1))
	case 2:
		return NewMap(m.typ(depth-1), m.typ(depth-1))
	case 3:
		return NewObjectArray(m.typ(depth-1), "java.lang.Object")
	case 4:
		return NewEither(m.typ(depth-1), m.typ(depth-1))
	case 5:
		return NewTuple(list(5)...)
	case 6, 7:
		var fields []Field
		named := m.IntN(2) == 0
		for k, t := range list(12) {
			f := Field{Type: t}
			if named {
				f.Name = fmt.Sprintf("c%d", k)
			}
			fields = append(fields, f)
		}
		return NewRow(fields...)
	case 8, 9:
		var fields []Field
		for k, t := range list(5) {
			fields = append(fields, Field{Name: fmt.Sprintf("f%d", k), Type: t})
		}
		p := NewPOJO(m.name("com.x.P"), fields...)
		if m.IntN(3) == 0 {
			sub := func(prefix string) (l []*Type) {
				for k := range m.IntN(3) {
					l = append(l, NewPOJO(fmt.Sprintf("com.x.%s%d", prefix, k), Field{Name: "a", Type: m.typ(depth - 2)}))
				}
				return l
			}
			p = p.WithSubclasses(sub("R"), sub("U"))
		}
		return p
	case 10:
		return NewNullable(m.typ(depth - 1))
	case 11:
		return NewPaddedNullable(Basic(KindLong))
	}
	a, err := NewAvro(GenericRecord, m.schema(depth))
	if err != nil {
		panic(err)
	}
	return a
}

func (m maker) schema(depth int) string {
	n := 0
	var node func(depth int) any
	node = func(depth int) any {
		if n++; depth <= 0 || m.IntN(2) == 0 {
			return []string{"null", "boolean", "int", "long", "float", "double", "string", "bytes"}[m.IntN(8)]
		}
		switch m.IntN(6) {
		case 0:
			return map[string]any{"type": "array", "items": node(depth - 1)}
		case 1:
			return map[string]any{"type": "map", "values": node(depth - 1)}
		case 2:
			return map[string]any{"type": "enum", "name": fmt.Sprintf("E%d", n), "symbols": []string{"X", "Y"}}
		case 3:
			return map[string]any{"type": "fixed", "name": fmt.Sprintf("F%d", n), "size": m.IntN(5)}
		case 4:
			return []any{"null", node(0)}
		}
		var fields []any
		name := fmt.Sprintf("R%d", n)
		for k := range m.IntN(4) {
			fields = append(fields, map[string]any{"name": fmt.Sprintf("f%d", k), "type": node(depth - 1)})
		}
		if fields == nil {
			fields = []any{}
		}
		return map[string]any{"type": "record", "name": name, "fields": fields}
	}
	b, err := json.Marshal(node(depth))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// columnType makes a type of a SQL column.
func (m maker) columnType(depth int) *Type {
	if depth > 0 && m.IntN(2) == 0 {
		switch m.IntN(4) {
		case 0:
			return arrayColumn(m.columnType(depth - 1))
		case 1:
			return mapColumn(m.columnType(depth-1), m.columnType(depth-1))
		case 2:
			return (&Type{Kind: KindMultiset, enc: encBinaryMap, slot: slotMap, Args: []*Type{m.columnType(depth - 1)}}).finish()
		}
		var cols []*Type
		for range m.IntN(70) / (1 + m.IntN(20)) {
			cols = append(cols, m.columnType(depth-1))
		}
		return rowColumn(cols...)
	}
	return []*Type{
		boolColumn, intColumn, bigintColumn, varcharColumn, doubleColumn, column(KindByte, encI8, slotI8), column(KindShort, encI16, slotI16),
		column(KindFloat, encF32, slotF32), column(KindBytes, encBytes, slotBytes), decimalColumn(9, 3), decimalColumn(38, 10),
		timestampColumn(0), timestampColumn(3), timestampColumn(6), timestampColumn(9), column(KindLocalDate, encDays, slotI32),
		column(KindLocalTime, encTimeMillis, slotI32), column(KindIntervalYM, encI32, slotI32), column(KindIntervalDT, encI64, slotI64),
	}[m.IntN(19)]
}

func (m maker) text() string {
	words := []string{"", "a", "hello", "é", "水", "😀", "nul\x00", "quote\"\\", "\ue000", "\ufffd", "tab\t", "\xed\xa0\x80", "longer than seven"}
	s := ""
	for range m.IntN(3) {
		s += words[m.IntN(len(words))]
	}
	return s
}

func (m maker) int64() int64 { return int64(m.Uint64()) >> m.IntN(64) }

func (m maker) bigInt() *big.Int {
	x := big.NewInt(m.int64())
	if m.IntN(3) == 0 {
		x.Mul(x, big.NewInt(m.int64())).Mul(x, big.NewInt(m.int64()))
	}
	return x
}

// value makes a value of t as Decode gives it.
func (m maker) value(t *Type) any {
	switch t.enc {
	case encBool:
		return m.IntN(2) == 1
	case encI8:
		return int8(m.int64())
	case encI16:
		return int16(m.int64())
	case encI32:
		if t.Kind == KindIntervalYM {
			return int64(int32(m.int64()))
		}
		return int32(m.int64())
	case encI64, encCountWindow:
		return m.int64()
	case encF32:
		return []float32{0, float32(math.Copysign(0, -1)), 1.5, float32(m.NormFloat64()), float32(math.Inf(1)), math.SmallestNonzeroFloat32}[m.IntN(6)]
	case encF64:
		return []float64{0, math.Copysign(0, -1), 1e300, m.NormFloat64(), math.Inf(-1), math.SmallestNonzeroFloat64}[m.IntN(6)]
	case encChar:
		return uint16(m.Uint32())
	case encVoid, encEmpty, encVoidNamespace:
		return nil
	case encGlobalWindow:
		return "GlobalWindow"
	case encString:
		if m.IntN(5) == 0 {
			return nil
		}
		return m.text()
	case encUTF8, encStringValue:
		return string([]rune(m.text())) // no lone surrogates
	case encBytes:
		return []byte(m.text())
	case encFixed:
		return make([]byte, t.Length)
	case encBigInt:
		return m.bigInt()
	case encBigDec:
		return BigDecimal{m.bigInt(), int32(m.IntN(30) - 10)}
	case encDecimal:
		return BigDecimal{big.NewInt(m.int64() % 1e9), t.Scale}
	case encMillis:
		return m.int64() >> 4
	case encSQLTimestamp, encInstant, encLocalDateTime:
		return time.Unix(m.int64()>>30, m.Int64N(1e9)).UTC()
	case encTimestamp:
		nanos := m.Int64N(1e9)
		if t.size == 8 {
			nanos = nanos / 1e6 * 1e6
		}
		return time.Unix(m.int64()>>30, nanos).UTC()
	case encLocalDate, encDays:
		return DateOfDays(int64(m.IntN(2_000_000) - 1_000_000))
	case encLocalTime:
		return time.Duration(m.Int64N(86400e9))
	case encTimeMillis:
		return time.Duration(m.Int64N(86400e3) * 1e6)
	case encEnum:
		return t.Symbols[m.IntN(len(t.Symbols))]
	case encTimeWindow:
		return Object{Fields: []NamedValue{{"window_start", m.int64()}, {"window_end", m.int64()}}}
	case encUnion:
		return m.value(t.Args[m.IntN(len(t.Args))])
	case encPrimArray, encStringArray, encList, encSet, encObjectArray, encAvroArray, encBinaryArray:
		l := make([]any, m.IntN(4))
		for k := range l {
			if nullable := t.enc == encSet || t.enc == encObjectArray || t.enc == encBinaryArray; !nullable || m.IntN(3) > 0 {
				l[k] = m.value(t.Args[0])
			}
		}
		if t.Kind == KindSet {
			l = l[:different(t.Args[0], len(l), func(k int) any { return l[k] })]
		}
		return l
	case encMap, encAvroMap, encBinaryMap:
		l := make([]Entry, m.IntN(4))
		for k := range l {
			l[k].Key = m.value(t.Args[0])
			switch {
			case t.Kind == KindMultiset:
				l[k].Value = int32(m.IntN(9))
			case t.enc == encAvroMap || m.IntN(3) > 0:
				l[k].Value = m.value(t.Args[1])
			}
		}
		return l[:different(t.Args[0], len(l), func(k int) any { return l[k].Key })]
	case encNullable:
		if m.IntN(3) == 0 {
			return nil
		}
		return m.value(t.Args[0])
	case encEither:
		right := m.IntN(2)
		return EitherValue{right == 1, m.value(t.Args[right])}
	case encTuple0:
		return []any{}
	case encTuple:
		if t.Kind == KindRecord {
			return m.object(t, false)
		}
		l := make([]any, len(t.Fields))
		for k := range l {
			l[k] = m.value(t.Fields[k].Type)
		}
		return l
	case encRow, encBinaryRow:
		r := RowValue{Kind: RowKind(m.IntN(4)), Fields: make([]any, len(t.Fields))}
		for k := range r.Fields {
			if m.IntN(3) > 0 {
				r.Fields[k] = m.value(t.Fields[k].Type)
			}
			if n := t.Fields[k].Name; n != "" {
				r.Names = append(r.Names, n)
			}
		}
		return r
	case encPOJO:
		switch m.IntN(6) {
		case 0:
			return nil
		case 1:
			if len(t.Registered) > 0 {
				return m.object(t.Registered[m.IntN(len(t.Registered))].Type, true)
			}
		case 2:
			if len(t.Unregistered) > 0 {
				return m.object(t.Unregistered[m.IntN(len(t.Unregistered))].Type, true)
			}
		}
		return m.object(t, true)
	}
	panic(fmt.Sprintf("no value of %s (encoding %d)", t, t.enc))
}

func (m maker) object(t *Type, nulls bool) Object {
	o := Object{Class: t.JavaClass, Fields: make([]NamedValue, len(t.Fields))}
	for k, f := range t.Fields {
		o.Fields[k].Name = f.Name
		if !nulls || m.IntN(4) > 0 {
			o.Fields[k].Value = m.value(f.Type)
		}
	}
	return o
}

func seedOf(t testing.TB) uint64 {
	if s := os.Getenv("TIDEMARK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	return rand.Uint64()
}

// TestRandomTypes writes random values of random types and reads them in every way
// there is. TIDEMARK_SEED repeats a run.
func TestRandomTypes(t *testing.T) {
	seed := seedOf(t)
	t.Logf("TIDEMARK_SEED=%d", seed)
	n := 3000
	if testing.Short() {
		n = 300
	}
	for i := range n {
		m := maker{rand.New(rand.NewPCG(seed, uint64(i)))}
		var typ *Type
		if i%3 == 0 {
			typ = m.columnType(3)
		} else {
			typ = m.typ(3)
			raw, err := typ.AppendSnapshot(nil)
			require.NoError(t, err)
			r := javaio.NewReader(raw)
			read, err := ReadSnapshot(r)
			require.NoError(t, err, "%d: %s", i, typ)
			require.Zero(t, r.Len(), "%d: %s", i, typ)
			require.Equal(t, typ.Raw, read.Raw)
			require.Equal(t, typ.Size(), read.Size())
			if !hasNamedRow(typ) {
				require.Equal(t, typ.String(), read.String(), "%d", i)
			}
			words, err := ParseType(typ.String(), Classes{})
			if err == nil && !hasNamedRow(typ) {
				require.Equal(t, typ.String(), words.String())
			}
		}
		d := NewDecoder(typ, &DecodeOptions{Strict: true})
		framed := NewDecoder(typ, &DecodeOptions{Strict: true, Framed: true})
		for range 3 {
			v := m.value(typ)
			b, err := typ.AppendValue([]byte("x"), v)
			require.NoError(t, err, "%d: %s of %v", i, typ, v)
			b = b[1:]
			size, err := d.Skip(append(b[:len(b):len(b)], 0xff, 0xff))
			require.NoError(t, err, "%d: %s %x", i, typ, b)
			require.Equal(t, len(b), size, "%d: %s %x", i, typ, b)
			if typ.Size() >= 0 {
				require.Equal(t, typ.Size(), size)
			}
			got, size, err := d.Decode(b)
			require.NoError(t, err, "%d: %s %x", i, typ, b)
			require.Equal(t, len(b), size)
			again, err := typ.AppendValue(nil, got)
			require.NoError(t, err, "%d: %s of %v", i, typ, got)
			require.Equal(t, string(b), string(again), "%d: %s of %v, then %v", i, typ, v, got)
			js, _, err := framed.AppendJSON([]byte("y"), b)
			require.NoError(t, err)
			js = js[1:]
			require.True(t, json.Valid(js), "%d: %s %s", i, typ, js)
			again, err = typ.AppendFromJSON(nil, js)
			if typ.Kind == KindUnion || hasUnion(typ) {
				continue // the branch may be another
			}
			require.NoError(t, err, "%d: %s of %s", i, typ, js)
			js2, _, err := framed.AppendJSON(nil, again)
			require.NoError(t, err)
			require.Equal(t, string(js), string(js2), "%d: %s", i, typ)
			require.Len(t, again, len(b))
		}
	}
}

func hasNamedRow(t *Type) (found bool) {
	t.Walk(func(n *Type) bool {
		found = found || n.Kind == KindRow && hasNames(n.Fields) || n.Kind == KindPOJO && len(n.Registered)+len(n.Unregistered) > 0
		return true
	})
	return found
}

func hasUnion(t *Type) (found bool) {
	t.Walk(func(n *Type) bool {
		found = found || n.Kind == KindUnion
		return true
	})
	return found
}

// different is how many of n values differ from each other for sure, as what is to become
// a set. Sets and maps that are the same may have other bytes.
func different(t *Type, n int, value func(k int) any) int {
	t.Walk(func(part *Type) bool {
		if part.Kind == KindSet || part.Kind == KindMap || part.Kind == KindMultiset {
			n = min(n, 1)
		}
		return true
	})
	if k := t.twice(n, value); k >= 0 {
		return k
	}
	return n
}
