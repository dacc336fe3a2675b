package snapshot

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// changeIndex finds the changes of a changelog by state and key group of the
// output.
type changeIndex struct {
	in     *keyedInput
	states []*changedState // by state of the output; nil if it has no changes
	// order are the changes of a state and key group, in order.
	order map[changePlace]*changeGroup
}

type changePlace struct {
	state int
	kg    int32
}

type changeGroup struct {
	entries []*changedEntry
	timers  []string
}

func newChangeIndex(c *changes, in *keyedInput) *changeIndex {
	x := &changeIndex{in: in, states: make([]*changedState, len(in.out.states)), order: map[changePlace]*changeGroup{}}
	at := func(s *changedState, kg int32) *changeGroup {
		p := changePlace{s.target, kg}
		g := x.order[p]
		if g == nil {
			g = &changeGroup{}
			x.order[p] = g
		}
		return g
	}
	for _, name := range sortedKeys(c.metas) {
		s := c.metas[name]
		x.states[s.target] = s
		for _, e := range s.entries {
			g := at(s, e.keyGroup)
			g.entries = append(g.entries, e)
		}
		for t, v := range s.timers {
			if v.present {
				g := at(s, v.keyGroup)
				g.timers = append(g.timers, t)
			}
		}
	}
	for _, g := range x.order {
		slices.SortFunc(g.entries, func(a, b *changedEntry) int {
			return cmp.Or(bytes.Compare(a.key, b.key), bytes.Compare(a.namespace, b.namespace))
		})
		slices.Sort(g.timers)
	}
	return x
}

// over gives a sink that applies the changes to the materialized entries of some key
// groups, and adds what only the changes have. Each key group goes to one such sink.
func (x *changeIndex) over(sink entrySink, groups metadata.KeyGroupRange) entrySink {
	return &changeSink{stateSink: stateSink{f: x.in.out, rs: x.in.out.readers(), kg: -1}, x: x, sink: sink, next: groups.Start, last: groups.End(), seen: make([]bool, len(x.states))}
}

// changeSink applies changes.
type changeSink struct {
	stateSink
	x    *changeIndex
	sink entrySink

	next, last int32 // key groups that are not begun yet
	inGroup    bool
	inState    bool
	seen       []bool // states of the key group
	name       []byte // buffers
	value      []byte
	pairKey    []byte
}

func (s *changeSink) group(kg int32) error {
	if err := s.until(kg); err != nil {
		return err
	}
	return s.beginGroup(kg)
}

func (s *changeSink) beginGroup(kg int32) error {
	s.kg, s.next, s.inGroup = kg, kg+1, true
	clear(s.seen)
	return s.sink.group(kg)
}

// until ends the open key group, and writes those before kg that only the changes
// have.
func (s *changeSink) until(kg int32) error {
	if s.inGroup {
		if err := s.endGroup(); err != nil {
			return err
		}
	}
	for s.next < kg {
		if !s.x.changed(s.next) {
			s.next++
			continue
		}
		if err := s.beginGroup(s.next); err != nil {
			return err
		}
		if err := s.endGroup(); err != nil {
			return err
		}
	}
	return nil
}

// changed reports whether there are changes in a key group.
func (x *changeIndex) changed(kg int32) bool {
	for id := range x.states {
		if x.order[changePlace{id, kg}] != nil {
			return true
		}
	}
	return false
}

func (s *changeSink) endGroup() error {
	s.inGroup = false
	if err := s.endState(); err != nil {
		return err
	}
	for id := range s.x.states {
		if s.seen[id] || s.x.order[changePlace{id, s.kg}] == nil {
			continue
		}
		if err := s.state(id); err != nil {
			return err
		}
		if err := s.endState(); err != nil {
			return err
		}
	}
	return nil
}

func (s *changeSink) end() error {
	if err := s.until(s.last + 1); err != nil {
		return err
	}
	return s.sink.end()
}

func (s *changeSink) state(id int) error {
	if err := s.endState(); err != nil {
		return err
	}
	s.begin(id)
	s.inState, s.seen[id] = true, true
	return s.sink.state(id)
}

// endState writes what only the changes have of the open state.
func (s *changeSink) endState() error {
	if !s.inState {
		return nil
	}
	s.inState = false
	st := s.x.states[s.id]
	g := s.x.order[changePlace{s.id, s.kg}]
	if st == nil || g == nil {
		return nil
	}
	for _, e := range g.entries {
		if e.undecidable {
			return s.cannot("the changes", errMerge)
		}
		if e.done {
			continue
		}
		if err := s.added(e); err != nil {
			return err
		}
	}
	for _, t := range g.timers {
		if !st.timers[t].done {
			if err := s.sink.timer([]byte(t)); err != nil {
				return err
			}
		}
	}
	return nil
}

// added writes an entry of which nothing is materialized any more.
func (s *changeSink) added(e *changedEntry) error {
	switch s.r.state.Kind {
	case StateMap:
		v, n := appendChangedMap(append(s.value[:0], noCount...), e), countPresent(e)
		s.value = v
		if n == 0 {
			return nil
		}
		binary.BigEndian.PutUint32(v, n)
		return s.sink.element(e.namespace, e.key, v)
	case StateList:
		n, err := s.countElements(e.elements)
		if err != nil || n == 0 {
			return err
		}
		s.value = append(binary.BigEndian.AppendUint32(s.value[:0], n), e.elements...)
		return s.sink.element(e.namespace, e.key, s.value)
	}
	if !e.set {
		return nil
	}
	return s.sink.element(e.namespace, e.key, e.value)
}

func countPresent(e *changedEntry) (n uint32) {
	for _, v := range e.entries {
		if v != nil {
			n++
		}
	}
	return n
}

// appendChangedMap appends the entries that changes put into a map.
func appendChangedMap(dst []byte, e *changedEntry) []byte {
	for _, k := range sortedKeys(e.entries) {
		if v := e.entries[k]; v != nil {
			dst = append(append(dst, k...), v[0])
			if v[0] == 0 {
				dst = append(dst, v[1:]...)
			}
		}
	}
	return dst
}

// countElements counts the elements of a list that stand one after the other.
func (s *changeSink) countElements(b []byte) (n uint32, err error) {
	err = s.eachJoinless(b, func([]byte) { n++ })
	return n, err
}

func (s *changeSink) eachJoinless(b []byte, f func(e []byte)) error {
	for len(b) > 0 {
		if s.r.dec.elem == nil {
			return s.cannot("the elements of a list cannot be told apart", &serializer.OpaqueError{})
		}
		n, err := s.r.dec.elem.Skip(b)
		if err != nil || n == 0 {
			return s.cannot("the elements of a list cannot be told apart", err)
		}
		f(b[:n])
		b = b[n:]
	}
	return nil
}

// lookup finds the changes of a key and namespace of the open state.
func (s *changeSink) lookup(key, namespace []byte) *changedEntry {
	st := s.x.states[s.id]
	if st == nil || len(st.entries) == 0 {
		return nil
	}
	s.name = binary.BigEndian.AppendUint32(s.name[:0], uint32(len(namespace)))
	s.name = append(append(s.name, namespace...), key...)
	return st.entries[string(s.name)]
}

func (s *changeSink) timer(t []byte) error {
	if st := s.x.states[s.id]; st != nil {
		if c := st.timers[string(t)]; c != nil {
			if !c.present || c.done {
				return nil
			}
			c.done = true
		}
	}
	return s.sink.timer(t)
}

func (s *changeSink) pair(key, value []byte) error {
	if s.r.state.Kind == StateTimer {
		if len(key) < s.f.prefix {
			return s.cannot("a timer is too short", nil)
		}
		return s.timer(key[s.f.prefix:])
	}
	if st := s.x.states[s.id]; st == nil || len(st.entries) == 0 {
		return s.sink.pair(key, value)
	}
	k, ns, userKey, err := s.split(key)
	if err != nil {
		return err
	}
	e := s.lookup(k, ns)
	switch {
	case e == nil:
		return s.sink.pair(key, value)
	case e.undecidable:
		return s.cannot("the changes", errMerge)
	}
	switch s.r.state.Kind {
	case StateMap:
		if e.reset {
			return nil
		}
		if !e.done {
			// As pairs, so that they come into one map with those that are there: of two
			// maps of a key, Flink's heap backend keeps the second.
			e.done = true
			head := len(key) - len(userKey)
			for _, k := range sortedKeys(e.entries) {
				if v := e.entries[k]; v != nil {
					s.pairKey = append(append(s.pairKey[:0], key[:head]...), k...)
					if err := s.sink.pair(s.pairKey, v); err != nil {
						return err
					}
				}
			}
		}
		if _, ok := e.entries[string(userKey)]; ok {
			return nil
		}
		return s.sink.pair(key, value)
	case StateList:
		switch {
		case e.reset:
			return nil
		case len(e.elements) == 0:
			return s.sink.pair(key, value)
		}
		e.done = true
		s.value = append(s.value[:0], value...)
		if err := s.eachJoinless(e.elements, func(elem []byte) {
			if len(s.value) > 0 {
				s.value = append(s.value, ',')
			}
			s.value = append(s.value, elem...)
		}); err != nil {
			return err
		}
		return s.sink.pair(key, s.value)
	}
	switch {
	case e.set:
		e.done = true
		return s.sink.pair(key, e.value)
	case e.reset:
		return nil
	}
	return s.sink.pair(key, value)
}

func (s *changeSink) element(namespace, key, value []byte) error {
	e := s.lookup(key, namespace)
	switch {
	case e == nil:
		return s.sink.element(namespace, key, value)
	case e.undecidable:
		return s.cannot("the changes", errMerge)
	}
	switch s.r.state.Kind {
	case StateMap:
		if e.reset {
			return nil
		}
		e.done = true
		n := uint32(0)
		s.value = append(s.value[:0], noCount...)
		if err := s.eachMapEntry(value, func(userKey, v []byte, null bool) error {
			if _, ok := e.entries[string(userKey)]; !ok {
				n++
				s.value = appendMapEntry(s.value, userKey, v, null)
			}
			return nil
		}); err != nil {
			return err
		}
		s.value = appendChangedMap(s.value, e)
		if n += countPresent(e); n == 0 {
			return nil
		}
		binary.BigEndian.PutUint32(s.value, n)
		return s.sink.element(namespace, key, s.value)
	case StateList:
		if e.reset {
			return nil
		}
		e.done = true
		n, base, err := s.counted(value)
		if err != nil {
			return err
		}
		more, err := s.countElements(e.elements)
		if err != nil {
			return err
		}
		s.value = binary.BigEndian.AppendUint32(s.value[:0], uint32(n)+more)
		s.value = append(append(s.value, base...), e.elements...)
		return s.sink.element(namespace, key, s.value)
	}
	switch {
	case e.set:
		e.done = true
		return s.sink.element(namespace, key, e.value)
	case e.reset:
		return nil
	}
	return s.sink.element(namespace, key, value)
}
