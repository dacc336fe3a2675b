package channel

import (
	"context"
	"errors"
	"fmt"
)

// Connect joins a subpartition to a channel of a gate in the same process (Flink's
// LocalInputChannel): the gate reads from the subpartition's queue.
func Connect(p *Partition, subpartition int, g *Gate, channel int) {
	g.connect(channel, p.subs[subpartition].q)
}

// Transport is how the subtasks of a job are joined. Its values are shared by all
// attempts of a job and may be used by several jobs at a time.
type Transport interface {
	// Open begins the connections of one attempt.
	Open(o LinkOptions) (Links, error)
}

// LinkOptions are what the connections of an attempt have in common.
type LinkOptions struct {
	// Context of the attempt: its end ends the connections.
	Context context.Context
	// Pool is where a receiving end that has buffers of its own takes them.
	Pool *Pool
	// Buffers of such an end, for each channel; 0 is DefaultBuffersPerChannel.
	Buffers int
	// Failed is told, by any goroutine, of a connection that was lost, beside the gate
	// and the partition at its ends.
	Failed func(error)
}

// Links are the connections of one attempt. They are used by one goroutine.
type Links interface {
	// Join connects a subpartition with a channel of a gate.
	Join(p *Partition, subpartition int, g *Gate, channel int) error
	// Close ends the connections and waits for what serves them. The tasks at both
	// ends have ended; their gates and partitions are closed after it.
	Close() error
}

// InMemory joins subtasks of one process by Connect. It is free.
type InMemory struct{}

// Open implements Transport.
func (InMemory) Open(LinkOptions) (Links, error) { return inMemory{}, nil }

type inMemory struct{}

func (inMemory) Join(p *Partition, subpartition int, g *Gate, channel int) error {
	Connect(p, subpartition, g, channel)
	return nil
}

func (inMemory) Close() error { return nil }

// Loopback joins subtasks of one process by TCP on 127.0.0.1, as if they were in
// several: a server for each attempt, a connection for each channel.
type Loopback struct{}

// Open implements Transport.
func (Loopback) Open(o LinkOptions) (Links, error) {
	s, err := Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &loopback{opts: o, server: s}, nil
}

type loopback struct {
	opts   LinkOptions
	server *Server
	conns  []*Conn
}

func (l *loopback) Join(p *Partition, subpartition int, g *Gate, channel int) error {
	name := fmt.Sprint(len(l.conns))
	if err := l.server.Offer(name, p, subpartition, l.opts.Failed); err != nil {
		return err
	}
	c, err := Dial(l.opts.Context, l.server.Addr(), name, l.opts.Pool, g, channel, &DialOptions{Buffers: l.opts.Buffers})
	if err != nil {
		return err
	}
	l.conns = append(l.conns, c)
	return nil
}

func (l *loopback) Close() error {
	var errs []error
	for _, c := range l.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, l.server.Close())...)
}
