package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// Backend is where counters keep their state.
type Backend uint8

// Backends. A run with LSMBackend need not be the same each time: when Pebble flushes
// and compacts is not the scheduler's to say.
const (
	ModelBackend Backend = iota // an array, whose files are values
	HeapBackend                 // keyed/heap
	LSMBackend                  // keyed/lsm on a file system in memory
)

var backendNames = [...]string{"model", "heap", "lsm"}

func (b Backend) String() string { return backendNames[b] }

// databases is what the LSM backends of all runs share.
var databases = sync.OnceValue(func() *lsm.Process { return lsm.NewProcess(nil) })

// realCounts are the counts of a counter in a real backend.
type realCounts struct {
	keyed.Backend[int64]
	counts *keyed.ValueState[int64, int32]
}

func (c *realCounts) add(key int32) (int32, error) {
	k := c.Key(int64(key))
	n, _, err := c.counts.Get(k)
	if err != nil {
		return 0, err
	}
	return n + 1, c.counts.Set(k, n+1)
}

// real says that a task keeps its counts in a real backend.
func (k *task) real() bool {
	return k.at.vertex == theCounter && k.p.w.cfg.Backend != ModelBackend && k.p.w.cfg.Shape == Keyed
}

// openBackend gives a counter its backend, restored from a, if that is not nil.
func (k *task) openBackend(a *checkpoint.Assignment) error {
	if !k.real() {
		return nil
	}
	w := k.p.w
	from := checkpoint.Completed{}
	if list := k.p.core.Retained(); a != nil {
		from = list[len(list)-1]
	}
	c := keyed.Config[int64]{Key: serializer.Int64, MaxParallelism: maxParallelism, KeyGroups: k.keyGroups()}
	var b keyed.Backend[int64]
	var err error
	if w.cfg.Backend == HeapBackend {
		b, err = heap.Open(c)
	} else {
		b, err = lsm.Open("db", c, &lsm.Options{Process: databases(), Name: k.name(), Database: pebbledb.Options{FS: pebbledb.InMemory(), NoClaim: from.Mode == checkpoint.NotClaimed}})
	}
	if err != nil {
		return err
	}
	k.backend = &realCounts{b, keyed.Value(b, "count", serializer.Int32)}
	w.backends[k] = true
	if a == nil || len(a.Subtask(k.t.Vertex, k.at.subtask).ManagedKeyed) == 0 {
		return b.Err()
	}
	s, err := w.store.open(from.Path)
	if err != nil {
		return err
	}
	id := k.t.Vertex.String()
	return b.Restore(context.Background(), keyed.RestoreSource{Snapshot: s, Operator: func(o *snapshot.StateOperator) bool { return o.ID == id }})
}

func (k *task) closeBackend() {
	if k.backend == nil {
		return
	}
	for _, s := range k.snaps {
		s.release()
	}
	if err := k.backend.Close(); err != nil {
		k.p.w.fail("%s: %v", k.name(), err)
	}
	delete(k.p.w.backends, k)
	k.backend = nil
}

// freeze is the synchronous part of a real backend's snapshot.
func (k *task) freeze(s *snap) bool {
	if k.backend == nil {
		return true
	}
	f, err := k.backend.Snapshot(context.Background(), s.id)
	if err != nil {
		k.p.w.fail("%s: snapshot of checkpoint %d: %v", k.name(), s.id, err)
		return false
	}
	s.frozen = f
	return true
}

// writeKeyed is the asynchronous part. written are the files that it added.
func (k *task) writeKeyed(s *snap, folder string) (h metadata.KeyedHandle, written []string, err error) {
	w := k.p.w
	layout := snapshot.SavepointIn(location(folder))
	if s.savepoint == "" {
		layout.Shared = location("file:/ckp/shared")
	}
	to, err := snapshot.NewWriter(context.Background(), w.store.pool, layout, &snapshot.WriterOptions{MemoryThreshold: -1})
	if err != nil {
		return nil, nil, err
	}
	up := &keyed.UploadOptions{Full: s.options.Type != event.Checkpoint || !w.cfg.Incremental}
	if s.options.Type == event.SavepointCanonical {
		up.Format = keyed.FormatCanonical
	}
	h, err = s.frozen.Upload(context.Background(), to, up)
	s.release()
	if err != nil {
		return nil, nil, err
	}
	m := &metadata.Checkpoint{Operators: []metadata.OperatorState{{Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}}}}}
	for _, f := range m.StreamHandles() {
		if name := pathIn(folder, f); name != "" && w.store.files[name] == nil && !slices.Contains(written, name) {
			w.store.write(name, &state{})
			written = append(written, name)
		}
	}
	return h, written, nil
}

func location(url string) blobstore.Location {
	l, err := blobstore.Parse(url)
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err)) // a constant and a number
	}
	return l
}

// object is the name in the store of a file.
func object(name string) string { return strings.TrimPrefix(name, "file:/") }

// encode writes a metadata object so that real backends can read it.
func (s *store) encode(name string, m *metadata.Checkpoint) {
	if s.w.cfg.Backend == ModelBackend {
		return
	}
	var b bytes.Buffer
	err := metadata.Encode(&b, m)
	if err == nil {
		err = blobstore.WriteAll(context.Background(), s.objects, object(name), b.Bytes(), nil)
	}
	if err != nil {
		s.w.fail("%s: %v", name, err)
	}
}

// open reads a metadata object.
func (s *store) open(name string) (*snapshot.Snapshot, error) {
	return snapshot.Open(context.Background(), s.pool, location(name), nil)
}

// unlink deletes an object.
func (s *store) unlink(name string) {
	if s.w.cfg.Backend == ModelBackend {
		return
	}
	if err := s.objects.Delete(context.Background(), object(name)); err != nil {
		s.w.fail("%s: %v", name, err)
	}
}

// stray are objects that the model of the store does not have: files that a backend
// wrote and did not tell of.
func (s *store) stray() (names []string) {
	if s.w.cfg.Backend == ModelBackend {
		return nil
	}
	for info, err := range s.objects.List(context.Background(), nil) {
		if err != nil {
			s.w.fail("%v", err)
			return nil
		}
		name := "file:/" + info.Name
		if s.files[name] == nil && s.metas[name] == nil && !s.late[name] {
			names = append(names, name)
		}
	}
	return names
}
