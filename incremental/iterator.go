package incremental

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/incremental/sst"
)

// ScanOptions narrows a scan. Nil scans the whole column family.
type ScanOptions struct {
	// Lower (inclusive) and Upper (exclusive) bound the user keys; nil is unbounded.
	// See KeyGroupBounds: a handle's own range must always be given, because a
	// rescaled database still holds keys of other key groups.
	Lower, Upper []byte
	// ReadAhead is the most that is read at once from one table, in bytes; 0 is
	// 256 KiB. Reads start small and double while the scan goes on. A scan over
	// more than 16 sorted runs (tables of level 0, and levels) reads less at once.
	ReadAhead int
}

const (
	defaultReadAhead = 256 << 10
	minReadAhead     = 32 << 10
	fullReadRuns     = 16
)

// Scan iterates over the live entries in ascending byte order of their keys, with
// deletions applied and merge operands joined. No I/O is done before Next.
func (f *Family) Scan(ctx context.Context, opts *ScanOptions) *Iterator {
	if opts == nil {
		opts = &ScanOptions{}
	}
	it := &Iterator{family: f, ctx: ctx, lower: opts.Lower, upper: opts.Upper}
	for i := 0; i < len(f.Tables); {
		first := &f.Tables[i]
		j := i + 1
		for first.Level > 0 && j < len(f.Tables) && f.Tables[j].Level == first.Level {
			j++
		}
		r := &run{it: it, order: len(it.runs)}
		for ; i < j; i++ {
			if t := &f.Tables[i]; t.overlaps(it.lower, it.upper) {
				r.tables = append(r.tables, t)
			}
		}
		if len(r.tables) > 0 {
			it.runs = append(it.runs, r)
		}
	}
	it.readAhead = opts.ReadAhead
	if it.readAhead <= 0 {
		it.readAhead = defaultReadAhead
	}
	if n := len(it.runs); n > fullReadRuns {
		it.readAhead = min(it.readAhead, max(minReadAhead, it.readAhead*fullReadRuns/n))
	}
	return it
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
type Iterator struct {
	family    *Family
	ctx       context.Context
	lower     []byte
	upper     []byte
	readAhead int

	runs    []*run
	heap    []*run // the smallest internal key first
	tombs   tombstones
	started bool
	// onTop says that the current entry is the one that heap[0] stands on, so
	// that it is moved past by the next step.
	onTop bool

	prev    []byte // user key that was dealt with last
	merged  []byte // joined merge operands
	pieces  []int  // their starts in operands
	operand []byte
	key     []byte
	value   []byte
	err     error
}

// run is one sorted run of tables: a table of level 0, or those of a level, of
// which one is open at a time.
type run struct {
	it     *Iterator
	order  int // newer runs come first
	tables []*Table
	next   int // index of the table to open next
	iter   *sst.Iter

	// Of the entry that the run stands on:
	prefix  uint64 // the first 8 bytes of key, big-endian, to compare fast
	trailer uint64
	key     []byte
}

// tableIters holds iterators with the buffers that they have grown.
var tableIters = sync.Pool{New: func() any { return new(sst.Iter) }}

// Next moves to the next entry, the first at the first call; false at the end or
// after an error.
func (it *Iterator) Next() bool {
	if !it.started {
		return it.seek(nil)
	}
	if it.err != nil {
		return false
	}
	return it.settle()
}

// SeekGE moves to the first entry whose key is at least key; false if there is
// none or after an error.
func (it *Iterator) SeekGE(key []byte) bool {
	if it.lower != nil && bytes.Compare(key, it.lower) < 0 {
		key = it.lower
	}
	it.err = nil
	return it.seek(key)
}

// seek positions every run at target, or at the start if it is nil.
func (it *Iterator) seek(target []byte) bool {
	it.started, it.onTop = true, false
	it.tombs.reset()
	it.heap = it.heap[:0]
	it.prev = it.prev[:0]
	if err := it.ctx.Err(); err != nil {
		it.err = err
		return false
	}
	for _, r := range it.runs {
		if !r.seek(target) {
			if it.err != nil {
				return false
			}
			continue
		}
		it.heap = append(it.heap, r)
	}
	for i := len(it.heap)/2 - 1; i >= 0; i-- {
		it.down(i)
	}
	return it.settle()
}

// seek moves the run to its first entry at or above target, the first of all if it is nil.
func (r *run) seek(target []byte) bool {
	r.next = 0
	if target != nil {
		for r.next < len(r.tables) && !r.tables[r.next].overlaps(target, nil) {
			r.next++
		}
	}
	return r.openNext(target)
}

// openNext opens tables until one has an entry.
func (r *run) openNext(target []byte) bool {
	it := r.it
	for r.next < len(r.tables) {
		t := r.tables[r.next]
		r.next++
		reader, err := it.family.db.cache.open(it.ctx, it.family.db, t)
		if err != nil {
			if it.err = it.family.db.tolerate(err); it.err != nil {
				return false
			}
			continue
		}
		for _, d := range reader.RangeDels() {
			if t, ok := t.clip(d); ok {
				it.tombs.add(t)
			}
		}
		if r.iter == nil {
			r.iter = tableIters.Get().(*sst.Iter)
		}
		reader.InitIter(it.ctx, r.iter, &sst.IterOptions{Lower: it.lower, Upper: it.upper, ReadAhead: it.readAhead})
		var ok bool
		if target != nil {
			ok = r.iter.SeekGE(target)
		} else {
			ok = r.iter.First()
		}
		if r.landed(ok) {
			return true
		}
		if it.err != nil {
			return false
		}
	}
	return false
}

// landed takes up the entry that the table's iterator stands on after a move;
// behind damage that may be passed by it goes on to the next readable block.
func (r *run) landed(ok bool) bool {
	for !ok {
		err := r.iter.Err()
		if err == nil {
			return false
		}
		if r.it.err = r.it.family.db.tolerate(err); r.it.err != nil {
			return false
		}
		if !r.iter.Skip() {
			if again := r.iter.Err(); again == err || again == nil {
				return false
			}
			continue
		}
		ok = true
	}
	k := r.iter.Key()
	r.key, r.trailer = k, r.iter.Trailer()
	if len(k) >= 8 {
		r.prefix = binary.BigEndian.Uint64(k)
	} else {
		r.prefix = shortPrefix(k)
	}
	return true
}

func shortPrefix(k []byte) uint64 {
	var b [8]byte
	copy(b[:], k)
	return binary.BigEndian.Uint64(b[:])
}

// advance moves the run; false at its end or after an error.
func (r *run) advance() bool {
	if r.landed(r.iter.Next()) {
		return true
	}
	return r.it.err == nil && r.openNext(nil)
}

// before orders runs by internal key: user key, newer version, newer run.
func (r *run) before(o *run) bool {
	if r.prefix != o.prefix {
		return r.prefix < o.prefix
	}
	if c := bytes.Compare(r.key, o.key); c != 0 {
		return c < 0
	}
	if r.trailer != o.trailer {
		return r.trailer > o.trailer
	}
	return r.order < o.order
}

// down restores the heap below i.
func (it *Iterator) down(i int) {
	h := it.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// step moves the run on top of the heap; false after an error.
func (it *Iterator) step() bool {
	if !it.heap[0].advance() {
		if it.err != nil {
			return false
		}
		n := len(it.heap) - 1
		it.heap[0] = it.heap[n]
		it.heap[n] = nil
		it.heap = it.heap[:n]
	}
	if len(it.heap) > 1 {
		it.down(0)
	}
	return true
}

// passKey moves behind all versions of the user key on top of the heap.
func (it *Iterator) passKey() bool {
	it.prev = append(it.prev[:0], it.heap[0].key...)
	return it.passVersions(it.heap[0].trailer)
}

// passVersions moves behind the entry on top, whose user key is prev, and all
// older versions of it.
func (it *Iterator) passVersions(trailer uint64) bool {
	for {
		if !it.step() {
			return false
		}
		if len(it.heap) == 0 {
			return true
		}
		top := it.heap[0]
		c := bytes.Compare(top.key, it.prev)
		if c > 0 {
			return true
		}
		if c < 0 {
			it.err = it.damaged(fmt.Sprintf("key %x comes behind %x", top.key, it.prev))
			return false
		}
		if top.trailer == trailer && !it.family.db.fromManifest {
			// Two live files never hold the same version of a key.
			it.err = it.damaged(fmt.Sprintf("key %x stands in two tables with sequence %d: without a MANIFEST the live ones cannot be told", top.key, trailer>>8))
			return false
		}
		trailer = top.trailer
	}
}

func (it *Iterator) damaged(detail string) error {
	return it.family.db.corrupt(fmt.Sprintf("column family %q", it.family.Name), detail)
}

// settle finds the next live entry from the top of the heap on.
func (it *Iterator) settle() bool {
	if it.onTop {
		it.onTop = false
		if !it.passKey() {
			return it.end()
		}
	}
	for len(it.heap) > 0 {
		top := it.heap[0]
		kind := sst.Kind(top.trailer)
		if !it.tombs.empty() && it.tombs.over(top.key, top.trailer) > top.trailer>>8 {
			kind = sst.KindDeletion
		}
		switch kind {
		case sst.KindValue:
			it.key, it.value, it.onTop = top.key, top.iter.Value(), true
			return true
		case sst.KindMerge:
			if !it.merge() {
				return it.end()
			}
			return true
		default:
			if !it.passKey() {
				return it.end()
			}
		}
	}
	return it.end()
}

// end leaves no entry to look at.
func (it *Iterator) end() bool {
	it.key, it.value = nil, nil
	it.heap = it.heap[:0]
	return false
}

// mergeDelimiter is what StringAppendOperator puts between pieces in Flink's setting.
const mergeDelimiter = ','

// merge joins the operands from the top of the heap down to the base value, a
// deletion or the end, oldest first. The list's elements are not looked at: Flink's
// reader takes one element by its serializer and then passes one byte by.
func (it *Iterator) merge() bool {
	it.prev = append(it.prev[:0], it.heap[0].key...)
	it.operand, it.pieces = it.operand[:0], it.pieces[:0]
	var trailer uint64
	for {
		top := it.heap[0]
		trailer = top.trailer
		kind := sst.Kind(trailer)
		if !it.tombs.empty() && it.tombs.over(top.key, trailer) > trailer>>8 {
			kind = sst.KindDeletion
		}
		if kind != sst.KindMerge && kind != sst.KindValue {
			break
		}
		it.pieces = append(it.pieces, len(it.operand))
		it.operand = append(it.operand, top.iter.Value()...)
		if kind == sst.KindValue {
			break
		}
		if !it.step() {
			return false
		}
		c := 1
		if len(it.heap) > 0 {
			c = bytes.Compare(it.heap[0].key, it.prev)
		}
		if c < 0 {
			it.err = it.damaged(fmt.Sprintf("key %x comes behind %x", it.heap[0].key, it.prev))
			return false
		}
		if c > 0 {
			it.join()
			return true
		}
		if it.heap[0].trailer == trailer && !it.family.db.fromManifest {
			it.err = it.damaged(fmt.Sprintf("key %x stands in two tables with sequence %d: without a MANIFEST the live ones cannot be told", it.prev, trailer>>8))
			return false
		}
	}
	// prev is the key; what is left of it goes before the next entry is sought.
	it.join()
	return it.passVersions(trailer)
}

// join puts the pieces, which came newest first, together.
func (it *Iterator) join() {
	it.merged = it.merged[:0]
	end := len(it.operand)
	for i := len(it.pieces) - 1; i >= 0; i-- {
		if i < len(it.pieces)-1 {
			it.merged = append(it.merged, mergeDelimiter)
		}
		it.merged = append(it.merged, it.operand[it.pieces[i]:end]...)
		end = it.pieces[i]
	}
	it.key, it.value = it.prev, it.merged
}

// Key is the entry's user key; valid until the iterator moves.
func (it *Iterator) Key() []byte { return it.key }

// Value is the entry's value; valid until the iterator moves.
func (it *Iterator) Value() []byte { return it.value }

// Err is the error that ended the iteration; nil at its natural end.
func (it *Iterator) Err() error { return it.err }

// Close frees the iterator's buffers. It may be called more than once.
func (it *Iterator) Close() {
	for _, r := range it.runs {
		if r.iter != nil {
			r.iter.Close()
			tableIters.Put(r.iter)
			r.iter = nil
		}
	}
	it.runs, it.heap = nil, nil
	it.end()
}
