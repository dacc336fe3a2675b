package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

func (s *store) Create(ctx context.Context, name string, opts *blobstore.WriteOptions) (blobstore.Writer, error) {
	w, err := s.create(ctx, name, opts)
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	return w, nil
}

func (s *store) create(ctx context.Context, name string, opts *blobstore.WriteOptions) (*writer, error) {
	if err := s.begin(name, validNewName); err != nil {
		return nil, err
	}
	w := &writer{s: s, ctx: ctx, name: name, replay: replay{max: s.cfg.replayBytes}}
	if opts != nil {
		w.opts = *opts
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	return w, nil
}

// writer writes one object: to a temporary file, which Commit renames. When a
// datanode or a connection fails, it begins again with another file and what
// replay has kept.
type writer struct {
	s    *store
	ctx  context.Context
	name string
	opts blobstore.WriteOptions

	temp    string   // path of the temporary file
	left    []string // paths of earlier ones that could not be removed yet
	up      upload   // nil once it has ended
	replay  replay
	written int64
	until   time.Time     // no more restarts after it
	pause   time.Duration // before the next restart
	lost    int           // times that a namenode refused to go on
	err     error         // final
	done    bool          // committed, or aborted
}

const (
	restartPause    = 200 * time.Millisecond
	maxRestartPause = 3 * time.Second
	abortTime       = 10 * time.Second
	removeTime      = 2 * time.Second
	lostTries       = 3
)

// start begins a temporary file.
func (w *writer) start() error {
	for try := 0; ; try++ {
		parent, err := w.s.folder(w.ctx, w.name)
		if err != nil {
			return err
		}
		w.temp = "/" + blobstore.TemporaryName(w.name)
		w.up, err = w.s.b.create(w.ctx, w.temp, parent)
		if errors.Is(err, blobstore.ErrNotExist) && try < 3 { // the directory has gone again
			continue
		}
		return err
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.check(); err != nil {
		return 0, w.s.fail("write", w.name, err)
	}
	_, err := w.up.Write(p)
	w.replay.add(p)
	w.written += int64(len(p))
	if err != nil {
		err = w.restart(err)
	}
	if err != nil {
		return 0, w.s.fail("write", w.name, w.giveUp(err))
	}
	return len(p), nil
}

// check says why no more can be written.
func (w *writer) check() error {
	switch {
	case w.err != nil:
		return w.err
	case w.done:
		return blobstore.ErrClosed
	case w.s.closed.Load():
		return w.giveUp(blobstore.ErrClosed)
	case w.ctx.Err() != nil:
		return w.giveUp(w.ctx.Err())
	}
	return nil
}

// giveUp aborts because of err.
func (w *writer) giveUp(err error) error {
	w.err = err
	w.drop()
	return err
}

// drop removes the temporary file.
func (w *writer) drop() error {
	if w.up != nil {
		w.up.discard()
		w.up = nil
	}
	w.replay.close()
	if w.temp != "" {
		w.left = append(w.left, w.temp)
		w.temp = ""
	}
	return w.removeLeft()
}

// removeLeft removes what is left of earlier tries. Of what cannot be removed it
// gives the last error.
func (w *writer) removeLeft() error {
	if w.s.closed.Load() {
		return nil // it is left behind
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTime)
	defer cancel()
	var failed error
	for _, path := range w.left {
		if err := w.s.removeTemp(ctx, path); err != nil {
			w.s.cfg.logger.Warn("hdfs: a temporary file was left behind", "path", path, "error", err)
			failed = err
		}
	}
	w.left = nil
	return failed
}

// removeTemp removes a temporary file; absent is success.
func (s *store) removeTemp(ctx context.Context, path string) error {
	_, err := s.b.remove(ctx, path)
	if errors.Is(err, blobstore.ErrNotExist) {
		return nil
	}
	return err
}

// restart writes all again, to another file, because of a failure.
func (w *writer) restart(cause error) error {
	// Twice as long as other retries: a dead datanode is chosen for new blocks until
	// the namenode misses its heartbeats.
	limit := 2 * w.s.cfg.retryFor
	if time.Since(w.until) > limit { // the first failure for a while
		w.until, w.pause = time.Now().Add(limit), restartPause
	}
	for ; ; w.pause = min(2*w.pause, maxRestartPause) {
		if w.up != nil {
			w.up.discard()
			w.up = nil
		}
		switch {
		case w.ctx.Err() != nil:
			return w.ctx.Err()
		case w.s.closed.Load():
			return blobstore.ErrClosed
		case !w.worthRestart(cause):
			return cause
		case w.replay.lost:
			return fmt.Errorf("%w (%d bytes were written, more than is kept for another try)", cause, w.written)
		case time.Now().Add(w.pause).After(w.until):
			return cause
		}
		w.s.cfg.logger.Debug("hdfs: writing the object again after a failure", "name", w.name, "bytes", w.written, "error", cause)
		if w.temp != "" {
			// Now, because it takes room; or when the namenode answers again.
			ctx, cancel := context.WithTimeout(w.ctx, removeTime)
			if w.s.removeTemp(ctx, w.temp) != nil {
				w.left = append(w.left, w.temp)
			}
			cancel()
			w.temp = ""
		}
		if err := sleep(w.ctx, w.pause); err != nil {
			return err
		}
		err := w.start()
		if err == nil {
			_, err = io.Copy(w.up, w.replay.reader())
		}
		if err == nil {
			w.pause = min(2*w.pause, maxRestartPause)
			return nil
		}
		cause = err
	}
}

// worthRestart says whether an error may not come again with another file. Besides
// what is temporary that is what a namenode says when the lease has been taken
// away, in many words and few classes; that is tried a few times. If the file
// itself has been removed, by gc as it seems, nobody wants the object.
func (w *writer) worthRestart(err error) bool {
	var remote *remoteError
	if !errors.As(err, &remote) {
		return errors.Is(err, blobstore.ErrTemporary)
	}
	switch {
	case tryOther(err):
		// Nobody knows whether the file is there, or whole: it may never have been made.
		return true
	case remote.class == "SafeModeException": // set by an administrator
		return false
	}
	if w.temp != "" {
		if _, serr := w.s.b.stat(w.ctx, w.temp); errors.Is(serr, blobstore.ErrNotExist) {
			return false
		}
	}
	if errors.Is(err, blobstore.ErrTemporary) {
		return true
	}
	w.lost++
	return exceptions[remote.class] == nil && w.lost <= lostTries
}

func (w *writer) Commit() error {
	if err := w.check(); err != nil {
		return w.s.fail("commit", w.name, err)
	}
	st, err := w.complete()
	if err == nil {
		err = w.s.publish(w.ctx, w.temp, "/"+w.name, st, !w.opts.IfAbsent)
	}
	if err != nil {
		return w.s.fail("commit", w.name, w.giveUp(err))
	}
	w.done = true
	w.temp = ""
	w.replay.close()
	w.removeLeft() // the object is there all the same
	return nil
}

// complete ends the temporary file and makes sure that all bytes are in it.
func (w *writer) complete() (status, error) {
	for {
		up := w.up
		w.up = nil
		err := up.finish()
		if err == nil {
			var st status
			st, err = w.s.b.stat(w.ctx, w.temp)
			if err == nil && st.size == w.written {
				return st, nil
			}
			if err == nil {
				err = connectionError("the file has %d bytes where %d were written", st.size, w.written)
			}
		}
		if err := w.restart(err); err != nil {
			return status{}, err
		}
	}
}

// publish renames a complete temporary file. Whether a rename with a lost answer
// was done is told by the file's ID.
func (s *store) publish(ctx context.Context, temp, to string, st status, overwrite bool) error {
	err := s.b.rename(ctx, temp, to, overwrite)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	there, serr := s.b.stat(ctx, to)
	switch {
	case serr == nil && there.fileID == st.fileID && st.fileID != 0:
		return nil
	case serr == nil && there.dir && (errors.Is(err, blobstore.ErrExist) || isClass(err, "IOException")): // "must both be directories"
		return blobstore.ErrIsDirectory
	}
	return err
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if w.err == nil {
		w.err = blobstore.ErrClosed
	}
	return w.s.fail("abort", w.name, w.drop())
}
