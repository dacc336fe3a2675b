package snapshot

import (
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/serializer"
)

// The Visit methods walk one part of a row without boxing it: the way from a row
// to columns. A part that a row does not have, or that is null, is one call of
// Null; a part whose serializer is not known is one call of Opaque. The Type that
// they are called with is that of the State's part, or nil where it has none.
//
// After an error, which is damage inside the part, v has got a part of it.

// VisitKey walks the key.
func (r *StateRow) VisitKey(v serializer.Visitor) error {
	return r.visitPart(r.decoders().key, r.State.Key, r.Key, v)
}

// VisitNamespace walks the namespace.
func (r *StateRow) VisitNamespace(v serializer.Visitor) error {
	return r.visitPart(r.decoders().namespace, r.State.Namespace, r.Namespace, v)
}

// VisitMapKey walks the key of a map or broadcast entry.
func (r *StateRow) VisitMapKey(v serializer.Visitor) error {
	return r.visitPart(r.decoders().userKey, r.State.UserKey, r.UserKey, v)
}

var noDecoders rowDecoders

func (r *StateRow) decoders() *rowDecoders {
	if r.dec == nil {
		return &noDecoders
	}
	return r.dec
}

func (r *StateRow) visitPart(d *serializer.Decoder, t *serializer.Type, b []byte, v serializer.Visitor) error {
	if b == nil {
		v.Null(t)
		return nil
	}
	if d == nil {
		v.Opaque(t, "", b)
		return nil
	}
	n, err := d.Visit(b, v)
	if err == nil && n != len(b) {
		err = &damage.Error{Offset: int64(n), Field: d.Type().Kind.String(), Detail: "leaves bytes", Err: damage.ErrCorrupt}
	}
	return err
}

// listOf is what Begin and End are called with for a value that is stored as
// elements: a list of whatever stands in it.
var listOf = &serializer.Type{Kind: serializer.KindList}

// VisitValue walks the value; TTL tells its times afterwards. A value in parts of
// bytes is a list of them. A list whose element cannot be read is an error: nothing
// tells where the next one begins.
func (r *StateRow) VisitValue(v serializer.Visitor) error {
	d := r.decoders()
	if r.Null {
		v.Null(r.State.Value)
		return nil
	}
	switch r.Form {
	case FormValue:
		return r.visitPart(d.value, r.State.Value, r.Value, v)
	case FormJoined, FormElements:
		r.ttlSeen = false
		if d.elem == nil {
			v.Opaque(r.State.Value, "", r.Value)
			return nil
		}
		if t := d.elem.Type(); t.Kind == serializer.KindOpaque {
			v.Opaque(t, t.JavaClass, r.Value)
			return nil
		}
		v.Begin(listOf, -1)
		for b := r.Value; len(b) > 0; {
			n, err := d.elem.Visit(b, v)
			if err != nil {
				r.ttlSeen = false
				return err
			}
			if lo, hi, ok := d.elem.TTL(); ok {
				r.sawTTL(lo, hi)
			}
			if b = b[n:]; r.Form == FormJoined && len(b) > 0 {
				b = b[1:]
			}
			if n == 0 {
				break // elements without bytes: one stands for all
			}
		}
		v.End(listOf)
	case FormVersioned, FormByteParts:
		v.Begin(listOf, -1)
		r.parts(func(_ int32, p []byte) { v.Bytes(nil, p) })
		v.End(listOf)
	case FormBytes, FormVersionedBytes:
		v.Bytes(nil, r.Value)
	default:
		v.Null(r.State.Value)
	}
	return nil
}
