package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// Operations of changelog records. Source: Flink, StateChangeOperation.java.
const (
	opClear       = 0
	opSet         = 1
	opSetInternal = 2
	opAdd         = 3
	opMerge       = 4
	opAddElement  = 5
	opPut         = 6
	opRemove      = 7
	opMetadata    = 8
)

// changelog reads a changelog handle: the materialized state with the changes
// after it applied. All changes of the handle are held in memory, by key, while
// the materialized part streams past; without changes the handle is its
// materialized part.
func (sc *scan) changelog(ctx context.Context, j handleJob, h *metadata.ChangelogHandle) ([]*unit, error) {
	var base []*unit
	var keyType *serializer.Type
	for _, m := range h.Materialized {
		if m == nil {
			continue
		}
		units, err := sc.keyed(ctx, j, m)
		if err != nil {
			// The changes are still shown, on top of what is there.
			if err := sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: err}); err != nil {
				return nil, err
			}
			continue
		}
		base = append(base, units...)
	}
	if len(h.Changes) == 0 {
		return base, nil
	}
	for _, s := range sc.cat.list() {
		if s.Operator == j.operator && s.Kind.Keyed() && s.Key != nil {
			keyType = s.Key
			break
		}
	}
	c := &changes{sc: sc, j: j, handle: h, keyType: keyType, states: map[int16]*changedState{}, metas: map[string]*changedState{}, told: map[string]bool{}}
	if keyType == nil || sc.metaOnly {
		// States and their serializers stand in the changes; the key's serializer
		// stands only in that of a timer, and is guessed where there is none.
		if err := c.declarations(ctx); err != nil {
			return nil, err
		}
	}
	if sc.metaOnly {
		return nil, nil
	}
	if sc.verify != nil {
		return append(base, sc.verify.changes(c)...), nil
	}
	return j.single(func(ctx context.Context, w *worker) error {
		if err := c.load(ctx, w); err != nil {
			return err
		}
		return c.emit(ctx, w, base)
	}), nil
}

// changes are the changes of one changelog handle, by state and key.
type changes struct {
	sc      *scan
	j       handleJob
	handle  *metadata.ChangelogHandle
	keyType *serializer.Type
	states  map[int16]*changedState
	metas   map[string]*changedState // by kind and name
	// told are segments of which a problem was told; incomplete: there is one.
	told       map[string]bool
	incomplete bool
}

// changedState is one state with its changes.
type changedState struct {
	keyedState
	comp    stateDecoders
	dec     *rowDecoders             // for rows that stand in the changes
	entries map[string]*changedEntry // by namespace length, namespace and key
	timers  map[string]*changedTimer // by the timer's bytes
	target  int                      // the state's index where it is converted
}

type stateDecoders struct {
	key, namespace, value, elem, userKey, mapValue, timer *serializer.Decoder
}

// changedEntry is what changes made of the value of one key and namespace.
type changedEntry struct {
	keyGroup       int32
	key, namespace []byte
	reset          bool   // what is materialized no longer counts
	removed        bool   // no value, if reset and nothing was set after it
	value          []byte // value, reducing and aggregating state, if set
	set            bool
	elements       []byte            // list: to append
	entries        map[string][]byte // map: user key to null flag and value; nil is removed
	done           bool              // given out while the materialized part passed
	undecidable    bool              // merged by a function that only the job has
}

type changedTimer struct {
	keyGroup int32
	present  bool
	done     bool
}

// each reads all records of the handle in order. A segment that is missing or
// damaged is a problem that is told, once; what follows it is read all the same. An
// error of f ends its segment likewise.
func (c *changes) each(ctx context.Context, f func(name string, ch stream.Change) error) error {
	reader := stream.NewChangelog(ctx)
	for _, seg := range c.segments() {
		if err := c.lost(c.readSegment(ctx, reader, seg, f)); err != nil {
			return err
		}
	}
	return nil
}

// changeSet is one of a handle: in the metadata, or at an offset of a file.
type changeSet struct {
	inline *metadata.ChangelogBytesHandle
	file   *metadata.OffsetHandle
}

func (c *changes) segments() []changeSet {
	var all []changeSet
	for _, part := range c.handle.Changes {
		switch part := part.(type) {
		case *metadata.ChangelogBytesHandle:
			all = append(all, changeSet{inline: part})
		case *metadata.ChangelogFileHandle:
			for i := range part.Files {
				all = append(all, changeSet{file: &part.Files[i]})
			}
		}
	}
	return all
}

func (c *changes) readSegment(ctx context.Context, reader *stream.Changelog, seg changeSet, f func(name string, ch stream.Change) error) error {
	if seg.inline != nil {
		for i := range seg.inline.Changes {
			ch := stream.Change{KeyGroup: seg.inline.Changes[i].KeyGroup, Data: seg.inline.Changes[i].Data, Offset: -1}
			if err := f(c.sc.s.Location.String()+" (inline)", ch); err != nil {
				return err
			}
		}
		return nil
	}
	src, name, err := c.sc.s.OpenStream(ctx, seg.file.Handle, true)
	switch {
	case err != nil:
		return readError(name, err)
	case src == nil:
		return nil
	}
	return reader.Read(src, name, seg.file.Offset, func(ch stream.Change) error { return f(name, ch) })
}

// lost tells of a segment that could not be read to its end.
func (c *changes) lost(err error) error {
	if err == nil || ctxErr(err) {
		return err
	}
	c.incomplete = true
	if text := err.Error(); !c.told[text] {
		c.told[text] = true
		return c.sc.problem(&ScanProblem{Operator: c.j.operator, Subtask: c.j.subtask, KeyGroup: -1, Err: err})
	}
	return nil
}

// declarations reads the metadata records and registers their states.
func (c *changes) declarations(ctx context.Context) error {
	var sample []sampleRecord
	var space int
	err := c.each(ctx, func(name string, ch stream.Change) error {
		if len(ch.Data) == 0 {
			return nil
		}
		if ch.Data[0] == opMetadata {
			return c.declare(name, ch)
		}
		if c.keyType == nil && len(sample) < 4096 && space < 1<<20 && len(ch.Data) >= 3 {
			sample = append(sample, sampleRecord{ch.KeyGroup, bytes.Clone(ch.Data)})
			space += len(ch.Data)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, s := range c.states {
		if c.keyType == nil && keyedKind(s.meta) == StateTimer {
			c.keyType = s.key
		}
	}
	if c.keyType == nil {
		c.keyType = guessKeyType(c, sample)
	}
	if c.sc.metaOnly || c.keyType != nil {
		c.register()
	}
	return nil
}

// declare handles a metadata record:
//
//	int8 8, int32 version, StateMeta,
//	key/value state: bool, StateTtlConfig (Java) if set, bool, default value if set
//	int16 id, int8 kind
func (c *changes) declare(name string, ch stream.Change) error {
	r := javaio.NewReader(ch.Data)
	r.Next(1)
	if v := r.I32(); r.Err() == nil && v != 6 && v != 7 {
		return &damage.Error{Name: name, Offset: ch.Offset, Field: "changelog state meta version", Detail: fmt.Sprintf("is %d", v), Err: damage.ErrUnsupportedVersion}
	}
	m, unknown, err := serializer.ReadStateMeta(r)
	if err != nil {
		return named(name, err)
	}
	for _, u := range unknown {
		if err := c.sc.problem(&ScanProblem{Operator: c.j.operator, State: m.Name, Subtask: c.j.subtask, KeyGroup: -1, Opaque: true, Err: named(name, &u)}); err != nil {
			return err
		}
	}
	// What lies between, the TTL configuration and a default value, is not needed,
	// and the id and kind are the last three bytes.
	rest := r.Rest()
	if r.Err() != nil || len(rest) < 3 {
		return &damage.Error{Name: name, Offset: ch.Offset, Field: "changelog metadata of state " + m.Name, Detail: "ends early", Err: damage.ErrCorrupt}
	}
	id := int16(uint16(rest[len(rest)-3])<<8 | uint16(rest[len(rest)-2]))
	kind, ok := serializer.StateKindOfCode(int8(rest[len(rest)-1]))
	if !ok {
		return &damage.Error{Name: name, Offset: ch.Offset, Field: "changelog metadata of state " + m.Name, Detail: fmt.Sprintf("has kind %d", rest[len(rest)-1]), Err: damage.ErrCorrupt}
	}
	key := kind.String() + "/" + m.Name
	s := c.metas[key]
	if s == nil {
		s = &changedState{entries: map[string]*changedEntry{}, timers: map[string]*changedTimer{}}
		c.metas[key] = s
	}
	s.fill(c, m)
	c.states[id] = s
	return nil
}

// fill sets a state's types from its declaration.
func (s *changedState) fill(c *changes, m *serializer.StateMeta) {
	s.meta, s.key, s.namespace, s.value = m, c.keyType, m.Namespace(), m.Value()
	switch keyedKind(m) {
	case StateTimer:
		s.value = nil
		if t := m.Value(); t != nil && t.Kind == serializer.KindTimer && len(t.Fields) == 3 {
			s.key, s.namespace = t.Fields[1].Type, t.Fields[2].Type
		}
	case StateList:
		s.elem = m.Element()
	case StateMap:
		s.userKey, s.value = m.MapTypes()
	}
	plain := c.sc.decode(false)
	dec := func(t *serializer.Type) *serializer.Decoder {
		if t == nil {
			return nil
		}
		return serializer.NewDecoder(t, plain)
	}
	s.comp = stateDecoders{key: dec(s.key), namespace: dec(s.namespace), value: dec(s.value), elem: dec(s.elem), userKey: dec(s.userKey)}
	if keyedKind(m) == StateTimer {
		s.comp.timer = dec(m.Value())
	}
	if keyedKind(m) == StateMap {
		s.comp.mapValue = s.comp.value
	}
}

// register makes the states known to the catalog.
func (c *changes) register() {
	for _, s := range c.metas {
		if s.state != nil {
			continue
		}
		kind := keyedKind(s.meta)
		if s.key == nil && kind != StateTimer {
			s.key = c.keyType
			if s.key != nil {
				s.comp.key = serializer.NewDecoder(s.key, c.sc.decode(false))
			}
		}
		s.state = c.sc.cat.add(c.j.operator, c.j.subtask, s.meta.Name, kind, s.key, s.namespace, s.userKey, s.value, s.meta.TTL())
		s.wanted = c.sc.wants(s.state)
	}
}

// load reads all changes into memory and applies them to each other.
func (c *changes) load(ctx context.Context, w *worker) error {
	filter := c.handle.Range
	if r := c.sc.opts.KeyGroups; r != nil {
		filter = intersect(filter, *r)
	}
	broken := map[string]bool{}
	err := c.each(ctx, func(name string, ch stream.Change) error {
		if len(ch.Data) == 0 {
			return &damage.Error{Name: name, Offset: ch.Offset, Field: "change", Detail: "is empty", Err: damage.ErrCorrupt}
		}
		if ch.Data[0] == opMetadata {
			if err := c.declare(name, ch); err != nil {
				return err
			}
			c.register()
			return nil
		}
		if !filter.Contains(ch.KeyGroup) {
			return nil
		}
		if len(ch.Data) < 3 {
			return &damage.Error{Name: name, Offset: ch.Offset, Field: "change", Detail: "ends early", Err: damage.ErrCorrupt}
		}
		id := int16(uint16(ch.Data[1])<<8 | uint16(ch.Data[2]))
		s := c.states[id]
		if s == nil && c.incomplete {
			return nil // declared in a segment that is lost
		}
		if s == nil {
			return &damage.Error{Name: name, Offset: ch.Offset, Field: "change", Detail: fmt.Sprintf("is of state %d, which was not declared", id), Err: damage.ErrCorrupt}
		}
		if !s.wanted {
			return nil
		}
		if err := c.apply(s, ch); err != nil {
			at := fmt.Sprint(s.meta.Name, ch.KeyGroup)
			if broken[at] {
				return nil
			}
			broken[at] = true
			return w.problem(s.meta.Name, ch.KeyGroup, named(name, err))
		}
		return nil
	})
	return err
}

var errChange = fmt.Errorf("change record does not have the form of its operation: %w", damage.ErrCorrupt)

// apply adds one data record: int8 op, int16 state, and by the state's kind
//
//	timers   payload
//	others   key, namespace, payload
func (c *changes) apply(s *changedState, ch stream.Change) error {
	op, b := ch.Data[0], ch.Data[3:]
	if s.state.Kind == StateTimer {
		return s.applyTimer(op, b, ch.KeyGroup)
	}
	if s.comp.key == nil || s.comp.namespace == nil {
		return &serializer.OpaqueError{Class: "the key"}
	}
	n, err := s.comp.key.Skip(b)
	if err != nil {
		return err
	}
	m, err := s.comp.namespace.Skip(b[n:])
	if err != nil {
		return err
	}
	key, ns, payload := b[:n], b[n:n+m], b[n+m:]
	e := s.entry(ch.KeyGroup, key, ns)
	if op == opMerge {
		return c.applyMerge(s, e, key, payload)
	}
	switch op {
	case opClear:
		if len(payload) != 0 {
			return errChange
		}
		*e = changedEntry{keyGroup: e.keyGroup, key: e.key, namespace: e.namespace, reset: true, removed: true}
		return nil
	case opSet, opSetInternal:
		e.reset, e.removed, e.undecidable = true, false, false
		switch s.state.Kind {
		case StateList:
			elements, err := countedElements(payload)
			if err != nil {
				return err
			}
			e.elements = bytes.Clone(elements)
		case StateMap:
			return errChange
		default:
			e.value, e.set = bytes.Clone(payload), true
		}
		return nil
	}
	switch s.state.Kind {
	case StateList:
		return s.applyList(e, op, payload)
	case StateMap:
		return s.applyMap(e, op, payload)
	}
	return fmt.Errorf("operation %d on %s state: %w", op, s.state.Kind, damage.ErrCorrupt)
}

// entry finds the changes of a key and namespace, new if there are none yet.
func (s *changedState) entry(keyGroup int32, key, ns []byte) *changedEntry {
	id := entryID(key, ns)
	e := s.entries[id]
	if e == nil {
		e = &changedEntry{keyGroup: keyGroup, key: bytes.Clone(key), namespace: bytes.Clone(ns)}
		s.entries[id] = e
	}
	return e
}

func entryID(key, ns []byte) string {
	b := make([]byte, 0, 4+len(ns)+len(key))
	b = append(b, byte(len(ns)>>24), byte(len(ns)>>16), byte(len(ns)>>8), byte(len(ns)))
	b = append(b, ns...)
	return string(append(b, key...))
}

// countedElements takes the count off a serialized list.
func countedElements(list []byte) ([]byte, error) {
	if len(list) < 4 || int32(be32(list)) < 0 {
		return nil, errChange
	}
	return list[4:], nil
}

func (s *changedState) applyList(e *changedEntry, op byte, payload []byte) error {
	e.removed = false
	switch op {
	case opAdd:
		elements, err := countedElements(payload)
		if err != nil {
			return err
		}
		e.elements = append(e.elements, elements...)
	case opAddElement:
		e.elements = append(e.elements, payload...)
	default:
		return fmt.Errorf("operation %d on list state: %w", op, damage.ErrCorrupt)
	}
	return nil
}

func (s *changedState) applyMap(e *changedEntry, op byte, payload []byte) error {
	if s.comp.userKey == nil || s.comp.mapValue == nil {
		return &serializer.OpaqueError{Class: "the map key"}
	}
	if e.entries == nil {
		e.entries = map[string][]byte{}
	}
	e.removed = false
	switch op {
	case opAdd:
		if len(payload) < 4 {
			return errChange
		}
		b := payload[4:]
		for range int32(be32(payload)) {
			k, err := s.comp.userKey.Skip(b)
			if err != nil || k >= len(b) {
				return errChange
			}
			v := 0
			if b[k] == 0 {
				if v, err = s.comp.mapValue.Skip(b[k+1:]); err != nil {
					return err
				}
			}
			e.entries[string(b[:k])] = bytes.Clone(b[k : k+1+v])
			b = b[k+1+v:]
		}
		if len(b) != 0 {
			return errChange
		}
	case opAddElement, opPut:
		k, err := s.comp.userKey.Skip(payload)
		if err != nil {
			return err
		}
		e.entries[string(payload[:k])] = append([]byte{0}, payload[k:]...)
	case opRemove:
		e.entries[string(payload)] = nil
	default:
		return fmt.Errorf("operation %d on map state: %w", op, damage.ErrCorrupt)
	}
	return nil
}

func (s *changedState) applyTimer(op byte, b []byte, keyGroup int32) error {
	if s.comp.timer == nil {
		return &serializer.OpaqueError{Class: "the timer"}
	}
	switch op {
	case opAddElement:
		if len(b) < 4 {
			return errChange
		}
		n := int32(be32(b))
		b = b[4:]
		for range n {
			k, err := s.comp.timer.Skip(b)
			if err != nil {
				return err
			}
			s.timers[string(b[:k])] = &changedTimer{keyGroup: keyGroup, present: true}
			b = b[k:]
		}
		if len(b) != 0 {
			return errChange
		}
	case opRemove:
		s.timers[string(b)] = &changedTimer{keyGroup: keyGroup}
	case opClear:
	default:
		return fmt.Errorf("operation %d on timers: %w", op, damage.ErrCorrupt)
	}
	return nil
}

// applyMerge moves the values of the source namespaces to the target: namespace,
// int32 n, n × namespace. Lists append; what a reducing or aggregating function
// would make is not known here.
func (c *changes) applyMerge(s *changedState, e *changedEntry, key, payload []byte) error {
	// The scope's namespace is not the target's.
	n, err := s.comp.namespace.Skip(payload)
	if err != nil {
		return err
	}
	target := s.entry(e.keyGroup, key, payload[:n])
	b := payload[n:]
	if len(b) < 4 {
		return errChange
	}
	count := int32(be32(b))
	b = b[4:]
	for range count {
		m, err := s.comp.namespace.Skip(b)
		if err != nil {
			return err
		}
		source := s.entry(e.keyGroup, key, b[:m])
		b = b[m:]
		switch {
		case s.state.Kind != StateList:
			target.undecidable = true
		case !source.reset:
			target.undecidable = true // its materialized part would be needed first
			target.elements = append(target.elements, source.elements...)
		default:
			target.elements = append(target.elements, source.elements...)
		}
		target.removed = false
		*source = changedEntry{keyGroup: source.keyGroup, key: source.key, namespace: source.namespace, reset: true, removed: true}
	}
	if len(b) != 0 {
		return errChange
	}
	return nil
}

// emit gives out the materialized rows as the changes leave them, then what only
// the changes hold, in the order of key group and key.
func (c *changes) emit(ctx context.Context, w *worker, base []*unit) error {
	out := &worker{scan: w.scan, unit: w.unit, emit: w.emit}
	through := &worker{scan: w.scan, unit: w.unit, emit: func(r *StateRow) error { return c.through(out, r) }}
	for _, u := range base {
		if err := u.run(ctx, through); err != nil {
			return err
		}
	}
	names := make([]string, 0, len(c.metas))
	for k := range c.metas {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		s := c.metas[k]
		if s.state == nil || !s.wanted {
			continue
		}
		if err := c.emitChanged(ctx, out, s); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) lookup(r *StateRow) *changedState {
	kind := serializer.KeyValue
	if r.State.Kind == StateTimer {
		kind = serializer.PriorityQueue
	}
	return c.metas[kind.String()+"/"+r.State.Name]
}

// through gives out one materialized row as the changes leave it.
func (c *changes) through(w *worker, r *StateRow) error {
	s := c.lookup(r)
	if s == nil {
		return w.emit(r)
	}
	if r.State.Kind == StateTimer {
		t := s.timers[string(appendTimer(nil, r))]
		if t == nil {
			return w.emit(r)
		}
		if t.present && !t.done {
			t.done = true
			return w.emit(r)
		}
		return nil
	}
	e := s.entries[entryID(r.Key, r.Namespace)]
	if e == nil {
		return w.emit(r)
	}
	switch r.State.Kind {
	case StateMap:
		if e.reset {
			return nil
		}
		if !e.done { // the rows of a key stand together
			e.done = true
			row := c.newRow(s)
			row.KeyGroup, row.Key, row.Namespace = e.keyGroup, e.key, e.namespace
			if err := emitEntry(w, s, e, row); err != nil {
				return err
			}
		}
		if _, ok := e.entries[string(r.UserKey)]; ok {
			return nil
		}
		return w.emit(r)
	case StateList:
		if e.reset || len(e.elements) == 0 {
			if !e.reset {
				return w.emit(r)
			}
			return nil
		}
		elements, err := rowElements(r)
		if err != nil {
			return w.problem(r.State.Name, r.KeyGroup, err)
		}
		e.done = true
		row := *r
		row.Value, row.Form, row.Offset = append(elements, e.elements...), FormElements, -1
		return w.emit(&row)
	}
	if e.reset || e.set {
		return nil
	}
	return w.emit(r)
}

// appendTimer serializes a timer: its timestamp with the sign bit flipped, key and
// namespace.
func appendTimer(dst []byte, r *StateRow) []byte {
	ts := uint64(r.Timestamp) ^ 1<<63
	dst = append(dst, byte(ts>>56), byte(ts>>48), byte(ts>>40), byte(ts>>32), byte(ts>>24), byte(ts>>16), byte(ts>>8), byte(ts))
	dst = append(dst, r.Key...)
	return append(dst, r.Namespace...)
}

// rowElements gives the elements of a list row, one after the other, in new memory.
func rowElements(r *StateRow) ([]byte, error) {
	switch r.Form {
	case FormElements:
		return bytes.Clone(r.Value), nil
	case FormValue:
		e, err := countedElements(r.Value)
		return bytes.Clone(e), err
	}
	if r.dec.elem == nil {
		return nil, &serializer.OpaqueError{}
	}
	var out []byte
	for b := r.Value; len(b) > 0; {
		n, err := r.dec.elem.Skip(b)
		if err != nil {
			return nil, err
		}
		out = append(out, b[:n]...)
		if b = b[n:]; len(b) > 0 {
			b = b[1:]
		}
	}
	return out, nil
}

// newRow is a row of a state that stands in the changes.
func (c *changes) newRow(s *changedState) StateRow {
	if s.dec == nil {
		s.dec = (&keyedFile{sc: c.sc}).decoders(&s.keyedState)
	}
	return StateRow{State: s.state, Subtask: c.j.subtask, File: c.sc.s.Location.String(), Offset: -1, dec: s.dec}
}

// emitChanged gives out what the materialized part did not have.
func (c *changes) emitChanged(ctx context.Context, w *worker, s *changedState) error {
	row := c.newRow(s)
	if s.state.Kind == StateTimer {
		return c.emitTimers(ctx, w, s, row)
	}
	entries := make([]*changedEntry, 0, len(s.entries))
	for _, e := range s.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *changedEntry) int {
		return cmp.Or(cmp.Compare(a.keyGroup, b.keyGroup), bytes.Compare(a.key, b.key), bytes.Compare(a.namespace, b.namespace))
	})
	match := c.sc.keyMatch(s.key)
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.done {
			continue
		}
		row.KeyGroup, row.Key, row.Namespace = e.keyGroup, e.key, e.namespace
		if !match.row(&row) {
			continue
		}
		if e.undecidable {
			if err := w.problem(s.meta.Name, e.keyGroup, errMerge); err != nil {
				return err
			}
			if s.state.Kind != StateList {
				continue
			}
		}
		if err := emitEntry(w, s, e, row); err != nil {
			return err
		}
	}
	return nil
}

var errMerge = errors.New("namespaces were merged after the last materialization, and only the job's function knows the result")

func emitEntry(w *worker, s *changedState, e *changedEntry, row StateRow) error {
	switch s.state.Kind {
	case StateMap:
		keys := make([]string, 0, len(e.entries))
		for k, v := range e.entries {
			if v != nil {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			v := e.entries[k]
			row.UserKey, row.Form, row.Null, row.Value = []byte(k), FormValue, v[0] != 0, nil
			if !row.Null {
				row.Value = v[1:]
			}
			if err := w.emit(&row); err != nil {
				return err
			}
		}
		return nil
	case StateList:
		if len(e.elements) == 0 {
			return nil
		}
		row.Value, row.Form = e.elements, FormElements
		return w.emit(&row)
	}
	if !e.set {
		return nil
	}
	row.Value, row.Form = e.value, FormValue
	return w.emit(&row)
}

func (c *changes) emitTimers(ctx context.Context, w *worker, s *changedState, row StateRow) error {
	keys := make([]string, 0, len(s.timers))
	for k, t := range s.timers {
		if t.present && !t.done {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.timers[a].keyGroup, s.timers[b].keyGroup), cmp.Compare(a, b))
	})
	f := &keyedFile{sc: c.sc, op: c.j.operator, subtask: c.j.subtask, name: row.File}
	r := &stateReader{keyedState: &s.keyedState, dec: row.dec, timerKey: s.comp.key, match: c.sc.keyMatch(s.key)}
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.row = row
		w.row.KeyGroup = s.timers[k].keyGroup
		if err := f.emitTimer(w, r, []byte(k)); err != nil {
			return err
		}
	}
	return nil
}

// sampleRecord is a data record kept to guess the key's type.
type sampleRecord struct {
	keyGroup int32
	data     []byte
}

// keyGuesses are the types that a key without a declared serializer is tried for.
var keyGuesses = []string{"long", "int", "string", "short", "byte", "boolean", "double", "float", "char", "instant", "date", "localdate", "bigint", "bigdec",
	"tuple<long>", "tuple<string>", "tuple<string,string>", "tuple<string,long>", "tuple<long,long>", "tuple<long,string>", "tuple<int,int>", "tuple<string,int>", "tuple<int,string>"}

// guessKeyType finds the key's serializer of a changelog that was never
// materialized and has no timers: no serializer of the key stands in it. A type
// fits if the records of all states have their form with it and each key hashes
// to the key group of its record. Of types that all fit (a string and a tuple of
// one string have the same bytes and hash) the first is taken; nil if none does.
func guessKeyType(c *changes, sample []sampleRecord) *serializer.Type {
	if len(sample) == 0 {
		return nil
	}
	for _, words := range keyGuesses {
		if t, err := serializer.ParseType(words, nil); err == nil && fitsSample(c, t, sample) {
			return t
		}
	}
	return nil
}

func fitsSample(c *changes, t *serializer.Type, sample []sampleRecord) bool {
	key := serializer.NewDecoder(t, nil)
	seen := false
	for _, r := range sample {
		s := c.states[int16(uint16(r.data[1])<<8|uint16(r.data[2]))]
		if s == nil || keyedKind(s.meta) == StateTimer || s.comp.namespace == nil {
			continue
		}
		b := r.data[3:]
		n, err := key.Skip(b)
		if err != nil {
			return false
		}
		if kg, err := serializer.KeyGroup(t, b[:n], int(c.j.operator.MaxParallelism)); err != nil || int32(kg) != r.keyGroup {
			return false
		}
		m, err := s.comp.namespace.Skip(b[n:])
		if err != nil {
			return false
		}
		payload := b[n+m:]
		if op := r.data[0]; (op == opSet || op == opSetInternal) && s.comp.value != nil {
			if v, err := s.comp.value.Skip(payload); err != nil || v != len(payload) {
				return false
			}
		}
		seen = true
	}
	return seen
}
