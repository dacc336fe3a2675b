package pebbledb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Tables writes rows into tables beside the database, which Ingest then makes part of
// it: many rows that are sorted already cost neither memtables nor compactions. For one
// goroutine; several may write at a time. After an error Discard is what is left.
type Tables struct {
	d *DB
	w *sstable.Writer
	// last is the largest key of the table that is being written.
	last []byte
	// layers are paths of tables. Those of one layer ascend and do not overlap.
	layers [][]string
	rows   int
}

// tableSerial numbers the tables of all Tables.
var tableSerial atomic.Int64

// checkRows is after how many rows the size of a table is looked at.
const checkRows = 64

// NewTables begins tables that lie in the working directory until Ingest.
func (d *DB) NewTables() *Tables { return &Tables{d: d} }

// Set adds a row. Keys should ascend: one that is not above the one before begins a
// layer of tables that lies above all that were written until then, so the row that
// came last is the one that holds, but what overlaps has to be compacted. key and value
// are the caller's again afterwards.
func (t *Tables) Set(key, value []byte) error {
	above := len(t.layers) == 0 || bytes.Compare(key, t.last) > 0
	if t.rows++; t.w != nil && (!above || t.rows%checkRows == 0 && t.w.Raw().EstimatedSize() >= tableBytes) {
		if err := t.finish(); err != nil {
			return err
		}
	}
	if t.w == nil {
		if err := t.begin(above); err != nil {
			return err
		}
	}
	t.last = append(t.last[:0], key...)
	if err := t.w.Set(key, value); err != nil {
		return fmt.Errorf("%s: a table: %w", t.d.name(), err)
	}
	return nil
}

func (t *Tables) begin(above bool) error {
	d := t.d
	if err := d.Err(); err != nil {
		return err
	}
	path := d.fs.PathJoin(d.dir, "fetch", fmt.Sprintf("ingest-%s-%06d.sst", d.incarnation, tableSerial.Add(1)))
	f, err := d.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("%s: %w", d.name(), err)
	}
	if len(t.layers) == 0 || !above {
		t.layers = append(t.layers, nil)
	}
	top := &t.layers[len(t.layers)-1]
	*top = append(*top, path)
	t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), d.popts.MakeWriterOptions(len(d.popts.Levels)-1, d.db.TableFormat()))
	return nil
}

func (t *Tables) finish() error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	t.w = nil
	if err != nil {
		return fmt.Errorf("%s: a table: %w", t.d.name(), err)
	}
	return nil
}

// Discard ends the tables and removes those that were not ingested. It may be called
// after Ingest, and more than once.
func (t *Tables) Discard() {
	_ = t.finish()
	for _, layer := range t.layers {
		for _, path := range layer {
			_ = t.d.fs.Remove(path) // the next Open removes what is left
		}
	}
	t.layers = nil
}

// Ingest makes tables part of the database: all but the first layer of each lies
// above what was there. The rows of different Tables must not be of the same keys, nor
// lie between each other's: a range of key groups for each, say. A lease has to be held,
// and no checkpoint may be in progress.
func (d *DB) Ingest(ctx context.Context, all ...*Tables) error {
	deepest := 0
	for _, t := range all {
		if err := t.finish(); err != nil {
			return err
		}
		deepest = max(deepest, len(t.layers))
	}
	for i := range deepest {
		var paths []string
		for _, t := range all {
			if i < len(t.layers) {
				paths = append(paths, t.layers[i]...)
			}
		}
		err := d.guard(func() error { return d.db.Ingest(ctx, paths) })
		if failed := d.Err(); failed != nil {
			err = failed
		}
		if err != nil {
			return fmt.Errorf("%s: tables cannot be added: %w", d.name(), errors.Join(err, ctx.Err()))
		}
	}
	return nil
}
