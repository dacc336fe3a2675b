package lsm_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Count visits, take an incremental checkpoint, and go on from it in another folder.
func Example() {
	ctx := context.Background()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, _ := blobstore.Parse("mem://lsm-example/checkpoints")
	dir, _ := os.MkdirTemp("", "state")
	defer os.RemoveAll(dir)

	process := lsm.NewProcess(nil) // the memory budget of all backends: 256 MiB
	defer process.Close()
	options := &lsm.Options{Process: process}

	config := keyed.Config[string]{Key: serializer.String, MaxParallelism: 128}
	backend, _ := lsm.Open(dir+"/a", config, options)
	visits := keyed.Value(backend, "visits", serializer.Int64)
	for _, user := range []string{"alice", "bob", "alice"} {
		k := backend.Key(user)
		n, _, _ := visits.Get(k)
		_ = visits.Set(k, n+1)
	}

	snap, _ := backend.Snapshot(ctx, 1) // the pause of the task
	layout, _ := snapshot.CheckpointLayout(root, snapshot.NewJobID(), 1)
	w, _ := snapshot.NewWriter(ctx, pool, layout, nil)
	handle, _ := snap.Upload(ctx, w, nil) // beside the running task
	snap.Release()
	_ = w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("visits"), Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: handle}},
	}}})
	backend.Confirmed(1) // the next one stores only what is new
	_ = backend.Close()

	checkpoint, _ := snapshot.Open(ctx, pool, layout.Dir, nil)
	backend, _ = lsm.Open(dir+"/b", config, options)
	defer backend.Close()
	visits = keyed.Value(backend, "visits", serializer.Int64)
	if err := backend.Restore(ctx, keyed.RestoreSource{Snapshot: checkpoint}); err != nil {
		fmt.Println(err)
	}
	n, _, err := visits.Get(backend.Key("alice"))
	fmt.Println("alice:", n, err)
	// Output: alice: 2 <nil>
}
