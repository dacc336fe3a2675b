package blobstore

import (
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// renameNoReplace gives temp its name unless that exists; both lie in dir.
func renameNoReplace(root files, dir *os.File, temp, name string) error {
	err := unix.RenameatxNp(int(dir.Fd()), path.Base(temp), int(dir.Fd()), path.Base(name), unix.RENAME_EXCL)
	switch err {
	case unix.EINVAL, unix.ENOSYS, unix.ENOTSUP: // a file system without it
		return linkNoReplace(root, temp, name)
	}
	return err
}

func inode(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
