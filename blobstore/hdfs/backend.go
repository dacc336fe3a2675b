package hdfs

import (
	"context"
	"io"

	"github.com/tidemark/tidemark/blobstore"
)

// backend is what the two protocols have in common and store.go builds on. Paths
// are absolute. Errors wrap the sentinels of blobstore; calls that may be repeated
// have been, as long as settings.retryFor allows.
type backend interface {
	// stat gives ErrNotExist if there is nothing.
	stat(ctx context.Context, path string) (status, error)
	// list gives the entries of a directory after one of that name, in the server's
	// order, which is that of signed bytes.
	list(ctx context.Context, dir, after string) (page, error)
	// mkdirs makes a directory and its parents, and is content with one that is there.
	mkdirs(ctx context.Context, dir string) error
	// rename replaces a file at to, or fails with ErrExist if there is anything.
	rename(ctx context.Context, from, to string, overwrite bool) error
	// remove removes a file or an empty directory and says whether there was one.
	remove(ctx context.Context, path string) (bool, error)
	// open reads the bytes from offset, length of them, to the end if negative or
	// beyond it. The status is that of the very file that is read; with a file ID
	// given, only that file will do, another is errReplaced.
	open(ctx context.Context, path string, offset, length int64, fileID uint64) (io.ReadCloser, status, error)
	// create begins a new file in a directory whose status is given; ErrExist if
	// there is one.
	create(ctx context.Context, path string, parent status) (upload, error)
	capabilities() blobstore.Capabilities
	close() error
}

// upload writes one new file. Whatever it returned, discard or finish ends it. Not
// for concurrent use.
type upload interface {
	io.Writer
	// finish makes the file complete.
	finish() error
	// discard gives up. The file may be left behind, in part.
	discard()
}
