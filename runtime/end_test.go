package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
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
