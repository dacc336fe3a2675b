package export_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/export"
)

func golden(t testing.TB) *snapshot.Snapshot {
	c := testdata.Golden(t, "f120-rocksdb-chain")
	return open(t, c.File(c.Snapshots[len(c.Snapshots)-1].Path))
}

func TestSameFileTwice(t *testing.T) {
	s := golden(t)
	for _, f := range []export.Format{export.Parquet, export.Arrow, export.ArrowStream} {
		var first []byte
		for workers := 1; workers <= 4; workers++ {
			name := filepath.Join(t.TempDir(), "x")
			scan := &snapshot.ScanOptions{Workers: workers, State: func(s *snapshot.State) bool { return s.Name == "state.text" }}
			require.NoError(t, export.ToFile(t.Context(), s, name, &export.Options{Format: f, Scan: scan}))
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			if first == nil {
				first = b
			}
			require.Equal(t, first, b, "%d workers", workers)
		}
	}
}

func TestLimit(t *testing.T) {
	s := golden(t)
	name := filepath.Join(t.TempDir(), "x")
	scan := &snapshot.ScanOptions{State: func(s *snapshot.State) bool { return s.Name == "state.text" }}
	require.NoError(t, export.ToFile(t.Context(), s, name, &export.Options{Scan: scan, Limit: 3}))
	require.Len(t, readParquet(t, name).rows, 3)
}

func TestOneStateForAFile(t *testing.T) {
	s := golden(t)
	dir := t.TempDir()
	require.ErrorIs(t, export.ToFile(t.Context(), s, filepath.Join(dir, "x"), nil), export.ErrStates)
	none := &snapshot.ScanOptions{State: func(*snapshot.State) bool { return false }}
	require.ErrorIs(t, export.ToFile(t.Context(), s, filepath.Join(dir, "x"), &export.Options{Scan: none}), export.ErrStates)
	requireEmpty(t, dir)
}

// TestNothingHalfWritten interrupts an export after some rows: neither files nor their folder stay.
func TestNothingHalfWritten(t *testing.T) {
	s := golden(t)
	for _, stop := range []int{0, 1, 100} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		opts := &export.Options{Scan: &snapshot.ScanOptions{Workers: 1}, Match: func(int) func(*snapshot.StateRow) bool {
			return func(*snapshot.StateRow) bool {
				if n++; n > stop {
					cancel()
				}
				return true
			}
		}}
		_, err := export.ToDir(ctx, s, filepath.Join(dir, "out"), opts)
		require.ErrorIs(t, err, context.Canceled)
		requireEmpty(t, dir)
		_, err = export.ToDir(ctx, s, dir, opts)
		require.ErrorIs(t, err, context.Canceled)
		requireEmpty(t, dir)
	}
}

func requireEmpty(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
