package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// defaultPartitions is the name under which raw operator state stands in a snapshot.
// Source: Flink, DefaultOperatorStateBackend.DEFAULT_OPERATOR_STATE_NAME.
const defaultPartitions = "_default_"

// Snapshotting is one operator's part of one checkpoint, in its synchronous part.
type Snapshotting struct {
	ID      int64
	Barrier event.Barrier

	env         *Env
	rawKeyed    rawStream
	begun       map[int]bool // key groups of rawKeyed
	rawOperator rawStream
}

// rawStream is what an operator wrote with its own hands: pieces, each of which ends
// where the next one begins. A piece without bytes cannot be told from the one behind
// it, since only offsets are kept, so it is none.
type rawStream struct {
	buf    bytes.Buffer
	pieces []rawPiece
}

type rawPiece struct {
	group  int32 // of raw keyed state
	offset int64
}

func (r *rawStream) begin(group int32) *bytes.Buffer {
	r.dropEmpty()
	r.pieces = append(r.pieces, rawPiece{group, int64(r.buf.Len())})
	return &r.buf
}

// dropEmpty drops the last piece if nothing was written for it.
func (r *rawStream) dropEmpty() {
	if n := len(r.pieces); n > 0 && r.pieces[n-1].offset == int64(r.buf.Len()) {
		r.pieces = r.pieces[:n-1]
	}
}

func (r *rawStream) used() bool { return r.buf.Len() > 0 }

// offsets are those of the partitions, in the order in which they were begun.
func (r *rawStream) offsets() (all []int64) {
	r.dropEmpty()
	for _, p := range r.pieces {
		all = append(all, p.offset)
	}
	return all
}

// offsetsByGroup has one for each key group: Flink's -1 is that of a group without
// bytes.
func (r *rawStream) offsetsByGroup(groups metadata.KeyGroupRange) []int64 {
	r.dropEmpty()
	all := make([]int64, groups.Count)
	for i := range all {
		all[i] = -1
	}
	for _, p := range r.pieces {
		all[p.group-groups.Start] = p.offset
	}
	return all
}

// RawKeyed begins the bytes of a key group in the raw keyed state: Flink's
// KeyedStateCheckpointOutputStream.startNewKeyGroup. Each group of the subtask can be
// begun once, in any order; one for which nothing is written is not in the snapshot.
// What is written goes to the group that was begun last, until Snapshot returns, and is
// kept in memory until then.
func (s *Snapshotting) RawKeyed(group int) (io.Writer, error) {
	r := s.env.KeyGroups()
	if !r.Contains(int32(group)) {
		return nil, fmt.Errorf("raw keyed state of key group %d, which is not in %d to %d of this subtask", group, r.Start, r.End())
	}
	if s.begun[group] {
		return nil, fmt.Errorf("raw keyed state of key group %d is begun twice", group)
	}
	if s.begun == nil {
		s.begun = map[int]bool{}
	}
	s.begun[group] = true
	return s.rawKeyed.begin(int32(group)), nil
}

// RawOperator begins a partition of the raw operator state, the piece in which it is
// dealt out when the parallelism changes: Flink's
// OperatorStateCheckpointOutputStream.startNewPartition. A partition for which nothing is
// written is not in the snapshot. What is written goes to the partition that was begun
// last, until Snapshot returns, and is kept in memory until then.
func (s *Snapshotting) RawOperator() io.Writer { return s.rawOperator.begin(0) }

// frozen is the synchronous part's result of one operator: what the asynchronous
// part writes.
type frozen struct {
	place    Place
	groups   metadata.KeyGroupRange
	keyed    keyed.Snapshot
	operator *operatorstate.Snapshot
	raw      *Snapshotting
}

func (f *frozen) release() {
	if f.keyed != nil {
		f.keyed.Release()
	}
	if f.operator != nil {
		f.operator.Release()
	}
}

// freeze takes the synchronous part of one operator.
func freeze(ctx context.Context, op Operator, e *Env, b event.Barrier) (f *frozen, err error) {
	f = &frozen{place: e.Place, groups: e.KeyGroups(), raw: &Snapshotting{ID: b.ID, Barrier: b, env: e}}
	if err := op.Snapshot(f.raw); err != nil {
		return nil, err
	}
	if k := e.slot.keyed; k != nil {
		if f.keyed, err = k.Snapshot(ctx, b.ID); err != nil {
			return nil, err
		}
	}
	if o := e.slot.operator; o != nil {
		f.operator = o.Snapshot()
	}
	return f, nil
}

// write is the asynchronous part of one operator.
func (f *frozen) write(ctx context.Context, to *snapshot.Writer, b event.Barrier, o *StateOptions, persisted *int64) (*metadata.SubtaskState, error) {
	s := &metadata.SubtaskState{Index: int32(f.place.Subtask)}
	if f.keyed != nil {
		up := &keyed.UploadOptions{WriteOptions: keyed.WriteOptions{Compress: o.Compress, Last: true}}
		if b.Options.Type == event.SavepointCanonical {
			up.Format = keyed.FormatCanonical
		}
		if b.Options.Type == event.Checkpoint || b.Options.Type == event.FullCheckpoint {
			up.LocalCopy = f.raw.env.slot.copyDir(b.ID)
			up.LocalCopyFailed = func(err error) { f.raw.env.slot.copyFailed(f.place, b.ID, err) }
		}
		up.Full = o.Full || b.Options.Type != event.Checkpoint
		up.Forward = b.Options.Type == event.FullCheckpoint && !o.Full
		h, err := f.keyed.Upload(ctx, to, up)
		if err != nil {
			return nil, err
		}
		if !isNil(h) {
			s.ManagedKeyed = h
		}
	}
	if f.operator != nil {
		h, err := f.operator.Write(ctx, to, &operatorstate.WriteOptions{Compress: o.Compress})
		if err != nil {
			return nil, err
		}
		if h != nil {
			s.ManagedOperator, s.ManagedOperatorFlag = h, 1
		}
	}
	if f.raw.rawKeyed.used() {
		h, err := f.raw.rawKeyed.write(ctx, to)
		if err != nil {
			return nil, err
		}
		if h != nil {
			s.RawKeyed = &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: f.groups, Offsets: f.raw.rawKeyed.offsetsByGroup(f.groups), Delegate: h}
		}
	}
	if f.raw.rawOperator.used() {
		h, err := f.raw.rawOperator.write(ctx, to)
		if err != nil {
			return nil, err
		}
		if h != nil {
			s.RawOperator = &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, Delegate: h,
				States: []metadata.NamedPartitions{{Name: javaio.NewString(defaultPartitions), Mode: metadata.ModeSplit, Offsets: f.raw.rawOperator.offsets()}}}
			s.RawOperatorFlag = 1
		}
	}
	*persisted += handleBytes(s)
	return s, nil
}

func (r *rawStream) write(ctx context.Context, to *snapshot.Writer) (metadata.StreamHandle, error) {
	f := to.File(ctx, snapshot.ScopeExclusive)
	defer f.Abort()
	if _, err := f.Write(r.buf.Bytes()); err != nil {
		return nil, err
	}
	return f.Close()
}

// isNil reports whether an interface holds nothing: a typed nil counts.
func isNil(h metadata.KeyedHandle) bool {
	switch h := h.(type) {
	case nil:
		return true
	case *metadata.KeyGroupsHandle:
		return h == nil
	case *metadata.IncrementalHandle:
		return h == nil
	}
	return false
}

// asyncPart writes what was frozen, all operators of the chain, and releases it.
func asyncPart(ctx context.Context, parts []*frozen, to *snapshot.Writer, b event.Barrier, o *StateOptions) (states []event.OperatorSubtask, m event.Metrics, err error) {
	start := time.Now()
	defer func() {
		for _, f := range parts {
			f.release()
		}
	}()
	for _, f := range parts {
		s, err := f.write(ctx, to, b, o, &m.BytesPersisted)
		if err != nil {
			return nil, m, fmt.Errorf("operator %s: %w", f.place.Name, err)
		}
		states = append(states, event.OperatorSubtask{ID: f.place.Operator, State: s})
	}
	m.AsyncMillis = time.Since(start).Milliseconds()
	return states, m, nil
}

// handleBytes is how many bytes this checkpoint added for a subtask.
func handleBytes(s *metadata.SubtaskState) (n int64) {
	n += keyedBytes(s.ManagedKeyed) + keyedBytes(s.RawKeyed)
	for _, h := range []*metadata.OperatorHandle{s.ManagedOperator, s.RawOperator} {
		if h != nil {
			n += streamBytes(h.Delegate)
		}
	}
	return n
}

func keyedBytes(h metadata.KeyedHandle) int64 {
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		return streamBytes(h.Delegate)
	case *metadata.IncrementalHandle:
		return max(h.CheckpointedSize, 0)
	}
	return 0
}

func streamBytes(h metadata.StreamHandle) int64 {
	switch h := h.(type) {
	case *metadata.ByteStreamHandle:
		return int64(len(h.Data))
	case *metadata.FileHandle:
		return max(h.Size, 0)
	case *metadata.RelativeFileHandle:
		return max(h.Size, 0)
	case *metadata.SegmentHandle:
		return h.Length
	}
	return 0
}

var errNoWriter = errors.New("the checkpoint has no place to write to")
