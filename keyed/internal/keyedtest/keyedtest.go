// Package keyedtest is what all keyed backends must do, as tests that each of them runs.
package keyedtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	merging "github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Backend is a backend as tests see it.
type Backend[K comparable] interface {
	keyed.Backend[K]
	// Registered tells whether a state is registered, not only restored.
	Registered(name string) bool
	// CleanUp looks at some entries for expired ones.
	CleanUp(n int)
}

// TB is a testing.TB or a rapid.T.
type TB interface {
	require.TestingT
	Helper()
}

// Opener opens the backend that is tested, with a serializer of keys in the Config. The
// tests close it.
type Opener struct {
	String func(t TB, c keyed.Config[string]) (Backend[string], error)
	Int64  func(t TB, c keyed.Config[int64]) (Backend[int64], error)
	// Near opens a backend that will restore a checkpoint with the local copies of backends
	// that have a method Folder; nil if none has.
	Near func(t TB, c keyed.Config[string], folders []string) (Backend[string], error)
	// Incremental: checkpoints are files of the backend's own, which only it reads, and what
	// has expired is only left out of savepoints.
	Incremental bool
}

// Open opens a backend of strings until the end of a test.
func (o Opener) Open(t testing.TB, c keyed.Config[string]) Backend[string] {
	c.Key = serializer.String
	b, err := o.String(t, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// Storage is where a test keeps its snapshots: the folders of one job.
type Storage struct {
	pool *blobstore.Pool
	root blobstore.Location
	n    int64
}

// NewStorage is an empty one in memory, which goes when nobody has it any more.
func NewStorage(t TB) *Storage {
	root, err := blobstore.Parse("mem://keyedtest/job")
	require.NoError(t, err)
	store := blobstore.NewMem()
	return &Storage{pool: blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store { return store }), root: root}
}

// Begin begins the next checkpoint; inline is that of snapshot.WriterOptions.
func (s *Storage) Begin(t TB, inline int) (w *snapshot.Writer, id int64) {
	s.n++
	layout := snapshot.Layout{Dir: s.root.Join(fmt.Sprintf("chk-%d", s.n)), Shared: s.root.Join("shared"), TaskOwned: s.root.Join("taskowned")}
	opts := &snapshot.WriterOptions{MemoryThreshold: inline}
	if s.n%2 == 0 {
		opts.Merge = &merging.FileMerging{}
	}
	w, err := snapshot.NewWriter(context.Background(), s.pool, layout, opts)
	require.NoError(t, err)
	return w, s.n
}

// Commit writes the metadata of a checkpoint and opens it. as has the name and max
// parallelism of its one operator; newer says that Flink 2 wrote its Kryo values.
func (s *Storage) Commit(t TB, w *snapshot.Writer, as metadata.OperatorState, newer bool, handles []metadata.KeyedHandle) *snapshot.Snapshot {
	t.Helper()
	op := metadata.OperatorState{ID: as.ID, Name: as.Name, UID: as.UID, Parallelism: int32(len(handles)), MaxParallelism: as.MaxParallelism}
	c := metadata.Checkpoint{Version: 3, ID: s.n}
	if newer || op.Name != "" || op.UID != "" {
		c.Version = 5
		c.Properties = metadata.RawProperties{0xac, 0xed, 0x00, 0x05, 0x70} // a Java null
	}
	for i, h := range handles {
		if h != nil {
			op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
		}
	}
	c.Operators = []metadata.OperatorState{op}
	ctx := context.Background()
	require.NoError(t, w.Commit(ctx, &c))
	sn, err := snapshot.Open(ctx, s.pool, w.Layout().Dir, nil)
	require.NoError(t, err)
	return sn
}

func operator(maxParallelism int) metadata.OperatorState {
	return metadata.OperatorState{ID: metadata.OperatorID{1}, MaxParallelism: int32(maxParallelism)}
}

// upload writes one subtask's part of a checkpoint.
func upload(ctx context.Context, w *snapshot.Writer, snap keyed.Snapshot, o keyed.UploadOptions) (metadata.KeyedHandle, error) {
	defer snap.Release()
	return snap.Upload(ctx, w, &o)
}

// Save is a checkpoint of some subtasks, all at once, which is confirmed.
func Save[K comparable](t TB, s *Storage, o keyed.WriteOptions, backends ...keyed.Backend[K]) *snapshot.Snapshot {
	t.Helper()
	return saveAs(t, s, keyed.UploadOptions{WriteOptions: o}, backends[0].MaxParallelism(), backends)
}

func saveAs[B interface {
	Snapshot(ctx context.Context, id int64) (keyed.Snapshot, error)
	Confirmed(id int64)
}](t TB, s *Storage, o keyed.UploadOptions, max int, backends []B) *snapshot.Snapshot {
	t.Helper()
	w, id := s.Begin(t, 0)
	var handles []metadata.KeyedHandle
	for _, b := range backends {
		snap, err := b.Snapshot(context.Background(), id)
		require.NoError(t, err)
		h, err := upload(context.Background(), w, snap, o)
		require.NoError(t, err)
		handles = append(handles, h)
	}
	sn := s.Commit(t, w, operator(max), false, handles)
	for _, b := range backends {
		b.Confirmed(id)
	}
	return sn
}
