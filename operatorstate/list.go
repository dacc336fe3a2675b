package operatorstate

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// ListState is a list of elements: a List or a Union.
//
// Elements lie in pieces of 256. A snapshot freezes the list of pieces; the first
// change after it copies that list, of 24 bytes for each piece, and the first change
// of an element that a snapshot has copies its piece.
type ListState[T any] struct {
	m      serializer.StateMeta
	ser    serializer.Serializer[T]
	pieces [][]T // all full but the last
	owned  []uint64
	n      int
	epoch  uint64 // a piece whose owned is less is in a snapshot
	shared bool   // pieces itself is
}

const pieceLen = 256

// List registers a list state whose elements are split among subtasks at restore.
// To register one twice gives the same state. Errors wrap ErrIncompatible, or are
// damage of what was restored.
func List[T any](b *Backend, name string, s serializer.Serializer[T]) (*ListState[T], error) {
	return list(b, name, false, s)
}

// Union registers a list state of which every subtask gets all elements at restore.
// It is otherwise like List.
func Union[T any](b *Backend, name string, s serializer.Serializer[T]) (*ListState[T], error) {
	return list(b, name, true, s)
}

func list[T any](b *Backend, name string, union bool, s serializer.Serializer[T]) (*ListState[T], error) {
	made := &ListState[T]{m: serializer.NewListState(name, union, s.Type()), ser: s}
	return register(b, made, (*ListState[T]).fill)
}

func (s *ListState[T]) meta() *serializer.StateMeta { return &s.m }

// fill reads the restored elements.
func (s *ListState[T]) fill(r *restored) error {
	convert, c := serializer.Migrate(r.meta.Value(), s.m.Value(), nil)
	if refused(convert, c) {
		return r.refuse(c)
	}
	var scratch []byte
	for i := range r.ends {
		b, err := r.part(i), error(nil)
		if convert != nil {
			if scratch, err = convert(scratch[:0], b); err != nil {
				return r.failed(i, err)
			}
			b = scratch
		}
		v, n, err := s.ser.Read(b)
		if err == nil && n != len(b) {
			err = fmt.Errorf("%d bytes are left of it", len(b)-n)
		}
		if err != nil {
			return r.failed(i, err)
		}
		s.Append(v)
	}
	return nil
}

// Len is the number of elements.
func (s *ListState[T]) Len() int { return s.n }

// At is the element at i; it panics if there is none, like a slice.
func (s *ListState[T]) At(i int) T {
	s.check(i)
	return s.pieces[i/pieceLen][i%pieceLen]
}

func (s *ListState[T]) check(i int) {
	if i < 0 || i >= s.n {
		panic(fmt.Sprintf("operatorstate: index %d of %d elements of %s", i, s.n, s.m.Name))
	}
}

// All ranges over the elements, in order. The state must not be changed meanwhile,
// except by Set.
func (s *ListState[T]) All() iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for p := range s.pieces {
			for i, v := range s.pieces[p] {
				if !yield(p*pieceLen+i, v) {
					return
				}
			}
		}
	}
}

// own makes the list of pieces ours.
func (s *ListState[T]) own() {
	if s.shared {
		s.pieces = slices.Clone(s.pieces)
		s.shared = false
	}
}

// Append adds elements at the end.
func (s *ListState[T]) Append(values ...T) {
	if len(values) == 0 {
		return
	}
	s.own()
	for len(values) > 0 {
		last := len(s.pieces) - 1
		if last < 0 || len(s.pieces[last]) == pieceLen {
			s.pieces = append(s.pieces, nil)
			s.owned = append(s.owned, s.epoch)
			last++
		}
		p := s.pieces[last]
		k := min(len(values), pieceLen-len(p))
		if cap(p) < len(p)+k {
			grown := make([]T, len(p), min(pieceLen, max(4, 2*len(p), len(p)+k)))
			copy(grown, p)
			p = grown
			s.owned[last] = s.epoch
		}
		// A snapshot that has the piece ends before what is new.
		s.pieces[last] = append(p, values[:k]...)
		s.n += k
		values = values[k:]
	}
}

// Set replaces the element at i; it panics if there is none.
func (s *ListState[T]) Set(i int, v T) {
	s.check(i)
	p := i / pieceLen
	if s.owned[p] != s.epoch {
		s.own()
		c := make([]T, len(s.pieces[p]), cap(s.pieces[p]))
		copy(c, s.pieces[p])
		s.pieces[p] = c
		s.owned[p] = s.epoch
	}
	s.pieces[p][i%pieceLen] = v
}

// Clear removes all elements.
func (s *ListState[T]) Clear() {
	s.pieces, s.owned, s.n, s.shared = nil, nil, 0, false
}

// Replace makes values, which it copies, all there is: Flink's update.
func (s *ListState[T]) Replace(values []T) {
	s.Clear()
	s.Append(values...)
}

// DeleteFunc removes the elements for which gone is true and keeps the order of the
// others; it tells how many they were. It copies what follows the first of them.
func (s *ListState[T]) DeleteFunc(gone func(T) bool) (deleted int) {
	first := -1
	for i, v := range s.All() {
		if gone(v) {
			first = i
			break
		}
	}
	if first < 0 {
		return 0
	}
	old, n := s.pieces, s.n
	at := first / pieceLen
	s.own()
	s.pieces, s.owned, s.n = s.pieces[:at:at], s.owned[:at], at*pieceLen
	for i := at * pieceLen; i < n; i++ {
		v := old[i/pieceLen][i%pieceLen]
		if i == first || i > first && gone(v) {
			deleted++
			continue
		}
		s.Append(v)
	}
	return deleted
}

func (s *ListState[T]) freeze() frozen {
	s.epoch++
	s.shared = true
	return &frozenList[T]{s.ser, s.pieces, s.n}
}

// frozenList is a list as it was.
type frozenList[T any] struct {
	ser    serializer.Serializer[T]
	pieces [][]T
	n      int
}

func (f *frozenList[T]) parts() int { return f.n }

func (f *frozenList[T]) release() {}

func (f *frozenList[T]) write(ctx context.Context, w *stream.OperatorWriter) error {
	var b []byte
	for _, p := range f.pieces {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range p {
			b = f.ser.Append(b[:0], p[i])
			if err := w.Element(b); err != nil {
				return err
			}
		}
	}
	return nil
}
