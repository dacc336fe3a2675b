package stream

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"strconv"

	"github.com/tidemark/tidemark/incremental/sst"
)

// Change is one record of a change set. KeyGroup -1 is a change of the metadata.
// Data is valid until the next one.
type Change struct {
	KeyGroup int32
	Data     []byte
	Offset   int64 // in the decoded body of the file
}

// Changelog reads change sets from changelog files:
//
//	file      := byte compressed  body            1: the body is one snappy framed stream
//	changeSet := int32 groups ( int32 changes int32 keyGroup ( int32 length bytes )* )*
//
// Neither a set nor a group is ever empty: Flink writes them only for changes
// (StateChangeFormat.java). A file of zeros is therefore none.
//
// Offsets count decoded bytes of the body, without the flag byte; one offset
// leads to exactly one change set.
type Changelog struct {
	ctx    context.Context
	w      window
	snappy unframe
}

// NewChangelog makes a reader to be used for any number of files.
func NewChangelog(ctx context.Context) *Changelog { return &Changelog{ctx: ctx} }

// Read calls f for each change of the change set at offset in src. An error of f
// ends it and is returned as it is.
func (c *Changelog) Read(src sst.Source, name string, offset int64, f func(Change) error) error {
	var flag [1]byte
	if src.Size() < 1 {
		return damaged(name, 0, "compression flag", "is missing: the file is empty")
	}
	if _, err := src.ReadAt(c.ctx, flag[:], 0); err != nil && err != io.EOF {
		return readFailed(name, 0, "compression flag", err)
	}
	switch flag[0] {
	case 0:
		if offset < 0 || offset >= src.Size()-1 {
			return damaged(name, -1, "change set offset", "is "+strconv.FormatInt(offset, 10)+" in a body of "+strconv.FormatInt(src.Size()-1, 10)+" bytes")
		}
		c.w.reset(sequential(c.ctx, src, offset+1, src.Size()), offset)
	case 1:
		if offset < 0 {
			return damaged(name, -1, "change set offset", "is "+strconv.FormatInt(offset, 10))
		}
		c.w.reset(c.snappy.reset(sequential(c.ctx, src, 1, src.Size())), 0)
		for left := offset; left > 0; {
			n := min(left, snappyBlock)
			if err := c.w.need(int(n)); err != nil {
				return readFailed(name, c.w.offset(), "body before the change set at "+strconv.FormatInt(offset, 10), err)
			}
			c.w.pos += int(n)
			left -= n
		}
	default:
		return damaged(name, 0, "compression flag", "is "+strconv.Itoa(int(flag[0])))
	}
	groups, err := c.i32(name, "key group count")
	if err != nil {
		return err
	}
	if groups < 1 {
		return damaged(name, c.w.offset()-4, "key group count", "is "+strconv.Itoa(int(groups)))
	}
	for range groups {
		changes, err := c.i32(name, "change count")
		if err != nil {
			return err
		}
		if changes < 1 {
			return damaged(name, c.w.offset()-4, "change count", "is "+strconv.Itoa(int(changes)))
		}
		keyGroup, err := c.i32(name, "key group")
		if err != nil {
			return err
		}
		if keyGroup < -1 || keyGroup > math.MaxInt16 {
			return damaged(name, c.w.offset()-4, "key group", "is "+strconv.Itoa(int(keyGroup)))
		}
		for range changes {
			n, err := c.i32(name, "change length")
			if err != nil {
				return err
			}
			if n < 0 {
				return damaged(name, c.w.offset()-4, "change length", "is "+strconv.Itoa(int(n)))
			}
			at := c.w.offset()
			if err := c.w.need(int(n)); err != nil {
				return readFailed(name, at, "change of "+strconv.Itoa(int(n))+" bytes", err)
			}
			data := c.w.buf[c.w.pos : c.w.pos+int(n) : c.w.pos+int(n)]
			c.w.pos += int(n)
			if err := f(Change{KeyGroup: keyGroup, Data: data, Offset: at}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Changelog) i32(name, field string) (int32, error) {
	if err := c.w.need(4); err != nil {
		return 0, readFailed(name, c.w.offset(), field, err)
	}
	v := int32(binary.BigEndian.Uint32(c.w.buf[c.w.pos:]))
	c.w.pos += 4
	return v, nil
}
