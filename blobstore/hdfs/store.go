package hdfs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

func init() {
	blobstore.Register(open, "hdfs", "webhdfs", "swebhdfs")
}

// open is the driver. It reads configuration and dials nobody: what is wrong with
// the cluster is said by the first call.
func open(_ context.Context, loc blobstore.Location, opts *blobstore.Options) (blobstore.Store, error) {
	s, err := openStore(loc, opts)
	if err != nil {
		return nil, &blobstore.Error{Op: "open", URL: loc.Root().String(), Err: err}
	}
	return s, nil
}

func openStore(loc blobstore.Location, opts *blobstore.Options) (*store, error) {
	cfg, err := newSettings(loc, opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", blobstore.ErrSettings, err)
	}
	var b backend
	if loc.Scheme == "hdfs" {
		b, err = newNative(cfg)
	} else {
		var krb *kerberos
		if cfg.kerberos {
			krb = &kerberos{login: cfg.login}
		}
		if b, err = newWeb(cfg, krb); err != nil {
			err = fmt.Errorf("%w: %w", blobstore.ErrSettings, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &store{cfg: cfg, b: b}, nil
}

// store is a blobstore.Store over either protocol: object names are paths below /.
//
// An object is written under a temporary name in its own directory and renamed
// when it is complete, so that nobody sees a part of it; IfAbsent is a rename that
// does not overwrite.
type store struct {
	cfg    *settings
	b      backend
	closed atomic.Bool
}

func (s *store) URL() string { return s.cfg.loc.String() }

func (s *store) Capabilities() blobstore.Capabilities { return s.b.capabilities() }

func (s *store) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &blobstore.Error{Op: op, URL: s.cfg.loc.Join(name).String(), Err: err}
}

const (
	maxPart = 255  // bytes: dfs.namenode.fs-limits.max-component-length
	maxPath = 7900 // bytes; the namenode's limit is 8000 characters
)

// begin checks what every method must: that the store is open and the name one
// that HDFS can hold.
func (s *store) begin(name string, valid func(string) error) error {
	if s.closed.Load() {
		return blobstore.ErrClosed
	}
	return checkName(name, valid)
}

func checkName(name string, valid func(string) error) error {
	if err := valid(name); err != nil {
		return err
	}
	if strings.ContainsRune(name, ':') {
		return fmt.Errorf("%w: HDFS takes no %q in names", blobstore.ErrInvalidName, ":")
	}
	if len(name) > maxPath {
		return fmt.Errorf("%w: %d bytes long, HDFS takes %d", blobstore.ErrInvalidName, len(name), maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxPart {
			return fmt.Errorf("%w: a part of %d bytes, HDFS takes %d", blobstore.ErrInvalidName, len(part), maxPart)
		}
	}
	return nil
}

// validNewName also refuses what the namenode keeps for itself, whatever is there.
func validNewName(name string) error {
	if err := blobstore.ValidNewName(name); err != nil {
		return err
	}
	for i, part := range strings.Split(name, "/") {
		if part == ".snapshot" || i == 0 && part == ".reserved" {
			return fmt.Errorf("%w: HDFS keeps %q for itself", blobstore.ErrInvalidName, part)
		}
	}
	return nil
}

func (s *store) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	st, err := s.stat(ctx, name)
	if err != nil {
		return blobstore.Info{}, s.fail("stat", name, err)
	}
	return st.info(name), nil
}

// stat is the status of an object.
func (s *store) stat(ctx context.Context, name string) (status, error) {
	if err := s.begin(name, blobstore.ValidName); err != nil {
		return status{}, err
	}
	st, err := s.b.stat(ctx, "/"+name)
	switch {
	case errors.Is(err, errNotDirectory): // "file/child"
		return st, blobstore.ErrNotExist
	case err != nil:
		return st, err
	case st.dir:
		return st, blobstore.ErrIsDirectory
	case st.symlink:
		return st, errSymlink
	}
	return st, nil
}

func (s status) modTime() time.Time { return time.UnixMilli(s.modMillis) }

// etag changes when the content does: an object is never written to after it has
// been renamed to its name, and a new one has a new file ID.
func (s status) etag() string { return fmt.Sprintf("%x-%x-%x", s.fileID, s.modMillis, s.size) }

func (s *store) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return s.list(ctx, opts, blobstore.IsTemporaryName)
}

func (s *store) list(ctx context.Context, opts *blobstore.ListOptions, hidden func(string) bool) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		l := listing{b: s.b, ctx: ctx, hidden: hidden}
		if opts != nil {
			l.opts = *opts
		}
		if s.closed.Load() {
			yield(blobstore.Info{}, s.fail("list", l.opts.Prefix, blobstore.ErrClosed))
			return
		}
		l.yield = func(i blobstore.Info, err error) bool {
			return yield(i, s.fail("list", l.opts.Prefix, err))
		}
		l.run()
	}
}

// ListTemporary lists the files that writers have not committed, or left behind.
func (s *store) ListTemporary(ctx context.Context, prefix string) iter.Seq2[blobstore.Info, error] {
	return s.list(ctx, &blobstore.ListOptions{Prefix: prefix}, func(name string) bool { return !blobstore.IsTemporaryName(name) })
}

func (s *store) DeleteTemporary(ctx context.Context, name string) error {
	if !blobstore.IsTemporaryName(name) {
		return s.fail("delete", name, fmt.Errorf("%w: not of a temporary file", blobstore.ErrInvalidName))
	}
	return s.Delete(ctx, name)
}

func (s *store) Delete(ctx context.Context, name string) error {
	// HDFS would remove an empty directory as well.
	_, err := s.stat(ctx, name)
	if err == nil {
		_, err = s.b.remove(ctx, "/"+name)
	}
	if errors.Is(err, blobstore.ErrNotExist) {
		return nil
	}
	return s.fail("delete", name, err)
}

const deleteWorkers = 8

func (s *store) DeleteAll(ctx context.Context, names []string) error {
	errs := make([]error, len(names))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(deleteWorkers, len(names)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(names) {
					return
				}
				errs[i] = s.Delete(ctx, names[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// RemoveEmptyDir removes a directory that holds nothing.
func (s *store) RemoveEmptyDir(ctx context.Context, name string) error {
	if err := s.begin(name, blobstore.ValidName); err != nil {
		return s.fail("delete", name, err)
	}
	st, err := s.b.stat(ctx, "/"+name)
	if err == nil && !st.dir {
		err = errNotDirectory
	} else if err == nil {
		_, err = s.b.remove(ctx, "/"+name)
	}
	if errors.Is(err, blobstore.ErrNotExist) {
		return nil
	}
	return s.fail("delete", name, err)
}

// Copy would move the bytes through the client: HDFS has no copy of its own.
func (s *store) Copy(_ context.Context, dst, _ string, _ *blobstore.WriteOptions) error {
	return s.fail("copy", dst, blobstore.ErrUnsupported)
}

func (s *store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.b.close()
}

// folder gives the status of an object's directory, making it if need be.
func (s *store) folder(ctx context.Context, name string) (status, error) {
	dir := path.Dir("/" + name)
	st, err := s.b.stat(ctx, dir)
	if errors.Is(err, blobstore.ErrNotExist) {
		if err = s.b.mkdirs(ctx, dir); err == nil {
			st, err = s.b.stat(ctx, dir)
		}
	}
	if err == nil && !st.dir {
		err = errNotDirectory
	}
	return st, err
}
