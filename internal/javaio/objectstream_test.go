package javaio

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/testdata"
)

var rewrite = flag.Bool("rewrite", false, "write the golden texts anew")

// Streams that a real Java wrote: testdata/objects/Maker.java.
func TestObjectStreamsOfJava(t *testing.T) {
	files, err := filepath.Glob("testdata/objects/*.ser")
	require.NoError(t, err)
	require.Len(t, files, 24)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".ser"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			var text bytes.Buffer
			r, err := NewObjectReader(b)
			require.NoError(t, err)
			for {
				v, err := r.Next()
				if err == io.EOF {
					require.Equal(t, len(b), r.Offset())
					break
				}
				if err != nil {
					fmt.Fprintln(&text, "error:", err)
					break
				}
				require.NoError(t, Format(&text, v))
			}
			golden := strings.TrimSuffix(file, ".ser") + ".txt"
			if *rewrite {
				require.NoError(t, os.WriteFile(golden, text.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), text.String())
		})
	}
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/objects/" + name + ".ser")
	require.NoError(t, err)
	return b
}

func elements(t testing.TB, name string) []Value {
	t.Helper()
	v, _, err := ReadObjectStream(fixture(t, name))
	require.NoError(t, err)
	return v.(*Array).Elements()
}

func TestAnObjectEndsWhereTheNextDataBegins(t *testing.T) {
	for _, name := range []string{"null", "string", "long-string", "fields", "enum", "arrays", "cycle", "custom", "externalizable", "proxy", "jdk", "maps"} {
		b := fixture(t, name)
		_, n, err := ReadObjectStream(append(bytes.Clone(b), 0x78, 0x70, 0xff))
		require.NoError(t, err, name)
		require.Equal(t, len(b), n, name)
	}
}

func TestFieldsByNameAndType(t *testing.T) {
	v, _, err := ReadObjectStream(fixture(t, "fields"))
	require.NoError(t, err)
	o := v.(*Object)
	require.Equal(t, "Maker$Derived", o.ClassName())
	require.EqualValues(t, 13, o.Class.UID)
	same, ok := Get[int32](o, "same")
	require.True(t, ok)
	require.EqualValues(t, 2, same, "the most derived class wins")
	base, ok := o.FieldIn("Maker$Base", "same")
	require.True(t, ok)
	require.EqualValues(t, int32(1), base)
	c, _ := Get[uint16](o, "c")
	require.EqualValues(t, '€', c)
	s, _ := Get[String](o, "text")
	require.Equal(t, "derived", s.Go())
	nothing, ok := o.Field("nothing")
	require.True(t, ok)
	require.Nil(t, nothing)
	_, ok = Get[int64](o, "same")
	require.False(t, ok, "of another type")
	_, ok = o.Field("skipped")
	require.False(t, ok, "transient")
}

func TestFieldsOfAnExternalizableClassAreNotInvented(t *testing.T) {
	o := elements(t, "externalizable")[1].(*Object)
	require.Equal(t, "Maker$ExternalChild", o.ClassName())
	for _, f := range []string{"described", "same", "name"} {
		_, ok := o.Field(f)
		require.False(t, ok, f)
	}
	require.Equal(t, []Value{BlockData{0, 0, 0, 1}}, o.Annotation(""))
}

func TestListsAndMapsOfJavaUtil(t *testing.T) {
	for _, v := range elements(t, "lists") {
		got, ok := List(v)
		require.True(t, ok, "%s", v.(*Object).ClassName())
		if v.(*Object).ClassName() == "java.util.PriorityQueue" || len(got) != 2 || got[0] == String("b") {
			require.ElementsMatch(t, []Value{String("a"), String("b")}, got, "%s", v.(*Object).ClassName())
			continue
		}
		require.Equal(t, []Value{String("a"), String("b")}, got, "%s", v.(*Object).ClassName())
	}
	for i, v := range elements(t, "small-lists") {
		got, ok := List(v)
		require.True(t, ok, "%s", v.(*Object).ClassName())
		require.Len(t, got, []int{0, 1, 0, 1, 1, 0, 0}[i], "%s", v.(*Object).ClassName())
	}
	for i, v := range elements(t, "maps") {
		got, ok := MapEntries(v)
		require.True(t, ok, "%s", v.(*Object).ClassName())
		require.Len(t, got, []int{2, 4, 2, 2, 4, 0}[i], "%s", v.(*Object).ClassName())
		if len(got) == 4 {
			require.Equal(t, String("x"), got[0])
			require.Equal(t, int32(2), Unbox(got[3]))
		}
	}
	_, ok := List(elements(t, "maps")[0])
	require.False(t, ok)
	_, ok = List(nil)
	require.False(t, ok)
	want := []Value{int32(1), int64(2), int16(3), int8(4), uint16('c'), true, float32(1.5), 2.5}
	for i, v := range elements(t, "boxed") {
		require.Equal(t, want[i], Unbox(v))
	}
}

type i32 int32

// stream makes a hostile stream; an i32 becomes 4 bytes, a string UTF, bytes stay.
func stream(parts ...any) []byte {
	b := []byte{0xac, 0xed, 0, 5}
	for _, p := range parts {
		switch p := p.(type) {
		case byte:
			b = append(b, p)
		case int: // a small number is one byte of a tag
			b = append(b, byte(p))
		case rune: // a type letter
			b = append(b, byte(p))
		case i32:
			b = AppendI32(b, int32(p))
		case int64:
			b = AppendI64(b, p)
		case string:
			b, _ = AppendUTF(b, String(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func TestDamagedStreamsAreOneLine(t *testing.T) {
	class := stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull)[4:]
	cases := []struct {
		name string
		in   []byte
		want string
	}{
		{"empty", nil, "byte 0: stream header is cut off: 0 of 4 bytes: corrupt"},
		{"wrong magic", []byte("PK\x03\x04"), "byte 0: stream magic is 504b, not aced: corrupt"},
		{"wrong version", []byte{0xac, 0xed, 0, 6}, "byte 2: stream version is 6, not 5: unsupported version"},
		{"no content", stream(), "byte 4: object is missing: corrupt"},
		{"unknown type code", stream(0x6f), "byte 4: type code is 6f, which cannot stand here: corrupt"},
		{"end mark at the top", stream(tcEndBlockData), "byte 4: type code is 78, which cannot stand here: corrupt"},
		{"reference to nothing", stream(tcReference, i32(baseHandle)), "byte 5: reference is 0x7e0000, but the stream has 0 objects so far: corrupt"},
		{"negative reference", stream(tcReference, i32(-1)), "byte 5: reference is 0xffffffff, but the stream has 0 objects so far: corrupt"},
		{"string cut off", stream(tcString, 0, 5, []byte("ab")), "byte 5: string is cut off: the stream ends after 9 bytes: corrupt"},
		{"string malformed", stream(tcString, 0, 1, 0xff), "byte 5: string is damaged: malformed modified UTF-8: corrupt"},
		{"long string of 2^40", stream(tcLongString, int64(1)<<40), "byte 5: long string length is 1099511627776, but 0 bytes are left: corrupt"},
		{"long string below zero", stream(tcLongString, int64(-1)), "byte 5: long string length is -1, but 0 bytes are left: corrupt"},
		{"block of 2^31-1", stream(tcBlockLong, i32(0x7fffffff)), "byte 5: block length is 2147483647, but 0 bytes are left: corrupt"},
		{"array of 2^31-1", stream(tcArray, tcClassDesc, "[J", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(0x7fffffff)), "byte 23: array length is 2147483647, but 0 bytes are left: corrupt"},
		{"array below zero", stream(tcArray, tcClassDesc, "[J", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(-1)), "byte 23: array length is -1, but 0 bytes are left: corrupt"},
		{"array of a plain class", stream(tcArray, class, i32(0)), `byte 5: array has the class "C": corrupt`},
		{"array of no type", stream(tcArray, tcClassDesc, "[X", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(0)), `byte 23: array has the class "[X": corrupt`},
		{"65535 fields", stream(tcClassDesc, "C", int64(1), FlagSerializable, 0xff, 0xff), "byte 17: field count is 65535, but 0 bytes are left: corrupt"},
		{"field of no type", stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'X', 0, 0, 0), "byte 19: C.field type is 58: corrupt"},
		{"field of a null type", stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'L', 0, 0, tcNull), "byte 22: C.string has type code 70: corrupt"},
		{"both flags", stream(tcClassDesc, "C", int64(1), 6, 0, 0), "byte 16: class flags are 06: serializable and externalizable at once: corrupt"},
		{"object without class", stream(tcObject, tcNull), "byte 5: class descriptor is null: corrupt"},
		{"object of a string", stream(tcObject, tcString), "byte 5: class descriptor has type code 74: corrupt"},
		{"superclass is the class itself", stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcReference, i32(baseHandle)), "byte 20: class descriptor refers to itself: corrupt"},
		{"object of a class that is being described", stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 0, tcObject, tcReference, i32(baseHandle)), "byte 20: class descriptor refers to itself: corrupt"},
		{"class is an object", stream(tcObject, tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'L', "f", tcString, "LC;", tcEndBlockData, tcNull, tcObject, tcReference, i32(baseHandle+2)), "byte 33: f.class descriptor refers to something else: corrupt"},
		{"enum of a plain class", stream(tcEnum, class, tcString, "A"), `byte 5: enum constant is of "C", which is no enum: corrupt`},
		{"enum class as object", stream(tcObject, tcClassDesc, "C", int64(0), FlagSerializable|FlagEnum, 0, 0, tcEndBlockData, tcNull), "byte 5: object of an enum class is written as a plain object: corrupt"},
		{"reset inside", stream(tcObject, tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'L', "f", tcString, "LC;", tcEndBlockData, tcNull, tcReset), "byte 32: f.type code is a reset inside an object: corrupt"},
		{"block as a field", stream(tcObject, tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'L', "f", tcString, "LC;", tcEndBlockData, tcNull, tcBlockData, 0), "byte 32: f.type code is 77, which cannot stand here: corrupt"},
		{"primitive field cut off", stream(tcObject, tcClassDesc, "C", int64(1), FlagSerializable, 0, 1, 'J', "f", tcEndBlockData, tcNull, 1, 2), "byte 26: f is cut off: the stream ends after 28 bytes: corrupt"},
		{"2^31-1 interfaces", stream(tcProxyDesc, i32(0x7fffffff)), "byte 5: interface count is damaged: impossible count: corrupt"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, n, err := ReadObjectStream(c.in)
			require.EqualError(t, err, c.want)
			require.Zero(t, n)
			var e *damage.Error
			require.True(t, errors.As(err, &e))
		})
	}
}

func TestTruncationAtEveryByte(t *testing.T) {
	files, err := filepath.Glob("testdata/objects/*.ser")
	require.NoError(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		_, whole, err := ReadObjectStream(b)
		if err != nil {
			continue // aborted and protocol 1
		}
		for n := range min(whole, 4000) {
			_, _, err := ReadObjectStream(b[:n])
			require.ErrorIs(t, err, damage.ErrCorrupt, "%s cut to %d bytes", file, n)
		}
	}
}

// allocated runs f and returns the bytes it allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Streams made to need far more memory or time than they are long.
func TestBombs(t *testing.T) {
	desc := func(name string, flags byte, fields int, super ...byte) []byte {
		d := stream(tcClassDesc, name, int64(1), flags, byte(fields>>8), byte(fields))[4:]
		for range fields {
			d = append(d, 'L', 0, 0, tcReference, 0, 0x7e, 0, 0) // the signature is the first string
		}
		return append(append(d, tcEndBlockData), super...)
	}
	first := []byte{tcString, 0, 0}
	cases := map[string]func() []byte{
		"deep objects": func() []byte {
			b := stream(tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(2), first)
			b = append(b, tcObject)
			b = append(b, desc("C", FlagSerializable, 1, tcNull)...)
			return append(b, bytes.Repeat([]byte{tcObject, tcReference, 0, 0x7e, 0, 3}, 100000)...)
		},
		"deep arrays": func() []byte {
			b := stream(tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(1))
			return append(b, bytes.Repeat([]byte{tcArray, tcReference, 0, 0x7e, 0, 0, 0, 1, 0, 0}, 100000)...)
		},
		"deep class annotations": func() []byte {
			b := stream()
			return append(b, bytes.Repeat(stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 0)[4:], 50000)...)
		},
		"deep superclasses": func() []byte {
			b := stream()
			return append(b, bytes.Repeat(append(stream(tcClassDesc, "C", int64(1), FlagSerializable, 0, 0)[4:], tcEndBlockData), 50000)...)
		},
		"long chain of superclasses, by reference": func() []byte {
			b := stream(desc("C", FlagSerializable, 0, tcNull))
			for i := range 60000 {
				b = append(b, desc("C", FlagSerializable, 0, tcReference, 0, 0x7e, byte(i>>8), byte(i))...)
			}
			return b
		},
		"wide class, many objects": func() []byte {
			b := stream(first, desc("C", FlagSerializable, 20000, tcNull), tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(10000))
			return append(b, bytes.Repeat([]byte{tcObject, tcReference, 0, 0x7e, 0, 1}, 10000)...)
		},
		"arrays that claim all that is left": func() []byte {
			b := stream(tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(100000))
			for range 100000 {
				b = append(b, tcArray, tcReference, 0, 0x7e, 0, 0, 0, 0, 0xff, 0xff)
			}
			return b
		},
		"small objects": func() []byte {
			b := stream(first, desc("C", FlagSerializable|FlagWriteMethod, 1, tcNull), tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(100000))
			return append(b, bytes.Repeat([]byte{tcObject, tcReference, 0, 0x7e, 0, 1, tcNull, tcNull, tcEndBlockData}, 100000)...)
		},
		"nulls": func() []byte {
			b := stream(tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(1000000))
			return append(b, bytes.Repeat([]byte{tcNull}, 1000000)...)
		},
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			in := make()
			used := allocated(func() {
				r, err := NewObjectReader(in)
				require.NoError(t, err)
				for err == nil {
					_, err = r.Next()
				}
				t.Log(err)
			})
			// Values take 16 bytes each, and lists are grown by doubling.
			require.Less(t, used, uint64(100*len(in)+1<<20), "%d bytes of input", len(in))
			t.Logf("%.1f bytes allocated for each of %d", float64(used)/float64(len(in)), len(in))
		})
	}
}

func TestFormatEndsOnCyclesAndSharedParts(t *testing.T) {
	// Each array holds the one before twice: 2^60 leaves for who walks blindly.
	b := stream(tcArray, tcClassDesc, "[LC;", int64(1), FlagSerializable, 0, 0, tcEndBlockData, tcNull, i32(61), tcString, "leaf")
	for i := range 60 {
		ref := []byte{tcReference, 0, 0x7e, 0, byte(2 + i)}
		b = append(b, tcArray, tcReference, 0, 0x7e, 0, 0, 0, 0, 0, 2)
		b = append(append(b, ref...), ref...)
	}
	v, _, err := ReadObjectStream(b)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Format(&out, v))
	require.Less(t, out.Len(), 10000)
}

func FuzzObjectStream(f *testing.F) {
	files, err := filepath.Glob("testdata/objects/*.ser")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		if len(b) < 10000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var values []Value
		var err error
		used := allocated(func() {
			var r *ObjectReader
			r, err = NewObjectReader(b)
			for err == nil {
				var v Value
				if v, err = r.Next(); err == nil {
					values = append(values, v)
				}
			}
		})
		if used > uint64(150*len(b))+1<<20 {
			t.Fatalf("%d bytes allocated for %d of input: %v", used, len(b), err)
		}
		for _, v := range values {
			require.NoError(t, Format(io.Discard, v))
			List(v)
			MapEntries(v)
		}
		end := 0
		v, n, err1 := TraceObjectStream(b, func(from, to int, what string) {
			require.Equal(t, end, from)
			require.LessOrEqual(t, from, to)
			end = to
		})
		if err1 == nil {
			require.Equal(t, n, end)
			require.NotEmpty(t, values)
			require.IsType(t, values[0], v)
		}
		if err != io.EOF && !errors.Is(err, damage.ErrCorrupt) && !errors.Is(err, damage.ErrUnsupportedVersion) {
			t.Fatalf("%v\n%s", err, hex.Dump(b))
		}
	})
}

// Every stream that stands anywhere in the shared data: checkpoint properties,
// and what table serializers embed in their snapshots.
func TestEveryStreamInRealFiles(t *testing.T) {
	classes := map[string]int{}
	for _, dir := range []string{testdata.Shared(t) + "/goldens/data", testdata.Corpus(t)} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i := 0; ; {
				at := bytes.Index(b[i:], []byte{0xac, 0xed, 0, 5})
				if at < 0 {
					return nil
				}
				v, n, err := ReadObjectStream(b[i+at:])
				require.NoError(t, err, "%s at byte %d", path, i+at)
				require.NoError(t, Format(io.Discard, v))
				if o, ok := v.(*Object); ok {
					classes[o.ClassName()]++
				}
				i += at + n
			}
		}))
	}
	t.Log(classes)
	require.NotZero(t, classes["org.apache.flink.runtime.checkpoint.CheckpointProperties"])
	require.NotZero(t, classes["org.apache.flink.table.types.logical.BigIntType"])
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "abc", "\xc0\x80", "\xed\xa0\xbd\xed\xb8\x80", "\xed\xa0\x80", "\xe0\x80\x80", "\x00", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := String(b)
		text := s.Go()
		again := NewString(text)
		require.True(t, again.Valid(), "%q", text)
		if s.Valid() {
			require.Equal(t, text, again.Go())
			w, err := AppendUTF(nil, s)
			if len(s) > MaxStringBytes {
				require.Error(t, err)
				return
			}
			r := NewReader(w)
			require.Equal(t, s, r.UTF())
			require.NoError(t, r.Err())
			require.Zero(t, r.Len())
		}
	})
}
