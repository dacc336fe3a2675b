package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

const testJob = "00000000000000000000000000000001"

// copyJob counts numbers by key and writes each count, "key count", to files: each
// line must be there once, whatever happens.
func copyJob(n, keys int64, parallelism int, to string, hook func(int64) error) *stream.Job {
	j := stream.NewJob("copy", &stream.JobOptions{Parallelism: parallelism, MaxParallelism: 128})
	nums := stream.From(j, stream.Sequence(0, n-1), stream.UID("numbers"))
	moved := stream.Apply(nums.Rebalance(), func() stream.Function[int64, int64] { return &hooked{hook} }, stream.UID("hook"))
	byKey := stream.KeyBy(moved, serializer.Int64, func(v int64) int64 { return v % keys })
	counts := stream.Process(byKey, newCounter, stream.UID("count"))
	lines := stream.Map(counts, func(p pair) string { return fmt.Sprintf("%d %d", p.F0, p.F1) })
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(lines, sink, stream.UID("sink"))
	return j
}

func readLines(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "part-*"))
	require.NoError(t, err)
	var all []string
	for _, n := range names {
		b, err := os.ReadFile(n)
		require.NoError(t, err)
		if s := strings.TrimSuffix(string(b), "\n"); s != "" {
			all = append(all, strings.Split(s, "\n")...)
		}
	}
	return all
}

func requireCounts(t *testing.T, lines []string, n, keys int64) {
	t.Helper()
	var want []string
	for k := range keys {
		for c := range n / keys {
			want = append(want, fmt.Sprintf("%d %d", k, c+1))
		}
	}
	slices.Sort(want)
	slices.Sort(lines)
	require.Equal(t, len(want), len(lines))
	require.Equal(t, want, lines)
}

// TestExactlyOnce runs the job in all modes with failures at random points, in
// attempts of random parallelism.
func TestExactlyOnce(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("TIDEMARK_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("TIDEMARK_SEED=%d", seed)
	process := lsm.NewProcess(nil)
	defer process.Close()
	for _, m := range []struct {
		name    string
		mode    runtime.Mode
		timeout time.Duration
		backend task.BackendKind
	}{
		{"aligned", runtime.Aligned, 0, task.BackendHeap}, {"unaligned", runtime.Unaligned, 0, task.BackendHeap}, {"aligned with timeout", runtime.Aligned, 2 * time.Millisecond, task.BackendHeap},
		{"aligned, lsm", runtime.Aligned, 0, task.BackendLSM}, {"unaligned, lsm", runtime.Unaligned, 0, task.BackendLSM},
	} {
		t.Run(m.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			const n, keys = 30_000, 300
			dir, to, databases := t.TempDir(), t.TempDir(), t.TempDir()
			var seen, failures atomic.Int64
			hook := func(int64) error {
				i := seen.Add(1)
				if i%9_000 == 0 && failures.Add(1) <= 3 {
					if failures.Load() == 2 {
						panic("injected")
					}
					return errInjected
				}
				if i%64 == 0 {
					time.Sleep(200 * time.Microsecond)
				}
				return nil
			}
			for run := 0; ; run++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(60+rng.IntN(120))*time.Millisecond)
				if run >= 3 {
					ctx, cancel = context.WithCancel(t.Context())
				}
				p := 1 + rng.IntN(4)
				w := &snapshot.WriterOptions{MemoryThreshold: []int{0, -1}[rng.IntN(2)]}
				if rng.IntN(2) == 0 {
					w.Merge = &incremental.FileMerging{MaxFileBytes: 64 << 10}
				}
				err := runtime.Run(ctx, copyJob(n, keys, p, to, hook), &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), JobID: testJob, Durable: true, Writer: w,
					Interval: 8 * time.Millisecond, Mode: m.mode, AlignedTimeout: m.timeout, TolerableFailures: 1000, Restart: fixedDelay(t, 20),
					State: task.StateOptions{Backend: m.backend, Dir: databases, LSM: process, LocalRecovery: rng.IntN(2) == 0}})
				cancel()
				if err == nil {
					t.Logf("%d runs, %d failures", run+1, failures.Load())
					break
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			requireCounts(t, readLines(t, to), n, keys)
			left, err := filepath.Glob(filepath.Join(to, ".part*"))
			require.NoError(t, err)
			require.Empty(t, left)
			kept, err := os.ReadDir(databases)
			require.NoError(t, err)
			require.Empty(t, kept)
		})
	}
}

// TestAtLeastOnce loses nothing.
func TestAtLeastOnce(t *testing.T) {
	const n, keys = 30_000, 300
	var got collected
	var seen atomic.Int64
	hook := func(int64) error {
		i := seen.Add(1)
		if i == 12_000 || i == 25_000 {
			return errInjected
		}
		if i%64 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	err := runtime.Run(t.Context(), countJob(n, keys, 2, &got, hook), &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir()),
		Interval: 5 * time.Millisecond, Mode: runtime.AtLeastOnce, TolerableFailures: 1000, Restart: fixedDelay(t, 20)})
	require.NoError(t, err)
	require.Len(t, got.max, keys)
	for k, c := range got.max {
		require.GreaterOrEqual(t, c, int64(n/keys), "key %d", k)
	}
}

// stop stops a job with a savepoint, as soon as all its tasks run.
func stop(t *testing.T, e *runtime.Execution, typ event.SnapshotType, dir string, drain bool) checkpoint.Result {
	t.Helper()
	for {
		r, err := e.Stop(t.Context(), typ, dir, drain)
		var refused *checkpoint.Failure
		if errors.As(err, &refused) && refused.Reason == event.NotAllRequiredTasksRunning {
			time.Sleep(time.Millisecond)
			continue
		}
		require.NoError(t, err)
		return r
	}
}

// TestStopWithSavepoint stops a job and goes on from the savepoint at another
// parallelism: canonical and native, and with drain.
func TestStopWithSavepoint(t *testing.T) {
	for _, typ := range []event.SnapshotType{event.SavepointCanonical, event.SavepointNative} {
		t.Run(typ.String(), func(t *testing.T) {
			// So slow, and with so little in flight, that it would take far longer to end.
			const n, keys = 100_000, 200
			dir, to := "file://"+filepath.ToSlash(t.TempDir()), t.TempDir()
			var seen atomic.Int64
			some := make(chan struct{})
			slow := func(v int64) error {
				if seen.Add(1) == 500 {
					close(some)
				}
				if v%4 == 0 {
					time.Sleep(time.Millisecond)
				}
				return nil
			}
			opts := func(restore string) *runtime.Options {
				return &runtime.Options{Checkpoints: dir, Interval: 20 * time.Millisecond, Restore: restore, TolerableFailures: 1000, Restart: runtime.NoRestart(),
					BufferSize: 1 << 10, BuffersPerChannel: 2}
			}
			e, err := runtime.Start(t.Context(), copyJob(n, keys, 2, to, slow), opts(""))
			require.NoError(t, err)
			<-some
			r := stop(t, e, typ, dir, false)
			require.Equal(t, runtime.Finished, e.Status())
			require.NotEmpty(t, r.Path)
			require.Less(t, len(readLines(t, to)), n)
			require.NoError(t, runtime.Run(t.Context(), copyJob(n, keys, 3, to, nil), opts(r.Path)))
			requireCounts(t, readLines(t, to), n, keys)
		})
	}
}

// TestFullCheckpoint takes one among incremental checkpoints, which it subsumes: those
// after it need none of their files.
func TestFullCheckpoint(t *testing.T) {
	const keys = 200
	dir, to := t.TempDir(), t.TempDir()
	process := lsm.NewProcess(nil)
	defer process.Close()
	opts := func(restore string) *runtime.Options {
		return &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), Restore: restore, Restart: runtime.NoRestart(), Retained: 1,
			Writer: &snapshot.WriterOptions{MemoryThreshold: -1}, State: task.StateOptions{Backend: task.BackendLSM, Dir: t.TempDir(), LSM: process}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := runtime.Start(ctx, endlessCopyJob(keys, to, nil), opts(""))
	require.NoError(t, err)
	var last checkpoint.Result
	for _, typ := range []event.SnapshotType{event.Checkpoint, event.Checkpoint, event.FullCheckpoint, event.Checkpoint, event.Checkpoint} {
		for {
			last, err = e.Checkpoint(t.Context(), typ, "")
			var refused *checkpoint.Failure
			if !errors.As(err, &refused) || refused.Reason != event.NotAllRequiredTasksRunning {
				break
			}
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond) // older files are deleted beside the job
	}
	cancel()
	require.ErrorIs(t, e.Wait(), context.Canceled)
	e, err = runtime.Start(t.Context(), endlessCopyJob(keys, to, nil), opts(last.Path))
	require.NoError(t, err)
	stop(t, e, event.SavepointCanonical, "file://"+filepath.ToSlash(dir), false)
	requireFirstCounts(t, readLines(t, to), keys)
}

// TestDrain stops a job as if its input had ended: what is in windows comes out, and
// the sink has all of it.
func TestDrain(t *testing.T) {
	dir, to := "file://"+filepath.ToSlash(t.TempDir()), t.TempDir()
	j := stream.NewJob("drain", &stream.JobOptions{Parallelism: 2})
	nums := stream.From(j, stream.SlowSequence(0, 1<<40, 2000), stream.UID("numbers"))
	var seen atomic.Int64
	stamped := stream.Watermarks(nums, stream.WatermarkStrategy[int64]{Timestamp: func(v, _ int64) int64 { seen.Add(1); return v % 1000 }, OutOfOrder: time.Hour})
	counts := stream.ProcessWindow(stream.Windows(byMod(stamped, 3), stream.Tumbling(time.Hour)), func(c *stream.WindowContext[int64, string], v []int64) error {
		c.Emit(fmt.Sprint(c.Key.Value()))
		return nil
	}, stream.UID("windows"))
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(counts, sink, stream.UID("sink"))
	e, err := runtime.Start(t.Context(), j, &runtime.Options{Checkpoints: dir, Restart: runtime.NoRestart()})
	require.NoError(t, err)
	for seen.Load() < 6 { // one of the two subtasks has seen each remainder then
		time.Sleep(time.Millisecond)
	}
	stop(t, e, event.SavepointCanonical, dir, true)
	got := readLines(t, to)
	slices.Sort(got)
	require.Equal(t, []string{"0", "1", "2"}, got)
}

// TestSinkWithoutCheckpoints commits at the end.
func TestSinkWithoutCheckpoints(t *testing.T) {
	to := t.TempDir()
	require.NoError(t, runtime.Run(t.Context(), copyJob(1000, 10, 2, to, nil), nil))
	requireCounts(t, readLines(t, to), 1000, 10)
}

func TestStuckTaskIsReported(t *testing.T) {
	waits, release := make(chan struct{}), make(chan struct{})
	j := stream.NewJob("stuck", nil)
	stream.ForEach(stream.From(j, stream.Sequence(0, 10)), func(v int64) error {
		if v == 0 {
			close(waits)
		}
		<-release
		return nil
	}, stream.Name("waits"))
	ctx, cancel := context.WithCancel(t.Context())
	e, err := runtime.Start(ctx, j, &runtime.Options{CancelTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	<-waits
	cancel()
	err = e.Wait()
	var stuck *runtime.CancelError
	require.ErrorAs(t, err, &stuck)
	require.Equal(t, []string{"Source -> waits, subtask 0"}, stuck.Tasks)
	require.Equal(t, runtime.Failed, e.Status())
	close(release)
}
