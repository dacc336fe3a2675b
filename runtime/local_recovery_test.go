package runtime_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TestLocalRecovery restarts a job with state on disk. With a local copy nothing of
// the shared files is read from the store; a copy that is damaged is found out, and
// the next restart goes without it.
func TestLocalRecovery(t *testing.T) {
	process := lsm.NewProcess(nil)
	defer process.Close()
	for _, x := range []struct {
		name     string
		local    bool
		damage   func(table string) error
		restarts int
		fetched  bool
	}{
		{"whole", true, nil, 1, false},
		{"off", false, nil, 1, true},
		{"other bytes", true, func(table string) error {
			b, err := os.ReadFile(table)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return replace(table, b)
		}, 2, true},
		{"truncated", true, func(table string) error { return replace(table, []byte("short")) }, 1, true},
		{"missing", true, os.Remove, 1, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			const keys = 4_000
			var watching atomic.Bool
			var reads atomic.Int64
			pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
				return &readWatch{s, func(name string) {
					if watching.Load() && strings.Contains(name, "/shared/") {
						reads.Add(1)
					}
				}}
			})
			defer pool.Close()
			to, databases := t.TempDir(), t.TempDir()
			var fail atomic.Bool
			hook := func(int64) error {
				if fail.CompareAndSwap(true, false) {
					return errInjected
				}
				return nil
			}
			dir := "file://" + filepath.ToSlash(t.TempDir())
			e, err := runtime.Start(t.Context(), endlessCopyJob(keys, to, hook), &runtime.Options{Checkpoints: dir, Pool: pool,
				Retained: 2, Writer: &snapshot.WriterOptions{MemoryThreshold: -1}, Restart: fixedDelay(t, 10),
				State: task.StateOptions{Backend: task.BackendLSM, Dir: databases, LSM: process, LocalRecovery: x.local}})
			require.NoError(t, err)
			var last checkpoint.Result
			taken := func() bool {
				var refused *checkpoint.Failure
				if last, err = e.Checkpoint(t.Context(), event.Checkpoint, ""); err != nil {
					require.ErrorAs(t, err, &refused)
				}
				return err == nil
			}
			for n := 0; n < 2; { // checkpoints while it runs, of which the second has tables of the first
				if taken() {
					n++
				}
				time.Sleep(5 * time.Millisecond)
			}
			if x.local { // the copy of the first goes when the task is told of the second
				copied := fmt.Sprintf("chk-%d", last.ID)
				require.Eventually(t, func() bool {
					tables := copiedTables(databases)
					return len(tables) > 0 && !slices.ContainsFunc(tables, func(table string) bool { return filepath.Base(filepath.Dir(table)) != copied })
				}, time.Minute, time.Millisecond, "there is no local copy of the last checkpoint alone")
			}
			if x.damage != nil {
				for _, table := range copiedTables(databases) {
					require.NoError(t, x.damage(table))
				}
			}
			watching.Store(true)
			fail.Store(true)
			for e.Restarts() < x.restarts || !taken() {
				time.Sleep(time.Millisecond)
			}
			_, err = e.Stop(t.Context(), event.SavepointCanonical, dir, false)
			require.NoError(t, err)
			require.Equal(t, x.restarts, e.Restarts())
			require.Equal(t, x.fetched, reads.Load() > 0, "%d reads of shared files", reads.Load())
			requireFirstCounts(t, readLines(t, to), keys)
		})
	}
}

// endlessCopyJob is copyJob with a source that does not end.
func endlessCopyJob(keys int64, to string, hook func(int64) error) *stream.Job {
	j := stream.NewJob("copy", &stream.JobOptions{Parallelism: 1, MaxParallelism: 128})
	nums := stream.From(j, stream.SlowSequence(0, 1<<40, 40_000), stream.UID("numbers"))
	moved := stream.Apply(nums.Rebalance(), func() stream.Function[int64, int64] { return &hooked{hook} }, stream.UID("hook"))
	counts := stream.Process(byMod(moved, keys), newCounter, stream.UID("count"))
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(stream.Map(counts, func(p pair) string { return fmt.Sprintf("%d %d", p.F0, p.F1) }), sink, stream.UID("sink"))
	return j
}

// requireFirstCounts compares lines of endlessCopyJob with what as many numbers give.
func requireFirstCounts(t *testing.T, got []string, keys int64) {
	t.Helper()
	var want []string
	for i := range int64(len(got)) {
		want = append(want, fmt.Sprintf("%d %d", i%keys, i/keys+1))
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
}

// copiedTables are the tables in local copies.
func copiedTables(dir string) (tables []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".sst") && strings.HasPrefix(filepath.Base(filepath.Dir(path)), "chk-") {
			tables = append(tables, path)
		}
		return nil
	})
	return tables
}

// replace writes a new file, since the database has a link to the old one.
func replace(name string, b []byte) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o600)
}

// readWatch is a store that tells of reads.
type readWatch struct {
	blobstore.Store
	read func(name string)
}

func (w *readWatch) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	w.read(name)
	return w.Store.Open(ctx, name)
}

func (w *readWatch) OpenRange(ctx context.Context, name string, offset, length int64) (blobstore.Reader, error) {
	w.read(name)
	return w.Store.OpenRange(ctx, name, offset, length)
}
