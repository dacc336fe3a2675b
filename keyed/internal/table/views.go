package table

import (
	"math"
	"sync"
	"sync/atomic"
)

// Views numbers the changes of a set of tables and knows which frozen views of
// them are open. Epochs count views: a change made after a view was opened has a
// greater epoch than the view.
//
// Open and Epoch belong to the goroutine that changes the tables, Close to any.
type Views struct {
	epoch  uint32
	newest atomic.Uint32 // greatest epoch of an open view; 0 is none
	oldest atomic.Uint32 // least; MaxUint32 is none
	// readers counts the open views that are not retired.
	readers atomic.Int32
	// lookups counts open views that are asked for single keys.
	lookups atomic.Int32

	mu   sync.Mutex
	open map[*View]struct{}
}

// View is a frozen view: what the tables held when it was opened.
type View struct {
	views   *Views
	epoch   uint32
	lookups bool
	retired atomic.Bool
	closed  atomic.Bool
}

// NewViews begins with epoch 1.
func NewViews() *Views {
	v := &Views{epoch: 1, open: map[*View]struct{}{}}
	v.oldest.Store(math.MaxUint32)
	return v
}

// Open freezes the present. It takes the same time whatever the tables hold.
// Views for lookups cost each later change a little more.
func (v *Views) Open(lookups bool) *View {
	w := &View{views: v, epoch: v.epoch, lookups: lookups}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch++
	v.open[w] = struct{}{}
	v.readers.Add(1)
	if lookups {
		v.lookups.Add(1)
	}
	v.publish()
	return w
}

// retire says that nothing is read from the view any more. It counts as open until
// Close, so that the owner goes on taking the locks while old versions are dropped.
func (w *View) retire() {
	if !w.retired.Swap(true) {
		w.views.readers.Add(-1)
	}
}

// Close ends a view: nothing may be read from it any more. It may be called more
// than once. Release the tables' old versions first, see Table.Release.
func (w *View) Close() {
	if w.closed.Swap(true) {
		return
	}
	w.retire()
	v := w.views
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, w)
	if w.lookups {
		v.lookups.Add(-1)
	}
	v.publish()
}

// Closed reports whether the view was closed.
func (w *View) Closed() bool { return w.closed.Load() }

func (v *Views) publish() {
	newest, oldest := uint32(0), uint32(math.MaxUint32)
	for w := range v.open {
		newest, oldest = max(newest, w.epoch), min(oldest, w.epoch)
	}
	v.oldest.Store(oldest)
	v.newest.Store(newest)
}

// Open views, for metrics.
func (v *Views) Count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.open)
}

// needed reports whether an open view has an epoch in [from, to).
func (v *Views) needed(from, to uint32) bool {
	newest, oldest := v.newest.Load(), v.oldest.Load()
	switch {
	case newest < from || oldest >= to:
		return false
	case newest < to && newest > 0 || oldest >= from:
		return true // with one or two open views it is always known here
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for w := range v.open {
		if from <= w.epoch && w.epoch < to {
			return true
		}
	}
	return false
}
