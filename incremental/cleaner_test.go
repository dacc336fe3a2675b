package incremental_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/damage"
)

// one resolves everything to one store.
type one struct{ blobstore.Store }

func (o one) Resolve(_ context.Context, loc blobstore.Location) (blobstore.Store, string, error) {
	return o.Store, loc.Path, nil
}

func put(t testing.TB, s blobstore.Store, names ...string) {
	t.Helper()
	for _, n := range names {
		require.NoError(t, blobstore.WriteAll(t.Context(), s, n, []byte("abc"), nil))
	}
}

func names(t testing.TB, s blobstore.Store, prefix string) (out []string) {
	for info, err := range s.List(t.Context(), &blobstore.ListOptions{Prefix: prefix}) {
		require.NoError(t, err)
		out = append(out, info.Name)
	}
	return out
}

// subsumed is a registry with a subsumed checkpoint, whose files lie in the store.
func subsumed(t testing.TB, s blobstore.Store, files int) *incremental.Registry {
	r := incremental.NewRegistry()
	require.NoError(t, r.Begin(1))
	for i := range files {
		name := fmt.Sprintf("shared/%d", i)
		put(t, s, "ckp/job/"+name)
		require.NoError(t, r.Register(1, []incremental.AckFile{upload("a", name, root+name)}))
	}
	put(t, s, "ckp/job/chk-1/_metadata")
	require.NoError(t, r.Confirm(1, root+"chk-1/_metadata"))
	r.Subsume(1)
	return r
}

func TestCleanerBacksOff(t *testing.T) {
	s, now := blobstore.NewMem(), time.Unix(0, 0)
	faults := blobstore.NewFaults(blobstore.Fault{Op: "delete", Name: func(n string) bool { return n == "ckp/job/shared/1" }, Err: blobstore.ErrPermission})
	var failures []int
	c := incremental.NewCleaner(subsumed(t, s, 4), one{faults.Wrap(s)}, &incremental.CleanerOptions{
		Now:    func() time.Time { return now },
		Failed: func(d incremental.Deletion, err error) { failures = append(failures, d.Attempts) },
	})
	left, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, left, "the call for all four failed")
	now = now.Add(time.Second)
	left, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, left, "each alone: only one fails")
	require.Equal(t, []string{"ckp/job/shared/1"}, names(t, s, ""))
	failures = nil
	for range 600 {
		now = now.Add(time.Second)
		c.Clean(t.Context())
	}
	// Waits of 2, 4, 8, … 256 and then 300 seconds.
	require.Equal(t, []int{2, 3, 4, 5, 6, 7, 8, 9}, failures)
}

func TestCleanerSurvivesRestart(t *testing.T) {
	s, journal := blobstore.NewMem(), blobstore.NewMem()
	denied := blobstore.NewFaults(blobstore.Fault{Op: "delete", Err: blobstore.ErrPermission})
	opts := &incremental.CleanerOptions{Journal: journal, JournalDir: "job/registry"}
	c := incremental.NewCleaner(subsumed(t, s, 3), one{denied.Wrap(s)}, opts)
	_, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Len(t, names(t, s, ""), 4)
	require.Len(t, names(t, journal, "job/registry/"), 1)

	// The next life: nothing is retained.
	c = incremental.NewCleaner(incremental.NewRegistry(), one{s}, opts)
	require.NoError(t, c.Recover(t.Context(), nil))
	left, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.Empty(t, names(t, s, ""))
	require.Empty(t, names(t, journal, ""))
}

// A journal never deletes what a retained checkpoint has.
func TestRecoverAgainstRetained(t *testing.T) {
	s, journal := blobstore.NewMem(), blobstore.NewMem()
	opts := &incremental.CleanerOptions{Journal: journal}
	denied := blobstore.NewFaults(blobstore.Fault{Op: "delete"})
	c := incremental.NewCleaner(subsumed(t, s, 3), one{denied.Wrap(s)}, opts)
	_, err := c.Clean(t.Context())
	require.NoError(t, err)

	c = incremental.NewCleaner(incremental.NewRegistry(), one{s}, opts)
	_, err = c.Restore(t.Context(), snapshotOf(1, file(root+"shared/0"), file(root+"shared/1")), root+"chk-1/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	require.NoError(t, c.Recover(t.Context(), nil))
	_, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ckp/job/chk-1/_metadata", "ckp/job/shared/0", "ckp/job/shared/1"}, names(t, s, ""))
}

func TestKeptSurvivesRestart(t *testing.T) {
	s, journal := blobstore.NewMem(), blobstore.NewMem()
	opts := &incremental.CleanerOptions{Journal: journal}
	put(t, s, "ckp/old/shared/0", "ckp/old/chk-7/_metadata")
	c := incremental.NewCleaner(incremental.NewRegistry(), one{s}, opts)
	for range 2 {
		_, err := c.Restore(t.Context(), snapshotOf(7, file("s3://bucket/ckp/old/shared/0")), "s3://bucket/ckp/old/chk-7/_metadata", incremental.NoClaim, nil)
		require.NoError(t, err)
	}
	c = incremental.NewCleaner(incremental.NewRegistry(), one{s}, opts)
	require.NoError(t, c.Recover(t.Context(), nil))
	require.NoError(t, c.Update(func(r *incremental.Registry) error {
		require.NoError(t, r.Begin(8))
		require.ErrorIs(t, r.Register(8, []incremental.AckFile{{Handle: file("s3://bucket/ckp/old/shared/0")}}), incremental.ErrNotClaimed)
		r.Abort(8)
		return nil
	}))
	_, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Len(t, names(t, s, ""), 2)
}

func TestDamagedJournal(t *testing.T) {
	journal := blobstore.NewMem()
	require.NoError(t, blobstore.WriteAll(t.Context(), journal, "registry/pending-x-1", []byte("tidemark registry 1\ndir /a\nfile b\nend 1 00000000\n"), nil))
	c := incremental.NewCleaner(incremental.NewRegistry(), one{blobstore.NewMem()}, &incremental.CleanerOptions{Journal: journal})
	err := c.Recover(t.Context(), nil)
	require.ErrorIs(t, err, damage.ErrCorrupt)
	require.ErrorContains(t, err, "registry/pending-x-1: byte 34: last line")
	require.NotErrorIs(t, err, incremental.ErrKeptUnknown)
	require.Len(t, names(t, journal, ""), 1)

	for name, unsafe := range map[string]bool{"registry/kept-7-CLAIM-x": false, "registry/kept-7-LEGACY": true, "registry/kept-7-NO_CLAIM": true} {
		require.NoError(t, blobstore.WriteAll(t.Context(), journal, name, []byte("cut off"), nil))
		err := c.Recover(t.Context(), nil)
		require.ErrorContains(t, err, name)
		require.Equal(t, unsafe, errors.Is(err, incremental.ErrKeptUnknown), name)
		require.NoError(t, journal.Delete(t.Context(), name))
	}
	for _, op := range []string{"list", "open"} {
		require.NoError(t, blobstore.WriteAll(t.Context(), journal, "registry/kept-7-LEGACY", []byte("x"), nil))
		silent := blobstore.NewFaults(blobstore.Fault{Op: op, Err: blobstore.ErrTemporary}).Wrap(journal)
		c := incremental.NewCleaner(incremental.NewRegistry(), one{blobstore.NewMem()}, &incremental.CleanerOptions{Journal: silent})
		require.ErrorIs(t, c.Recover(t.Context(), nil), incremental.ErrKeptUnknown, op)
	}
}

// The folder of a checkpoint goes with its last file; the shared one stays.
func TestEmptyFolders(t *testing.T) {
	dir := t.TempDir()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	at := func(name string) string { return filepath.ToSlash(filepath.Join(dir, name)) }
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	s, base, err := pool.Resolve(t.Context(), loc)
	require.NoError(t, err)
	put(t, s, base+"/job/chk-1/_metadata", base+"/job/chk-1/own", base+"/job/shared/1")
	r := incremental.NewRegistry()
	require.NoError(t, r.Begin(1))
	require.NoError(t, r.Register(1, []incremental.AckFile{{Handle: file(at("job/chk-1/own"))}, {Handle: file(at("job/shared/1"))}}))
	require.NoError(t, r.Confirm(1, at("job/chk-1/_metadata")))
	r.Subsume(1)
	left, err := incremental.NewCleaner(r, pool, nil).Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.NoDirExists(t, filepath.Join(dir, "job", "chk-1"))
	require.DirExists(t, filepath.Join(dir, "job", "shared"))
}

// Run ends when its context does, also while a store hangs, and leaves no goroutine.
func TestCleanerRunEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, hang := range []bool{false, true} {
		s := blobstore.NewMem()
		var store blobstore.Store = s
		entered := make(chan struct{}, 100)
		if hang {
			store = blobstore.NewFaults(blobstore.Fault{Op: "delete", Hang: true, Name: func(string) bool { entered <- struct{}{}; return true }}).Wrap(s)
		}
		c := incremental.NewCleaner(incremental.NewRegistry(), one{store}, &incremental.CleanerOptions{Batch: 1, Workers: 4})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		for i := range 3 {
			put(t, s, fmt.Sprintf("ckp/job/shared/%d", i))
			require.NoError(t, c.Update(func(r *incremental.Registry) error {
				r.Discard([]incremental.AckFile{{Handle: file(fmt.Sprintf("%sshared/%d", root, i))}})
				return nil
			}))
		}
		if hang {
			<-entered
		} else {
			require.Eventually(t, func() bool { return len(names(t, s, "")) == 0 }, time.Minute, time.Millisecond)
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	}
}

// Every call of a store fails once, before or after it happened: afterwards nothing
// is left, and the retained checkpoint is whole.
func TestCleanerFaultAtEveryCall(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			s, journal := blobstore.NewMem(), blobstore.NewMem()
			faults := blobstore.NewFaults(blobstore.Fault{Nth: n, After: after})
			r := subsumed(t, s, 3)
			put(t, s, "ckp/job/shared/kept")
			completed(t, r, 2, upload("a", "kept", root+"shared/kept"))
			put(t, s, "ckp/job/chk-2/_metadata")
			now := time.Unix(0, 0)
			c := incremental.NewCleaner(r, one{faults.Wrap(s)}, &incremental.CleanerOptions{Journal: faults.Wrap(journal), Batch: 2, Workers: 1, Now: func() time.Time { return now }})
			for range 5 {
				now = now.Add(time.Minute)
				if _, err := c.Clean(t.Context()); err != nil {
					require.True(t, errors.Is(err, blobstore.ErrInjected), err)
				}
			}
			require.Equal(t, []string{"ckp/job/chk-2/_metadata", "ckp/job/shared/kept"}, names(t, s, ""), "call %d", n)
			require.Empty(t, names(t, journal, ""), "call %d", n)
			if !faults.Fired() {
				break
			}
		}
	}
}

// A claimed snapshot that lies elsewhere is deleted in the end, although the process
// died before the journal had what was to be deleted.
func TestClaimedSurvivesRestart(t *testing.T) {
	s, journal := blobstore.NewMem(), blobstore.NewMem()
	nothing := func(iter.Seq2[blobstore.Location, bool]) iter.Seq2[blobstore.Location, bool] {
		return func(func(blobstore.Location, bool) bool) {}
	}
	opts := &incremental.CleanerOptions{Journal: journal, Journaled: nothing}
	const old = "s3://bucket/elsewhere/old/"
	job, err := blobstore.Parse(root)
	require.NoError(t, err)
	put(t, s, "elsewhere/old/shared/0", "elsewhere/old/shared/1", "elsewhere/old/chk-7/_metadata", "ckp/job/chk-8/_metadata")
	c := incremental.NewCleaner(incremental.NewRegistry(job), one{s}, opts)
	_, err = c.Restore(t.Context(), snapshotOf(7, file(old+"shared/0"), file(old+"shared/1")), old+"chk-7/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	require.NoError(t, c.Claimed(t.Context(), 7))
	require.Len(t, names(t, journal, ""), 1)

	// Checkpoint 8 has one of its files, and is all that is retained.
	eight := snapshotOf(8, file(old+"shared/1"))
	c = incremental.NewCleaner(incremental.NewRegistry(job), one{s}, opts)
	_, err = c.Restore(t.Context(), eight, root+"chk-8/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	require.NoError(t, c.Recover(t.Context(), nil))
	_, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"ckp/job/chk-8/_metadata", "elsewhere/old/shared/1"}, names(t, s, ""))
	require.Len(t, names(t, journal, ""), 1, "a file is left")
	require.NoError(t, c.Update(func(r *incremental.Registry) error { r.Subsume(8); return nil }))
	left, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.Empty(t, names(t, s, ""))
	require.Empty(t, names(t, journal, ""))
}

// A snapshot that was claimed and, since the job was begun from it once more, then left
// to its owner stays: the journal of claimed files, which comes first in a listing, must
// not delete what the other one keeps.
func TestKeptAfterClaimed(t *testing.T) {
	s, journal := blobstore.NewMem(), blobstore.NewMem()
	opts := &incremental.CleanerOptions{Journal: journal}
	const old = "s3://bucket/elsewhere/old/"
	job, err := blobstore.Parse(root)
	require.NoError(t, err)
	all := []string{"elsewhere/old/chk-7/_metadata", "elsewhere/old/shared/0"}
	put(t, s, all...)
	snapshot := snapshotOf(7, file(old+"shared/0"))
	c := incremental.NewCleaner(incremental.NewRegistry(job), one{s}, opts)
	_, err = c.Restore(t.Context(), snapshot, old+"chk-7/_metadata", incremental.Claim, nil)
	require.NoError(t, err)
	require.NoError(t, c.Claimed(t.Context(), 7))

	c = incremental.NewCleaner(incremental.NewRegistry(job), one{s}, opts)
	_, err = c.Restore(t.Context(), snapshot, old+"chk-7/_metadata", incremental.NoClaim, nil)
	require.NoError(t, err)
	require.NoError(t, c.Recover(t.Context(), nil))
	_, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, all, names(t, s, ""))
	require.Len(t, names(t, journal, ""), 2)

	// The job does not retain it any more.
	c = incremental.NewCleaner(incremental.NewRegistry(job), one{s}, opts)
	require.NoError(t, c.Recover(t.Context(), nil))
	_, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, all, names(t, s, ""))
}

// bulk has one answer for all of a bulk deletion: an object whose bucket is gone, and one
// that could not be deleted.
type bulk struct {
	blobstore.Store
	err error
}

func (b *bulk) DeleteAll(ctx context.Context, names []string) error {
	if b.err != nil {
		return b.err
	}
	return b.Store.DeleteAll(ctx, names)
}

// What a bulk deletion could not delete is not taken for gone because another object
// of it was.
func TestCleanerBulkPartlyGone(t *testing.T) {
	s, now := blobstore.NewMem(), time.Unix(0, 0)
	b := &bulk{s, errors.Join(blobstore.ErrNotExist, blobstore.ErrPermission)}
	c := incremental.NewCleaner(subsumed(t, s, 3), one{b}, &incremental.CleanerOptions{Now: func() time.Time { return now }})
	left, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, left)
	b.err, now = nil, now.Add(time.Minute)
	left, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, left)
	require.Empty(t, names(t, s, ""))
}
