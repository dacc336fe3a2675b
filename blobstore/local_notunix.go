//go:build !unix

package blobstore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const (
	openFlags  = 0
	dirFlags   = 0
	canSyncDir = false // directories cannot be flushed there; NTFS journals them
)

func renameNoReplace(root files, _ *os.File, temp, name string) error {
	return linkNoReplace(root, temp, name)
}

func inode(fs.FileInfo) uint64 { return 0 }

// unlinkFile removes a file, never a directory. Between the two steps another
// process could put an empty directory there; nothing of value can be lost by it.
func unlinkFile(root files, _ *os.File, name string) error {
	fi, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return ErrIsDirectory
	}
	return root.Remove(name)
}

func removeDir(root files, _ *os.File, name string) error {
	fi, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return syscall.ENOTDIR
	}
	err = root.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return ErrNotEmpty
	}
	return err
}
