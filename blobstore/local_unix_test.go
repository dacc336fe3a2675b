//go:build unix

package blobstore

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Nothing waits for a pipe that nobody writes to.
func TestLocalSpecialFiles(t *testing.T) {
	dir, err := os.MkdirTemp("", "blob") // a socket's path must be short
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	touch(t, dir, "a", "z")
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666))
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "zero")))
	require.NoError(t, os.Symlink("pipe", filepath.Join(dir, "to-pipe")))
	ctx := t.Context()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := openDirStore(t, dir, nil)
		require.Equal(t, []string{"a", "z"}, listed(t, s, nil))
		require.Equal(t, []string{"a", "z"}, listed(t, s, &ListOptions{Delimiter: true}))
		for _, n := range []string{"pipe", "sock", "to-pipe"} {
			_, err := s.Open(ctx, n)
			require.ErrorIs(t, err, ErrUnsupported, n)
			_, err = s.Stat(ctx, n)
			require.ErrorIs(t, err, ErrUnsupported, n)
			_, err = s.Open(ctx, n+"/x")
			require.ErrorIs(t, err, ErrNotExist, n)
			require.Empty(t, listed(t, s, &ListOptions{Prefix: n + "/"}))
			require.Empty(t, listed(t, Sub(s, n), nil), "a store opened at it")
		}
		_, err = s.Open(ctx, "pipe")
		require.EqualError(t, err, "open file:"+dir+"/pipe: is a named pipe: not supported by this store")
		pool := NewPool(nil, nil)
		loc, err := Parse(dir + "/zero")
		require.NoError(t, err)
		root, name, err := pool.Resolve(ctx, loc)
		require.NoError(t, err)
		_, err = root.Open(ctx, name)
		require.ErrorContains(t, err, "is a device")
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("hangs")
	}
}

// cpuSeconds is what the process has used, for benchmarks on a busy machine.
func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// A folder that is removed between the moment when a listing opens it and that when it
// reads it holds nothing. Linux says of such a one that it does not exist.
func TestListFolderRemovedMeanwhile(t *testing.T) {
	for _, portable := range []bool{false, true} {
		usePortableDirs(portable)
		defer usePortableDirs(false)
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "gone"), 0o777))
		root, err := os.OpenRoot(dir)
		require.NoError(t, err)
		defer root.Close()
		f, err := openDir(root, "gone")
		require.NoError(t, err)
		d := newDirReader(root, f, "gone")
		defer d.close()
		require.NoError(t, os.Remove(filepath.Join(dir, "gone")))
		w := &walker{s: openDirStore(t, dir, nil).(*localStore), ctx: t.Context(), root: root, yield: func(i Info, err error) bool {
			t.Errorf("%+v: %v", i, err)
			return true
		}}
		require.NoError(t, w.dir(d, "gone/", "", ""))
	}
}
