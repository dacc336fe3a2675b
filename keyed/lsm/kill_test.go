package lsm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/internal/killtest"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// TestKill kills, at random moments, a process whose subtasks work on real files and take
// checkpoints into a folder. Each next process finds the last complete checkpoint, whole, and
// goes on from there at another parallelism, with what the killed one left on the local
// disk. TIDEMARK_KILLS is how often; 5 by default.
func TestKill(t *testing.T) {
	killtest.Kill(t, "TestKilledChild", t.TempDir(), 5, 150*time.Millisecond)
}

const killKeys = 2000

// killed is a subtask of the killed process.
type killed struct {
	*lsm.Backend[int64]
	value *keyed.ValueState[int64, int64]
	list  *keyed.ListState[int64, int64]
	m     *keyed.MapState[int64, int64, int64]
	timer *keyed.TimerQueue[int64, struct{}]
}

// killStep are the keys that a step changes, always the same ones.
func killStep(n int64, f func(k int64)) {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for range 200 {
		f(r.Int64N(killKeys))
	}
}

func TestKilledChild(t *testing.T) {
	dir := killtest.Dir(t)
	fmt.Println("started")
	ctx := t.Context()
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 2 << 20})
	pool := blobstore.NewPool(nil, nil)
	store := filepath.Join(dir, "store")
	root, err := blobstore.Parse("file://" + store)
	require.NoError(t, err)

	// The last complete checkpoint is that of the highest number which has its metadata.
	last := int64(0)
	chks, err := filepath.Glob(filepath.Join(store, "chk-*", snapshot.MetadataName))
	require.NoError(t, err)
	for _, c := range chks {
		n, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(filepath.Dir(c)), "chk-"), 10, 64)
		require.NoError(t, err)
		last = max(last, n)
	}
	layout := func(id int64) snapshot.Layout {
		return snapshot.Layout{Dir: root.Join(fmt.Sprintf("chk-%d", id)), Shared: root.Join("shared"), TaskOwned: root.Join("taskowned")}
	}
	var from *snapshot.Snapshot
	if last > 0 {
		from, err = snapshot.Open(ctx, pool, layout(last).Dir, nil)
		require.NoError(t, err)
	}
	earlier, err := filepath.Glob(filepath.Join(dir, "work-*", "*", "chk-*"))
	require.NoError(t, err)
	if rand.IntN(3) == 0 {
		earlier = nil
	}
	work := filepath.Join(dir, "work-"+uuid.NewString())
	parallelism := 1 + int(last)%3
	var tasks []*killed
	for i := range parallelism {
		first, end := serializer.KeyGroupRange(i, parallelism, 128)
		b, err := lsm.Open(filepath.Join(work, strconv.Itoa(i)), keyed.Config[int64]{
			Key: serializer.Int64, KeyGroups: metadata.KeyGroupRange{Start: int32(first), Count: int32(end - first + 1)},
		}, &lsm.Options{Process: p, Database: pebbledb.Options{KeepLocal: true, Local: earlier, MemTableBytes: 256 << 10}})
		require.NoError(t, err)
		if from != nil {
			require.NoError(t, b.Restore(ctx, keyed.RestoreSource{Snapshot: from}))
		}
		s := &killed{
			b, keyed.Value(b, "value", serializer.Int64), keyed.List(b, "list", serializer.Int64),
			keyed.Map(b, "map", serializer.Int64, serializer.Int64), keyed.Timers(b, "timers", serializer.VoidNS).Event,
		}
		require.NoError(t, b.Err())
		tasks = append(tasks, s)
	}
	at := func(key int64) (keyed.Key[int64], *killed) {
		k := tasks[0].Key(key)
		return k, tasks[serializer.SubtaskOf(k.Group(), parallelism, 128)]
	}
	want := map[int64][]int64{}
	for n := int64(1); n <= last; n++ {
		killStep(n, func(k int64) { want[k] = append(want[k], n) })
	}
	timers := 0
	for key := range int64(killKeys) {
		k, s := at(key)
		steps := want[key]
		list, err := s.list.Get(k)
		require.NoError(t, err)
		require.Equal(t, steps, list, "key %d at step %d", key, last)
		v, has, err := s.value.Get(k)
		require.NoError(t, err)
		require.Equal(t, len(steps) > 0, has)
		entries := map[int64]int64{}
		require.NoError(t, s.m.Entries(k, func(u, v int64) bool { entries[u] = v; return true }))
		expected := map[int64]int64{}
		for _, n := range steps {
			expected[n%5] = n
		}
		require.Equal(t, expected, entries, "key %d at step %d", key, last)
		if has {
			timers++
			require.Equal(t, steps[len(steps)-1], v)
		}
	}
	count := 0
	for _, s := range tasks {
		n, err := s.timer.Len()
		require.NoError(t, err)
		count += n
	}
	require.Equal(t, timers, count)
	fmt.Println("restored", last)
	// What killed processes left goes, as with gc.
	if works, err := filepath.Glob(filepath.Join(dir, "work-*")); err == nil {
		for _, w := range works {
			if w != work {
				require.NoError(t, os.RemoveAll(w))
			}
		}
	}
	for n := last + 1; ; n++ {
		killStep(n, func(key int64) {
			k, s := at(key)
			old, has, err := s.value.Get(k)
			require.NoError(t, err)
			require.NoError(t, s.value.Set(k, n))
			require.NoError(t, s.list.Add(k, n))
			require.NoError(t, s.m.Put(k, n%5, n))
			if has {
				_, err = s.timer.Delete(k, struct{}{}, old)
				require.NoError(t, err)
			}
			_, err = s.timer.Register(k, struct{}{}, n)
			require.NoError(t, err)
		})
		// Some are savepoints, which take the place of no checkpoint.
		o := keyed.UploadOptions{Full: n%7 == 0}
		if n%5 == 0 {
			o.Format = keyed.FormatCanonical
		}
		w, err := snapshot.NewWriter(ctx, pool, layout(n), &snapshot.WriterOptions{MemoryThreshold: -1, Merge: &incremental.FileMerging{}})
		require.NoError(t, err)
		op := metadata.OperatorState{ID: metadata.OperatorID{1}, Parallelism: int32(parallelism), MaxParallelism: 128}
		for i, s := range tasks {
			snap, err := s.Snapshot(ctx, n)
			require.NoError(t, err)
			h, err := snap.Upload(ctx, w, &o)
			require.NoError(t, err)
			snap.Release()
			op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
		}
		require.NoError(t, w.Commit(ctx, &metadata.Checkpoint{Version: 4, ID: n, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{op}}))
		fmt.Println("committed", n)
		for _, s := range tasks {
			s.Confirmed(n)
		}
		if o.Full || o.Format == keyed.FormatCanonical {
			continue
		}
		// Nothing stays but what this checkpoint needs.
		sn, err := snapshot.Open(ctx, pool, layout(n).Dir, nil)
		require.NoError(t, err)
		needed := map[string]bool{filepath.Join(store, fmt.Sprintf("chk-%d", n), snapshot.MetadataName): true}
		for f := range snapshot.Files(sn) {
			needed["/"+strings.TrimPrefix(f.Location.Path, "/")] = true
		}
		for id := range n {
			if err := os.Remove(filepath.Join(store, fmt.Sprintf("chk-%d", id), snapshot.MetadataName)); err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
		}
		require.NoError(t, filepath.WalkDir(store, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || needed[path] {
				return err
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		}))
	}
}
