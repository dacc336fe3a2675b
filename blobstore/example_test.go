package blobstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tidemark/tidemark/blobstore"
)

// A checkpoint is written data first, _metadata last and only if it is not there; a
// reader sees all of it or nothing.
func Example() {
	ctx := context.Background()
	store, err := blobstore.Open(ctx, "mem://example/checkpoints", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	w, err := store.Create(ctx, "chk-42/state", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Commit
	fmt.Fprint(w, "state of a subtask")
	if err := w.Commit(); err != nil {
		log.Fatal(err)
	}
	once := &blobstore.WriteOptions{IfAbsent: true}
	for range 2 {
		err := blobstore.WriteAll(ctx, store, "chk-42/_metadata", []byte("…"), once)
		fmt.Println("complete:", err == nil, "- was there:", errors.Is(err, blobstore.ErrExist))
	}
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: "chk-"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name, info.Size)
	}
	// Output:
	// complete: true - was there: false
	// complete: false - was there: true
	// chk-42/_metadata 3
	// chk-42/state 18
}

// Decorators stand around a store one by one; the same layers can be given to a Pool.
func ExampleRetry() {
	ctx := context.Background()
	var counter blobstore.Counter
	faults := blobstore.NewFaults(blobstore.Fault{Op: "stat", Nth: 1, Err: blobstore.ErrTemporary})

	store := blobstore.NewMem()
	store = faults.Wrap(store)
	store = blobstore.Count(store, &counter) // counts each try
	store = blobstore.Retry(store, &blobstore.RetryOptions{
		Attempts:  3,
		BaseDelay: 1,
		OnRetry:   func(e blobstore.RetryEvent) { fmt.Println(e.Op, e.URL, "failed, try", e.Try) },
	})
	_, err := store.Stat(ctx, "chk-42/_metadata")
	fmt.Println(err)
	fmt.Println(counter.Counts())
	// Output:
	// stat mem:///chk-42/_metadata failed, try 1
	// stat mem:///chk-42/_metadata: does not exist
	// stats 2, failures 1
}

// Paths in metadata are Flink's; --map gives them a new place.
func ExampleMappings() {
	m, err := blobstore.ParseMapping("hdfs://nn/flink=s3://bucket/moved")
	if err != nil {
		log.Fatal(err)
	}
	old, err := blobstore.ParsePath("hdfs://nn:8020/flink/job/shared/5e1f")
	if err != nil {
		log.Fatal(err)
	}
	to, ok := blobstore.Mappings{m}.Map(old)
	fmt.Println(to, ok)
	// Output: s3://bucket/moved/job/shared/5e1f true
}
