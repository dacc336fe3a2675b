package checkpoint

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime/event"
)

// failingStore is a Store whose next Put that matches fails.
type failingStore struct {
	Store
	fails func(Content) error
}

func (s *failingStore) Put(ctx context.Context, c Content) error {
	if err := s.fails(c); err != nil {
		return err
	}
	return s.Store.Put(ctx, c)
}

func (d *durable) content() Content {
	c, err := d.log().TakeOver(d.t.Context())
	require.NoError(d.t, err)
	return c
}

// The result of a job is clean only if nothing is left: not while a file cannot be
// deleted. Whoever comes next deletes it and says so.
func TestResultIsDirtyWhileFilesAreLeft(t *testing.T) {
	d := newDurable(t)
	good := d.cfg.Pool
	var broken atomic.Bool
	broken.Store(true)
	faults := blobstore.NewFaults(blobstore.Fault{Op: "delete", Err: blobstore.ErrPermission, Name: func(n string) bool {
		return broken.Load() && (strings.HasSuffix(n, "/_metadata") || strings.Contains(n, "/shared/"))
	}})
	d.cfg.Pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return faults.Wrap(s) })
	defer d.cfg.Pool.Close()
	j, stop := d.start()
	d.checkpoint(j)
	require.NoError(t, j.c.Shutdown(t.Context(), JobFinished, nil))
	stop()
	require.NotEmpty(t, objects(t, d.store))
	require.Equal(t, JobResult{Status: JobFinished}, d.content().Result)

	broken.Store(false)
	d.cfg.Pool = good
	j, stop = d.start()
	require.NoError(t, j.c.Shutdown(t.Context(), JobFinished, nil))
	stop()
	require.Empty(t, objects(t, d.store))
	require.Equal(t, JobResult{Status: JobFinished, Clean: true}, d.content().Result)
}

// Nor is it clean while the store has checkpoints that are to be discarded.
func TestResultIsDirtyWhileCheckpointsAreRetained(t *testing.T) {
	d := newDurable(t)
	d.cfg.Store = &failingStore{d.log(), func(c Content) error {
		if c.Result.Ended() && len(c.Retained) == 0 {
			return errors.New("it does not answer")
		}
		return nil
	}}
	j := newFakeJob(t)
	stop := j.start(t, d.cfg)
	j.run(t)
	r := d.checkpoint(j)
	require.ErrorContains(t, j.c.Shutdown(t.Context(), JobFinished, nil), "it does not answer")
	stop()
	c := d.content()
	require.Equal(t, JobResult{Status: JobFinished}, c.Result)
	require.Len(t, c.Retained, 1)
	d.usable(r.Path)
}

// A coordinator that ends since it does not know what became of a commit has no result:
// the next one reads what is stored and goes on.
func TestNoResultInDoubt(t *testing.T) {
	d := newDurable(t)
	var doubt atomic.Bool
	d.cfg.Store = &failingStore{d.log(), func(c Content) error {
		if doubt.Load() && !c.Result.Ended() {
			return ErrInDoubt
		}
		return nil
	}}
	d.cfg.Options.Discard = []JobStatus{JobFinished, JobCanceled, JobFailed}
	j := newFakeJob(t)
	stop := j.start(t, d.cfg)
	j.run(t)
	r := d.checkpoint(j)
	doubt.Store(true)
	_, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
	require.ErrorIs(t, err, ErrInDoubt)
	err = <-j.failed
	require.ErrorIs(t, err, ErrInDoubt)
	require.NoError(t, j.c.Shutdown(t.Context(), JobFailed, err))
	stop()
	c := d.content()
	require.False(t, c.Result.Ended())
	require.Equal(t, []Completed{{ID: r.ID, Path: r.Path}}, c.Retained)
	d.usable(r.Path)
}
