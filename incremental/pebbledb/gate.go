package pebbledb

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// gate decides when batches may be written. A checkpoint is what lies in tables
// when Pebble links them. Between its synchronous part and that moment, what is
// written must not get into a table: it has to stay in the memtable that was fresh
// at the checkpoint. So from the synchronous part to the rotation nothing is
// written, and from there to the links no more than that memtable takes.
type gate struct {
	mu      sync.Mutex
	queue   []*Frozen // checkpoints that are not linked yet, oldest first
	rotated bool      // the memtables of queue[0] take no more
	room    int64     // bytes that the fresh memtable takes
	// inside is how many batches are being written.
	inside  int
	changed chan struct{} // closed and renewed at each change
}

func (g *gate) init() { g.changed = make(chan struct{}) }

func (g *gate) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// nodeBytes is what Pebble wants to be free in a memtable for an entry beside key and
// value: that of the highest node, although nearly all take a third of it.
const nodeBytes = 192

// memtableCost is what has to be free in a memtable for a batch.
func memtableCost(b *pebble.Batch) int64 { return int64(b.Len()) + int64(b.Count())*nodeBytes }

// Apply writes a batch, which is the caller's again afterwards. While a checkpoint
// is between its synchronous part and its links, it waits when the batch does not
// fit the memtable that was begun then: for a flush of what was there before, some
// hundred milliseconds. Batches of up to 1 MiB go well with that.
//
// It also waits, as long as ctx lasts, while the disk is full.
func (d *DB) Apply(ctx context.Context, b *pebble.Batch) error {
	if err := d.Acquire(); err != nil {
		return err
	}
	defer d.Release()
	if b.Empty() {
		return nil
	}
	after, err := d.enter(ctx, memtableCost(b))
	if err != nil {
		return err
	}
	err = d.commit(b)
	g := &d.gate
	g.mu.Lock()
	if after != nil {
		after.writers--
		if seq := uint64(b.SeqNum()); err == nil && (after.firstAfter == 0 || seq < after.firstAfter) {
			after.firstAfter = seq
		}
	}
	g.inside--
	g.changedLocked()
	g.mu.Unlock()
	return err
}

// Flush makes tables of what was written so far: ahead of a checkpoint, say, which
// then has less to flush. While a checkpoint is being taken it waits. A flush of
// Pebble's own may come between a checkpoint and its links and spoil it.
func (d *DB) Flush(ctx context.Context) error {
	if err := d.Acquire(); err != nil {
		return err
	}
	defer d.Release()
	if _, err := d.enter(ctx, math.MaxInt64); err != nil {
		return err
	}
	var done <-chan struct{}
	err := d.guard(func() (err error) { done, err = d.db.AsyncFlush(); return })
	g := &d.gate
	g.mu.Lock()
	g.inside--
	g.changedLocked()
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return d.flushed(ctx, done)
}

// flushed waits for a flush; a failure of one is the error, although Pebble tries
// again.
func (d *DB) flushed(ctx context.Context, done <-chan struct{}) error {
	for {
		changed, failing := d.flushError()
		if failing != nil {
			return fmt.Errorf("flush: %w", failing)
		}
		select {
		case <-done:
			return d.Err()
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.life.Done():
			return context.Cause(d.life)
		}
	}
}

// enter waits until a batch may be written. If that is before the links of a
// checkpoint that is being taken, it gives that checkpoint.
func (d *DB) enter(ctx context.Context, cost int64) (*Frozen, error) {
	g := &d.gate
	for {
		flushed, failing := d.flushError()
		g.mu.Lock()
		changed := g.changed
		if failing == nil {
			switch {
			case len(g.queue) == 0:
				g.inside++
				g.mu.Unlock()
				return nil, nil
			case len(g.queue) == 1 && g.rotated && cost <= g.room && cost < int64(d.popts.MemTableSize/2)-(64<<10):
				g.inside++
				g.room -= cost
				f := g.queue[0]
				f.writers++
				g.mu.Unlock()
				return f, nil
			}
		}
		g.mu.Unlock()
		select {
		case <-changed:
		case <-flushed:
		case <-ctx.Done():
			if failing != nil {
				return nil, fmt.Errorf("%s: %w while the database cannot flush: %w", d.name(), ctx.Err(), failing)
			}
			return nil, ctx.Err()
		case <-d.life.Done():
			return nil, context.Cause(d.life)
		}
	}
}

// commit writes a batch.
func (d *DB) commit(b *pebble.Batch) error {
	err := d.guard(func() error { return d.db.Apply(b, pebble.NoSync) })
	if failed := d.Err(); failed != nil {
		return failed // it may have gone nowhere
	}
	return err
}
