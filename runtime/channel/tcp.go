package channel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/internal/damage"
)

// ErrConnection says that the connection of a channel was lost before its end. The
// tasks at both ends fail; nobody connects again, since what was in flight is gone.
var ErrConnection = errors.New("connection of a channel was lost")

// handshakeTimeout bounds how long a peer may take to say what it wants.
const handshakeTimeout = 10 * time.Second

// Server offers subpartitions to readers in other processes (Flink's NettyServer
// with its CreditBasedSequenceNumberingViewReader).
type Server struct {
	l  net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	offers map[string]*offer
	conns  map[net.Conn]bool
	closed bool
}

type offer struct {
	p      *Partition
	sub    int
	failed func(error)
}

// Listen serves on a TCP address, such as "127.0.0.1:0".
func Listen(address string) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{l: l, offers: map[string]*offer{}, conns: map[net.Conn]bool{}}
	s.wg.Go(s.accept)
	return s, nil
}

// Addr is where readers dial.
func (s *Server) Addr() string { return s.l.Addr().String() }

// Offer makes a subpartition available under a name that its reader knows. failed is
// called, once and by another goroutine, if its connection is lost; the partition is
// cancelled then.
func (s *Server) Offer(name string, p *Partition, subpartition int, failed func(error)) error {
	if len(name) > maxChannelName {
		return fmt.Errorf("name of a channel has %d bytes", len(name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offers[name] != nil {
		return fmt.Errorf("channel %s is offered already", name)
	}
	s.offers[name] = &offer{p, subpartition, failed}
	return nil
}

// Close ends all connections and waits for the goroutines that serve them.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.l.Close()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

// serve is one connection.
func (s *Server) serve(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(handshakeTimeout))
	r := bufio.NewReader(c)
	name, credits, err := readHello(r)
	if err != nil {
		writeError(c, err)
		return
	}
	c.SetReadDeadline(time.Time{})
	s.mu.Lock()
	o := s.offers[name]
	delete(s.offers, name) // one reader
	s.mu.Unlock()
	if o == nil {
		writeError(c, fmt.Errorf("channel %q is not offered", name))
		return
	}
	out := &sender{c: c, p: o.p, s: &o.p.subs[o.sub], wake: make(chan struct{}, 1), gone: make(chan struct{})}
	out.credits.Store(int64(credits))
	q := out.s.q
	q.mu.Lock()
	q.ended = nil // the reader tells
	q.notify = func(bool) { out.signal() }
	q.mu.Unlock()
	out.signal()
	done := make(chan error, 1)
	go func() {
		err := out.receive(r)
		close(out.gone)
		done <- err
	}()
	err = out.send()
	if err != nil {
		if cause := o.p.cause(); cause != nil {
			writeError(c, cause) // the reader tells why it fails
		}
		c.Close()
	}
	if rerr := <-done; err == nil {
		err = rerr
	}
	q.mu.Lock()
	q.notify = nil
	q.mu.Unlock()
	if err != nil && o.p.cause() == nil {
		err = fmt.Errorf("%w: to the reader of channel %s at %s: %w", ErrConnection, name, c.RemoteAddr(), err)
		o.p.Cancel(err)
		if o.failed != nil {
			o.failed(err)
		}
	}
}

// sender sends what a subpartition's queue has, as far as the reader has credit.
type sender struct {
	c       net.Conn
	p       *Partition
	s       *subpartition
	credits atomic.Int64
	wake    chan struct{}
	gone    chan struct{} // the receiving side ended
}

func (s *sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

var errReaderGone = errors.New("it hung up before the end of the partition")

// send returns nil after the end of the partition was sent.
func (s *sender) send() error {
	var head [5]byte
	var body []byte
	for {
		take := anything
		if s.credits.Load() <= 0 {
			take = noData
		}
		e, _, ok := s.s.q.poll(take)
		if !ok {
			select {
			case <-s.wake:
			case <-s.gone:
				return errReaderGone
			case <-s.p.done:
				return s.p.cause()
			}
			continue
		}
		kind := byte(frameData)
		if e.event != nil {
			kind = frameEvent
			if e.urgent {
				kind = framePriority
			}
			body = appendEvent(body[:0], e.event)
		} else {
			s.credits.Add(-1)
			body = append(body[:0], e.bytes()...) // the buffer is free before a slow peer has it
		}
		e.drop()
		binary.BigEndian.PutUint32(head[:], uint32(1+len(body)))
		head[4] = kind
		frame := net.Buffers{head[:], body}
		if _, err := frame.WriteTo(s.c); err != nil {
			return err
		}
		if e.event != nil && e.event.Kind == EndOfPartition {
			return nil
		}
	}
}

// receive takes credits, until the reader has taken the end.
func (s *sender) receive(r *bufio.Reader) error {
	dataTaken := false
	for {
		kind, n, err := readHead(r, 5)
		if err != nil {
			return hungUp(err)
		}
		switch {
		case kind == frameCredit && n == 4:
			var b [4]byte
			if _, err := io.ReadFull(r, b[:]); err != nil {
				return hungUp(err)
			}
			more := binary.BigEndian.Uint32(b[:])
			if more == 0 || more > maxCredits || s.credits.Load() > maxCredits {
				return corruptFrame("credits", more)
			}
			s.credits.Add(int64(more))
			s.signal()
		case kind == frameEndTaken && n == 0:
			s.p.endTaken(EndOfPartition)
			return nil
		case kind == frameDataTaken && n == 0 && !dataTaken:
			dataTaken = true
			s.p.endTaken(EndOfData)
		default:
			return corruptFrame("frame type", fmt.Sprintf("%d with %d bytes", kind, n))
		}
	}
}

func hungUp(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errReaderGone
	}
	return err
}

func corruptFrame(field string, v any) error {
	return &damage.Error{Offset: -1, Field: field, Detail: fmt.Sprintf("is %v", v), Err: damage.ErrCorrupt}
}

// readHead reads the head of a frame whose length is at most most.
func readHead(r *bufio.Reader, most int) (kind byte, n int, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, 0, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length < 1 || int64(length) > int64(most) {
		return 0, 0, corruptFrame("frame length", length)
	}
	return head[4], int(length) - 1, nil
}

func readHello(r *bufio.Reader) (name string, credits uint32, err error) {
	var b [11]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return "", 0, fmt.Errorf("greeting of a reader: %w", err)
	}
	if magic := binary.BigEndian.Uint32(b[:]); magic != wireMagic {
		return "", 0, corruptFrame("magic", fmt.Sprintf("%#x", magic))
	}
	if b[4] != wireVersion {
		return "", 0, fmt.Errorf("protocol version %d: %w", b[4], damage.ErrUnsupportedVersion)
	}
	credits = binary.BigEndian.Uint32(b[5:])
	if credits == 0 || credits > maxCredits {
		return "", 0, corruptFrame("credits", credits)
	}
	n := binary.BigEndian.Uint16(b[9:])
	if n > maxChannelName {
		return "", 0, corruptFrame("length of the channel's name", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", 0, fmt.Errorf("greeting of a reader: %w", err)
	}
	return string(text), credits, nil
}

func writeError(c net.Conn, err error) {
	text := err.Error()
	text = text[:min(len(text), 1<<10)]
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(text)))
	c.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	c.Write(append(append(b, frameError), text...))
}

// DialOptions changes a connection. Nil is the default.
type DialOptions struct {
	// Buffers is how many the reader keeps for the channel, which is its credit; 0 is
	// DefaultBuffersPerChannel.
	Buffers int
}

// Conn is the reader's end of a channel over TCP (Flink's RemoteInputChannel).
type Conn struct {
	c    net.Conn
	pool *Pool
	g    *Gate
	ch   int
	q    *queue
	stop func() bool
	wg   sync.WaitGroup

	buffers int
	granted atomic.Int64 // credits that the other side has
	owed    atomic.Int64 // credits to be sent
	dataEnd atomic.Bool  // the end of the data was taken
	ended   atomic.Bool  // the end of the partition was taken
	closed  atomic.Bool
	wake    chan struct{}
	quit    chan struct{}
}

// Dial joins a channel of a gate with the subpartition that a Server at address
// offers under a name. It returns when the connection is there; whether the name is
// offered, and a loss of the connection, come out of the gate. The end of ctx closes
// it.
func Dial(ctx context.Context, address, name string, pool *Pool, g *Gate, channel int, opts *DialOptions) (*Conn, error) {
	r := &Conn{pool: pool, g: g, ch: channel, q: &queue{}, buffers: DefaultBuffersPerChannel, wake: make(chan struct{}, 1), quit: make(chan struct{})}
	if opts != nil && opts.Buffers > 0 {
		r.buffers = opts.Buffers
	}
	if len(name) > maxChannelName {
		return nil, fmt.Errorf("name of a channel has %d bytes", len(name))
	}
	if err := pool.reserve(r.buffers); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		r.granted.Store(int64(r.buffers))
		b := binary.BigEndian.AppendUint32(nil, wireMagic)
		b = binary.BigEndian.AppendUint32(append(b, wireVersion), uint32(r.buffers))
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		if _, err = c.Write(append(b, name...)); err != nil {
			c.Close()
		}
	}
	if err != nil {
		pool.unreserve(r.buffers)
		return nil, fmt.Errorf("channel %s: %w", name, err)
	}
	r.c = c
	r.q.ended = func(kind EventKind) {
		if kind == EndOfData {
			r.dataEnd.Store(true)
		} else {
			r.ended.Store(true)
		}
		r.signal()
	}
	g.connect(channel, r.q)
	r.stop = context.AfterFunc(ctx, func() { r.fail(context.Cause(ctx)) })
	r.wg.Go(func() { r.receive(ctx, name) })
	r.wg.Go(r.grant)
	return r, nil
}

func (r *Conn) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// credited is called when a buffer was read.
func (r *Conn) credited() { r.owed.Add(1); r.signal() }

// fail closes the connection and fails the gate, unless all was read or Close was
// called.
func (r *Conn) fail(err error) {
	if !r.ended.Load() && !r.closed.Load() {
		r.g.Fail(r.ch, err) // first: closing makes errors of its own
	}
	r.c.Close()
}

// grant sends credits, that the end of the data was taken and, at last, that of the
// partition.
func (r *Conn) grant() {
	var b [9]byte
	dataEnd := false
	for {
		quit := false
		select {
		case <-r.wake:
		case <-r.quit:
			quit = true
		}
		if n := r.owed.Swap(0); n > 0 {
			r.granted.Add(n)
			binary.BigEndian.PutUint32(b[:], 5)
			b[4] = frameCredit
			binary.BigEndian.PutUint32(b[5:], uint32(n))
			if _, err := r.c.Write(b[:]); err != nil {
				return // the receiving side finds it too, or has ended
			}
		}
		ended := r.ended.Load() // first: the end of the data was taken before
		binary.BigEndian.PutUint32(b[:], 1)
		if !dataEnd && r.dataEnd.Load() {
			dataEnd = true
			b[4] = frameDataTaken
			if _, err := r.c.Write(b[:5]); err != nil {
				return
			}
		}
		if ended {
			b[4] = frameEndTaken
			r.c.Write(b[:5])
			return
		}
		if quit {
			return
		}
	}
}

// receive puts what comes into the queue.
func (r *Conn) receive(ctx context.Context, name string) {
	err := r.frames(bufio.NewReaderSize(r.c, 64<<10))
	if err == nil {
		return
	}
	if ctx.Err() != nil { // what the other end says of it may be here first
		r.fail(context.Cause(ctx))
		return
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("it ended before the end of the partition")
	}
	r.fail(fmt.Errorf("%w: channel %s from %s: %w", ErrConnection, name, r.c.RemoteAddr(), err))
}

func (r *Conn) frames(in *bufio.Reader) error {
	var body []byte
	for {
		kind, n, err := readHead(in, 1+max(r.pool.size, maxEventFrame))
		if err != nil {
			return err
		}
		if kind == frameData {
			if n == 0 || n > r.pool.size {
				return corruptFrame("buffer length", n)
			}
			if r.granted.Add(-1) < 0 {
				return corruptFrame("credit", "used up, and data came")
			}
			seg := r.pool.take()
			seg.owner = r
			seg.use()
			if _, err := io.ReadFull(in, seg.b[:n]); err != nil {
				seg.unuse()
				return err
			}
			r.q.addData(view{seg, 0, n})
			continue
		}
		if n > maxEventFrame {
			return corruptFrame("frame length", n)
		}
		body = append(body[:0], make([]byte, n)...)
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		switch kind {
		case frameError:
			return fmt.Errorf("the other end says: %q", body)
		case frameEvent, framePriority:
			ev, err := parseEvent(body)
			if err != nil {
				return err
			}
			if ev.Kind == EndOfPartition && kind == framePriority {
				return corruptFrame("priority of "+ev.Kind.String(), true)
			}
			if kind == framePriority {
				r.q.receivePriority(ev)
				continue
			}
			r.q.addEvent(ev)
			if ev.Kind == EndOfPartition {
				return nil
			}
		default:
			return corruptFrame("frame type", kind)
		}
	}
}

// Close ends the connection, waits for its goroutines, and gives back what nobody
// read. The gate must not be polled any more.
func (r *Conn) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	r.stop()
	if !r.ended.Load() {
		r.c.Close()
	}
	close(r.quit)
	r.wg.Wait()
	r.c.Close()
	r.q.close()
	r.pool.unreserve(r.buffers)
	return nil
}
