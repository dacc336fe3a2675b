package incremental

import (
	"container/heap"
	"slices"

	"github.com/tidemark/tidemark/incremental/manifest"
	"github.com/tidemark/tidemark/incremental/sst"
)

// tombstone is a range deletion in the space of internal keys: from start to
// before end it hides entries older than seq.
type tombstone struct {
	start, end manifest.Bound
	seq        uint64
}

const (
	maxTrailer = 1<<64 - 1
)

// clip cuts a range deletion to the bounds of the table that it stands in.
//
// RocksDB writes a deletion whole into each table that it overlaps. A newer key
// that came to the bottom level has sequence 0 and would look older than a
// leftover of the deletion in a table that does not reach to the key, so a
// deletion counts within its own table's bounds only. ok is false if nothing is left.
func (t *Table) clip(d sst.RangeDel) (tombstone, bool) {
	out := tombstone{
		// The largest trailer of a user key comes before all its versions.
		start: manifest.Bound{Key: d.Start, Trailer: maxTrailer},
		end:   manifest.Bound{Key: d.End, Trailer: maxTrailer},
		seq:   d.Seq,
	}
	if t.bounded {
		if t.smallest.Compare(out.start) > 0 {
			out.start = t.smallest
		}
		last := t.largest
		switch {
		case last.Exclusive():
			last.Trailer = maxTrailer
		case last.Trailer > 0:
			last.Trailer--
		default:
			last = manifest.Bound{Key: append(slices.Clone(last.Key), 0), Trailer: maxTrailer}
		}
		if last.Compare(out.end) < 0 {
			out.end = last
		}
	}
	return out, out.start.Compare(out.end) < 0
}

// tombstones answers, for internal keys in ascending order, which sequence the
// newest range deletion over them has.
type tombstones struct {
	pending []tombstone // by start, the next one last
	sorted  bool
	active  tombstoneHeap
	event   manifest.Bound // where the answer may change
	hasNext bool
	seq     uint64
}

func (ts *tombstones) reset() {
	ts.pending, ts.active = ts.pending[:0], ts.active[:0]
	ts.sorted, ts.hasNext, ts.seq = true, false, 0
}

func (ts *tombstones) add(t tombstone) {
	ts.pending = append(ts.pending, t)
	ts.sorted = false
}

func (ts *tombstones) empty() bool { return len(ts.pending) == 0 && len(ts.active) == 0 }

// over is the sequence of the newest range deletion over the internal key; 0 if
// there is none. A deletion hides entries with a sequence below its own.
func (ts *tombstones) over(key []byte, trailer uint64) uint64 {
	at := manifest.Bound{Key: key, Trailer: trailer}
	if ts.sorted && (!ts.hasNext || at.Compare(ts.event) < 0) {
		return ts.seq
	}
	if !ts.sorted {
		slices.SortFunc(ts.pending, func(a, b tombstone) int { return b.start.Compare(a.start) })
		ts.sorted = true
	}
	for n := len(ts.pending); n > 0 && ts.pending[n-1].start.Compare(at) <= 0; n-- {
		heap.Push(&ts.active, ts.pending[n-1])
		ts.pending = ts.pending[:n-1]
	}
	for len(ts.active) > 0 && ts.active[0].end.Compare(at) <= 0 {
		heap.Pop(&ts.active)
	}
	ts.seq, ts.hasNext = 0, false
	if len(ts.active) > 0 {
		ts.seq, ts.event, ts.hasNext = ts.active[0].seq, ts.active[0].end, true
	}
	if n := len(ts.pending); n > 0 && (!ts.hasNext || ts.pending[n-1].start.Compare(ts.event) < 0) {
		ts.event, ts.hasNext = ts.pending[n-1].start, true
	}
	return ts.seq
}

// tombstoneHeap has the newest deletion on top.
type tombstoneHeap []tombstone

func (h tombstoneHeap) Len() int           { return len(h) }
func (h tombstoneHeap) Less(i, j int) bool { return h[i].seq > h[j].seq }
func (h tombstoneHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *tombstoneHeap) Push(x any)        { *h = append(*h, x.(tombstone)) }
func (h *tombstoneHeap) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	*h = (*h)[:n]
	return x
}
