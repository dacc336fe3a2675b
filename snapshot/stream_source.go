package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/metadata"
)

// objectSource is random access to one object of a store. Each ReadAt is one
// ranged read.
type objectSource struct {
	store blobstore.Store
	name  string
	size  int64
	// onRead, if not nil, is told how many bytes each read gave.
	onRead func(int64)
}

func (o *objectSource) Size() int64 { return o.size }

func (o *objectSource) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read at offset %d", off)
	}
	short := false
	if left := o.size - off; int64(len(p)) > left {
		if left <= 0 {
			return 0, io.EOF
		}
		p, short = p[:left], true
	}
	r, err := o.store.OpenRange(ctx, o.name, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	n, err = io.ReadFull(r, p)
	if o.onRead != nil {
		o.onRead(int64(n))
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return n, io.EOF // the object is shorter than it was
	case err == nil && short:
		return n, io.EOF
	}
	return n, err
}

// OpenStream gives random access to the bytes that a handle means, and a name for
// them in messages. physical asks the store for the object's size instead of
// believing the handle, as changelog files need. Errors wrap ErrRefused or a
// store error; a null handle gives a nil Source.
func (s *Snapshot) OpenStream(ctx context.Context, h metadata.StreamHandle, physical bool) (src sst.Source, name string, err error) {
	if h == nil {
		return nil, "", nil
	}
	t := s.Resolve(h)
	switch t.Kind {
	case TargetInline:
		return sst.Bytes(t.Data), s.Location.String() + " (inline)", nil
	case TargetEmpty:
		return sst.Bytes(nil), "(empty segment)", nil
	case TargetRefused:
		return nil, "", t.Refused
	}
	if t.Kind == TargetObject && !physical {
		if src, name := s.copies.open(ctx, s.pool, t.Location, t.Length); src != nil {
			return src, name, nil
		}
	}
	name = t.Location.String()
	store, path, err := s.pool.Resolve(ctx, t.Location)
	if err != nil {
		return nil, name, err
	}
	size := t.Length
	if t.Kind == TargetSegment {
		size += t.Start
	}
	if size < 0 || physical {
		info, err := store.Stat(ctx, path)
		if err != nil {
			return nil, name, err
		}
		if size = info.Size; t.Kind == TargetSegment {
			size = t.Start + t.Length
		}
	}
	src = &objectSource{store: store, name: path, size: size, onRead: s.onRead}
	if t.Kind == TargetSegment {
		src = sst.Section(src, t.Start, t.Length)
	}
	return src, name, nil
}
