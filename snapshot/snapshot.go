// Package snapshot finds, opens and explains Flink checkpoints and savepoints
// that lie in a blob store.
//
//	<base>/<job id>/chk-<n>/_metadata     a checkpoint and its exclusive files
//	<base>/<job id>/shared/               files of incremental checkpoints
//	<base>/<job id>/taskowned/            files owned by tasks
//	<target>/savepoint-<6 hex>-<12>/      a savepoint with all of its files
//
// Open reads one _metadata object and says, for every state handle in it, which
// physical object it means: Find, List and Latest look for snapshots below a
// URL; Check, Verify, Inspect, Files and DiskUsage answer questions about them.
// Nothing here prints, and only a Writer, and what stands on it, writes to a store.
//
// A _metadata object is untrusted input. What it names is opened only if it lies
// in the store the metadata was read from, or below a prefix the caller trusts;
// everything else is kept as refused, with the reason, never skipped in silence.
//
// Result types carry json tags. They are a documented interface that only grows:
// sizes are bytes, times RFC 3339, ranges include both ends, absent is omitted.
//
// All functions stop when their context ends. A Snapshot is immutable after Open
// and may be used from many goroutines.
package snapshot

import (
	"errors"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// MetadataName is the name of the metadata object in the folder of a snapshot.
const MetadataName = "_metadata"

// Sentinels of this package. Damage of the bytes is metadata.ErrCorrupt, an
// unknown version metadata.ErrUnsupportedVersion; store errors are wrapped.
var (
	// ErrNoSnapshot says that there is no snapshot at a location: no such object,
	// or a folder without _metadata. The text says what is there instead.
	ErrNoSnapshot = errors.New("no snapshot there")
	// ErrRefused says that a handle points where the rules for untrusted metadata
	// do not let it be followed.
	ErrRefused = errors.New("refused")
	// ErrNoneUsable is what Latest returns if every candidate was passed over.
	ErrNoneUsable = errors.New("no usable snapshot")
)

// Mapping replaces the prefix Old of absolute handles by New. Both are URLs or
// paths and match whole path parts; the longest Old wins.
type Mapping struct {
	Old string `json:"old"`
	New string `json:"new"`
}

// Options changes how handles are resolved. Nil is the default.
type Options struct {
	// Trust are URL prefixes that handles may point into although they lie on
	// another store, host or bucket than the metadata.
	Trust []string
	// Map replaces prefixes by hand, before anything else is looked at. The new
	// places count as trusted.
	Map []Mapping
	// NoRelocate takes absolute paths as they are written, even if the folder was
	// evidently moved as a whole.
	NoRelocate bool
	// MaxMetadataBytes bounds the metadata object; 0 is 4 GiB.
	MaxMetadataBytes int64
	// Parallelism bounds concurrent store calls of one function; 0 is 16.
	Parallelism int
}

// Relocation says that a folder was moved as a whole and is read where it lies.
type Relocation struct {
	From string `json:"from"` // prefix as written in the handles
	To   string `json:"to"`   // the place it was replaced by
	// Handles is how many handles the replacement applies to.
	Handles int `json:"handles"`
}

// Snapshot is an opened checkpoint or savepoint. It is immutable.
type Snapshot struct {
	Ref
	// Checkpoint is the decoded metadata; not to be changed.
	Checkpoint *metadata.Checkpoint
	// Relocation is not nil if absolute paths were replaced because the folder
	// was moved.
	Relocation *Relocation

	pool *blobstore.Pool
	opts Options
	res  *resolver
	// fileHandles is how many handles name files.
	fileHandles int
	// copies of files on the local disk; nil if there are none.
	copies *LocalCopies
	// onRead, if not nil, is told of bytes read from state files.
	onRead func(int64)
}

// Pool is the pool the snapshot was opened with.
func (s *Snapshot) Pool() *blobstore.Pool { return s.pool }
