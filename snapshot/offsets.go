package snapshot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/tidemark/tidemark/metadata"
)

// locate finds the offsets of the fields that findings are about. Only then the
// metadata is read once more: the decoded form does not remember offsets.
func (v *verifier) locate(ctx context.Context) error {
	wanted := map[string][]*int64{}
	for i := range v.out.Findings {
		f := &v.out.Findings[i]
		switch {
		case f.Field == "":
		case f.File != v.file:
			f.HandleOffset = -1
			wanted[f.Field] = append(wanted[f.Field], &f.HandleOffset)
		case f.Offset < 0:
			wanted[f.Field] = append(wanted[f.Field], &f.Offset)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	store, name, err := v.s.pool.Resolve(ctx, v.s.Location)
	if err != nil {
		return err
	}
	r, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	err = metadata.Dump(&fieldFinder{wanted: wanted}, r, &metadata.DumpOptions{Name: v.file, Size: v.s.Size, MaxBytes: 1})
	if errors.Is(err, errAllFound) || errors.Is(err, metadata.ErrCorrupt) {
		return nil
	}
	return err
}

var errAllFound = errors.New("all fields found")

// fieldFinder reads the lines of a metadata dump, "123-126: 00000001  # field …", and
// notes the offsets of fields: of the field itself, or of the first one in it.
type fieldFinder struct {
	wanted map[string][]*int64
	rest   []byte
}

var _ io.Writer = (*fieldFinder)(nil)

// Write implements io.Writer.
func (f *fieldFinder) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			f.rest = append(f.rest, p...)
			return n, nil
		}
		line := p[:i]
		if len(f.rest) > 0 {
			f.rest = append(f.rest, line...)
			line = f.rest
		}
		f.line(line)
		f.rest = f.rest[:0]
		p = p[i+1:]
		if len(f.wanted) == 0 {
			return n, errAllFound
		}
	}
}

func (f *fieldFinder) line(line []byte) {
	digits := bytes.IndexByte(line, '-')
	comment := bytes.Index(line, []byte("  # "))
	if digits < 0 || comment < 0 {
		return
	}
	offset, err := strconv.ParseInt(string(line[:digits]), 10, 64)
	if err != nil {
		return
	}
	field := line[comment+len("  # "):]
	if i := bytes.IndexByte(field, ' '); i >= 0 {
		field = field[:i]
	}
	for len(field) > 0 {
		if to, ok := f.wanted[string(field)]; ok {
			for _, o := range to {
				*o = offset
			}
			delete(f.wanted, string(field))
		}
		field = field[:max(0, bytes.LastIndexByte(field, '.'))]
	}
}
