package pebbledb

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"

	"github.com/tidemark/tidemark/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A local copy saves the download, file by file, if it is the one wanted.
func TestLocalRecovery(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	one := snap(t, d, 1, o)
	d.Confirmed(1)
	require.Equal(t, "/a/chk-1", d.LocalCopy(1))
	put(t, d, 0, 500, 2)
	two := snap(t, d, 2, o)
	d.Confirmed(2)
	require.Empty(t, d.LocalCopy(1), "only the last one stays")
	_, err = fs.Stat("/a/chk-1")
	require.Error(t, err)
	copied := d.LocalCopy(2)
	require.NoError(t, d.Close())
	for _, x := range []struct {
		name   string
		up     *Uploaded
		spoil  func()
		reads  int // of tables, at most
		damage bool
	}{
		{"the same checkpoint", two, func() {}, 0, false},
		{"an older one with one table of it", one, func() {}, 0, false},
		{"a table is gone", two, func() { fs.Remove(copied + "/" + two.Handle.Shared[0].Name.Go()) }, 1, false},
		{"a table is shorter", two, func() {
			rewrite(t, fs, copied+"/"+two.Handle.Shared[1].Name.Go(), func(b []byte) []byte { return b[:len(b)-1] })
		}, 2, false},
		{"the checksums are damaged", two, func() { rewrite(t, fs, copied+"/"+SumsName, func(b []byte) []byte { b[9] ^= 1; return b }) }, 2, false},
	} {
		x.spoil()
		before := o.reads
		r, err := Restore(t.Context(), p, "/b", []Source{source(o, x.up)}, &Options{KeyGroups: allGroups, FS: fs, Eager: true, Local: []string{"/nowhere", copied}})
		require.NoError(t, err, x.name)
		private := len(x.up.Handle.Private)
		require.LessOrEqual(t, o.reads-before-private, x.reads, x.name)
		version := 1
		if x.up == two {
			version = 2
		}
		require.Equal(t, fmt.Sprintf("value 7 of %d", version), get(t, r.Pebble(), 7), x.name)
		again := snap(t, r, 9, o)
		require.Equal(t, len(x.up.Handle.Shared), again.Reused, x.name)
		require.NoError(t, r.Close())
	}
}

// A local file with the right size and other bytes fails the database, and is not
// used again.
func TestLocalCopyWithOtherBytes(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	up := snap(t, d, 1, o)
	d.Confirmed(1)
	copied := d.LocalCopy(1)
	require.NoError(t, d.Close())
	rewrite(t, fs, copied+"/"+up.Handle.Shared[0].Name.Go(), func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
	opts := &Options{KeyGroups: allGroups, FS: fs, Eager: true, Local: []string{copied}}
	_, err = Restore(t.Context(), p, "/b", []Source{source(o, up)}, opts)
	require.ErrorIs(t, err, damage.ErrCorrupt)
	require.ErrorContains(t, err, copied+"/"+up.Handle.Shared[0].Name.Go())
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, up)}, opts)
	require.NoError(t, err)
	require.Equal(t, "value 7 of 1", get(t, r.Pebble(), 7))
	require.NoError(t, r.Close())
}

func rewrite(t *testing.T, fs vfs.FS, name string, f func([]byte) []byte) {
	data, err := readFile(fs, name, 1<<30)
	require.NoError(t, err)
	require.NoError(t, fs.Remove(name)) // the links keep theirs
	require.NoError(t, writeFile(fs, name, f(slices.Clone(data))))
}

// The first checkpoint after a NO_CLAIM restore refers to nothing of the old one.
func TestNoClaim(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	var parts []Source
	for i, g := range []metadata.KeyGroupRange{groups(0, 30), groups(30, 128)} {
		d, err := Open(t.Context(), p, fmt.Sprint("/a", i), &Options{KeyGroups: g, FS: fs})
		require.NoError(t, err)
		for k := range 300 {
			if g.Contains(int32(k % 128)) {
				put(t, d, k, k+1, 1)
			}
		}
		parts = append(parts, source(o, snap(t, d, 1, o)))
		require.NoError(t, d.Close())
	}
	old := len(o.files)
	d, err := Restore(t.Context(), p, "/b", parts, &Options{KeyGroups: allGroups, FS: fs, NoClaim: true})
	require.NoError(t, err)
	up := snap(t, d, 1, o)
	require.Zero(t, up.Reused)
	d.Confirmed(1)
	up = snap(t, d, 2, o)
	require.Equal(t, 2, up.Reused)
	require.NoError(t, d.Close())
	// Its owner deletes the old one.
	for name := range o.files {
		var n int
		_, number, _ := strings.Cut(name, "-")
		fmt.Sscan(number, &n)
		if n <= old {
			delete(o.files, name)
		}
	}
	requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{7: "value 7 of 1", 160: "value 160 of 1"}}})
}

// A path that is relative to one checkpoint's metadata means nothing in another's.
func TestRelativeHandlesAreNotReused(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	put(t, d, 0, 100, 1)
	up := snap(t, d, 1, o)
	require.NoError(t, d.Close())
	s := source(o, up)
	for i, n := range up.Handle.Shared {
		f := n.Handle.(*metadata.FileHandle)
		up.Handle.Shared[i].Handle = &metadata.RelativeFileHandle{Path: f.Path, Size: f.Size}
	}
	s.Open = func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
		if r, ok := h.(*metadata.RelativeFileHandle); ok {
			h = &metadata.FileHandle{Path: r.Path, Size: r.Size}
		}
		return o.open(ctx, h)
	}
	r, err := Restore(t.Context(), p, "/b", []Source{s}, &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	up = snap(t, r, 2, o)
	require.Zero(t, up.Reused)
	requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{7: "value 7 of 1"}}})
	require.NoError(t, r.Close())
}

// More uploads of what is still in the old store than there are places.
func TestNoClaimOfManyTables(t *testing.T) {
	p := NewProcess(&ProcessOptions{MemoryBytes: 32 << 20, Transfers: 1})
	t.Cleanup(p.Close)
	o := newObjects()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	d.sched.setOpen(false)
	for i := range 5 {
		put(t, d, i*10, (i+1)*10, 1)
		require.NoError(t, d.Flush(t.Context()))
	}
	up := snap(t, d, 1, o)
	require.NoError(t, d.Close())
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, up)}, &Options{KeyGroups: allGroups, FS: vfs.NewMem(), NoClaim: true})
	require.NoError(t, err)
	up = snap(t, r, 2, o)
	require.Zero(t, up.Reused)
	requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{7: "value 7 of 1"}}})
	require.NoError(t, r.Close())
}

// An object that somebody deleted is uploaded again once a checkpoint was aborted
// over it.
func TestMissingObjectIsUploadedAgain(t *testing.T) {
	for _, asks := range []bool{true, false} {
		p, o := newTestProcess(t), newObjects()
		d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
		require.NoError(t, err)
		d.sched.setOpen(false)
		opts := &UploadOptions{}
		if asks {
			opts.Exists = func(_ context.Context, h metadata.StreamHandle) (bool, error) {
				o.mu.Lock()
				defer o.mu.Unlock()
				return o.files[h.(*metadata.FileHandle).Path.Go()] != nil, nil
			}
		}
		take := func(id int64) *Uploaded {
			f, err := d.Checkpoint(id, nil)
			require.NoError(t, err)
			defer f.Release()
			up, err := f.Upload(t.Context(), o.create, opts)
			require.NoError(t, err)
			return up
		}
		put(t, d, 0, 100, 1)
		take(1)
		put(t, d, 100, 200, 1)
		two := take(2)
		d.Confirmed(2)
		delete(o.files, two.Handle.Shared[0].Handle.(*metadata.FileHandle).Path.Go())
		three := take(3)
		require.Equal(t, 2, three.Reused) // nothing says that it is gone
		d.Aborted(3)
		var up *Uploaded
		for id := int64(4); ; id++ {
			require.Less(t, id, int64(9))
			up = take(id)
			if up.Reused < 2 {
				break
			}
			d.Aborted(id)
		}
		if asks {
			require.Equal(t, 1, up.Reused)
		}
		requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{7: "value 7 of 1", 160: "value 160 of 1"}}})
		require.NoError(t, d.Close())
	}
}

// Two incarnations of one task run from one checkpoint and write at the same time:
// both make files of the same names. The zombie's acknowledgement is discarded, and
// nothing of it gets into the job's checkpoints.
func TestTwoIncarnations(t *testing.T) {
	p := newTestProcess(t)
	store := blobstore.NewMem()
	resolve := resolver{store}
	cl := incremental.NewCleaner(incremental.NewRegistry(), resolve, nil)
	fs := vfs.NewMem()
	j := &job{store: store}
	ack := func(id int64, up *Uploaded) error {
		var files []incremental.AckFile
		for i, n := range up.Handle.Shared {
			files = append(files, incremental.AckFile{Identity: up.Identities[i], Handle: n.Handle})
		}
		for _, n := range up.Handle.Private {
			files = append(files, incremental.AckFile{Handle: n.Handle})
		}
		err := cl.Update(func(r *incremental.Registry) error { return r.Register(id, files) })
		for i := range up.Handle.Shared {
			up.Handle.Shared[i].Handle = files[i].Handle
		}
		return err
	}
	take := func(d *DB, id int64) *Uploaded {
		f, err := d.Checkpoint(id, nil)
		require.NoError(t, err)
		defer f.Release()
		up, err := f.Upload(t.Context(), j.create, nil)
		require.NoError(t, err)
		return up
	}
	begin := func(id int64) {
		require.NoError(t, cl.Update(func(r *incremental.Registry) error { return r.Begin(id) }))
	}
	confirm := func(id int64) {
		require.NoError(t, cl.Update(func(r *incremental.Registry) error { return r.Confirm(id, "") }))
	}
	a, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	put(t, a, 0, 100, 1)
	begin(1)
	one := take(a, 1)
	require.NoError(t, ack(1, one))
	confirm(1)
	require.NoError(t, a.Close())
	from := []Source{{Name: "chk-1", Handle: one.Handle, Open: j.openHandle}}
	zombie, err := Restore(t.Context(), p, "/zombie", from, &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	ours, err := Restore(t.Context(), p, "/ours", from, &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	put(t, zombie, 0, 100, 666)
	put(t, ours, 0, 100, 2)
	begin(2)
	bad, good := take(zombie, 2), take(ours, 2)
	require.Equal(t, bad.Handle.Shared[1].Name, good.Handle.Shared[1].Name, "the same name for other content")
	require.NotEqual(t, bad.Identities[1], good.Identities[1])
	var files []incremental.AckFile
	for _, n := range slices.Concat(bad.Handle.Shared, bad.Handle.Private) {
		files = append(files, incremental.AckFile{Handle: n.Handle})
	}
	require.NoError(t, cl.Update(func(r *incremental.Registry) error { r.Discard(files); return nil }))
	require.NoError(t, ack(2, good))
	confirm(2)
	ours.Confirmed(2)
	zombie.Confirmed(2) // it hears it, too
	begin(3)
	three, late := take(ours, 3), take(zombie, 3)
	require.NoError(t, ack(3, three))
	require.Error(t, ack(3, late), "what it builds on is being deleted")
	confirm(3)
	require.NoError(t, cl.Update(func(r *incremental.Registry) error { r.Retain(3); return nil }))
	_, err = cl.Clean(t.Context())
	require.NoError(t, err)
	requireWhole(t, p, []uploadedState{{[]Source{{Name: "chk-3", Handle: three.Handle, Open: j.openHandle}}, map[int]string{7: "value 7 of 2"}}})
	require.NoError(t, zombie.Close())
	require.NoError(t, ours.Close())
}

// Compactions wait for the tables, but not while level 0 grows for ever.
func TestCompactionsDoNotWaitForEver(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	up := snap(t, d, 1, o)
	require.NoError(t, d.Close())
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, up)}, &Options{KeyGroups: allGroups, FS: vfs.NewMem(), Eager: true})
	require.NoError(t, err)
	r.sched.setOpen(false) // as if a table did not come
	var wg sync.WaitGroup
	wg.Go(func() { r.watchLevel0(nil) })
	for i := range 40 { // more than Pebble lets writers add to level 0
		put(t, r, 0, 10, i)
		require.NoError(t, r.Flush(t.Context()))
	}
	require.Equal(t, "value 7 of 39", get(t, r.Pebble(), 7))
	require.Equal(t, "value 700 of 1", get(t, r.Pebble(), 700))
	require.NoError(t, r.Close())
	wg.Wait()
}

type resolver struct{ store blobstore.Store }

func (r resolver) Resolve(_ context.Context, loc blobstore.Location) (blobstore.Store, string, error) {
	return r.store, loc.Path, nil
}

// Whatever is under way, a context that ends ends it within a second.
func TestCancel(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	up := snap(t, d, 1, o)
	require.NoError(t, d.Close())
	// A store that never answers.
	hang := source(o, up)
	hang.Open = func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
		src, err := o.open(ctx, h)
		return hanging{src}, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = Restore(ctx, p, "/b", []Source{hang}, &Options{KeyGroups: allGroups, FS: fs})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begun), time.Minute)
	// A database whose tables do not come closes at once.
	hang.Open = func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
		src, err := o.open(ctx, h)
		if src != nil && slices.ContainsFunc(up.Handle.Shared, func(n metadata.NamedHandle) bool { return n.Handle == h }) {
			return hanging{src}, err
		}
		return src, err
	}
	r, err := Restore(t.Context(), p, "/c", []Source{hang}, &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	read := make(chan error)
	require.NoError(t, r.Acquire())
	go func() {
		defer r.Release()
		_, _, err := r.Pebble().Get(key(7, 7))
		read <- err
	}()
	time.Sleep(20 * time.Millisecond)
	begun = time.Now()
	closed := make(chan error)
	go func() { closed <- r.Close() }()
	require.Error(t, <-read)
	require.NoError(t, <-closed)
	require.Less(t, time.Since(begun), time.Minute)
}

// hanging answers when the context ends.
type hanging struct{ sst.Source }

func (hanging) ReadAt(ctx context.Context, _ []byte, _ int64) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// keptCopy takes two checkpoints in /a, the second with one table more. Of the first,
// which is confirmed, there is a local copy.
func keptCopy(t *testing.T, p *Process, fs vfs.FS, o *objects) (one, two *Uploaded) {
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	one = snap(t, d, 1, o)
	d.Confirmed(1)
	put(t, d, 1000, 1100, 1)
	two = snap(t, d, 2, o)
	require.NoError(t, d.Close())
	return one, two
}

// TestWrongLocalCopyIsNotUploaded: a file with other bytes from a local copy does not
// become part of a checkpoint before the background has found that out.
func TestWrongLocalCopyIsNotUploaded(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	one, two := keptCopy(t, p, fs, o)
	rewrite(t, fs, "/a/chk-1/"+one.Handle.Shared[0].Name.Go(), func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
	require.NoError(t, p.background.Acquire(t.Context(), 15)) // nothing is fetched, nor proven then
	defer p.background.Release(15)
	failed := make(chan error, 1)
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, two)}, &Options{
		KeyGroups: allGroups, FS: fs, NoClaim: true, Local: []string{"/a/chk-1"}, Failed: func(err error) { failed <- err },
	})
	require.NoError(t, err)
	require.Len(t, r.linked, 1)
	f, err := r.Checkpoint(3, nil)
	require.NoError(t, err)
	_, err = f.Upload(t.Context(), o.create, nil)
	require.ErrorIs(t, err, damage.ErrCorrupt)
	require.ErrorContains(t, err, "/a/chk-1/"+one.Handle.Shared[0].Name.Go())
	f.Release()
	require.ErrorIs(t, <-failed, damage.ErrCorrupt)
	require.NoError(t, r.Close())
	_, err = fs.Stat("/a/chk-1/" + SumsName)
	require.Error(t, err, "the copy is not used again")
}

// TestCopyIsProvenAfterItWent: what was linked from a local copy is compared with its
// checksum although the copy was removed meanwhile, as when a checkpoint was completed.
func TestCopyIsProvenAfterItWent(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	one, two := keptCopy(t, p, fs, o)
	rewrite(t, fs, "/a/chk-1/"+one.Handle.Shared[0].Name.Go(), func(b []byte) []byte { b[len(b)/2] ^= 4; return b })
	require.NoError(t, p.background.Acquire(t.Context(), 15))
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, two)}, &Options{KeyGroups: allGroups, FS: fs, Local: []string{"/a/chk-1"}})
	require.NoError(t, err)
	require.NoError(t, fs.RemoveAll("/a"))
	p.background.Release(15)
	r.work.Wait()
	require.ErrorIs(t, r.Err(), damage.ErrCorrupt)
	require.NoError(t, r.Close())
}

// TestCloseSpoilsNoCopy: to close a database while a checkpoint writes what was held back
// is no failure of it, and leaves the local copy that it was restored from as it is.
func TestCloseSpoilsNoCopy(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	_, two := keptCopy(t, p, fs, o)
	require.NoError(t, p.background.Acquire(t.Context(), 15))
	defer p.background.Release(15)
	r, err := Restore(t.Context(), p, "/b", []Source{source(o, two)}, &Options{
		KeyGroups: allGroups, FS: fs, Local: []string{"/a/chk-1"}, Failed: func(err error) { t.Error(err) },
	})
	require.NoError(t, err)
	f, err := r.Checkpoint(3, func(func(*pebble.Batch) error) error { return ErrClosed })
	require.NoError(t, err)
	<-f.Settled()
	require.ErrorIs(t, r.Acquire(), ErrClosed, "what was held back is lost")
	f.Release()
	require.NoError(t, r.Close())
	_, err = fs.Stat("/a/chk-1/" + SumsName)
	require.NoError(t, err)
}

// TestOpenRemovesWhatIsLeft: links of a checkpoint that a process left when it was killed,
// and what it was fetching, go when the folder is used again; local copies stay.
func TestOpenRemovesWhatIsLeft(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewCrashableMem()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	snap(t, d, 1, o)
	f, err := d.Checkpoint(2, nil)
	require.NoError(t, err)
	<-f.Settled()
	require.NoError(t, fs.MkdirAll(d.Scratch("more"), 0o755))
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	f.Release()
	require.NoError(t, d.Close())
	names, err := crashed.List("/a")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"LOCK", "chk-1", "chk-2", "db", "fetch"}, names)
	d, err = Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: crashed})
	require.NoError(t, err)
	names, err = crashed.List("/a")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"LOCK", "chk-1", "db", "fetch"}, names)
	names, err = crashed.List("/a/fetch")
	require.NoError(t, err)
	require.Empty(t, names)
	require.NoError(t, d.Close())
}
