package lsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark/tidemark/incremental/pebbledb"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/internal/engine"
)

var iterOptions = pebble.IterOptions{UseL6Filters: true}

// liveRows is the database as its owner reads it. Iterators are kept until renew, since
// making one costs more than a read; they see what was there when they were made, which
// is enough: newer rows have entries in front of them until renew.
type liveRows struct {
	db    *pebbledb.DB
	point *pebble.Iterator
	scans []*pebble.Iterator
	epoch int
}

var _ engine.Rows = (*liveRows)(nil)

func (r *liveRows) open() (*pebble.Iterator, error) {
	if err := r.db.Acquire(); err != nil {
		return nil, err
	}
	defer r.db.Release()
	it, err := r.db.Pebble().NewIter(&iterOptions)
	if err != nil {
		return nil, fmt.Errorf("lsm: %w", err)
	}
	return it, nil
}

// Get implements engine.Rows.
func (r *liveRows) Get(dst, key []byte) (value []byte, ok bool, err error) {
	if r.point == nil {
		if r.point, err = r.open(); err != nil {
			return dst, false, err
		}
	}
	return getWith(r.point, dst, key)
}

func getWith(it *pebble.Iterator, dst, key []byte) ([]byte, bool, error) {
	if !it.SeekPrefixGE(key) {
		if err := it.Error(); err != nil {
			return dst, false, fmt.Errorf("lsm: %w", err)
		}
		return dst, false, nil
	}
	if !bytes.Equal(it.Key(), key) {
		return dst, false, nil
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return dst, false, fmt.Errorf("lsm: %w", err)
	}
	return append(dst, v...), true, nil
}

// Scan implements engine.Rows.
func (r *liveRows) Scan(from, to []byte, f func(key, value []byte) bool) error {
	var it *pebble.Iterator
	if last := len(r.scans) - 1; last >= 0 {
		it, r.scans = r.scans[last], r.scans[:last]
	} else {
		var err error
		if it, err = r.open(); err != nil {
			return err
		}
	}
	epoch := r.epoch
	err := scanWith(it, from, to, f)
	if epoch == r.epoch && len(r.scans) < 4 {
		r.scans = append(r.scans, it)
		return err
	}
	if e := it.Close(); err == nil && e != nil {
		err = fmt.Errorf("lsm: %w", e)
	}
	return err
}

func scanWith(it *pebble.Iterator, from, to []byte, f func(key, value []byte) bool) error {
	it.SetBounds(from, to)
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return fmt.Errorf("lsm: %w", err)
		}
		if !f(it.Key(), v) {
			return nil
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("lsm: %w", err)
	}
	return nil
}

// renew lets later reads see what was written since.
func (r *liveRows) renew() {
	r.epoch++
	if r.point != nil {
		_ = r.point.Close() // its errors were those of the reads
		r.point = nil
	}
	for _, it := range r.scans {
		_ = it.Close()
	}
	r.scans = r.scans[:0]
}

// frozenRows is the database as it was when a view was opened, for any goroutine. It
// holds a lease of the database until it was closed and is not read any more.
type frozenRows struct {
	db     *pebbledb.DB
	mu     sync.Mutex
	base   *pebble.Iterator
	users  int
	closed bool
	// old are states that were registered with a new type since: their rows here are
	// of the type before.
	old []uint16
}

func newFrozenRows(db *pebbledb.DB) (*frozenRows, error) {
	if err := db.Acquire(); err != nil {
		return nil, err
	}
	it, err := db.Pebble().NewIter(&iterOptions)
	if err != nil {
		db.Release()
		return nil, fmt.Errorf("lsm: %w", err)
	}
	return &frozenRows{db: db, base: it}, nil
}

// enter gives an iterator for rows of the state of a key.
func (r *frozenRows) enter(key []byte) (*pebble.Iterator, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("lsm: view: %w", keyed.ErrClosed)
	}
	if slices.Contains(r.old, binary.BigEndian.Uint16(key[2:])) {
		return nil, fmt.Errorf("lsm: the state was registered with a new type after the view was opened: %w", keyed.ErrIncompatible)
	}
	it, err := r.base.Clone(pebble.CloneOptions{})
	if err != nil {
		return nil, fmt.Errorf("lsm: %w", err)
	}
	r.users++
	return it, nil
}

// outdate says that a state has another type from now on.
func (r *frozenRows) outdate(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old = append(r.old, id)
}

func (r *frozenRows) leave(it *pebble.Iterator) {
	_ = it.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	r.end()
}

func (r *frozenRows) end() {
	if r.closed && r.users == 0 && r.base != nil {
		_ = r.base.Close()
		r.base = nil
		r.db.Release()
	}
}

func (r *frozenRows) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.end()
}

func (r *frozenRows) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Get implements engine.Rows.
func (r *frozenRows) Get(dst, key []byte) ([]byte, bool, error) {
	it, err := r.enter(key)
	if err != nil {
		return dst, false, err
	}
	defer r.leave(it)
	return getWith(it, dst, key)
}

// Scan implements engine.Rows.
func (r *frozenRows) Scan(from, to []byte, f func(key, value []byte) bool) error {
	it, err := r.enter(from)
	if err != nil {
		return err
	}
	defer r.leave(it)
	var ended error
	n := 0
	err = scanWith(it, from, to, func(key, value []byte) bool {
		if n++; n&1023 == 0 && r.isClosed() {
			ended = fmt.Errorf("lsm: view: %w", keyed.ErrClosed)
			return false
		}
		return f(key, value)
	})
	if err == nil {
		err = ended
	}
	return err
}
