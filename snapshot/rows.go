package snapshot

import (
	"context"
	"errors"
	"iter"
	"sync"
)

// Rows iterates over the entries of a snapshot's states, decoded by one
// goroutine. The row is valid until the next one. Order and selection are as in
// ScanOptions (Unordered is ignored); an error ends the iteration. For more than
// one core see Scan and Blocks.
func Rows(ctx context.Context, s *Snapshot, opts *ScanOptions) iter.Seq2[*StateRow, error] {
	return func(yield func(*StateRow, error) bool) {
		sc := newScan(s, opts)
		defer sc.dbs.close()
		w := &worker{scan: sc, emit: func(r *StateRow) error {
			if !yield(r, nil) {
				return errStop
			}
			return nil
		}}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for u, err := range sc.units(ctx) {
			if err == nil {
				err = w.do(ctx, u)
			}
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Encoder turns rows into bytes. It belongs to one goroutine.
type Encoder interface {
	// Append appends a row's encoding to dst. An error ends the scan.
	Append(dst []byte, r *StateRow) ([]byte, error)
}

const (
	blockBytes = 256 << 10
	// blocksAhead bounds what one unit may have encoded before its turn.
	blocksAhead = 32
)

// Collector gathers rows into pieces of work, such as a block of text or a batch of
// columns. It belongs to one goroutine.
type Collector[T any] interface {
	// Add takes a row, and reports whether the piece is large enough. An error ends
	// the scan.
	Add(r *StateRow) (full bool, err error)
	// Take gives the piece away; false if there is nothing in it.
	Take() (piece T, some bool)
}

// Collect reads all selected rows on Workers goroutines, each with a collector of
// its own, and gives the pieces to write: in the order of the rows, or, with
// ScanOptions.Unordered, as they come. write is called by one goroutine; what it
// gets is its own.
//
// Memory is that of Scan and, for each worker, at most 32 pieces that wait for
// their turn.
func Collect[T any](ctx context.Context, s *Snapshot, opts *ScanOptions, collector func(worker int) Collector[T], write func(T) error) error {
	sc := newScan(s, opts)
	defer sc.dbs.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	type task struct {
		unit *unit
		out  chan T
	}
	tasks := make(chan task)
	turns := make(chan chan T, 2*sc.opts.Workers)
	var common chan T // of all units, where their order does not matter
	if sc.opts.Unordered {
		common = make(chan T, 2*sc.opts.Workers)
		turns <- common
		close(turns)
	}
	var workers, feeder sync.WaitGroup
	for i := range sc.opts.Workers {
		workers.Go(func() {
			c := collector(i)
			w := &worker{scan: sc}
			for t := range tasks {
				send := func() error {
					piece, some := c.Take()
					if !some {
						return nil
					}
					select {
					case t.out <- piece:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				w.emit = func(r *StateRow) error {
					if full, err := c.Add(r); err != nil || !full {
						return err
					}
					return send()
				}
				err := w.do(ctx, t.unit)
				if err == nil {
					err = send()
				}
				if common == nil {
					close(t.out)
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	feeder.Go(func() {
		if common == nil {
			defer close(turns)
		}
		defer close(tasks)
		for u, err := range sc.units(ctx) {
			if err != nil {
				cancel(err)
				return
			}
			t := task{unit: u, out: common}
			if common == nil {
				t.out = make(chan T, blocksAhead)
				select {
				case turns <- t.out:
				case <-ctx.Done():
					return
				}
			}
			select {
			case tasks <- t:
			case <-ctx.Done():
				if common == nil {
					close(t.out)
				}
				return
			}
		}
	})
	if common != nil {
		go func() {
			feeder.Wait()
			workers.Wait()
			close(common)
		}()
	}
	var werr error
	for out := range turns {
		for piece := range out {
			if werr == nil && ctx.Err() == nil {
				if werr = write(piece); werr != nil {
					cancel(werr)
				}
			}
		}
	}
	feeder.Wait()
	workers.Wait()
	if werr != nil {
		return werr
	}
	return context.Cause(ctx)
}

// Blocks encodes all selected rows on Workers goroutines and gives the encoded
// blocks, each of some whole rows, to write: in the order of the rows, or, with
// ScanOptions.Unordered, as they come. write is called by one goroutine and must
// not keep the block.
//
// Memory is that of Scan and, for each worker, at most 8 MiB of encoded rows (or
// one row, if that is larger) which wait for their turn.
func Blocks(ctx context.Context, s *Snapshot, opts *ScanOptions, encoder func(worker int) Encoder, write func([]byte) error) error {
	pool := &sync.Pool{New: func() any { b := make([]byte, 0, blockBytes+blockBytes/4); return &b }}
	return Collect(ctx, s, opts, func(i int) Collector[*[]byte] {
		return &blockCollector{enc: encoder(i), pool: pool}
	}, func(b *[]byte) error {
		err := write(*b)
		pool.Put(b)
		return err
	})
}

// blockCollector gathers encoded rows.
type blockCollector struct {
	enc   Encoder
	pool  *sync.Pool
	block *[]byte
}

func (c *blockCollector) Add(r *StateRow) (full bool, err error) {
	if c.block == nil {
		c.block = c.pool.Get().(*[]byte)
		*c.block = (*c.block)[:0]
	}
	*c.block, err = c.enc.Append(*c.block, r)
	return len(*c.block) >= blockBytes, err
}

func (c *blockCollector) Take() (*[]byte, bool) {
	b := c.block
	if b == nil || len(*b) == 0 {
		return nil, false
	}
	c.block = nil
	return b, true
}
