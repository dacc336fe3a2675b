package pebbledb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// objects is a store of checkpoint files in memory, which counts.
type objects struct {
	mu      sync.Mutex
	files   map[string][]byte
	n       int
	created int
	reads   int
}

func newObjects() *objects { return &objects{files: map[string][]byte{}} }

func (o *objects) create(_ context.Context, shared bool) FileWriter {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.created++
	return &objectWriter{o: o, name: fmt.Sprintf("%v-%d", shared, o.n)}
}

type objectWriter struct {
	o    *objects
	name string
	b    bytes.Buffer
}

func (w *objectWriter) Write(p []byte) (int, error) { return w.b.Write(p) }
func (w *objectWriter) Abort() error                { return nil }
func (w *objectWriter) Close() (metadata.StreamHandle, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	w.o.files[w.name] = w.b.Bytes()
	return &metadata.FileHandle{Path: javaio.NewString(w.name), Size: int64(w.b.Len())}, nil
}

func (o *objects) open(_ context.Context, h metadata.StreamHandle) (sst.Source, error) {
	name := physical(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	data, ok := o.files[name]
	if !ok {
		return nil, errors.New(name + " is not there")
	}
	if s, ok := h.(*metadata.SegmentHandle); ok {
		data = data[s.Start:][:s.Length]
	}
	return &countedSource{sst.Bytes(data), o}, nil
}

type countedSource struct {
	sst.Source
	o *objects
}

func (c *countedSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	c.o.mu.Lock()
	c.o.reads++
	c.o.mu.Unlock()
	return c.Source.ReadAt(ctx, p, off)
}

func key(kg, i int) []byte {
	k := binary.BigEndian.AppendUint16(nil, uint16(kg))
	return binary.BigEndian.AppendUint64(append(k, 0, 0), uint64(i))
}

func newTestProcess(t testing.TB) *Process {
	p := NewProcess(&ProcessOptions{MemoryBytes: 32 << 20})
	t.Cleanup(p.Close)
	return p
}

func put(t testing.TB, d *DB, from, to, version int) {
	b := d.Pebble().NewBatch()
	defer b.Close()
	for i := from; i < to; i++ {
		require.NoError(t, b.Set(key(i%128, i), fmt.Appendf(nil, "value %d of %d", i, version), nil))
	}
	require.NoError(t, d.Apply(t.Context(), b))
}

func get(t testing.TB, r pebble.Reader, i int) string {
	v, c, err := r.Get(key(i%128, i))
	if errors.Is(err, pebble.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	defer c.Close()
	return string(v)
}

var allGroups = metadata.KeyGroupRange{Start: 0, Count: 128}

func TestCheckpointUploadsWhatTheConfirmedOneLacks(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	d.sched.setOpen(false)
	checkpoint := func(id int64) *Uploaded {
		f, err := d.Checkpoint(id, nil)
		require.NoError(t, err)
		defer f.Release()
		up, err := f.Upload(t.Context(), o.create, nil)
		require.NoError(t, err)
		return up
	}
	put(t, d, 0, 1000, 1)
	one := checkpoint(1)
	require.Len(t, one.Handle.Shared, 1)
	require.Zero(t, one.Reused)
	put(t, d, 0, 10, 2)
	two := checkpoint(2) // 1 is not confirmed yet
	require.Len(t, two.Handle.Shared, 2)
	require.Zero(t, two.Reused)
	require.Equal(t, one.Identities[0], two.Identities[0])
	require.NotEqual(t, one.Handle.Shared[0].Handle, two.Handle.Shared[0].Handle)
	d.Confirmed(1)
	three := checkpoint(3)
	require.Equal(t, 1, three.Reused)
	d.Confirmed(3)
	d.Confirmed(2) // late
	four := checkpoint(4)
	require.Equal(t, 2, four.Reused)
	require.Equal(t, three.Handle.Shared, four.Handle.Shared)
}

// After a full checkpoint the ones before may be deleted: what follows refers to its
// files. A savepoint changes nothing, since it owns its files.
func TestFullCheckpointIsTheNewBase(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	d.sched.setOpen(false)
	checkpoint := func(id int64, opts *UploadOptions) *Uploaded {
		put(t, d, 0, 10, int(id))
		f, err := d.Checkpoint(id, nil)
		require.NoError(t, err)
		defer f.Release()
		up, err := f.Upload(t.Context(), o.create, opts)
		require.NoError(t, err)
		d.Confirmed(id)
		return up
	}
	one := checkpoint(1, nil)
	savepoint := checkpoint(2, &UploadOptions{Full: true})
	three := checkpoint(3, nil)
	require.Equal(t, 1, three.Reused)
	require.Equal(t, one.Handle.Shared[0], three.Handle.Shared[0])
	for _, h := range savepoint.Handle.Shared {
		require.NotContains(t, three.Handle.Shared, h)
		require.Contains(t, string(h.Handle.(*metadata.FileHandle).Path.Go()), "false-")
	}
	full := checkpoint(4, &UploadOptions{Full: true, Forward: true})
	require.Zero(t, full.Reused)
	five := checkpoint(5, nil)
	require.Equal(t, len(full.Handle.Shared), five.Reused)
	require.Subset(t, five.Handle.Shared, full.Handle.Shared)
	for _, h := range full.Handle.Shared {
		require.NotContains(t, three.Handle.Shared, h)
		require.Contains(t, string(h.Handle.(*metadata.FileHandle).Path.Go()), "true-")
	}
}

func TestWritesAfterACheckpointAreNotInIt(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem(), MemTableBytes: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	put(t, d, 0, 5000, 1)
	// Somebody else writes all the time.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			b := d.Pebble().NewBatch()
			for i := range 10 {
				b.Set(key(200+n%50, i), make([]byte, 100), nil)
			}
			if err := d.Apply(ctx, b); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			b.Close()
		}
	})
	defer wg.Wait()
	defer cancel()
	last := int64(20)
	if testing.Short() {
		last = 8
	}
	for id := int64(1); id < last; id++ {
		held := d.Pebble().NewBatch()
		require.NoError(t, held.Set(key(3, 3), fmt.Append(nil, "held ", id), nil))
		f, err := d.Checkpoint(id, func(apply func(*pebble.Batch) error) error { return apply(held) })
		require.NoError(t, err)
		for i := range 20 {
			put(t, d, i*250, (i+1)*250, int(id)+1)
		}
		r, err := f.Open(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("held ", id), get(t, r.Pebble(), 3))
		for i := 4; i < 5000; i += 7 {
			require.Equal(t, fmt.Sprintf("value %d of %d", i, id), get(t, r.Pebble(), i))
		}
		require.NoError(t, r.Close())
		_, err = f.Upload(t.Context(), o.create, nil)
		require.NoError(t, err)
		f.Release()
		require.NoError(t, held.Close())
	}
}

// TestRoomBehindRotation: what is written before the tables of a checkpoint are linked
// stays in the memtable that was begun then, whatever its size and that of the batches.
func TestRoomBehindRotation(t *testing.T) {
	for name, c := range map[string]struct{ before, each int }{
		"the first memtable": {0, 10},
		"a full grown one":   {20, 10},
		"large batches":      {20, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			var hold atomic.Bool
			held, goOn := make(chan struct{}), make(chan struct{})
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate && isTable(op.Path) && hold.CompareAndSwap(true, false) {
					close(held)
					<-goOn
				}
				return nil
			}))
			p, o := newTestProcess(t), newObjects()
			d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: fs, MemTableBytes: 1 << 20})
			require.NoError(t, err)
			d.sched.setOpen(false)
			for i := range c.before {
				put(t, d, 0, 2000, i)
			}
			if c.before > 0 {
				require.NoError(t, d.Flush(t.Context()))
				put(t, d, 0, 2000, c.before)
			}
			put(t, d, 0, 1, 7)
			hold.Store(true)
			f, err := d.Checkpoint(1, nil)
			require.NoError(t, err)
			<-held
			put(t, d, 0, 1, 8) // when the gate opens
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			written := 0
			for err == nil {
				b := d.Pebble().NewBatch()
				for i := range c.each {
					require.NoError(t, b.Set(key(200, written*c.each+i), []byte("value of some bytes"), nil))
				}
				if err = d.Apply(ended, b); err == nil {
					written++
				}
				require.EqualValues(t, 2, d.Pebble().Metrics().MemTable.Count, "after %d batches", written)
				require.NoError(t, b.Close())
			}
			require.ErrorIs(t, err, context.Canceled)
			close(goOn)
			_, err = f.Upload(t.Context(), o.create, nil)
			require.NoError(t, err)
			f.Release()
			require.NoError(t, d.Close())
		})
	}
}
