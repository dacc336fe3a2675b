package blobstore

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"
)

// RateLimit gives a store that begins at most perSecond calls a second on s, and up
// to burst (at least 1) at once after a pause. Calls wait for their turn, in the
// order in which they came, or until their context ends.
//
// It counts calls, which is about the requests that a server sees: one for each
// method, for each Commit, for every 1000 names of DeleteAll and entries of a
// listing. Parts of one object are not counted.
func RateLimit(s Store, perSecond float64, burst int) Store {
	if perSecond <= 0 || math.IsInf(perSecond, 1) {
		return s
	}
	every := time.Duration(float64(time.Second) / perSecond)
	return decorate(s, &rateLimit{every: max(every, 1), burst: time.Duration(max(0, burst-1))})
}

// rateLimit is a token bucket, kept as the time at which it is empty: a call takes
// its place in time, and waits until then.
type rateLimit struct {
	every time.Duration
	burst time.Duration // in tokens, without the first

	mu   sync.Mutex
	next time.Time // when the next call would have its turn, without burst
}

const namesPerRequest = 1000

// wait takes n tokens, for one call.
func (l *rateLimit) wait(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	if early := now.Add(-l.burst * l.every); l.next.Before(early) {
		l.next = early
	}
	turn := l.next
	l.next = l.next.Add(time.Duration(n) * l.every)
	l.mu.Unlock()

	delay := turn.Sub(now)
	if delay <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done(): // give them back, so that those who gave up delay nobody
		l.mu.Lock()
		l.next = l.next.Add(-time.Duration(n) * l.every)
		l.mu.Unlock()
		return ctx.Err()
	}
}

func (c call) fail(err error) error {
	return &Error{Op: c.op, URL: joinURL(c.inner.URL(), c.name), Err: err}
}

func (l *rateLimit) do(ctx context.Context, c call, f func(context.Context) (any, error)) (any, error) {
	if err := l.wait(ctx, max(1, (len(c.names)+namesPerRequest-1)/namesPerRequest)); err != nil {
		return nil, c.fail(err)
	}
	v, err := f(ctx)
	if w, ok := v.(Writer); ok {
		return &limitedWriter{Writer: w, l: l, ctx: ctx, c: c}, nil
	}
	return v, err
}

func (l *rateLimit) list(ctx context.Context, c call, _ bool, run func(context.Context, string) iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := l.wait(ctx, 1); err != nil {
			yield(Info{}, c.fail(err))
			return
		}
		n := 0
		for i, err := range run(ctx, "") {
			if !yield(i, err) {
				return
			}
			if n++; n%namesPerRequest == 0 {
				if err := l.wait(ctx, 1); err != nil {
					yield(Info{}, c.fail(err))
					return
				}
			}
		}
	}
}

type limitedWriter struct {
	Writer
	l     *rateLimit
	ctx   context.Context
	c     call
	ended bool
}

func (w *limitedWriter) Commit() error {
	if w.ended {
		return w.Writer.Commit()
	}
	w.ended = true
	if err := w.l.wait(w.ctx, 1); err != nil {
		w.Writer.Abort()
		w.c.op = "commit"
		return w.c.fail(err)
	}
	return w.Writer.Commit()
}

func (w *limitedWriter) Abort() error {
	w.ended = true
	return w.Writer.Abort()
}
