// Package engine is what package keyed and its backends say to each other about
// states whose entries are native Go values. It has no part in the API.
package engine

import (
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Env is what a backend of native values gives to its states.
type Env struct {
	Views        *table.Views
	First, Count int // key groups
	// Millis is the clock of TTL, in epoch milliseconds.
	Millis func() int64
	// Group is the key group of a key's Java hash code.
	MaxParallelism int
	// Expired is told of entries that TTL removed, apart from reads.
	Expired func(n int64)
}

// State is a state or timer queue of native values, whatever its types.
type State interface {
	Meta() *serializer.StateMeta
	// Write writes what a view sees of a key group. Any goroutine may call it. It
	// begins the state in w if there are entries; dropExpiredAt, if not 0, leaves
	// out values that had expired at that time.
	Write(w *stream.KeyedWriter, index int, view *table.View, group int, dropExpiredAt int64) error
	// Loader reads rows of a snapshot into the state. Loaders of several goroutines
	// may be used at a time for different key groups. The error says why the state
	// cannot be read, without its name.
	Loader(from *snapshot.State) (Loader, error)
	// Loaded is called by the owner after the last row.
	Loaded()
	// Release drops what only the view needs.
	Release(view *table.View)
	// Passed says that nothing more is read of a key group of the view.
	Passed(view *table.View, group int)
	// Sweep looks at about n entries for expired ones; it belongs to the owner.
	Sweep(n int)
	Stats() Stats
}

// Loader puts rows into a state.
type Loader interface {
	// Load copies what it keeps. A row of another key group than its key's is damage.
	Load(r *snapshot.StateRow) error
}

// Stats are numbers of a state, for metrics. They belong to the owner.
type Stats struct {
	Entries int // keys and namespaces, or timers
	// OldVersions are entries kept for open views.
	OldVersions int
}
