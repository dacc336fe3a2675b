package checkpoint

import (
	"context"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// slowListing lists what is shared once open is closed.
type slowListing struct {
	blobstore.Store
	blobstore.TemporaryLister
	blobstore.DirectoryRemover
	open chan struct{}
}

func (s slowListing) List(ctx context.Context, o *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	if o != nil && strings.HasSuffix(o.Prefix, "/shared/") {
		<-s.open
	}
	return s.Store.List(ctx, o)
}

// What a killed coordinator left in the shared folder, what its writers had begun and
// empty folders are removed, but not while a checkpoint is in progress whose files look
// the same.
func TestLitter(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg, store := localConfig(t)
	root := filepath.FromSlash("/" + cfg.Checkpoints.Path)
	start := func() (*fakeJob, func()) {
		log, err := NewLogStore(store, "log", nil)
		require.NoError(t, err)
		cfg.Store = log
		j := newFakeJob(t)
		stop := j.start(t, cfg)
		j.run(t)
		return j, stop
	}
	j, stop := start()
	_, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
	require.NoError(t, err)
	stop()

	job := filepath.Join(root, cfg.Job)
	temporary := func(name string) string { return filepath.Join(job, filepath.FromSlash(blobstore.TemporaryName(name))) }
	litter := []string{filepath.Join(job, "shared", "litter"), temporary("shared/begun"), temporary("chk-2/_metadata"), temporary("chk-1/x")}
	require.NoError(t, os.MkdirAll(filepath.Join(job, "chk-2"), 0o777))
	require.NoError(t, os.MkdirAll(filepath.Join(job, "chk-3"), 0o777))
	for _, name := range litter {
		require.NoError(t, os.WriteFile(name, []byte("litter"), 0o600))
	}
	open := make(chan struct{})
	cfg.Pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
		return slowListing{s, s.(blobstore.TemporaryLister), s.(blobstore.DirectoryRemover), open}
	})
	defer cfg.Pool.Close()
	j, stop = start()
	defer stop()
	j.mu.Lock()
	j.silent = true
	j.mu.Unlock()
	shared := "ckp/" + cfg.Job + "/shared/"
	inShared := func() (n int) {
		for _, name := range objects(t, store) {
			if strings.HasPrefix(name, shared) {
				n++
			}
		}
		return n
	}
	before := inShared()
	pending := make(chan error, 1)
	go func() {
		_, err := j.c.Trigger(context.Background(), event.Checkpoint, event.None, "")
		pending <- err
	}()
	require.Eventually(t, func() bool { return inShared() > before }, time.Minute, time.Millisecond, "the file that is not acknowledged")
	close(open)
	var id int64
	require.Eventually(t, func() bool {
		found := 0
		require.NoError(t, j.c.ask(t.Context(), func() {
			if j.c.litter != nil {
				found, id = len(j.c.litter.files), j.c.core.oldest()
			}
		}))
		return found == 2
	}, time.Minute, time.Millisecond, "the litter, and what is not acknowledged")
	for _, name := range litter {
		require.FileExists(t, name)
	}
	require.Greater(t, inShared(), before)

	j.c.Abort(id)
	require.Error(t, <-pending)
	j.mu.Lock()
	j.silent = false
	j.mu.Unlock()
	r, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
	require.NoError(t, err)
	gone := append(litter, filepath.Join(job, "chk-2"), filepath.Join(job, "chk-3"))
	require.Eventually(t, func() bool {
		for _, name := range gone {
			if _, err := os.Lstat(name); err == nil {
				return false
			}
		}
		return inShared() == 1
	}, time.Minute, time.Millisecond)
	s, err := j.c.open(t.Context(), r.Path)
	require.NoError(t, err)
	report, err := snapshot.Check(t.Context(), s, nil)
	require.NoError(t, err)
	require.True(t, report.Usable, report.Reason)
}

// A coordinator is slow to list the shared folder, or was stopped meanwhile, and another
// one has taken over. It does not take the files of the other one's checkpoints for
// litter, neither at once nor when it ends.
func TestLitterAfterTakeover(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := newDurable(t)
	j, stop := d.start()
	d.checkpoint(j)
	stop()
	open := make(chan struct{})
	good := d.cfg.Pool
	d.cfg.Pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
		return slowListing{s, s.(blobstore.TemporaryLister), s.(blobstore.DirectoryRemover), open}
	})
	defer d.cfg.Pool.Close()
	slow, stopSlow := d.start()
	defer stopSlow()
	d.cfg.Pool = good
	j, stop = d.start()
	defer stop()
	r := d.checkpoint(j)
	close(open)
	require.Eventually(t, func() (looked bool) {
		require.NoError(t, slow.c.ask(t.Context(), func() { looked = slow.c.looked }))
		return looked
	}, time.Minute, time.Millisecond)
	_, err := slow.c.cleaner.Clean(t.Context())
	require.NoError(t, err)
	d.usable(r.Path)
	require.NoError(t, slow.c.Shutdown(t.Context(), JobSuspended, nil))
	d.usable(r.Path)
}
