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
	opaque := map[string]int{}
	decoded := 0
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
	t.Logf("%d fixtures: %d values decoded to the last byte", len(entries), decoded)
}
