package keyed

import (
	"iter"
	"slices"

	"github.com/tidemark/tidemark/serializer"
)

// ListState is a list for each key. An empty list is the same as none.
type ListState[K comparable, T any] struct {
	in ListStateIn[K, struct{}, T]
}

// ListStateIn is a list for each key and namespace.
type ListStateIn[K, N comparable, T any] struct {
	e      listEngine[K, N, T]
	native *nativeList[K, N, T] // e, if it is one
}

// listEngine is a backend's implementation of a list state.
type listEngine[K, N comparable, T any] interface {
	get(k Key[K], ns N) ([]T, error)
	add(k Key[K], ns N, v T) error
	addAll(k Key[K], ns N, v []T) error
	update(k Key[K], ns N, v []T) error
	clear(k Key[K], ns N) error
	all(f func(at At[K, N], v []T) bool) error
	getAt(v View, k Key[K], ns N) ([]T, error)
	allAt(v View, f func(at At[K, N], v []T) bool) error
}

// List registers a list state; s is the serializer of its elements.
func List[K comparable, T any](b Backend[K], name string, s serializer.Serializer[T], opts ...Option) *ListState[K, T] {
	return &ListState[K, T]{*ListIn(b, name, serializer.VoidNS, s, opts...)}
}

// ListIn registers a list state with namespaces.
func ListIn[K, N comparable, T any](b Backend[K], name string, ns serializer.Serializer[N], s serializer.Serializer[T], opts ...Option) *ListStateIn[K, N, T] {
	e := attachList(b, name, ns, s, opts)
	n, _ := e.(*nativeList[K, N, T])
	return &ListStateIn[K, N, T]{e, n}
}

// Get gives the list of a key, nil if there is none. It is valid until the next call of a
// method of the state, AddAll and Update included, which may be given it.
func (s *ListState[K, T]) Get(k Key[K]) ([]T, error) {
	if n := s.in.native; n != nil {
		if e := n.tab.FindPlain(int(k.group), k.hash, k.key, struct{}{}); e != nil {
			return n.arena.Elements(&e.Val), nil
		}
	}
	return s.in.e.get(k, struct{}{})
}

// Add adds an element.
func (s *ListState[K, T]) Add(k Key[K], v T) error {
	if n := s.in.native; n != nil {
		return n.add(k, struct{}{}, v)
	}
	return s.in.e.add(k, struct{}{}, v)
}

// AddAll adds elements.
func (s *ListState[K, T]) AddAll(k Key[K], v []T) error { return s.in.e.addAll(k, struct{}{}, v) }

// Update replaces the list.
func (s *ListState[K, T]) Update(k Key[K], v []T) error { return s.in.e.update(k, struct{}{}, v) }

// Clear removes the list.
func (s *ListState[K, T]) Clear(k Key[K]) error { return s.in.e.clear(k, struct{}{}) }

// All iterates over all keys as ValueState.All does. A list is valid until the state
// is changed.
func (s *ListState[K, T]) All() iter.Seq2[K, []T] {
	return func(yield func(K, []T) bool) {
		s.in.e.all(func(at At[K, struct{}], v []T) bool { return yield(at.Key, v) })
	}
}

// GetAt is Get in a view, from any goroutine; the list is valid until the view is
// closed.
func (s *ListState[K, T]) GetAt(v View, k Key[K]) ([]T, error) {
	return s.in.e.getAt(v, k, struct{}{})
}

// AllAt calls f for all keys of a view until it returns false, from any goroutine.
func (s *ListState[K, T]) AllAt(v View, f func(k K, v []T) bool) error {
	return s.in.e.allAt(v, func(at At[K, struct{}], v []T) bool { return f(at.Key, v) })
}

// Get gives the list of a key in a namespace, nil if there is none. It is valid until the
// next call of a method of the state, AddAll and Update included, which may be given it.
func (s *ListStateIn[K, N, T]) Get(k Key[K], ns N) ([]T, error) { return s.e.get(k, ns) }

// Add adds an element.
func (s *ListStateIn[K, N, T]) Add(k Key[K], ns N, v T) error { return s.e.add(k, ns, v) }

// AddAll adds elements.
func (s *ListStateIn[K, N, T]) AddAll(k Key[K], ns N, v []T) error { return s.e.addAll(k, ns, v) }

// Update replaces the list.
func (s *ListStateIn[K, N, T]) Update(k Key[K], ns N, v []T) error { return s.e.update(k, ns, v) }

// Clear removes the list.
func (s *ListStateIn[K, N, T]) Clear(k Key[K], ns N) error { return s.e.clear(k, ns) }

// MergeNamespaces moves the lists of a key in some namespaces behind that in another,
// as when sessions are merged. The target may be one of the sources.
func (s *ListStateIn[K, N, T]) MergeNamespaces(k Key[K], target N, sources []N) error {
	for _, ns := range sources {
		if ns == target {
			continue
		}
		v, err := s.e.get(k, ns)
		if err != nil {
			return err
		}
		if len(v) == 0 {
			continue
		}
		if err := s.e.addAll(k, target, slices.Clone(v)); err != nil {
			return err
		}
		if err := s.e.clear(k, ns); err != nil {
			return err
		}
	}
	return nil
}

// All iterates over all keys and namespaces, see ListState.All.
func (s *ListStateIn[K, N, T]) All() iter.Seq2[At[K, N], []T] {
	return func(yield func(At[K, N], []T) bool) { s.e.all(yield) }
}

// GetAt is Get in a view, from any goroutine.
func (s *ListStateIn[K, N, T]) GetAt(v View, k Key[K], ns N) ([]T, error) { return s.e.getAt(v, k, ns) }

// AllAt calls f for all entries of a view until it returns false, from any goroutine.
func (s *ListStateIn[K, N, T]) AllAt(v View, f func(at At[K, N], v []T) bool) error {
	return s.e.allAt(v, f)
}

// failedList is a state that could not be registered.
type failedList[K, N comparable, T any] struct{ err error }

func (f failedList[K, N, T]) get(Key[K], N) ([]T, error)                 { return nil, f.err }
func (f failedList[K, N, T]) add(Key[K], N, T) error                     { return f.err }
func (f failedList[K, N, T]) addAll(Key[K], N, []T) error                { return f.err }
func (f failedList[K, N, T]) update(Key[K], N, []T) error                { return f.err }
func (f failedList[K, N, T]) clear(Key[K], N) error                      { return f.err }
func (f failedList[K, N, T]) all(func(At[K, N], []T) bool) error         { return f.err }
func (f failedList[K, N, T]) getAt(View, Key[K], N) ([]T, error)         { return nil, f.err }
func (f failedList[K, N, T]) allAt(View, func(At[K, N], []T) bool) error { return f.err }
