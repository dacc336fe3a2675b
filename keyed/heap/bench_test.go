package heap_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/serializer"
)

const benchKeys = 500_000

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func openInt64(tb testing.TB) *heap.Backend[int64] {
	b, err := heap.Open(keyed.Config[int64]{Key: serializer.Int64})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, b.Close()) })
	return b
}

func loop(b *testing.B, f func(i int, k int64)) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		f(i, int64(mix(uint64(i))%benchKeys))
		i++
	}
}

func BenchmarkKey(b *testing.B) {
	h := openInt64(b)
	var sum int
	loop(b, func(_ int, k int64) { sum += h.Key(k).Group() })
}

func BenchmarkValue(b *testing.B) {
	h := openInt64(b)
	s := keyed.Value(h, "s", serializer.Int64)
	for k := range int64(benchKeys) {
		_ = s.Set(h.Key(k), k)
	}
	b.Run("get", func(b *testing.B) {
		loop(b, func(_ int, k int64) { _, _, _ = s.Get(h.Key(k)) })
	})
	b.Run("set", func(b *testing.B) {
		loop(b, func(i int, k int64) { _ = s.Set(h.Key(k), int64(i)) })
	})
	b.Run("new", func(b *testing.B) {
		loop(b, func(i int, k int64) { _ = s.Set(h.Key(int64(i)+benchKeys), int64(i)) })
	})
}

func BenchmarkMap(b *testing.B) {
	h := openInt64(b)
	s := keyed.Map(h, "s", serializer.Int64, serializer.Int64)
	for k := range int64(benchKeys) {
		for u := range int64(10) {
			_ = s.Put(h.Key(k), u, u)
		}
	}
	b.Run("get", func(b *testing.B) {
		loop(b, func(i int, k int64) { _, _, _ = s.Get(h.Key(k), int64(i%10)) })
	})
	b.Run("put", func(b *testing.B) {
		loop(b, func(i int, k int64) { _ = s.Put(h.Key(k), int64(i%10), int64(i)) })
	})
	b.Run("entries", func(b *testing.B) {
		var sum int64
		loop(b, func(_ int, k int64) {
			_ = s.Entries(h.Key(k), func(u, v int64) bool {
				sum += u + v
				return true
			})
		})
	})
}

func BenchmarkList(b *testing.B) {
	h := openInt64(b)
	s := keyed.List(h, "s", serializer.Int64)
	for k := range int64(benchKeys) {
		_ = s.Add(h.Key(k), k)
	}
	b.Run("get", func(b *testing.B) {
		loop(b, func(_ int, k int64) { _, _ = s.Get(h.Key(k)) })
	})
	one := []int64{1}
	b.Run("update1", func(b *testing.B) {
		loop(b, func(_ int, k int64) { _ = s.Update(h.Key(k), one) })
	})
}

func BenchmarkReducingAdd(b *testing.B) {
	h := openInt64(b)
	s := keyed.Reducing(h, "s", func(a, b int64) int64 { return a + b }, serializer.Int64)
	loop(b, func(_ int, k int64) { _ = s.Add(h.Key(k), 1) })
}

func BenchmarkTimers(b *testing.B) {
	h := openInt64(b)
	q := keyed.Timers(h, "user-timers", serializer.VoidNS).Event
	b.Run("register", func(b *testing.B) {
		loop(b, func(i int, k int64) { _, _ = q.Register(h.Key(k), struct{}{}, int64(mix(uint64(i+1))%1_000_000)) })
	})
	b.Run("fire", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if n == 0 {
				b.StopTimer()
				for i := range 1_000_000 {
					_, _ = q.Register(h.Key(int64(i)), struct{}{}, int64(mix(uint64(i+1))%1_000_000))
				}
				n = 1_000_000
				b.StartTimer()
			}
			at, _, _ := q.Next()
			m, _ := q.Advance(at, func(keyed.Timer[int64, struct{}]) error { return nil })
			n -= m
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	h := openInt64(b)
	s := keyed.Value(h, "s", serializer.Int64)
	for k := range int64(benchKeys) {
		_ = s.Set(h.Key(k), k)
	}
	for _, f := range []keyed.Format{keyed.FormatCheckpoint, keyed.FormatCanonical} {
		b.Run([]string{"checkpoint", "canonical"}[f], func(b *testing.B) {
			for b.Loop() {
				snap, err := h.Snapshot(context.Background(), 1)
				require.NoError(b, err)
				_, err = snap.Write(context.Background(), io.Discard, &keyed.WriteOptions{Format: f})
				require.NoError(b, err)
				snap.Release()
			}
		})
	}
}
