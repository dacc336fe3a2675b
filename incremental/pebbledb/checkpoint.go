package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Frozen is the database at the moment of a checkpoint: as links to its tables,
// once it is settled. Release ends it.
type Frozen struct {
	d  *DB
	id int64
	// freeze writes what the caller held back; nil for nothing.
	freeze  func(apply func(*pebble.Batch) error) error
	dir     string
	settled chan struct{}
	err     error // once settled
	// firstAfter is the lowest sequence number of what was written between rotation
	// and links; 0 if nothing was. No table of the checkpoint may have it. Until f is
	// settled the gate's lock guards it, and how many are writing.
	firstAfter uint64
	writers    int

	mu       sync.Mutex
	released bool
	users    int // uploads and readers
}

// Checkpoint is the synchronous part of a checkpoint: the database is frozen as it
// is when Checkpoint returns. It does no I/O and waits for nothing; a memtable is
// rotated, flushed and linked in the background.
//
// freeze, if not nil, is for what the caller holds back, an overlay of changes that
// are not written yet: it is called in the background, once, before anything else
// is written, and writes batches by apply, which are part of the checkpoint. So the
// caller only has to set its overlay aside. If it fails the database fails, since
// what it held back is lost; with ErrClosed if the caller is about to close it.
//
// Writes that come meanwhile wait as Apply says. IDs need not ascend, but no two
// checkpoints that are not released may have the same.
func (d *DB) Checkpoint(id int64, freeze func(apply func(*pebble.Batch) error) error) (*Frozen, error) {
	if err := d.Acquire(); err != nil {
		return nil, err
	}
	f := &Frozen{d: d, id: id, freeze: freeze, settled: make(chan struct{}), dir: d.checkpointDir(id)}
	if !d.up.begin(f) {
		d.Release()
		return nil, fmt.Errorf("%s: checkpoint %d is in progress already", d.name(), id)
	}
	g := &d.gate
	g.mu.Lock()
	var before *Frozen
	if n := len(g.queue); n > 0 {
		before = g.queue[n-1]
	}
	g.queue = append(g.queue, f)
	g.mu.Unlock()
	d.work.Add(1) // under the lease
	d.Release()
	go d.settle(f, before)
	return f, nil
}

// checkpointPrefix begins the names of the folders of checkpoints.
const checkpointPrefix = "chk-"

func (d *DB) checkpointDir(id int64) string {
	return d.opts.FS.PathJoin(d.dir, checkpointPrefix+strconv.FormatInt(id, 10))
}

// settle does what Checkpoint left to the background.
func (d *DB) settle(f, before *Frozen) {
	defer d.work.Done()
	if before != nil {
		<-before.settled
	}
	err := d.freeze(f)
	if err == nil {
		err = d.link(f)
	}
	g := &d.gate
	g.mu.Lock()
	g.rotated = false
	for f.writers > 0 {
		changed := g.changed
		g.mu.Unlock()
		<-changed
		g.mu.Lock()
	}
	g.queue, g.room = g.queue[1:], 0
	f.err = err
	close(f.settled)
	g.changedLocked()
	g.mu.Unlock()
	if err != nil {
		d.removeDir(f.dir)
	}
}

// freeze writes what the caller held back and rotates the memtable.
func (d *DB) freeze(f *Frozen) error {
	g := &d.gate
	for {
		g.mu.Lock()
		inside, changed := g.inside, g.changed
		g.mu.Unlock()
		if inside == 0 {
			break
		}
		<-changed // a batch that is being written comes to an end
	}
	if f.freeze == nil {
		return d.Err()
	}
	if err := d.guard(func() error { return f.freeze(d.commit) }); err != nil {
		d.fail(fmt.Errorf("checkpoint %d: what was held back is lost: %w", f.id, err))
		return d.Err()
	}
	return d.Err()
}

// link flushes what is frozen and links the tables.
func (d *DB) link(f *Frozen) error {
	if err := d.life.Err(); err != nil {
		return context.Cause(d.life)
	}
	if _, err := d.flushError(); err != nil {
		return fmt.Errorf("checkpoint %d: flush: %w", f.id, err)
	}
	if f.isReleased() {
		return errReleased
	}
	g := &d.gate
	// Memtables begin with 256 KiB. They grow unless they are flushed before they are half
	// full, and are never smaller than the one before.
	d.memtable = max(d.memtable, min(256<<10, int64(d.popts.MemTableSize)))
	if m := d.db.Metrics().MemTable; m.Count == 1 {
		d.memtable = max(d.memtable, int64(m.Size))
	}
	var done <-chan struct{}
	if err := d.guard(func() (err error) { done, err = d.db.AsyncFlush(); return }); err != nil {
		return fmt.Errorf("checkpoint %d: flush: %w", f.id, err)
	}
	g.mu.Lock()
	g.rotated, g.room = true, d.memtable-(64<<10)
	g.changedLocked()
	g.mu.Unlock()
	if err := d.flushed(context.Background(), done); err != nil {
		return fmt.Errorf("checkpoint %d: %w", f.id, err)
	}
	d.removeDir(f.dir)
	if err := d.guard(func() error { return d.db.Checkpoint(f.dir) }); err != nil {
		return fmt.Errorf("checkpoint %d: %w", f.id, err)
	}
	return d.Err()
}

var errReleased = errors.New("the checkpoint was released")

func (d *DB) removeDir(dir string) {
	if err := d.fs.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a folder of a checkpoint is left", "folder", dir, "error", err)
	}
}

// Settled is closed when the tables are linked, or that failed: from then on
// writes do not wait for this checkpoint.
func (f *Frozen) Settled() <-chan struct{} { return f.settled }

// ID is that of the checkpoint.
func (f *Frozen) ID() int64 { return f.id }

// wait waits for the links.
func (f *Frozen) wait(ctx context.Context) error {
	select {
	case <-f.settled:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Frozen) isReleased() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.released
}

// hold keeps the links while they are read.
func (f *Frozen) hold() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.released {
		return errReleased
	}
	f.users++
	return nil
}

func (f *Frozen) unhold() {
	f.mu.Lock()
	f.users--
	last := f.released && f.users == 0
	f.mu.Unlock()
	if last {
		f.d.up.end(f)
	}
}

// Release gives up the links; what is being uploaded or read ends first. A local
// copy stays if Options.KeepLocal says so. It may be called more than once, and
// does not wait.
func (f *Frozen) Release() {
	f.mu.Lock()
	first := !f.released
	f.released = true
	last := first && f.users == 0
	f.mu.Unlock()
	if last {
		f.d.up.end(f)
	}
}
