package operatorstate

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/tidemark/tidemark/internal/plaintype"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// BroadcastState is a map of which every subtask has the same copy.
//
// While a snapshot is held its entries lie in layers that nobody changes, and what
// is changed goes into a layer on top. When the snapshot is released, the layers are
// merged by the next change, which costs what was changed meanwhile.
type BroadcastState[K comparable, V any] struct {
	m      serializer.StateMeta
	key    serializer.Serializer[K]
	value  serializer.Serializer[V]
	id     func(K) string // nil where keys are the same if they are ==
	layers []*layer[K, V] // the lowest first; never empty; the top one is changed
	n      int
}

type layer[K comparable, V any] struct {
	entries entries[K, V]
	held    []*atomic.Bool // false once the snapshot is released
}

// cell is a value or, in a layer above others, that there is none.
type cell[V any] struct {
	v    V
	gone bool
}

// Broadcast registers a broadcast state. Errors are those of List.
func Broadcast[K comparable, V any](b *Backend, name string, key serializer.Serializer[K], value serializer.Serializer[V]) (*BroadcastState[K, V], error) {
	made := &BroadcastState[K, V]{m: serializer.NewBroadcastState(name, key.Type(), value.Type()), key: key, value: value}
	if !plaintype.Is(reflect.TypeFor[K]()) {
		made.id = func(k K) string { return string(key.Append(nil, k)) }
	}
	made.Clear()
	return register(b, made, (*BroadcastState[K, V]).fill)
}

func (s *BroadcastState[K, V]) meta() *serializer.StateMeta { return &s.m }

// fill reads the restored entries.
func (s *BroadcastState[K, V]) fill(r *restored) error {
	keys, c := serializer.Migrate(r.meta.Key(), s.m.Key(), nil)
	if refused(keys, c) {
		return r.refuse(c)
	}
	values, c := serializer.Migrate(r.meta.Value(), s.m.Value(), nil)
	if refused(values, c) {
		return r.refuse(c)
	}
	var kd, vd *serializer.Decoder
	if keys != nil || values != nil {
		kd, vd = serializer.NewDecoder(r.meta.Key(), nil), serializer.NewDecoder(r.meta.Value(), nil)
	}
	var scratch []byte
	for i := range r.ends {
		b, count := r.part(i), r.counts[i]
		for range count {
			k, n, err := one(b, s.key, kd, keys, &scratch)
			if err != nil {
				return r.failed(i, err)
			}
			b = b[n:]
			v, n, err := one(b, s.value, vd, values, &scratch)
			if err != nil {
				return r.failed(i, err)
			}
			b = b[n:]
			s.Put(k, v)
		}
		if len(b) > 0 {
			return r.failed(i, fmt.Errorf("%d bytes are left behind its entries", len(b)))
		}
	}
	return nil
}

// one reads the value at the start of b, through a conversion if there is one. d
// tells where the old value ends.
func one[T any](b []byte, s serializer.Serializer[T], d *serializer.Decoder, convert serializer.Convert, scratch *[]byte) (v T, n int, err error) {
	if convert == nil {
		return s.Read(b)
	}
	if n, err = d.Skip(b); err != nil {
		return v, 0, err
	}
	if *scratch, err = convert((*scratch)[:0], b[:n]); err != nil {
		return v, 0, err
	}
	v, m, err := s.Read(*scratch)
	if err == nil && m != len(*scratch) {
		err = fmt.Errorf("%d bytes are left of it", len(*scratch)-m)
	}
	return v, n, err
}

// Len is the number of entries.
func (s *BroadcastState[K, V]) Len() int { return s.n }

// Get is the value of a key; ok is false if there is none.
func (s *BroadcastState[K, V]) Get(k K) (v V, ok bool) {
	for i := len(s.layers) - 1; i >= 0; i-- {
		if c, ok := s.layers[i].entries.get(k); ok {
			return c.v, !c.gone
		}
	}
	return v, false
}

// Put sets the value of a key.
func (s *BroadcastState[K, V]) Put(k K, v V) {
	s.settle()
	if len(s.layers) == 1 {
		top := &s.layers[0].entries
		top.put(k, cell[V]{v: v})
		s.n = top.len()
		return
	}
	if _, ok := s.Get(k); !ok {
		s.n++
	}
	s.top().entries.put(k, cell[V]{v: v})
}

// Delete removes a key.
func (s *BroadcastState[K, V]) Delete(k K) {
	s.settle()
	if _, ok := s.Get(k); !ok {
		return
	}
	s.n--
	if len(s.layers) == 1 {
		s.layers[0].entries.remove(k)
	} else {
		s.top().entries.put(k, cell[V]{gone: true})
	}
}

// Clear removes all entries.
func (s *BroadcastState[K, V]) Clear() {
	s.layers, s.n = []*layer[K, V]{s.newLayer()}, 0
}

// All ranges over the entries, in no order. The state must not be changed meanwhile.
func (s *BroadcastState[K, V]) All() iter.Seq2[K, V] { return allOf(s.layers) }

func allOf[K comparable, V any](layers []*layer[K, V]) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i, l := range layers {
		entries:
			for k, c := range l.entries.all() {
				if c.gone {
					continue
				}
				for _, above := range layers[i+1:] {
					if _, ok := above.entries.get(k); ok {
						continue entries
					}
				}
				if !yield(k, c.v) {
					return
				}
			}
		}
	}
}

func (s *BroadcastState[K, V]) newLayer() *layer[K, V] {
	return &layer[K, V]{entries: newEntries[K, V](s.id)}
}

func (s *BroadcastState[K, V]) top() *layer[K, V] { return s.layers[len(s.layers)-1] }

// settle merges the layers that no snapshot holds. One that holds a layer holds
// those below, so that they are the upper ones.
func (s *BroadcastState[K, V]) settle() {
	if len(s.layers) == 1 {
		return
	}
	low := len(s.layers) - 1
	for low > 0 {
		l := s.layers[low-1]
		l.held = slices.DeleteFunc(l.held, func(h *atomic.Bool) bool { return !h.Load() })
		if len(l.held) > 0 {
			break
		}
		low--
	}
	into := &s.layers[low].entries
	for _, l := range s.layers[low+1:] {
		for k, c := range l.entries.all() {
			if c.gone && low == 0 {
				into.remove(k)
			} else {
				into.put(k, c)
			}
		}
	}
	clear(s.layers[low+1:])
	s.layers = s.layers[:low+1]
}

func (s *BroadcastState[K, V]) freeze() frozen {
	s.settle()
	if len(s.layers) > 1 && s.top().entries.len() == 0 { // nothing changed since the last one
		s.layers = s.layers[:len(s.layers)-1]
	}
	held := &atomic.Bool{}
	held.Store(true)
	f := &frozenMap[K, V]{s.key, s.value, slices.Clone(s.layers), s.n, held}
	for _, l := range s.layers {
		l.held = append(l.held, held)
	}
	s.layers = append(s.layers, s.newLayer())
	return f
}

// frozenMap is a map as it was.
type frozenMap[K comparable, V any] struct {
	key    serializer.Serializer[K]
	value  serializer.Serializer[V]
	layers []*layer[K, V]
	n      int
	held   *atomic.Bool
}

func (f *frozenMap[K, V]) parts() int { return f.n }

func (f *frozenMap[K, V]) release() { f.held.Store(false) }

func (f *frozenMap[K, V]) write(ctx context.Context, w *stream.OperatorWriter) error {
	var kb, vb []byte
	i := 0
	for k, v := range allOf(f.layers) {
		if i++; i%pieceLen == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		kb, vb = f.key.Append(kb[:0], k), f.value.Append(vb[:0], v)
		if err := w.Pair(kb, vb); err != nil {
			return err
		}
	}
	return nil
}
