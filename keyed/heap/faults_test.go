package heap_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// faultStates are states of a backend whose content is one number.
type faultStates struct {
	*heap.Backend[int64]
	value *keyed.ValueState[int64, []byte]
	list  *keyed.ListState[int64, int64]
	m     *keyed.MapState[int64, string, int64]
	timer *keyed.TimerQueue[int64, struct{}]
}

const faultKeys = 300

func newFaultStates(t *testing.T) *faultStates {
	b, err := heap.Open(keyed.Config[int64]{Key: serializer.Int64})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &faultStates{
		b, keyed.Value(b, "value", serializer.Bytes), keyed.List(b, "list", serializer.Int64), keyed.Map(b, "map", serializer.String, serializer.Int64),
		keyed.Timers(b, "user-timers", serializer.VoidNS).Event,
	}
}

func (s *faultStates) fill(t *testing.T, n int64) {
	for k := range int64(faultKeys) {
		key := s.Key(k)
		require.NoError(t, s.value.Set(key, fmt.Appendf(nil, "%0100d", n)))
		require.NoError(t, s.list.Update(key, []int64{n, k}))
		require.NoError(t, s.m.Put(key, "n", n))
		_, err := s.timer.Delete(key, struct{}{}, n-1)
		require.NoError(t, err)
		_, err = s.timer.Register(key, struct{}{}, n)
		require.NoError(t, err)
	}
}

func (s *faultStates) requireContent(t *testing.T, n int64) {
	for k := range int64(faultKeys) {
		key := s.Key(k)
		v, ok, err := s.value.Get(key)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, fmt.Sprintf("%0100d", n), string(v))
		l, err := s.list.Get(key)
		require.NoError(t, err)
		require.Equal(t, []int64{n, k}, l)
		x, _, err := s.m.Get(key, "n")
		require.NoError(t, err)
		require.Equal(t, n, x)
	}
	count, err := s.timer.Len()
	require.NoError(t, err)
	require.Equal(t, faultKeys, count)
	at, _, err := s.timer.Next()
	require.NoError(t, err)
	require.Equal(t, n, at)
}

// TestFaults lets every call of the store fail once, while a second checkpoint is
// written and while it is restored: the first one stays whole, the second is whole or
// not there, the backend goes on, and another try succeeds.
func TestFaults(t *testing.T) {
	for name, format := range map[string]keyed.Format{"checkpoint": keyed.FormatCheckpoint, "canonical": keyed.FormatCanonical} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				root, err := blobstore.Parse(fmt.Sprintf("mem://heap-faults-%s-%d", name, n))
				require.NoError(t, err)
				faults := blobstore.FailAt(n)
				good, bad := blobstore.NewPool(nil, nil), blobstore.NewPool(nil, faults.Wrap)
				b := newFaultStates(t)
				b.fill(t, 1)
				require.NoError(t, b.save(t.Context(), good, root, 1, format))
				b.fill(t, 2)
				err = b.save(t.Context(), bad, root, 2, format)
				if faults.Fired() && err != nil {
					require.ErrorIs(t, err, blobstore.ErrInjected)
				} else {
					require.NoError(t, err)
				}
				require.Zero(t, b.OldVersions())
				b.requireContent(t, 2)
				requireSaved(t, good, root, 1)
				if err != nil {
					_, missing := snapshot.Open(t.Context(), good, root.Join("chk-2"), nil)
					require.Error(t, missing)
					require.NoError(t, b.save(t.Context(), good, root, 2, format))
				}
				requireSaved(t, good, root, 2)

				// Restoring makes more calls of the same store.
				reading := blobstore.FailAt(n)
				bad2 := blobstore.NewPool(nil, reading.Wrap)
				r := newFaultStates(t)
				err = r.load(t.Context(), bad2, root, 2)
				if reading.Fired() && err != nil {
					require.ErrorIs(t, err, blobstore.ErrInjected)
				} else {
					require.NoError(t, err)
					r.requireContent(t, 2)
				}
				for _, p := range []*blobstore.Pool{good, bad, bad2} {
					require.NoError(t, p.Close())
				}
				if !faults.Fired() && !reading.Fired() {
					require.Greater(t, n, 3)
					return
				}
			}
		})
	}
}

func (s *faultStates) save(ctx context.Context, pool *blobstore.Pool, root blobstore.Location, id int64, f keyed.Format) error {
	snap, err := s.Snapshot(ctx, id)
	if err != nil {
		return err
	}
	defer snap.Release()
	dir := root.Join(fmt.Sprintf("chk-%d", id))
	w, err := snapshot.NewWriter(ctx, pool, snapshot.Layout{Dir: dir, Shared: root.Join("shared"), TaskOwned: root.Join("taskowned")}, nil)
	if err != nil {
		return err
	}
	h, err := snap.Upload(ctx, w, &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Format: f}})
	if err != nil {
		return err
	}
	return w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: id, Operators: []metadata.OperatorState{{
		ID: metadata.OperatorID{1}, Parallelism: 1, MaxParallelism: 128, Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}},
	}}})
}

func (s *faultStates) load(ctx context.Context, pool *blobstore.Pool, root blobstore.Location, id int64) error {
	sn, err := snapshot.Open(ctx, pool, root.Join(fmt.Sprintf("chk-%d", id)), nil)
	if err != nil {
		return err
	}
	return s.Restore(ctx, keyed.RestoreSource{Snapshot: sn})
}

func requireSaved(t *testing.T, pool *blobstore.Pool, root blobstore.Location, id int64) {
	r := newFaultStates(t)
	require.NoError(t, r.load(t.Context(), pool, root, id))
	r.requireContent(t, id)
}
