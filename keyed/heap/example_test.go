package heap_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Count visits, take a checkpoint that Flink can read, and go on from it.
func Example() {
	ctx := context.Background()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, _ := blobstore.Parse("mem://example/checkpoints")
	job := snapshot.NewJobID()

	backend, _ := heap.Open(keyed.Config[string]{Key: serializer.String, MaxParallelism: 128})
	visits := keyed.Value(backend, "visits", serializer.Int64)

	for _, user := range []string{"alice", "bob", "alice"} {
		k := backend.Key(user) // hash and key group once, used by every state
		n, _, _ := visits.Get(k)
		_ = visits.Set(k, n+1)
	}

	snap, _ := backend.Snapshot(ctx, 1) // the pause of the task
	layout, _ := snapshot.CheckpointLayout(root, job, 1)
	w, _ := snapshot.NewWriter(ctx, pool, layout, nil)
	handle, _ := snap.Upload(ctx, w, nil) // beside the running task
	snap.Release()
	_ = w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("visits"), Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.SubtaskState{{ManagedKeyed: handle}},
	}}})
	backend.Confirmed(1)
	_ = backend.Close()

	// Another process, perhaps with another parallelism.
	checkpoint, _ := snapshot.Open(ctx, pool, layout.Dir, nil)
	backend, _ = heap.Open(keyed.Config[string]{Key: serializer.String, MaxParallelism: 128})
	defer backend.Close()
	visits = keyed.Value(backend, "visits", serializer.Int64)
	if err := backend.Restore(ctx, keyed.RestoreSource{Snapshot: checkpoint}); err != nil {
		fmt.Println(err)
	}
	n, _, err := visits.Get(backend.Key("alice"))
	fmt.Println("alice:", n, err)
	// Output: alice: 2 <nil>
}

// Sessions: a list in a window, merged when two windows become one.
func ExampleBackend_namespaces() {
	b, _ := heap.Open(keyed.Config[string]{Key: serializer.String})
	defer b.Close()
	clicks := keyed.ListIn(b, "clicks", serializer.TimeWindows, serializer.String)

	k := b.Key("alice")
	first, second := serializer.Window{Start: 0, End: 30}, serializer.Window{Start: 20, End: 50}
	_ = clicks.Add(k, first, "home")
	_ = clicks.Add(k, second, "cart")

	session := serializer.Window{Start: 0, End: 50}
	_ = clicks.MergeNamespaces(k, session, []serializer.Window{first, second})
	list, _ := clicks.Get(k, session)
	fmt.Println(list)
	// Output: [home cart]
}

// Timers fire when their owner says how far time has come.
func ExampleBackend_timers() {
	b, _ := heap.Open(keyed.Config[string]{Key: serializer.String})
	defer b.Close()
	timers := keyed.Timers(b, "user-timers", serializer.VoidNS)

	for i, user := range []string{"alice", "bob", "carol"} {
		_, _ = timers.Event.Register(b.Key(user), struct{}{}, int64(1000*i))
	}
	n, _ := timers.Event.Advance(1000, func(t keyed.Timer[string, struct{}]) error {
		fmt.Println(t.Key.Value(), t.At)
		return nil
	})
	fmt.Println(n, "fired")
	// Output:
	// alice 0
	// bob 1000
	// 2 fired
}

// Values that expire, with a clock of one's own.
func ExampleBackend_ttl() {
	clock := &keyed.ManualClock{}
	b, _ := heap.Open(keyed.Config[string]{Key: serializer.String, Clock: clock})
	defer b.Close()
	last := keyed.Map(b, "lastSeen", serializer.String, serializer.String, keyed.TTL(24*time.Hour))

	k := b.Key("alice")
	_ = last.Put(k, "phone", "Berlin")
	clock.Advance(23 * time.Hour)
	_ = last.Put(k, "laptop", "Hamburg")
	clock.Advance(2 * time.Hour)
	_ = last.Entries(k, func(device, place string) bool {
		fmt.Println(device, place)
		return true
	})
	// Output: laptop Hamburg
}

// A query from another goroutine sees the state as it was when the view was opened.
func ExampleBackend_View() {
	b, _ := heap.Open(keyed.Config[string]{Key: serializer.String})
	defer b.Close()
	balance := keyed.Value(b, "balance", serializer.Int64)
	k := b.Key("alice")
	_ = balance.Set(k, 10)

	view, _ := b.View()
	answer := make(chan int64)
	go func() {
		defer view.Close()
		v, _, _ := balance.GetAt(view, b.Key("alice"))
		answer <- v
	}()
	_ = balance.Set(k, 20) // goes on meanwhile
	fmt.Println(<-answer)
	// Output: 10
}
