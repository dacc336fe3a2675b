package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

// ending is a sequence that tells when its reader was closed.
type ending struct {
	stream.Source[int64, stream.SequenceSplit, []stream.SequenceSplit]
	closed chan struct{}
}

type endingReader struct {
	stream.Reader[int64, stream.SequenceSplit]
	closed chan struct{}
}

func (s ending) NewReader(e *task.Env) (stream.Reader[int64, stream.SequenceSplit], error) {
	r, err := s.Source.NewReader(e)
	return endingReader{r, s.closed}, err
}

func (r endingReader) Close() error {
	close(r.closed)
	return r.Reader.Close()
}

// TestSavepointBehindTheEnd takes a savepoint while what a source has sent last is
// being processed, and an unaligned checkpoint is complete that has the rest of it. If
// the source's task had ended, the one behind it would take its snapshot where it is,
// and the rest of the buffer that it reads would be in no state.
func TestSavepointBehindTheEnd(t *testing.T) {
	const n = 2000 // some batches, in one buffer
	dir, to := "file://"+filepath.ToSlash(t.TempDir()), t.TempDir()
	job := func(closed chan struct{}, hook func(int) error) *stream.Job {
		var finished atomic.Int64
		j := stream.NewJob("end", nil)
		nums := stream.From(j, ending{stream.Sequence(0, n-1), closed}, stream.UID("numbers"))
		sums := stream.Apply(nums.Rebalance(), func() stream.Function[int64, string] { return &gatherer{hook: hook, finished: &finished} }, stream.UID("gather"))
		sink := stream.Lines(to)
		sink.NoSync = true
		stream.To(sums, sink, stream.UID("sink"))
		return j
	}
	closed, release := make(chan struct{}), make(chan struct{})
	var hold, taken atomic.Bool
	seen := 0
	hook := func(int) error {
		if seen++; seen%4 == 0 && !taken.Load() {
			time.Sleep(time.Millisecond)
		}
		if hold.Load() {
			<-release
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := runtime.Start(ctx, job(closed, hook), &runtime.Options{Checkpoints: dir, Mode: runtime.Unaligned})
	require.NoError(t, err)
	for {
		r := checkpointWhenRunning(t, e)
		h, err := e.History(t.Context())
		require.NoError(t, err)
		if s := h.Find(r.ID); s.InFlightBytes > 0 {
			break
		}
	}
	hold.Store(true)
	select {
	case <-closed:
		t.Error("the source has ended before its records were processed")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	r, err := e.Checkpoint(t.Context(), event.SavepointCanonical, dir)
	taken.Store(true)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, e.Wait(), context.Canceled)
	require.NoError(t, runtime.Run(t.Context(), job(make(chan struct{}), func(int) error { return nil }), &runtime.Options{Restore: r.Path}))
	require.Equal(t, []string{fmt.Sprint(n * (n - 1) / 2)}, readLines(t, to))
}

// TestDrainThatFails stops a job with a savepoint that does not come to an end in time.
// With drain its source has ended for it, and cannot go on; so the job is restarted, and
// does not finish as if there were no more input. Without drain it goes on at once.
func TestDrainThatFails(t *testing.T) {
	for name, drain := range map[string]bool{"drain": true, "suspend": false} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int64
			var wait atomic.Bool
			waits, release := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(waits) })
			j := stream.NewJob("drain", nil)
			nums := stream.From(j, stream.SlowSequence(0, 1<<40, 1000), stream.UID("numbers"))
			stream.ForEach(nums.Rebalance(), func(int64) error {
				seen.Add(1)
				if wait.Load() {
					once()
					<-release
				}
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dir := "file://" + filepath.ToSlash(t.TempDir())
			e, err := runtime.Start(ctx, j, &runtime.Options{Checkpoints: dir, Timeout: 100 * time.Millisecond, Restart: fixedDelay(t, 1), FlushInterval: time.Millisecond})
			require.NoError(t, err)
			for seen.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			wait.Store(true)
			<-waits
			var failed *checkpoint.Failure
			for failed == nil || failed.Reason == event.NotAllRequiredTasksRunning {
				_, err = e.Stop(t.Context(), event.SavepointCanonical, dir, drain)
				require.True(t, errors.As(err, &failed), "%v", err)
			}
			require.Equal(t, event.CheckpointExpired, failed.Reason)
			wait.Store(false)
			close(release)
			restarts := 0
			if drain {
				restarts = 1
			}
			for at := seen.Load(); e.Restarts() < restarts || seen.Load() < at+2000; {
				select {
				case <-e.Done():
					t.Fatalf("the job has ended: %s, %v", e.Status(), e.Wait())
				case <-time.After(time.Millisecond):
				}
			}
			require.Equal(t, restarts, e.Restarts())
			cancel()
			require.ErrorIs(t, e.Wait(), context.Canceled)
		})
	}
}
