package job

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// keyedBackends are the backends of an operator's subtasks.
type keyedBackends[K comparable] struct {
	key      serializer.Serializer[K]
	keys     *keyed.Keys[K]
	subtasks []*keyedSubtask[K]
}

type keyedSubtask[K comparable] struct {
	b      keyed.Backend[K]
	states map[string]state[K]
}

func newKeyed[K comparable](o *operator, key serializer.Serializer[K], declare declare[K]) (keyedOperator, error) {
	c := keyed.Config[K]{Key: key, MaxParallelism: int(o.of.MaxParallelism), HashRules: o.opts.Hash}
	all := &keyedBackends[K]{key: key}
	var err error
	if all.keys, err = keyed.NewKeys(c); err != nil {
		return nil, err
	}
	for i := range o.parallelism {
		first, last := serializer.KeyGroupRange(i, o.parallelism, c.MaxParallelism)
		c.KeyGroups = metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)}
		b, err := openBackend(o.opts, filepath.Join(o.id.String(), strconv.Itoa(i)), c)
		if err != nil {
			return nil, err
		}
		t := &keyedSubtask[K]{b: b, states: map[string]state[K]{}}
		all.subtasks = append(all.subtasks, t)
		for _, s := range o.states {
			if s.Kind.Keyed() {
				if err := t.declare(s, declare); err != nil {
					return nil, fmt.Errorf("state %s: %w", s.Name, err)
				}
			}
		}
		if err := b.Err(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openBackend makes the backend of one subtask. One on disk gets a folder of that name.
func openBackend[K comparable](o *Options, name string, c keyed.Config[K]) (keyed.Backend[K], error) {
	switch o.Backend {
	case Heap, "":
		return heap.Open(c)
	case LSM:
		return lsm.Open(filepath.Join(o.Dir, name), c, nil)
	}
	return nil, fmt.Errorf("no backend %q", o.Backend)
}

func (t *keyedSubtask[K]) declare(s *snapshot.State, declare declare[K]) error {
	if s.Kind == snapshot.StateTimer {
		switch s.Namespace.Kind {
		case serializer.KindVoidNamespace:
			declareTimers(spec[K, struct{}]{b: t.b, s: s, ns: serializer.VoidNS}, t.states)
		default:
			return fmt.Errorf("no namespaces of type %s", s.Namespace)
		}
		return nil
	}
	var opts []keyed.Option
	if s.TTL {
		opts = append(opts, keyed.TTL(lifetime))
	}
	st := declare(t.b, s, opts)
	if st == nil {
		return fmt.Errorf("no %s state with namespaces of type %s", s.Kind, s.Namespace)
	}
	t.states[s.Name] = st
	return nil
}

// of is the subtask of a key.
func (all *keyedBackends[K]) of(key K) (*keyedSubtask[K], keyed.Key[K]) {
	group := all.keys.Make(key).Group()
	t := all.subtasks[serializer.SubtaskOf(group, len(all.subtasks), all.keys.MaxParallelism())]
	return t, t.b.Key(key)
}

func (all *keyedBackends[K]) put(r *snapshot.StateRow) error {
	key, err := whole(all.key, r.Key)
	if err != nil {
		return err
	}
	t, k := all.of(key)
	return t.states[r.State.Name].put(k, r)
}

func (all *keyedBackends[K]) restore(ctx context.Context, from keyed.RestoreSource) error {
	for i, t := range all.subtasks {
		if err := t.b.Restore(ctx, from); err != nil {
			return fmt.Errorf("subtask %d: %w", i, err)
		}
	}
	return nil
}

func (all *keyedBackends[K]) copyTo(other keyedOperator) error {
	to := other.(*keyedBackends[K])
	for _, t := range all.subtasks {
		for name, s := range t.states {
			err := s.copyTo(func(key K) (keyed.Key[K], state[K]) {
				t, k := to.of(key)
				return k, t.states[name]
			})
			if err != nil {
				return fmt.Errorf("state %s: %w", name, err)
			}
		}
	}
	return nil
}

func (all *keyedBackends[K]) write(ctx context.Context, to *snapshot.Writer, subtask int, id int64, o *keyed.UploadOptions) (metadata.KeyedHandle, error) {
	s, err := all.subtasks[subtask].b.Snapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	return s.Upload(ctx, to, o)
}

func (all *keyedBackends[K]) close() error {
	var first error
	for _, t := range all.subtasks {
		if err := t.b.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
