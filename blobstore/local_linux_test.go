package blobstore

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func usePortableDirs(yes bool) { portableDirs = yes }

// asNobody runs f without the rights of root, if the tests have them, and gives it
// the files below dir.
func asNobody(t *testing.T, f func(), dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	for p := dir; p != "/" && p != os.TempDir(); p = filepath.Dir(p) {
		require.NoError(t, os.Chmod(p, 0o755))
	}
	require.NoError(t, filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, nobody, nobody)
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestLocalDeepDirectories(t *testing.T) {
	dir := t.TempDir()
	s := openDirStore(t, dir, nil)
	deep := ""
	for range 100 {
		deep += "d/"
	}
	require.NoError(t, WriteAll(t.Context(), s, deep+"x", []byte("x"), nil))
	require.Equal(t, []string{deep + "x"}, listed(t, s, nil))
}
