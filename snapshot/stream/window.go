package stream

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

const (
	firstRead   = 32 << 10 // bytes of a window's first read
	largestRead = 1 << 20  // reads double up to this
)

// errShort says that a window ended inside something.
var errShort = io.ErrUnexpectedEOF

// window is a sliding buffer over a byte stream. The bytes it gives out lie in
// one piece and stay valid until the next call that fills it. It grows only by
// bytes that have arrived, so a hostile length costs nothing.
type window struct {
	read func(p []byte) (int, error) // fills from the stream; io.EOF at its end
	// base is the stream offset of buf[0].
	base     int64
	buf      []byte
	pos, end int
	chunk    int
	eof      bool
	err      error // a read error; io.EOF is eof
}

// buffers keeps windows between readers, so that a scan of many small parts makes
// no garbage.
var buffers = sync.Pool{}

// largestKept bounds a buffer that is kept.
const largestKept = 4 << 20

// release gives the buffer back; the slices given out become invalid.
func (w *window) release() {
	if cap(w.buf) > 0 && cap(w.buf) <= largestKept {
		b := w.buf[:cap(w.buf)]
		buffers.Put(&b)
	}
	*w = window{eof: true}
}

// reset makes w read a new stream whose first byte has the offset base.
func (w *window) reset(read func([]byte) (int, error), base int64) {
	*w = window{read: read, base: base, buf: w.buf, chunk: firstRead}
	if w.buf == nil {
		if b, ok := buffers.Get().(*[]byte); ok {
			w.buf = *b
		}
	}
}

// offset is the stream offset of the next byte.
func (w *window) offset() int64 { return w.base + int64(w.pos) }

// buffered is what has arrived and not been consumed.
func (w *window) buffered() []byte { return w.buf[w.pos:w.end] }

// fill reads more; false at the end of the stream or on an error.
func (w *window) fill() bool {
	if w.eof || w.err != nil {
		return false
	}
	if w.pos > 0 && (w.pos == w.end || len(w.buf)-w.end < w.chunk) {
		copy(w.buf, w.buf[w.pos:w.end])
		w.base += int64(w.pos)
		w.end -= w.pos
		w.pos = 0
	}
	if len(w.buf)-w.end < w.chunk {
		grown := make([]byte, max(2*len(w.buf), w.end+w.chunk))
		copy(grown, w.buf[:w.end])
		w.buf = grown
	}
	for tries := 0; ; tries++ {
		n, err := w.read(w.buf[w.end:min(len(w.buf), w.end+w.chunk)])
		w.end += n
		switch {
		case errors.Is(err, io.EOF):
			w.eof = true
		case err != nil:
			w.err = err
		}
		if n > 0 {
			w.chunk = min(2*w.chunk, largestRead)
			return true
		}
		if err != nil {
			return false
		}
		if tries == 100 {
			w.err = io.ErrNoProgress
			return false
		}
	}
}

// need makes at least n bytes buffered. Its error is errShort at the end of the
// stream or the read error.
func (w *window) need(n int) error {
	for w.end-w.pos < n {
		if !w.fill() {
			if w.err != nil {
				return w.err
			}
			return errShort
		}
	}
	return nil
}

// atEnd reports whether nothing is left; a read error counts as left, and shows
// at the next need.
func (w *window) atEnd() bool {
	return w.pos == w.end && !w.fill() && w.err == nil
}

// damaged makes a damage error at the given stream offset.
func damaged(name string, offset int64, field, detail string) error {
	return &damage.Error{Name: name, Offset: offset, Field: field, Detail: detail, Err: damage.ErrCorrupt}
}

// readFailed turns an error of need into one with coordinates: the end of the
// stream is damage, anything else is passed on.
func readFailed(name string, offset int64, field string, err error) error {
	if errors.Is(err, errShort) {
		return damaged(name, offset, field, "ends early")
	}
	return &damage.Error{Name: name, Offset: offset, Field: field, Err: err}
}

// sequential reads bytes [from, to) of src one after the other.
func sequential(ctx context.Context, src sst.Source, from, to int64) func([]byte) (int, error) {
	off := from
	return func(p []byte) (int, error) {
		if off >= to {
			return 0, io.EOF
		}
		if int64(len(p)) > to-off {
			p = p[:to-off]
		}
		n, err := src.ReadAt(ctx, p, off)
		off += int64(n)
		if errors.Is(err, io.EOF) && n > 0 {
			err = nil
		}
		return n, err
	}
}

// funcReader makes a reader of a read function.
type funcReader func([]byte) (int, error)

func (f funcReader) Read(p []byte) (int, error) { return f(p) }
