package sst

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/incremental/internal/hexlines"
)

// DumpOptions changes what Dump shows. Nil is the default.
type DumpOptions struct {
	// Options are those of Open.
	Options
	// MaxBytes is how many bytes of a field or a compressed block are shown; 0 is 16.
	MaxBytes int
	// WithoutEntries leaves out the entries of data blocks.
	WithoutEntries bool
}

// Dump writes the bytes of a table with what they mean: each block in its place,
// its entries, its compression and checksum, and the footer. Entries of a compressed
// block follow it, with their offsets in the decoded block. Damage is written as a
// line; the first is returned, too.
func Dump(ctx context.Context, w io.Writer, src Source, opts *DumpOptions) error {
	if opts == nil {
		opts = &DumpOptions{}
	}
	d := &dumper{ctx: ctx, p: hexlines.New(w, src.Size()), most: cmp.Or(opts.MaxBytes, 16), opts: opts}
	r, err := Open(ctx, src, &opts.Options)
	if err != nil {
		d.p.Note("damaged: %v", err)
		return errors.Join(err, d.p.Flush())
	}
	d.v = &verifier{ctx: ctx, report: &Report{}, r: r, opts: &VerifyOptions{OnDamage: func(err error) {
		d.p.Note("damaged: %v", err)
		if d.first == nil {
			d.first = err
		}
	}}}
	if err := d.v.run(); err != nil {
		return err
	}
	extents := d.v.extents
	slices.SortStableFunc(extents, func(a, b extent) int { return cmp.Compare(a.off, b.off) })
	end := int64(0)
	for _, e := range extents {
		if e.off > end {
			if err := d.plain(end, e.off, "padding"); err != nil {
				return err
			}
		}
		if err := d.block(e); err != nil {
			return err
		}
		end = max(end, e.end)
	}
	if err := d.footer(); err != nil {
		return err
	}
	if err := d.p.Flush(); err != nil {
		return err
	}
	return d.first
}

type dumper struct {
	ctx   context.Context
	p     *hexlines.Printer
	v     *verifier
	opts  *DumpOptions
	most  int
	first error
	count map[string]int
}

// bytes reads a part of the file that the layout says is there.
func (d *dumper) bytes(off, end int64) ([]byte, error) {
	b := make([]byte, end-off)
	return b, d.v.r.readFull(d.ctx, b, off)
}

func (d *dumper) plain(off, end int64, comment string) error {
	b, err := d.bytes(off, end)
	if err == nil {
		d.p.Bytes(off, b, d.most, comment)
	}
	return err
}

func (d *dumper) block(e extent) error {
	r := d.v.r
	raw, err := d.bytes(e.off, e.end)
	if err != nil {
		return err
	}
	if d.count == nil {
		d.count = map[string]int{}
	}
	n := len(raw) - trailerSize
	c := Compression(raw[n])
	title := e.kind
	switch e.kind {
	case dataKind, "index partition", "filter partition":
		title = fmt.Sprintf("%s %d", e.kind, d.count[e.kind])
		d.count[e.kind]++
	}
	payload, err := r.decodeBlock(nil, raw, e.off, e.kind)
	if err != nil {
		d.p.Bytes(e.off, raw, d.most, title+", damaged")
		return nil
	}
	if c == CompressionNone {
		d.p.Note("%s: %d bytes", title, n)
	} else {
		d.p.Bytes(e.off, raw[:n], d.most, fmt.Sprintf("%s: %s, %d bytes decoded", title, c, len(payload)))
	}
	base := int64(-1)
	if c == CompressionNone {
		base = e.off
	}
	switch {
	case e.kind == dataKind && d.opts.WithoutEntries:
		if base >= 0 {
			d.p.Bytes(base, payload, d.most, "entries")
		}
	case e.kind == dataKind || e.kind == "rocksdb.range_del":
		d.entries(payload, base, describeEntry)
	case e.kind == "metaindex block":
		d.entries(payload, base, func(key, value []byte) string {
			h, _ := decodeHandle(value)
			return fmt.Sprintf("%s at %d, %d bytes", key, h.Offset, h.Size)
		})
	case e.kind == "rocksdb.properties":
		d.entries(payload, base, func(key, value []byte) string { return fmt.Sprintf("%s = %s", key, propertyText(string(key), value)) })
	case e.kind == "index block" || e.kind == "index partition":
		d.index(payload, base, e)
	default:
		if base >= 0 {
			d.p.Bytes(base, payload, d.most, "")
		}
	}
	d.p.Bytes(e.end-trailerSize, raw[n:n+1], 1, "compression "+c.String())
	d.p.Bytes(e.end-4, raw[n+1:], 4, "checksum "+r.footer.Checksum.String())
	return nil
}

// piece prints an entry of a payload: in its place in the file, or, for a
// compressed block, as a note.
func (d *dumper) piece(base int64, payload []byte, from, to int, text string) {
	if base >= 0 {
		d.p.Bytes(base+int64(from), payload[from:to], d.most, text)
		return
	}
	d.p.Note("  +%d: %s", from, text)
}

func (d *dumper) entries(payload []byte, base int64, text func(key, value []byte) string) {
	var it blockIter
	if it.init(payload, 0, "") != nil {
		return // which the verifier has told
	}
	for {
		from := it.pos
		if !it.next() {
			break
		}
		d.piece(base, payload, from, it.pos, text(it.key, it.value))
	}
	d.restarts(&it.block, base)
}

func (d *dumper) restarts(b *block, base int64) {
	if base < 0 {
		return
	}
	end := len(b.data) - 4
	d.p.Bytes(base+int64(b.limit), b.data[b.limit:b.limit+4*b.restarts], d.most, fmt.Sprintf("%d restart offsets", b.restarts))
	if rest := b.limit + 4*b.restarts; rest < end {
		d.p.Bytes(base+int64(rest), b.data[rest:end], d.most, "hash index")
	}
	d.p.Bytes(base+int64(end), b.data[end:], 4, "restart count")
}

func (d *dumper) index(payload []byte, base int64, e extent) {
	b, err := parseBlock(payload, e.off, e.kind)
	if err != nil {
		return
	}
	var it indexIter
	it.init(b, e.off, d.v.r.props)
	for {
		from := it.pos
		if !it.next() {
			break
		}
		text := fmt.Sprintf("up to key %x", it.userKey())
		if it.internal {
			text += " " + trailerText(binary.LittleEndian.Uint64(it.key[len(it.key)-8:]))
		}
		text += fmt.Sprintf(": at %d, %d bytes", it.handle.Offset, it.handle.Size)
		if it.firstKey != nil {
			text += fmt.Sprintf(", first key %x", it.firstKey)
		}
		d.piece(base, payload, from, it.pos, text)
	}
	d.restarts(&b, base)
}

func trailerText(t uint64) string { return fmt.Sprintf("sequence %d kind %d", t>>8, byte(t)) }

var kindNames = map[Kind]string{
	KindDeletion: "deletion", KindValue: "value", KindMerge: "merge operand", KindSingleDeletion: "single deletion", KindRangeDeletion: "range deletion",
}

func describeEntry(key, value []byte) string {
	if len(key) < 8 {
		return fmt.Sprintf("key %x", key)
	}
	n := len(key) - 8
	t := binary.LittleEndian.Uint64(key[n:])
	text := fmt.Sprintf("key %x sequence %d", key[:n], t>>8)
	switch k := Kind(t); k {
	case KindDeletion, KindSingleDeletion:
		return text + " " + kindNames[k]
	case KindRangeDeletion:
		return fmt.Sprintf("%s %s to before %x", text, kindNames[k], value)
	case KindValue, KindMerge:
		return fmt.Sprintf("%s %s, %d bytes", text, kindNames[k], len(value))
	default:
		return fmt.Sprintf("%s kind %#02x, %d bytes", text, byte(k), len(value))
	}
}

// textProperties are those whose bytes are text; the rest are numbers where they
// are one varint.
var textProperties = []string{"name", "comparator", "operator", "policy", "compression", "options", "collectors", "identity", "filtering"}

func propertyText(name string, v []byte) string {
	for _, suffix := range textProperties {
		if strings.HasSuffix(name, suffix) && utf8.Valid(v) {
			return fmt.Sprintf("%q", v)
		}
	}
	switch {
	case len(v) == 4 && (strings.HasSuffix(name, "index.type") || name == externalVersionName):
		return fmt.Sprint(binary.LittleEndian.Uint32(v))
	case len(v) == 8 && name == globalSeqnoName:
		return fmt.Sprint(binary.LittleEndian.Uint64(v))
	}
	if n, k := binary.Uvarint(v); k == len(v) && k > 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%x", v[:min(len(v), 16)])
}

func (d *dumper) footer() error {
	f := &d.v.r.footer
	b, err := d.bytes(f.Offset, d.v.r.size)
	if err != nil {
		return err
	}
	off := f.Offset
	field := func(n int, format string, args ...any) {
		d.p.Bytes(off, b[:n], n, fmt.Sprintf(format, args...))
		b, off = b[n:], off+int64(n)
	}
	d.p.Note("footer: %d bytes", len(b))
	if f.FormatVersion > 0 {
		field(1, "checksum type %s", f.Checksum)
	}
	if f.FormatVersion >= 6 {
		field(4, "extended magic")
		field(4, "footer checksum")
		field(4, "base context checksum")
		field(4, "metaindex of %d bytes", f.Metaindex.Size)
		field(16, "reserved")
		field(8, "reserved, must be 0")
	} else {
		_, n := decodeHandle(b)
		_, m := decodeHandle(b[n:])
		field(n, "metaindex at %d, %d bytes", f.Metaindex.Offset, f.Metaindex.Size)
		field(m, "index at %d, %d bytes", f.Index.Offset, f.Index.Size)
		field(40-n-m, "padding")
	}
	if f.FormatVersion > 0 {
		field(4, "format version %d", f.FormatVersion)
	}
	field(8, "magic")
	return nil
}
