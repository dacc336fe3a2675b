package table

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTable compares a table that grows, shrinks and grows again with a map, and
// views of it with what the map was. Hashes are bad on purpose: a quarter of the keys
// share one with another.
func TestTable(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	hash := func(k int, _ struct{}) uint32 { return uint32(k/4*4) * 0x9e3779b9 }
	if r.IntN(2) == 0 {
		hash = func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	}
	views := NewViews()
	tab := New[int, struct{}, int](views, Options[int, struct{}]{First: 3, Count: 2, Hash: hash, KeepHash: r.IntN(2) == 0})
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
			for from, done := uint64(0), false; !done; {
				var buf []Entry[int, struct{}, int]
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
			e := tab.Find(group(k), h, k, struct{}{})
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
				tab.Remove(group(k), h, e)
				delete(want, k)
			default:
				tab.Set(group(k), h, e, v+1)
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
		tab.Each(g, func(e *Entry[int, struct{}, int]) bool {
			require.Equal(t, want[e.Key], e.Val)
			seen++
			return true
		})
		var c Cursor
		for e, h := tab.Step(g, &c); e != nil; e, h = tab.Step(g, &c) {
			require.Equal(t, hash(e.Key, struct{}{}), h)
			seen--
		}
	}
	require.Zero(t, seen)
}

// TestOldVersions says that memory for a view follows what changes, not what there
// is, and how often it changes does not matter.
func TestOldVersions(t *testing.T) {
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := New[int, struct{}, int](views, Options[int, struct{}]{Count: 1, Hash: hash})
	for k := range 10_000 {
		tab.Insert(0, hash(k, struct{}{}), k, struct{}{}, k)
	}
	v := views.Open(false)
	for range 5 {
		for k := range 10 {
			h := hash(k, struct{}{})
			tab.Set(0, h, tab.Find(0, h, k, struct{}{}), -1)
		}
	}
	require.Equal(t, 10, tab.OldVersions())
	// A view that is opened and closed again and again beside it adds little: a segment
	// has room for 8 before it looks what is not needed any more.
	for range 200 {
		w := views.Open(false)
		for k := range 10 {
			h := hash(k, struct{}{})
			tab.Set(0, h, tab.Find(0, h, k, struct{}{}), -2)
		}
		tab.Release(w)
		w.Close()
	}
	require.LessOrEqual(t, tab.OldVersions(), 10*8)
	tab.Release(v)
	v.Close()
	require.Zero(t, tab.OldVersions())
}

// TestDense changes ever more entries under a view: old versions stay within denseShare times
// what has changed, and are no more than there were entries when all have; the view sees all
// as they were, one that is opened in the middle too.
func TestDense(t *testing.T) {
	const entries = 20_000
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := New[int, struct{}, int](views, Options[int, struct{}]{Count: 1, Hash: hash})
	for k := range entries {
		tab.Insert(0, hash(k, struct{}{}), k, struct{}{}, k)
	}
	read := func(v *View) (got map[int]int) {
		got = map[int]int{}
		for pos, done := uint64(0), false; !done; {
			var buf []Entry[int, struct{}, int]
			buf, pos, done = tab.Batch(v, 0, pos, nil)
			for _, e := range buf {
				_, twice := got[e.Key]
				require.False(t, twice)
				got[e.Key] = e.Val
			}
		}
		return got
	}
	first := views.Open(false)
	want := read(first)
	var second *View
	var then map[int]int
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(entries) {
		h := hash(k, struct{}{})
		tab.Set(0, h, tab.Find(0, h, k, struct{}{}), -k-1)
		if i%500 == 0 {
			require.LessOrEqual(t, tab.OldVersions(), denseShare*(i+1))
			if second != nil {
				require.Equal(t, then, read(second))
				tab.Release(second)
				second.Close()
			}
			second = views.Open(false)
			then = read(second)
		}
	}
	require.LessOrEqual(t, tab.OldVersions(), 2*entries)
	require.Equal(t, then, read(second))
	tab.Release(second)
	second.Close()
	require.Equal(t, want, read(first))
	tab.Release(first)
	first.Close()
	require.Zero(t, tab.OldVersions())
}

// TestPassed says that a view holds no old version of what it has passed.
func TestPassed(t *testing.T) {
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := New[int, struct{}, int](views, Options[int, struct{}]{Count: 2, Hash: hash})
	set := func(g, k, v int) {
		h := hash(k, struct{}{})
		if e := tab.Find(g, h, k, struct{}{}); e != nil {
			tab.Set(g, h, e, v)
		} else {
			tab.Insert(g, h, k, struct{}{}, v)
		}
	}
	for k := range 100 {
		set(0, k, 1)
		set(1, k, 1)
	}
	w := views.Open(false)
	for k := range 100 {
		set(0, k, 2)
		set(1, k, 2)
	}
	require.Equal(t, 200, tab.OldVersions())
	tab.Passed(w, 0)
	require.Equal(t, 100, tab.OldVersions())
	for k := range 150 {
		set(0, k, 3)
	}
	require.Equal(t, 100, tab.OldVersions())
	require.Equal(t, 100, tab.Count(w, 1))

	// Another view needs what this one has passed.
	other := views.Open(false)
	tab.Passed(w, 1)
	set(0, 0, 4)
	require.Equal(t, 101, tab.OldVersions())
	e, ok := tab.Lookup(other, 0, hash(0, struct{}{}), 0, struct{}{})
	require.True(t, ok)
	require.Equal(t, 3, e.Val)
	require.Equal(t, 150, tab.Count(other, 0))
	tab.Release(w)
	w.Close()
	require.Equal(t, 150, tab.Count(other, 0))
	tab.Release(other)
	other.Close()
	require.Zero(t, tab.OldVersions())
}

// TestReleaseTogether releases views from goroutines of their own while the owner
// opens others and changes everything: no view loses what it needs, and the last
// one leaves nothing.
func TestReleaseTogether(t *testing.T) {
	const keys = 200
	views := NewViews()
	hash := func(k int, _ struct{}) uint32 { return uint32(k) * 0x9e3779b9 }
	tab := New[int, struct{}, int](views, Options[int, struct{}]{Count: 8, Hash: hash})
	group := func(k int) int { return k % 8 }
	set := func(round int) {
		for k := range keys {
			h := hash(k, struct{}{})
			if e := tab.Find(group(k), h, k, struct{}{}); e != nil {
				tab.Set(group(k), h, e, round)
			} else {
				tab.Insert(group(k), h, k, struct{}{}, round)
			}
		}
	}
	set(0)
	var done sync.WaitGroup
	defer done.Wait()
	for round := range 2000 {
		for range 1 + round%3/2 {
			w, passes := views.Open(false), round%2 == 0
			done.Go(func() {
				for g := range 8 {
					var buf []Entry[int, struct{}, int]
					for from, end := uint64(0), false; !end; {
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
					if passes {
						tab.Passed(w, g)
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

// TestTagPlace compares firstByte with what it stands for.
func TestTagPlace(t *testing.T) {
	for m := range uint64(1 << groupSlots) {
		tags := uint64(0)
		for i := range groupSlots {
			tags |= m >> i & 1 << (8*i + 7)
		}
		if got := (tags & -tags) * firstByte >> 56; m != 0 && got != uint64(bits.TrailingZeros64(m)) {
			t.Errorf("%07b: %d", m, got)
		}
	}
}

// TestFindPlain looks for keys that a table does not have, and in a table that compares
// keys in its own way.
func TestFindPlain(t *testing.T) {
	type none = struct{}
	hash := func(k int64, _ none) uint32 { return uint32(k) }
	o := Options[int64, none]{First: 3, Count: 2, Hash: hash}
	plain := New[int64, none, string](NewViews(), o)
	plain.Insert(4, 7, 7, none{}, "seven")
	require.Equal(t, "seven", plain.FindPlain(4, 7, 7, none{}).Val)
	for _, group := range []int{-1, 0, 2, 3, 5, 127} {
		require.Nil(t, plain.FindPlain(group, 7, 7, none{}), group)
		require.Nil(t, plain.Find(group, 7, 7, none{}), group)
	}
	o.Equal = func(a int64, _ none, b int64, _ none) bool { return a == b }
	other := New[int64, none, string](NewViews(), o)
	other.Insert(4, 7, 7, none{}, "seven")
	require.Nil(t, other.FindPlain(4, 7, 7, none{}))
	require.Equal(t, "seven", other.Find(4, 7, 7, none{}).Val)
	require.Nil(t, other.Find(2, 7, 7, none{}))
	require.True(t, plain.Plain())
	require.False(t, other.Plain())
}
