package heap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

func newRawState(s *snapshot.State, env *engine.Env, decode *serializer.DecodeOptions) (*rawState, error) {
	r := &rawState{from: s, env: env, decode: decode, mu: make([]sync.Mutex, env.Count), groups: make([][]rawRow, env.Count)}
	if s.Kind == snapshot.StateList {
		if r.elem = s.Value; s.Value != nil && s.Value.Kind == serializer.KindList {
			r.elem = s.Value.Elem()
		}
	}
	var err error
	if r.meta, err = keyed.RestoredMeta(s); err != nil {
		return nil, err
	}
	return r, nil
}

// Meta implements engine.State.
func (r *rawState) Meta() *serializer.StateMeta { return &r.meta }

// Loader implements engine.State.
func (r *rawState) Loader(from *snapshot.State) (engine.Loader, error) {
	if from.Kind != r.from.Kind {
		return nil, fmt.Errorf("is %s in one snapshot and %s in another: %w", r.from.Kind, from.Kind, keyed.ErrIncompatible)
	}
	return r, keyed.SameTypes(r.from, from)
}

// Load implements engine.Loader.
func (r *rawState) Load(row *snapshot.StateRow) error {
	g := int(row.KeyGroup) - r.env.First
	if g < 0 || g >= r.env.Count {
		return nil
	}
	all := make([]byte, 0, len(row.Key)+len(row.Namespace)+len(row.UserKey)+len(row.Value))
	cut := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(all)
		all = append(all, b...)
		return all[from:len(all):len(all)]
	}
	x := rawRow{cut(row.Key), cut(row.Namespace), cut(row.UserKey), cut(row.Value), row.Timestamp, row.Form, row.Null}
	r.mu[g].Lock()
	r.groups[g] = append(r.groups[g], x)
	r.mu[g].Unlock()
	return nil
}

// into decodes the rows into a registered state.
func (r *rawState) into(st engine.State) error {
	if err := keyed.SameKind(r.from, st.Meta()); err != nil {
		return err
	}
	load, err := st.Loader(r.from)
	if err != nil {
		return err
	}
	for g, rows := range r.groups {
		for i := range rows {
			x := &rows[i]
			err := load.Load(&snapshot.StateRow{
				State: r.from, KeyGroup: int32(g + r.env.First), Timestamp: x.timestamp, Key: x.key, Namespace: x.ns,
				UserKey: x.userKey, Value: x.value, Form: x.form, Null: x.null, Offset: -1,
			})
			if err != nil {
				return err
			}
		}
	}
	st.Loaded()
	return nil
}

// Write implements engine.State: the bytes as they were read, in the form that the
// format wants.
func (r *rawState) Write(kw *stream.KeyedWriter, index int, _ *table.View, group int, _ int64) error {
	rows := r.groups[group-r.env.First]
	if len(rows) == 0 {
		return nil
	}
	same := func(a, b *rawRow) bool { return bytes.Equal(a.key, b.key) && bytes.Equal(a.ns, b.ns) }
	count := len(rows)
	if r.from.Kind == snapshot.StateMap {
		count = 0
		for i := range rows {
			if i == 0 || !same(&rows[i-1], &rows[i]) {
				count++
			}
		}
	}
	if err := kw.State(index, count); err != nil {
		return err
	}
	var dec *serializer.Decoder
	if r.elem != nil {
		dec = serializer.NewDecoder(r.elem, r.decode)
	}
	for i := 0; i < len(rows); i++ {
		x := &rows[i]
		var err error
		switch r.from.Kind {
		case snapshot.StateTimer:
			err = kw.Timer(x.timestamp, x.key, x.ns)
		case snapshot.StateList:
			var elems [][]byte
			if elems, err = x.elements(dec); err != nil {
				return err
			}
			err = kw.List(x.key, x.ns, len(elems))
			for _, e := range elems {
				err = kw.Element(e)
			}
		case snapshot.StateMap:
			n := 1
			for i+n < len(rows) && same(x, &rows[i+n]) {
				n++
			}
			err = kw.Map(x.key, x.ns, n)
			for _, p := range rows[i : i+n] {
				if p.null {
					err = kw.NullPair(p.userKey, nil)
				} else {
					err = kw.Pair(p.userKey, p.value)
				}
			}
			i += n - 1
		default:
			err = kw.Value(x.key, x.ns, x.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// elements splits a list into its elements.
func (x *rawRow) elements(dec *serializer.Decoder) (elems [][]byte, err error) {
	b := x.value
	count := -1
	if x.form == snapshot.FormValue && len(b) >= 4 {
		count = int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
	}
	for len(b) > 0 && count != 0 {
		n, err := dec.Skip(b)
		if err != nil {
			return nil, err
		}
		elems = append(elems, b[:n])
		if b = b[n:]; x.form == snapshot.FormJoined && len(b) > 0 {
			b = b[1:]
		}
		if count > 0 {
			count--
		} else if n == 0 {
			break
		}
	}
	return elems, nil
}

// Release, Sweep, Loaded and Stats implement engine.State.
func (r *rawState) Release(*table.View) {}

// Passed does nothing: rows do not change.
func (r *rawState) Passed(*table.View, int) {}

// Sweep does nothing: what is not registered has no TTL.
func (r *rawState) Sweep(int) {}

// Loaded does nothing.
func (r *rawState) Loaded() {}

// Stats counts rows.
func (r *rawState) Stats() engine.Stats {
	n := 0
	for _, rows := range r.groups {
		n += len(rows)
	}
	return engine.Stats{Entries: n}
}
