package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// durable starts coordinators of one job, one after the other.
type durable struct {
	t     *testing.T
	cfg   Config
	store blobstore.Store
}

func newDurable(t *testing.T) *durable {
	cfg, store := localConfig(t)
	return &durable{t, cfg, store}
}

func (d *durable) log() *LogStore {
	l, err := NewLogStore(d.store, "log", nil)
	require.NoError(d.t, err)
	return l
}

func (d *durable) start() (*fakeJob, func()) {
	j := newFakeJob(d.t)
	d.cfg.Store = d.log()
	stop := j.start(d.t, d.cfg)
	j.run(d.t)
	return j, stop
}

func (d *durable) checkpoint(j *fakeJob) Result {
	r, err := j.c.Trigger(d.t.Context(), event.Checkpoint, event.None, "")
	require.NoError(d.t, err)
	return r
}

// usable opens a snapshot, by a pool that nothing is wrapped around, and requires that
// all of its files are there.
func (d *durable) usable(path string) {
	d.t.Helper()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(path)
	require.NoError(d.t, err)
	s, err := snapshot.Open(d.t.Context(), pool, loc, nil)
	require.NoError(d.t, err)
	report, err := snapshot.Check(d.t.Context(), s, nil)
	require.NoError(d.t, err)
	require.True(d.t, report.Usable, report.Reason)
}

// A job that was stopped is started again from one of its own checkpoints, which it does
// not claim. That lies in the job's folder, under an ID of the job's, and stays: also
// when nothing but the journal tells any more whose it is.
func TestSweepLeavesWhatIsKept(t *testing.T) {
	for _, mode := range []incremental.RestoreMode{incremental.NoClaim, incremental.Legacy} {
		t.Run(mode.String(), func(t *testing.T) {
			d := newDurable(t)
			j, stop := d.start()
			mine := d.checkpoint(j)
			_, err := j.c.Trigger(t.Context(), event.SavepointCanonical, event.Suspend, "")
			require.NoError(t, err)
			stop()
			d.cfg.Restore = RestoreSettings{Path: mine.Path, Mode: mode}
			j, stop = d.start()
			next := d.checkpoint(j)
			_, err = j.c.cleaner.Clean(t.Context())
			require.NoError(t, err)
			d.usable(mine.Path)
			stop()
			for range 2 {
				j, stop = d.start()
				_, err = j.c.cleaner.Clean(t.Context())
				require.NoError(t, err)
				d.usable(mine.Path)
				d.usable(next.Path)
				next = d.checkpoint(j)
				stop()
			}
		})
	}
}

// What lies in the folder of a checkpoint that was not completed may be anything. It does
// not keep the job from starting, and the others are swept.
func TestSweepOfStrangers(t *testing.T) {
	d := newDurable(t)
	j, stop := d.start()
	kept := d.checkpoint(j)
	sp, err := j.c.Trigger(t.Context(), event.SavepointCanonical, event.None, "")
	require.NoError(t, err)
	stop()
	job := "ckp/" + d.cfg.Job
	metadataOf := func(path string) []byte {
		loc, err := blobstore.Parse(path)
		require.NoError(t, err)
		rel, err := filepath.Rel(filepath.FromSlash("/"+d.cfg.Checkpoints.Dir().Path), filepath.FromSlash("/"+loc.Path))
		require.NoError(t, err)
		data, err := blobstore.ReadAll(t.Context(), d.store, filepath.ToSlash(rel), 1<<20)
		require.NoError(t, err)
		return data
	}
	put := func(name string, data []byte) {
		require.NoError(t, blobstore.WriteAll(t.Context(), d.store, name, data, nil))
	}
	// It has the ID of the one that is retained, and names files that are not there.
	put(job+"/chk-4/_metadata", metadataOf(kept.Path))
	put(job+"/chk-5/_metadata", metadataOf(sp.Path))
	put(job+"/chk-6/half", []byte("written"))
	j, stop = d.start()
	defer stop()
	_, err = j.c.cleaner.Clean(t.Context())
	require.NoError(t, err)
	d.usable(kept.Path)
	d.usable(sp.Path)
	for _, name := range objects(t, d.store) {
		require.False(t, strings.HasPrefix(name, job+"/chk-") && !strings.HasPrefix(name, job+"/chk-1/"), name)
	}
}
