package stream

import "github.com/tidemark/tidemark/runtime/task"

// single is an operator with one input.
type single[OUT any] struct {
	task.Base
	outputs[OUT]
}

// Finish implements task.Operator.
func (s *single[OUT]) Finish() error { return s.flush() }

// PrepareBarrier implements task.Operator.
func (s *single[OUT]) PrepareBarrier(int64) error { return s.flush() }

// unary adds an operator with one input to the job.
func unary[IN, OUT any](in *Stream[IN], name string, make func() task.Wired, opts []Option) *Stream[OUT] {
	n := in.job.add(name, in.parallelism(), make, opts)
	in.into(n, 0)
	return newStream[OUT](in.job, n, "")
}

// Map makes one record of each.
func Map[IN, OUT any](in *Stream[IN], f func(IN) OUT, opts ...Option) *Stream[OUT] {
	return unary[IN, OUT](in, "Map", func() task.Wired { return &mapper[IN, OUT]{f: f} }, opts)
}

type mapper[IN, OUT any] struct {
	single[OUT]
	f func(IN) OUT
}

func (m *mapper[IN, OUT]) Input(int) any { return task.Input[IN](m) }

func (m *mapper[IN, OUT]) Batch(b *task.Batch[IN]) error {
	for i := range b.Values {
		m.out.Add(m.f(b.Values[i]), b.Time(i))
	}
	return m.out.Flush()
}

// Filter keeps the records for which f is true.
func Filter[T any](in *Stream[T], f func(T) bool, opts ...Option) *Stream[T] {
	s := unary[T, T](in, "Filter", func() task.Wired { return &filter[T]{f: f} }, opts)
	s.ser, s.serErr = in.ser, in.serErr
	return s
}

type filter[T any] struct {
	single[T]
	f func(T) bool
}

func (m *filter[T]) Input(int) any { return task.Input[T](m) }

func (m *filter[T]) Batch(b *task.Batch[T]) error {
	for i := range b.Values {
		if m.f(b.Values[i]) {
			m.out.Add(b.Values[i], b.Time(i))
		}
	}
	return m.out.Flush()
}

// FlatMap makes any number of records of each; they have its timestamp.
func FlatMap[IN, OUT any](in *Stream[IN], f func(v IN, emit func(OUT)), opts ...Option) *Stream[OUT] {
	return unary[IN, OUT](in, "Flat Map", func() task.Wired {
		m := &flatMapper[IN, OUT]{f: f}
		m.emit = func(v OUT) { m.out.Add(v, m.at) }
		return m
	}, opts)
}

type flatMapper[IN, OUT any] struct {
	single[OUT]
	f    func(IN, func(OUT))
	emit func(OUT)
	at   int64
}

func (m *flatMapper[IN, OUT]) Input(int) any { return task.Input[IN](m) }

func (m *flatMapper[IN, OUT]) Batch(b *task.Batch[IN]) error {
	for i := range b.Values {
		m.at = b.Time(i)
		m.f(b.Values[i], m.emit)
	}
	return m.out.Flush()
}
