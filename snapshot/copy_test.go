package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

// TestGoldensCopied copies every golden into a memory store and from there to disk
// again. Each copy is whole by itself and holds the same state.
func TestGoldensCopied(t *testing.T) { copyGoldens(t, testdata.Goldens(t)) }

// TestAllGoldensCopied is the same for the whole set, where it is present.
func TestAllGoldensCopied(t *testing.T) {
	cases, _ := testdata.ManyGoldens(t, 0)
	copyGoldens(t, cases)
}

func copyGoldens(t *testing.T, cases []*testdata.Case) {
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			where := c.Name + "/" + sn.Path
			f := memFixture(t)
			disk := parse(t, "file://"+t.TempDir())
			classes := goldenClasses(t)
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			want := describeAt(t, f.pool, loc, nil, classes)
			copyTo(t, f.pool, loc, f.loc("a"))
			require.Equal(t, want, describeAt(t, f.pool, f.loc("a"), nil, classes), where)
			// The second copy can come from the first alone.
			copyTo(t, f.pool, f.loc("a"), disk.Join("b"))
			for _, n := range f.names() {
				f.remove(n)
			}
			require.Equal(t, want, describeAt(t, f.pool, disk.Join("b"), nil, classes), where)
		}
	}
}

// copyTo copies and verifies, and sees that another run finds nothing to do.
func copyTo(t testing.TB, pool *blobstore.Pool, from, to blobstore.Location) {
	s, err := Open(t.Context(), pool, from, nil)
	require.NoError(t, err)
	files := 0
	for range Files(s) {
		files++
	}
	p, err := PlanCopy(t.Context(), s, to, nil)
	require.NoError(t, err)
	require.Len(t, p.Files, files)
	require.False(t, p.Done)
	v, err := p.Apply(t.Context())
	require.NoError(t, err)
	require.Empty(t, codes(v), "%s", from)
	made, err := Open(t.Context(), pool, to, nil)
	require.NoError(t, err)
	require.Nil(t, made.Relocation)
	absolute := 0
	for _, h := range made.Checkpoint.StreamHandles() {
		switch h := h.(type) {
		case *metadata.FileHandle, *metadata.SegmentHandle:
			absolute++
			require.True(t, made.Resolve(h).Location.HasPrefix(to))
		}
	}
	require.Equal(t, p.Rewritten, absolute)
	again, err := PlanCopy(t.Context(), s, to, nil)
	require.NoError(t, err)
	require.True(t, again.Done)
	require.Zero(t, again.Bytes)
}

func TestCopyRefuses(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 4)
	from := f.loc("ckp/" + jobA + "/chk-4")
	s, err := Open(t.Context(), f.pool, from, nil)
	require.NoError(t, err)
	_, err = PlanCopy(t.Context(), s, from, nil)
	require.ErrorContains(t, err, "cannot be copied onto itself")
	_, err = PlanCopy(t.Context(), s, f.loc("ckp/"+jobA+"/chk-3"), nil)
	require.ErrorIs(t, err, ErrAlreadyThere)
	f.remove("ckp/" + jobA + "/shared/f3")
	p, err := PlanCopy(t.Context(), s, f.loc("to"), nil)
	require.NoError(t, err)
	_, err = p.Apply(t.Context())
	require.ErrorIs(t, err, metadata.ErrCorrupt)
	require.ErrorContains(t, err, "f3: file is referenced and not there")
	_, err = Open(t.Context(), f.pool, f.loc("to"), nil)
	require.ErrorIs(t, err, ErrNoSnapshot)
	f.write("far/chk-1", newCheckpoint(1, absolute("mem://elsewhere/x", 3)))
	s, err = Open(t.Context(), f.pool, f.loc("far/chk-1"), nil)
	require.NoError(t, err)
	_, err = PlanCopy(t.Context(), s, f.loc("to"), nil)
	require.ErrorIs(t, err, ErrRefused)
}

// Each store call fails once, before it happens or when its answer is lost:
// afterwards there is no copy or a whole one, and the same copy run again is whole.
func TestCopyFaults(t *testing.T) {
	for _, across := range []bool{false, true} {
		for _, answer := range []bool{false, true} {
			for n := 1; ; n++ {
				f := memFixture(t)
				f.chain("ckp", jobA, 4)
				to := f.loc("copies/one")
				if across {
					to = parse(t, fmt.Sprintf("mem://copies-%d/one", memStores.Add(1)))
				}
				rules := blobstore.NewFaults(blobstore.Fault{Nth: n, Err: errInjected, After: answer})
				run := func(pool *blobstore.Pool) error {
					s, err := Open(t.Context(), pool, f.loc("ckp/"+jobA+"/chk-4"), nil)
					if err != nil {
						return err
					}
					p, err := PlanCopy(t.Context(), s, to, &CopyOptions{Parallelism: 1})
					if err != nil {
						return err
					}
					v, err := p.Apply(t.Context())
					if err == nil {
						require.Empty(t, codes(v))
					}
					return err
				}
				// Memory stores live as long as a pool that has them open.
				_, _, err := f.pool.Resolve(t.Context(), to)
				require.NoError(t, err)
				err = run(blobstore.NewPool(nil, rules.Wrap))
				switch s, openErr := Open(t.Context(), f.pool, to, nil); {
				case openErr == nil:
					r, err := Check(t.Context(), s, nil)
					require.NoError(t, err)
					require.Empty(t, r.Reason, "call %d", n)
				default:
					require.ErrorIs(t, openErr, ErrNoSnapshot)
					require.ErrorIs(t, err, errInjected)
				}
				require.NoError(t, run(f.pool), "call %d", n)
				if !rules.Fired() {
					require.NoError(t, err)
					require.Greater(t, n, 10)
					break
				}
			}
		}
	}
}

// A process that copies is killed at a store call, or a few later, and another completes
// its work: what is there is not copied again. The last one is killed when _metadata is all
// that is missing.
func TestCopyKilled(t *testing.T) {
	plan := func(f *fixture, to string) *CopyPlan {
		s, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-1"), nil)
		require.NoError(t, err)
		p, err := PlanCopy(t.Context(), s, f.loc(to), nil)
		require.NoError(t, err)
		return p
	}
	copied := func(f *fixture, to string) {
		v, err := plan(f, to).Apply(t.Context())
		require.NoError(t, err)
		require.Empty(t, codes(v))
	}
	if f := toBeKilled(t); f != nil {
		copied(f, "to")
		return
	}
	dir := t.TempDir()
	f := &fixture{t, testPool(t), parse(t, "file://"+dir)}
	var shared []metadata.StreamHandle
	for i := range 40 {
		name := fmt.Sprintf("ckp/%s/shared/f%d", jobA, i)
		f.put(name, 300_000)
		shared = append(shared, absolute(f.url(name), 300_000))
	}
	f.put("ckp/"+jobA+"/chk-1/own", 10)
	f.write("ckp/"+jobA+"/chk-1", newCheckpoint(1, relative("own", 10), shared...))
	count := blobstore.NewFaults()
	pool := blobstore.NewPool(nil, count.Wrap)
	copied(&fixture{t, pool, f.root}, "whole")
	require.NoError(t, pool.Close())
	random := killRandom(t)
	for round := range 7 {
		if round%2 == 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "to")))
		}
		if round < 6 {
			killAt(t, dir, killPoint{Nth: 1 + random.IntN(count.Calls()), Wait: random.IntN(2) == 0})
		} else {
			require.True(t, killAt(t, dir, killPoint{Nth: 1, Op: "create", Suffix: "/to/_metadata", Wait: true}))
		}
		if s, err := Open(t.Context(), f.pool, f.loc("to"), nil); err == nil {
			r, err := Check(t.Context(), s, nil)
			require.NoError(t, err)
			require.Empty(t, r.Reason)
		} else {
			require.ErrorIs(t, err, ErrNoSnapshot)
		}
		p, present := plan(f, "to"), 0
		for _, file := range p.Files {
			if file.Present {
				present++
			}
			_, err := os.Stat(filepath.Join(dir, "to", file.Name))
			require.Equal(t, err == nil, file.Present, "what was copied before is not copied again")
		}
		t.Logf("killed with %d files there", present)
		if round == 6 {
			require.Len(t, p.Files, present)
			require.False(t, p.Done)
		}
	}
	copied(f, "to")
}

func TestCopyCancelled(t *testing.T) {
	f := localFixture(t)
	f.chain("ckp", jobA, 4)
	s, err := Open(t.Context(), f.pool, f.loc("ckp/"+jobA+"/chk-4"), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	seen := CopyProgress{}
	p, err := PlanCopy(ctx, s, f.loc("to"), &CopyOptions{Parallelism: 1, Progress: func(c CopyProgress) {
		if seen = c; c.Files == 2 {
			cancel()
		}
	}})
	require.NoError(t, err)
	_, err = p.Apply(ctx)
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	require.Equal(t, 4, seen.OfFiles)
	_, err = Open(t.Context(), f.pool, f.loc("to"), nil)
	require.ErrorIs(t, err, ErrNoSnapshot)
	p, err = PlanCopy(t.Context(), s, f.loc("to"), nil)
	require.NoError(t, err)
	require.Positive(t, p.PresentBytes)
	_, err = p.Apply(t.Context())
	require.NoError(t, err)
}
