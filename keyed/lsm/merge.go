package lsm

import (
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// merger joins what is appended to lists with Flink's delimiter: its name and what it does
// are those of RocksDB's StringAppendOperator, so that a row is a row of Flink's.
var merger = &pebble.Merger{
	Name: "tidemark.append.1",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		return &appended{parts: [][]byte{append([]byte(nil), value...)}}, nil
	},
}

// appended is a list of operands: parts are older first but for those in older, which
// are newest first.
type appended struct {
	parts, older [][]byte
}

func (a *appended) MergeNewer(value []byte) error {
	a.parts = append(a.parts, append([]byte(nil), value...))
	return nil
}

func (a *appended) MergeOlder(value []byte) error {
	a.older = append(a.older, append([]byte(nil), value...))
	return nil
}

func (a *appended) Finish(bool) ([]byte, io.Closer, error) {
	size := len(a.parts) + len(a.older)
	for _, p := range a.parts {
		size += len(p)
	}
	for _, p := range a.older {
		size += len(p)
	}
	out := make([]byte, 0, size)
	for i := len(a.older) - 1; i >= 0; i-- {
		out = append(append(out, a.older[i]...), ',')
	}
	for i, p := range a.parts {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, p...)
	}
	return out, nil, nil
}
