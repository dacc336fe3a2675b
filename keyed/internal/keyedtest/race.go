package keyedtest

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
)

// testConcurrentReaders lets goroutines read views and write snapshots while the task
// goes on; each must see the state as it was. It is meant for the race detector.
func (o Opener) testConcurrentReaders(t *testing.T) {
	const keys = 500
	b := o.Open(t, keyed.Config[string]{MaxParallelism: 4})
	sums := keyed.Value(b, "sum", serializer.Int64)
	lists := keyed.List(b, "list", serializer.Int64)
	maps := keyed.Map(b, "map", serializer.Int64, serializer.Int64)
	timers := keyed.Timers(b, "user-timers", serializer.VoidNS).Event
	names := make([]keyed.Key[string], keys)
	for i := range names {
		names[i] = b.Key(string(rune('a'+i%26)) + string(rune('A'+i/26)))
	}
	// Round r sets each value to r, so that a view has one value everywhere.
	round := func(r int64) {
		for i, k := range names {
			require.NoError(t, sums.Set(k, r))
			require.NoError(t, lists.Update(k, []int64{r}))
			require.NoError(t, lists.Add(k, r))
			require.NoError(t, maps.Clear(k))
			n := int64(3)
			if i%50 == 0 {
				n = 100 // a tree
			}
			for u := range n {
				require.NoError(t, maps.Put(k, u, r))
			}
			_, err := timers.Delete(k, struct{}{}, r-1)
			require.NoError(t, err)
			_, err = timers.Register(k, struct{}{}, r)
			require.NoError(t, err)
		}
	}
	round(0)
	var wg sync.WaitGroup
	for r := range int64(20) {
		v, err := b.View()
		require.NoError(t, err)
		snap, err := b.Snapshot(t.Context(), r)
		require.NoError(t, err)
		wg.Go(func() {
			defer v.Close()
			n := 0
			err := sums.AllAt(v, func(_ string, x int64) bool { n++; return x == r })
			if err != nil || n != keys {
				t.Errorf("round %d: value: %d, %v", r, n, err)
			}
			for _, k := range names[:50] {
				x, ok, err := sums.GetAt(v, k)
				l, err2 := lists.GetAt(v, k)
				y, ok2, err3 := maps.GetAt(v, k, 2)
				if x != r || !ok || err != nil || len(l) != 2 || l[0] != r || l[1] != r || err2 != nil || y != r || !ok2 || err3 != nil {
					t.Errorf("round %d: %v %v %v, %v %v, %v %v %v", r, x, ok, err, l, err2, y, ok2, err3)
				}
			}
			if err := timers.AllAt(v, func(_ string, _ struct{}, at int64) bool { return at == r || t.Failed() }); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			defer snap.Release()
			for _, f := range []keyed.Format{keyed.FormatCheckpoint, keyed.FormatCanonical} {
				if _, err := snap.Write(context.Background(), io.Discard, &keyed.WriteOptions{Format: f}); err != nil {
					t.Error(err)
				}
			}
		})
		round(r + 1)
	}
	wg.Wait()
	round(100)
	if old, ok := b.(interface{ OldVersions() int }); ok {
		require.Zero(t, old.OldVersions(), "old versions go with the views that need them")
	}
}

// testCloseWhileWriting ends a snapshot that is being written.
func (o Opener) testCloseWhileWriting(t *testing.T) {
	b := o.Open(t, keyed.Config[string]{})
	register(b).fill(t, b)
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	begun, goOn := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := snap.Write(context.Background(), &blocking{begun, goOn}, nil)
		done <- err
	}()
	<-begun
	closed := make(chan error)
	go func() { closed <- b.Close() }()
	close(goOn)
	<-done // ErrClosed, or done: it may have been at its end
	require.NoError(t, <-closed)
}

type blocking struct{ begun, goOn chan struct{} }

func (w *blocking) Write(p []byte) (int, error) {
	select {
	case <-w.begun:
	default:
		close(w.begun)
	}
	<-w.goOn
	return len(p), nil
}
