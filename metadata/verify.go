package metadata

import (
	"fmt"
	"hash/maphash"
	"io"
)

// VerifyRoundTrip reads a _metadata object and checks that what was read
// encodes to the same bytes, operator by operator: neither the file nor the
// decoded checkpoint is held. Its errors are those of Decode; bytes that come
// out different are damage, named by the first operator (or part of the file)
// in which they stand.
func VerifyRoundTrip(r io.Reader, opts *DecodeOptions) error { return verifyRoundTrip(r, opts) }

func verifyRoundTrip(r io.Reader, opts *DecodeOptions) error {
	var read, written maphash.Hash
	written.SetSeed(read.Seed())
	d := newDecoder(r, opts)
	d.tee = &read
	count := counter{w: &written}
	e := &encoder{w: &count, buf: make([]byte, 0, outputSize)}
	compare := func(at int64, field string) {
		d.flushTee()
		e.flush()
		if d.err == nil && (count.n != d.offset() || read.Sum64() != written.Sum64()) {
			d.path.elems = d.path.elems[:0]
			d.damage(at, field, fmt.Sprintf("is written back with other bytes (%d so far, %d were read)", count.n, d.offset()))
		}
	}
	n := 0
	c := d.checkpoint(visitor{
		header: func(operators int) {
			e.header(d.c)
			e.length("", operators)
			compare(0, "header")
		},
		operator: func(o *OperatorState, from int64) error {
			e.operator(o)
			compare(from, fmt.Sprintf("operator[%d]", n))
			n++
			return d.err
		},
	})
	if d.err != nil {
		return d.err
	}
	at := d.offset() - int64(len(c.Properties))
	e.properties(c)
	compare(at, "properties")
	if e.err != nil {
		return e.err
	}
	return d.err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}
