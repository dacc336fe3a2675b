//go:build !linux

package blobstore

import "os"

func newDirReader(root files, f *os.File, name string) dirReader {
	return &portableDir{root, f, name}
}
