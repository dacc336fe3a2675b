//go:build unix

package blobstore

import (
	"os"
	"path"

	"golang.org/x/sys/unix"
)

const (
	openFlags  = unix.O_NONBLOCK
	dirFlags   = unix.O_DIRECTORY
	canSyncDir = true
)

// unlinkFile removes a name from dir, never a directory: os.Remove would remove an
// empty one.
func unlinkFile(_ files, dir *os.File, name string) error {
	for {
		err := unix.Unlinkat(int(dir.Fd()), path.Base(name), 0)
		switch err {
		case unix.EINTR:
			continue
		case unix.EPERM, unix.EISDIR: // POSIX says EPERM of a directory, Linux EISDIR
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				return ErrIsDirectory
			}
		}
		return err
	}
}

func removeDir(_ files, dir *os.File, name string) error {
	for {
		if err := unix.Unlinkat(int(dir.Fd()), path.Base(name), unix.AT_REMOVEDIR); err != unix.EINTR {
			return err
		}
	}
}
