package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strconv"

	"github.com/tidemark/tidemark/incremental/sst"
)

// Channel reads the buffers of one channel's in-flight data:
//
//	file  := int32 0  chunk*
//	chunk := int32 length bytes
//
// The handle lists the offset of each of the channel's chunks. The payloads, one
// after the other, are records behind an int32 length each, split anywhere.
type Channel struct {
	ctx     context.Context
	src     sst.Source
	name    string
	offsets []int64
	next    int
	pos     int64 // in the file of the byte behind left's end
	end     int64 // of the current chunk
}

// NewChannel checks the file's version and reads the chunks at offsets, in order.
func NewChannel(ctx context.Context, src sst.Source, name string, offsets []int64) (*Channel, error) {
	var head [4]byte
	if _, err := src.ReadAt(ctx, head[:], 0); err != nil {
		if err == io.EOF {
			err = errShort
		}
		return nil, readFailed(name, 0, "version", err)
	}
	if v := int32(binary.BigEndian.Uint32(head[:])); v != 0 {
		return nil, damaged(name, 0, "version", "is "+strconv.Itoa(int(v)))
	}
	return &Channel{ctx: ctx, src: src, name: name, offsets: offsets}, nil
}

// Read gives the payload bytes of all chunks, one after the other.
func (c *Channel) Read(p []byte) (int, error) {
	for c.pos >= c.end {
		if c.next == len(c.offsets) {
			return 0, io.EOF
		}
		o := c.offsets[c.next]
		if o < 4 || o > c.src.Size()-4 {
			return 0, damaged(c.name, -1, "buffer offset", "is "+strconv.FormatInt(o, 10)+" in a stream of "+strconv.FormatInt(c.src.Size(), 10)+" bytes")
		}
		var head [4]byte
		if _, err := c.src.ReadAt(c.ctx, head[:], o); err != nil && err != io.EOF {
			return 0, readFailed(c.name, o, "buffer length", err)
		}
		n := int32(binary.BigEndian.Uint32(head[:]))
		if n < 0 || int64(n) > c.src.Size()-o-4 {
			return 0, damaged(c.name, o, "buffer length", "is "+strconv.Itoa(int(n)))
		}
		c.pos, c.end = o+4, o+4+int64(n)
		c.next++
	}
	if int64(len(p)) > c.end-c.pos {
		p = p[:c.end-c.pos]
	}
	n, err := c.src.ReadAt(c.ctx, p, c.pos)
	c.pos += int64(n)
	if err == io.EOF && n > 0 {
		err = nil
	}
	if err != nil {
		err = readFailed(c.name, c.pos, "buffer", err)
	}
	return n, err
}

// Records splits the payload of one logical channel into its records. A channel
// captured on both sides is the input's bytes and then the output's, which may
// continue a record: chain their readers with io.MultiReader.
type Records struct {
	w   window
	err error
	rec []byte
	at  int64
	// short: the payload ended inside a record.
	short bool
}

// NewRecords reads records from r.
func NewRecords(r io.Reader) *Records {
	s := &Records{}
	s.w.reset(r.Read, 0)
	return s
}

// Next moves to the next whole record; false at the end.
func (s *Records) Next() bool {
	if s.err != nil || s.w.atEnd() {
		return false
	}
	s.at = s.w.offset()
	if err := s.w.need(4); err != nil {
		return s.fail(err)
	}
	n := int(int32(binary.BigEndian.Uint32(s.w.buf[s.w.pos:])))
	if n < 0 {
		s.err = damaged("", s.at, "record length", "is "+strconv.Itoa(n))
		return false
	}
	if err := s.w.need(4 + n); err != nil {
		return s.fail(err)
	}
	s.rec = s.w.buf[s.w.pos+4 : s.w.pos+4+n : s.w.pos+4+n]
	s.w.pos += 4 + n
	return true
}

func (s *Records) fail(err error) bool {
	s.short = errors.Is(err, errShort)
	s.err = readFailed("", s.at, "record", err)
	return false
}

// Record is the current record, valid until Next: a stream element, its tag first.
func (s *Records) Record() []byte { return s.rec }

// Rest is the number of payload bytes of a record that did not end.
func (s *Records) Rest() int { return len(s.w.buffered()) }

// Short reports whether the payload ended inside a record, and nothing else was
// wrong with it.
func (s *Records) Short() bool { return s.short }

// Err is what ended the records: nil at a whole record's end; damage if the
// payload ends inside one.
func (s *Records) Err() error {
	if s.err == nil && s.w.err != nil {
		return s.w.err
	}
	return s.err
}
