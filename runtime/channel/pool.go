package channel

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Defaults.
const (
	// DefaultBufferSize is Flink's taskmanager.memory.segment-size.
	DefaultBufferSize = 32 << 10
	// DefaultBuffersPerChannel bounds what waits in a channel, like Flink's two
	// exclusive and up to eight floating buffers.
	DefaultBuffersPerChannel = 8
	// minBufferSize holds the length of a record and something of it.
	minBufferSize = 16
)

// PoolOptions changes a Pool. Nil is the default.
type PoolOptions struct {
	// BufferSize in bytes; 0 is DefaultBufferSize.
	BufferSize int
	// Limit in bytes of what channels may reserve; 0 is none.
	Limit int64
}

// Pool is the memory of all channels of a process (Flink's NetworkBufferPool).
// A channel reserves its buffers when it is made, so that a job that does not fit
// fails when it starts; memory is taken when it is used and kept for the next.
// It may be used by many goroutines.
type Pool struct {
	size  int
	limit int64

	mu       sync.Mutex
	free     []*segment
	reserved int64 // buffers
	made     int64 // buffers that exist
}

// NewPool makes a pool.
func NewPool(opts *PoolOptions) *Pool {
	p := &Pool{size: DefaultBufferSize}
	if opts != nil {
		if opts.BufferSize > 0 {
			p.size = max(opts.BufferSize, minBufferSize)
		}
		p.limit = opts.Limit
	}
	return p
}

// BufferSize in bytes.
func (p *Pool) BufferSize() int { return p.size }

// PoolUsage is what a pool has given out.
type PoolUsage struct {
	Reserved int64 // bytes that channels may use
	Made     int64 // bytes that were allocated
	InUse    int64 // of them, those that hold data
}

// Usage tells what is in use.
func (p *Pool) Usage() PoolUsage {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := int64(p.size)
	return PoolUsage{p.reserved * size, p.made * size, (p.made - int64(len(p.free))) * size}
}

// reserve sets buffers aside for a channel.
func (p *Pool) reserve(buffers int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := (p.reserved + int64(buffers)) * int64(p.size); p.limit > 0 && want > p.limit {
		return fmt.Errorf("channel memory: %d more buffers of %d bytes are needed, of the limit of %d bytes %d are reserved",
			buffers, p.size, p.limit, p.reserved*int64(p.size))
	}
	p.reserved += int64(buffers)
	return nil
}

// unreserve gives a channel's buffers back. The memory of idle ones beyond what is
// reserved is let go.
func (p *Pool) unreserve(buffers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved -= int64(buffers)
	for n := len(p.free); n > 0 && p.made > p.reserved; n-- {
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.made--
	}
}

func (p *Pool) take() *segment {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		p.mu.Unlock()
		return s
	}
	p.made++
	p.mu.Unlock()
	return &segment{pool: p, b: make([]byte, p.size)}
}

func (p *Pool) give(s *segment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made > p.reserved && p.reserved >= 0 && int64(len(p.free)) >= p.reserved {
		p.made--
		return
	}
	p.free = append(p.free, s)
}

// segment is the memory of one buffer. What is written in it never changes until
// all who use it have released it.
type segment struct {
	pool *Pool
	b    []byte
	// owner gets a credit back when users is 0: those are the one who writes, the
	// queue and the reader. refs counts them and the captures for channel state:
	// the memory is given back when it is 0.
	owner creditor
	users atomic.Int32
	refs  atomic.Int32
}

// creditor is who may fill one more buffer when one was read.
type creditor interface{ credited() }

func (s *segment) use()    { s.users.Add(1); s.refs.Add(1) }
func (s *segment) retain() { s.refs.Add(1) }

func (s *segment) unuse() {
	if s.users.Add(-1) == 0 && s.owner != nil {
		s.owner.credited()
	}
	s.release()
}

func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		s.owner = nil
		s.pool.give(s)
	}
}

// view is a part of a segment: what a buffer holds.
type view struct {
	seg        *segment
	start, end int
}

func (v view) bytes() []byte { return v.seg.b[v.start:v.end:v.end] }
func (v view) len() int      { return v.end - v.start }
