package snapshot

import (
	"context"
	"io"
	"iter"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// InFlight is the in-flight data of one channel that one subtask captured: of an
// input channel what had arrived and was not consumed, of a result subpartition
// what was not yet sent.
type InFlight struct {
	Operator *StateOperator
	Output   bool
	Subtask  int32
	// Gate and Channel: input gate and channel, or partition and subpartition.
	Gate, Channel int32
	// Buffers are the network buffers, Bytes their payload as the handle states it
	// (with four bytes of length for each buffer).
	Buffers int
	Bytes   int64
	File    string

	s       *Snapshot
	handle  metadata.StreamHandle
	offsets []int64
}

// InFlightChannels yields the channels of a snapshot that hold in-flight data, in
// the order of the metadata. Nothing is read.
func InFlightChannels(s *Snapshot, opts *ScanOptions) iter.Seq[*InFlight] {
	return func(yield func(*InFlight) bool) {
		sc := newScan(s, opts)
		for i := range s.Checkpoint.Operators {
			o, op := &s.Checkpoint.Operators[i], &sc.cat.operators[i]
			if sc.opts.Operator != nil && !sc.opts.Operator(op) {
				continue
			}
			for k := range o.Subtasks {
				st := &o.Subtasks[k]
				for side, handles := range [][]metadata.ChannelHandle{st.InputChannels, st.OutputChannels} {
					for n := range handles {
						h := &handles[n]
						for c := range h.Channels {
							ch := &h.Channels[c]
							f := &InFlight{Operator: op, Output: side == 1, Subtask: h.Subtask, Gate: ch.Gate, Channel: ch.Channel, Buffers: len(ch.Offsets), Bytes: ch.Size,
								s: s, handle: h.Delegate, offsets: ch.Offsets, File: targetName(s, h.Delegate)}
							if !yield(f) {
								return
							}
						}
					}
				}
			}
		}
	}
}

func targetName(s *Snapshot, h metadata.StreamHandle) string {
	switch t := s.Resolve(h); t.Kind {
	case TargetObject, TargetSegment:
		return t.Location.String()
	}
	return s.Location.String() + " (inline)"
}

// Open reads the payload of the channel's buffers, one after the other.
func (f *InFlight) Open(ctx context.Context) (io.Reader, error) {
	src, name, err := f.s.OpenStream(ctx, f.handle, false)
	if err != nil {
		return nil, err
	}
	return stream.NewChannel(ctx, src, name, f.offsets)
}

// InFlightRecords is what the payload of one side of a channel is made of.
type InFlightRecords struct {
	// Whole is how many whole records there are, Bytes their bytes with lengths.
	Whole int64
	// Head bytes at the start belong to a record that began on the other side of
	// the exchange; Tail bytes at the end to one that goes on there.
	Head, Tail int64
	Payload    int64
	// Known: where records begin is certain. The payload of an input channel begins
	// with one. That of a subpartition may go on with a record whose head is in the
	// input channel at the other end; then the first place from which the rest is
	// whole records is taken.
	Known bool
}

// maxPayload bounds how much of a subpartition is held to find where its records begin.
const maxPayload = 64 << 20

// CountRecords reads the payload and splits it at the records' lengths. f, if not
// nil, gets each whole record, valid during the call: a stream element, its tag
// byte first (docs/format/channel-state.md).
func (f *InFlight) CountRecords(ctx context.Context, each func(record []byte) error) (InFlightRecords, error) {
	r, err := f.Open(ctx)
	if err != nil {
		return InFlightRecords{}, err
	}
	if !f.Output {
		return splitRecords(r, each)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPayload+1))
	if err != nil {
		return InFlightRecords{}, err
	}
	if len(b) > maxPayload {
		return InFlightRecords{Payload: int64(len(b)), Head: int64(len(b))}, nil
	}
	head := recordsStart(b)
	out := InFlightRecords{Payload: int64(len(b)), Head: int64(head), Known: head == 0}
	for at := head; at < len(b); {
		n := int(be32(b[at:]))
		if each != nil {
			if err := each(b[at+4 : at+4+n]); err != nil {
				return out, err
			}
		}
		out.Whole++
		at += 4 + n
	}
	return out, nil
}

// splitRecords splits a payload that begins with a record.
func splitRecords(r io.Reader, each func([]byte) error) (out InFlightRecords, err error) {
	records := stream.NewRecords(r)
	for records.Next() {
		b := records.Record()
		out.Whole++
		out.Payload += 4 + int64(len(b))
		if each != nil {
			if err := each(b); err != nil {
				return out, err
			}
		}
	}
	out.Known = true
	out.Tail = int64(records.Rest())
	out.Payload += out.Tail
	if out.Tail > 0 {
		return out, nil // it goes on at the other end
	}
	return out, records.Err()
}

// recordsStart is the first place from which b is whole records, each with a
// stream element's tag; len(b) if there is none.
func recordsStart(b []byte) int {
	for at := range b {
		if wholeRecords(b[at:]) {
			return at
		}
	}
	return len(b)
}

// largestTag is the largest tag of a stream element.
const largestTag = 6

func wholeRecords(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 5 {
			return false
		}
		n := int64(int32(be32(b)))
		if n < 1 || n > int64(len(b)-4) || b[4] > largestTag {
			return false
		}
		b = b[4+n:]
	}
	return true
}
