package incremental

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// tableCache keeps the open tables that were used last, up to a number of bytes.
// A table in use lives on outside of it.
type tableCache struct {
	limit int64

	mu     sync.Mutex
	tables map[string]*cachedTable
	order  list.List // of *cachedTable, last used first
	bytes  int64
}

type cachedTable struct {
	name  string
	elem  *list.Element
	bytes int64 // 0 until open

	mu     sync.Mutex // held while the table is being opened
	reader *sst.Reader
}

func newTableCache(limit int64) *tableCache {
	return &tableCache{limit: limit, tables: map[string]*cachedTable{}}
}

// open gives the table's reader; of many callers one reads the table's tail.
func (c *tableCache) open(ctx context.Context, d *Database, t *Table) (*sst.Reader, error) {
	c.mu.Lock()
	e := c.tables[t.name]
	if e == nil {
		e = &cachedTable{name: t.name}
		c.tables[t.name] = e
		e.elem = c.order.PushFront(e)
	} else {
		c.order.MoveToFront(e.elem)
	}
	c.mu.Unlock()

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reader != nil {
		return e.reader, nil
	}
	r, err := d.openTable(ctx, t)
	if err != nil {
		return nil, err // and the next caller tries again
	}
	e.reader = r
	c.admit(e, r.MemoryBytes())
	return r, nil
}

// appends are the merge operators that join operands with ",", as Flink sets
// them, and what very old tables say that do not name theirs.
var appends = map[string]bool{"StringAppendTESTOperator": true, "StringAppendOperator": true, "": true}

func (d *Database) openTable(ctx context.Context, t *Table) (*sst.Reader, error) {
	src, err := d.source(t)
	if err != nil {
		return nil, err
	}
	opts := d.readerOptions(t)
	r, err := sst.Open(ctx, src, &opts)
	if err != nil {
		return nil, d.missing(t.name, err)
	}
	if p := r.Properties(); p.NumMergeOps > 0 && !appends[p.MergeOperator] {
		return nil, &damage.Error{Name: d.fileName(t.name), Offset: -1, Field: "merge operator", Detail: fmt.Sprintf("is %q", p.MergeOperator), Err: damage.ErrUnsupportedVersion}
	}
	return r, nil
}

// admit counts an opened table and drops the least recently used ones.
func (c *tableCache) admit(e *cachedTable, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables[e.name] != e {
		return // dropped while it was being opened
	}
	e.bytes = n
	c.bytes += n
	for c.bytes > c.limit && c.order.Len() > 0 {
		last := c.order.Remove(c.order.Back()).(*cachedTable)
		delete(c.tables, last.name)
		c.bytes -= last.bytes
	}
}
