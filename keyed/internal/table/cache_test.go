package table

import (
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCache compares a table that grows, shrinks and grows again with a map, and
// views of it with what the map was. Hashes are bad on purpose: a quarter of the keys
// share one with another.
func TestCache(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	hash := func(k int, _ struct{}) uint32 { return uint32(k/4*4) * 0x9e3779b9 }
	if r.IntN(2) == 0 {
		hash = func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	}
	views := NewViews()
	tab := NewCache[int, struct{}, int](views, 3, 2, nil, hash)
	group := func(k int) int { return 3 + k&1 }
	want := map[int]int{}
	type frozen struct {
		view *View
		want map[int]int
	}
	var open []frozen
	check := func(f frozen) {
		got := map[int]int{}
		for g := 3; g < 5; g++ {
			n := 0
			for from, done := uint32(0), false; !done; {
				var buf []CacheEntry[int, struct{}, int]
				buf, from, done = tab.Batch(f.view, g, from, nil)
				for _, e := range buf {
					require.Equal(t, group(e.Key), g)
					got[e.Key] = e.Val
					n++
				}
			}
			require.Equal(t, n, tab.Count(f.view, g))
		}
		require.Equal(t, f.want, got)
		for range 200 {
			k := r.IntN(40_000)
			e, ok := tab.Lookup(f.view, group(k), hash(k, struct{}{}), k, struct{}{})
			v, has := f.want[k]
			require.Equal(t, has, ok)
			require.Equal(t, v, e.Val)
		}
	}
	for round := range 12 {
		grow := round%4 != 3
		for range 10_000 {
			k := r.IntN(40_000)
			h := hash(k, struct{}{})
			e, ref := tab.Find(group(k), h, k, struct{}{})
			v, has := want[k]
			require.Equal(t, has, e != nil)
			switch {
			case !has:
				if grow {
					tab.Insert(group(k), h, k, struct{}{}, round)
					want[k] = round
				}
			case !grow || r.IntN(4) == 0:
				require.Equal(t, v, e.Val)
				tab.Remove(h, e, ref)
				delete(want, k)
			default:
				tab.Set(e, ref, v+1)
				want[k] = v + 1
			}
		}
		require.Equal(t, len(want), tab.Len())
		if len(open) == 3 || len(open) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(open))
			check(open[i])
			tab.Release(open[i].view)
			open[i].view.Close()
			open = append(open[:i], open[i+1:]...)
		}
		open = append(open, frozen{views.Open(true), maps.Clone(want)})
	}
	for _, f := range open {
		check(f)
		tab.Release(f.view)
		f.view.Close()
	}
	require.Zero(t, tab.OldVersions())
	seen := 0
	for g := 3; g < 5; g++ {
		for next := uint32(0); ; seen++ {
			var e *CacheEntry[int, struct{}, int]
			if e, next = tab.Next(g, next); e == nil {
				break
			}
			require.Equal(t, want[e.Key], e.Val)
		}
	}
	require.Equal(t, len(want), seen)
}

// TestCacheOldVersions says that memory for a view follows what changes, not what there
// is, and how often it changes does not matter.
func TestCacheOldVersions(t *testing.T) {
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := NewCache[int, struct{}, int](views, 0, 1, nil, hash)
	for k := range 10_000 {
		tab.Insert(0, hash(k, struct{}{}), k, struct{}{}, k)
	}
	v := views.Open(false)
	for range 5 {
		for k := range 10 {
			e, r := tab.Find(0, hash(k, struct{}{}), k, struct{}{})
			tab.Set(e, r, -1)
		}
	}
	require.Equal(t, 10, tab.OldVersions())
	// A view that is opened and closed again and again beside it adds nothing.
	for range 20 {
		w := views.Open(false)
		for k := range 10 {
			e, r := tab.Find(0, hash(k, struct{}{}), k, struct{}{})
			tab.Set(e, r, -2)
		}
		tab.Release(w)
		w.Close()
	}
	require.LessOrEqual(t, tab.OldVersions(), 30)
	tab.Release(v)
	v.Close()
	require.Zero(t, tab.OldVersions())
}

// TestCacheLongView holds a view for single keys while others come and go, of which each
// sees everything change, also entries that make room for other keys: versions that no
// view sees do not pile up, and those that one does see stay.
func TestCacheLongView(t *testing.T) {
	const keys = 500
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k/2) * 0x9e3779b9 }
	tab := NewCache[int, struct{}, int](views, 0, 1, nil, hash)
	set := func(k, v int) {
		if e, r := tab.Find(0, hash(k, struct{}{}), k, struct{}{}); e != nil {
			tab.Set(e, r, v)
		} else {
			tab.Insert(0, hash(k, struct{}{}), k, struct{}{}, v)
		}
	}
	for k := range keys {
		set(k, 0)
	}
	long := views.Open(true)
	for round := range 100 {
		w := views.Open(false)
		for k := range keys {
			set(k, round+1)
		}
		for k := range keys / 2 { // others take their places
			e, r := tab.Find(0, hash(k, struct{}{}), k, struct{}{})
			tab.Remove(hash(k, struct{}{}), e, r)
			set(keys+k, round)
		}
		for k := range keys / 2 {
			e, r := tab.Find(0, hash(keys+k, struct{}{}), keys+k, struct{}{})
			tab.Remove(hash(keys+k, struct{}{}), e, r)
		}
		tab.Release(w)
		w.Close()
		require.Less(t, tab.OldVersions(), 8*keys, "round %d", round)
	}
	for k := range 2 * keys {
		e, ok := tab.Lookup(long, 0, hash(k, struct{}{}), k, struct{}{})
		require.Equal(t, k < keys, ok, k)
		require.Zero(t, e.Val)
	}
	require.Equal(t, keys, tab.Count(long, 0))
	tab.Release(long)
	long.Close()
	require.Zero(t, tab.OldVersions())
}

// TestCacheReleaseTogether releases views from goroutines of their own while the owner
// opens others and changes everything: no view loses what it needs, and the last
// one leaves nothing.
func TestCacheReleaseTogether(t *testing.T) {
	const keys = 200
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := NewCache[int, struct{}, int](views, 0, 8, nil, hash)
	group := func(k int) int { return k % 8 }
	set := func(round int) {
		for k := range keys {
			h := hash(k, struct{}{})
			if e, r := tab.Find(group(k), h, k, struct{}{}); e != nil {
				tab.Set(e, r, round)
			} else {
				tab.Insert(group(k), h, k, struct{}{}, round)
			}
		}
	}
	set(0)
	var done sync.WaitGroup
	defer done.Wait()
	for round := range 2000 {
		for range 2 {
			w := views.Open(false)
			done.Go(func() {
				for g := range 8 {
					var buf []CacheEntry[int, struct{}, int]
					for from, end := uint32(0), false; !end; {
						buf, from, end = tab.Batch(w, g, from, buf)
					}
					if len(buf) != keys/8 {
						t.Errorf("round %d: %d entries", round, len(buf))
					}
					for _, e := range buf {
						if e.Val != round {
							t.Errorf("round %d: key %d is %d", round, e.Key, e.Val)
							return
						}
					}
				}
				tab.Release(w)
				w.Close()
			})
		}
		set(round + 1)
		if round%4 == 0 { // the others go on beside the next rounds
			done.Wait()
			require.Zero(t, tab.OldVersions(), round)
		}
	}
}
