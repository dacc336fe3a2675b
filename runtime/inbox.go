package runtime

import "sync"

// inbox is the queue of what the job's goroutine has to do. It is not bounded:
// whoever puts something in must not wait for the job.
type inbox struct {
	mu     sync.Mutex
	queue  []func()
	closed bool
	wake   chan struct{}
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put appends f; it is dropped after close.
func (i *inbox) put(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return
	}
	i.queue = append(i.queue, f)
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take gives all that is there.
func (i *inbox) take() []func() {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := i.queue
	i.queue = nil
	return q
}

func (i *inbox) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.queue = nil
}
