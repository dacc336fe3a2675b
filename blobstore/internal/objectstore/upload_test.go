package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// fakeUpload keeps what a server would. fault may make a call fail, before it has
// its effect or after it (an answer that is lost).
type fakeUpload struct {
	fault func(call string, index int) (before, after error)

	mu        sync.Mutex
	calls     []string
	began     bool
	aborted   bool
	parts     map[int][]byte
	object    []byte // nil until visible
	ours      bool
	exclusive bool
	atOnce    int // parts on their way, now and at most
	most      int
}

var errTemp = &blobstore.Error{Op: "x", URL: "fake://x", Err: blobstore.ErrTemporary}

func (f *fakeUpload) do(ctx context.Context, call string, index int, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return &blobstore.Error{Op: call, URL: "fake://x", Err: err}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	var before, after error
	if f.fault != nil {
		before, after = f.fault(call, index)
	}
	if before != nil {
		return before
	}
	if err := effect(); err != nil {
		return &blobstore.Error{Op: call, URL: "fake://x", Err: err}
	}
	return after
}

func (f *fakeUpload) show(b []byte) error {
	if f.exclusive && f.object != nil {
		return blobstore.ErrExist
	}
	f.object, f.ours = append([]byte{}, b...), true
	return nil
}

func (f *fakeUpload) Put(ctx context.Context, b []byte) error {
	return f.do(ctx, "put", 0, func() error { return f.show(b) })
}

func (f *fakeUpload) Begin(ctx context.Context) error {
	return f.do(ctx, "begin", 0, func() error { f.began = true; f.parts = map[int][]byte{}; return nil })
}

func (f *fakeUpload) Part(ctx context.Context, i int, b []byte, last bool) error {
	f.mu.Lock()
	f.atOnce++
	f.most = max(f.most, f.atOnce)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.atOnce--; f.mu.Unlock() }()
	time.Sleep(10 * time.Millisecond)
	return f.do(ctx, "part", i, func() error {
		if f.aborted {
			return blobstore.ErrNotExist
		}
		f.parts[i] = slices.Clone(b)
		return nil
	})
}

func (f *fakeUpload) Complete(ctx context.Context) error {
	return f.do(ctx, "complete", 0, func() error {
		if !f.began {
			return blobstore.ErrNotExist
		}
		var all []byte
		for _, i := range slices.Sorted(maps.Keys(f.parts)) {
			all = append(all, f.parts[i]...)
		}
		if err := f.show(all); err != nil {
			return err
		}
		f.began = false
		return nil
	})
}

func (f *fakeUpload) Abort(ctx context.Context) error {
	return f.do(ctx, "abort", 0, func() error { f.began, f.aborted, f.parts = false, true, nil; return nil })
}

func (f *fakeUpload) Ours(context.Context) (bool, error) { return f.ours, nil }

func newWriter(ctx context.Context, f *fakeUpload, p objectstore.Parts) blobstore.Writer {
	return objectstore.NewWriter(ctx, f, p, 0, func(op string, err error) error {
		return &blobstore.Error{Op: op, URL: "fake://x", Err: err}
	})
}

func data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestWriterSizes(t *testing.T) {
	for _, n := range []int{0, 1, 99, 100, 101, 200, 201, 1000, 12345} {
		for _, step := range []int{1, 7, 100, 5000} {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeUpload{}
				w := newWriter(t.Context(), f, objectstore.Parts{Size: 100, Concurrency: 3})
				want := data(n)
				k, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{bytes.NewReader(want)}, make([]byte, step))
				require.NoError(t, err)
				require.EqualValues(t, n, k)
				require.Nil(t, f.object, "nothing is visible before Commit")
				require.NoError(t, w.Commit())
				require.True(t, bytes.Equal(want, f.object), "%d bytes by %d", n, step)
				require.Equal(t, n <= 100, slices.Contains(f.calls, "put"), "one request if one part suffices")
				require.LessOrEqual(t, f.most, 3)
				for _, p := range f.parts {
					require.NotEmpty(t, p)
				}
			})
		}
	}
}

// Each call fails once, before or after its effect: the object is right all the same.
func TestWriterSurvivesOneFault(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		for _, n := range []int{50, 1000} {
			for at := 1; ; at++ {
				fired := false
				for _, lost := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						count := 0
						f := &fakeUpload{exclusive: exclusive}
						f.fault = func(string, int) (error, error) {
							if count++; count != at {
								return nil, nil
							}
							fired = true
							if lost {
								return nil, errTemp
							}
							return errTemp, nil
						}
						w := newWriter(t.Context(), f, objectstore.Parts{Size: 100, Concurrency: 2})
						_, err := w.Write(data(n))
						require.NoError(t, err)
						require.NoError(t, w.Commit(), "exclusive %v, %d bytes, call %d, answer lost %v", exclusive, n, at, lost)
						require.True(t, bytes.Equal(data(n), f.object))
						require.False(t, f.began, "no upload is left")
					})
				}
				if !fired {
					break
				}
			}
		}
	}
}

func TestWriterGivesUp(t *testing.T) {
	for _, call := range []string{"put", "begin", "part", "complete"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 1000
				if call == "put" {
					n = 10
				}
				f := &fakeUpload{fault: func(c string, _ int) (error, error) {
					if c == call {
						return errTemp, nil
					}
					return nil, nil
				}}
				w := newWriter(t.Context(), f, objectstore.Parts{Size: 100, Concurrency: 2})
				_, err := w.Write(data(n))
				if err == nil {
					err = w.Commit()
				}
				require.ErrorIs(t, err, blobstore.ErrTemporary)
				require.Nil(t, f.object)
				require.False(t, f.began, "the upload is dropped")
				require.NoError(t, w.Abort())
				require.ErrorIs(t, w.Commit(), blobstore.ErrClosed)
			})
		})
	}
}

func TestWriterLoses(t *testing.T) {
	for _, n := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeUpload{exclusive: true, object: []byte("another's")}
			w := newWriter(t.Context(), f, objectstore.Parts{Size: 100})
			_, err := w.Write(data(n))
			require.NoError(t, err)
			require.ErrorIs(t, w.Commit(), blobstore.ErrExist)
			require.Equal(t, "another's", string(f.object))
			require.False(t, f.began)
		})
	}
}

func TestWriterCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fakeUpload{}
		w := newWriter(ctx, f, objectstore.Parts{Size: 100, Concurrency: 2})
		_, err := w.Write(data(250))
		require.NoError(t, err)
		cancel()
		_, err = w.Write(data(1))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, w.Commit(), context.Canceled)
		require.NoError(t, w.Abort())
		require.True(t, f.aborted, "also though the context has ended")
		require.False(t, f.began)
		require.Equal(t, "abort", f.calls[len(f.calls)-1], "a part on its way must not come after the abort")
	})
}

// A server that never answers delays an abort by no more than the grace time.
func TestWriterAbortOfHangingParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &hanging{fakeUpload: &fakeUpload{}}
		w := objectstore.NewWriter(t.Context(), f, objectstore.Parts{Size: 100}, 0, func(op string, err error) error {
			return &blobstore.Error{Op: op, URL: "fake://x", Err: err}
		})
		_, err := w.Write(data(250))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, w.Abort())
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.True(t, f.aborted)
	})
}

type hanging struct{ *fakeUpload }

func (h *hanging) Part(ctx context.Context, _ int, _ []byte, _ bool) error {
	<-ctx.Done()
	return &blobstore.Error{Op: "write", URL: "fake://x", Err: ctx.Err()}
}

func TestWriterTooManyParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeUpload{}
		w := newWriter(t.Context(), f, objectstore.Parts{Size: 1, Max: 10})
		_, err := w.Write(data(1024))
		if err == nil {
			err = w.Commit()
		}
		require.ErrorIs(t, err, blobstore.ErrUnsupported)
		require.Nil(t, f.object)
		require.False(t, f.began)
	})
}

func TestWriterHeedsRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		f := &fakeUpload{fault: func(string, int) (error, error) {
			if first {
				first = false
				return &blobstore.Error{Op: "x", URL: "fake://x", Err: slow{blobstore.ErrTemporary}}, nil
			}
			return nil, nil
		}}
		w := newWriter(t.Context(), f, objectstore.Parts{})
		start := time.Now()
		require.NoError(t, w.Commit())
		require.GreaterOrEqual(t, time.Since(start), 7*time.Second)
	})
}

type slow struct{ error }

func (s slow) Unwrap() error           { return s.error }
func (slow) RetryAfter() time.Duration { return 7 * time.Second }

func TestDeleteEach(t *testing.T) {
	var mu sync.Mutex
	var got []string
	bad := errors.New("bad")
	del := func(ctx context.Context, name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, name)
		if name == "b" {
			return bad
		}
		return nil
	}
	require.ErrorIs(t, objectstore.DeleteEach(t.Context(), []string{"a", "b", "c"}, 2, del), bad)
	require.ElementsMatch(t, []string{"a", "b", "c"}, got)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, objectstore.DeleteEach(ctx, []string{"a", "b", "c"}, 2, del), context.Canceled)
	require.Len(t, got, 3)
}
