package keyed

import "github.com/tidemark/tidemark/serializer"

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
