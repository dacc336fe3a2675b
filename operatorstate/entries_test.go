package operatorstate_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
)

// roundTrip puts keys into a broadcast state, changes it while a snapshot is held, and
// reads it back, where it is asked for others that are written alike.
func roundTrip[K comparable](t *testing.T, s serializer.Serializer[K], put, ask []K) {
	t.Helper()
	b := operatorstate.New()
	x, err := operatorstate.Broadcast(b, "b", s, serializer.Int64)
	require.NoError(t, err)
	for i, k := range put {
		x.Put(k, int64(i))
	}
	snap := b.Snapshot()
	check := func(x *operatorstate.BroadcastState[K, int64], plus int64) {
		t.Helper()
		require.Equal(t, len(put), x.Len())
		for i, k := range ask {
			v, ok := x.Get(k)
			require.True(t, ok, "%v", k)
			require.Equal(t, int64(i)+plus, v)
		}
	}
	check(x, 0)
	for i, k := range ask {
		x.Put(k, int64(i)+100)
	}
	check(x, 100)
	h := write(t, snap, nil)
	snap.Release()
	check(x, 100)
	for _, k := range put {
		x.Delete(k)
	}
	require.Zero(t, x.Len())

	r := reopen(t, []*metadata.OperatorHandle{h}, 1, 0)
	x, err = operatorstate.Broadcast(r, "b", s, serializer.Int64)
	require.NoError(t, err)
	check(x, 0)
}

// Keys of a broadcast state are the same if they are written alike, whatever == says.
func TestBroadcastKeys(t *testing.T) {
	at := time.Unix(5, 0)
	roundTrip(t, serializer.Instant, []time.Time{at.UTC(), at.Add(1)}, []time.Time{at.In(time.FixedZone("x", 3600)), at.Add(1).UTC()})
	roundTrip(t, serializer.BigInteger, []*big.Int{big.NewInt(7)}, []*big.Int{big.NewInt(7)})
	zero := math.Copysign(0, -1)
	roundTrip(t, serializer.Float64, []float64{0, zero, math.NaN()}, []float64{0, zero, math.Float64frombits(0x7ff8_0000_0000_0000)})
	roundTrip(t, serializer.String, []string{"", "a"}, []string{"", "a"})
}
