package lsm_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// numbered are states of a subtask whose content is told by one number.
type numbered struct {
	*lsm.Backend[int64]
	dir   string
	value *keyed.ValueState[int64, []byte]
	list  *keyed.ListState[int64, int64]
	m     *keyed.MapState[int64, string, int64]
	timer *keyed.TimerQueue[int64, struct{}]
}

const (
	numberedKeys   = 40
	numberedGroups = 16
)

func (s *numbered) owns(k keyed.Key[int64]) bool {
	return s.KeyGroups().Contains(int32(k.Group()))
}

// fill makes the content that of n, which has to be that of n-1 or nothing; from 3 on only
// half of the keys change.
func (s *numbered) fill(n int64) error {
	for k := range int64(numberedKeys) {
		key := s.Key(k)
		if !s.owns(key) || n > 2 && k%2 == 0 {
			continue
		}
		if err := s.value.Set(key, fmt.Appendf(nil, "%0100d", n)); err != nil {
			return err
		}
		if err := s.list.Add(key, n); err != nil {
			return err
		}
		if err := s.m.Put(key, "n", n); err != nil {
			return err
		}
		if _, err := s.timer.Delete(key, struct{}{}, n-1); err != nil {
			return err
		}
		if _, err := s.timer.Register(key, struct{}{}, n); err != nil {
			return err
		}
	}
	return nil
}

// check says whether the content is that of n; the error is that of a read.
func (s *numbered) check(t *testing.T, n int64) error {
	keys := 0
	for k := range int64(numberedKeys) {
		key := s.Key(k)
		if !s.owns(key) {
			continue
		}
		keys++
		of := n
		if k%2 == 0 {
			of = min(n, 2)
		}
		v, ok, err := s.value.Get(key)
		if err != nil {
			return err
		}
		require.True(t, ok, "key %d", k)
		require.Equal(t, fmt.Sprintf("%0100d", of), string(v), "key %d", k)
		l, err := s.list.Get(key)
		if err != nil {
			return err
		}
		require.Len(t, l, int(of), "key %d", k)
		require.Equal(t, of, l[len(l)-1])
		x, _, err := s.m.Get(key, "n")
		if err != nil {
			return err
		}
		require.Equal(t, of, x, "key %d", k)
	}
	count, err := s.timer.Len()
	if err != nil {
		return err
	}
	require.Equal(t, keys, count)
	return nil
}

// job is an operator with its subtasks and its checkpoints, as a coordinator keeps them.
type job struct {
	t       *testing.T
	process *lsm.Process
	fs      vfs.FS // of the subtasks
	store   blobstore.Store
	pool    *blobstore.Pool // what the subtasks and the coordinator use
	sound   *blobstore.Pool // the same store without faults
	root    blobstore.Location
	cleaner *incremental.Cleaner
	now     time.Time // of the cleaner
	tasks   []*numbered
	ahead   int64 // the number of the tasks' content
	folders int
	local   bool            // restores use local copies
	ids     int64           // of checkpoints
	last    int64           // complete checkpoint, 0 for none
	kept    map[int64]int64 // complete checkpoints with their number
	failed  error           // of Abort
	merge   *incremental.FileMerging
}

func newJob(t *testing.T, p *lsm.Process, fs vfs.FS) *job {
	root, err := blobstore.Parse("mem://faults/job")
	require.NoError(t, err)
	j := &job{t: t, process: p, fs: fs, store: blobstore.NewMem(), root: root, now: time.Unix(1, 0), kept: map[int64]int64{}}
	j.sound = blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store { return j.store })
	j.faulty(nil)
	j.cleaner = incremental.NewCleaner(incremental.NewRegistry(), stores{j}, &incremental.CleanerOptions{Now: func() time.Time { return j.now }})
	return j
}

// faulty makes calls of the store go wrong from now on; nil ends that.
func (j *job) faulty(f *blobstore.Faults) {
	j.pool = blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store {
		if f == nil {
			return j.store
		}
		return f.Wrap(j.store)
	})
}

// stores are those of a job as its cleaner sees them: with the faults of the moment.
type stores struct{ j *job }

func (s stores) Resolve(ctx context.Context, loc blobstore.Location) (blobstore.Store, string, error) {
	return s.j.pool.Resolve(ctx, loc)
}

// close ends the subtasks as if their process had gone.
func (j *job) close() {
	for _, s := range j.tasks {
		require.NoError(j.t, s.Close())
	}
	j.tasks, j.ahead = nil, 0
}

func (j *job) update(f func(r *incremental.Registry) error) error { return j.cleaner.Update(f) }

// start opens subtasks that restore the last complete checkpoint, if there is one.
func (j *job) start(parallelism int) error { return j.startWith(j.t.Context(), parallelism) }

func (j *job) startWith(ctx context.Context, parallelism int) error {
	tasks, err := j.open(ctx, j.fs, j.pool, parallelism, j.last)
	j.tasks = append(j.tasks, tasks...)
	return err
}

func (j *job) open(ctx context.Context, fs vfs.FS, pool *blobstore.Pool, parallelism int, id int64) (tasks []*numbered, err error) {
	var local []string
	for i := 1; j.local && i <= j.folders; i++ {
		copies, err := pebbledb.LocalCopies(fs, fmt.Sprintf("/%d", i))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		local = append(local, copies...)
	}
	var sn *snapshot.Snapshot
	if id > 0 {
		if sn, err = snapshot.Open(ctx, pool, j.layout(id).Dir, nil); err != nil {
			return nil, err
		}
	}
	for i := range parallelism {
		first, last := serializer.KeyGroupRange(i, parallelism, numberedGroups)
		j.folders++
		dir := fmt.Sprintf("/%d", j.folders)
		b, err := lsm.Open(dir, keyed.Config[int64]{
			Key: serializer.Int64, MaxParallelism: numberedGroups, KeyGroups: metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)},
		}, &lsm.Options{Process: j.process, Database: pebbledb.Options{FS: fs, KeepLocal: true, Local: local}})
		if err != nil {
			return tasks, err
		}
		s := &numbered{
			b, dir, keyed.Value(b, "value", serializer.Bytes), keyed.List(b, "list", serializer.Int64), keyed.Map(b, "map", serializer.String, serializer.Int64),
			keyed.Timers(b, "user-timers", serializer.VoidNS).Event,
		}
		tasks = append(tasks, s)
		if err := b.Err(); err != nil {
			return tasks, err
		}
		if sn != nil {
			if err := b.Restore(ctx, keyed.RestoreSource{Snapshot: sn}); err != nil {
				return tasks, err
			}
		}
	}
	return tasks, nil
}

func (j *job) fill(n int64) error {
	j.ahead = n
	for _, s := range j.tasks {
		if err := s.fill(n); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) check(n int64) error {
	for _, s := range j.tasks {
		if err := s.check(j.t, n); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) layout(id int64) snapshot.Layout {
	return snapshot.Layout{Dir: j.root.Join(fmt.Sprintf("chk-%d", id)), Shared: j.root.Join("shared"), TaskOwned: j.root.Join("taskowned")}
}

// upload writes a checkpoint but for its metadata object, and acknowledges it.
func (j *job) upload() (w *snapshot.Writer, c *metadata.Checkpoint, err error) {
	ctx := j.t.Context()
	j.ids++
	id := j.ids
	if err := j.update(func(r *incremental.Registry) error { return r.Begin(id) }); err != nil {
		return nil, nil, err
	}
	if w, err = snapshot.NewWriter(ctx, j.pool, j.layout(id), &snapshot.WriterOptions{MemoryThreshold: -1, Merge: j.merge}); err != nil {
		return nil, nil, err
	}
	op := metadata.OperatorState{ID: metadata.OperatorID{1}, Parallelism: int32(len(j.tasks)), MaxParallelism: numberedGroups}
	for i, s := range j.tasks {
		snap, err := s.Snapshot(ctx, id)
		if err != nil {
			return w, nil, err
		}
		h, err := snap.Upload(ctx, w, nil)
		snap.Release()
		if err != nil {
			return w, nil, err
		}
		op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
	}
	c = &metadata.Checkpoint{Version: 4, ID: id, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{op}}
	var files []incremental.AckFile
	for _, h := range c.StreamHandles() {
		if r, ok := metadata.Innermost(h).(*metadata.RelativeFileHandle); ok {
			h = &metadata.FileHandle{Path: javaio.NewString(j.layout(id).Dir.Join(r.Path.Go()).String()), Size: r.Size}
		}
		files = append(files, incremental.AckFile{Handle: h})
	}
	return w, c, j.update(func(r *incremental.Registry) error { return r.Register(id, files) })
}

// commit completes a checkpoint and tells everybody.
func (j *job) commit(w *snapshot.Writer, c *metadata.Checkpoint, n int64) error {
	if err := w.Commit(j.t.Context(), c); err != nil {
		return err
	}
	j.kept[c.ID], j.last = n, c.ID
	err := j.update(func(r *incremental.Registry) error {
		return r.Confirm(c.ID, j.layout(c.ID).Dir.Join(snapshot.MetadataName).String())
	})
	for _, s := range j.tasks {
		s.Confirmed(c.ID)
	}
	return err
}

// save is a whole checkpoint of the content of n; one that fails is aborted.
func (j *job) save(n int64) error {
	w, c, err := j.upload()
	if err == nil {
		err = j.commit(w, c, n)
	}
	if err == nil {
		return nil
	}
	if w != nil {
		j.failed = errors.Join(j.failed, w.Abort(j.t.Context()))
	}
	j.abort()
	return err
}

// abort gives up the checkpoint that was begun last.
func (j *job) abort() {
	require.NoError(j.t, j.update(func(r *incremental.Registry) error { r.Abort(j.ids); return nil }))
	for _, s := range j.tasks {
		s.Aborted(j.ids)
	}
}

// subsume gives up all checkpoints but the last.
func (j *job) subsume() {
	require.NoError(j.t, j.update(func(r *incremental.Registry) error { r.Retain(j.last); return nil }))
	maps.DeleteFunc(j.kept, func(id, _ int64) bool { return id != j.last })
}

// clean deletes what the registry says, what failed before too.
func (j *job) clean() int {
	j.now = j.now.Add(time.Hour)
	left, err := j.cleaner.Clean(j.t.Context())
	require.NoError(j.t, err)
	return left
}

// requireWhole restores each complete checkpoint, at another parallelism, without local
// copies, and compares it. It gives what lies in the store and belongs to none of them.
func (j *job) requireWhole(why string) (garbage []string) {
	ctx := j.t.Context()
	needed := map[string]bool{}
	for id, n := range j.kept {
		sn, err := snapshot.Open(ctx, j.sound, j.layout(id).Dir, nil)
		require.NoError(j.t, err, "%s: checkpoint %d", why, id)
		needed[j.layout(id).Dir.Join(snapshot.MetadataName).Path] = true
		for f := range snapshot.Files(sn) {
			needed[f.Location.Path] = true
			_, err := j.store.Stat(ctx, f.Location.Path)
			require.NoError(j.t, err, "%s: checkpoint %d", why, id)
		}
		tasks, err := j.open(ctx, vfs.NewMem(), j.sound, 1+int(id)%2, id)
		require.NoError(j.t, err, "%s: checkpoint %d", why, id)
		for _, s := range tasks {
			require.NoError(j.t, s.check(j.t, n), "%s: checkpoint %d", why, id)
			require.NoError(j.t, s.Close())
		}
	}
	for info, err := range j.store.List(ctx, nil) {
		require.NoError(j.t, err)
		if !needed[info.Name] {
			garbage = append(garbage, info.Name)
		}
	}
	return garbage
}

// content is the number of a complete checkpoint's content.
func (j *job) content(id int64) int64 {
	tasks, err := j.open(j.t.Context(), vfs.NewMem(), j.sound, 1, id)
	require.NoError(j.t, err)
	defer func() { require.NoError(j.t, tasks[0].Close()) }()
	n, ok, err := tasks[0].m.Get(tasks[0].Key(1), "n")
	require.NoError(j.t, err)
	require.True(j.t, ok)
	require.NoError(j.t, tasks[0].check(j.t, n))
	return n
}

// pending are the objects that the registry will delete.
func (j *job) pending() (names []string) {
	require.NoError(j.t, j.update(func(r *incremental.Registry) error {
		for loc := range r.Pending() {
			names = append(names, loc.Path)
		}
		return nil
	}))
	slices.Sort(names)
	return names
}
