package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// captured is a capture that is complete, of input channels with these payloads.
func captured(payloads ...string) *Capture {
	c := NewCapture(1)
	for i, p := range payloads {
		if p != "" {
			c.addBytes(0, i, []byte(p))
		}
	}
	c.InputsDone()
	c.OutputsDone()
	return c
}

func filesIn(t *testing.T, pool *blobstore.Pool, w *snapshot.Writer) (names []string) {
	store, dir, err := pool.Resolve(t.Context(), w.Layout().Dir)
	require.NoError(t, err)
	for info, err := range store.List(t.Context(), &blobstore.ListOptions{Prefix: dir + "/"}) {
		require.NoError(t, err)
		names = append(names, info.Name)
	}
	return names
}

func TestNothingInFlightWritesNothing(t *testing.T) {
	to, pool := newSnapshot(t, 1, -1)
	defer pool.Close()
	st, err := captured("", "").Write(t.Context(), to, 0)
	require.NoError(t, err)
	require.Equal(t, &State{}, st)
	require.Empty(t, filesIn(t, pool, to))
}

func TestSubtasksShareAFile(t *testing.T) {
	to, pool := newSnapshot(t, 1, -1)
	defer pool.Close()
	f := NewStateFile(t.Context(), to, 3)
	states := make([]*State, 3)
	var wg sync.WaitGroup
	for i := range states {
		wg.Go(func() {
			var err error
			states[i], err = f.Write(t.Context(), captured("", strings.Repeat("x", 10*i)), int32(i))
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Len(t, filesIn(t, pool, to), 1)
	require.Empty(t, states[0].Inputs)
	for i := 1; i < 3; i++ {
		require.Len(t, states[i].Inputs, 1)
		h := states[i].Inputs[0]
		require.EqualValues(t, i, h.Subtask)
		require.EqualValues(t, 4+10*i, h.Size)
		require.Equal(t, states[1].Inputs[0].Delegate, h.Delegate)
		require.EqualValues(t, 1, h.Channels[0].Channel)
	}
}

func TestOneFailureFailsTheSharedFile(t *testing.T) {
	to, pool := newSnapshot(t, 1, -1)
	defer pool.Close()
	f := NewStateFile(t.Context(), to, 3)
	broken := errors.New("task was cancelled")
	done := make(chan error, 2)
	go func() { // is done and waits for the others
		_, err := f.Write(t.Context(), captured("data"), 0)
		done <- err
	}()
	go func() { // waits for its barriers
		c := NewCapture(1)
		c.addBytes(0, 0, []byte("data"))
		_, err := f.Write(t.Context(), c, 1)
		done <- err
	}()
	c := NewCapture(1)
	c.Abort(broken)
	_, err := f.Write(t.Context(), c, 2)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrSharedFile)
	for range 2 {
		require.ErrorIs(t, <-done, ErrSharedFile)
	}
	require.Empty(t, filesIn(t, pool, to))
}

// An abort gives the buffers back at once, and what comes after it too.
func TestAbortReleasesBuffers(t *testing.T) {
	pool := NewPool(&PoolOptions{BufferSize: 64})
	p, err := NewPartition(pool, 0, 1, nil)
	require.NoError(t, err)
	g := NewGate(0, 1)
	Connect(p, 0, g, 0)
	for range 4 {
		writeRecord(t, p, 0, strings.Repeat("x", 50))
	}
	c := NewCapture(1)
	p.EmitBarrier(event.Barrier{ID: 1, Options: event.Options{Alignment: event.Unaligned}}, c)
	require.NotZero(t, c.bytes)
	c.Abort(ErrCancelled)
	c.Abort(errors.New("again"))
	p.EmitBarrier(event.Barrier{ID: 2, Options: event.Options{Alignment: event.Unaligned}}, c) // late
	for {
		it, ok, err := g.Poll()
		require.NoError(t, err)
		if !ok {
			break
		}
		if it.Records != nil {
			values(t, it)
		}
	}
	to, store := newSnapshot(t, 1, -1)
	defer store.Close()
	_, err = c.Write(t.Context(), to, 0)
	require.ErrorIs(t, err, ErrCancelled)
	g.Close()
	p.Close()
	require.Equal(t, PoolUsage{}, pool.Usage())
}

func TestWriteEndsWithItsContext(t *testing.T) {
	reason := errors.New("task was cancelled")
	to, pool := newSnapshot(t, 1, -1)
	defer pool.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	c := NewCapture(1)
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(ctx, to, 0)
		done <- err
	}()
	c.addBytes(0, 0, []byte("data"))
	cancel(reason)
	require.ErrorIs(t, <-done, reason)
	require.Empty(t, filesIn(t, pool, to))
}

// Wherever the store fails, the error is its, and no file is left.
func TestWriteFaults(t *testing.T) {
	for n := 1; ; n++ {
		faults := blobstore.NewFaults(blobstore.Fault{Nth: n, Name: func(name string) bool { return !strings.HasSuffix(name, snapshot.MetadataName) }})
		pool := blobstore.NewPool(nil, faults.Wrap)
		loc, err := blobstore.Parse("mem://" + snapshot.NewJobID() + "/chk")
		require.NoError(t, err)
		to, err := snapshot.NewWriter(t.Context(), pool, snapshot.SavepointIn(loc), &snapshot.WriterOptions{MemoryThreshold: -1})
		require.NoError(t, err)
		_, err = captured(strings.Repeat("x", 100), strings.Repeat("y", 100)).Write(t.Context(), to, 0)
		if !faults.Fired() {
			require.NoError(t, err)
			require.Greater(t, n, 2)
			break
		}
		require.ErrorIs(t, err, blobstore.ErrInjected)
		require.NoError(t, to.Abort(t.Context()))
		require.Empty(t, filesIn(t, pool, to))
		require.NoError(t, pool.Close())
	}
}

func TestMappers(t *testing.T) {
	const most = 16
	for old := 1; old <= 6; old++ {
		for now := 1; now <= 6; now++ {
			for _, m := range []Mapper{RoundRobin, First} {
				seen := map[int]int{}
				for k := range now {
					for _, i := range m.OldSubtasks(k, old, now, most) {
						seen[i]++
					}
				}
				require.Len(t, seen, old, "%s %d to %d", m, old, now)
				for i, n := range seen {
					require.Equal(t, 1, n, "%s: subtask %d", m, i)
				}
			}
			for k := range now {
				want := map[int]bool{}
				for kg := range most {
					if serializer.SubtaskOf(kg, now, most) == k {
						want[serializer.SubtaskOf(kg, old, most)] = true
					}
				}
				got := map[int]bool{}
				for _, i := range Range.OldSubtasks(k, old, now, most) {
					got[i] = true
				}
				require.Equal(t, want, got, "%d of %d, from %d", k, now, old)
				require.Len(t, Full.OldSubtasks(k, old, now, most), old)
				require.Equal(t, []int{k % old}, Replicate.OldSubtasks(k, old, now, most))
			}
		}
	}
	require.Equal(t, []string{"round robin", "range", "first", "full", "replicate", "mapper(9)"},
		strings.Split(fmt.Sprint(RoundRobin, ",", Range, ",", First, ",", Full, ",", Replicate, ",", Mapper(9)), ","))
}

func elements(list ...[]byte) string {
	var b []byte
	for _, e := range list {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return string(b)
}

func plainRecord(v string) []byte { return append([]byte{TagRecord}, v...) }

// inFlightOf is a snapshot in which subtask i of the reader had these payloads.
func inFlightOf(t *testing.T, up int, payloads ...[]string) (*snapshot.Snapshot, *blobstore.Pool) {
	to, pool := newSnapshot(t, 1, 0)
	down := metadata.OperatorState{ID: downID, Parallelism: int32(len(payloads)), MaxParallelism: 16}
	for i, channels := range payloads {
		st, err := captured(channels...).Write(t.Context(), to, int32(i))
		require.NoError(t, err)
		down.Subtasks = append(down.Subtasks, metadata.SubtaskState{Index: int32(i), InputChannels: st.Inputs})
	}
	c := &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{{ID: upID, Parallelism: int32(up), MaxParallelism: 16}, down}}
	require.NoError(t, to.Commit(t.Context(), c))
	s, err := snapshot.Open(t.Context(), pool, to.Layout().Dir, nil)
	require.NoError(t, err)
	return s, pool
}

func recoverAll(t *testing.T, s *snapshot.Snapshot, e Exchange, subtask int) (out []string, err error) {
	return recoverKept(t, s, e, subtask, nil)
}

func recoverKept(t *testing.T, s *snapshot.Snapshot, e Exchange, subtask int, keep func([]byte) (bool, error)) (out []string, err error) {
	r, err := Restore(s, e, subtask)
	if err != nil {
		return nil, err
	}
	g := NewGate(0, e.UpParallelism)
	if err := g.Recover(t.Context(), r, keep); err != nil {
		return nil, err
	}
	for {
		it, ok, err := g.Poll()
		if err != nil || !ok {
			return out, err
		}
		for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
			out = append(out, fmt.Sprintf("%d:%d:%s", it.Channel, e[0], e[1:]))
		}
	}
}

// Watermarks of several old channels that come back in one must not make records of
// the later ones late.
func TestWatermarksOfJoinedChannels(t *testing.T) {
	wm := func(v int64) []byte { return AppendWatermark(nil, v) }
	text := func(channel int, v int64) string {
		return fmt.Sprintf("%d:2:%s", channel, binary.BigEndian.AppendUint64(nil, uint64(v)))
	}
	e := Exchange{Up: upID, Down: downID, UpParallelism: 1, DownParallelism: 1}
	idle := AppendWatermarkStatus(nil, true)
	active := AppendWatermarkStatus(nil, false)
	for name, c := range map[string]struct {
		payloads [][]string
		want     []string
	}{
		"alone": {[][]string{{elements(wm(5), plainRecord("a"), wm(7))}}, []string{text(0, 5), "0:1:a", text(0, 7)}},
		"smallest last": {[][]string{{elements(wm(5), plainRecord("a"), wm(7))}, {elements(plainRecord("b"), wm(6))}},
			[]string{"0:1:a", "0:1:b", text(0, 6)}},
		"one without":  {[][]string{{elements(wm(5), plainRecord("a"))}, {elements(plainRecord("b"))}}, []string{"0:1:a", "0:1:b"}},
		"one idle":     {[][]string{{elements(wm(5), plainRecord("a"))}, {elements(plainRecord("b"), wm(3), idle)}}, []string{"0:1:a", "0:1:b", text(0, 5)}},
		"active again": {[][]string{{elements(wm(5))}, {elements(wm(3), idle, active)}}, []string{text(0, 3)}},
		"all idle":     {[][]string{{elements(wm(5), idle)}, {elements(idle)}}, []string{"0:4:\xff\xff\xff\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := inFlightOf(t, 1, c.payloads...)
			defer pool.Close()
			got, err := recoverAll(t, s, e, 0)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestDamagedInFlightData(t *testing.T) {
	e := Exchange{Up: upID, Down: downID, UpParallelism: 1, DownParallelism: 1}
	for name, c := range map[string]struct{ payload, want string }{
		"ends inside a record":   {elements(plainRecord("abc"))[:6], "last record ends after 6 bytes of it and its length"},
		"ends inside a length":   {"\x00\x00", "last record ends after 2 bytes"},
		"length of zero":         {"\x00\x00\x00\x00\x01", "record length is 0"},
		"negative length":        {"\xff\xff\xff\xff\x01", "record length is -1"},
		"unknown stream element": {elements([]byte{9, 1}), "stream element tag is 9"},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := inFlightOf(t, 1, []string{c.payload})
			defer pool.Close()
			_, err := recoverAll(t, s, e, 0)
			require.ErrorIs(t, err, damage.ErrCorrupt)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "subtask 0")
			require.NotContains(t, err.Error(), "\n")
		})
	}
	s, pool := inFlightOf(t, 1, []string{elements(plainRecord("a"))})
	defer pool.Close()
	s.Checkpoint.Operators[1].Subtasks[0].InputChannels[0].Channels[0].Offsets[0] = 1 << 40
	_, err := recoverAll(t, s, e, 0)
	require.ErrorIs(t, err, damage.ErrCorrupt)
	require.ErrorContains(t, err, "buffer offset is 1099511627776")
}

func TestRestoreRefusesWhatItCannotDo(t *testing.T) {
	s, pool := inFlightOf(t, 1, []string{elements(plainRecord("a"))})
	defer pool.Close()
	e := Exchange{Up: upID, Down: downID, Mapper: Range, UpParallelism: 1, DownParallelism: 2, MaxParallelism: 1}
	_, err := Restore(s, e, 0)
	require.ErrorContains(t, err, "max parallelism 1 is below parallelism 2")
	e.MaxParallelism = 16
	r, err := Restore(s, e, 0)
	require.NoError(t, err)
	require.True(t, r.Filter)
	require.NotZero(t, r.Bytes())
	require.ErrorContains(t, NewGate(0, 1).Recover(t.Context(), r, nil), "there is no filter")
	r.Channels[0].Channel = 5
	require.ErrorContains(t, NewGate(0, 1).Recover(t.Context(), r, func([]byte) (bool, error) { return true, nil }), "channel 5 of input gate 0, which has 1")
	// What is not there leaves nothing to do.
	r, err = Restore(s, Exchange{Up: upID, Down: metadata.OperatorID{9}, UpParallelism: 1, DownParallelism: 1}, 0)
	require.NoError(t, err)
	require.Empty(t, r.Channels)
}

// Forward and broadcast edges have data in flight only where another input of the
// subtask was unaligned.
func TestPointwiseAndReplicate(t *testing.T) {
	s, pool := inFlightOf(t, 3, []string{elements(plainRecord("a"))}, []string{elements(plainRecord("b"))}, []string{elements(plainRecord("c"))})
	defer pool.Close()
	got, err := recoverAll(t, s, Exchange{Up: upID, Down: downID, Pointwise: true, UpParallelism: 3, DownParallelism: 3}, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"0:1:b"}, got)
	got, err = recoverAll(t, s, Exchange{Up: upID, Down: downID, Pointwise: true, UpParallelism: 2, DownParallelism: 2}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"0:1:a", "0:1:c"}, got)
	// It was no forward edge while its ends had different parallelisms.
	cut := elements(plainRecord("whole"))
	other, otherPool := inFlightOf(t, 2, []string{elements(plainRecord("a")), elements(plainRecord("b"))}, []string{"", elements(plainRecord("c"))}, []string{cut[:6]})
	defer otherPool.Close()
	holds := &other.Checkpoint.Operators[0]
	to, restPool := newSnapshot(t, 2, 0)
	defer restPool.Close()
	rest := NewCapture(2)
	rest.add(chunk{output: true, channel: 2, data: []byte(cut[6:])})
	rest.InputsDone()
	rest.OutputsDone()
	st, err := rest.Write(t.Context(), to, 0)
	require.NoError(t, err)
	holds.Subtasks = append(holds.Subtasks, metadata.SubtaskState{OutputChannels: st.Outputs})
	for subtask, want := range [][]string{{"0:1:a", "0:1:b", "0:1:whole"}, {"0:1:c"}} {
		got, err = recoverAll(t, other, Exchange{Up: upID, Down: downID, Pointwise: true, UpParallelism: 2, DownParallelism: 2}, subtask)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err = recoverAll(t, s, Exchange{Up: upID, Down: downID, Mapper: Replicate, UpParallelism: 3, DownParallelism: 5}, 4)
	require.NoError(t, err)
	require.Equal(t, []string{"0:1:b"}, got)
}

// A gate gives nothing new before the others of its subtask have given back what was
// in flight.
func TestGatesRecoverTogether(t *testing.T) {
	s, store := inFlightOf(t, 1, []string{elements(plainRecord("old"))})
	defer store.Close()
	pool := NewPool(nil)
	p, err := NewPartition(pool, 0, 1, nil)
	require.NoError(t, err)
	with, without := NewGate(0, 1), NewGate(1, 1)
	Connect(p, 0, without, 0)
	r, err := Restore(s, Exchange{Up: upID, Down: downID, UpParallelism: 1, DownParallelism: 1}, 0)
	require.NoError(t, err)
	require.NoError(t, with.Recover(t.Context(), r, nil))
	NewRecoveryGroup(with, without)
	writeRecord(t, p, 0, "new")
	p.EmitBarrier(event.Barrier{ID: 1, Options: event.Options{Alignment: event.Unaligned}}, NewCapture(1))
	_, ok, err := without.Poll()
	require.NoError(t, err)
	require.False(t, ok)
	_, ok, err = without.PollPriority()
	require.NoError(t, err)
	require.False(t, ok)
	woken := 0
	require.True(t, without.Await(func() { woken++ }))
	it, ok, err := with.Poll()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{"old"}, values(t, it))
	require.True(t, without.Recovering())
	_, ok, err = with.Poll()
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, with.Recovering())
	require.Equal(t, 1, woken)
	it, ok, err = without.Poll()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Barrier, it.Event.Kind)
	with.Close()
	without.Close()
	p.Close()
}

func TestRecoverEndsWithItsContext(t *testing.T) {
	s, pool := inFlightOf(t, 1, []string{elements(plainRecord("a"))})
	defer pool.Close()
	r, err := Restore(s, Exchange{Up: upID, Down: downID, UpParallelism: 1, DownParallelism: 1}, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	g := NewGate(0, 1)
	require.NoError(t, g.Recover(ctx, r, nil))
	cancel(ErrCancelled)
	_, _, err = g.Poll()
	require.ErrorIs(t, err, ErrCancelled)
}
