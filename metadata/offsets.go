package metadata

import (
	"errors"
	"io"
	"strings"
)

var errAllFound = errors.New("all fields found")

// Offsets finds where fields stand in a _metadata object: the offset of the
// first byte of each path, which may name a single field or something larger,
// such as operator[2].subtask[0].managedKeyed. Paths that are not there are
// absent from the result. It reads no further than it must; damage behind
// everything that was asked for is not noticed, and what was found before damage
// is returned with the error.
//
// The decoded form does not remember offsets, so that it stays small; findings
// about it are few, and can be located afterwards.
func Offsets(r io.Reader, opts *DecodeOptions, fields ...string) (map[string]int64, error) {
	found := make(map[string]int64, len(fields))
	wanted := make(map[string]struct{}, len(fields))
	for _, f := range fields {
		wanted[f] = struct{}{}
	}
	if len(wanted) == 0 {
		return found, nil
	}
	d := newDecoder(r, opts)
	d.opts.Warn, d.opts.Strict = nil, false
	d.trace = func(t traced) {
		field := t.field
		for {
			if _, ok := wanted[field]; ok {
				found[field] = t.offset
				delete(wanted, field)
			}
			i := strings.LastIndexByte(field, '.')
			if i < 0 {
				break
			}
			field = field[:i]
		}
		if len(wanted) == 0 && d.err == nil {
			d.err = errAllFound
		}
	}
	d.checkpoint(visitor{operator: func(*OperatorState, int64) error { return nil }})
	if d.err == errAllFound {
		return found, nil
	}
	return found, d.err
}
