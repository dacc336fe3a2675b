package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

type localWriter struct {
	s        *localStore
	ctx      context.Context
	name     string
	temp     string
	ifAbsent bool

	root  files
	dir   *os.File
	f     *os.File
	ended error // ErrClosed after Commit or Abort, the cause after a failure
}

func (s *localStore) Create(ctx context.Context, name string, opts *WriteOptions) (Writer, error) {
	w, err := s.create(ctx, name, opts)
	if err != nil {
		return nil, s.fail("create", name, err)
	}
	return w, nil
}

func (s *localStore) create(ctx context.Context, name string, opts *WriteOptions) (_ *localWriter, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := ValidNewName(name); err != nil {
		return nil, err
	}
	if err := checkLocal(name); err != nil {
		return nil, err
	}
	w := &localWriter{s: s, ctx: ctx, name: name, ifAbsent: opts != nil && opts.IfAbsent}
	if w.root, err = s.files(true); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for try := 0; ; try++ {
		if w.dir, err = openDir(w.root, path.Dir(name)); err == nil {
			// Not os.CreateTemp: its files are for the owner alone.
			w.temp = TemporaryName(name)
			w.f, err = w.root.OpenFile(w.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			if err == nil {
				return w, nil
			}
			w.dir.Close()
		}
		if w.dir = nil; !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) || try == 100 {
			return nil, err
		}
		if err := s.mkdirAll(w.root, path.Dir(name)); err != nil {
			return nil, err
		}
	}
}

func (w *localWriter) fail(op string, err error) error { return w.s.fail(op, w.name, err) }

// use says whether the writer is alive; it ends it when the context is cancelled.
func (w *localWriter) use(op string) error {
	if w.ended == nil {
		if err := w.ctx.Err(); err != nil {
			w.drop(err)
		}
	}
	if w.ended != nil {
		return w.fail(op, w.ended)
	}
	return nil
}

func (w *localWriter) Write(p []byte) (int, error) {
	if err := w.use("write"); err != nil {
		return 0, err
	}
	n, err := w.f.Write(p)
	if err != nil {
		w.drop(err)
		return n, w.fail("write", err)
	}
	return n, nil
}

func (w *localWriter) Commit() error {
	if err := w.use("commit"); err != nil {
		return err
	}
	if err := w.commit(); err != nil {
		w.drop(err)
		return w.fail("commit", err)
	}
	w.ended = ErrClosed
	w.close()
	return nil
}

func (w *localWriter) commit() error {
	if w.s.sync {
		if err := fsync(w.f); err != nil {
			return err
		}
	}
	// Some file systems tell of a full disk only here.
	if err := w.f.Close(); err != nil {
		return err
	}
	w.f = nil
	if err := w.publish(); err != nil {
		return err
	}
	w.temp = ""
	return w.s.syncDir(w.dir)
}

// publish gives the temporary file its name.
func (w *localWriter) publish() error {
	var err error
	if w.ifAbsent && forceLink {
		err = linkNoReplace(w.root, w.temp, w.name)
	} else if w.ifAbsent {
		err = renameNoReplace(w.root, w.dir, w.temp, w.name)
	} else {
		err = w.root.Rename(w.temp, w.name)
	}
	if err != nil {
		if fi, serr := w.root.Lstat(w.name); serr == nil && fi.IsDir() {
			return ErrIsDirectory
		}
	}
	return err
}

// forceLink makes IfAbsent use hard links, for tests.
var forceLink bool

// linkNoReplace is renameNoReplace by a hard link. A crash between its two steps
// leaves the temporary name, which can be deleted like any other.
func linkNoReplace(root files, temp, name string) error {
	if err := root.Link(temp, name); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EISDIR) {
			return err
		}
		return fmt.Errorf("the file system has neither an exclusive rename nor hard links (%w): %w", localError(err), ErrUnsupported)
	}
	return root.Remove(temp)
}

func (w *localWriter) Abort() error {
	if w.ended != nil {
		return nil
	}
	return w.fail("abort", w.drop(ErrClosed))
}

// drop removes what was written; cause is what later calls get.
func (w *localWriter) drop(cause error) error {
	w.ended = cause
	var err error
	if w.f != nil {
		w.f.Close()
		w.f = nil
	}
	if w.temp != "" {
		if err = w.root.Remove(w.temp); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	w.close()
	return err
}

func (w *localWriter) close() {
	if w.dir != nil {
		w.dir.Close()
	}
	if w.root != nil {
		w.root.Close()
	}
}

// Copy copies in the kernel where it can, sharing blocks on file systems that do
// that, through a temporary file like any other writer.
func (s *localStore) Copy(ctx context.Context, dst, src string, opts *WriteOptions) error {
	r, err := s.openRange(ctx, src, 0, -1)
	if err != nil {
		return s.fail("copy", src, err)
	}
	defer r.Close()
	w, err := s.create(ctx, dst, opts)
	if err != nil {
		return s.fail("copy", dst, err)
	}
	defer w.Abort()
	for r.left > 0 {
		if err := w.use("copy"); err != nil {
			return err
		}
		n, err := io.CopyN(w.f, r.f, min(r.left, 64<<20))
		if err == io.EOF {
			err = fmt.Errorf("file became shorter while it was read: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return s.fail("copy", dst, err)
		}
		r.left -= n
	}
	return w.Commit()
}
