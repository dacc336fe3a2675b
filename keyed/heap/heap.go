// Package heap is a backend that keeps keyed state in memory as Go values: nothing
// is serialized to be read or written. A snapshot's pause does not depend on the
// size of the state; the state is written beside the running task, from a frozen view
// that costs memory only for what changes meanwhile.
//
// Its checkpoints are in the format of Flink's HashMapStateBackend, its savepoints in
// the canonical one that every backend of Flink reads.
//
// # Memory
//
// An entry takes its key, namespace and value and a byte, and tables are between half
// and six sevenths full. Keys, values, list elements and map entries without pointers
// lie in slabs of up to 4 MiB that the garbage collector does not look into and for
// which huge pages are asked for, where the system has them; strings, slices and
// pointers are objects of their own, as in any Go program, and are marked with each
// collection. A table that becomes small gives its memory back; that of small lists
// and maps is kept for new ones.
package heap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/metadata"
)

// Backend is keyed state in memory. See keyed.Backend for its methods.
type Backend[K comparable] struct {
	keys    *keyed.Keys[K]
	env     *engine.Env
	views   *table.Views
	metrics keyed.Metrics
	states  []state
	byName  map[string]int // in states; failed ones are not there
	err     error
	closed  atomic.Bool

	mu   sync.Mutex
	open map[interface{ release() }]struct{} // views and snapshots
}

// state is a registered state, or a restored one that nobody has registered.
type state struct {
	engine.State
	raw *rawState
}

var _ keyed.Backend[string] = (*Backend[string])(nil)

// Open makes an empty backend.
func Open[K comparable](c keyed.Config[K]) (*Backend[K], error) {
	keys, err := keyed.NewKeys(c)
	if err != nil {
		return nil, err
	}
	b := &Backend[K]{keys: keys, views: table.NewViews(), metrics: c.Metrics, byName: map[string]int{}, open: map[interface{ release() }]struct{}{}}
	if b.metrics == nil {
		b.metrics = keyed.NoMetrics
	}
	clock := c.Clock
	if clock == nil {
		clock = keyed.SystemClock
	}
	g := keys.KeyGroups()
	b.env = &engine.Env{
		Views: b.views, First: int(g.Start), Count: int(g.Count), MaxParallelism: keys.MaxParallelism(), Millis: clock.Millis,
		Expired: func(n int64) { b.metrics.Add(keyed.MetricExpired, n) },
	}
	return b, nil
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
	if known && b.states[i].raw == nil {
		return fmt.Errorf("keyed: state %s is registered already", d.Meta.Name)
	}
	d.Keys = b.keys
	st := d.Native(b.env)
	if !known {
		b.byName[d.Meta.Name] = len(b.states)
		b.states = append(b.states, state{State: st})
		return nil
	}
	raw := b.states[i].raw
	if err := raw.into(st); err != nil {
		return fmt.Errorf("keyed: state %s: %w", d.Meta.Name, err)
	}
	b.states = slices.Clone(b.states) // snapshots hold the old list
	b.states[i] = state{State: st}
	return nil
}

// CleanUp looks for expired values among about n entries of each state with TTL: for
// a task with nothing better to do. Each access of a state does a little of it.
func (b *Backend[K]) CleanUp(n int) {
	for _, s := range b.states {
		if s.raw == nil {
			s.Sweep(n)
		}
	}
}

// TouchKeys implements keyed.Toucher.
func (b *Backend[K]) TouchKeys(keys []keyed.Key[K]) {
	for i := range b.states {
		if t, ok := b.states[i].State.(keyed.Toucher[K]); ok {
			t.TouchKeys(keys)
		}
	}
}

// Registered reports whether a state is registered under a name, as opposed to one
// that was restored and waits for it.
func (b *Backend[K]) Registered(name string) bool {
	i, ok := b.byName[name]
	return ok && b.states[i].raw == nil
}

// Len is the number of entries of a state: keys and namespaces, or timers.
func (b *Backend[K]) Len(name string) int {
	i, ok := b.byName[name]
	if !ok {
		return 0
	}
	return b.states[i].Stats().Entries
}

// OldVersions is how many entries are kept twice at present, for open views and
// snapshots.
func (b *Backend[K]) OldVersions() int {
	n := 0
	for _, s := range b.states {
		n += s.Stats().OldVersions
	}
	return n
}

// view is a frozen view: of a View or of a Snapshot.
type view[K comparable] struct {
	b      *Backend[K]
	w      *table.View
	states []state
	once   sync.Once
}

func (b *Backend[K]) freeze(lookups bool) *view[K] {
	return &view[K]{b: b, w: b.views.Open(lookups), states: b.states[:len(b.states):len(b.states)]}
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

func (v *view[K]) close() {
	v.once.Do(func() {
		for _, s := range v.states {
			s.Release(v.w)
		}
		v.w.Close()
	})
}

// View implements keyed.Backend.
func (b *Backend[K]) View() (keyed.View, error) {
	if b.closed.Load() {
		return nil, fmt.Errorf("keyed: backend: %w", keyed.ErrClosed)
	}
	v := &openView[K]{b.freeze(true)}
	b.track(v)
	return v, nil
}

type openView[K comparable] struct{ v *view[K] }

func (o *openView[K]) Native() *table.View { return o.v.w }

func (o *openView[K]) release() { o.v.close() }

// Close implements keyed.View.
func (o *openView[K]) Close() {
	o.v.close()
	o.v.b.untrack(o)
}

// Snapshot implements keyed.Backend. The id is for messages.
func (b *Backend[K]) Snapshot(ctx context.Context, id int64) (keyed.Snapshot, error) {
	start := time.Now()
	switch {
	case b.closed.Load():
		return nil, fmt.Errorf("keyed: snapshot %d: backend: %w", id, keyed.ErrClosed)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("keyed: snapshot %d: %w", id, ctx.Err())
	case b.err != nil:
		return nil, fmt.Errorf("keyed: snapshot %d: %w", id, b.err)
	}
	s := &snap[K]{view: b.freeze(false), id: id, at: b.env.Millis()}
	b.track(s)
	b.metrics.Time(keyed.MetricSnapshotSync, time.Since(start))
	return s, nil
}

// Confirmed implements keyed.Backend: checkpoints of a heap stand for themselves.
func (b *Backend[K]) Confirmed(int64) {}

// Aborted implements keyed.Backend.
func (b *Backend[K]) Aborted(int64) {}

// Close implements keyed.Backend: what is being written ends with ErrClosed.
func (b *Backend[K]) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.mu.Lock()
	open := b.open
	b.open = map[interface{ release() }]struct{}{}
	b.mu.Unlock()
	for v := range open {
		v.release()
	}
	return nil
}

var errOpenViews = errors.New("views or snapshots are open")
