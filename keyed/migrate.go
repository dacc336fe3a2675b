package keyed

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/serializer"
)

// converter turns a serialized value of an old type into one of the new; nil where
// the bytes mean the same.
type converter func(dst, old []byte) ([]byte, error)

// migration checks whether values of an old type can be read as the new one, as
// Flink would, and how. A converter belongs to one goroutine.
func migration(old, new *serializer.Type) (converter, error) {
	if old == nil {
		return nil, nil
	}
	if class, opaque := old.IsOpaque(); opaque {
		return nil, fmt.Errorf("value: written by %s, which cannot be read: %w", class, ErrIncompatible)
	}
	c := serializer.Compat(old, new, nil)
	switch c.Verdict {
	case serializer.AsIs:
		// Equal snapshots mean equal bytes. Others may number enum constants and
		// subclasses in another order.
		a, err1 := old.AppendSnapshot(nil)
		b, err2 := new.AppendSnapshot(nil)
		if err1 != nil || err2 != nil || bytes.Equal(a, b) {
			return nil, nil
		}
	case serializer.AfterMigration:
	default:
		return nil, incompatible("value", c)
	}
	if old.Kind == serializer.KindTTL && new.Kind == serializer.KindTTL {
		inner, err := migration(old.Elem(), new.Elem())
		if err != nil || inner == nil {
			return nil, err
		}
		return func(dst, b []byte) ([]byte, error) {
			if len(b) < 8 {
				return dst, serializer.ErrShort
			}
			return inner(append(dst, b[:8]...), b[8:])
		}, nil
	}
	dec := serializer.NewDecoder(old, nil)
	return func(dst, b []byte) ([]byte, error) {
		v, n, err := dec.Decode(b)
		if err != nil {
			return dst, err
		}
		if n != len(b) {
			return dst, fmt.Errorf("has %d bytes left over", len(b)-n)
		}
		return new.AppendValue(dst, prune(v, new))
	}, nil
}

// prune leaves out fields that a POJO of the new type has no more.
func prune(v serializer.Value, t *serializer.Type) serializer.Value {
	field := func(k int) *serializer.Type {
		if k < len(t.Fields) {
			return t.Fields[k].Type
		}
		return t
	}
	switch x := v.(type) {
	case serializer.Object:
		if t.Kind != serializer.KindPOJO {
			return v
		}
		kept := serializer.Object{Class: x.Class}
		for _, f := range x.Fields {
			if i := slices.IndexFunc(t.Fields, func(g serializer.Field) bool { return g.Name == f.Name }); i >= 0 {
				kept.Fields = append(kept.Fields, serializer.NamedValue{Name: f.Name, Value: prune(f.Value, t.Fields[i].Type)})
			}
		}
		return kept
	case serializer.RowValue:
		for k := range x.Fields {
			x.Fields[k] = prune(x.Fields[k], field(k))
		}
		return x
	case []any:
		for k := range x {
			switch t.Kind {
			case serializer.KindTuple:
				x[k] = prune(x[k], field(k))
			case serializer.KindList, serializer.KindSet, serializer.KindArray:
				if e := t.Elem(); e != nil {
					x[k] = prune(x[k], e)
				}
			}
		}
		return x
	case []serializer.Entry:
		if t.Kind == serializer.KindMap {
			for k := range x {
				x[k].Key, x[k].Value = prune(x[k].Key, t.Key()), prune(x[k].Value, t.Value())
			}
		}
		return x
	}
	if t.Kind == serializer.KindNullable && t.Elem() != nil {
		return prune(v, t.Elem())
	}
	return v
}
