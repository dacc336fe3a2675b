package channel

import (
	"encoding/binary"

	"sync"
	"testing"
)

// run writes n records on each of two partitions of two subpartitions and reads
// them by two gates: rebalance at parallelism 2, four goroutines.
func rebalance(b *testing.B, perWriter int, connect func(p *Partition, sub int, g *Gate, channel int)) {
	const parallelism = 2
	pool := NewPool(nil)
	var parts []*Partition
	var gates []*Gate
	for i := range parallelism {
		p, err := NewPartition(pool, 0, parallelism, nil)
		if err != nil {
			b.Fatal(err)
		}
		parts = append(parts, p)
		gates = append(gates, NewGate(i, parallelism))
	}
	for i, p := range parts {
		for k, g := range gates {
			connect(p, k, g, i)
		}
	}
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			target := 0
			for i := range perWriter {
				e := AppendTimestamp(p.Begin(target), int64(i))
				e = binary.BigEndian.AppendUint64(e, uint64(i))
				if err := p.End(target, e); err != nil {
					b.Error(err)
					return
				}
				if target++; target == parallelism {
					target = 0
				}
			}
			p.Flush()
			p.Emit(Event{Kind: EndOfPartition}, false)
		})
	}
	counts := make([]int, parallelism)
	sums := make([]uint64, parallelism)
	for i, g := range gates {
		wg.Go(func() {
			wake := make(chan struct{}, 1)
			f := func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
			n, sum := 0, uint64(0)
			for !g.Ended() {
				it, ok, err := g.Poll()
				if err != nil {
					b.Error(err)
					return
				}
				if !ok {
					if g.Await(f) {
						<-wake
					}
					continue
				}
				if it.Event != nil {
					continue
				}
				for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
					n++
					sum += binary.BigEndian.Uint64(e[9:])
				}
			}
			counts[i], sums[i] = n, sum
		})
	}
	wg.Wait()
	if counts[0]+counts[1] != parallelism*perWriter || sums[0]+sums[1] != uint64(perWriter)*uint64(perWriter-1) {
		b.Fatal(counts, sums)
	}
	for _, p := range parts {
		p.Close()
	}
	for _, g := range gates {
		g.Close()
	}
	if u := pool.Usage(); u.InUse != 0 {
		b.Fatalf("%+v", u)
	}
}

// BenchmarkRebalance is the plane alone: small records (a long with a timestamp, 21
// bytes in the buffer), two writers, two readers. An operation is a record.
func BenchmarkRebalance(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(21)
	const batch = 1 << 20
	for n := b.N; n > 0; n -= batch {
		rebalance(b, max(1, min(n, batch)/2), Connect)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
}
