package incremental

import (
	"context"

	"github.com/tidemark/tidemark/incremental/sst"
)

// File is one file of an embedded database, as a handle lists it.
type File struct {
	// Name is the local name, "000012.sst", "CURRENT", "MANIFEST-000004": what
	// links it to the MANIFEST. The name under which the bytes are stored does not matter.
	Name   string
	Source sst.Source
}

// Options changes how a database is opened. Nil is the default.
type Options struct {
	// Name precedes the local name in errors: the handle's or snapshot's name.
	Name string
	// CacheBytes bounds the memory for tails (index, properties) of open tables
	// that no iterator uses just now; 0 is 32 MiB, negative keeps none.
	CacheBytes int64
	// OnDamage, if set, is told of each file or block that cannot be used, and
	// reading goes on without it. What is then read may lack entries and may hold
	// older values of them, so say so to the user. It may be called from many
	// goroutines. Nil makes the first damage the error of the operation.
	OnDamage func(error)
}

// Database is the RocksDB or ForSt database of one incremental handle, read only:
// the newest version that its MANIFEST describes. For concurrent use.
type Database struct{}

// Open reads the MANIFEST among files and resolves the live tables of each column
// family. Tables themselves are opened when they are needed. Without a MANIFEST
// it opens each table and takes all of them as live, see FromManifest.
func Open(ctx context.Context, files []File, opts *Options) (*Database, error) {
	panic("not yet")
}

// FromManifest says that the MANIFEST told which tables are live. Without it the
// files of the handle are taken as exactly the live set, which they are in every
// handle that Flink wrote.
func (d *Database) FromManifest() bool { panic("not yet") }

// LastSequence is the newest sequence number of the database, 0 without MANIFEST.
func (d *Database) LastSequence() uint64 { panic("not yet") }

// Families are the column families in the order of their ids. Flink has one for
// each state and an empty one with the name "default".
func (d *Database) Families() []*Family { panic("not yet") }

// Family finds a column family by name, in Flink the state's name; nil if there is none.
func (d *Database) Family(name string) *Family { panic("not yet") }

// Family is one column family.
type Family struct {
	ID   uint32
	Name string
	// Tables are the live tables: level 0 newest first, then by level and key.
	Tables []Table
}

// Table is one live table of a column family.
type Table struct {
	Level  int
	Number uint64
	Size   int64 // bytes
	// Smallest and Largest are user keys that bound the table, both inclusive.
	Smallest, Largest       []byte
	SmallestSeq, LargestSeq uint64
}

// ScanOptions narrows a scan. Nil scans the whole column family.
type ScanOptions struct {
	// Lower (inclusive) and Upper (exclusive) bound the user keys; nil is unbounded.
	// See KeyGroupBounds: a handle's own range must always be given, because a
	// rescaled database still holds keys of other key groups.
	Lower, Upper []byte
	// ReadAhead is the most that is read at once from one table, in bytes; 0 is
	// 256 KiB. Reads start small and double while the scan goes on.
	ReadAhead int
}

// Scan iterates over the live entries in ascending byte order of their keys, with
// deletions applied and merge operands joined. No I/O is done before Next.
func (f *Family) Scan(ctx context.Context, opts *ScanOptions) *Iterator { panic("not yet") }

// Get looks up one user key and appends its value to dst. It reads the tail of
// each table that may hold the key, and one data block of it.
func (f *Family) Get(ctx context.Context, key, dst []byte) (value []byte, ok bool, err error) {
	panic("not yet")
}

// Split proposes up to n-1 ascending keys between lower and upper (as in
// ScanOptions) that cut the family into parts of similar size in bytes, for
// scans in parallel. With prefixBytes above 0 the keys are cut to that length:
// the length of the key group keeps each key group in one part.
func (f *Family) Split(ctx context.Context, lower, upper []byte, n, prefixBytes int) ([][]byte, error) {
	panic("not yet")
}

// Iterator walks over live entries:
//
//	it := family.Scan(ctx, opts)
//	defer it.Close()
//	for it.Next() {
//		use(it.Key(), it.Value())
//	}
//	return it.Err()
//
// Not for concurrent use; any number of iterators may run beside each other.
type Iterator struct{}

// Next moves to the next entry, the first at the first call; false at the end or
// after an error.
func (it *Iterator) Next() bool { panic("not yet") }

// SeekGE moves to the first entry whose key is at least key; false if there is
// none or after an error.
func (it *Iterator) SeekGE(key []byte) bool { panic("not yet") }

// Key is the entry's user key; valid until the iterator moves.
func (it *Iterator) Key() []byte { panic("not yet") }

// Value is the entry's value; valid until the iterator moves.
func (it *Iterator) Value() []byte { panic("not yet") }

// Err is the error that ended the iteration; nil at its natural end.
func (it *Iterator) Err() error { panic("not yet") }

// Close frees the iterator's buffers. It may be called more than once.
func (it *Iterator) Close() { panic("not yet") }
