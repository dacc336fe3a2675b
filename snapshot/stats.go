package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark/tidemark/serializer"
)

// StatsOptions changes what Stats counts. Nil is the default.
type StatsOptions struct {
	Scan *ScanOptions
	// Top is how many of the largest keys of each state are kept; 0 is 10, negative none.
	Top int
	// TTL gives the time to live by which a state's values count as expired at Now:
	// a snapshot does not hold it (only a changelog does). Zero leaves them out.
	TTL func(*State) time.Duration
	// Now is the time of the question; zero is the clock's.
	Now time.Time
	// Progress, if not nil, is called now and then with the rows counted so far.
	Progress func(rows int64)
}

// Stats is what a scan counted.
type Stats struct {
	// Rows, Bytes and Undecoded are the sums over all states.
	Rows      int64 `json:"rows"`
	Bytes     int64 `json:"bytes"`
	Undecoded int64 `json:"undecodedRows"`
	// Operators are in the order of the metadata, States in that of operators,
	// keyed states first.
	Operators []OperatorStat `json:"operators"`
	States    []*StateStat   `json:"states"`
	// Inventory are the serializers, those with a risk first.
	Inventory []Serializer `json:"serializers"`
	// Incomplete: a part could not be read.
	Incomplete bool `json:"incomplete"`
}

// OperatorStat sums up the states of one operator.
type OperatorStat struct {
	// Operator is its ID in hex, empty for master state; UID and OpName if known.
	Operator string `json:"operatorId"`
	UID      string `json:"operatorUid,omitempty"`
	OpName   string `json:"operatorName,omitempty"`
	// States is how many there are, the others are sums over them.
	States    int   `json:"states"`
	Rows      int64 `json:"rows"`
	Bytes     int64 `json:"bytes"`
	Undecoded int64 `json:"undecodedRows"`
	// KeyGroups and Subtasks are the spread of the keyed states, and of all states
	// that subtasks hold.
	KeyGroups *Spread `json:"keyGroups,omitempty"`
	Subtasks  *Spread `json:"subtasks,omitempty"`
}

// StateStat describes one state.
type StateStat struct {
	State *State `json:"-"`
	// Operator is the operator's ID in hex, empty for master state; UID and OpName
	// if known.
	Operator string `json:"operatorId"`
	UID      string `json:"operatorUid,omitempty"`
	OpName   string `json:"operatorName,omitempty"`
	// Name is the name under which the state was registered.
	Name string    `json:"state"`
	Kind StateKind `json:"kind"` // value, list, map, …
	// Rows are entries: a map state has one for each entry of a map, a list state
	// one for each list.
	Rows int64 `json:"rows"`
	// Keys counts pairs of key and namespace; 0 for timers, which are in no order of keys.
	Keys int64 `json:"keys"`
	// Bytes are those of keys, namespaces and values as serialized.
	Bytes int64 `json:"bytes"`
	// Undecoded is how many rows have a part that cannot be read.
	Undecoded int64 `json:"undecodedRows"`
	// Min to Max are sizes of rows in bytes. Quantiles are those of a histogram whose
	// buckets are 1/64 of a power of two wide.
	Min  int64   `json:"minBytes"`
	Mean float64 `json:"meanBytes"`
	P50  int64   `json:"p50Bytes"`
	P99  int64   `json:"p99Bytes"`
	Max  int64   `json:"maxBytes"`

	// KeyGroups and Subtasks are how the state is spread; absent if it has neither.
	KeyGroups *Spread `json:"keyGroups,omitempty"`
	Subtasks  *Spread `json:"subtasks,omitempty"`
	// Largest are the keys with the most bytes, largest first.
	Largest []BigKey `json:"largestKeys,omitempty"`

	// TTL is about values that carry the time of their last access.
	TTL *TTLStat `json:"ttl,omitempty"`
}

// Spread is how evenly bytes lie over key groups or subtasks.
type Spread struct {
	// Count is how many there are that could hold the state, Empty how many do not.
	Count int `json:"count"`
	Empty int `json:"empty"`
	// MedianBytes and MaxBytes are over those that are not empty.
	MedianBytes int64 `json:"medianBytes"`
	MaxBytes    int64 `json:"maxBytes"`
	// Hottest is the index of the one with MaxBytes; -1 if there is none.
	Hottest int32 `json:"hottest"`
	// Skew is MaxBytes / MedianBytes; 0 if there are no bytes.
	Skew float64 `json:"skew"`
	// Each has rows and bytes of every one, by index.
	Each []Share `json:"each,omitempty"`
}

// Share is one key group's or subtask's share.
type Share struct {
	Rows  int64 `json:"rows"`  // rows
	Bytes int64 `json:"bytes"` // as serialized
}

// BigKey is one of the largest keys of a state.
type BigKey struct {
	// Key is the key as JSON; Namespace likewise, absent if the state has only one.
	Key       string `json:"key"`
	Namespace string `json:"namespace,omitempty"`
	KeyGroup  int32  `json:"keyGroup"` // of the key
	Rows      int64  `json:"rows"`     // of the key and namespace
	Bytes     int64  `json:"bytes"`    // of all its rows

	key, ns string // as serialized
}

// TTLStat is about values that carry the time of their last access.
type TTLStat struct {
	// Rows have a time; Oldest and Newest are the first and the last, in epoch milliseconds.
	Rows   int64 `json:"rows"`
	Oldest int64 `json:"oldestMillis"`
	Newest int64 `json:"newestMillis"`
	// Expired and Bytes are rows past their time to live, if one was given (Known).
	// A list is expired when its last element is.
	Expired int64 `json:"expiredRows"`
	Bytes   int64 `json:"expiredBytes"`
	Known   bool  `json:"ttlKnown"`
}

// Serializer is a serializer that states use, by the class of its snapshot.
type Serializer struct {
	// Class is the class of the serializer's snapshot, Type what it is for, in words.
	Class string `json:"class"`
	Type  string `json:"type"`
	// States use it: operator and state.
	States []string `json:"states"`
	// Risk is "kryo" or "java" for serializers whose bytes change between major
	// versions of Flink, "opaque" for those that cannot be read here.
	Risk string `json:"risk,omitempty"`
}

// CollectStats scans the selected states and counts rows, bytes and their
// distribution. Memory follows the number of states, their key groups and Top,
// not the number of rows.
func CollectStats(ctx context.Context, s *Snapshot, opts *StatsOptions) (*Stats, error) {
	if opts == nil {
		opts = &StatsOptions{}
	}
	o := *opts
	if o.Top == 0 {
		o.Top = 10
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	var scan ScanOptions
	if o.Scan != nil {
		scan = *o.Scan
	}
	out := &Stats{}
	if report := scan.OnProblem; report != nil {
		scan.OnProblem = func(p *ScanProblem) {
			out.Incomplete = true
			report(p)
		}
	}
	sc := newScan(s, &scan)
	workers := make([]*statsWorker, sc.opts.Workers)
	var total progressCount
	err := sc.run(ctx, func(i int) func(*StateRow) error {
		w := &statsWorker{opts: &o, states: map[*State]*stateCounter{}, total: &total}
		workers[i] = w
		return w.row
	})
	if err != nil {
		return nil, err
	}
	merged := map[*State]*stateCounter{}
	for _, w := range workers {
		if w == nil {
			continue
		}
		w.endRun()
		for st, c := range w.states {
			if m := merged[st]; m != nil {
				m.merge(c, o.Top)
			} else {
				merged[st] = c
			}
		}
	}
	for _, st := range sc.cat.settle() {
		if sc.opts.State != nil && !sc.opts.State(st) {
			continue
		}
		c := merged[st]
		if c == nil {
			c = &stateCounter{}
		}
		stat := c.stat(st, &o)
		out.States = append(out.States, stat)
		out.operator(stat)
		out.Rows += stat.Rows
		out.Bytes += stat.Bytes
		out.Undecoded += stat.Undecoded
	}
	out.Inventory = inventory(out.States)
	for i := range out.Operators {
		op := &out.Operators[i]
		for _, s := range []*Spread{op.KeyGroups, op.Subtasks} {
			if s != nil {
				*s = *spread(s.Each, s.Count)
			}
		}
	}
	return out, nil
}

// operator adds a state to the sums of its operator.
func (s *Stats) operator(st *StateStat) {
	n := len(s.Operators)
	if n == 0 || s.Operators[n-1].Operator != st.Operator {
		s.Operators = append(s.Operators, OperatorStat{Operator: st.Operator, UID: st.UID, OpName: st.OpName})
		n++
	}
	op := &s.Operators[n-1]
	op.States++
	op.Rows += st.Rows
	op.Bytes += st.Bytes
	op.Undecoded += st.Undecoded
	for _, x := range []struct {
		to   **Spread
		from *Spread
	}{{&op.KeyGroups, st.KeyGroups}, {&op.Subtasks, st.Subtasks}} {
		if x.from == nil {
			continue
		}
		if *x.to == nil {
			*x.to = &Spread{}
		}
		(*x.to).Count = max((*x.to).Count, x.from.Count)
		for i, p := range x.from.Each {
			(*x.to).Each = addPart((*x.to).Each, int32(i), p.Rows, p.Bytes)
		}
	}
}

// progressCount reports every so many rows.
type progressCount struct {
	mu   sync.Mutex
	rows int64
}

func (p *progressCount) add(n int64, report func(int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows += n
	report(p.rows)
}

// statsWorker counts for one goroutine.
type statsWorker struct {
	opts   *StatsOptions
	states map[*State]*stateCounter
	total  *progressCount
	untold int64

	last *State
	cur  *stateCounter
	// The run of rows with one key and namespace.
	runKey   []byte
	runNS    []byte
	runRows  int64
	runBytes int64
	runGroup int32
	_        [128]byte // as in worker
}

const tellEvery = 1 << 16

func (w *statsWorker) row(r *StateRow) error {
	if r.State != w.last {
		w.endRun()
		w.last, w.cur = r.State, w.states[r.State]
		if w.cur == nil {
			w.cur = &stateCounter{}
			w.states[r.State] = w.cur
		}
	}
	size := int64(len(r.Key) + len(r.Namespace) + len(r.UserKey) + len(r.Value))
	c := w.cur
	c.add(r, size)
	if err := r.Check(); err != nil {
		c.undecoded++
	} else {
		if _, opaque := r.Undecoded(); opaque {
			c.undecoded++
		}
		if lo, hi, ok := r.TTL(); ok {
			c.ttl(r, lo, hi, size, w.opts)
		}
	}
	if r.State.Kind.Keyed() && r.State.Kind != StateTimer {
		if w.runRows == 0 || !bytes.Equal(w.runKey, r.Key) || !bytes.Equal(w.runNS, r.Namespace) {
			w.endRun()
			w.runKey, w.runNS = append(w.runKey[:0], r.Key...), append(w.runNS[:0], r.Namespace...)
			w.runGroup = r.KeyGroup
			c.keys++
			c.dec = r.dec
		}
		w.runRows++
		w.runBytes += size
	}
	if w.untold++; w.untold == tellEvery {
		if w.opts.Progress != nil {
			w.total.add(w.untold, w.opts.Progress)
		}
		w.untold = 0
	}
	return nil
}

// endRun ends the rows of one key and keeps it if it is among the largest.
func (w *statsWorker) endRun() {
	if w.runRows == 0 {
		return
	}
	rows, size := w.runRows, w.runBytes
	w.runRows, w.runBytes = 0, 0
	w.cur.keep(w.opts.Top, size, w.runGroup, w.runKey, w.runNS, func() BigKey {
		row := &StateRow{State: w.last, Key: w.runKey, Namespace: w.runNS, dec: w.cur.dec}
		key, _ := row.AppendKeyJSON(nil)
		big := BigKey{Key: string(key), KeyGroup: w.runGroup, Rows: rows, Bytes: size}
		if ns := w.last.Namespace; ns != nil && ns.Kind != serializer.KindVoidNamespace {
			b, _ := row.AppendNamespaceJSON(nil)
			big.Namespace = string(b)
		}
		return big
	})
}

// stateCounter counts one state.
type stateCounter struct {
	rows, keys, bytes, undecoded int64
	min, max                     int64
	sizes                        histogram
	groups, subtasks             []Share
	top                          []BigKey // ascending by bytes
	dec                          *rowDecoders
	ttlStat                      TTLStat
}

func (c *stateCounter) add(r *StateRow, size int64) {
	if c.rows == 0 || size < c.min {
		c.min = size
	}
	c.max = max(c.max, size)
	c.rows++
	c.bytes += size
	c.sizes.add(size)
	if r.KeyGroup >= 0 {
		c.groups = addPart(c.groups, r.KeyGroup, 1, size)
	}
	if r.Subtask >= 0 {
		c.subtasks = addPart(c.subtasks, r.Subtask, 1, size)
	}
}

func addPart(parts []Share, i int32, rows, size int64) []Share {
	if int(i) >= len(parts) {
		if i > 1<<20 {
			return parts // no such index in any snapshot
		}
		parts = append(parts, make([]Share, int(i)+1-len(parts))...)
	}
	parts[i].Rows += rows
	parts[i].Bytes += size
	return parts
}

func (c *stateCounter) ttl(r *StateRow, lo, hi, size int64, o *StatsOptions) {
	t := &c.ttlStat
	if t.Rows == 0 {
		t.Oldest, t.Newest = lo, hi
	}
	t.Rows++
	t.Oldest, t.Newest = min(t.Oldest, lo), max(t.Newest, hi)
	if o.TTL == nil {
		return
	}
	if d := o.TTL(r.State); d > 0 {
		t.Known = true
		// Flink: timestamp + ttl <= now, saturating.
		if at := hi + d.Milliseconds(); at >= hi && at <= o.Now.UnixMilli() {
			t.Expired++
			t.Bytes += size
		}
	}
}

// keep keeps a key if it is among the largest; of equally large ones those of the
// lowest key group and bytes, whatever the order they come in.
func (c *stateCounter) keep(top int, size int64, keyGroup int32, key, ns []byte, make func() BigKey) {
	if top <= 0 {
		return
	}
	smaller := func(k *BigKey) int { // how k compares with the new one
		if d := cmp.Or(cmp.Compare(k.Bytes, size), cmp.Compare(keyGroup, k.KeyGroup)); d != 0 {
			return d
		}
		return cmp.Or(-cmp.Compare(k.key, string(key)), -cmp.Compare(k.ns, string(ns)))
	}
	if len(c.top) == top {
		if smaller(&c.top[0]) >= 0 {
			return
		}
		c.top = append(c.top[:0], c.top[1:]...)
	}
	i, _ := slices.BinarySearchFunc(c.top, 0, func(k BigKey, _ int) int { return smaller(&k) })
	b := make()
	b.key, b.ns = string(key), string(ns)
	c.top = slices.Insert(c.top, i, b)
}

func (c *stateCounter) merge(o *stateCounter, top int) {
	if o.rows == 0 {
		return
	}
	if c.rows == 0 || o.min < c.min {
		c.min = o.min
	}
	c.max = max(c.max, o.max)
	c.rows += o.rows
	c.keys += o.keys
	c.bytes += o.bytes
	c.undecoded += o.undecoded
	c.sizes.merge(&o.sizes)
	for i, p := range o.groups {
		c.groups = addPart(c.groups, int32(i), p.Rows, p.Bytes)
	}
	for i, p := range o.subtasks {
		c.subtasks = addPart(c.subtasks, int32(i), p.Rows, p.Bytes)
	}
	for _, k := range o.top {
		c.keep(top, k.Bytes, k.KeyGroup, []byte(k.key), []byte(k.ns), func() BigKey { return k })
	}
	if t, u := &c.ttlStat, &o.ttlStat; u.Rows > 0 {
		if t.Rows == 0 {
			t.Oldest, t.Newest = u.Oldest, u.Newest
		}
		t.Rows += u.Rows
		t.Oldest, t.Newest = min(t.Oldest, u.Oldest), max(t.Newest, u.Newest)
		t.Expired += u.Expired
		t.Bytes += u.Bytes
		t.Known = t.Known || u.Known
	}
}

func (c *stateCounter) stat(s *State, o *StatsOptions) *StateStat {
	st := &StateStat{State: s, Operator: s.Operator.ID, UID: s.Operator.UID, OpName: s.Operator.Name, Name: s.Name, Kind: s.Kind,
		Rows: c.rows, Keys: c.keys, Bytes: c.bytes, Undecoded: c.undecoded, Min: c.min, Max: c.max}
	if c.rows > 0 {
		st.Mean = float64(c.bytes) / float64(c.rows)
		st.P50, st.P99 = min(c.sizes.quantile(0.5), c.max), min(c.sizes.quantile(0.99), c.max)
	}
	if s.Kind.Keyed() && c.rows > 0 {
		st.KeyGroups = spread(c.groups, int(s.Operator.MaxParallelism))
	}
	if len(c.subtasks) > 0 {
		st.Subtasks = spread(c.subtasks, int(s.Operator.Parallelism))
	}
	st.Largest = slices.Clone(c.top)
	slices.Reverse(st.Largest)
	if c.ttlStat.Rows > 0 {
		t := c.ttlStat
		st.TTL = &t
	}
	return st
}

func spread(parts []Share, count int) *Spread {
	for len(parts) < count {
		parts = append(parts, Share{})
	}
	s := &Spread{Count: len(parts), Each: parts, Hottest: -1}
	sizes := make([]int64, 0, len(parts))
	for i, p := range parts {
		if p.Rows == 0 {
			s.Empty++
			continue
		}
		sizes = append(sizes, p.Bytes)
		if s.Hottest < 0 || p.Bytes > s.MaxBytes {
			s.Hottest, s.MaxBytes = int32(i), p.Bytes
		}
	}
	slices.Sort(sizes)
	if len(sizes) > 0 {
		s.MedianBytes = sizes[len(sizes)/2]
	}
	if s.MedianBytes > 0 {
		s.Skew = float64(s.MaxBytes) / float64(s.MedianBytes)
	}
	return s
}

// histogram counts sizes in buckets that are 1/64 of a power of two wide.
type histogram struct{ buckets []int64 }

const subBuckets = 64

func bucketOf(v int64) int {
	if v < 2*subBuckets {
		return int(max(v, 0))
	}
	shift := bits.Len64(uint64(v)) - 7 // v>>shift lies in [64, 128)
	return shift*subBuckets + int(v>>shift)
}

// bucketTop is the largest size of a bucket.
func bucketTop(i int) int64 {
	if i < 2*subBuckets {
		return int64(i)
	}
	shift := i/subBuckets - 1
	return int64(i-shift*subBuckets+1)<<shift - 1
}

func (h *histogram) add(v int64) {
	i := bucketOf(v)
	if i >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]int64, i+1-len(h.buckets))...)
	}
	h.buckets[i]++
}

func (h *histogram) merge(o *histogram) {
	if len(o.buckets) > len(h.buckets) {
		h.buckets = append(h.buckets, make([]int64, len(o.buckets)-len(h.buckets))...)
	}
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// quantile is the top of the bucket in which the q-th part of all sizes ends.
func (h *histogram) quantile(q float64) int64 {
	var total, seen int64
	for _, n := range h.buckets {
		total += n
	}
	want := int64(q * float64(total))
	for i, n := range h.buckets {
		if seen += n; n > 0 && seen > want {
			return bucketTop(i)
		}
	}
	return bucketTop(len(h.buckets) - 1)
}

// inventory lists the serializers of states, those with a risk first.
func inventory(stats []*StateStat) []Serializer {
	type id struct{ class, words string }
	found := map[id]*Serializer{}
	for _, st := range stats {
		s := st.State
		name := cmp.Or(st.UID, st.OpName, st.Operator) + "." + s.Name
		for _, t := range []*serializer.Type{s.Key, s.Namespace, s.UserKey, s.Value} {
			t.Walk(func(n *serializer.Type) bool {
				if n.Class == "" {
					return true
				}
				k := id{n.Class, n.Words()}
				e := found[k]
				if e == nil {
					e = &Serializer{Class: n.Class, Type: n.String(), Risk: serializerRisk(n)}
					found[k] = e
				}
				if !slices.Contains(e.States, name) {
					e.States = append(e.States, name)
				}
				return true
			})
		}
	}
	out := make([]Serializer, 0, len(found))
	for _, e := range found {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b Serializer) int {
		return cmp.Or(-cmp.Compare(a.Risk, b.Risk), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Type, b.Type))
	})
	return out
}

func serializerRisk(t *serializer.Type) string {
	switch {
	case strings.Contains(t.Class, "KryoSerializer"):
		return "kryo"
	case strings.Contains(t.Class, "JavaSerializer"):
		return "java"
	case t.Kind == serializer.KindOpaque:
		return "opaque"
	}
	return ""
}
