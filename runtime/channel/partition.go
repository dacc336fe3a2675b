package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/runtime/event"
)

// PartitionOptions changes a Partition. Nil is the default.
type PartitionOptions struct {
	// BuffersPerChannel bounds what waits in each subpartition; 0 is
	// DefaultBuffersPerChannel, at least 2.
	BuffersPerChannel int
	// AlignedOnly is set for exchanges that no barrier may overtake data in:
	// forward, and broadcast. Barriers leave as ForcedAligned (Flink's
	// StreamPartitioner.disableUnalignedCheckpoints).
	AlignedOnly bool
}

// overdraft is how many buffers beyond its bound a writer may fill of each
// subpartition before it waits inside of a record (Flink's
// max-overdraft-buffers-per-gate): an operator that emits a few records for one is
// not stopped in the middle.
const overdraft = 5

// ErrCancelled is what a writer gets that waited for a buffer when Cancel was called.
var ErrCancelled = errors.New("channel was cancelled")

// Partition is the output of a subtask to one exchange (Flink's ResultPartition
// with its RecordWriter): a subpartition for each subtask at the other end. Which
// subpartition a record goes to is the caller's choice.
//
// Records are written straight into the buffers:
//
//	b := p.Begin(target)
//	b = channel.AppendTimestamp(b, timestamp)
//	b = serializer.Append(b, value)
//	err := p.End(target, b)
//
// The methods are for one goroutine, the task's, but for Cancel. No lock is taken
// and nothing is allocated for a record; a full buffer is handed over, and Flush
// hands over what there is.
type Partition struct {
	pool        *Pool
	index       int
	alignedOnly bool
	buffers     int
	subs        []subpartition
	direct      int    // least room in a buffer to let a record be appended in it
	scratch     []byte // records that may not fit

	starved atomic.Int32 // subpartitions without a buffer left
	read    atomic.Int32 // subpartitions whose EndOfData was taken
	ended   atomic.Int32 // subpartitions whose EndOfPartition was taken
	blocked atomic.Bool  // the writer waits in nextBuffer or Drained
	wake    chan struct{}

	mu        sync.Mutex
	available func()     // called when starved is 0
	allRead   func()     // called when read is all
	pending   *timedOnes // barriers that may time out in the queues
	cancelled error
	done      chan struct{}
	closed    bool
}

// subpartition is the writer's end of a channel.
type subpartition struct {
	buf     []byte // the segment being written; len is cap
	pos     int    // up to here it is written
	flushed int    // up to here it was handed over
	seg     *segment
	q       *queue
	p       *Partition
	credits atomic.Int32 // buffers that may be taken; below 0 is overdraft
	bytes   int64
}

// timedOnes is the timeoutable barrier of a checkpoint that waits in queues.
type timedOnes struct {
	id      int64
	capture *Capture
	waiting []bool // by subpartition
}

// NewPartition makes the partition of that index, which is its place among the
// partitions of its subtask. It reserves its buffers in the pool.
func NewPartition(pool *Pool, index, subpartitions int, opts *PartitionOptions) (*Partition, error) {
	if subpartitions < 1 {
		return nil, fmt.Errorf("partition %d: %d subpartitions", index, subpartitions)
	}
	p := &Partition{pool: pool, index: index, buffers: DefaultBuffersPerChannel, subs: make([]subpartition, subpartitions),
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	if opts != nil {
		p.alignedOnly = opts.AlignedOnly
		if opts.BuffersPerChannel > 0 {
			p.buffers = max(2, opts.BuffersPerChannel)
		}
	}
	p.direct = min(minDirect, pool.size/2)
	if err := pool.reserve(p.buffers * subpartitions); err != nil {
		return nil, fmt.Errorf("partition %d: %w", index, err)
	}
	for i := range p.subs {
		s := &p.subs[i]
		s.p, s.q = p, &queue{}
		s.q.ended = p.endTaken
		s.q.left = func(id int64) { p.barrierLeft(i, id) }
		s.credits.Store(int32(p.buffers))
	}
	return p, nil
}

const (
	minDirect  = 64
	maxScratch = 1 << 20
)

// Index is the partition's place in its subtask.
func (p *Partition) Index() int { return p.index }

// Subpartitions is how many there are.
func (p *Partition) Subpartitions() int { return len(p.subs) }

// Begin gives a slice of no length to which the caller appends a stream element for
// the subpartition. End has to follow with what append returned.
func (p *Partition) Begin(target int) []byte {
	s := &p.subs[target]
	if len(s.buf)-s.pos >= p.direct {
		return s.buf[s.pos+4 : s.pos+4]
	}
	return p.scratch[:0]
}

// End ends the element that Begin began. It waits if the subpartition is full and
// over its overdraft; the error is that of Cancel then. Callers that look at
// Available before they process a record wait rarely.
func (p *Partition) End(target int, b []byte) error {
	s := &p.subs[target]
	// append has not moved it: a larger capacity would say so.
	if room := len(s.buf) - s.pos; room >= p.direct && cap(b) == room-4 {
		binary.BigEndian.PutUint32(s.buf[s.pos:], uint32(len(b)))
		s.pos += 4 + len(b)
		return nil
	}
	return p.endSlow(s, b)
}

// endSlow copies an element that was built elsewhere, over as many buffers as it
// takes.
func (p *Partition) endSlow(s *subpartition, b []byte) error {
	if cap(b) > cap(p.scratch) && cap(b) <= maxScratch {
		p.scratch = b[:0]
	}
	// The next element of that size is not begun where it does not fit.
	p.direct = min(max(p.direct, 4+len(b)), p.pool.size/2)
	return p.write(s, b)
}

func (p *Partition) write(s *subpartition, b []byte) error {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(b)))
	if err := p.copyIn(s, length[:]); err != nil {
		return err
	}
	return p.copyIn(s, b)
}

func (p *Partition) copyIn(s *subpartition, b []byte) error {
	for {
		n := copy(s.buf[s.pos:], b)
		s.pos += n
		if b = b[n:]; len(b) == 0 {
			return nil
		}
		s.finish()
		if err := p.nextBuffer(s); err != nil {
			return err
		}
	}
}

// Broadcast writes an element to all subpartitions.
func (p *Partition) Broadcast(element []byte) error {
	for i := range p.subs {
		if err := p.write(&p.subs[i], element); err != nil {
			return err
		}
	}
	return nil
}

// finish hands the buffer over and lets it go.
func (s *subpartition) finish() {
	if s.seg == nil {
		return
	}
	if s.pos > s.flushed {
		s.bytes += int64(s.pos - s.flushed)
		s.q.addData(view{s.seg, s.flushed, s.pos}) // with the writer's use of it
	} else {
		s.seg.unuse()
	}
	s.seg, s.buf, s.pos, s.flushed = nil, nil, 0, 0
}

// flush hands over what was written and goes on in the same buffer.
func (s *subpartition) flush() {
	if s.pos > s.flushed {
		s.seg.use()
		s.bytes += int64(s.pos - s.flushed)
		s.q.addData(view{s.seg, s.flushed, s.pos})
		s.flushed = s.pos
	}
}

// nextBuffer takes a buffer for the subpartition, waiting for one if it has to.
func (p *Partition) nextBuffer(s *subpartition) error {
	select {
	case <-p.done:
		return p.cause()
	default:
	}
	for {
		left := s.credits.Add(-1)
		if left == 0 {
			p.starved.Add(1)
		}
		if left >= -overdraft {
			break
		}
		if err := p.waitForBuffer(s); err != nil {
			return err
		}
	}
	seg := p.pool.take()
	seg.owner = s
	seg.use()
	s.seg, s.buf, s.pos, s.flushed = seg, seg.b, 0, 0
	return nil
}

// waitForBuffer gives the credit back that was one too many, and waits for another.
func (p *Partition) waitForBuffer(s *subpartition) error {
	p.Flush() // what others wait for may be in a buffer of this task
	p.blocked.Store(true)
	defer p.blocked.Store(false)
	s.credits.Add(1)
	for s.credits.Load() <= -overdraft {
		select {
		case <-p.wake:
		case <-p.done:
			return p.cause()
		}
	}
	return nil
}

// credited is called when a buffer of the subpartition was read, by the reader's
// goroutine.
func (s *subpartition) credited() {
	p := s.p
	if s.credits.Add(1) == 1 && p.starved.Add(-1) == 0 {
		p.mu.Lock()
		f := p.available
		p.available = nil
		p.mu.Unlock()
		if f != nil {
			f()
		}
	}
	p.wakeWriter()
}

// Available says that each subpartition has a buffer left. A task looks at it
// before it processes a record. It costs one load.
func (p *Partition) Available() bool { return p.starved.Load() == 0 }

// Await flushes, and arranges that f is called once when Available is true again;
// it says false, and does not call f, if it is true already. f may be called by
// another goroutine and must not block.
func (p *Partition) Await(f func()) bool {
	p.Flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.available = f
	if p.starved.Load() == 0 {
		p.available = nil
		return false
	}
	return true
}

// Flush hands over what was written. A task calls it when it has nothing to do, and
// now and then (Flink's execution.buffer-timeout) when it has.
func (p *Partition) Flush() {
	for i := range p.subs {
		p.subs[i].flush()
	}
}

// Emit sends an event to all subpartitions, behind what was written; for barriers
// see EmitBarrier. With priority, it overtakes it.
func (p *Partition) Emit(ev Event, priority bool) {
	for i := range p.subs {
		s := &p.subs[i]
		s.flush()
		e := ev
		if priority {
			releaseViews(s.q.addPriority(&e))
		} else {
			s.q.addEvent(&e)
		}
	}
}

// EmitBarrier sends the barrier of a checkpoint to all subpartitions. An Unaligned
// one overtakes what was written, which goes to capture; so does a ForcedAligned one
// where this exchange need not be aligned. An Aligned one with a timeout takes its
// place; capture gets what is in front of it if AlignedBarrierTimeout comes before
// the reader does, and knows when neither will. Without a capture, which is right
// for Aligned and AtLeastOnce, no barrier overtakes anything.
func (p *Partition) EmitBarrier(b event.Barrier, capture *Capture) {
	b.Options = p.options(b.Options)
	if capture == nil && (b.Options.Alignment == event.Unaligned || b.Options.Timeoutable()) {
		b.Options.Alignment = event.ForcedAligned
	}
	if b.Options.Timeoutable() {
		capture.expectOutputs(len(p.subs))
		p.mu.Lock()
		waiting := make([]bool, len(p.subs))
		for i := range waiting {
			waiting[i] = true
		}
		old := p.pending
		p.pending = &timedOnes{id: b.ID, capture: capture, waiting: waiting}
		p.mu.Unlock()
		old.giveUp()
	}
	ev := &Event{Kind: Barrier, Barrier: b}
	for i := range p.subs {
		s := &p.subs[i]
		s.flush()
		if b.Options.Alignment != event.Unaligned {
			s.q.addEvent(ev)
			continue
		}
		capture.addOutput(p.index, i, s.q.addPriority(ev))
	}
}

// options is what a barrier's options are on this exchange. One that was forced to
// be aligned keeps its timeout, and by it what it is behind that exchange (Flink's
// CheckpointOptions.withUnalignedUnsupported and withUnalignedSupported).
func (p *Partition) options(o event.Options) event.Options {
	switch {
	case p.alignedOnly && (o.Alignment == event.Unaligned || o.Timeoutable()):
		o.Alignment = event.ForcedAligned
	case !p.alignedOnly && o.Alignment == event.ForcedAligned:
		if o.Alignment = event.Aligned; !o.Timeoutable() {
			o = o.ToUnaligned()
		}
	}
	return o
}

// barrierLeft is called when the barrier of checkpoint id came to its turn in a
// queue, by the reader.
func (p *Partition) barrierLeft(sub int, id int64) {
	p.mu.Lock()
	t := p.pending
	mine := t != nil && t.id == id && t.waiting[sub]
	if mine {
		t.waiting[sub] = false
	}
	p.mu.Unlock()
	if mine {
		t.capture.outputDecided()
	}
}

// AlignedBarrierTimeout lets the barrier of checkpoint id, where it still waits,
// overtake the data in front of it, which is captured. A task calls it when the
// timeout of a barrier that it emitted has passed.
func (p *Partition) AlignedBarrierTimeout(id int64) {
	p.mu.Lock()
	t := p.pending
	p.mu.Unlock()
	if t == nil || t.id != id {
		return
	}
	for i := range p.subs {
		overtaken, ok := p.subs[i].q.convert(id, false)
		if !ok {
			continue
		}
		t.capture.addOutput(p.index, i, overtaken)
		p.barrierLeft(i, id)
	}
}

// giveUp tells the capture that nothing comes any more.
func (t *timedOnes) giveUp() {
	if t == nil {
		return
	}
	for _, w := range t.waiting {
		if w {
			t.capture.outputDecided()
		}
	}
}

// Cancel ends a wait of the writer, and its next buffer, with an error that wraps
// cause; nil is ErrCancelled. Any goroutine may call it.
func (p *Partition) Cancel(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancelled == nil {
		if cause == nil {
			cause = ErrCancelled
		}
		p.cancelled = fmt.Errorf("partition %d: %w", p.index, cause)
		close(p.done)
	}
}

func (p *Partition) cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancelled
}

// Close drops what nobody read and gives the memory back. Both ends must be done
// with the partition: after the last task has ended, or was cancelled.
func (p *Partition) Close() {
	p.Cancel(nil)
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	old := p.pending
	p.pending = nil
	p.mu.Unlock()
	if closed {
		return
	}
	old.giveUp()
	for i := range p.subs {
		s := &p.subs[i]
		if s.seg != nil {
			s.seg.unuse()
			s.seg, s.buf, s.pos, s.flushed = nil, nil, 0, 0
		}
		s.q.close()
	}
	p.pool.unreserve(p.buffers * len(p.subs))
}

// Backlog is how much data waits to be read.
func (p *Partition) Backlog() (buffers, bytes int) {
	for i := range p.subs {
		n, b := p.subs[i].q.size()
		buffers, bytes = buffers+n, bytes+b
	}
	return buffers, bytes
}

// Drained waits until the reader of each subpartition has processed all records and
// taken the EndOfPartition that was emitted last. The error is the end of ctx or that
// of Cancel.
func (p *Partition) Drained(ctx context.Context) error {
	p.blocked.Store(true)
	defer p.blocked.Store(false)
	for int(p.ended.Load()) < len(p.subs) {
		select {
		case <-p.wake:
		case <-p.done:
			return p.cause()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// endTaken is called when the reader of a subpartition took its EndOfData or
// EndOfPartition.
func (p *Partition) endTaken(kind EventKind) {
	if kind == EndOfPartition {
		p.ended.Add(1)
		p.wakeWriter()
		return
	}
	if int(p.read.Add(1)) < len(p.subs) {
		return
	}
	p.mu.Lock()
	f := p.allRead
	p.allRead = nil
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

// AwaitRead arranges that f is called once when the reader of each subpartition has
// processed all records and taken the EndOfData behind them; it says false, and does
// not call f, if they have. A buffer that was taken may not be processed yet, so that
// Backlog does not tell. f may be called by another goroutine and must not block.
func (p *Partition) AwaitRead(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(p.read.Load()) >= len(p.subs) {
		return false
	}
	p.allRead = f
	return true
}

func (p *Partition) wakeWriter() {
	if p.blocked.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}
