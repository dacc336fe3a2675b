package operatorstate_test

import (
	"context"
	"fmt"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Two subtasks keep offsets of partitions and share rules; a snapshot of them is
// restored by three.
func Example() {
	ctx := context.Background()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, _ := blobstore.Parse("mem://example")
	layout, _ := snapshot.CheckpointLayout(root, "7f3c0a0b0c0d0e0f0102030405060708", 1)
	w, err := snapshot.NewWriter(ctx, pool, layout, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	op := metadata.OperatorState{ID: metadata.OperatorIDFromUID("orders"), Parallelism: 2, MaxParallelism: 128}
	for subtask := range 2 {
		b := operatorstate.New()
		offsets, _ := operatorstate.List(b, "offsets", serializer.Tuple2(serializer.String, serializer.Int64))
		rules, _ := operatorstate.Broadcast(b, "rules", serializer.String, serializer.Int64)
		for k := range 2 {
			offsets.Append(serializer.Pair[string, int64]{F0: fmt.Sprintf("orders-%d", 2*subtask+k), F1: 100})
		}
		rules.Put("limit", 5000)

		snap := b.Snapshot() // at the barrier
		offsets.Set(0, serializer.Pair[string, int64]{F0: "orders-0", F1: 200})
		handle, err := snap.Write(ctx, w, nil) // beside the running task
		snap.Release()
		if err != nil {
			fmt.Println(err)
			return
		}
		op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(subtask), ManagedOperatorFlag: 1, ManagedOperator: handle})
	}
	if err := w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{op}}); err != nil {
		fmt.Println(err)
		return
	}

	s, err := snapshot.Open(ctx, pool, layout.Dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	handles, _ := operatorstate.Handles(&s.Checkpoint.Operators[0])
	dealt, _ := operatorstate.Redistribute(handles, 3)
	for subtask := range 3 {
		b, err := operatorstate.Open(ctx, s, dealt.Parts(subtask))
		if err != nil {
			fmt.Println(err)
			return
		}
		offsets, _ := operatorstate.List(b, "offsets", serializer.Tuple2(serializer.String, serializer.Int64))
		rules, _ := operatorstate.Broadcast(b, "rules", serializer.String, serializer.Int64)
		limit, _ := rules.Get("limit")
		fmt.Printf("subtask %d, limit %d:", subtask, limit)
		for _, o := range offsets.All() {
			fmt.Printf(" %s at %d", o.F0, o.F1)
		}
		fmt.Println()
	}
	// Output:
	// subtask 0, limit 5000: orders-0 at 100 orders-1 at 100
	// subtask 1, limit 5000: orders-2 at 100
	// subtask 2, limit 5000: orders-3 at 100
}

// Registering a state with a serializer that cannot read it names the state.
func ExampleList_incompatible() {
	b := operatorstate.New()
	if _, err := operatorstate.List(b, "offsets", serializer.Int64); err != nil {
		fmt.Println(err)
	}
	_, err := operatorstate.List(b, "offsets", serializer.String)
	fmt.Println(err)
	// Output:
	// state offsets: registered before as SPLIT_DISTRIBUTE of long: incompatible state
}
