package stream

import (
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/s2"
)

// outputBlock is about what is gathered before it is written.
const outputBlock = 64 << 10

// firstBlock is the first capacity for what is gathered: most files of operators are
// small, and there are many in each checkpoint.
const firstBlock = 4 << 10

// output gathers bytes and writes them, plain or, between open and close of a
// region, in snappy frames. Its first error stays.
type output struct {
	w       io.Writer
	buf     []byte
	written int64 // bytes that w has
	lent    *[]byte
	framed  bool // what is gathered goes into frames
	frame   []byte
	err     error
}

// position is where in the file the next byte stands; inside frames where the next
// frame does, once everything gathered is flushed.
func (o *output) position() int64 {
	if o.framed {
		return o.written
	}
	return o.written + int64(len(o.buf))
}

// outputBuffers have room for a block and what stands behind it.
var outputBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, outputBlock+firstBlock)
	return &b
}}

// spill writes whole blocks of the first n gathered bytes, if there are enough.
func (o *output) spill(n int) {
	switch {
	case n >= outputBlock:
		o.flush(n - n%outputBlock)
	case o.lent == nil && n >= firstBlock/2: // it is not a small file
		o.lent = outputBuffers.Get().(*[]byte)
		o.buf = append((*o.lent)[:0], o.buf...)
	}
}

// finish writes what is left. Nothing may be gathered after it.
func (o *output) finish() {
	o.flush(len(o.buf))
	if o.lent != nil && cap(o.buf) <= 2*outputBlock {
		*o.lent = o.buf
		outputBuffers.Put(o.lent)
	}
	o.lent, o.buf = nil, nil
}

// flush writes the first n gathered bytes.
func (o *output) flush(n int) {
	p := o.buf[:n]
	if !o.framed {
		o.write(p)
	} else {
		for len(p) > 0 && o.err == nil {
			block := p[:min(len(p), snappyBlock)]
			o.writeFrame(block)
			p = p[len(block):]
		}
	}
	o.buf = o.buf[:copy(o.buf, o.buf[n:])]
}

// open begins a framed region behind what was gathered.
func (o *output) open() {
	o.flush(len(o.buf))
	o.buf = append(o.buf, snappyIdentifier...)
	o.flush(len(o.buf))
	o.framed = true
}

// close ends a framed region.
func (o *output) close() {
	o.flush(len(o.buf))
	o.framed = false
}

func (o *output) write(p []byte) {
	if o.err != nil || len(p) == 0 {
		return
	}
	n, err := o.w.Write(p)
	o.written += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	o.err = err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writeFrame writes one frame:
//
//	u8 type (0 snappy, 1 raw), u24 length, u32 masked CRC-32C of the raw bytes, data
//
// with little-endian numbers. Data that does not shrink to 85 % stays raw, as in
// Flink's writer. Frames are made here and not by a library's stream writer because
// offsets of operator state are positions of frames.
func (o *output) writeFrame(p []byte) {
	const head = 8
	if o.frame == nil {
		o.frame = make([]byte, head+s2.MaxEncodedLen(snappyBlock))
	}
	crc := crc32.Checksum(p, castagnoli)
	crc = (crc>>15 | crc<<17) + 0xa282ead8
	data := s2.EncodeSnappy(o.frame[head:cap(o.frame)], p)
	kind := byte(0)
	if 100*len(data) > 85*len(p) {
		kind = 1
		data = o.frame[head : head+copy(o.frame[head:], p)]
	}
	n := len(data) + 4
	o.frame[0], o.frame[1], o.frame[2], o.frame[3] = kind, byte(n), byte(n>>8), byte(n>>16)
	o.frame[4], o.frame[5], o.frame[6], o.frame[7] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
	o.write(o.frame[:head+len(data)])
}
