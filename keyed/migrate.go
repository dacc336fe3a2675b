package keyed

import (
	"fmt"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// migration checks whether values of an old type can be read as the new one, as
// Flink would, and how: nil where the bytes mean the same.
func migration(old, new *serializer.Type) (serializer.Convert, error) {
	if old == nil {
		return nil, nil
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
	convert, c := serializer.Migrate(old, new, nil)
	if convert == nil && c.Verdict != serializer.AsIs {
		return nil, incompatible("value", c)
	}
	return convert, nil
}

// keeps checks whether a key, namespace or user key, none of which is migrated, of an old
// type is the same bytes as the new one's. Flink's serializers take over an old order of
// enum constants; those of Go have theirs. A type that is not known is not compared.
func keeps(part string, old, new *serializer.Type) error {
	if old == nil || new == nil {
		return nil
	}
	c := serializer.CompatKey(old, new)
	if c.Verdict == serializer.AsIs && serializer.Renumbered(old, new) {
		c.Verdict = serializer.Incompatible
	}
	if c.Verdict != serializer.AsIs {
		return incompatible(part, c)
	}
	return nil
}

// SameTypes checks whether the rows of a state that come from two places are of the same
// types. Types that are not known are not compared.
func SameTypes(a, b *snapshot.State) error {
	for _, p := range []struct {
		part string
		a, b *serializer.Type
	}{{"key", a.Key, b.Key}, {"namespace", a.Namespace, b.Namespace}, {"map key", a.UserKey, b.UserKey}, {"value", valueOf(a), valueOf(b)}} {
		if p.a == nil || p.b == nil {
			continue
		}
		if x, y := p.a.Words(), p.b.Words(); x != y {
			return fmt.Errorf("%s: is %s in one place and %s in another: %w", p.part, x, y, ErrIncompatible)
		}
		if serializer.Renumbered(p.a, p.b) {
			return fmt.Errorf("%s: constants or classes of %s have other numbers in another place: %w", p.part, p.a, ErrIncompatible)
		}
	}
	return nil
}

// valueOf is the type of a state's values, of a list state that of its elements.
func valueOf(s *snapshot.State) *serializer.Type {
	if s.Kind == snapshot.StateList && s.Value != nil && s.Value.Kind == serializer.KindList {
		return s.Value.Elem()
	}
	return s.Value
}
