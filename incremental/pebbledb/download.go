package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/internal/damage"
)

// maxDownloads bounds the files of one database that are fetched at a time.
const maxDownloads = 4

// maxWarm bounds the tables that warm fetches something of.
const maxWarm = 64

// warm fetches the ends of tables, where their indexes and filters are, together:
// opening them one after the other would take a request's time for each. What
// fails is found by whoever reads.
func (d *DB) warm(ctx context.Context, files []*remoteFile) {
	d.ends(ctx, files[max(0, len(files)-maxWarm):], maxUploads) // upper levels come last
}

// ends fetches the ends of tables, some at a time, in their order.
func (d *DB) ends(ctx context.Context, files []*remoteFile, atOnce int) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, r := range files {
		g.Go(func() error {
			if r.use() != nil {
				return nil
			}
			defer r.done()
			var b [1]byte
			r.readAt(ctx, b[:], r.entry.Size-1)
			return nil
		})
	}
	g.Wait()
}

// prefetch begins to fetch the ends of the tables while Pebble opens, the youngest
// first: those of level 0, which the first read asks one after the other, then those of
// the levels below, of which it asks one each. Places are left for who reads.
func (d *DB) prefetch(files []*remoteFile) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b *remoteFile) int { return strings.Compare(b.entry.Name, a.entry.Name) })
	files = files[:min(len(files), maxWarm)]
	d.work.Go(func() { d.ends(d.life, files, max(1, d.p.maxTransfers*3/4)) })
}

// fetch brings the tables of a restored database here: now, or in the background.
// Compactions begin when all are here, or cannot be.
func (d *DB) fetch(ctx context.Context, files []*remoteFile) error {
	order, err := d.order(files)
	if err != nil {
		return err
	}
	if d.opts.Eager {
		if err := d.prove(ctx); err != nil {
			return err
		}
		if err := d.fetchAll(ctx, order); err != nil {
			return err
		}
		d.sched.setOpen(true)
		return nil
	}
	fetched := make(chan struct{})
	d.work.Add(2)
	go func() {
		defer d.work.Done()
		d.watchLevel0(fetched)
	}()
	go func() {
		defer d.work.Done()
		defer close(fetched)
		for pause := fetchPause; ; pause = min(2*pause, maxFetchPause) {
			err := d.fetchAll(d.life, order)
			if err == nil {
				err = d.prove(d.life)
			}
			switch {
			case err == nil:
				d.sched.setOpen(true)
				return
			case errors.Is(err, damage.ErrCorrupt):
				d.fail(err)
				return
			case d.life.Err() != nil:
				return
			}
			// It is readable as far as the store answers.
			d.log.Warn("tables are not here yet", "error", err, "again in", pause)
			select {
			case <-time.After(pause):
			case <-d.life.Done():
				return
			}
		}
	}()
	return nil
}

// fetchPause is how long the background waits after a request of the store that failed,
// at first; it doubles up to maxFetchPause.
var fetchPause = time.Second

const maxFetchPause = time.Minute

// maxWaiting is how many sorted runs level 0 may have before compactions begin although
// tables are still in the blob store; at stopRuns Pebble lets writers wait.
const maxWaiting = 8

// watchLevel0 opens the gate of compactions when they cannot wait until all tables are here.
func (d *DB) watchLevel0(fetched <-chan struct{}) {
	for {
		changed, _ := d.flushError()
		if d.db.Metrics().Levels[0].Sublevels >= maxWaiting {
			d.sched.setOpen(true)
			return
		}
		select {
		case <-changed:
		case <-fetched:
			return
		case <-d.life.Done():
			return
		}
	}
}

// order puts the tables that most reads need first: level 0, then the smaller levels.
func (d *DB) order(files []*remoteFile) ([]*remoteFile, error) {
	if len(files) == 0 {
		return nil, nil
	}
	levels, err := d.db.SSTables()
	if err != nil {
		return nil, err
	}
	rank := map[string]int{}
	for _, level := range levels {
		for _, t := range level {
			name, err := externalName(d.db, t)
			if err != nil {
				return nil, err
			}
			if name == "" {
				name = t.BackingSSTNum.String() + ".sst"
			}
			if _, ok := rank[name]; !ok {
				rank[name] = len(rank)
			}
		}
	}
	at := func(r *remoteFile) int {
		for _, n := range []string{r.entry.Name, objectName(r.entry)} {
			if k, ok := rank[n]; ok {
				return k
			}
		}
		return len(rank)
	}
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b *remoteFile) int { return at(a) - at(b) })
	seen := map[*remoteFile]bool{}
	return slices.DeleteFunc(files, func(r *remoteFile) bool {
		again := seen[r]
		seen[r] = true
		return again
	}), nil
}

// fetchAll fetches files. One that the disk does not take stays where it is.
func (d *DB) fetchAll(ctx context.Context, files []*remoteFile) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxDownloads)
	var mu sync.Mutex
	var left error
	for _, r := range files {
		g.Go(func() error {
			if err := d.p.background.Acquire(ctx, 1); err != nil {
				return err
			}
			whole, err := r.fetchAll(ctx)
			d.p.background.Release(1)
			if err != nil {
				return err
			}
			if !whole {
				if r.isGone() {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				left = errors.Join(left, fmt.Errorf("%s: %w", r.display, r.whyNotCached()))
				return nil
			}
			return d.fs.arrived(r)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if left != nil && d.opts.Eager {
		return left
	}
	if left != nil {
		d.log.Warn("tables stay in the blob store", "error", left)
	}
	return nil
}
