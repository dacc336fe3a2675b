package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// put writes an object into a store.
func put(ctx context.Context, s blobstore.Store, name string, data []byte) {
	w, err := s.Create(ctx, name, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		log.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		log.Fatal(err)
	}
}

func Example() {
	ctx := context.Background()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()

	// A checkpoint of one operator with 20 bytes of state in a file of its own.
	root, err := blobstore.Parse("mem://example/checkpoints")
	if err != nil {
		log.Fatal(err)
	}
	store, base, err := pool.Resolve(ctx, root)
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	err = metadata.Encode(&b, &metadata.Checkpoint{Version: 3, ID: 7, Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("counter"), Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: &metadata.KeyGroupsHandle{
			Form: metadata.TagSavepointKeyGroups, Range: metadata.KeyGroupRange{Start: 0, Count: 2}, Offsets: []int64{1, 11},
			Delegate: &metadata.RelativeFileHandle{Path: "state", Size: 20},
		}}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	put(ctx, store, base+"/7f3c9f0e5a8d4b6c9a1e2d3c4b5a6978/chk-7/state", make([]byte, 20))
	put(ctx, store, base+"/7f3c9f0e5a8d4b6c9a1e2d3c4b5a6978/chk-7/_metadata", b.Bytes())

	for ref, err := range snapshot.Find(ctx, pool, root, nil) {
		if err != nil {
			log.Fatal(err)
		}
		s, err := snapshot.Open(ctx, pool, ref.Location, nil)
		if err != nil {
			log.Fatal(err)
		}
		report, err := snapshot.Check(ctx, s, nil)
		if err != nil {
			log.Fatal(err)
		}
		in := snapshot.Inspect(s, &snapshot.InspectOptions{UIDs: []string{"counter"}})
		op := in.Operators[0]
		fmt.Printf("%s: %s, usable: %t, movable: %t\n", s.Name, in.Kind, report.Usable, in.Movable.Movable)
		fmt.Printf("operator %s: %d bytes, parallelism %d of at most %d\n", op.UID, op.Bytes, op.Parallelism, op.MaxParallelism)
	}
	// Output:
	// chk-7: savepoint canonical, usable: true, movable: true
	// operator counter: 20 bytes, parallelism 1 of at most 128
}
