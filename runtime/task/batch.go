package task

import "math"

// NoTimestamp is the timestamp of a record that has none, and the watermark before
// the first.
const NoTimestamp int64 = math.MinInt64

// MaxWatermark follows the last record of a bounded input.
const MaxWatermark int64 = math.MaxInt64

// BatchSize is how many records a batch holds at most: few enough to stay in the
// first cache, enough that what is done for each batch does not count.
const BatchSize = 256

// Batch is some records between two operators. It belongs to the sender: a receiver
// reads it during the call, and changes nothing in it, for there may be other
// receivers.
type Batch[T any] struct {
	Values []T
	// Times are the records' timestamps, in epoch milliseconds or NoTimestamp; it is
	// empty if no record has any.
	Times []int64
}

// Add appends a record.
func (b *Batch[T]) Add(v T, at int64) {
	if at != NoTimestamp || len(b.Times) > 0 {
		b.addTimed(v, at)
		return
	}
	b.Values = append(b.Values, v)
}

func (b *Batch[T]) addTimed(v T, at int64) {
	for len(b.Times) < len(b.Values) {
		b.Times = append(b.Times, NoTimestamp)
	}
	b.Values = append(b.Values, v)
	b.Times = append(b.Times, at)
}

// Time is the timestamp of record i.
func (b *Batch[T]) Time(i int) int64 {
	if len(b.Times) == 0 {
		return NoTimestamp
	}
	return b.Times[i]
}

// Reset empties the batch and keeps its memory.
func (b *Batch[T]) Reset() {
	clear(b.Values) // let go of what the values point to
	b.Values = b.Values[:0]
	b.Times = b.Times[:0]
}

// Input is where an operator takes records in. All calls come from the task's
// goroutine. An error fails the task.
type Input[T any] interface {
	Batch(b *Batch[T]) error
	// Watermark says that no record with a timestamp up to it will come.
	Watermark(at int64) error
	// Idle says that nothing will come for some time, so that nobody should wait for
	// a watermark, or that this is over.
	Idle(idle bool) error
}

// Collector is the output of an operator: it gathers records to batches and sends
// each to all inputs behind it. The zero value drops what it gets.
type Collector[T any] struct {
	batch Batch[T]
	outs  []Input[T]
	err   error
}

// Add sends a record. What fails behind the operator is told by Flush.
func (c *Collector[T]) Add(v T, at int64) {
	c.batch.Add(v, at)
	if len(c.batch.Values) >= BatchSize {
		c.send()
	}
}

func (c *Collector[T]) send() {
	if c.err == nil {
		for _, out := range c.outs {
			if c.err = out.Batch(&c.batch); c.err != nil {
				break
			}
		}
	}
	c.batch.Reset()
}

// Flush sends what was gathered.
func (c *Collector[T]) Flush() error {
	if len(c.batch.Values) > 0 {
		c.send()
	}
	return c.err
}

// Forward sends a whole batch of somebody else, after what was gathered.
func (c *Collector[T]) Forward(b *Batch[T]) error {
	if err := c.Flush(); err != nil {
		return err
	}
	for _, out := range c.outs {
		if c.err = out.Batch(b); c.err != nil {
			return c.err
		}
	}
	return nil
}

// Watermark sends a watermark behind all records so far.
func (c *Collector[T]) Watermark(at int64) error {
	if err := c.Flush(); err != nil {
		return err
	}
	for _, out := range c.outs {
		if c.err = out.Watermark(at); c.err != nil {
			return c.err
		}
	}
	return nil
}

// Idle sends that the output is idle, or no longer.
func (c *Collector[T]) Idle(idle bool) error {
	if err := c.Flush(); err != nil {
		return err
	}
	for _, out := range c.outs {
		if c.err = out.Idle(idle); c.err != nil {
			return c.err
		}
	}
	return nil
}

// Connect adds an input behind the operator.
func (c *Collector[T]) Connect(in Input[T]) { c.outs = append(c.outs, in) }

// Connected reports whether anybody gets what is sent.
func (c *Collector[T]) Connected() bool { return len(c.outs) > 0 }
