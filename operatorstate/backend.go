package operatorstate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/serializer"
)

// ErrIncompatible says that a state cannot be registered: with a serializer that
// cannot read what was restored, or as another kind or type than before.
var ErrIncompatible = errors.New("incompatible state")

// Backend holds the operator state of one subtask.
type Backend struct {
	states   []state // in order of registration
	byName   map[string]state
	restored []*restored // not registered yet, in the order of the files
}

// state is a registered state.
type state interface {
	meta() *serializer.StateMeta
	freeze() frozen
}

// New makes a Backend without state.
func New() *Backend { return &Backend{byName: map[string]state{}} }

// Restored are the states that were restored and are not registered yet: their
// names, kinds and types. They are not to be changed.
func (b *Backend) Restored() []*serializer.StateMeta {
	var metas []*serializer.StateMeta
	for _, r := range b.restored {
		metas = append(metas, &r.meta)
	}
	return metas
}

// Forget drops a restored state that nobody registered, so that it is not in the
// next snapshot.
func (b *Backend) Forget(name string) {
	b.restored = slices.DeleteFunc(b.restored, func(r *restored) bool { return r.meta.Name == name })
}

// register adds a state that was made, or gives the registered one of that name.
// fill is given what was restored of it.
func register[S state](b *Backend, made S, fill func(S, *restored) error) (S, error) {
	m := made.meta()
	if old, ok := b.byName[m.Name]; ok {
		if s, ok := old.(S); ok && sameTypes(s.meta(), m) {
			return s, nil
		}
		var none S
		return none, fmt.Errorf("state %s: registered before as %s: %w", m.Name, describe(old.meta()), ErrIncompatible)
	}
	i := slices.IndexFunc(b.restored, func(r *restored) bool { return r.meta.Name == m.Name })
	if i >= 0 {
		r := b.restored[i]
		err := r.compare(m)
		if err == nil {
			err = fill(made, r)
		}
		if err != nil {
			var none S
			return none, err
		}
		b.restored = slices.Delete(b.restored, i, i+1)
	}
	b.states = append(b.states, made)
	b.byName[m.Name] = made
	return made, nil
}

// sameTypes compares all that a snapshot says of two states.
func sameTypes(a, b *serializer.StateMeta) bool {
	x, err1 := a.Append(nil)
	y, err2 := b.Append(nil)
	return err1 == nil && err2 == nil && slices.Equal(x, y)
}

// describe is "SPLIT_DISTRIBUTE of long".
func describe(m *serializer.StateMeta) string {
	s := m.Mode() + " of " + typeName(m.Value())
	if k := m.Key(); k != nil {
		s = m.Mode() + " of " + typeName(k) + " to " + typeName(m.Value())
	}
	return s
}

func typeName(t *serializer.Type) string {
	if t == nil {
		return "?"
	}
	return t.String()
}
