package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/runtime/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// soon bounds waits of tests that should end at once.
const soon = time.Minute

// poll waits for the next thing of a gate.
func poll(t testing.TB, g *Gate) (Item, error) {
	t.Helper()
	deadline := time.After(soon)
	wake := make(chan struct{}, 1)
	for {
		it, ok, err := g.Poll()
		if ok || err != nil {
			return it, err
		}
		if g.Await(func() { wake <- struct{}{} }) {
			select {
			case <-wake:
			case <-deadline:
				t.Fatal("nothing comes out of the gate")
			}
		}
	}
}

func writeRecord(t testing.TB, p *Partition, sub int, value string) {
	t.Helper()
	require.NoError(t, p.End(sub, append(append(p.Begin(sub), TagRecord), value...)))
}

func values(t testing.TB, it Item) (out []string) {
	t.Helper()
	require.NotNil(t, it.Records, "%v", it.Event)
	for e, ok := it.Records.Next(); ok; e, ok = it.Records.Next() {
		out = append(out, string(e[1:]))
	}
	require.NoError(t, it.Records.Err())
	return out
}

// remote is a partition of one subpartition and a gate, joined over TCP.
type remote struct {
	pool, readerPool *Pool
	p                *Partition
	g                *Gate
	server           *Server
	conn             *Conn
	failed           chan error
}

func newRemote(t testing.TB, ctx context.Context, bufferSize, buffers int) *remote {
	r := &remote{pool: NewPool(&PoolOptions{BufferSize: bufferSize}), readerPool: NewPool(&PoolOptions{BufferSize: bufferSize}), g: NewGate(0, 1), failed: make(chan error, 1)}
	var err error
	r.p, err = NewPartition(r.pool, 0, 1, &PartitionOptions{BuffersPerChannel: buffers})
	require.NoError(t, err)
	r.server, err = Listen("127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, r.server.Offer("a", r.p, 0, func(err error) { r.failed <- err }))
	require.Error(t, r.server.Offer("a", r.p, 0, nil))
	r.conn, err = Dial(ctx, r.server.Addr(), "a", r.readerPool, r.g, 0, &DialOptions{Buffers: buffers})
	require.NoError(t, err)
	return r
}

func (r *remote) close(t testing.TB) {
	require.NoError(t, r.conn.Close())
	require.NoError(t, r.server.Close())
	r.g.Close()
	r.p.Close()
	require.Zero(t, r.pool.Usage().InUse)
	require.Zero(t, r.readerPool.Usage().InUse)
	require.Zero(t, r.readerPool.Usage().Reserved)
}

func TestTCPRecordsAndEnd(t *testing.T) {
	r := newRemote(t, t.Context(), 64, 2)
	defer r.close(t)
	const n = 5000
	written := make(chan error, 1)
	go func() {
		for i := range n {
			if err := r.p.End(0, fmt.Appendf(append(r.p.Begin(0), TagRecord), "record %d", i)); err != nil {
				written <- err
				return
			}
		}
		r.p.Flush()
		r.p.Emit(Event{Kind: EndOfData, Drain: true}, false)
		r.p.Emit(Event{Kind: EndOfPartition}, false)
		written <- r.p.Drained(context.Background())
	}()
	got := 0
	drained := false
	for !r.g.Ended() {
		it, err := poll(t, r.g)
		require.NoError(t, err)
		if it.Event != nil {
			drained = drained || it.Event.Kind == EndOfData && it.Event.Drain
			continue
		}
		for _, v := range values(t, it) {
			require.Equal(t, fmt.Sprintf("record %d", got), v)
			got++
		}
	}
	require.Equal(t, n, got)
	require.True(t, drained)
	require.NoError(t, <-written)
	require.Empty(t, r.failed)
}

// A reader that reads nothing is sent no more than its buffers, and events with
// priority pass all the same.
func TestTCPBackpressureAndPriority(t *testing.T) {
	r := newRemote(t, t.Context(), 64, 2)
	defer r.close(t)
	n := 0
	for ; r.p.Available() || !waitsForReader(r); n++ {
		if !r.p.Available() {
			time.Sleep(time.Millisecond)
			continue
		}
		writeRecord(t, r.p, 0, strings.Repeat("x", 30))
	}
	require.Eventually(t, func() bool { return r.conn.granted.Load() == 0 }, soon, time.Millisecond)
	require.EqualValues(t, 2, r.readerPool.Usage().InUse/64, "buffers at the reader")
	capture := NewCapture(7)
	r.p.EmitBarrier(event.Barrier{ID: 7, Options: event.Options{Alignment: event.Unaligned}}, capture)
	capture.OutputsDone()
	require.Eventually(t, func() bool {
		r.conn.q.mu.Lock()
		defer r.conn.q.mu.Unlock()
		return r.conn.q.priority == 1
	}, soon, time.Millisecond)
	// The barrier comes first. What it overtook is at the writer, and at the reader.
	it, err := poll(t, r.g)
	require.NoError(t, err)
	require.NotNil(t, it.Event)
	require.EqualValues(t, 7, it.Event.Barrier.ID)
	input := NewCapture(7)
	r.g.StartCapture(0, input)
	r.g.StopCapture(0)
	require.NotZero(t, input.bytes)
	require.NotZero(t, capture.bytes)
	var stream []byte
	for _, c := range append(input.chunks, capture.chunks...) {
		stream = append(stream, c.data...)
	}
	records := Records{}
	records.set(stream)
	whole := 0
	for _, ok := records.Next(); ok; _, ok = records.Next() {
		whole++
	}
	require.NoError(t, records.Err())
	span, rest := records.rest()
	require.Empty(t, span)
	require.Empty(t, rest)
	r.p.Flush()
	r.p.Emit(Event{Kind: EndOfPartition}, false)
	got := 0
	for !r.g.Ended() {
		it, err := poll(t, r.g)
		require.NoError(t, err)
		if it.Records != nil {
			got += len(values(t, it))
		}
	}
	require.Equal(t, got, whole, "all that was in flight was captured")
	input.Abort(ErrCancelled)
	capture.Abort(ErrCancelled)
}

func waitsForReader(r *remote) bool {
	buffers, _ := r.p.Backlog()
	return buffers > 0 && r.conn.granted.Load() == 0
}

func TestTCPLossFailsBothEndsOnce(t *testing.T) {
	r := newRemote(t, t.Context(), 64, 2)
	defer r.close(t)
	writeRecord(t, r.p, 0, "x")
	r.p.Flush()
	_, err := poll(t, r.g)
	require.NoError(t, err)
	r.conn.c.(*net.TCPConn).SetLinger(0)
	r.conn.c.Close()
	err = <-r.failed
	require.ErrorIs(t, err, ErrConnection)
	require.NotContains(t, err.Error(), "\n")
	it, err := poll(t, r.g)
	for err == nil { // what was received already
		require.NotNil(t, it.Records)
		values(t, it)
		it, err = poll(t, r.g)
	}
	require.ErrorIs(t, err, ErrConnection)
	// The writer does not go on for ever into nowhere.
	err = nil
	for i := 0; err == nil && i < 1000; i++ {
		err = r.p.End(0, append(r.p.Begin(0), TagRecord))
	}
	require.ErrorIs(t, err, ErrConnection)
}

// A task that is cancelled ends at once wherever the transport waits: a writer without
// credit, and a reader. Each is cancelled alone, since what it tells the other end may be
// there before that is cancelled itself.
func TestTCPCancellation(t *testing.T) {
	reason := errors.New("task was cancelled")
	start := func(t *testing.T) (r *remote, cancel context.CancelCauseFunc, blocked chan error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r = newRemote(t, ctx, 64, 2)
		t.Cleanup(func() { r.close(t) })
		blocked = make(chan error, 1)
		go func() {
			for {
				if err := r.p.End(0, append(append(r.p.Begin(0), TagRecord), make([]byte, 40)...)); err != nil {
					blocked <- err
					return
				}
			}
		}()
		require.Eventually(t, func() bool { return r.p.blocked.Load() }, soon, time.Millisecond)
		return r, cancel, blocked
	}
	// What was received comes first.
	failure := func(t *testing.T, r *remote) error {
		for {
			it, err := poll(t, r.g)
			if err != nil {
				return err
			}
			values(t, it)
		}
	}
	t.Run("writer", func(t *testing.T) {
		r, cancel, blocked := start(t)
		defer cancel(nil)
		r.p.Cancel(reason)
		require.ErrorIs(t, <-blocked, reason)
		require.ErrorIs(t, failure(t, r), ErrConnection)
	})
	t.Run("reader", func(t *testing.T) {
		r, cancel, blocked := start(t)
		cancel(reason)
		require.ErrorIs(t, failure(t, r), reason)
		require.ErrorIs(t, <-blocked, ErrConnection)
	})
}

func TestTCPUnknownName(t *testing.T) {
	s, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer s.Close()
	g, pool := NewGate(0, 1), NewPool(nil)
	c, err := Dial(t.Context(), s.Addr(), "nobody", pool, g, 0, nil)
	require.NoError(t, err)
	defer c.Close()
	_, err = poll(t, g)
	require.ErrorIs(t, err, ErrConnection)
	require.ErrorContains(t, err, `channel \"nobody\" is not offered`)
	_, err = Dial(t.Context(), s.Addr(), strings.Repeat("n", maxChannelName+1), pool, g, 0, nil)
	require.Error(t, err)
	s.Close()
	_, err = Dial(t.Context(), s.Addr(), "nobody", pool, g, 0, nil)
	require.Error(t, err)
}

// hostile gives a reader bytes and returns the error of its gate.
func hostile(t testing.TB, answer []byte, hangUp bool) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Write(answer)
		if hangUp {
			c.(*net.TCPConn).CloseWrite()
		}
		io.Copy(io.Discard, c)
		c.Close()
	}()
	g, pool := NewGate(0, 1), NewPool(&PoolOptions{BufferSize: 64})
	c, err := Dial(t.Context(), l.Addr().String(), "a", pool, g, 0, &DialOptions{Buffers: 2})
	require.NoError(t, err)
	var failed error
	for failed == nil {
		var it Item
		if it, failed = poll(t, g); failed == nil && it.Records != nil {
			for _, ok := it.Records.Next(); ok; _, ok = it.Records.Next() {
			}
			failed = it.Records.Err()
		} else if g.Ended() {
			break
		}
	}
	require.NoError(t, c.Close())
	<-done
	g.Close()
	require.Zero(t, pool.Usage().InUse)
	return failed
}

func frame(kind byte, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(body)))
	return append(append(b, kind), body...)
}

func TestTCPHostileWriter(t *testing.T) {
	data := frame(frameData, 0, 0, 0, 1, 1)
	barrier := appendEvent(nil, &Event{Kind: Barrier, Barrier: event.Barrier{ID: 1}})
	for name, c := range map[string]struct {
		bytes   []byte
		want    string
		corrupt bool
	}{
		"nothing":          {nil, "ended before the end of the partition", false},
		"half a head":      {[]byte{0, 0}, "ended before the end", false},
		"huge frame":       {[]byte{0xff, 0xff, 0xff, 0xff, 1}, "frame length is 4294967295", true},
		"empty frame":      {[]byte{0, 0, 0, 0, 1}, "frame length is 0", true},
		"unknown frame":    {frame(99), "frame type is 99", true},
		"reader's frame":   {frame(frameCredit, 0, 0, 0, 1), "frame type is 5", true},
		"empty buffer":     {frame(frameData), "buffer length is 0", true},
		"large buffer":     {frame(frameData, make([]byte, 65)...), "buffer length is 65", true},
		"half a buffer":    {data[:7], "ended before the end", false},
		"beyond credit":    {append(append(append([]byte{}, data...), data...), data...), "credit is used up", true},
		"zero record":      {frame(frameData, 0, 0, 0, 0, 1), "record length is 0", true},
		"negative record":  {frame(frameData, 0xff, 0xff, 0xff, 0xff, 1), "record length is -1", true},
		"unknown event":    {frame(frameEvent, 77), "event kind is 77", true},
		"no event":         {frame(frameEvent), "event length is 0", true},
		"short barrier":    {frame(frameEvent, barrier[:20]...), "length of barrier is 19", true},
		"bad alignment":    {frame(frameEvent, replaced(barrier, 19, 9)...), "alignment is 9", true},
		"bad type":         {frame(frameEvent, replaced(barrier, 17, 9)...), "snapshot type is 9", true},
		"bad post action":  {frame(frameEvent, replaced(barrier, 18, 9)...), "post action is 9", true},
		"negative ID":      {frame(frameEvent, replaced(barrier, 1, 0x80)...), "checkpoint ID is -", true},
		"negative timeout": {frame(frameEvent, replaced(barrier, 20, 0x80)...), "aligned timeout is -", true},
		"long cancel":      {frame(frameEvent, append([]byte{byte(Cancel)}, make([]byte, 9)...)...), "length of cancel is 9", true},
		"urgent end":       {frame(framePriority, byte(EndOfPartition)), "priority of end of partition is true", true},
		"error":            {frame(frameError, []byte("go\naway")...), `"go\naway"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := hostile(t, c.bytes, !c.corrupt)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			if c.corrupt {
				require.ErrorIs(t, err, damage.ErrCorrupt)
			}
		})
	}
	require.NoError(t, hostile(t, append(data, frame(frameEvent, byte(EndOfPartition))...), true))
}

func replaced(b []byte, at int, v byte) []byte {
	b = append([]byte{}, b...)
	b[at] = v
	return b
}

func TestTCPHostileReader(t *testing.T) {
	hello := []byte{0x54, 0x4d, 0x63, 0x68, 2, 0, 0, 0, 2, 0, 1, 'a'}
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"not the protocol": {[]byte("GET / HTTP/1.1\r\n\r\n"), "magic is 0x47455420"},
		"version":          {replaced(hello, 4, 9), "protocol version 9"},
		"no credit":        {replaced(hello, 8, 0), "credits is 0"},
		"too much credit":  {replaced(hello, 5, 0xff), "credits is 4278190082"},
		"long name":        {replaced(hello, 9, 0xff), "length of the channel's name is 65281"},
		"other name":       {replaced(hello, 11, 'b'), `channel "b" is not offered`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Listen("127.0.0.1:0")
			require.NoError(t, err)
			defer s.Close()
			conn, err := net.Dial("tcp", s.Addr())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(c.bytes)
			require.NoError(t, err)
			answer, _ := io.ReadAll(conn)
			require.Greater(t, len(answer), 5)
			require.EqualValues(t, frameError, answer[4])
			require.Contains(t, string(answer[5:]), c.want)
		})
	}
	for name, bytes := range map[string][]byte{
		"frame length": {0xff, 0, 0, 0, 5},
		"frame type":   frame(frameData, 1),
		"no credits":   frame(frameCredit, 0, 0, 0, 0),
		"credits":      frame(frameCredit, 0xff, 0, 0, 0),
		"data twice":   append(frame(frameDataTaken), frame(frameDataTaken)...),
		"hangs up":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Listen("127.0.0.1:0")
			require.NoError(t, err)
			defer s.Close()
			p, err := NewPartition(NewPool(nil), 0, 1, nil)
			require.NoError(t, err)
			defer p.Close()
			failed := make(chan error, 1)
			require.NoError(t, s.Offer("a", p, 0, func(err error) { failed <- err }))
			conn, err := net.Dial("tcp", s.Addr())
			require.NoError(t, err)
			_, err = conn.Write(append(append([]byte{}, hello...), bytes...))
			require.NoError(t, err)
			if bytes == nil {
				conn.Close()
			}
			select {
			case err := <-failed:
				require.ErrorIs(t, err, ErrConnection)
				require.NotContains(t, err.Error(), "\n")
			case <-time.After(soon):
				t.Fatal("the writer does not fail")
			}
			conn.Close()
		})
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, ev := range []Event{{Kind: Barrier, Barrier: event.Barrier{ID: 7, Timestamp: 9, Base: 6, Options: event.Options{Alignment: event.Aligned, AlignedTimeout: 5, Target: "file:/s"}}},
		{Kind: Announcement}, {Kind: Cancel, ID: 3}, {Kind: EndOfData, Drain: true}, {Kind: EndOfPartition}} {
		f.Add(appendEvent(nil, &ev))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ev, err := parseEvent(b)
		if err != nil {
			require.ErrorIs(t, err, damage.ErrCorrupt)
			return
		}
		again, err := parseEvent(appendEvent(nil, ev))
		require.NoError(t, err)
		require.Equal(t, ev, again)
		require.NotEmpty(t, ev.String())
	})
}

// BenchmarkRebalanceTCP is BenchmarkRebalance over loopback.
func BenchmarkRebalanceTCP(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(21)
	const batch = 1 << 22
	for n := b.N; n > 0; n -= batch {
		s, err := Listen("127.0.0.1:0")
		require.NoError(b, err)
		pool := NewPool(nil)
		var conns []*Conn
		rebalance(b, max(1, min(n, batch)/2), func(p *Partition, sub int, g *Gate, channel int) {
			name := fmt.Sprint(g.Index(), channel)
			require.NoError(b, s.Offer(name, p, sub, nil))
			c, err := Dial(b.Context(), s.Addr(), name, pool, g, channel, nil)
			require.NoError(b, err)
			conns = append(conns, c)
		})
		for _, c := range conns {
			c.Close()
		}
		s.Close()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
}
