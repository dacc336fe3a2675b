package sst

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
)

// VerifyOptions changes what Verify does. Nil is the default.
type VerifyOptions struct {
	// Options are those of Open.
	Options
	// FormatVersion is what the footer must have, 0 if unknown. Versions 4 and 5,
	// and 2 and 3, differ in nothing that a table must hold, so that a flipped bit
	// in this field alone can only be found by who knows what was written: the
	// OPTIONS file beside it.
	FormatVersion uint32
	// Choose, if not nil, tells by its number in the file whether a data block is
	// read. All other blocks are read always.
	Choose func(block uint64) bool
	// OnEntry, if not nil, is called for each point entry of the blocks that are
	// read, in the order of the file, with its user key, its sequence number and kind,
	// and the file offset of its block. The slices are valid during the call. An
	// error ends the run.
	OnEntry func(key []byte, trailer uint64, value []byte, block int64) error
	// ReadAhead is as in IterOptions; 0 is 1 MiB.
	ReadAhead int
	// OnDamage is told of each finding, in order of discovery. What is wrong with a
	// data block is a *BlockError.
	OnDamage func(error)
}

// BlockError is damage of one data block: no entry of it can be relied on.
type BlockError struct {
	Err error // a *damage.Error
	// Lower (exclusive, nil if it is the first) and Upper (inclusive) bound the user
	// keys that the block should hold, by the index.
	Lower, Upper []byte
}

func (e *BlockError) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *BlockError) Unwrap() error { return e.Err }

// Report is what Verify saw. Counts are of what could be read.
type Report struct {
	Footer     Footer
	Properties *Properties

	DataBlocks    int
	IndexBlocks   int // top level included
	FilterBlocks  int
	OtherBlocks   int
	Bytes         int64 // verified
	SkippedBlocks int   // data blocks of other parts

	Entries   uint64 // point entries
	Deletions uint64 // point deletions
	Merges    uint64
	RangeDels uint64
	// Smallest and Largest are the first and last user key of point entries that
	// were read; nil if there is none.
	Smallest, Largest       []byte
	SmallestSeq, LargestSeq uint64

	// Findings counts damage. 0 is a sound file.
	Findings int
}

// Verify reads a whole table and accounts for each of its bytes: every block's
// checksum (or, in a file without checksums, that it decodes), every entry's
// order and place, the index against the blocks, the counts against the properties,
// and no byte between, before or behind blocks that no writer put there. The
// error is the Source's or the context's; damage goes to OnDamage.
func Verify(ctx context.Context, src Source, opts *VerifyOptions) (*Report, error) {
	if opts == nil {
		opts = &VerifyOptions{}
	}
	v := &verifier{ctx: ctx, opts: opts, report: &Report{}}
	r, err := Open(ctx, src, &opts.Options)
	if err != nil {
		v.r = &Reader{name: opts.Name}
		return v.report, v.found(err)
	}
	v.r = r
	v.report.Footer, v.report.Properties = r.footer, r.props
	if err := v.run(); err != nil {
		return v.report, err
	}
	return v.report, nil
}

const dataKind = "data block"

type extent struct {
	off, end int64
	kind     string
}

type verifier struct {
	ctx    context.Context
	opts   *VerifyOptions
	r      *Reader
	report *Report

	extents  []extent
	haveSeq  bool
	rawKeys  uint64
	rawVals  uint64
	dataSize uint64 // with padding between blocks
	blocks   uint64 // data blocks in the index
	damaged  bool   // a data block could not be read: counts will not agree

	last    []byte // internal key before
	haveKey bool
	sep     []byte // separator before
	haveSep bool
	data    blockIter
	dec     []byte
	win     window
}

// stopError is an error of OnEntry, which is none of the file.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

// found reports damage; an error that is none ends the run.
func (v *verifier) found(err error) error {
	if err == nil {
		return nil
	}
	if stop, ok := err.(*stopError); ok {
		return stop.err
	}
	err = v.r.named(err)
	if !isDamage(err) {
		return err
	}
	v.report.Findings++
	if v.opts.OnDamage != nil {
		v.opts.OnDamage(err)
	}
	return nil
}

func (v *verifier) corrupt(off int64, field, format string, args ...any) error {
	return v.found(corrupt(off, field, fmt.Sprintf(format, args...)))
}

func (v *verifier) run() error {
	r := v.r
	if want := v.opts.FormatVersion; want != 0 && r.footer.FormatVersion != want {
		if err := v.corrupt(r.footer.Offset+41, "footer.formatVersion", "is %d, the database writes %d", r.footer.FormatVersion, want); err != nil {
			return err
		}
	}
	if r.footer.odd {
		if err := v.corrupt(r.footer.Offset, "footer", "has handles that no writer encodes so, or bytes behind them that are not zero"); err != nil {
			return err
		}
	}
	readAhead := v.opts.ReadAhead
	if readAhead <= 0 {
		readAhead = 1 << 20
	}
	v.win.reset(r, readAhead)
	v.win.next = readAhead
	v.add(r.footer.Metaindex, "metaindex block")
	v.add(r.indexAt, "index block")
	v.report.OtherBlocks++
	v.report.IndexBlocks++
	if err := v.metaBlocks(); err != nil {
		return err
	}
	if err := v.rangeDels(); err != nil {
		return err
	}
	if err := v.index(); err != nil {
		return err
	}
	if err := v.gaps(); err != nil {
		return err
	}
	return v.counts()
}

func (v *verifier) add(h Handle, kind string) {
	end := int64(h.Offset) + int64(h.Size) + trailerSize
	v.extents = append(v.extents, extent{int64(h.Offset), end, kind})
}

// metaBlocks reads every block of the metaindex that Open has not read.
func (v *verifier) metaBlocks() error {
	r := v.r
	for i, m := range r.meta {
		if i > 0 && r.meta[i-1].name >= m.name {
			if err := v.corrupt(int64(r.footer.Metaindex.Offset), "metaindex block", "has %q behind %q", m.name, r.meta[i-1].name); err != nil {
				return err
			}
		}
		if m.name == "rocksdb.index" && m.handle == r.indexAt {
			continue
		}
		v.add(m.handle, m.name)
		partitioned, filter := isFilter(m.name)
		if filter {
			v.report.FilterBlocks++
		} else {
			v.report.OtherBlocks++
		}
		if m.name == "rocksdb.properties" || m.name == "rocksdb.stats" {
			if err := v.propertyOrder(m.handle); err != nil {
				return err
			}
			continue // whose checksum Open verified, and may have to be patched for
		}
		payload, err := r.readBlock(v.ctx, m.handle, m.name)
		if err != nil {
			if err := v.found(err); err != nil {
				return err
			}
			continue
		}
		if partitioned {
			if err := v.filterPartitions(m, payload); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verifier) propertyOrder(h Handle) error {
	raw, err := v.r.raw(v.ctx, h, "properties block", nil)
	if err != nil {
		return v.found(err)
	}
	payload := raw[:len(raw)-trailerSize]
	if c := Compression(raw[len(raw)-trailerSize]); c != CompressionNone {
		if payload, err = v.r.decodeBlock(nil, raw, int64(h.Offset), "properties block"); err != nil {
			return v.found(err)
		}
	}
	return v.checkRestarts(payload, int64(h.Offset), "properties block", func(prev, key []byte) bool { return bytes.Compare(prev, key) < 0 })
}

// checkRestarts walks over a simple block with keys in the given order.
func (v *verifier) checkRestarts(payload []byte, at int64, kind string, less func(prev, key []byte) bool) error {
	var it blockIter
	if err := it.init(payload, at, kind); err != nil {
		return v.found(err)
	}
	var prev []byte
	rc := restartChecker{b: &it.block}
	for n := 0; ; n++ {
		pos := it.pos
		if !it.next() {
			break
		}
		rc.entry(pos, payload)
		if n > 0 && !less(prev, it.key) {
			it.fail("is out of order")
			break
		}
		prev = append(prev[:0], it.key...)
	}
	if it.err != nil {
		return v.found(it.err)
	}
	return v.found(rc.finish(at, kind))
}

// restartChecker sees that restart points and entries agree.
type restartChecker struct {
	b    *block
	next int // restart point that the entries have not come to yet
	bad  bool
}

func (c *restartChecker) entry(pos int, data []byte) {
	if c.next < c.b.restarts && c.b.restart(c.next) == pos {
		if data[pos] != 0 { // shared
			c.bad = true
		}
		c.next++
	}
}

func (c *restartChecker) finish(at int64, kind string) error {
	switch {
	case c.bad:
		return corrupt(at, kind, "has a restart point whose key is shared")
	case c.next == c.b.restarts:
		return nil
	case c.next == 0 && c.b.restarts == 1 && c.b.limit == 0 && c.b.restart(0) == 0:
		return nil // an empty block
	}
	return corrupt(at, kind, fmt.Sprintf("has restart point %d at byte %d of the decoded block, where no entry begins", c.next, c.b.restart(c.next)))
}

func (v *verifier) filterPartitions(m metaBlock, payload []byte) error {
	b, err := parseBlock(payload, int64(m.handle.Offset), m.name)
	if err != nil {
		return v.found(err)
	}
	var it indexIter
	it.init(b, int64(m.handle.Offset), v.r.props)
	it.withFirst = false
	for it.next() {
		if it.handle.end(v.r.footer.Offset) < 0 {
			return v.corrupt(int64(m.handle.Offset), m.name, "points beyond the file")
		}
		v.add(it.handle, "filter partition")
		v.report.FilterBlocks++
		if _, err := v.r.readBlock(v.ctx, it.handle, "filter partition"); err != nil {
			if err := v.found(err); err != nil {
				return err
			}
		}
	}
	return v.found(it.err)
}

func (v *verifier) rangeDels() error {
	for _, d := range v.r.rangeDels {
		v.report.RangeDels++
		v.rawKeys += uint64(len(d.Start)) + 8
		v.rawVals += uint64(len(d.End))
		v.seq(d.Seq)
		if bytes.Compare(d.Start, d.End) > 0 {
			if err := v.corrupt(-1, "range deletion", "ends at %x, before its start at %x", d.End, d.Start); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verifier) seq(s uint64) {
	if !v.haveSeq || s < v.report.SmallestSeq {
		v.report.SmallestSeq = s
	}
	if s > v.report.LargestSeq {
		v.report.LargestSeq = s
	}
	v.haveSeq = true
}

// bound widens the report's bounds by a user key.
func (v *verifier) bound(key []byte) {
	if v.report.Smallest == nil || bytes.Compare(key, v.report.Smallest) < 0 {
		v.report.Smallest = append([]byte{}, key...)
	}
	if v.report.Largest == nil || bytes.Compare(key, v.report.Largest) > 0 {
		v.report.Largest = append([]byte{}, key...)
	}
}

// index walks over the whole index and its data blocks.
func (v *verifier) index() error {
	r := v.r
	var top indexIter
	top.init(r.index, int64(r.indexAt.Offset), r.props)
	rc := restartChecker{b: &top.block}
	for {
		pos := top.pos
		if !top.next() {
			break
		}
		rc.entry(pos, top.data)
		if r.props.IndexType != IndexTwoLevel {
			if err := v.dataBlock(&top); err != nil {
				return err
			}
			continue
		}
		if err := v.partition(&top); err != nil {
			return err
		}
	}
	if top.err != nil {
		v.damaged = true
		return v.found(top.err)
	}
	if err := v.found(rc.finish(top.at, "index block")); err != nil {
		return err
	}
	if v.haveKey {
		v.bound(v.last[:len(v.last)-8])
	}
	return nil
}

func (v *verifier) partition(top *indexIter) error {
	const kind = "index partition"
	r := v.r
	if top.handle.end(r.footer.Offset) < 0 {
		v.damaged = true
		return v.corrupt(top.at, "index block", "points beyond the file")
	}
	v.add(top.handle, kind)
	v.report.IndexBlocks++
	payload, err := r.readBlock(v.ctx, top.handle, kind)
	if err == nil {
		var b block
		if b, err = parseBlock(payload, int64(top.handle.Offset), kind); err == nil {
			var part indexIter
			part.init(b, int64(top.handle.Offset), r.props)
			rc := restartChecker{b: &part.block}
			for {
				pos := part.pos
				if !part.next() {
					break
				}
				rc.entry(pos, part.data)
				if err := v.dataBlock(&part); err != nil {
					return err
				}
			}
			if err = part.err; err == nil {
				err = rc.finish(part.at, kind)
			}
			if err == nil && compareSeparator(part.key, top.key, top.internal) > 0 {
				err = corrupt(top.at, "index block", fmt.Sprintf("has %x for a partition that reaches to %x", top.key, part.key))
			}
		}
	}
	if err != nil {
		v.damaged = true
	}
	return v.found(err)
}

func compareSeparator(a, b []byte, internal bool) int {
	if internal {
		return compareInternal(a, b)
	}
	return bytes.Compare(a, b)
}

// compareInternal orders internal keys of at least 8 bytes.
func compareInternal(a, b []byte) int {
	n, m := len(a)-8, len(b)-8
	if c := bytes.Compare(a[:n], b[:m]); c != 0 {
		return c
	}
	return cmp.Compare(binary.LittleEndian.Uint64(b[m:]), binary.LittleEndian.Uint64(a[n:]))
}

// dataBlock reads the block that the index entry x points to.
func (v *verifier) dataBlock(x *indexIter) error {
	const kind = dataKind
	r := v.r
	if err := v.ctx.Err(); err != nil {
		return err
	}
	number := v.blocks
	v.blocks++
	if v.haveSep && compareSeparator(v.sep, x.key, x.internal) > 0 {
		if err := v.corrupt(x.at, "index block", "has the key %x behind %x", x.key, v.sep); err != nil {
			return err
		}
	}
	defer func() { v.sep, v.haveSep = append(v.sep[:0], x.key...), true }()
	h := x.handle
	at := int64(h.Offset)
	if h.end(r.dataEnd) < 0 {
		v.damaged = true
		return v.corrupt(x.at, "index block", "points to a data block of %d bytes at %d, beyond the data", h.Size, h.Offset)
	}
	v.add(h, kind)
	v.dataSize += h.Size + trailerSize
	if v.opts.Choose != nil && !v.opts.Choose(number) {
		v.report.SkippedBlocks++
		v.haveKey = false
		return nil
	}
	if h.Size > r.dec.maxBytes {
		v.damaged, v.haveKey = true, false
		return v.foundIn(x, r.tooLong(h, kind))
	}
	raw, err := v.win.get(v.ctx, at, int(h.Size)+trailerSize)
	if err != nil {
		v.damaged, v.haveKey = true, false
		return v.foundIn(x, err)
	}
	payload, err := r.decodeBlock(v.dec, raw, at, kind)
	if err != nil {
		v.damaged, v.haveKey = true, false
		return v.foundIn(x, err)
	}
	if raw[len(raw)-trailerSize] != byte(CompressionNone) {
		v.dec = payload
	}
	v.report.DataBlocks++
	if err := v.entries(payload, x); err != nil {
		v.damaged = true
		return v.foundIn(x, err)
	}
	return nil
}

// foundIn is found for damage of the data block that the index entry x points to.
func (v *verifier) foundIn(x *indexIter, err error) error {
	if !isDamage(err) {
		return v.found(err)
	}
	e := &BlockError{Err: v.r.named(err), Upper: bytes.Clone(userKey(x.key, x.internal))}
	if v.haveSep {
		e.Lower = bytes.Clone(userKey(v.sep, x.internal))
	}
	return v.found(e)
}

func userKey(separator []byte, internal bool) []byte {
	if internal && len(separator) >= 8 {
		return separator[:len(separator)-8]
	}
	return separator
}

func (v *verifier) entries(payload []byte, x *indexIter) error {
	const kind = dataKind
	it := &v.data
	at := int64(x.handle.Offset)
	if err := it.init(payload, at, kind); err != nil {
		return err
	}
	rc := restartChecker{b: &it.block}
	n := 0
	for ; ; n++ {
		pos := it.pos
		if !it.next() {
			break
		}
		rc.entry(pos, payload)
		if len(it.key) < 8 {
			it.fail("has a key without sequence number")
			break
		}
		trailer := binary.LittleEndian.Uint64(it.key[len(it.key)-8:])
		user := it.key[:len(it.key)-8]
		if kindRules[byte(trailer)] == kindImpossible {
			it.fail(fmt.Sprintf("has kind %#02x", byte(trailer)))
			break
		}
		if v.haveKey && compareInternal(v.last, it.key) >= 0 {
			it.fail("is out of order")
			break
		}
		if n == 0 {
			if v.haveSep && v.haveKey {
				if x.internal && compareInternal(v.sep, it.key) >= 0 || !x.internal && bytes.Compare(v.sep, user) >= 0 {
					return corrupt(x.at, "index block", fmt.Sprintf("has %x in front of a block that begins with %x", v.sep, it.key))
				}
			}
			if x.withFirst && !bytes.Equal(x.firstKey, it.key) {
				return corrupt(x.at, "index block", fmt.Sprintf("has first key %x for a block that begins with %x", x.firstKey, it.key))
			}
			v.bound(user)
		}
		v.last, v.haveKey = append(v.last[:0], it.key...), true
		switch Kind(trailer) {
		case KindDeletion, KindSingleDeletion, kindDeletionTimestamp:
			v.report.Deletions++
		case KindMerge:
			v.report.Merges++
		}
		seq := trailer >> 8
		if v.r.hasGlobal {
			if seq != 0 {
				it.fail("of an ingested file has a sequence number")
				break
			}
			seq = v.r.globalSeq
		}
		v.seq(seq)
		v.report.Entries++
		v.rawKeys += uint64(len(it.key))
		v.rawVals += uint64(len(it.value))
		if v.opts.OnEntry != nil {
			if err := v.opts.OnEntry(user, trailer, it.value, at); err != nil {
				return &stopError{err}
			}
		}
	}
	if it.err != nil {
		v.haveKey = false
		return it.err
	}
	if n == 0 {
		return corrupt(at, kind, "has no entries")
	}
	v.bound(v.last[:len(v.last)-8])
	if x.internal && compareInternal(v.last, x.key) > 0 || !x.internal && bytes.Compare(v.last[:len(v.last)-8], x.key) > 0 {
		return corrupt(x.at, "index block", fmt.Sprintf("has %x for a block that reaches to %x", x.key, v.last))
	}
	return rc.finish(at, kind)
}

// gaps sees that blocks cover the file from its start to the footer. Only zeros
// may lie between blocks, which writers put there to align them.
func (v *verifier) gaps() error {
	slices.SortFunc(v.extents, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	end := int64(0)
	before := "start of the file"
	for _, e := range append(v.extents, extent{v.r.footer.Offset, v.r.size, "footer"}) {
		switch {
		case e.off < end:
			if err := v.corrupt(e.off, e.kind, "overlaps the %s before it by %d bytes", before, end-e.off); err != nil {
				return err
			}
		case e.off > end:
			if err := v.gap(end, e.off, before); err != nil {
				return err
			}
			if before == dataKind {
				v.dataSize += uint64(e.off - end)
			}
		}
		v.report.Bytes += max(0, e.end-max(e.off, end))
		end, before = max(end, e.end), e.kind
	}
	return nil
}

func (v *verifier) gap(off, end int64, before string) error {
	// Blocks are padded to less than a page, or the block that is here is one that
	// a damaged index has not told of.
	if v.damaged && end-off >= 4096 {
		return v.corrupt(off, "", "%d bytes behind the %s belong to no block that could be found", end-off, before)
	}
	buf := make([]byte, 32<<10)
	for at := off; at < end; {
		b := buf[:min(int64(len(buf)), end-at)]
		if err := v.r.readFull(v.ctx, b, at); err != nil {
			return v.found(err)
		}
		for i, c := range b {
			if c != 0 {
				return v.corrupt(at+int64(i), "", "%d bytes behind the %s belong to no block", end-off, before)
			}
		}
		at += int64(len(b))
	}
	v.report.Bytes += end - off
	return nil
}

// maxDictBytes tells the setting "max_dict_bytes=4096; " other than 0.
var maxDictBytes = regexp.MustCompile(`max_dict_bytes=[1-9]`)

// counts compares what was read with the properties.
func (v *verifier) counts() error {
	p := v.r.props
	if v.damaged || p.All == nil {
		return nil
	}
	at := int64(v.r.footer.Metaindex.Offset)
	check := func(name string, want, got uint64) error {
		if _, ok := p.All[name]; ok && want != got {
			return v.corrupt(at, "property rocksdb."+name, "is %d, found %d", want, got)
		}
		return nil
	}
	// RocksDB 10 forgets the blocks that it held back to train a dictionary.
	if _, trained := v.r.metaHandle("rocksdb.compression_dict"); !trained && !maxDictBytes.MatchString(p.CompressionOpts) {
		if err := check("num.data.blocks", p.NumDataBlocks, v.blocks); err != nil {
			return err
		}
	}
	if v.report.SkippedBlocks > 0 {
		return nil
	}
	for _, c := range []struct {
		name      string
		want, got uint64
	}{
		{"num.entries", p.NumEntries, v.report.Entries + v.report.RangeDels},
		{"deleted.keys", p.NumDeletions, v.report.Deletions + v.report.RangeDels},
		{"merge.operands", p.NumMergeOps, v.report.Merges},
		{"num.range-deletions", p.NumRangeDels, v.report.RangeDels},
		{"raw.key.size", p.RawKeySize, v.rawKeys},
		{"raw.value.size", p.RawValueSize, v.rawVals},
		{"data.size", p.DataSize, v.dataSize},
	} {
		if err := check(c.name, c.want, c.got); err != nil {
			return err
		}
	}
	return nil
}
