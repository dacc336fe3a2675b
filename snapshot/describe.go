package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// Describe writes a snapshot as one text: the description of its operators,
// states and entries that flink-verify documents (docs/format/description.md), in
// which a small snapshot can be read, compared and made anew. What that format
// lacks stands in members of its own, which appear only where they are needed:
//
//	classes            at the top: the fields of classes that types name
//	ttl, last_access   a state with TTL and the milliseconds of each value's last access
//	namespace_type, namespace   of states and entries whose namespace is not void
//	service            of timers that are not a process function's own
//	key_group          of entries whose key's hash code only its class can compute
//	serializer, key_serializer, namespace_serializer
//	                   serializer snapshots of types that words do not tell, in hex
//	raw_keyed, raw_operator, coordinator, coordinator_version   bytes in hex
//
// Entries are sorted by the text of their keys. All of it is held in memory.
func Describe(ctx context.Context, s *Snapshot, opts *ScanOptions, w io.Writer) error {
	d := &description{operators: map[int]*describedOperator{}, classes: map[string]string{}}
	for r, err := range Rows(ctx, s, opts) {
		if err != nil {
			return err
		}
		if err := d.row(r); err != nil {
			return err
		}
	}
	// States without entries are part of the description too.
	states, err := States(ctx, s, opts)
	if err != nil {
		return err
	}
	for _, st := range states {
		if opts == nil || opts.State == nil || opts.State(st) {
			d.state(st)
		}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	d.write(out)
	return out.Flush()
}

type description struct {
	operators map[int]*describedOperator
	classes   map[string]string // type words by Java class
	parsed    serializer.Classes
	v         describer
}

type describedOperator struct {
	op     *StateOperator
	key    *serializer.Type
	groups bool // entries tell their key group: nothing else does
	states map[string]*describedState
	timers []describedEntry
	raw    []describedEntry
	coord  *describedEntry
}

type describedState struct {
	state   *State
	entries []describedEntry
	byKey   map[string]int // list and map entries of one key, by key and namespace
}

// describedEntry is an entry in parts, each as JSON.
type describedEntry struct {
	key, namespace []byte
	namespaceType  *serializer.Type // of a timer, where it is not void
	value          []byte
	pairs          [][]byte // of a map
	access         string
	keyGroup       int32
	time           int64
	domain         string
	service        string
	version        int32
	hasVersion     bool
}

func (d *description) operator(op *StateOperator) *describedOperator {
	o := d.operators[op.Position]
	if o == nil {
		o = &describedOperator{op: op, states: map[string]*describedState{}}
		d.operators[op.Position] = o
	}
	return o
}

// state registers a state; timers, raw state and coordinators are none.
func (d *description) state(st *State) *describedState {
	o := d.operator(st.Operator)
	if st.Kind.Keyed() && o.key == nil && st.Key != nil {
		o.key = st.Key
		o.groups = serializer.Hashable(st.Key, nil) != nil
		d.learn(st.Key)
	}
	switch st.Kind {
	case StateTimer, StateRawKeyed, StateRawOperator, StateCoordinator, StateSourceCoordinator, StateMaster:
		if st.Kind != StateRawOperator {
			return nil
		}
	}
	id := string(st.Kind) + "/" + st.Name
	ds := o.states[id]
	if ds == nil {
		ds = &describedState{state: st, byKey: map[string]int{}}
		o.states[id] = ds
		for _, t := range []*serializer.Type{st.Namespace, st.UserKey, st.Value} {
			d.learn(t)
		}
	}
	return ds
}

// learn keeps the words of the classes that a type names.
func (d *description) learn(t *serializer.Type) {
	t.Walk(func(n *serializer.Type) bool {
		switch n.Kind {
		case serializer.KindPOJO, serializer.KindEnum:
			if n.JavaClass != "" {
				d.classes[n.JavaClass] = classWords(n)
			}
		}
		return true
	})
}

// classWords are the words of a class with its fields or constants.
func classWords(t *serializer.Type) string {
	var b strings.Builder
	if t.Kind == serializer.KindEnum {
		b.WriteString("enum:" + t.JavaClass + "<" + strings.Join(t.Symbols, ",") + ">")
		return b.String()
	}
	b.WriteString("pojo:" + t.JavaClass + "<")
	for i, f := range t.Fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f.Name + ":" + f.Type.Words())
	}
	b.WriteByte('>')
	return b.String()
}

func (d *description) row(r *StateRow) error {
	o := d.operator(r.State.Operator)
	ds := d.state(r.State)
	switch r.State.Kind {
	case StateTimer:
		e := describedEntry{key: bytes.Clone(d.v.value(r.dec.key, r.Key)), time: r.Timestamp, domain: "event", keyGroup: r.KeyGroup}
		e.service, _ = strings.CutPrefix(r.State.Name, eventTimers)
		if s, ok := strings.CutPrefix(r.State.Name, processingTimers); ok {
			e.service, e.domain = s, "processing"
		}
		if !isVoid(r.State.Namespace) && r.Namespace != nil {
			e.namespace = bytes.Clone(d.v.value(r.dec.namespace, r.Namespace))
			e.namespaceType = r.State.Namespace
		}
		o.timers = append(o.timers, e)
		return nil
	case StateRawKeyed:
		o.raw = append(o.raw, describedEntry{keyGroup: r.KeyGroup, value: hexJSON(r.Value)})
		return nil
	case StateCoordinator, StateSourceCoordinator:
		o.coord = &describedEntry{value: hexJSON(r.Value), version: r.Version, hasVersion: r.Form == FormVersionedBytes}
		return nil
	case StateMaster:
		return nil
	}
	e := describedEntry{keyGroup: r.KeyGroup}
	if r.State.Kind.Keyed() {
		e.key = bytes.Clone(d.v.value(r.dec.key, r.Key))
		if !isVoid(r.State.Namespace) && r.Namespace != nil {
			e.namespace = bytes.Clone(d.v.value(r.dec.namespace, r.Namespace))
		}
	}
	var value []byte
	if r.UserKey != nil {
		key := bytes.Clone(d.v.value(r.dec.userKey, r.UserKey))
		value = append(append([]byte{'['}, key...), ',')
		value = append(append(value, d.rowValue(r)...), ']')
	} else {
		value = bytes.Clone(d.rowValue(r))
	}
	if r.State.TTL {
		if lo, hi, ok := r.TTL(); ok {
			e.access = strconv.FormatInt(lo, 10)
			if hi != lo {
				e.access = "[" + e.access + "," + strconv.FormatInt(hi, 10) + "]"
			}
		}
	}
	if r.UserKey == nil && r.State.Kind.Keyed() {
		e.value = value
		ds.entries = append(ds.entries, e)
		return nil
	}
	// Entries of one key, and the lists of all subtasks, come together.
	id := string(e.key) + "\x00" + string(e.namespace)
	i, ok := ds.byKey[id]
	if !ok {
		i = len(ds.entries)
		ds.byKey[id] = i
		ds.entries = append(ds.entries, e)
	}
	if r.UserKey != nil {
		ds.entries[i].pairs = append(ds.entries[i].pairs, value)
		return nil
	}
	if inner := bytes.Trim(value, "[]"); len(inner) > 0 || bytes.Count(value, []byte("[")) > 1 {
		ds.entries[i].pairs = append(ds.entries[i].pairs, value[1:len(value)-1])
	}
	return nil
}

func hexJSON(b []byte) []byte {
	return append(append([]byte{'"'}, hex.AppendEncode(nil, b)...), '"')
}

func isVoid(t *serializer.Type) bool { return t == nil || t.Kind == serializer.KindVoidNamespace }

// rowValue describes a row's value.
func (d *description) rowValue(r *StateRow) []byte {
	switch {
	case r.Null:
		return []byte("null")
	case r.Form == FormValue:
		return d.v.value(r.dec.value, r.Value)
	case r.Form == FormJoined || r.Form == FormElements:
		out := []byte{'['}
		for b := r.Value; len(b) > 0; {
			d.v.reset(nil)
			n, err := 0, error(nil)
			if r.dec.elem != nil {
				n, err = r.dec.elem.Visit(b, &d.v)
			}
			if r.dec.elem == nil || err != nil || n == 0 {
				d.v.reset(nil)
				d.v.Opaque(nil, classOf(r.dec.elem, err), b)
				n = len(b)
			} else if lo, hi, ok := r.dec.elem.TTL(); ok {
				r.sawTTL(lo, hi)
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, d.v.dst...)
			if b = b[n:]; r.Form == FormJoined && len(b) > 0 {
				b = b[1:]
			}
		}
		return append(out, ']')
	case r.Form == FormVersioned || r.Form == FormByteParts:
		out := []byte{'['}
		r.frames(func(p []byte) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, hexJSON(p)...)
		})
		return append(out, ']')
	}
	return hexJSON(r.Value)
}

func (d *description) write(w *bufio.Writer) {
	d.parseClasses()
	w.WriteString("{\"format\": 1,\n")
	if len(d.classes) > 0 {
		w.WriteString(" \"classes\": [")
		for i, c := range slices.Sorted(maps.Keys(d.classes)) {
			if i > 0 {
				w.WriteString(",\n   ")
			}
			w.Write(appendJSONString(nil, d.classes[c]))
		}
		w.WriteString("],\n")
	}
	w.WriteString(" \"operators\": [")
	first := true
	for _, pos := range slices.Sorted(maps.Keys(d.operators)) {
		o := d.operators[pos]
		if pos < 0 {
			continue
		}
		if !first {
			w.WriteString(",\n  ")
		}
		first = false
		d.writeOperator(w, o)
	}
	w.WriteString("]}\n")
}

func (d *description) writeOperator(w *bufio.Writer, o *describedOperator) {
	// A uid stands for its hash, which a job may have set to something else.
	if o.op.UID != "" && metadata.OperatorIDFromUID(o.op.UID).String() == o.op.ID {
		w.WriteString(`{"uid": ` + quoted(o.op.UID))
	} else {
		w.WriteString(`{"uid_hash": ` + quoted(o.op.ID))
	}
	if o.op.Name != "" {
		w.WriteString(`, "name": ` + quoted(o.op.Name))
	}
	w.WriteString(`, "max_parallelism": ` + strconv.Itoa(int(o.op.MaxParallelism)) + `, "parallelism": ` + strconv.Itoa(int(o.op.Parallelism)))
	var keyed, others []*describedState
	for _, id := range slices.Sorted(maps.Keys(o.states)) {
		if st := o.states[id]; st.state.Kind.Keyed() {
			keyed = append(keyed, st)
		} else {
			others = append(others, st)
		}
	}
	byName := func(a, b *describedState) int { return cmp.Compare(a.state.Name, b.state.Name) }
	slices.SortFunc(keyed, byName)
	slices.SortFunc(others, byName)
	if o.key != nil || len(keyed) > 0 || len(o.timers) > 0 {
		w.WriteString(",\n   \"keyed\": {\"key_type\": " + quoted(words(o.key)))
		writeMember(w, "key_serializer", d.notInWords(words(o.key), nil, o.key))
		w.WriteString(",\n    \"states\": [")
		for i, st := range keyed {
			if i > 0 {
				w.WriteString(",\n     ")
			}
			d.writeKeyed(w, o, st)
		}
		w.WriteString("]")
		if len(o.timers) > 0 {
			w.WriteString(",\n    \"timers\": [")
			slices.SortFunc(o.timers, func(a, b describedEntry) int {
				return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.service, b.service), cmp.Compare(a.time, b.time), bytes.Compare(a.key, b.key), bytes.Compare(a.namespace, b.namespace))
			})
			for i, t := range o.timers {
				if i > 0 {
					w.WriteString(",\n     ")
				}
				w.WriteString(`{"key": ` + string(t.key))
				o.writeKeyGroup(w, t.keyGroup)
				w.WriteString(`, "time": ` + strconv.FormatInt(t.time, 10) + `, "domain": ` + quoted(t.domain))
				if t.service != "user-timers" {
					w.WriteString(`, "service": ` + quoted(t.service))
				}
				if t.namespace != nil {
					w.WriteString(`, "namespace_type": ` + quoted(words(t.namespaceType)))
					writeMember(w, "namespace_serializer", d.notInWords(words(t.namespaceType), nil, t.namespaceType))
					w.WriteString(`, "namespace": ` + string(t.namespace))
				}
				w.WriteString("}")
			}
			w.WriteString("]")
		}
		w.WriteString("}")
	}
	if len(others) > 0 {
		w.WriteString(",\n   \"operator_states\": [")
		for i, st := range others {
			if i > 0 {
				w.WriteString(",\n     ")
			}
			d.writeOperatorState(w, st)
		}
		w.WriteString("]")
	}
	if len(o.raw) > 0 {
		w.WriteString(",\n   \"raw_keyed\": [")
		for i, r := range o.raw {
			if i > 0 {
				w.WriteString(",\n     ")
			}
			w.WriteString(`{"key_group": ` + strconv.Itoa(int(r.keyGroup)) + `, "bytes": ` + string(r.value) + `}`)
		}
		w.WriteString("]")
	}
	if o.coord != nil {
		w.WriteString(",\n   \"coordinator\": " + string(o.coord.value))
		if o.coord.hasVersion {
			w.WriteString(`, "coordinator_version": ` + strconv.Itoa(int(o.coord.version)))
		}
	}
	w.WriteString("}")
}

func quoted(s string) string { return string(appendJSONString(nil, s)) }

// typeWords are the words of what a state holds for a key.
func (st *describedState) typeWords() string {
	s := st.state
	v := s.Value
	strip := func(t *serializer.Type) string {
		if t != nil && t.Kind == serializer.KindTTL {
			t = t.Elem()
		}
		return words(t)
	}
	switch s.Kind {
	case StateMap, StateBroadcast:
		return "map<" + words(s.UserKey) + "," + strip(v) + ">"
	case StateList:
		if v != nil && v.Kind == serializer.KindList {
			return "list<" + strip(v.Elem()) + ">"
		}
		return "list<" + strip(v) + ">"
	case StateOperatorList, StateUnion, StateSinkWriter, StateCommittables:
		return "list<" + strip(v) + ">"
	case StateRawOperator:
		return "list<bytes>"
	}
	return strip(v)
}

// writeMember writes a member whose value is a text, unless that is empty.
func writeMember(w *bufio.Writer, name, value string) {
	if value != "" {
		w.WriteString(`, "` + name + `": ` + quoted(value))
	}
}

func (o *describedOperator) writeKeyGroup(w *bufio.Writer, keyGroup int32) {
	if o.groups {
		w.WriteString(`, "key_group": ` + strconv.Itoa(int(keyGroup)))
	}
}

func (d *description) writeKeyed(w *bufio.Writer, o *describedOperator, st *describedState) {
	s := st.state
	w.WriteString(`{"name": ` + quoted(s.Name) + `, "kind": ` + quoted(string(s.Kind)) + `, "type": ` + quoted(st.typeWords()))
	writeMember(w, "serializer", d.notInWords(st.typeWords(), withTTL(s.Kind, s.TTL), s.stored))
	if s.TTL {
		w.WriteString(`, "ttl": true`)
	}
	if !isVoid(s.Namespace) {
		w.WriteString(`, "namespace_type": ` + quoted(words(s.Namespace)))
		writeMember(w, "namespace_serializer", d.notInWords(words(s.Namespace), nil, s.Namespace))
	}
	w.WriteString(`, "entries": [`)
	slices.SortFunc(st.entries, func(a, b describedEntry) int {
		return cmp.Or(compareJSON(a.key, b.key), compareJSON(a.namespace, b.namespace))
	})
	for i := range st.entries {
		e := &st.entries[i]
		if i > 0 {
			w.WriteString(",\n       ")
		}
		w.WriteString(`{"key": ` + string(e.key))
		o.writeKeyGroup(w, e.keyGroup)
		if e.namespace != nil {
			w.WriteString(`, "namespace": ` + string(e.namespace))
		}
		value := e.value
		if value == nil {
			slices.SortFunc(e.pairs, bytes.Compare)
			value = append(append([]byte{'['}, bytes.Join(e.pairs, []byte{','})...), ']')
		}
		w.WriteString(`, "value": ` + string(value))
		if e.access != "" {
			w.WriteString(`, "last_access": ` + e.access)
		}
		w.WriteString("}")
	}
	w.WriteString("]}")
}

// compareJSON orders numbers as numbers and everything else by its text.
func compareJSON(a, b []byte) int {
	x, errA := strconv.ParseInt(string(a), 10, 64)
	y, errB := strconv.ParseInt(string(b), 10, 64)
	if errA == nil && errB == nil {
		return cmp.Compare(x, y)
	}
	return bytes.Compare(a, b)
}

func (d *description) writeOperatorState(w *bufio.Writer, st *describedState) {
	s := st.state
	mode := "list"
	switch s.Kind {
	case StateUnion:
		mode = "union"
	case StateBroadcast:
		mode = "broadcast"
	case StateRawOperator:
		mode = "raw"
	}
	name := s.Name
	if s.Kind == StateCommittables {
		name = stateCommitter
	}
	w.WriteString(`{"name": ` + quoted(name) + `, "mode": ` + quoted(mode) + `, "type": ` + quoted(st.typeWords()))
	if mode == "broadcast" {
		writeMember(w, "key_serializer", d.notInWords(words(s.UserKey), nil, s.UserKey))
	}
	writeMember(w, "serializer", d.notInWords(words(s.Value), nil, s.Value))
	w.WriteString(`, "entries": [`)
	n := 0
	for _, e := range st.entries {
		if mode == "broadcast" {
			slices.SortFunc(e.pairs, bytes.Compare)
		}
		for _, p := range e.pairs {
			if n > 0 {
				w.WriteString(",")
			}
			w.Write(p)
			n++
		}
	}
	w.WriteString("]}")
}
