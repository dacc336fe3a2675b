package operatorstate_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
)

func filled(b *testing.B, n int) (*operatorstate.Backend, *operatorstate.ListState[int64], *operatorstate.BroadcastState[int64, int64]) {
	s := operatorstate.New()
	list, err := operatorstate.List(s, "l", serializer.Int64)
	if err != nil {
		b.Fatal(err)
	}
	rules, err := operatorstate.Broadcast(s, "r", serializer.Int64, serializer.Int64)
	if err != nil {
		b.Fatal(err)
	}
	for i := range int64(n) {
		list.Append(i)
		rules.Put(i, i)
	}
	return s, list, rules
}

// BenchmarkSnapshot is the synchronous part.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _, _ := filled(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.Snapshot().Release()
			}
		})
	}
}

// BenchmarkUpdate changes state of a million elements, without a snapshot and while
// one is held.
func BenchmarkUpdate(b *testing.B) {
	const n = 1_000_000
	for _, held := range []bool{false, true} {
		s, list, rules := filled(b, n)
		if held {
			defer s.Snapshot().Release()
		}
		i := 0
		b.Run(fmt.Sprintf("list/held=%t", held), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				list.Set(i%n, int64(i))
				i += 7919
			}
		})
		b.Run(fmt.Sprintf("broadcast/held=%t", held), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rules.Put(int64(i%n), int64(i))
				i += 7919
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	const n = 1_000_000
	s, _, _ := filled(b, n)
	snap := s.Snapshot()
	for _, compress := range []bool{false, true} {
		b.Run(fmt.Sprintf("compress=%t", compress), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(n * 24)
			for b.Loop() {
				if _, err := snap.WriteTo(b.Context(), io.Discard, &operatorstate.WriteOptions{Compress: compress}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	const n = 1_000_000
	s, _, _ := filled(b, n)
	h := write(b, s.Snapshot(), nil)
	b.ReportAllocs()
	b.SetBytes(n * 24)
	for b.Loop() {
		r := reopen(b, []*metadata.OperatorHandle{h}, 1, 0)
		if _, err := operatorstate.List(r, "l", serializer.Int64); err != nil {
			b.Fatal(err)
		}
		if _, err := operatorstate.Broadcast(r, "r", serializer.Int64, serializer.Int64); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRedistribute is one new subtask of 512, from 500 old ones with 1000
// partitions each.
func BenchmarkRedistribute(b *testing.B) {
	var old []*metadata.OperatorHandle
	for range 500 {
		old = append(old, &metadata.OperatorHandle{States: []metadata.NamedPartitions{
			{Name: "l", Offsets: make([]int64, 1000)}, {Name: "u", Mode: metadata.ModeUnion, Offsets: make([]int64, 1000)}, {Name: "b", Mode: metadata.ModeBroadcast, Offsets: make([]int64, 1)}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := operatorstate.Redistribute(old, 512)
		if err != nil {
			b.Fatal(err)
		}
		r.Parts(100)
	}
}
