//go:build !linux

package blobstore

import (
	"os"
	"runtime"
	"testing"
)

func usePortableDirs(bool) {} // it is the only one

// asNobody runs f, if the tests do not run with the rights of root.
func asNobody(t *testing.T, f func(), _ string) {
	t.Helper()
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("needs files that cannot be read")
	}
	f()
}
