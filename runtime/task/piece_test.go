package task

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// short is an object of fewer bytes than its handle says.
type short struct {
	b     []byte
	asked int // largest read
}

func (*short) Size() int64 { return 1 << 40 }

func (s *short) ReadAt(_ context.Context, b []byte, at int64) (int, error) {
	s.asked = max(s.asked, len(b))
	if at+int64(len(b)) > int64(len(s.b)) {
		return 0, io.ErrUnexpectedEOF
	}
	return copy(b, s.b[at:]), nil
}

// A piece takes no more memory than a few times what its object has.
func TestPieceOfAShortObject(t *testing.T) {
	src := &short{b: bytes.Repeat([]byte("raw state"), 400_000)}
	e := &Env{Context: t.Context()}
	b, err := e.piece(src, "object", 9, int64(len(src.b)))
	require.NoError(t, err)
	require.Equal(t, src.b[9:], b)
	b, err = e.piece(src, "object", 7, 7)
	require.NoError(t, err)
	require.Equal(t, []byte{}, b)
	src.asked = 0
	_, err = e.piece(src, "object", 0, 1<<30)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, src.asked, 2*len(src.b))
}
