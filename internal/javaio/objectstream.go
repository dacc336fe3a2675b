package javaio

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/internal/damage"
)

// Type codes of a stream's contents.
const (
	tcNull         = 0x70
	tcReference    = 0x71
	tcClassDesc    = 0x72
	tcObject       = 0x73
	tcString       = 0x74
	tcArray        = 0x75
	tcClass        = 0x76
	tcBlockData    = 0x77
	tcEndBlockData = 0x78
	tcReset        = 0x79
	tcBlockLong    = 0x7a
	tcException    = 0x7b
	tcLongString   = 0x7c
	tcProxyDesc    = 0x7d
	tcEnum         = 0x7e
)

const (
	streamMagic   = 0xaced
	streamVersion = 5
	baseHandle    = 0x7e0000
)

// Limits of nesting: objects inside objects, and superclasses of a class. They
// are far above what Flink and the JDK's own classes need.
const (
	MaxObjectDepth = 1000
	MaxSuperclass  = 256
)

// ReadObjectStream reads a stream header and one content from the start of b,
// which may go on behind it, and returns the number of bytes they take. Nothing
// is resolved, loaded or executed. Memory stays within a small multiple of the
// bytes read, whatever lengths they state. Byte slices in the result alias b.
// Errors are *damage.Error with the offset in b; what may be right but is beyond
// this reader (nesting over the limits, externalizable data of the JDK 1.1
// protocol) wraps damage.ErrUnsupportedVersion, and what more bytes behind b might
// heal also wraps io.ErrUnexpectedEOF.
func ReadObjectStream(b []byte) (v Value, consumed int, err error) {
	r, err := NewObjectReader(b)
	if err != nil {
		return nil, 0, err
	}
	v, err = r.Next()
	if err == io.EOF {
		err = &damage.Error{Offset: int64(len(b)), Field: "object", Detail: "is missing", Err: errCut}
	}
	if err != nil {
		return nil, 0, err
	}
	return v, r.Offset(), nil
}

// ObjectReader reads the contents of a Java object stream one by one. Its
// handles live on from one to the next. Not for concurrent use.
type ObjectReader struct {
	in      Reader
	handles []Value
	depth   int
	stack   []Value // values of the objects that are being read, innermost last
	prims   []byte  // the same for primitive fields
	notes   []note
	err     error

	trace   func(from, to int, what string)
	traced  int    // end of what trace was told
	pending string // goes in front of the next text
}

// TraceObjectStream is ReadObjectStream, and tells what the bytes mean: trace is
// called for each piece of the stream, in order, without a gap, up to the end
// or to the damage.
func TraceObjectStream(b []byte, trace func(from, to int, what string)) (v Value, consumed int, err error) {
	r, err := NewObjectReader(b)
	if err != nil {
		return nil, 0, err
	}
	r.trace = trace
	r.mark("stream header")
	v, err = r.Next()
	if err != nil {
		return nil, 0, err
	}
	return v, r.Offset(), nil
}

// mark says what the bytes read since the last mark were.
func (r *ObjectReader) mark(what string) {
	if r.trace == nil || r.err != nil || r.in.Err() != nil {
		return
	}
	r.trace(r.traced, r.in.Offset(), r.pending+what)
	r.traced, r.pending = r.in.Offset(), ""
}

// began says, with the next mark, that the object has its number now: no byte
// of its own stands for that.
func (r *ObjectReader) began() {
	if r.trace != nil {
		r.pending += fmt.Sprintf("(object #%d) ", len(r.handles)-1)
	}
}

// markf is mark for a text that takes work to make.
func (r *ObjectReader) markf(format string, args ...any) {
	if r.trace != nil {
		r.mark(fmt.Sprintf(format, args...))
	}
}

// NewObjectReader reads the stream header at the start of b.
func NewObjectReader(b []byte) (*ObjectReader, error) {
	r := &ObjectReader{in: *NewReader(b)}
	magic, version := r.in.U16(), r.in.U16()
	switch {
	case r.in.Err() != nil:
		return nil, &damage.Error{Offset: 0, Field: "stream header", Detail: fmt.Sprintf("is cut off: %d of 4 bytes", len(b)), Err: errCut}
	case magic != streamMagic:
		return nil, &damage.Error{Offset: 0, Field: "stream magic", Detail: fmt.Sprintf("is %04x, not aced", magic), Err: damage.ErrCorrupt}
	case version != streamVersion:
		return nil, &damage.Error{Offset: 2, Field: "stream version", Detail: fmt.Sprintf("is %d, not 5", version), Err: damage.ErrUnsupportedVersion}
	}
	return r, nil
}

// Offset is the number of bytes consumed.
func (r *ObjectReader) Offset() int { return r.in.Offset() }

// Next reads the next content: an object of any kind or BlockData. Resets are
// obeyed and skipped. It returns io.EOF at the end of the input.
func (r *ObjectReader) Next() (Value, error) {
	if r.err != nil {
		return nil, r.err
	}
	for r.in.Len() > 0 && r.in.b[r.in.off] == tcReset {
		r.in.off++
		r.handles = r.handles[:0]
	}
	if r.in.Len() == 0 {
		return nil, io.EOF
	}
	v := r.content(true)
	if r.err != nil {
		return nil, r.err
	}
	return v, nil
}

// errCut is damage that more bytes might heal: it wraps damage.ErrCorrupt and
// io.ErrUnexpectedEOF.
var errCut error = cutError{}

type cutError struct{}

func (cutError) Error() string { return damage.ErrCorrupt.Error() }
func (cutError) Is(target error) bool {
	return target == damage.ErrCorrupt || target == io.ErrUnexpectedEOF
}

// fail records the first error.
func (r *ObjectReader) fail(offset int, field, detail string) {
	if r.err == nil {
		r.err = &damage.Error{Offset: int64(offset), Field: field, Detail: detail, Err: damage.ErrCorrupt}
	}
}

// beyond records that the stream may be right but is more than this reader takes.
func (r *ObjectReader) beyond(offset int, field, detail string) {
	if r.err == nil {
		r.err = &damage.Error{Offset: int64(offset), Field: field, Detail: detail, Err: damage.ErrUnsupportedVersion}
	}
}

// within prefixes the field path of an error that has just come up. Of a very
// long path the inner end is kept.
func (r *ObjectReader) within(name string) {
	const most = 160
	var e *damage.Error
	switch {
	case !errors.As(r.err, &e) || strings.HasPrefix(e.Field, "…"):
	case len(e.Field) > most:
		e.Field = "…" + e.Field
	case strings.HasPrefix(e.Field, "["):
		e.Field = name + e.Field
	default:
		e.Field = name + "." + e.Field
	}
}

// plain is a name of the stream as it may stand in an error: short, and without
// characters that move a cursor.
func plain(s String) string {
	const most = 120
	text := s.Go()
	if len(text) > most {
		text = text[:most] + "…"
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.QuoteToASCII(text)
	}
	return text
}

// push puts a value on the stack; doubling keeps the garbage small.
func (r *ObjectReader) push(v Value) {
	if len(r.stack) == cap(r.stack) {
		r.stack = slices.Grow(r.stack, max(len(r.stack), 64))
	}
	r.stack = append(r.stack, v)
}

// tooLong refuses a length. More bytes may help, but not a negative one.
func (r *ObjectReader) tooLong(at int, field string, n int64) {
	r.fail(at, field, fmt.Sprintf("is %d, but %d bytes are left", n, r.in.Len()))
	if e, ok := r.err.(*damage.Error); ok && n > 0 && e.Err == damage.ErrCorrupt {
		e.Err = errCut
	}
}

// ok checks the primitive reader, which stands at or behind field.
func (r *ObjectReader) ok(at int, field string) bool {
	if r.err != nil {
		return false
	}
	switch err := r.in.Err(); {
	case err == nil:
		return true
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.fail(at, field, fmt.Sprintf("is cut off: the stream ends after %d bytes", len(r.in.b)))
		var e *damage.Error
		if errors.As(r.err, &e) && e.Err == damage.ErrCorrupt {
			e.Err = errCut
		}
	default:
		r.fail(at, field, "is damaged: "+err.Error())
	}
	return false
}

func (r *ObjectReader) newHandle(v Value) int {
	r.handles = append(r.handles, v)
	return len(r.handles) - 1
}

// content reads one object, or one block of data where that is allowed.
func (r *ObjectReader) content(blocks bool) Value {
	at := r.in.Offset()
	tag := r.in.U8()
	if !r.ok(at, "type code") {
		return nil
	}
	switch tag {
	case tcNull:
		r.mark("null")
		return nil
	case tcReference:
		return r.reference()
	case tcString, tcLongString:
		return r.newString(tag)
	case tcBlockData, tcBlockLong:
		if !blocks {
			break
		}
		return r.block(tag)
	case tcReset:
		r.fail(at, "type code", "is a reset inside an object")
		return nil
	}
	r.depth++
	defer func() { r.depth-- }()
	if r.depth > MaxObjectDepth {
		r.beyond(at, "object", fmt.Sprintf("is nested more than %d deep", MaxObjectDepth))
		return nil
	}
	switch tag {
	case tcClassDesc, tcProxyDesc:
		if d := r.newClassDesc(tag); d != nil {
			return d
		}
		return nil
	case tcObject:
		r.mark("object")
		return r.object()
	case tcArray:
		r.mark("array")
		return r.array()
	case tcEnum:
		r.mark("enum constant")
		return r.enum()
	case tcClass:
		r.mark("class")
		d := r.classDesc()
		if r.err != nil {
			return nil
		}
		c := &Class{Desc: d}
		r.newHandle(c)
		r.markf("#%d: the class", len(r.handles)-1)
		return c
	case tcException:
		r.exception(at)
		return nil
	}
	r.fail(at, "type code", fmt.Sprintf("is %02x, which cannot stand here", tag))
	return nil
}

func (r *ObjectReader) reference() Value {
	at := r.in.Offset()
	h := r.in.I32()
	if !r.ok(at, "reference") {
		return nil
	}
	i := int64(h) - baseHandle
	if i < 0 || i >= int64(len(r.handles)) {
		r.fail(at, "reference", fmt.Sprintf("is %#x, but the stream has %d objects so far", uint32(h), len(r.handles)))
		return nil
	}
	r.markf("reference to #%d", i)
	return r.handles[i]
}

func (r *ObjectReader) newString(tag byte) Value {
	at := r.in.Offset()
	var s String
	if tag == tcString {
		s = r.in.UTF()
	} else {
		n := r.in.I64()
		if r.in.Err() == nil && (n < 0 || n > int64(r.in.Len())) {
			r.tooLong(at, "long string length", n)
			return nil
		}
		s = String(r.in.Next(int(n)))
		if !s.Valid() {
			r.in.Fail(ErrMalformedString)
		}
	}
	if !r.ok(at, "string") {
		return nil
	}
	r.newHandle(s)
	if r.trace != nil {
		r.markf("#%d: string %q", len(r.handles)-1, s.Go())
	}
	return s
}

func (r *ObjectReader) block(tag byte) Value {
	at := r.in.Offset()
	var n int64
	if tag == tcBlockData {
		n = int64(r.in.U8())
	} else {
		n = int64(r.in.I32())
	}
	if r.in.Err() == nil && (n < 0 || n > int64(r.in.Len())) {
		r.tooLong(at, "block length", n)
		return nil
	}
	b := BlockData(r.in.Next(int(n)))
	if !r.ok(at, "block") {
		return nil
	}
	r.markf("block of %d bytes", n)
	return b
}

// exception reads what a writer leaves that failed halfway.
func (r *ObjectReader) exception(at int) {
	r.handles = r.handles[:0]
	v := r.content(false)
	if r.err != nil {
		r.within("exception")
		return
	}
	what := "an exception"
	if o, ok := v.(*Object); ok {
		what = plain(o.Class.Name)
	}
	r.fail(at, "object", "was never finished: its writer failed with "+what)
}

// classDesc reads a class descriptor, a reference to one, or null.
func (r *ObjectReader) classDesc() *ClassDesc {
	at := r.in.Offset()
	tag := r.in.U8()
	if !r.ok(at, "class descriptor") {
		return nil
	}
	switch tag {
	case tcNull:
		r.mark("no superclass")
		return nil
	case tcReference:
		v := r.reference()
		if r.err != nil {
			return nil
		}
		d, ok := v.(*ClassDesc)
		if !ok {
			r.fail(at, "class descriptor", "refers to something else")
		} else if !d.complete {
			r.fail(at, "class descriptor", "refers to itself")
		}
		return d
	case tcClassDesc, tcProxyDesc:
		r.depth++
		defer func() { r.depth-- }()
		if r.depth > MaxObjectDepth {
			r.beyond(at, "class descriptor", fmt.Sprintf("is nested more than %d deep", MaxObjectDepth))
			return nil
		}
		return r.newClassDesc(tag)
	}
	r.fail(at, "class descriptor", fmt.Sprintf("has type code %02x", tag))
	return nil
}

// needClass is classDesc without null.
func (r *ObjectReader) needClass() *ClassDesc {
	at := r.in.Offset()
	d := r.classDesc()
	if d == nil && r.err == nil {
		r.fail(at, "class descriptor", "is null")
	}
	return d
}

func (r *ObjectReader) newClassDesc(tag byte) *ClassDesc {
	at := r.in.Offset()
	d := &ClassDesc{}
	if tag == tcProxyDesc {
		d.Proxy = true
		d.Flags = FlagSerializable
		r.newHandle(d)
		n := r.in.Count(2)
		if !r.ok(at, "interface count") {
			return nil
		}
		r.markf("#%d: class descriptor of a proxy of %d interfaces", len(r.handles)-1, n)
		for range n {
			at = r.in.Offset()
			s := r.in.UTF()
			if !r.ok(at, "interface name") {
				return nil
			}
			d.Interfaces = append(d.Interfaces, s)
			r.markf("interface %s", s)
		}
	} else {
		d.Name = r.in.UTF()
		d.UID = r.in.I64()
		if !r.ok(at, "class name") {
			return nil
		}
		r.newHandle(d)
		r.markf("#%d: class descriptor %s, serialVersionUID %016x", len(r.handles)-1, d.Name, uint64(d.UID))
		at = r.in.Offset()
		d.Flags = r.in.U8()
		n := int(r.in.U16())
		if !r.ok(at, "class flags") {
			return nil
		}
		if d.Flags&FlagSerializable != 0 && d.Flags&FlagExternalizable != 0 {
			r.fail(at, "class flags", fmt.Sprintf("are %02x: serializable and externalizable at once", d.Flags))
			return nil
		}
		if n > r.in.Len()/3 {
			r.fail(at+1, "field count", fmt.Sprintf("is %d, but %d bytes are left", n, r.in.Len()))
			return nil
		}
		r.markf("flags %02x, %d fields", d.Flags, n)
		d.Fields = make([]Field, n)
		for i := range d.Fields {
			if !r.field(&d.Fields[i]) {
				r.within(plain(d.Name))
				return nil
			}
		}
	}
	d.Annotation = r.annotation()
	if r.err != nil {
		return nil
	}
	at = r.in.Offset()
	d.Super = r.classDesc()
	if r.err != nil {
		return nil
	}
	if d.Super != nil && d.Super.depth >= MaxSuperclass {
		r.beyond(at, "superclass", fmt.Sprintf("is one of more than %d", MaxSuperclass))
		return nil
	}
	d.link()
	return d
}

func (r *ObjectReader) field(f *Field) bool {
	at := r.in.Offset()
	f.Type = r.in.U8()
	f.Name = r.in.UTF()
	if !r.ok(at, "field") {
		return false
	}
	r.markf("field %c %s", f.Type, f.Name)
	if primWidth(f.Type) > 0 {
		return true
	}
	if !f.Ref() {
		r.fail(at, "field type", fmt.Sprintf("is %02x", f.Type))
		return false
	}
	at = r.in.Offset()
	s, ok := r.stringContent().(String)
	if r.err == nil && !ok {
		r.fail(at, "field signature", "is no string")
	}
	f.Sig = s
	return r.err == nil
}

// stringContent reads a new string or a reference.
func (r *ObjectReader) stringContent() Value {
	at := r.in.Offset()
	tag := r.in.U8()
	if !r.ok(at, "string") {
		return nil
	}
	switch tag {
	case tcString, tcLongString:
		return r.newString(tag)
	case tcReference:
		return r.reference()
	}
	r.fail(at, "string", fmt.Sprintf("has type code %02x", tag))
	return nil
}

// annotation reads contents up to the end mark.
func (r *ObjectReader) annotation() []Value {
	base := len(r.stack)
	for r.err == nil {
		if r.in.Len() > 0 && r.in.b[r.in.off] == tcEndBlockData {
			r.in.off++
			r.mark("end of the annotation")
			return r.pop(base)
		}
		v := r.content(true)
		if r.err == nil {
			r.push(v)
		}
	}
	return nil
}

// pop takes the values above base off the stack, into a slice of their own.
func (r *ObjectReader) pop(base int) []Value {
	if len(r.stack) == base {
		return nil
	}
	vs := append([]Value(nil), r.stack[base:]...)
	clear(r.stack[base:])
	r.stack = r.stack[:base]
	return vs
}

func (r *ObjectReader) object() Value {
	at := r.in.Offset()
	d := r.needClass()
	if r.err != nil {
		return nil
	}
	if d.Flags&FlagEnum != 0 {
		r.fail(at, "object", "of an enum class is written as a plain object")
		return nil
	}
	o := &Object{Class: d}
	r.newHandle(o)
	r.began()
	stack, prims, notes := len(r.stack), len(r.prims), len(r.notes)
	r.classData(d)
	if r.err != nil {
		return nil
	}
	o.refs = r.pop(stack)
	if len(r.prims) > prims {
		o.prims = append([]byte(nil), r.prims[prims:]...)
		r.prims = r.prims[:prims]
	}
	if len(r.notes) > notes {
		o.notes = append([]note(nil), r.notes[notes:]...)
		clear(r.notes[notes:])
		r.notes = r.notes[:notes]
	}
	return o
}

// classData reads the data of d's superclasses and of d.
func (r *ObjectReader) classData(d *ClassDesc) {
	if d.Flags&FlagExternalizable != 0 {
		if d.Flags&FlagBlockData == 0 {
			r.beyond(r.in.Offset(), plain(d.Name), "is externalizable data of the old protocol, whose end cannot be found")
			return
		}
		r.note(d)
		return
	}
	if d.dataSuper != nil {
		r.classData(d.dataSuper)
	}
	if d.Flags&FlagSerializable == 0 {
		return
	}
	for i := range d.Fields {
		if r.err != nil {
			return
		}
		f := &d.Fields[i]
		if f.Ref() {
			v := r.content(false)
			if r.err != nil {
				r.within(plain(f.Name))
				return
			}
			r.push(v)
			continue
		}
		at := r.in.Offset()
		p := r.in.Next(primWidth(f.Type))
		if !r.ok(at, plain(f.Name)) {
			return
		}
		r.prims = append(r.prims, p...)
		if r.trace != nil {
			r.markf("%s = %v", f.Name, primValue(f.Type, p))
		}
	}
	if d.Flags&FlagWriteMethod != 0 {
		r.note(d)
	}
}

func (r *ObjectReader) note(d *ClassDesc) {
	vs := r.annotation()
	if r.err != nil {
		r.within(plain(d.Name))
		return
	}
	if len(vs) > 0 {
		r.notes = append(r.notes, note{d, vs})
	}
}

func (r *ObjectReader) array() Value {
	at := r.in.Offset()
	d := r.needClass()
	if r.err != nil {
		return nil
	}
	if len(d.Name) < 2 || d.Name[0] != '[' {
		r.fail(at, "array", fmt.Sprintf("has the class %q", d.Name.Go()))
		return nil
	}
	a := &Array{Class: d, elem: d.Name[1]}
	r.newHandle(a)
	at = r.in.Offset()
	n := int64(r.in.I32())
	if !r.ok(at, "array length") {
		return nil
	}
	width := int64(primWidth(a.elem))
	if n < 0 || n*max(width, 1) > int64(r.in.Len()) {
		r.fail(at, "array length", fmt.Sprintf("is %d, but %d bytes are left", n, r.in.Len()))
		return nil
	}
	r.markf("#%d: array of %d", len(r.handles)-1, n)
	if width > 0 {
		a.raw = r.in.Next(int(n * width))
		r.mark("elements")
		return a
	}
	if a.elem != 'L' && a.elem != '[' {
		r.fail(at, "array", fmt.Sprintf("has the class %q", d.Name.Go()))
		return nil
	}
	base := len(r.stack)
	for i := range n {
		v := r.content(false)
		if r.err != nil {
			r.within(fmt.Sprintf("[%d]", i))
			return nil
		}
		r.push(v)
	}
	a.elems = r.pop(base)
	return a
}

func (r *ObjectReader) enum() Value {
	at := r.in.Offset()
	d := r.needClass()
	if r.err != nil {
		return nil
	}
	if d.Flags&FlagEnum == 0 {
		r.fail(at, "enum constant", fmt.Sprintf("is of %q, which is no enum", d.Name.Go()))
		return nil
	}
	e := &Enum{Class: d}
	r.newHandle(e)
	r.began()
	at = r.in.Offset()
	s, ok := r.stringContent().(String)
	if r.err == nil && !ok {
		r.fail(at, "enum constant", "has no name")
	}
	if r.err != nil {
		return nil
	}
	e.Name = s
	return e
}
