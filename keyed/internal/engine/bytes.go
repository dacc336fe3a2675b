package engine

import (
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
)

// BytesEnv is what a backend whose entries are rows of bytes gives to its states, which
// keep decoded entries in front of it. All of it belongs to the owner goroutine.
//
// # Generations
//
// Changes have numbers: an entry carries the generation in which it was last changed.
// Now and then, and for every snapshot, the changes of a generation are frozen and a
// new one begins; another goroutine writes the frozen ones into the store, in order.
// Done is the last generation that is known to be there: an entry is dirty if its own
// is greater.
type BytesEnv struct {
	*Env
	Rows Rows // the store as it is now
	Gen  uint32
	Done uint32

	// Used is the bytes of all entries, Allow how many there may be.
	Used, Allow int64
	// Dirty is the bytes of entries changed in this generation, Full when it is to end.
	Dirty, Full int64
	// Relieved is how often room was made.
	Relieved uint64
	// Relieve makes room; see Room.
	Relieve func() error
	// Wait waits until all frozen generations are in the store, and moves Done.
	Wait func() error
	// Hold gives a consistent reading of everything, for the owner. Close ends it.
	Hold func() (view BytesView, err error)
}

// Room is called at the beginning of each operation that may add an entry, while no
// reference to an entry is held. Its error is that of the store.
func (e *BytesEnv) Room() error {
	if e.Used <= e.Allow && e.Dirty <= e.Full {
		return nil
	}
	return e.Relieve()
}

// BytesView is a frozen view: of the entries, and of the rows they stand in front of.
type BytesView interface {
	Native() *table.View
	Rows() Rows
	Close()
}

// Rows is a reading of a store's rows, which are ordered by key.
type Rows interface {
	// Get appends the value of a key.
	Get(dst, key []byte) (value []byte, ok bool, err error)
	// Scan calls f for the rows from a key up to before another, in order, until it returns
	// false. The slices are valid until f returns. f may read other rows.
	Scan(from, to []byte, f func(key, value []byte) bool) error
}

// Op is what a change does to the store.
type Op uint8

// Changes of rows.
const (
	OpSet Op = iota
	OpDelete
	// OpAppend appends to a list: the value follows what is stored, with a ',' between.
	OpAppend
	// OpDeleteRange deletes from the key up to before the value. It comes before the
	// other changes of the rows in it.
	OpDeleteRange
)

// Changes are the changes of one state in one generation. Any goroutine may read them
// while the view that was opened with them is.
type Changes interface {
	// Group calls put for the changes of a key group, in no order. put copies.
	Group(view *table.View, group int, put func(op Op, key, value []byte))
	// Len is the number of entries in it.
	Len(group int) int
}

// BytesState is a state or timer queue whose rows lie in a store. Its methods belong to
// the owner.
type BytesState interface {
	Meta() *serializer.StateMeta
	// Freeze gives the changes of the generation that ends.
	Freeze() Changes
	// Evict drops entries that the store has too, of about so many bytes, and gives how many
	// bytes it found.
	Evict(bytes int64) int64
	// Release drops what only the view needs.
	Release(view *table.View)
	// Sweep looks at about n entries, and n rows, for expired ones.
	Sweep(n int) error
	// Convert checks whether rows of a state with other types can be read, and how their
	// values become this state's; nil where they are the same.
	Convert(old *OldTypes) (serializer.Convert, error)
	// Trim gives what of a row's value a full snapshot of a time has: all, or without what
	// had expired; drop says that nothing is left. Any goroutine may call it.
	Trim(value []byte, at int64) (left []byte, drop bool)
	// Renumber changes the number in the keys of rows, before there are any entries.
	Renumber(id uint16)
	// Reset is called when rows came into the store by another way.
	Reset()
	Stats() Stats
}

// OldTypes are the types with which rows were written. Value is one element of a list,
// one value of a map.
type OldTypes struct {
	Key, Namespace, UserKey, Value *serializer.Type
}
