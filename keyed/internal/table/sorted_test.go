package table

import (
	"cmp"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSortedHints looks for keys of small maps that have the same keys or not, so that
// hints are right and wrong, and compares with plain maps.
func TestSortedHints(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	st := NewSortedStore[int64, int](NewViews(), func(a, b int64) int { return cmp.Compare(uint64(a), uint64(b)) }, nil)
	require.True(t, st.word)
	got, want := make([]Sorted, 50), make([]map[int64]int, 50)
	for i := range want {
		want[i] = map[int64]int{}
	}
	for step := range 60_000 {
		i, key := r.IntN(len(want)), int64(r.IntN(4+step/2_000)-3)
		switch {
		case r.IntN(3) > 0:
		case r.IntN(5) < 3:
			got[i] = st.Put(got[i], key, step)
			want[i][key] = step
		default:
			got[i], _ = st.Remove(got[i], key)
			delete(want[i], key)
		}
		p := st.Find(&got[i], key)
		v, has := want[i][key]
		require.Equal(t, has, p != nil, "step %d", step)
		if has {
			require.Equal(t, Pair[int64, int]{key, v}, *p, "step %d", step)
		}
		require.Equal(t, len(want[i]), got[i].Len())
	}
	// Maps with the same keys leave no doubt.
	for _, key := range []int64{1, 2, 3} {
		for i := range got {
			got[i] = st.Put(Sorted{}, 1, 10)
			got[i] = st.Put(got[i], 2, 20)
		}
		for range 2 * hintPause {
			st.Find(&got[0], key)
		}
		for i := range got {
			require.Equal(t, key < 3, st.Find(&got[i], key) != nil)
			require.Zero(t, st.doubt)
		}
	}
}
