package sim

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
)

// split is a run of records that one reader reads.
type split struct{ id, pos, end int32 }

// splitLength is how many records a split has.
const splitLength = 5

// recordKey is the key of a record: what the sequential model knows too.
func recordKey(split, pos int32) int32 {
	x := uint32(split)*2654435761 + uint32(pos)*40503
	return int32(x >> 7 % keyCount)
}

// allSplits are those of a run.
func (c *Config) allSplits() []split {
	var list []split
	for left, id := c.Records*2, int32(0); left > 0; left, id = left-splitLength, id+1 {
		list = append(list, split{id: id, end: min(left, splitLength)})
	}
	return list
}

// splitCodec writes splits and lists of them.
type splitCodec struct{}

func (splitCodec) Version() int32 { return 1 }
func (splitCodec) Serialize(s split) ([]byte, error) {
	b := binary.BigEndian.AppendUint32(nil, uint32(s.id))
	b = binary.BigEndian.AppendUint32(b, uint32(s.pos))
	return binary.BigEndian.AppendUint32(b, uint32(s.end)), nil
}
func (splitCodec) Deserialize(_ int32, b []byte) (split, error) {
	if len(b) != 12 {
		return split{}, errors.New("a split is not 12 bytes")
	}
	at := func(i int) int32 { return int32(binary.BigEndian.Uint32(b[i:])) }
	return split{at(0), at(4), at(8)}, nil
}

type listCodec struct{ splitCodec }

func (listCodec) Serialize(list []split) (b []byte, err error) {
	for _, s := range list {
		one, _ := splitCodec{}.Serialize(s)
		b = append(b, one...)
	}
	return b, nil
}
func (listCodec) Deserialize(v int32, b []byte) (list []split, err error) {
	for ; len(b) >= 12; b = b[12:] {
		s, _ := splitCodec{}.Deserialize(v, b[:12])
		list = append(list, s)
	}
	return list, nil
}

// enumerator gives a split to whoever asks.
type enumerator struct {
	ctx  checkpoint.EnumeratorContext[split]
	left []split
	bug  bug
}

func (e *enumerator) Start() error { return nil }
func (e *enumerator) HandleSplitRequest(subtask int32, _ string) error {
	if len(e.left) == 0 {
		return e.ctx.NoMoreSplits(subtask)
	}
	s := e.left[0]
	e.left = e.left[1:]
	return e.ctx.Assign(subtask, s)
}
func (e *enumerator) AddSplitsBack(splits []split, _ int32) error {
	if e.bug != bugLostSplit {
		e.left = append(slices.Clone(splits), e.left...)
	}
	return nil
}
func (e *enumerator) AddReader(int32) error           { return nil }
func (e *enumerator) Snapshot(int64) ([]split, error) { return slices.Clone(e.left), nil }
func (e *enumerator) Close() error                    { return nil }

// Operator implements checkpoint.CoordinatorContext, as do the next ones.
func (p *process) Operator() metadata.OperatorID { return vertices[0] }

func (p *process) Parallelism() int32 { return p.degrees[theSource] }

func (p *process) Send(subtask int32, data []byte) {
	if p.w.cfg.bug == bugOpenGateway {
		p.deliver(p.tasks[theSource][subtask].t, data)
		return
	}
	p.feed(&checkpoint.Event{Kind: checkpoint.EvSend, Operator: vertices[0], Subtask: subtask, Data: data})
}

func (p *process) Fail(err error) { p.w.fail("%v", err) }

func (p *process) Backlog(bool) {}

// resetSource gives the source's coordinator its state back; nil begins anew.
func (p *process) resetSource(m *metadata.Checkpoint) {
	var id int64
	var state []byte
	if m != nil {
		for i := range m.Operators {
			if h, ok := m.Operators[i].Coordinator.(*metadata.ByteStreamHandle); ok && m.Operators[i].ID == vertices[0] {
				id, state = m.ID, h.Data
			}
		}
		if state == nil { // the source had finished as a whole
			id = m.ID
			state = []byte{0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0}
		}
	}
	if p.source == nil {
		p.source = checkpoint.NewSourceCoordinator(p, checkpoint.SourceOptions[split, []split]{Splits: splitCodec{}, States: listCodec{},
			New: func(ctx checkpoint.EnumeratorContext[split], restored *[]split) (checkpoint.SplitEnumerator[split, []split], error) {
				e := &enumerator{ctx: ctx, left: p.w.cfg.allSplits(), bug: p.w.cfg.bug}
				if restored != nil {
					e.left = *restored
				}
				return e, nil
			}})
	}
	if err := p.source.Reset(id, state); err != nil {
		p.w.fail("%v", err)
	}
	if err := p.source.Start(); err != nil {
		p.w.fail("%v", err)
	}
}

// tell has a reader's event handled by the source's coordinator.
func (p *process) tell(k *task, kind event.SourceKind) {
	p.later(1+p.w.r.Int64N(5), func() {
		if k.dead || p.find(k.t) != k {
			return
		}
		if err := p.source.HandleEvent(k.t.Subtask, k.t.Attempt, (&event.SourceEvent{Kind: kind}).Encode()); err != nil {
			p.w.fail("%v", err)
		}
	})
}

// deliver brings an event to a reader: in order with triggers, and never lost
// while the reader lives, as a connection does it.
func (p *process) deliver(t event.Task, data []byte) {
	k := p.find(t)
	if k == nil {
		return
	}
	p.w.after(k.arrives(1+p.w.r.Int64N(6)), func() {
		if k.dead || k.over {
			return
		}
		e, err := event.DecodeSource(data)
		if err != nil {
			p.w.fail("%v", err)
			return
		}
		switch e.Kind {
		case event.AddSplits:
			for _, b := range e.Splits {
				s, err := splitCodec{}.Deserialize(e.Version, b)
				if err != nil {
					p.w.fail("%v", err)
				}
				k.state.splits = append(slices.Clip(k.state.splits), s)
			}
			k.asked = 0
		case event.NoMoreSplits:
			k.noMore = true
		}
		k.schedule()
	})
}

// arrives is the delay of a message that must not overtake the one before it.
func (k *task) arrives(delay int64) int64 {
	k.lastArrival = max(k.lastArrival, k.p.w.now+delay)
	return k.lastArrival - k.p.w.now
}

// read makes a source emit its next record, or ask for a split.
func (k *task) read() {
	w := k.p.w
	if k.stop != 0 {
		return
	}
	if len(k.state.splits) > 0 {
		s := k.state.splits[0]
		l := line{key: recordKey(s.id, s.pos)}
		if w.cfg.Shape == Pipelines {
			l = line{s.id, s.pos}
		}
		s.pos++
		if s.pos == s.end {
			k.state.splits = k.state.splits[1:]
		} else {
			k.state.splits = slices.Clone(k.state.splits)
			k.state.splits[0] = s
		}
		out := 0
		if w.cfg.Shape == Keyed {
			out = int(ownerOf(l.key, int32(len(k.out))))
		}
		k.emit(out, l)
		k.schedule()
		return
	}
	if k.noMore {
		k.state.ended = true
		return
	}
	if w.now >= k.asked {
		k.asked = w.now + 40 // an answer that is held back takes its time
		k.p.tell(k, event.RequestSplit)
		w.after(41, k.schedule)
	}
}
