package snapshot_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// TestStatsAgreeWithTheRows recounts what Stats says, the plain way.
func TestStatsAgreeWithTheRows(t *testing.T) {
	for _, c := range testdata.Goldens(t) {
		t.Run(c.Name, func(t *testing.T) {
			pool := blobstore.NewPool(nil, nil)
			defer pool.Close()
			loc, err := blobstore.Parse(c.File(c.Snapshot))
			require.NoError(t, err)
			s, err := snapshot.Open(t.Context(), pool, loc, nil)
			require.NoError(t, err)

			type count struct {
				sizes []int64
				keys  map[string]int64 // bytes by key and namespace
			}
			want := map[string]*count{}
			for r, err := range snapshot.Rows(t.Context(), s, nil) {
				require.NoError(t, err)
				id := r.State.Operator.ID + "/" + r.State.Name
				n := want[id]
				if n == nil {
					n = &count{keys: map[string]int64{}}
					want[id] = n
				}
				size := int64(len(r.Key) + len(r.Namespace) + len(r.UserKey) + len(r.Value))
				n.sizes = append(n.sizes, size)
				if r.State.Kind.Keyed() {
					n.keys[string(r.Key)+"\x00"+string(r.Namespace)] += size
				}
			}

			st, err := snapshot.CollectStats(t.Context(), s, &snapshot.StatsOptions{Top: 3, Scan: &snapshot.ScanOptions{Workers: 3}})
			require.NoError(t, err)
			var rows int64
			for _, g := range st.States {
				w := want[g.Operator+"/"+g.Name]
				if w == nil {
					require.Zero(t, g.Rows, "%s", g.Name)
					continue
				}
				slices.Sort(w.sizes)
				n := len(w.sizes)
				require.EqualValues(t, n, g.Rows, "%s", g.Name)
				require.Equal(t, w.sizes[0], g.Min)
				require.Equal(t, w.sizes[n-1], g.Max)
				for q, got := range map[float64]int64{0.5: g.P50, 0.99: g.P99} {
					exact := w.sizes[min(n-1, int(q*float64(n)))]
					require.GreaterOrEqual(t, got, exact)
					require.LessOrEqual(t, float64(got), float64(exact)*(1+1.0/64)+1)
				}
				rows += g.Rows
				require.Zero(t, g.Undecoded)
				if !g.Kind.Keyed() || g.Kind == snapshot.StateTimer {
					continue
				}
				require.EqualValues(t, len(w.keys), g.Keys, "%s", g.Name)
				var big []int64
				for _, b := range w.keys {
					big = append(big, b)
				}
				slices.Sort(big)
				slices.Reverse(big)
				var top []int64
				for _, k := range g.Largest {
					top = append(top, k.Bytes)
				}
				require.Equal(t, big[:min(3, len(big))], top, "%s", g.Name)
				var inGroups int64
				for _, k := range g.KeyGroups.Each {
					inGroups += k.Rows
				}
				require.Equal(t, g.Rows, inGroups)
			}
			require.Equal(t, rows, st.Rows)
			require.NotZero(t, rows)
		})
	}
}

func TestStatsCountExpiredValues(t *testing.T) {
	var c *testdata.Case
	for _, x := range testdata.AllGoldens(t) {
		if x.Name == "f120-ttl-hashmap" {
			c = x
		}
	}
	require.NotNil(t, c)
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(c.File(c.Snapshot))
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	stats := func(now time.Time) (rows, expired int64) {
		st, err := snapshot.CollectStats(t.Context(), s, &snapshot.StatsOptions{Now: now, TTL: func(*snapshot.State) time.Duration { return time.Hour }})
		require.NoError(t, err)
		for _, g := range st.States {
			require.Equal(t, g.State.TTL, g.TTL != nil, "%s", g.Name)
			if g.TTL != nil {
				rows += g.TTL.Rows
				expired += g.TTL.Expired
			}
		}
		return rows, expired
	}
	at := time.UnixMilli(1795973168000)
	rows, expired := stats(at)
	require.NotZero(t, rows)
	require.Zero(t, expired)
	rows, expired = stats(at.Add(48 * time.Hour))
	require.Equal(t, rows, expired)
}
