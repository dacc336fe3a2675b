package sst_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/testdata"
)

// tables yields every golden that ends in the magic of a block-based table.
func tables(t testing.TB, root string, f func(name string, data []byte)) {
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.HasSuffix(data, []byte("\xf7\xcf\xf4\x85\xb7\x41\xe2\x88")) {
			name, _ := filepath.Rel(root, path)
			f(filepath.ToSlash(name), data)
		}
		return nil
	}))
}

func TestVerifyGoldens(t *testing.T) {
	root := filepath.Join(testdata.Shared(t), "goldens", "data")
	n := 0
	tables(t, root, func(name string, data []byte) {
		if strings.Contains(name, "-merging-") {
			return // segments of merged files: package incremental reads them by their handles
		}
		n++
		report, err := sst.Verify(context.Background(), sst.Bytes(data), &sst.VerifyOptions{
			Options:       sst.Options{Name: name},
			FormatVersion: 5,
			OnDamage:      func(err error) { t.Error(err) },
		})
		require.NoError(t, err)
		require.EqualValues(t, len(data), report.Bytes)
	})
	require.Greater(t, n, 1000)
}
