package pebbledb

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
)

// handleFiles are the files of a handle for reading.
func handleFiles(t testing.TB, o *objects, h *metadata.IncrementalHandle) []incremental.File {
	var files []incremental.File
	for _, list := range [][]metadata.NamedHandle{h.Private, h.Shared} {
		for _, n := range list {
			src, err := o.open(t.Context(), n.Handle)
			require.NoError(t, err)
			files = append(files, incremental.File{Name: n.Name.Go(), Source: src})
		}
	}
	return files
}

func TestOpenReadOnly(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	put(t, d, 0, 3000, 1)
	up := snap(t, d, 1, o)
	require.NoError(t, d.Close())
	files := handleFiles(t, o, up.Handle)
	require.True(t, IsCheckpoint(files))
	r, err := OpenReadOnly(t.Context(), p, files, &ReadOnlyOptions{Name: "chk-1"})
	require.NoError(t, err)
	it, err := r.Pebble().NewIter(nil)
	require.NoError(t, err)
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	require.NoError(t, it.Error())
	require.NoError(t, it.Close())
	require.Equal(t, 3000, n)
	require.Equal(t, fmt.Sprintf("value %d of %d", 77, 1), get(t, r.Pebble(), 77))
	require.NoError(t, r.Close())
}
