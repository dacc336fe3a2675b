package channel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// Exchange is an edge of a job, as far as restoring its in-flight data needs it.
type Exchange struct {
	// Up is the last operator of the chain that emits, which holds the state of the
	// result partition, Down the first of the chain that reads, which holds that of
	// the input gate. Partition and Gate are their indexes.
	Up, Down        metadata.OperatorID
	Partition, Gate int32
	// Mapper is that of the exchange's partitioner, for Down's subtasks.
	Mapper Mapper
	// Pointwise: subtask i emits to subtask i only (forward).
	Pointwise bool
	// UpParallelism and DownParallelism are the new ones, MaxParallelism is Down's.
	UpParallelism, DownParallelism, MaxParallelism int
}

// Link is what was in flight from one subtask to another of the job that wrote the
// snapshot: what the reader had received, then what the writer had not sent. A
// record may begin in the one and end in the other.
type Link struct {
	Up, Down int32 // subtasks
	parts    []*snapshot.InFlight
}

// Bytes is the size of its payload and of its buffers' lengths.
func (l *Link) Bytes() int64 {
	var n int64
	for _, p := range l.parts {
		n += p.Bytes
	}
	return n
}

func (l *Link) String() string { return fmt.Sprintf("in flight from subtask %d to %d", l.Up, l.Down) }

// Recovered is what a channel of a gate gets back: the links of old channels, each
// with records of its own.
type Recovered struct {
	Channel int
	Links   []Link
}

// Recovery is the in-flight data that one gate of a new subtask takes over.
type Recovery struct {
	Channels []Recovered // in the order of channels
	// Filter: only some of the records are this subtask's. The reader has to tell,
	// by the key group or the partitioner.
	Filter bool
}

// Bytes is how much there is to read, before filtering.
func (r *Recovery) Bytes() int64 {
	var n int64
	for i := range r.Channels {
		for k := range r.Channels[i].Links {
			n += r.Channels[i].Links[k].Bytes()
		}
	}
	return n
}

// Restore finds what was in flight on an exchange when the snapshot was taken, and
// which part of it a subtask of the new Down takes over. Both ends of the exchange
// come back at the reader: a record that was cut between the two is whole again, and
// the partition begins empty. (Flink 1.20 gives each end its own part and lets
// virtual channels join them at the reader; where a record ends up is the same.)
//
// It reads nothing; Gate.Recover does.
func Restore(s *snapshot.Snapshot, e Exchange, subtask int) (*Recovery, error) {
	// One that is pointwise now was not if its ends had different parallelisms: it has
	// come to it because they have the same now.
	pointwise := e.Pointwise && parallelism(s, e.Up) == parallelism(s, e.Down)
	links := linksOf(s, e, pointwise)
	if len(links) == 0 {
		return &Recovery{}, nil
	}
	oldDown, err := oldParallelism(s, e)
	if err != nil {
		return nil, err
	}
	r := &Recovery{}
	if e.Pointwise {
		// Only the same parallelism keeps the order of a forward edge; at another one
		// any subtask may continue.
		return r.assign(links, RoundRobin.OldSubtasks(subtask, oldDown, e.DownParallelism, 0), func(int32) int { return 0 }), nil
	}
	old := []int{subtask}
	if oldDown != e.DownParallelism {
		old = e.Mapper.OldSubtasks(subtask, oldDown, e.DownParallelism, e.MaxParallelism)
		r.Filter = e.Mapper.filters()
	}
	up := max(1, e.UpParallelism)
	return r.assign(links, old, func(u int32) int { return int(u) % up }), nil
}

func (r *Recovery) assign(links []Link, down []int, channel func(up int32) int) *Recovery {
	at := map[int]int{}
	for _, l := range links {
		if !slices.Contains(down, int(l.Down)) {
			continue
		}
		c := channel(l.Up)
		i, ok := at[c]
		if !ok {
			i = len(r.Channels)
			at[c] = i
			r.Channels = append(r.Channels, Recovered{Channel: c})
		}
		r.Channels[i].Links = append(r.Channels[i].Links, l)
	}
	slices.SortFunc(r.Channels, func(a, b Recovered) int { return cmp.Compare(a.Channel, b.Channel) })
	return r
}

// linksOf puts the two sides of each channel together. pointwise is what the exchange
// was.
func linksOf(s *snapshot.Snapshot, e Exchange, pointwise bool) []Link {
	up, down := e.Up.String(), e.Down.String()
	type ends struct{ up, down int32 }
	at := map[ends]*Link{}
	link := func(k ends) *Link {
		l := at[k]
		if l == nil {
			l = &Link{Up: k.up, Down: k.down}
			at[k] = l
		}
		return l
	}
	opts := &snapshot.ScanOptions{Operator: func(o *snapshot.StateOperator) bool { return o.ID == up || o.ID == down }}
	var outputs []*snapshot.InFlight
	for f := range snapshot.InFlightChannels(s, opts) {
		switch {
		case !f.Output && f.Operator.ID == down && f.Gate == e.Gate:
			k := ends{f.Channel, f.Subtask}
			if pointwise {
				k.up = f.Subtask
			}
			l := link(k)
			l.parts = append(l.parts, f)
		case f.Output && f.Operator.ID == up && f.Gate == e.Partition:
			outputs = append(outputs, f)
		}
	}
	for _, f := range outputs { // behind the inputs, in the order of the stream
		k := ends{f.Subtask, f.Channel}
		if pointwise {
			k.down = f.Subtask
		}
		l := link(k)
		l.parts = append(l.parts, f)
	}
	links := make([]Link, 0, len(at))
	for _, l := range at {
		links = append(links, *l)
	}
	slices.SortFunc(links, func(a, b Link) int { return cmp.Or(cmp.Compare(a.Down, b.Down), cmp.Compare(a.Up, b.Up)) })
	return links
}

// oldParallelism is that of the reader in the snapshot.
func oldParallelism(s *snapshot.Snapshot, e Exchange) (int, error) {
	p := parallelism(s, e.Down)
	if p < 1 {
		return 0, fmt.Errorf("in-flight data of operator %s: the snapshot does not tell its parallelism", e.Down)
	}
	if most := max(p, e.DownParallelism); e.Mapper == Range && e.MaxParallelism < most {
		return 0, fmt.Errorf("in-flight data of operator %s: max parallelism %d is below parallelism %d", e.Down, e.MaxParallelism, most)
	}
	return p, nil
}

// parallelism is that of an operator in the snapshot; 0 if it is not told.
func parallelism(s *snapshot.Snapshot, id metadata.OperatorID) int {
	for i := range s.Checkpoint.Operators {
		if o := &s.Checkpoint.Operators[i]; o.ID == id {
			return max(0, int(o.Parallelism))
		}
	}
	return 0
}
