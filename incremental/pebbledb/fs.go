package pebbledb

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// States of a workFS.
const (
	fsOpening int32 = iota // errors go to Pebble
	fsRunning              // those of the MANIFEST and its like go to fail
	fsVoid                 // the database failed: what is written vanishes
)

// workFS is the file system that Pebble sees of a working database.
//
// Nothing is synced: what has to survive a crash is uploaded. Files of a
// checkpoint that are not here yet are shown as if they were and read from the
// blob store.
//
// Pebble ends the process when it cannot write its MANIFEST, and tries for ever to
// flush when it cannot write a table, while writers wait. So errors of the MANIFEST
// fail the database and are hidden from Pebble; and of a failed database all that
// is still written vanishes, so that everyone who waits comes back and finds the error.
type workFS struct {
	vfs.FS
	dir   string // of the database
	state atomic.Int32
	fail  func(error)

	// lastFull is when writing a table failed last: Pebble tries again at once.
	lastFull atomic.Int64

	readError atomic.Pointer[error]

	mu     sync.Mutex
	remote map[string]*remoteFile // by path
	// objects are tables of other databases, by object name.
	objects map[string]*remoteFile
}

// InMemory returns an empty file system in memory, for tests and simulations.
func InMemory() vfs.FS { return vfs.NewMem() }

func newWorkFS(base vfs.FS, dir string, fail func(error)) *workFS {
	return &workFS{FS: base, dir: dir, fail: fail, remote: map[string]*remoteFile{}, objects: map[string]*remoteFile{}}
}

// Unwrap implements vfs.FS.
func (w *workFS) Unwrap() vfs.FS { return w.FS }

func isTable(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".sst" || ext == ".blob"
}

// swallow says whether an error of a file that is written is kept from Pebble.
func (w *workFS) swallow(name string, err error) bool {
	if err == nil {
		return false
	}
	switch w.state.Load() {
	case fsVoid:
		return w.inDir(name)
	case fsRunning:
		if w.inDir(name) && !isTable(name) {
			w.fail(err)
			return true
		}
		if isTable(name) {
			w.lastFull.Store(time.Now().UnixNano())
		}
	}
	return false
}

func (w *workFS) inDir(name string) bool { return w.FS.PathDir(name) == w.dir }

func (w *workFS) void(name string) bool { return w.state.Load() == fsVoid && w.inDir(name) }

// retryPause is the least time between a failed write of a table and the next
// table: Pebble itself makes no pause.
const retryPause = 50 * time.Millisecond

// Create implements vfs.FS.
func (w *workFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if w.void(name) {
		return voidFile{}, nil
	}
	if isTable(name) {
		if since := time.Since(time.Unix(0, w.lastFull.Load())); since < retryPause {
			time.Sleep(retryPause - since)
		}
	}
	f, err := w.FS.Create(name, c)
	if w.swallow(name, err) {
		return voidFile{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &workFile{File: f, w: w, name: name}, nil
}

// OpenReadWrite implements vfs.FS.
func (w *workFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if w.void(name) {
		return voidFile{}, nil
	}
	f, err := w.FS.OpenReadWrite(name, c, opts...)
	if w.swallow(name, err) {
		return voidFile{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &workFile{File: f, w: w, name: name}, nil
}

// ReuseForWrite implements vfs.FS.
func (w *workFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if w.void(newname) {
		return voidFile{}, nil
	}
	f, err := w.FS.ReuseForWrite(oldname, newname, c)
	if w.swallow(newname, err) {
		return voidFile{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &workFile{File: f, w: w, name: newname}, nil
}

// OpenDir implements vfs.FS.
func (w *workFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &workFile{File: f, w: w, name: name}, nil
}

// Open implements vfs.FS.
func (w *workFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	for {
		r := w.at(name)
		if r == nil {
			f, err := w.FS.Open(name, opts...)
			if err != nil {
				return nil, err
			}
			return &readHandle{File: f, w: w}, nil
		}
		err := r.use()
		switch {
		case err == nil:
			return &remoteHandle{r: r, w: w, name: w.FS.PathBase(name)}, nil
		case !errors.Is(err, errGone) || w.at(name) == r:
			return nil, err
		}
		// It arrived meanwhile.
	}
}

// Link implements vfs.FS.
func (w *workFS) Link(oldname, newname string) error {
	w.mu.Lock()
	if r := w.remote[oldname]; r != nil {
		defer w.mu.Unlock()
		if w.remote[newname] != nil {
			return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: os.ErrExist}
		}
		w.remote[newname] = r
		r.ref()
		return nil
	}
	w.mu.Unlock()
	return w.FS.Link(oldname, newname)
}

// Remove implements vfs.FS.
func (w *workFS) Remove(name string) error {
	if w.unmap(name) {
		return nil
	}
	err := w.FS.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && w.swallow(name, err) {
		return nil
	}
	return err
}

func (w *workFS) unmap(name string) bool {
	w.mu.Lock()
	r := w.remote[name]
	delete(w.remote, name)
	w.mu.Unlock()
	if r != nil {
		r.drop()
	}
	return r != nil
}

// RemoveAll implements vfs.FS.
func (w *workFS) RemoveAll(name string) error {
	w.mu.Lock()
	for p, r := range w.remote {
		if p == name || strings.HasPrefix(p, name+string(filepath.Separator)) {
			delete(w.remote, p)
			r.drop()
		}
	}
	w.mu.Unlock()
	return w.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (w *workFS) Rename(oldname, newname string) error {
	if w.void(newname) {
		return nil
	}
	err := w.FS.Rename(oldname, newname)
	if w.swallow(newname, err) {
		return nil
	}
	return err
}

// List implements vfs.FS.
func (w *workFS) List(dir string) ([]string, error) {
	// Under one lock, since a file that arrived between the two looks would be seen by
	// neither, and be missing in a checkpoint.
	w.mu.Lock()
	defer w.mu.Unlock()
	names, err := w.FS.List(dir)
	if err != nil {
		return nil, err
	}
	for p := range w.remote {
		if w.FS.PathDir(p) == dir {
			names = append(names, w.FS.PathBase(p))
		}
	}
	return names, nil
}

// Stat implements vfs.FS.
func (w *workFS) Stat(name string) (vfs.FileInfo, error) {
	w.mu.Lock()
	r := w.remote[name]
	w.mu.Unlock()
	if r != nil {
		return remoteInfo{name: w.FS.PathBase(name), size: r.entry.Size}, nil
	}
	return w.FS.Stat(name)
}

// mapRemote shows a remote file at a path.
func (w *workFS) mapRemote(path string, r *remoteFile) {
	r.ref()
	w.mu.Lock()
	w.remote[path] = r
	w.mu.Unlock()
}

// arrived links a file that is whole to all places where it is shown. Readers that
// are open go on with the cache file, which is the same one.
func (w *workFS) arrived(r *remoteFile) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, of := range w.remote {
		if of != r {
			continue
		}
		if err := w.FS.Link(r.path, p); err != nil && !errors.Is(err, fs.ErrExist) {
			return err // it stays readable where it is
		}
		delete(w.remote, p)
		r.drop() // the last one removes the name of the cache file, not the file
	}
	return nil
}

// at gives the remote file that a path stands for.
func (w *workFS) at(path string) *remoteFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.remote[path]
}

// workFile is a file that is written and never synced.
type workFile struct {
	vfs.File
	w    *workFS
	name string
}

func (f *workFile) Write(p []byte) (int, error) {
	if f.w.void(f.name) {
		return len(p), nil
	}
	n, err := f.File.Write(p)
	if f.w.swallow(f.name, err) {
		return len(p), nil
	}
	return n, err
}

func (f *workFile) WriteAt(p []byte, off int64) (int, error) {
	if f.w.void(f.name) {
		return len(p), nil
	}
	n, err := f.File.WriteAt(p, off)
	if f.w.swallow(f.name, err) {
		return len(p), nil
	}
	return n, err
}

func (f *workFile) Close() error {
	err := f.File.Close()
	if f.w.swallow(f.name, err) {
		return nil
	}
	return err
}

func (f *workFile) Sync() error                             { return nil }
func (f *workFile) SyncData() error                         { return nil }
func (f *workFile) SyncTo(int64) (fullSync bool, err error) { return true, nil }
func (f *workFile) Preallocate(int64, int64) error          { return nil }
func (f *workFile) Fd() uintptr                             { return vfs.InvalidFd }

// voidFile takes everything and keeps nothing.
type voidFile struct{}

func (voidFile) Close() error                            { return nil }
func (voidFile) Read([]byte) (int, error)                { return 0, io.EOF }
func (voidFile) ReadAt([]byte, int64) (int, error)       { return 0, io.EOF }
func (voidFile) Write(p []byte) (int, error)             { return len(p), nil }
func (voidFile) WriteAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (voidFile) Preallocate(int64, int64) error          { return nil }
func (voidFile) Stat() (vfs.FileInfo, error)             { return remoteInfo{}, nil }
func (voidFile) Sync() error                             { return nil }
func (voidFile) SyncTo(int64) (fullSync bool, err error) { return true, nil }
func (voidFile) SyncData() error                         { return nil }
func (voidFile) Prefetch(int64, int64) error             { return nil }
func (voidFile) Fd() uintptr                             { return vfs.InvalidFd }

// readHandle is a local file that is read.
type readHandle struct {
	vfs.File
	w *workFS
}

func (f *readHandle) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.w.noteRead(err)
	return n, err
}

func (f *readHandle) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.w.noteRead(err)
	return n, err
}

// noteRead notes a read that failed, see unread.
func (w *workFS) noteRead(err error) {
	if err != nil && err != io.EOF {
		w.readError.Store(&err)
	}
}

// unread calls f, and gives the error of a read that failed meanwhile even if f
// does not. Pebble's Excise takes a table of which it could not read a block for one
// that has nothing left there, and drops it.
func (w *workFS) unread(f func() error) error {
	w.readError.Store(nil)
	if err := f(); err != nil {
		return err
	}
	if e := w.readError.Load(); e != nil {
		return *e
	}
	return nil
}

// remoteHandle is an open remote file.
type remoteHandle struct {
	r    *remoteFile
	w    *workFS
	name string
	off  int64
	once sync.Once
}

var errReadOnly = errors.New("a file of a checkpoint is not written")

func (h *remoteHandle) Close() error {
	h.once.Do(h.r.done)
	return nil
}

func (h *remoteHandle) Read(p []byte) (int, error) {
	n, err := h.ReadAt(p, h.off)
	h.off += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

func (h *remoteHandle) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.r.readAt(context.Background(), p, off)
	h.w.noteRead(err)
	return n, err
}

func (h *remoteHandle) Write([]byte) (int, error)          { return 0, errReadOnly }
func (h *remoteHandle) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (h *remoteHandle) Preallocate(int64, int64) error     { return nil }
func (h *remoteHandle) Stat() (vfs.FileInfo, error) {
	return remoteInfo{name: h.name, size: h.r.entry.Size}, nil
}
func (h *remoteHandle) Sync() error                             { return nil }
func (h *remoteHandle) SyncTo(int64) (fullSync bool, err error) { return true, nil }
func (h *remoteHandle) SyncData() error                         { return nil }
func (h *remoteHandle) Prefetch(int64, int64) error             { return nil }
func (h *remoteHandle) Fd() uintptr                             { return vfs.InvalidFd }

// remoteInfo is what Stat tells of a remote file.
type remoteInfo struct {
	name string
	size int64
}

func (i remoteInfo) Name() string           { return i.name }
func (i remoteInfo) Size() int64            { return i.size }
func (i remoteInfo) Mode() os.FileMode      { return 0o444 }
func (i remoteInfo) ModTime() time.Time     { return time.Time{} }
func (i remoteInfo) IsDir() bool            { return false }
func (i remoteInfo) Sys() any               { return nil }
func (i remoteInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
