package barrier

import (
	"fmt"
	"time"

	"github.com/tidemark/tidemark/runtime/event"
)

// EventKind is what happened.
type EventKind uint8

// Kinds of events.
const (
	// BarrierArrived: Barrier came out of Channel, in its place or, with the
	// alignment Unaligned, ahead of the data in front of it.
	BarrierArrived EventKind = iota
	// Announced: Barrier is on its way in Channel, behind buffers. Only barriers
	// with a timeout are announced.
	Announced
	// Cancelled: the marker of checkpoint ID came out of Channel.
	Cancelled
	// EndOfPartition: Channel brings nothing more.
	EndOfPartition
	// TimerFired: the timer of checkpoint ID.
	TimerFired
)

// Event is one thing that happened. At is nanoseconds since 1970.
type Event struct {
	Kind    EventKind
	Channel int32
	At      int64
	ID      int64         // of Cancelled and TimerFired
	Barrier event.Barrier // of BarrierArrived and Announced
	// RPC: the barrier did not come out of the channel. The coordinator triggered
	// this subtask because all before it have finished (Flink's isRpcTriggered).
	RPC bool
}

func (e Event) String() string {
	switch e.Kind {
	case BarrierArrived:
		rpc := ""
		if e.RPC {
			rpc = " by RPC"
		}
		return fmt.Sprintf("channel %d: %s%s", e.Channel, e.Barrier, rpc)
	case Announced:
		return fmt.Sprintf("channel %d: announcement of %s", e.Channel, e.Barrier)
	case Cancelled:
		return fmt.Sprintf("channel %d: cancel %d", e.Channel, e.ID)
	case EndOfPartition:
		return fmt.Sprintf("channel %d: end of partition", e.Channel)
	case TimerFired:
		return fmt.Sprintf("timer %d", e.ID)
	}
	return fmt.Sprintf("event(%d)", uint8(e.Kind))
}

// ActionKind is what is to be done.
type ActionKind uint8

// Kinds of actions.
const (
	// Block: take no more data from Channel. Its priority events still come.
	Block ActionKind = iota
	// UnblockAll channels.
	UnblockAll
	// Trigger the snapshot with Barrier, whose options say whether it is unaligned
	// here, before any more input is processed.
	Trigger
	// Abort checkpoint ID for Reason: whether it was triggered or not. The task
	// declines it, discards what it captured, and sends the marker on.
	Abort
	// StartTimer: give TimerFired with ID at At. There is one timer at a time.
	StartTimer
	// StopTimer of ID.
	StopTimer
	// StartCapture: what Channel has that is not processed, and what it brings from
	// now on, is channel state of ID.
	StartCapture
	// StopCapture: all of it is there. If the barrier overtook data inside the
	// channel, that is the last of it.
	StopCapture
	// Convert: let the announced barrier ID of Channel overtake the data in front
	// of it. It comes out of the channel then as Unaligned.
	Convert
	// AllReceived: the barriers of ID of all channels are there, all captures have
	// ended. Before it a subtask cannot acknowledge.
	AllReceived
)

// Action is one thing to do.
type Action struct {
	Kind    ActionKind
	Channel int32 // of Block, StartCapture, StopCapture, Convert
	ID      int64 // the checkpoint, of all but Block and UnblockAll
	At      int64 // of StartTimer, nanoseconds since 1970
	Barrier event.Barrier
	Reason  event.Reason
	// StartDelay is, of Trigger, the time from the coordinator's trigger to the
	// first barrier.
	StartDelay time.Duration
	// Alignment is, of AllReceived, the time from the first barrier to the last,
	// and Bytes how much input was processed in it.
	Alignment time.Duration
	Bytes     int64
}

func (a Action) String() string {
	switch a.Kind {
	case Block:
		return fmt.Sprintf("block channel %d", a.Channel)
	case UnblockAll:
		return "unblock all"
	case Trigger:
		return fmt.Sprintf("trigger %s, start delay %s", a.Barrier, a.StartDelay)
	case Abort:
		return fmt.Sprintf("abort %d: %s", a.ID, a.Reason)
	case StartTimer:
		return fmt.Sprintf("start timer %d at %s", a.ID, time.Duration(a.At))
	case StopTimer:
		return fmt.Sprintf("stop timer %d", a.ID)
	case StartCapture:
		return fmt.Sprintf("capture channel %d for %d", a.Channel, a.ID)
	case StopCapture:
		return fmt.Sprintf("capture of channel %d for %d ends", a.Channel, a.ID)
	case Convert:
		return fmt.Sprintf("convert barrier %d of channel %d", a.ID, a.Channel)
	case AllReceived:
		return fmt.Sprintf("all barriers of %d received, alignment %s, %d bytes processed in it", a.ID, a.Alignment, a.Bytes)
	}
	return fmt.Sprintf("action(%d)", uint8(a.Kind))
}
