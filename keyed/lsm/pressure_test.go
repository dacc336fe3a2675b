package lsm_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/keyedtest"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/serializer"
)

// pressed are states of much more than the memory that they may have.
type pressed struct {
	b      *lsm.Backend[string]
	value  *keyed.ValueState[string, string]
	list   *keyed.ListState[string, int64]
	m      *keyed.MapState[string, int64, int64]
	timers *keyed.TimerQueue[string, struct{}]
}

func openPressed(t *testing.T, p *lsm.Process) *pressed {
	b, err := lsm.Open(t.TempDir(), keyed.Config[string]{Key: serializer.String, MaxParallelism: 16}, &lsm.Options{Process: p})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &pressed{
		b, keyed.Value(b, "value", serializer.String), keyed.List(b, "list", serializer.Int64),
		keyed.Map(b, "map", serializer.Int64, serializer.Int64), keyed.Timers(b, "t", serializer.VoidNS).Event,
	}
}

type due struct {
	key string
	at  int64
}

// TestPressure works on state of many times the memory budget, so that entries are
// dropped, written and read again all the time, and compares it with plain maps; so
// does a backend that restores it.
func TestPressure(t *testing.T) {
	process := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 2 << 20})
	defer process.Close()
	t.Run("", func(t *testing.T) { pressure(t, process) })
}

func pressure(t *testing.T, process *lsm.Process) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	s := openPressed(t, process)
	names := make([]string, 6000)
	for i := range names {
		names[i] = "key " + string(rune('a'+i%26)) + string(rune('A'+i/26%26)) + string(rune('0'+i/676))
	}
	values, lists, maps, timers := map[string]string{}, map[string][]int64{}, map[string]map[int64]int64{}, map[due]bool{}
	text := string(make([]byte, 200))
	storage := keyedtest.NewStorage(t)
	for step := range 120_000 {
		name := names[r.IntN(len(names))]
		k := s.b.Key(name)
		v := r.Int64()
		switch r.IntN(14) {
		case 0, 1:
			x := name + text[:r.IntN(200)]
			require.NoError(t, s.value.Set(k, x))
			values[name] = x
		case 2:
			require.NoError(t, s.value.Clear(k))
			delete(values, name)
		case 3:
			x, ok, err := s.value.Get(k)
			require.NoError(t, err)
			want, has := values[name]
			require.Equal(t, has, ok)
			require.Equal(t, want, x)
		case 4, 5:
			require.NoError(t, s.list.Add(k, v))
			lists[name] = append(lists[name], v)
		case 6:
			x, err := s.list.Get(k)
			require.NoError(t, err)
			require.True(t, slices.Equal(lists[name], x), "%s: %v, want %v", name, x, lists[name])
			if len(x) > 3 { // a part of what it holds
				require.NoError(t, s.list.Update(k, x[2:]))
				lists[name] = slices.Clone(lists[name][2:])
			}
		case 7, 8:
			u := r.Int64N(20)
			require.NoError(t, s.m.Put(k, u, v))
			if maps[name] == nil {
				maps[name] = map[int64]int64{}
			}
			maps[name][u] = v
		case 9:
			u := r.Int64N(20)
			require.NoError(t, s.m.Remove(k, u))
			delete(maps[name], u)
		case 10:
			got := map[int64]int64{}
			require.NoError(t, s.m.Entries(k, func(u, v int64) bool { got[u] = v; return true }))
			require.Len(t, got, len(maps[name]))
			for u, v := range maps[name] {
				require.Equal(t, v, got[u])
			}
			if r.IntN(4) == 0 {
				require.NoError(t, s.m.Clear(k))
				delete(maps, name)
			}
		case 11, 12:
			x := due{name, r.Int64N(50)}
			added, err := s.timers.Register(k, struct{}{}, x.at)
			require.NoError(t, err)
			require.Equal(t, !timers[x], added)
			timers[x] = true
		case 13:
			x := due{name, r.Int64N(50)}
			deleted, err := s.timers.Delete(k, struct{}{}, x.at)
			require.NoError(t, err)
			require.Equal(t, timers[x], deleted)
			delete(timers, x)
		}
		if step%20_000 == 19_999 {
			format := []keyed.Format{keyed.FormatCheckpoint, keyed.FormatCanonical}[step/20_000%2]
			sn := keyedtest.Save[string](t, storage, keyed.WriteOptions{Format: format}, s.b)
			require.NoError(t, s.b.Close())
			s = openPressed(t, process)
			require.NoError(t, s.b.Restore(t.Context(), keyed.RestoreSource{Snapshot: sn}))
			n, err := s.timers.Len()
			require.NoError(t, err)
			require.Equal(t, len(timers), n)
		}
	}
	for _, name := range names {
		k := s.b.Key(name)
		x, ok, err := s.value.Get(k)
		require.NoError(t, err)
		want, has := values[name]
		require.Equal(t, has, ok)
		require.Equal(t, want, x)
		l, err := s.list.Get(k)
		require.NoError(t, err)
		require.True(t, slices.Equal(lists[name], l), name)
	}
	last := int64(-1)
	fired, err := s.timers.Advance(100, func(x keyed.Timer[string, struct{}]) error {
		require.GreaterOrEqual(t, x.At, last)
		last = x.At
		require.True(t, timers[due{x.Key.Value(), x.At}])
		delete(timers, due{x.Key.Value(), x.At})
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, timers, "of %d", fired)
}

// TestBudget writes values whose size their Go type does not tell, and reads none: they
// are in the budget like others.
func TestBudget(t *testing.T) {
	p := lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: 8 << 20})
	defer p.Close()
	b, err := lsm.Open(t.TempDir(), keyed.Config[int64]{Key: serializer.Int64}, &lsm.Options{Process: p})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	value := keyed.Value(b, "value", serializer.List(serializer.String))
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range int64(6000) {
		require.NoError(t, value.Set(b.Key(i), []string{strings.Repeat("x", 10_000)}))
	}
	require.Less(t, heap()-before, int64(24<<20), "of 60 MB")
}
