package pebbledb

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// hookedFS lets something happen when a folder was listed.
type hookedFS struct {
	vfs.FS
	listed func()
}

func (h *hookedFS) List(dir string) ([]string, error) {
	names, err := h.FS.List(dir)
	h.listed()
	return names, err
}

// TestListWhileFilesArrive: a table that is fetched while a folder is listed is in the
// list, once. It would be missing in a checkpoint otherwise.
func TestListWhileFilesArrive(t *testing.T) {
	fs := &hookedFS{FS: vfs.NewMem()}
	require.NoError(t, fs.MkdirAll("/db/chk-1", 0o755))
	f, err := fs.Create("/cache", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w := newWorkFS(fs, "/db", func(error) {})
	r := newRemoteFile(t.Context(), nil, fs, "/cache", "table", sumEntry{Name: "000004.sst", Size: 1}, nil)
	w.mapRemote("/db/chk-1/000004.sst", r)
	arrived := make(chan error, 1)
	fs.listed = func() {
		done := make(chan struct{})
		go func() { arrived <- w.arrived(r); close(done) }()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // it waits until the list is made
		}
	}
	names, err := w.List("/db/chk-1")
	require.NoError(t, err)
	require.Equal(t, []string{"000004.sst"}, names)
	require.NoError(t, <-arrived)
	fs.listed = func() {}
	names, err = w.List("/db/chk-1")
	require.NoError(t, err)
	require.Equal(t, []string{"000004.sst"}, names)
	require.Nil(t, w.at("/db/chk-1/000004.sst"))
}
