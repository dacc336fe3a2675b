package sst

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
)

// IterOptions narrows an iterator. Nil walks over the whole table.
type IterOptions struct {
	// Lower (inclusive) and Upper (exclusive) bound the user keys; nil is unbounded.
	Lower, Upper []byte
	// ReadAhead is the most that is read at once, in bytes; 0 is 256 KiB. Reads
	// begin with one block and double while the iterator goes on.
	ReadAhead int
}

const (
	defaultReadAhead = 256 << 10
	firstReadAhead   = 16 << 10
)

// Iter walks over the point entries of one table: every version of every key, in
// internal order. Begin with First or SeekGE. Not for concurrent use.
type Iter struct {
	r     *Reader
	ctx   context.Context
	lower []byte
	upper []byte

	data    blockIter
	trailer uint64 // of the current entry
	check   bool   // the current block may hold keys at or above upper

	top      indexIter // the index, or its top level
	part     indexIter // the current partition of a two-level index
	twoLevel bool
	partBuf  []byte // raw partition
	partDec  []byte // decoded partition

	win     window
	dec     []byte // decoded data block
	blockAt Handle
	err     error
	done    bool
	canSkip bool // err is about one block, the index goes on behind it
}

// NewIter makes an iterator. No I/O is done before First or SeekGE.
func (r *Reader) NewIter(ctx context.Context, opts *IterOptions) *Iter {
	it := new(Iter)
	r.InitIter(ctx, it, opts)
	return it
}

// InitIter makes it an iterator over r, as NewIter does, and keeps its buffers.
func (r *Reader) InitIter(ctx context.Context, it *Iter, opts *IterOptions) {
	if opts == nil {
		opts = &IterOptions{}
	}
	it.r, it.ctx = r, ctx
	it.lower, it.upper = opts.Lower, opts.Upper
	it.twoLevel = r.props.IndexType == IndexTwoLevel
	it.err, it.done, it.trailer, it.check = nil, true, 0, false
	it.data.block = block{}
	it.data.pos, it.data.err = 0, nil
	readAhead := opts.ReadAhead
	if readAhead <= 0 {
		readAhead = defaultReadAhead
	}
	it.win.reset(r, readAhead)
}

// First moves to the first entry within the bounds.
func (it *Iter) First() bool {
	if it.lower != nil {
		return it.SeekGE(it.lower)
	}
	it.begin()
	it.top.init(it.r.index, int64(it.r.indexAt.Offset), it.r.props)
	if !it.top.next() {
		return it.endIndex(&it.top)
	}
	if it.twoLevel {
		if !it.loadPartition() {
			return false
		}
		if !it.part.next() {
			return it.emptyPartition()
		}
	}
	return it.loadBlock() && it.Next()
}

// SeekGE moves to the first entry, newest version first, whose user key is at
// least target.
func (it *Iter) SeekGE(target []byte) bool {
	if it.lower != nil && bytes.Compare(target, it.lower) < 0 {
		target = it.lower
	}
	it.begin()
	it.top.init(it.r.index, int64(it.r.indexAt.Offset), it.r.props)
	if !it.top.seekGE(target) {
		return it.endIndex(&it.top)
	}
	if it.twoLevel {
		if !it.loadPartition() {
			return false
		}
		if !it.part.seekGE(target) {
			if it.part.err != nil {
				return it.endIndex(&it.part)
			}
			// A top-level key may lie above the last key of its partition.
			if !it.nextIndex() {
				return false
			}
		}
	}
	if !it.loadBlock() {
		return false
	}
	if it.data.limit > 0 && it.data.seekGE(target) {
		return it.entry()
	}
	if it.data.err != nil {
		return it.skippable(it.data.err)
	}
	return it.nextBlock()
}

// Next moves to the next entry.
func (it *Iter) Next() bool {
	if it.data.next() {
		return it.entry()
	}
	return it.nextBlock()
}

// entry looks at the entry that data stands on.
func (it *Iter) entry() bool {
	k := it.data.key
	n := len(k) - 8
	if n < 0 {
		it.data.fail("has a key without sequence number")
		return it.skippable(it.data.err)
	}
	it.trailer = binary.LittleEndian.Uint64(k[n:])
	if kindRules[byte(it.trailer)] != kindPoint {
		return it.badKind()
	}
	if it.check && bytes.Compare(k[:n], it.upper) >= 0 {
		return it.stop(nil)
	}
	if it.r.hasGlobal {
		if it.trailer>>8 != 0 {
			it.data.fail("of an ingested file has a sequence number")
			return it.skippable(it.data.err)
		}
		it.trailer |= it.r.globalSeq << 8
	}
	return true
}

type kindRule uint8

const (
	kindImpossible kindRule = iota
	kindPoint
	kindUnsupported
)

var kindRules = [256]kindRule{
	KindDeletion:            kindPoint,
	KindValue:               kindPoint,
	KindMerge:               kindPoint,
	KindSingleDeletion:      kindPoint,
	kindBlobIndex:           kindUnsupported,
	kindDeletionTimestamp:   kindUnsupported,
	kindWideColumns:         kindUnsupported,
	kindValuePreferredSeqno: kindUnsupported,
}

var unsupportedKinds = map[Kind]string{
	kindBlobIndex:           "blob values",
	kindDeletionTimestamp:   "user-defined timestamps",
	kindWideColumns:         "wide columns",
	kindValuePreferredSeqno: "values with a preferred sequence number",
}

func (it *Iter) badKind() bool {
	kind := Kind(it.trailer)
	if kindRules[kind] == kindUnsupported {
		return it.skippable(unsupported(int64(it.blockAt.Offset), dataKind, "holds "+unsupportedKinds[kind]))
	}
	it.data.fail(fmt.Sprintf("has kind %#02x", byte(kind)))
	return it.skippable(it.data.err)
}

// begin readies the iterator for a new position.
func (it *Iter) begin() {
	it.err, it.done, it.canSkip = nil, false, false
	it.data.err = nil
	it.part.init(block{}, 0, it.r.props)
}

// skippable is stop for damage of one block, behind which the index goes on.
func (it *Iter) skippable(err error) bool {
	it.canSkip = true
	return it.stop(err)
}

// stop ends the iteration, for good unless it is positioned anew or Skip is called.
func (it *Iter) stop(err error) bool {
	it.done = true
	it.data.limit, it.data.pos, it.data.err = 0, 0, nil
	if err != nil {
		it.err = it.r.named(err)
	}
	return false
}

func (it *Iter) endIndex(x *indexIter) bool { return it.stop(x.err) }

func (it *Iter) emptyPartition() bool {
	if it.part.err != nil {
		return it.stop(it.part.err)
	}
	return it.stop(corrupt(int64(it.top.handle.Offset), "index partition", "has no entries"))
}

// nextBlock moves to the first entry of the next data block that has one.
func (it *Iter) nextBlock() bool {
	if it.data.err != nil {
		return it.skippable(it.data.err)
	}
	for !it.done {
		if !it.nextIndex() || !it.loadBlock() {
			return false
		}
		if it.data.next() {
			return it.entry()
		}
		if it.data.err != nil {
			return it.skippable(it.data.err)
		}
	}
	return false
}

// nextIndex moves the index to the next data block; false at the end, and where
// all that follows lies above the upper bound.
func (it *Iter) nextIndex() bool {
	leaf := &it.top
	if it.twoLevel {
		leaf = &it.part
	}
	if it.upper != nil && leaf.pos > 0 && it.pastUpper(leaf) {
		return it.stop(nil)
	}
	if leaf.next() {
		return true
	}
	if leaf.err != nil || !it.twoLevel {
		return it.endIndex(leaf)
	}
	if !it.top.next() {
		return it.endIndex(&it.top)
	}
	if !it.loadPartition() {
		return false
	}
	if !it.part.next() {
		return it.emptyPartition()
	}
	return true
}

// pastUpper says that no block behind the index entry can hold a key below the
// upper bound: keys of later blocks are at least the separator, and above it if
// separators are user keys.
func (it *Iter) pastUpper(x *indexIter) bool {
	sep := x.userKey()
	if bytes.Compare(sep, it.upper) >= 0 {
		return true
	}
	n := len(it.upper) - 1
	return !x.internal && n == len(sep) && it.upper[n] == 0 && bytes.Equal(sep, it.upper[:n])
}

func (it *Iter) loadPartition() bool {
	const kind = "index partition"
	h := it.top.handle
	it.part.init(block{}, int64(h.Offset), it.r.props) // what Skip goes on behind
	raw, err := it.r.raw(it.ctx, h, kind, &it.partBuf)
	if err != nil {
		return it.skippable(err)
	}
	payload, err := it.r.decodeBlock(it.partDec, raw, int64(h.Offset), kind)
	if err != nil {
		return it.skippable(err)
	}
	if raw[len(raw)-trailerSize] != byte(CompressionNone) {
		it.partDec = payload
	}
	b, err := parseBlock(payload, int64(h.Offset), kind)
	if err != nil {
		return it.skippable(err)
	}
	it.part.init(b, int64(h.Offset), it.r.props)
	return true
}

// loadBlock reads the data block that the index stands on.
func (it *Iter) loadBlock() bool {
	const kind = dataKind
	leaf := &it.top
	if it.twoLevel {
		leaf = &it.part
	}
	h := leaf.handle
	it.blockAt = h
	if h.end(it.r.dataEnd) < 0 {
		return it.skippable(corrupt(leaf.at, "index block", fmt.Sprintf("points to a data block of %d bytes at %d, beyond the data", h.Size, h.Offset)))
	}
	if h.Size > it.r.dec.maxBytes {
		return it.skippable(it.r.tooLong(h, kind))
	}
	raw, err := it.win.get(it.ctx, int64(h.Offset), int(h.Size)+trailerSize)
	if err != nil {
		return it.skippable(err)
	}
	payload, err := it.r.decodeBlock(it.dec, raw, int64(h.Offset), kind)
	if err != nil {
		return it.skippable(err)
	}
	if raw[len(raw)-trailerSize] != byte(CompressionNone) {
		it.dec = payload
	}
	if err := it.data.init(payload, int64(h.Offset), kind); err != nil {
		return it.skippable(err)
	}
	it.check = it.upper != nil && bytes.Compare(leaf.userKey(), it.upper) >= 0
	return true
}

// Skip goes on behind a block that Err tells about: it clears the error and moves
// to the first entry of the next readable data block. It is false, and leaves the
// error, if the index does not tell where that is or the Source failed; it is also
// false at the end, without error, and with the error of the next damaged block.
func (it *Iter) Skip() bool {
	if it.err == nil || !it.canSkip || !isDamage(it.err) {
		return false
	}
	it.err, it.done, it.canSkip = nil, false, false
	return it.nextBlock()
}

// Close drops what the iterator refers to and buffers that have grown large. It
// may be used again with InitIter.
func (it *Iter) Close() {
	const large = 1 << 20
	*it = Iter{
		data: blockIter{key: keep(it.data.key, large)}, top: indexIter{key: keep(it.top.key, large)}, part: indexIter{key: keep(it.part.key, large)},
		partBuf: keep(it.partBuf, large), partDec: keep(it.partDec, large), dec: keep(it.dec, large),
		win: window{buf: keep(it.win.buf, large)}, done: true,
	}
}

func keep(b []byte, large int) []byte {
	if cap(b) > large {
		return nil
	}
	return b[:0]
}

// Key is the entry's user key; valid until the iterator moves.
func (it *Iter) Key() []byte { return it.data.key[:len(it.data.key)-8] }

// Value is the entry's value or merge operand; valid until the iterator moves.
func (it *Iter) Value() []byte { return it.data.value }

// Seq is the entry's sequence number.
func (it *Iter) Seq() uint64 { return it.trailer >> 8 }

// Kind is what the entry does.
func (it *Iter) Kind() Kind { return Kind(it.trailer) }

// Trailer is Seq<<8|Kind: of two versions of a key the one with the larger
// trailer is newer.
func (it *Iter) Trailer() uint64 { return it.trailer }

// Err is the error that ended the iteration, a *damage.Error or one of the
// Source; nil at the natural end.
func (it *Iter) Err() error { return it.err }

// window is a read-ahead buffer over the data blocks of a table.
type window struct {
	r    *Reader
	mem  slicer // set if the file is in memory
	buf  []byte
	off  int64 // of buf in the file
	next int   // bytes to read next time
	max  int
}

func (w *window) reset(r *Reader, limit int) {
	w.r, w.off, w.max = r, 0, limit
	w.next = min(firstReadAhead, limit)
	w.buf = w.buf[:0]
	w.mem, _ = r.src.(slicer)
}

// get gives n bytes at off, valid until the next call.
func (w *window) get(ctx context.Context, off int64, n int) ([]byte, error) {
	if w.mem != nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return w.mem.slice(off, int64(n)), nil
	}
	if i := off - w.off; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : i+int64(n) : i+int64(n)], nil
	}
	if w.r.tail != nil && off >= w.r.tailOff {
		i := off - w.r.tailOff
		return w.r.tail[i : i+int64(n) : i+int64(n)], nil
	}
	// Sequential if the block begins in the buffer or right behind it; what of it
	// is there already is not read again.
	keep := 0
	if end := w.off + int64(len(w.buf)); len(w.buf) > 0 && off >= w.off && off <= end {
		keep = int(end - off)
		w.next = min(2*w.next, w.max)
	} else {
		w.next = min(firstReadAhead, w.max)
	}
	want := int(min(int64(max(n, w.next)), w.r.dataEnd-off))
	copy(w.buf, w.buf[len(w.buf)-keep:])
	w.off = off
	if err := w.r.fill(ctx, &w.buf, keep, want, off+int64(keep)); err != nil {
		w.buf = w.buf[:0]
		return nil, err
	}
	return w.buf[:n:n], nil
}
