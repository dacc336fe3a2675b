package pebbledb_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// files writes and reads the files of checkpoints in a store. An engine takes
// snapshot.Writer for the one and snapshot.Snapshot for the other. Both are called
// from many goroutines.
type files struct {
	store blobstore.Store
	n     atomic.Int64
}

type file struct {
	blobstore.Writer
	name string
	size int64
}

func (f *files) create(ctx context.Context, _ bool) pebbledb.FileWriter {
	name := fmt.Sprint("file-", f.n.Add(1))
	w, err := f.store.Create(ctx, name, nil)
	if err != nil {
		log.Fatal(err)
	}
	return &file{Writer: w, name: name}
}

func (f *file) Write(p []byte) (int, error) {
	f.size += int64(len(p))
	return f.Writer.Write(p)
}

func (f *file) Close() (metadata.StreamHandle, error) {
	return &metadata.FileHandle{Path: javaio.NewString(f.name), Size: f.size}, f.Commit()
}

func (f *files) open(_ context.Context, h metadata.StreamHandle) (sst.Source, error) {
	file := h.(*metadata.FileHandle)
	return incremental.BlobSource(f.store, file.Path.Go(), 0, file.Size), nil
}

func Example() {
	ctx := context.Background()
	p := pebbledb.NewProcess(nil)
	defer p.Close()
	disk := vfs.NewMem() // a real one is the default
	store := &files{store: blobstore.NewMem()}

	// One subtask with all 128 key groups writes and takes two checkpoints.
	all := metadata.KeyGroupRange{Start: 0, Count: 128}
	db, err := pebbledb.Open(ctx, p, "subtask-0", &pebbledb.Options{KeyGroups: all, FS: disk})
	if err != nil {
		log.Fatal(err)
	}
	var last *pebbledb.Uploaded
	for id := int64(1); id <= 2; id++ {
		b := db.Pebble().NewBatch()
		for group := range 128 {
			b.Set([]byte{0, byte(group), 'k', byte(id)}, fmt.Append(nil, "of checkpoint ", id), nil)
		}
		if err := db.Apply(ctx, b); err != nil {
			log.Fatal(err)
		}
		b.Close()
		frozen, err := db.Checkpoint(id, nil) // the task's pause
		if err != nil {
			log.Fatal(err)
		}
		if last, err = frozen.Upload(ctx, store.create, nil); err != nil {
			log.Fatal(err)
		}
		frozen.Release()
		db.Confirmed(id)
		fmt.Printf("checkpoint %d: %d tables, %d of them from before\n", id, len(last.Handle.Shared), last.Reused)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}

	// Half of it is restored, on another machine.
	half := metadata.KeyGroupRange{Start: 64, Count: 64}
	from := []pebbledb.Source{{Name: "chk-2", Handle: last.Handle, Open: store.open}}
	db, err = pebbledb.Restore(ctx, p, "subtask-1", from, &pebbledb.Options{KeyGroups: half, FS: vfs.NewMem()})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	v, c, err := db.Pebble().Get([]byte{0, 100, 'k', 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("key group 100: %s\n", v)
	c.Close()
	_, _, err = db.Pebble().Get([]byte{0, 10, 'k', 1})
	fmt.Println("key group 10:", err)
	// Output:
	// checkpoint 1: 1 tables, 0 of them from before
	// checkpoint 2: 2 tables, 1 of them from before
	// key group 100: of checkpoint 1
	// key group 10: pebble: not found
}
