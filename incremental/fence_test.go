package incremental

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

func memStore(t testing.TB) blobstore.Store {
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { _ = pool.Close() })
	loc, err := blobstore.Parse(fmt.Sprintf("mem://fence-%s-%d", strings.ToLower(t.Name()), rand.Uint64()))
	require.NoError(t, err)
	store, _, err := pool.Resolve(t.Context(), loc)
	require.NoError(t, err)
	return store
}

func TestFence(t *testing.T) {
	store, ctx := memStore(t), t.Context()
	a, err := TakeFence(ctx, store, "job/fence", &FenceOptions{Holder: "a", IDs: 10})
	require.NoError(t, err)
	require.EqualValues(t, 1, a.Epoch())
	require.EqualValues(t, 1, a.FirstID())
	require.NoError(t, a.Reserve(ctx, 1))
	require.NoError(t, a.Check(ctx))
	ran := false
	require.NoError(t, a.Commit(ctx, func(context.Context) error { ran = true; return nil }))
	require.True(t, ran)
	b, err := TakeFence(ctx, store, "job/fence", &FenceOptions{Holder: "b"})
	require.NoError(t, err)
	require.EqualValues(t, 2, b.Epoch())
	require.EqualValues(t, 12, b.FirstID(), "a may use all it has reserved")
	require.ErrorContains(t, b.Reserve(ctx, 11), "may be used by a coordinator before")
	require.NoError(t, b.Reserve(ctx, 12))
	require.ErrorIs(t, a.Commit(ctx, func(context.Context) error { t.Fatal("a commits"); return nil }), ErrFenced)
	require.ErrorIs(t, a.Reserve(ctx, 2), ErrFenced)
	require.NoError(t, b.Check(ctx))
	holders, err := Holders(ctx, store, "job/fence")
	require.NoError(t, err)
	require.Len(t, holders, 2)
	require.Contains(t, holders[1], "epoch 2: b, since ")
}

// Of many that take the fence at once each gets an epoch of its own, and only the
// last is not fenced; also when answers are lost.
func TestFenceIsTakenByOne(t *testing.T) {
	store := memStore(t)
	fences := make([]*Fence, 20)
	var wg sync.WaitGroup
	for i := range fences {
		wg.Go(func() {
			var err error
			fences[i], err = TakeFence(t.Context(), store, "f", nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(fences, func(a, b *Fence) int { return int(a.Epoch() - b.Epoch()) })
	for i, f := range fences {
		require.EqualValues(t, i+1, f.Epoch())
		err := f.Check(t.Context())
		if i == len(fences)-1 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrFenced)
		}
	}
}

// Each store call fails once, before it happens or when its answer is lost.
func TestFenceFaults(t *testing.T) {
	injected := errors.New("injected")
	for _, answer := range []bool{false, true} {
		for n := 1; ; n++ {
			store, ctx := memStore(t), t.Context()
			rules := blobstore.NewFaults(blobstore.Fault{Nth: n, Err: injected, After: answer})
			faulty := rules.Wrap(store)
			run := func(s blobstore.Store) error {
				f, err := TakeFence(ctx, s, "f", nil)
				if err != nil {
					return err
				}
				if err := f.Reserve(ctx, f.FirstID()); err != nil {
					return err
				}
				return f.Commit(ctx, func(context.Context) error { return nil })
			}
			err := run(faulty)
			if err != nil {
				require.ErrorIs(t, err, injected, "call %d", n)
			}
			require.NoError(t, run(store), "call %d", n)
			if !rules.Fired() {
				require.NoError(t, err)
				require.Greater(t, n, 4)
				break
			}
		}
	}
}

// stepped is a store whose calls wait for their turn, so that a test decides how two
// coordinators interleave.
type stepped struct {
	blobstore.Store
	step func()
}

func (s *stepped) Stat(ctx context.Context, name string) (blobstore.Info, error) {
	s.step()
	return s.Store.Stat(ctx, name)
}

func (s *stepped) Delete(ctx context.Context, name string) error {
	s.step()
	return s.Store.Delete(ctx, name)
}

func (s *stepped) List(ctx context.Context, o *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	s.step()
	return s.Store.List(ctx, o)
}

func (s *stepped) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	s.step()
	return s.Store.Open(ctx, name)
}

func (s *stepped) Create(ctx context.Context, name string, o *blobstore.WriteOptions) (blobstore.Writer, error) {
	w, err := s.Store.Create(ctx, name, o)
	return &steppedWriter{w, s.step}, err
}

type steppedWriter struct {
	blobstore.Writer
	step func()
}

func (w *steppedWriter) Commit() error {
	w.step()
	return w.Writer.Commit()
}

// TestFenceInterleavings runs coordinators that take over from each other, paused at
// any store call for any time, and holds that no confirmed checkpoint is lost, that
// none is confirmed beside the line of those who took over, and that what a
// coordinator starts from stays.
func TestFenceInterleavings(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	fenced := 0
	for seed := range seeds {
		fenced += interleave(t, seed)
	}
	require.Greater(t, fenced, int(seeds), "the interleavings are of use")
}

type confirmedCheckpoint struct{ epoch, id int64 }

func interleave(t *testing.T, seed uint64) (fenced int) {
	random := rand.New(rand.NewPCG(seed, 5))
	store, ctx := memStore(t), t.Context()
	const coordinators = 4
	type party struct {
		waiting, granted chan struct{}
		done             chan struct{}
	}
	var (
		mu        sync.Mutex
		confirmed []confirmedCheckpoint
		starts    = map[int64]int64{} // by epoch: the checkpoint it started from
		first     = map[int64]int64{}
	)
	newest := func(s blobstore.Store) (ids []int64) {
		for info, err := range s.List(ctx, &blobstore.ListOptions{Prefix: "chk/"}) {
			require.NoError(t, err)
			id, err := strconv.ParseInt(path.Base(info.Name), 10, 64)
			require.NoError(t, err)
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids
	}
	// coordinate is the life of one coordinator: it retains one checkpoint.
	coordinate := func(s blobstore.Store) {
		f, err := TakeFence(ctx, s, "fence", &FenceOptions{IDs: 2})
		if err != nil {
			t.Error(err)
			return
		}
		from, at := int64(0), f.FirstID()
		if ids := newest(s); len(ids) > 0 {
			from = ids[len(ids)-1]
			at = max(at, from+1)
		}
		mu.Lock()
		starts[f.Epoch()], first[f.Epoch()] = from, at
		mu.Unlock()
		retained := from
		for id := at; id < at+4; id++ {
			err := f.Reserve(ctx, id)
			if err == nil {
				err = f.Commit(ctx, func(ctx context.Context) error {
					return blobstore.WriteAll(ctx, s, fmt.Sprintf("chk/%020d", id), []byte("x"), &blobstore.WriteOptions{IfAbsent: true})
				})
			}
			if errors.Is(err, ErrFenced) {
				mu.Lock()
				fenced++
				mu.Unlock()
				return
			}
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
				return
			}
			mu.Lock()
			confirmed = append(confirmed, confirmedCheckpoint{f.Epoch(), id})
			mu.Unlock()
			if retained > 0 { // subsumed: it may be deleted at any time from now on
				if err := s.Delete(ctx, fmt.Sprintf("chk/%020d", retained)); err != nil {
					t.Error(err)
				}
			}
			retained = id
		}
	}
	parties := make([]*party, coordinators)
	for i := range parties {
		p := &party{make(chan struct{}), make(chan struct{}), make(chan struct{})}
		parties[i] = p
		s := &stepped{store, func() { p.waiting <- struct{}{}; <-p.granted }}
		go func() { defer close(p.done); coordinate(s) }()
	}
	ready := make([]bool, coordinators)
	for live := slices.Clone(parties); len(live) > 0; {
		i := random.IntN(len(live))
		// Some run for long while others are paused.
		for range 1 + random.IntN(8) {
			ended := false
			k := slices.Index(parties, live[i])
			if !ready[k] {
				select {
				case <-live[i].waiting:
				case <-live[i].done:
					ended = true
				}
			}
			if ended {
				live = slices.Delete(live, i, i+1)
				break
			}
			ready[k] = false
			live[i].granted <- struct{}{}
		}
	}
	for _, c := range confirmed {
		for epoch, from := range starts {
			if epoch > c.epoch {
				require.GreaterOrEqual(t, from, c.id, "seed %d: epoch %d starts before checkpoint %d, which epoch %d confirmed", seed, epoch, c.id, c.epoch)
				require.Greater(t, first[epoch], c.id)
			}
		}
	}
	seen := map[int64]bool{}
	for _, c := range confirmed {
		require.False(t, seen[c.id], "seed %d: checkpoint %d is confirmed twice", seed, c.id)
		seen[c.id] = true
	}
	// The newest confirmed one is the newest there is, but for those that nobody was told of.
	last := confirmedCheckpoint{}
	for _, c := range confirmed {
		if c.epoch > last.epoch || c.epoch == last.epoch && c.id > last.id {
			last = c
		}
	}
	if ids := newest(store); last.id > 0 {
		require.Contains(t, ids, last.id, "seed %d", seed)
		if last.epoch == int64(len(starts)) {
			require.Equal(t, last.id, ids[len(ids)-1], "seed %d: something stands above the last confirmed checkpoint", seed)
		}
	}
	return fenced
}
