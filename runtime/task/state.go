package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/heap"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	statestream "github.com/tidemark/tidemark/snapshot/stream"
)

// BackendKind is a keyed state backend.
type BackendKind string

// BackendHeap keeps keyed state in memory; see package keyed/heap.
const BackendHeap BackendKind = "hashmap"

// StateOptions say how the tasks of a process keep and snapshot state.
type StateOptions struct {
	Backend BackendKind // "" is BackendHeap
	// Dir is a folder of the local disk: BackendLSM puts its databases there, and
	// LocalRecovery the copies of state.
	Dir string
	// LSM is what all databases of the process share; nil is one for the whole program.
	LSM *lsm.Process
	// LocalRecovery keeps the files of keyed state of the last checkpoint on the local
	// disk, for a restart: Flink's state.backend.local-recovery. It needs Dir.
	LocalRecovery bool
	// Full: a checkpoint refers to no file of an earlier one. Those of BackendHeap never do.
	Full bool
	// NoClaim: the snapshot that the job was started from is not its own.
	NoClaim bool
	// Compress snapshots: Flink's execution.checkpointing.snapshot-compression.
	Compress bool
	// Clock is that of TTL; nil is the system's.
	Clock keyed.Clock
	// Log is told of local copies that could not be made; nil is nobody.
	Log *slog.Logger
}

// Restored is the snapshot that a job starts from. Many tasks share it.
type Restored struct {
	Snapshot *snapshot.Snapshot
	// ID of the checkpoint.
	ID int64
	// Own: the job took it.
	Own bool
	// operators by ID
	byID map[metadata.OperatorID]*metadata.OperatorState
}

// NewRestored indexes a snapshot.
func NewRestored(s *snapshot.Snapshot) *Restored {
	r := &Restored{Snapshot: s, ID: s.Checkpoint.ID, byID: map[metadata.OperatorID]*metadata.OperatorState{}}
	for i := range s.Checkpoint.Operators {
		o := &s.Checkpoint.Operators[i]
		r.byID[o.ID] = o
	}
	return r
}

// Operator is the state of an operator; nil if there is none.
func (r *Restored) Operator(id metadata.OperatorID) *metadata.OperatorState {
	if r == nil {
		return nil
	}
	return r.byID[id]
}

// keyedState is a keyed backend without the type of its keys.
type keyedState interface {
	Snapshot(ctx context.Context, id int64) (keyed.Snapshot, error)
	Confirmed(id int64)
	Aborted(id int64)
	Err() error
	Close() error
}

// slot is the state of one operator in one subtask.
type slot struct {
	opts     *StateOptions
	from     *Restored
	keyed    keyedState
	operator *operatorstate.Backend
	earlier  []string // folders of earlier attempts
	copies   string   // folder of local copies; "" for none
}

// IsRestored reports whether the job started from a snapshot that has the operator.
func (e *Env) IsRestored() bool { return e.slot.from.Operator(e.Operator) != nil }

// RestoredID is the ID of the checkpoint that the job started from; 0 if there is none.
func (e *Env) RestoredID() int64 {
	if e.slot.from == nil {
		return 0
	}
	return e.slot.from.ID
}

// KeyGroups is the range of key groups of the subtask.
func (e *Env) KeyGroups() metadata.KeyGroupRange {
	first, last := serializer.KeyGroupRange(e.Subtask, e.Parallelism, e.MaxParallelism)
	return metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)}
}

// OperatorState is the operator's list, union and broadcast state, restored if the
// job was.
func (e *Env) OperatorState() (*operatorstate.Backend, error) {
	if e.slot.operator != nil {
		return e.slot.operator, nil
	}
	o := e.slot.from.Operator(e.Operator)
	if o == nil || o.FullyFinished() {
		e.slot.operator = operatorstate.New()
		return e.slot.operator, nil
	}
	handles, err := operatorstate.Handles(o)
	if err != nil {
		return nil, err
	}
	dealt, err := operatorstate.Redistribute(handles, e.Parallelism)
	if err != nil {
		return nil, err
	}
	e.slot.operator, err = operatorstate.Open(e.Context, e.slot.from.Snapshot, dealt.Parts(e.Subtask))
	return e.slot.operator, err
}

// OpenKeyed makes the keyed backend of an operator, which has one at most, and
// restores it if the job was. States are registered with the backend afterwards.
func OpenKeyed[K comparable](e *Env, key serializer.Serializer[K]) (keyed.Backend[K], error) {
	if e.slot.keyed != nil {
		return nil, errors.New("an operator has one keyed state backend, not two")
	}
	c := keyed.Config[K]{Key: key, MaxParallelism: e.MaxParallelism, KeyGroups: e.KeyGroups(), Clock: e.slot.opts.Clock}
	var b keyed.Backend[K]
	var err error
	switch e.slot.opts.Backend {
	case BackendHeap, "":
		if e.slot.opts.LocalRecovery {
			if err := e.openCopies(); err != nil {
				return nil, err
			}
		}
		b, err = heap.Open(c)
	case BackendLSM:
		b, err = openLSM(e, c)
	default:
		err = fmt.Errorf("%q is no state backend", e.slot.opts.Backend)
	}
	if err != nil {
		return nil, err
	}
	e.slot.keyed = b
	o := e.slot.from.Operator(e.Operator)
	if o == nil || !hasKeyed(o) {
		return b, nil
	}
	if int(o.MaxParallelism) != e.MaxParallelism {
		return nil, fmt.Errorf("max parallelism is %d, but %d in the snapshot %s: it cannot change", e.MaxParallelism, o.MaxParallelism, e.slot.from.Snapshot.Location)
	}
	id := e.Operator.String()
	return b, b.Restore(e.Context, keyed.RestoreSource{Snapshot: e.slot.from.Snapshot, Operator: func(s *snapshot.StateOperator) bool { return s.ID == id }})
}

func hasKeyed(o *metadata.OperatorState) bool {
	for i := range o.Subtasks {
		if o.Subtasks[i].ManagedKeyed != nil {
			return true
		}
	}
	return false
}

func (s *slot) close() error {
	if s.keyed == nil {
		return nil
	}
	err := s.keyed.Close()
	s.keyed = nil
	return err
}

// rawKeyedParts are the handles of raw keyed state, of all former subtasks.
func (e *Env) rawKeyedParts() (parts []*metadata.KeyGroupsHandle, err error) {
	o := e.slot.from.Operator(e.Operator)
	if o == nil {
		return nil, nil
	}
	for i := range o.Subtasks {
		h := o.Subtasks[i].RawKeyed
		if h == nil {
			continue
		}
		g, ok := h.(*metadata.KeyGroupsHandle)
		if !ok {
			return nil, fmt.Errorf("raw keyed state of subtask %d has a handle of tag %d: %w", o.Subtasks[i].Index, h.Tag(), metadata.ErrCorrupt)
		}
		parts = append(parts, g)
	}
	return parts, nil
}

// RawKeyed calls f with the bytes that were written for each key group of the subtask,
// in ascending order of the groups of each former subtask. They are f's to keep.
func (e *Env) RawKeyed(f func(group int, b []byte) error) error {
	parts, err := e.rawKeyedParts()
	if err != nil {
		return err
	}
	mine := e.KeyGroups()
	for _, h := range parts {
		if !overlap(h.Range, mine) {
			continue
		}
		src, name, err := e.slot.from.Snapshot.OpenStream(e.Context, h.Delegate, false)
		if err != nil {
			return err
		}
		if src == nil {
			continue
		}
		regions, err := statestream.Regions(name, h.Range.Start, h.Offsets, src.Size(), -1)
		if err != nil {
			return err
		}
		for _, r := range regions {
			if !mine.Contains(r.KeyGroup) {
				continue
			}
			b, err := e.piece(src, name, r.From, r.To)
			if err != nil {
				return err
			}
			if err := f(int(r.KeyGroup), b); err != nil {
				return err
			}
		}
	}
	return nil
}

func overlap(a, b metadata.KeyGroupRange) bool {
	return a.Start <= b.End() && b.Start <= a.End()
}

// RawOperator calls f with each partition of the raw operator state that is the
// subtask's after redistribution. The bytes are f's to keep.
func (e *Env) RawOperator(f func(b []byte) error) error {
	o := e.slot.from.Operator(e.Operator)
	if o == nil {
		return nil
	}
	old := make([]*metadata.OperatorHandle, o.Parallelism)
	for i := range o.Subtasks {
		if s := &o.Subtasks[i]; s.RawOperator != nil && int(s.Index) < len(old) && s.Index >= 0 {
			old[s.Index] = s.RawOperator
		}
	}
	dealt, err := operatorstate.Redistribute(old, e.Parallelism)
	if err != nil {
		return err
	}
	for _, p := range dealt.Parts(e.Subtask) {
		src, name, err := e.slot.from.Snapshot.OpenStream(e.Context, p.Handle.Delegate, false)
		if err != nil {
			return err
		}
		if src == nil {
			continue
		}
		var all []int64 // of all subtasks, which end a partition too
		for _, s := range p.Handle.States {
			all = append(all, s.Offsets...)
		}
		file := statestream.NewOperator(e.Context, src, name, false, all)
		for _, s := range p.States {
			for _, at := range s.Offsets {
				from, to, err := file.Extent(at)
				if err != nil {
					return err
				}
				b, err := e.piece(src, name, from, to)
				if err != nil {
					return err
				}
				if err := f(b); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pieceBytes is how much of a piece is read first. What is there doubles with each
// read: the size of a stream is what its handle says, and its object may be smaller.
const pieceBytes = 1 << 20

// piece reads bytes [from, to) of a stream, which are inside of it.
func (e *Env) piece(src sst.Source, name string, from, to int64) ([]byte, error) {
	if to-from > math.MaxInt32 {
		return nil, &metadata.FormatError{Name: name, Offset: from, Field: "raw state", Detail: fmt.Sprintf("has %d bytes", to-from), Err: metadata.ErrCorrupt}
	}
	b := []byte{}
	for have := 0; int64(have) < to-from; have = len(b) {
		b = append(b, make([]byte, min(to-from-int64(have), int64(max(have, pieceBytes))))...)
		if _, err := src.ReadAt(e.Context, b[have:], from+int64(have)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return b, nil
}
