package snapshot

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/pebbledb/staterows"
)

// pairIterator walks over the entries of a state in the order of their keys. Keys and
// values are valid until it moves.
type pairIterator interface {
	Next() bool
	Key() []byte
	Value() []byte
	Err() error
	Close()
}

// stateDB is the database of an incremental handle. For concurrent use.
type stateDB interface {
	// state gives a state of the handle's meta block; nil if it has no entries.
	state(id int, name string) stateTable
	// bytes is the size of its tables.
	bytes() int64
	close()
}

// stateTable is one state of a database. Its keys are composite keys; bounds are such,
// lower inclusive and upper exclusive, as of incremental.ScanOptions.
type stateTable interface {
	name() string
	bytes() int64
	scan(ctx context.Context, lower, upper []byte) pairIterator
	split(ctx context.Context, lower, upper []byte, n, prefix int) ([][]byte, error)
}

// rocksDB has a column family for each state.
type rocksDB struct{ db *incremental.Database }

func (d rocksDB) state(_ int, name string) stateTable {
	if f := d.db.Family(name); f != nil {
		return rocksTable{f}
	}
	return nil
}

func (d rocksDB) bytes() (n int64) {
	for _, f := range d.db.Families() {
		n += f.Bytes()
	}
	return n
}

func (d rocksDB) close() {}

type rocksTable struct{ f *incremental.Family }

func (t rocksTable) name() string { return t.f.Name }
func (t rocksTable) bytes() int64 { return t.f.Bytes() }
func (t rocksTable) scan(ctx context.Context, lower, upper []byte) pairIterator {
	return t.f.Scan(ctx, &incremental.ScanOptions{Lower: lower, Upper: upper})
}

func (t rocksTable) split(ctx context.Context, lower, upper []byte, n, prefix int) ([][]byte, error) {
	return t.f.Split(ctx, lower, upper, n, prefix)
}

// lsmDB is a database of our own state backend, which has all states in one key space.
type lsmDB struct {
	db     *staterows.Database
	states int
	once   sync.Once
}

func (d *lsmDB) state(id int, name string) stateTable {
	return lsmTable{d, id, name}
}

func (d *lsmDB) bytes() int64 { return d.db.Bytes() }

// close ends reading when the last iterator is closed.
func (d *lsmDB) close() { d.once.Do(func() { _ = d.db.Close() }) }

type lsmTable struct {
	d     *lsmDB
	id    int
	label string
}

func (t lsmTable) name() string { return t.label }

// bytes is a guess: what each state has cannot be told.
func (t lsmTable) bytes() int64 { return t.d.db.Bytes() / int64(max(t.d.states, 1)) }

func (t lsmTable) scan(ctx context.Context, lower, upper []byte) pairIterator {
	return t.d.db.Scan(ctx, t.id, lower, upper)
}

func (t lsmTable) split(_ context.Context, lower, upper []byte, n, _ int) ([][]byte, error) {
	return t.d.db.Split(lower, upper, n), nil
}

// openDBs are the databases that a scan has open, and what they share.
type openDBs struct {
	mu      sync.Mutex
	process *staterows.Process
	dbs     map[*lsmDB]bool
}

// lsm opens one of our own databases.
func (o *openDBs) lsm(ctx context.Context, files []incremental.File, name string, prefix, states int) (stateDB, error) {
	o.mu.Lock()
	if o.process == nil {
		o.process = staterows.NewProcess()
		o.dbs = map[*lsmDB]bool{}
	}
	p := o.process
	o.mu.Unlock()
	db, err := staterows.Open(ctx, p, files, name, prefix)
	if err != nil {
		return nil, err
	}
	d := &lsmDB{db: db, states: states}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dbs[d] = true
	return d, nil
}

// done closes a database that is not needed any more.
func (o *openDBs) done(db stateDB) {
	db.close()
	if d, ok := db.(*lsmDB); ok {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.dbs, d)
	}
}

// close closes all.
func (o *openDBs) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for d := range o.dbs {
		d.close()
	}
	o.dbs = nil
	if o.process != nil {
		o.process.Close()
		o.process = nil
	}
}

// closing makes units of a database close it when the last of them has run.
func (o *openDBs) closing(units []*unit, db stateDB) []*unit {
	if len(units) == 0 {
		o.done(db)
		return units
	}
	left := &atomic.Int64{}
	left.Store(int64(len(units)))
	for _, u := range units {
		run := u.run
		u.run = func(ctx context.Context, w *worker) error {
			err := run(ctx, w)
			if left.Add(-1) == 0 {
				o.done(db)
			}
			return err
		}
	}
	return units
}
