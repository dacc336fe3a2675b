package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// SchemaName is the schema member of a schema file.
const SchemaName = "stateutil.schema/1"

// Schema is which states a job has, of what types: what a snapshot says, or a file.
type Schema struct {
	// Schema is SchemaName.
	Schema string `json:"schema"`
	// Operators in the order of the snapshot.
	Operators []OperatorSchema `json:"operators"`
}

// OperatorSchema is one operator with its states.
type OperatorSchema struct {
	// ID is the operator's ID in hex; in a file it may be left out if UID is given.
	ID string `json:"operatorId"`
	// UID and Name are shown; UID gives the ID if there is none.
	UID  string `json:"operatorUid,omitempty"`
	Name string `json:"operatorName,omitempty"`
	// MaxParallelism and Parallelism; 0 is unknown and fits all.
	MaxParallelism int32 `json:"maxParallelism,omitempty"`
	Parallelism    int32 `json:"parallelism,omitempty"`
	// States of the operator.
	States []StateSchema `json:"states"`
}

// StateSchema is one state. Types are in words (docs/format/serializers.md); beside
// them may stand the serializers' snapshots as Flink writes them, which say more and
// count instead.
type StateSchema struct {
	Name string    `json:"state"` // the name under which it is registered
	Kind StateKind `json:"kind"`  // value, list, map, …
	// Key, Namespace, MapKey, Value and Element are types in words, absent where
	// there is none. Element is that of a list.
	Key       string `json:"key,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	MapKey    string `json:"mapKey,omitempty"`
	Value     string `json:"value,omitempty"`
	Element   string `json:"element,omitempty"`
	// TTL says that values carry the time of their last access.
	TTL bool `json:"ttl,omitempty"`
	// Snapshots are serializer snapshots by the names of the members above, each in
	// the versioned form in which Flink stores it, in base64.
	Snapshots map[string][]byte `json:"snapshots,omitempty"`

	types map[string]*serializer.Type
}

// schemaParts are the typed members of a StateSchema.
var schemaParts = []string{"key", "namespace", "mapKey", "value", "element"}

func (s *StateSchema) words(part string) *string {
	switch part {
	case "key":
		return &s.Key
	case "namespace":
		return &s.Namespace
	case "mapKey":
		return &s.MapKey
	case "value":
		return &s.Value
	}
	return &s.Element
}

// ReadSchema gives the schema of a snapshot by reading the head of each handle.
func ReadSchema(ctx context.Context, s *Snapshot, opts *ScanOptions) (*Schema, error) {
	states, err := States(ctx, s, opts)
	if err != nil {
		return nil, err
	}
	out := &Schema{Schema: SchemaName, Operators: []OperatorSchema{}}
	at := map[*StateOperator]int{}
	for _, st := range states {
		if opts != nil && opts.State != nil && !opts.State(st) || st.Operator.Position < 0 {
			continue
		}
		i, ok := at[st.Operator]
		if !ok {
			i = len(out.Operators)
			at[st.Operator] = i
			op := st.Operator
			out.Operators = append(out.Operators, OperatorSchema{ID: op.ID, UID: op.UID, Name: op.Name, MaxParallelism: op.MaxParallelism, Parallelism: op.Parallelism})
		}
		out.Operators[i].States = append(out.Operators[i].States, schemaOf(st))
	}
	return out, nil
}

func schemaOf(st *State) StateSchema {
	s := StateSchema{Name: st.Name, Kind: st.Kind, TTL: st.TTL, Snapshots: map[string][]byte{}, types: map[string]*serializer.Type{}}
	for part, t := range map[string]*serializer.Type{"key": st.Key, "namespace": st.Namespace, "mapKey": st.UserKey, "value": st.Value, "element": st.Element} {
		if t == nil {
			continue
		}
		s.types[part] = t
		*s.words(part) = t.Words()
		if b, err := t.AppendVersionedSnapshot(nil); err == nil {
			s.Snapshots[part] = b
		}
	}
	return s
}

// schemaFile is what ParseSchema reads: a Schema, or the document of states --json,
// whose states name their operators.
type schemaFile struct {
	Schema    string           `json:"schema"`
	Operators []OperatorSchema `json:"operators"`
	States    []struct {
		OperatorID   string `json:"operatorId"`
		OperatorUID  string `json:"operatorUid"`
		OperatorName string `json:"operatorName"`
		StateSchema
	} `json:"states"`
}

// maxSchemaBytes bounds a schema file.
const maxSchemaBytes = 64 << 20

// ParseSchema reads a schema file, or the JSON document of stateutil states. Types
// in words may use classes.
func ParseSchema(r io.Reader, classes serializer.Classes) (*Schema, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSchemaBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSchemaBytes {
		return nil, fmt.Errorf("schema: over %d bytes", maxSchemaBytes)
	}
	var f schemaFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	out := &Schema{Schema: SchemaName, Operators: f.Operators}
	switch {
	case f.Schema == SchemaName:
	case f.Schema == "stateutil.states/1":
		at := map[string]int{}
		for _, st := range f.States {
			if st.OperatorID == "" {
				continue // state of a master hook
			}
			i, ok := at[st.OperatorID]
			if !ok {
				i = len(out.Operators)
				at[st.OperatorID] = i
				out.Operators = append(out.Operators, OperatorSchema{ID: st.OperatorID, UID: st.OperatorUID, Name: st.OperatorName})
			}
			if st.Value != "" && (st.Kind == StateList || st.Kind == StateOperatorList || st.Kind == StateUnion) {
				st.Element = "" // the words of the whole say it
			}
			out.Operators[i].States = append(out.Operators[i].States, st.StateSchema)
		}
	default:
		return nil, fmt.Errorf("schema: the schema member is %q: %s or stateutil.states/1", f.Schema, SchemaName)
	}
	seen := map[string]bool{}
	for i := range out.Operators {
		op := &out.Operators[i]
		if op.ID == "" {
			if op.UID == "" {
				return nil, fmt.Errorf("schema: operator %d has neither operatorId nor operatorUid", i)
			}
			op.ID = metadata.OperatorIDFromUID(op.UID).String()
		}
		if _, err := metadata.ParseOperatorID(op.ID); err != nil {
			return nil, fmt.Errorf("schema: operator %d: %w", i, err)
		}
		if op.ID = strings.ToLower(op.ID); seen[op.ID] {
			return nil, fmt.Errorf("schema: operator %s stands twice", op.ID)
		}
		seen[op.ID] = true
		for k := range op.States {
			if err := op.States[k].parse(classes); err != nil {
				return nil, fmt.Errorf("schema: operator %s, state %q: %w", cmp.Or(op.UID, op.ID), op.States[k].Name, err)
			}
		}
	}
	return out, nil
}

// parse makes types of snapshots, or else of words.
func (s *StateSchema) parse(classes serializer.Classes) error {
	if s.Name == "" || s.Kind == "" {
		return errors.New("needs a state's name and kind")
	}
	s.types = map[string]*serializer.Type{}
	for part, b := range s.Snapshots {
		if !slices.Contains(schemaParts, part) {
			return fmt.Errorf("snapshots: no member %q", part)
		}
		r := javaio.NewReader(b)
		t, err := serializer.ReadVersionedSnapshot(r)
		if err != nil {
			return fmt.Errorf("snapshot of %s: %w", part, err)
		}
		if r.Len() > 0 {
			return fmt.Errorf("snapshot of %s: %d bytes follow it", part, r.Len())
		}
		s.types[part] = t
	}
	for _, part := range schemaParts {
		text := *s.words(part)
		if text == "" || s.types[part] != nil {
			continue
		}
		t, err := serializer.ParseType(text, classes)
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		s.types[part] = t
	}
	return nil
}

// CompatOptions changes a comparison of schemas. Nil is the default.
type CompatOptions struct {
	// Serializers are how types are compared.
	Serializers serializer.CompatOptions
	// AllowNonRestored: state of an operator that the new job does not have is
	// dropped, as with Flink's --allowNonRestoredState.
	AllowNonRestored bool
}

// StateCompat is whether the new job can read one state.
type StateCompat struct {
	// Operator is the operator's ID in hex; UID and OpName if known.
	Operator string `json:"operatorId"`
	UID      string `json:"operatorUid,omitempty"`
	OpName   string `json:"operatorName,omitempty"`
	// Name is the state's, empty if the operator itself is meant.
	Name string    `json:"state,omitempty"`
	Kind StateKind `json:"kind,omitempty"` // value, list, map, …
	// Verdict is "as is", "after migration", "undecided" or "incompatible".
	Verdict string `json:"verdict"`
	// Path is the part that decided, "value.field total".
	Path string `json:"path,omitempty"`
	// Reason is why, or what else is worth knowing.
	Reason string `json:"reason,omitempty"`

	verdict serializer.Verdict
}

// CompatReport is the result of CompareSchemas.
type CompatReport struct {
	// Verdict is the worst of all.
	Verdict string `json:"verdict"`
	// States are those of the old job in its order, then what only the new one has.
	// Entries without a state are about operators.
	States []StateCompat `json:"states"`

	worst serializer.Verdict
}

// Worst is the verdict.
func (r *CompatReport) Worst() serializer.Verdict { return r.worst }

// CompareSchemas says, for each state, whether a job with the new schema can be
// restored from a snapshot with the old one.
func CompareSchemas(older, newer *Schema, opts *CompatOptions) *CompatReport {
	if opts == nil {
		opts = &CompatOptions{}
	}
	c := &schemaCompare{opts: opts, out: &CompatReport{States: []StateCompat{}}}
	byID := map[string]*OperatorSchema{}
	for i := range newer.Operators {
		byID[newer.Operators[i].ID] = &newer.Operators[i]
	}
	known := map[string]bool{}
	for i := range older.Operators {
		o := &older.Operators[i]
		known[o.ID] = true
		n := byID[o.ID]
		if n == nil {
			c.gone(o, newer, older)
			continue
		}
		c.operator(o, n)
	}
	for i := range newer.Operators {
		if n := &newer.Operators[i]; !known[n.ID] {
			c.add(n, nil, serializer.Compatibility{Reason: "new operator, starts without state"})
		}
	}
	c.out.Verdict = c.out.worst.String()
	return c.out
}

type schemaCompare struct {
	opts *CompatOptions
	out  *CompatReport
}

func (c *schemaCompare) add(o *OperatorSchema, s *StateSchema, v serializer.Compatibility) {
	st := StateCompat{Operator: o.ID, UID: o.UID, OpName: o.Name, Verdict: v.Verdict.String(), Path: v.Path, Reason: v.Reason, verdict: v.Verdict}
	if s != nil {
		st.Name, st.Kind = s.Name, s.Kind
	}
	c.out.States = append(c.out.States, st)
	c.out.worst = max(c.out.worst, v.Verdict)
}

// gone is about an operator that the new job does not have: perhaps its uid changed.
func (c *schemaCompare) gone(o *OperatorSchema, newer, older *Schema) {
	v := serializer.Compatibility{Verdict: serializer.Incompatible, Reason: "the operator is gone: Flink restores only with allowNonRestoredState, and drops its state"}
	if c.opts.AllowNonRestored {
		v = serializer.Compatibility{Reason: "the operator is gone: its state is dropped"}
	}
	for i := range newer.Operators {
		n := &newer.Operators[i]
		if slices.ContainsFunc(older.Operators, func(x OperatorSchema) bool { return x.ID == n.ID }) || !sameStates(o, n) {
			continue
		}
		v.Reason += fmt.Sprintf("; operator %s is new and has the same states: was the uid changed?", cmp.Or(n.UID, n.Name, n.ID))
		break
	}
	c.add(o, nil, v)
}

func sameStates(a, b *OperatorSchema) bool {
	if len(a.States) != len(b.States) || len(a.States) == 0 {
		return false
	}
	for i := range a.States {
		x := &a.States[i]
		if !slices.ContainsFunc(b.States, func(y StateSchema) bool { return y.Name == x.Name && y.Kind == x.Kind }) {
			return false
		}
	}
	return true
}

func (c *schemaCompare) operator(o, n *OperatorSchema) {
	if o.MaxParallelism > 0 && n.MaxParallelism > 0 && o.MaxParallelism != n.MaxParallelism {
		c.add(n, nil, serializer.Compatibility{Verdict: serializer.Incompatible, Path: "max parallelism", Reason: fmt.Sprintf("%d became %d, which a restore refuses if it is set in the job", o.MaxParallelism, n.MaxParallelism)})
	} else if o.MaxParallelism > 0 && n.Parallelism > o.MaxParallelism {
		c.add(n, nil, serializer.Compatibility{Verdict: serializer.Incompatible, Path: "parallelism", Reason: fmt.Sprintf("is %d, over the max parallelism %d", n.Parallelism, o.MaxParallelism)})
	}
	if o.UID != "" && n.UID != "" && o.UID != n.UID {
		c.add(n, nil, serializer.Compatibility{Reason: fmt.Sprintf("the uid %q became %q, of the same operator ID", o.UID, n.UID)})
	}
	known := map[string]bool{}
	for i := range o.States {
		s := &o.States[i]
		known[s.Name] = true
		k := slices.IndexFunc(n.States, func(x StateSchema) bool { return x.Name == s.Name && family(x.Kind) == family(s.Kind) })
		if k < 0 {
			c.add(o, s, serializer.Compatibility{Reason: "not in the new job: its entries are not read"})
			continue
		}
		c.add(n, s, c.state(s, &n.States[k]))
	}
	for i := range n.States {
		if s := &n.States[i]; !known[s.Name] {
			c.add(n, s, serializer.Compatibility{Reason: "new state, starts empty"})
		}
	}
}

// family tells keyed state, timers and operator state of one name apart.
func family(k StateKind) int { return kindOrder(k) }

// state compares two declarations of a state. Keys, namespaces and map keys are
// never migrated.
func (c *schemaCompare) state(a, b *StateSchema) serializer.Compatibility {
	if a.Kind != b.Kind && a.Kind != StateUnknown && b.Kind != StateUnknown {
		return serializer.Compatibility{Verdict: serializer.Incompatible, Reason: fmt.Sprintf("%s state became %s state", a.Kind, b.Kind)}
	}
	var worst serializer.Compatibility
	for _, part := range schemaParts {
		x, y := a.types[part], b.types[part]
		if part == "element" && a.types["value"] != nil && b.types["value"] != nil {
			continue // the list's own type says it
		}
		var v serializer.Compatibility
		switch {
		case x == nil && y == nil:
			continue
		case x == nil || y == nil:
			if x == nil && part == "namespace" && y.Kind == serializer.KindVoidNamespace || y == nil && part == "namespace" && x.Kind == serializer.KindVoidNamespace || part == "element" {
				continue // a list of states leaves it out
			}
			v = serializer.Compatibility{Verdict: serializer.Undecided, Reason: "only one of the two tells its type"}
		case part == "value" || part == "element":
			v = serializer.Compat(x, y, &c.opts.Serializers)
		default:
			v = serializer.CompatKey(x, y)
		}
		if v.Reason != "" || v.Verdict != serializer.AsIs {
			name := part
			if part == "mapKey" {
				name = "map key"
			}
			v.Path = strings.TrimSuffix(name+"."+v.Path, ".")
		}
		if v.Verdict > worst.Verdict || v.Verdict == worst.Verdict && worst.Reason == "" {
			worst = v
		}
	}
	return worst
}
