package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// found lists what Find yields: paths below the root, "?" after incomplete ones.
func found(t *testing.T, f *fixture, at string, opts *FindOptions) []string {
	t.Helper()
	loc := f.root
	if at != "" {
		loc = f.loc(at)
	}
	var out []string
	for ref, err := range Find(context.Background(), f.pool, loc, opts) {
		require.NoError(t, err)
		rel, ok := ref.Location.Rel(f.root)
		require.True(t, ok)
		rel = strings.TrimSuffix(rel, "/"+MetadataName)
		if ref.Incomplete {
			rel += "?"
		}
		out = append(out, rel)
	}
	return out
}

func TestFind(t *testing.T) {
	for name, newFixture := range map[string]func(testing.TB) *fixture{"mem": memFixture, "local": localFixture} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c := newCheckpoint(1, relative("own", 1))
			for _, dir := range []string{"ckp/" + jobA + "/chk-9", "ckp/" + jobA + "/chk-10", "ckp/" + jobB + "/chk-2",
				"sp/savepoint-aaaaaa-0123456789ab", "flat/chk-3", "deep/a/b/c/my-copy", "ckp/" + jobA + "/shared/odd"} {
				f.write(dir, c)
			}
			for _, name := range []string{"ckp/" + jobA + "/chk-11/part", "ckp/" + jobA + "/shared/x", "ckp/" + jobA + "/taskowned/y/z",
				"flat/shared/1", "flat/taskowned/2", "sp/savepoint-bbbbbb-0123456789ab/part", "other/file"} {
				f.put(name, 1)
			}
			all := []string{"ckp/" + jobA + "/chk-9", "ckp/" + jobA + "/chk-10", "ckp/" + jobA + "/chk-11?", "ckp/" + jobB + "/chk-2",
				"deep/a/b/c/my-copy", "flat/chk-3", "sp/savepoint-aaaaaa-0123456789ab", "sp/savepoint-bbbbbb-0123456789ab?"}
			require.Equal(t, all, found(t, f, "", nil))
			require.Equal(t, all, found(t, f, "", &FindOptions{Parallelism: 1}))
			require.Equal(t, all[:3], found(t, f, "ckp/"+jobA, nil))
			require.Equal(t, all[:1], found(t, f, "ckp/"+jobA+"/chk-9", nil))
			require.Equal(t, all[:1], found(t, f, "ckp/"+jobA+"/chk-9/_metadata", nil))
			require.Equal(t, all[2:3], found(t, f, "ckp/"+jobA+"/chk-11", nil))
			require.Empty(t, found(t, f, "other", nil))
			require.Equal(t, []string{"flat/chk-3", "sp/savepoint-aaaaaa-0123456789ab", "sp/savepoint-bbbbbb-0123456789ab?"},
				found(t, f, "", &FindOptions{MaxDepth: 2}), "what is deeper is not looked at")

			for ref, err := range Find(context.Background(), f.pool, f.loc("no/such"), nil) {
				require.ErrorIs(t, err, ErrNoSnapshot)
				require.Empty(t, ref.Name)
			}
			// Leaving the loop early ends it.
			for range Find(context.Background(), f.pool, f.root, nil) {
				break
			}
		})
	}
}

func TestFindOrder(t *testing.T) {
	f := memFixture(t)
	c := newCheckpoint(1, relative("own", 1))
	for _, name := range []string{"chk-", "chk-010", "chk-2", "chk-10", "chk-1x", "chk", "chka", "chk+", "abc", "xyz"} {
		f.write("r/"+name, c)
	}
	require.Equal(t, []string{"r/abc", "r/chk", "r/chk+", "r/chk-2", "r/chk-10", "r/chk-", "r/chk-010", "r/chk-1x", "r/chka", "r/xyz"}, found(t, f, "r", nil))
}

func TestRefNames(t *testing.T) {
	f := memFixture(t)
	c := newCheckpoint(1, relative("own", 1))
	f.write("ckp/"+jobA+"/chk-9", c)
	f.write("sp/savepoint-cccccc-0123456789ab", c)
	f.putBytes("loose/metadata-of-monday", encode(t, c))
	refs := map[string]Ref{}
	for _, at := range []string{"ckp", "sp", "loose/metadata-of-monday"} {
		for ref, err := range Find(context.Background(), f.pool, f.loc(at), nil) {
			require.NoError(t, err)
			refs[ref.Name] = ref
		}
	}
	require.Equal(t, jobA, refs["chk-9"].Job)
	require.EqualValues(t, 9, refs["chk-9"].ID)
	require.Equal(t, RefCheckpoint, refs["chk-9"].Kind)
	require.NotZero(t, refs["chk-9"].Size)
	sp := refs["savepoint-cccccc-0123456789ab"]
	require.Equal(t, "cccccc", sp.Job)
	require.EqualValues(t, -1, sp.ID)
	require.Equal(t, RefSavepoint, sp.Kind)
	require.Equal(t, RefOther, refs["metadata-of-monday"].Kind)

	s, err := Open(context.Background(), f.pool, f.loc("loose/metadata-of-monday"), nil)
	require.NoError(t, err)
	require.Equal(t, "loose", s.Dir.Path)
}

// TestFindIsSparing is the promise that shared files cost nothing.
func TestFindIsSparing(t *testing.T) {
	f := memFixture(t)
	c := newCheckpoint(1, relative("own", 1))
	for i := range 5 {
		job := strings.Repeat(string(rune('a'+i)), 32)
		f.write("ckp/"+job+"/chk-1", c)
		for k := range 2000 {
			f.put(fmt.Sprintf("ckp/%s/shared/%04d", job, k), 1)
			f.put(fmt.Sprintf("ckp/%s/chk-1/%04d", job, k), 1)
		}
	}
	var seen int64
	n := 0
	for _, err := range Find(context.Background(), f.pool, f.root, &FindOptions{Parallelism: 1, Progress: func(p Progress) { seen = p.Objects }}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 5, n)
	require.LessOrEqual(t, seen, int64(10), "objects looked at")
}

func TestFindCancelled(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 5)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	n := 0
	for _, err := range Find(ctx, f.pool, f.root, nil) {
		if err != nil {
			last = err
			continue
		}
		n++
		cancel()
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Less(t, n, 5)
	require.False(t, errors.Is(last, ErrNoSnapshot))
}

func TestEntropyMarker(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 2)
	require.Equal(t, []string{"ckp/" + jobA + "/chk-1", "ckp/" + jobA + "/chk-2"}, found(t, f, "_entropy_/ckp", nil))
	s, err := Open(context.Background(), f.pool, f.loc("ckp/_entropy_/"+jobA+"/chk-2"), nil)
	require.NoError(t, err)
	require.Equal(t, f.url("ckp/"+jobA+"/chk-2"), s.Dir.String())
	_, err = Open(context.Background(), f.pool, f.loc("_entropy_/nothing"), nil)
	require.ErrorIs(t, err, ErrNoSnapshot)
}
