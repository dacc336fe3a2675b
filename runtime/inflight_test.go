package runtime_test

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
)

// TestInFlightDataOfAnotherGraph starts a job from an unaligned checkpoint with an
// operator that has as many subtasks now as the one in front of it. If the two run in
// tasks of their own, the new edge gives back what was in flight on the old one; if
// they run in one task, nothing can, and the job is refused.
func TestInFlightDataOfAnotherGraph(t *testing.T) {
	const n = 20_000
	dir, to := "file://"+filepath.ToSlash(t.TempDir()), t.TempDir()
	var fast atomic.Bool
	job := func(parallelism int, opts ...stream.Option) *stream.Job {
		j := stream.NewJob("graph", &stream.JobOptions{Parallelism: 2, MaxParallelism: 128})
		nums := stream.From(j, stream.Sequence(0, n-1), stream.UID("numbers"))
		p := stream.Parallelism(parallelism)
		same := stream.Apply(nums, func() stream.Function[int64, int64] {
			return &hooked{func(int64) error {
				if !fast.Load() {
					time.Sleep(100 * time.Microsecond)
				}
				return nil
			}}
		}, append(opts, stream.UID("hook"), p)...)
		lines := stream.Map(same, func(v int64) string { return strconv.FormatInt(v, 10) }, p)
		sink := stream.Lines(to)
		sink.NoSync = true
		stream.To(lines, sink, stream.UID("sink"), p)
		return j
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := runtime.Start(ctx, job(4), &runtime.Options{Checkpoints: dir, Mode: runtime.Unaligned, BufferSize: 1 << 10, Restart: runtime.NoRestart()})
	require.NoError(t, err)
	var path string
	for path == "" {
		r := checkpointWhenRunning(t, e)
		h, err := e.History(t.Context())
		require.NoError(t, err)
		if h.Find(r.ID).InFlightBytes > 1<<10 {
			path = r.Path
		}
	}
	cancel()
	require.ErrorIs(t, e.Wait(), context.Canceled)
	fast.Store(true)
	opts := func() *runtime.Options {
		return &runtime.Options{Checkpoints: dir, Restore: path, Mode: runtime.Unaligned, Restart: runtime.NoRestart()}
	}
	err = runtime.Run(t.Context(), job(2), opts())
	require.ErrorIs(t, err, runtime.ErrInFlight)
	require.ErrorContains(t, err, "where the job has no exchange between tasks")
	require.NoError(t, runtime.Run(t.Context(), job(2, stream.NoChaining()), opts()))
	lines := readLines(t, to)
	want := make([]string, n)
	for i := range want {
		want[i] = strconv.Itoa(i)
	}
	slices.Sort(want)
	slices.Sort(lines)
	require.Equal(t, want, lines)
}
