package incremental

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
)

func committedOptions(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "matrix", "*", "*", "db", "OPTIONS-*"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

func TestParseOptions(t *testing.T) {
	for _, p := range committedOptions(t) {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		o, err := parseOptions(filepath.Base(p), p, data)
		require.NoError(t, err)
		require.NotZero(t, o.number)
		require.Equal(t, map[string]uint32{"default": 5, "state": 5, "list": 5}, o.formatVersions)
		_, err = parseOptions("OPTIONS-000007", p, data[:len(data)/2])
		require.ErrorIs(t, err, damage.ErrCorrupt)
	}
	o, err := parseOptions("OPTIONS-000007", "", []byte("[Version]\n[TableOptions/BlockBasedTable \"a\\:b\\\\c\"]\n  format_version=6\n"))
	require.NoError(t, err)
	require.Equal(t, map[string]uint32{`a:b\c`: 6}, o.formatVersions)
}

func FuzzOptions(f *testing.F) {
	for _, p := range committedOptions(f) {
		data, err := os.ReadFile(p)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := parseOptions("OPTIONS-000007", "OPTIONS-000007", data); err != nil {
			require.ErrorIs(t, err, damage.ErrCorrupt)
		}
	})
}
