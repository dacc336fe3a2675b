package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/barrier"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// plane is an exchange by key group between writers and readers, played in one
// goroutine, with the barrier handler of each reader: what a test of the whole needs.
type plane struct {
	t       require.TestingT
	pool    *Pool
	writers []*writer
	readers []*reader
	now     time.Duration
	// begun, if not nil, is called when a capture begins.
	begun func(c *Capture, subtask int)
	// write gives the channel state of a capture.
	write func(c *Capture, to *snapshot.Writer, subtask int) (*State, error)
}

const planeMaxParallelism = 16

type writer struct {
	p       *Partition
	index   int
	next    int // record
	sent    int64
	capture map[int64]*Capture
	cut     map[int64]int // records written before the barrier
}

type reader struct {
	g       *Gate
	h       *barrier.Handler
	index   int
	seen    map[int]int // record -> how often
	capture map[int64]*Capture
	state   map[int64][]int // records seen before the snapshot
	done    map[int64]bool
	aborted map[int64]bool
	timer   int64
	timerAt time.Duration
}

// element is record n of a writer: a long with a payload of a size that depends on it.
func appendRecord(b []byte, w, n int) []byte {
	b = append(b, TagRecord)
	b = binary.BigEndian.AppendUint64(b, uint64(w<<32|n))
	return append(b, make([]byte, (n*7)%23)...)
}

func recordOf(e []byte) (int, error) {
	if len(e) < 9 || e[0] != TagRecord {
		return 0, fmt.Errorf("element % x", e)
	}
	id := int(binary.BigEndian.Uint64(e[1:]))
	if n := id & 0xffffffff; len(e) != 9+(n*7)%23 {
		return 0, fmt.Errorf("record %d has %d bytes", n, len(e))
	}
	return id, nil
}

func keyGroupOf(id int) int { return serializer.AssignKeyGroup(int32(id*31), planeMaxParallelism) }

func newPlane(t require.TestingT, writers, readers, bufferSize int, alignedOnly bool) *plane {
	pl := &plane{t: t, pool: NewPool(&PoolOptions{BufferSize: bufferSize})}
	pl.write = func(c *Capture, to *snapshot.Writer, subtask int) (*State, error) {
		return c.Write(context.Background(), to, int32(subtask))
	}
	for i := range writers {
		p, err := NewPartition(pl.pool, 0, readers, &PartitionOptions{BuffersPerChannel: 3, AlignedOnly: alignedOnly})
		require.NoError(t, err)
		pl.writers = append(pl.writers, &writer{p: p, index: i, capture: map[int64]*Capture{}, cut: map[int64]int{}})
	}
	for i := range readers {
		r := &reader{g: NewGate(0, writers), h: barrier.New(barrier.Options{Channels: writers}), index: i,
			seen: map[int]int{}, capture: map[int64]*Capture{}, state: map[int64][]int{}, done: map[int64]bool{}, aborted: map[int64]bool{}}
		pl.readers = append(pl.readers, r)
		for k, w := range pl.writers {
			Connect(w.p, i, r.g, k)
		}
	}
	return pl
}

func (pl *plane) close() {
	for _, r := range pl.readers {
		for _, c := range r.capture {
			c.Abort(ErrCancelled)
		}
		r.g.Close()
	}
	for _, w := range pl.writers {
		for _, c := range w.capture {
			c.Abort(ErrCancelled)
		}
		w.p.Close()
	}
	require.Zero(pl.t, pl.pool.Usage().InUse, "a buffer is lost")
	require.Zero(pl.t, pl.pool.Usage().Reserved)
}

// write writes one record, if there is room.
func (w *writer) write(t require.TestingT) {
	target := serializer.SubtaskOf(keyGroupOf(w.index<<32|w.next), w.p.Subpartitions(), planeMaxParallelism)
	require.NoError(t, w.p.End(target, appendRecord(w.p.Begin(target), w.index, w.next)))
	w.next++
}

func (pl *plane) barrier(w *writer, b event.Barrier) {
	c := NewCapture(b.ID)
	c.InputsDone() // a source
	w.capture[b.ID] = c
	if pl.begun != nil {
		pl.begun(c, w.index)
	}
	w.cut[b.ID] = w.next
	w.p.EmitBarrier(b, c)
	c.OutputsDone()
}

// step reads one thing, part of a buffer included.
func (pl *plane) step(r *reader, most int) bool {
	it, ok, err := r.g.Poll()
	require.NoError(pl.t, err)
	if !ok {
		return false
	}
	if it.Event == nil {
		for range most {
			e, ok := it.Records.Next()
			if !ok {
				require.NoError(pl.t, it.Records.Err())
				break
			}
			id, err := recordOf(e)
			require.NoError(pl.t, err)
			r.seen[id]++
		}
		return true
	}
	ev := barrier.Event{Channel: int32(it.Channel), At: int64(pl.now), Barrier: it.Event.Barrier, ID: it.Event.ID}
	switch it.Event.Kind {
	case Barrier:
		ev.Kind = barrier.BarrierArrived
	case Announcement:
		ev.Kind = barrier.Announced
	case Cancel:
		ev.Kind = barrier.Cancelled
	case EndOfPartition:
		ev.Kind = barrier.EndOfPartition
	default:
		return true
	}
	pl.do(r, r.h.Handle(ev))
	return true
}

func (pl *plane) captureOf(r *reader, id int64) *Capture {
	c := r.capture[id]
	if c == nil {
		c = NewCapture(id)
		r.capture[id] = c
		if pl.begun != nil {
			pl.begun(c, r.index)
		}
	}
	return c
}

func (pl *plane) do(r *reader, actions []barrier.Action) {
	for _, a := range actions {
		switch a.Kind {
		case barrier.Block:
			r.g.Block(int(a.Channel))
		case barrier.UnblockAll:
			r.g.UnblockAll()
		case barrier.Convert:
			r.g.Convert(int(a.Channel), a.ID)
		case barrier.StartCapture:
			r.g.StartCapture(int(a.Channel), pl.captureOf(r, a.ID))
		case barrier.StopCapture:
			r.g.StopCapture(int(a.Channel))
		case barrier.StartTimer:
			r.timer, r.timerAt = a.ID, time.Duration(a.At)
		case barrier.StopTimer:
			r.timer = 0
		case barrier.Abort:
			r.g.AbortCapture(a.ID)
			pl.captureOf(r, a.ID).Abort(errors.New("aborted"))
			r.aborted[a.ID] = true
		case barrier.Trigger:
			var ids []int
			for id, n := range r.seen {
				require.Equal(pl.t, 1, n)
				ids = append(ids, id)
			}
			r.state[a.ID] = ids
			pl.captureOf(r, a.ID).OutputsDone() // a sink
		case barrier.AllReceived:
			pl.captureOf(r, a.ID).InputsDone()
			r.done[a.ID] = true
		}
	}
}

var (
	upID   = metadata.OperatorID{1}
	downID = metadata.OperatorID{2}
)

// TestPlane plays random writers, readers and checkpoints. Of each checkpoint that
// completes, the records that readers had seen and those that a restore gives back,
// at the same or another parallelism, are exactly the records in front of the
// barriers, each once and in the order of its writer and key group.
func TestPlane(t *testing.T) {
	kinds := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		writers := rapid.IntRange(1, 3).Draw(t, "writers")
		readers := rapid.IntRange(1, 3).Draw(t, "readers")
		alignedOnly := rapid.IntRange(0, 5).Draw(t, "aligned only") == 0
		pl := newPlane(t, writers, readers, rapid.SampledFrom([]int{16, 40, 64, 200}).Draw(t, "buffer size"), alignedOnly)
		defer pl.close()
		options := rapid.SampledFrom([]event.Options{{Alignment: event.Aligned}, {Alignment: event.Unaligned},
			{Alignment: event.Aligned, AlignedTimeout: 5 * time.Millisecond}}).Draw(t, "options")
		barriers := make([]event.Barrier, rapid.IntRange(1, 3).Draw(t, "checkpoints"))
		for i := range barriers {
			barriers[i] = event.Barrier{ID: int64(i + 1), Timestamp: int64(20 * i), Options: options}
		}
		for range rapid.IntRange(10, 300).Draw(t, "steps") {
			w := pl.writers[rapid.IntRange(0, writers-1).Draw(t, "writer")]
			r := pl.readers[rapid.IntRange(0, readers-1).Draw(t, "reader")]
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				if w.p.Available() {
					w.write(t)
				}
			case 4:
				w.p.Flush()
			case 5:
				if int(w.sent) < len(barriers) {
					pl.barrier(w, barriers[w.sent])
					w.sent++
				}
			case 6:
				pl.now += time.Millisecond
				if r.timer != 0 && pl.now >= r.timerAt {
					id := r.timer
					r.timer = 0
					pl.do(r, r.h.Handle(barrier.Event{Kind: barrier.TimerFired, ID: id, At: int64(pl.now)}))
				}
				if w.sent > 0 {
					if b := barriers[w.sent-1]; options.Timeoutable() && pl.now >= time.Duration(b.Timestamp)*time.Millisecond+options.AlignedTimeout {
						w.p.AlignedBarrierTimeout(b.ID)
					}
				}
			default:
				pl.step(r, rapid.IntRange(0, 3).Draw(t, "records"))
			}
		}
		for _, w := range pl.writers {
			for ; int(w.sent) < len(barriers); w.sent++ {
				pl.barrier(w, barriers[w.sent])
			}
			w.p.Flush()
			w.p.Emit(Event{Kind: EndOfPartition}, false)
		}
		for _, r := range pl.readers {
			for pl.step(r, 1000) {
			}
			require.True(t, r.g.Ended(), "reader %d is stuck", r.index)
		}
		total := 0
		for _, w := range pl.writers {
			total += w.next
			require.EqualValues(t, readers, w.p.ended.Load())
		}
		for _, r := range pl.readers {
			total -= len(r.seen)
			for id, n := range r.seen {
				require.Equal(t, 1, n, "record %d", id)
			}
		}
		require.Zero(t, total, "records are lost")
		for _, b := range barriers {
			complete := true
			for _, r := range pl.readers {
				complete = complete && r.done[b.ID] && !r.aborted[b.ID]
			}
			if complete {
				to, pool := newSnapshot(t, b.ID, rapid.SampledFrom([]int{-1, 100, 0}).Draw(t, "threshold"))
				parallelism, newWriters := readers, writers
				if !rapid.Bool().Draw(t, "same parallelism") {
					parallelism = rapid.IntRange(1, 5).Draw(t, "new parallelism")
					newWriters = rapid.IntRange(1, 4).Draw(t, "new writers")
				}
				pl.check(b.ID, to, pool, newWriters, parallelism, kinds)
				require.NoError(t, pool.Close())
			}
		}
	})
	for _, k := range []string{"with input state", "with output state", "without", "rescaled"} {
		if kinds[k] == 0 {
			t.Errorf("no checkpoint %s: %v", k, kinds)
		}
	}
}

func newSnapshot(t require.TestingT, id int64, threshold int) (*snapshot.Writer, *blobstore.Pool) {
	pool := blobstore.NewPool(nil, nil)
	loc, err := blobstore.Parse(fmt.Sprintf("mem://%s/chk-%d", snapshot.NewJobID(), id))
	require.NoError(t, err)
	to, err := snapshot.NewWriter(context.Background(), pool, snapshot.SavepointIn(loc), &snapshot.WriterOptions{MemoryThreshold: threshold})
	require.NoError(t, err)
	return to, pool
}

// check writes the channel state of a checkpoint, restores it and compares.
func (pl *plane) check(id int64, to *snapshot.Writer, pool *blobstore.Pool, writers, parallelism int, kinds map[string]int) {
	t := pl.t
	ctx := context.Background()
	up := metadata.OperatorState{ID: upID, Parallelism: int32(len(pl.writers)), MaxParallelism: planeMaxParallelism}
	down := metadata.OperatorState{ID: downID, Parallelism: int32(len(pl.readers)), MaxParallelism: planeMaxParallelism}
	want := map[int]bool{}
	for i, w := range pl.writers {
		st, err := pl.write(w.capture[id], to, i)
		require.NoError(t, err)
		require.Empty(t, st.Inputs)
		if len(st.Outputs) > 0 {
			kinds["with output state"]++
		}
		up.Subtasks = append(up.Subtasks, metadata.SubtaskState{Index: int32(i), OutputChannels: st.Outputs})
		for n := range w.cut[id] {
			want[i<<32|n] = true
		}
	}
	var before []int
	for i, r := range pl.readers {
		st, err := pl.write(r.capture[id], to, i)
		require.NoError(t, err)
		if len(st.Inputs) > 0 {
			kinds["with input state"]++
		} else {
			kinds["without"]++
		}
		down.Subtasks = append(down.Subtasks, metadata.SubtaskState{Index: int32(i), InputChannels: st.Inputs})
		before = append(before, r.state[id]...)
	}
	require.NoError(t, to.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: id, Operators: []metadata.OperatorState{up, down}}))
	s, err := snapshot.Open(ctx, pool, to.Layout().Dir, nil)
	require.NoError(t, err)
	if parallelism != len(pl.readers) {
		kinds["rescaled"]++
	}
	// The tools read it too. Of an output they can only guess where records begin.
	for f := range snapshot.InFlightChannels(s, nil) {
		if f.Output {
			continue
		}
		_, err := f.Elements(ctx, func(_ int64, _ int, e snapshot.InFlightElement) error {
			if e.Kind != snapshot.ElementRecord {
				return fmt.Errorf("a %s", e.Kind)
			}
			return nil
		})
		require.NoError(t, err)
	}
	got := slices.Clone(before)
	for k := range parallelism {
		r, err := Restore(s, Exchange{Up: upID, Down: downID, Mapper: Range, UpParallelism: writers, DownParallelism: parallelism, MaxParallelism: planeMaxParallelism}, k)
		require.NoError(t, err)
		g := NewGate(0, writers)
		require.NoError(t, g.Recover(ctx, r, func(e []byte) (bool, error) {
			rec, err := recordOf(e)
			return serializer.SubtaskOf(keyGroupOf(rec), parallelism, planeMaxParallelism) == k, err
		}))
		last := map[[2]int]int{} // by writer and key group
		for {
			it, ok, err := g.Poll()
			require.NoError(t, err)
			if !ok {
				break
			}
			require.True(t, it.Recovered)
			for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
				rec, err := recordOf(e)
				require.NoError(t, err)
				require.Equal(t, (rec>>32)%writers, it.Channel)
				require.Equal(t, k, serializer.SubtaskOf(keyGroupOf(rec), parallelism, planeMaxParallelism), "record of another subtask")
				order := [2]int{rec >> 32, keyGroupOf(rec)}
				if prev, ok := last[order]; ok {
					require.Greater(t, rec, prev, "out of order")
				}
				last[order] = rec
				got = append(got, rec)
			}
		}
		require.False(t, g.Recovering())
	}
	slices.Sort(got)
	require.Equal(t, len(got), len(slices.Compact(slices.Clone(got))), "a record comes twice")
	require.Len(t, got, len(want), "records of checkpoint %d", id)
	for _, rec := range got {
		require.True(t, want[rec], "record %d of writer %d is behind the barrier", rec&0xffffffff, rec>>32)
	}
}
