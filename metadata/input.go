package metadata

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

// decoder reads primitives from a stream through a window, and remembers the
// first error: after it every read returns a zero value. Each read names its
// field; the path in front comes from path.
type decoder struct {
	opts DecodeOptions
	err  error
	path fieldPath
	c    *Checkpoint // what was read so far

	r       io.Reader
	buf     []byte
	pos     int   // next byte in buf
	end     int   // end of what was read into buf
	fence   int   // min(end, end of the innermost frame): the fast path's limit
	base    int64 // offset in the file of buf[0]
	size    int64 // size of the file, -1 if not known
	eof     bool
	frameAt []int64 // ends of the frames around, innermost last

	depth          int
	maxParallelism int32
	idOffset       int64 // of the last operator ID

	text  textArena
	slabs slabs

	// trace, if set, is told of every field as it is read.
	trace func(traced)
	// tee, if set, is given every byte of the file in order.
	tee    io.Writer
	teePos int // bytes of buf before it were given
}

const (
	windowSize = 128 << 10 // holds every UTF string with its length
	minWindow  = 4 << 10
)

func newDecoder(r io.Reader, opts *DecodeOptions) *decoder {
	d := &decoder{r: r, size: -1}
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.Size > 0 {
		d.size = d.opts.Size
	} else if n := sizeOf(r); n >= 0 {
		d.size = n
	}
	window := int64(minWindow)
	if d.size >= 0 {
		window = max(minWindow, min(windowSize, d.size+1))
	}
	d.buf = make([]byte, window)
	d.path.elems = make([]pathElem, 0, 64)
	return d
}

// sizeOf finds out how much r will give, without reading; -1 if it cannot.
func sizeOf(r io.Reader) int64 {
	switch r := r.(type) {
	case interface{ Len() int }: // bytes.Reader, bytes.Buffer, strings.Reader
		return int64(r.Len())
	case *io.LimitedReader:
		if n := sizeOf(r.R); n >= 0 {
			return min(n, r.N)
		}
	case interface {
		Stat() (fs.FileInfo, error)
		io.Seeker
	}:
		fi, err := r.Stat()
		if err != nil || !fi.Mode().IsRegular() {
			return -1
		}
		at, err := r.Seek(0, io.SeekCurrent)
		if err != nil {
			return -1
		}
		return fi.Size() - at
	}
	return -1
}

// offset is the number of bytes read.
func (d *decoder) offset() int64 { return d.base + int64(d.pos) }

// left is the number of bytes up to the end of the innermost frame or of the
// file, a very large number if that is not known.
func (d *decoder) left() int64 {
	switch {
	case len(d.frameAt) > 0:
		return d.frameAt[len(d.frameAt)-1] - d.offset()
	case d.size >= 0:
		return d.size - d.offset()
	}
	return math.MaxInt64
}

// fail records the first error.
func (d *decoder) fail(at int64, field, detail string, err error) {
	if d.err == nil {
		d.err = &FormatError{Name: d.opts.Name, Offset: at, Field: d.path.field(field), Detail: detail, Err: err}
	}
}

func (d *decoder) damage(at int64, field, detail string) { d.fail(at, field, detail, ErrCorrupt) }

// is reports a value that the field cannot have.
func (d *decoder) is(at int64, field string, value int64) {
	d.damage(at, field, fmt.Sprintf("is %d", value))
}

func (d *decoder) tooMany(at int64, field string, n int64) {
	d.damage(at, field, fmt.Sprintf("is %d, but %d bytes are left", n, max(d.left(), 0)))
}

func (d *decoder) badTag(at int64, tag Tag, what string) {
	d.damage(at, "tag", fmt.Sprintf("is %s, which is no handle of %s", tag, what))
}

func (d *decoder) unsupported(at int64, detail string) {
	d.fail(at, "version", detail, ErrUnsupportedVersion)
}

// deviation reports what Flink accepts but does not write.
func (d *decoder) deviation(at int64, field, detail string) {
	if d.err != nil {
		return
	}
	if d.opts.Strict {
		d.damage(at, field, detail)
		return
	}
	if d.opts.Warn != nil {
		d.opts.Warn(&FormatError{Name: d.opts.Name, Offset: at, Field: d.path.field(field), Detail: detail, Err: ErrCorrupt})
	}
}

// frame begins a record of n bytes, whose length stands at at.
func (d *decoder) frame(at int64, field string, n int64) bool {
	if n > d.left() {
		d.tooMany(at, field, n)
		return false
	}
	d.frameAt = append(d.frameAt, d.offset()+n)
	d.setFence()
	return true
}

// unframe expects the end of the record.
func (d *decoder) unframe(field string) {
	if d.err != nil {
		return
	}
	at := d.offset()
	if n := d.left(); n > 0 {
		d.damage(at, "", fmt.Sprintf("has %d bytes left over of its %s", n, field))
	}
	d.frameAt = d.frameAt[:len(d.frameAt)-1]
	d.setFence()
}

func (d *decoder) setFence() {
	d.fence = d.end
	if len(d.frameAt) > 0 {
		d.fence = int(min(int64(d.fence), d.frameAt[len(d.frameAt)-1]-d.base))
	}
}

// fill reads until n bytes lie in the window, if there are as many.
func (d *decoder) fill(n int) error {
	if d.pos > 0 {
		d.flushTee()
		copy(d.buf, d.buf[d.pos:d.end])
		d.base += int64(d.pos)
		d.end -= d.pos
		d.pos = 0
		d.teePos = 0
	}
	size := max(n, len(d.buf))
	if d.base >= 2*int64(size) { // a large file, whose size was not known
		size = max(n, windowSize)
	}
	if size > len(d.buf) {
		d.buf = append(make([]byte, 0, size), d.buf[:d.end]...)[:size]
	}
	for idle := 0; d.end < n && !d.eof; {
		m, err := d.r.Read(d.buf[d.end:])
		d.end += m
		switch {
		case err == io.EOF:
			d.eof = true
		case err != nil:
			d.setFence()
			return err
		case m > 0:
			idle = 0
		default:
			if idle++; idle > 100 {
				d.setFence()
				return io.ErrNoProgress
			}
		}
	}
	d.setFence()
	return nil
}

func (d *decoder) flushTee() {
	if d.tee != nil && d.teePos < d.pos {
		d.tee.Write(d.buf[d.teePos:d.pos]) // a hash: never fails
		d.teePos = d.pos
	}
}

// need consumes n bytes, at most windowSize, and returns them; they are valid
// until the next read. It is nil after an error.
func (d *decoder) need(n int, field string) []byte {
	if d.err == nil && n <= d.fence-d.pos {
		p := d.buf[d.pos : d.pos+n : d.pos+n]
		d.pos += n
		return p
	}
	return d.needSlow(n, field)
}

func (d *decoder) needSlow(n int, field string) []byte {
	if d.err != nil {
		return nil
	}
	if err := d.fill(n); err != nil {
		d.fail(d.base+int64(d.end), field, "cannot be read", err)
		return nil
	}
	if n > d.fence-d.pos {
		have := d.fence - d.pos
		what := "the file"
		if len(d.frameAt) > 0 && d.fence < d.end {
			what = "its record"
		}
		d.damage(d.offset(), field, fmt.Sprintf("is cut off: %s ends after %d of %d bytes", what, max(have, 0), n))
		return nil
	}
	p := d.buf[d.pos : d.pos+n : d.pos+n]
	d.pos += n
	return p
}

// more reports whether a byte follows.
func (d *decoder) more() bool {
	if d.err != nil {
		return false
	}
	if d.pos == d.fence {
		if err := d.fill(1); err != nil {
			d.fail(d.base+int64(d.end), "", "cannot be read", err)
		}
	}
	return d.pos < d.fence
}

// take consumes what lies in the window.
func (d *decoder) take() []byte {
	p := d.buf[d.pos:d.fence]
	d.pos = d.fence
	return p
}

func (d *decoder) u8(field string) uint8 {
	p := d.need(1, field)
	if p == nil {
		return 0
	}
	if d.trace != nil {
		d.traceInt(p, field, int64(p[0]))
	}
	return p[0]
}

// tag reads the type byte of a handle.
func (d *decoder) tag(field string) Tag {
	p := d.need(1, field)
	if p == nil {
		return TagNull
	}
	if d.trace != nil {
		d.trace(traced{offset: d.offset() - 1, raw: p, size: 1, field: d.path.field(field), value: int64(p[0]), kind: traceTag})
	}
	return Tag(p[0])
}

// peekTag looks at the type byte of the next handle without consuming it.
func (d *decoder) peekTag(field string) Tag {
	trace := d.trace
	d.trace = nil
	t := d.tag(field)
	d.trace = trace
	if d.err == nil {
		d.pos--
	}
	return t
}

func (d *decoder) i32(field string) int32 {
	p := d.need(4, field)
	if p == nil {
		return 0
	}
	v := int32(binary.BigEndian.Uint32(p))
	if d.trace != nil {
		d.traceInt(p, field, int64(v))
	}
	return v
}

func (d *decoder) i64(field string) int64 {
	p := d.need(8, field)
	if p == nil {
		return 0
	}
	v := int64(binary.BigEndian.Uint64(p))
	if d.trace != nil {
		d.traceInt(p, field, v)
	}
	return v
}

// size64 reads a size in bytes, -1 if its writer did not know it.
func (d *decoder) size64(field string) int64 {
	at := d.offset()
	v := d.i64(field)
	if v < -1 && d.err == nil {
		d.is(at, field, v)
	}
	return v
}

// raw reads n bytes of fixed length.
func (d *decoder) raw(n int, field string) []byte {
	p := d.need(n, field)
	if p != nil && d.trace != nil {
		d.trace(traced{offset: d.offset() - int64(n), raw: p, size: int64(n), field: d.path.field(field), kind: traceRaw})
	}
	return p
}

// unchecked is the largest count for which room may be made without a look at
// what is left. Counts up to it are not refused either: if the file was cut off,
// the field that is cut says more than a list that does not fit.
const unchecked = 1024

// beyond reports whether n elements of at least minBytes are more than is left.
func (d *decoder) beyond(n, minBytes int64) bool {
	return n > unchecked && minBytes > 0 && n > d.left()/minBytes
}

// count reads the number of elements that take at least minBytes each.
func (d *decoder) count(field string, minBytes int64) int {
	at := d.offset()
	n := int64(d.i32(field))
	switch {
	case d.err != nil:
		return 0
	case n < 0:
		d.is(at, field, n)
		return 0
	case d.beyond(n, minBytes):
		d.tooMany(at, field, n)
		return 0
	}
	return int(n)
}

// utf reads a string.
func (d *decoder) utf(field string) String {
	at := d.offset()
	p := d.need(2, field)
	if p == nil {
		return ""
	}
	n := int(binary.BigEndian.Uint16(p))
	if n == 0 {
		d.traceText(at, field, nil)
		return ""
	}
	if n > d.fence-d.pos {
		d.needString(at, n, field)
	}
	p = d.need(n, field)
	if p == nil {
		return ""
	}
	if !validText(p) {
		d.damage(at, field, "is "+javaio.ErrMalformedString.Error())
		return ""
	}
	s := d.text.add(p)
	d.traceText(at, field, p)
	return s
}

// needString fetches the n bytes of a string, so that what fails is the string
// and its offset that of its length.
func (d *decoder) needString(at int64, n int, field string) {
	if err := d.fill(n); err != nil {
		d.fail(d.base+int64(d.end), field, "cannot be read", err)
		return
	}
	if n > d.fence-d.pos {
		d.damage(at, field, fmt.Sprintf("is cut off: its length is %d, but %d bytes are left", n, max(d.fence-d.pos, 0)))
	}
}

// validText reports whether p is modified UTF-8, quickly for ASCII.
func validText(p []byte) bool {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		if binary.NativeEndian.Uint64(p[i:])&0x8080808080808080 != 0 {
			return String(p).Valid()
		}
	}
	for ; i < len(p); i++ {
		if p[i] >= 0x80 {
			return String(p).Valid()
		}
	}
	return true
}

// bytes32 reads a length and that many bytes; nil if there are none. A long
// array grows as its bytes come in.
func (d *decoder) bytes32(field string) []byte {
	at := d.offset()
	p := d.need(4, field)
	if p == nil {
		return nil
	}
	n := int(int32(binary.BigEndian.Uint32(p)))
	switch {
	case n < 0:
		d.damage(at, field, fmt.Sprintf("has the length %d", n))
		return nil
	case int64(n) > d.left():
		d.damage(at, field, fmt.Sprintf("has the length %d, but %d bytes are left", n, max(d.left(), 0)))
		return nil
	}
	b := make([]byte, 0, min(n, windowSize))
	for len(b) < n {
		if d.pos == d.fence && !d.more() {
			if d.err == nil {
				d.damage(at, field, fmt.Sprintf("is cut off: its length is %d, but %d bytes are left", n, len(b)))
			}
			return nil
		}
		m := min(d.fence-d.pos, n-len(b))
		b = append(b, d.buf[d.pos:d.pos+m]...)
		d.pos += m
	}
	if d.trace != nil {
		d.trace(traced{offset: at, raw: b, size: 4 + int64(n), field: d.path.field(field), kind: traceBytes})
	}
	if n == 0 {
		return nil
	}
	return b
}

// int64s reads n numbers of at least lowest.
func (d *decoder) int64s(element string, n int, lowest int64) []int64 {
	if d.err != nil || n == 0 {
		return nil
	}
	const most = windowSize / 8
	vs := d.slabs.int64s(n, most)
	for len(vs) < n && d.err == nil {
		at := d.offset()
		k := min(n-len(vs), max(1, min(most, (d.fence-d.pos)/8)))
		d.path.push(element, len(vs))
		p := d.need(8*k, "")
		d.path.pop()
		for i := 0; i < len(p); i += 8 {
			v := int64(binary.BigEndian.Uint64(p[i:]))
			if v < lowest || d.trace != nil {
				d.path.push(element, len(vs))
				if d.trace != nil {
					d.trace(traced{offset: at + int64(i), raw: p[i : i+8], size: 8, field: d.path.field(""), value: v, kind: traceInt})
				}
				if v < lowest {
					d.is(at+int64(i), "", v)
				}
				d.path.pop()
			}
			vs = append(vs, v)
		}
	}
	return vs
}

// textArena keeps many strings in few allocations: chunks that are only ever
// appended to, cut into strings.
type textArena struct {
	chunk *strings.Builder
	used  int
}

const textChunk = 64 << 10

func (a *textArena) add(p []byte) String {
	if a.chunk == nil || a.chunk.Cap()-a.chunk.Len() < len(p) {
		if len(p) > textChunk/4 {
			return String(p)
		}
		// As much again as there was, so that a small file stays small.
		n := max(min(max(a.used, 256), textChunk), len(p))
		a.chunk = new(strings.Builder)
		a.chunk.Grow(n)
	}
	from := a.chunk.Len()
	a.chunk.Write(p)
	a.used += len(p)
	return String(a.chunk.String()[from:])
}

// slab hands out Ts from a few large allocations.
type slab[T any] struct {
	free []T
	used int
}

func (s *slab[T]) new() *T {
	if len(s.free) == 0 {
		n := min(max(s.used, 4), 256)
		s.free = make([]T, n)
		s.used += n
	}
	t := &s.free[0]
	s.free = s.free[1:]
	return t
}

type slabs struct {
	byteStream  slab[ByteStreamHandle]
	file        slab[FileHandle]
	relative    slab[RelativeFileHandle]
	segment     slab[SegmentHandle]
	keyGroups   slab[KeyGroupsHandle]
	incremental slab[IncrementalHandle]

	numbers     []int64
	numbersUsed int
}

// int64s returns an empty slice with room for n numbers, or for most of them.
func (s *slabs) int64s(n, most int) []int64 {
	n = min(n, most)
	if n > 64 {
		return make([]int64, 0, n)
	}
	if cap(s.numbers) < n {
		s.numbers = make([]int64, max(n, min(max(s.numbersUsed, 16), 1024)))
		s.numbersUsed += len(s.numbers)
	}
	vs := s.numbers[:0:n]
	s.numbers = s.numbers[n:]
	return vs
}

// traced is one field as it was read.
type traced struct {
	offset int64
	raw    []byte // of a traceBytes field its data without the length
	size   int64  // of the whole field in the file
	field  string
	value  int64
	kind   traceKind
}

type traceKind uint8

const (
	traceInt traceKind = iota
	traceTag
	traceText
	traceRaw
	traceBytes
	traceRest
)

func (d *decoder) traceInt(p []byte, field string, v int64) {
	d.trace(traced{offset: d.offset() - int64(len(p)), raw: p, size: int64(len(p)), field: d.path.field(field), value: v, kind: traceInt})
}

func (d *decoder) traceText(at int64, field string, p []byte) {
	if d.trace != nil {
		d.trace(traced{offset: at, raw: p, size: 2 + int64(len(p)), field: d.path.field(field), kind: traceText})
	}
}
