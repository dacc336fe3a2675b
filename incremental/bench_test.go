package incremental_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
)

// benchEnv names a folder that "testdata/rocksdb-matrix/run.sh WRITER OUT bench
// ENTRIES VALUE_BYTES" wrote. Without it benchmarks use a small committed database.
const benchEnv = "TIDEMARK_BENCH_ROCKSDB"

func benchFamily(b *testing.B) *incremental.Family {
	dir := os.Getenv(benchEnv)
	if dir == "" {
		dir = filepath.Join("testdata", "matrix", "frocksdb6", "tiny-format-5")
	}
	entries, err := os.ReadDir(filepath.Join(dir, "db"))
	require.NoError(b, err)
	var files []incremental.File
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, "db", e.Name()))
		require.NoError(b, err)
		b.Cleanup(func() { f.Close() })
		fi, err := f.Stat()
		require.NoError(b, err)
		files = append(files, incremental.File{Name: e.Name(), Source: sst.ReaderAt(f, fi.Size())})
	}
	db, err := incremental.Open(context.Background(), files, nil)
	require.NoError(b, err)
	f := db.Family("state")
	require.NotNil(b, f)
	return f
}

func count(b *testing.B, f *incremental.Family, lower, upper []byte) (entries, bytes int) {
	it := f.Scan(context.Background(), &incremental.ScanOptions{Lower: lower, Upper: upper})
	defer it.Close()
	for it.Next() {
		entries++
		bytes += len(it.Key()) + len(it.Value())
	}
	if err := it.Err(); err != nil {
		b.Fatal(err)
	}
	return entries, bytes
}

func BenchmarkScan(b *testing.B) {
	f := benchFamily(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n, _ = count(b, f, nil, nil)
	}
	b.SetBytes(f.Bytes())
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkScanTwoParts(b *testing.B) {
	f := benchFamily(b)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		keys, err := f.Split(context.Background(), nil, nil, 8, 1)
		require.NoError(b, err)
		parts := make(chan [2][]byte, len(keys)+1)
		var lower []byte
		for _, upper := range append(keys, nil) {
			parts <- [2][]byte{lower, upper}
			lower = upper
		}
		close(parts)
		var wg sync.WaitGroup
		var mu sync.Mutex
		n = 0
		for range 2 {
			wg.Go(func() {
				for p := range parts {
					m, _ := count(b, f, p[0], p[1])
					mu.Lock()
					n += m
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	b.SetBytes(f.Bytes())
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}

func BenchmarkGet(b *testing.B) {
	f := benchFamily(b)
	var keys [][]byte
	it := f.Scan(context.Background(), nil)
	for i := 0; it.Next() && len(keys) < 10000; i++ {
		if i%17 == 0 {
			keys = append(keys, append([]byte{}, it.Key()...))
		}
	}
	it.Close()
	b.ReportAllocs()
	i := 0
	var dst []byte
	for b.Loop() {
		v, ok, err := f.Get(context.Background(), keys[i*7919%len(keys)], dst[:0])
		if err != nil || !ok {
			b.Fatal(ok, err)
		}
		dst = v
		i++
	}
}
