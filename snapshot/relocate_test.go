package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// TestMoved: where the metadata was written, where it is read, which files are
// there, and what must be recognised. Paths are below the fixture's root; handles
// are absolute, and one is relative.
func TestMoved(t *testing.T) {
	type move struct{ from, to string }
	for _, c := range []struct {
		name    string
		dir     string   // of the metadata as read
		handles []string // as written; those with a scheme as they are
		files   []string // that exist
		move    *move
		missing int
		class   string // "shared 2, taskowned 1" of absolute handles
	}{
		{
			name: "not-moved", dir: "ckp/" + jobA + "/chk-5",
			handles: []string{"ckp/" + jobA + "/shared/a", "ckp/" + jobA + "/shared/b"},
			files:   []string{"ckp/" + jobA + "/shared/a", "ckp/" + jobA + "/shared/b"},
			class:   "shared 2",
		},
		{
			name: "root-moved", dir: "new/place/ckp/" + jobA + "/chk-5",
			handles: []string{"old/ckp/" + jobA + "/shared/a", "old/ckp/" + jobA + "/taskowned/b"},
			files:   []string{"new/place/ckp/" + jobA + "/shared/a", "new/place/ckp/" + jobA + "/taskowned/b"},
			move:    &move{"old/ckp", "new/place/ckp"}, class: "shared 1, taskowned 1",
		},
		{
			name: "another-job-beside", dir: "new/" + jobA + "/chk-5",
			handles: []string{"old/" + jobB + "/shared/a", "old/" + jobB + "/shared/b"},
			files:   []string{"new/" + jobB + "/shared/a", "new/" + jobB + "/shared/b"},
			move:    &move{"old", "new"}, class: "shared 2",
		},
		{
			name: "some-gone-after-claim", dir: "new/" + jobA + "/chk-5",
			handles: []string{"old/" + jobA + "/shared/a", "old/" + jobA + "/shared/b", "old/" + jobA + "/shared/c"},
			files:   []string{"new/" + jobA + "/shared/c"},
			move:    &move{"old", "new"}, missing: 2, class: "shared 3",
		},
		{
			name: "changelog-in-a-folder-of-the-root", dir: "new/" + jobA + "/chk-5",
			handles: []string{"old/changelog/" + jobA + "/dstl/a"},
			files:   []string{"new/changelog/" + jobA + "/dstl/a"},
			move:    &move{"old", "new"}, class: "changelog 1",
		},
		{
			name: "changelog-beside-the-root", dir: "new/ckp/" + jobA + "/chk-5",
			handles: []string{"old/ckp/" + jobA + "/shared/a", "old/ckp/" + jobA + "/shared/b", "old/dstl-base/" + jobA + "/dstl/c"},
			files:   []string{"new/ckp/" + jobA + "/shared/a", "new/ckp/" + jobA + "/shared/b", "new/dstl-base/" + jobA + "/dstl/c"},
			move:    &move{"old", "new"}, class: "changelog 1, shared 2",
		},
		{
			name: "copied-and-the-original-exists", dir: "copy/" + jobA + "/chk-5",
			handles: []string{"orig/" + jobA + "/shared/a"},
			files:   []string{"copy/" + jobA + "/shared/a", "orig/" + jobA + "/shared/a"},
			class:   "shared 1",
		},
		{
			name: "only-the-checkpoint-folder-copied", dir: "backup/" + jobA + "/chk-5",
			handles: []string{"old/" + jobA + "/shared/a"},
			missing: 1, class: "shared 1",
		},
		{
			name: "job-folder-renamed", dir: "backup/orders/chk-5",
			handles: []string{"old/" + jobA + "/shared/a", "old/" + jobA + "/taskowned/t"},
			files:   []string{"backup/orders/shared/a", "backup/orders/taskowned/t"},
			move:    &move{"old/" + jobA, "backup/orders"}, class: "shared 1, taskowned 1",
		},
		{
			name: "no-job-level", dir: "new/chk-5",
			handles: []string{"old/shared/a"},
			files:   []string{"new/shared/a"},
			move:    &move{"old", "new"}, class: "shared 1",
		},
		{
			name: "all-in-one-folder", dir: "backup/monday",
			handles: []string{"old/" + jobA + "/shared/a", "old/" + jobA + "/shared/b"},
			files:   []string{"backup/monday/a", "backup/monday/b"},
			move:    &move{"old/" + jobA + "/shared", "backup/monday"}, class: "exclusive 2",
		},
		{
			name: "savepoint-with-absolute-paths", dir: "new/savepoint-aaaaaa-0123456789ab",
			handles: []string{"old/savepoint-aaaaaa-0123456789ab/a"},
			files:   []string{"new/savepoint-aaaaaa-0123456789ab/a"},
			move:    &move{"old", "new"}, class: "exclusive 1",
		},
		{
			name: "checkpoint-before-1.11", dir: "new/" + jobA + "/chk-5",
			handles: []string{"old/" + jobA + "/chk-5/a"},
			files:   []string{"new/" + jobA + "/chk-5/a"},
			move:    &move{"old", "new"}, class: "exclusive 1",
		},
		{
			name: "entropy", dir: "ckp/" + jobA + "/chk-5",
			handles: []string{"x7f2/ckp/" + jobA + "/shared/a", "k2p0/ckp/" + jobA + "/chk-5/b", "ckp/0000/" + jobA + "/shared/c"},
			files:   []string{"x7f2/ckp/" + jobA + "/shared/a", "k2p0/ckp/" + jobA + "/chk-5/b", "ckp/0000/" + jobA + "/shared/c"},
			class:   "exclusive 1, shared 2",
		},
		{
			name: "from-another-store", dir: "restore/ckp/" + jobA + "/chk-5",
			handles: []string{"s3a://bucket/ckp/" + jobA + "/shared/a"},
			files:   []string{"restore/ckp/" + jobA + "/shared/a"},
			move:    &move{"s3a://bucket/ckp", "restore/ckp"}, class: "shared 1",
		},
		{
			name: "from-a-bucket's-root", dir: "restore/" + jobA + "/chk-5",
			handles: []string{"hdfs://nn:8020/" + jobA + "/shared/a"},
			files:   []string{"restore/" + jobA + "/shared/a"},
			move:    &move{"hdfs://nn:8020", "restore"}, class: "shared 1",
		},
		{
			name: "places-without-job", dir: "sp/savepoint-aaaaaa-0123456789ab",
			handles: []string{"x/shared/a", "x/shared/op_x/db/b", "x/taskowned/job_y/c", "shared/team/d", "y/savepoint-bbbbbb-0123456789ab/e", "y/chk-3/f"},
			files:   []string{"x/shared/a", "x/shared/op_x/db/b", "x/taskowned/job_y/c", "shared/team/d", "y/savepoint-bbbbbb-0123456789ab/e", "y/chk-3/f"},
			class:   "savepoint 2, shared 2, taskowned 1, outside 1",
		},
		{
			name: "claimed-from-a-foreign-root", dir: "ckp/" + jobA + "/chk-5",
			handles: []string{"other/root/" + jobB + "/shared/a"},
			files:   []string{"other/root/" + jobB + "/shared/a"},
			class:   "shared 1",
		},
	} {
		for store, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
			t.Run(c.name+"/"+store, func(t *testing.T) {
				f := newFixture(t)
				address := func(s string) string {
					if strings.Contains(s, "://") {
						return s
					}
					return f.url(s)
				}
				var handles []metadata.StreamHandle
				for _, h := range c.handles {
					handles = append(handles, absolute(address(h), 100))
				}
				f.put(c.dir+"/own", 10)
				for _, name := range c.files {
					f.put(name, 100)
				}
				f.write(c.dir, newCheckpoint(5, relative("own", 10), handles...))
				s, err := Open(context.Background(), f.pool, f.loc(c.dir), nil)
				require.NoError(t, err)
				if c.move == nil {
					require.Nil(t, s.Relocation)
				} else {
					require.NotNil(t, s.Relocation)
					require.Equal(t, Relocation{From: address(c.move.from), To: f.url(c.move.to), Handles: len(handles)}, *s.Relocation)
				}
				report, err := Check(context.Background(), s, nil)
				require.NoError(t, err)
				require.Equal(t, c.missing, report.ProblemCount, "%+v", report.Problems)
				require.Equal(t, c.missing, report.Counts[ProblemMissing])
				counts := map[Class]int{}
				for _, h := range handles {
					counts[s.Resolve(h).Class]++
				}
				var text []string
				for _, class := range []Class{ClassChangelog, ClassExclusive, ClassSavepoint, ClassShared, ClassTaskOwned, ClassOutside} {
					if counts[class] > 0 {
						text = append(text, fmt.Sprintf("%s %d", class, counts[class]))
					}
				}
				require.Equal(t, c.class, strings.Join(text, ", "))
				require.Equal(t, c.name == "entropy", Inspect(s, nil).Entropy)

				// Forbidden, nothing is replaced.
				s, err = Open(context.Background(), f.pool, f.loc(c.dir), &Options{NoRelocate: true})
				require.NoError(t, err)
				require.Nil(t, s.Relocation)
				report, err = Check(context.Background(), s, nil)
				require.NoError(t, err)
				if c.move != nil {
					require.False(t, report.Usable)
					// By hand it is found again.
					s, err = Open(context.Background(), f.pool, f.loc(c.dir), &Options{NoRelocate: true,
						Map: []Mapping{{Old: address(c.move.from), New: f.url(c.move.to)}}})
					require.NoError(t, err)
					report, err = Check(context.Background(), s, nil)
					require.NoError(t, err)
					require.Equal(t, c.missing, report.ProblemCount, "%+v", report.Problems)
				}
			})
		}
	}
}

// TestMoveStaysInTheStore: whatever untrusted metadata names, a recognised move
// leads to the store that the metadata lies in.
func TestMoveStaysInTheStore(t *testing.T) {
	f, victim := memFixture(t), memFixture(t)
	victim.put("ckp/"+jobA+"/shared/a", 100)
	f.put("ckp/"+jobA+"/shared/a", 100)
	f.put(chk5+"/own", 10)
	f.write(chk5, newCheckpoint(5, relative("own", 10), absolute(victim.url("ckp/"+jobA+"/shared/a"), 100)))
	s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	require.NotNil(t, s.Relocation)
	for file := range Files(s) {
		require.True(t, file.Location.SameStore(f.root))
	}
}

// Files of a moved snapshot that nobody may look at are denied, not missing: where
// they were written nothing is.
func TestMovedToADeniedPlace(t *testing.T) {
	for _, x := range []struct {
		name   string
		denied string
		move   bool
	}{{"new place", "new/ckp/" + jobA + "/shared", true}, {"both places", "", false}} {
		t.Run(x.name, func(t *testing.T) {
			f := memFixture(t)
			f.pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return &deniedStore{s, x.denied} })
			t.Cleanup(func() { require.NoError(t, f.pool.Close()) })
			dir := "new/ckp/" + jobA + "/chk-5"
			f.put("new/ckp/"+jobA+"/shared/a", 100)
			f.write(dir, newCheckpoint(5, nil, absolute(f.url("old/ckp/"+jobA+"/shared/a"), 100)))
			s, err := Open(t.Context(), f.pool, f.loc(dir), nil)
			require.NoError(t, err)
			if !x.move {
				require.Nil(t, s.Relocation)
				return
			}
			require.NotNil(t, s.Relocation)
			require.Equal(t, f.url("new/ckp"), s.Relocation.To)
			report, err := Check(t.Context(), s, nil)
			require.NoError(t, err)
			require.Zero(t, report.Counts[ProblemMissing], "%+v", report.Problems)
		})
	}
}

// deniedStore may not be asked about files of shared below a prefix.
type deniedStore struct {
	blobstore.Store
	denied string
}

func (s *deniedStore) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	if strings.HasPrefix(name, s.denied) && strings.Contains(name, "/shared/") {
		return blobstore.Info{}, fmt.Errorf("%s: %w", name, blobstore.ErrPermission)
	}
	return s.Store.Stat(ctx, name)
}

func TestManyFolders(t *testing.T) {
	// More folders than a resolver remembers, as with entropy injection.
	f := memFixture(t)
	var handles []metadata.StreamHandle
	const n = maxPlaces + 100
	for i := range n {
		handles = append(handles, absolute(f.url(fmt.Sprintf("%04x/ckp/%s/shared/f%d", i, jobA, i)), 100))
	}
	handles = append(handles, handles[0], handles[n-1])
	f.put(chk5+"/own", 10)
	f.write(chk5, newCheckpoint(5, relative("own", 10), handles...))
	s, err := Open(context.Background(), f.pool, f.loc(chk5), nil)
	require.NoError(t, err)
	report, err := Check(context.Background(), s, nil)
	require.NoError(t, err)
	require.Equal(t, n, report.Counts[ProblemMissing])
	requireConsistent(t, s, report)
	in := Inspect(s, nil)
	require.True(t, in.Entropy)
	require.EqualValues(t, n+1, in.Totals.Files)
	require.EqualValues(t, 100*n+10, in.Totals.PhysicalBytes)
	require.LessOrEqual(t, len(in.Movable.Blockers), maxBlockers+1)
}
