//go:build unix

package serializer

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cpu adds the CPU time of an operation to a benchmark's figures: on a machine
// that others use too it is the steadier one.
func cpu(b *testing.B, run func()) {
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// benchTypes are types of common state with a value of usual size.
func benchTypes(t testing.TB) []struct {
	name  string
	typ   *Type
	value []byte
} {
	list := []struct {
		name  string
		typ   *Type
		value []byte
	}{}
	add := func(name string, typ *Type, v any) {
		b, err := typ.AppendValue(nil, v)
		require.NoError(t, err)
		list = append(list, struct {
			name  string
			typ   *Type
			value []byte
		}{name, typ, b})
	}
	words := func(s string) *Type {
		typ, err := ParseType(s, nil)
		require.NoError(t, err)
		return typ
	}
	add("long", words("long"), int64(1234567890))
	add("string", words("string"), "customer-00001234")
	add("string-utf8", words("string"), "Grüße aus Zürich, 水")
	add("double", words("double"), 1234.5678)
	add("bytes100", words("bytes"), make([]byte, 100))
	add("tuple", words("tuple<string,long>"), []any{"customer-00001234", int64(5)})
	add("row", words("row<long,string,double,boolean,int>"), RowValue{Fields: []any{int64(5), "customer-00001234", 2.5, true, int32(9)}})
	add("list10", words("list<long>"), []any{int64(1), int64(2), int64(3), int64(4), int64(5), int64(6), int64(7), int64(8), int64(9), int64(1000000)})
	var m []Entry
	for k := range 10 {
		m = append(m, Entry{"key-" + string(rune('0'+k)), int64(k)})
	}
	add("map10", words("map<string,long>"), m)
	add("ttl", words("ttl<long>"), TTLValue{1700000000000, int64(5)})
	add("timer", words("timer<long,timewindow>"), Object{Fields: []NamedValue{{"timestamp", int64(1)}, {"key", int64(2)}, {"namespace", Object{Fields: []NamedValue{{"window_start", int64(1)}, {"window_end", int64(2)}}}}}})
	add("pojo", words("pojo:P<active boolean,address pojo:A<street string,zip int>,age int,balance bigdec,id long,name string,since instant>"), Object{Fields: []NamedValue{
		{"active", true}, {"address", Object{Fields: []NamedValue{{"street", "Elm Street 5"}, {"zip", int32(3000)}}}}, {"age", int32(30)},
		{"balance", "123.45"}, {"id", int64(77)}, {"name", "Ann Example"}, {"since", time.Unix(1700000000, 5000).UTC()}}})
	add("avro", words(`avro<{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"who","type":["null","string"]},{"name":"tags","type":{"type":"array","items":"string"}}]}>`),
		Object{Fields: []NamedValue{{"id", int64(5)}, {"who", "Ann Example"}, {"tags", []any{"a", "b"}}}})
	add("sqlrow", rowColumn(bigintColumn, varcharColumn, decimalColumn(10, 2), timestampColumn(3), doubleColumn), RowValue{Fields: []any{int64(5), "customer-00001234", "12.34", time.Unix(1700000000, 0).UTC(), 2.5}})
	return list
}

func BenchmarkSkip(b *testing.B) {
	for _, c := range benchTypes(b) {
		b.Run(c.name, func(b *testing.B) {
			d := NewDecoder(c.typ, nil)
			b.SetBytes(int64(len(c.value)))
			cpu(b, func() {
				if _, err := d.Skip(c.value); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkVisit(b *testing.B) {
	for _, c := range benchTypes(b) {
		b.Run(c.name, func(b *testing.B) {
			d := NewDecoder(c.typ, nil)
			cpu(b, func() {
				if _, err := d.Visit(c.value, discard{}); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for _, c := range benchTypes(b) {
		b.Run(c.name, func(b *testing.B) {
			d := NewDecoder(c.typ, nil)
			var buf []byte
			cpu(b, func() {
				var err error
				if buf, _, err = d.AppendJSON(buf[:0], c.value); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range benchTypes(b) {
		b.Run(c.name, func(b *testing.B) {
			d := NewDecoder(c.typ, nil)
			cpu(b, func() {
				if _, _, err := d.Decode(c.value); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkTyped(b *testing.B) {
	type event struct {
		_     struct{} `flink:"pojo=com.x.Event"`
		ID    int64    `flink:"id"`
		Name  string   `flink:"name"`
		Score float64  `flink:"score"`
		N     *int32   `flink:"n"`
	}
	n := int32(5)
	benchTyped(b, "long", Int64, 1234567890)
	benchTyped(b, "string", String, "customer-00001234")
	benchTyped(b, "instant", Instant, time.Unix(1700000000, 5))
	benchTyped(b, "tuple", Tuple2(String, Int64), Pair[string, int64]{"customer-00001234", 5})
	benchTyped(b, "list10", List(Int64), []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	benchTyped(b, "pojo", MustOf[event](), event{ID: 5, Name: "Ann", Score: 2.5, N: &n})
}

func benchTyped[T any](b *testing.B, name string, s Serializer[T], v T) {
	b.Run(name+"/append", func(b *testing.B) {
		var buf []byte
		cpu(b, func() {
			buf = s.Append(buf[:0], v)
		})
	})
	data := s.Append(nil, v)
	b.Run(name+"/read", func(b *testing.B) {
		cpu(b, func() {
			if _, _, err := s.Read(data); err != nil {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkHash(b *testing.B) {
	for _, c := range benchTypes(b) {
		h := NewHasher(c.typ, nil, 0)
		if _, _, err := h.KeyGroup(c.value, 128); err != nil {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			cpu(b, func() {
				if _, _, err := h.KeyGroup(c.value, 128); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
	f, err := HashFunc(String, nil)
	require.NoError(b, err)
	b.Run("typed-string", func(b *testing.B) {
		cpu(b, func() {
			_ = AssignKeyGroup(f("customer-00001234"), 128)
		})
	})
}
