package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Reader is a database that is only read. Close it after its iterators.
type Reader struct {
	db    *pebble.DB
	close func() error
	once  sync.Once
	err   error
}

// Pebble is the database, for reading.
func (r *Reader) Pebble() *pebble.DB { return r.db }

// Close ends reading. It may be called more than once.
func (r *Reader) Close() error {
	r.once.Do(func() {
		err := r.db.Close()
		if r.close != nil {
			err = errors.Join(err, r.close())
		}
		r.err = err
	})
	return r.err
}

// readOnly opens the database in a folder of the working file system.
func (d *DB) readOnly(dir string) (*Reader, error) {
	return openReadOnly(d.p, &d.opts, d.fs, dir)
}

func openReadOnly(p *Process, o *Options, fs *workFS, dir string) (r *Reader, err error) {
	po := pebbleOptions(p, o)
	po.FS = fs
	po.ReadOnly = true
	po.DisableTableStats = true // they are loaded by reading every table
	po.Logger = logger{p.log, func(err error) { panic(fatalError{err}) }}
	po.EventListener = &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}
	po.Experimental.CompactionScheduler = newScheduler(p.limit)
	po.Experimental.RemoteStorage = objectStorage{fs}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fatalError:
			err = fmt.Errorf("%s: %w", dir, v.err)
		default:
			err = fmt.Errorf("%s: %w", dir, asError(v))
		}
	}()
	db, err := pebble.Open(dir, po)
	if err != nil {
		return nil, err
	}
	return &Reader{db: db}, nil
}

// Open reads the frozen database, while it is not released: for a canonical
// savepoint. It waits until the tables are linked.
func (f *Frozen) Open(ctx context.Context) (*Reader, error) {
	d := f.d
	if err := d.Acquire(); err != nil {
		return nil, err
	}
	fail := func(err error) (*Reader, error) {
		d.Release()
		return nil, err
	}
	if err := f.hold(); err != nil {
		return fail(err)
	}
	if err := f.wait(ctx); err != nil {
		f.unhold()
		return fail(err)
	}
	r, err := d.readOnly(f.dir)
	if err != nil {
		f.unhold()
		return fail(fmt.Errorf("%s: checkpoint %d: %w", d.name(), f.id, err))
	}
	r.close = func() error {
		f.unhold()
		d.Release()
		return nil
	}
	return r, nil
}
