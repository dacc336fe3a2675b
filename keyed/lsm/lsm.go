package lsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// Options are those of one backend. Nil is the default.
type Options struct {
	// Process is what backends share; nil is one for the whole program, of 256 MiB.
	Process *Process
	// Name precedes errors and log lines: the operator and the subtask.
	Name string
	// Database changes how the database is restored and kept; its Name, KeyGroups,
	// Merger and Failed are the backend's.
	Database pebbledb.Options
}

// Backend is keyed state in a database of its own. See keyed.Backend for its methods.
type Backend[K comparable] struct {
	keys    *keyed.Keys[K]
	env     *engine.BytesEnv
	views   *table.Views
	metrics keyed.Metrics
	states  []state
	byName  map[string]int // in states; failed ones are not there
	err     error
	closed  atomic.Bool

	dir    string
	opts   Options
	share  *share
	db     *pebbledb.DB
	rows   *liveRows
	drains *drainer
	fresh  bool // nothing was written yet

	mu   sync.Mutex                          // of open, and of db where it is set or another goroutine reads it
	open map[interface{ release() }]struct{} // views and snapshots
}

// state is a registered state, or a restored one that nobody has registered.
type state struct {
	st   engine.BytesState // nil if nobody has
	meta serializer.StateMeta
}

var _ keyed.Backend[string] = (*Backend[string])(nil)

// Open makes an empty backend whose database lies in a folder. What an earlier one left
// there is removed. The folder is the backend's until Close, which leaves it behind.
func Open[K comparable](dir string, c keyed.Config[K], opts *Options) (*Backend[K], error) {
	keys, err := keyed.NewKeys(c)
	if err != nil {
		return nil, err
	}
	b := &Backend[K]{
		keys: keys, views: table.NewViews(), metrics: c.Metrics, byName: map[string]int{}, dir: dir, fresh: true,
		open: map[interface{ release() }]struct{}{},
	}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Process == nil {
		b.opts.Process = shared()
	}
	if b.metrics == nil {
		b.metrics = keyed.NoMetrics
	}
	clock := c.Clock
	if clock == nil {
		clock = keyed.SystemClock
	}
	g := keys.KeyGroups()
	b.env = &engine.BytesEnv{
		Env: &engine.Env{
			Views: b.views, First: int(g.Start), Count: int(g.Count), MaxParallelism: keys.MaxParallelism(), Millis: clock.Millis,
			Expired: func(n int64) { b.metrics.Add(keyed.MetricExpired, n) },
		},
		Gen: 1, Relieve: b.relieve, Wait: b.wait, Hold: b.hold,
	}
	o := &b.opts.Database
	o.Name, o.KeyGroups, o.Merger = b.opts.Name, g, merger
	if o.MemTableBytes == 0 {
		o.MemTableBytes = b.opts.Process.memtable()
	}
	if b.db, err = pebbledb.Open(context.Background(), b.opts.Process.db, dir, o); err != nil {
		return nil, fmt.Errorf("keyed: %w", err)
	}
	b.share = b.opts.Process.join()
	b.use()
	return b, nil
}

// use begins to work with the database.
func (b *Backend[K]) use() {
	b.rows = &liveRows{db: b.db}
	b.env.Rows = b.rows
	b.drains = newDrainer(b.db, b.env.First, b.env.Count)
}

// Key implements keyed.Backend.
func (b *Backend[K]) Key(k K) keyed.Key[K] { return b.keys.Make(k) }

// KeyGroups implements keyed.Backend.
func (b *Backend[K]) KeyGroups() metadata.KeyGroupRange { return b.keys.KeyGroups() }

// MaxParallelism implements keyed.Backend.
func (b *Backend[K]) MaxParallelism() int { return b.keys.MaxParallelism() }

// Err implements keyed.Backend.
func (b *Backend[K]) Err() error { return b.err }

// Attach implements keyed.Backend.
func (b *Backend[K]) Attach(d *keyed.Descriptor[K]) error {
	err := b.attach(d)
	if err != nil && b.err == nil {
		b.err = err
	}
	return err
}

func (b *Backend[K]) attach(d *keyed.Descriptor[K]) error {
	if b.closed.Load() {
		return fmt.Errorf("keyed: state %s: backend: %w", d.Meta.Name, keyed.ErrClosed)
	}
	if err := d.Check(); err != nil {
		return err
	}
	i, known := b.byName[d.Meta.Name]
	if known && b.states[i].st != nil {
		return fmt.Errorf("keyed: state %s is registered already", d.Meta.Name)
	}
	d.Keys = b.keys
	if !known {
		if len(b.states) > 1<<15 {
			return fmt.Errorf("keyed: state %s: there are %d states already", d.Meta.Name, len(b.states))
		}
		i = len(b.states)
		st := d.Bytes(b.env, uint16(i))
		b.byName[d.Meta.Name] = i
		b.states = append(b.states, state{st, *st.Meta()})
		return nil
	}
	st := d.Bytes(b.env, uint16(i))
	if err := b.adopt(i, st); err != nil {
		return fmt.Errorf("keyed: state %s: %w", d.Meta.Name, err)
	}
	b.states = slices.Clone(b.states) // snapshots hold the old list
	b.states[i] = state{st, *st.Meta()}
	return nil
}

// CleanUp looks for expired values among about n entries of each state with TTL and as
// many rows: for a task with nothing better to do. Accesses of a state do a little of it.
// An error is that of the database, which the next access returns too.
func (b *Backend[K]) CleanUp(n int) {
	for _, s := range b.states {
		if s.st != nil {
			if err := s.st.Sweep(n); err != nil {
				return
			}
		}
	}
}

// Registered reports whether a state is registered under a name, as opposed to one
// that was restored and waits for it.
func (b *Backend[K]) Registered(name string) bool {
	i, ok := b.byName[name]
	return ok && b.states[i].st != nil
}

// failure is why the backend is of no more use; nil if it is.
func (b *Backend[K]) failure() error {
	if b.closed.Load() {
		return fmt.Errorf("keyed: backend: %w", keyed.ErrClosed)
	}
	if err := b.drains.failure(); err != nil {
		return fmt.Errorf("keyed: %w", err)
	}
	return nil
}

// poll learns which generations are in the store.
func (b *Backend[K]) poll() {
	if done := b.drains.done.Load(); done > b.env.Done {
		b.env.Done = done
		b.rows.renew()
	}
}

// wait waits until all frozen generations are in the store.
func (b *Backend[K]) wait() error {
	b.drains.wait()
	b.poll()
	return b.failure()
}

// freeze ends a generation and has it written. take, if not nil, is a snapshot of the
// database that is to be taken behind it.
func (b *Backend[K]) freeze(take *frozen) *drain {
	j := &drain{gen: b.env.Gen, view: b.views.Open(false), finished: make(chan struct{}), take: take}
	for i, s := range b.states {
		if s.st != nil {
			j.parts = append(j.parts, part{uint16(i), s.st, s.st.Freeze()})
		}
	}
	b.env.Gen++
	b.env.Dirty = 0
	b.fresh = false
	b.drains.add(j)
	return j
}

// relieve makes room for entries: by a larger part of the budget, by writing what is
// dirty, by dropping what is stored.
func (b *Backend[K]) relieve() error {
	if err := b.failure(); err != nil {
		return err
	}
	b.poll()
	e := b.env
	e.Relieved++
	b.share.shrink()
	b.allow()
	if e.Dirty > e.Full {
		if b.drains.busy() {
			// Back pressure: the generation before is still being written.
			if err := b.wait(); err != nil {
				return err
			}
		}
		b.freeze(nil)
	}
	for e.Used > e.Allow && b.share.grow() {
		b.allow()
	}
	if e.Used <= e.Allow {
		return nil
	}
	if b.evict(); e.Used <= e.Allow {
		return nil
	}
	// What is left is dirty.
	if e.Dirty > 0 {
		b.freeze(nil)
	}
	if err := b.wait(); err != nil {
		return err
	}
	b.evict()
	return nil
}

func (b *Backend[K]) allow() {
	b.env.Allow = b.share.taken
	b.env.Full = b.share.fair() / 4 // dirty entries are among those that Allow counts
}

// evict drops entries until there is some room.
func (b *Backend[K]) evict() {
	e := b.env
	want := e.Used - e.Allow + e.Allow/64
	total := 0
	for _, s := range b.states {
		if s.st != nil {
			total += s.st.Stats().Entries
		}
	}
	for range 3 {
		for _, s := range b.states {
			if s.st == nil || want <= 0 {
				continue
			}
			part := want
			if total > 0 {
				part = want*int64(s.st.Stats().Entries)/int64(total) + 1
			}
			s.st.Evict(part)
		}
		if want = e.Used - e.Allow; want <= 0 {
			return
		}
	}
}

// Confirmed implements keyed.Backend.
func (b *Backend[K]) Confirmed(id int64) { b.database().Confirmed(id) }

// Aborted implements keyed.Backend.
func (b *Backend[K]) Aborted(id int64) { b.database().Aborted(id) }

// database is the present one, for any goroutine: a restore has another.
func (b *Backend[K]) database() *pebbledb.DB {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.db
}

func (b *Backend[K]) track(v interface{ release() }) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[v] = struct{}{}
}

func (b *Backend[K]) untrack(v interface{ release() }) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, v)
}

// Close implements keyed.Backend: what is being written ends with ErrClosed.
func (b *Backend[K]) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.drains.close()
	b.mu.Lock()
	open := b.open
	b.open = map[interface{ release() }]struct{}{}
	b.mu.Unlock()
	for v := range open {
		v.release()
	}
	b.rows.renew()
	b.share.leave()
	b.env.Allow, b.env.Full = -1, -1 // the next access asks, and is told
	if err := b.db.Close(); err != nil && !errors.Is(err, pebbledb.ErrClosed) {
		return fmt.Errorf("keyed: %w", err)
	}
	return nil
}
