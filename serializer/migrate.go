package serializer

import (
	"bytes"
	"fmt"
	"slices"
)

// Convert turns the bytes of one value of an old type, all of b, into those of a
// new type, appended to dst. It is for one goroutine.
type Convert func(dst, b []byte) ([]byte, error)

// Migrate compares types as Compat does and says how to read the old one's values
// as the new one's: by a Convert, or, if that is nil and the verdict is AsIs, as
// they are. A verdict of AsIs may come with a Convert: constants of an enum may have
// been numbered in another order. Any other verdict without Convert is a refusal.
func Migrate(old, new *Type, opts *CompatOptions) (Convert, Compatibility) {
	if class, opaque := old.IsOpaque(); opaque {
		return nil, Compatibility{Undecided, "", "was written by " + class + ", which cannot be read"}
	}
	c := Compat(old, new, opts)
	switch c.Verdict {
	case AsIs:
		a, err1 := old.AppendSnapshot(nil)
		b, err2 := new.AppendSnapshot(nil)
		if err1 != nil || err2 != nil || bytes.Equal(a, b) {
			return nil, c
		}
	case AfterMigration:
	default:
		return nil, c
	}
	dec, shape := NewDecoder(old, nil), &shaper{readers: map[*Type]*avroReader{}}
	return func(dst, b []byte) ([]byte, error) {
		v, n, err := dec.Decode(b)
		if err != nil {
			return dst, err
		}
		if n != len(b) {
			return dst, bad(n, "value", fmt.Sprintf("has %d bytes behind it", len(b)-n))
		}
		v = shape.value(v, new)
		if shape.err != nil {
			return dst, shape.err
		}
		return new.AppendValue(dst, v)
	}, c
}

// shaper makes values of an old type fit a new one.
type shaper struct {
	readers map[*Type]*avroReader
	err     error // the first
}

// avro is a value as the newer schema has it.
func (s *shaper) avro(v Value, t *Type) Value {
	r := s.readers[t]
	if r == nil {
		var err error
		if r, err = newAvroReader(t.Schema); err != nil {
			s.err = err
			return v
		}
		s.readers[t] = r
	}
	out, err := r.value(v, avroRef{r.root, ""})
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("avro value: %w", err)
	}
	return out
}

// value leaves out the fields that a POJO of type t has no more. Those it has got are
// null or zero when they are encoded. Avro has rules of its own.
func (s *shaper) value(v Value, t *Type) Value {
	for t != nil && (t.Kind == KindNullable || t.Kind == KindOption) {
		t = t.Elem()
	}
	if t == nil {
		return v
	}
	if t.Schema != "" {
		return s.avro(v, t)
	}
	field := func(i int) *Type {
		if i < len(t.Fields) {
			return t.Fields[i].Type
		}
		if i < len(t.Args) {
			return t.Args[i]
		}
		return nil
	}
	switch x := v.(type) {
	case Object:
		if t.Kind != KindPOJO {
			return v
		}
		kept := Object{Class: x.Class}
		for _, f := range x.Fields {
			if i := slices.IndexFunc(t.Fields, func(g Field) bool { return g.Name == f.Name }); i >= 0 {
				kept.Fields = append(kept.Fields, NamedValue{f.Name, s.value(f.Value, t.Fields[i].Type)})
			}
		}
		return kept
	case RowValue:
		for i := range x.Fields {
			x.Fields[i] = s.value(x.Fields[i], field(i))
		}
		return x
	case []any:
		for i := range x {
			if t.Kind == KindTuple {
				x[i] = s.value(x[i], field(i))
			} else {
				x[i] = s.value(x[i], t.Elem())
			}
		}
		return x
	case []Entry:
		for i := range x {
			x[i] = Entry{s.value(x[i].Key, t.Key()), s.value(x[i].Value, t.Value())}
		}
		return x
	}
	return v
}
