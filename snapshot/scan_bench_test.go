package snapshot_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/snapshot"
)

// snapshotDir is a snapshot to measure on, from the environment: one that
// bench-flink's W3 left, or any other.
func snapshotDir(b *testing.B) *snapshot.Snapshot {
	dir := os.Getenv("TIDEMARK_BENCH_SNAPSHOT")
	if dir == "" {
		b.Skip("TIDEMARK_BENCH_SNAPSHOT names no snapshot")
	}
	pool := blobstore.NewPool(nil, nil)
	b.Cleanup(func() { pool.Close() })
	loc, err := blobstore.Parse(dir)
	require.NoError(b, err)
	s, err := snapshot.Open(b.Context(), pool, loc, nil)
	require.NoError(b, err)
	return s
}

// BenchmarkScan decodes every row of the snapshot and counts.
func BenchmarkScan(b *testing.B) {
	s := snapshotDir(b)
	b.ReportAllocs()
	var rows atomic.Int64
	for b.Loop() {
		rows.Store(0)
		err := snapshot.Scan(context.Background(), s, nil, func(int) func(*snapshot.StateRow) error {
			return func(r *snapshot.StateRow) error {
				rows.Add(1)
				return r.Check()
			}
		})
		require.NoError(b, err)
	}
	b.ReportMetric(float64(rows.Load())*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(rows.Load()), "rows")
}

type jsonLines struct{ n int64 }

func (e *jsonLines) Append(dst []byte, r *snapshot.StateRow) ([]byte, error) {
	dst, _ = r.AppendJSON(dst)
	e.n++
	return append(dst, '\n'), nil
}

// BenchmarkBlocksJSON encodes every row as a JSON line, in order.
func BenchmarkBlocksJSON(b *testing.B) {
	s := snapshotDir(b)
	b.ReportAllocs()
	for b.Loop() {
		var bytes int64
		err := snapshot.Blocks(context.Background(), s, nil, func(int) snapshot.Encoder { return &jsonLines{} }, func(p []byte) error {
			bytes += int64(len(p))
			return nil
		})
		require.NoError(b, err)
		b.SetBytes(bytes)
	}
}

// BenchmarkStats counts every row of the snapshot.
func BenchmarkStats(b *testing.B) {
	s := snapshotDir(b)
	b.ReportAllocs()
	var rows int64
	for b.Loop() {
		st, err := snapshot.CollectStats(context.Background(), s, nil)
		require.NoError(b, err)
		rows = st.Rows
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkVerifyData verifies every block and record of the snapshot.
func BenchmarkVerifyData(b *testing.B) {
	s := snapshotDir(b)
	b.ReportAllocs()
	var records int64
	for b.Loop() {
		v, err := snapshot.Verify(context.Background(), s, &snapshot.VerifyOptions{Data: &snapshot.DataOptions{NoOthers: true}})
		require.NoError(b, err)
		require.True(b, v.OK)
		records = v.Data.Records
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkDiff compares the snapshot with that of TIDEMARK_BENCH_OTHER, or with itself.
func BenchmarkDiff(b *testing.B) {
	s := snapshotDir(b)
	other := s
	if dir := os.Getenv("TIDEMARK_BENCH_OTHER"); dir != "" {
		loc, err := blobstore.Parse(dir)
		require.NoError(b, err)
		other, err = snapshot.Open(b.Context(), s.Pool(), loc, nil)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	var rows int64
	for b.Loop() {
		r, err := snapshot.Diff(context.Background(), s, other, nil, nil, nil)
		require.NoError(b, err)
		rows = 0
		for _, st := range r.States {
			rows += st.Old + st.New
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
