package snapshot

import (
	"context"
	"io"
)

// turns lets several goroutines write the parts of one stream, each of which comes
// behind the one before. What a part writes before its turn is held, up to ahead
// bytes; then it waits.
type turns struct {
	w     io.Writer
	ahead int
	at    int64 // position of what is written next; whose turn it is may use it
	ready []chan struct{}
}

// newTurns is for n parts behind what is written up to at.
func newTurns(w io.Writer, at int64, n, ahead int) *turns {
	t := &turns{w: w, at: at, ahead: ahead, ready: make([]chan struct{}, n+1)}
	for i := range t.ready {
		t.ready[i] = make(chan struct{})
	}
	close(t.ready[0])
	return t
}

// writer is for part i. Parts must be begun in order.
func (t *turns) writer(ctx context.Context, i int) *turnWriter {
	return &turnWriter{t: t, ctx: ctx, i: i}
}

// turnWriter writes one part. It must be ended, unless the whole is given up.
type turnWriter struct {
	t    *turns
	ctx  context.Context
	i    int
	mine bool // it is the part's turn
	from int64
	held []byte
}

// Write implements io.Writer.
func (w *turnWriter) Write(p []byte) (int, error) {
	if !w.mine {
		select {
		case <-w.t.ready[w.i]:
		default:
			if len(w.held)+len(p) <= w.t.ahead {
				w.held = append(w.held, p...)
				return len(p), nil
			}
		}
		if err := w.wait(); err != nil {
			return 0, err
		}
	}
	n, err := w.t.w.Write(p)
	w.t.at += int64(n)
	return n, err
}

// wait waits for the part's turn and writes what was held.
func (w *turnWriter) wait() error {
	select {
	case <-w.t.ready[w.i]:
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	}
	w.mine, w.from = true, w.t.at
	n, err := w.t.w.Write(w.held)
	w.t.at += int64(n)
	w.held = nil
	return err
}

// end gives the turn to the next part.
func (w *turnWriter) end() error {
	if !w.mine {
		if err := w.wait(); err != nil {
			return err
		}
	}
	close(w.t.ready[w.i+1])
	return nil
}
