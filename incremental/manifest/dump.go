package manifest

import (
	"errors"
	"fmt"
	"io"

	"github.com/tidemark/tidemark/incremental/internal/hexlines"
	"github.com/tidemark/tidemark/internal/damage"
)

// Dump writes the bytes of a MANIFEST with what they mean: each fragment, and
// behind the last one of a record the edit that it holds. Of a damaged one all up
// to the damage is written, and then a line that says what it is; the error is
// returned, too.
func Dump(w io.Writer, data []byte, opts *Options) error {
	if opts == nil {
		opts = &Options{}
	}
	p := hexlines.New(w, int64(len(data)))
	err := dump(p, data)
	var d *damage.Error
	if errors.As(err, &d) {
		d.Name = opts.Name
		p.Note("damaged: %v", err)
	}
	return errors.Join(err, p.Flush())
}

var fragmentNames = map[byte]string{1: "a whole record", 2: "first of a record", 3: "middle of a record", 4: "last of a record"}

func dump(p *hexlines.Printer, data []byte) error {
	l := &logReader{data: data}
	for n := 0; ; n++ {
		from := l.off
		record, at, ok, err := l.next()
		if err != nil {
			return err
		}
		fragments(p, data, from, l.off)
		if !ok {
			return nil
		}
		d := &decoder{b: record, n: len(record), at: at}
		p.Note("edit %d:", n)
		for len(d.b) > 0 && d.err == nil {
			e := new(edit)
			tag := d.v32("tag")
			d.tag(e, tag)
			if d.err == nil {
				p.Note("  %s", e.text(tag))
			}
		}
		if d.err != nil {
			return d.err
		}
	}
}

// fragments prints the frames between two offsets, which the reader has checked.
func fragments(p *hexlines.Printer, data []byte, from, to int64) {
	for from < to {
		left := logBlockSize - from%logBlockSize
		if left < logHeaderSize || to-from < logHeaderSize {
			n := min(left, to-from)
			p.Bytes(from, data[from:from+n], 0, "padding")
			from += n
			continue
		}
		h := data[from:]
		length := int64(h[4]) | int64(h[5])<<8
		if h[6] == 0 {
			p.Bytes(from, data[from:to], 0, "preallocated")
			return
		}
		p.Bytes(from, h[:4], 4, "checksum")
		p.Bytes(from+4, h[4:6], 2, fmt.Sprintf("length %d", length))
		p.Bytes(from+6, h[6:7], 1, fmt.Sprintf("type %d, %s", h[6], fragmentNames[h[6]]))
		p.Bytes(from+logHeaderSize, h[logHeaderSize:logHeaderSize+length], 32, "payload")
		from += logHeaderSize + length
	}
}

// text says what one tag of an edit means.
func (e *edit) text(tag uint32) string {
	switch {
	case e.comparator != nil:
		return fmt.Sprintf("%d comparator %q", tag, *e.comparator)
	case e.logNumber != nil:
		return fmt.Sprintf("%d log number %d", tag, *e.logNumber)
	case e.nextFile != nil:
		return fmt.Sprintf("%d next file number %d", tag, *e.nextFile)
	case e.lastSequence != nil:
		return fmt.Sprintf("%d last sequence %d", tag, *e.lastSequence)
	case e.add != nil:
		return fmt.Sprintf("%d add column family %q", tag, *e.add)
	case e.drop:
		return fmt.Sprintf("%d drop the column family", tag)
	case e.group != nil:
		return fmt.Sprintf("%d atomic group, %d edits follow", tag, *e.group)
	case tag == tagColumnFamily:
		return fmt.Sprintf("%d column family %d", tag, e.family)
	case e.dbID != "":
		return fmt.Sprintf("%d database id %s", tag, e.dbID)
	case len(e.deleted) > 0:
		return fmt.Sprintf("%d delete file %d of level %d", tag, e.deleted[0].number, e.deleted[0].level)
	case len(e.added) > 0:
		t := &e.added[0]
		return fmt.Sprintf("%d add file %d of %d bytes to level %d: keys %x to %x, sequences %d to %d", tag, t.Number, t.Size, t.Level, t.Smallest.Key, t.Largest.Key, t.SmallestSeq, t.LargestSeq)
	}
	return fmt.Sprintf("%d, of no meaning here", tag)
}
