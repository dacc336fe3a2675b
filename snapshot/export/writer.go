package export

import (
	"io"

	"github.com/tidemark/tidemark/snapshot/table"
)

// Writer writes batches of one table to a file of its own. It belongs to one
// goroutine; Write of this package does the same for states, on all cores.
type Writer struct{ f file }

// NewWriter begins a file on w, which it does not close.
func NewWriter(w io.Writer, s *table.Schema, format Format) (*Writer, error) {
	f, err := newFile(w, s, format)
	if err != nil {
		return nil, err
	}
	return &Writer{f}, nil
}

func newFile(w io.Writer, s *table.Schema, format Format) (file, error) {
	switch format {
	case Arrow, ArrowStream:
		return newArrow(w, s, format == ArrowStream)
	}
	return newParquet(w, s, codec)
}

// Write writes batches as one row group, or as a record batch each. They may be
// used again afterwards.
func (w *Writer) Write(batches ...*table.Batch) error {
	commit, err := w.f.encode(batches)
	if err != nil {
		return err
	}
	return commit()
}

// Close writes the file's end.
func (w *Writer) Close() error { return w.f.close() }
