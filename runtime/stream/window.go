package stream

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// Windowed is a keyed stream in windows.
type Windowed[K comparable, T any] struct {
	in       *Keyed[K, T]
	assigner Assigner
	lateness int64
	late     *Tag[T]
	trigger  Trigger
}

// Windows divides a keyed stream.
func Windows[K comparable, T any](in *Keyed[K, T], a Assigner) *Windowed[K, T] {
	if err := a.check(); err != nil {
		in.job.errs = append(in.job.errs, err)
	}
	return &Windowed[K, T]{in: in, assigner: a}
}

// AllowLate keeps windows for some time after the watermark passed their end:
// records that come meanwhile make them fire again.
func (w *Windowed[K, T]) AllowLate(d time.Duration) *Windowed[K, T] {
	w.lateness = d.Milliseconds()
	return w
}

// LateTo sends records that come too late for all their windows to a side output.
// They are dropped otherwise.
func (w *Windowed[K, T]) LateTo(tag *Tag[T]) *Windowed[K, T] {
	w.late = tag
	return w
}

// Trigger decides when windows fire; the default is at their end.
func (w *Windowed[K, T]) Trigger(t Trigger) *Windowed[K, T] {
	w.trigger = t
	return w
}

// WindowContext is what a window function has.
type WindowContext[K comparable, OUT any] struct {
	Context[OUT]
	Key    keyed.Key[K]
	Window Window
}

// ReduceWindow folds the records of each window into one, with the timestamp of the
// window's last millisecond.
func ReduceWindow[K comparable, T any](w *Windowed[K, T], f func(a, b T) T, opts ...Option) *Stream[T] {
	s := ReduceWindowWith(w, f, func(c *WindowContext[K, T], v T) error {
		c.Emit(v)
		return nil
	}, opts...)
	s.ser, s.serErr = w.in.ser, w.in.serErr
	return s
}

// ReduceWindowWith gives the result of each window to a function.
func ReduceWindowWith[K comparable, T, OUT any](w *Windowed[K, T], f func(a, b T) T, fn func(c *WindowContext[K, OUT], v T) error, opts ...Option) *Stream[OUT] {
	return window(w, fn, func(b keyed.Backend[K]) contents[K, T, T] {
		return reduceContents[K, T]{keyed.ReducingIn(b, windowContents, f, serializer.TimeWindows, w.in.ser)}
	}, w.in.serErr, opts)
}

// AggregateWindow folds the records of each window with an Aggregator, whose
// accumulators s writes.
func AggregateWindow[K comparable, T, ACC, OUT any](w *Windowed[K, T], agg keyed.Aggregator[T, ACC, OUT], s serializer.Serializer[ACC], opts ...Option) *Stream[OUT] {
	return AggregateWindowWith(w, agg, s, func(c *WindowContext[K, OUT], v OUT) error {
		c.Emit(v)
		return nil
	}, opts...)
}

// AggregateWindowWith gives the result of each window to a function.
func AggregateWindowWith[K comparable, T, ACC, R, OUT any](w *Windowed[K, T], agg keyed.Aggregator[T, ACC, R], s serializer.Serializer[ACC], fn func(c *WindowContext[K, OUT], v R) error, opts ...Option) *Stream[OUT] {
	return window(w, fn, func(b keyed.Backend[K]) contents[K, T, R] {
		return aggregateContents[K, T, ACC, R]{keyed.AggregatingIn(b, windowContents, agg, serializer.TimeWindows, s)}
	}, nil, opts)
}

// ProcessWindow gives all records of each window to a function. They are kept until
// then; the slice is valid during the call.
func ProcessWindow[K comparable, T, OUT any](w *Windowed[K, T], fn func(c *WindowContext[K, OUT], records []T) error, opts ...Option) *Stream[OUT] {
	return window(w, fn, func(b keyed.Backend[K]) contents[K, T, []T] {
		return listContents[K, T]{keyed.ListIn(b, windowContents, serializer.TimeWindows, w.in.ser)}
	}, w.in.serErr, opts)
}

// Names of Flink's WindowOperator.
const (
	windowContents = "window-contents"
	windowTimers   = "window-timers"
	mergingWindows = "merging-window-set"
)

// contents is the state of windows: what is in them, and R what comes out.
type contents[K comparable, T, R any] interface {
	add(k keyed.Key[K], w Window, v T) error
	get(k keyed.Key[K], w Window) (R, bool, error)
	clear(k keyed.Key[K], w Window) error
	merge(k keyed.Key[K], target Window, from []Window) error
}

type reduceContents[K comparable, T any] struct {
	s *keyed.ReducingStateIn[K, Window, T]
}

func (c reduceContents[K, T]) add(k keyed.Key[K], w Window, v T) error       { return c.s.Add(k, w, v) }
func (c reduceContents[K, T]) get(k keyed.Key[K], w Window) (T, bool, error) { return c.s.Get(k, w) }
func (c reduceContents[K, T]) clear(k keyed.Key[K], w Window) error          { return c.s.Clear(k, w) }
func (c reduceContents[K, T]) merge(k keyed.Key[K], to Window, from []Window) error {
	return c.s.MergeNamespaces(k, to, from)
}

type aggregateContents[K comparable, T, ACC, R any] struct {
	s *keyed.AggregatingStateIn[K, Window, T, ACC, R]
}

func (c aggregateContents[K, T, ACC, R]) add(k keyed.Key[K], w Window, v T) error {
	return c.s.Add(k, w, v)
}
func (c aggregateContents[K, T, ACC, R]) get(k keyed.Key[K], w Window) (R, bool, error) {
	return c.s.Get(k, w)
}
func (c aggregateContents[K, T, ACC, R]) clear(k keyed.Key[K], w Window) error {
	return c.s.Clear(k, w)
}
func (c aggregateContents[K, T, ACC, R]) merge(k keyed.Key[K], to Window, from []Window) error {
	return c.s.MergeNamespaces(k, to, from)
}

type listContents[K comparable, T any] struct {
	s *keyed.ListStateIn[K, Window, T]
}

func (c listContents[K, T]) add(k keyed.Key[K], w Window, v T) error { return c.s.Add(k, w, v) }
func (c listContents[K, T]) get(k keyed.Key[K], w Window) ([]T, bool, error) {
	v, err := c.s.Get(k, w)
	return v, len(v) > 0, err
}
func (c listContents[K, T]) clear(k keyed.Key[K], w Window) error { return c.s.Clear(k, w) }
func (c listContents[K, T]) merge(k keyed.Key[K], to Window, from []Window) error {
	return c.s.MergeNamespaces(k, to, from)
}

func window[K comparable, T, R, OUT any](w *Windowed[K, T], fn func(*WindowContext[K, OUT], R) error, open func(keyed.Backend[K]) contents[K, T, R], serErr error, opts []Option) *Stream[OUT] {
	w2 := *w
	if serErr != nil {
		w2.in.job.errs = append(w2.in.job.errs, fmt.Errorf("windows: their state has no serializer, see Stream.As: %w", serErr))
	}
	if w2.trigger == nil {
		w2.trigger = AtEnd()
	}
	if w2.assigner.session && !w2.trigger.merges() {
		w2.in.job.errs = append(w2.in.job.errs, errors.New("session windows: the trigger cannot merge"))
	}
	return unary[T, OUT](w.in.Stream, w2.assigner.name+" Windows", func() task.Wired {
		return &windowOperator[K, T, R, OUT]{w: w2, fn: fn, openContents: open}
	}, opts)
}

// windowOperator is Flink's WindowOperator: the same states, namespaces and timers.
type windowOperator[K comparable, T, R, OUT any] struct {
	single[OUT]
	w            Windowed[K, T]
	fn           func(*WindowContext[K, OUT], R) error
	openContents func(keyed.Backend[K]) contents[K, T, R]

	keys    *keyed.Keys[K]
	timers  timers[K, Window]
	content contents[K, T, R]
	trigger windowTrigger[K]
	sets    *keyed.ListState[K, serializer.Pair[Window, Window]]
	c       WindowContext[K, OUT]
	windows []Window // of the record
	dropped int64
}

func (o *windowOperator[K, T, R, OUT]) Input(int) any { return task.Input[T](o) }

func (o *windowOperator[K, T, R, OUT]) Open(e *task.Env) error {
	b, err := task.OpenKeyed(e, o.w.in.key)
	if err != nil {
		return err
	}
	o.keys, err = keyed.NewKeys(keyed.Config[K]{Key: o.w.in.key, MaxParallelism: e.MaxParallelism, KeyGroups: e.KeyGroups()})
	if err != nil {
		return err
	}
	o.c.Context = Context[OUT]{out: &o.outputs, env: e, at: task.NoTimestamp, watermark: task.NoTimestamp}
	o.timers.open(e, b, windowTimers, serializer.TimeWindows, o.fire)
	o.timers.flush = o.flush
	o.content = o.openContents(b)
	if o.w.assigner.session {
		o.sets = keyed.List(b, mergingWindows, serializer.Tuple2(serializer.TimeWindows, serializer.TimeWindows))
	}
	o.trigger = newWindowTrigger(o.w.trigger, b, &o.timers, &o.c.watermark, o.w.assigner.processing)
	return o.timers.start(b.Err())
}

func (o *windowOperator[K, T, R, OUT]) Close() error {
	o.timers.close()
	return nil
}

func (o *windowOperator[K, T, R, OUT]) Watermark(at int64) error {
	o.c.watermark = at
	if err := o.timers.advance(at); err != nil {
		return err
	}
	return o.outputs.Watermark(at)
}

func (o *windowOperator[K, T, R, OUT]) Batch(b *task.Batch[T]) error {
	for i := range b.Values {
		if err := o.process(b.Values[i], b.Time(i)); err != nil {
			return err
		}
	}
	return o.flush()
}

func (o *windowOperator[K, T, R, OUT]) process(v T, at int64) error {
	time := at
	if o.w.assigner.processing {
		time = o.timers.env.Timers.Now()
	} else if at == task.NoTimestamp {
		return errors.New("a record without timestamp comes to windows of event time: is there a Watermarks in front of them?")
	}
	k := o.keys.Make(o.w.in.of(v))
	o.windows = o.w.assigner.assign(o.windows[:0], time)
	skipped := true
	var err error
	if o.w.assigner.session {
		skipped, err = o.processMerging(k, v, at)
	} else {
		for _, w := range o.windows {
			if o.isLate(w) {
				continue
			}
			skipped = false
			if err := o.take(k, w, w, v, at); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	if skipped && !o.w.assigner.processing && at+o.w.lateness <= o.c.watermark {
		if o.w.late != nil {
			emitSide(&o.sides, o.w.late, v, at)
		} else {
			o.dropped++
		}
	}
	return nil
}

func (o *windowOperator[K, T, R, OUT]) processMerging(k keyed.Key[K], v T, at int64) (skipped bool, err error) {
	pairs, err := o.sets.Get(k)
	if err != nil {
		return false, err
	}
	set := mergeSet{pairs: pairs}
	w, err := set.add(o.windows[0], func(result Window, from []Window, state Window, others []Window) error {
		if !o.w.assigner.processing && maxTimestamp(result)+o.w.lateness <= o.c.watermark {
			return fmt.Errorf("a merged window ends at %d, but the watermark is at %d", result.End, o.c.watermark)
		}
		if err := o.trigger.merge(k, result, from); err != nil {
			return err
		}
		for _, m := range from {
			if err := o.trigger.clear(k, m); err != nil {
				return err
			}
			if err := o.deleteCleanup(k, m); err != nil {
				return err
			}
		}
		if len(others) == 0 {
			return nil
		}
		return o.content.merge(k, state, others)
	})
	if err != nil {
		return false, err
	}
	if o.isLate(w) {
		set.retire(w)
		skipped = true
	} else {
		state, _ := set.state(w)
		if err := o.take(k, w, state, v, at); err != nil {
			return false, err
		}
	}
	return skipped, o.persist(k, &set)
}

func (o *windowOperator[K, T, R, OUT]) persist(k keyed.Key[K], set *mergeSet) error {
	if !set.changed {
		return nil
	}
	return o.sets.Update(k, set.pairs)
}

// take adds a record to a window, whose state lies in another's namespace if windows
// were merged.
func (o *windowOperator[K, T, R, OUT]) take(k keyed.Key[K], w, state Window, v T, at int64) error {
	if err := o.content.add(k, state, v); err != nil {
		return err
	}
	r, err := o.trigger.onRecord(k, w, at)
	if err != nil {
		return err
	}
	if err := o.act(r, k, w, state); err != nil {
		return err
	}
	return o.registerCleanup(k, w)
}

func (o *windowOperator[K, T, R, OUT]) act(r triggerResult, k keyed.Key[K], w, state Window) error {
	if r.fire {
		v, ok, err := o.content.get(k, state)
		if err != nil {
			return err
		}
		if ok {
			o.c.Key, o.c.Window, o.c.at = k, w, maxTimestamp(w)
			if err := o.fn(&o.c, v); err != nil {
				return err
			}
		}
	}
	if r.purge {
		return o.content.clear(k, state)
	}
	return nil
}

// fire is called for a timer of a window.
func (o *windowOperator[K, T, R, OUT]) fire(t keyed.Timer[K, Window], of TimeDomain) error {
	w, state := t.Namespace, t.Namespace
	var set mergeSet
	if o.w.assigner.session {
		pairs, err := o.sets.Get(t.Key)
		if err != nil {
			return err
		}
		set.pairs = pairs
		var ok bool
		if state, ok = set.state(w); !ok {
			return nil // the window was merged away
		}
	}
	r, err := o.trigger.onTimer(t.Key, w, t.At, of)
	if err != nil {
		return err
	}
	if err := o.act(r, t.Key, w, state); err != nil {
		return err
	}
	if (of == ProcessingTime) == o.w.assigner.processing && t.At == o.cleanupTime(w) {
		if err := o.content.clear(t.Key, state); err != nil {
			return err
		}
		if err := o.trigger.clear(t.Key, w); err != nil {
			return err
		}
		if o.w.assigner.session {
			set.retire(w)
		}
	}
	if o.w.assigner.session {
		return o.persist(t.Key, &set)
	}
	return nil
}

func (o *windowOperator[K, T, R, OUT]) isLate(w Window) bool {
	return !o.w.assigner.processing && o.cleanupTime(w) <= o.c.watermark
}

func (o *windowOperator[K, T, R, OUT]) cleanupTime(w Window) int64 {
	at := maxTimestamp(w)
	if o.w.assigner.processing {
		return at
	}
	if at > math.MaxInt64-o.w.lateness {
		return math.MaxInt64
	}
	return at + o.w.lateness
}

func (o *windowOperator[K, T, R, OUT]) registerCleanup(k keyed.Key[K], w Window) error {
	at := o.cleanupTime(w)
	switch {
	case at == math.MaxInt64:
		return nil
	case o.w.assigner.processing:
		return o.timers.registerProcessing(k, w, at)
	}
	return o.timers.registerEvent(k, w, at)
}

func (o *windowOperator[K, T, R, OUT]) deleteCleanup(k keyed.Key[K], w Window) error {
	at := o.cleanupTime(w)
	if at == math.MaxInt64 {
		return nil
	}
	q := o.timers.service.Event
	if o.w.assigner.processing {
		q = o.timers.service.Processing
	}
	_, err := q.Delete(k, w, at)
	return err
}
