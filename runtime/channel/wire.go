package channel

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/runtime/event"
)

// What travels over a connection, one for each channel. The reader's side dials:
//
//	uint32 magic "TMch"  uint8 version 2  uint32 credits  uint16 length  bytes name
//
// and then both sides send frames:
//
//	uint32 length of what follows  uint8 type  body
//
//	type  from    body
//	1     writer  data: the bytes of a buffer; it costs a credit
//	2     writer  event, in its place
//	3     writer  event with priority: it overtakes the data that the reader has
//	4     writer  error: text; the channel is not served
//	5     reader  credits: uint32, so many more buffers may be sent
//	6     reader  the end of the partition was taken, and all before it processed
//	7     reader  the end of the data was taken, and all before it processed
//
// An event is its kind in a byte and then, of a Barrier or Announcement,
//
//	int64 ID  int64 timestamp  uint8 snapshot type  uint8 post action
//	uint8 alignment  int64 aligned timeout in ns  int64 base  target
//
// of Cancel int64 ID, of EndOfData a boolean drain. Numbers are big-endian.
const (
	wireMagic   = 0x544d6368
	wireVersion = 2

	frameData      = 1
	frameEvent     = 2
	framePriority  = 3
	frameError     = 4
	frameCredit    = 5
	frameEndTaken  = 6
	frameDataTaken = 7

	// Bounds on lengths that the other side tells.
	maxChannelName = 1 << 10
	maxEventFrame  = 64 << 10
	maxCredits     = 1 << 20
)

// appendEvent appends an event as it travels.
func appendEvent(b []byte, ev *Event) []byte {
	b = append(b, byte(ev.Kind))
	switch ev.Kind {
	case Barrier, Announcement:
		o := &ev.Barrier.Options
		b = binary.BigEndian.AppendUint64(b, uint64(ev.Barrier.ID))
		b = binary.BigEndian.AppendUint64(b, uint64(ev.Barrier.Timestamp))
		b = append(b, byte(o.Type), byte(o.Post), byte(o.Alignment))
		b = binary.BigEndian.AppendUint64(b, uint64(o.AlignedTimeout))
		b = binary.BigEndian.AppendUint64(b, uint64(ev.Barrier.Base))
		b = append(b, o.Target...)
	case Cancel:
		b = binary.BigEndian.AppendUint64(b, uint64(ev.ID))
	case EndOfData:
		drain := byte(0)
		if ev.Drain {
			drain = 1
		}
		b = append(b, drain)
	}
	return b
}

const barrierBytes = 8 + 8 + 3 + 8 + 8

// parseEvent reads an event. Errors wrap damage.ErrCorrupt.
func parseEvent(b []byte) (*Event, error) {
	bad := func(field string, v any) (*Event, error) {
		return nil, &damage.Error{Offset: -1, Field: field, Detail: fmt.Sprintf("is %v", v), Err: damage.ErrCorrupt}
	}
	if len(b) == 0 {
		return bad("event length", 0)
	}
	ev := &Event{Kind: EventKind(b[0])}
	body := b[1:]
	size := 0
	switch ev.Kind {
	case Barrier, Announcement:
		if size = max(barrierBytes, len(body)); len(body) < size {
			break
		}
		o := &ev.Barrier.Options
		ev.Barrier.ID = int64(binary.BigEndian.Uint64(body))
		ev.Barrier.Timestamp = int64(binary.BigEndian.Uint64(body[8:]))
		o.Type, o.Post, o.Alignment = event.SnapshotType(body[16]), event.PostAction(body[17]), event.Alignment(body[18])
		o.AlignedTimeout = time.Duration(binary.BigEndian.Uint64(body[19:]))
		ev.Barrier.Base = int64(binary.BigEndian.Uint64(body[27:]))
		o.Target = string(body[barrierBytes:])
		switch {
		case ev.Barrier.ID < 0:
			return bad("checkpoint ID", ev.Barrier.ID)
		case ev.Barrier.Base < 0:
			return bad("base checkpoint ID", ev.Barrier.Base)
		case o.Type > event.SavepointNative:
			return bad("snapshot type", uint8(o.Type))
		case o.Post > event.Terminate:
			return bad("post action", uint8(o.Post))
		case o.Alignment > event.ForcedAligned:
			return bad("alignment", uint8(o.Alignment))
		case o.AlignedTimeout < 0:
			return bad("aligned timeout", int64(o.AlignedTimeout))
		}
	case Cancel:
		if size = 8; len(body) == size {
			ev.ID = int64(binary.BigEndian.Uint64(body))
		}
	case EndOfData:
		if size = 1; len(body) == size {
			ev.Drain = body[0] != 0
		}
	case EndOfPartition:
	default:
		return bad("event kind", b[0])
	}
	if len(body) != size {
		return bad("length of "+ev.Kind.String(), len(body))
	}
	return ev, nil
}
