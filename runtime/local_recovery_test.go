package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// TestLocalRecovery restarts a job. With a local copy nothing of the files of keyed
// state is read from the store. A copy that is damaged is not used; that of a database
// may be found out only later, and the next restart goes without it.
func TestLocalRecovery(t *testing.T) {
	process := lsm.NewProcess(nil)
	defer process.Close()
	flip := func(file string) error {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return replace(file, b)
	}
	short := func(file string) error { return replace(file, []byte("short")) }
	for _, x := range []struct {
		name     string
		backend  task.BackendKind
		local    bool
		damage   func(file string) error
		restarts int
		fetched  bool
	}{
		{"lsm whole", task.BackendLSM, true, nil, 1, false},
		{"lsm off", task.BackendLSM, false, nil, 1, true},
		{"lsm other bytes", task.BackendLSM, true, flip, 2, true},
		{"lsm truncated", task.BackendLSM, true, short, 1, true},
		{"lsm missing", task.BackendLSM, true, os.Remove, 1, true},
		{"heap whole", task.BackendHeap, true, nil, 1, false},
		{"heap off", task.BackendHeap, false, nil, 1, true},
		{"heap other bytes", task.BackendHeap, true, flip, 1, true},
		{"heap truncated", task.BackendHeap, true, short, 1, true},
		{"heap missing", task.BackendHeap, true, os.Remove, 1, true},
		{"heap of no proof", task.BackendHeap, true, func(file string) error { return os.Remove(file + ".copy") }, 1, true},
		{"heap of another file", task.BackendHeap, true, func(file string) error {
			b, err := os.ReadFile(file + ".copy")
			if err != nil {
				return err
			}
			return replace(file+".copy", bytes.Replace(b, []byte("/chk-"), []byte("/chk-9"), 1))
		}, 1, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			of, threshold := "/shared/", -1
			if x.backend == task.BackendHeap {
				of, threshold = "/chk-", 1<<10 // so that keyed state alone is a file, when there is some
			}
			checkpoints := t.TempDir()
			const keys = 4_000
			var watching atomic.Bool
			var reads atomic.Int64
			pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
				return &readWatch{s, func(name string) {
					if watching.Load() && strings.HasPrefix("/"+strings.TrimPrefix(name, "/"), filepath.ToSlash(checkpoints)) &&
						strings.Contains(name, of) && path.Base(name) != snapshot.MetadataName {
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
			dir := "file://" + filepath.ToSlash(checkpoints)
			e, err := runtime.Start(t.Context(), endlessCopyJob(keys, to, hook), &runtime.Options{Checkpoints: dir, Pool: pool,
				Retained: 2, Writer: &snapshot.WriterOptions{MemoryThreshold: threshold}, Restart: fixedDelay(t, 10),
				State: task.StateOptions{Backend: x.backend, Dir: databases, LSM: process, LocalRecovery: x.local}})
			require.NoError(t, err)
			var last checkpoint.Result
			taken := func() bool {
				var refused *checkpoint.Failure
				if last, err = e.Checkpoint(t.Context(), event.Checkpoint, ""); err != nil {
					require.ErrorAs(t, err, &refused)
				}
				return err == nil
			}
			// Checkpoints while it runs, of which the second has tables of the first.
			for n, filed := 0, false; n < 2 || !filed; {
				if taken() {
					n++
					files, err := filepath.Glob(filepath.Join(checkpoints, e.JobID(), fmt.Sprintf("chk-%d", last.ID), "*"))
					require.NoError(t, err)
					filed = x.backend == task.BackendLSM || len(files) > 1
				}
				time.Sleep(5 * time.Millisecond)
			}
			if x.local { // the copy of the first goes when the task is told of the second
				copied := fmt.Sprintf("chk-%d", last.ID)
				require.Eventually(t, func() bool {
					files := copiedFiles(databases)
					return len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool { return filepath.Base(filepath.Dir(file)) != copied })
				}, time.Minute, time.Millisecond, "there is no local copy of the last checkpoint alone")
			}
			if x.damage != nil {
				for _, file := range copiedFiles(databases) {
					require.NoError(t, x.damage(file))
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
			require.Equal(t, x.fetched, reads.Load() > 0, "%d reads of files of keyed state", reads.Load())
			requireFirstCounts(t, readLines(t, to), keys)
		})
	}
}

// TestLocalCopyFails takes from a task the folder of its local copies. Checkpoints are
// complete nonetheless, and the job does not restart; its log says what is missing.
func TestLocalCopyFails(t *testing.T) {
	checkpoints, databases := t.TempDir(), t.TempDir()
	logged := &warnings{}
	dir := "file://" + filepath.ToSlash(checkpoints)
	e, err := runtime.Start(t.Context(), endlessCopyJob(4_000, t.TempDir(), func(int64) error { return nil }), &runtime.Options{Checkpoints: dir,
		Retained: 1, Writer: &snapshot.WriterOptions{MemoryThreshold: -1}, Restart: fixedDelay(t, 10), Log: slog.New(slog.NewTextHandler(logged, nil)),
		State: task.StateOptions{Backend: task.BackendHeap, Dir: databases, LocalRecovery: true}})
	require.NoError(t, err)
	folders := 0
	for taken := 0; taken < 4 || folders == 0; {
		var refused *checkpoint.Failure
		if _, err := e.Checkpoint(t.Context(), event.Checkpoint, ""); err != nil {
			require.ErrorAs(t, err, &refused) // the tasks do not run yet
			continue
		}
		taken++
		if folders > 0 {
			continue
		}
		runs, err := filepath.Glob(filepath.Join(databases, "*", "*", "*"))
		require.NoError(t, err)
		for _, run := range runs {
			require.Eventually(t, func() bool { return os.RemoveAll(run) == nil && os.WriteFile(run, nil, 0o600) == nil }, time.Minute, time.Millisecond)
			folders++
		}
		taken = 0
	}
	_, err = e.Stop(t.Context(), event.SavepointCanonical, dir, false)
	require.NoError(t, err)
	require.Zero(t, e.Restarts())
	require.Contains(t, logged.String(), `level=WARN msg="no local copy is kept" operator=`)
	require.Contains(t, logged.String(), `level=WARN msg="a local copy is left"`)
}

// warnings is a log that many goroutines write.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *warnings) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *warnings) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
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

// copiedFiles are the files of state in finished local copies: tables of a database or
// what has a proof.
func copiedFiles(dir string) (files []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(filepath.Base(filepath.Dir(path)), "chk-") {
			return nil
		}
		if file, ok := strings.CutSuffix(path, ".copy"); ok {
			files = append(files, file)
		} else if strings.HasSuffix(path, ".sst") {
			files = append(files, path)
		}
		return nil
	})
	return files
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
