package runtime_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TestFileMerging runs a job whose checkpoints have many tables in one file. A savepoint
// of it stands alone: it has a file for each table, in its own folder.
func TestFileMerging(t *testing.T) {
	process := lsm.NewProcess(nil)
	defer process.Close()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, savepoints, to := t.TempDir(), t.TempDir(), t.TempDir()
	opts := func(restore string) *runtime.Options {
		return &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(root), Pool: pool, Restore: restore, Restart: runtime.NoRestart(),
			Writer: &snapshot.WriterOptions{MemoryThreshold: -1, Merge: &incremental.FileMerging{}},
			State:  task.StateOptions{Backend: task.BackendLSM, Dir: t.TempDir(), LSM: process}}
	}
	const keys = 4_000
	hook := func(int64) error { return nil }
	handles := func(dir string) (segments, files, elsewhere int) {
		at, err := blobstore.Parse(dir)
		require.NoError(t, err)
		s, err := snapshot.Open(t.Context(), pool, at, nil)
		require.NoError(t, err)
		for _, o := range s.Checkpoint.Operators {
			for _, sub := range o.Subtasks {
				h, ok := sub.ManagedKeyed.(*metadata.IncrementalHandle)
				if !ok {
					continue
				}
				for _, n := range append(h.Shared, h.Private...) {
					switch n.Handle.(type) {
					case *metadata.SegmentHandle:
						segments++
					case *metadata.FileHandle:
						elsewhere++
					case *metadata.RelativeFileHandle:
						files++
					}
				}
			}
		}
		return segments, files, elsewhere
	}

	e, err := runtime.Start(t.Context(), endlessCopyJob(keys, to, hook), opts(""))
	require.NoError(t, err)
	for segments := 0; segments < 2; {
		if r, err := e.Checkpoint(t.Context(), event.Checkpoint, ""); err == nil {
			segments, _, _ = handles(r.Path)
		}
		time.Sleep(5 * time.Millisecond)
	}
	r := stop(t, e, event.SavepointNative, "file://"+filepath.ToSlash(savepoints), false)
	segments, files, elsewhere := handles(r.Path)
	require.Zero(t, segments)
	require.Zero(t, elsewhere)
	require.Positive(t, files)
	require.NoError(t, os.RemoveAll(root))

	// It goes on from the savepoint alone, and its next checkpoints are merged again.
	var seen atomic.Int64
	e, err = runtime.Start(t.Context(), endlessCopyJob(keys, to, func(int64) error { seen.Add(1); return nil }), opts(r.Path))
	require.NoError(t, err)
	for segments = 0; segments < 2 || seen.Load() == 0; {
		if r, err := e.Checkpoint(t.Context(), event.Checkpoint, ""); err == nil {
			segments, _, _ = handles(r.Path)
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop(t, e, event.SavepointCanonical, "file://"+filepath.ToSlash(savepoints), false)
	requireFirstCounts(t, readLines(t, to), keys)
}
