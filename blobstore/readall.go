package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge says that an object is larger than its reader is ready to hold.
var ErrTooLarge = errors.New("larger than the limit")

// ReadAll reads an object of at most limit bytes; a larger one is ErrTooLarge,
// before any of it is read.
func ReadAll(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	fail := func(err error) error { return &Error{Op: "read", URL: joinURL(s.URL(), name), Err: err} }
	size := r.Info().Size
	if size > limit {
		return nil, fail(fmt.Errorf("%d bytes: %w of %d", size, ErrTooLarge, limit))
	}
	b := make([]byte, size)
	n, err := io.ReadFull(r, b)
	if err == io.ErrUnexpectedEOF || err == io.EOF && size > 0 {
		return nil, fail(fmt.Errorf("ended after %d of %d bytes: %w", n, size, io.ErrUnexpectedEOF))
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	// Whatever the store has more of than it said is not dropped silently.
	if n, err := io.ReadFull(r, make([]byte, 1)); n != 0 {
		return nil, fail(fmt.Errorf("goes on after its %d bytes: %w", size, ErrDataCorrupt))
	} else if err != io.EOF {
		return nil, err
	}
	return b, nil
}

// WriteAll creates an object of data.
func WriteAll(ctx context.Context, s Store, name string, data []byte, opts *WriteOptions) error {
	var o WriteOptions
	if opts != nil {
		o = *opts
	}
	if o.SizeHint == 0 {
		o.SizeHint = int64(len(data))
	}
	w, err := s.Create(ctx, name, &o)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Commit()
}
