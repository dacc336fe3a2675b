package channel

import (
	"fmt"

	"github.com/tidemark/tidemark/runtime/event"
)

// EventKind is what an Event says.
type EventKind uint8

// Kinds of events. Flink's names are CheckpointBarrier, EventAnnouncement,
// CancelCheckpointMarker, EndOfData and EndOfPartitionEvent.
const (
	_ EventKind = iota
	// Barrier of a checkpoint.
	Barrier
	// Announcement: Barrier waits in the channel behind buffers. It overtakes them.
	Announcement
	// Cancel: the checkpoint ID is not to be waited for.
	Cancel
	// EndOfData: the task at the other end has emitted its last record. Drain says
	// whether windows and timers are to be flushed.
	EndOfData
	// EndOfPartition: nothing more comes.
	EndOfPartition
)

var eventKinds = [...]string{"", "barrier", "announcement", "cancel", "end of data", "end of partition"}

func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventKinds) {
		return eventKinds[k]
	}
	return fmt.Sprintf("event kind %d", uint8(k))
}

// Event travels in a channel between records. It is not part of channel state.
type Event struct {
	Kind    EventKind
	Barrier event.Barrier // of Barrier and Announcement
	ID      int64         // of Cancel
	Drain   bool          // of EndOfData
}

func (e Event) String() string {
	switch e.Kind {
	case Barrier:
		return e.Barrier.String()
	case Announcement:
		return "announcement of " + e.Barrier.String()
	case Cancel:
		return event.CancelMarker{ID: e.ID}.String()
	case EndOfData:
		if e.Drain {
			return "end of data, drain"
		}
	}
	return e.Kind.String()
}
