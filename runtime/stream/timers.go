package stream

import (
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// timers is Flink's InternalTimerServiceImpl: the timers of an operator, fired by its
// watermark and by processing time.
type timers[K, N comparable] struct {
	env     *task.Env
	service *keyed.TimerService[K, N]
	fire    func(t keyed.Timer[K, N], of TimeDomain) error
	flush   func() error // what a timer sent
	stop    func()       // of the callback that is waited for
	next    int64        // its time
	onEvent func(keyed.Timer[K, N]) error
	onProc  func(keyed.Timer[K, N]) error
}

func (t *timers[K, N]) open(e *task.Env, b keyed.Backend[K], name string, ns serializer.Serializer[N], fire func(keyed.Timer[K, N], TimeDomain) error) {
	t.env, t.service, t.fire = e, keyed.Timers(b, name, ns), fire
	t.onEvent = func(x keyed.Timer[K, N]) error { return t.fire(x, EventTime) }
	t.onProc = func(x keyed.Timer[K, N]) error { return t.fire(x, ProcessingTime) }
}

// start waits for restored processing-time timers; err is passed through.
func (t *timers[K, N]) start(err error) error {
	if err != nil {
		return err
	}
	return t.schedule()
}

func (t *timers[K, N]) registerEvent(k keyed.Key[K], ns N, at int64) error {
	_, err := t.service.Event.Register(k, ns, at)
	return err
}

func (t *timers[K, N]) registerProcessing(k keyed.Key[K], ns N, at int64) error {
	added, err := t.service.Processing.Register(k, ns, at)
	if err != nil || !added || t.stop != nil && t.next <= at {
		return err
	}
	return t.schedule()
}

// schedule asks for a call at the time of the first processing-time timer.
func (t *timers[K, N]) schedule() error {
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
	at, ok, err := t.service.Processing.Next()
	if err != nil || !ok {
		return err
	}
	t.next = at
	t.stop = t.env.Timers.At(at, func() error {
		t.stop = nil
		if _, err := t.service.Processing.Advance(t.env.Timers.Now(), t.onProc); err != nil {
			return err
		}
		if err := t.flush(); err != nil {
			return err
		}
		return t.schedule()
	})
	return nil
}

// advance fires event-time timers up to a watermark.
func (t *timers[K, N]) advance(watermark int64) error {
	if watermark == task.NoTimestamp {
		return nil
	}
	_, err := t.service.Event.Advance(watermark, t.onEvent)
	return err
}

func (t *timers[K, N]) close() {
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
}
