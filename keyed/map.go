package keyed

import (
	"iter"

	"github.com/tidemark/tidemark/serializer"
)

// MapState is a map for each key, sorted by the serialized form of its user keys. An
// empty map is the same as none.
type MapState[K, UK comparable, UV any] struct {
	in MapStateIn[K, struct{}, UK, UV]
}

// MapStateIn is a map for each key and namespace.
type MapStateIn[K, N, UK comparable, UV any] struct {
	e      mapEngine[K, N, UK, UV]
	native *nativeMap[K, N, UK, UV] // e, if it is one
}

// mapEngine is a backend's implementation of a map state.
type mapEngine[K, N, UK comparable, UV any] interface {
	get(k Key[K], ns N, uk UK) (UV, bool, error)
	put(k Key[K], ns N, uk UK, v UV) error
	remove(k Key[K], ns N, uk UK) error
	empty(k Key[K], ns N) (bool, error)
	clear(k Key[K], ns N) error
	// each gives the entries from a user key on, in order; the map may change.
	each(k Key[K], ns N, from *UK, f func(uk UK, v UV) bool) error
	all(f func(at At[K, N], uk UK, v UV) bool) error
	getAt(v View, k Key[K], ns N, uk UK) (UV, bool, error)
	eachAt(v View, k Key[K], ns N, f func(uk UK, v UV) bool) error
	allAt(v View, f func(at At[K, N], uk UK, v UV) bool) error
}

// Map registers a map state. A value that may be null has a serializer that says so,
// such as serializer.Nullable.
func Map[K, UK comparable, UV any](b Backend[K], name string, key serializer.Serializer[UK], value serializer.Serializer[UV], opts ...Option) *MapState[K, UK, UV] {
	return &MapState[K, UK, UV]{*MapIn(b, name, serializer.VoidNS, key, value, opts...)}
}

// MapIn registers a map state with namespaces.
func MapIn[K, N, UK comparable, UV any](b Backend[K], name string, ns serializer.Serializer[N], key serializer.Serializer[UK], value serializer.Serializer[UV], opts ...Option) *MapStateIn[K, N, UK, UV] {
	e := attachMap(b, name, ns, key, value, opts)
	n, _ := e.(*nativeMap[K, N, UK, UV])
	return &MapStateIn[K, N, UK, UV]{e, n}
}

// Get gives the value of a user key; ok is false if there is none.
func (s *MapState[K, UK, UV]) Get(k Key[K], uk UK) (v UV, ok bool, err error) {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			if p := n.maps.Find(&e.Val, uk); p != nil {
				return p.Value, true, nil
			}
			return v, false, nil
		}
	}
	return s.in.e.get(k, struct{}{}, uk)
}

// Contains tells whether there is a value of a user key.
func (s *MapState[K, UK, UV]) Contains(k Key[K], uk UK) (bool, error) {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			return n.maps.Find(&e.Val, uk) != nil, nil
		}
	}
	_, ok, err := s.in.e.get(k, struct{}{}, uk)
	return ok, err
}

// Put sets the value of a user key.
func (s *MapState[K, UK, UV]) Put(k Key[K], uk UK, v UV) error {
	if n := s.in.native; n != nil {
		return n.put(k, struct{}{}, uk, v)
	}
	return s.in.e.put(k, struct{}{}, uk, v)
}

// PutAll sets the values of many user keys, v[i] for uk[i].
func (s *MapState[K, UK, UV]) PutAll(k Key[K], uk []UK, v []UV) error {
	return s.in.PutAll(k, struct{}{}, uk, v)
}

// Remove removes a user key.
func (s *MapState[K, UK, UV]) Remove(k Key[K], uk UK) error {
	return s.in.e.remove(k, struct{}{}, uk)
}

// IsEmpty tells whether the key has no map.
func (s *MapState[K, UK, UV]) IsEmpty(k Key[K]) (bool, error) {
	if n := s.in.native; n != nil && n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}) != nil {
		return false, nil
	}
	return s.in.e.empty(k, struct{}{})
}

// Clear removes the map.
func (s *MapState[K, UK, UV]) Clear(k Key[K]) error { return s.in.e.clear(k, struct{}{}) }

// Entries calls f for each entry in the order of the serialized user keys until it
// returns false. f may change the map: what is iterated is as it was at the call.
func (s *MapState[K, UK, UV]) Entries(k Key[K], f func(uk UK, v UV) bool) error {
	return s.in.e.each(k, struct{}{}, nil, f)
}

// EntriesFrom is Entries from the first user key on that does not sort below from.
func (s *MapState[K, UK, UV]) EntriesFrom(k Key[K], from UK, f func(uk UK, v UV) bool) error {
	return s.in.e.each(k, struct{}{}, &from, f)
}

// All iterates over the maps of all keys as ValueState.All does.
func (s *MapState[K, UK, UV]) All() iter.Seq2[K, MapEntry[UK, UV]] {
	return func(yield func(K, MapEntry[UK, UV]) bool) {
		s.in.e.all(func(at At[K, struct{}], uk UK, v UV) bool { return yield(at.Key, MapEntry[UK, UV]{uk, v}) })
	}
}

// MapEntry is an entry of a map.
type MapEntry[UK, UV any] struct {
	Key   UK
	Value UV
}

// GetAt is Get in a view, from any goroutine.
func (s *MapState[K, UK, UV]) GetAt(v View, k Key[K], uk UK) (UV, bool, error) {
	return s.in.e.getAt(v, k, struct{}{}, uk)
}

// EntriesAt is Entries in a view, from any goroutine.
func (s *MapState[K, UK, UV]) EntriesAt(v View, k Key[K], f func(uk UK, v UV) bool) error {
	return s.in.e.eachAt(v, k, struct{}{}, f)
}

// AllAt calls f for all entries of a view until it returns false, from any goroutine.
func (s *MapState[K, UK, UV]) AllAt(v View, f func(k K, uk UK, v UV) bool) error {
	return s.in.e.allAt(v, func(at At[K, struct{}], uk UK, v UV) bool { return f(at.Key, uk, v) })
}

// Get gives the value of a user key; ok is false if there is none.
func (s *MapStateIn[K, N, UK, UV]) Get(k Key[K], ns N, uk UK) (v UV, ok bool, err error) {
	return s.e.get(k, ns, uk)
}

// Contains tells whether there is a value of a user key.
func (s *MapStateIn[K, N, UK, UV]) Contains(k Key[K], ns N, uk UK) (bool, error) {
	_, ok, err := s.e.get(k, ns, uk)
	return ok, err
}

// Put sets the value of a user key.
func (s *MapStateIn[K, N, UK, UV]) Put(k Key[K], ns N, uk UK, v UV) error {
	return s.e.put(k, ns, uk, v)
}

// PutAll sets the values of many user keys, v[i] for uk[i].
func (s *MapStateIn[K, N, UK, UV]) PutAll(k Key[K], ns N, uk []UK, v []UV) error {
	for i := range uk {
		if err := s.e.put(k, ns, uk[i], v[i]); err != nil {
			return err
		}
	}
	return nil
}

// Remove removes a user key.
func (s *MapStateIn[K, N, UK, UV]) Remove(k Key[K], ns N, uk UK) error { return s.e.remove(k, ns, uk) }

// IsEmpty tells whether the key has no map in the namespace.
func (s *MapStateIn[K, N, UK, UV]) IsEmpty(k Key[K], ns N) (bool, error) { return s.e.empty(k, ns) }

// Clear removes the map.
func (s *MapStateIn[K, N, UK, UV]) Clear(k Key[K], ns N) error { return s.e.clear(k, ns) }

// Entries is MapState.Entries in a namespace.
func (s *MapStateIn[K, N, UK, UV]) Entries(k Key[K], ns N, f func(uk UK, v UV) bool) error {
	return s.e.each(k, ns, nil, f)
}

// EntriesFrom is MapState.EntriesFrom in a namespace.
func (s *MapStateIn[K, N, UK, UV]) EntriesFrom(k Key[K], ns N, from UK, f func(uk UK, v UV) bool) error {
	return s.e.each(k, ns, &from, f)
}

// All iterates over the maps of all keys and namespaces.
func (s *MapStateIn[K, N, UK, UV]) All() iter.Seq2[At[K, N], MapEntry[UK, UV]] {
	return func(yield func(At[K, N], MapEntry[UK, UV]) bool) {
		s.e.all(func(at At[K, N], uk UK, v UV) bool { return yield(at, MapEntry[UK, UV]{uk, v}) })
	}
}

// GetAt is Get in a view, from any goroutine.
func (s *MapStateIn[K, N, UK, UV]) GetAt(v View, k Key[K], ns N, uk UK) (UV, bool, error) {
	return s.e.getAt(v, k, ns, uk)
}

// EntriesAt is Entries in a view, from any goroutine.
func (s *MapStateIn[K, N, UK, UV]) EntriesAt(v View, k Key[K], ns N, f func(uk UK, v UV) bool) error {
	return s.e.eachAt(v, k, ns, f)
}

// AllAt calls f for all entries of a view until it returns false, from any goroutine.
func (s *MapStateIn[K, N, UK, UV]) AllAt(v View, f func(at At[K, N], uk UK, v UV) bool) error {
	return s.e.allAt(v, f)
}

// failedMap is a state that could not be registered.
type failedMap[K, N, UK comparable, UV any] struct{ err error }

func (f failedMap[K, N, UK, UV]) get(Key[K], N, UK) (v UV, ok bool, err error) {
	return v, false, f.err
}
func (f failedMap[K, N, UK, UV]) put(Key[K], N, UK, UV) error                  { return f.err }
func (f failedMap[K, N, UK, UV]) remove(Key[K], N, UK) error                   { return f.err }
func (f failedMap[K, N, UK, UV]) empty(Key[K], N) (bool, error)                { return false, f.err }
func (f failedMap[K, N, UK, UV]) clear(Key[K], N) error                        { return f.err }
func (f failedMap[K, N, UK, UV]) each(Key[K], N, *UK, func(UK, UV) bool) error { return f.err }
func (f failedMap[K, N, UK, UV]) all(func(At[K, N], UK, UV) bool) error        { return f.err }
func (f failedMap[K, N, UK, UV]) getAt(View, Key[K], N, UK) (v UV, ok bool, err error) {
	return v, false, f.err
}
func (f failedMap[K, N, UK, UV]) eachAt(View, Key[K], N, func(UK, UV) bool) error { return f.err }
func (f failedMap[K, N, UK, UV]) allAt(View, func(At[K, N], UK, UV) bool) error   { return f.err }
