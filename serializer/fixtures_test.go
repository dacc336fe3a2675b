package serializer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/internal/testdata"
)

// TestFlinkFixtures reads what Flink's own upgrade tests wrote: a snapshot and a
// value per serializer and version.
func TestFlinkFixtures(t *testing.T) {
	dir := filepath.Join(testdata.Corpus(t), "serializers")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	// What a user would have to describe: the fields of a class that Kryo writes one by
	// one. The snapshot does not.
	const dog = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoPojosForMigrationTests$Dog"
	described := Classes{dog: NewPOJO(dog, Field{Name: "name", Type: NewNullable(Basic(KindString))})}
	opaque := map[string]int{}
	decoded, withClasses := 0, 0
	for _, e := range entries {
		name := e.Name()
		snap, err := os.ReadFile(filepath.Join(dir, name, "serializer-snapshot"))
		require.NoError(t, err)
		value, err := os.ReadFile(filepath.Join(dir, name, "test-data"))
		require.NoError(t, err)
		r := javaio.NewReader(snap)
		typ, err := ReadSnapshot(r)
		if err != nil {
			t.Errorf("%s: snapshot: %v", name, err)
			continue
		}
		if r.Len() != 0 {
			t.Errorf("%s: snapshot leaves %d bytes", name, r.Len())
		}
		d := NewDecoder(typ, &DecodeOptions{Strict: true})
		n, err := d.Skip(value)
		var o *OpaqueError
		if errors.As(err, &o) {
			opaque[o.Class]++
			d := NewDecoder(typ, &DecodeOptions{Strict: true, Kryo: Kryo2, Classes: described})
			if js, n, err := d.AppendJSON(nil, value); err == nil && n == len(value) {
				require.JSONEq(t, `{"@class":"`+dog+`","name":"Hasso"}`, string(js), name)
				withClasses++
			}
			if testing.Verbose() {
				t.Logf("%-60s %s", name, typ)
			}
			continue
		}
		if err != nil || n != len(value) {
			t.Errorf("%s: %s: value %x: read %d of %d: %v", name, typ, value, n, len(value), err)
			continue
		}
		decoded++
		js, m, err := d.AppendJSON(nil, value)
		require.NoError(t, err, name)
		require.Equal(t, n, m, name)
		if testing.Verbose() {
			t.Logf("%-60s %s = %.200s", name, typ, js)
		}
	}
	for class, n := range opaque {
		t.Logf("opaque: %3d of %s", n, class)
	}
	t.Logf("%d fixtures: %d values decoded to the last byte, %d more with their class described", len(entries), decoded, withClasses)
	// The others are what a class of the test itself wrote: a Value's write method, a
	// Kryo serializer of its own, and classes registered by a number that the snapshot
	// does not give.
	require.Len(t, entries, 384)
	require.Equal(t, 354, decoded)
	require.Equal(t, 10, withClasses)
	require.Equal(t, map[string]int{
		dog:                          10,
		"kryo id 11, perhaps " + dog: 5,
		"kryo id 12, perhaps " + dog: 5,
		"org.apache.flink.api.java.typeutils.runtime.ValueSerializerUpgradeTest$NameValue":         5,
		"org.apache.flink.api.java.typeutils.runtime.CopyableSerializerUpgradeTest$SimpleCopyable": 5,
	}, opaque)
}

// A Java object in a stream may come in pieces: what is cut off anywhere is short,
// not damaged, as in the operator state of Flink's JavaSerializer.
func TestJavaObjectInPieces(t *testing.T) {
	snap, err := javaio.AppendUTF([]byte{0, 0, 0, 2}, "org.apache.flink.runtime.state.JavaSerializer$JavaSerializerSnapshot")
	require.NoError(t, err)
	typ, err := ReadSnapshot(javaio.NewReader(append(snap, 0, 0, 0, 3)))
	require.NoError(t, err)
	value := append([]byte{0xac, 0xed, 0, 5, 0x74, 0, 7}, "second0"...)
	d := NewDecoder(typ, nil)
	for n := range value {
		_, err := d.Skip(value[:n])
		require.ErrorIs(t, err, ErrShort, "%d bytes", n)
	}
	js, n, err := d.AppendJSON(nil, value)
	require.NoError(t, err)
	require.Equal(t, len(value), n)
	require.Equal(t, `"second0"`, string(js))
}
