package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/incremental/sst"
)

// Operator reads the partitions of managed operator state. Each stands at an
// offset of its own that the handle lists:
//
//	list, union   one element, without framing
//	broadcast     int32 n, then n × ( key value )
//
// In a compressed file an offset is the file position of a snappy frame inside a
// stream whose identifier stands before the first.
type Operator struct {
	ctx        context.Context
	src        sst.Source
	name       string
	compressed bool
	ends       []int64 // all offsets of the handle and the file's end, ascending

	w      window
	snappy unframe
	start  int64
	end    int64
}

// NewOperator reads from src; name goes into errors; offsets are all those of the
// handle, of every state, by which a partition's end is known. compressed is the
// flag of the meta block.
func NewOperator(ctx context.Context, src sst.Source, name string, compressed bool, offsets []int64) *Operator {
	ends := slices.Clone(offsets)
	ends = append(ends, src.Size())
	slices.Sort(ends)
	return &Operator{ctx: ctx, src: src, name: name, compressed: compressed, ends: slices.Compact(ends)}
}

// Open moves to the partition at an offset.
func (o *Operator) Open(offset int64) error {
	size := o.src.Size()
	if offset < 0 || offset >= size {
		return damaged(o.name, -1, "partition offset", "is "+strconv.FormatInt(offset, 10)+" in a stream of "+strconv.FormatInt(size, 10)+" bytes")
	}
	i, _ := slices.BinarySearch(o.ends, offset+1)
	o.start, o.end = offset, size
	if i < len(o.ends) {
		o.end = o.ends[i]
	}
	if !o.compressed {
		o.w.reset(sequential(o.ctx, o.src, offset, o.end), offset)
		return nil
	}
	// The frames of one partition end where the next one's begin.
	frames := sequential(o.ctx, o.src, offset, o.end)
	head := strings.NewReader(snappyIdentifier)
	o.w.reset(o.snappy.reset(io.MultiReader(head, funcReader(frames)).Read), 0)
	return nil
}

// Extent is the part of an uncompressed file that the partition at an offset may
// take: to the next partition, or the file's end.
func (o *Operator) Extent(offset int64) (from, to int64, err error) {
	size := o.src.Size()
	if offset < 0 || offset > size {
		return 0, 0, damaged(o.name, -1, "partition offset", "is "+strconv.FormatInt(offset, 10)+" in a stream of "+strconv.FormatInt(size, 10)+" bytes")
	}
	i, _ := slices.BinarySearch(o.ends, offset+1)
	if i < len(o.ends) {
		size = o.ends[i]
	}
	return offset, size, nil
}

// Offset is where the next value stands: in the file, or in the decoded bytes of
// a compressed partition.
func (o *Operator) Offset() int64 { return o.w.offset() }

// Value reads one value of the open partition; valid until the next call.
func (o *Operator) Value(field string, s Skipper) ([]byte, error) {
	start := o.w.offset()
	for {
		b := o.w.buffered()
		n, err := s.Skip(b)
		if err == nil {
			o.w.pos += n
			return b[:n:n], nil
		}
		if !errors.Is(err, errShort) {
			return nil, readFailed(o.name, start, field, err)
		}
		if !o.w.fill() {
			if o.w.err != nil {
				err = o.w.err
			}
			return nil, readFailed(o.name, start, field, err)
		}
	}
}

// Pair reads a key and a value of the open partition as two neighbouring slices.
func (o *Operator) Pair(key, value Skipper) (k, v []byte, err error) {
	start := o.w.offset()
	for {
		b := o.w.buffered()
		n, err := key.Skip(b)
		m := 0
		if err == nil {
			m, err = value.Skip(b[n:])
		}
		if err == nil {
			o.w.pos += n + m
			return b[:n:n], b[n : n+m : n+m], nil
		}
		if !errors.Is(err, errShort) {
			return nil, nil, readFailed(o.name, start, "broadcast entry", err)
		}
		if !o.w.fill() {
			if o.w.err != nil {
				err = o.w.err
			}
			return nil, nil, readFailed(o.name, start, "broadcast entry", err)
		}
	}
}

// Count reads the int32 in front of a broadcast state's entries.
func (o *Operator) Count() (int, error) {
	if err := o.w.need(4); err != nil {
		return 0, readFailed(o.name, o.w.offset(), "entry count", err)
	}
	n := int(int32(binary.BigEndian.Uint32(o.w.buf[o.w.pos:])))
	if n < 0 {
		return 0, damaged(o.name, o.w.offset(), "entry count", "is "+strconv.Itoa(n))
	}
	o.w.pos += 4
	return n, nil
}

// Rest reads all that is left of the open partition; valid until the next call.
func (o *Operator) Rest() ([]byte, error) {
	for o.w.fill() {
	}
	if o.w.err != nil {
		return nil, readFailed(o.name, o.w.offset(), "partition", o.w.err)
	}
	b := o.w.buffered()
	o.w.pos = o.w.end
	return b, nil
}

// End checks that the open partition was read to its end.
func (o *Operator) End() error {
	if o.w.atEnd() {
		return nil
	}
	if o.w.err != nil {
		return readFailed(o.name, o.w.offset(), "partition", o.w.err)
	}
	return damaged(o.name, o.w.offset(), "partition", "at byte "+strconv.FormatInt(o.start, 10)+" has bytes after its value")
}
