package keyed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/serializer"
)

// TestKeyOfLong compares what Make writes out for longs with the functions it stands
// for.
func TestKeyOfLong(t *testing.T) {
	java, err := serializer.HashFunc(serializer.Int64, nil)
	require.NoError(t, err)
	for _, parallelism := range []int{1, 3, 128, 300, 1 << 15} {
		k, err := NewKeys(Config[int64]{Key: serializer.Int64, MaxParallelism: parallelism})
		require.NoError(t, err)
		keys := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt32, math.MinInt32}
		for range 100_000 {
			keys = append(keys, rand.Int64()>>rand.IntN(60))
		}
		for _, v := range keys {
			key := k.Make(v)
			if want := serializer.AssignKeyGroup(java(v), parallelism); want != key.Group() || key.hash != k.codec.hash32(v) {
				t.Fatalf("%d of %d: key group %d, hash %x; not %d, %x", v, parallelism, key.Group(), key.hash, want, k.codec.hash32(v))
			}
		}
	}
}

// TestHashSpread counts hashes of regular keys that are alike, and those whose places in
// a table are: about as few as if they were random. Some secrets are worse for
// some of these keys (32 in one place was seen), so the test has its own.
func TestHashSpread(t *testing.T) {
	defer func(s [2]uint64) { secret = s }(secret)
	r := rand.New(rand.NewPCG(1, 2))
	secret = [2]uint64{r.Uint64() | 1, r.Uint64()}
	const n = 1 << 16
	for shift := range 48 {
		whole, low, high := map[uint32]bool{}, make([]int, 1<<14), make([]int, 1<<14)
		for i := range uint64(n) {
			h := hashWord(i << shift)
			whole[h] = true
			low[h&(1<<14-1)]++
			high[h>>18]++
		}
		// Half of a pair in expectation for all of the hash; 4 in each place, of which
		// random ones would have at most about 17.
		require.Greater(t, len(whole), n-200, "keys i<<%d, secrets %x", shift, secret)
		require.Less(t, slices.Max(low), 64, "keys i<<%d, secrets %x", shift, secret)
		require.Less(t, slices.Max(high), 64, "keys i<<%d, secrets %x", shift, secret)
	}
}
