package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/internal/damage"
)

// RecoveryGroup is the gates of one subtask: none gives anything new before all have
// given back what was in flight, since a barrier that came to one would have to
// capture what the others have left. A checkpoint that is triggered meanwhile waits,
// as in Flink.
type RecoveryGroup struct {
	gates []*Gate
	left  int
}

// NewRecoveryGroup joins the gates of a subtask. It is not needed for a single one.
func NewRecoveryGroup(gates ...*Gate) *RecoveryGroup {
	r := &RecoveryGroup{gates: gates}
	for _, g := range gates {
		g.group = r
		if g.recovery != nil {
			r.left++
		}
	}
	return r
}

func (g *Gate) waitsForOthers() bool { return g.group != nil && g.group.left > 0 && g.recovery == nil }

// Recovering says that data of the restored checkpoint is left, in this gate or
// another of its group.
func (g *Gate) Recovering() bool { return g.recovery != nil || g.waitsForOthers() }

// Recover makes the gate give what r holds before anything else. keep is called for
// each record, its tag first, if r.Filter says so, and tells whether the record is
// this subtask's; it must not keep the bytes. The data is read as it is polled, from
// the stores of the snapshot, which has to stay open; ctx holds until then.
func (g *Gate) Recover(ctx context.Context, r *Recovery, keep func(element []byte) (bool, error)) error {
	if len(r.Channels) == 0 {
		return nil
	}
	if r.Filter && keep == nil {
		return errors.New("in-flight data has to be filtered by the key groups of its records, and there is no filter")
	}
	for _, c := range r.Channels {
		if c.Channel < 0 || c.Channel >= len(g.channels) {
			return fmt.Errorf("in-flight data for channel %d of input gate %d, which has %d", c.Channel, g.index, len(g.channels))
		}
	}
	if !r.Filter {
		keep = nil
	}
	g.recovery = &recovering{ctx: ctx, r: r, keep: keep, size: DefaultBufferSize}
	if g.group != nil {
		g.group.left++
	}
	return nil
}

// recovering reads the links of one channel after the other. Its records are whole,
// and put together into buffers again.
type recovering struct {
	ctx  context.Context
	r    *Recovery
	keep func([]byte) (bool, error)
	size int

	channel, link int
	in            io.Reader
	raw           Records // of the link
	rawBuf        []byte
	out           Records // of what is this subtask's
	outBuf        []byte
	marks         marks
	giving        int // the channel of out
}

// marks holds the watermarks and statuses back when several old channels come in
// one: the smallest watermark stands for all of them, at their end. The records of a
// later link would be late otherwise.
type marks struct {
	links     int
	seen      int   // links that had a watermark
	watermark int64 // the smallest of the last ones
	idle      int   // links that were idle at last

	last     int64
	hasLast  bool
	lastIdle bool
}

// endLink takes the last marks of a link into account.
func (m *marks) endLink() {
	if m.lastIdle {
		m.idle++
	} else if m.hasLast {
		if m.seen == 0 || m.last < m.watermark {
			m.watermark = m.last
		}
		m.seen++
	}
	m.last, m.hasLast, m.lastIdle = 0, false, false
}

func (g *Gate) pollRecovered() (Item, bool, error) {
	r := g.recovery
	for {
		if !r.out.Done() {
			return Item{Channel: r.giving, Records: &r.out, Recovered: true}, true, nil
		}
		r.out.set(nil)
		if r.channel == len(r.r.Channels) {
			g.recovery = nil
			g.recovered()
			return Item{}, false, nil
		}
		r.outBuf = r.outBuf[:0]
		done, err := r.fill()
		if err != nil {
			return Item{}, false, err
		}
		r.giving = r.r.Channels[r.channel].Channel
		r.out.set(r.outBuf)
		if done {
			r.channel, r.link, r.marks = r.channel+1, 0, marks{}
		}
	}
}

// recovered tells the other gates that they may go on.
func (g *Gate) recovered() {
	if g.group == nil {
		return
	}
	if g.group.left--; g.group.left > 0 {
		return
	}
	for _, other := range g.group.gates {
		other.mu.Lock()
		f := other.available
		other.available = nil
		other.mu.Unlock()
		if f != nil {
			f()
		}
	}
}

// fill puts the next elements of the channel into outBuf; done says that there are
// no more.
func (r *recovering) fill() (done bool, err error) {
	c := &r.r.Channels[r.channel]
	r.marks.links = len(c.Links)
	for ; r.link < len(c.Links); r.link++ {
		l := &c.Links[r.link]
		if r.in == nil {
			if err := r.open(l); err != nil {
				return false, err
			}
		}
		if full, err := r.fillFrom(l); full || err != nil {
			return false, err
		}
		r.in = nil
		r.marks.endLink()
	}
	r.endChannel()
	return true, nil
}

// fillFrom takes elements of a link until outBuf is full or the link ends.
func (r *recovering) fillFrom(l *Link) (full bool, err error) {
	for {
		for e, ok := r.raw.Next(); ok; e, ok = r.raw.Next() {
			if err := r.take(e); err != nil {
				return false, fmt.Errorf("%s: %w", l, err)
			}
			if len(r.outBuf) >= r.size {
				return true, nil
			}
		}
		if r.raw.err != nil {
			return false, r.raw.err
		}
		if err := r.ctx.Err(); err != nil {
			return false, context.Cause(r.ctx)
		}
		n, err := io.ReadFull(r.in, r.rawBuf)
		r.raw.set(r.rawBuf[:n])
		if n > 0 {
			continue
		}
		if err != io.EOF {
			return false, fmt.Errorf("%s: %w", l, err)
		}
		if span, _ := r.raw.rest(); len(span) > 0 {
			return false, &damage.Error{Name: r.raw.name, Offset: -1, Field: "last record", Detail: fmt.Sprintf("ends after %d bytes of it and its length", len(span)), Err: damage.ErrCorrupt}
		}
		return false, nil
	}
}

func (r *recovering) open(l *Link) error {
	readers := make([]io.Reader, len(l.parts))
	for i, p := range l.parts {
		in, err := p.Open(r.ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
		readers[i] = in
	}
	r.in = io.MultiReader(readers...)
	if r.rawBuf == nil {
		r.rawBuf = make([]byte, r.size)
	}
	r.raw = Records{name: l.parts[0].String(), span: r.raw.span[:0]}
	return nil
}

// take appends an element to outBuf if it is this subtask's.
func (r *recovering) take(e []byte) error {
	switch tag := e[0]; {
	case tag > TagInternalWatermark:
		return &damage.Error{Name: r.raw.name, Offset: -1, Field: "stream element tag", Detail: fmt.Sprintf("is %d", tag), Err: damage.ErrCorrupt}
	case tag <= TagRecord:
		if r.keep != nil {
			if ok, err := r.keep(e); !ok || err != nil {
				return err
			}
		}
	case r.marks.links == 1:
	case tag == TagWatermark && len(e) == 9:
		r.marks.last, r.marks.hasLast = int64(binary.BigEndian.Uint64(e[1:])), true
		return nil
	case tag == TagWatermarkStatus && len(e) == 5:
		r.marks.lastIdle = binary.BigEndian.Uint32(e[1:]) != 0
		return nil
	}
	r.outBuf = binary.BigEndian.AppendUint32(r.outBuf, uint32(len(e)))
	r.outBuf = append(r.outBuf, e...)
	return nil
}

// endChannel appends the marks that stand for all links of the channel.
func (r *recovering) endChannel() {
	m := &r.marks
	if m.links < 2 {
		return
	}
	put := func(e []byte) {
		r.outBuf = binary.BigEndian.AppendUint32(r.outBuf, uint32(len(e)))
		r.outBuf = append(r.outBuf, e...)
	}
	if m.seen > 0 && m.seen+m.idle == m.links {
		put(AppendWatermark(nil, m.watermark))
	}
	if m.idle == m.links {
		put(AppendWatermarkStatus(nil, true))
	}
}
