package lsm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
	"github.com/tidemark/tidemark/keyed/internal/table"
)

// drainer writes frozen generations into the database, one after the other, beside the
// task. A snapshot of the database is taken exactly between two of them: nothing else
// is written by anybody.
type drainer struct {
	db           *pebbledb.DB
	first, count int
	life         context.Context
	end          context.CancelFunc
	done         atomic.Uint32 // generations that are in the database
	failed       atomic.Pointer[error]

	mu      sync.Mutex
	queue   []*drain
	running bool
	idle    *sync.Cond
	closed  bool
}

// drain is a frozen generation.
type drain struct {
	gen      uint32
	view     *table.View // sees it
	parts    []part
	take     *frozen
	finished chan struct{}
}

type part struct {
	id      uint16
	st      engine.BytesState
	changes engine.Changes
}

func newDrainer(db *pebbledb.DB, first, count int) *drainer {
	d := &drainer{db: db, first: first, count: count}
	d.life, d.end = context.WithCancel(context.Background())
	d.idle = sync.NewCond(&d.mu)
	return d
}

func (d *drainer) add(j *drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, j)
	if !d.running {
		d.running = true
		go d.run()
	}
}

// busy tells whether a generation is being written or waits for it.
func (d *drainer) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
}

// wait waits until nothing is to be written.
func (d *drainer) wait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running {
		d.idle.Wait()
	}
}

func (d *drainer) failure() error {
	if e := d.failed.Load(); e != nil {
		return *e
	}
	return nil
}

func (d *drainer) close() {
	d.end()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for d.running {
		d.idle.Wait()
	}
}

func (d *drainer) run() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.running = false
			d.idle.Broadcast()
			d.mu.Unlock()
			return
		}
		j := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		d.one(j)
	}
}

// one writes a generation.
func (d *drainer) one(j *drain) {
	defer close(j.finished)
	err := d.failure()
	if err == nil && d.life.Err() != nil {
		err = keyed.ErrClosed
	}
	if err == nil {
		err = d.write(j)
	}
	for _, p := range j.parts {
		p.st.Release(j.view)
	}
	j.view.Close()
	if err != nil {
		if d.life.Err() != nil {
			err = keyed.ErrClosed
		}
		d.failed.CompareAndSwap(nil, &err)
		if j.take != nil {
			if j.take.db != nil {
				j.take.db.Release()
			}
			j.take.settle(nil, err)
		}
		return
	}
	d.done.Store(j.gen)
	if j.take != nil {
		j.take.settle(j.take.db, nil)
	}
}

func (d *drainer) write(j *drain) error {
	if j.take == nil {
		return d.apply(j, func(b *pebble.Batch) error { return d.db.Apply(d.life, b) })
	}
	f, err := d.db.Checkpoint(j.take.id, func(apply func(*pebble.Batch) error) error { return d.apply(j, apply) })
	if err != nil {
		return err
	}
	j.take.db = f
	// Nothing else is written until the tables are linked. That they could not be is an
	// error of the checkpoint alone, which Upload tells.
	<-f.Settled()
	return d.db.Err()
}

// batchBytes is about how large a batch gets.
const batchBytes = 128 << 10

// row is a change of one generation while it is sorted.
type row struct {
	sort     uint64 // bytes 4 to 12 of the key, with zeros behind them if it is shorter
	prefix   uint32 // bytes 0 to 4: key group and state
	key, end uint32 // where it begins, and its value ends
	value    uint32
	op       engine.Op
}

// sortKeys are the first twelve bytes of a key as numbers, which keys are compared by
// first.
func sortKeys(key []byte) (prefix uint32, sort uint64) {
	if len(key) >= 12 {
		return binary.BigEndian.Uint32(key), binary.BigEndian.Uint64(key[4:])
	}
	var b [12]byte
	copy(b[:], key)
	return binary.BigEndian.Uint32(b[:]), binary.BigEndian.Uint64(b[4:])
}

// compareRows compares the keys of rows that lie in data.
func compareRows(a, b *row, data []byte) int {
	switch {
	case a.prefix != b.prefix:
		return cmp.Compare(a.prefix, b.prefix)
	case a.sort != b.sort:
		return cmp.Compare(a.sort, b.sort)
	}
	return bytes.Compare(data[a.key:a.value], data[b.key:b.value])
}

// apply writes the changes by key group and state, sorted.
func (d *drainer) apply(j *drain, commit func(*pebble.Batch) error) error {
	if err := d.db.Acquire(); err != nil {
		return err
	}
	defer d.db.Release()
	batch := d.db.Pebble().NewBatch()
	defer func() { _ = batch.Close() }()
	var data []byte
	var rows []row
	for g := d.first; g < d.first+d.count; g++ {
		for i := range j.parts {
			p := &j.parts[i]
			if p.changes.Len(g) == 0 {
				continue
			}
			data, rows = data[:0], rows[:0]
			p.changes.Group(j.view, g, func(op engine.Op, key, value []byte) {
				r := row{key: uint32(len(data)), op: op}
				r.prefix, r.sort = sortKeys(key)
				data = append(data, key...)
				r.value = uint32(len(data))
				data = append(data, value...)
				r.end = uint32(len(data))
				rows = append(rows, r)
			})
			if len(data) > 1<<31 {
				return errors.New("the changes of a key group are larger than 2 GiB")
			}
			slices.SortFunc(rows, func(a, b row) int {
				if c := compareRows(&a, &b, data); c != 0 {
					return c
				}
				// Ranges first: a batch is applied in its order.
				return int(b.op) - int(a.op)
			})
			for i := range rows {
				r := &rows[i]
				key, value := data[r.key:r.value], data[r.value:r.end]
				if i > 0 && r.op == rows[i-1].op && bytes.Equal(key, data[rows[i-1].key:rows[i-1].value]) {
					continue // an entry that was noted twice
				}
				var err error
				switch r.op {
				case engine.OpSet:
					err = batch.Set(key, value, nil)
				case engine.OpDelete:
					err = batch.Delete(key, nil)
				case engine.OpAppend:
					err = batch.Merge(key, value, nil)
				case engine.OpDeleteRange:
					err = batch.DeleteRange(key, value, nil)
				}
				if err != nil {
					return fmt.Errorf("lsm: %w", err)
				}
				if batch.Len() > batchBytes {
					if d.life.Err() != nil {
						return pebbledb.ErrClosed // which is no failure of the database
					}
					if err := commit(batch); err != nil {
						return err
					}
					batch.Reset()
				}
			}
		}
	}
	if batch.Empty() {
		return nil
	}
	return commit(batch)
}
