package sst

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/internal/damage"
)

// Options changes how a table is opened. Nil is the default.
type Options struct {
	// Name is put into errors.
	Name string
	// TailBytes is how much is read first, from the end of the file; 0 chooses
	// by its size, so that footer, metaindex, properties and index usually come
	// in this one read, and a file of up to 64 KiB comes whole.
	TailBytes int
	// LargestSeq is the largest sequence number that the MANIFEST tells for the
	// file, with HasLargestSeq; only files ingested from outside need it.
	LargestSeq    uint64
	HasLargestSeq bool
	// MaxBlockBytes bounds a block, stored and decoded; 0 is 1 GiB. A value is in
	// one block, so that a longer one is refused.
	MaxBlockBytes int
}

const (
	wholeFileBytes       = 64 << 10
	maxTailBytes         = 1 << 20
	defaultMaxBlockBytes = 1 << 30
	// trustedBytes is how much is allocated for bytes that a file is said to have,
	// before some of them were read.
	trustedBytes = 8 << 20
)

// Reader is an open table. It keeps the index, the properties and the range
// deletions in memory and reads data blocks when they are needed. For concurrent use.
type Reader struct {
	src    Source
	name   string
	size   int64
	footer Footer
	props  *Properties
	dec    decompressor

	meta      []metaBlock // of the metaindex, in its order
	index     block       // the whole index, or its top level
	indexAt   Handle
	dataEnd   int64 // no data block reaches beyond
	rangeDels []RangeDel
	globalSeq uint64
	hasGlobal bool

	tail    []byte // kept if partitions of the index or the data may lie in it
	tailOff int64
}

// metaBlock is one entry of the metaindex.
type metaBlock struct {
	name   string
	handle Handle
}

// RangeDel hides user keys from Start to before End in entries that are older
// than Seq. Neither slice may be changed.
type RangeDel struct {
	Start, End []byte
	Seq        uint64
}

// Kind is what an entry does to its key.
type Kind uint8

// Kinds of entries.
const (
	KindDeletion       Kind = 0x00
	KindValue          Kind = 0x01
	KindMerge          Kind = 0x02
	KindSingleDeletion Kind = 0x07
	KindRangeDeletion  Kind = 0x0f

	kindBlobIndex           Kind = 0x11
	kindDeletionTimestamp   Kind = 0x14
	kindWideColumns         Kind = 0x16
	kindValuePreferredSeqno Kind = 0x18
)

// MaxSeq is the largest sequence number, 56 bits.
const MaxSeq = 1<<56 - 1

// Open reads a table's footer, metaindex, properties, index and range deletions,
// usually in one read. Damage is a *damage.Error with the file's name.
func Open(ctx context.Context, src Source, opts *Options) (*Reader, error) {
	if opts == nil {
		opts = &Options{}
	}
	r := &Reader{src: src, name: opts.Name, size: src.Size()}
	if err := r.open(ctx, opts); err != nil {
		return nil, r.named(err)
	}
	return r, nil
}

// named puts the file's name into a damage.Error that lacks it.
func (r *Reader) named(err error) error {
	var d *damage.Error
	if errors.As(err, &d) {
		if d.Name == "" {
			d.Name = r.name
		}
		return err
	}
	if r.name != "" {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return err
}

func (r *Reader) open(ctx context.Context, opts *Options) error {
	r.dec.maxBytes = uint64(opts.MaxBlockBytes)
	if opts.MaxBlockBytes <= 0 {
		r.dec.maxBytes = defaultMaxBlockBytes
	}
	if err := r.readTail(ctx, opts.TailBytes); err != nil {
		return err
	}
	var err error
	if r.footer, err = decodeFooter(r.tail, r.size); err != nil {
		return err
	}
	r.dec.version = r.footer.FormatVersion
	// One more read, if need be, brings all that lies behind the index.
	if first := r.footer.Index.Offset; r.footer.FormatVersion < 6 && first < uint64(r.tailOff) && r.footer.Index.end(r.footer.Offset) > 0 {
		if err := r.extendTail(ctx, int64(first)); err != nil {
			return err
		}
	}
	if err := r.readMetaindex(ctx); err != nil {
		return err
	}
	if err := r.readProperties(ctx); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	if err := r.readGlobalSeq(opts); err != nil {
		return err
	}
	if h, ok := r.metaHandle("rocksdb.compression_dict"); ok {
		if r.dec.dict, err = r.readBlock(ctx, h, "compression dictionary"); err != nil {
			return err
		}
		r.dec.dict = bytes.Clone(r.dec.dict)
	}
	if err := r.readRangeDels(ctx); err != nil {
		return err
	}
	payload, err := r.readBlock(ctx, r.indexAt, "index block")
	if err != nil {
		return err
	}
	keepTail := r.props.IndexType == IndexTwoLevel && r.tailOff > 0
	if !keepTail && r.tailOff > 0 {
		payload = bytes.Clone(payload)
	}
	if r.index, err = parseBlock(payload, int64(r.indexAt.Offset), "index block"); err != nil {
		return err
	}
	r.dataEnd = r.footer.Offset
	for _, m := range r.meta {
		r.dataEnd = min(r.dataEnd, int64(m.handle.Offset))
	}
	r.dataEnd = min(r.dataEnd, int64(r.indexAt.Offset))
	switch {
	case r.tailOff == 0:
		r.src = bytesSource(r.tail)
		r.tail = nil
	case !keepTail:
		r.tail = nil
	}
	return nil
}

// readTail fetches the end of the file.
func (r *Reader) readTail(ctx context.Context, n int) error {
	if b, ok := r.src.(slicer); ok {
		r.tail = b.slice(0, r.size)
		return nil
	}
	if n <= 0 {
		n = int(min(max(r.size/64, wholeFileBytes), maxTailBytes))
	}
	n = int(min(int64(max(n, footerSize)), r.size))
	r.tail = make([]byte, n)
	r.tailOff = r.size - int64(n)
	return r.readFull(ctx, r.tail, r.tailOff)
}

// extendTail makes the tail begin at off.
func (r *Reader) extendTail(ctx context.Context, off int64) error {
	more := r.tailOff - off
	if uint64(more) > r.dec.maxBytes {
		return nil // block by block, then
	}
	var head []byte
	if err := r.fill(ctx, &head, 0, int(more), off); err != nil {
		return err
	}
	r.tail, r.tailOff = append(head, r.tail...), off
	return nil
}

// readFull fills p; a file that ends before its size is damage.
func (r *Reader) readFull(ctx context.Context, p []byte, off int64) error {
	n, err := r.src.ReadAt(ctx, p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return corrupt(off+int64(n), "", fmt.Sprintf("the file ends here, not at its size of %d bytes", r.size))
	}
	return err
}

// fill makes *buf n bytes long, keeps the first keep of them and reads the others,
// from off on. It allocates as it reads, so that a file that only claims to be long
// costs little.
func (r *Reader) fill(ctx context.Context, buf *[]byte, keep, n int, off int64) error {
	b := (*buf)[:keep]
	for {
		step := n - len(b)
		if cap(b) < n {
			step = min(step, max(trustedBytes, len(b)))
			b = slices.Grow(b, step)
		}
		from := len(b)
		b = b[:from+step]
		*buf = b
		if err := r.readFull(ctx, b[from:], off); err != nil {
			return err
		}
		if len(b) == n {
			return nil
		}
		off += int64(step)
	}
}

// raw gives the bytes of a block with its trailer: from memory, or read into *buf,
// which may be nil and is grown if need be.
func (r *Reader) raw(ctx context.Context, h Handle, kind string, buf *[]byte) ([]byte, error) {
	end := h.end(r.footer.Offset)
	if end < 0 {
		return nil, corrupt(int64(min(h.Offset, uint64(r.size))), kind, fmt.Sprintf("of %d bytes at %d does not fit in the file", h.Size, h.Offset))
	}
	off := int64(h.Offset)
	n := end - off
	if h.Size > r.dec.maxBytes {
		return nil, r.tooLong(h, kind)
	}
	if r.tail != nil && off >= r.tailOff {
		return r.tail[off-r.tailOff : end-r.tailOff : end-r.tailOff], nil
	}
	if b, ok := r.src.(slicer); ok {
		return b.slice(off, n), nil
	}
	if buf == nil {
		buf = new([]byte)
	}
	err := r.fill(ctx, buf, 0, int(n), off)
	return *buf, err
}

func (r *Reader) tooLong(h Handle, kind string) error {
	return corrupt(int64(h.Offset), kind, fmt.Sprintf("has %d bytes, more than the limit of %d", h.Size, r.dec.maxBytes))
}

// readBlock reads, verifies and decodes one block. The result may alias memory of
// the Reader.
func (r *Reader) readBlock(ctx context.Context, h Handle, kind string) ([]byte, error) {
	raw, err := r.raw(ctx, h, kind, nil)
	if err != nil {
		return nil, err
	}
	return r.decodeBlock(nil, raw, int64(h.Offset), kind)
}

// decodeBlock verifies raw, a payload with its trailer, and gives the decoded
// payload: a part of raw, or dst[:0] grown.
func (r *Reader) decodeBlock(dst, raw []byte, off int64, kind string) ([]byte, error) {
	n := len(raw) - trailerSize
	stored := binary.LittleEndian.Uint32(raw[n+1:])
	want := r.footer.Checksum.checksum(raw[:n+1]) + contextModifier(r.footer.BaseContextChecksum, off)
	if stored != want {
		if r.footer.Checksum != ChecksumNone {
			return nil, corrupt(off, kind, fmt.Sprintf("has checksum %#08x, computed %#08x", stored, want))
		}
		// Writers store 0 here. Anything else means that the footer's "no
		// checksum" is itself damage.
		if stored != 0 {
			return nil, corrupt(off, kind, fmt.Sprintf("has checksum %#08x in a table without checksums", stored))
		}
	}
	c := Compression(raw[n])
	if c == CompressionNone {
		return raw[:n:n], nil
	}
	out, err := r.dec.decode(dst, raw[:n], c)
	if err != nil {
		if errors.Is(err, errUnsupportedCompression) {
			return nil, unsupported(off, kind, fmt.Sprintf("has compression %s", c))
		}
		return nil, corrupt(off, kind, fmt.Sprintf("does not decompress as %s: %v", c, err))
	}
	return out, nil
}

func (r *Reader) readMetaindex(ctx context.Context) error {
	h := r.footer.Metaindex
	payload, err := r.readBlock(ctx, h, "metaindex block")
	if err != nil {
		return err
	}
	var it blockIter
	if err := it.init(payload, int64(h.Offset), "metaindex block"); err != nil {
		return err
	}
	for it.next() {
		name := string(it.key)
		mh, n := decodeHandle(it.value)
		if n <= 0 {
			return corrupt(int64(h.Offset), "metaindex block", fmt.Sprintf("has no block handle for %q", name))
		}
		if mh.end(r.footer.Offset) < 0 {
			return corrupt(int64(h.Offset), "metaindex block", fmt.Sprintf("points beyond the file for %q", name))
		}
		if _, ok := r.metaHandle(name); ok {
			return corrupt(int64(h.Offset), "metaindex block", fmt.Sprintf("has %q twice", name))
		}
		r.meta = append(r.meta, metaBlock{name, mh})
	}
	if it.err != nil {
		return it.err
	}
	r.indexAt = r.footer.Index
	if r.footer.FormatVersion >= 6 {
		var ok bool
		if r.indexAt, ok = r.metaHandle("rocksdb.index"); !ok {
			return corrupt(int64(h.Offset), "metaindex block", "has no index")
		}
	}
	return nil
}

func (r *Reader) metaHandle(name string) (Handle, bool) {
	for _, m := range r.meta {
		if m.name == name {
			return m.handle, true
		}
	}
	return Handle{}, false
}

func (r *Reader) readProperties(ctx context.Context) error {
	h, ok := r.metaHandle("rocksdb.properties")
	if !ok {
		h, ok = r.metaHandle("rocksdb.stats")
	}
	if !ok {
		// LevelDB and very old files: all defaults.
		r.props = &Properties{ColumnFamilyID: unknownFamilyID, globalSeqOffset: -1}
		return nil
	}
	raw, err := r.raw(ctx, h, "properties block", nil)
	if err != nil {
		return err
	}
	payload, err := r.decodeBlock(nil, raw, int64(h.Offset), "properties block")
	if err != nil {
		// The sequence number of an ingested file may have been patched into
		// the block after its checksum was computed over zeros.
		p, perr := r.decodePatched(raw, int64(h.Offset))
		if perr != nil {
			return err
		}
		r.props = p
		return nil
	}
	r.props, err = decodeProperties(payload, int64(h.Offset))
	return err
}

// decodePatched reads a properties block whose global sequence number was
// written in place.
func (r *Reader) decodePatched(raw []byte, off int64) (*Properties, error) {
	n := len(raw) - trailerSize
	p, err := decodeProperties(raw[:n], off)
	if err != nil {
		return nil, err
	}
	if raw[n] != byte(CompressionNone) || !p.Ingested() || p.globalSeqOffset < 0 {
		return nil, errors.New("not an ingested file")
	}
	zeroed := bytes.Clone(raw)
	clear(zeroed[p.globalSeqOffset : p.globalSeqOffset+8])
	if _, err := r.decodeBlock(nil, zeroed, off, "properties block"); err != nil {
		return nil, err
	}
	return p, nil
}

// check refuses what cannot be read rightly.
func (r *Reader) check() error {
	p := r.props
	at := int64(r.footer.Metaindex.Offset)
	if p.Comparator != "" && p.Comparator != bytewiseComparator {
		return unsupported(at, "comparator", fmt.Sprintf("is %q", p.Comparator))
	}
	if p.IndexType > IndexWithFirstKey {
		return unsupported(at, "index type", fmt.Sprintf("is %d", p.IndexType))
	}
	// A version 2 table with a two-level index may have user keys in its index,
	// which came with version 3; delta-encoded handles really need version 4.
	if v := r.footer.FormatVersion; p.IndexValueIsDelta && v < 4 {
		return corrupt(r.footer.Offset, "footer.formatVersion", fmt.Sprintf("is %d, too old for the delta-encoded index that the properties tell", v))
	}
	return nil
}

func (r *Reader) readGlobalSeq(opts *Options) error {
	p := r.props
	if !p.Ingested() {
		return nil
	}
	at := int64(r.footer.Metaindex.Offset)
	switch {
	case p.ExternalVersion > 2:
		return unsupported(at, "property "+externalVersionName, fmt.Sprintf("is %d", p.ExternalVersion))
	case p.GlobalSeq != 0 && opts.HasLargestSeq && p.GlobalSeq != opts.LargestSeq:
		return corrupt(at, "property "+globalSeqnoName, fmt.Sprintf("is %d, but %d in the MANIFEST", p.GlobalSeq, opts.LargestSeq))
	case p.GlobalSeq != 0:
		r.globalSeq = p.GlobalSeq
	case opts.HasLargestSeq:
		r.globalSeq = opts.LargestSeq
	}
	if r.globalSeq > MaxSeq {
		return corrupt(at, "property "+globalSeqnoName, "is more than 56 bits")
	}
	// 0 without a MANIFEST: a file that was never ingested, or one whose number
	// nobody knows. Sequence 0 is right for the first and all that can be said
	// for the second; the caller sees Properties.Ingested.
	r.hasGlobal = true
	return nil
}

func (r *Reader) readRangeDels(ctx context.Context) error {
	h, ok := r.metaHandle("rocksdb.range_del")
	if !ok {
		return nil
	}
	const kind = "range deletion block"
	payload, err := r.readBlock(ctx, h, kind)
	if err != nil {
		return err
	}
	var it blockIter
	if err := it.init(payload, int64(h.Offset), kind); err != nil {
		return err
	}
	for it.next() {
		n := len(it.key) - 8
		if n < 0 {
			it.fail("has a key without sequence number")
			break
		}
		trailer := binary.LittleEndian.Uint64(it.key[n:])
		if Kind(trailer) != KindRangeDeletion {
			it.fail(fmt.Sprintf("has kind %#02x", byte(trailer)))
			break
		}
		seq := trailer >> 8
		if r.hasGlobal {
			seq = r.globalSeq
		}
		r.rangeDels = append(r.rangeDels, RangeDel{bytes.Clone(it.key[:n]), bytes.Clone(it.value), seq})
	}
	return it.err
}

// Footer is the decoded footer.
func (r *Reader) Footer() Footer { return r.footer }

// Properties are the table's; they may not be changed.
func (r *Reader) Properties() *Properties { return r.props }

// RangeDels are the table's range deletions in file order; they may not be changed.
func (r *Reader) RangeDels() []RangeDel { return r.rangeDels }

// Name is the name given to Open.
func (r *Reader) Name() string { return r.name }

// MemoryBytes is roughly what the Reader holds in memory.
func (r *Reader) MemoryBytes() int64 {
	n := int64(4096 + len(r.index.data) + cap(r.tail) + len(r.dec.dict))
	if b, ok := r.src.(bytesSource); ok {
		n += int64(len(b))
	}
	for _, d := range r.rangeDels {
		n += int64(len(d.Start) + len(d.End) + 56)
	}
	return n
}

// isFilter tells the metaindex entries of filters.
func isFilter(name string) (partitioned, ok bool) {
	switch {
	case strings.HasPrefix(name, "filter."), strings.HasPrefix(name, "fullfilter."):
		return false, true
	case strings.HasPrefix(name, "partitionedfilter."):
		return true, true
	}
	return false, false
}

// Separators gives up to n user keys, ascending, that cut the table into parts of
// about the same size in bytes, from its index alone. They need not be keys of
// entries. It reads nothing.
func (r *Reader) Separators(n int) ([][]byte, error) {
	count := 0
	var it indexIter
	it.init(r.index, int64(r.indexAt.Offset), r.props)
	for it.next() {
		count++
	}
	if it.err != nil {
		return nil, r.named(it.err)
	}
	// The last separator is the end of the table and cuts nothing.
	parts := min(n+1, count)
	var keys [][]byte
	it.init(r.index, int64(r.indexAt.Offset), r.props)
	for i := 1; i < count && it.next(); i++ {
		if i*parts/count != (i-1)*parts/count {
			keys = append(keys, bytes.Clone(it.userKey()))
		}
	}
	return keys, nil
}
