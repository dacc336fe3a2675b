package serializer

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type address struct {
	_      struct{} `flink:"pojo=com.example.Address"`
	Street *string  `flink:"street"`
	Zip    int32    `flink:"zip"`
}

type order struct {
	_       struct{}         `flink:"pojo=com.example.Order"`
	ID      int64            `flink:"id"`
	Total   *BigDecimal      `flink:"total"`
	At      time.Time        `flink:"at,sqltimestamp"`
	Day     CivilDate        `flink:"day"`
	Tags    []string         `flink:"tags"`
	Marks   []int32          `flink:"marks,array"`
	Counts  map[string]int64 `flink:"counts"`
	To      *address         `flink:"to"`
	Picture []byte
	//lint:ignore U1000 an unexported field is passed over
	skipped int
	Cache   string `flink:"-"`
}

type point struct {
	_ struct{} `flink:"tuple"`
	X int64
	Y float64
	N *string
}

type line struct {
	Name  *string `flink:"name"`
	From  point   `flink:"from"`
	Big   *big.Int
	Plain bool
}

func roundTrip[T any](t *testing.T, s Serializer[T], v T, words string) []byte {
	t.Helper()
	require.Equal(t, words, s.Type().String())
	b := s.Append([]byte("x"), v)[1:]
	got, n, err := s.Read(append(b[:len(b):len(b)], 0xff))
	require.NoError(t, err)
	require.Equal(t, len(b), n)
	require.Equal(t, v, got)
	d := NewDecoder(s.Type(), &DecodeOptions{Framed: true, Strict: true})
	_, err = d.Skip(b)
	require.NoError(t, err, "the generic decoder reads it too")
	js, _, err := d.AppendJSON(nil, b)
	require.NoError(t, err)
	again, err := s.Type().AppendFromJSON(nil, js)
	require.NoError(t, err)
	require.Len(t, again, len(b))
	for k := range b {
		_, _, err := s.Read(b[:k])
		require.ErrorIs(t, err, ErrShort, "%d of %d", k, len(b))
	}
	return b
}

func TestTypedSerializers(t *testing.T) {
	at := time.Unix(1700000000, 123456789).UTC()
	roundTrip(t, Bool, true, "boolean")
	roundTrip(t, Int8, -5, "byte")
	roundTrip(t, Int16, -500, "short")
	roundTrip(t, Int32, math.MinInt32, "int")
	roundTrip(t, Int64, math.MaxInt64, "long")
	roundTrip(t, Float32, 1.5, "float")
	roundTrip(t, Float64, math.Inf(-1), "double")
	roundTrip(t, Char, 'x', "char")
	roundTrip(t, String, "a😀\x00é", "string")
	roundTrip(t, Bytes, []byte{1, 2}, "bytes")
	roundTrip(t, Instant, at, "instant")
	roundTrip(t, SQLTimestamp, at, "sqltimestamp")
	roundTrip(t, LocalDateTime, at, "localdatetime")
	roundTrip(t, Date, at.Truncate(time.Millisecond), "date")
	roundTrip(t, LocalDate, CivilDate{2024, 2, 29}, "localdate")
	roundTrip(t, LocalTime, 13*time.Hour+5, "localtime")
	roundTrip(t, BigInteger, big.NewInt(-300), "bigint")
	roundTrip(t, BigInteger, nil, "bigint")
	roundTrip(t, Decimals, BigDecimal{big.NewInt(1234), 2}, "bigdec")
	roundTrip(t, TimeWindows, Window{1, 2}, "timewindow")
	roundTrip(t, VoidNS, struct{}{}, "voidnamespace")
	roundTrip(t, List(Int64), []int64{1, 2}, "list<long>")
	roundTrip(t, Map(String, List(Bool)), map[string][]bool{"a": {true}}, "map<string, list<boolean>>")
	x := int64(7)
	roundTrip(t, Nullable(Int64), &x, "long?")
	roundTrip(t, Nullable(Int64), nil, "long?")
	roundTrip(t, Tuple2(String, Int64), Pair[string, int64]{"k", 3}, "tuple<string, long>")
	roundTrip(t, Tuple3(String, Int64, Bool), Triple[string, int64, bool]{"k", 3, true}, "tuple<string, long, boolean>")
	roundTrip(t, Enum[int]("com.x.Color", "RED", "GREEN"), 1, "enum:com.x.Color")
	b := WithTTL(Int64).Append(nil, Expiring[int64]{5, 6})
	v, n, err := WithTTL(Int64).Read(b)
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.Equal(t, Expiring[int64]{5, 6}, v)
}

func TestStructs(t *testing.T) {
	street := "Elm"
	o := order{
		ID: 5, Total: &BigDecimal{big.NewInt(999), 2}, At: time.Unix(1700000000, 5e6).UTC(), Day: CivilDate{1999, 12, 31}, Tags: []string{"a", "b"},
		Marks: []int32{1, -1}, Counts: map[string]int64{"x": 1}, To: &address{Street: &street, Zip: 3000}, Picture: []byte{1},
	}
	s, err := Of[order]()
	require.NoError(t, err)
	words := "pojo:com.example.Order<at sqltimestamp, counts map<string, long>, day localdate, id long, marks int[], picture bytes, tags list<string>, to pojo:com.example.Address<street string, zip int>, total bigdec>"
	b := roundTrip(t, s, o, words)
	js, _, err := NewDecoder(s.Type(), nil).AppendJSON(nil, b)
	require.NoError(t, err)
	require.Equal(t, `{"@class":"com.example.Order","at":{"millis":1700000000005,"nanos":5000000},"counts":[["x",1]],"day":"1999-12-31","id":5,"marks":[1,-1],"picture":{"base64":"AQ=="},"tags":["a","b"],"to":{"@class":"com.example.Address","street":"Elm","zip":3000},"total":"9.99"}`, string(js))
	o.To, o.Total = nil, nil
	roundTrip(t, s, o, words)

	roundTrip(t, MustOf[point](), point{X: 1, Y: 2.5}, "tuple<long, double, string>")
	roundTrip(t, MustOf[point](), point{X: 1, Y: 2.5, N: &street}, "tuple<long, double, string>")
	roundTrip(t, MustOf[line](), line{From: point{X: 3}, Big: big.NewInt(7)}, "row<name string, from tuple<long, double, string>, big bigint, plain boolean>")
	roundTrip(t, MustOf[[]*address](), []*address{nil, {Zip: 1}}, "list<pojo:com.example.Address<street string, zip int>>")
	roundTrip(t, MustOf[map[int16][]point](), map[int16][]point{1: {{X: 2}}}, "map<short, list<tuple<long, double, string>>>")

	type recursive struct{ Next []recursive }
	_, err = Of[recursive]()
	require.ErrorContains(t, err, "contains itself")
	_, err = Of[chan int]()
	require.ErrorContains(t, err, "no serializer")
	_, err = Of[struct {
		_ struct{} `flink:"pojo"`
	}]()
	require.ErrorContains(t, err, "names its class")
	_, err = Of[[]*int64]()
	require.ErrorContains(t, err, "may be null")
}

func TestNoAllocations(t *testing.T) {
	type fixed struct {
		_ struct{} `flink:"tuple"`
		A int64
		B int32
		C float64
	}
	buf := make([]byte, 0, 128)
	f := MustOf[fixed]()
	pair := Tuple2(Int64, Int32)
	now := time.Unix(1, 2)
	for name, run := range map[string]func(){
		"long":    func() { b := Int64.Append(buf, 5); _, _, _ = Int64.Read(b) },
		"double":  func() { b := Float64.Append(buf, 5); _, _, _ = Float64.Read(b) },
		"bool":    func() { b := Bool.Append(buf, true); _, _, _ = Bool.Read(b) },
		"instant": func() { b := Instant.Append(buf, now); _, _, _ = Instant.Read(b) },
		"tuple":   func() { b := pair.Append(buf, Pair[int64, int32]{1, 2}); _, _, _ = pair.Read(b) },
		"string":  func() { String.Append(buf, "hello") },
	} {
		require.Zero(t, testing.AllocsPerRun(100, run), name)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { b := f.Append(buf, fixed{A: 1}); _, _, _ = f.Read(b) }))
}

func checkHash[T any](t *testing.T, s Serializer[T], rules HashRules, values ...T) {
	t.Helper()
	f, err := HashFunc(s, rules)
	require.NoError(t, err)
	for _, v := range values {
		b := s.Append(nil, v)
		want, n, err := NewHasher(s.Type(), rules, 0).HashCode(b)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, want, f(v), "%s %v", s.Type(), v)
	}
}

func TestHashOfValuesIsThatOfBytes(t *testing.T) {
	checkHash(t, Bool, nil, true, false)
	checkHash(t, Int8, nil, -1, 5)
	checkHash(t, Int16, nil, -1, 5)
	checkHash(t, Char, nil, 0, 0xffff)
	checkHash(t, Int32, nil, -1, 5)
	checkHash(t, Int64, nil, -1, 1<<40)
	checkHash(t, Float32, nil, 1.5, float32(math.NaN()), 0)
	checkHash(t, Float64, nil, 1.5, math.NaN(), math.Copysign(0, -1))
	checkHash(t, String, nil, "", "hello", "é😀", "\xed\xa0\x80")
	checkHash(t, Instant, nil, time.Unix(-5, 7), time.Unix(1<<33, 999999999))
	checkHash(t, SQLTimestamp, nil, time.UnixMilli(-5), time.Unix(5, 999999999))
	checkHash(t, LocalDateTime, nil, time.Unix(-5, 7).UTC())
	checkHash(t, LocalDate, nil, CivilDate{2024, 2, 29}, CivilDate{-5, 1, 1})
	checkHash(t, BigInteger, nil, big.NewInt(-1), big.NewInt(1<<40), new(big.Int).Lsh(big.NewInt(-3), 100))
	checkHash(t, Decimals, nil, BigDecimal{big.NewInt(-5), 3})
	checkHash(t, Tuple2(String, Int64), nil, Pair[string, int64]{"a", 5})
	checkHash(t, Tuple3(String, Int64, BigInteger), nil, Triple[string, int64, *big.Int]{"a", 5, big.NewInt(4)})
	checkHash(t, List(Int64), nil, []int64{1, 2, 3}, nil)
	checkHash(t, MustOf[line](), nil, line{Big: big.NewInt(1)})
	type key struct {
		_      struct{} `flink:"pojo=com.x.UserKey"`
		Region int32    `flink:"region"`
		ID     string   `flink:"id"`
	}
	rules := HashRules{"com.x.UserKey": {Fields: []string{"region", "id"}}}
	checkHash(t, MustOf[key](), rules, key{Region: 7, ID: "x"})
	f, err := HashFunc(MustOf[key](), rules)
	require.NoError(t, err)
	require.EqualValues(t, 31*7+'x', f(key{Region: 7, ID: "x"}))
	_, err = HashFunc(MustOf[key](), nil)
	var h *HashError
	require.ErrorAs(t, err, &h)
	_, err = HashFunc(Enum[int]("E", "A"), nil)
	require.ErrorAs(t, err, &h)
	_, err = HashFunc(Bytes, nil)
	require.ErrorAs(t, err, &h)
}
