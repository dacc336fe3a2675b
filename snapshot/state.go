package snapshot

import (
	"cmp"
	"slices"
	"sync"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// StateKind is what a state is, in the words of Flink's API. The strings are
// stable; they are those of the goldens' expected.jsonl.
type StateKind string

// Kinds of states.
const (
	StateValue       StateKind = "value"
	StateList        StateKind = "list"
	StateMap         StateKind = "map"
	StateReducing    StateKind = "reducing"
	StateAggregating StateKind = "aggregating" // the value is the accumulator
	StateFolding     StateKind = "folding"     // before Flink 1.9
	StateUnknown     StateKind = "unknown"     // keyed, of a type this program does not know
	StateTimer       StateKind = "timer"

	StateOperatorList StateKind = "operator-list" // one row for each subtask, its list
	StateUnion        StateKind = "operator-union"
	StateBroadcast    StateKind = "broadcast" // one row for each entry of one copy
	StateSinkWriter   StateKind = "sink-writer"
	StateCommittables StateKind = "sink-committables"

	StateCoordinator       StateKind = "coordinator" // bytes
	StateSourceCoordinator StateKind = "source-coordinator"
	StateRawKeyed          StateKind = "raw-keyed"    // the bytes of one key group
	StateRawOperator       StateKind = "raw-operator" // the partitions of one subtask
	StateMaster            StateKind = "master"       // state of a master hook
)

// Keyed reports whether rows of the state have a key.
func (k StateKind) Keyed() bool {
	switch k {
	case StateValue, StateList, StateMap, StateReducing, StateAggregating, StateFolding, StateUnknown, StateTimer:
		return true
	}
	return false
}

// StateOperator is the operator of a state.
type StateOperator struct {
	Position int    // in Checkpoint.Operators; -1 for master state
	ID       string // 32 hex digits
	UID      string // "" if not known
	Name     string // "" if not known
	// MaxParallelism decides the length of the key group in front of keys.
	MaxParallelism int32
	Parallelism    int32
}

// State is one state of one operator, over all of its subtasks.
type State struct {
	Operator *StateOperator
	Name     string
	Kind     StateKind
	// Types as the first handle that was read declares them; nil where there is
	// none or it is not known. Value is what a row's value is: the list of a list
	// state, one value of a map state.
	Key, Namespace, UserKey, Value *serializer.Type
	// Element is the type of a list's elements, of keyed and of operator lists.
	Element *serializer.Type
	// TTL: values carry the time of their last access.
	TTL bool
	// Variants is how many more declarations differ from these types in other
	// handles, as after a schema migration.
	Variants int

	jsonHead []byte // the members that every row begins with
	// stored is the type as a keyed state's meta info has it, a whole list or map,
	// of the first handle; nil where Value is that.
	stored *serializer.Type
	order  int
	first  declared // that of the lowest subtask
}

// declared are a state's types as the handle of one subtask declares them.
type declared struct {
	subtask                        int32
	key, namespace, userKey, value *serializer.Type
	ttl                            bool
}

// catalog collects the states of a snapshot as handles are read. For concurrent use.
type catalog struct {
	operators []StateOperator
	master    StateOperator

	mu     sync.Mutex
	states map[stateKey]*State
}

type stateKey struct {
	operator int
	name     string
	kind     StateKind
}

func newCatalog(c *metadata.Checkpoint, uid func(metadata.OperatorID) string) *catalog {
	cat := &catalog{states: map[stateKey]*State{}, operators: make([]StateOperator, len(c.Operators)), master: StateOperator{Position: -1}}
	for i := range c.Operators {
		o := &c.Operators[i]
		op := &cat.operators[i]
		*op = StateOperator{Position: i, ID: o.ID.String(), UID: o.UID.Go(), Name: o.Name.Go(), MaxParallelism: o.MaxParallelism, Parallelism: o.Parallelism}
		if op.UID == "" && uid != nil {
			op.UID = uid(o.ID)
		}
	}
	return cat
}

// add gives the state of that operator, name and kind, new if it is the first
// time it is seen.
func (c *catalog) add(op *StateOperator, subtask int32, name string, kind StateKind, key, ns, userKey, value *serializer.Type, ttl bool) *State {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := stateKey{op.Position, name, kind}
	if s := c.states[k]; s != nil {
		if unlike(s.Key, key) || unlike(s.Namespace, ns) || unlike(s.UserKey, userKey) || unlike(s.Value, value) {
			s.Variants++
		}
		if subtask < s.first.subtask {
			s.first = declared{subtask, key, ns, userKey, value, ttl}
		}
		return s
	}
	s := &State{Operator: op, Name: name, Kind: kind, Key: key, Namespace: ns, UserKey: userKey, Value: value, TTL: ttl, order: len(c.states), first: declared{subtask, key, ns, userKey, value, ttl}}
	switch {
	case kind == StateList && value != nil && value.Kind == serializer.KindList:
		s.Element = value.Elem()
	case kind == StateOperatorList || kind == StateUnion || kind == StateSinkWriter || kind == StateCommittables:
		s.Element = value
	}
	s.jsonHead = appendRowHead(nil, s)
	c.states[k] = s
	return s
}

// element sets the type of a list's elements, where Value does not tell it.
func (c *catalog) element(s *State, elem *serializer.Type) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if elem != nil && words(s.Element) != words(elem) && s.Variants == 0 {
		s.Element = elem // its first handle: rows are not read yet
	}
}

// whole notes the type of a keyed state as it is declared.
func (c *catalog) whole(s *State, t *serializer.Type) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.stored == nil {
		s.stored = t
	}
}

// settle gives the states whose handles differ the types of the lowest subtask, so
// that it does not matter which handle was read first. Nothing may read states any
// more.
func (c *catalog) settle() []*State {
	list := c.list()
	for _, s := range list {
		if s.Variants > 0 {
			s.Key, s.Namespace, s.UserKey, s.Value, s.TTL = s.first.key, s.first.namespace, s.first.userKey, s.first.value, s.first.ttl
		}
	}
	return list
}

// unlike tells whether bytes that one handle declares to be of a type mean something else
// than those that another one does.
func unlike(a, b *serializer.Type) bool {
	return words(a) != words(b) || a != nil && b != nil && serializer.Renumbered(a, b)
}

func words(t *serializer.Type) string {
	if t == nil {
		return ""
	}
	return t.Words()
}

// list gives all states in the order of operators, then of their kind and name.
func (c *catalog) list() []*State {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*State, 0, len(c.states))
	for _, s := range c.states {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *State) int {
		return cmp.Or(cmp.Compare(a.Operator.Position, b.Operator.Position), cmp.Compare(kindOrder(a.Kind), kindOrder(b.Kind)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

func kindOrder(k StateKind) int {
	switch {
	case k == StateTimer:
		return 1
	case k.Keyed():
		return 0
	}
	return 2
}

// keyedKind is the kind of a keyed state by its meta info.
func keyedKind(m *serializer.StateMeta) StateKind {
	if m.Kind == serializer.PriorityQueue {
		return StateTimer
	}
	switch m.StateType() {
	case "VALUE":
		return StateValue
	case "LIST":
		return StateList
	case "MAP":
		return StateMap
	case "REDUCING":
		return StateReducing
	case "AGGREGATING":
		return StateAggregating
	case "FOLDING":
		return StateFolding
	}
	return StateUnknown
}
