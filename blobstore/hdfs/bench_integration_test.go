//go:build integration

package hdfs

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

func eachScheme(b *testing.B, f func(b *testing.B, c *cluster, s *store, dir string)) {
	for _, scheme := range []string{"hdfs", "webhdfs"} {
		b.Run(scheme, func(b *testing.B) {
			c := mainCluster(b)
			f(b, c, c.openRoot(b, scheme, "dfs.replication", "1", KeyReplayBytes, "64m"), c.newDir(b))
		})
	}
}

const benchSize = 64 << 20

func BenchmarkWrite(b *testing.B) {
	eachScheme(b, func(b *testing.B, c *cluster, s *store, dir string) {
		data := pattern(1<<20, 1)
		b.SetBytes(benchSize)
		b.ReportAllocs()
		for b.Loop() {
			w, err := s.Create(b.Context(), dir+"/x", nil)
			require.NoError(b, err)
			for range benchSize / len(data) {
				_, err = w.Write(data)
				require.NoError(b, err)
			}
			require.NoError(b, w.Commit())
		}
	})
}

func BenchmarkRead(b *testing.B) {
	eachScheme(b, func(b *testing.B, c *cluster, s *store, dir string) {
		put(b, s, dir+"/x", pattern(benchSize, 1))
		buf := make([]byte, 1<<20)
		b.SetBytes(benchSize)
		b.ReportAllocs()
		for b.Loop() {
			r, err := s.Open(b.Context(), dir+"/x")
			require.NoError(b, err)
			n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, buf)
			require.NoError(b, err)
			require.EqualValues(b, benchSize, n)
			r.Close()
		}
	})
}

// BenchmarkReadLibrary is the client library alone, in 1 MiB reads that let bad
// checksums pass.
func BenchmarkReadLibrary(b *testing.B) {
	c := mainCluster(b)
	s, dir := c.openRoot(b, "hdfs", "dfs.replication", "1"), c.newDir(b)
	put(b, s, dir+"/x", pattern(benchSize, 1))
	cl := c.plainClient(b, "hdfs")
	buf := make([]byte, 1<<20)
	b.SetBytes(benchSize)
	b.ReportAllocs()
	for b.Loop() {
		r, err := cl.Open("/" + dir + "/x")
		require.NoError(b, err)
		_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, buf)
		require.NoError(b, err)
		r.Close()
	}
}

func BenchmarkRange4K(b *testing.B) {
	eachScheme(b, func(b *testing.B, c *cluster, s *store, dir string) {
		put(b, s, dir+"/x", pattern(benchSize, 1))
		b.ReportAllocs()
		off := int64(0)
		for b.Loop() {
			off = (off + 7_654_321) % (benchSize - 4096)
			r, err := s.OpenRange(b.Context(), dir+"/x", off, 4096)
			require.NoError(b, err)
			n, err := io.Copy(io.Discard, r)
			require.NoError(b, err)
			require.EqualValues(b, 4096, n)
			r.Close()
		}
	})
}

func BenchmarkStat(b *testing.B) {
	eachScheme(b, func(b *testing.B, c *cluster, s *store, dir string) {
		put(b, s, dir+"/x", nil)
		b.ReportAllocs()
		for b.Loop() {
			_, err := s.Stat(b.Context(), dir+"/x")
			require.NoError(b, err)
		}
	})
}

func BenchmarkSmallFiles(b *testing.B) {
	for _, writers := range []int{1, 16} {
		eachScheme(b, func(b *testing.B, c *cluster, s *store, dir string) {
			b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
				b.ReportAllocs()
				data := pattern(1024, 1)
				var n atomic.Int64
				b.SetParallelism((writers + 1) / 2)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						put(b, s, fmt.Sprintf("%s/%d", dir, n.Add(1)), data)
					}
				})
			})
		})
	}
}

func BenchmarkList(b *testing.B) {
	c := mainCluster(b)
	dir := c.newDir(b)
	put(b, c.openRoot(b, "hdfs"), dir+"/0", nil)
	cl := c.plainClient(b, "hdfs")
	const entries = 5000
	for i := range entries {
		f, err := cl.CreateFile(fmt.Sprintf("/%s/%06d", dir, i), 1, 1<<20, 0o644)
		require.NoError(b, err)
		require.NoError(b, f.Close())
	}
	for _, scheme := range []string{"hdfs", "webhdfs"} {
		b.Run(scheme, func(b *testing.B) {
			s := c.openRoot(b, scheme)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for _, err := range s.List(b.Context(), &blobstore.ListOptions{Prefix: dir + "/"}) {
					require.NoError(b, err)
					n++
				}
				require.Equal(b, entries+1, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/entries, "ns/entry")
		})
	}
}
