package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkSetUnderView changes a part of a table's entries while a view is open: what
// copy-on-write costs for each change.
func BenchmarkSetUnderView(b *testing.B) {
	const groups, entries = 64, 50_000
	hash := func(k int64, _ struct{}) uint32 { return uint32(uint64(k) * 0x9e3779b97f4a7c15 >> 32) }
	for _, share := range []int{100, 10, 2, 1} { // one of so many entries is changed
		b.Run(fmt.Sprintf("one-of-%d", share), func(b *testing.B) {
			views := NewViews()
			tab := New[int64, struct{}, int64](views, Options[int64, struct{}]{Count: groups, Hash: hash})
			for k := range int64(entries) {
				tab.Insert(int(k%groups), hash(k, struct{}{}), k, struct{}{}, k)
			}
			order := rand.New(rand.NewPCG(1, 2)).Perm(entries)[:entries/share]
			b.ReportAllocs()
			for b.Loop() {
				v := views.Open(false)
				for _, i := range order {
					k := int64(i)
					h := hash(k, struct{}{})
					tab.Set(int(k%groups), h, tab.Find(int(k%groups), h, k, struct{}{}), k)
				}
				tab.Release(v)
				v.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(order)), "ns/change")
		})
	}
}
