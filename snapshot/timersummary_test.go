package snapshot

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimerHistogram adds up parts in any order and compares with counting again.
func TestTimerHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	stamps := []int64{-1, 0, 1, -11, 4102444800000}
	for range 20000 {
		stamps = append(stamps, 1_700_000_000_000+r.Int64N(1<<uint(1+r.IntN(40))))
	}
	var parts [3]sparseHistogram
	for i, ms := range stamps {
		parts[i%3].add(ms, 1)
	}
	sum := &TimerSummary{}
	for i := range parts {
		sum.buckets.merge(&parts[i])
		require.LessOrEqual(t, len(parts[i].counts), mostBuckets)
	}
	for _, n := range []int{1024, 20, 3} {
		h := sum.Histogram(n)
		require.LessOrEqual(t, len(h), n)
		require.Greater(t, len(h), 1)
		total := int64(0)
		for i, b := range h {
			total += b.Count
			count := int64(0)
			for _, ms := range stamps {
				if ms >= b.From && (ms < b.From+b.Width || b.From+b.Width < b.From) {
					count++
				}
			}
			require.Equal(t, count, b.Count, "bucket %d of %d", i, n)
			require.Zero(t, b.From%b.Width)
		}
		require.EqualValues(t, len(stamps), total)
	}
	sum.buckets.add(math.MinInt64, 1)
	sum.buckets.add(math.MaxInt64, 2)
	h := sum.Histogram(2)
	require.LessOrEqual(t, len(h), 5)
	require.EqualValues(t, math.MinInt64, h[0].From)
	require.EqualValues(t, 1, h[0].Count)
	require.EqualValues(t, 2, h[len(h)-1].Count)
	for i, w := range bucketWidths[1:] {
		require.Zero(t, w%bucketWidths[i])
	}
}
