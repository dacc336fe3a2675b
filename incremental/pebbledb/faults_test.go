package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

var errInjected = errors.New("injected fault")

// failOnce makes the n-th operation fail, once.
type failOnce struct {
	n     int32
	count atomic.Int32
	err   error
}

func (f *failOnce) next() error {
	if f.count.Add(1) == f.n {
		return f.err
	}
	return nil
}

func (f *failOnce) fired() bool { return f.count.Load() >= f.n }

// MaybeError implements errorfs.Injector.
func (f *failOnce) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileClose: // of a file that was only read, say: it frees nothing to lose
		return nil
	}
	return f.next()
}

func (f *failOnce) String() string { return "fail once" }

// faultyObjects fails store calls.
type faultyObjects struct {
	*objects
	f *failOnce
}

func (o faultyObjects) create(ctx context.Context, shared bool) FileWriter {
	return &faultyWriter{o.objects.create(ctx, shared), o.f}
}

type faultyWriter struct {
	FileWriter
	f *failOnce
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	if err := w.f.next(); err != nil {
		return 0, err
	}
	return w.FileWriter.Write(p)
}

func (w *faultyWriter) Close() (metadata.StreamHandle, error) {
	if err := w.f.next(); err != nil {
		return nil, errors.Join(err, w.FileWriter.Abort())
	}
	return w.FileWriter.Close()
}

func (o faultyObjects) open(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
	if err := o.f.next(); err != nil {
		return nil, err
	}
	src, err := o.objects.open(ctx, h)
	return &faultySource{src, o.f}, err
}

type faultySource struct {
	sst.Source
	f *failOnce
}

func (s *faultySource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := s.f.next(); err != nil {
		return 0, err
	}
	return s.Source.ReadAt(ctx, p, off)
}

// story is a life: write, checkpoint, confirm, write, checkpoint, abort, restore by
// two, write, checkpoint, restore by one, read. It gives all checkpoints that were
// uploaded, with what they must have.
type uploadedState struct {
	sources []Source
	want    map[int]string
}

func lifeStory(ctx context.Context, p *Process, fs vfs.FS, o faultyObjects) (done []uploadedState, err error) {
	var open []*DB
	defer func() {
		for _, d := range open {
			d.Close()
		}
	}()
	state := map[int]string{}
	write := func(d *DB, from, to, version int) error {
		b := d.Pebble().NewBatch()
		defer b.Close()
		for i := from; i < to; i++ {
			if d.opts.KeyGroups.Contains(int32(i % 128)) {
				v := fmt.Sprintf("value %d of %d", i, version)
				if err := b.Set(key(i%128, i), []byte(v), nil); err != nil {
					return err
				}
				state[i] = v
			}
		}
		return d.Apply(ctx, b)
	}
	snapshot := func(id int64, ds ...*DB) error {
		u := uploadedState{want: maps.Clone(state)}
		for _, d := range ds {
			f, err := d.Checkpoint(id, nil)
			if err != nil {
				return err
			}
			up, err := f.Upload(ctx, o.create, nil)
			f.Release()
			if err != nil {
				return err
			}
			u.sources = append(u.sources, Source{Name: fmt.Sprint("chk-", id), Handle: up.Handle, Open: o.objects.open})
		}
		done = append(done, u)
		return nil
	}
	faulty := func(u uploadedState) []Source {
		s := slices.Clone(u.sources)
		for i := range s {
			s[i].Open = o.open
		}
		return s
	}
	a, err := Open(ctx, p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	if err != nil {
		return done, err
	}
	open = append(open, a)
	if err := write(a, 0, 600, 1); err != nil {
		return done, err
	}
	if err := snapshot(1, a); err != nil {
		return done, err
	}
	a.Confirmed(1)
	if err := write(a, 0, 100, 2); err != nil {
		return done, err
	}
	if err := snapshot(2, a); err != nil {
		return done, err
	}
	a.Aborted(2)
	two := done[1]
	var halves []*DB
	for i, g := range []metadata.KeyGroupRange{groups(0, 50), groups(50, 128)} {
		d, err := Restore(ctx, p, fmt.Sprint("/half", i), faulty(two), &Options{KeyGroups: g, FS: fs, Local: []string{a.LocalCopy(1)}})
		if err != nil {
			return done, err
		}
		open, halves = append(open, d), append(halves, d)
		if err := write(d, 100, 200, 3); err != nil {
			return done, err
		}
	}
	if err := snapshot(3, halves...); err != nil {
		return done, err
	}
	z, err := Restore(ctx, p, "/z", faulty(done[2]), &Options{KeyGroups: allGroups, FS: fs, Eager: true})
	if err != nil {
		return done, err
	}
	open = append(open, z)
	for i := range 600 {
		v, c, err := z.Pebble().Get(key(i%128, i))
		if err != nil {
			return done, err
		}
		same := string(v) == state[i]
		c.Close()
		if !same {
			return done, fmt.Errorf("key %d is %q, not %q", i, v, state[i])
		}
	}
	return done, snapshot(4, z)
}

// requireWhole checks that every checkpoint that was uploaded is whole.
func requireWhole(t *testing.T, p *Process, done []uploadedState) {
	t.Helper()
	for _, u := range done {
		d, err := Restore(t.Context(), p, "/check", u.sources, &Options{KeyGroups: allGroups, FS: vfs.NewMem(), Eager: true})
		require.NoError(t, err)
		for i, want := range u.want {
			require.Equal(t, want, get(t, d.Pebble(), i))
		}
		require.NoError(t, d.Close())
	}
}

// Every call of the store and every operation of the file system fails once. The
// life ends with that error or gets over it; what was uploaded before is whole.
func TestEveryFaultOnce(t *testing.T) {
	for _, where := range []string{"store", "disk", "disk full"} {
		t.Run(where, func(t *testing.T) {
			step := int32(1)
			if where != "store" && (testing.Short() || os.Getenv("TIDEMARK_ALL_FAULTS") == "") {
				step = 7 // all: TIDEMARK_ALL_FAULTS=1
			}
			p := newTestProcess(t)
			survived := 0
			for n := int32(1); ; n += step {
				f := &failOnce{n: n, err: errInjected}
				if where == "disk full" {
					f.err = &os.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC}
				}
				none := &failOnce{n: -1}
				fs, store := vfs.FS(vfs.NewMem()), faultyObjects{newObjects(), none}
				if where == "store" {
					store.f = f
				} else {
					fs = errorfs.Wrap(fs, f)
				}
				done, err := lifeStory(t.Context(), p, fs, store)
				if !f.fired() {
					require.NoError(t, err)
					require.Len(t, done, 4)
					break
				}
				if err == nil {
					survived++
				} else if !errors.Is(err, f.err) {
					require.Contains(t, err.Error(), f.err.Error(), "fault %d", n)
				}
				requireWhole(t, p, done)
			}
			t.Logf("%d faults did not end the life", survived)
		})
	}
}

// A disk that is full for a while costs a checkpoint, not the database; one that
// stays full fails the database, and nobody waits for ever.
func TestDiskFull(t *testing.T) {
	var full atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.HasSuffix(op.Path, ".sst") && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite) {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: fs, MemTableBytes: 256 << 10})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	full.Store(true)
	f, err := d.Checkpoint(1, nil)
	require.NoError(t, err)
	_, err = f.Upload(t.Context(), o.create, nil)
	require.ErrorIs(t, err, syscall.ENOSPC)
	f.Release()
	// A write waits, as long as its context does.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b := d.Pebble().NewBatch()
	require.NoError(t, b.Set(key(0, 0), []byte("x"), nil))
	err = d.Apply(ctx, b)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, syscall.ENOSPC)
	full.Store(false)
	require.NoError(t, d.Apply(t.Context(), b))
	require.NoError(t, b.Close())
	up := snap(t, d, 2, o)
	requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{999: "value 999 of 1"}}})

	// A MANIFEST that cannot be written is the end of this database.
	failed := make(chan error, 1)
	var broken atomic.Bool
	fs = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.Contains(op.Path, "/db/MANIFEST") && op.Kind == errorfs.OpFileWrite {
			return errInjected
		}
		return nil
	}))
	e, err := Open(t.Context(), p, "/v", &Options{KeyGroups: allGroups, FS: fs, Failed: func(err error) { failed <- err }})
	require.NoError(t, err)
	put(t, e, 0, 1000, 1)
	broken.Store(true)
	f, err = e.Checkpoint(1, nil)
	require.NoError(t, err)
	_, err = f.Upload(t.Context(), o.create, nil)
	require.ErrorContains(t, err, errInjected.Error())
	f.Release()
	require.ErrorContains(t, <-failed, errInjected.Error())
	require.ErrorContains(t, e.Acquire(), errInjected.Error())
	require.ErrorContains(t, e.Err(), errInjected.Error())
	require.NoError(t, e.Close())
	require.NoError(t, d.Close())
}

// A disk that takes no compaction's table, but the small ones of flushes, fails the
// database before writers wait for ever.
func TestCompactionsFail(t *testing.T) {
	failAfter = 300 * time.Millisecond
	defer func() { failAfter = 10 * time.Second }()
	var flushed atomic.Int32
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") && flushed.Load() >= 8 {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	p := newTestProcess(t)
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	d.sched.setOpen(false)
	for range 8 {
		put(t, d, 0, 10, 1)
		require.NoError(t, d.Flush(t.Context()))
		flushed.Add(1)
	}
	d.sched.setOpen(true)
	select {
	case <-d.life.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the database goes on")
	}
	require.ErrorIs(t, d.Err(), syscall.ENOSPC)
	require.ErrorContains(t, d.Err(), "compaction: ")
	require.NoError(t, d.Close())
}

// Use after Close is an error, and Close waits for who uses the database.
func TestLease(t *testing.T) {
	p := newTestProcess(t)
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	require.NoError(t, d.Acquire())
	var closed atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		d.Close()
		closed.Store(true)
	})
	for d.leases.Load() < closing {
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(t, d.Acquire(), ErrClosed)
	put := d.Pebble().NewBatch()
	require.NoError(t, put.Set([]byte("k"), nil, nil))
	require.ErrorIs(t, d.Apply(t.Context(), put), ErrClosed)
	_, err = d.Checkpoint(1, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.False(t, closed.Load())
	_, _, err = d.Pebble().Get([]byte("k"))
	require.ErrorIs(t, err, pebble.ErrNotFound)
	d.Release()
	wg.Wait()
	require.NoError(t, put.Close())
	require.NoError(t, d.Close())
}

// A panic or an error of the merge operator is an error of the read, and of this
// database alone.
func TestPanicInMerge(t *testing.T) {
	p := newTestProcess(t)
	m := &pebble.Merger{Name: "test.panics", Merge: func(_, v []byte) (pebble.ValueMerger, error) { panic("no such state") }}
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem(), Merger: m})
	require.NoError(t, err)
	b := d.Pebble().NewBatch()
	require.NoError(t, b.Merge(key(1, 1), []byte("x"), nil))
	require.NoError(t, b.Merge(key(1, 1), []byte("y"), nil))
	require.NoError(t, d.Apply(t.Context(), b))
	require.NoError(t, b.Close())
	_, _, err = d.Pebble().Get(key(1, 1))
	require.ErrorContains(t, err, "merge operator test.panics: no such state")
	f, err := d.Checkpoint(1, nil)
	require.NoError(t, err)
	_, err = f.Upload(t.Context(), newObjects().create, nil)
	require.ErrorContains(t, err, "no such state")
	f.Release()
	require.NoError(t, d.Close())
}

// Each file of a checkpoint is cut short and gets a flipped bit, at several places:
// that is one error which names the file, and no panic; and the state is never
// silently another.
func TestDamage(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	a, err := Open(t.Context(), p, "/a", &Options{KeyGroups: groups(0, 60), FS: fs})
	require.NoError(t, err)
	b, err := Open(t.Context(), p, "/b", &Options{KeyGroups: groups(60, 128), FS: fs})
	require.NoError(t, err)
	want := map[int]string{}
	for i := range 400 {
		d := a
		if i%128 >= 60 {
			d = b
		}
		put(t, d, i, i+1, 1)
		want[i] = fmt.Sprintf("value %d of 1", i)
	}
	parts := []Source{source(o, snap(t, a, 1, o)), source(o, snap(t, b, 1, o))}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	c, err := Restore(t.Context(), p, "/c", parts, &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	put(t, c, 0, 50, 1)
	up := snap(t, c, 2, o)
	require.NoError(t, c.Close())
	kinds := map[string]bool{}
	for _, list := range [][]metadata.NamedHandle{up.Handle.Shared, up.Handle.Private} {
		for _, n := range list {
			name := n.Handle.(*metadata.FileHandle).Path.Go()
			kind, _, _ := strings.Cut(n.Name.Go(), "-")
			kinds[kind] = true
			good := o.files[name]
			for _, at := range []int{0, 1, len(good) / 3, len(good) / 2, len(good) - 9, len(good) - 1} {
				for _, cut := range []bool{true, false} {
					bad := slices.Clone(good[:at])
					if !cut {
						bad = slices.Clone(good)
						bad[at] ^= 0x10
					}
					o.files[name] = bad
					for _, eager := range []bool{true, false} {
						err := restoreAndRead(t, p, source(o, up), eager, want)
						if !cut && err == nil {
							require.False(t, eager, "%s: byte %d is another", n.Name, at)
							continue // that byte is not needed to read
						}
						require.Error(t, err, "%s: byte %d", n.Name, at)
						require.ErrorContains(t, err, n.Name.Go())
						require.True(t, errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion), "%v", err)
						require.NotContains(t, err.Error(), "goroutine")
					}
				}
			}
			o.files[name] = good
		}
	}
	require.Len(t, kinds, 7, "%v", kinds) // two tables of others, one own, MANIFEST, OPTIONS, catalog, PEBBLE
	require.NoError(t, restoreAndRead(t, p, source(o, up), false, want))
}

func restoreAndRead(t *testing.T, p *Process, s Source, eager bool, want map[int]string) error {
	// The handle's sizes are those of the good files.
	open := s.Open
	s.Open = func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
		src, err := open(ctx, h)
		return sized{src, h.(*metadata.FileHandle).Size}, err
	}
	d, err := Restore(t.Context(), p, "/d", []Source{s}, &Options{Name: "count (1/1)", KeyGroups: allGroups, FS: vfs.NewMem(), Eager: eager})
	if err != nil {
		return err
	}
	defer d.Close()
	for i, v := range want {
		got, c, err := d.Pebble().Get(key(i%128, i))
		if err != nil {
			return d.Explain(err)
		}
		require.Equal(t, v, string(got))
		c.Close()
	}
	return nil
}

// sized has the size that the handle says.
type sized struct {
	sst.Source
	size int64
}

func (s sized) Size() int64 { return s.size }
