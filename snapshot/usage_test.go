package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// usageOf runs DiskUsage with everything spilled to files and collects the
// verdicts.
func usageOf(t testing.TB, f *fixture, at string, opts *UsageOptions) (*Usage, map[string]UsageObject) {
	t.Helper()
	if opts == nil {
		opts = &UsageOptions{}
	}
	objects := map[string]UsageObject{}
	last := ""
	opts.Each = func(o UsageObject) error {
		require.Greater(t, o.Name, last)
		last = o.Name
		objects[o.Name] = o
		return nil
	}
	opts.TempDir = t.TempDir()
	loc := f.root
	if at != "" {
		loc = f.loc(at)
	}
	u, err := DiskUsage(context.Background(), f.pool, loc, opts)
	require.NoError(t, err)
	return u, objects
}

func TestDiskUsage(t *testing.T) {
	for name, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.chain("ckp", jobA, 4)
			for i := 1; i <= 1; i++ { // subsumed
				f.remove(fmt.Sprintf("ckp/%s/chk-%d/_metadata", jobA, i))
				f.remove(fmt.Sprintf("ckp/%s/chk-%d/own", jobA, i))
			}
			f.put("ckp/"+jobA+"/shared/lost", 1000)
			f.put("ckp/"+jobA+"/chk-5/part", 500)
			f.put("ckp/"+jobB+"/shared/lost", 2000)
			u, objects := usageOf(t, f, "ckp", nil)
			require.True(t, u.Conclusive)
			require.Len(t, u.Snapshots, 3)
			require.Equal(t, "chk-2", u.Snapshots[0].Name)
			// chk-2 names f1 f2, chk-3 f1 f2 f3, chk-4 f2 f3 f4.
			require.Equal(t, Count{4 + 3, 430}, u.Referenced)
			require.Equal(t, Count{2, 3000}, u.Unreferenced)
			require.Equal(t, Count{2, 3000}, u.UnreferencedRecent)
			require.Equal(t, Count{1, 500}, u.Incomplete)
			require.EqualValues(t, 3, u.Metadata.Objects)
			require.EqualValues(t, 210+310+310, u.LogicalBytes)
			require.Equal(t, Count{1, 10}, u.Snapshots[0].Unique)
			require.Equal(t, Count{2, 200}, u.Snapshots[0].Shared)
			require.Equal(t, Count{2, 110}, u.Snapshots[2].Unique)
			require.Equal(t, []Sharing{
				{Snapshots: []int{0, 1}, Count: Count{1, 100}},
				{Snapshots: []int{0, 1, 2}, Count: Count{1, 100}},
				{Snapshots: []int{1, 2}, Count: Count{1, 100}},
			}, u.Sharings)
			require.Equal(t, u.Total.Objects, int64(len(objects)))
			require.Equal(t, VerdictUnreferenced, objects[jobA+"/shared/lost"].Verdict)
			require.True(t, objects[jobA+"/shared/lost"].Recent)
			require.Equal(t, VerdictIncomplete, objects[jobA+"/chk-5/part"].Verdict)
			require.Equal(t, VerdictMetadata, objects[jobA+"/chk-4/_metadata"].Verdict)
			require.Equal(t, 3, objects[jobA+"/shared/f2"].Snapshots)
			require.Equal(t, []string{jobA + "/shared/lost", jobB + "/shared/lost"}, u.Examples[VerdictUnreferenced])

			u, _ = usageOf(t, f, "ckp", &UsageOptions{Now: time.Now().Add(100 * time.Hour)})
			require.Zero(t, u.UnreferencedRecent)
			require.Equal(t, Count{2, 3000}, u.Unreferenced)

			_, err := DiskUsage(context.Background(), f.pool, f.loc("nothing"), nil)
			require.ErrorIs(t, err, ErrNoSnapshot)
		})
	}
}

// What may not be called unreferenced.
// What a job of our runtime keeps beside its checkpoints is no garbage.
func TestDiskUsageBookkeeping(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 2)
	log := jobA + "/checkpoints-log/" + strings.Repeat("0", 18) + "7"
	journal := jobA + "/registry/pending-ABC-3"
	stray := jobA + "/checkpoints-log/stray"
	for _, name := range []string{log, journal, stray} {
		f.put("ckp/"+name, 100)
	}
	u, objects := usageOf(t, f, "ckp", nil)
	require.Equal(t, VerdictMetadata, objects[log].Verdict)
	require.Equal(t, VerdictMetadata, objects[journal].Verdict)
	require.Equal(t, VerdictUnreferenced, objects[stray].Verdict)
	require.Equal(t, Count{1, 100}, u.Unreferenced)
}

func TestDiskUsageDoubts(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      string
		wound   func(f *fixture)
		opts    *Options
		warning string
	}{
		{"unreadable-metadata", "ckp", func(f *fixture) { f.put("ckp/"+jobA+"/chk-9/_metadata", 30) }, nil, "could not be read"},
		{"newer-format", "ckp", func(f *fixture) {
			f.putBytes("ckp/"+jobA+"/chk-9/_metadata", []byte("\x49\x60\x67\x2d\x00\x00\x00\x63\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
		}, nil, "could not be read"},
		{"refused-handle", "ckp", func(f *fixture) {
			f.write("ckp/"+jobA+"/chk-9", newCheckpoint(9, relative("../shared/lost", 1000)))
		}, nil, "not followed"},
		{"known-by-another-address", "ckp", func(f *fixture) {
			f.write("ckp/"+jobA+"/chk-9", newCheckpoint(9, relative("own", 10), absolute("hdfs://nameservice/ckp/"+jobA+"/shared/gone", 1000)))
		}, nil, "not followed"},
		{"copy-of-what-still-exists", "copy", func(f *fixture) {
			f.put("copy/"+jobA+"/chk-9/own", 10)
			f.put("copy/"+jobA+"/shared/f3", 100)
			f.write("copy/"+jobA+"/chk-9", newCheckpoint(9, relative("own", 10), absolute(f.url("ckp/"+jobA+"/shared/f3"), 100)))
		}, nil, "name files of its own job outside this root"},
		{"relocation-forbidden", "copy", func(f *fixture) {
			f.put("copy/"+jobA+"/chk-9/own", 10)
			f.put("copy/"+jobA+"/shared/x", 100)
			f.write("copy/"+jobA+"/chk-9", newCheckpoint(9, relative("own", 10), absolute(f.url("gone/"+jobA+"/shared/x"), 100)))
		}, &Options{NoRelocate: true}, "name files of its own job outside this root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := memFixture(t)
			f.chain("ckp", jobA, 3)
			f.put("ckp/"+jobA+"/shared/lost", 1000)
			f.put("copy/"+jobA+"/shared/lost", 1000)
			c.wound(f)
			u, objects := usageOf(t, f, c.at, &UsageOptions{Options: c.opts})
			require.False(t, u.Conclusive)
			require.Zero(t, u.Unreferenced)
			require.Equal(t, VerdictUnknown, objects[jobA+"/shared/lost"].Verdict)
			require.Contains(t, strings.Join(u.Warnings, "\n"), c.warning)
			for _, o := range objects {
				require.NotEqual(t, VerdictUnreferenced, o.Verdict)
			}
		})
	}
}

// Roots whose snapshots lie elsewhere, or which have none.
func TestDiskUsageOfAPart(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 3)
	f.put("ckp/"+jobA+"/chk-4/part", 1)
	f.put("plain/file", 1)
	for at, want := range map[string]Verdict{
		"ckp/" + jobA + "/shared": VerdictUnknown,
		"ckp/" + jobA + "/chk-4":  VerdictIncomplete,
		"ckp/" + jobA + "/chk-3":  VerdictReferenced,
		"plain":                   VerdictUnknown,
	} {
		u, objects := usageOf(t, f, at, nil)
		require.Zero(t, u.Unreferenced, at)
		for _, o := range objects {
			if o.Verdict != VerdictMetadata {
				require.Equal(t, want, o.Verdict, at)
			}
		}
	}
}

func TestDiskUsageOfOneJob(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 3)
	f.put("ckp/"+jobB+"/chk-7/own", 10)
	f.put("ckp/"+jobA+"/shared/claimed", 100)
	f.write("ckp/"+jobB+"/chk-7", newCheckpoint(7, relative("own", 10), absolute(f.url("ckp/"+jobA+"/shared/claimed"), 100)))
	u, objects := usageOf(t, f, "ckp", nil)
	require.Zero(t, u.Unreferenced)
	require.Equal(t, VerdictReferenced, objects[jobA+"/shared/claimed"].Verdict)
	require.Equal(t, Count{}, u.Outside)

	u, _ = usageOf(t, f, "ckp/"+jobA, nil)
	require.Equal(t, Count{1, 100}, u.Unreferenced)
	require.Contains(t, strings.Join(u.Warnings, "\n"), "this is one job's folder")

	u, _ = usageOf(t, f, "ckp/"+jobB, nil)
	require.True(t, u.Conclusive)
	require.Equal(t, Count{1, 100}, u.Outside)
	require.Equal(t, Count{1, 100}, u.Snapshots[0].Outside)
	require.Contains(t, strings.Join(u.Warnings, "\n"), "1 objects outside this root are named")
}

// TestDiskUsageModel compares with a model that holds everything, on random trees
// with claims, segments, files named twice, missing files and savepoints.
func TestDiskUsageModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := memFixture(t)
			jobs := []string{jobA, jobB, strings.Repeat("c", 32)}
			sizes := map[string]int64{}   // objects but metadata
			named := map[string][]int{}   // object: snapshots
			ranges := map[string][]bool{} // bytes of merged files that are named
			whole := map[string]bool{}
			type made struct {
				dir string
				c   *metadata.Checkpoint
			}
			var all []made
			var pool []string
			for _, job := range jobs {
				for i := range 30 {
					name := fmt.Sprintf("ckp/%s/shared/f%d", job, i)
					if i%7 == 0 {
						name = fmt.Sprintf("ckp/%s/taskowned/m%d", job, i)
					}
					size := 1 + rnd.IntN(200)
					f.put(name, size)
					sizes[name] = int64(size)
					pool = append(pool, name)
				}
			}
			for i := range 12 {
				job := jobs[rnd.IntN(len(jobs))]
				dir := fmt.Sprintf("ckp/%s/chk-%d", job, i)
				if i%5 == 4 {
					dir = fmt.Sprintf("sp/savepoint-%s-%012x", job[:6], i)
				}
				own := dir + "/own"
				f.put(own, 10)
				sizes[own] = 10
				whole[own] = true
				named[own] = append(named[own], i)
				var handles []metadata.StreamHandle
				for range rnd.IntN(20) {
					name := pool[rnd.IntN(len(pool))]
					named[name] = append(named[name], i)
					if strings.Contains(name, "taskowned") {
						start := rnd.Int64N(sizes[name])
						length := rnd.Int64N(sizes[name]-start) + 1
						handles = append(handles, segment(f.url(name), start, length))
						if ranges[name] == nil {
							ranges[name] = make([]bool, sizes[name])
						}
						for b := start; b < start+length; b++ {
							ranges[name][b] = true
						}
						continue
					}
					whole[name] = true
					handles = append(handles, absolute(f.url(name), sizes[name]))
				}
				all = append(all, made{dir, newCheckpoint(int64(i), relative("own", 10), handles...)})
			}
			for _, m := range all {
				f.write(m.dir, m.c)
			}
			// Some named files are gone, some folders have no metadata.
			missing := map[string]bool{}
			for _, name := range pool {
				if rnd.IntN(10) == 0 {
					f.remove(name)
					delete(sizes, name)
					if len(named[name]) > 0 {
						missing[name] = true
					}
				}
			}
			f.put("ckp/"+jobA+"/chk-99/part", 77)
			sizes["ckp/"+jobA+"/chk-99/part"] = 77

			u, objects := usageOf(t, f, "", &UsageOptions{MemoryBytes: 4096, Parallelism: 1 + rnd.IntN(8)})
			require.True(t, u.Conclusive)
			var referenced, unreferenced, incomplete Count
			var dead int64
			for name, size := range sizes {
				snaps := slices.Compact(sorted(named[name]))
				o, ok := objects[name]
				require.True(t, ok, name)
				require.Equal(t, size, o.Bytes)
				require.Equal(t, len(snaps), o.Snapshots, name)
				switch {
				case len(snaps) > 0:
					require.Equal(t, VerdictReferenced, o.Verdict)
					referenced.add(size)
					covered := size
					if !whole[name] {
						covered = 0
						for _, b := range ranges[name] {
							if b {
								covered++
							}
						}
					}
					require.Equal(t, covered, o.ReferencedBytes, name)
					dead += size - covered
				case strings.Contains(name, "chk-99"):
					require.Equal(t, VerdictIncomplete, o.Verdict)
					incomplete.add(size)
				default:
					require.Equal(t, VerdictUnreferenced, o.Verdict)
					unreferenced.add(size)
				}
			}
			require.Len(t, objects, len(sizes)+len(all))
			require.Equal(t, referenced, u.Referenced)
			require.Equal(t, unreferenced, u.Unreferenced)
			require.Equal(t, incomplete, u.Incomplete)
			require.Equal(t, dead, u.DeadSegmentBytes)
			require.EqualValues(t, len(missing), u.Missing)
			require.Zero(t, u.Outside)
			byURL := map[string]int{}
			for i, m := range all {
				byURL[f.url(m.dir+"/"+MetadataName)] = i
			}
			for _, s := range u.Snapshots {
				i := byURL[s.URL]
				var physical, unique, shared Count
				var gone int64
				for name, snaps := range named {
					snaps = slices.Compact(sorted(snaps))
					if !slices.Contains(snaps, i) {
						continue
					}
					size, ok := sizes[name]
					switch {
					case !ok:
						gone++
						continue
					case len(snaps) == 1:
						unique.add(size)
					default:
						shared.add(size)
					}
					physical.add(size)
				}
				require.Equal(t, physical, s.Physical)
				require.Equal(t, unique, s.Unique)
				require.Equal(t, shared, s.Shared)
				require.Equal(t, gone, s.Missing)
			}
			var shared Count
			for _, s := range u.Sharings {
				require.True(t, sort.IntsAreSorted(s.Snapshots))
				shared.Objects += s.Objects
				shared.Bytes += s.Bytes
			}
			var want Count
			for name, snaps := range named {
				if size, ok := sizes[name]; ok && len(slices.Compact(sorted(snaps))) > 1 {
					want.add(size)
				}
			}
			require.Equal(t, want, shared)
		})
	}
}

func sorted(s []int) []int {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// hooked calls before each listing, so that a test can change the store at a
// chosen moment.
type hooked struct {
	blobstore.Store
	list func(n int64, opts *blobstore.ListOptions)
	n    atomic.Int64
}

func (h *hooked) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	h.list(h.n.Add(1), opts)
	return h.Store.List(ctx, opts)
}

// TestDiskUsageWhileJobRuns: a checkpoint completed after the listing names a
// shared file that the listing shows; the one before is subsumed meanwhile.
func TestDiskUsageWhileJobRuns(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 3)
	f.put("ckp/"+jobA+"/shared/uploaded", 100)
	f.put("ckp/"+jobA+"/chk-4/own", 10)
	f.pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
		return &hooked{Store: s, list: func(n int64, _ *blobstore.ListOptions) {
			if n == 2 { // the listing is done, this is the first of the search
				f.write("ckp/"+jobA+"/chk-4", newCheckpoint(4, relative("own", 10), absolute(f.url("ckp/"+jobA+"/shared/uploaded"), 100)))
			}
		}}
	})
	u, objects := usageOf(t, f, "ckp", nil)
	require.Len(t, u.Snapshots, 4)
	require.Zero(t, u.Unreferenced)
	require.Equal(t, VerdictReferenced, objects[jobA+"/shared/uploaded"].Verdict)
	require.Equal(t, VerdictReferenced, objects[jobA+"/chk-4/own"].Verdict)
	require.Zero(t, u.Incomplete)
}

func TestSorterSpills(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	dir := t.TempDir()
	s := &sorter{dir: dir, budget: 2000}
	want := map[reference]bool{}
	for range 20000 {
		r := reference{name: fmt.Sprintf("some/folder/%d", rnd.IntN(3000)), snapshot: int32(rnd.IntN(5)), whole: rnd.IntN(2) == 0, end: int64(rnd.IntN(3)) - 1}
		if !r.whole {
			r.start, r.end = 5, 9
		}
		want[r] = true
		require.NoError(t, s.add(r))
	}
	var last reference
	for r, err := range s.sorted() {
		require.NoError(t, err)
		require.Negative(t, compareReferences(last, r))
		last = r
		require.True(t, want[r])
		delete(want, r)
	}
	require.Empty(t, want)
	require.NoError(t, s.close())
	require.Empty(t, temporaryFiles(t, dir))
}

func temporaryFiles(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	store, err := blobstore.Open(context.Background(), dir, nil)
	require.NoError(t, err)
	for info, err := range store.List(context.Background(), nil) {
		require.NoError(t, err)
		names = append(names, info.Name)
	}
	return names
}

func TestDiskUsageSpillFails(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 3)
	_, err := DiskUsage(context.Background(), f.pool, f.root, &UsageOptions{MemoryBytes: 40, TempDir: "/no/such/folder"})
	require.ErrorIs(t, err, errSpill)
	require.False(t, errors.Is(err, ErrNoSnapshot))
}
