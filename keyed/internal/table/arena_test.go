package table

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArenaLongView replaces lists and a large map again and again while a view is open,
// and others come and go: what no view sees is used again, and what one sees stays.
func TestArenaLongView(t *testing.T) {
	views := NewViews()
	a := NewArena[int64](views)
	st := NewSortedStore[int, int](views, cmp.Compare[int], nil)
	fill := func(r Run, v int64) Run {
		for i := range a.Get(r) {
			a.Get(r)[i] = v
		}
		return r
	}
	seen, tree := fill(a.Alloc(100), -1), Sorted{}
	for k := range 2 * SmallMap {
		tree = st.Put(tree, k, -1)
	}
	long := views.Open(false)
	now, seenTree := seen, tree
	for round := range 3000 {
		w := views.Open(false)
		for n := range 10 {
			next := fill(a.Alloc(3+n*100), int64(round))
			a.Free(now)
			now = next
		}
		tree = st.Put(tree, round%SmallMap, round)
		w.Close()
	}
	require.Less(t, len(a.blocks), 50)
	require.Less(t, len(st.trees), 50)
	for _, v := range a.At(seen) {
		require.EqualValues(t, -1, v)
	}
	st.Frozen(seenTree, func(_, v int) bool {
		require.Equal(t, -1, v)
		return true
	})
	long.Close()
}
