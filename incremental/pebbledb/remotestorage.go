package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/objstorage/remote"
)

// objectStorage is where Pebble reads tables of other databases that were attached
// when subtasks merged. It is only read; Pebble never deletes from it.
type objectStorage struct{ fs *workFS }

var errNotWritten = errors.New("tables of other databases are only read")

// CreateStorage implements remote.StorageFactory.
func (s objectStorage) CreateStorage(remote.Locator) (remote.Storage, error) { return s, nil }

// ReadObject implements remote.Storage.
func (s objectStorage) ReadObject(_ context.Context, name string) (remote.ObjectReader, int64, error) {
	r, err := s.object(name)
	if err != nil {
		return nil, 0, err
	}
	if err := r.use(); err != nil {
		return nil, 0, err
	}
	return &objectReader{r: r, w: s.fs}, r.entry.Size, nil
}

func (s objectStorage) object(name string) (*remoteFile, error) {
	s.fs.mu.Lock()
	defer s.fs.mu.Unlock()
	if r := s.fs.objects[name]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("table %s: %w", name, fs.ErrNotExist)
}

// CreateObject implements remote.Storage.
func (objectStorage) CreateObject(string) (io.WriteCloser, error) { return nil, errNotWritten }

// List implements remote.Storage.
func (objectStorage) List(string, string) ([]string, error) { return nil, errNotWritten }

// Delete implements remote.Storage.
func (objectStorage) Delete(string) error { return errNotWritten }

// Size implements remote.Storage.
func (s objectStorage) Size(name string) (int64, error) {
	r, err := s.object(name)
	if err != nil {
		return 0, err
	}
	return r.entry.Size, nil
}

// IsNotExistError implements remote.Storage.
func (objectStorage) IsNotExistError(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Close implements remote.Storage.
func (objectStorage) Close() error { return nil }

type objectReader struct {
	r    *remoteFile
	w    *workFS
	once sync.Once
}

func (o *objectReader) ReadAt(ctx context.Context, p []byte, off int64) error {
	_, err := o.r.readAt(ctx, p, off)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	o.w.noteRead(err)
	return err
}

func (o *objectReader) Close() error {
	o.once.Do(o.r.done)
	return nil
}
