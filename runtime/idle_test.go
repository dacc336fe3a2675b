package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// pausing is a sequence whose readers have nothing more after the first poll, but have
// not come to their end, or say that they are idle and then come to it.
type pausing struct {
	stream.Source[int64, stream.SequenceSplit, []stream.SequenceSplit]
	ends bool
}

type pausingReader struct {
	stream.Reader[int64, stream.SequenceSplit]
	ends, read bool
}

func (s pausing) NewReader(e *task.Env) (stream.Reader[int64, stream.SequenceSplit], error) {
	r, err := s.Source.NewReader(e)
	return &pausingReader{r, s.ends, false}, err
}

func (r *pausingReader) Poll(out *task.Collector[int64]) (task.PollResult, error) {
	switch {
	case r.read && r.ends:
		return task.PollEnd, out.Idle(true)
	case r.read:
		return task.PollNone, nil
	}
	p, err := r.Reader.Poll(out)
	r.read = p == task.PollMore
	return p, err
}

// alert sends a record when a timer of a key is due.
type alert struct {
	of stream.TimeDomain
}

func (alert) Open(*stream.KeyedRuntime[int64]) error { return nil }

func (a alert) Process(c *stream.KeyedContext[int64, int64], _ int64) error {
	if a.of == stream.EventTime {
		return c.At(1000)
	}
	return c.AtProcessing(c.Now() + 20)
}

func (a alert) OnTimer(c *stream.KeyedContext[int64, int64], _ int64, _ stream.TimeDomain) error {
	c.Emit(c.Key.Value())
	return nil
}

// TestTimerOfATaskWithoutInput has a timer send a record while nothing comes in: it
// gets to the next task all the same.
func TestTimerOfATaskWithoutInput(t *testing.T) {
	for name, interval := range map[string]time.Duration{"flush now and then": 5 * time.Millisecond, "flush at once": -1} {
		t.Run(name, func(t *testing.T) {
			got := make(chan int64, 1)
			j := stream.NewJob("alarm", nil)
			nums := stream.From(j, pausing{Source: stream.Sequence(7, 7)})
			alarms := stream.Process(stream.KeyBy(nums, serializer.Int64, func(v int64) int64 { return v }),
				func() stream.KeyedFunction[int64, int64, int64] { return alert{stream.ProcessingTime} })
			stream.ForEach(alarms.Rebalance(), func(v int64) error { got <- v; return nil })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, err := runtime.Start(ctx, j, &runtime.Options{FlushInterval: interval})
			require.NoError(t, err)
			select {
			case v := <-got:
				require.EqualValues(t, 7, v)
			case <-time.After(time.Minute):
				t.Error("the record does not come")
			}
			cancel()
			require.ErrorIs(t, e.Wait(), context.Canceled)
		})
	}
}

// TestEndOfAnIdleSource ends event time behind a source that is idle when it comes to
// its end.
func TestEndOfAnIdleSource(t *testing.T) {
	var got []int64
	j := stream.NewJob("alarm", nil)
	nums := stream.From(j, pausing{stream.Sequence(7, 7), true})
	alarms := stream.Process(stream.KeyBy(nums, serializer.Int64, func(v int64) int64 { return v }),
		func() stream.KeyedFunction[int64, int64, int64] { return alert{stream.EventTime} })
	stream.ForEach(alarms, func(v int64) error { got = append(got, v); return nil })
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	require.Equal(t, []int64{7}, got)
}
