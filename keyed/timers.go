package keyed

import (
	"iter"

	"github.com/tidemark/tidemark/serializer"
)

// Prefixes of the names under which Flink keeps timers as states. A keyed process
// function's service is called "user-timers", a window operator's "window-timers".
const (
	eventTimers      = "_timer_state/event_"
	processingTimers = "_timer_state/processing_"
)

// Timer is a point in time at which a key in a namespace wants to be called.
type Timer[K, N comparable] struct {
	// At is in milliseconds of the epoch.
	At        int64
	Key       Key[K]
	Namespace N
}

// TimerService is the timers of one operator: two queues, which know no clock. Who
// owns it tells each how far its time has come.
type TimerService[K, N comparable] struct {
	Event      *TimerQueue[K, N]
	Processing *TimerQueue[K, N]
}

// Timers registers the timers of a service, which are a state in snapshots.
// Timers without a namespace have serializer.VoidNS.
func Timers[K, N comparable](b Backend[K], service string, ns serializer.Serializer[N]) *TimerService[K, N] {
	return &TimerService[K, N]{
		Event:      &TimerQueue[K, N]{attachTimers(b, eventTimers+service, ns)},
		Processing: &TimerQueue[K, N]{attachTimers(b, processingTimers+service, ns)},
	}
}

// TimerQueue is a set of timers ordered by time; those of the same time by key
// group, then in no order.
type TimerQueue[K, N comparable] struct {
	e timerEngine[K, N]
}

// timerEngine is a backend's implementation of a queue.
type timerEngine[K, N comparable] interface {
	register(k Key[K], ns N, at int64) (bool, error)
	delete(k Key[K], ns N, at int64) (bool, error)
	next() (at int64, ok bool, err error)
	// pop removes the first timer if it is not after to.
	pop(to int64) (t Timer[K, N], ok bool, err error)
	len() (int, error)
	all(f func(Timer[K, N]) bool) error
	allAt(v View, f func(k K, ns N, at int64) bool) error
}

// Register adds a timer; false if there is one of that time, key and namespace.
func (q *TimerQueue[K, N]) Register(k Key[K], ns N, at int64) (added bool, err error) {
	return q.e.register(k, ns, at)
}

// Delete removes a timer; false if there is none.
func (q *TimerQueue[K, N]) Delete(k Key[K], ns N, at int64) (deleted bool, err error) {
	return q.e.delete(k, ns, at)
}

// Next is the time of the first timer; ok is false if there is none.
func (q *TimerQueue[K, N]) Next() (at int64, ok bool, err error) { return q.e.next() }

// Len is the number of timers.
func (q *TimerQueue[K, N]) Len() (int, error) { return q.e.len() }

// Advance removes the timers up to and including a time, one after the other, and
// calls fire for each. fire may register and delete timers; one that is not after
// the time fires too. Its error ends Advance, and timers not yet fired stay.
func (q *TimerQueue[K, N]) Advance(to int64, fire func(t Timer[K, N]) error) (fired int, err error) {
	for {
		t, ok, err := q.e.pop(to)
		if err != nil || !ok {
			return fired, err
		}
		fired++
		if err := fire(t); err != nil {
			return fired, err
		}
	}
}

// All iterates over all timers, by key group, else in no order.
func (q *TimerQueue[K, N]) All() iter.Seq[Timer[K, N]] {
	return func(yield func(Timer[K, N]) bool) { q.e.all(yield) }
}

// AllAt calls f for all timers of a view until it returns false, from any goroutine.
func (q *TimerQueue[K, N]) AllAt(v View, f func(k K, ns N, at int64) bool) error {
	return q.e.allAt(v, f)
}

// failedTimers is a queue that could not be registered.
type failedTimers[K, N comparable] struct{ err error }

func (f failedTimers[K, N]) register(Key[K], N, int64) (bool, error)       { return false, f.err }
func (f failedTimers[K, N]) delete(Key[K], N, int64) (bool, error)         { return false, f.err }
func (f failedTimers[K, N]) next() (int64, bool, error)                    { return 0, false, f.err }
func (f failedTimers[K, N]) pop(int64) (t Timer[K, N], ok bool, err error) { return t, false, f.err }
func (f failedTimers[K, N]) len() (int, error)                             { return 0, f.err }
func (f failedTimers[K, N]) all(func(Timer[K, N]) bool) error              { return f.err }
func (f failedTimers[K, N]) allAt(View, func(K, N, int64) bool) error      { return f.err }
