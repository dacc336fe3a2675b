package runtime_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TestRestoreModes starts a job with state on disk from the retained incremental
// checkpoint of another one, in each mode, and takes incremental checkpoints of its own.
//
//   - NO_CLAIM: its first checkpoint is complete without a file of the other's, which
//     are all deleted then; the job fails and goes on.
//   - LEGACY: its checkpoints may refer to files of the other's, of which none is ever
//     changed or deleted.
//   - CLAIM: they may as well, and what none needs any more is deleted.
func TestRestoreModes(t *testing.T) {
	process := lsm.NewProcess(nil)
	defer process.Close()
	for _, mode := range []incremental.RestoreMode{incremental.NoClaim, incremental.Legacy, incremental.Claim} {
		t.Run(mode.String(), func(t *testing.T) {
			const keys = 1_000
			theirs, ours, to := t.TempDir(), t.TempDir(), t.TempDir()
			opts := func(dir string) *runtime.Options {
				return &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), Restart: fixedDelay(t, 1), Retained: 1,
					Writer: &snapshot.WriterOptions{MemoryThreshold: -1}, State: task.StateOptions{Backend: task.BackendLSM, Dir: t.TempDir(), LSM: process}}
			}
			var fail atomic.Bool
			var seen atomic.Int64
			hook := func(int64) error {
				if fail.CompareAndSwap(true, false) {
					return errInjected
				}
				seen.Add(1)
				return nil
			}
			onward := func() {
				for n := seen.Load(); seen.Load() < n+1_000; {
					time.Sleep(time.Millisecond)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, err := runtime.Start(ctx, endlessCopyJob(keys, to, hook), opts(theirs))
			require.NoError(t, err)
			var source checkpoint.Result
			for range 2 {
				onward()
				source = checkpointWhenRunning(t, e)
			}
			cancel()
			require.ErrorIs(t, e.Wait(), context.Canceled)
			before := contents(t, theirs)
			require.Contains(t, before, "shared", "the source is incremental")

			o := opts(ours)
			o.Restore, o.RestoreMode = source.Path, mode
			e, err = runtime.Start(t.Context(), endlessCopyJob(keys, to, hook), o)
			require.NoError(t, err)
			first := checkpointWhenRunning(t, e)
			switch mode {
			case incremental.NoClaim:
				require.False(t, refersTo(t, first.Path, theirs), "the first checkpoint has files of the source")
				require.NoError(t, os.RemoveAll(theirs))
			case incremental.Legacy:
				require.Equal(t, before, contents(t, theirs))
			}
			for range 2 {
				onward()
				checkpointWhenRunning(t, e)
			}
			fail.Store(true)
			for e.Restarts() == 0 {
				time.Sleep(time.Millisecond)
			}
			last := checkpointWhenRunning(t, e)
			if mode == incremental.NoClaim {
				require.False(t, refersTo(t, last.Path, theirs))
			}
			_, err = e.Stop(t.Context(), event.SavepointCanonical, o.Checkpoints, false)
			require.NoError(t, err)
			requireFirstCounts(t, readLines(t, to), keys)
			switch mode {
			case incremental.Legacy:
				require.Equal(t, before, contents(t, theirs))
			case incremental.Claim:
				after := contents(t, theirs)
				for name := range after {
					require.NotEqual(t, snapshot.MetadataName, filepath.Base(name), "the claimed checkpoint is subsumed")
				}
				require.Less(t, len(after), len(before))
			}
		})
	}
}

// contents are the files below a folder, and whether there are shared ones.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		all[name] = string(b)
		if filepath.Base(filepath.Dir(name)) == "shared" {
			all["shared"] = ""
		}
		return err
	}))
	return all
}

// refersTo says whether a snapshot names a file below a folder.
func refersTo(t *testing.T, url, dir string) bool {
	t.Helper()
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	store, name, err := pool.Resolve(t.Context(), loc)
	require.NoError(t, err)
	b, err := blobstore.ReadAll(t.Context(), store, name, 16<<20)
	require.NoError(t, err)
	return bytes.Contains(b, []byte(filepath.ToSlash(dir)))
}
