package stream

import (
	"time"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/serializer"
)

// Trigger decides when a window fires.
type Trigger interface{ merges() bool }

type atEnd struct{}

func (atEnd) merges() bool { return true }

// AtEnd fires at the end of the window, and for each late record: Flink's
// EventTimeTrigger and ProcessingTimeTrigger.
func AtEnd() Trigger { return atEnd{} }

type count struct {
	n     int64
	purge bool
}

func (count) merges() bool { return true }

// Count fires whenever there are n more records: Flink's CountTrigger. With purge
// the window is emptied each time.
func Count(n int64, purge bool) Trigger { return count{n, purge} }

type continuous struct{ every int64 }

func (continuous) merges() bool { return true }

// Every fires each time that a duration of event time is over, and at the end:
// Flink's ContinuousEventTimeTrigger.
func Every(d time.Duration) Trigger { return continuous{max(1, d.Milliseconds())} }

type triggerResult struct{ fire, purge bool }

// windowTrigger is a trigger in an operator.
type windowTrigger[K comparable] interface {
	onRecord(k keyed.Key[K], w Window, at int64) (triggerResult, error)
	onTimer(k keyed.Key[K], w Window, at int64, of TimeDomain) (triggerResult, error)
	// merge is called for the window that others become, before they are cleared.
	merge(k keyed.Key[K], result Window, from []Window) error
	clear(k keyed.Key[K], w Window) error
}

func newWindowTrigger[K comparable](t Trigger, b keyed.Backend[K], timers *timers[K, Window], watermark *int64, processing bool) windowTrigger[K] {
	switch t := t.(type) {
	case count:
		return &countTrigger[K]{t, keyed.ReducingIn(b, "count", func(a, b int64) int64 { return a + b }, serializer.TimeWindows, serializer.Int64)}
	case continuous:
		return &everyTrigger[K]{t.every, timers, watermark, keyed.ReducingIn(b, "fire-time", func(a, b int64) int64 { return min(a, b) }, serializer.TimeWindows, serializer.Int64)}
	}
	if processing {
		return &processingEnd[K]{timers}
	}
	return &eventEnd[K]{timers, watermark}
}

type eventEnd[K comparable] struct {
	timers    *timers[K, Window]
	watermark *int64
}

func (t *eventEnd[K]) onRecord(k keyed.Key[K], w Window, _ int64) (triggerResult, error) {
	if maxTimestamp(w) <= *t.watermark {
		return triggerResult{fire: true}, nil // late
	}
	return triggerResult{}, t.timers.registerEvent(k, w, maxTimestamp(w))
}

func (t *eventEnd[K]) onTimer(_ keyed.Key[K], w Window, at int64, of TimeDomain) (triggerResult, error) {
	return triggerResult{fire: of == EventTime && at == maxTimestamp(w)}, nil
}

func (t *eventEnd[K]) merge(k keyed.Key[K], w Window, _ []Window) error {
	if maxTimestamp(w) > *t.watermark {
		return t.timers.registerEvent(k, w, maxTimestamp(w))
	}
	return nil
}

func (t *eventEnd[K]) clear(k keyed.Key[K], w Window) error {
	_, err := t.timers.service.Event.Delete(k, w, maxTimestamp(w))
	return err
}

type processingEnd[K comparable] struct{ timers *timers[K, Window] }

func (t *processingEnd[K]) onRecord(k keyed.Key[K], w Window, _ int64) (triggerResult, error) {
	return triggerResult{}, t.timers.registerProcessing(k, w, maxTimestamp(w))
}

func (t *processingEnd[K]) onTimer(_ keyed.Key[K], _ Window, _ int64, of TimeDomain) (triggerResult, error) {
	return triggerResult{fire: of == ProcessingTime}, nil
}

func (t *processingEnd[K]) merge(k keyed.Key[K], w Window, _ []Window) error {
	if maxTimestamp(w) > t.timers.env.Timers.Now() {
		return t.timers.registerProcessing(k, w, maxTimestamp(w))
	}
	return nil
}

func (t *processingEnd[K]) clear(k keyed.Key[K], w Window) error {
	_, err := t.timers.service.Processing.Delete(k, w, maxTimestamp(w))
	return err
}

type countTrigger[K comparable] struct {
	count
	state *keyed.ReducingStateIn[K, Window, int64]
}

func (t *countTrigger[K]) onRecord(k keyed.Key[K], w Window, _ int64) (triggerResult, error) {
	if err := t.state.Add(k, w, 1); err != nil {
		return triggerResult{}, err
	}
	n, _, err := t.state.Get(k, w)
	if err != nil || n < t.n {
		return triggerResult{}, err
	}
	return triggerResult{fire: true, purge: t.purge}, t.state.Clear(k, w)
}

func (t *countTrigger[K]) onTimer(keyed.Key[K], Window, int64, TimeDomain) (triggerResult, error) {
	return triggerResult{}, nil
}

func (t *countTrigger[K]) merge(k keyed.Key[K], w Window, from []Window) error {
	return t.state.MergeNamespaces(k, w, from)
}

func (t *countTrigger[K]) clear(k keyed.Key[K], w Window) error { return t.state.Clear(k, w) }

type everyTrigger[K comparable] struct {
	every     int64
	timers    *timers[K, Window]
	watermark *int64
	state     *keyed.ReducingStateIn[K, Window, int64]
}

func (t *everyTrigger[K]) onRecord(k keyed.Key[K], w Window, at int64) (triggerResult, error) {
	if maxTimestamp(w) <= *t.watermark {
		return triggerResult{fire: true}, nil
	}
	if err := t.timers.registerEvent(k, w, maxTimestamp(w)); err != nil {
		return triggerResult{}, err
	}
	_, ok, err := t.state.Get(k, w)
	if err != nil || ok {
		return triggerResult{}, err
	}
	rest := at % t.every
	if rest < 0 {
		rest += t.every
	}
	return triggerResult{}, t.next(k, w, at-rest)
}

func (t *everyTrigger[K]) next(k keyed.Key[K], w Window, from int64) error {
	at := min(from+t.every, maxTimestamp(w))
	if err := t.state.Add(k, w, at); err != nil {
		return err
	}
	return t.timers.registerEvent(k, w, at)
}

func (t *everyTrigger[K]) onTimer(k keyed.Key[K], w Window, at int64, of TimeDomain) (triggerResult, error) {
	if of != EventTime {
		return triggerResult{}, nil
	}
	if at == maxTimestamp(w) {
		return triggerResult{fire: true}, nil
	}
	due, ok, err := t.state.Get(k, w)
	if err != nil || !ok || due != at {
		return triggerResult{}, err
	}
	if err := t.state.Clear(k, w); err != nil {
		return triggerResult{}, err
	}
	return triggerResult{fire: true}, t.next(k, w, at)
}

func (t *everyTrigger[K]) merge(k keyed.Key[K], w Window, from []Window) error {
	if err := t.state.MergeNamespaces(k, w, from); err != nil {
		return err
	}
	if at, ok, err := t.state.Get(k, w); err != nil || !ok {
		return err
	} else if err := t.timers.registerEvent(k, w, at); err != nil {
		return err
	}
	return t.timers.registerEvent(k, w, maxTimestamp(w))
}

func (t *everyTrigger[K]) clear(k keyed.Key[K], w Window) error {
	if at, ok, err := t.state.Get(k, w); err != nil {
		return err
	} else if ok {
		if _, err := t.timers.service.Event.Delete(k, w, at); err != nil {
			return err
		}
	}
	if _, err := t.timers.service.Event.Delete(k, w, maxTimestamp(w)); err != nil {
		return err
	}
	return t.state.Clear(k, w)
}
