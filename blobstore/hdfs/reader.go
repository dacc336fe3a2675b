package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

func (s *store) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *store) OpenRange(ctx context.Context, name string, offset, length int64) (blobstore.Reader, error) {
	r, err := s.openRange(ctx, name, offset, length)
	if err != nil {
		return nil, s.fail("open", name, err)
	}
	return r, nil
}

func (s *store) openRange(ctx context.Context, name string, offset, length int64) (*reader, error) {
	if err := s.begin(name, blobstore.ValidName); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("negative offset %d", offset)
	}
	body, st, err := s.b.open(ctx, "/"+name, offset, length, 0)
	if errors.Is(err, errNotDirectory) {
		err = blobstore.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return &reader{s: s, ctx: ctx, name: name, st: st, body: body, at: offset, end: offset + remaining(st.size, offset, length)}, nil
}

// reader reads a range of an object. A connection that breaks, or an answer that
// ends early, is made good by opening the same file again where it stopped: never
// another file that has meanwhile got the name.
type reader struct {
	s    *store
	ctx  context.Context
	name string
	st   status

	body  io.ReadCloser // nil after a failure, until it is opened again
	at    int64         // offset of the next byte
	end   int64         // offset after the last byte
	since int64         // bytes read since it was opened (again)
	tries int           // in a row that gave less than enoughBytes
	err   error         // of the last failure, or final
	final bool
}

const (
	readTries     = 4
	readPause     = 100 * time.Millisecond
	maxReadPause  = 2 * time.Second
	corruptTries  = 2 // tell bytes that are wrong on disk from those that came wrong once
	earlyEndTries = 3 // each may cost the datanode seconds
	enoughBytes   = 64 << 10
)

func (r *reader) Info() blobstore.Info { return r.st.info(r.name) }

func (r *reader) Read(p []byte) (int, error) {
	for {
		switch {
		case r.final:
			return 0, r.err
		case r.at >= r.end:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		case r.ctx.Err() != nil:
			return 0, r.stop(r.ctx.Err())
		case r.s.closed.Load():
			return 0, r.stop(blobstore.ErrClosed)
		}
		if r.body == nil {
			if err := r.reopen(); err != nil {
				return 0, r.stop(err)
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.at)])
		r.at += int64(n)
		if r.since += int64(n); r.since >= enoughBytes {
			r.tries = 0
		}
		if err == io.EOF && r.at < r.end {
			err = connectionError("%w", errEarlyEnd)
		}
		if err != nil && r.at < r.end {
			r.body.Close()
			r.body, r.err = nil, err
		}
		if n > 0 {
			return n, nil
		}
	}
}

// reopen opens the rest of the range, after a failure.
func (r *reader) reopen() error {
	for pause := readPause; ; pause = min(2*pause, maxReadPause) {
		limit := readTries
		switch {
		case errors.Is(r.err, blobstore.ErrDataCorrupt):
			limit = corruptTries
		case errors.Is(r.err, errEarlyEnd):
			limit = earlyEndTries
		}
		if r.tries++; !errors.Is(r.err, blobstore.ErrTemporary) && !errors.Is(r.err, blobstore.ErrDataCorrupt) || r.tries >= limit {
			return r.err
		}
		if r.tries > 1 {
			if err := sleep(r.ctx, pause); err != nil {
				return err
			}
		}
		r.s.cfg.logger.Debug("hdfs: reading goes on after a failure", "name", r.name, "offset", r.at, "error", r.err)
		body, _, err := r.s.b.open(r.ctx, "/"+r.name, r.at, r.end-r.at, r.st.fileID)
		if err == nil {
			r.body, r.since = body, 0
			return nil
		}
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		r.err = err
	}
}

// stop makes an error final.
func (r *reader) stop(err error) error {
	r.final, r.err = true, &blobstore.Error{Op: "read", URL: r.s.cfg.loc.Join(r.name).String(), Err: fmt.Errorf("byte %d: %w", r.at, err)}
	return r.err
}

func (r *reader) Close() error {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
	r.final, r.err = true, r.s.fail("read", r.name, blobstore.ErrClosed)
	return nil
}
