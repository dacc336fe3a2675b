package table

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// one is a table of one value of a type in words, from its JSON.
func one(t *testing.T, words, text string) (*Schema, *Batch, *assembler) {
	typ, err := serializer.ParseType(words, nil)
	require.NoError(t, err)
	b, err := typ.AppendFromJSON(nil, []byte(text))
	require.NoError(t, err)
	c := columnOf(typ)
	c.Name, c.Nullable = "value", true
	s := &Schema{State: &snapshot.State{Value: typ}, Columns: []*Column{c}, Parts: []Part{PartValue}, Const: []string{""}}
	batch := NewBatch(s)
	batch.asm.begin(batch.Vectors[0])
	_, err = serializer.NewDecoder(typ, nil).Visit(b, &batch.asm)
	require.NoError(t, err)
	require.Equal(t, 1, batch.Vectors[0].Len)
	return s, batch, &batch.asm
}

func TestFilterValues(t *testing.T) {
	const row = "row<id:long,name:string,at:localdatetime,day:localdate,ok:boolean,ratio:double,f:float,bytes:bytes,inner:row<n:int,s:string>,list:list<int>>"
	const value = `{"id":7,"name":"it's","at":"2026-11-29T12:30:00.5","day":"2026-11-29","ok":true,"ratio":0.1,"f":0.1,"bytes":{"base64":"AP8="},"inner":{"n":null,"s":"x"},"list":[1]}`
	for _, c := range []struct {
		where string
		want  bool
	}{
		{"value.id = 7", true}, {"value.id != 7", false}, {"value.id <> 8", true}, {"value.id < 7.5", true}, {"value.id > 6.9", true}, {"value.id >= 7", true}, {"value.id <= 6", false},
		{"value.id = 7.0", true}, {"value.id = 7.1", false}, {"value.id < 1e30", true}, {"value.id > -1e30", true}, {"value.id in (1, 7)", true}, {"value.id not in (1, 7)", false}, {"value.id in (1, 2)", false},
		{"value.name = 'it''s'", true}, {"value.name > 'it'", true}, {"value.name in ('a')", false},
		{"value.at = '2026-11-29T12:30:00.500'", true}, {"value.at > '2026-11-29'", true}, {"value.at < '2026-11-29T12:30:00.5001'", true}, {"value.at >= '2026-11-29 12:31'", false}, {"value.at < '9999-12-31'", true}, {"value.at > '0001-01-01'", true},
		{"value.day = '2026-11-29'", true}, {"value.day < '2026-11-30'", true},
		{"value.ok = true", true}, {"value.ok != true", false}, {"value.ok in (false)", false},
		{"value.ratio = 0.1", true}, {"value.f = 0.1", true}, {"value.ratio > 0.1", false},
		{"value.bytes = x'00ff'", true}, {"value.bytes > x'00'", true},
		{"value.inner.n = 1", false}, {"not value.inner.n = 1", false}, {"value.inner.n != 1", false}, {"value.inner.n is null", true}, {"value.inner.n is not null", false}, {"value.inner.n not in (1)", false},
		{"value.inner.n = 1 or value.id = 7", true}, {"value.inner.n = 1 and value.id = 8", false}, {"not (value.inner.n = 1 and value.id = 8)", true}, {"not (value.inner.n = 1 or value.id = 8)", false},
		{"value is null", false}, {"value.list is not null", true}, {`value."@row_kind" = 'INSERT'`, true}, {"value.@row_kind = 'INSERT'", true},
	} {
		f, err := ParseFilter(c.where)
		require.NoError(t, err, c.where)
		s, batch, _ := one(t, row, value)
		b := &binder{from: s, to: s, batch: batch}
		eval, err := b.bind(f.root)
		require.NoError(t, err, c.where)
		require.Equal(t, c.want, eval() == yes, c.where)
		require.True(t, batch.Vectors[0].Len == 1)
	}
	for _, c := range []struct{ where, err string }{
		{"value.id = 'x'", "value.id is int64: it cannot be compared with 'x'"},
		{"value.name = 3", "value.name is text: it cannot be compared with 3"},
		{"value.ok < true", "value.ok is boolean: it cannot be compared with true"},
		{"value.at = 'noon'", `value.at is timestamp(9): it cannot be compared with 'noon': a timestamp is written as in "2006-01-02T15:04:05.999999999"`},
		{"value.day = '12:00'", `value.day is date: it cannot be compared with '12:00': a date is written as in "2006-01-02"`},
		{"value.nix = 1", "nix of value: no such field; there are @row_kind, id, name, at, day, ok, ratio, f, bytes, inner, list"},
		{"nix = 1", "nix: no such field; there are value"},
		{"value.id.x = 1", "value.id is int64: it has no field x"},
		{"value.list = 1", "value.list is list<int32>: compare one of its parts, or ask whether it is null"},
	} {
		f, err := ParseFilter(c.where)
		require.NoError(t, err, c.where)
		s, _, _ := one(t, row, value)
		_, err = f.Bind(s)
		require.EqualError(t, err, c.err)
	}
}

// TestDecimals has SQL's decimals, whose type no words describe.
func TestDecimals(t *testing.T) {
	number := func(digits string) []byte {
		x, ok := new(big.Int).SetString(digits, 10)
		require.True(t, ok)
		if x.Sign() < 0 {
			x.Add(x, new(big.Int).Lsh(big.NewInt(1), 136))
		}
		return x.FillBytes(make([]byte, 17))
	}
	typ := &serializer.Type{Kind: serializer.KindDecimal, Precision: 30, Scale: 5}
	for _, c := range []struct {
		digits string
		scale  int32
		want   any
	}{
		{"1230000", 5, "12.30000"}, {"-1", 5, "-0.00001"}, {"0", 5, "0.00000"}, {"999999999999999999999999999999", 5, "9999999999999999999999999.99999"},
		{"-999999999999999999999999999999", 5, "-9999999999999999999999999.99999"}, {"1000000000000000000000000000000", 5, nil}, {"1", 4, nil},
	} {
		col := columnOf(typ)
		col.Name = "value"
		s := &Schema{State: &snapshot.State{}, Columns: []*Column{col}, Parts: []Part{PartValue}, Const: []string{""}}
		b := NewBatch(s)
		b.asm.begin(b.Vectors[0])
		b.asm.Decimal(typ, number(c.digits), c.scale)
		require.Equal(t, c.want, b.Vectors[0].Value(0), c.digits)
		require.Equal(t, c.want == nil, b.asm.misfit)
		if c.digits != "1230000" {
			continue
		}
		for where, want := range map[string]bool{"value = 12.3": true, "value > 12.29999": true, "value < 12.3": false, "value >= 12.300001": false, "value < 1e40": true, "value in (1, 12.30)": true} {
			f, err := ParseFilter(where)
			require.NoError(t, err)
			eval, err := (&binder{from: s, to: s, batch: b}).bind(f.root)
			require.NoError(t, err)
			require.Equal(t, want, eval() == yes, where)
		}
		f, err := ParseFilter("value = 'x'")
		require.NoError(t, err)
		_, err = f.Bind(s)
		require.EqualError(t, err, "value is decimal(30,5): it cannot be compared with 'x'")
	}
}

// TestMisfits holds that a value that its column cannot hold is null, or has
// U+FFFD, and is marked, and that its neighbours stay.
func TestMisfits(t *testing.T) {
	for _, c := range []struct {
		words, value string
		misfit       bool
		want         any
	}{
		{"string", `"a\ud800b"`, true, "a\ufffdb"},
		{"string", `"a\ud83d\ude00b"`, false, "a\U0001f600b"},
		{"list<string>", `["x","\udc00"]`, true, []any{"x", "\ufffd"}},
		{"instant", `"9999-12-31T23:59:59Z"`, true, nil},
		{"instant", `"2262-01-01T00:00:00.000000001Z"`, false, int64(9214646400000000001)},
		{"date", `9223372036854775806`, true, nil},
		{"date", `-1`, false, int64(-1)},
		{"localtime", `"12:30:00.000001"`, false, int64(45_000_000_001)},
		{"localtime", `"12:30:00.000001001"`, true, int64(45_000_000_001)},
		{"localdate", `"+999999999-12-31"`, true, nil},
		{"row<a:int,b:instant,c:string>", `{"a":1,"b":"9999-12-31T00:00:00Z","c":"x"}`, true, []any{"INSERT", int64(1), nil, "x"}},
		{"map<string,int>", `[["a",1]]`, false, [][2]any{{"a", int64(1)}}},
		{"float", `"NaN"`, false, nil},
		{"bigdec", `"1E+100"`, false, "1E+100"},
		{"bigint", `"123456789012345678901234567890"`, false, "123456789012345678901234567890"},
	} {
		t.Run(c.words+" "+c.value, func(t *testing.T) {
			_, b, a := one(t, c.words, c.value)
			require.Equal(t, c.misfit, a.misfit)
			if c.words != "float" {
				require.Equal(t, c.want, b.Vectors[0].Value(0))
			}
		})
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		b      []byte
		digits int32
		want   bool
	}{
		{[]byte{9}, 1, true}, {[]byte{10}, 1, false}, {[]byte{0xf7}, 1, true}, {[]byte{0xf6}, 1, false},
		{[]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 19, true}, {[]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 18, false},
		{append([]byte{0x80}, make([]byte, 15)...), 38, false}, {append([]byte{0, 0, 0}, make([]byte, 30)...), 1, true},
	} {
		hi, lo, ok := int128(c.b)
		require.True(t, ok)
		require.Equal(t, c.want, within(hi, lo, c.digits), "%x", c.b)
	}
	_, _, ok := int128(append([]byte{1}, make([]byte, 16)...))
	require.False(t, ok)
}

// TestHostileSchema holds that a schema is bounded, however a type doubles.
func TestHostileSchema(t *testing.T) {
	words := "int"
	for range 14 {
		words = "tuple<" + words + "," + words + ">"
	}
	typ, err := serializer.ParseType(words, nil)
	require.NoError(t, err)
	leaves := 0
	var walk func(*Column)
	walk = func(c *Column) {
		if len(c.Fields) == 0 {
			leaves++
		}
		for _, f := range c.Fields {
			walk(f)
		}
	}
	walk(columnOf(typ))
	require.Less(t, leaves, 2*maxLeaves)
}

// TestTruncate holds that rows taken back leave a vector as if they had never been.
func TestTruncate(t *testing.T) {
	typ, err := serializer.ParseType("row<a:int,l:list<string>,m:map<string,long>>", nil)
	require.NoError(t, err)
	c := columnOf(typ)
	c.Nullable = true
	v, w := NewVector(c), NewVector(c)
	d := serializer.NewDecoder(typ, nil)
	add := func(v *Vector, text string) {
		var a assembler
		b, err := typ.AppendFromJSON(nil, []byte(text))
		require.NoError(t, err)
		a.begin(v)
		_, err = d.Visit(b, &a)
		require.NoError(t, err)
	}
	for i := range 40 {
		text := `{"a":1,"l":["x","yy"],"m":[["k",5]]}`
		if i%3 == 0 {
			text = `{"a":null,"l":null,"m":[]}`
		}
		add(v, text)
		if i < 13 {
			add(w, text)
		}
	}
	v.truncate(13)
	require.Equal(t, w, v)
	v.Reset()
	require.Zero(t, v.Len+v.Nulls+len(v.Valid)+v.Fields[1].Len+v.Fields[2].Fields[0].Len)
}
