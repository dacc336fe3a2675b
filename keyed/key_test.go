package keyed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

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

// padded has eight bytes, of which three belong to no field.
type padded struct {
	_ struct{} `flink:"tuple"`
	A int32
	B bool
}

//go:noinline
func spoilStack() (sum byte) {
	var garbage [512]byte
	for i := range garbage {
		garbage[i] = byte(rand.Uint32())
	}
	for _, b := range garbage {
		sum ^= b
	}
	return sum
}

// TestPaddedKeys makes a key again and again where the stack has other things: what lies
// between its fields must not become a part of its hash.
func TestPaddedKeys(t *testing.T) {
	k, err := NewKeys(Config[padded]{Key: serializer.MustOf[padded]()})
	require.NoError(t, err)
	first := k.Make(padded{A: 7, B: true})
	for i := range 1000 {
		spoilStack()
		v := padded{A: 7, B: true}
		if i%2 == 1 {
			*(*byte)(unsafe.Add(unsafe.Pointer(&v), 7)) = byte(i)
		}
		require.Equal(t, first, k.Make(v))
	}
}

// TestNaNKeys: all NaNs are one key, as in Java, and zero is not minus zero.
func TestNaNKeys(t *testing.T) {
	k, err := NewKeys(Config[float64]{Key: serializer.Float64})
	require.NoError(t, err)
	a, b := k.Make(math.NaN()), k.Make(math.Float64frombits(0x7ff8_0000_0000_0000))
	require.Equal(t, a.hash, b.hash)
	require.Equal(t, a.group, b.group)
	require.True(t, k.codec.equal(a.key, b.key))
	require.False(t, k.codec.equal(0, math.Copysign(0, -1)))
}
