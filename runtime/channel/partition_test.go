package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/runtime/event"
)

func TestPoolLimit(t *testing.T) {
	pool := NewPool(&PoolOptions{BufferSize: 1024, Limit: 10 << 10})
	_, err := NewPartition(pool, 3, 0, nil)
	require.ErrorContains(t, err, "0 subpartitions")
	p, err := NewPartition(pool, 0, 2, &PartitionOptions{BuffersPerChannel: 4})
	require.NoError(t, err)
	_, err = NewPartition(pool, 1, 1, &PartitionOptions{BuffersPerChannel: 4})
	require.EqualError(t, err, "partition 1: channel memory: 4 more buffers of 1024 bytes are needed, of the limit of 10240 bytes 8192 are reserved")
	require.Equal(t, PoolUsage{Reserved: 8 << 10}, pool.Usage(), "memory is taken when it is used")
	p.Close()
	p.Close()
	require.Equal(t, PoolUsage{}, pool.Usage())
}

// A writer is stopped by a reader that does not read, goes on when it reads, and ends
// when it is cancelled.
func TestBackpressure(t *testing.T) {
	pool := NewPool(&PoolOptions{BufferSize: 64})
	p, err := NewPartition(pool, 0, 1, &PartitionOptions{BuffersPerChannel: 3})
	require.NoError(t, err)
	g := NewGate(0, 1)
	Connect(p, 0, g, 0)
	written := 0
	for p.Available() {
		writeRecord(t, p, 0, strings.Repeat("x", 20))
		written++
	}
	woken := make(chan struct{}, 10)
	require.True(t, p.Await(func() { woken <- struct{}{} }))
	require.Empty(t, woken)
	// In the middle of a record it may overdraw, and then waits. The writer
	// flushes, as its owner: the record's end is else in a buffer that nobody
	// reads.
	done := make(chan error, 1)
	go func() {
		err := p.End(0, append(append(p.Begin(0), TagRecord), make([]byte, 64*8)...))
		p.Flush()
		done <- err
	}()
	require.Eventually(t, p.blocked.Load, soon, time.Millisecond)
	require.LessOrEqual(t, pool.Usage().InUse, int64(64*(3+overdraft)))
	read := 0
	for read <= written {
		it, err := poll(t, g)
		require.NoError(t, err)
		read += len(values(t, it))
	}
	require.NoError(t, <-done)
	<-woken
	require.Empty(t, woken, "it is called once")
	require.True(t, p.Available())
	require.False(t, p.Await(func() { t.Error("called") }))

	reason := errors.New("task was cancelled")
	go func() {
		for {
			if err := p.End(0, append(append(p.Begin(0), TagRecord), make([]byte, 20)...)); err != nil {
				done <- err
				return
			}
		}
	}()
	require.Eventually(t, p.blocked.Load, soon, time.Millisecond)
	p.Cancel(reason)
	p.Cancel(errors.New("later"))
	err = <-done
	require.ErrorIs(t, err, reason)
	require.EqualError(t, err, "partition 0: task was cancelled")
	require.ErrorIs(t, p.Drained(t.Context()), reason)
	g.Close()
	p.Close()
	require.Equal(t, PoolUsage{}, pool.Usage())
}

// A writer that flushes often gives a reader that is behind whole buffers.
func TestFlushedPartsGrowTogether(t *testing.T) {
	p, err := NewPartition(NewPool(nil), 0, 1, nil)
	require.NoError(t, err)
	defer p.Close()
	g := NewGate(0, 1)
	Connect(p, 0, g, 0)
	for range 100 {
		writeRecord(t, p, 0, "x")
		p.Flush()
	}
	buffers, bytes := p.Backlog()
	require.Equal(t, 1, buffers)
	require.Equal(t, 600, bytes)
	it, err := poll(t, g)
	require.NoError(t, err)
	require.Len(t, values(t, it), 100)
	// What was read does not grow.
	writeRecord(t, p, 0, "y")
	p.Flush()
	it, err = poll(t, g)
	require.NoError(t, err)
	require.Equal(t, []string{"y"}, values(t, it))
	g.Close()
}

func TestBarrierOptionsByExchange(t *testing.T) {
	unaligned := event.Options{Alignment: event.Unaligned}
	forced := event.Options{Alignment: event.ForcedAligned}
	timed := event.Options{Alignment: event.Aligned, AlignedTimeout: time.Second}
	forcedTimed := event.Options{Alignment: event.ForcedAligned, AlignedTimeout: time.Second}
	aligned := event.Options{Alignment: event.Aligned}
	for _, c := range []struct {
		alignedOnly, capture bool
		in, out              event.Options
	}{
		{false, true, unaligned, unaligned},
		{true, true, unaligned, forced},
		{false, true, forced, unaligned},
		{true, true, timed, forcedTimed},
		{false, true, forcedTimed, timed},
		{true, true, forcedTimed, forcedTimed},
		{false, false, aligned, aligned},
		{true, false, aligned, aligned},
		{false, false, forced, forced}, // without a capture nothing overtakes
		{false, false, timed, forcedTimed},
	} {
		p, err := NewPartition(NewPool(nil), 0, 1, &PartitionOptions{AlignedOnly: c.alignedOnly})
		require.NoError(t, err)
		g := NewGate(0, 1)
		Connect(p, 0, g, 0)
		var capture *Capture
		if c.capture {
			capture = NewCapture(1)
		}
		p.EmitBarrier(event.Barrier{ID: 1, Options: c.in}, capture)
		it, err := poll(t, g)
		require.NoError(t, err)
		require.Equal(t, c.out, it.Event.Barrier.Options, "%+v", c)
		g.Close()
		p.Close()
	}
}

// The capture of a barrier with a timeout is complete when each of its copies was
// read, or called by one of the ends: only the writer's call captures anything.
func TestTimeoutableBarrierIsDecidedOnce(t *testing.T) {
	pool := NewPool(&PoolOptions{BufferSize: 64})
	p, err := NewPartition(pool, 0, 3, nil)
	require.NoError(t, err)
	var gates []*Gate
	for i := range 3 {
		g := NewGate(0, 1)
		Connect(p, i, g, 0)
		gates = append(gates, g)
		writeRecord(t, p, i, "in front")
	}
	timed := event.Options{Alignment: event.Aligned, AlignedTimeout: time.Second}
	c := NewCapture(1)
	c.InputsDone()
	p.EmitBarrier(event.Barrier{ID: 1, Options: timed}, c)
	c.OutputsDone()
	complete := func() bool { _, done, err := peek(c); require.NoError(t, err); return done }
	next := func(g *Gate) Item { it, err := poll(t, g); require.NoError(t, err); return it }
	require.Equal(t, Announcement, next(gates[0]).Event.Kind)
	require.Equal(t, []string{"in front"}, values(t, next(gates[0])))
	require.Equal(t, event.Aligned, next(gates[0]).Event.Barrier.Options.Alignment)
	require.False(t, complete())
	gates[1].Convert(0, 1)
	gates[1].Convert(0, 1)
	require.False(t, complete())
	require.Zero(t, c.bytes)
	p.AlignedBarrierTimeout(1)
	p.AlignedBarrierTimeout(1)
	p.AlignedBarrierTimeout(9)
	require.True(t, complete())
	require.EqualValues(t, 13, c.bytes, "of the third subpartition")
	for _, g := range gates[1:] {
		for {
			it := next(g)
			if it.Event != nil && it.Event.Kind == Barrier {
				require.Equal(t, event.Unaligned, it.Event.Barrier.Options.Alignment)
				break
			}
			require.Equal(t, Announcement, it.Event.Kind)
		}
	}
	// A newer barrier, or the end, decides what nobody read.
	d := NewCapture(2)
	p.EmitBarrier(event.Barrier{ID: 2, Options: timed}, d)
	d.OutputsDone()
	d.InputsDone()
	e := NewCapture(3)
	p.EmitBarrier(event.Barrier{ID: 3, Options: timed}, e)
	_, done, _ := peek(d)
	require.True(t, done)
	for _, g := range gates {
		g.Close()
	}
	c.Abort(ErrCancelled)
	p.Close()
	e.OutputsDone()
	e.InputsDone()
	_, done, _ = peek(e)
	require.True(t, done)
	require.Equal(t, PoolUsage{}, pool.Usage())
}

func peek(c *Capture) (bytes int64, done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes, c.inputs && c.emitted && c.awaited == 0, c.aborted
}

// A barrier that nobody captures for gives back what it overtook.
func TestOvertakenDataIsReleased(t *testing.T) {
	pool := NewPool(&PoolOptions{BufferSize: 64})
	q := &queue{}
	g := NewGate(0, 1)
	g.connect(0, q)
	seg := pool.take()
	seg.use()
	q.addData(view{seg, 0, copy(seg.b, elements(plainRecord("a")))})
	q.receivePriority(&Event{Kind: Barrier, Barrier: event.Barrier{ID: 1, Options: event.Options{Alignment: event.Unaligned}}})
	require.EqualValues(t, 2, seg.refs.Load())
	it, err := poll(t, g)
	require.NoError(t, err)
	require.Equal(t, Barrier, it.Event.Kind)
	it, err = poll(t, g)
	require.NoError(t, err)
	require.EqualValues(t, 1, seg.refs.Load())
	require.Equal(t, []string{"a"}, values(t, it))
	g.Close()
	require.Zero(t, pool.Usage().InUse)
}

// TestRecordsOverBuffers cuts records anywhere and iterates.
func TestRecordsOverBuffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want [][]byte
		var stream []byte
		for range rapid.IntRange(0, 20).Draw(t, "records") {
			e := append([]byte{TagRecord}, rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value")...)
			want = append(want, e)
			stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(e))), e...)
		}
		var got [][]byte
		var r Records
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "cut")
			r.set(stream[:n:n])
			stream = stream[n:]
			for e, ok := r.Next(); ok; e, ok = r.Next() {
				got = append(got, append([]byte(nil), e...))
			}
			require.True(t, r.Done())
			require.NoError(t, r.Err())
		}
		require.Equal(t, want, got)
	})
}

// FuzzRecords: whatever comes, each element lies in the input, or there is damage.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(elements(plainRecord("a"), plainRecord("bcd"))), uint8(3))
	f.Add([]byte("\x00\x00\x00\x00"), uint8(1))
	f.Add([]byte("\x7f\xff\xff\xff\x01\x02"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		r := Records{name: "channel"}
		total := 0
		for len(b) > 0 && r.Err() == nil {
			n := min(len(b), 1+int(cut))
			r.set(b[:n:n])
			b = b[n:]
			for e, ok := r.Next(); ok; e, ok = r.Next() {
				require.NotEmpty(t, e)
				total += len(e)
			}
		}
		if r.Err() != nil {
			require.ErrorIs(t, r.Err(), damage.ErrCorrupt)
		}
		require.LessOrEqual(t, cap(r.span), 2*(total+300)+2*len(r.span))
	})
}

func TestDrained(t *testing.T) {
	p, err := NewPartition(NewPool(nil), 0, 1, nil)
	require.NoError(t, err)
	defer p.Close()
	g := NewGate(0, 1)
	Connect(p, 0, g, 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	p.Emit(Event{Kind: EndOfPartition}, false)
	go func() { done <- p.Drained(ctx) }()
	reason := errors.New("task was cancelled")
	cancel(reason)
	require.ErrorIs(t, <-done, reason)
	go func() { done <- p.Drained(t.Context()) }()
	it, err := poll(t, g)
	require.NoError(t, err)
	require.Equal(t, EndOfPartition, it.Event.Kind)
	require.NoError(t, <-done)
	require.True(t, g.Ended())
}

// What a reader has taken is not read before it has come to the end of the data, though
// nothing waits in the channel any more.
func TestAwaitRead(t *testing.T) {
	read := func(t *testing.T, p *Partition, g *Gate) {
		done := make(chan struct{})
		require.True(t, p.AwaitRead(func() { t.Error("replaced") }))
		require.True(t, p.AwaitRead(func() { close(done) }))
		writeRecord(t, p, 0, "a")
		writeRecord(t, p, 0, "b")
		p.Emit(Event{Kind: EndOfData}, false)
		it, err := poll(t, g)
		require.NoError(t, err)
		_, ok := it.Records.Next()
		require.True(t, ok)
		buffers, _ := p.Backlog()
		require.Zero(t, buffers)
		it, err = poll(t, g)
		require.NoError(t, err)
		require.True(t, p.AwaitRead(func() { close(done) }))
		require.Equal(t, []string{"b"}, values(t, it))
		it, err = poll(t, g)
		require.NoError(t, err)
		require.Equal(t, EndOfData, it.Event.Kind)
		select {
		case <-done:
		case <-time.After(soon):
			t.Fatal("the writer does not hear of it")
		}
		require.False(t, p.AwaitRead(func() { t.Error("called") }))
	}
	t.Run("memory", func(t *testing.T) {
		p, err := NewPartition(NewPool(nil), 0, 1, nil)
		require.NoError(t, err)
		defer p.Close()
		g := NewGate(0, 1)
		Connect(p, 0, g, 0)
		read(t, p, g)
		g.Close()
	})
	t.Run("TCP", func(t *testing.T) {
		r := newRemote(t, t.Context(), 64, 2)
		defer r.close(t)
		read(t, r.p, r.g)
		r.p.Emit(Event{Kind: EndOfPartition}, false)
		_, err := poll(t, r.g)
		require.NoError(t, err)
		require.NoError(t, r.p.Drained(t.Context()))
	})
}
