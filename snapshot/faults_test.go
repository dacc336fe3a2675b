package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

var errInjected = errors.New("injected")

// faulty fails the n-th step: a call, an entry of a listing, a read.
type faulty struct {
	blobstore.Store
	steps *atomic.Int64
	n     int64
}

func (f *faulty) step() error {
	if f.steps.Add(1) == f.n {
		return &blobstore.Error{Op: "test", URL: f.URL(), Err: errInjected}
	}
	return nil
}

func (f *faulty) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	if err := f.step(); err != nil {
		return blobstore.Info{}, err
	}
	return f.Store.Stat(ctx, name)
}

func (f *faulty) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	r, err := f.Store.Open(ctx, name)
	return &faultyReader{r, f}, err
}

func (f *faulty) OpenRange(ctx context.Context, name string, offset, length int64) (blobstore.Reader, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	r, err := f.Store.OpenRange(ctx, name, offset, length)
	return &faultyReader{r, f}, err
}

func (f *faulty) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		if err := f.step(); err != nil {
			yield(blobstore.Info{}, err)
			return
		}
		for info, err := range f.Store.List(ctx, opts) {
			if ferr := f.step(); ferr != nil {
				info, err = blobstore.Info{}, ferr
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

type faultyReader struct {
	blobstore.Reader
	f *faulty
}

func (r *faultyReader) Read(p []byte) (int, error) {
	if err := r.f.step(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// TestFaults fails each step in turn. What a function then returns is an error, or
// the truth: never a snapshot called usable or damaged, or a file called
// unreferenced, because a store call failed.
func TestFaults(t *testing.T) {
	f := memFixture(t)
	// Three checkpoints as if moved here, with enough files to be listed; one is
	// damaged; one file is in nobody's use.
	for i := 1; i <= 3; i++ {
		f.put(fmt.Sprintf("old/%s/shared/placeholder", jobB), 1)
	}
	f.chain("ckp", jobA, 20)
	for i := 1; i <= 17; i++ {
		f.remove(fmt.Sprintf("ckp/%s/chk-%d/_metadata", jobA, i))
	}
	f.remove("ckp/" + jobA + "/chk-20/own")
	f.put("ckp/"+jobA+"/shared/lost", 1000)
	f.put("ckp/"+jobA+"/taskowned/lost", 1000)
	damaged := f.loc("ckp/" + jobA + "/chk-20")
	good := f.loc("ckp/" + jobA + "/chk-19")
	ctx := context.Background()

	for name, run := range map[string]func(t *testing.T, pool *blobstore.Pool) error{
		"find": func(t *testing.T, pool *blobstore.Pool) error {
			n := 0
			var failed error
			for ref, err := range Find(ctx, pool, f.root, nil) {
				if err != nil {
					failed = err
				} else if !ref.Incomplete {
					n++
				}
			}
			if failed == nil {
				require.Equal(t, 3, n)
			}
			return failed
		},
		"check": func(t *testing.T, pool *blobstore.Pool) error {
			s, err := Open(ctx, pool, damaged, nil)
			if err != nil {
				return err
			}
			r, err := Check(ctx, s, nil)
			if err == nil {
				require.Equal(t, "1 file missing", r.Reason)
			}
			return err
		},
		"verify": func(t *testing.T, pool *blobstore.Pool) error {
			v, err := VerifyAt(ctx, pool, good, nil)
			if err == nil {
				require.True(t, v.OK)
				require.Empty(t, v.Findings)
			}
			return err
		},
		"verify-damaged": func(t *testing.T, pool *blobstore.Pool) error {
			v, err := VerifyAt(ctx, pool, damaged, nil)
			if err == nil {
				require.Equal(t, "exclusive-file-missing", codes(v))
			}
			return err
		},
		"list": func(t *testing.T, pool *blobstore.Pool) error {
			var failed error
			rows := 0
			for row, err := range List(ctx, pool, f.root, nil) {
				switch {
				case err != nil:
					failed = err
				case row.Incomplete:
				case row.Err != nil:
					require.False(t, row.Usable)
					require.NotEmpty(t, row.Reason)
					failed = row.Err
				default:
					rows++
					require.Equal(t, row.ID != 20, row.Usable)
				}
			}
			if failed == nil {
				require.Equal(t, 3, rows)
			}
			return failed
		},
		"latest": func(t *testing.T, pool *blobstore.Pool) error {
			r, err := Latest(ctx, pool, f.root, nil)
			if err == nil {
				require.Equal(t, good.String(), r.Dir)
				require.Len(t, r.Candidates, 2)
			}
			return err
		},
		"usage": func(t *testing.T, pool *blobstore.Pool) error {
			u, err := DiskUsage(ctx, pool, f.root, nil)
			switch {
			case err != nil:
			case u.Conclusive:
				require.Len(t, u.Snapshots, 3)
				// f1 to f15, the two lost, and the placeholder.
				require.Equal(t, Count{15 + 3, 15*100 + 2001}, u.Unreferenced)
			default:
				require.Zero(t, u.Unreferenced)
				require.Contains(t, strings.Join(u.Warnings, "\n"), "injected")
				return errInjected
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for n := int64(1); ; n++ {
				var steps atomic.Int64
				pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return &faulty{s, &steps, n} })
				err := run(t, pool)
				if steps.Load() < n {
					require.NoError(t, err, "no step failed")
					require.Greater(t, n, int64(5))
					break
				}
				if err == nil {
					// Work that was given up, or was not needed: the answer is the truth.
					continue
				}
				require.ErrorIs(t, err, errInjected, "step %d", n)
				require.NotContains(t, err.Error(), "\n")
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	f := memFixture(t)
	f.chain("ckp", jobA, 5)
	s, err := Open(context.Background(), f.pool, f.loc("ckp/"+jobA+"/chk-5"), nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Open(ctx, f.pool, f.loc("ckp/"+jobA+"/chk-5"), nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Check(ctx, s, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Verify(ctx, s, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Latest(ctx, f.pool, f.root, nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = DiskUsage(ctx, f.pool, f.root, nil)
	require.ErrorIs(t, err, context.Canceled)
	for _, err := range List(ctx, f.pool, f.root, nil) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
