package lsm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/snapshot"
)

// diskFaults makes operations of a file system fail while it is armed: those from the
// first on, counted from 1, up to the last, in files whose names match.
type diskFaults struct {
	armed       atomic.Bool
	first, last int64
	name        string // part of a path; "" is any
	err         error
	count       atomic.Int64
}

// MaybeError implements errorfs.Injector.
func (d *diskFaults) MaybeError(op errorfs.Op) error {
	if !d.armed.Load() || op.Kind == errorfs.OpFileClose || !strings.Contains(op.Path, d.name) {
		return nil
	}
	if n := d.count.Add(1); n >= d.first && n <= d.last {
		return d.err
	}
	return nil
}

func (d *diskFaults) String() string { return "some operations fail" }

var errDisk = errors.New("injected disk fault")

func errFull() error { return &os.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC} }

// steps are what a fault may come into: each prepares a job of two subtasks with checkpoint
// 1, and gives the step, after which an error means that the job has to be restored.
var steps = []struct {
	name    string
	prepare func(j *job) func() error
}{
	{"snapshot", func(j *job) func() error {
		require.NoError(j.t, j.fill(2))
		return func() error { return j.save(2) }
	}},
	{"confirm", func(j *job) func() error {
		require.NoError(j.t, j.fill(2))
		w, c, err := j.upload()
		require.NoError(j.t, err)
		return func() error {
			err := j.commit(w, c, 2)
			if err != nil {
				j.failed = errors.Join(j.failed, w.Abort(j.t.Context()))
				j.abort()
			}
			return err
		}
	}},
	{"abort", func(j *job) func() error {
		require.NoError(j.t, j.fill(2))
		_, _, err := j.upload()
		require.NoError(j.t, err)
		return func() error {
			j.abort()
			j.clean()
			return nil
		}
	}},
	{"discard", func(j *job) func() error {
		require.NoError(j.t, j.fill(2))
		require.NoError(j.t, j.save(2))
		return func() error {
			j.subsume()
			j.clean()
			return nil
		}
	}},
	{"restore", func(j *job) func() error { return j.restoring(2) }},
	{"rescale 2 to 1", func(j *job) func() error { return j.restoring(1) }},
	{"rescale 2 to 3", func(j *job) func() error { return j.restoring(3) }},
}

// restoring is a step that restores checkpoint 2 and reads it whole.
func (j *job) restoring(parallelism int) func() error {
	require.NoError(j.t, j.fill(2))
	require.NoError(j.t, j.save(2))
	j.close()
	return func() error {
		if err := j.start(parallelism); err != nil {
			return err
		}
		return j.check(2)
	}
}

// stride is how far those calls lie apart that fail: 1 with TIDEMARK_ALL_FAULTS=1, since the
// file system has some hundreds in each step.
func stride(where string) int64 {
	if os.Getenv("TIDEMARK_ALL_FAULTS") != "" {
		return 1
	}
	if strings.HasPrefix(where, "disk") {
		return 97
	}
	return 5
}

// TestEveryFaultOnce lets each call of the store and each operation of the file system fail
// once, in each step of a job's life. Afterwards every complete checkpoint is whole, and the
// state is the old or the new one; what lies in the store beside them is the registry's to
// delete, or what an Abort that failed itself has named. Then the job goes on, where it
// is or from its last checkpoint, and in the end nothing is left but the last checkpoint.
func TestEveryFaultOnce(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 4 << 20})
	defer p.Close()
	for _, where := range []string{"store", "lost answer", "disk", "disk full"} {
		for _, step := range steps {
			t.Run(where+"/"+step.name, func(t *testing.T) {
				by := stride(where)
				first := 1 + rand.Int64N(by)
				count, survived := 0, 0
				for n := first; ; n += by {
					fired, inPlace := faultIn(t, p, where, step.prepare, n)
					if !fired {
						break
					}
					if count++; inPlace {
						survived++
					}
				}
				t.Logf("%d faults, each %d from %d on; %d were got over in place", count, by, first, survived)
			})
		}
	}
}

// faultIn runs a step whose n-th call goes wrong; fired is false if it has not so many.
func faultIn(t *testing.T, p *lsm.Process, where string, prepare func(*job) func() error, n int64) (fired, inPlace bool) {
	why := fmt.Sprintf("fault %d", n)
	disk := &diskFaults{first: n, last: n, err: errDisk}
	if where == "disk full" {
		disk.err = errFull()
	}
	onDisk := strings.HasPrefix(where, "disk")
	j := newJob(t, p, errorfs.Wrap(vfs.NewMem(), disk))
	j.local = onDisk
	if n%2 == 0 {
		j.merge = &incremental.FileMerging{MaxSpaceAmplification: 1}
	}
	defer j.close()
	require.NoError(t, j.start(2))
	require.NoError(t, j.fill(1))
	require.NoError(t, j.save(1))
	run := prepare(j)
	calls := blobstore.NewFaults(blobstore.Fault{Nth: int(n), After: where == "lost answer"})
	if onDisk {
		disk.armed.Store(true)
	} else {
		j.faulty(calls)
	}
	err := run()
	j.faulty(nil)
	disk.armed.Store(false)
	if fired = disk.count.Load() >= n; !onDisk {
		fired = calls.Fired()
	}
	switch {
	case err == nil:
	case !fired:
		require.NoError(t, err, why)
	case onDisk:
		require.ErrorContains(t, err, disk.err.Error(), why)
	default:
		require.ErrorIs(t, err, blobstore.ErrInjected, why)
	}
	// What nobody knows of is what an Abort could not delete, and that is an error of its own.
	garbage := j.requireWhole(why)
	pending := j.pending()
	for _, name := range garbage {
		if !slices.Contains(pending, name) {
			require.Error(t, j.failed, "%s: nobody knows %s", why, name)
			l := j.layout(2)
			require.True(t, strings.HasPrefix(name, l.Dir.Path+"/") || strings.HasPrefix(name, l.Shared.Path+"/"), name)
			require.NoError(t, j.store.Delete(t.Context(), name)) // as gc does
		}
	}
	inPlace = j.ahead > 0 || err == nil
	if inPlace {
		inPlace = j.goOn() == nil
	}
	if !inPlace { // as when the task fails: it is restored
		j.close()
		require.NoError(t, j.start(1+int(n)%2), why)
		require.NoError(t, j.goOn(), why)
	}
	j.subsume()
	require.Zero(t, j.clean(), why)
	require.Empty(t, j.requireWhole(why), why)
	return fired, inPlace
}

// goOn compares the state, which is that of the last checkpoint or was changed since, changes
// it and takes another checkpoint.
func (j *job) goOn() error {
	n := max(j.kept[j.last], j.ahead)
	if err := j.check(n); err != nil {
		return err
	}
	if err := j.fill(n + 1); err != nil {
		return err
	}
	return j.save(n + 1)
}

// TestDiskFullFaults fills the disk at random moments of a job's life and makes room
// again: checkpoints and tasks may fail meanwhile, the process and its other tasks do not,
// and the job goes on from its last checkpoint at least.
func TestDiskFullFaults(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 4 << 20})
	defer p.Close()
	rounds := 12
	if os.Getenv("TIDEMARK_ALL_FAULTS") != "" {
		rounds = 400
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	bystander := newJob(t, p, vfs.NewMem())
	defer bystander.close()
	require.NoError(t, bystander.start(1))
	restarts := 0
	for round := range rounds {
		why := fmt.Sprint("round ", round)
		first := 1 + r.Int64N(250)
		disk := &diskFaults{first: first, last: first + r.Int64N(20), err: errFull()}
		j := newJob(t, p, errorfs.Wrap(vfs.NewMem(), disk))
		require.NoError(t, j.start(2))
		require.NoError(t, j.fill(1))
		require.NoError(t, j.save(1))
		disk.armed.Store(true)
		for j.kept[j.last] < 5 {
			err := j.goOn()
			if err == nil {
				continue
			}
			require.ErrorContains(t, err, syscall.ENOSPC.Error(), why)
			disk.armed.Store(false)
			j.requireWhole(why)
			j.close()
			require.NoError(t, j.start(2), why)
			restarts++
		}
		disk.armed.Store(false)
		j.requireWhole(why)
		j.close()
		require.NoError(t, bystander.fill(int64(round+1)))
		require.NoError(t, bystander.save(int64(round+1)))
		bystander.subsume()
		require.Zero(t, bystander.clean())
	}
	t.Logf("%d rounds, %d restarts", rounds, restarts)
	require.Empty(t, bystander.requireWhole("the other job"))
}

// TestFatal: what Pebble calls fatal, a MANIFEST that cannot be written, is the end of one
// backend, which says so to its task, and of nothing else.
func TestFatal(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 4 << 20})
	defer p.Close()
	disk := &diskFaults{first: 1, last: 1 << 62, name: "MANIFEST", err: errDisk}
	broken, well := newJob(t, p, errorfs.Wrap(vfs.NewMem(), disk)), newJob(t, p, vfs.NewMem())
	defer broken.close()
	defer well.close()
	for _, j := range []*job{broken, well} {
		require.NoError(t, j.start(1))
		require.NoError(t, j.fill(1))
		require.NoError(t, j.save(1))
	}
	disk.armed.Store(true)
	require.NoError(t, broken.fill(2))
	require.ErrorContains(t, broken.save(2), errDisk.Error())
	s := broken.tasks[0]
	_, err := s.Snapshot(t.Context(), 3)
	require.ErrorContains(t, err, errDisk.Error())
	_, err = s.View()
	require.ErrorContains(t, err, errDisk.Error())
	broken.requireWhole("the checkpoint before")
	require.NoError(t, well.goOn())
	require.NoError(t, well.check(2))
	disk.armed.Store(false)
	broken.close()
	require.NoError(t, broken.start(2))
	require.NoError(t, broken.goOn())
}

// TestTwoIncarnations lets two lives of the same subtasks, restored from one checkpoint,
// write the next one into the same folders at once. One of them commits; whatever the other
// does, commit late or abort, that checkpoint stays whole.
func TestTwoIncarnations(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 4 << 20})
	defer p.Close()
	ours, zombie := newJob(t, p, vfs.NewMem()), newJob(t, p, vfs.NewMem())
	defer ours.close()
	defer zombie.close()
	require.NoError(t, ours.start(2))
	require.NoError(t, ours.fill(1))
	require.NoError(t, ours.save(1))
	ours.close()
	zombie.store, zombie.kept, zombie.ids, zombie.last = ours.store, ours.kept, ours.ids, ours.last
	for _, j := range []*job{zombie, ours} {
		require.NoError(t, j.start(2))
	}
	require.NoError(t, zombie.fill(2))
	require.NoError(t, zombie.fill(3)) // other content than ours
	require.NoError(t, ours.fill(2))
	type result struct {
		w   *snapshot.Writer
		err error
		run func() error
	}
	results := make(chan result)
	for _, j := range []*job{zombie, ours} {
		go func() {
			w, c, err := j.upload()
			results <- result{w, err, func() error { return w.Commit(context.Background(), c) }}
		}()
	}
	a, b := <-results, <-results
	require.NoError(t, a.err)
	require.NoError(t, b.err)
	require.NoError(t, a.run())
	first := ours.content(2)
	require.Error(t, b.run(), "a checkpoint is written once")
	require.NoError(t, b.w.Abort(t.Context()))
	require.Equal(t, first, ours.content(2))
	ours.kept[2] = first
	require.Empty(t, ours.requireWhole("after the other gave up"))
}

// TestCancel: whatever a context is given to, ends when the context does, and leaves nothing
// running and nothing in the store. The store does not answer one of the calls meanwhile.
func TestCancel(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 4 << 20})
	defer p.Close()
	j := newJob(t, p, vfs.NewMem())
	defer j.close()
	require.NoError(t, j.start(2))
	require.NoError(t, j.fill(1))
	require.NoError(t, j.save(1))
	var slowest time.Duration
	// cancelled tells whether f has as many calls as to meet the one that hangs. A restore
	// may have ended without it, if it was one of those behind the task.
	cancelled := func(op string, nth int, f func(ctx context.Context) error) bool {
		faults := blobstore.NewFaults(blobstore.Fault{Op: op, Nth: nth, Hang: true})
		j.faulty(faults)
		defer j.faulty(nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- f(ctx) }()
		for !faults.Fired() {
			select {
			case err := <-ended:
				if !faults.Fired() {
					require.NoError(t, err)
					return false
				}
				ended <- err
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
		begun := time.Now()
		if err := <-ended; err != nil || op != "open" && op != "read" {
			require.ErrorIs(t, err, context.Canceled, "%s %d", op, nth)
		}
		slowest = max(slowest, time.Since(begun))
		return true
	}
	require.NoError(t, j.fill(2))
	for _, op := range []string{"create", "write", "commit"} {
		for nth := 1; nth < 9; nth += 3 {
			cancelled(op, nth, func(ctx context.Context) error {
				j.ids++
				w, err := snapshot.NewWriter(ctx, j.pool, j.layout(j.ids), &snapshot.WriterOptions{MemoryThreshold: -1})
				if err != nil {
					return err
				}
				snap, err := j.tasks[0].Snapshot(context.WithoutCancel(ctx), j.ids)
				if err != nil {
					return err
				}
				_, err = snap.Upload(ctx, w, nil)
				snap.Release()
				return errors.Join(err, w.Abort(ctx))
			})
			require.Empty(t, j.requireWhole(op))
		}
	}
	require.NoError(t, j.save(2))
	j.close()
	for _, op := range []string{"open", "read"} {
		for nth := 1; cancelled(op, nth, func(ctx context.Context) error { return j.startWith(ctx, 1) }); nth += 2 {
			j.close()
		}
		j.close()
	}
	t.Logf("the slowest took %s", slowest)
	// Closing is what ends a lazy restore whose tables do not come.
	j.faulty(blobstore.NewFaults(blobstore.Fault{Hang: true, Name: func(name string) bool { return strings.Contains(name, "/shared/") }}))
	require.NoError(t, j.start(2))
	j.close()
	j.faulty(nil)
	require.NoError(t, j.start(1))
	require.NoError(t, j.check(2))
}
