package serializer

import (
	"fmt"

	"github.com/tidemark/tidemark/internal/javaio"
)

// List is the serializer of a java.util.List.
func List[T any](elem Serializer[T]) Serializer[[]T] {
	return &listSerializer[T]{elem, NewList(elem.Type())}
}

type listSerializer[T any] struct {
	elem Serializer[T]
	t    *Type
}

func (s *listSerializer[T]) Type() *Type { return s.t }

func (s *listSerializer[T]) Append(dst []byte, v []T) []byte {
	dst = javaio.AppendI32(dst, int32(len(v)))
	for i := range v {
		dst = s.elem.Append(dst, v[i])
	}
	return dst
}

func (s *listSerializer[T]) Read(b []byte) ([]T, int, error) {
	n, i, err := readCount(b, s.t.Args[0].min)
	if err != nil {
		return nil, 0, err
	}
	v := make([]T, 0, min(n, preallocate))
	for k := range n {
		x, m, err := s.elem.Read(b[i:])
		if err != nil {
			return nil, 0, inElement(moved(err, i), k)
		}
		v = append(v, x)
		i += m
	}
	return v, i, nil
}

// readCount reads a count of elements that take at least least bytes each; those
// that take none are bounded.
func readCount(b []byte, least int32) (n, next int, err error) {
	var d Decoder
	if n, next, err = d.count(b, 0, least); err == nil && least == 0 && n > maxZeroSized {
		err = bad(0, "count", fmt.Sprintf("is %d for elements without bytes", n))
	}
	return n, next, err
}

// Map is the serializer of a java.util.Map. Entries are in no order.
func Map[K comparable, V any](key Serializer[K], value Serializer[V]) Serializer[map[K]V] {
	return &mapSerializer[K, V]{key, value, NewMap(key.Type(), value.Type())}
}

type mapSerializer[K comparable, V any] struct {
	key   Serializer[K]
	value Serializer[V]
	t     *Type
}

func (s *mapSerializer[K, V]) Type() *Type { return s.t }

func (s *mapSerializer[K, V]) Append(dst []byte, v map[K]V) []byte {
	dst = javaio.AppendI32(dst, int32(len(v)))
	for k, x := range v {
		dst = s.value.Append(append(s.key.Append(dst, k), 0), x)
	}
	return dst
}

func (s *mapSerializer[K, V]) Read(b []byte) (map[K]V, int, error) {
	n, i, err := readCount(b, s.t.Args[0].min+1)
	if err != nil {
		return nil, 0, err
	}
	v := make(map[K]V, min(n, preallocate))
	for k := range n {
		key, m, err := s.key.Read(b[i:])
		if err != nil {
			return nil, 0, in(inElement(moved(err, i), k), "key")
		}
		if i += m; i >= len(b) {
			return nil, 0, ErrShort
		}
		var x V
		if null := b[i] != 0; null {
			m = 0
		} else if x, m, err = s.value.Read(b[i+1:]); err != nil {
			return nil, 0, inElement(moved(err, i+1), k)
		}
		v[key] = x
		i += 1 + m
	}
	return v, i, nil
}

// Nullable is the serializer of a value that may be null, as Flink's
// NullableSerializer without padding: nil is null.
func Nullable[T any](inner Serializer[T]) Serializer[*T] {
	return &nullableSerializer[T]{inner, NewNullable(inner.Type())}
}

type nullableSerializer[T any] struct {
	inner Serializer[T]
	t     *Type
}

func (s *nullableSerializer[T]) Type() *Type { return s.t }

func (s *nullableSerializer[T]) Append(dst []byte, v *T) []byte {
	if v == nil {
		return append(dst, 1)
	}
	return s.inner.Append(append(dst, 0), *v)
}

func (s *nullableSerializer[T]) Read(b []byte) (*T, int, error) {
	if len(b) == 0 {
		return nil, 0, ErrShort
	}
	if b[0] != 0 {
		return nil, 1, nil
	}
	v, n, err := s.inner.Read(b[1:])
	if err != nil {
		return nil, 0, moved(err, 1)
	}
	return &v, n + 1, nil
}

// WithTTL is the serializer of a value with a TTL timestamp in front.
func WithTTL[T any](value Serializer[T]) Serializer[Expiring[T]] {
	return &ttlSerializer[T]{value, NewTTL(value.Type())}
}

// Expiring is a value with the time it was last touched, in epoch milliseconds.
type Expiring[T any] struct {
	Timestamp int64
	Value     T
}

type ttlSerializer[T any] struct {
	value Serializer[T]
	t     *Type
}

func (s *ttlSerializer[T]) Type() *Type { return s.t }

func (s *ttlSerializer[T]) Append(dst []byte, v Expiring[T]) []byte {
	return s.value.Append(javaio.AppendI64(dst, v.Timestamp), v.Value)
}

func (s *ttlSerializer[T]) Read(b []byte) (v Expiring[T], n int, err error) {
	if len(b) < 8 {
		return v, 0, ErrShort
	}
	v.Timestamp = be64(b)
	v.Value, n, err = s.value.Read(b[8:])
	return v, n + 8, moved(err, 8)
}

// Pair is a Tuple2.
type Pair[A, B any] struct {
	F0 A
	F1 B
}

// Tuple2 is the serializer of a Tuple2. Tuples of other sizes are structs, see Of.
func Tuple2[A, B any](a Serializer[A], b Serializer[B]) Serializer[Pair[A, B]] {
	return &tuple2Serializer[A, B]{a, b, NewTuple(a.Type(), b.Type())}
}

type tuple2Serializer[A, B any] struct {
	a Serializer[A]
	b Serializer[B]
	t *Type
}

func (s *tuple2Serializer[A, B]) Type() *Type { return s.t }

func (s *tuple2Serializer[A, B]) Append(dst []byte, v Pair[A, B]) []byte {
	return s.b.Append(s.a.Append(dst, v.F0), v.F1)
}

func (s *tuple2Serializer[A, B]) Read(b []byte) (v Pair[A, B], n int, err error) {
	if v.F0, n, err = s.a.Read(b); err != nil {
		return v, 0, err
	}
	x, m, err := s.b.Read(b[n:])
	if err != nil {
		return v, 0, moved(err, n)
	}
	v.F1 = x
	return v, n + m, nil
}

// Triple is a Tuple3.
type Triple[A, B, C any] struct {
	F0 A
	F1 B
	F2 C
}

// Tuple3 is the serializer of a Tuple3.
func Tuple3[A, B, C any](a Serializer[A], b Serializer[B], c Serializer[C]) Serializer[Triple[A, B, C]] {
	return &tuple3Serializer[A, B, C]{a, b, c, NewTuple(a.Type(), b.Type(), c.Type())}
}

type tuple3Serializer[A, B, C any] struct {
	a Serializer[A]
	b Serializer[B]
	c Serializer[C]
	t *Type
}

func (s *tuple3Serializer[A, B, C]) Type() *Type { return s.t }

func (s *tuple3Serializer[A, B, C]) Append(dst []byte, v Triple[A, B, C]) []byte {
	return s.c.Append(s.b.Append(s.a.Append(dst, v.F0), v.F1), v.F2)
}

func (s *tuple3Serializer[A, B, C]) Read(b []byte) (v Triple[A, B, C], n int, err error) {
	var m int
	if v.F0, n, err = s.a.Read(b); err != nil {
		return v, 0, err
	}
	if v.F1, m, err = s.b.Read(b[n:]); err != nil {
		return v, 0, moved(err, n)
	}
	n += m
	if v.F2, m, err = s.c.Read(b[n:]); err != nil {
		return v, 0, moved(err, n)
	}
	return v, n + m, nil
}

// Enum is the serializer of a Java enum whose constants, in the order of their
// ordinals, are the numbers of T from 0 on. Append panics on another number.
func Enum[T ~int | ~int8 | ~int16 | ~int32 | ~uint8](javaClass string, constants ...string) Serializer[T] {
	return &enumSerializer[T]{NewEnum(javaClass, constants...)}
}

type enumSerializer[T ~int | ~int8 | ~int16 | ~int32 | ~uint8] struct{ t *Type }

func (s *enumSerializer[T]) Type() *Type { return s.t }

func (s *enumSerializer[T]) Append(dst []byte, v T) []byte {
	if int64(v) < 0 || int64(v) >= int64(len(s.t.Symbols)) {
		panic(fmt.Sprintf("serializer: enum %s has no constant %d", s.t.JavaClass, v))
	}
	return javaio.AppendI32(dst, int32(v))
}

func (s *enumSerializer[T]) Read(b []byte) (T, int, error) {
	if len(b) < 4 {
		return 0, 0, ErrShort
	}
	k := be32(b)
	if k < 0 || int(k) >= len(s.t.Symbols) {
		return 0, 0, bad(0, "enum index", fmt.Sprintf("is %d of %d", k, len(s.t.Symbols)))
	}
	return T(k), 4, nil
}

// Dynamic is the serializer of values that are known at run time only, as Decode
// and AppendValue take them. Append panics with the *EncodeError of a value that
// does not fit.
func Dynamic(t *Type) Serializer[Value] { return dynamicSerializer{t} }

type dynamicSerializer struct{ t *Type }

func (s dynamicSerializer) Type() *Type { return s.t }

func (s dynamicSerializer) Append(dst []byte, v Value) []byte {
	out, err := s.t.AppendValue(dst, v)
	if err != nil {
		panic(err)
	}
	return out
}

func (s dynamicSerializer) Read(b []byte) (Value, int, error) {
	return NewDecoder(s.t, nil).Decode(b)
}
