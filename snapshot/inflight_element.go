package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/serializer"
)

// ElementKind is what a stream element is.
type ElementKind string

// Kinds of stream elements. The strings are stable. Barriers and other events are
// no stream elements: Flink keeps none of them in channel state.
const (
	ElementRecord            ElementKind = "record"
	ElementWatermark         ElementKind = "watermark"
	ElementLatencyMarker     ElementKind = "latency-marker"
	ElementWatermarkStatus   ElementKind = "watermark-status"
	ElementRecordAttributes  ElementKind = "record-attributes"
	ElementInternalWatermark ElementKind = "internal-watermark"
)

// InFlightElement is a stream element in flight. What belongs to another kind is
// zero.
type InFlightElement struct {
	Kind ElementKind
	// Timestamp is that of a record, if HasTimestamp, or the time at which a latency
	// marker was made; in epoch milliseconds.
	Timestamp    int64
	HasTimestamp bool
	// Value is a record as its serializer wrote it; a slice of the bytes parsed.
	Value []byte
	// Watermark is that of a watermark and of an internal one, in epoch milliseconds.
	Watermark int64
	// Operator and Subtask are the source of a latency marker, Subtask also the
	// subpartition of an internal watermark.
	Operator string
	Subtask  int32
	// Idle is a watermark status; Backlog is the record attribute.
	Idle, Backlog bool
}

// ParseInFlightElement reads a record of a channel:
//
//	tag  what follows
//	0    int64 timestamp, value
//	1    value
//	2    watermark: int64
//	3    latency marker: int64 time, 16 bytes operator ID, int32 subtask
//	4    watermark status: int32 0 active, -1 idle
//	5    record attributes: boolean backlog
//	6    internal watermark: int32 subpartition, int64
//
// Source: Flink, StreamElementSerializer.java. Errors wrap damage.ErrCorrupt.
func ParseInFlightElement(b []byte) (e InFlightElement, err error) {
	bad := func(field, detail string) (InFlightElement, error) {
		return InFlightElement{}, &damage.Error{Offset: 0, Field: field, Detail: detail, Err: damage.ErrCorrupt}
	}
	if len(b) == 0 {
		return bad("stream element", "has no bytes")
	}
	tag, b := b[0], b[1:]
	if int(tag) >= len(elementSizes) {
		return bad("stream element tag", fmt.Sprintf("is %d", tag))
	}
	if n := elementSizes[tag]; tag > 1 && len(b) != n || len(b) < n {
		return bad("stream element", fmt.Sprintf("of tag %d has %d bytes", tag, len(b)))
	}
	be64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	switch tag {
	case 0:
		return InFlightElement{Kind: ElementRecord, HasTimestamp: true, Timestamp: be64(0), Value: b[8:]}, nil
	case 1:
		return InFlightElement{Kind: ElementRecord, Value: b}, nil
	case 2:
		return InFlightElement{Kind: ElementWatermark, Watermark: be64(0)}, nil
	case 3:
		return InFlightElement{Kind: ElementLatencyMarker, Timestamp: be64(0), Operator: hex.EncodeToString(b[8:24]), Subtask: int32(be32(b[24:]))}, nil
	case 4:
		return InFlightElement{Kind: ElementWatermarkStatus, Idle: be32(b) != 0}, nil
	case 5:
		return InFlightElement{Kind: ElementRecordAttributes, Backlog: b[0] != 0}, nil
	}
	return InFlightElement{Kind: ElementInternalWatermark, Subtask: int32(be32(b)), Watermark: be64(4)}, nil
}

// elementSizes are the bytes behind each tag, for records the least.
var elementSizes = [...]int{8, 0, 8, 28, 4, 1, 12}

// InputTypes gives, by operator ID, the type of the records that an operator takes
// in, where one of its states tells: the buffer of a window that keeps its elements
// (window-contents) has the serializer of the input. A checkpoint describes no
// other edge.
func InputTypes(states []*State) map[string]*serializer.Type {
	out := map[string]*serializer.Type{}
	for _, st := range states {
		if st.Name != "window-contents" || st.Kind != StateList || st.Value == nil {
			continue
		}
		t := st.Value
		if e := t.Elem(); e != nil && t.Kind == serializer.KindList {
			t = e
		}
		// An evictor's window keeps the elements with their tags.
		if inner := t.StreamRecord(); inner != nil {
			t = inner
		}
		out[st.Operator.ID] = t
	}
	return out
}

// Elements reads the payload and calls f for each whole element, in the order of
// the bytes; offset is that of the element's length in the payload. What e holds is
// valid during the call. An element that is none is damage: f is not called for it
// or after it.
func (f *InFlight) Elements(ctx context.Context, each func(offset int64, size int, e InFlightElement) error) (InFlightRecords, error) {
	return f.CountRecords(ctx, func(offset int64, b []byte) error {
		e, err := ParseInFlightElement(b)
		if err != nil {
			if d, ok := err.(*damage.Error); ok {
				d.Name, d.Offset = f.String(), offset+4
			}
			return err
		}
		return each(offset, len(b), e)
	})
}

// String names the channel for messages.
func (f *InFlight) String() string {
	gate, channel := "input gate", "channel"
	if f.Output {
		gate, channel = "result partition", "subpartition"
	}
	return fmt.Sprintf("%s: subtask %d, %s %d, %s %d", f.File, f.Subtask, gate, f.Gate, channel, f.Channel)
}
