package incremental

import (
	"context"
	"io"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
)

// BlobSource reads length bytes at off of a blob: a whole file, or a segment of a
// merged one. Each read is one OpenRange of the store.
func BlobSource(store blobstore.Store, name string, off, length int64) sst.Source {
	return blobSource{store, name, off, length}
}

type blobSource struct {
	store       blobstore.Store
	name        string
	off, length int64
}

func (s blobSource) Size() int64 { return s.length }

func (s blobSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r, err := s.store.OpenRange(ctx, s.name, s.off+off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := io.ReadFull(r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}
