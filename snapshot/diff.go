package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// DiffOptions changes a comparison. Nil is the default.
type DiffOptions struct {
	// Scan selects what is compared and says how it is read; its OnProblem is not used.
	Scan *ScanOptions
	// IgnoreTTL: a value whose time of last access alone differs is the same.
	IgnoreTTL bool
	// MemoryBytes bounds what is sorted in memory before it spills to files in
	// TempDir; 0 is 48 MiB.
	MemoryBytes int64
	TempDir     string // "" is the system's
	// OnProblem is told of each part of the old or the new snapshot that cannot be
	// read, by one goroutine at a time; nil ends the comparison with the first.
	OnProblem func(isNew bool, p *ScanProblem)
	// Progress, if not nil, is called now and then with the rows read so far, from
	// any goroutine.
	Progress func(rows int64)

	whole bool // compare all keys as they decode: for tests
}

// Change is what became of a row.
type Change string

// Changes.
const (
	Added   Change = "added"
	Removed Change = "removed"
	Changed Change = "changed"
)

// DiffRow is a row that differs. It is valid during the call.
type DiffRow struct {
	Change Change
	// Old is nil for what was added, New for what was removed.
	Old, New *StateRow
}

// DiffEncoder turns differences into bytes. It belongs to one goroutine.
type DiffEncoder interface {
	Append(dst []byte, r *DiffRow) ([]byte, error)
}

// StateDiff is how a state differs.
type StateDiff struct {
	// Operator is the operator's ID in hex, empty for master state; UID and OpName
	// if known.
	Operator string `json:"operatorId"`
	UID      string `json:"operatorUid,omitempty"`
	OpName   string `json:"operatorName,omitempty"`
	// Name is the name under which the state was registered.
	Name string    `json:"state"`
	Kind StateKind `json:"kind"` // value, list, map, …
	// Old and New are how many rows there are. Of operator lists each element is a row.
	Old int64 `json:"oldRows"`
	New int64 `json:"newRows"`
	// Added, Removed and Changed rows.
	Added   int64 `json:"added"`
	Removed int64 `json:"removed"`
	Changed int64 `json:"changed"`
	// OnlyIn is "old" or "new" if the other snapshot does not have the state.
	OnlyIn string `json:"onlyIn,omitempty"`
	// Notes say what else differs: types, serializers, TTL.
	Notes []string `json:"notes,omitempty"`
}

// Differs says that rows do.
func (d *StateDiff) Differs() bool { return d.Added+d.Removed+d.Changed > 0 }

// DiffReport is the result of Diff.
type DiffReport struct {
	// States are all states of both, in the order of operators.
	States []*StateDiff `json:"states"`
	// Notes are about operators: max parallelism, those that came and went.
	Notes []string `json:"notes,omitempty"`
	// Incomplete: a part could not be read.
	Incomplete bool `json:"incomplete"`
	// Spilled bytes were sorted in temporary files.
	Spilled int64 `json:"spilledBytes"`
}

// Same says that no row and no state differs.
func (r *DiffReport) Same() bool {
	return !slices.ContainsFunc(r.States, func(s *StateDiff) bool { return s.Differs() || s.OnlyIn != "" })
}

// Diff compares the rows of two snapshots of one job, of whatever kinds: a row is
// the same if its key, namespace and map key are the same and its value decodes to
// the same, maps and sets without regard to order. It calls write, from one
// goroutine, with the encoded rows that differ, in the order of operators, then of
// key groups, then of states and keys; a nil encoder only counts.
//
// Keyed state is compared key group by key group. What RocksDB holds streams past in
// the order of its keys; other state of a few key groups is sorted in memory or, if
// it is too much, in temporary files. Where the type of a key or the max
// parallelism differs, keys are compared as they decode, and an operator's state is
// sorted as a whole. Elements of operator lists are compared as a bag: they move
// between subtasks.
//
// Memory: MemoryBytes, and what Scan needs.
func Diff(ctx context.Context, older, newer *Snapshot, opts *DiffOptions, encoder func(worker int) DiffEncoder, write func([]byte) error) (*DiffReport, error) {
	d := &differ{report: &DiffReport{States: []*StateDiff{}}, index: map[diffKey]int{}}
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.MemoryBytes <= 0 {
		d.opts.MemoryBytes = 48 << 20
	}
	for i, s := range []*Snapshot{older, newer} {
		if err := d.open(ctx, i, s); err != nil {
			return nil, err
		}
	}
	for _, side := range d.sides {
		side.sc.ctx.Store(&ctx)
		defer side.sc.dbs.close()
	}
	d.pair()
	workers := d.sides[0].sc.opts.Workers
	counts := make([][]diffCount, workers)
	err := inTurns(ctx, workers, d.units(), func(ctx context.Context, worker int, u *diffUnit, send func([]byte) error) error {
		if counts[worker] == nil {
			counts[worker] = make([]diffCount, len(d.pairs))
		}
		w := &diffWorker{d: d, u: u, counts: counts[worker], send: send, budget: d.opts.MemoryBytes / int64(2*workers)}
		if encoder != nil {
			w.enc = encoder(worker)
		}
		return w.run(ctx)
	}, write)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		for i := range c {
			st := d.pairs[i].stat
			st.Old += c[i].old
			st.New += c[i].new
			st.Added += c[i].added
			st.Removed += c[i].removed
			st.Changed += c[i].changed
		}
	}
	for i := range d.pairs {
		d.report.States = append(d.report.States, d.pairs[i].stat)
	}
	d.report.Spilled = d.spilled.Load()
	return d.report, nil
}

// differ is one comparison.
type differ struct {
	opts   DiffOptions
	sides  [2]*diffSide
	pairs  []statePair
	index  map[diffKey]int // in pairs
	ops    []*diffOperator
	report *DiffReport

	rows    atomic.Int64
	spilled atomic.Int64

	mu   sync.Mutex
	told map[string]bool
}

// diffSide is one of the two snapshots.
type diffSide struct {
	s      *Snapshot
	sc     *scan
	states []*State
}

// diffKey tells states apart.
type diffKey struct {
	operator, name string
	kind           StateKind
}

func keyOfState(s *State) diffKey { return diffKey{s.Operator.ID, s.Name, s.Kind} }

// statePair is a state in both snapshots, or in one.
type statePair struct {
	states [2]*State
	stat   *StateDiff
	// sameKeys: keys, namespaces and map keys are the same if their bytes are.
	// sameValues: values with the same bytes are the same.
	sameKeys, sameValues bool
}

func (p *statePair) any() *State { return cmp.Or(p.states[1], p.states[0]) }

// diffOperator is an operator in both snapshots, or in one.
type diffOperator struct {
	id    string
	pos   [2]int            // in Checkpoint.Operators; -1 if there is none
	ops   [2]*StateOperator // nil if there is none
	pairs []int             // keyed states first
	keyed int               // how many of pairs are
	// whole: keys are compared decoded, and the operator in one piece.
	whole bool
}

type diffCount struct{ old, new, added, removed, changed int64 }

// open reads what states a snapshot has.
func (d *differ) open(ctx context.Context, i int, s *Snapshot) error {
	var so ScanOptions
	if d.opts.Scan != nil {
		so = *d.opts.Scan
	}
	so.OnProblem = nil
	if d.opts.OnProblem != nil {
		so.OnProblem = func(p *ScanProblem) {
			d.mu.Lock()
			defer d.mu.Unlock()
			text := fmt.Sprint(i, p.Error())
			if d.report.Incomplete = true; d.told[text] {
				return // when the states were listed
			}
			if d.told == nil {
				d.told = map[string]bool{}
			}
			if len(d.told) < 10_000 {
				d.told[text] = true
			}
			d.opts.OnProblem(i == 1, p)
		}
	}
	if so.Workers <= 0 {
		so.Workers = runtime.GOMAXPROCS(0)
	}
	states, err := States(ctx, s, &so)
	if err != nil {
		return err
	}
	side := &diffSide{s: s, sc: newScan(s, &so)}
	for _, st := range states {
		if so.State == nil || so.State(st) {
			side.states = append(side.states, st)
		}
	}
	d.sides[i] = side
	return nil
}

// pair brings the states and operators of the two together.
func (d *differ) pair() {
	byID := map[string]*diffOperator{}
	operator := func(side int, op *StateOperator) *diffOperator {
		o := byID[op.ID]
		if o == nil {
			o = &diffOperator{id: op.ID, pos: [2]int{-1, -1}}
			byID[op.ID] = o
			d.ops = append(d.ops, o)
		}
		o.pos[side], o.ops[side] = op.Position, op
		return o
	}
	for side, s := range d.sides {
		for i := range s.sc.cat.operators {
			if op := &s.sc.cat.operators[i]; s.sc.opts.Operator == nil || s.sc.opts.Operator(op) {
				operator(side, op)
			}
		}
		for _, st := range s.states {
			k := keyOfState(st)
			i, ok := d.index[k]
			if !ok {
				i = len(d.pairs)
				d.index[k] = i
				d.pairs = append(d.pairs, statePair{})
			}
			d.pairs[i].states[side] = st
			if st.Operator.Position < 0 {
				operator(side, &s.sc.cat.master)
			}
		}
	}
	// In the order of operators, keyed states first, then of kind and name.
	place := map[string]int{}
	for i, o := range d.ops {
		place[o.id] = i
	}
	slices.SortFunc(d.pairs, func(a, b statePair) int {
		x, y := a.any(), b.any()
		return cmp.Or(cmp.Compare(place[x.Operator.ID], place[y.Operator.ID]), cmp.Compare(diffOrder(x.Kind), diffOrder(y.Kind)), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
	for i := range d.pairs {
		p := &d.pairs[i]
		st := p.any()
		d.index[keyOfState(st)] = i
		p.compare()
		o := byID[st.Operator.ID]
		o.pairs = append(o.pairs, i)
		if diffOrder(st.Kind) < 2 {
			o.keyed++
			if p.sameKeys = p.sameKeys && !d.opts.whole; !p.sameKeys {
				o.whole = true
			}
		}
	}
	for _, o := range d.ops {
		name := func(op *StateOperator) string { return "operator " + cmp.Or(op.UID, op.Name, op.ID, "master") }
		a, b := o.ops[0], o.ops[1]
		switch {
		case a == nil:
			d.report.Notes = append(d.report.Notes, name(b)+" is new")
		case b == nil:
			d.report.Notes = append(d.report.Notes, name(a)+" is gone")
		case a.MaxParallelism != b.MaxParallelism:
			o.whole = true
			d.report.Notes = append(d.report.Notes, fmt.Sprintf("%s: max parallelism %d became %d: keys are compared without their key groups", name(b), a.MaxParallelism, b.MaxParallelism))
		}
	}
}

// diffOrder puts what key groups hold first.
func diffOrder(k StateKind) int {
	if k == StateRawKeyed {
		return 1
	}
	return kindOrder(k)
}

// compare says how far bytes may stand for values, and what differs in the types.
func (p *statePair) compare() {
	st := p.any()
	p.stat = &StateDiff{Operator: st.Operator.ID, UID: st.Operator.UID, OpName: st.Operator.Name, Name: st.Name, Kind: st.Kind}
	a, b := p.states[0], p.states[1]
	if a == nil || b == nil {
		p.sameKeys, p.sameValues = true, true
		p.stat.OnlyIn = "new"
		if b == nil {
			p.stat.OnlyIn = "old"
		}
		return
	}
	same := func(what string, x, y *serializer.Type) bool {
		if sameType(x, y) {
			return true
		}
		note := what + ": the serializer's settings differ"
		if words(x) != words(y) {
			note = fmt.Sprintf("%s: %s became %s", what, cmp.Or(words(x), "unknown"), cmp.Or(words(y), "unknown"))
		}
		p.stat.Notes = append(p.stat.Notes, note)
		return false
	}
	p.sameKeys = true
	for _, k := range []struct {
		what string
		x, y *serializer.Type
	}{{"key", a.Key, b.Key}, {"namespace", a.Namespace, b.Namespace}, {"map key", a.UserKey, b.UserKey}} {
		if !same(k.what, k.x, k.y) || k.x != nil && !oneEncoding(k.x) {
			p.sameKeys = false
		}
	}
	p.sameValues = same("value", a.Value, b.Value) && same("element", a.Element, b.Element)
	if a.TTL != b.TTL {
		p.stat.Notes = append(p.stat.Notes, "TTL was switched "+map[bool]string{true: "on", false: "off"}[b.TTL])
	}
	if a.Variants+b.Variants > 0 {
		p.sameKeys, p.sameValues = false, false
	}
}

// sameType says that two types read bytes alike.
func sameType(a, b *serializer.Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, err1 := a.AppendSnapshot(nil)
	y, err2 := b.AppendSnapshot(nil)
	if err1 != nil || err2 != nil {
		return words(a) == words(b) && a.Class == b.Class && string(a.Raw) == string(b.Raw)
	}
	return bytes.Equal(x, y)
}

// diffUnit is a piece of work: key groups of an operator, or its other state.
type diffUnit struct {
	op    *diffOperator
	keyed bool
	span  metadata.KeyGroupRange
	// handles of the keyed state, by side.
	handles [2][]*diffHandle
}

// diffHandle is a keyed handle of one subtask, opened when it is first needed.
type diffHandle struct {
	job    handleJob
	h      metadata.KeyedHandle
	raw    bool
	range_ metadata.KeyGroupRange

	once sync.Once
	open *openDatabase
	err  error
	left atomic.Int32 // units that still need it
}

// spanBytes is about how much of both snapshots one unit of keyed state covers.
const spanBytes = 8 << 20

// units yields the units in order.
func (d *differ) units() iter.Seq2[*diffUnit, error] {
	return func(yield func(*diffUnit, error) bool) {
		for _, o := range d.ops {
			if o.keyed > 0 {
				for _, u := range d.spans(o) {
					if !yield(u, nil) {
						return
					}
				}
			}
			if len(o.pairs) > o.keyed && !yield(&diffUnit{op: o}, nil) {
				return
			}
		}
	}
}

// spans cuts an operator's keyed state into units.
func (d *differ) spans(o *diffOperator) []*diffUnit {
	var handles [2][]*diffHandle
	limit := int32(0)
	for side := range handles {
		handles[side] = d.keyedHandles(side, o)
		for _, h := range handles[side] {
			limit = max(limit, h.range_.End()+1)
		}
	}
	all := metadata.KeyGroupRange{Start: 0, Count: limit}
	if r := d.sides[0].sc.opts.KeyGroups; r != nil {
		all = intersect(all, *r)
	}
	if all.Count <= 0 {
		return nil
	}
	if o.whole {
		u := &diffUnit{op: o, keyed: true, span: all, handles: handles}
		u.hold()
		return []*diffUnit{u}
	}
	weight := make([]int64, limit)
	joined := make([]bool, limit) // with the key group before it
	for side := range handles {
		for _, h := range handles[side] {
			h.weigh(weight)
			if _, ok := h.h.(*metadata.ChangelogHandle); ok {
				// Its changes are read as one.
				for kg := max(h.range_.Start, 0) + 1; kg <= h.range_.End(); kg++ {
					joined[kg] = true
				}
			}
		}
	}
	var units []*diffUnit
	start, size := all.Start, int64(0)
	for kg := all.Start; kg <= all.End(); kg++ {
		if kg > start && !joined[kg] && size+weight[kg] > spanBytes {
			units = append(units, newSpan(o, handles, start, kg-1))
			start, size = kg, 0
		}
		size += weight[kg]
	}
	return append(units, newSpan(o, handles, start, all.End()))
}

func newSpan(o *diffOperator, handles [2][]*diffHandle, first, last int32) *diffUnit {
	u := &diffUnit{op: o, keyed: true, span: metadata.KeyGroupRange{Start: first, Count: last - first + 1}}
	for side := range handles {
		for _, h := range handles[side] {
			if intersect(h.range_, u.span).Count > 0 {
				u.handles[side] = append(u.handles[side], h)
			}
		}
	}
	u.hold()
	return u
}

func (u *diffUnit) hold() {
	for _, list := range u.handles {
		for _, h := range list {
			h.left.Add(1)
		}
	}
}

// keyedHandles are the keyed handles of an operator in the order of their key groups.
func (d *differ) keyedHandles(side int, o *diffOperator) []*diffHandle {
	if o.pos[side] < 0 {
		return nil
	}
	s := d.sides[side]
	state := &s.s.Checkpoint.Operators[o.pos[side]]
	var list []*diffHandle
	for i := range state.Subtasks {
		st := &state.Subtasks[i]
		job := handleJob{operator: o.ops[side], subtask: st.Index}
		for k, h := range []metadata.KeyedHandle{st.ManagedKeyed, st.RawKeyed} {
			if h != nil && h.KeyGroups().Count > 0 && h.KeyGroups().Start >= 0 && h.KeyGroups().End() < 1<<15 {
				list = append(list, &diffHandle{job: job, h: h, raw: k == 1, range_: h.KeyGroups()})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *diffHandle) int { return cmp.Compare(a.range_.Start, b.range_.Start) })
	return list
}

// weigh adds the bytes of each key group, as far as the metadata tells.
func (h *diffHandle) weigh(weight []int64) {
	if g, ok := h.h.(*metadata.KeyGroupsHandle); ok {
		end := metadata.StateSize(g.Delegate)
		for i := len(g.Offsets) - 1; i >= 0; i-- {
			if kg := int(g.Range.Start) + i; g.Offsets[i] > 0 && end > g.Offsets[i] && kg >= 0 && kg < len(weight) {
				weight[kg] += end - g.Offsets[i]
				end = g.Offsets[i]
			}
		}
		return
	}
	var size int64
	if inc, ok := h.h.(*metadata.IncrementalHandle); ok {
		for i := range inc.Shared {
			size += max(metadata.StateSize(inc.Shared[i].Handle), 0)
		}
	}
	for kg := h.range_.Start; kg <= h.range_.End(); kg++ {
		weight[kg] += size / int64(h.range_.Count)
	}
}

// inTurns does the tasks on some goroutines and gives the blocks that they send to
// write, in the order of the tasks. A task may be up to blocksAhead blocks ahead of its turn.
func inTurns[T any](ctx context.Context, workers int, tasks iter.Seq2[T, error], do func(ctx context.Context, worker int, t T, send func([]byte) error) error, write func([]byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct {
		task T
		out  chan []byte
	}
	queue := make(chan job)
	turns := make(chan chan []byte, 2*workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for j := range queue {
				err := do(ctx, i, j.task, func(b []byte) error {
					select {
					case j.out <- b:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				close(j.out)
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		defer close(turns)
		defer close(queue)
		for t, err := range tasks {
			if err != nil {
				cancel(err)
				return
			}
			j := job{t, make(chan []byte, blocksAhead)}
			select {
			case turns <- j.out:
			case <-ctx.Done():
				return
			}
			select {
			case queue <- j:
			case <-ctx.Done():
				close(j.out)
				return
			}
		}
	})
	var werr error
	for out := range turns {
		for b := range out {
			if werr == nil && ctx.Err() == nil {
				if werr = write(b); werr != nil {
					cancel(werr)
				}
			}
		}
	}
	wg.Wait()
	if werr != nil {
		return werr
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errStop) {
		return err
	}
	return nil
}
