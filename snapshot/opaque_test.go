package snapshot_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// A serializer that nobody knows, of keys, namespaces, values and timers alike,
// stops nothing: what is left is read, and the rest is told of.
func TestUnknownSerializersStopNothing(t *testing.T) {
	for _, c := range testdata.Goldens(t) {
		for _, class := range []string{"LongSerializer", "StringSerializer", "VoidNamespaceSerializer", "TimerSerializer"} {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(c.Dir, "checkpoint"))))
			unknown := []byte(class[:len(class)-1] + "X")
			var snapshots []string
			require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
				if err != nil || info.IsDir() {
					return err
				}
				if info.Name() == "_metadata" {
					snapshots = append(snapshots, path)
				}
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				return os.WriteFile(path, bytes.ReplaceAll(b, []byte(class), unknown), 0o600)
			}))
			for _, path := range snapshots {
				pool := blobstore.NewPool(nil, nil)
				loc, err := blobstore.Parse(path)
				require.NoError(t, err)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				opts := &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) { require.True(t, p.Opaque, "%s, %s: %v", c.Name, class, p) }}
				for _, err := range snapshot.Rows(t.Context(), s, opts) {
					require.NoError(t, err, "%s, %s", c.Name, class)
				}
				require.NoError(t, pool.Close())
			}
		}
	}
}
