package keyed

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Config is what every backend must know of its subtask.
type Config[K comparable] struct {
	// Key is the serializer of keys. It is required.
	Key serializer.Serializer[K]
	// MaxParallelism is the number of key groups over all subtasks, 1 to 32768; 0
	// is 128. It is part of every snapshot and cannot change.
	MaxParallelism int
	// KeyGroups is the range of this subtask, see serializer.KeyGroupRange; zero is
	// all of them.
	KeyGroups metadata.KeyGroupRange
	// HashRules are the hashCode of classes that keys are of, see serializer.HashFunc.
	HashRules serializer.HashRules

	// Clock is that of TTL; nil is the system's.
	Clock Clock
	// Metrics is told of what happens; nil is nobody.
	Metrics Metrics
}

// Backend is the keyed state of one subtask. Value, List, Map, Reducing,
// Aggregating and Timers make handles to states in it. See the package comment
// for concurrency.
type Backend[K comparable] interface {
	// Key prepares a key. It does not allocate for keys of fixed size.
	Key(k K) Key[K]
	KeyGroups() metadata.KeyGroupRange
	MaxParallelism() int

	// Attach adds a state. It is called by the functions that make handles.
	Attach(d *Descriptor[K]) error
	// Err is the first error of a state's registration; nil if all are well.
	Err() error

	// View freezes the present for other goroutines. It must be closed: until then
	// what changes is kept twice.
	View() (View, error)
	// Snapshot freezes the present for a snapshot. It is the pause of the task,
	// whose time does not depend on the size of the state.
	Snapshot(ctx context.Context, id int64) (Snapshot, error)
	// Restore reads the backend's key groups out of snapshots into the states. States
	// that are not registered yet are kept as bytes until they are, and are in later
	// snapshots even if they never are.
	Restore(ctx context.Context, from ...RestoreSource) error
	// Confirmed says that a checkpoint is complete: what it has stored, later ones may
	// refer to. It may come late, twice, never, and out of order, from any goroutine.
	Confirmed(id int64)
	// Aborted says that a checkpoint will never be complete. What holds for Confirmed
	// holds for it.
	Aborted(id int64)
	// Close ends snapshots that are being written, and closes views.
	Close() error
}

// View is a frozen view of a backend's state, for the methods ending in At.
type View interface {
	// Close ends it; calling it again does nothing.
	Close()
}

// Snapshot is a frozen view that is written as state of a checkpoint or savepoint. It
// must be released, written or not.
type Snapshot interface {
	// Write writes the state as one file to w in the background of the task. It may be
	// called more than once, also for another format.
	Write(ctx context.Context, w io.Writer, opts *WriteOptions) (*Written, error)
	// Upload writes the state through to in the background of the task and gives the
	// handle for a metadata.SubtaskState; nil for a backend without states. Its type is
	// that of the format: see the backend. After an error nothing of it is used, and
	// what is left of it is removed by the Writer's Abort.
	Upload(ctx context.Context, to *snapshot.Writer, opts *UploadOptions) (metadata.KeyedHandle, error)
	// Release ends the snapshot; calling it again does nothing.
	Release()
}

// Format is a file format of keyed state.
type Format uint8

// Formats. See docs/format.
const (
	// FormatCheckpoint is the backend's own.
	FormatCheckpoint Format = iota
	// FormatCanonical is that of canonical savepoints, which every backend reads.
	FormatCanonical
)

// WriteOptions changes how a snapshot is written. Nil is the default.
type WriteOptions struct {
	Format Format
	// Compress key groups with snappy.
	Compress bool
	// Last says that nothing is read from the snapshot after this: a backend in memory
	// lets go of each key group once it is written, so that updates cost less from
	// then on. A later Write fails with ErrClosed.
	Last bool
}

// Toucher is a backend in memory, which can bring the entries of some keys into the
// processor's cache before the records of these keys are processed one after the other:
// their misses are waited for together then. It belongs to the owner. Calls with some
// ten keys are best.
type Toucher[K comparable] interface{ TouchKeys(keys []Key[K]) }

// Written is a written state file.
type Written struct {
	// Offsets of the key groups.
	Offsets   []int64
	KeyGroups metadata.KeyGroupRange
	Bytes     int64
	Format    Format
	// States are those in the file, in its order.
	States []serializer.StateMeta
}

// Sentinels. Damage of a snapshot is metadata.ErrCorrupt.
var (
	// ErrIncompatible says that state cannot be read with the serializer it was
	// registered with. The text names the state and the part.
	ErrIncompatible = errors.New("incompatible state")
	// ErrClosed says that the backend, view or snapshot was closed.
	ErrClosed = errors.New("closed")
)

// Clock tells the time for TTL.
type Clock interface {
	// Millis is the time in milliseconds of the epoch.
	Millis() int64
}

type systemClock struct{}

func (systemClock) Millis() int64 { return time.Now().UnixMilli() }

// SystemClock is the computer's.
var SystemClock Clock = systemClock{}

// ManualClock is a clock that tests set. It may be used by many goroutines.
type ManualClock struct{ now atomic.Int64 }

// Millis implements Clock.
func (c *ManualClock) Millis() int64 { return c.now.Load() }

// Set sets the time.
func (c *ManualClock) Set(millis int64) { c.now.Store(millis) }

// Advance moves the time.
func (c *ManualClock) Advance(d time.Duration) { c.now.Add(d.Milliseconds()) }

// Metrics is told of what happens, from the goroutine in which it does. Single
// reads and writes are not counted.
type Metrics interface {
	// Add counts.
	Add(m Metric, n int64)
	// Time measures.
	Time(m Metric, d time.Duration)
}

// Metric is something measured. The strings are stable.
type Metric string

// Metrics of all backends.
const (
	MetricSnapshotSync  Metric = "snapshot.sync"  // time
	MetricSnapshotAsync Metric = "snapshot.async" // time
	MetricSnapshotBytes Metric = "snapshot.bytes" // count
	MetricRestore       Metric = "restore"        // time
	MetricRestoreRows   Metric = "restore.rows"   // count
	MetricExpired       Metric = "ttl.expired"    // count, found by background clean-up
)

type noMetrics struct{}

func (noMetrics) Add(Metric, int64)          {}
func (noMetrics) Time(Metric, time.Duration) {}

// NoMetrics drops everything.
var NoMetrics Metrics = noMetrics{}
