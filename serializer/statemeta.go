package serializer

import (
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

// StateKind says what a state of a meta block is. The numbers are the ordinals
// that the block has; a changelog has KeyValueV2 as 10.
type StateKind int32

// State kinds.
const (
	KeyValue      StateKind = 0
	OperatorList  StateKind = 1 // list or union; the mode tells
	Broadcast     StateKind = 2
	PriorityQueue StateKind = 3 // timers
	KeyValueV2    StateKind = 4 // the asynchronous state API of Flink 2
)

var stateKinds = [...]string{"KEY_VALUE", "OPERATOR", "BROADCAST", "PRIORITY_QUEUE", "KEY_VALUE_V2"}

// String is Flink's name.
func (k StateKind) String() string {
	if k >= 0 && int(k) < len(stateKinds) {
		return stateKinds[k]
	}
	return fmt.Sprintf("state kind %d", int32(k))
}

// StateKindOfCode is the kind that a changelog's byte means.
func StateKindOfCode(code int8) (StateKind, bool) {
	switch {
	case code == 10:
		return KeyValueV2, true
	case code >= 0 && code <= 3:
		return StateKind(code), true
	}
	return 0, false
}

// Keys of options and serializers in a state's meta info.
const (
	OptionStateType  = "KEYED_STATE_TYPE"
	OptionMode       = "OPERATOR_STATE_DISTRIBUTION_MODE"
	SerializerKey    = "KEY_SERIALIZER"
	SerializerNS     = "NAMESPACE_SERIALIZER"
	SerializerValue  = "VALUE_SERIALIZER"
	SerializerMapKey = "USER_KEY_SERIALIZER"
)

// StateMeta is the meta info of one registered state:
//
//	utf name, i32 kind
//	i32 n, n × (utf option, utf value)
//	i32 n, n × (utf key, SERSNAP)
//
// The position in the block's list is the state's id in canonical and heap
// native files. Source: Flink, StateMetaInfoSnapshotReadersWriters.java, V6.
type StateMeta struct {
	Name        string
	Kind        StateKind
	Options     []Option
	Serializers []NamedType
}

// Option is an option of a state, in the order of the bytes.
type Option struct{ Key, Value string }

// NamedType is a serializer of a state, in the order of the bytes.
type NamedType struct {
	Key  string
	Type *Type
}

// Option is the value of an option, or "".
func (m *StateMeta) Option(key string) string {
	for _, o := range m.Options {
		if o.Key == key {
			return o.Value
		}
	}
	return ""
}

// Serializer is the serializer under a key, or nil.
func (m *StateMeta) Serializer(key string) *Type {
	for _, s := range m.Serializers {
		if s.Key == key {
			return s.Type
		}
	}
	return nil
}

// StateType is VALUE, LIST, REDUCING, FOLDING, AGGREGATING, MAP or UNKNOWN for
// keyed state, else "".
func (m *StateMeta) StateType() string { return m.Option(OptionStateType) }

// Mode is SPLIT_DISTRIBUTE, UNION or BROADCAST for operator state, else "".
func (m *StateMeta) Mode() string { return m.Option(OptionMode) }

// Namespace is the namespace's type of keyed state.
func (m *StateMeta) Namespace() *Type { return m.Serializer(SerializerNS) }

// Value is the type under VALUE_SERIALIZER: the stored value; the whole list or
// map of a KeyValue state, but the element or map value of a KeyValueV2 one; the
// timer; the element of an operator list; the value of a broadcast map.
func (m *StateMeta) Value() *Type { return m.Serializer(SerializerValue) }

// Key is the key's type of a broadcast state.
func (m *StateMeta) Key() *Type { return m.Serializer(SerializerKey) }

// Element is the type of a list state's element, whatever the kind of state; nil
// if the state is none or its type is opaque.
func (m *StateMeta) Element() *Type {
	v := m.Value()
	switch {
	case v == nil:
	case m.Kind == OperatorList:
		return v
	case m.StateType() != "LIST":
	case m.Kind == KeyValueV2:
		return v
	default:
		return v.Elem()
	}
	return nil
}

// MapTypes are the types of a map state's user key and user value; nil where the
// snapshot does not tell.
func (m *StateMeta) MapTypes() (key, value *Type) {
	switch v := m.Value(); {
	case v == nil:
	case m.Kind == Broadcast:
		return m.Key(), v
	case m.StateType() != "MAP":
	case m.Kind == KeyValueV2:
		return m.Serializer(SerializerMapKey), v
	default:
		return v.Key(), v.Value()
	}
	return nil, nil
}

// TTL reports whether the state's values carry TTL timestamps.
func (m *StateMeta) TTL() bool {
	v := m.Value()
	if v == nil {
		return false
	}
	if e := v.Elem(); e != nil && m.StateType() == "LIST" && v.Kind == KindList {
		v = e
	}
	if e := v.Value(); e != nil && m.StateType() == "MAP" && v.Kind == KindMap {
		v = e
	}
	return v.Kind == KindTTL
}

// Opaque is the class of a serializer that could not be read, if there is one.
func (m *StateMeta) Opaque() (class string, opaque bool) {
	for _, s := range m.Serializers {
		if class, opaque = s.Type.IsOpaque(); opaque {
			return class, true
		}
	}
	return "", false
}

// KeyedBackendMeta is the meta block of a keyed state file:
//
//	i32 version (6), bool key groups are compressed, SERSNAP of the key,
//	i16 n, n × StateMeta
//
// Source: Flink, KeyedBackendSerializationProxy.java.
type KeyedBackendMeta struct {
	Version    int32
	Compressed bool // key groups are snappy streams
	Key        *Type
	States     []StateMeta
	// Size is the number of bytes of the block; -1 if Open.
	Size int64
	// Unknown names each serializer that could not be read. Where it ends was
	// found by looking for what must follow it.
	Unknown []UnknownError
	// Open says that nothing recognizable follows the last of them, so that the
	// block's end is not known and states behind it, if any, are not listed.
	Open bool
}

// OperatorBackendMeta is the meta block of an operator state file:
//
//	i32 version (5 or 6), from 6 on bool compressed,
//	i16 n, n × StateMeta of list and union states, i16 n, n × broadcast states
//
// Source: Flink, OperatorBackendSerializationProxy.java.
type OperatorBackendMeta struct {
	Version    int32
	Compressed bool
	Lists      []StateMeta
	Broadcasts []StateMeta
	Size       int64          // as in KeyedBackendMeta
	Unknown    []UnknownError // likewise
	Open       bool           // likewise
}

// ReadKeyedBackendMeta reads a keyed meta block and leaves r behind it. A
// serializer whose class is not known is Opaque and listed in Unknown; reading
// goes on where what must follow it is found. Versions below 6 (before Flink
// 1.8) wrap damage.ErrUnsupportedVersion.
func ReadKeyedBackendMeta(r *javaio.Reader) (*KeyedBackendMeta, error) {
	m := &metaReader{snapReader: snapReader{Reader: r}}
	start := r.Offset()
	k := &KeyedBackendMeta{}
	k.Version = r.I32()
	if r.Err() == nil && k.Version != 6 {
		return nil, versionError(start, "keyed state meta version", k.Version, 1, 5)
	}
	k.Compressed = r.Bool()
	k.Key = m.serializer(m.statesFollow)
	k.States = m.states("states", nil)
	k.Unknown, k.Open = m.found, m.open
	if err := r.Err(); err != nil {
		return nil, m.located(err)
	}
	if k.Size = int64(r.Offset() - start); k.Open {
		k.Size = -1
	}
	return k, nil
}

// ReadOperatorBackendMeta reads an operator meta block and leaves r behind it;
// unknown serializers are treated as by ReadKeyedBackendMeta.
func ReadOperatorBackendMeta(r *javaio.Reader) (*OperatorBackendMeta, error) {
	m := &metaReader{snapReader: snapReader{Reader: r}}
	start := r.Offset()
	o := &OperatorBackendMeta{}
	o.Version = r.I32()
	if r.Err() == nil && o.Version != 5 && o.Version != 6 {
		return nil, versionError(start, "operator state meta version", o.Version, 1, 4)
	}
	if o.Version >= 6 {
		o.Compressed = r.Bool()
	}
	o.Lists = m.states("operator states", m.statesFollow)
	o.Broadcasts = m.states("broadcast states", nil)
	o.Unknown, o.Open = m.found, m.open
	if err := r.Err(); err != nil {
		return nil, m.located(err)
	}
	if o.Size = int64(r.Offset() - start); o.Open {
		o.Size = -1
	}
	return o, nil
}

func versionError(at int, field string, v, oldest, newest int32) error {
	err := error(damage.ErrCorrupt)
	if v >= oldest && v <= newest || v > newest && v < 100 {
		err = damage.ErrUnsupportedVersion
	}
	return &damage.Error{Offset: int64(at), Field: field, Detail: fmt.Sprintf("is %d", v), Err: err}
}

// ReadStateMeta reads the meta info of one state, as it stands in a changelog's
// metadata record.
func ReadStateMeta(r *javaio.Reader) (*StateMeta, []UnknownError, error) {
	m := &metaReader{snapReader: snapReader{Reader: r}}
	s := m.state(nil)
	if err := r.Err(); err != nil {
		return nil, nil, m.located(err)
	}
	return &s, m.found, nil
}

// metaReader reads meta blocks and finds its way past unknown serializers.
type metaReader struct {
	snapReader
	found []UnknownError
	open  bool
}

const stateMetaMin = 2 + 4 + 4 + 4

// states reads i16 n and n × StateMeta. follows recognizes what comes after
// them; nil is nothing that could be recognized.
func (m *metaReader) states(what string, follows func() bool) []StateMeta {
	if m.open {
		return nil
	}
	n := int(m.I16())
	if m.Err() == nil && (n < 0 || n > m.Len()/stateMetaMin) {
		m.corrupt(what, "are %d", n)
	}
	var list []StateMeta
	for i := 0; i < n && m.Err() == nil && !m.open; i++ {
		next := m.stateFollows
		if i == n-1 {
			next = follows
		}
		list = append(list, m.state(next))
	}
	return list
}

func (m *metaReader) state(follows func() bool) (s StateMeta) {
	s.Name = m.utf()
	s.Kind = StateKind(m.I32())
	if m.Err() == nil && (s.Kind < KeyValue || s.Kind > KeyValueV2) {
		m.corrupt("state "+s.Name, "has kind %d", s.Kind)
	}
	n := m.Count(4)
	for i := 0; i < n && m.Err() == nil; i++ {
		s.Options = append(s.Options, Option{m.utf(), m.utf()})
	}
	n = m.Count(12)
	for i := 0; i < n && m.Err() == nil && !m.open; i++ {
		key := m.utf()
		next := m.serializerFollows
		if i == n-1 {
			next = follows
		}
		s.Serializers = append(s.Serializers, NamedType{key, m.serializer(next)})
	}
	return s
}

// serializer reads a SERSNAP. Behind an unknown one it goes on at the first
// place that follows recognizes.
func (m *metaReader) serializer(follows func() bool) *Type {
	at := m.Offset()
	if v := m.I32(); m.Err() == nil && v != proxyVersion {
		m.Fail(versionError(at, "serializer proxy version", v, 1, 1))
	}
	if m.Err() != nil {
		return nil
	}
	start := m.Offset()
	t := m.snapshot()
	if m.unknown == nil {
		if m.Err() == nil {
			keepRaw(t, append([]byte(nil), m.Since(start)...), int64(start))
		}
		return t
	}
	m.found = append(m.found, *m.unknown)
	m.unknown, m.depth = nil, 0
	m.open = follows == nil || !m.resume(follows)
	t.Raw = append([]byte(nil), m.Since(start)...)
	return t
}

// Append appends the block as Flink writes it, in version 6.
func (k *KeyedBackendMeta) Append(dst []byte) ([]byte, error) {
	dst = javaio.AppendBool(javaio.AppendI32(dst, 6), k.Compressed)
	dst, err := k.Key.AppendSnapshot(dst)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return appendStates(dst, k.States)
}

// Append appends the block in Version 5, which Flink 1.16 and 1.17 need, or 6.
// Version 5 cannot be compressed.
func (o *OperatorBackendMeta) Append(dst []byte) ([]byte, error) {
	dst = javaio.AppendI32(dst, o.Version)
	switch {
	case o.Version == 6:
		dst = javaio.AppendBool(dst, o.Compressed)
	case o.Version != 5:
		return nil, fmt.Errorf("operator state meta version %d cannot be written", o.Version)
	case o.Compressed:
		return nil, fmt.Errorf("operator state meta version 5 cannot be compressed")
	}
	dst, err := appendStates(dst, o.Lists)
	if err != nil {
		return nil, err
	}
	return appendStates(dst, o.Broadcasts)
}

func appendStates(dst []byte, states []StateMeta) ([]byte, error) {
	if len(states) > 1<<15-1 {
		return nil, fmt.Errorf("%d states, at most 32767 fit", len(states))
	}
	dst = javaio.AppendI16(dst, int16(len(states)))
	var err error
	for i := range states {
		if dst, err = states[i].Append(dst); err != nil {
			return nil, fmt.Errorf("state %s: %w", states[i].Name, err)
		}
	}
	return dst, nil
}

// Append appends one state's meta info. Options and serializers keep their order;
// Flink's own is VALUE_SERIALIZER before NAMESPACE_SERIALIZER before KEY_SERIALIZER.
func (m *StateMeta) Append(dst []byte) ([]byte, error) {
	w := snapWriter{b: dst}
	w.utf(m.Name)
	w.i32(int32(m.Kind))
	w.i32(int32(len(m.Options)))
	for _, o := range m.Options {
		w.utf(o.Key)
		w.utf(o.Value)
	}
	w.i32(int32(len(m.Serializers)))
	for _, s := range m.Serializers {
		w.utf(s.Key)
		w.i32(proxyVersion)
		w.snapshot(s.Type)
	}
	return w.b, w.err
}

// NewKeyedState is the meta info of a keyed state: stateType is VALUE, LIST,
// REDUCING, AGGREGATING or MAP, and value the whole type, a list's or map's
// included.
func NewKeyedState(name, stateType string, namespace, value *Type) StateMeta {
	return StateMeta{
		Name: name, Kind: KeyValue, Options: []Option{{OptionStateType, stateType}},
		Serializers: []NamedType{{SerializerValue, value}, {SerializerNS, namespace}},
	}
}

// NewTimerState is the meta info of a timer queue, see NewTimer.
func NewTimerState(name string, timer *Type) StateMeta {
	return StateMeta{Name: name, Kind: PriorityQueue, Serializers: []NamedType{{SerializerValue, timer}}}
}

// NewListState is the meta info of an operator list or, with union, union state.
func NewListState(name string, union bool, element *Type) StateMeta {
	mode := "SPLIT_DISTRIBUTE"
	if union {
		mode = "UNION"
	}
	return StateMeta{Name: name, Kind: OperatorList, Options: []Option{{OptionMode, mode}}, Serializers: []NamedType{{SerializerValue, element}}}
}

// NewBroadcastState is the meta info of a broadcast state.
func NewBroadcastState(name string, key, value *Type) StateMeta {
	return StateMeta{
		Name: name, Kind: Broadcast, Options: []Option{{OptionMode, "BROADCAST"}},
		Serializers: []NamedType{{SerializerValue, value}, {SerializerKey, key}},
	}
}
