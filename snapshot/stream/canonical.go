package stream

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/tidemark/tidemark/incremental/sst"
)

// Region is the part of a state file that holds one key group: [From, To). To
// may reach too far (the end of the file): readers stop at the group's own end.
type Region struct {
	KeyGroup int32
	From, To int64
}

// Regions gives the non-empty key groups of a handle, in ascending order of the
// key group: first is the handle's first key group, offsets its list, size the
// length of the stream. none is the offset that says a group is empty: 0 in
// managed state, -1 in raw keyed state (where 0 is a position). Offsets beyond
// the stream and two groups at one place are damage.
func Regions(name string, first int32, offsets []int64, size, none int64) ([]Region, error) {
	regions := make([]Region, 0, len(offsets))
	for i, o := range offsets {
		if o == none || (none == 0 && o < 0) {
			if o != none {
				return nil, damaged(name, -1, "offset["+strconv.Itoa(i)+"]", "is "+strconv.FormatInt(o, 10))
			}
			continue
		}
		if o < 0 || o > size || (size >= 0 && o == size && none == 0) {
			return nil, damaged(name, -1, "offset["+strconv.Itoa(i)+"]", "is "+strconv.FormatInt(o, 10)+" in a stream of "+strconv.FormatInt(size, 10)+" bytes")
		}
		regions = append(regions, Region{KeyGroup: first + int32(i), From: o, To: size})
	}
	// The end of a group is the next larger offset; groups are nearly always
	// ascending already (raw keyed state may be written in any order).
	ascending := true
	for i := 1; i < len(regions); i++ {
		if regions[i].From <= regions[i-1].From {
			ascending = false
		}
		regions[i-1].To = regions[i].From
	}
	if !ascending {
		if err := unorderedEnds(name, regions, size, none); err != nil {
			return nil, err
		}
	}
	return regions, nil
}

// unorderedEnds sets the end of each region to the next larger offset of any.
func unorderedEnds(name string, regions []Region, size, none int64) error {
	order := make([]int, len(regions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(regions[a].From, regions[b].From) })
	for i, r := range order {
		regions[r].To = size
		if i+1 < len(order) {
			regions[r].To = regions[order[i+1]].From
			if none == 0 && regions[r].To == regions[r].From {
				return damaged(name, regions[r].From, "offset", "is that of two key groups, "+
					strconv.Itoa(int(regions[r].KeyGroup))+" and "+strconv.Itoa(int(regions[order[i+1]].KeyGroup)))
			}
		}
	}
	return nil
}

// Canonical reads the key groups of a canonical savepoint's keyed state:
//
//	keyGroup := D( int16 state  entry+ ( int16 state entry+ )* uint16 0xffff )
//	entry    := int32 keyLength key int32 valueLength value
//
// D is the identity or one snappy framed stream. The top bit of a key's first
// byte says that an int16 follows the entry: the next state or the end mark.
// Keys are given out with that bit cleared.
type Canonical struct {
	ctx        context.Context
	src        sst.Source
	name       string
	compressed bool

	w       window
	snappy  unframe
	state   int
	key     []byte
	value   []byte
	offset  int64 // of the current entry
	another bool  // an entry follows before the next int16
	live    bool  // inside a key group
	entries int   // of this key group
	end     int64 // of the region
	err     error
}

// NewCanonical reads from src; name goes into errors. compressed is the flag of
// the file's meta block.
func NewCanonical(ctx context.Context, src sst.Source, name string, compressed bool) *Canonical {
	return &Canonical{ctx: ctx, src: src, name: name, compressed: compressed}
}

// Open moves to the start of a key group.
func (c *Canonical) Open(r Region) {
	read := sequential(c.ctx, c.src, r.From, r.To)
	base := r.From
	if c.compressed {
		read, base = c.snappy.reset(read), 0
	}
	c.w.reset(read, base)
	c.end = r.To
	c.live, c.another, c.entries, c.err = true, false, 0, nil
}

// Next moves to the next entry of the key group; false at its end or on damage.
func (c *Canonical) Next() bool {
	if !c.live {
		return false
	}
	w := &c.w
	if !c.another {
		if err := w.need(2); err != nil {
			return c.fail("state id", err)
		}
		id := binary.BigEndian.Uint16(w.buf[w.pos:])
		if id == 0xffff {
			if c.entries == 0 {
				return c.damage(w.offset(), "state id", "is the end mark of an empty key group")
			}
			w.pos += 2
			c.live = false
			if !c.compressed && w.offset() != c.end || c.compressed && !w.atEnd() {
				return c.damage(w.offset(), "key group", "has bytes after its end mark")
			}
			return false
		}
		w.pos += 2
		c.state = int(id)
		c.another = true
	}
	c.offset = w.offset()
	if err := w.need(5); err != nil {
		return c.fail("key length", err)
	}
	keyLen := int(int32(binary.BigEndian.Uint32(w.buf[w.pos:])))
	if keyLen < 1 {
		return c.damage(c.offset, "key length", "is "+strconv.Itoa(keyLen))
	}
	if err := w.need(8 + keyLen); err != nil {
		return c.fail("key of "+strconv.Itoa(keyLen)+" bytes", err)
	}
	valueLen := int(int32(binary.BigEndian.Uint32(w.buf[w.pos+4+keyLen:])))
	if valueLen < 0 {
		return c.damage(c.offset+4+int64(keyLen), "value length", "is "+strconv.Itoa(valueLen))
	}
	if err := w.need(8 + keyLen + valueLen); err != nil {
		return c.fail("value of "+strconv.Itoa(valueLen)+" bytes", err)
	}
	p := w.buf[w.pos : w.pos+8+keyLen+valueLen]
	c.key = p[4 : 4+keyLen : 4+keyLen]
	c.value = p[8+keyLen:]
	w.pos += len(p)
	c.entries++
	if c.key[0]&0x80 != 0 {
		c.key[0] &= 0x7f
		c.another = false
	}
	return true
}

// Close gives the reader's memory back: keys and values that it gave out become
// invalid.
func (c *Canonical) Close() {
	c.w.release()
	c.live, c.key, c.value = false, nil, nil
}

// State is the position in the meta block's list of the entry's state.
func (c *Canonical) State() int { return c.state }

// Key is the composite key from its key group on; valid until Next.
func (c *Canonical) Key() []byte { return c.key }

// Value is the entry's value; valid until Next.
func (c *Canonical) Value() []byte { return c.value }

// Offset is where the entry stands.
func (c *Canonical) Offset() int64 { return c.offset }

// Err is the damage that ended the key group; nil after its end mark.
func (c *Canonical) Err() error { return c.err }

func (c *Canonical) fail(field string, err error) bool {
	c.live = false
	c.err = readFailed(c.name, c.w.offset(), field, err)
	return false
}

func (c *Canonical) damage(offset int64, field, detail string) bool {
	c.live = false
	c.err = damaged(c.name, offset, field, detail)
	return false
}
