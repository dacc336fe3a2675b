package lsm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

var errUsed = errors.New("the backend has been used already, or views or snapshots are open")

// Restore implements keyed.Backend. Checkpoints of this backend are opened where they lie,
// whatever their size; what they have is fetched behind the running task. Rows of other
// snapshots are copied. It comes before the first use of a state. After an error the
// backend is of no more use.
func (b *Backend[K]) Restore(ctx context.Context, from ...keyed.RestoreSource) error {
	err := b.restore(ctx, from)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("keyed: the restore failed: %w", err)
	}
	if err != nil {
		return fmt.Errorf("keyed: restore: %w", err)
	}
	return nil
}

func (b *Backend[K]) restore(ctx context.Context, from []keyed.RestoreSource) error {
	if err := b.failure(); err != nil {
		return err
	}
	if b.err != nil {
		return b.err
	}
	if !b.fresh || b.env.Used > 0 || b.views.Count() > 0 {
		return errUsed
	}
	start := time.Now()
	var sources []*source
	for i := range from {
		s, err := b.inspect(ctx, &from[i])
		if err != nil {
			return err
		}
		if s != nil {
			sources = append(sources, s)
		}
	}
	rows := int64(0)
	opened := false
	if len(sources) == 1 && sources[0].tables != nil {
		var err error
		if opened, err = b.openTables(ctx, sources[0]); err != nil {
			return err
		}
	}
	for _, s := range sources {
		if opened {
			break
		}
		copyAll := b.copyRows
		if s.tables != nil {
			copyAll = b.copyTables
		}
		n, err := copyAll(ctx, s)
		if err != nil {
			return err
		}
		rows += n
	}
	for _, s := range b.states {
		if s.st != nil {
			s.st.Reset()
		}
	}
	b.rows.renew()
	b.metrics.Add(keyed.MetricRestoreRows, rows)
	b.metrics.Time(keyed.MetricRestore, time.Since(start))
	return nil
}

// source is a snapshot of the operator that is restored.
type source struct {
	keyed.RestoreSource
	opts   *snapshot.ScanOptions
	op     *snapshot.StateOperator
	states []*snapshot.State
	decode *serializer.DecodeOptions
	tables []tables // nil unless all of the state lies in tables of Pebble's
}

// inspect finds out what there is to restore; nil if there is nothing.
func (b *Backend[K]) inspect(ctx context.Context, src *keyed.RestoreSource) (*source, error) {
	groups := b.KeyGroups()
	s := &source{RestoreSource: *src, opts: &snapshot.ScanOptions{
		Operator: src.Operator, KeyGroups: &groups, Unordered: true, Classes: src.Classes,
		State: func(s *snapshot.State) bool { return s.Kind.Keyed() },
	}}
	all, err := b.statesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	classes := maps.Clone(src.Classes)
	if classes == nil {
		classes = serializer.Classes{}
	}
	for _, st := range all {
		for _, t := range []*serializer.Type{st.Key, st.Namespace, st.UserKey, st.Value} {
			if t != nil {
				classes.Learn(t)
			}
		}
	}
	s.decode = &serializer.DecodeOptions{Kryo: serializer.KryoOf(src.Snapshot.Checkpoint.Version), Classes: classes}
	for _, st := range all {
		if !st.Kind.Keyed() {
			continue
		}
		if s.op != nil && s.op.Position != st.Operator.Position {
			return nil, fmt.Errorf("%s and %s both have keyed state: select one of them", operatorName(s.op), operatorName(st.Operator))
		}
		s.op = st.Operator
		s.states = append(s.states, st)
	}
	if s.op == nil {
		return nil, nil
	}
	if int(s.op.MaxParallelism) != b.MaxParallelism() {
		return nil, fmt.Errorf("%s has max parallelism %d, this backend %d", operatorName(s.op), s.op.MaxParallelism, b.MaxParallelism())
	}
	if s.tables == nil {
		for _, st := range s.states {
			if err := b.expect(st); err != nil {
				return nil, fmt.Errorf("state %s: %w", st.Name, err)
			}
		}
	}
	return s, nil
}

func operatorName(o *snapshot.StateOperator) string {
	switch {
	case o.UID != "":
		return "operator " + o.UID
	case o.Name != "":
		return "operator " + o.Name
	}
	return "operator " + o.ID
}

// expect prepares for the rows of a restored state.
func (b *Backend[K]) expect(s *snapshot.State) error {
	if s.Variants > 0 {
		return fmt.Errorf("subtasks declare it with different types: %w", keyed.ErrIncompatible)
	}
	i, ok := b.byName[s.Name]
	if !ok {
		m, err := keyed.RestoredMeta(s)
		if err != nil {
			return err
		}
		b.byName[s.Name] = len(b.states)
		b.states = append(b.states, state{meta: m})
		return nil
	}
	if err := keyed.SameKind(s, &b.states[i].meta); err != nil {
		return err
	}
	if st := b.states[i].st; st != nil {
		_, err := st.Convert(oldTypes(s)) // is it compatible?
		return err
	}
	_, first := typesOf(&b.states[i].meta, s.Key)
	return keyed.SameTypes(first, s)
}

// oldTypes are the types of a restored state's rows.
func oldTypes(s *snapshot.State) *engine.OldTypes {
	o := &engine.OldTypes{Key: s.Key, Namespace: s.Namespace, UserKey: s.UserKey, Value: s.Value}
	if s.Kind == snapshot.StateList && o.Value != nil && o.Value.Kind == serializer.KindList {
		o.Value = o.Value.Elem()
	}
	return o
}

// typesOf are those of a state that was restored and not registered.
func typesOf(m *serializer.StateMeta, key *serializer.Type) (*engine.OldTypes, *snapshot.State) {
	o := &engine.OldTypes{Key: key, Namespace: m.Namespace(), Value: m.Value()}
	s := &snapshot.State{Name: m.Name, Kind: keyed.KindOf(m)}
	switch s.Kind {
	case snapshot.StateList:
		if o.Value != nil && o.Value.Kind == serializer.KindList {
			o.Value = o.Value.Elem()
		}
	case snapshot.StateMap:
		o.UserKey, o.Value = m.MapTypes()
	case snapshot.StateTimer:
		if t := o.Value; t != nil && len(t.Fields) == 3 {
			o.Key, o.Namespace = t.Fields[1].Type, t.Fields[2].Type
		}
		o.Value = nil
	}
	s.Key, s.Namespace, s.UserKey, s.Value = o.Key, o.Namespace, o.UserKey, o.Value
	return o, s
}

// adopt gives a restored state to its handle.
func (b *Backend[K]) adopt(i int, st engine.BytesState) error {
	types, old := typesOf(&b.states[i].meta, nil)
	if err := keyed.SameKind(old, st.Meta()); err != nil {
		return err
	}
	convert, err := st.Convert(types)
	if err != nil {
		return err
	}
	if convert != nil {
		b.outdate(uint16(i))
		if err := b.migrate(uint16(i), old, convert); err != nil {
			return err
		}
	}
	st.Reset()
	return nil
}

// outdate tells open views that a state gets another type.
func (b *Backend[K]) outdate(id uint16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.open {
		if v, ok := v.(*openView[K]); ok {
			v.rows.outdate(id)
		}
	}
}

// readMeta reads the meta information of a handle.
func readMeta(ctx context.Context, b []byte) (*serializer.KeyedBackendMeta, error) {
	return serializer.ReadKeyedBackendMeta(javaio.NewReader(b))
}
