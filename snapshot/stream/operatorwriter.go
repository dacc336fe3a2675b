package stream

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// OperatorWriterOptions say what an operator state file holds.
type OperatorWriterOptions struct {
	// Lists are list and union states, Broadcasts broadcast states, made by
	// serializer.NewListState and NewBroadcastState. A state's index counts the
	// lists first.
	Lists, Broadcasts []serializer.StateMeta
	Compress          bool
	// Version of the meta block; 0 is 6. Flink 1.16 and 1.17 read 5 only, which
	// cannot be compressed.
	Version int32
}

// OperatorWriter writes the managed operator state of one subtask, the counterpart
// of Operator, whose comment draws the bytes. States come in order of their index,
// and one that is left out is empty:
//
//	w.State(0, 2)   // two elements
//	w.Element(a)
//	w.Element(b)
//	w.State(1, 1)   // a broadcast state of one entry
//	w.Pair(key, value)
//
// and at the end Finish. Ownership, memory, errors and concurrency are those of
// KeyedWriter.
type OperatorWriter struct {
	out      output
	states   []metadata.NamedPartitions
	lists    int
	state    int // the open state; -1 before the first
	left     int
	compress bool
	finished bool
}

// NewOperatorWriter writes the meta block to w.
func NewOperatorWriter(w io.Writer, o OperatorWriterOptions) (*OperatorWriter, error) {
	ow := &OperatorWriter{out: output{w: w}, lists: len(o.Lists), state: -1, compress: o.Compress}
	names := map[string]bool{}
	for i, list := range [][]serializer.StateMeta{o.Lists, o.Broadcasts} {
		for k := range list {
			m := &list[k]
			if names[m.Name] {
				return nil, fmt.Errorf("two states are called %s", m.Name)
			}
			names[m.Name] = true
			p := metadata.NamedPartitions{Name: javaio.NewString(m.Name), Offsets: []int64{}}
			switch mode := m.Mode(); {
			case i == 0 && m.Kind == serializer.OperatorList && mode == "SPLIT_DISTRIBUTE" && m.Value() != nil:
				p.Mode = metadata.ModeSplit
			case i == 0 && m.Kind == serializer.OperatorList && mode == "UNION" && m.Value() != nil:
				p.Mode = metadata.ModeUnion
			case i == 1 && m.Kind == serializer.Broadcast && m.Key() != nil && m.Value() != nil:
				p.Mode = metadata.ModeBroadcast
			default:
				return nil, fmt.Errorf("state %s: a %s of mode %q does not belong there", m.Name, m.Kind, mode)
			}
			ow.states = append(ow.states, p)
		}
	}
	meta := serializer.OperatorBackendMeta{Version: o.Version, Compressed: o.Compress, Lists: o.Lists, Broadcasts: o.Broadcasts}
	if meta.Version == 0 {
		meta.Version = 6
	}
	head, err := meta.Append(make([]byte, 0, firstBlock))
	if err != nil {
		return nil, err
	}
	ow.out.buf = head
	if o.Compress {
		ow.out.open()
	}
	return ow, ow.out.err
}

func (w *OperatorWriter) misuse(format string, args ...any) error {
	if w.out.err == nil {
		w.out.err = fmt.Errorf("operator state writer: "+format, args...)
	}
	return w.out.err
}

// State begins a state; parts is the number of Element or Pair calls that follow.
func (w *OperatorWriter) State(index, parts int) error {
	if index <= w.state || index >= len(w.states) || w.finished {
		return w.misuse("state %d of %d does not follow state %d", index, len(w.states), w.state)
	}
	if parts < 0 || parts > math.MaxInt32 {
		return w.misuse("state %s: %d parts", w.states[index].Name.Go(), parts)
	}
	w.until(index)
	w.state, w.left = index, parts
	w.begin()
	return w.out.err
}

// until ends the open state and writes those before index that were left out.
func (w *OperatorWriter) until(index int) {
	if w.left > 0 {
		w.misuse("state %s lacks %d parts", w.states[w.state].Name.Go(), w.left)
	}
	for w.state++; w.state < index; w.state++ {
		w.begin()
	}
}

// begin writes the count that a broadcast state has in front.
func (w *OperatorWriter) begin() {
	if w.state >= w.lists {
		w.partition()
		w.out.buf = binary.BigEndian.AppendUint32(w.out.buf, uint32(w.left))
	}
}

// partition notes that a partition begins. In a compressed file a frame does too.
func (w *OperatorWriter) partition() {
	if w.compress {
		w.out.flush(len(w.out.buf))
	}
	p := &w.states[w.state]
	p.Offsets = append(p.Offsets, w.out.position())
}

func (w *OperatorWriter) part(broadcast bool) bool {
	switch {
	case w.out.err != nil:
		return false
	case w.state < 0 || w.finished || broadcast != (w.state >= w.lists):
		w.misuse("no state is open that takes this part")
		return false
	case w.left == 0:
		w.misuse("state %s: more parts than were announced", w.states[w.state].Name.Go())
		return false
	}
	w.left--
	return true
}

// Element writes an element of the open list or union state.
func (w *OperatorWriter) Element(value []byte) error {
	if !w.part(false) {
		return w.out.err
	}
	w.partition()
	w.out.buf = append(w.out.buf, value...)
	w.out.spill(len(w.out.buf))
	return w.out.err
}

// Pair writes an entry of the open broadcast state.
func (w *OperatorWriter) Pair(key, value []byte) error {
	if !w.part(true) {
		return w.out.err
	}
	w.out.buf = append(append(w.out.buf, key...), value...)
	w.out.spill(len(w.out.buf))
	return w.out.err
}

// Finish writes what is left and gives the partitions of the handle.
func (w *OperatorWriter) Finish() ([]metadata.NamedPartitions, error) {
	if w.finished {
		return nil, w.misuse("is finished")
	}
	w.until(len(w.states))
	w.out.finish()
	w.finished = true
	if w.out.err != nil {
		return nil, w.out.err
	}
	w.out.err = fmt.Errorf("operator state writer: is finished")
	return w.states, nil
}

// Size is the number of bytes of the file so far; after Finish of all of it.
func (w *OperatorWriter) Size() int64 { return w.out.written + int64(len(w.out.buf)) }
