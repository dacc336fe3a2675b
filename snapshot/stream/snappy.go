package stream

import (
	"errors"
	"io"

	"github.com/klauspost/compress/s2"

	"github.com/tidemark/tidemark/internal/damage"
)

// snappyIdentifier begins every stream in the snappy framing format.
const snappyIdentifier = "\xff\x06\x00\x00sNaPpY"

// snappyBlock is the most that one frame decodes to.
const snappyBlock = 64 << 10

// unframe decodes the snappy framing format with its checksums verified. The
// identifier may stand again anywhere in it. One decoder is reused: reset it.
type unframe struct {
	s2  *s2.Reader
	raw funcReader
}

func (u *unframe) reset(read func([]byte) (int, error)) func([]byte) (int, error) {
	u.raw = read
	if u.s2 == nil {
		u.s2 = s2.NewReader(u.raw, s2.ReaderMaxBlockSize(snappyBlock), s2.ReaderAllocBlock(snappyBlock))
	} else {
		u.s2.Reset(u.raw)
	}
	return u.read
}

// errCompressed is damage found by the decompressor.
var errCompressed = errors.New("snappy frames are damaged")

func (u *unframe) read(p []byte) (int, error) {
	n, err := u.s2.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case errors.Is(err, s2.ErrCorrupt), errors.Is(err, s2.ErrCRC), errors.Is(err, s2.ErrUnsupported), errors.Is(err, s2.ErrTooLarge):
		err = &frameError{err}
	}
	return n, err
}

type frameError struct{ err error }

func (e *frameError) Error() string   { return errCompressed.Error() + ": " + e.err.Error() }
func (e *frameError) Unwrap() []error { return []error{errCompressed, damage.ErrCorrupt, e.err} }
