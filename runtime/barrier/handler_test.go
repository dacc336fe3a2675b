package barrier

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime/event"
)

// An event costs no allocation, whatever the mode.
func TestHandleDoesNotAllocate(t *testing.T) {
	for name, o := range map[string]event.Options{
		"aligned":       {Alignment: event.Aligned},
		"unaligned":     {Alignment: event.Unaligned},
		"timeout":       {Alignment: event.Aligned, AlignedTimeout: 1},
		"at-least-once": {},
	} {
		h := New(Options{Channels: 8, AtLeastOnce: name == "at-least-once"})
		id, triggered := int64(0), 0
		round := func() {
			id++
			for c := range int32(8) {
				for _, a := range h.Handle(Event{Kind: BarrierArrived, Channel: c, At: id, Barrier: event.Barrier{ID: id, Options: o}}) {
					if a.Kind == Trigger {
						triggered++
					}
				}
			}
		}
		round()
		require.Zero(t, testing.AllocsPerRun(100, round), name)
		require.EqualValues(t, id, triggered, name)
	}
}

// A tracker follows a bounded number of checkpoints.
func TestTrackerIsBounded(t *testing.T) {
	h := New(Options{Channels: 2, AtLeastOnce: true})
	var aborted []int64
	for id := int64(1); id <= maxTracked+10; id++ {
		for _, a := range h.Handle(Event{Kind: BarrierArrived, Barrier: event.Barrier{ID: id}}) {
			require.Equal(t, Abort, a.Kind)
			aborted = append(aborted, a.ID)
		}
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, aborted)
	require.Len(t, h.tracker.list, maxTracked)
	require.EqualValues(t, maxTracked+10, h.Latest())
}

func TestNoSuchChannel(t *testing.T) {
	h := New(Options{Channels: 1})
	for _, c := range []int32{-1, 1} {
		require.Empty(t, h.Handle(Event{Kind: EndOfPartition, Channel: c}))
	}
	require.Equal(t, 1, h.Open())
	require.EqualValues(t, -1, h.Latest())
}

// A timeout that ends behind the last nanosecond that there is does not pass.
func TestTimeoutOfCenturies(t *testing.T) {
	h := New(Options{Channels: 2})
	b := event.Barrier{ID: 1, Timestamp: 1_700_000_000_000, Options: event.Options{Alignment: event.Aligned, AlignedTimeout: event.NoTimeout - 1}}
	var kinds []ActionKind
	for _, a := range h.Handle(Event{Kind: BarrierArrived, At: b.Timestamp * 1e6, Barrier: b}) {
		kinds = append(kinds, a.Kind)
	}
	require.Equal(t, []ActionKind{StartTimer, Block}, kinds)
}

// BenchmarkHandle is one barrier of an aligned checkpoint over 8 channels.
func BenchmarkHandle(b *testing.B) {
	h := New(Options{Channels: 8})
	b.ReportAllocs()
	id, c := int64(1), int32(0)
	for b.Loop() {
		h.Handle(Event{Kind: BarrierArrived, Channel: c, Barrier: event.Barrier{ID: id, Options: event.Options{Alignment: event.Aligned}}})
		if c++; c == 8 {
			id, c = id+1, 0
		}
	}
}
