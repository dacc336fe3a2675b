package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
)

// ErrNonRestored says that a snapshot has state of an operator that the job lacks.
var ErrNonRestored = errors.New("the snapshot has state of an operator that the job does not have")

// ErrParallelism says that a job cannot run a snapshot's state at its parallelism.
var ErrParallelism = errors.New("the snapshot's state cannot be restored at this parallelism")

// AssignOptions change an assignment. Nil is the default.
type AssignOptions struct {
	// AllowNonRestored drops the state of operators that the job does not have
	// (Flink's allowNonRestoredState). Dropped names them.
	AllowNonRestored bool
	// FixedMax says, by vertex, that the user set its max parallelism: another one
	// in the snapshot is an error then. Otherwise the job takes the snapshot's.
	FixedMax func(vertex int) bool
}

// Assignment is a snapshot's state dealt out among the tasks of a job: Flink's
// StateAssignmentOperation. It may be used by many goroutines.
type Assignment struct {
	Checkpoint *metadata.Checkpoint
	// MaxParallelism of each vertex of the graph, the snapshot's where it has one.
	MaxParallelism []int32
	// Dropped are the operators whose state nobody takes.
	Dropped []metadata.OperatorID
	// FinishedVertices had finished as a whole: their tasks have nothing to do.
	FinishedVertices []bool

	g    *graph
	byOp map[metadata.OperatorID]*assignedOperator
}

type assignedOperator struct {
	state        *metadata.OperatorState
	managed, raw *operatorstate.Redistribution
	max          int32
	parallelism  int32
}

// SubtaskRestore is what one operator gets in one subtask.
type SubtaskRestore struct {
	// Operator is its state in the snapshot, of all old subtasks; nil if it has none.
	Operator *metadata.OperatorState
	// KeyGroups of the new subtask.
	KeyGroups metadata.KeyGroupRange
	// Old are the old subtasks whose keyed state lies at least partly in KeyGroups.
	Old []int32
	// ManagedKeyed and RawKeyed are their handles, whole: some of their key groups
	// may belong to other subtasks.
	ManagedKeyed, RawKeyed []metadata.KeyedHandle
	// ManagedOperator and RawOperator state, redistributed.
	ManagedOperator, RawOperator []operatorstate.Part
	// Rescaled says that the old parallelism was another one. Channel state of old
	// subtasks is not dealt out here: a channel belongs to two of them.
	Rescaled bool
	// Finished: the subtask had finished when the snapshot was taken.
	Finished bool
}

// Assign deals the state of a snapshot out among the tasks of a job. Nothing is
// read but the metadata.
func Assign(m *metadata.Checkpoint, g Graph, opts *AssignOptions) (*Assignment, error) {
	if opts == nil {
		opts = &AssignOptions{}
	}
	n, err := newGraph(g)
	if err != nil {
		return nil, err
	}
	a := &Assignment{Checkpoint: m, g: n, byOp: map[metadata.OperatorID]*assignedOperator{}, MaxParallelism: make([]int32, len(g.Vertices)), FinishedVertices: make([]bool, len(g.Vertices))}
	for v := range g.Vertices {
		a.MaxParallelism[v] = g.Vertices[v].MaxParallelism
	}
	var missing []string
	for i := range m.Operators {
		o := &m.Operators[i]
		at, ok := n.operators[o.ID]
		if !ok {
			if !hasState(o) {
				continue
			}
			a.Dropped = append(a.Dropped, o.ID)
			missing = append(missing, operatorLabel(o))
			continue
		}
		if a.byOp[o.ID] != nil {
			return nil, fmt.Errorf("operator %s stands twice in checkpoint %d: %w", o.ID, m.ID, metadata.ErrCorrupt)
		}
		if err := a.take(o, at, opts); err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 && !opts.AllowNonRestored {
		return nil, fmt.Errorf("checkpoint %d: %w: %s; it may be dropped by allowing non-restored state", m.ID, ErrNonRestored, strings.Join(missing, ", "))
	}
	return a, a.finished()
}

func operatorLabel(o *metadata.OperatorState) string {
	if uid := o.UID.Go(); uid != "" {
		return uid + " (" + o.ID.String() + ")"
	}
	return o.ID.String()
}

func hasState(o *metadata.OperatorState) bool {
	if o.Coordinator != nil {
		return true
	}
	for i := range o.Subtasks {
		if !o.Subtasks[i].Finished && !isEmpty(&o.Subtasks[i]) {
			return true
		}
	}
	return false
}

// take assigns the state of one operator of the job.
func (a *Assignment) take(o *metadata.OperatorState, at operatorPlace, opts *AssignOptions) error {
	v := &a.g.Vertices[at.vertex]
	name := v.Operators[at.index].label()
	if o.MaxParallelism < 1 || o.MaxParallelism > 1<<15 {
		return fmt.Errorf("operator %s: maximum parallelism is %d: %w", name, o.MaxParallelism, metadata.ErrCorrupt)
	}
	if v.Parallelism > o.MaxParallelism && !o.FullyFinished() {
		return fmt.Errorf("operator %s: %w: parallelism %d, and the state has %d key groups: at most so many subtasks can share it", name, ErrParallelism, v.Parallelism, o.MaxParallelism)
	}
	if m := a.MaxParallelism[at.vertex]; m != o.MaxParallelism && !o.FullyFinished() {
		if opts.FixedMax != nil && opts.FixedMax(at.vertex) {
			return fmt.Errorf("operator %s: %w: its maximum parallelism was set to %d, the state has %d", name, ErrParallelism, m, o.MaxParallelism)
		}
		a.MaxParallelism[at.vertex] = o.MaxParallelism
	}
	s := &assignedOperator{state: o, max: o.MaxParallelism, parallelism: v.Parallelism}
	a.byOp[o.ID] = s
	if o.FullyFinished() {
		return nil
	}
	managed, err := operatorstate.Handles(o)
	if err != nil {
		return err
	}
	raw := make([]*metadata.OperatorHandle, len(managed))
	for i := range o.Subtasks {
		raw[o.Subtasks[i].Index] = o.Subtasks[i].RawOperator
	}
	if s.managed, err = operatorstate.Redistribute(managed, int(v.Parallelism)); err != nil {
		return fmt.Errorf("operator %s: %w", name, err)
	}
	if s.raw, err = operatorstate.Redistribute(raw, int(v.Parallelism)); err != nil {
		return fmt.Errorf("operator %s: %w", name, err)
	}
	return nil
}

// finished finds the vertices that had finished, and refuses what Flink refuses:
// a vertex some of whose operators had, or one behind which a vertex has not been
// told that its input ended.
func (a *Assignment) finished() error {
	for v := range a.g.Vertices {
		vertex := &a.g.Vertices[v]
		finished, other := 0, 0
		for k := range vertex.Operators {
			if o := a.byOp[vertex.Operators[k].ID]; o != nil && o.state.FullyFinished() {
				finished++
			} else {
				other++
			}
		}
		if finished > 0 && other > 0 {
			return fmt.Errorf("vertex %s: some of its operators had finished, others had not or are new: the chain cannot be restored", vertex.label())
		}
		a.FinishedVertices[v] = finished > 0
		for _, in := range vertex.Inputs {
			if a.FinishedVertices[v] && !a.FinishedVertices[in.From] {
				return fmt.Errorf("vertex %s had finished, but its input %s had not or is new: the job cannot be restored", vertex.label(), a.g.Vertices[in.From].label())
			}
		}
	}
	return nil
}

// Subtask is what an operator gets in a subtask of the job.
func (a *Assignment) Subtask(op metadata.OperatorID, subtask int32) *SubtaskRestore {
	r := &SubtaskRestore{}
	at, ok := a.g.operators[op]
	if !ok {
		return r
	}
	parallelism := a.g.Vertices[at.vertex].Parallelism
	first, last := serializer.KeyGroupRange(int(subtask), int(parallelism), int(a.MaxParallelism[at.vertex]))
	r.KeyGroups = metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)}
	s := a.byOp[op]
	if s == nil {
		return r
	}
	r.Operator = s.state
	if s.state.FullyFinished() {
		r.Finished = true
		return r
	}
	r.Rescaled = s.state.Parallelism != parallelism
	r.ManagedOperator, r.RawOperator = s.managed.Parts(int(subtask)), s.raw.Parts(int(subtask))
	for i := range s.state.Subtasks {
		old := &s.state.Subtasks[i]
		if old.Finished {
			r.Finished = r.Finished || !r.Rescaled && old.Index == subtask
			continue
		}
		mine := false
		if h := old.ManagedKeyed; h != nil && overlaps(h.KeyGroups(), r.KeyGroups) {
			r.ManagedKeyed, mine = append(r.ManagedKeyed, h), true
		}
		if h := old.RawKeyed; h != nil && overlaps(h.KeyGroups(), r.KeyGroups) {
			r.RawKeyed, mine = append(r.RawKeyed, h), true
		}
		if mine {
			r.Old = append(r.Old, old.Index)
		}
	}
	return r
}

func overlaps(a, b metadata.KeyGroupRange) bool { return a.Start <= b.End() && b.Start <= a.End() }

// Coordinator is the state of an operator's coordinator; nil if it has none.
func (a *Assignment) Coordinator(op metadata.OperatorID) []byte {
	s := a.byOp[op]
	if s == nil {
		return nil
	}
	if h, ok := s.state.Coordinator.(*metadata.ByteStreamHandle); ok && h != nil {
		return h.Data
	}
	return nil
}
