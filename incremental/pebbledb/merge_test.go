package pebbledb

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
)

// merged is one task that writes checkpoints with merged files under the shared state
// registry.
type merged struct {
	*testing.T
	*job
	d    *DB
	opts UploadOptions
}

func newMerged(t *testing.T, m incremental.FileMerging) *merged {
	j := &job{store: blobstore.NewMem()}
	j.cl = incremental.NewCleaner(incremental.NewRegistry(), j, nil)
	d, err := Open(t.Context(), newTestProcess(t), "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	d.sched.setOpen(false)
	return &merged{T: t, job: j, d: d, opts: UploadOptions{Merge: &m}}
}

// tables flushes a table for each of some key groups.
func (m *merged) tables(from, to int) {
	for g := from; g < to; g++ {
		b := m.d.Pebble().NewBatch()
		for i := range 50 {
			require.NoError(m, b.Set(key(g, i), fmt.Appendf(nil, "value %d of key group %d", i, g), nil))
		}
		require.NoError(m, m.d.Apply(m.Context(), b))
		require.NoError(m, b.Close())
		require.NoError(m, m.d.Flush(m.Context()))
	}
}

// drop removes the tables of some key groups.
func (m *merged) drop(from, to int32) {
	require.NoError(m, m.d.Pebble().Excise(m.Context(), span(groups(from, to))))
}

// take is a checkpoint that is acknowledged. same says that the registry has earlier
// uploads of what it wrote, and puts them in their place.
func (m *merged) take(id int64, same bool) (up *Uploaded, brought []metadata.StreamHandle) {
	require.NoError(m, m.cl.Update(func(r *incremental.Registry) error { return r.Begin(id) }))
	f, err := m.d.Checkpoint(id, nil)
	require.NoError(m, err)
	defer f.Release()
	up, err = f.Upload(m.Context(), m.create, &m.opts)
	require.NoError(m, err)
	var files []incremental.AckFile
	for i, n := range up.Handle.Shared {
		files = append(files, incremental.AckFile{Identity: up.Identities[i], Handle: n.Handle})
		brought = append(brought, n.Handle)
	}
	for _, n := range up.Handle.Private {
		files = append(files, incremental.AckFile{Handle: n.Handle})
	}
	require.NoError(m, m.cl.Update(func(r *incremental.Registry) error { return r.Register(id, files) }))
	for i := range brought {
		require.Equal(m, same, brought[i] != files[i].Handle)
		up.Handle.Shared[i].Handle = files[i].Handle
	}
	return up, brought
}

func (m *merged) confirm(id int64) {
	require.NoError(m, m.cl.Update(func(r *incremental.Registry) error { return r.Confirm(id, "") }))
	m.d.Confirmed(id)
}

// retain subsumes all other checkpoints and deletes what nobody needs.
func (m *merged) retain(ids ...int64) {
	require.NoError(m, m.cl.Update(func(r *incremental.Registry) error { r.Retain(ids...); return nil }))
	left, err := m.cl.Clean(m.Context())
	require.NoError(m, err)
	require.Zero(m, left)
}

func (m *merged) names() (names []string) {
	for info, err := range m.store.List(m.Context(), nil) {
		require.NoError(m, err)
		names = append(names, info.Name)
	}
	return names
}

func (m *merged) why(file string) (why string) {
	require.NoError(m, m.cl.Update(func(r *incremental.Registry) error {
		reason, _, err := r.Why(jobRoot + "/" + file)
		why = reason.String()
		return err
	}))
	return why
}

// objects are the physical files of a checkpoint's tables, with the bytes it names.
func (*merged) objects(up *Uploaded) map[string]int64 {
	live := map[string]int64{}
	for _, n := range up.Handle.Shared {
		live[physical(n.Handle)] += metadata.StateSize(n.Handle)
	}
	return live
}

// requireGroups restores a checkpoint, which must have these key groups.
func (m *merged) requireGroups(up *Uploaded, from, to int) {
	for _, eager := range []bool{false, true} {
		d, err := Restore(m.Context(), m.d.p, "/r", []Source{{Name: "merged", Handle: up.Handle, Open: m.openHandle}}, &Options{KeyGroups: allGroups, FS: vfs.NewMem(), Eager: eager})
		require.NoError(m, err)
		want, got := map[string]string{}, map[string]string{}
		for g := from; g < to; g++ {
			for i := range 50 {
				want[string(key(g, i))] = fmt.Sprintf("value %d of key group %d", i, g)
			}
		}
		it, err := d.Pebble().NewIter(nil)
		require.NoError(m, err)
		for ok := it.First(); ok; ok = it.Next() {
			got[string(it.Key())] = string(it.Value())
		}
		require.NoError(m, it.Close())
		require.NoError(m, d.Close())
		require.Equal(m, want, got)
	}
}

// A physical file lives as long as one of its segments, and what of it is needed is
// written anew, once, when that is too little.
func TestMergedFiles(t *testing.T) {
	m := newMerged(t, incremental.FileMerging{})
	m.tables(0, 10)
	one, _ := m.take(1, false)
	m.confirm(1)
	require.Len(t, one.Handle.Shared, 10)
	require.Len(t, m.objects(one), 1)
	first := physical(one.Handle.Shared[0].Handle)
	var end int64
	for i, n := range one.Handle.Shared {
		h := n.Handle.(*metadata.SegmentHandle)
		require.Equal(t, metadata.ScopeShared, h.Scope)
		require.Equal(t, end, h.Start, i)
		end += h.Length
	}
	info, err := m.store.Stat(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, end, info.Size)

	// One table more: it is alone, and the others are where they were.
	m.tables(10, 11)
	two, _ := m.take(2, false)
	m.confirm(2)
	require.Equal(t, 10, two.Reused)
	require.Equal(t, map[string]int64{first: info.Size, physical(two.Handle.Shared[10].Handle): two.Handle.Shared[10].Handle.(*metadata.FileHandle).Size}, m.objects(two))
	m.retain(2)
	require.Contains(t, m.why(first), "needed since checkpoint 1, until checkpoint 2 is subsumed")

	// Most of the first file goes: what is left of it is written anew.
	m.drop(0, 8)
	three, _ := m.take(3, false)
	require.NotContains(t, m.objects(three), first)
	require.Equal(t, 1, three.Reused)
	m.confirm(3)
	require.Contains(t, m.why(first), "until checkpoint 2 is subsumed")
	m.retain(2, 3)
	require.Contains(t, m.names(), first)
	m.requireGroups(two, 0, 11)
	m.retain(3)
	require.NotContains(t, m.names(), first)
	m.requireGroups(three, 8, 11)

	// What was written anew stays where it is, and is what a restored task builds on.
	four, _ := m.take(4, false)
	m.confirm(4)
	require.Equal(t, len(four.Handle.Shared), four.Reused)
	require.Equal(t, m.objects(three), m.objects(four))
	m.retain(4)
	m.requireGroups(four, 8, 11)
}

// A checkpoint that is aborted leaves nothing, and what it wrote anew is written again.
func TestMergedFilesOfAnAbortedCheckpoint(t *testing.T) {
	m := newMerged(t, incremental.FileMerging{})
	m.tables(0, 10)
	one, _ := m.take(1, false)
	m.confirm(1)
	before := m.names()
	m.drop(0, 8)
	two, _ := m.take(2, false)
	require.NotEqual(t, before, m.names())
	require.NoError(t, m.cl.Update(func(r *incremental.Registry) error { r.Abort(2); return nil }))
	m.d.Aborted(2)
	m.retain(1)
	require.Equal(t, before, m.names())
	three, _ := m.take(3, false)
	require.Equal(t, two.Identities, three.Identities)
	m.confirm(3)
	m.retain(3)
	require.NotContains(t, m.names(), physical(one.Handle.Shared[0].Handle))
	m.requireGroups(three, 8, 10)
}

// Two checkpoints at the same time write the same segments anew: the registry keeps one.
func TestMergedFilesOfConcurrentCheckpoints(t *testing.T) {
	m := newMerged(t, incremental.FileMerging{})
	m.tables(0, 10)
	one, _ := m.take(1, false)
	m.confirm(1)
	m.drop(0, 8)
	two, _ := m.take(2, false)
	three, again := m.take(3, true)
	require.Equal(t, two.Handle.Shared, three.Handle.Shared)
	m.confirm(3) // 2 is aborted
	m.retain(3)
	require.NotContains(t, m.names(), physical(one.Handle.Shared[0].Handle))
	require.NotContains(t, m.names(), physical(again[0]))
	require.Contains(t, m.names(), physical(two.Handle.Shared[0].Handle))
	// The task builds on what it wrote, which is not there any more: the registry knows.
	four, brought := m.take(4, true)
	require.Equal(t, again, brought)
	require.Equal(t, two.Handle.Shared, four.Handle.Shared)
	m.confirm(4)
	m.retain(4)
	m.requireGroups(four, 8, 10)
}

// Files of more than half of what a physical file may have are alone, no physical file
// exceeds it, and a savepoint has no segments.
func TestMergedFileSizes(t *testing.T) {
	m := newMerged(t, incremental.FileMerging{MaxFileBytes: 5000})
	m.tables(0, 12)
	one, _ := m.take(1, false)
	files := m.objects(one)
	require.Greater(t, len(files), 1)
	require.Less(t, len(files), 12)
	for name, n := range files {
		require.LessOrEqual(t, n, int64(5000), name)
	}
	m.confirm(1)
	m.opts.Merge = &incremental.FileMerging{MaxFileBytes: 1000}
	m.opts.Full, m.opts.Forward = true, true
	two, _ := m.take(2, false)
	require.Len(t, m.objects(two), 12)
	m.opts.Merge, m.opts.Forward = &incremental.FileMerging{}, false
	f, err := m.d.Checkpoint(3, nil)
	require.NoError(t, err)
	defer f.Release()
	up, err := f.Upload(t.Context(), m.create, &m.opts)
	require.NoError(t, err)
	for _, n := range up.Handle.Shared {
		require.IsType(t, &metadata.FileHandle{}, n.Handle)
	}
}

func TestSegmentsOfHandles(t *testing.T) {
	entries := []sumEntry{{Size: 3}, {Size: 2}}
	inline, err := segments(&metadata.ByteStreamHandle{Name: "x", Data: []byte("abcde")}, entries)
	require.NoError(t, err)
	var names []metadata.String
	for i, want := range []string{"abc", "de"} {
		h := inline[i].(*metadata.ByteStreamHandle)
		require.Equal(t, want, string(h.Data))
		names = append(names, h.Name)
	}
	require.NotEqual(t, names[0], names[1])
	require.Zero(t, entries[0].Physical)
	_, err = segments(&metadata.ByteStreamHandle{Data: []byte("abcd")}, entries)
	require.Error(t, err)
	_, err = segments(&metadata.RelativeFileHandle{Path: "x", Size: 5}, entries)
	require.ErrorContains(t, err, "absolute")
	_, err = segments(nil, entries)
	require.Error(t, err)
}

// Each call of the store fails once while files are merged: all that was begun is ended,
// and the next upload is whole.
func TestFaultsOfMergedFiles(t *testing.T) {
	m := newMerged(t, incremental.FileMerging{MaxFileBytes: 5000})
	m.tables(0, 12)
	f, err := m.d.Checkpoint(1, nil)
	require.NoError(t, err)
	defer f.Release()
	fired := true
	for n := int32(1); fired; n++ {
		fail := &failOnce{n: n, err: errInjected}
		var mu sync.Mutex
		var made []*jobWriter
		_, err := f.Upload(t.Context(), func(ctx context.Context, shared bool) FileWriter {
			mu.Lock()
			defer mu.Unlock()
			w := m.create(ctx, shared).(*jobWriter)
			made = append(made, w)
			return &faultyWriter{w, fail}
		}, &m.opts)
		if fired = fail.fired(); fired {
			require.ErrorIs(t, err, errInjected)
		} else {
			require.NoError(t, err)
		}
		for _, w := range made {
			require.True(t, w.ended)
			require.NoError(t, m.store.Delete(t.Context(), w.name)) // as snapshot.Writer's Abort does
		}
		require.Empty(t, m.names())
	}
	up, _ := m.take(2, false)
	m.confirm(2)
	m.requireGroups(up, 0, 12)
}
