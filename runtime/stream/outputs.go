package stream

import "github.com/tidemark/tidemark/runtime/task"

// Tag names a side output.
type Tag[T any] struct{ name string }

// NewTag makes a tag. The name is not empty and unique in an operator.
func NewTag[T any](name string) *Tag[T] { return &Tag[T]{name} }

// Side is a side output of the operator that a stream comes from.
func Side[T, U any](s *Stream[U], tag *Tag[T]) *Stream[T] {
	return newStream[T](s.job, s.from[0].node, tag.name)
}

// signals is what an Input of any type takes.
type signals interface {
	Watermark(at int64) error
	Idle(idle bool) error
}

// outputs are the main and side outputs of an operator.
type outputs[OUT any] struct {
	out   task.Collector[OUT]
	sides sides
}

// Connect implements task.Wired.
func (o *outputs[OUT]) Connect(tag string, in any) {
	if tag == "" {
		o.out.Connect(in.(task.Input[OUT]))
		return
	}
	o.sides.ins = append(o.sides.ins, sideInput{tag, in})
}

func (o *outputs[OUT]) flush() error {
	if len(o.sides.opened) > 0 {
		if err := o.sides.flush(); err != nil {
			return err
		}
	}
	return o.out.Flush()
}

// Watermark implements part of task.Input, for operators that have no use for it.
func (o *outputs[OUT]) Watermark(at int64) error {
	if err := o.sides.signal(func(s signals) error { return s.Watermark(at) }); err != nil {
		return err
	}
	return o.out.Watermark(at)
}

// Idle implements part of task.Input.
func (o *outputs[OUT]) Idle(idle bool) error {
	if err := o.sides.signal(func(s signals) error { return s.Idle(idle) }); err != nil {
		return err
	}
	return o.out.Idle(idle)
}

// sides are side outputs, whose types only those who emit and receive know.
type sides struct {
	ins    []sideInput
	opened []openedSide
}

type sideInput struct {
	tag string
	in  any // a task.Input
}

type openedSide struct {
	tag       any // *Tag[T]
	collector any // *task.Collector[T]
	flush     func() error
}

func (s *sides) flush() error {
	for i := range s.opened {
		if err := s.opened[i].flush(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sides) signal(f func(signals) error) error {
	if len(s.ins) == 0 {
		return nil
	}
	if err := s.flush(); err != nil {
		return err
	}
	for _, in := range s.ins {
		if err := f(in.in.(signals)); err != nil {
			return err
		}
	}
	return nil
}

func emitSide[T any](s *sides, tag *Tag[T], v T, at int64) {
	for i := range s.opened {
		if s.opened[i].tag == tag {
			s.opened[i].collector.(*task.Collector[T]).Add(v, at)
			return
		}
	}
	c := &task.Collector[T]{}
	for _, in := range s.ins {
		if in.tag == tag.name {
			c.Connect(in.in.(task.Input[T]))
		}
	}
	s.opened = append(s.opened, openedSide{tag, c, c.Flush})
	c.Add(v, at)
}
