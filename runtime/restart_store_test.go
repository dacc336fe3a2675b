package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// TestRestartWhileTheStoreIsAway restarts a job whose store does not answer when the
// checkpoint is to be read: that is one more failure, not the end of the job, whose
// checkpoints would be deleted then.
func TestRestartWhileTheStoreIsAway(t *testing.T) {
	const keys = 100
	var away, refused atomic.Int64
	pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return &silentStore{s, &away, &refused} })
	defer pool.Close()
	var fail atomic.Bool
	to, dir := t.TempDir(), "file://"+filepath.ToSlash(t.TempDir())
	e, err := runtime.Start(t.Context(), endlessCopyJob(keys, to, func(int64) error {
		if fail.CompareAndSwap(true, false) {
			away.Store(2)
			return errInjected
		}
		return nil
	}), &runtime.Options{Checkpoints: dir, Pool: pool, Restart: fixedDelay(t, 10), State: task.StateOptions{Backend: task.BackendHeap},
		Delete: []checkpoint.JobStatus{checkpoint.JobFinished, checkpoint.JobCanceled, checkpoint.JobFailed}})
	require.NoError(t, err)
	taken := func() bool {
		_, err := e.Checkpoint(t.Context(), event.Checkpoint, "")
		return err == nil
	}
	for !taken() {
		time.Sleep(time.Millisecond)
	}
	fail.Store(true)
	for e.Restarts() < 3 || !taken() {
		require.False(t, e.Status().Ended(), "the job has ended")
		time.Sleep(time.Millisecond)
	}
	require.EqualValues(t, 2, refused.Load())
	stop(t, e, event.SavepointCanonical, "file://"+filepath.ToSlash(t.TempDir()), false)
	require.Equal(t, 3, e.Restarts())
	requireFirstCounts(t, readLines(t, to), keys)
}

// silentStore does not answer to so many reads of metadata.
type silentStore struct {
	blobstore.Store
	away, refused *atomic.Int64
}

func (s *silentStore) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	if strings.HasSuffix(name, snapshot.MetadataName) && s.away.Load() > 0 {
		s.away.Add(-1)
		s.refused.Add(1)
		return nil, fmt.Errorf("%s: no answer: %w", name, blobstore.ErrTemporary)
	}
	return s.Store.Open(ctx, name)
}
