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

// Blocks encodes all selected rows on Workers goroutines and gives the encoded
// blocks, each of some whole rows, to write: in the order of the rows, or, with
// ScanOptions.Unordered, as they come. write is called by one goroutine and must
// not keep the block.
//
// Memory is that of Scan and, for each worker, at most 8 MiB of encoded rows (or
// one row, if that is larger) which wait for their turn.
func Blocks(ctx context.Context, s *Snapshot, opts *ScanOptions, encoder func(worker int) Encoder, write func([]byte) error) error {
	sc := newScan(s, opts)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	type task struct {
		unit *unit
		out  chan []byte
	}
	pool := sync.Pool{New: func() any { b := make([]byte, 0, blockBytes+blockBytes/4); return &b }}
	tasks := make(chan task)
	turns := make(chan chan []byte, 2*sc.opts.Workers)
	var wg sync.WaitGroup
	for i := range sc.opts.Workers {
		wg.Go(func() {
			enc := encoder(i)
			w := &worker{scan: sc}
			for t := range tasks {
				block := (*pool.Get().(*[]byte))[:0]
				send := func() error {
					select {
					case t.out <- block:
						block = (*pool.Get().(*[]byte))[:0]
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				w.emit = func(r *StateRow) (err error) {
					if block, err = enc.Append(block, r); err != nil || len(block) < blockBytes {
						return err
					}
					return send()
				}
				err := w.do(ctx, t.unit)
				if err == nil && len(block) > 0 {
					err = send()
				}
				close(t.out)
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Go(func() {
		defer close(turns)
		defer close(tasks)
		for u, err := range sc.units(ctx) {
			if err != nil {
				cancel(err)
				return
			}
			t := task{unit: u, out: make(chan []byte, blocksAhead)}
			select {
			case turns <- t.out:
			case <-ctx.Done():
				return
			}
			select {
			case tasks <- t:
			case <-ctx.Done():
				close(t.out)
				return
			}
		}
	})
	var werr error
	for out := range turns {
		for b := range out {
			if werr == nil && ctx.Err() == nil {
				if werr = write(b); werr != nil {
					cancel(werr)
				}
			}
			pool.Put(&b)
		}
	}
	wg.Wait()
	if werr != nil {
		return werr
	}
	return context.Cause(ctx)
}
