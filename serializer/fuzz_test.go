package serializer

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
)

// knownError fails for an error that is no sentinel of this package's callers.
func knownError(t *testing.T, err error) {
	t.Helper()
	var o *OpaqueError
	var u *UnknownError
	if errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion) || errors.Is(err, ErrShort) || errors.As(err, &o) || errors.As(err, &u) {
		return
	}
	t.Fatalf("unexpected kind of error: %v", err)
}

// readEveryWay reads b as a value of typ in every way, and checks that they agree.
func readEveryWay(t *testing.T, typ *Type, b []byte, schemaBytes int) {
	t.Helper()
	for _, opts := range []DecodeOptions{{}, {Strict: true}, {Framed: true}, {Kryo: Kryo2}, {Kryo: Kryo5, Framed: true}} {
		d := NewDecoder(typ, &opts)
		n, err := d.Skip(b)
		if err != nil {
			knownError(t, err)
		} else if n < 0 || n > len(b) {
			t.Fatalf("%s: skipped %d of %d bytes", typ, n, len(b))
		}
		js, m, jerr := d.AppendJSON([]byte("x"), b)
		if (err == nil) != (jerr == nil) {
			t.Fatalf("%s %+v: Skip says %v, AppendJSON %v", typ, opts, err, jerr)
		}
		if err != nil {
			if string(js) != "x" {
				t.Fatalf("%s: dst is not as it was after %v", typ, jerr)
			}
			if errors.Is(err, ErrShort) != errors.Is(jerr, ErrShort) {
				t.Fatalf("%s %+v: Skip says %v, AppendJSON %v", typ, opts, err, jerr)
			}
			continue
		}
		if n != m {
			t.Fatalf("%s %+v: Skip reads %d bytes, AppendJSON %d", typ, opts, n, m)
		}
		if !json.Valid(js[1:]) {
			t.Fatalf("%s: not JSON: %.300s", typ, js)
		}
		// Each part of the value takes a byte or counts as empty, and prints its own
		// names at the most. References of Kryo and overlaps are bounded too.
		if most := 64 * (len(b) + 64) * (schemaBytes + 64); len(js) > max(most, 64<<20) {
			t.Fatalf("%s: %d bytes of JSON of a value of %d", typ, len(js), len(b))
		}
		v, m, verr := d.Decode(b)
		if verr != nil || n != m {
			t.Fatalf("%s: Skip reads %d bytes, Decode %d: %v", typ, n, m, verr)
		}
		again, err := typ.AppendValue(nil, v)
		if err != nil {
			continue // opaque parts, nulls that the type does not write
		}
		if _, m, err := NewDecoder(typ, nil).AppendJSON(nil, again); err != nil || m != len(again) {
			t.Fatalf("%s: what was decoded and written again: read %d of %d: %v", typ, m, len(again), err)
		}
	}
	h := NewHasher(typ, nil, 0)
	if _, n, err := h.HashCode(b); err == nil && (n < 0 || n > len(b)) {
		t.Fatalf("%s: hashed %d of %d bytes", typ, n, len(b))
	}
}

func seedFixtures(f *testing.F, add func(snapshot, value []byte)) {
	m := maker{rand.New(rand.NewPCG(1, 2))}
	for range 100 {
		typ := m.typ(2)
		raw, err := typ.AppendSnapshot(nil)
		require.NoError(f, err)
		b, err := typ.AppendValue(nil, m.value(typ))
		require.NoError(f, err)
		add(raw, b)
	}
	if dir := os.Getenv(testdata.SharedEnv); dir != "" {
		snaps, err := filepath.Glob(filepath.Join(dir, "corpus", "flink", "serializers", "*-1.1[69]", "serializer-snapshot"))
		require.NoError(f, err)
		for _, s := range snaps {
			a, err := os.ReadFile(s)
			require.NoError(f, err)
			b, err := os.ReadFile(filepath.Join(filepath.Dir(s), "test-data"))
			require.NoError(f, err)
			add(a, b)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	seedFixtures(f, func(snapshot, value []byte) { f.Add(snapshot, value) })
	f.Fuzz(func(t *testing.T, snapshot, value []byte) {
		if len(snapshot) > 1<<14 || len(value) > 1<<12 {
			return
		}
		r := javaio.NewReader(snapshot)
		typ, err := ReadSnapshot(r)
		if err != nil {
			knownError(t, err)
			if typ == nil {
				return
			}
		}
		if s := typ.String(); len(s) > 64*(len(snapshot)+64) {
			t.Fatalf("%d bytes of words for a snapshot of %d", len(s), len(snapshot))
		}
		_ = typ.Words()
		if err == nil {
			raw, err := typ.AppendSnapshot(nil)
			require.NoError(t, err)
			if string(raw) != string(snapshot[:r.Offset()]) {
				t.Fatalf("%s: %x became %x", typ, snapshot[:r.Offset()], raw)
			}
			if c := Compat(typ, typ, nil); c.Verdict != AsIs && c.Verdict != Undecided && c.Verdict != Incompatible {
				t.Fatalf("%s is to itself %s", typ, c)
			}
		}
		readEveryWay(t, typ, value, len(snapshot))
	})
}

func FuzzValue(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	for i := range 64 {
		typ := fuzzType(uint64(i))
		b, err := typ.AppendValue(nil, m.value(typ))
		require.NoError(f, err)
		f.Add(uint64(i), b)
	}
	f.Fuzz(func(t *testing.T, seed uint64, value []byte) {
		if len(value) > 1<<12 {
			return
		}
		typ := fuzzType(seed % 4096)
		readEveryWay(t, typ, value, 4096)
	})
}

// fuzzType is one of some thousand types.
func fuzzType(seed uint64) *Type {
	m := maker{rand.New(rand.NewPCG(5, seed))}
	if seed%4 == 0 {
		return m.columnType(3)
	}
	return m.typ(3)
}

func FuzzKryo(f *testing.F) {
	for _, s := range []string{
		"540100000000000000000000000000000000", "5401020104", "010000", "00", "03010374686973", "010001" + "6a6176612e7574696c2e41727261794c6973f4" + "01" + "02" + "0301026161" + "0302",
		"01006a6176612e7574696c2e486173684d61f0" + "01" + "01" + "0301826162" + "0214",
		"01006a6176612e7574696c2e41727261794c6973f4" + "01" + "82" + "03" + "00" + "0161e2" + "02",
	} {
		f.Add(mustHex(s))
	}
	classes := Classes{}
	for _, words := range []string{"enum:E<A,B>", "pojo:C<a int, b long?, c string, d bytes, e list<string>, f map<string,int>, g enum:E, h double>"} {
		typ, err := ParseType(words, classes)
		require.NoError(f, err)
		classes[typ.JavaClass] = typ
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<12 {
			return
		}
		typ := (&Type{Kind: KindDynamic, enc: encKryo, JavaClass: "java.lang.Object", Kryo: &KryoConfig{Registrations: []KryoRegistration{{Class: "java.lang.Object"}, {Class: "C"}, {Class: "E"}}}}).finish()
		readEveryWay(t, typ, b, 256)
		for _, version := range []KryoVersion{Kryo2, Kryo5} {
			d := NewDecoder(typ, &DecodeOptions{Kryo: version, Classes: classes, Framed: true})
			n, err := d.Skip(b)
			js, m, jerr := d.AppendJSON(nil, b)
			if (err == nil) != (jerr == nil) || n != m && err == nil {
				t.Fatalf("Skip says %d %v, AppendJSON %d %v", n, err, m, jerr)
			}
			if err == nil && !json.Valid(js) {
				t.Fatalf("not JSON: %.300s", js)
			}
			if len(js) > 1<<26 {
				t.Fatalf("%d bytes of JSON of a value of %d", len(js), len(b))
			}
		}
	})
}

func FuzzAvro(f *testing.F) {
	m := maker{rand.New(rand.NewPCG(7, 8))}
	for range 50 {
		s := m.schema(3)
		typ, err := ParseAvroSchema(s)
		require.NoError(f, err)
		b, err := typ.AppendValue(nil, m.value(typ))
		require.NoError(f, err)
		f.Add(s, b)
	}
	f.Add(`{"type":"record","name":"R","fields":[{"name":"next","type":["null","R"]}]}`, []byte{0, 0, 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, schema string, b []byte) {
		if len(schema) > 1<<12 || len(b) > 1<<12 {
			return
		}
		typ, err := ParseAvroSchema(schema)
		if err != nil {
			require.ErrorIs(t, err, damage.ErrCorrupt)
			return
		}
		if s := typ.String(); len(s) > 1<<24 {
			t.Fatalf("%d bytes of words", len(s))
		}
		compatAvro(schema, schema)
		readEveryWay(t, typ, b, 1<<12)
	})
}

func FuzzMeta(f *testing.F) {
	void, long, str := Basic(KindVoidNamespace), Basic(KindLong), Basic(KindString)
	u := foreign("com.example.X", 3, 1, 2, 3)
	for _, key := range []*Type{str, u} {
		b, err := (&KeyedBackendMeta{Key: key, States: []StateMeta{NewKeyedState("a", "VALUE", void, long), NewKeyedState("b", "MAP", void, u), NewTimerState("t", NewTimer(str, void))}}).Append(nil)
		require.NoError(f, err)
		f.Add(b)
	}
	b, err := (&OperatorBackendMeta{Version: 6, Lists: []StateMeta{NewListState("l", true, u)}, Broadcasts: []StateMeta{NewBroadcastState("b", str, long)}}).Append(nil)
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<14 {
			return
		}
		r := javaio.NewReader(b)
		if m, err := ReadKeyedBackendMeta(r); err != nil {
			knownError(t, err)
		} else if !m.Open && m.Version == 6 {
			// Bytes may change where Java reads more than it writes: a boolean other than
			// 0 and 1, a raw NUL in a name. What they say must not.
			again, err := m.Append(nil)
			require.NoError(t, err)
			m2, err := ReadKeyedBackendMeta(javaio.NewReader(again))
			require.NoError(t, err)
			require.Equal(t, m.Key.String(), m2.Key.String())
			sameStates(t, m.States, m2.States)
		}
		r = javaio.NewReader(b)
		if m, err := ReadOperatorBackendMeta(r); err != nil {
			knownError(t, err)
		} else if !m.Open {
			if again, err := m.Append(nil); err == nil {
				m2, err := ReadOperatorBackendMeta(javaio.NewReader(again))
				require.NoError(t, err)
				sameStates(t, m.Lists, m2.Lists)
				sameStates(t, m.Broadcasts, m2.Broadcasts)
			}
		}
		if m, _, err := ReadStateMeta(javaio.NewReader(b)); err != nil {
			knownError(t, err)
		} else {
			_ = m.TTL()
			m.MapTypes()
			m.Element()
		}
	})
}

func sameStates(t *testing.T, a, b []StateMeta) {
	t.Helper()
	require.Len(t, b, len(a))
	for i := range a {
		require.Equal(t, a[i].Name, b[i].Name)
		require.Equal(t, a[i].Kind, b[i].Kind)
		require.Equal(t, a[i].Options, b[i].Options)
		require.Len(t, b[i].Serializers, len(a[i].Serializers))
		for k, s := range a[i].Serializers {
			require.Equal(t, s.Key, b[i].Serializers[k].Key)
			require.Equal(t, s.Type.String(), b[i].Serializers[k].Type.String())
		}
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"long", "map<string,list<int>>", "row<a:int,b string>", "pojo:C<a int?>", "enum:E<A,B>", `avro<{"type":"record","name":"R","fields":[]}>`, "int[]", "array<tuple<long>>", "ttl<timer<long,voidnamespace>>"} {
		f.Add(s, `[1,"a",null,{"x":1}]`)
	}
	f.Fuzz(func(t *testing.T, words, text string) {
		if len(words) > 1<<10 || len(text) > 1<<10 {
			return
		}
		typ, err := ParseType(words, nil)
		if err != nil {
			return
		}
		if again, err := ParseType(typ.String(), Classes{}); err == nil && again.String() != typ.String() {
			t.Fatalf("%s became %s", typ, again)
		}
		b, err := typ.AppendFromJSON(nil, []byte(text))
		if err != nil {
			var e *EncodeError
			require.ErrorAs(t, err, &e)
			return
		}
		if n, err := NewDecoder(typ, nil).Skip(b); err != nil || n != len(b) {
			t.Fatalf("%s of %s: %x: %d %v", typ, text, b, n, err)
		}
	})
}

func FuzzConnectors(f *testing.F) {
	f.Add(int32(0), join("orders", 3, int64(42), int64(-1<<63)))
	f.Add(int32(1), join(1, "1", int64(5), int64(9)))
	f.Fuzz(func(t *testing.T, version int32, data []byte) {
		if len(data) > 1<<12 {
			return
		}
		for c := range connectors {
			js, err := c.AppendJSON(nil, Versioned{version, data})
			if err != nil {
				knownError(t, err)
			} else if !json.Valid(js) {
				t.Fatalf("%s: not JSON: %s", c, js)
			}
		}
		Versioned{version, data}.Guess(append(append([]Connector{}, SplitConnectors...), EnumeratorConnectors...)...)
	})
}
