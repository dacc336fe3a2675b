package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/serializer"
)

// stateTypes are the words that meta infos have for kinds of keyed state.
var stateTypes = map[string]string{"value": "VALUE", "list": "LIST", "map": "MAP", "reducing": "REDUCING", "aggregating": "AGGREGATING"}

// planKeyed serializes the keyed state of an operator.
func (c *creation) planKeyed(p *operatorPlan, k *keyedJSON) error {
	var err error
	if p.key, err = c.d.typeOf(k.KeyType, k.KeySerializer); err != nil {
		return placed(fmt.Errorf("key_type: %w", err), "key_type")
	}
	keys := &keyEncoder{t: p.key, hash: serializer.NewHasher(p.key, c.d.hash, serializer.KryoOf(c.opts.Version)), maxParallelism: p.maxParallelism}
	keys.unknown = serializer.Hashable(p.key, c.d.hash)
	for i := range k.States {
		s := &k.States[i]
		planned, err := c.planState(keys, s)
		if err != nil {
			return placed(fmt.Errorf("state %s: %w", shortName(s.Name), err), "states", i)
		}
		if p.hasState(s.Name) {
			return placed(fmt.Errorf("state %s comes twice", shortName(s.Name)), "states", i)
		}
		p.states = append(p.states, *planned)
	}
	return c.planTimers(p, keys, k.Timers)
}

func (p *operatorPlan) hasState(name string) bool {
	return slices.ContainsFunc(p.states, func(s plannedState) bool { return s.meta.Name == name })
}

// keyEncoder serializes keys and finds their key group.
type keyEncoder struct {
	t              *serializer.Type
	hash           *serializer.Hasher
	unknown        error // why key groups cannot be computed
	maxParallelism int
}

// encode gives a key and its key group; given is the one that the description
// states, where only the key's class can compute it.
func (k *keyEncoder) encode(text json.RawMessage, given *int) (key []byte, keyGroup int, err error) {
	if len(text) == 0 {
		return nil, 0, fmt.Errorf("has no key")
	}
	if isNull(text) { // a serializer may have a form for it, but no state backend a place
		return nil, 0, fmt.Errorf("its key is null")
	}
	if key, err = k.t.AppendFromJSON(nil, text); err != nil {
		return nil, 0, fmt.Errorf("key %s: %w", shortJSON(text), err)
	}
	var n int
	keyGroup, n, err = -1, 0, k.unknown
	if err == nil {
		keyGroup, n, err = k.hash.KeyGroup(key, k.maxParallelism)
	}
	var unknown *serializer.HashError
	switch {
	case err == nil && n != len(key):
		return nil, 0, fmt.Errorf("key %s: is not one value", shortJSON(text))
	case err == nil && given != nil && *given != keyGroup:
		return nil, 0, fmt.Errorf("key %s: its key_group is %d, but by its hash code it is %d", shortJSON(text), *given, keyGroup)
	case err == nil:
	case errors.As(err, &unknown) && given != nil:
		if keyGroup = *given; keyGroup < 0 || keyGroup >= k.maxParallelism {
			return nil, 0, fmt.Errorf("key %s: key_group %d is not below the max parallelism %d", shortJSON(text), keyGroup, k.maxParallelism)
		}
	case errors.As(err, &unknown):
		return nil, 0, fmt.Errorf("key %s: its key group is not known: %w; hash_codes can tell how the class makes it, or key_group", shortJSON(text), err)
	default:
		return nil, 0, fmt.Errorf("key %s: %w", shortJSON(text), err)
	}
	return key, keyGroup, nil
}

// valueTypes are the types of a state's parts.
type valueTypes struct {
	value, key *serializer.Type // of the value, element or map value; of a map's key
	ttl        bool
}

// unwrap takes the TTL of a type off.
func (v *valueTypes) unwrap() {
	if v.value.Kind == serializer.KindTTL {
		v.value, v.ttl = v.value.Elem(), true
	}
}

func (c *creation) planState(keys *keyEncoder, s *keyedStateJSON) (*plannedState, error) {
	stateType, ok := stateTypes[s.Kind]
	if !ok {
		return nil, fmt.Errorf("kind is %q, not value, list, map, reducing or aggregating", s.Kind)
	}
	if s.Name == "" {
		return nil, fmt.Errorf("has no name")
	}
	if err := nameFits("name", s.Name); err != nil {
		return nil, err
	}
	ns, err := c.namespaceType(s.NamespaceType, s.NamespaceSerializer)
	if err != nil {
		return nil, err
	}
	if s.TTLMillis != "" {
		if n, err := s.TTLMillis.Int64(); err != nil || n <= 0 {
			return nil, fmt.Errorf("ttl_ms is %s, not milliseconds above 0", s.TTLMillis)
		}
	}
	ttl := s.TTL || s.TTLMillis != ""
	out := &plannedState{kind: StateKind(s.Kind)}
	var t *serializer.Type // the whole
	var v valueTypes
	switch out.kind {
	case StateList:
		if t, err = c.d.listOf(s.Type, s.Serializer); err != nil {
			return nil, err
		}
		if ttl && s.Serializer == "" {
			t = serializer.NewList(serializer.NewTTL(t.Elem()))
		}
		v.value = t.Elem()
	case StateMap:
		if t, err = c.d.mapOf(s.Type, s.Serializer); err != nil {
			return nil, err
		}
		if ttl && s.Serializer == "" {
			t = serializer.NewMap(t.Key(), serializer.NewTTL(t.Value()))
		}
		v.key, v.value = t.Key(), t.Value()
	default:
		if t, err = c.d.typeOf(s.Type, s.Serializer); err != nil {
			return nil, err
		}
		if ttl && s.Serializer == "" {
			t = serializer.NewTTL(t)
		}
		v.value = t
	}
	if v.unwrap(); v.ttl != ttl {
		return nil, fmt.Errorf("its serializer and ttl disagree")
	}
	out.meta = serializer.NewKeyedState(s.Name, stateType, ns, t)
	for i := range s.Entries {
		e := &s.Entries[i]
		planned, err := c.planEntry(keys, ns, out.kind, &v, e)
		if err != nil {
			return nil, placed(fmt.Errorf("entries[%d]: %w", i, err), "entries", i)
		}
		planned.at = i
		out.entries = append(out.entries, *planned)
	}
	if twice := sortEntries(out.entries); twice != nil {
		return nil, placed(fmt.Errorf("two entries have the same key: %s", c.keyText(keys, twice)), "entries", twice.at)
	}
	if out.kind == StateList || out.kind == StateMap { // no state backend keeps an empty one
		out.entries = slices.DeleteFunc(out.entries, func(e plannedEntry) bool { return len(e.parts) == 0 })
	}
	return out, nil
}

// keyText is the key of an entry for a message.
func (c *creation) keyText(keys *keyEncoder, e *plannedEntry) string {
	text, _, err := serializer.NewDecoder(keys.t, nil).AppendJSON(nil, e.key)
	if err != nil {
		return fmt.Sprintf("%x", e.key)
	}
	return shortJSON(text)
}

func (c *creation) namespaceType(words, snapshot string) (*serializer.Type, error) {
	if words == "" && snapshot == "" {
		words = "voidnamespace"
	}
	t, err := c.d.typeOf(words, snapshot)
	if err != nil {
		return nil, fmt.Errorf("namespace_type: %w", err)
	}
	return t, nil
}

func (c *creation) planEntry(keys *keyEncoder, ns *serializer.Type, kind StateKind, v *valueTypes, e *entryJSON) (*plannedEntry, error) {
	out := &plannedEntry{}
	var err error
	if out.key, out.keyGroup, err = keys.encode(e.Key, e.KeyGroup); err != nil {
		return nil, err
	}
	where := func(err error) error { return fmt.Errorf("key %s: %w", shortJSON(e.Key), err) }
	if out.ns, err = namespaceOf(ns, e.Namespace); err != nil {
		return nil, where(err)
	}
	if len(e.Value) == 0 {
		return nil, where(fmt.Errorf("has no value"))
	}
	access, err := c.lastAccess(v.ttl, e.LastAccess)
	if err != nil {
		return nil, where(err)
	}
	switch kind {
	case StateList:
		list, err := elementsOf(e.Value)
		if err != nil {
			return nil, where(err)
		}
		for i, x := range list {
			at := access[0]
			if i > 0 { // the least and the greatest are known of a list
				at = access[1]
			}
			b, err := v.append(at, x)
			if err == nil && isNull(x) { // at which Flink's reader ends, whatever follows
				err = errors.New("a list state has no null elements")
			}
			if err != nil {
				return nil, where(fmt.Errorf("[%d]: %w", i, err))
			}
			out.parts = append(out.parts, plannedPart{value: b})
		}
	case StateMap:
		if out.parts, err = v.pairs(access, e.Value); err != nil {
			return nil, where(err)
		}
	default:
		if out.value, err = v.append(access[0], e.Value); err != nil {
			return nil, where(err)
		}
	}
	return out, nil
}

func namespaceOf(t *serializer.Type, text json.RawMessage) ([]byte, error) {
	if len(text) == 0 {
		text = json.RawMessage("null")
	}
	b, err := t.AppendFromJSON(nil, text)
	if err != nil {
		return nil, fmt.Errorf("namespace: %w", err)
	}
	return b, nil
}

// lastAccess is the least and the greatest time of last access of an entry's parts.
func (c *creation) lastAccess(ttl bool, text json.RawMessage) (times [2]int64, err error) {
	times = [2]int64{c.access, c.access}
	switch {
	case len(text) == 0:
		return times, nil
	case !ttl:
		return times, fmt.Errorf("last_access: the state has no ttl")
	}
	var one int64
	if json.Unmarshal(text, &one) == nil {
		return [2]int64{one, one}, nil
	}
	var both []int64
	if json.Unmarshal(text, &both) != nil || len(both) != 2 {
		return times, fmt.Errorf("last_access is %s: not milliseconds, nor the least and the greatest of a list", shortJSON(text))
	}
	return [2]int64(both), nil
}

// append serializes a value; with TTL its last access stands in front.
func (v *valueTypes) append(access int64, text json.RawMessage) ([]byte, error) {
	var b []byte
	if v.ttl {
		b = javaio.AppendI64(nil, access)
	}
	return v.value.AppendFromJSON(b, text)
}

// pairs serializes a map, sorted by key.
func (v *valueTypes) pairs(access [2]int64, text json.RawMessage) ([]plannedPart, error) {
	list, err := pairsOf(text)
	if err != nil {
		return nil, err
	}
	parts := make([]plannedPart, 0, len(list))
	for i, pair := range list {
		k, err := v.key.AppendFromJSON(nil, pair[0])
		if err != nil {
			return nil, fmt.Errorf("map key %s: %w", shortJSON(pair[0]), err)
		}
		at := access[0]
		if i > 0 {
			at = access[1]
		}
		b, err := v.append(at, pair[1])
		// A null stands in a flag of the map, unless it has a time of last access.
		// What the serializer writes for it follows the flag, if it can write one.
		null := isNull(pair[1]) && !v.ttl
		if null && err != nil {
			b, err = nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("value of map key %s: %w", shortJSON(pair[0]), err)
		}
		parts = append(parts, plannedPart{key: k, value: b, null: null})
	}
	return parts, sortPairs(parts)
}

func sortPairs(parts []plannedPart) error {
	slices.SortStableFunc(parts, func(a, b plannedPart) int { return bytes.Compare(a.key, b.key) })
	for i := 1; i < len(parts); i++ {
		if bytes.Equal(parts[i-1].key, parts[i].key) {
			return fmt.Errorf("two entries of the map have the same key")
		}
	}
	return nil
}

// timerService is what the timers of one service have in common.
type timerService struct {
	name      string
	namespace *serializer.Type
	words     string
	domains   map[string][]plannedEntry
}

// planTimers adds the timer states, two for each service, as a real operator
// registers them.
func (c *creation) planTimers(p *operatorPlan, keys *keyEncoder, timers []timerJSON) error {
	var services []*timerService
	for i := range timers {
		t := &timers[i]
		name := t.Service
		if name == "" {
			name = "user-timers"
		}
		k := slices.IndexFunc(services, func(s *timerService) bool { return s.name == name })
		if k < 0 {
			ns, err := c.namespaceType(t.NamespaceType, t.NamespaceSerializer)
			if err != nil {
				return placed(fmt.Errorf("timers[%d]: %w", i, err), "timers", i)
			}
			if err := nameFits("service", processingTimers+name); err != nil {
				return placed(fmt.Errorf("timers[%d]: %w", i, err), "timers", i)
			}
			k = len(services)
			services = append(services, &timerService{name: name, namespace: ns, words: t.NamespaceType, domains: map[string][]plannedEntry{}})
		}
		s := services[k]
		e, err := planTimer(keys, s, t)
		if err != nil {
			return placed(fmt.Errorf("timers[%d]: %w", i, err), "timers", i)
		}
		e.at = i
		s.domains[t.Domain] = append(s.domains[t.Domain], *e)
	}
	for _, s := range services {
		for _, domain := range []string{"event", "processing"} {
			prefix := map[string]string{"event": eventTimers, "processing": processingTimers}[domain]
			state := plannedState{kind: StateTimer, meta: serializer.NewTimerState(prefix+s.name, serializer.NewTimer(p.key, s.namespace)), entries: s.domains[domain]}
			if twice := sortEntries(state.entries); twice != nil {
				return placed(fmt.Errorf("two timers of key %s are the same", c.keyText(keys, twice)), "timers", twice.at)
			}
			if p.hasState(state.meta.Name) {
				return placed(fmt.Errorf("state %s is that of the timers", state.meta.Name), "states")
			}
			p.states = append(p.states, state)
		}
	}
	return nil
}

func planTimer(keys *keyEncoder, s *timerService, t *timerJSON) (*plannedEntry, error) {
	switch {
	case t.Domain != "event" && t.Domain != "processing":
		return nil, fmt.Errorf("domain is %q, not event or processing", t.Domain)
	case t.NamespaceType != s.words:
		return nil, fmt.Errorf("namespace_type is %q, but %q of another timer of service %s", t.NamespaceType, s.words, s.name)
	}
	e := &plannedEntry{}
	var err error
	if e.timestamp, err = strconv.ParseInt(t.Time.String(), 10, 64); err != nil {
		return nil, fmt.Errorf("time is %q, not milliseconds", t.Time)
	}
	if e.key, e.keyGroup, err = keys.encode(t.Key, t.KeyGroup); err != nil {
		return nil, err
	}
	if e.ns, err = namespaceOf(s.namespace, t.Namespace); err != nil {
		return nil, fmt.Errorf("key %s: %w", shortJSON(t.Key), err)
	}
	return e, nil
}

// planOperatorState serializes a list, union, broadcast or raw state.
func (c *creation) planOperatorState(p *operatorPlan, s *operatorStateJSON) error {
	if s.Name == "" {
		return fmt.Errorf("has no name")
	}
	if err := nameFits("name", s.Name); err != nil {
		return err
	}
	for _, list := range [][]plannedOperatorState{p.lists, p.broadcasts, p.raw} {
		for _, other := range list {
			if other.meta.Name == s.Name && (s.Mode == "raw") == (other.meta.Options == nil) {
				return fmt.Errorf("comes twice")
			}
		}
	}
	out := plannedOperatorState{}
	switch s.Mode {
	case "list", "union":
		if s.Name == stateCommitter {
			return fmt.Errorf("a description has its requests only, not what the committer keeps of them")
		}
		t, err := c.elementType(s)
		if err != nil {
			return err
		}
		out.meta = serializer.NewListState(s.Name, s.Mode == "union", t)
		for i, x := range s.Entries {
			b, err := t.AppendFromJSON(nil, x)
			if err == nil && isNull(x) { // Flink fails to restore it
				err = errors.New("a list has no null elements")
			}
			if err != nil {
				return placed(fmt.Errorf("entries[%d]: %w", i, err), "entries", i)
			}
			out.parts = append(out.parts, plannedPart{value: b})
		}
		p.lists = append(p.lists, out)
	case "broadcast":
		key, value, err := c.broadcastTypes(s)
		if err != nil {
			return err
		}
		out.meta = serializer.NewBroadcastState(s.Name, key, value)
		for i, x := range s.Entries {
			pair, err := elementsOf(x)
			if err != nil || len(pair) != 2 {
				return placed(fmt.Errorf("entries[%d]: is no [key, value] pair", i), "entries", i)
			}
			part := plannedPart{}
			if part.key, err = key.AppendFromJSON(nil, pair[0]); err == nil {
				part.value, err = value.AppendFromJSON(nil, pair[1])
			}
			if err != nil {
				return placed(fmt.Errorf("entries[%d]: %w", i, err), "entries", i)
			}
			out.parts = append(out.parts, part)
		}
		if err := sortPairs(out.parts); err != nil {
			return err
		}
		p.broadcasts = append(p.broadcasts, out)
	case "raw":
		out.meta.Name = s.Name
		for i, x := range s.Entries {
			b, err := rawBytes(x)
			if err != nil {
				return placed(fmt.Errorf("entries[%d]: %w", i, err), "entries", i)
			}
			out.parts = append(out.parts, plannedPart{value: b})
		}
		p.raw = append(p.raw, out)
	default:
		return fmt.Errorf("mode is %q, not list, union, broadcast or raw", s.Mode)
	}
	return nil
}

// rawBytes are the bytes of a string of hex digits.
func rawBytes(text json.RawMessage) ([]byte, error) {
	b, err := serializer.Bytes.Type().AppendFromJSON(nil, text)
	if err != nil {
		return nil, err
	}
	return b[4:], nil
}

// elementType is the type of a list's or union's elements; a serializer snapshot
// is that of one element.
func (c *creation) elementType(s *operatorStateJSON) (*serializer.Type, error) {
	if s.Serializer != "" {
		return c.d.typeOf(s.Type, s.Serializer)
	}
	t, err := c.d.listOf(s.Type, "")
	if err != nil {
		return nil, err
	}
	return t.Elem(), nil
}

func (c *creation) broadcastTypes(s *operatorStateJSON) (key, value *serializer.Type, err error) {
	if s.Serializer == "" || s.KeySerializer == "" {
		t, err := c.d.mapOf(s.Type, "")
		if err != nil {
			return nil, nil, err
		}
		key, value = t.Key(), t.Value()
	}
	if s.Serializer != "" {
		if value, err = c.d.typeOf(s.Type, s.Serializer); err != nil {
			return nil, nil, err
		}
	}
	if s.KeySerializer != "" {
		if key, err = c.d.typeOf(s.Type, s.KeySerializer); err != nil {
			return nil, nil, err
		}
	}
	return key, value, nil
}
