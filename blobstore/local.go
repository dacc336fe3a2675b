package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// The local driver keeps one file per object, without sidecars.
//
//   - A writer's bytes go to a temporary file (see IsTemporaryName) in the directory
//     of the object. Commit syncs it, renames it and syncs the directory; new
//     parent directories are synced into theirs. IfAbsent renames without replacing
//     (renameat2, renameatx_np) or, where the system cannot, makes a hard link, so
//     that it holds between processes.
//   - Delete syncs the directory, so that deletions keep their order over a crash.
//     It leaves empty directories; see DirectoryRemover.
//   - A store opened at a folder is confined to it by os.Root: symbolic links that
//     lead out of it, and all absolute ones, are refused. The folder itself may be
//     reached through links. The store at "/", which a Pool uses, follows all.
//   - List shows links to files under their own names, with the file's size. It
//     neither shows nor walks links to directories, since one object with two names
//     would look unreferenced under one of them; a warning is logged. Sockets,
//     pipes, devices and dangling links are not listed, and opening one fails. A
//     directory that may not be read is an error, but for "lost+found".
//   - A name may have any bytes that the system allows. Files with a name that is
//     not UTF-8 are listed, opened and deleted, but not created.
//
// URL parameter: fsync=off leaves out all syncing.
type localStore struct {
	loc    Location
	dir    string // of the operating system; "" is the root that needs no confining
	sync   bool
	logger *slog.Logger
}

func init() { Register(openLocal, "file") }

func openLocal(_ context.Context, loc Location, opts *Options) (Store, error) {
	s := &localStore{loc: loc.Root(), sync: true, logger: opts.Logger}
	q, err := url.ParseQuery(loc.Query)
	if err != nil {
		return nil, &Error{Op: "open", URL: loc.String(), Err: fmt.Errorf("%w: bad query", ErrSettings)}
	}
	for k, v := range q {
		switch {
		case k == "fsync" && v[0] == "off":
			s.sync = false
		case k == "fsync" && v[0] == "on":
		default:
			return nil, &Error{Op: "open", URL: loc.String(),
				Err: fmt.Errorf("%w: unknown URL parameter %q: a local path takes fsync=on or fsync=off", ErrSettings, k)}
		}
	}
	return s, nil
}

// files is what the store needs of its directory: an *os.Root, or the whole file
// system. Names are relative and have "/" between their parts.
type files interface {
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Mkdir(name string, perm fs.FileMode) error
	Rename(oldname, newname string) error
	Link(oldname, newname string) error
	Remove(name string) error
	Close() error
}

// wholeSystem is files below "/"; on Windows names begin with a drive.
type wholeSystem struct{}

func osPath(name string) string {
	if runtime.GOOS == "windows" {
		if name == "." {
			return `\`
		}
		if isDrivePath(name) {
			if len(name) == 2 {
				name += `\`
			}
			return filepath.FromSlash(name)
		}
		return `\\` + filepath.FromSlash(name) // host and share
	}
	if name == "." {
		return "/"
	}
	return "/" + name
}

func (wholeSystem) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(osPath(name), flag, perm)
}
func (wholeSystem) Stat(name string) (fs.FileInfo, error)  { return os.Stat(osPath(name)) }
func (wholeSystem) Lstat(name string) (fs.FileInfo, error) { return os.Lstat(osPath(name)) }
func (wholeSystem) Mkdir(name string, perm fs.FileMode) error {
	return os.Mkdir(osPath(name), perm)
}
func (wholeSystem) Rename(o, n string) error { return os.Rename(osPath(o), osPath(n)) }
func (wholeSystem) Link(o, n string) error   { return os.Link(osPath(o), osPath(n)) }
func (wholeSystem) Remove(name string) error { return os.Remove(osPath(name)) }
func (wholeSystem) Close() error             { return nil }

// files opens the directory anew for each operation: a few microseconds, for which
// a root that was removed, made again or mounted over is never missed.
func (s *localStore) files(create bool) (files, error) {
	if s.dir == "" {
		return wholeSystem{}, nil
	}
	// os.OpenRoot would wait for a writer if this were a named pipe.
	if fi, err := os.Stat(s.dir); err == nil && !fi.IsDir() {
		return nil, syscall.ENOTDIR
	}
	r, err := os.OpenRoot(s.dir)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := s.mkdirAll(wholeSystem{}, s.loc.Path); err != nil {
			return nil, err
		}
		r, err = os.OpenRoot(s.dir)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Sub opens the folder as a confined store.
func (s *localStore) Sub(prefix string) Store {
	if err := checkName(prefix); err != nil {
		return withOptional(&subStore{inner: s, prefix: prefix + "/", err: err}, s)
	}
	sub := *s
	sub.loc = s.loc.Join(prefix)
	sub.dir = osPath(sub.loc.Path)
	return &sub
}

func (s *localStore) URL() string { return s.loc.String() }

func (s *localStore) Capabilities() Capabilities {
	return Capabilities{ExclusiveCreate: true, ServerCopy: true, Directories: true}
}

func (s *localStore) Close() error { return nil }

// fail wraps err once, with our sentinel in the place of the system's error.
func (s *localStore) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, URL: joinURL(s.URL(), name), Err: localError(err)}
}

// localError drops the path and system call that the os package puts before an
// error, since Error has them, and gives ours for those that callers decide on.
func localError(err error) error {
	for _, ours := range []error{ErrNotExist, ErrExist, ErrPermission, ErrUnsupported, ErrInvalidName,
		ErrIsDirectory, ErrTemporary, ErrClosed, ErrNotEmpty, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ours) {
			return err
		}
	}
	cause := err
	for {
		if p := (*fs.PathError)(nil); errors.As(cause, &p) {
			cause = p.Err
		} else if l := (*os.LinkError)(nil); errors.As(cause, &l) {
			cause = l.Err
		} else if sc := (*os.SyscallError)(nil); errors.As(cause, &sc) {
			cause = sc.Err
		} else {
			break
		}
	}
	switch {
	case errors.Is(cause, syscall.ENOTEMPTY):
		return ErrNotEmpty // os says fs.ErrExist to it
	case errors.Is(cause, syscall.EISDIR):
		return ErrIsDirectory
	case errors.Is(cause, fs.ErrNotExist):
		return ErrNotExist
	case errors.Is(cause, fs.ErrExist):
		return ErrExist
	case errors.Is(cause, syscall.EROFS):
		return fmt.Errorf("read-only file system: %w", ErrPermission)
	case errors.Is(cause, fs.ErrPermission):
		return ErrPermission
	case errors.Is(cause, syscall.ELOOP):
		return fmt.Errorf("%w: %w", cause, ErrUnsupported)
	case errors.Is(cause, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: longer than the file system takes", ErrInvalidName)
	case errors.Is(cause, syscall.ESTALE), errors.Is(cause, syscall.ETIMEDOUT), errors.Is(cause, syscall.EAGAIN),
		errors.Is(cause, syscall.EMFILE), errors.Is(cause, syscall.ENFILE): // a network file system, or too many open files
		return fmt.Errorf("%w: %w", cause, ErrTemporary)
	case isEscape(cause):
		return fmt.Errorf("a symbolic link leads out of the store's folder: %w", ErrPermission)
	}
	return cause
}

// isEscape recognises the error of os.Root, which is not exported.
func isEscape(err error) bool { return err.Error() == "path escapes from parent" }

// checkLocal is checkName with the system's own rules.
func checkLocal(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		rest := name
		if isDrivePath(name) {
			rest = strings.TrimPrefix(name[2:], "/")
		}
		if rest != "" && (strings.ContainsAny(rest, `\:`) || !filepath.IsLocal(filepath.FromSlash(rest))) {
			return fmt.Errorf("%w: not on Windows", ErrInvalidName)
		}
	}
	return nil
}

func (s *localStore) Open(ctx context.Context, name string) (Reader, error) {
	return s.OpenRange(ctx, name, 0, -1)
}

func (s *localStore) OpenRange(ctx context.Context, name string, offset, length int64) (Reader, error) {
	r, err := s.openRange(ctx, name, offset, length)
	if err != nil {
		return nil, s.fail("open", name, err)
	}
	return r, nil
}

func (s *localStore) openRange(ctx context.Context, name string, offset, length int64) (*localReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkLocal(name); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, errNegativeOffset
	}
	root, err := s.files(false)
	if err != nil {
		return nil, noDirectory(err)
	}
	defer root.Close()
	// openFlags has O_NONBLOCK where it exists: without it, opening a named pipe
	// would wait for somebody to write to it.
	f, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if err != nil {
		if fi, lerr := root.Lstat(name); lerr == nil && fi.Mode()&fs.ModeSocket != 0 {
			return nil, notRegular(fi.Mode())
		}
		return nil, noDirectory(err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = notRegular(fi.Mode())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	info := s.info(name, fi)
	left := max(0, info.Size-offset)
	if length >= 0 {
		left = min(left, length)
	}
	if offset > 0 && left > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &localReader{s: s, ctx: ctx, f: f, info: info, left: left}, nil
}

var errNegativeOffset = errors.New("negative offset")

// noDirectory: where a parent is a file, the object is not there.
func noDirectory(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return ErrNotExist
	}
	return err
}

func notRegular(m fs.FileMode) error {
	what := "special file"
	switch {
	case m.IsDir():
		return ErrIsDirectory
	case m&fs.ModeNamedPipe != 0:
		what = "named pipe"
	case m&fs.ModeSocket != 0:
		what = "socket"
	case m&fs.ModeDevice != 0:
		what = "device"
	}
	return fmt.Errorf("is a %s: %w", what, ErrUnsupported)
}

func (s *localStore) info(name string, fi fs.FileInfo) Info {
	return Info{Name: name, Size: fi.Size(), ModTime: fi.ModTime(), ETag: fileETag(fi.ModTime().UnixNano(), fi.Size(), inode(fi))}
}

// fileETag changes with each new file that is renamed to a name (inode) and with
// a change in place (time and size).
func fileETag(mtimeNanos, size int64, inode uint64) string {
	b := make([]byte, 0, 48)
	b = strconv.AppendUint(b, uint64(mtimeNanos), 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, uint64(size), 36)
	b = append(b, '-')
	return string(strconv.AppendUint(b, inode, 36))
}

type localReader struct {
	s    *localStore
	ctx  context.Context
	f    *os.File
	info Info
	left int64
}

func (r *localReader) Info() Info { return r.info }

func (r *localReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, r.s.fail("read", r.info.Name, err)
	}
	if r.left <= 0 || len(p) == 0 {
		if r.left <= 0 {
			return 0, io.EOF
		}
		return 0, nil
	}
	n, err := r.f.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	switch {
	case err == io.EOF: // left > 0: cut while we read
		err = r.s.fail("read", r.info.Name, fmt.Errorf("file became shorter while it was read: %w", io.ErrUnexpectedEOF))
	case errors.Is(err, fs.ErrClosed):
		err = r.s.fail("read", r.info.Name, ErrClosed)
	case err != nil:
		err = r.s.fail("read", r.info.Name, err)
	}
	return n, err
}

func (r *localReader) Close() error {
	if err := r.f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return r.s.fail("read", r.info.Name, err)
	}
	return nil
}

func (s *localStore) Stat(ctx context.Context, name string) (Info, error) {
	i, err := s.stat(ctx, name)
	if err != nil {
		return Info{}, s.fail("stat", name, err)
	}
	return i, nil
}

func (s *localStore) stat(ctx context.Context, name string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	if err := checkLocal(name); err != nil {
		return Info{}, err
	}
	root, err := s.files(false)
	if err != nil {
		return Info{}, noDirectory(err)
	}
	defer root.Close()
	fi, err := root.Stat(name)
	if err != nil {
		return Info{}, noDirectory(err)
	}
	if !fi.Mode().IsRegular() {
		return Info{}, notRegular(fi.Mode())
	}
	return s.info(name, fi), nil
}

func (s *localStore) List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error] {
	var o ListOptions
	if opts != nil {
		o = *opts
	}
	return s.walk(ctx, o, false)
}

func (s *localStore) ListTemporary(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return s.walk(ctx, ListOptions{Prefix: prefix}, true)
}

// openDir opens a directory below root for reading and syncing; "." is root.
func openDir(root files, name string) (*os.File, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|openFlags|dirFlags, 0)
	if err != nil {
		return nil, err
	}
	if dirFlags == 0 {
		fi, err := f.Stat()
		if err == nil && !fi.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// mkdirAll makes a directory and its parents, and syncs each new one's parent.
func (s *localStore) mkdirAll(root files, name string) error {
	if name == "." || name == "" {
		return nil
	}
	for range 100 { // another process may remove what it finds empty
		err := root.Mkdir(name, 0o777)
		switch {
		case err == nil:
			return s.syncPath(root, path.Dir(name))
		case errors.Is(err, fs.ErrExist):
			if fi, serr := root.Stat(name); serr == nil && fi.IsDir() {
				return nil
			} else if serr == nil {
				return fmt.Errorf("%s is a file, not a directory", printable(path.Base(name)))
			} else if !errors.Is(serr, fs.ErrNotExist) {
				return serr
			} else if fi, lerr := root.Lstat(name); lerr == nil && fi.Mode()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s is a symbolic link to nothing", printable(path.Base(name)))
			}
		case errors.Is(err, fs.ErrNotExist):
			if err := s.mkdirAll(root, path.Dir(name)); err != nil {
				return err
			}
		case errors.Is(err, syscall.ENOTDIR):
			return errors.New("a parent is a file, not a directory")
		default:
			return err
		}
	}
	return fmt.Errorf("directories vanish while they are made: %w", ErrTemporary)
}

func (s *localStore) syncPath(root files, dir string) error {
	if !s.sync || !canSyncDir {
		return nil
	}
	d, err := openDir(root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return s.syncDir(d)
}

// fsync is what makes a file or a directory durable; a variable for the tests.
var fsync = (*os.File).Sync

func (s *localStore) syncDir(d *os.File) error {
	if !s.sync || !canSyncDir {
		return nil
	}
	// EINVAL and ErrUnsupported: the file system has no such thing.
	if err := fsync(d); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("sync directory: %w", localError(err))
	}
	return nil
}

func (s *localStore) Delete(ctx context.Context, name string) error {
	return errors.Join(s.deleteAll(ctx, []string{name}, checkLocal)...)
}

// DeleteAll syncs each directory once for each run of names in it.
func (s *localStore) DeleteAll(ctx context.Context, names []string) error {
	return errors.Join(s.deleteAll(ctx, names, checkLocal)...)
}

func (s *localStore) DeleteTemporary(ctx context.Context, name string) error {
	return errors.Join(s.deleteAll(ctx, []string{name}, checkTemporary)...)
}

func checkTemporary(name string) error {
	if !IsTemporaryName(name) {
		return fmt.Errorf("%w: not that of a temporary file", ErrInvalidName)
	}
	return checkLocal(name)
}

func (s *localStore) deleteAll(ctx context.Context, names []string, check func(string) error) (errs []error) {
	failed := func(name string, err error) {
		if err != nil {
			errs = append(errs, s.fail("delete", name, err))
		}
	}
	if len(names) == 0 {
		return nil
	}
	root, err := s.files(false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return []error{s.fail("delete", "", err)}
	}
	defer root.Close()
	var dir *os.File
	var dirName string
	var run []string // removed from dir since it was opened
	finish := func() {
		if dir == nil {
			return
		}
		if len(run) > 0 {
			if err := s.syncDir(dir); err != nil {
				for _, n := range run {
					failed(n, err)
				}
			}
		}
		dir.Close()
		dir, run = nil, run[:0]
	}
	defer finish()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			finish()
			return append(errs, s.fail("delete", name, err))
		}
		if err := check(name); err != nil {
			failed(name, err)
			continue
		}
		if d := path.Dir(name); dir == nil || d != dirName {
			finish()
			dirName = d
			if dir, err = openDir(root, d); err != nil {
				if dir = nil; !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
					failed(name, err)
				}
				continue
			}
		}
		switch err := unlinkFile(root, dir, name); {
		case err == nil:
			run = append(run, name)
		case !errors.Is(err, fs.ErrNotExist):
			failed(name, err)
		}
	}
	finish()
	return errs
}

func (s *localStore) RemoveEmptyDir(ctx context.Context, name string) error {
	return s.fail("delete", name, s.removeEmptyDir(ctx, name))
}

func (s *localStore) removeEmptyDir(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkLocal(name); err != nil {
		return err
	}
	root, err := s.files(false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer root.Close()
	dir, err := openDir(root, path.Dir(name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			return nil
		}
		return err
	}
	defer dir.Close()
	switch err := removeDir(root, dir, name); {
	case err == nil:
		return s.syncDir(dir)
	case errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist):
		return ErrNotEmpty
	case errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return err
	}
}
