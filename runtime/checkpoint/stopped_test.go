package checkpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/event"
)

// A job is stopped with a savepoint and fails before its tasks have ended. Neither
// this coordinator nor the next one goes back to the checkpoint before; the job is
// started from the savepoint, whose ID and path are those that were given out.
func TestStoppedJobGoesOnFromItsSavepoint(t *testing.T) {
	cfg, store := localConfig(t)
	newLog := func() *LogStore {
		log, err := NewLogStore(store, "log", nil)
		require.NoError(t, err)
		return log
	}
	cfg.Store = newLog()
	j := newFakeJob(t)
	stop := j.start(t, cfg)
	ctx := t.Context()
	_, err := j.c.Restore(ctx, nil, nil)
	require.NoError(t, err)
	j.run(t)
	first, err := j.c.Trigger(ctx, event.Checkpoint, event.None, "")
	require.NoError(t, err)
	sp, err := j.c.Trigger(ctx, event.SavepointCanonical, event.Suspend, "")
	require.NoError(t, err)
	go func() { _, _ = j.c.Failover(ctx, errors.New("boom"), false) }()
	err = <-j.failed
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorContains(t, err, sp.Path)
	require.True(t, j.fatal)
	stop()

	second := newFakeJob(t)
	second.attempt = 1
	cfg.Store = newLog()
	again := cfg
	again.Graph, again.Tasks = second.graph, second
	_, err = New(ctx, again)
	require.ErrorIs(t, err, ErrStopped)
	require.ErrorContains(t, err, sp.Path)

	cfg.Store = newLog()
	cfg.Restore = RestoreSettings{Path: sp.Path, Mode: incremental.Claim}
	stop = second.start(t, cfg)
	defer stop()
	latest, err := second.c.Latest(ctx)
	require.NoError(t, err)
	require.Equal(t, Completed{ID: sp.ID, Path: sp.Path, Mode: Claimed, Savepoint: true}, *latest)
	_, err = second.c.Restore(ctx, latest, nil)
	require.NoError(t, err)
	second.run(t)
	third, err := second.c.Trigger(ctx, event.Checkpoint, event.None, "")
	require.NoError(t, err)
	require.Greater(t, third.ID, sp.ID)
	_, err = second.c.cleaner.Clean(ctx)
	require.NoError(t, err)
	loc, err := blobstore.Parse(first.Path)
	require.NoError(t, err)
	_, err = second.c.open(ctx, loc.String())
	require.Error(t, err, "the checkpoint from before is deleted")

	// It is an ordinary job again.
	log, err := newLog().TakeOver(ctx)
	require.NoError(t, err)
	require.Empty(t, log.Stopped)
	require.Equal(t, third.ID, log.Retained[0].ID)
}
