package runtime_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

const (
	rawKeys      = 40
	rawMarks     = 3 // every so many numbers is one
	rawKeyGroups = 64
)

// rawCounter keeps its state itself: counts by key, which it writes as raw keyed
// state, and the first marks among its numbers, each a partition of raw operator state.
// It sends each number, and 1 if it is a mark.
type rawCounter struct {
	counts map[int]map[int64]int64 // by key group
	marks  []int64
	hook   func() error
}

func rawGroup(key int64) int {
	return serializer.AssignKeyGroup(int32(key^key>>32), rawKeyGroups) // Java's Long.hashCode
}

func (r *rawCounter) Open(rt *stream.Runtime) error {
	r.counts = map[int]map[int64]int64{}
	mine := rt.KeyGroups()
	err := rt.RawKeyed(func(group int, b []byte) error {
		if len(b) == 0 || len(b)%16 != 0 || r.counts[group] != nil || !mine.Contains(int32(group)) {
			return fmt.Errorf("key group %d of %d to %d comes with %d bytes, known: %v", group, mine.Start, mine.End(), len(b), r.counts[group] != nil)
		}
		m := map[int64]int64{}
		for ; len(b) > 0; b = b[16:] {
			key := int64(binary.BigEndian.Uint64(b))
			if rawGroup(key) != group {
				return fmt.Errorf("key %d in key group %d", key, group)
			}
			m[key] = int64(binary.BigEndian.Uint64(b[8:]))
		}
		r.counts[group] = m
		return nil
	})
	if err != nil {
		return err
	}
	return rt.RawOperator(func(b []byte) error {
		if len(b) != 8 {
			return fmt.Errorf("a partition of %d bytes", len(b))
		}
		r.marks = append(r.marks, int64(binary.BigEndian.Uint64(b)))
		return nil
	})
}

func (r *rawCounter) Process(c *stream.Context[string], v int64) error {
	if err := r.hook(); err != nil {
		return err
	}
	key := v % rawKeys
	g := rawGroup(key)
	if r.counts[g] == nil {
		r.counts[g] = map[int64]int64{}
	}
	r.counts[g][key]++
	marked := 0
	if v%rawMarks == 0 && len(r.marks) < 100 {
		r.marks, marked = append(r.marks, v), 1
	}
	c.Emit(fmt.Sprintf("n %d %d", v, marked))
	return nil
}

// Snapshot writes the groups from the last to the first, with begun ones between them
// for which nothing is written; partitions likewise.
func (r *rawCounter) Snapshot(s *task.Snapshotting) error {
	for g := rawKeyGroups - 1; g >= 0; g-- {
		w, err := s.RawKeyed(g)
		if err != nil {
			continue // it is another subtask's
		}
		if _, err := s.RawKeyed(g); err == nil {
			return fmt.Errorf("key group %d can be begun twice", g)
		}
		for key, n := range r.counts[g] {
			if err := binary.Write(w, binary.BigEndian, [2]int64{key, n}); err != nil {
				return err
			}
		}
	}
	for _, v := range r.marks {
		s.RawOperator()
		if err := binary.Write(s.RawOperator(), binary.BigEndian, v); err != nil {
			return err
		}
		s.RawOperator()
	}
	return nil
}

func (r *rawCounter) Finish(c *stream.Context[string]) error {
	for _, m := range r.counts {
		for key, n := range m {
			c.Emit(fmt.Sprintf("k %d %d", key, n))
		}
	}
	for _, v := range r.marks {
		c.Emit(fmt.Sprintf("m %d", v))
	}
	return nil
}

func rawJob(parallelism int, to string, hook func() error) *stream.Job {
	j := stream.NewJob("raw", &stream.JobOptions{Parallelism: parallelism, MaxParallelism: rawKeyGroups})
	nums := stream.From(j, stream.SlowSequence(0, 1<<40, 2_000), stream.UID("numbers"))
	byKey := stream.KeyBy(nums, serializer.Int64, func(v int64) int64 { return v % rawKeys })
	out := stream.Apply(byKey.Stream, func() stream.Function[int64, string] { return &rawCounter{hook: hook} }, stream.UID("raw"))
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(out, sink, stream.UID("sink"))
	return j
}

// TestRawState takes a job with raw keyed and raw operator state over failures and
// savepoints of both formats, at the same, a larger and a smaller parallelism. At the
// end each number was counted once, each mark is in one subtask, and the metadata of
// each savepoint has the offsets that Flink's streams would have.
func TestRawState(t *testing.T) {
	dir, to := "file://"+filepath.ToSlash(t.TempDir()), t.TempDir()
	from := ""
	for i, leg := range []struct {
		parallelism int
		typ         event.SnapshotType
	}{{2, event.SavepointCanonical}, {2, event.SavepointNative}, {3, event.SavepointCanonical}, {1, event.SavepointCanonical}} {
		var fail atomic.Bool
		var seen atomic.Int64
		hook := func() error {
			if fail.CompareAndSwap(true, false) {
				return errInjected
			}
			seen.Add(1)
			return nil
		}
		e, err := runtime.Start(t.Context(), rawJob(leg.parallelism, to, hook), &runtime.Options{Checkpoints: dir, Restore: from, Restart: fixedDelay(t, 1)})
		require.NoError(t, err)
		checkpointWhenRunning(t, e)
		for n := seen.Load(); seen.Load() < n+100; { // that the failure makes undone
			time.Sleep(time.Millisecond)
		}
		fail.Store(true)
		for e.Restarts() == 0 {
			time.Sleep(time.Millisecond)
		}
		checkpointWhenRunning(t, e)
		for n := seen.Load(); seen.Load() < n+100; {
			time.Sleep(time.Millisecond)
		}
		from = stop(t, e, leg.typ, dir, i == 3).Path
		if i < 3 {
			requireRawMetadata(t, from, leg.parallelism)
		}
	}
	requireRawResults(t, readLines(t, to))
}

// checkpointWhenRunning takes a checkpoint as soon as all tasks of a job run.
func checkpointWhenRunning(t *testing.T, e *runtime.Execution) checkpoint.Result {
	t.Helper()
	for {
		r, err := e.Checkpoint(t.Context(), event.Checkpoint, "")
		if err == nil {
			return r
		}
		var refused *checkpoint.Failure
		require.ErrorAs(t, err, &refused)
		time.Sleep(time.Millisecond)
	}
}

func requireRawMetadata(t *testing.T, url string, parallelism int) {
	t.Helper()
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	opened, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	m := opened.Checkpoint
	id := metadata.OperatorIDFromUID("raw")
	at := slices.IndexFunc(m.Operators, func(o metadata.OperatorState) bool { return o.ID == id })
	require.GreaterOrEqual(t, at, 0)
	groups := map[int]bool{}
	for k := range int64(rawKeys) {
		groups[rawGroup(k)] = true
	}
	found := map[int]bool{}
	require.Len(t, m.Operators[at].Subtasks, parallelism)
	for _, s := range m.Operators[at].Subtasks {
		first, last := serializer.KeyGroupRange(int(s.Index), parallelism, rawKeyGroups)
		require.Nil(t, s.ManagedKeyed)
		h, ok := s.RawKeyed.(*metadata.KeyGroupsHandle)
		require.True(t, ok, "%T", s.RawKeyed)
		require.EqualValues(t, first, h.Range.Start)
		require.EqualValues(t, last, h.Range.End())
		next := int64(0) // groups were written from the last to the first
		for i := len(h.Offsets) - 1; i >= 0; i-- {
			if h.Offsets[i] < 0 {
				require.EqualValues(t, -1, h.Offsets[i])
				continue
			}
			require.Zero(t, h.Offsets[i]%16)
			require.GreaterOrEqual(t, h.Offsets[i], next)
			next = h.Offsets[i] + 16
			found[first+i] = true
		}
		require.NotNil(t, s.RawOperator)
		require.Len(t, s.RawOperator.States, 1)
		p := s.RawOperator.States[0]
		require.Equal(t, "_default_", p.Name.Go()) // Flink, OperatorStateCheckpointOutputStream
		require.Equal(t, metadata.ModeSplit, p.Mode)
		for i, o := range p.Offsets {
			require.EqualValues(t, 8*i, o)
		}
	}
	require.Equal(t, groups, found)
	// Package snapshot reads them as states of bytes.
	rows := map[snapshot.StateKind]int{}
	for r, err := range snapshot.Rows(t.Context(), opened, nil) {
		require.NoError(t, err)
		if r.State.Operator.ID == id.String() {
			rows[r.State.Kind]++
		}
	}
	require.Equal(t, map[snapshot.StateKind]int{snapshot.StateRawKeyed: len(groups), snapshot.StateRawOperator: parallelism}, rows)
}

func requireRawResults(t *testing.T, lines []string) {
	t.Helper()
	numbers := map[int64]bool{}
	counts, wantCounts := map[int64]int64{}, map[int64]int64{}
	var marks, wantMarks []int64
	for _, l := range lines {
		var kind string
		var v, n int64
		_, err := fmt.Sscan(l+" 0", &kind, &v, &n)
		require.NoError(t, err)
		switch kind {
		case "n":
			require.False(t, numbers[v], "%d twice", v)
			numbers[v] = true
			wantCounts[v%rawKeys]++
			if n == 1 {
				wantMarks = append(wantMarks, v)
			}
		case "k":
			require.NotContains(t, counts, v)
			counts[v] = n
		case "m":
			marks = append(marks, v)
		}
	}
	begins := 0 // of runs of numbers without a gap: there is one for each split
	for v := range numbers {
		if !numbers[v-1] {
			begins++
		}
	}
	require.Equal(t, 2, begins)
	require.Equal(t, wantCounts, counts)
	slices.Sort(marks)
	slices.Sort(wantMarks)
	require.Equal(t, wantMarks, marks)
}
