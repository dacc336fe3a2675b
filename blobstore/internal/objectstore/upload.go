package objectstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// Upload is how one driver stores one object. Its errors are *blobstore.Error.
// A method that is called again after blobstore.ErrTemporary must do no harm.
type Upload interface {
	// Put stores the whole object at once.
	Put(ctx context.Context, body []byte) error
	// Begin starts an upload in parts; the parts follow.
	Begin(ctx context.Context) error
	// Part stores part number index, counted from 0. Parts may come out of order
	// and at the same time, up to Parts.Concurrency. The last one is never empty.
	Part(ctx context.Context, index int, body []byte, last bool) error
	// Complete makes the parts one visible object.
	Complete(ctx context.Context) error
	// Abort drops what Begin and Part stored. It may be called twice.
	Abort(ctx context.Context) error
	// Ours says whether what is now visible under the name was stored by this
	// upload. It is asked when Put, Complete or the last Part are refused after an
	// earlier try whose answer got lost.
	Ours(ctx context.Context) (bool, error)
}

// Parts says how an object is cut.
type Parts struct {
	Size        int64 // bytes of the first parts; 0: 8 MiB
	Concurrency int   // parts on their way at a time, each with a buffer; 0: 4
	Max         int   // the store's limit of parts
}

const (
	defaultPartSize    = 8 << 20
	defaultConcurrency = 4
	uploadTries        = 5
	abortTime          = 30 * time.Second
	graceTime          = 500 * time.Millisecond
)

// size gives the size of part index: it doubles each tenth of the limit, so that
// an object of unknown length neither needs large buffers early nor runs out of
// parts. With 8 MiB and 10,000 parts that suffices for 8 TiB.
func (p Parts) size(index int) int64 {
	if p.Max <= 0 {
		return p.Size
	}
	return p.Size << min(index/max(p.Max/10, 1), 9)
}

// withHint makes the parts large enough for an object of hint bytes to be cut
// into equal ones, which some stores ask for.
func (p Parts) withHint(hint int64) Parts {
	if p.Size <= 0 {
		p.Size = defaultPartSize
	}
	if p.Concurrency <= 0 {
		p.Concurrency = defaultConcurrency
	}
	for p.Max > 0 && hint > p.Size*int64(max(p.Max/10, 1)) {
		p.Size *= 2
	}
	return p
}

// writer is a blobstore.Writer over an Upload. Up to one part is kept in memory
// and stored at once by Commit; what is longer goes in parts.
type writer struct {
	caller context.Context // its end aborts
	ctx    context.Context // ends with caller's, or by Abort: no more tries
	cancel context.CancelFunc
	sent   context.Context // of the parts on their way, which Abort waits for
	cut    context.CancelFunc
	up     Upload
	parts  Parts
	op     func(op string, err error) error

	buf   []byte
	next  int // index of the part in buf
	began bool
	done  bool

	free  chan []byte   // buffers to use again
	slots chan struct{} // parts on their way
	wg    sync.WaitGroup
	mu    sync.Mutex
	err   error // the first of the parts
}

// NewWriter begins an object. The parts are cut as p says for an object of about
// hint bytes (0: unknown). op names the object in an error of its own.
func NewWriter(ctx context.Context, up Upload, p Parts, hint int64, op func(op string, err error) error) blobstore.Writer {
	p = p.withHint(hint)
	work, cancel := context.WithCancel(ctx)
	sent, cut := context.WithCancel(context.WithoutCancel(ctx))
	w := &writer{
		caller: ctx, ctx: work, cancel: cancel, sent: sent, cut: cut, up: up, parts: p, op: op,
		free:  make(chan []byte, p.Concurrency+1),
		slots: make(chan struct{}, p.Concurrency),
	}
	if hint > 0 {
		w.buf = make([]byte, 0, min(hint, p.Size))
	}
	return w
}

func (w *writer) partErr() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *writer) setErr(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// check gives the error that ends the writer, if there is one.
func (w *writer) check(op string) error {
	err := w.partErr()
	switch {
	case w.caller.Err() != nil:
		err = w.op(op, context.Cause(w.caller))
	case w.done:
		return w.op(op, blobstore.ErrClosed)
	}
	if err != nil {
		w.Abort()
	}
	return err
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.check("write"); err != nil {
		return 0, err
	}
	var n int
	for n < len(p) {
		size := w.parts.size(w.next)
		if int64(len(w.buf)) == size {
			// Full, and more follows: so it is not the last part.
			if err := w.send(false); err != nil {
				w.Abort()
				return n, err
			}
			continue
		}
		k := int(min(size-int64(len(w.buf)), int64(len(p)-n)))
		w.buf = append(w.buf, p[n:n+k]...)
		n += k
	}
	return n, nil
}

// send gives the part in buf on its way.
func (w *writer) send(last bool) error {
	if !w.began {
		// Not cancelled on its way: the store would keep an upload whose name we
		// never learn.
		ctx, cancel := w.detached()
		defer cancel()
		if _, err := retry(w.ctx, func() error { return w.up.Begin(ctx) }); err != nil {
			return err
		}
		w.began = true
	}
	if w.parts.Max > 0 && w.next >= w.parts.Max {
		return w.op("write", fmt.Errorf("larger than %d parts: %w", w.parts.Max, blobstore.ErrUnsupported))
	}
	select {
	case w.slots <- struct{}{}:
	case <-w.ctx.Done():
		return w.op("write", context.Cause(w.ctx))
	}
	if err := w.partErr(); err != nil {
		<-w.slots
		return err
	}
	index, body := w.next, w.buf
	w.next++
	w.buf = nil
	w.wg.Go(func() {
		defer func() { <-w.slots }()
		tries, err := retry(w.ctx, func() error { return w.up.Part(w.sent, index, body, last) })
		if err != nil {
			if !last || !w.ours(tries, err) {
				w.setErr(err)
			}
			return // the transport may still read body
		}
		if int64(cap(body)) >= w.parts.size(index+1) {
			select {
			case w.free <- body[:0]:
			default:
			}
		}
	})
	if !last {
		select {
		case w.buf = <-w.free:
		default:
			w.buf = make([]byte, 0, w.parts.size(w.next))
		}
	}
	return nil
}

// ours says that a refusal came only because an earlier try had succeeded.
func (w *writer) ours(tries int, err error) bool {
	if tries < 2 || !errors.Is(err, blobstore.ErrExist) && !errors.Is(err, blobstore.ErrNotExist) {
		return false
	}
	var is bool
	_, err = retry(w.ctx, func() (err error) { is, err = w.up.Ours(w.ctx); return err })
	return err == nil && is
}

func (w *writer) Commit() error {
	if err := w.check("commit"); err != nil {
		return err
	}
	if err := w.commit(); err != nil {
		w.Abort()
		return err
	}
	w.done = true
	w.buf = nil
	w.cancel()
	w.cut()
	return nil
}

// detached is a context for what has to be done though the caller has gone.
func (w *writer) detached() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(w.caller), abortTime)
}

func (w *writer) commit() error {
	if !w.began {
		tries, err := retry(w.ctx, func() error { return w.up.Put(w.ctx, w.buf) })
		if err != nil && w.ours(tries, err) {
			return nil
		}
		return err
	}
	if err := w.send(true); err != nil { // never empty: Write sends only when more follows
		return err
	}
	arrived := make(chan struct{})
	go func() { w.wg.Wait(); close(arrived) }()
	select {
	case <-arrived:
	case <-w.ctx.Done():
		return w.op("commit", context.Cause(w.caller))
	}
	if err := w.partErr(); err != nil {
		return err
	}
	tries, err := retry(w.ctx, func() error { return w.up.Complete(w.ctx) })
	if err != nil && w.ours(tries, err) {
		return nil
	}
	return err
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.buf = nil
	w.cancel()
	// A part that is cut off may still arrive, after what follows here has dropped
	// the others. So they are left some time to end by themselves.
	timer := time.AfterFunc(graceTime, w.cut)
	w.wg.Wait()
	timer.Stop()
	w.cut()
	if !w.began {
		return nil
	}
	ctx, cancel := w.detached()
	defer cancel()
	_, err := retry(ctx, func() error { return w.up.Abort(ctx) })
	return err
}

// retry calls f until it succeeds or fails for good, at most uploadTries times,
// and says how often it did. A writer cannot be begun anew by a decorator, which
// has not got the bytes, so its requests are tried again here.
func retry(ctx context.Context, f func() error) (tries int, err error) {
	wait := 100 * time.Millisecond
	for {
		tries++
		if err = f(); err == nil || !errors.Is(err, blobstore.ErrTemporary) || tries == uploadTries {
			return tries, err
		}
		pause := wait/2 + rand.N(wait)
		if a := (interface{ RetryAfter() time.Duration })(nil); errors.As(err, &a) {
			pause = max(pause, min(a.RetryAfter(), abortTime))
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return tries, err
		}
		wait *= 3
	}
}
