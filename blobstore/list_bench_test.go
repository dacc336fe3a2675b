package blobstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// million are names as Flink gives them, a version 4 UUID each, in no order.
func million(i int) string {
	h := sha256.Sum256([]byte(strconv.Itoa(i)))
	return fmt.Sprintf("%x-%x-4%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])[:36]
}

// peak resets the process's high-water mark of resident memory, and gives a
// function that reports how far it came, in MB.
func peak(b *testing.B) func() {
	if os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) != nil {
		return func() {}
	}
	return func() {
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(b, err)
		_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
		var kb float64
		fmt.Sscan(string(rest), &kb)
		b.ReportMetric(kb/1000, "peak-MB")
	}
}

// BenchmarkListMillion lists 1,000,000 objects of one directory: the worst case,
// since a directory must be sorted.
func BenchmarkListMillion(b *testing.B) {
	const n = 1_000_000
	list := func(b *testing.B, s Store) {
		debug.FreeOSMemory()
		b.ReportAllocs()
		report := peak(b)
		cpu := cpuSeconds()
		for b.Loop() {
			got := 0
			for i, err := range s.List(context.Background(), &ListOptions{Prefix: "shared/"}) {
				if err != nil || len(i.Name) != 43 {
					b.Fatal(i, err)
				}
				got++
			}
			if got != n {
				b.Fatal(got)
			}
		}
		report()
		b.ReportMetric((cpuSeconds()-cpu)/float64(b.N), "cpu-s/op")
	}
	b.Run("local", func(b *testing.B) {
		dir := os.Getenv("TIDEMARK_BENCH_MILLION")
		if dir == "" {
			dir = b.TempDir()
		}
		shared := filepath.Join(dir, "shared")
		require.NoError(b, os.MkdirAll(shared, 0o777))
		if _, err := os.Stat(filepath.Join(shared, million(n-1))); err != nil {
			for i := range n {
				f, err := os.Create(filepath.Join(shared, million(i)))
				require.NoError(b, err)
				f.Close()
			}
		}
		list(b, openDirStore(b, dir, nil))
	})
	b.Run("mem", func(b *testing.B) {
		s := NewMem()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			require.NoError(b, s.(*memStore).put("create", "shared/"+million(i), "", false))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		list(b, s)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/object")
	})
}

func BenchmarkThroughput(b *testing.B) {
	data := randomBytes(64 << 20)
	for _, url := range []string{"file://" + b.TempDir(), "file://" + b.TempDir() + "?fsync=off", "mem://bench"} {
		s, err := Open(b.Context(), url, nil)
		require.NoError(b, err)
		name := s.URL()
		if i := bytes.IndexByte([]byte(url), '?'); i >= 0 {
			name = "file, fsync=off"
		} else if url != "mem://bench" {
			name = "file"
		}
		b.Run("write/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				require.NoError(b, WriteAll(b.Context(), s, "x", data, nil))
			}
		})
		for what, s := range map[string]Store{"": s, ", Retry and Count": Count(Retry(s, nil), new(Counter))} {
			b.Run("read/"+name+what, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				buf := make([]byte, 64<<10)
				for b.Loop() {
					r, err := s.Open(b.Context(), "x")
					require.NoError(b, err)
					for err == nil {
						_, err = r.Read(buf)
					}
					r.Close()
				}
			})
		}
		b.Run("small write/"+name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, WriteAll(b.Context(), s, "small/x", data[:1000], nil))
			}
		})
		b.Run("small read/"+name, func(b *testing.B) {
			for b.Loop() {
				_, err := ReadAll(b.Context(), s, "small/x", 10_000)
				require.NoError(b, err)
			}
		})
	}
}
