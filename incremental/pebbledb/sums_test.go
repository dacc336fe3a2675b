package pebbledb

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/testdata"
)

func exampleSums() *sums {
	return &sums{Version: sumsVersion, Engine: engineName, Format: 24, Comparer: "leveldb.BytewiseComparator", Merger: "tidemark.append.1",
		Incarnation: "9f6d3d5e-3f0c-4b8e-9a57-4f3f3d1f2a10", Checkpoint: 42, KeyGroups: [2]int{0, 63},
		Empty: []string{"marker.format-version.000001.024", "marker.manifest.000001.MANIFEST-000004"},
		Files: []sumEntry{
			{Name: "000012.sst", Size: 1234567, Sum: 0x0123456789abcdef, Incarnation: "9f6d3d5e-3f0c-4b8e-9a57-4f3f3d1f2a10", Local: "000012.sst"},
			{Name: "5b1f0a77-7c52-4a43-8f0e-2d8f4d6f9a01-000007.sst", Size: 33554432, Sum: 0xfedcba9876543210, Incarnation: "5b1f0a77-7c52-4a43-8f0e-2d8f4d6f9a01", Local: "000007.sst"},
			{Name: "MANIFEST-000004", Size: 612, Sum: 0x00ff00ff00ff00ff},
		}}
}

func TestSums(t *testing.T) {
	want := exampleSums()
	data := want.encode()
	got, err := decodeSums("PEBBLE", data)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		_, err := decodeSums("chk-42/PEBBLE", bad)
		require.ErrorIs(t, err, damage.ErrCorrupt, "byte %d", i)
		require.True(t, strings.HasPrefix(err.Error(), "chk-42/PEBBLE: byte "), err.Error())
		_, err = decodeSums("PEBBLE", data[:i])
		require.ErrorIs(t, err, damage.ErrCorrupt, "%d bytes", i)
	}
	newer := *want
	data = bytes.Replace(newer.encode(), []byte(`{"version":1,`), []byte(`{"version":2,`), 1)
	_, err = decodeSums("PEBBLE", resum(data))
	require.ErrorIs(t, err, damage.ErrUnsupportedVersion)
	require.EqualError(t, err, `PEBBLE: byte 0: version is 2 of engine "pebble": unsupported version`)
}

// resum makes the last line right.
func resum(data []byte) []byte {
	s := sums{}
	end := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	return append(bytes.Clone(data[:end]), s.lastLine(data[:end])...)
}

// The page of the format shows the file that this package writes.
func TestDocumentedSums(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testdata.Repo(t), "docs", "format", "pebble-checkpoint.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "```json\n"+string(exampleSums().encode())+"```\n")
}

func FuzzSums(f *testing.F) {
	f.Add(exampleSums().encode())
	f.Add([]byte("xxh64 ef46db3751d8e999\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, d := range [][]byte{data, resum(append(bytes.Clone(data), "\nxxh64 0123456789abcdef\n"...))} {
			s, err := decodeSums("PEBBLE", d)
			if err != nil {
				require.True(t, errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion), "%v", err)
				continue
			}
			again, err := decodeSums("PEBBLE", s.encode())
			require.NoError(t, err)
			require.Equal(t, s, again)
		}
	})
}
