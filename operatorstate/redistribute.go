package operatorstate

import (
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// Part is what a new subtask gets of an old one's state: some partitions of States,
// at their offsets in the file of Handle.
type Part struct {
	Handle *metadata.OperatorHandle
	States []metadata.NamedPartitions
}

// maxParallelism is Flink's upper bound.
const maxParallelism = 1 << 15

// Handles are the managed operator handles of an operator's subtasks, by subtask
// index; nil where a subtask has none.
func Handles(o *metadata.OperatorState) ([]*metadata.OperatorHandle, error) {
	if o.Parallelism < 0 || o.Parallelism > maxParallelism {
		return nil, fmt.Errorf("operator %s: parallelism is %d: %w", o.ID, o.Parallelism, metadata.ErrCorrupt)
	}
	handles := make([]*metadata.OperatorHandle, o.Parallelism)
	for i := range o.Subtasks {
		s := &o.Subtasks[i]
		if s.Index < 0 || s.Index >= o.Parallelism {
			return nil, fmt.Errorf("operator %s: subtask %d of %d: %w", o.ID, s.Index, o.Parallelism, metadata.ErrCorrupt)
		}
		handles[s.Index] = s.ManagedOperator
	}
	return handles, nil
}

// Redistribution is how the state of old subtasks is dealt out among new ones. It may
// be used by many goroutines.
type Redistribution struct {
	old                     []*metadata.OperatorHandle
	n                       int // new subtasks
	split, union, broadcast []*grouped
}

// Redistribute deals the state of old subtasks, one handle each, out among a number
// of new ones. Nothing is read or rewritten: a Part refers to offsets of the old
// files. It is Flink's RoundRobinOperatorStateRepartitioner:
//
//	split      At the same parallelism everyone keeps their own. Otherwise the
//	           partitions of a state, in the order of subtasks and offsets, are cut
//	           into runs of total/new, the first total%new of them longer by one.
//	           The first run goes to the subtask behind the one that got the last
//	           longer run of the state before, the states being visited in the order
//	           of a java.util.HashMap of their names.
//	union      Everyone gets all partitions of all old subtasks.
//	broadcast  New subtask i gets the copy i mod n of the n copies there are. At the
//	           same parallelism those who have a copy keep it.
//
// The one difference: at the same parallelism, when only some old subtasks have a
// copy of a broadcast state, Flink gives a copy in addition to those who have one.
func Redistribute(old []*metadata.OperatorHandle, parallelism int) (*Redistribution, error) {
	if parallelism < 1 || parallelism > maxParallelism {
		return nil, fmt.Errorf("parallelism is %d, from 1 to %d are possible", parallelism, maxParallelism)
	}
	r := &Redistribution{old: old, n: parallelism}
	r.split, r.union, r.broadcast = r.group(metadata.ModeSplit), r.group(metadata.ModeUnion), r.group(metadata.ModeBroadcast)
	start := 0
	for _, g := range r.split {
		for i := range g.of {
			g.of[i].before = g.total
			g.total += len(g.of[i].offsets)
		}
		g.start = start
		start = (start + g.total%parallelism) % parallelism
	}
	return r, nil
}

// Parts is what a new subtask gets, in the order of the old subtasks. Its slices of
// offsets are those of the old handles.
func (r *Redistribution) Parts(subtask int) []Part {
	var parts []Part
	at := map[int]int{}
	var from []int
	give := func(s share, name metadata.String, mode metadata.DistributionMode, offsets []int64) {
		k, ok := at[s.subtask]
		if !ok {
			k = len(parts)
			at[s.subtask] = k
			parts, from = append(parts, Part{Handle: r.old[s.subtask]}), append(from, s.subtask)
		}
		parts[k].States = append(parts[k].States, metadata.NamedPartitions{Name: name, Mode: mode, Offsets: offsets})
	}
	same := len(r.old) == r.n
	for _, g := range r.split {
		if same {
			if k := g.shareOf(subtask); k >= 0 {
				give(g.of[k], g.name, metadata.ModeSplit, g.of[k].offsets)
			}
			continue
		}
		run := (subtask - g.start + r.n) % r.n
		base, longer := g.total/r.n, g.total%r.n
		begin := run*base + min(run, longer)
		end := begin + base
		if run < longer {
			end++
		}
		for _, s := range g.of {
			a, b := max(begin-s.before, 0), min(end-s.before, len(s.offsets))
			if a < b {
				give(s, g.name, metadata.ModeSplit, s.offsets[a:b:b])
			}
		}
	}
	for _, g := range r.union {
		for _, s := range g.of {
			give(s, g.name, metadata.ModeUnion, s.offsets)
		}
	}
	for _, g := range r.broadcast {
		s := g.of[subtask%len(g.of)]
		if k := g.shareOf(subtask); same && k >= 0 {
			s = g.of[k]
		}
		give(s, g.name, metadata.ModeBroadcast, s.offsets)
	}
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return from[a] - from[b] })
	sorted := make([]Part, len(parts))
	for i, k := range order {
		sorted[i] = parts[k]
	}
	return sorted
}

// grouped is a state with the shares of the old subtasks that have it.
type grouped struct {
	name  metadata.String
	of    []share // ascending by subtask
	total int     // partitions
	start int     // the new subtask that gets the first run
}

type share struct {
	subtask int
	offsets []int64
	before  int // partitions of the shares before
}

// shareOf is the position of an old subtask's share, -1 if it has none.
func (g *grouped) shareOf(subtask int) int {
	k, ok := slices.BinarySearchFunc(g.of, subtask, func(s share, t int) int { return s.subtask - t })
	if !ok {
		return -1
	}
	return k
}

// group collects the states of a mode, in Flink's order: that of a HashMap into
// which the names were put as the HashMaps of the handles give them.
func (r *Redistribution) group(mode metadata.DistributionMode) []*grouped {
	var order []*grouped
	found := map[metadata.String]*grouped{}
	for i, h := range r.old {
		if h == nil || h.Empty {
			continue
		}
		names := make([]metadata.String, len(h.States))
		for k := range h.States {
			names[k] = h.States[k].Name
		}
		for _, k := range hashMapOrder(names, len(names)) {
			s := &h.States[k]
			if s.Mode != mode {
				continue
			}
			g := found[s.Name]
			if g == nil {
				g = &grouped{name: s.Name}
				found[s.Name] = g
				order = append(order, g)
			}
			g.of = append(g.of, share{subtask: i, offsets: s.Offsets})
		}
	}
	names := make([]metadata.String, len(order))
	for i, g := range order {
		names[i] = g.name
	}
	sorted := make([]*grouped, 0, len(order))
	for _, i := range hashMapOrder(names, 0) {
		sorted = append(sorted, order[i])
	}
	return sorted
}

// hashMapOrder is the order in which a java.util.HashMap gives distinct keys that
// are put into it in the order of names: by bucket, within one as they came. A bucket
// of eight and more, which Java makes a tree, is left out of account. expected is
// the size the map was made for, 0 for the default.
func hashMapOrder(names []metadata.String, expected int) []int {
	buckets := 16
	if expected > 0 {
		want := expected + 1
		if expected > 2 {
			want = int(float32(expected)/0.75 + 1)
		}
		for buckets = 1; buckets < want; buckets *= 2 {
		}
	}
	for len(names)*4 > buckets*3 {
		buckets *= 2
	}
	order := make([]int, len(names))
	bucket := make([]uint32, len(names))
	for i, n := range names {
		h := uint32(serializer.HashString(n.Go()))
		order[i], bucket[i] = i, (h^h>>16)&uint32(buckets-1)
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(bucket[a]) - int(bucket[b]) })
	return order
}
