package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

func openSnapshot(t testing.TB, path string) *snapshot.Snapshot {
	t.Helper()
	pool, loc := openAt(t, path)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	return s
}

// plainRows are all rows as JSON, by what tells them apart.
func plainRows(t testing.TB, s *snapshot.Snapshot) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for r, err := range snapshot.Rows(t.Context(), s, &snapshot.ScanOptions{OnProblem: func(*snapshot.ScanProblem) {}}) {
		require.NoError(t, err)
		b, _ := r.AppendJSON(nil)
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(b, &m))
		state := strings.Join([]string{r.State.Operator.ID, r.State.Name, string(r.State.Kind)}, "|")
		value := string(m["value"]) + string(m["serializer_version"]) + string(m["ttl_timestamp_min"]) + string(m["ttl_timestamp_max"])
		if !r.State.Kind.Keyed() && r.Form != snapshot.FormBytes && r.Form != snapshot.FormVersionedBytes && r.State.Kind != snapshot.StateBroadcast {
			// Elements are a bag.
			var list []json.RawMessage
			require.NoError(t, json.Unmarshal(m["value"], &list))
			for _, e := range list {
				k := state + "|" + string(e) + string(m["serializer_version"])
				out[k] = append(out[k], "")
			}
			continue
		}
		key := state + "|" + string(m["subtask"]) + "|" + string(m["key"]) + "|" + string(m["namespace"]) + "|" + string(m["map_key"]) + "|" + string(m["timestamp"])
		if r.State.Kind == snapshot.StateRawKeyed {
			key += string(m["key_group"])
		}
		out[key] = append(out[key], value)
	}
	return out
}

func plainDiff(a, b map[string][]string) (added, removed, changed int64) {
	for k, x := range a {
		y := b[k]
		for i := range x {
			switch {
			case i >= len(y):
				removed++
			case x[i] != y[i]:
				changed++
			}
		}
	}
	for k, y := range b {
		added += int64(max(0, len(y)-len(a[k])))
	}
	return added, removed, changed
}

type countChanges struct{ n map[snapshot.Change]int64 }

func (c countChanges) Append(dst []byte, r *snapshot.DiffRow) ([]byte, error) {
	c.n[r.Change]++
	for _, x := range []*snapshot.StateRow{r.Old, r.New} {
		if x != nil {
			dst, _ = x.AppendJSON(dst)
			dst = append(dst, '\n')
		}
	}
	return dst, nil
}

// TestDiffAgreesWithTheRows compares snapshots of all kinds with each other, in
// every way that Diff has, and the plain way.
func TestDiffAgreesWithTheRows(t *testing.T) {
	type named struct {
		name string
		s    *snapshot.Snapshot
		rows map[string][]string
	}
	byJob := map[string][]named{}
	cases, least := testdata.ManyGoldens(t, 200)
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			if sn.ExpectedEntries == 0 {
				continue
			}
			s := openSnapshot(t, c.File(sn.Path))
			rows := plainRows(t, s)
			for _, o := range c.Operators { // of the same job, mostly
				byJob[o.UID] = append(byJob[o.UID], named{c.Name + "/" + sn.Path, s, rows})
				break
			}
		}
	}
	require.NotEmpty(t, byJob)
	compared, differing := 0, 0
	for _, all := range byJob {
		for i := range all {
			for _, j := range []int{i, i + 1, i + 7} {
				if j >= len(all) || j == i+7 && i%4 > 0 {
					continue
				}
				a, b := all[i], all[j]
				added, removed, changed := plainDiff(a.rows, b.rows)
				for _, way := range []string{"", "spill", "decoded", "decoded, spill"} {
					opts := &snapshot.DiffOptions{TempDir: t.TempDir(), Scan: &snapshot.ScanOptions{Workers: 2}, OnProblem: func(bool, *snapshot.ScanProblem) {}}
					if strings.Contains(way, "spill") {
						opts.MemoryBytes = 2000
					}
					if strings.Contains(way, "decoded") {
						snapshot.DecodeKeys(opts)
					}
					n := countChanges{map[snapshot.Change]int64{}}
					var lines int
					opts.Scan.Workers = 1
					r, err := snapshot.Diff(t.Context(), a.s, b.s, opts, func(int) snapshot.DiffEncoder { return n }, func(b []byte) error {
						lines += strings.Count(string(b), "\n")
						return nil
					})
					require.NoError(t, err, "%s and %s %s", a.name, b.name, way)
					var x, y, z int64
					for _, st := range r.States {
						x, y, z = x+st.Added, y+st.Removed, z+st.Changed
						require.Equal(t, st.New-st.Old, st.Added-st.Removed)
					}
					require.Equal(t, []int64{added, removed, changed}, []int64{x, y, z}, "%s and %s %s", a.name, b.name, way)
					require.Equal(t, []int64{added, removed, changed}, []int64{n.n[snapshot.Added], n.n[snapshot.Removed], n.n[snapshot.Changed]})
					require.EqualValues(t, added+removed+2*changed, lines)
					if i == j {
						require.True(t, r.Same())
					}
					left, err := os.ReadDir(opts.TempDir)
					require.NoError(t, err)
					require.Empty(t, left)
				}
				compared++
				if added+removed+changed > 0 {
					differing++
				}
			}
		}
	}
	t.Logf("%d pairs, %d of them differ", compared, differing)
	require.Greater(t, differing, least)
}

// TestDiffInParallelIsInOrder: workers do not change the output.
func TestDiffInParallelIsInOrder(t *testing.T) {
	c := testdata.Golden(t, "f120-rocksdb-chain")
	var outputs []string
	for _, workers := range []int{1, 2, 5} {
		var out strings.Builder
		a, b := openSnapshot(t, c.File(c.Snapshots[0].Path)), openSnapshot(t, c.File(c.Snapshot))
		_, err := snapshot.Diff(t.Context(), a, b, &snapshot.DiffOptions{Scan: &snapshot.ScanOptions{Workers: workers}},
			func(int) snapshot.DiffEncoder { return countChanges{map[snapshot.Change]int64{}} }, func(b []byte) error { out.Write(b); return nil })
		require.NoError(t, err)
		outputs = append(outputs, out.String())
	}
	require.NotEmpty(t, outputs[0])
	require.Equal(t, outputs[0], outputs[1])
	require.Equal(t, outputs[0], outputs[2])
}

// TestDiffStops: an interrupt or a failing writer ends it and leaves no file behind.
func TestDiffStops(t *testing.T) {
	c := testdata.Golden(t, "f120-hashmap-canonical")
	chain := testdata.Golden(t, "f230-rocksdb-native")
	a, b := openSnapshot(t, c.File(c.Snapshot)), openSnapshot(t, chain.File(chain.Snapshot))
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	opts := &snapshot.DiffOptions{TempDir: dir, MemoryBytes: 500, Progress: func(int64) { cancel() }}
	snapshot.DecodeKeys(opts)
	_, err := snapshot.Diff(ctx, a, b, opts, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	full := errors.New("disk full")
	rocks := testdata.Golden(t, "f120-rocksdb-chain")
	x, y := openSnapshot(t, rocks.File(rocks.Snapshots[0].Path)), openSnapshot(t, rocks.File(rocks.Snapshot))
	opts = &snapshot.DiffOptions{TempDir: dir, MemoryBytes: 500}
	_, err = snapshot.Diff(t.Context(), x, y, opts, func(int) snapshot.DiffEncoder { return countChanges{map[snapshot.Change]int64{}} }, func([]byte) error { return full })
	require.ErrorIs(t, err, full)
	opts.TempDir = dir + "/nowhere"
	snapshot.DecodeKeys(opts)
	_, err = snapshot.Diff(t.Context(), x, y, opts, nil, nil)
	require.ErrorContains(t, err, "temporary file")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestDiffTellsOfProblems: what cannot be read is told with its side, and the rest
// is compared.
func TestDiffTellsOfProblems(t *testing.T) {
	path := copyGolden(t, "f120-hashmap-canonical")
	c := testdata.Golden(t, "f120-hashmap-canonical")
	require.NoError(t, os.Remove(firstFile(t, path, snapshot.RoleManagedKeyed, snapshot.PartData, "")))
	a, b := openSnapshot(t, c.File(c.Snapshot)), openSnapshot(t, path)
	_, err := snapshot.Diff(t.Context(), a, b, nil, nil, nil)
	require.Error(t, err)
	var sides []bool
	r, err := snapshot.Diff(t.Context(), a, b, &snapshot.DiffOptions{OnProblem: func(isNew bool, p *snapshot.ScanProblem) { sides = append(sides, isNew) }}, nil, nil)
	require.NoError(t, err)
	require.True(t, r.Incomplete)
	require.Equal(t, []bool{true}, sides, "each problem once")
	var removed, same int64
	for _, st := range r.States {
		removed += st.Removed
		same += st.New
		require.Zero(t, st.Added+st.Changed)
	}
	require.Positive(t, removed)
	require.Positive(t, same)
}

// TestDiffOfMaxParallelism: another max parallelism does not make rows differ.
func TestDiffOfMaxParallelism(t *testing.T) {
	path := copyGolden(t, "f120-merging-hashmap")
	rewriteMetadata(t, path, func(c *metadata.Checkpoint) { keyedOperator(c).MaxParallelism = 256 })
	c := testdata.Golden(t, "f120-merging-hashmap")
	r, err := snapshot.Diff(t.Context(), openSnapshot(t, c.File(c.Snapshot)), openSnapshot(t, path), nil, nil, nil)
	require.NoError(t, err)
	require.True(t, r.Same(), "%+v", r)
	require.Len(t, r.Notes, 1)
	require.Contains(t, r.Notes[0], "max parallelism 128 became 256")
	var rows int64
	for _, st := range r.States {
		rows += st.New
	}
	require.Positive(t, rows)
}

func TestDiffFiles(t *testing.T) {
	c := testdata.Golden(t, "f120-rocksdb-chain")
	a, b := openSnapshot(t, c.File(c.Snapshots[0].Path)), openSnapshot(t, c.File(c.Snapshot))
	urls := func(s *snapshot.Snapshot) (out []string) {
		for f := range snapshot.Files(s) {
			out = append(out, f.URL)
		}
		return out
	}
	x, y := urls(a), urls(b)
	var want []string
	for _, u := range x {
		if !slices.Contains(y, u) {
			want = append(want, "removed "+u)
		}
	}
	for _, u := range y {
		if !slices.Contains(x, u) {
			want = append(want, "added "+u)
		}
	}
	var got []string
	for f := range snapshot.DiffFiles(a, b) {
		got = append(got, string(f.Change)+" "+f.URL)
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
	require.NotEmpty(t, got)
	for f := range snapshot.DiffFiles(a, a) {
		t.Errorf("%+v", f)
	}
}
