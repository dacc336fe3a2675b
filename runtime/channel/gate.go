package channel

import (
	"fmt"
	"sync"
)

// Item is what a Gate gives: an event, or a buffer whose elements are read next.
type Item struct {
	Channel int
	// Event came out of the channel; nil for a buffer.
	Event *Event
	// Records iterates over the buffer's elements. They are read until Next says
	// that there is none, or the rest is left for the next Poll, which gives the same
	// Records again unless an event with priority comes first.
	Records *Records
	// Recovered says that the elements come from the channel state of a restored
	// checkpoint.
	Recovered bool
}

// Gate is the input of a subtask from one exchange (Flink's CheckpointedInputGate,
// SingleInputGate and RecoveredInputChannel): a channel from each subtask at the
// other end. The methods are for one goroutine, the task's, but for Fail.
type Gate struct {
	index    int
	channels []inputChannel
	current  int // the channel whose buffer is being read; -1 for none
	overtook int // the channel whose barrier was polled last and overtook data in it; -1 for none
	open     int // channels that have not ended

	mu        sync.Mutex
	ready     fifo // channels with data, in turn
	urgent    fifo // channels with priority events
	available func()
	priority  func()
	failed    error

	recovery *recovering // nil when there is nothing to give back
	group    *RecoveryGroup
}

type inputChannel struct {
	q       *queue
	records Records
	reading view // the buffer that records iterates over
	blocked bool
	ended   bool
	// overtaken is what the barrier that was polled last overtook in this channel.
	overtaken   []view
	overtakenBy int64
	capture     *Capture // gets what is polled

	inReady, inUrgent bool // under Gate.mu
}

// NewGate makes a gate of that index, which is its place among the gates of its
// subtask. Each channel has to be connected before it is polled.
func NewGate(index, channels int) *Gate {
	g := &Gate{index: index, channels: make([]inputChannel, channels), current: -1, overtook: -1, open: channels}
	for i := range g.channels {
		g.channels[i].records.name = fmt.Sprintf("input gate %d channel %d", index, i)
	}
	return g
}

// Index is the gate's place in its subtask.
func (g *Gate) Index() int { return g.index }

// Channels is how many there are.
func (g *Gate) Channels() int { return len(g.channels) }

// connect makes q the channel's.
func (g *Gate) connect(channel int, q *queue) {
	c := &g.channels[channel]
	c.q = q
	q.mu.Lock()
	q.announces = true
	q.notify = func(priority bool) { g.notify(channel, priority) }
	waiting, urgent := q.n > 0, q.priority > 0
	q.mu.Unlock()
	if waiting {
		g.notify(channel, urgent)
	}
}

// notify says that a channel has something new; by the other end's goroutine.
func (g *Gate) notify(channel int, priority bool) {
	g.mu.Lock()
	c := &g.channels[channel]
	if !c.inReady {
		c.inReady = true
		g.ready.push(int32(channel))
	}
	var urgent func()
	if priority {
		if !c.inUrgent {
			c.inUrgent = true
			g.urgent.push(int32(channel))
		}
		urgent = g.priority
	}
	f := g.available
	g.available = nil
	g.mu.Unlock()
	if urgent != nil {
		urgent()
	}
	if f != nil {
		f()
	}
}

// OnPriority sets what is called, by another goroutine, each time an event with
// priority is there: a task puts a mail then that calls PollPriority until there is
// none. It must not block.
func (g *Gate) OnPriority(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.priority = f
}

// Await arranges that f is called once when Poll may have something; it says false,
// and does not call f, if it may have it now. f may be called by another goroutine
// and must not block.
func (g *Gate) Await(f func()) bool {
	if g.current >= 0 || g.recovery != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waitsForOthers() && g.failed == nil {
		g.available = f // the last gate of the group calls it
		return true
	}
	if g.ready.n > 0 || g.urgent.n > 0 || g.failed != nil {
		return false
	}
	g.available = f
	return true
}

// Fail makes Poll return err: the transport lost the other end.
func (g *Gate) Fail(channel int, err error) {
	g.mu.Lock()
	if g.failed == nil {
		g.failed = fmt.Errorf("input gate %d channel %d: %w", g.index, channel, err)
	}
	f, urgent := g.available, g.priority
	g.available = nil
	g.mu.Unlock()
	if urgent != nil {
		urgent()
	}
	if f != nil {
		f()
	}
}

// PollPriority gives the next event with priority. While recovered data is left
// there is none: barriers wait until it is processed.
func (g *Gate) PollPriority() (it Item, ok bool, err error) {
	if g.Recovering() {
		return Item{}, false, nil
	}
	g.dropOvertaken()
	for {
		g.mu.Lock()
		if err := g.failed; err != nil {
			g.mu.Unlock()
			return Item{}, false, err
		}
		if g.urgent.n == 0 {
			g.mu.Unlock()
			return Item{}, false, nil
		}
		channel := int(g.urgent.pop())
		c := &g.channels[channel]
		c.inUrgent = false
		g.mu.Unlock()
		e, _, ok := c.q.poll(onlyPriority)
		if !ok {
			continue // it was polled with the data
		}
		g.requeueUrgent(channel)
		return g.eventItem(channel, e), true, nil
	}
}

// dropOvertaken releases what the barrier that was polled last overtook, if nobody
// stopped a capture for it.
func (g *Gate) dropOvertaken() {
	if g.overtook < 0 {
		return
	}
	c := &g.channels[g.overtook]
	releaseViews(c.overtaken)
	c.overtaken, c.overtakenBy, g.overtook = nil, 0, -1
}

// requeueUrgent keeps a channel with more priority events in the queue of those.
func (g *Gate) requeueUrgent(channel int) {
	c := &g.channels[channel]
	c.q.mu.Lock()
	more := c.q.priority > 0
	c.q.mu.Unlock()
	if !more {
		return
	}
	g.mu.Lock()
	if !c.inUrgent {
		c.inUrgent = true
		g.urgent.push(int32(channel))
	}
	g.mu.Unlock()
}

func (g *Gate) eventItem(channel int, e entry) Item {
	c := &g.channels[channel]
	if len(e.overtaken) > 0 {
		c.overtaken, c.overtakenBy, g.overtook = e.overtaken, e.event.Barrier.ID, channel
	}
	if e.event.Kind == EndOfPartition && !c.ended {
		c.ended = true
		g.open--
	}
	return Item{Channel: channel, Event: e.event}
}

// Poll gives the next buffer or event: events with priority, then what is left of
// the buffer that was read last, then the channels that are not blocked, in turn.
// ok is false if there is nothing now; see Await and Ended.
func (g *Gate) Poll() (it Item, ok bool, err error) {
	if g.recovery != nil {
		if it, ok, err = g.pollRecovered(); ok || err != nil {
			return it, ok, err
		}
	}
	if g.waitsForOthers() {
		return Item{}, false, nil
	}
	if it, ok, err = g.PollPriority(); ok || err != nil {
		return it, ok, err
	}
	if g.current >= 0 {
		c := &g.channels[g.current]
		if err := c.records.err; err != nil {
			return Item{}, false, err
		}
		if !c.records.Done() {
			return Item{Channel: g.current, Records: &c.records}, true, nil
		}
		g.finishBuffer()
	}
	for {
		g.mu.Lock()
		if g.ready.n == 0 {
			g.mu.Unlock()
			return Item{}, false, nil
		}
		channel := int(g.ready.pop())
		c := &g.channels[channel]
		c.inReady = false
		g.mu.Unlock()
		if c.blocked {
			continue // Unblock puts it back
		}
		e, more, ok := c.q.poll(anything)
		if more {
			g.requeue(channel)
		}
		if !ok {
			continue
		}
		if e.event != nil {
			return g.eventItem(channel, e), true, nil
		}
		if c.capture != nil {
			e.seg.retain()
			c.capture.addInput(g.index, channel, e.view)
		}
		g.current, c.reading = channel, e.view
		c.records.set(e.bytes())
		return Item{Channel: channel, Records: &c.records}, true, nil
	}
}

func (g *Gate) requeue(channel int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := &g.channels[channel]; !c.inReady {
		c.inReady = true
		g.ready.push(int32(channel))
	}
}

// finishBuffer gives the buffer back that was read.
func (g *Gate) finishBuffer() {
	c := &g.channels[g.current]
	c.records.set(nil)
	if c.reading.seg != nil {
		c.reading.seg.unuse()
		c.reading = view{}
	}
	g.current = -1
}

// Ended says that each channel has ended: an EndOfPartition came out of it.
func (g *Gate) Ended() bool { return g.open == 0 && g.recovery == nil }

// Block takes no more from a channel but events with priority.
func (g *Gate) Block(channel int) { g.channels[channel].blocked = true }

// Unblock lets a channel go on.
func (g *Gate) Unblock(channel int) {
	c := &g.channels[channel]
	if c.blocked {
		c.blocked = false
		g.requeue(channel)
	}
}

// UnblockAll lets all channels go on.
func (g *Gate) UnblockAll() {
	for i := range g.channels {
		g.Unblock(i)
	}
}

// Convert lets the announced barrier of checkpoint id overtake the data in front of
// it. It comes out of the channel next, as Unaligned, and what it overtook goes to
// the capture of the channel. If the barrier is not in the channel any more, or not
// yet, that does nothing.
func (g *Gate) Convert(channel int, id int64) { g.channels[channel].q.convert(id, true) }

// StartCapture makes what the channel has that is not processed, and what it brings
// from now on, channel state.
func (g *Gate) StartCapture(channel int, capture *Capture) {
	c := &g.channels[channel]
	span, data := c.records.rest()
	if len(span) > 0 {
		capture.addBytes(g.index, channel, append([]byte(nil), span...))
	}
	if len(data) > 0 && c.reading.seg != nil {
		v := c.reading
		v.start = v.end - len(data)
		v.seg.retain()
		capture.addInput(g.index, channel, v)
	}
	c.capture = capture
}

// StopCapture ends the capture of a channel, of which the last is what the barrier
// that was polled last overtook inside of the channel.
func (g *Gate) StopCapture(channel int) {
	c := &g.channels[channel]
	if c.capture == nil {
		return
	}
	if c.overtakenBy == c.capture.id {
		for _, v := range c.overtaken {
			c.capture.addInput(g.index, channel, v)
		}
		c.overtaken = nil
	}
	c.capture = nil
}

// AbortCapture ends the captures of all channels for checkpoint id.
func (g *Gate) AbortCapture(id int64) {
	for i := range g.channels {
		if c := &g.channels[i]; c.capture != nil && c.capture.id == id {
			c.capture = nil
		}
	}
}

// Close gives back what the gate holds. Both ends must be done with the channels.
func (g *Gate) Close() {
	if g.current >= 0 {
		g.finishBuffer()
	}
	g.dropOvertaken()
	for i := range g.channels {
		c := &g.channels[i]
		c.capture = nil
		if c.q != nil {
			c.q.close()
		}
	}
	g.recovery = nil
}

// fifo is a queue of channel indexes in a circular buffer.
type fifo struct {
	buf     []int32
	head, n int
}

func (f *fifo) push(v int32) {
	if f.n == len(f.buf) {
		buf := make([]int32, max(8, 2*len(f.buf)))
		for i := range f.n {
			buf[i] = f.buf[(f.head+i)&(len(f.buf)-1)]
		}
		f.buf, f.head = buf, 0
	}
	f.buf[(f.head+f.n)&(len(f.buf)-1)] = v
	f.n++
}

func (f *fifo) pop() int32 {
	v := f.buf[f.head]
	f.head = (f.head + 1) & (len(f.buf) - 1)
	f.n--
	return v
}
