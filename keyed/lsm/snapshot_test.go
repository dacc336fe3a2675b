package lsm

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

type before struct {
	_  struct{} `flink:"pojo=com.example.Order"`
	ID int64    `flink:"id"`
}

type after struct {
	_     struct{} `flink:"pojo=com.example.Order"`
	Count int64    `flink:"count"`
	ID    int64    `flink:"id"`
}

// opener opens backends until the end of a test.
func opener(t *testing.T) func() *Backend[string] {
	p := NewProcess(&ProcessOptions{MemoryBytes: 8 << 20})
	t.Cleanup(p.Close)
	return func() *Backend[string] {
		b, err := Open(t.TempDir(), keyed.Config[string]{Key: serializer.String}, &Options{Process: p})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b
	}
}

// finisher gives a function that writes a snapshot as a whole checkpoint of a folder, and
// opens it.
func finisher(t *testing.T) func(b *Backend[string], snap keyed.Snapshot, dir string) *snapshot.Snapshot {
	root, err := blobstore.Parse("mem://lsm/job")
	require.NoError(t, err)
	store := blobstore.NewMem()
	pool := blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store { return store })
	return func(b *Backend[string], snap keyed.Snapshot, dir string) *snapshot.Snapshot {
		w, err := snapshot.NewWriter(t.Context(), pool, snapshot.Layout{Dir: root.Join(dir), Shared: root.Join("shared"), TaskOwned: root.Join("taskowned")}, nil)
		require.NoError(t, err)
		h, err := snap.Upload(t.Context(), w, nil)
		require.NoError(t, err)
		snap.Release()
		require.NoError(t, w.Commit(t.Context(), &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{
			{ID: metadata.OperatorID{1}, Parallelism: 1, MaxParallelism: int32(b.MaxParallelism()), Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}}},
		}}))
		sn, err := snapshot.Open(t.Context(), pool, w.Layout().Dir, nil)
		require.NoError(t, err)
		return sn
	}
}

// TestSnapshotBeforeMigration takes a snapshot and then registers a restored state with
// a new type, before anything of the snapshot is in the database: the snapshot says that
// its rows are of the old type, and they are. A view of before is refused.
func TestSnapshotBeforeMigration(t *testing.T) {
	finish := finisher(t)
	open := opener(t)
	b := open()
	require.NoError(t, keyed.Value(b, "v", serializer.MustOf[before]()).Set(b.Key("a"), before{ID: 5}))
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	first := finish(b, snap, "chk-1")

	b = open()
	require.NoError(t, b.Restore(context.Background(), keyed.RestoreSource{Snapshot: first}))
	view, err := b.View()
	require.NoError(t, err)
	defer view.Close()
	d := b.drains
	d.mu.Lock()
	d.running = true // nobody begins to write
	d.mu.Unlock()
	snap, err = b.Snapshot(t.Context(), 2)
	require.NoError(t, err)
	time.AfterFunc(50*time.Millisecond, d.run)
	v := keyed.Value(b, "v", serializer.MustOf[after]())
	require.NoError(t, b.Err())
	x, _, err := v.Get(b.Key("a"))
	require.NoError(t, err)
	require.Equal(t, after{ID: 5}, x)
	// The view has rows of the old type.
	_, _, err = v.GetAt(view, b.Key("b"))
	require.ErrorIs(t, err, keyed.ErrIncompatible)
	require.ErrorIs(t, v.AllAt(view, func(string, after) bool { return true }), keyed.ErrIncompatible)
	view.Close()
	second := finish(b, snap, "chk-2")

	b = open()
	old := keyed.Value(b, "v", serializer.MustOf[before]())
	require.NoError(t, b.Restore(context.Background(), keyed.RestoreSource{Snapshot: second}))
	y, ok, err := old.Get(b.Key("a"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, before{ID: 5}, y)
}

// TestNotifiedDuringRestore tells a backend of checkpoints while it is restored: late
// notifications for the task before it may come then.
func TestNotifiedDuringRestore(t *testing.T) {
	open := opener(t)
	b := open()
	v := keyed.Value(b, "v", serializer.Int64)
	require.NoError(t, v.Set(b.Key("a"), 1))
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	sn := finisher(t)(b, snap, "chk-1")
	b = open()
	v = keyed.Value(b, "v", serializer.Int64)
	var notifiers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	notifiers.Go(func() {
		for id := int64(1); ctx.Err() == nil; id++ {
			b.Confirmed(id)
			b.Aborted(id)
		}
	})
	err = b.Restore(t.Context(), keyed.RestoreSource{Snapshot: sn})
	stop()
	notifiers.Wait()
	require.NoError(t, err)
	x, ok, err := v.Get(b.Key("a"))
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 1, x)
}

// TestSnapshotTwice refuses a number that is in use, and works on.
func TestSnapshotTwice(t *testing.T) {
	b := opener(t)()
	v := keyed.Value(b, "v", serializer.Int64)
	require.NoError(t, v.Set(b.Key("a"), 1))
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	_, err = b.Snapshot(t.Context(), 1)
	require.ErrorContains(t, err, "snapshot 1: one of that number is not released yet")
	require.NoError(t, v.Set(b.Key("a"), 2))
	require.NoError(t, b.wait())
	snap.Release()
	snap, err = b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	snap.Release()
	require.NoError(t, b.wait())
}

// ending is a serializer that lets something happen when it is first used.
type ending struct {
	serializer.Serializer[string]
	once *sync.Once
	end  func()
}

func (s ending) Append(dst []byte, v string) []byte {
	s.once.Do(s.end)
	return s.Serializer.Append(dst, v)
}

// TestCloseWhileDraining: a backend that is closed while a checkpoint is being written
// is no failed database, which would not use a local copy again.
func TestCloseWhileDraining(t *testing.T) {
	b := opener(t)()
	v := keyed.Value(b, "v", ending{serializer.String, new(sync.Once), b.drains.end})
	for i := range 8 { // of several batches
		require.NoError(t, v.Set(b.Key(string(rune('a'+i))), strings.Repeat("x", batchBytes)))
	}
	snap, err := b.Snapshot(t.Context(), 1)
	require.NoError(t, err)
	require.ErrorIs(t, b.wait(), keyed.ErrClosed)
	snap.Release()
	require.ErrorIs(t, b.db.Err(), pebbledb.ErrClosed)
}
