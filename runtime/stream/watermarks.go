package stream

import (
	"time"

	"github.com/tidemark/tidemark/runtime/task"
)

// WatermarkStrategy says how records get timestamps and how event time goes on.
type WatermarkStrategy[T any] struct {
	// Timestamp of a record in epoch milliseconds; nil keeps that of the source.
	Timestamp func(v T, at int64) int64
	// OutOfOrder is by how much a record may be earlier than one before it: Flink's
	// forBoundedOutOfOrderness. Zero is for ascending timestamps.
	OutOfOrder time.Duration
	// Generator makes watermarks another way, if not nil; one for each subtask.
	Generator func() WatermarkGenerator[T]
	// IdleAfter is after how long without records the subtask is idle, so that the
	// others' watermarks count without it; 0 is never.
	IdleAfter time.Duration
	// Interval between watermarks; 0 is Flink's pipeline.auto-watermark-interval, 200 ms.
	Interval time.Duration
}

// WatermarkGenerator makes watermarks of what it sees. Its methods give the
// watermark that is due, or task.NoTimestamp; one that is not above the last is dropped.
type WatermarkGenerator[T any] interface {
	OnRecord(v T, at int64) int64
	OnPeriodic() int64
}

// bounded is Flink's BoundedOutOfOrdernessWatermarks.
type bounded[T any] struct{ max, delay int64 }

func (b *bounded[T]) OnRecord(_ T, at int64) int64 {
	b.max = max(b.max, at)
	return task.NoTimestamp
}

func (b *bounded[T]) OnPeriodic() int64 { return b.max - b.delay - 1 }

// Watermarks gives records timestamps and the stream watermarks.
func Watermarks[T any](in *Stream[T], w WatermarkStrategy[T], opts ...Option) *Stream[T] {
	if w.Interval <= 0 {
		w.Interval = 200 * time.Millisecond
	}
	s := unary[T, T](in, "Timestamps/Watermarks", func() task.Wired { return &watermarks[T]{w: w} }, opts)
	s.ser, s.serErr = in.ser, in.serErr
	return s
}

type watermarks[T any] struct {
	single[T]
	w       WatermarkStrategy[T]
	env     *task.Env
	gen     WatermarkGenerator[T]
	bounded *bounded[T] // gen, if it is one: the usual case
	last    int64
	idle    bool
	seen    bool // a record since the last period
	since   int64
	stop    func()
}

func (m *watermarks[T]) Input(int) any { return task.Input[T](m) }

func (m *watermarks[T]) Open(e *task.Env) error {
	m.env, m.last = e, task.NoTimestamp
	if m.w.Generator != nil {
		m.gen = m.w.Generator()
	} else {
		d := m.w.OutOfOrder.Milliseconds()
		m.bounded = &bounded[T]{max: task.NoTimestamp + d + 1, delay: d}
		m.gen = m.bounded
	}
	m.since = e.Timers.Now()
	m.next()
	return nil
}

func (m *watermarks[T]) next() {
	m.stop = m.env.Timers.At(m.env.Timers.Now()+m.w.Interval.Milliseconds(), m.period)
}

func (m *watermarks[T]) period() error {
	now := m.env.Timers.Now()
	if m.seen {
		m.seen, m.since = false, now
	} else if m.w.IdleAfter > 0 && !m.idle && now-m.since >= m.w.IdleAfter.Milliseconds() {
		m.idle = true
		if err := m.outputs.Idle(true); err != nil {
			return err
		}
	}
	if !m.idle {
		if err := m.emit(m.gen.OnPeriodic()); err != nil {
			return err
		}
	}
	m.next()
	return nil
}

func (m *watermarks[T]) emit(at int64) error {
	if at <= m.last {
		return nil
	}
	m.last = at
	return m.outputs.Watermark(at)
}

func (m *watermarks[T]) Batch(b *task.Batch[T]) error {
	if m.idle {
		m.idle = false
		if err := m.outputs.Idle(false); err != nil {
			return err
		}
	}
	m.seen = true
	for i := range b.Values {
		at := b.Time(i)
		if m.w.Timestamp != nil {
			at = m.w.Timestamp(b.Values[i], at)
		}
		m.out.Add(b.Values[i], at)
		if m.bounded != nil {
			m.bounded.max = max(m.bounded.max, at)
			continue
		}
		if wm := m.gen.OnRecord(b.Values[i], at); wm > m.last {
			if err := m.emit(wm); err != nil {
				return err
			}
		}
	}
	return m.out.Flush()
}

// Watermark keeps watermarks of the source from the operators behind, but for the
// last one: Flink's TimestampsAndWatermarksOperator.
func (m *watermarks[T]) Watermark(at int64) error {
	if at != task.MaxWatermark {
		return nil
	}
	if m.idle {
		m.idle = false
		if err := m.outputs.Idle(false); err != nil {
			return err
		}
	}
	return m.emit(at)
}

// Idle of the input means nothing here: the operator has an idleness of its own.
func (m *watermarks[T]) Idle(bool) error { return nil }

func (m *watermarks[T]) Finish() error {
	if err := m.emit(m.gen.OnPeriodic()); err != nil {
		return err
	}
	return m.flush()
}

func (m *watermarks[T]) Close() error {
	if m.stop != nil {
		m.stop()
	}
	return nil
}
