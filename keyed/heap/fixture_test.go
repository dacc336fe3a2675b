package heap_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

var stores atomic.Int64

// failer is a testing.TB or a rapid.T.
type failer interface {
	require.TestingT
	Helper()
}

// storage is where a test keeps its snapshots.
type storage struct {
	pool  *blobstore.Pool
	root  blobstore.Location
	store blobstore.Store
	n     int64
}

func newStorage(t failer) *storage {
	root, err := blobstore.Parse(fmt.Sprintf("mem://keyed-heap-%d", stores.Add(1)))
	require.NoError(t, err)
	s := &storage{pool: blobstore.NewPool(nil, nil), root: root}
	s.store, _, err = s.pool.Resolve(context.Background(), root)
	require.NoError(t, err)
	return s
}

// begin gives the next checkpoint's folder.
func (s *storage) begin() string {
	s.n++
	return fmt.Sprintf("chk-%d", s.n)
}

// upload writes one subtask's part of a checkpoint.
func (s *storage) upload(dir string, subtask int, snap keyed.Snapshot, o keyed.WriteOptions, inline int) (*metadata.KeyGroupsHandle, error) {
	defer snap.Release()
	return keyed.Upload(context.Background(), snap, s.store, fmt.Sprintf("%s/op-%d", dir, subtask), &keyed.UploadOptions{WriteOptions: o, Inline: inline})
}

// commit writes the metadata of a checkpoint and opens it.
func (s *storage) commit(t failer, dir string, maxParallelism int, handles []*metadata.KeyGroupsHandle) *snapshot.Snapshot {
	t.Helper()
	return s.commitAs(t, dir, metadata.OperatorState{ID: metadata.OperatorID{1}, MaxParallelism: int32(maxParallelism)}, false, handles)
}

// commitAs is commit with the name and max parallelism of an operator; newer says that
// Flink 2 wrote its Kryo values.
func (s *storage) commitAs(t failer, dir string, as metadata.OperatorState, newer bool, handles []*metadata.KeyGroupsHandle) *snapshot.Snapshot {
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
	var b bytes.Buffer
	require.NoError(t, metadata.Encode(&b, &c))
	ctx := context.Background()
	w, err := s.store.Create(ctx, dir+"/_metadata", nil)
	require.NoError(t, err)
	_, err = w.Write(b.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.Commit())
	sn, err := snapshot.Open(ctx, s.pool, s.root.Join(dir), nil)
	require.NoError(t, err)
	return sn
}

// save is a checkpoint of some subtasks, all at once.
func save[K comparable](t failer, s *storage, o keyed.WriteOptions, backends ...keyed.Backend[K]) *snapshot.Snapshot {
	t.Helper()
	dir := s.begin()
	var handles []*metadata.KeyGroupsHandle
	for i, b := range backends {
		snap, err := b.Snapshot(context.Background(), s.n)
		require.NoError(t, err)
		h, err := s.upload(dir, i, snap, o, 0)
		require.NoError(t, err)
		handles = append(handles, h)
	}
	return s.commit(t, dir, backends[0].MaxParallelism(), handles)
}
