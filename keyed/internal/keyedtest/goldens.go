package keyedtest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Goldens restores what a real Flink wrote, from every backend and in every format,
// writes it in ours, and compares the rows.
func (o Opener) Goldens(t *testing.T, cases []*testdata.Case) {
	restored := 0
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			t.Run(c.Name+"/"+sn.Path[strings.LastIndexByte(sn.Path, '/')+1:], func(t *testing.T) {
				restored += o.golden(t, c.File(sn.Path))
			})
		}
	}
	require.NotZero(t, restored)
	t.Logf("%d operators restored", restored)
}

// value is a serialized value as a Go string.
type value = string

// asIs reads and writes values of a type as their bytes, whatever the type is.
type asIs struct {
	t *serializer.Type
	o *serializer.DecodeOptions
}

func (s asIs) Append(dst []byte, v value) []byte { return append(dst, v...) }
func (s asIs) Type() *serializer.Type            { return s.t }
func (s asIs) Kryo() serializer.KryoVersion      { return s.o.Kryo }
func (s asIs) Read(b []byte) (value, int, error) {
	n, err := serializer.NewDecoder(s.t, s.o).Skip(b)
	return string(b[:n]), n, err
}

// orNull is asIs with nil for null.
type orNull struct{ asIs }

func (s orNull) Append(dst []byte, v *value) []byte { return append(dst, *v...) }
func (s orNull) Read(b []byte) (*value, int, error) {
	v, n, err := s.asIs.Read(b)
	return &v, n, err
}

// goldenHashes is the hashCode of the generator's class of keys.
var goldenHashes = serializer.HashRules{"tidemark.goldens.model.PlaceKey": {Fields: []string{"city", "zip", "zone"}}}

// golden restores all operators of a snapshot and gives their number.
func (o Opener) golden(t *testing.T, path string) (restored int) {
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(path)
	require.NoError(t, err)
	sn, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	states, err := snapshot.States(t.Context(), sn, &snapshot.ScanOptions{OnProblem: func(*snapshot.ScanProblem) {}})
	require.NoError(t, err)
	byOperator := map[int][]*snapshot.State{}
	for _, s := range states {
		if s.Kind.Keyed() {
			byOperator[s.Operator.Position] = append(byOperator[s.Operator.Position], s)
		}
	}
	for position, states := range byOperator {
		if o.goldenOperator(t, sn, position, states) {
			restored++
		}
	}
	return restored
}

// canRestore tells whether the states can be held as values of Go: the key's hash is
// known, and all types can be written.
func canRestore(states []*snapshot.State) (reason string) {
	for _, s := range states {
		if s.Key == nil || s.Namespace == nil || s.Value == nil && s.Kind != snapshot.StateTimer {
			return "state " + s.Name + " lacks a type"
		}
		if err := serializer.Hashable(s.Key, goldenHashes); err != nil {
			return err.Error()
		}
		if s.Variants > 0 {
			return "state " + s.Name + " has several types"
		}
		if s.Kind == snapshot.StateMap && s.UserKey == nil {
			return "state " + s.Name + " lacks the type of its map keys"
		}
	}
	return ""
}

func (o Opener) goldenOperator(t *testing.T, sn *snapshot.Snapshot, position int, states []*snapshot.State) bool {
	op := states[0].Operator
	if reason := canRestore(states); reason != "" {
		t.Logf("operator %s: %s", op.ID, reason)
		return false
	}
	do := &serializer.DecodeOptions{Kryo: serializer.KryoOf(sn.Checkpoint.Version), Classes: jobClasses(t)}
	only := func(o *snapshot.StateOperator) bool { return o.Position == position }
	want, undecoded := rows(t, sn, only)
	if undecoded != "" {
		t.Logf("operator %s: %s cannot be decoded", op.ID, undecoded)
		return false
	}
	for _, registered := range []bool{true, false} {
		b, err := o.String(t, keyed.Config[value]{Key: asIs{states[0].Key, do}, MaxParallelism: int(op.MaxParallelism), Clock: &keyed.ManualClock{}, HashRules: goldenHashes})
		require.NoError(t, err)
		if registered {
			for _, s := range states {
				registerDynamic(b, s, do)
			}
			require.NoError(t, b.Err())
		}
		err = b.Restore(t.Context(), keyed.RestoreSource{Snapshot: sn, Operator: only, Classes: do.Classes})
		require.NoError(t, err)
		for _, f := range []keyed.Format{keyed.FormatCheckpoint, keyed.FormatCanonical} {
			st := NewStorage(t)
			w, id := st.Begin(t, 0)
			snap, err := b.Snapshot(t.Context(), id)
			require.NoError(t, err)
			h, err := upload(t.Context(), w, snap, keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: f}})
			require.NoError(t, err)
			ours := st.Commit(t, w, sn.Checkpoint.Operators[position], sn.Checkpoint.Version >= 5, []metadata.KeyedHandle{h})
			if f == keyed.FormatCheckpoint && o.Incremental {
				ours = o.asSavepoint(t, ours, keyed.Config[value]{Key: asIs{states[0].Key, do}, MaxParallelism: int(op.MaxParallelism), Clock: &keyed.ManualClock{}, HashRules: goldenHashes}, sn.Checkpoint.Operators[position], sn.Checkpoint.Version >= 5, do.Classes)
			}
			got, _ := rows(t, ours, nil)
			require.Equal(t, want, got, "operator %s, registered %v, format %d", op.ID, registered, f)
		}
		require.NoError(t, b.Close())
	}
	return true
}

// asSavepoint restores a checkpoint that only the backend reads and makes a savepoint of it.
func (o Opener) asSavepoint(t *testing.T, sn *snapshot.Snapshot, c keyed.Config[value], as metadata.OperatorState, newer bool, classes serializer.Classes) *snapshot.Snapshot {
	b, err := o.String(t, c)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	require.NoError(t, b.Restore(t.Context(), keyed.RestoreSource{Snapshot: sn, Classes: classes}))
	st := NewStorage(t)
	w, id := st.Begin(t, 0)
	snap, err := b.Snapshot(t.Context(), id)
	require.NoError(t, err)
	h, err := upload(t.Context(), w, snap, canonical.options(false))
	require.NoError(t, err)
	return st.Commit(t, w, as, newer, []metadata.KeyedHandle{h})
}

// registerDynamic registers a state with the types that the snapshot says.
func registerDynamic(b Backend[value], s *snapshot.State, o *serializer.DecodeOptions) {
	ns := serializer.Serializer[value](asIs{s.Namespace, o})
	v := s.Value
	var opts []keyed.Option
	inner := func(t *serializer.Type) asIs {
		if t.Kind == serializer.KindTTL {
			opts = []keyed.Option{keyed.WithTTL(keyed.TTLConfig{Duration: time.Hour, KeepInSnapshots: true})}
			return asIs{t.Elem(), o}
		}
		return asIs{t, o}
	}
	same := func(a, b value) value { return a }
	switch s.Kind {
	case snapshot.StateValue:
		ser := inner(v)
		keyed.ValueIn(b, s.Name, ns, serializer.Serializer[value](ser), opts...)
	case snapshot.StateReducing:
		ser := inner(v)
		keyed.ReducingIn(b, s.Name, same, ns, serializer.Serializer[value](ser), opts...)
	case snapshot.StateAggregating:
		ser := inner(v)
		keyed.AggregatingIn(b, s.Name, dynamicAggregator{}, ns, serializer.Serializer[value](ser), opts...)
	case snapshot.StateList:
		if v.Kind == serializer.KindList {
			v = v.Elem()
		}
		ser := inner(v)
		keyed.ListIn(b, s.Name, ns, serializer.Serializer[value](ser), opts...)
	case snapshot.StateMap:
		ser := inner(v)
		keyed.MapIn(b, s.Name, ns, serializer.Serializer[value](asIs{s.UserKey, o}), serializer.Serializer[*value](orNull{ser}), opts...)
	case snapshot.StateTimer:
		for _, prefix := range []string{"_timer_state/event_", "_timer_state/processing_"} {
			if service, ok := strings.CutPrefix(s.Name, prefix); ok && !timersSeen(b, service) {
				keyed.Timers(b, service, ns)
			}
		}
	}
}

func timersSeen(b Backend[value], service string) bool {
	return b.Registered("_timer_state/event_" + service)
}

type dynamicAggregator struct{}

func (dynamicAggregator) New() value             { return "" }
func (dynamicAggregator) Add(a, _ value) value   { return a }
func (dynamicAggregator) Merge(a, _ value) value { return a }
func (dynamicAggregator) Result(a value) value   { return a }

// rows gives the rows of keyed state as sorted lines.
func rows(t *testing.T, sn *snapshot.Snapshot, operator func(*snapshot.StateOperator) bool) (lines []string, undecoded string) {
	opts := &snapshot.ScanOptions{Classes: jobClasses(t), Operator: operator, State: func(s *snapshot.State) bool { return s.Kind.Keyed() }}
	for r, err := range snapshot.Rows(t.Context(), sn, opts) {
		var opaque *serializer.OpaqueError
		if errors.As(err, &opaque) {
			return nil, err.Error()
		}
		require.NoError(t, err)
		line, u := r.AppendJSON(nil)
		if u != "" {
			return nil, u
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return lines, ""
}

// jobClasses are classes of the generator's job that no snapshot describes.
func jobClasses(t *testing.T) serializer.Classes {
	classes := serializer.Classes{}
	for _, words := range []string{
		"enum:tidemark.goldens.model.Color<RED,GREEN,BLUE>",
		"pojo:tidemark.goldens.model.Animal$Cat<legs int, lives int, name string, weight double>",
		"pojo:tidemark.goldens.model.Blob<bytes bytes, maybe long?, number int, parts list<string>, title string>",
		"pojo:tidemark.goldens.model.Blob$Registered<bytes bytes, color enum:Color, extra double, maybe long?, number int, parts list<string>, title string>",
	} {
		typ, err := serializer.ParseType(words, classes)
		require.NoError(t, err)
		classes[typ.JavaClass] = typ
	}
	return classes
}
