package heap

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Restore implements keyed.Backend. It uses all cores. States that are registered
// before are decoded at once; it is cheaper to register first. After an error the
// backend holds a part of the state and is of no more use.
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
	switch {
	case b.closed.Load():
		return keyed.ErrClosed
	case b.err != nil:
		return b.err
	case b.views.Count() > 0:
		return errOpenViews
	}
	start := time.Now()
	var rows atomic.Int64
	for _, src := range from {
		if err := b.restoreOne(ctx, src, &rows); err != nil {
			return err
		}
	}
	for _, s := range b.states {
		s.Loaded()
	}
	b.metrics.Add(keyed.MetricRestoreRows, rows.Load())
	b.metrics.Time(keyed.MetricRestore, time.Since(start))
	return nil
}

func (b *Backend[K]) restoreOne(ctx context.Context, src keyed.RestoreSource, rows *atomic.Int64) error {
	groups := b.KeyGroups()
	opts := &snapshot.ScanOptions{
		Operator: src.Operator, KeyGroups: &groups, Unordered: true, Classes: src.Classes,
		State: func(s *snapshot.State) bool { return s.Kind.Keyed() },
	}
	states, err := snapshot.States(ctx, src.Snapshot, opts)
	if err != nil {
		return err
	}
	classes := maps.Clone(src.Classes)
	if classes == nil {
		classes = serializer.Classes{}
	}
	for _, s := range states {
		for _, t := range []*serializer.Type{s.Key, s.Namespace, s.UserKey, s.Value} {
			if t != nil {
				classes.Learn(t)
			}
		}
	}
	decode := &serializer.DecodeOptions{Kryo: serializer.KryoOf(src.Snapshot.Checkpoint.Version), Classes: classes}
	var op *snapshot.StateOperator
	for _, s := range states {
		if !s.Kind.Keyed() {
			continue
		}
		if op != nil && op.Position != s.Operator.Position {
			return fmt.Errorf("%s and %s both have keyed state: select one of them", operatorName(op), operatorName(s.Operator))
		}
		op = s.Operator
		if err := b.expect(s, decode); err != nil {
			return fmt.Errorf("state %s: %w", s.Name, err)
		}
	}
	if op == nil {
		return nil
	}
	if int(op.MaxParallelism) != b.MaxParallelism() {
		return fmt.Errorf("%s has max parallelism %d, this backend %d", operatorName(op), op.MaxParallelism, b.MaxParallelism())
	}
	return snapshot.Scan(ctx, src.Snapshot, opts, func(int) func(*snapshot.StateRow) error {
		loaders := map[*snapshot.State]engine.Loader{}
		var last *snapshot.State
		var load engine.Loader
		return func(r *snapshot.StateRow) error {
			if r.State != last {
				if load = loaders[r.State]; load == nil {
					var err error
					if load, err = b.states[b.byName[r.State.Name]].Loader(r.State); err != nil {
						return fmt.Errorf("state %s: %w", r.State.Name, err)
					}
					loaders[r.State] = load
				}
				last = r.State
			}
			if n := rows.Add(1); n&1023 == 0 && b.closed.Load() {
				return keyed.ErrClosed
			}
			return load.Load(r)
		}
	})
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
func (b *Backend[K]) expect(s *snapshot.State, decode *serializer.DecodeOptions) error {
	if s.Variants > 0 {
		return fmt.Errorf("subtasks declare it with different types: %w", keyed.ErrIncompatible)
	}
	i, ok := b.byName[s.Name]
	if !ok {
		raw, err := newRawState(s, b.env, decode)
		if err != nil {
			return err
		}
		b.byName[s.Name] = len(b.states)
		b.states = append(b.states, state{State: raw, raw: raw})
		return nil
	}
	if err := keyed.SameKind(s, b.states[i].Meta()); err != nil {
		return err
	}
	_, err := b.states[i].Loader(s) // is it compatible?
	return err
}

// rawState holds a restored state that is not registered, as bytes.
type rawState struct {
	from   *snapshot.State
	meta   serializer.StateMeta
	env    *engine.Env
	elem   *serializer.Type // of a list
	decode *serializer.DecodeOptions
	mu     []sync.Mutex // by key group
	groups [][]rawRow
}

// rawRow is a row with its parts in one allocation.
type rawRow struct {
	key, ns, userKey, value []byte
	timestamp               int64
	form                    snapshot.ValueForm
	null                    bool
}
