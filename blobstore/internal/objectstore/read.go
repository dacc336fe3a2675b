package objectstore

import (
	"context"
	"io"

	"github.com/tidemark/tidemark/blobstore"
)

// NewReader is a blobstore.Reader over the body of an answer. fail makes a driver's
// error of what the body ends in, other than io.EOF. The caller owns the Reader.
func NewReader(ctx context.Context, info blobstore.Info, body io.ReadCloser, fail func(err error) error) blobstore.Reader {
	return &reader{ctx: ctx, info: info, body: body, fail: fail}
}

type reader struct {
	ctx  context.Context
	info blobstore.Info
	body io.ReadCloser
	fail func(error) error
	err  error // the end, or what broke it off
}

func (r *reader) Info() blobstore.Info { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.ctx.Err() != nil { // a buffered body would go on
		r.err = r.fail(context.Cause(r.ctx))
		return 0, r.err
	}
	n, err := r.body.Read(p)
	if err != nil {
		if err != io.EOF {
			err = r.fail(err)
		}
		r.err = err
	}
	return n, err
}

// Close cuts off what has not been read.
func (r *reader) Close() error {
	r.body.Close() // its error, of a connection not wanted any more, is nobody's
	r.err = r.fail(blobstore.ErrClosed)
	return nil
}
