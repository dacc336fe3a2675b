package incremental

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
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

// TestFlippedOptions flips a bit in each byte of OPTIONS files; of a line that is there again,
// for another column family or in another version's file, in one byte. What is not found is
// a digit of a number of the database or the name of its host or path: these are told by
// the file of another subtask, but for the path.
func TestFlippedOptions(t *testing.T) {
	seen := map[string]bool{} // lines
	for _, p := range committedOptions(t) {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		choose := map[int]bool{}
		at := 0
		for line := range bytes.Lines(data) {
			for i := range line {
				choose[at+i] = !seen[string(line)] || i == at%len(line)
			}
			seen[string(line)] = true
			at += len(line)
		}
		families := []string{"default", "state", "list"}
		require.Empty(t, checkOptions(p, data, families))
		unseen, only := 0, 0
		for bit := range 8 * len(data) {
			if bit%8 != bit/8*5%8 || !choose[bit/8] || testing.Short() && bit/8%10 > 0 {
				continue
			}
			data[bit/8] ^= 1 << (bit % 8)
			_, err := parseOptions(filepath.Base(p), p, data)
			if err == nil && len(checkOptions(p, data, families)) == 0 {
				unseen++
				good := bytes.Clone(data)
				good[bit/8] ^= 1 << (bit % 8)
				if _, _, differ := CompareOptions(good, data); !differ {
					only++
					line := data[bytes.LastIndexByte(data[:bit/8], '\n')+1:]
					line = line[:bytes.IndexByte(line, '\n')]
					name, _, _ := strings.Cut(string(line), "=")
					if name = strings.TrimSpace(name); name != "wal_dir" && name != "rocksdb_version" {
						t.Errorf("%s: bit %d of byte %d: %s", p, bit%8, bit/8, line)
					}
				}
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
		t.Logf("%s: %d bits are told by another file alone, %d by nothing", p, unseen, only)
	}
}
