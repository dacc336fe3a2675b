// Package staterows reads the states in a Pebble database of an incremental
// checkpoint, read only, as if each were a column family of RocksDB.
//
//	row    := keyGroup state rest → value
//	keyGroup  uint16, state uint16: the state's index in the meta block
//	rest      what RocksDB's key has behind its key group
//	value     RocksDB's value
//
// Numbers are big-endian. A state's rows are so in one piece in each key group. Keys are
// given out as RocksDB has them: the key group in 1 byte up to a max parallelism of
// 128, else in 2, and the rest.
package staterows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
)

// memoryBytes is for blocks of all databases of a Process.
const memoryBytes = 64 << 20

// Process is what the databases that are open at a time share: 64 MiB for blocks and
// what is read ahead. For concurrent use.
type Process struct{ p *pebbledb.Process }

// NewProcess makes a Process. Close it after its databases.
func NewProcess() *Process {
	return &Process{pebbledb.NewProcess(&pebbledb.ProcessOptions{MemoryBytes: memoryBytes, OpenFiles: 256})}
}

// Close frees the memory.
func (p *Process) Close() { p.p.Close() }

// Is reports whether the files of an incremental handle are of a Pebble database.
func Is(files []incremental.File) bool { return pebbledb.IsCheckpoint(files) }

// Database is an open database. For concurrent use.
type Database struct {
	r      *pebbledb.Reader
	name   string
	prefix int
	size   int64

	mu     sync.Mutex
	iters  int // open iterators
	closed bool
}

// Open opens a database. name goes into errors; prefix is the number of bytes of a key
// group in the keys that are given out, 1 or 2. ctx holds until Close.
func Open(ctx context.Context, p *Process, files []incremental.File, name string, prefix int) (*Database, error) {
	r, err := pebbledb.OpenReadOnly(ctx, p.p, files, &pebbledb.ReadOnlyOptions{Name: name, Merger: Merger})
	if err != nil {
		return nil, err
	}
	d := &Database{r: r, name: name, prefix: prefix}
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".sst") {
			d.size += f.Source.Size()
		}
	}
	return d, nil
}

// Bytes is the size of all tables.
func (d *Database) Bytes() int64 { return d.size }

// Close ends reading; while iterators are open the last of them does.
func (d *Database) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.end()
}

// end closes the reader when nobody needs it. The lock is held.
func (d *Database) end() error {
	if !d.closed || d.iters > 0 || d.r == nil {
		return nil
	}
	r := d.r
	d.r = nil
	return r.Close()
}

// ErrClosed says that a database was closed.
var ErrClosed = errors.New("the database is closed")

func (d *Database) acquire() (*pebble.DB, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	d.iters++
	return d.r.Pebble(), nil
}

func (d *Database) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.iters--
	_ = d.end()
}

// Scan iterates over the rows of a state in the order of their keys, from lower up to
// before upper, which are keys as they are given out: each begins with a key group,
// and upper may be nil, for no end. The error shows at the first Next.
func (d *Database) Scan(ctx context.Context, state int, lower, upper []byte) *Iterator {
	it := &Iterator{d: d, ctx: ctx, state: uint16(state)}
	var ok bool
	if it.group, it.from, ok = d.bound(lower); !ok {
		it.err = fmt.Errorf("%s: a bound of %d bytes has no key group", d.name, len(lower))
		return it
	}
	it.last = 1<<(8*d.prefix) - 1
	if upper != nil {
		g, rest, ok := d.bound(upper)
		switch {
		case !ok:
			it.err = fmt.Errorf("%s: a bound of %d bytes has no key group", d.name, len(upper))
			return it
		case len(rest) > 0:
			it.last, it.to = g, rest
		default:
			it.last = g - 1
		}
	}
	db, err := d.acquire()
	if err != nil {
		it.err = err
		return it
	}
	it.held = true
	if it.it, err = db.NewIterWithContext(ctx, nil); err != nil {
		it.err = pebbledb.AsDamage(d.name, err)
	}
	return it
}

func (d *Database) bound(b []byte) (group int, rest []byte, ok bool) {
	if len(b) < d.prefix {
		return 0, nil, false
	}
	if group = int(b[0]); d.prefix == 2 {
		group = group<<8 | int(b[1])
	}
	return group, b[d.prefix:], true
}

// Iterator walks over the rows of a state. Not for concurrent use.
type Iterator struct {
	d     *Database
	ctx   context.Context
	it    *pebble.Iterator
	held  bool
	state uint16

	group    int    // the key group to look into next, or that it is in
	last     int    // the last key group
	from, to []byte // of the first and of the last one
	inGroup  bool
	key      []byte
	value    []byte // Pebble's
	seek     []byte
	err      error
}

// Next moves to the next row, the first at the first call; false at the end or after
// an error.
func (i *Iterator) Next() bool {
	if i.err != nil || i.it == nil {
		return false
	}
	valid := false
	if i.inGroup {
		valid = i.it.Next()
	} else {
		valid = i.begin()
	}
	for valid {
		k := i.it.Key()
		if len(k) < 4 {
			return i.fail(fmt.Errorf("a key of %d bytes", len(k)))
		}
		group, state, rest := int(binary.BigEndian.Uint16(k)), binary.BigEndian.Uint16(k[2:]), k[4:]
		switch {
		case group > i.last:
			return i.end()
		case group == i.group && state == i.state:
			if i.to != nil && group == i.last && bytes.Compare(rest, i.to) >= 0 {
				return i.end()
			}
			i.inGroup = true
			i.key = append(i.key[:0], k[2-i.d.prefix:2]...)
			i.key = append(i.key, rest...)
			var err error
			if i.value, err = i.it.ValueAndErr(); err != nil {
				return i.fail(err)
			}
			return true
		}
		// Its rows of the key group are over: to the next one that may have some.
		if state > i.state || group == i.group {
			group++
		}
		if i.group, i.from = group, nil; group > i.last {
			return i.end()
		}
		valid = i.begin()
	}
	return i.end()
}

// begin seeks the state's rows in the key group.
func (i *Iterator) begin() bool {
	if err := i.ctx.Err(); err != nil {
		return i.fail(err)
	}
	i.inGroup = false
	i.seek = binary.BigEndian.AppendUint16(i.seek[:0], uint16(i.group))
	i.seek = binary.BigEndian.AppendUint16(i.seek, i.state)
	i.seek = append(i.seek, i.from...)
	return i.it.SeekGE(i.seek)
}

func (i *Iterator) end() bool {
	if err := i.it.Error(); err != nil && i.err == nil {
		return i.fail(err)
	}
	i.Close()
	return false
}

func (i *Iterator) fail(err error) bool {
	if cause := i.ctx.Err(); cause != nil {
		err = cause
	}
	if i.err == nil {
		i.err = pebbledb.AsDamage(i.d.name, err)
	}
	i.Close()
	return false
}

// Key is the row's key; valid until the iterator moves.
func (i *Iterator) Key() []byte { return i.key }

// Value is the row's value; valid until the iterator moves.
func (i *Iterator) Value() []byte { return i.value }

// Err is the error that ended the iteration; nil at its natural end.
func (i *Iterator) Err() error { return i.err }

// Close frees the iterator. It may be called more than once.
func (i *Iterator) Close() {
	if i.it != nil {
		if err := i.it.Close(); err != nil && i.err == nil {
			i.err = pebbledb.AsDamage(i.d.name, err)
		}
		i.it = nil
	}
	if i.held {
		i.held = false
		i.d.release()
	}
}

// Split proposes up to n-1 ascending key groups' beginnings between two bounds of
// Scan, as keys, that cut the rows into parts of about as many key groups each: key
// groups are hashes, and so about as large as each other.
func (d *Database) Split(lower, upper []byte, n int) [][]byte {
	from, _, ok := d.bound(lower)
	to, rest, ok2 := d.bound(upper)
	if !ok || !ok2 {
		return nil
	}
	if len(rest) > 0 {
		to++
	}
	n = min(n, to-from)
	var keys [][]byte
	for i := 1; i < n; i++ {
		g := from + (to-from)*i/n
		if d.prefix == 2 {
			keys = append(keys, []byte{byte(g >> 8), byte(g)})
		} else {
			keys = append(keys, []byte{byte(g)})
		}
	}
	return keys
}

// MergerName is the name of the merge operator, of which a number follows.
const MergerName = "tidemark.append."

// Merger gives the operator of a name that a checkpoint has; nil if it is none of ours. It joins what was appended to lists, as RocksDB's does for Flink.
func Merger(name string) *pebble.Merger {
	if !strings.HasPrefix(name, MergerName) {
		return nil
	}
	return &pebble.Merger{Name: name, Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		return &joined{newer: [][]byte{bytes.Clone(value)}}, nil
	}}
}

// joined is a list of operands: newer ones in order, older ones newest first.
type joined struct{ newer, older [][]byte }

// MergeNewer implements pebble.ValueMerger.
func (j *joined) MergeNewer(value []byte) error {
	j.newer = append(j.newer, bytes.Clone(value))
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (j *joined) MergeOlder(value []byte) error {
	j.older = append(j.older, bytes.Clone(value))
	return nil
}

// Finish implements pebble.ValueMerger.
func (j *joined) Finish(bool) ([]byte, io.Closer, error) {
	var out []byte
	for i := len(j.older) - 1; i >= 0; i-- {
		out = append(append(out, j.older[i]...), ',')
	}
	return append(out, bytes.Join(j.newer, []byte{','})...), nil, nil
}
