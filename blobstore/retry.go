package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// RetryOptions is the budget of Retry. Nil or zero is the default.
type RetryOptions struct {
	// Attempts in all for one call, or for one place in a read or listing: 0 is 6,
	// 1 is no retry.
	Attempts int
	// MaxElapsed ends the tries of one call: none begins after it. 0 is 2 minutes.
	MaxElapsed time.Duration
	// CallTimeout cuts a try that does not answer, and a read, a write or a listing
	// in the middle of which nothing comes. 0 is 60 seconds, negative none.
	CallTimeout time.Duration
	// CommitTimeout does the same for Commit, which may have many parts to
	// send. 0 is 15 minutes, negative none.
	CommitTimeout time.Duration
	// The pause before the second try is BaseDelay (0: 100 ms), and doubles up to
	// MaxDelay (0: 10 s); of each, a random part between a half and the whole is
	// waited. A store that tells how long to wait is heeded: an error with a method
	// RetryAfter() time.Duration.
	BaseDelay, MaxDelay time.Duration
	// OnRetry is called before each pause; nil logs to Logger at level Warn.
	OnRetry func(RetryEvent)
	Logger  *slog.Logger // nil: no log
}

// RetryEvent is one failed try that will be followed by another.
type RetryEvent struct {
	Op    string
	URL   string // of the object or prefix, without credentials
	Try   int    // 1 is the first
	Err   error
	Delay time.Duration
}

func (o *RetryOptions) withDefaults() RetryOptions {
	var r RetryOptions
	if o != nil {
		r = *o
	}
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if r.Attempts <= 0 {
		r.Attempts = 6
	}
	set(&r.MaxElapsed, 2*time.Minute)
	set(&r.CallTimeout, time.Minute)
	set(&r.CommitTimeout, 15*time.Minute)
	set(&r.BaseDelay, 100*time.Millisecond)
	set(&r.MaxDelay, 10*time.Second)
	if r.OnRetry == nil && r.Logger != nil {
		log := r.Logger
		r.OnRetry = func(e RetryEvent) {
			log.Warn("trying again", "op", e.Op, "url", e.URL, "try", e.Try, "error", e.Err, "delay", e.Delay)
		}
	}
	return r
}

// Retry gives a store that works on s and tries again what failed with
// ErrTemporary, or did not answer in time, within the budget of o.
//
// Tried again are calls that can be made twice: opening, Stat, List, Create (which
// shows nothing yet), Delete, DeleteAll and a Copy that may overwrite. A read that
// breaks goes on at the offset reached, if the object still has the same ETag and
// size; a listing goes on after the last name. Writes, Commit, Abort and a Copy with
// IfAbsent are not repeated: after an error nobody knows whether they happened. They
// are only cut when they hang.
//
// A try that does not heed the end of its context is left behind after a second; what
// it may open later is closed. Reads, writes and listings cannot be left, since they
// work in the caller's memory; drivers must heed the context there.
//
// The error of the last try is returned; where the budget ended, with the number of
// tries and the time they took.
func Retry(s Store, o *RetryOptions) Store { return decorate(s, &retry{o.withDefaults()}) }

type retry struct{ o RetryOptions }

// errTimeout is the cause of a cancellation of ours, not of the caller.
type errTimeout struct{ after time.Duration }

func (e errTimeout) Error() string        { return fmt.Sprintf("no answer for %s", e.after) }
func (e errTimeout) Is(target error) bool { return target == ErrTemporary }

// tries is the budget of one call, or of one place in a stream.
type tries struct {
	r     *retry
	op    string
	url   string
	n     int // made
	start time.Time
}

func (r *retry) tries(c call, op string) *tries {
	return &tries{r: r, op: op, url: joinURL(c.inner.URL(), c.name), start: time.Now()}
}

// again waits before the next try, if err allows one and the budget has one left.
// Otherwise it gives the error to return.
func (t *tries) again(ctx context.Context, err error) error {
	t.n++
	if ctx.Err() != nil || !errors.Is(err, ErrTemporary) {
		return t.told(err)
	}
	delay := t.r.o.MaxDelay
	if shift := t.n - 1; shift < 30 && t.r.o.BaseDelay<<shift < delay {
		delay = t.r.o.BaseDelay << shift
	}
	delay = delay/2 + rand.N(delay/2+1)
	if a := (interface{ RetryAfter() time.Duration })(nil); errors.As(err, &a) {
		delay = max(delay, a.RetryAfter())
	}
	if t.n >= t.r.o.Attempts || time.Since(t.start)+delay > t.r.o.MaxElapsed {
		return t.told(err)
	}
	if t.r.o.OnRetry != nil {
		t.r.o.OnRetry(RetryEvent{Op: t.op, URL: t.url, Try: t.n, Err: err, Delay: delay})
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		// Both: the caller's end, and what was wrong before it.
		return &Error{Op: t.op, URL: t.url, Err: fmt.Errorf("%w while waiting to try again after: %w", ctx.Err(), err)}
	}
}

// told puts the number of tries into an error, if it was more than one and it was
// not answered by the last.
func (t *tries) told(err error) error {
	if t.n <= 1 || err == nil || !errors.Is(err, ErrTemporary) {
		return err
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, t.told(e))
		}
		return errors.Join(out...)
	}
	told := func(err error) error {
		return fmt.Errorf("%w (%d tries in %s)", err, t.n, time.Since(t.start).Round(time.Millisecond))
	}
	if e, ok := err.(*Error); ok {
		return &Error{Op: e.Op, URL: e.URL, Err: told(e.Err)}
	}
	return &Error{Op: t.op, URL: t.url, Err: told(err)}
}

func (r *retry) do(ctx context.Context, c call, f func(context.Context) (any, error)) (any, error) {
	t := r.tries(c, c.op)
	for {
		v, err := r.once(ctx, c, f)
		if err == nil {
			return v, nil
		}
		if c.op == "copy" && c.write != nil && c.write.IfAbsent {
			return nil, err
		}
		if err = t.again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// lease is a context that a stream lives in: cut when nothing comes for too long.
type lease struct {
	outer  context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  atomic.Int64 // of the step under way, in nanoseconds
	timer  *time.Timer
}

func newLease(ctx context.Context, limit time.Duration) *lease {
	l := &lease{outer: ctx}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(time.Hour, func() { l.cancel(errTimeout{time.Duration(l.limit.Load())}) })
	l.resume(limit)
	return l
}

// pause stops the clock, resume starts it anew for one more step.
func (l *lease) pause() { l.timer.Stop() }

func (l *lease) resume(limit time.Duration) {
	if limit <= 0 {
		l.timer.Stop()
		return
	}
	l.limit.Store(int64(limit))
	l.timer.Reset(limit)
}

func (l *lease) end() {
	l.pause()
	l.cancel(context.Canceled)
}

// cause puts our time-out in the place of the cancellation that it led to.
func (l *lease) cause(c call, op string, err error) error {
	if err == nil || l.outer.Err() != nil {
		return err
	}
	if e, ok := context.Cause(l.ctx).(errTimeout); ok {
		return &Error{Op: op, URL: joinURL(c.inner.URL(), c.name), Err: e}
	}
	return err
}

// abandonAfter is how long a try may go on when its context has ended.
const abandonAfter = time.Second

// once makes one try.
func (r *retry) once(ctx context.Context, c call, f func(context.Context) (any, error)) (any, error) {
	l := newLease(ctx, r.o.CallTimeout)
	type result struct {
		v   any
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(l.ctx)
		done <- result{v, err}
	}()
	var res result
	select {
	case res = <-done:
	case <-l.ctx.Done():
		late := time.NewTimer(abandonAfter)
		defer late.Stop()
		select {
		case res = <-done:
		case <-late.C:
			go func() { // whatever it opens belongs to nobody
				switch res := <-done; v := res.v.(type) {
				case Reader:
					v.Close()
				case Writer:
					v.Abort()
				}
			}()
			return nil, l.cause(c, c.op, c.fail(l.ctx.Err()))
		}
	}
	l.pause()
	if res.err != nil {
		defer l.end()
		return nil, l.cause(c, c.op, res.err)
	}
	switch v := res.v.(type) {
	case Reader:
		return &retryReader{r: r, c: c, ctx: ctx, l: l, cur: v, info: v.Info(), at: c.offset}, nil
	case Writer:
		return &retryWriter{r: r, c: c, l: l, w: v}, nil
	}
	l.end()
	return res.v, nil
}

// renewAfter is the progress, in bytes, after which a read has its whole budget again.
const renewAfter = 1 << 20

type retryReader struct {
	r    *retry
	c    call
	ctx  context.Context
	info Info
	at   int64 // offset in the object of the next byte

	mu     sync.Mutex // for Close against a Read that reopens
	l      *lease
	cur    Reader
	closed bool

	t      *tries // nil: nothing has failed lately
	failed int64  // offset of the last failure
}

func (r *retryReader) Info() Info { return r.info }

// end is the offset at which the reader is to end.
func (r *retryReader) end() int64 {
	if r.c.length >= 0 && r.c.length < r.info.Size-r.c.offset {
		return r.c.offset + r.c.length
	}
	return max(r.info.Size, r.c.offset)
}

func (r *retryReader) Read(p []byte) (int, error) {
	for {
		r.mu.Lock()
		cur, l, closed := r.cur, r.l, r.closed
		r.mu.Unlock()
		if closed {
			return 0, &Error{Op: "read", URL: joinURL(r.c.inner.URL(), r.c.name), Err: ErrClosed}
		}
		l.resume(r.r.o.CallTimeout)
		n, err := cur.Read(p)
		l.pause()
		r.at += int64(n)
		if r.t != nil && r.at-r.failed >= renewAfter {
			r.t = nil
		}
		if err == io.EOF && r.at < r.end() {
			err = &Error{Op: "read", URL: joinURL(r.c.inner.URL(), r.c.name),
				Err: fmt.Errorf("ended after %d of %d bytes: %w: %w", r.at, r.end(), io.ErrUnexpectedEOF, ErrTemporary)}
		}
		err = l.cause(r.c, "read", err)
		if err == nil || err == io.EOF || !errors.Is(err, ErrTemporary) {
			return n, err
		}
		if n > 0 { // the next Read meets the failure again, or reopens
			if rerr := r.recover(err); rerr != nil {
				return n, rerr
			}
			return n, nil
		}
		if err := r.recover(err); err != nil {
			return 0, err
		}
	}
}

// recover opens the object again at the offset reached.
func (r *retryReader) recover(err error) error {
	if r.t == nil {
		r.t, r.failed = r.r.tries(r.c, "read"), r.at
	}
	for {
		if err := r.t.again(r.ctx, err); err != nil {
			return err
		}
		c := r.c
		c.op, c.offset = "open", r.at
		c.length = r.end() - r.at
		var v any
		v, err = r.r.once(r.ctx, c, func(ctx context.Context) (any, error) {
			return c.inner.OpenRange(ctx, c.name, c.offset, c.length)
		})
		if err != nil {
			continue
		}
		next := v.(*retryReader)
		if next.info.Size != r.info.Size || next.info.ETag != r.info.ETag {
			next.Close()
			return &Error{Op: "read", URL: joinURL(r.c.inner.URL(), r.c.name), Err: errors.New("replaced while it was read")}
		}
		r.mu.Lock()
		old, oldLease := r.cur, r.l
		r.cur, r.l = next.cur, next.l
		closed := r.closed
		r.mu.Unlock()
		oldLease.end()
		old.Close()
		if closed {
			next.Close()
		}
		return nil
	}
}

func (r *retryReader) Close() error {
	r.mu.Lock()
	r.closed = true
	cur, l := r.cur, r.l
	r.mu.Unlock()
	l.end()
	return cur.Close()
}

// retryWriter cuts what hangs, and repeats nothing.
type retryWriter struct {
	r     *retry
	c     call
	l     *lease
	w     Writer
	ended bool
}

func (w *retryWriter) step(op string, limit time.Duration, f func() error) error {
	if w.ended {
		return &Error{Op: op, URL: joinURL(w.c.inner.URL(), w.c.name), Err: ErrClosed}
	}
	w.l.resume(limit)
	err := f()
	w.l.pause()
	return w.l.cause(w.c, op, err)
}

func (w *retryWriter) Write(p []byte) (n int, err error) {
	err = w.step("write", w.r.o.CallTimeout, func() error { n, err = w.w.Write(p); return err })
	return n, err
}

func (w *retryWriter) Commit() error {
	err := w.step("commit", w.r.o.CommitTimeout, w.w.Commit)
	w.ended = true
	w.l.end()
	return err
}

// Abort has a time limit of its own in every driver.
func (w *retryWriter) Abort() error {
	w.ended = true
	w.l.pause()
	err := w.w.Abort()
	w.l.end()
	return err
}

func (r *retry) list(ctx context.Context, c call, resumable bool, run func(context.Context, string) iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		last := ""
		t := r.tries(c, c.op)
		var since int64 // entries since the last failure
		for {
			l := newLease(ctx, r.o.CallTimeout)
			var failed error
			for i, err := range run(l.ctx, last) {
				l.pause()
				if err != nil {
					failed = l.cause(c, c.op, err)
					break
				}
				if since++; since == namesPerRequest { // a page is progress
					t = r.tries(c, c.op)
				}
				last = i.Name
				if !yield(i, nil) {
					l.end()
					return
				}
				l.resume(r.o.CallTimeout)
			}
			l.end()
			if failed == nil {
				return
			}
			if !resumable && last != "" {
				t.n++
				yield(Info{}, t.told(failed))
				return
			}
			if since > 0 { // the time before that was the caller's
				t.start = time.Now()
			}
			since = 0
			if err := t.again(ctx, failed); err != nil {
				yield(Info{}, err)
				return
			}
		}
	}
}
