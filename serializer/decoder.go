package serializer

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/internal/damage"
)

// ErrShort says that a value goes on past the bytes given: a caller that reads a
// stream gets more and tries again from the value's start. It wraps
// io.ErrUnexpectedEOF. A Decoder of framed values never returns it: there, a
// value that does not fit is damage.
var ErrShort = fmt.Errorf("value goes on past the bytes given: %w", io.ErrUnexpectedEOF)

// OpaqueError says that a value cannot be read and that nothing tells where it
// ends.
type OpaqueError struct {
	Class  string // of the value, or of the serializer's snapshot
	Offset int    // of the value in the bytes given
}

func (e *OpaqueError) Error() string {
	return fmt.Sprintf("byte %d: value of %s cannot be read and has no length", e.Offset, e.Class)
}

// Opaque tells readers of frames apart this error from damage.
func (e *OpaqueError) Opaque() bool { return true }

// DecodeOptions changes how a Decoder reads. Nil is the default.
type DecodeOptions struct {
	// Framed says that the bytes given to each call are exactly one value. A value
	// that cannot be read is then Opaque, not an error, and bytes left over are.
	Framed bool
	// Strict refuses what no serializer of Flink writes although Flink would read
	// it: a boolean other than 0 and 1, a one-byte placeholder other than 0.
	Strict bool
	// Kryo is the major version of the Kryo that wrote: Flink 1.x has version 2,
	// Flink 2.x version 5. The bytes do not tell; KryoAuto tries.
	Kryo KryoVersion
	// Classes are POJO types by Java class: those of subclasses that a snapshot
	// lacks because they were first met after it was taken, and the fields of
	// classes that Kryo writes field by field. A Decoder does not change it.
	Classes Classes
}

// Decoder reads values of one Type. It keeps scratch space and is not for
// concurrent use; a Type may have any number of Decoders.
type Decoder struct {
	t       *Type
	framed  bool
	strict  bool
	classes Classes
	unsure  bool // something in t may turn out opaque

	text      []byte // scratch for strings
	num       [16]byte
	zeros     int // elements without bytes seen in this value
	budget    int // bytes of nested BinaryRow parts still allowed
	depth     int
	inImage   bool
	swallowed bool // an opaque part took the rest of the frame
	checked   checkVisitor

	ttlMin, ttlMax int64
	ttlSeen        bool

	kryo kryoState
	json jsonVisitor
	tree treeVisitor
}

// NewDecoder prepares to read values of t.
func NewDecoder(t *Type, opts *DecodeOptions) *Decoder {
	d := &Decoder{t: t}
	if opts != nil {
		d.framed, d.strict = opts.Framed, opts.Strict
		d.kryo.version, d.classes = opts.Kryo, opts.Classes
	}
	t.Walk(func(n *Type) bool {
		if n.Kind == KindOpaque || n.Kind == KindDynamic || len(n.Unregistered) > 0 {
			d.unsure = true
		}
		if n.Kind == KindPOJO {
			d.unsure = true // a subclass that the snapshot does not know
		}
		return !d.unsure
	})
	return d
}

// Type is what the Decoder reads.
func (d *Decoder) Type() *Type { return d.t }

// TTL tells the least and the greatest TTL timestamp, in epoch milliseconds,
// inside the value last read; ok is false if it had none.
func (d *Decoder) TTL() (least, greatest int64, ok bool) { return d.ttlMin, d.ttlMax, d.ttlSeen }

func (d *Decoder) reset() {
	d.ttlSeen = false
	d.zeros = 0
	d.depth = 0
	d.swallowed = false
	d.checked = checkVisitor{}
}

// SkippedOpaque reports whether the value last given to Skip had a part that could
// not be read, and the class of the first such part.
func (d *Decoder) SkippedOpaque() (class string, ok bool) { return d.checked.class, d.checked.opaque }

// Skip checks the structure of the value at the start of b and returns its size.
func (d *Decoder) Skip(b []byte) (n int, err error) {
	d.reset()
	n, err = d.skip(d.t, b, 0)
	if d.framed {
		return d.frameEnd(b, n, err)
	}
	return n, err
}

// Visit walks the value at the start of b and returns its size. After an error v
// has got a part of the value, except that a framed value that cannot be read is
// one call of Opaque.
func (d *Decoder) Visit(b []byte, v Visitor) (n int, err error) {
	d.reset()
	if d.framed && d.unsure {
		// Whether it can be read is known only at its end.
		if n, err = d.skip(d.t, b, 0); d.mustBeOpaque(b, n, err) {
			v.Opaque(d.t, d.opaqueClass(err), b)
			return len(b), nil
		}
		d.reset()
	}
	n, err = d.walk(d.t, b, 0, v)
	if d.framed {
		return d.frameEnd(b, n, err)
	}
	return n, err
}

// mustBeOpaque reports whether a framed value with an opaque part cannot be told
// apart into its parts.
func (d *Decoder) mustBeOpaque(b []byte, n int, err error) bool {
	if err == nil {
		return n != len(b) && d.swallowed
	}
	var o *OpaqueError
	return errors.As(err, &o) || d.swallowed
}

func (d *Decoder) opaqueClass(err error) string {
	var o *OpaqueError
	if errors.As(err, &o) {
		return o.Class
	}
	if class, ok := d.t.IsOpaque(); ok {
		return class
	}
	return d.t.JavaClass
}

// frameEnd turns what a walk said into the answer for a framed value.
func (d *Decoder) frameEnd(b []byte, n int, err error) (int, error) {
	if err == nil && n == len(b) {
		return n, nil
	}
	if d.unsure && d.mustBeOpaque(b, n, err) {
		d.checked.Opaque(d.t, d.opaqueClass(err), b)
		return len(b), nil
	}
	if errors.Is(err, ErrShort) {
		return n, &damage.Error{Offset: int64(len(b)), Field: d.t.Kind.String(), Detail: "ends too early", Err: damage.ErrCorrupt}
	}
	if err == nil {
		err = bad(n, d.t.Kind.String(), fmt.Sprintf("leaves %d bytes", len(b)-n))
	}
	return n, err
}

// bad is damage at byte i of the value.
func bad(i int, field, detail string) error {
	return &damage.Error{Offset: int64(i), Field: field, Detail: detail, Err: damage.ErrCorrupt}
}

// in puts the name of a part in front of damage's field.
func in(err error, name string) error {
	if e, ok := err.(*damage.Error); ok {
		if e.Field == "" {
			e.Field = name
		} else {
			e.Field = name + "." + e.Field
		}
	}
	return err
}

// moved adds to the offset of damage that counts from byte i.
func moved(err error, i int) error {
	if e, ok := err.(*damage.Error); ok {
		e.Offset += int64(i)
	}
	return err
}

func (d *Decoder) seeTTL(ms int64) {
	if !d.ttlSeen {
		d.ttlMin, d.ttlMax, d.ttlSeen = ms, ms, true
		return
	}
	d.ttlMin = min(d.ttlMin, ms)
	d.ttlMax = max(d.ttlMax, ms)
}

// Bounds that no value of a real job meets; they stop damaged bytes from
// costing more than their size.
const (
	maxZeroSized = 1 << 16 // elements without bytes in one value
	maxDepth     = 256     // of values whose depth the type does not bound
)

// count reads an element count at i and compares it with the bytes left.
func (d *Decoder) count(b []byte, i int, least int32) (n, next int, err error) {
	if len(b)-i < 4 {
		return 0, i, ErrShort
	}
	c := be32(b[i:])
	if c < 0 {
		return 0, i, bad(i, "count", fmt.Sprintf("is %d", c))
	}
	if int64(c)*int64(least) > int64(len(b)-i-4) {
		return 0, i, ErrShort
	}
	return int(c), i + 4, nil
}

// zero counts an element without bytes.
func (d *Decoder) zero(i int) error {
	if d.zeros++; d.zeros > maxZeroSized {
		return bad(i, "count", fmt.Sprintf("is more than %d for elements without bytes", maxZeroSized))
	}
	return nil
}

// flagAt reads a boolean at i.
func (d *Decoder) flagAt(b []byte, i int) (v bool, err error) {
	if i >= len(b) {
		return false, ErrShort
	}
	if b[i] > 1 && d.strict {
		return false, bad(i, "boolean", fmt.Sprintf("is %d", b[i]))
	}
	return b[i] != 0, nil
}

// zeroByte reads a placeholder byte at i.
func (d *Decoder) zeroByte(b []byte, i int, want byte, field string) error {
	if i >= len(b) {
		return ErrShort
	}
	if b[i] != want && (d.strict || want != 0) {
		return bad(i, field, fmt.Sprintf("is %#02x", b[i]))
	}
	return nil
}
