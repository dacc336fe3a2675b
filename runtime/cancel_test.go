package runtime_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TestCancelAtAnyStep cancels a job at random moments of its start, its restore, its
// checkpoints, and while its tasks wait for each other. Nothing of it goes on: TestMain
// looks for goroutines, and a task that does not end is an error. The longest time is
// logged; TIDEMARK_CANCELS is how often, 20 by default.
func TestCancelAtAnyStep(t *testing.T) {
	seed, cancels := uint64(time.Now().UnixNano()), 20
	for name, set := range map[string]func(int){"TIDEMARK_SEED": func(n int) { seed = uint64(n) }, "TIDEMARK_CANCELS": func(n int) { cancels = n }} {
		if s := os.Getenv(name); s != "" {
			n, err := strconv.Atoi(s)
			require.NoError(t, err)
			set(n)
		}
	}
	t.Logf("TIDEMARK_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	process := lsm.NewProcess(nil)
	defer process.Close()
	cause := errors.New("enough")
	dir, to, databases := t.TempDir(), t.TempDir(), t.TempDir()
	var longest time.Duration
	during := map[string]int{}
	for range cancels {
		slow := time.Duration(rng.IntN(3)*rng.IntN(300)) * time.Millisecond // each file of a checkpoint
		pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return slowStore{s, slow} })
		pause := time.Duration(rng.IntN(2)*rng.IntN(3)) * time.Millisecond // so that the tasks before wait
		hook := func(v int64) error {
			if v%16 == 0 {
				time.Sleep(pause)
			}
			return nil
		}
		o := &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(dir), JobID: testJob, Durable: true, Pool: pool, Interval: 5 * time.Millisecond, Mode: runtime.Mode(rng.IntN(2)),
			Writer: &snapshot.WriterOptions{MemoryThreshold: -1}, CancelTimeout: time.Minute, TolerableFailures: 1000,
			State: task.StateOptions{Backend: task.BackendLSM, Dir: databases, LSM: process, LocalRecovery: rng.IntN(2) == 0}}
		ctx, cancel := context.WithCancelCause(t.Context())
		at := time.Duration(rng.IntN(200)) * time.Millisecond
		if rng.IntN(4) == 0 {
			at = time.Duration(rng.IntN(2000)) * time.Microsecond
		}
		var cancelled time.Time
		timer := time.AfterFunc(at, func() { cancelled = time.Now(); cancel(cause) })
		e, err := runtime.Start(ctx, copyJob(1<<40, 3000, 1+rng.IntN(3), to, hook), o)
		step := "start"
		if err != nil {
			require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, cause), "%v", err)
		} else {
			if rng.IntN(3) == 0 {
				_, _ = e.Checkpoint(ctx, event.SavepointCanonical, o.Checkpoints)
			}
			<-ctx.Done()
			step = string(e.Status())
			if h, err := e.History(context.Background()); err == nil && h.Counts.InProgress > 0 {
				step = "checkpoint"
			}
			err = e.Wait()
			require.ErrorIs(t, err, cause)
			require.Equal(t, runtime.Canceled, e.Status())
		}
		timer.Stop()
		during[step]++
		longest = max(longest, time.Since(cancelled))
		require.NoError(t, pool.Close())
	}
	t.Logf("%d cancellations, %v: the longest took %s", cancels, during, longest)
	kept, err := os.ReadDir(databases)
	require.NoError(t, err)
	require.Empty(t, kept)
}

// slowStore takes a time for each object.
type slowStore struct {
	blobstore.Store
	wait time.Duration
}

func (s slowStore) Create(ctx context.Context, name string, o *blobstore.WriteOptions) (blobstore.Writer, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(s.wait):
	}
	return s.Store.Create(ctx, name, o)
}
