package pebbledb

import (
	"context"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// FileSum is what the file PEBBLE says of another file of the checkpoint.
type FileSum struct {
	Name  string // as in the handle
	Size  int64
	XXH64 uint64 // of all bytes
}

// ReadSums reads the file PEBBLE among the files of a handle. name precedes file names
// in errors.
func ReadSums(ctx context.Context, files []incremental.File, name string) ([]FileSum, error) {
	s := &Source{Name: name}
	for _, f := range files {
		if f.Name != SumsName {
			continue
		}
		m, err := s.sums(ctx, f.Source)
		if err != nil {
			return nil, err
		}
		out := make([]FileSum, len(m.Files))
		for i, e := range m.Files {
			out[i] = FileSum{e.Name, e.Size, uint64(e.Sum)}
		}
		return out, nil
	}
	return nil, &damage.Error{Name: name, Offset: -1, Detail: "has no file " + SumsName, Err: damage.ErrCorrupt}
}

// Check reads a file and compares it with its size and checksum; display names it in
// errors, which are *damage.Error for a file that differs.
func (f FileSum) Check(ctx context.Context, src sst.Source, display string) error {
	e := sumEntry{Name: f.Name, Size: f.Size, Sum: checksum(f.XXH64)}
	h := xxhash.New()
	b := make([]byte, min(f.Size, 1<<20))
	for off := int64(0); off < f.Size; {
		n, err := src.ReadAt(ctx, b[:min(int64(len(b)), f.Size-off)], off)
		h.Write(b[:n])
		off += int64(n)
		switch {
		case err == io.EOF && off < f.Size:
			return e.wrongSize(display, off)
		case err != nil && err != io.EOF:
			return fmt.Errorf("%s: %w", display, err)
		}
	}
	if got := checksum(h.Sum64()); got != e.Sum {
		return e.mismatch(display, got)
	}
	return nil
}
