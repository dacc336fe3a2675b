package task

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/serializer"
)

// Route is how an output chooses the channel of a record.
type Route uint8

// Routes.
const (
	RouteForward   Route = iota // one channel
	RouteRebalance              // in turn, beginning at the subtask's own
	RouteHash                   // by key group
	RouteBroadcast              // to all
)

// Codec makes the two ends of an exchange of records of one type.
type Codec interface {
	// output makes an Input that writes records to a partition.
	output(p *channel.Partition, r Route, subtask, maxParallelism int) any
	// input makes the reader that gives what comes out of channels to an Input.
	input(in any, channels int) *inputEnd
	// keyGroup makes the function that finds the key group of an element, tag first,
	// for the redistribution of channel state; nil for records without key.
	keyGroup(maxParallelism int) func(element []byte) (int, error)
}

// NewCodec makes a codec with a serializer. group makes, for a max parallelism, what
// finds the key group of a record; it is nil for an exchange without keys.
func NewCodec[T any](s serializer.Serializer[T], group func(maxParallelism int) func(T) int) Codec {
	return &codec[T]{s, group}
}

type codec[T any] struct {
	ser   serializer.Serializer[T]
	group func(maxParallelism int) func(T) int
}

func (c *codec[T]) output(p *channel.Partition, r Route, subtask, maxParallelism int) any {
	o := &output[T]{p: p, ser: c.ser, next: subtask % p.Subpartitions()}
	n := p.Subpartitions()
	switch {
	case r == RouteBroadcast && n > 1:
		return Input[T](&broadcastOutput[T]{*o})
	case n == 1:
		return Input[T](&forwardOutput[T]{*o})
	case r == RouteHash:
		o.group = c.group(maxParallelism)
		o.targets = make([]int32, maxParallelism)
		for g := range o.targets {
			o.targets[g] = int32(serializer.SubtaskOf(g, n, maxParallelism))
		}
		return Input[T](&hashOutput[T]{*o})
	}
	return Input[T](&rebalanceOutput[T]{*o})
}

// output writes records into the buffers of a partition.
type output[T any] struct {
	p       *channel.Partition
	ser     serializer.Serializer[T]
	group   func(T) int
	targets []int32 // subtask of each key group
	next    int
	scratch []byte
}

func (o *output[T]) put(target int, b *Batch[T], i int) error {
	dst := o.p.Begin(target)
	if at := b.Time(i); at != NoTimestamp {
		dst = channel.AppendTimestamp(dst, at)
	} else {
		dst = append(dst, channel.TagRecord)
	}
	return o.p.End(target, o.ser.Append(dst, b.Values[i]))
}

func (o *output[T]) Watermark(at int64) error {
	o.scratch = channel.AppendWatermark(o.scratch[:0], at)
	return o.p.Broadcast(o.scratch)
}

func (o *output[T]) Idle(idle bool) error {
	o.scratch = channel.AppendWatermarkStatus(o.scratch[:0], idle)
	return o.p.Broadcast(o.scratch)
}

type hashOutput[T any] struct{ output[T] }

func (o *hashOutput[T]) Batch(b *Batch[T]) error {
	for i := range b.Values {
		if err := o.put(int(o.targets[o.group(b.Values[i])]), b, i); err != nil {
			return err
		}
	}
	return nil
}

type forwardOutput[T any] struct{ output[T] }

func (o *forwardOutput[T]) Batch(b *Batch[T]) error {
	for i := range b.Values {
		if err := o.put(0, b, i); err != nil {
			return err
		}
	}
	return nil
}

type rebalanceOutput[T any] struct{ output[T] }

func (o *rebalanceOutput[T]) Batch(b *Batch[T]) error {
	n := o.p.Subpartitions()
	for i := range b.Values {
		if o.next++; o.next >= n {
			o.next = 0
		}
		if err := o.put(o.next, b, i); err != nil {
			return err
		}
	}
	return nil
}

type broadcastOutput[T any] struct{ output[T] }

func (o *broadcastOutput[T]) Batch(b *Batch[T]) error {
	for i := range b.Values {
		dst := o.scratch[:0]
		if at := b.Time(i); at != NoTimestamp {
			dst = channel.AppendTimestamp(dst, at)
		} else {
			dst = append(dst, channel.TagRecord)
		}
		o.scratch = o.ser.Append(dst, b.Values[i])
		if err := o.p.Broadcast(o.scratch); err != nil {
			return err
		}
	}
	return nil
}

// inputEnd reads elements of channels for one input of an operator.
type inputEnd struct {
	valve *valve
	first int // channel in the valve; a union has many gates
	// read gives up to a batch of the elements to the input; more says that the buffer
	// has not been read to its end.
	read  func(r *channel.Records, channel int) (more bool, err error)
	watch func(at int64) error
	idle  func(idle bool) error
	bytes int // read since they were asked for
}

// takeBytes is how many bytes were read since the last call.
func (e *inputEnd) takeBytes() int {
	n := e.bytes
	e.bytes = 0
	return n
}

func (c *codec[T]) input(in any, channels int) *inputEnd {
	to := in.(Input[T])
	e := &inputEnd{valve: newValve(channels), watch: to.Watermark, idle: to.Idle}
	d := &decoder[T]{ser: c.ser, to: to, end: e, limit: BatchSize}
	e.read = d.read
	return e
}

// watermark hands a channel's watermark on if the input's rises.
func (e *inputEnd) watermark(channel int, at int64) error {
	if to, ok := e.valve.watermark(e.first+channel, at); ok {
		return e.watch(to)
	}
	return nil
}

// setIdle hands a channel's status on.
func (e *inputEnd) setIdle(channel int, idle bool) error {
	changed, to, ok := e.valve.setIdle(e.first+channel, idle)
	if ok {
		if err := e.watch(to); err != nil {
			return err
		}
	}
	if changed {
		return e.idle(e.valve.idle)
	}
	return nil
}

type decoder[T any] struct {
	ser   serializer.Serializer[T]
	to    Input[T]
	end   *inputEnd
	batch Batch[T]
	limit int // records that a batch takes now, see pace
}

// slowBatch and fastBatch are how long a batch should take at most, so that a mail
// does not wait longer, and from which time on it may be larger again.
const (
	slowBatch = 5 * time.Millisecond
	fastBatch = time.Millisecond
)

// pace makes batches smaller where the operators take long for a record: a
// checkpoint is looked at between batches, and with slow records it would wait for
// hundreds of them.
func (d *decoder[T]) pace(took time.Duration, records int) {
	switch {
	case took > slowBatch:
		d.limit = max(1, min(d.limit, records)/4)
	case took < fastBatch && records == d.limit:
		d.limit = min(BatchSize, 2*d.limit)
	}
}

func (d *decoder[T]) read(r *channel.Records, ch int) (more bool, err error) {
	b := &d.batch
	for len(b.Values) < d.limit {
		e, ok := r.Next()
		if !ok {
			if err := r.Err(); err != nil {
				return false, err
			}
			return false, d.send()
		}
		d.end.bytes += 4 + len(e)
		at, value := NoTimestamp, e[1:]
		switch e[0] {
		case channel.TagRecord:
		case channel.TagTimestampedRecord:
			if len(value) < 8 {
				return false, badElement(e, "is a record with timestamp, but has %d bytes", len(e))
			}
			at, value = int64(binary.BigEndian.Uint64(value)), value[8:]
		default:
			if err := d.send(); err != nil {
				return false, err
			}
			if err := d.control(e, ch); err != nil {
				return false, err
			}
			continue
		}
		v, n, err := d.ser.Read(value)
		if err != nil {
			return false, fmt.Errorf("record of channel %d: %w", ch, err)
		}
		if n != len(value) {
			return false, badElement(e, "has %d bytes, its serializer read %d of them", len(value), n)
		}
		b.Add(v, at)
	}
	return true, d.send()
}

func (d *decoder[T]) send() error {
	if len(d.batch.Values) == 0 {
		return nil
	}
	begun := time.Now()
	err := d.to.Batch(&d.batch)
	d.pace(time.Since(begun), len(d.batch.Values))
	d.batch.Reset()
	return err
}

func (d *decoder[T]) control(e []byte, ch int) error {
	switch tag := e[0]; {
	case tag == channel.TagWatermark && len(e) == 9:
		return d.end.watermark(ch, int64(binary.BigEndian.Uint64(e[1:])))
	case tag == channel.TagWatermarkStatus && len(e) == 5:
		return d.end.setIdle(ch, binary.BigEndian.Uint32(e[1:]) != 0)
	case tag == channel.TagLatencyMarker, tag == channel.TagRecordAttributes:
		return nil // nobody here has use for them
	}
	return badElement(e, "of tag %d has %d bytes, or is not known", e[0], len(e))
}

func badElement(_ []byte, format string, args ...any) error {
	return &damage.Error{Offset: -1, Field: "stream element", Detail: fmt.Sprintf(format, args...), Err: damage.ErrCorrupt}
}

func (c *codec[T]) keyGroup(maxParallelism int) func(element []byte) (int, error) {
	if c.group == nil {
		return nil
	}
	group := c.group(maxParallelism)
	return func(e []byte) (int, error) {
		if len(e) == 0 {
			return 0, badElement(e, "has no bytes")
		}
		value := e[1:]
		switch {
		case e[0] == channel.TagTimestampedRecord && len(value) >= 8:
			value = value[8:]
		case e[0] != channel.TagRecord:
			return -1, nil
		}
		v, _, err := c.ser.Read(value)
		if err != nil {
			return 0, err
		}
		return group(v), nil
	}
}
