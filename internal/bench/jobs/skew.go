//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"time"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

// The workload skew: parallelism 2, an unbounded number source, keyBy(x mod 100),
// and a function of which subtask 0 takes a millisecond for each record and subtask 1
// nothing. Buffers are of 8 KiB, 10 for each channel, so that some 12,000 records wait in
// front of the slow subtask. When they do, three checkpoints are triggered, one after
// the other, each by the time from the trigger to its completion:
//
//	aligned            the barrier waits for all of them
//	unaligned          the barrier overtakes them, they become channel state
//	aligned-timeout    aligned, unaligned from 200 ms on
const (
	skewBuffer  = 8 << 10
	skewBuffers = 10
	skewTimeout = 200 * time.Millisecond
	skewFill    = 3 * time.Second
)

type dawdle struct{ subtask int }

func (d *dawdle) Open(rt *stream.KeyedRuntime[int64]) error {
	d.subtask = rt.Subtask
	return nil
}

func (d *dawdle) Process(x *stream.KeyedContext[int64, int64], v int64) error {
	if d.subtask == 0 {
		time.Sleep(time.Millisecond)
	}
	x.Emit(v)
	return nil
}

func skewed() error {
	for _, mode := range []string{"aligned", "unaligned", "aligned-timeout"} {
		name := "skew/" + mode
		if !regexp.MustCompile(*only).MatchString(name) {
			continue
		}
		if err := skewedMode(name, mode); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func skewedMode(name, mode string) error {
	folder, err := os.MkdirTemp(*dir, "skew")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	j := stream.NewJob("skew", &stream.JobOptions{Parallelism: 2})
	numbers := stream.From(j, stream.Sequence(0, math.MaxInt64-1), stream.UID("numbers"))
	byKey := stream.KeyBy(numbers, serializer.Int64, func(v int64) int64 { return v % 100 })
	stream.Discard(stream.Process(byKey, func() stream.KeyedFunction[int64, int64, int64] { return &dawdle{} }, stream.UID("dawdle")))
	o := options(mode, folder, time.Hour)
	o.BufferSize, o.BuffersPerChannel, o.HistorySize = skewBuffer, skewBuffers, 100
	if mode == "aligned-timeout" {
		o.AlignedTimeout = skewTimeout
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e, err := runtime.Start(ctx, j, o)
	if err != nil {
		return err
	}
	time.Sleep(skewFill) // until all buffers are full
	var millis, inFlight []float64
	for range *runs {
		begun := time.Now()
		r, err := e.Checkpoint(ctx, event.Checkpoint, "")
		if err != nil {
			return err
		}
		millis = append(millis, float64(time.Since(begun).Nanoseconds())/1e6)
		h, err := e.History(ctx)
		if err != nil {
			return err
		}
		inFlight = append(inFlight, float64(h.Find(r.ID).InFlightBytes))
	}
	report("skew", name, "checkpoint", "ms", millis...)
	report("skew", name, "in_flight", "B", inFlight...)
	cancel()
	if err := e.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
