package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("the database is closed")

// failAfter is how long flushes or compactions may fail, for want of room on the disk
// say, before the database fails.
var failAfter = 10 * time.Second

// DB is the working database of one keyed subtask. Reads and writes may come from
// many goroutines; Checkpoint, Confirmed and Aborted too.
type DB struct {
	p    *Process
	opts Options
	dir  string
	fs   *workFS
	lock io.Closer
	log  *slog.Logger
	// incarnation is this life of the backend.
	incarnation string
	popts       *pebble.Options
	sched       *scheduler
	db          *pebble.DB

	life context.Context // ends with Close and with a failure
	end  context.CancelCauseFunc

	// leases is how many calls use the database; closing is added at Close.
	leases   atomic.Int64
	idle     chan struct{}
	closed   sync.Once
	closeErr error

	failure atomic.Pointer[error]
	exited  atomic.Bool // a goroutine of Pebble was ended: Close cannot wait for it

	gate gate
	work sync.WaitGroup // goroutines of ours

	memtable int64 // bytes that a memtable has at least; link's

	flush struct {
		mu      sync.Mutex
		err     error // of the last flush, if it failed
		since   time.Time
		changed chan struct{}
		// compactionSince is since when compactions fail.
		compactionSince time.Time
	}

	up uploads

	files   map[string]*remoteFile // by object name, while Restore runs
	fetches int
	local   sync.Once // reads copies
	copies  []localCopy

	linkedMu sync.Mutex
	linked   []linkedFile // from copies, and not proven yet
}

const closing = int64(1) << 62

// Open makes an empty database in a folder; what an earlier one left there is
// removed, except local copies. The folder is locked until Close.
func Open(ctx context.Context, p *Process, dir string, opts *Options) (*DB, error) {
	d, err := prepare(ctx, p, dir, opts)
	if err != nil {
		return nil, err
	}
	if err := d.openPebble(); err != nil {
		d.Close()
		return nil, err
	}
	d.sched.setOpen(true)
	return d, nil
}

// prepare makes a DB whose folder is empty and that has no Pebble database yet.
func prepare(ctx context.Context, p *Process, dir string, opts *Options) (*DB, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := &DB{p: p, opts: opts.orDefault(), dir: dir, incarnation: uuid.NewString(), files: map[string]*remoteFile{}, idle: make(chan struct{})}
	d.life, d.end = context.WithCancelCause(context.WithoutCancel(ctx))
	d.log = p.log.With("database", d.name())
	base := d.opts.FS
	d.fs = newWorkFS(base, base.PathJoin(dir, "db"), d.fail)
	d.gate.init()
	d.flush.changed = make(chan struct{})
	d.up.init(d)
	d.sched = newScheduler(p.limit)
	if !p.attach() {
		return nil, fmt.Errorf("%s: the process: %w", d.name(), ErrClosed)
	}
	err := base.MkdirAll(dir, 0o755)
	if err == nil {
		d.lock, err = base.Lock(base.PathJoin(dir, "LOCK"))
	}
	if err == nil {
		err = removeUnfinished(base, dir)
	}
	for _, sub := range []string{"db", "fetch"} {
		if err == nil {
			if err = base.RemoveAll(base.PathJoin(dir, sub)); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err == nil {
			err = base.MkdirAll(base.PathJoin(dir, sub), 0o755)
		}
	}
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("%s: %w", d.name(), err)
	}
	return d, nil
}

// removeUnfinished removes the links of checkpoints that no local copy was made of.
func removeUnfinished(base vfs.FS, dir string) error {
	names, err := base.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		at := base.PathJoin(dir, name)
		if !strings.HasPrefix(name, checkpointPrefix) {
			continue
		}
		_, err := base.Stat(base.PathJoin(at, SumsName))
		if errors.Is(err, fs.ErrNotExist) {
			err = base.RemoveAll(at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) name() string {
	if d.opts.Name != "" {
		return d.opts.Name
	}
	return d.dir
}

// openPebble opens the database in the folder, with compactions gated.
func (d *DB) openPebble() (err error) {
	po := pebbleOptions(d.p, &d.opts)
	po.FS = d.fs
	po.Logger = logger{d.log, d.fatal}
	po.EventListener = d.events()
	po.Experimental.CompactionScheduler = d.sched
	po.Experimental.RemoteStorage = objectStorage{d.fs}
	d.popts = po
	defer func() {
		// Untrusted files: an assertion of Pebble is damage, not the end of the process.
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %w", d.name(), asError(r))
		}
	}()
	db, err := pebble.Open(d.fs.dir, po)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name(), err)
	}
	d.db = db
	d.sched.due = d.compactionDue
	d.fs.state.CompareAndSwap(fsOpening, fsRunning)
	if err := d.Err(); err != nil {
		return err
	}
	return nil
}

func asError(r any) error {
	switch r := r.(type) {
	case fatalError:
		return r.err
	case error:
		return r
	}
	return fmt.Errorf("%v", r)
}

// Incarnation names this life of the backend: the BackendID of its handles.
func (d *DB) Incarnation() string { return d.incarnation }

// Dir is the working directory.
func (d *DB) Dir() string { return d.dir }

// Scratch is a folder of a name for what is needed for a while: if it is left, the next
// Open removes it.
func (d *DB) Scratch(name string) string { return d.opts.FS.PathJoin(d.dir, "fetch", name) }

// Err is why the database failed; nil while it works.
func (d *DB) Err() error {
	if e := d.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// fail ends the use of the database. It is called from goroutines of Pebble that
// hold its locks, and does no more than to note the error. Of ErrClosed nobody is told:
// the caller closes it.
func (d *DB) fail(err error) {
	if !strings.HasPrefix(err.Error(), d.name()) {
		err = fmt.Errorf("%s: %w", d.name(), err)
	}
	if !d.failure.CompareAndSwap(nil, &err) {
		return
	}
	d.fs.state.Store(fsVoid)
	d.end(err)
	d.sched.setOpen(false)
	if errors.Is(err, ErrClosed) {
		return
	}
	d.spoilUnproven()
	d.log.Error("the database failed", "error", err)
	if d.opts.Failed != nil {
		go d.opts.Failed(err)
	}
}

// fatalError carries what Pebble called fatal through a panic.
type fatalError struct{ err error }

// fatal is Pebble's Fatalf: it fails the database and does not return. In a call
// of ours the panic ends in guard; a goroutine of Pebble is ended.
func (d *DB) fatal(err error) {
	d.fail(err)
	if guarded() {
		panic(fatalError{d.Err()})
	}
	d.exited.Store(true)
	runtime.Goexit()
}

// guarded says whether a call of guard is on the stack.
func guarded() bool {
	pcs := make([]uintptr, 64)
	for skip := 0; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, "pebbledb.(*DB).guard") || strings.HasSuffix(f.Function, "pebbledb.(*DB).openPebble") {
				return true
			}
			if !more {
				break
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

// guard makes panics of Pebble in this goroutine failures of the database.
//
//go:noinline
func (d *DB) guard(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatalError:
			err = r.err
		default:
			d.fail(asError(r))
			err = d.Err()
		}
	}()
	return f()
}

// Acquire takes a lease: until Release the database is not closed. The error is
// that of a failed database, or ErrClosed.
func (d *DB) Acquire() error {
	if d.leases.Add(1) >= closing {
		d.Release()
		return ErrClosed
	}
	if e := d.failure.Load(); e != nil {
		d.Release()
		return *e
	}
	return nil
}

// Release ends a lease.
func (d *DB) Release() {
	if d.leases.Add(-1) == closing {
		close(d.idle)
	}
}

// Pebble is the database, for reading while a lease is held. Writing goes through
// Apply. Errors of reads that say that a file is damaged fail the database, too.
func (d *DB) Pebble() *pebble.DB { return d.db }

// Close ends the database: it waits for leases and frees what it holds; the
// working directory is left to the caller but for local copies that it may want.
// Frozen checkpoints have to be released before. It may be called more than once.
func (d *DB) Close() error {
	d.closed.Do(func() { d.closeErr = d.close() })
	return d.closeErr
}

func (d *DB) close() error {
	d.end(ErrClosed)
	d.sched.setOpen(false)
	if d.leases.Add(closing) != closing {
		<-d.idle
	}
	d.work.Wait()
	var err error
	if d.db != nil {
		err = d.closePebble()
	}
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	d.p.detach()
	if d.Err() != nil {
		return nil // it was reported
	}
	return err
}

// closePebble closes Pebble. What it still flushes is of no use to anybody, so
// nothing is written any more.
func (d *DB) closePebble() error {
	d.fs.state.Store(fsVoid)
	done := make(chan error, 1)
	go func() { done <- d.guard(d.db.Close) }()
	if !d.exited.Load() {
		return <-done
	}
	// A goroutine of Pebble ended in the middle; it may hold a lock for ever.
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		return d.Err()
	}
}

// events notes what happens to flushes and damage that is found in the background.
func (d *DB) events() *pebble.EventListener {
	return &pebble.EventListener{
		FlushEnd:      func(info pebble.FlushInfo) { d.flushEnded(info.Err) },
		CompactionEnd: func(info pebble.CompactionInfo) { d.compactionEnded(info.Err) },
		BackgroundError: func(err error) {
			d.log.Warn("background work failed", "error", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			d.fail(d.damaged(info))
		},
	}
}

func (d *DB) flushEnded(err error) {
	if err != nil && err.Error() == "pebble: empty table" {
		err = nil // there was nothing to flush
	}
	f := &d.flush
	f.mu.Lock()
	if err == nil {
		f.err, f.since = nil, time.Time{}
	} else {
		if f.err == nil {
			f.since = time.Now()
		}
		f.err = err
	}
	close(f.changed)
	f.changed = make(chan struct{})
	long := err != nil && time.Since(f.since) > failAfter
	f.mu.Unlock()
	if long {
		d.fail(fmt.Errorf("flush: %w", err))
	}
}

// compactionEnded fails the database when no compaction succeeds any more: in the
// end writers would wait in Pebble for level 0 to become smaller.
func (d *DB) compactionEnded(err error) {
	if errors.Is(err, pebble.ErrCancelledCompaction) {
		return
	}
	f := &d.flush
	f.mu.Lock()
	if err == nil {
		f.compactionSince = time.Time{}
	} else if f.compactionSince.IsZero() {
		f.compactionSince = time.Now()
	}
	long := err != nil && time.Since(f.compactionSince) > failAfter
	f.mu.Unlock()
	if long {
		d.fail(fmt.Errorf("compaction: %w", err))
	}
}

// flushError is that of the last flush, nil if it succeeded; changed is closed when
// the next one has ended.
func (d *DB) flushError() (changed <-chan struct{}, err error) {
	d.flush.mu.Lock()
	defer d.flush.mu.Unlock()
	return d.flush.changed, d.flush.err
}
