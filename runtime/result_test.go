package runtime_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

var errDead = errors.New("the process is dead")

// death lets a process die: from one of its changes of the store on nothing gets there
// any more, and nothing comes back.
type death struct {
	at, changes atomic.Int64
	dead        atomic.Bool
	died        func()
}

func (d *death) pool() *blobstore.Pool {
	var rules []blobstore.Fault
	for _, op := range []string{"create", "commit", "delete"} {
		rules = append(rules, blobstore.Fault{Op: op, Err: errDead, Name: func(string) bool {
			if d.changes.Add(1) == d.at.Load() {
				d.dead.Store(true)
				d.died()
			}
			return d.dead.Load()
		}})
	}
	rules = append(rules, blobstore.Fault{Err: errDead, Name: func(string) bool { return d.dead.Load() }})
	faults := blobstore.NewFaults(rules...)
	return blobstore.NewPool(nil, faults.Wrap)
}

// durable are the options of a job whose checkpoints are deleted at its end.
func durable(t *testing.T, dir string, pool *blobstore.Pool, deleteAt ...checkpoint.JobStatus) *runtime.Options {
	t.Helper()
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	store, name, err := pool.Resolve(t.Context(), loc.Join(testJob).Join("checkpoints-log"))
	require.NoError(t, err)
	log, err := checkpoint.NewLogStore(store, name, &checkpoint.LogOptions{Backoff: time.Microsecond})
	require.NoError(t, err)
	return &runtime.Options{Checkpoints: dir, JobID: testJob, Pool: pool, Store: log, Delete: deleteAt, Restart: runtime.NoRestart(),
		Writer: &snapshot.WriterOptions{MemoryThreshold: -1}}
}

// TestKilledAtItsEnd kills a job at each change that it makes of the store, which is
// done by its end for the most part: its last checkpoint, its result, the deletion of
// the checkpoint. Whoever starts it again never begins anew: each line is there once,
// the job has finished, and nothing is left but the record of it. Started once more, no
// record is read.
func TestKilledAtItsEnd(t *testing.T) {
	const n, keys = 200, 10
	for at := int64(1); ; at++ {
		to, root := t.TempDir(), t.TempDir()
		dir := "file://" + filepath.ToSlash(root)
		ctx, cancel := context.WithCancel(t.Context())
		d := &death{died: cancel}
		d.at.Store(at)
		pool := d.pool()
		e, err := runtime.Start(ctx, copyJob(n, keys, 2, to, nil), durable(t, dir, pool, checkpoint.JobFinished))
		if err == nil {
			err = e.Wait()
		}
		cancel()
		require.NoError(t, pool.Close())
		died := d.dead.Load()
		if !died {
			require.NoError(t, err)
		}
		for again := range 2 {
			var seen atomic.Int64
			pool := blobstore.NewPool(nil, nil)
			e, err := runtime.Start(t.Context(), copyJob(n, keys, 2, to, func(int64) error { seen.Add(1); return nil }), durable(t, dir, pool, checkpoint.JobFinished))
			require.NoError(t, err, "death at %d", at)
			require.NoError(t, e.Wait(), "death at %d", at)
			require.Equal(t, runtime.Finished, e.Status())
			require.NoError(t, pool.Close())
			requireCounts(t, readLines(t, to), n, keys)
			if again == 1 || !died {
				require.Zero(t, seen.Load(), "death at %d", at)
			}
		}
		require.Empty(t, filesOfCheckpoints(t, root), "death at %d", at)
		if !died {
			require.Greater(t, at, int64(10))
			break
		}
	}
}

// filesOfCheckpoints are the files of a job's folder but for those of its log.
func filesOfCheckpoints(t *testing.T, root string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(filepath.ToSlash(name), "/checkpoints-log/") {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// TestResultOfAFailedJob has jobs that fail for good. One whose checkpoints are
// deleted then is over; one whose checkpoints stay goes on from them.
func TestResultOfAFailedJob(t *testing.T) {
	for name, deleteAt := range map[string][]checkpoint.JobStatus{"deleted": {checkpoint.JobFailed}, "kept": {checkpoint.JobFinished}} {
		t.Run(name, func(t *testing.T) {
			to, root := t.TempDir(), t.TempDir()
			dir := "file://" + filepath.ToSlash(root)
			var fail atomic.Bool
			e, err := runtime.Start(t.Context(), endlessCopyJob(10, to, func(int64) error {
				if fail.Load() {
					return errInjected
				}
				return nil
			}), durable(t, dir, blobstore.NewPool(nil, nil), deleteAt...))
			require.NoError(t, err)
			checkpointWhenRunning(t, e)
			fail.Store(true)
			require.ErrorIs(t, e.Wait(), errInjected)
			again, err := runtime.Start(t.Context(), endlessCopyJob(10, to, nil), durable(t, dir, blobstore.NewPool(nil, nil), deleteAt...))
			require.NoError(t, err)
			if slices.Contains(deleteAt, checkpoint.JobFailed) {
				err := again.Wait()
				require.ErrorIs(t, err, runtime.ErrEnded)
				require.ErrorContains(t, err, "FAILED: job copy failed")
				require.ErrorContains(t, err, errInjected.Error())
				require.Equal(t, runtime.Failed, again.Status())
				require.Empty(t, filesOfCheckpoints(t, root))
				return
			}
			checkpointWhenRunning(t, again)
			stop(t, again, event.SavepointCanonical, dir, false)
			requireFirstCounts(t, readLines(t, to), 10)
		})
	}
}
