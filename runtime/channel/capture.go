package channel

import "sync"

// Capture collects the channel state of one checkpoint of one subtask, from its
// gates and partitions, and writes it (Flink's ChannelStateWriterImpl). Write runs
// beside the task, in the asynchronous part of the checkpoint; captured buffers are
// written as they come. The buffers are not copied: their memory is given back when
// they are written, while the channel may go on filling others.
type Capture struct {
	id int64

	mu      sync.Mutex
	chunks  []chunk
	inputs  bool // all inputs are captured
	emitted bool // the barrier was emitted to all partitions
	awaited int  // subpartitions where it may still time out
	aborted error
	bytes   int64
	changed chan struct{}
}

// chunk is one buffer of channel state.
type chunk struct {
	output        bool
	gate, channel int32
	data          []byte
	view          view // retained, if seg is not nil
}

// NewCapture begins the capture for a checkpoint.
func NewCapture(id int64) *Capture { return &Capture{id: id, changed: make(chan struct{}, 1)} }

// ID is the checkpoint's.
func (c *Capture) ID() int64 { return c.id }

// addInput takes over a retained view.
func (c *Capture) addInput(gate, channel int, v view) {
	c.add(chunk{gate: int32(gate), channel: int32(channel), data: v.bytes(), view: v})
}

// addBytes takes over bytes of an input channel.
func (c *Capture) addBytes(gate, channel int, b []byte) {
	c.add(chunk{gate: int32(gate), channel: int32(channel), data: b})
}

// addOutput takes over the retained views of a subpartition.
func (c *Capture) addOutput(partition, sub int, views []view) {
	for _, v := range views {
		c.add(chunk{output: true, gate: int32(partition), channel: int32(sub), data: v.bytes(), view: v})
	}
}

func (c *Capture) add(k chunk) {
	c.mu.Lock()
	if c.aborted != nil {
		c.mu.Unlock()
		k.drop()
		return
	}
	c.chunks = append(c.chunks, k)
	c.bytes += int64(len(k.data))
	c.mu.Unlock()
	c.signal()
}

func (k *chunk) drop() {
	if k.view.seg != nil {
		k.view.seg.release()
	}
}

func (c *Capture) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Capture) expectOutputs(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited += n
}

func (c *Capture) outputDecided() {
	c.mu.Lock()
	c.awaited--
	c.mu.Unlock()
	c.signal()
}

// InputsDone says that the barriers of all inputs are there (barrier.AllReceived).
func (c *Capture) InputsDone() {
	c.mu.Lock()
	c.inputs = true
	c.mu.Unlock()
	c.signal()
}

// OutputsDone says that the barrier was emitted to all partitions.
func (c *Capture) OutputsDone() {
	c.mu.Lock()
	c.emitted = true
	c.mu.Unlock()
	c.signal()
}

// Abort drops what was captured and what comes; Write returns cause.
func (c *Capture) Abort(cause error) {
	c.mu.Lock()
	if c.aborted == nil {
		c.aborted = cause
	}
	chunks := c.chunks
	c.chunks = nil
	c.mu.Unlock()
	for i := range chunks {
		chunks[i].drop()
	}
	c.signal()
}
