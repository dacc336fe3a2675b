package pebbledb

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark/tidemark/metadata"
)

// formatVersion is the format that databases are written in. It is raised by
// releases of ours only, so that a checkpoint says which release reads it.
const formatVersion = pebble.FormatValueSeparation

// Options are those of one database. Nil or zero is the default, but for KeyGroups.
type Options struct {
	// Name precedes errors and log lines: the operator and the subtask.
	Name string
	// KeyGroups are those of the subtask: the handles say so, and Restore leaves
	// nothing outside of them.
	KeyGroups metadata.KeyGroupRange
	// Merger is Pebble's merge operator; its name is part of the checkpoints. A panic
	// in it is an error of the operation. Nil is Pebble's own, which concatenates.
	Merger *pebble.Merger
	// MemTableBytes is the size of a memtable; 0 is 16 MiB. There are up to three,
	// which count for the memory budget, so it is at most an eighth of that.
	MemTableBytes int
	// FS is the file system of the working directory; nil is the disk, InMemory one
	// that ends with the process.
	FS vfs.FS
	// Failed is called once if the database fails: it is of no use from then on, all
	// calls return the error. It must not call the database.
	Failed func(error)

	// Eager makes Restore return only when all tables are here.
	Eager bool
	// NoClaim says that the restored checkpoint is not ours (restore mode NO_CLAIM):
	// the first checkpoint refers to none of its files.
	NoClaim bool
	// Local are folders of local copies, as LocalCopy gives them, and LocalCopies those of
	// an earlier working directory: a file that proves itself the one wanted is linked
	// from there.
	Local []string
	// KeepLocal keeps the files of the last confirmed checkpoint on the local disk
	// for local recovery.
	KeepLocal bool
}

func (o *Options) orDefault() Options {
	var r Options
	if o != nil {
		r = *o
	}
	if r.FS == nil {
		r.FS = vfs.Default
	}
	if r.Merger == nil {
		r.Merger = pebble.DefaultMerger
	}
	if r.MemTableBytes <= 0 {
		r.MemTableBytes = 16 << 20
	}
	return r
}

// stopMemtables is how many memtables there are before writers wait.
const stopMemtables = 3

// tableBytes is the size of tables from level 1 on: the unit of what is uploaded
// again, and few enough objects for a store.
const tableBytes = 32 << 20

// manifestBytes is the size from which on Pebble begins a new MANIFEST, which is uploaded
// whole with each checkpoint: of the edits of a database's life only the tables that are
// there are left then. It takes at least as many edits as there are tables.
const manifestBytes = 8 << 10

// pebbleOptions are those of all databases; the caller adds file system, events
// and scheduler.
func pebbleOptions(p *Process, o *Options) *pebble.Options {
	po := &pebble.Options{
		Cache:                       p.cache,
		FileCache:                   p.files,
		Comparer:                    pebble.DefaultComparer,
		Merger:                      guardedMerger(o.Merger),
		FormatMajorVersion:          formatVersion,
		DisableWAL:                  true,
		NoSyncOnClose:               true,
		MaxManifestFileSize:         manifestBytes,
		MemTableSize:                uint64(max(min(int64(o.MemTableBytes), p.MemoryBytes()/8), 256<<10)),
		MemTableStopWritesThreshold: stopMemtables,
		L0CompactionThreshold:       2 * minRuns, // Pebble counts each sublevel twice
		L0StopWritesThreshold:       stopRuns,
		LBaseMaxBytes:               64 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, max(1, p.limit.places) },
		MaxConcurrentDownloads:      func() int { return 1 },
	}
	po.Experimental.DisableIngestAsFlushable = func() bool { return true }
	po.Experimental.EnableColumnarBlocks = func() bool { return true }
	po.TargetFileSizes[0] = 8 << 20
	for i := 1; i < len(po.TargetFileSizes); i++ {
		po.TargetFileSizes[i] = tableBytes
	}
	minLZ := func() *sstable.CompressionProfile { return block.MinLZCompression }
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].BlockSize = 4 << 10
		po.Levels[i].IndexBlockSize = 64 << 10
		po.Levels[i].Compression = minLZ
	}
	// What a checkpoint uploads are the tables of level 0 that it flushed, and what
	// compactions made since the last: so those of level 0 are pressed harder.
	po.Levels[0].BlockSize = 8 << 10
	po.Levels[0].Compression = func() *sstable.CompressionProfile { return zstd }
	return po
}

// zstd is level 1 for all blocks of data, and not only for those that gain much.
var zstd = func() *block.CompressionProfile {
	p := *block.BalancedCompression
	p.AdaptiveReductionCutoffPercent = 0
	return &p
}()

// guardedMerger makes panics of a merge operator errors: it also runs in
// compactions, where a panic would end the process.
func guardedMerger(m *pebble.Merger) *pebble.Merger {
	return &pebble.Merger{Name: m.Name, Merge: func(key, value []byte) (vm pebble.ValueMerger, err error) {
		defer recovered(m.Name, &err)
		inner, err := m.Merge(key, value)
		if err != nil {
			return nil, err
		}
		g := guardedMerge{name: m.Name, vm: inner}
		if _, ok := inner.(pebble.DeletableValueMerger); ok {
			return deletableMerge{g}, nil
		}
		return g, nil
	}}
}

func recovered(name string, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("merge operator %s: %v", name, r)
	}
}

type guardedMerge struct {
	name string
	vm   pebble.ValueMerger
}

func (g guardedMerge) MergeNewer(value []byte) (err error) {
	defer recovered(g.name, &err)
	return g.vm.MergeNewer(value)
}

func (g guardedMerge) MergeOlder(value []byte) (err error) {
	defer recovered(g.name, &err)
	return g.vm.MergeOlder(value)
}

func (g guardedMerge) Finish(includesBase bool) (value []byte, c io.Closer, err error) {
	defer recovered(g.name, &err)
	return g.vm.Finish(includesBase)
}

type deletableMerge struct{ guardedMerge }

func (g deletableMerge) DeletableFinish(includesBase bool) (value []byte, del bool, c io.Closer, err error) {
	defer recovered(g.name, &err)
	return g.vm.(pebble.DeletableValueMerger).DeletableFinish(includesBase)
}

// logger is Pebble's, of one database. Pebble expects that Fatalf does not return.
type logger struct {
	log   *slog.Logger
	fatal func(error)
}

func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "event", fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Warn("pebble", "event", fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	l.fatal(fmt.Errorf(format, args...))
}
