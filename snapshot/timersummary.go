package snapshot

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
)

// TimerSummary is what the timers of one service and time domain of one operator
// come to.
type TimerSummary struct {
	State *State
	// Service is the name of the timer service: user-timers, window-timers.
	Service string
	// EventTime: timers fire when the watermark passes, not the clock.
	EventTime bool
	Count     int64
	// Earliest and Latest are epoch milliseconds; meaningless where Count is 0.
	Earliest, Latest int64
	buckets          sparseHistogram
}

// TimerBucket counts the timers of From <= timestamp < From + Width, in
// milliseconds; the widest buckets, of 2^61 ms and more, are four or five. A bucket that would begin before the least long begins there.
type TimerBucket struct {
	From, Width, Count int64
}

// Histogram has at most n buckets of one width that are not empty, in ascending
// order; n is at most 1024. The width is 1, 10 or 100 ms, a second, ten, a minute,
// ten, an hour, six, a day, or a day doubled as often as needed.
func (t *TimerSummary) Histogram(n int) []TimerBucket {
	h := sparseHistogram{step: t.buckets.step, counts: maps.Clone(t.buckets.counts)}
	for len(h.counts) > max(n, 1) && h.coarsen() {
	}
	out := make([]TimerBucket, 0, len(h.counts))
	for k, c := range h.counts {
		from := k * h.width()
		if k < 0 && from > 0 { // below the least long
			from = math.MinInt64
		}
		out = append(out, TimerBucket{From: from, Width: h.width(), Count: c})
	}
	slices.SortFunc(out, func(a, b TimerBucket) int { return cmp.Compare(a.From, b.From) })
	return out
}

// sparseHistogram counts in buckets that grow wider as they become many. Each
// width is a multiple of the one before, so that counts can be added up.
type sparseHistogram struct {
	step   int
	counts map[int64]int64 // by timestamp / width, rounded down
}

// mostBuckets bounds the memory of a histogram.
const mostBuckets = 4096

var bucketWidths = func() []int64 {
	w := []int64{1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000, 86_400_000}
	for w[len(w)-1] < 1<<61 {
		w = append(w, 2*w[len(w)-1])
	}
	return w
}()

func (h *sparseHistogram) width() int64 { return bucketWidths[h.step] }

func floorOf(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func (h *sparseHistogram) add(ms, n int64) {
	if h.counts == nil {
		h.counts = map[int64]int64{}
	}
	h.counts[floorOf(ms, h.width())] += n
	for len(h.counts) > mostBuckets && h.coarsen() {
	}
}

// coarsen goes to the next width; false if there is none.
func (h *sparseHistogram) coarsen() bool {
	if h.step+1 >= len(bucketWidths) {
		return false
	}
	by := bucketWidths[h.step+1] / bucketWidths[h.step]
	h.step++
	wider := make(map[int64]int64, len(h.counts)/2)
	for k, c := range h.counts {
		wider[floorOf(k, by)] += c
	}
	h.counts = wider
	return true
}

func (h *sparseHistogram) merge(o *sparseHistogram) {
	for h.step < o.step {
		h.coarsen()
	}
	by := h.width() / o.width()
	for k, c := range o.counts {
		if h.counts == nil {
			h.counts = map[int64]int64{}
		}
		h.counts[floorOf(k, by)] += c
	}
	for len(h.counts) > mostBuckets && h.coarsen() {
	}
}

// Timers sums up the timers that opts select, in one scan. match, if set, gives
// each worker a function that chooses among them. Summaries come in the order of
// operators and names. Memory: 4096 buckets for each timer state and worker.
func Timers(ctx context.Context, s *Snapshot, opts *ScanOptions, match func(worker int) func(*StateRow) bool) ([]*TimerSummary, error) {
	sc := newScan(s, opts)
	selected := sc.opts.State
	sc.opts.State = func(st *State) bool { return st.Kind == StateTimer && (selected == nil || selected(st)) }
	var mu sync.Mutex
	var parts []map[*State]*TimerSummary
	err := sc.run(ctx, func(worker int) func(*StateRow) error {
		mine := map[*State]*TimerSummary{}
		mu.Lock()
		parts = append(parts, mine)
		mu.Unlock()
		chosen := func(*StateRow) bool { return true }
		if match != nil {
			chosen = match(worker)
		}
		return func(r *StateRow) error {
			if r.State.Kind != StateTimer || !chosen(r) {
				return nil
			}
			t := mine[r.State]
			if t == nil {
				t = &TimerSummary{State: r.State, Earliest: r.Timestamp, Latest: r.Timestamp}
				mine[r.State] = t
			}
			t.Count++
			t.Earliest, t.Latest = min(t.Earliest, r.Timestamp), max(t.Latest, r.Timestamp)
			t.buckets.add(r.Timestamp, 1)
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	sums := map[*State]*TimerSummary{}
	for _, st := range sc.cat.list() {
		if sc.opts.State(st) {
			sums[st] = &TimerSummary{State: st}
		}
	}
	for _, part := range parts {
		for st, t := range part {
			sum := sums[st]
			if sum == nil {
				sum = &TimerSummary{State: st}
				sums[st] = sum
			}
			if sum.Count == 0 {
				sum.Earliest, sum.Latest = t.Earliest, t.Latest
			}
			sum.Count += t.Count
			sum.Earliest, sum.Latest = min(sum.Earliest, t.Earliest), max(sum.Latest, t.Latest)
			sum.buckets.merge(&t.buckets)
		}
	}
	out := make([]*TimerSummary, 0, len(sums))
	for _, t := range sums {
		t.Service, t.EventTime = TimerService(t.State)
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *TimerSummary) int {
		return cmp.Or(cmp.Compare(a.State.Operator.Position, b.State.Operator.Position), cmp.Compare(a.State.Name, b.State.Name))
	})
	return out, nil
}

// TimerService takes the name of a timer state apart: the name of the service, and
// whether its time is that of events.
func TimerService(st *State) (service string, eventTime bool) {
	if s, ok := strings.CutPrefix(st.Name, eventTimers); ok {
		return s, true
	}
	s, _ := strings.CutPrefix(st.Name, processingTimers)
	return s, false
}
