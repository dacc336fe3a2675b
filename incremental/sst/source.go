package sst

import (
	"context"
	"fmt"
	"io"
)

// Source is random access to one immutable file: a local file, a blob, a segment
// of a merged file or bytes in memory. It may be used by many goroutines.
type Source interface {
	// ReadAt fills p from offset off. As with io.ReaderAt it returns an error,
	// io.EOF at the end of the file, whenever it reads less than len(p).
	ReadAt(ctx context.Context, p []byte, off int64) (int, error)
	// Size is the file's length in bytes.
	Size() int64
}

// slicer is a Source that already has its bytes in memory, so that nothing
// needs to be copied.
type slicer interface {
	slice(off, n int64) []byte
}

// Bytes is a Source over b, which must not change while it is used.
func Bytes(b []byte) Source { return bytesSource(b) }

type bytesSource []byte

func (b bytesSource) Size() int64 { return int64(len(b)) }

func (b bytesSource) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at offset %d", off)
	}
	if off >= int64(len(b)) {
		return 0, io.EOF
	}
	n := copy(p, b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (b bytesSource) slice(off, n int64) []byte { return b[off : off+n : off+n] }

// ReaderAt is a Source over r, such as an *os.File, of the given size. The
// context is looked at before each read.
func ReaderAt(r io.ReaderAt, size int64) Source { return readerAtSource{r, size} }

type readerAtSource struct {
	r    io.ReaderAt
	size int64
}

func (s readerAtSource) Size() int64 { return s.size }

func (s readerAtSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.ReadAt(p, off)
}

// Section is the part of src that starts at off and is n bytes long: a segment
// of a merged file. A part that src does not hold fails when it is read.
func Section(src Source, off, n int64) Source {
	if b, ok := src.(bytesSource); ok && off >= 0 && n >= 0 && off <= int64(len(b)) && n <= int64(len(b))-off {
		return b[off : off+n : off+n]
	}
	return sectionSource{src, off, n}
}

type sectionSource struct {
	src    Source
	off, n int64
}

func (s sectionSource) Size() int64 { return s.n }

func (s sectionSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 || s.off < 0 {
		return 0, fmt.Errorf("read at offset %d of a section at %d", off, s.off)
	}
	if off >= s.n {
		return 0, io.EOF
	}
	var short bool
	if int64(len(p)) > s.n-off {
		p, short = p[:s.n-off], true
	}
	n, err := s.src.ReadAt(ctx, p, s.off+off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}
