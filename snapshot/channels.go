package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// InFlight is the in-flight data of one channel that one subtask captured: of an
// input channel what had arrived and was not consumed, of a result subpartition
// what was not yet sent.
type InFlight struct {
	Operator *StateOperator
	Output   bool
	// Subtask wrote it, Holder is the subtask that has it now. They differ where a
	// snapshot was rescaled before its in-flight data was consumed.
	Subtask, Holder int32
	// Gate and Channel: input gate and channel, or partition and subpartition.
	Gate, Channel int32
	// Buffers are the network buffers, Bytes their payload as the handles state it
	// (with four bytes of length for each buffer). A handle that is there twice
	// counts once.
	Buffers int
	Bytes   int64
	// File is the first part's.
	File string
	// Parts is how many handles there are; their payloads follow one another.
	Parts int

	s     *Snapshot
	parts []inFlightPart
	files *channelFiles
}

type inFlightPart struct {
	handle  metadata.StreamHandle
	target  string
	offsets []int64
}

// InFlightChannels yields the channels of a snapshot that hold in-flight data:
// operators and subtasks in the order of the metadata, inputs first, channels by
// their indexes. Nothing is read.
func InFlightChannels(s *Snapshot, opts *ScanOptions) iter.Seq[*InFlight] {
	return func(yield func(*InFlight) bool) {
		sc := newScan(s, opts)
		files := &channelFiles{s: s, files: map[string]*channelFile{}}
		for i := range s.Checkpoint.Operators {
			o, op := &s.Checkpoint.Operators[i], &sc.cat.operators[i]
			if sc.opts.Operator != nil && !sc.opts.Operator(op) {
				continue
			}
			for k := range o.Subtasks {
				st := &o.Subtasks[k]
				for side, handles := range [][]metadata.ChannelHandle{st.InputChannels, st.OutputChannels} {
					for _, f := range inFlightOf(s, op, st.Index, side == 1, handles) {
						f.files = files
						if !yield(f) {
							return
						}
					}
				}
			}
		}
	}
}

// inFlightOf brings the handles of one side of a subtask together by channel.
func inFlightOf(s *Snapshot, op *StateOperator, holder int32, output bool, handles []metadata.ChannelHandle) []*InFlight {
	type place struct{ subtask, gate, channel int32 }
	var list []*InFlight
	at := map[place]*InFlight{}
	for n := range handles {
		h := &handles[n]
		target := targetName(s, h.Delegate)
		for c := range h.Channels {
			ch := &h.Channels[c]
			part := inFlightPart{handle: h.Delegate, target: target, offsets: ch.Offsets}
			p := place{h.Subtask, ch.Gate, ch.Channel}
			f := at[p]
			if f == nil {
				f = &InFlight{Operator: op, Output: output, Subtask: h.Subtask, Holder: holder, Gate: ch.Gate, Channel: ch.Channel, File: target, s: s}
				at[p] = f
				list = append(list, f)
			}
			if slices.ContainsFunc(f.parts, func(q inFlightPart) bool { return sameData(s, q, part) }) {
				continue
			}
			f.parts = append(f.parts, part)
			f.Parts++
			f.Buffers += len(ch.Offsets)
			f.Bytes += ch.Size
		}
	}
	slices.SortStableFunc(list, func(a, b *InFlight) int {
		return cmp.Or(cmp.Compare(a.Subtask, b.Subtask), cmp.Compare(a.Gate, b.Gate), cmp.Compare(a.Channel, b.Channel))
	})
	return list
}

// sameData reports whether two parts are the same chunks of the same file.
func sameData(s *Snapshot, a, b inFlightPart) bool {
	if a.target != b.target || !slices.Equal(a.offsets, b.offsets) {
		return false
	}
	x, y := s.Resolve(a.handle), s.Resolve(b.handle)
	return x.Kind == y.Kind && x.Start == y.Start && x.Length == y.Length && bytes.Equal(x.Data, y.Data)
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
	readers := make([]io.Reader, len(f.parts))
	for i, p := range f.parts {
		src, name, err := f.files.open(ctx, p.handle)
		if err != nil {
			return nil, err
		}
		if readers[i], err = stream.NewChannel(ctx, src, name, p.offsets); err != nil {
			return nil, err
		}
	}
	if len(readers) == 1 {
		return readers[0], nil
	}
	return io.MultiReader(readers...), nil
}

// channelFiles keeps the last small files of in-flight data: the chunks of many
// channels are interleaved in one file, which is read once for all of them.
type channelFiles struct {
	s     *Snapshot
	mu    sync.Mutex
	files map[string]*channelFile
	order []string
}

type channelFile struct {
	once sync.Once
	src  sst.Source
	name string
	err  error
}

// At most keptFiles files of at most keptBytes are kept: 64 MiB.
const (
	keptFiles = 8
	keptBytes = 8 << 20
)

func (c *channelFiles) open(ctx context.Context, h metadata.StreamHandle) (sst.Source, string, error) {
	t := c.s.Resolve(h)
	if t.Kind != TargetObject && t.Kind != TargetSegment || t.Length < 0 || t.Length > keptBytes {
		src, name, err := c.s.OpenStream(ctx, h, false)
		if err == nil && src == nil {
			src = sst.Bytes(nil)
		}
		return src, name, err
	}
	key := fmt.Sprintf("%d %d %s", t.Start, t.Length, t.Location)
	c.mu.Lock()
	f := c.files[key]
	if f == nil {
		f = &channelFile{}
		if len(c.order) == keptFiles {
			delete(c.files, c.order[0])
			c.order = c.order[1:]
		}
		c.files[key], c.order = f, append(c.order, key)
	}
	c.mu.Unlock()
	f.once.Do(func() {
		if f.src, f.name, f.err = c.s.OpenStream(ctx, h, false); f.err != nil {
			return
		}
		b := make([]byte, f.src.Size())
		n, err := f.src.ReadAt(ctx, b, 0)
		switch {
		case err == nil || err == io.EOF: // a file that ends early is found at its chunks
			f.src = sst.Bytes(b[:n])
		default:
			f.err = readError(f.name, err)
		}
	})
	return f.src, f.name, f.err
}

// InFlightRecords is what the payload of one side of a channel is made of.
type InFlightRecords struct {
	// Whole is how many whole records there are.
	Whole int64
	// Head bytes at the start belong to a record that began on the other side of
	// the exchange; Tail bytes at the end to one that goes on there.
	Head, Tail int64
	// Payload is the bytes of all buffers.
	Payload int64
	// Known: where records begin is certain. The payload of an input channel begins
	// with one. That of a subpartition may go on with a record whose head is in the
	// input channel at the other end; then the first place from which the rest is
	// whole records is taken.
	Known bool
}

// maxPayload bounds how much of a subpartition is held to find where its records begin.
const maxPayload = 64 << 20

// CountRecords reads the payload and splits it at the records' lengths, wherever
// buffers end. each, if not nil, gets each whole record, valid during the call (a
// stream element, its tag byte first: docs/format/channel-state.md), and the offset
// of its length in the payload.
func (f *InFlight) CountRecords(ctx context.Context, each func(offset int64, record []byte) error) (InFlightRecords, error) {
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
			if err := each(int64(at), b[at+4:at+4+n]); err != nil {
				return out, err
			}
		}
		out.Whole++
		at += 4 + n
	}
	return out, nil
}

// splitRecords splits a payload that begins with a record.
func splitRecords(r io.Reader, each func(int64, []byte) error) (out InFlightRecords, err error) {
	records := stream.NewRecords(r)
	for records.Next() {
		b := records.Record()
		if each != nil {
			if err := each(out.Payload, b); err != nil {
				return out, err
			}
		}
		out.Whole++
		out.Payload += 4 + int64(len(b))
	}
	out.Known = true
	if records.Short() { // it goes on at the other end
		out.Tail = int64(records.Rest())
		out.Payload += out.Tail
		return out, nil
	}
	return out, records.Err()
}

// recordsStart is the first place from which b is whole records, each with a
// stream element's tag; len(b) if there is none. It goes backwards, so that each
// place is looked at once.
func recordsStart(b []byte) int {
	whole := make([]uint64, len(b)/64+1)
	whole[len(b)/64] |= 1 << (len(b) % 64)
	first := len(b)
	for at := len(b) - 5; at >= 0; at-- {
		n := int64(int32(be32(b[at:])))
		if n < 1 || n > int64(len(b)-at-4) || b[at+4] > largestTag {
			continue
		}
		if end := at + 4 + int(n); whole[end/64]>>(end%64)&1 == 1 {
			whole[at/64] |= 1 << (at % 64)
			first = at
		}
	}
	return first
}

// largestTag is the largest tag of a stream element.
const largestTag = 6
