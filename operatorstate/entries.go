package operatorstate

import "iter"

// entries are a map of a broadcast state. Keys are the same if they are written alike, as
// with Java's equals: where == says something else (times, floats, pointers), the map goes
// by what is written. It may be read by many goroutines.
type entries[K comparable, V any] struct {
	id      func(K) string // nil where == will do
	plain   map[K]cell[V]
	written map[string]entry[K, V]
}

type entry[K comparable, V any] struct {
	key  K
	cell cell[V]
}

func newEntries[K comparable, V any](id func(K) string) entries[K, V] {
	if id == nil {
		return entries[K, V]{plain: map[K]cell[V]{}}
	}
	return entries[K, V]{id: id, written: map[string]entry[K, V]{}}
}

func (e *entries[K, V]) len() int { return len(e.plain) + len(e.written) }

func (e *entries[K, V]) get(k K) (c cell[V], ok bool) {
	if e.id == nil {
		c, ok = e.plain[k]
		return c, ok
	}
	x, ok := e.written[e.id(k)]
	return x.cell, ok
}

func (e *entries[K, V]) put(k K, c cell[V]) {
	if e.id == nil {
		e.plain[k] = c
		return
	}
	e.written[e.id(k)] = entry[K, V]{k, c}
}

func (e *entries[K, V]) remove(k K) {
	if e.id == nil {
		delete(e.plain, k)
		return
	}
	delete(e.written, e.id(k))
}

func (e *entries[K, V]) all() iter.Seq2[K, cell[V]] {
	return func(yield func(K, cell[V]) bool) {
		for k, c := range e.plain {
			if !yield(k, c) {
				return
			}
		}
		for _, x := range e.written {
			if !yield(x.key, x.cell) {
				return
			}
		}
	}
}
