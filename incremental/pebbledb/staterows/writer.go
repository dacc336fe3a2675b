package staterows

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/incremental/pebbledb"
)

// batchBytes is how much a Writer gathers before it writes.
const batchBytes = 1 << 20

// Writer writes rows into a database, some at a time. Not for concurrent use.
type Writer struct {
	db  *pebbledb.DB
	b   *pebble.Batch
	key []byte
}

// NewWriter makes a Writer. Close it before the database.
func NewWriter(db *pebbledb.DB) *Writer { return &Writer{db: db, b: db.Pebble().NewBatch()} }

// Put writes a row. rest is the key behind key group and state; both slices are the
// caller's again. Rows may come in any order; of two with one key the later counts.
func (w *Writer) Put(ctx context.Context, group, state int, rest, value []byte) error {
	w.key = binary.BigEndian.AppendUint16(w.key[:0], uint16(group))
	w.key = binary.BigEndian.AppendUint16(w.key, uint16(state))
	w.key = append(w.key, rest...)
	if err := w.b.Set(w.key, value, nil); err != nil {
		return err
	}
	if w.b.Len() < batchBytes {
		return nil
	}
	return w.Flush(ctx)
}

// Flush writes what was put into the database.
func (w *Writer) Flush(ctx context.Context) error {
	if err := w.db.Apply(ctx, w.b); err != nil {
		return err
	}
	old := w.b
	w.b = w.db.Pebble().NewBatch()
	return old.Close()
}

// Close drops what was not flushed.
func (w *Writer) Close() { _ = w.b.Close() }
