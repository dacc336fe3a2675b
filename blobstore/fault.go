package blobstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"
)

// ErrInjected is what calls fail with that Faults made fail, unless told otherwise.
var ErrInjected = errors.New("injected fault")

// Fault says which calls go wrong, and how. Without any of Err to Flip it fails
// with ErrInjected.
type Fault struct {
	// Op is the kind of call, as in Error.Op: open, read, stat, list (each entry
	// of a listing, too), create, write, commit, abort, delete, copy. "" is any.
	Op string
	// Name restricts it to calls on some names; for DeleteAll, to calls with one.
	Name func(string) bool
	// Nth is the call that goes wrong, of those that match: 1 is the first; 0 is all.
	Nth int

	Err   error         // what the call fails with, wrapped in an *Error
	After bool          // let the call happen, and fail then: an answer that was lost
	Delay time.Duration // before the call, or until its context ends; it then goes on
	Hang  bool          // until the context ends; without end if Deaf
	Deaf  bool          // Hang does not heed the context
	// Short ends a read after this many bytes more, as if the object ended there;
	// with Err, as a broken connection does. It holds for open and is 0 for no limit.
	Short int64
	// Flip inverts the lowest bit of the byte at this offset of the object, counted
	// from 1; it holds for open.
	Flip int64
}

// Faults makes calls of stores go wrong, for tests. Its methods may be called
// from many goroutines.
//
//	for n := 1; ; n++ {
//		faults := blobstore.FailAt(n)
//		err := compact(ctx, faults.Wrap(seeded(t)))
//		…
//		if !faults.Fired() {
//			break
//		}
//	}
type Faults struct {
	mu    sync.Mutex
	rules []Fault
	seen  []int // calls that matched each rule
	calls int
	fired int
}

// NewFaults makes a set of faults. Of several that match one call the first counts,
// but all count it.
func NewFaults(rules ...Fault) *Faults {
	return &Faults{rules: rules, seen: make([]int, len(rules))}
}

// FailAt makes the n-th call fail, of whatever kind; the first is 1.
func FailAt(n int) *Faults { return NewFaults(Fault{Nth: n}) }

// Wrap gives a store that works on s, with faults. One Faults may go around
// several stores and counts their calls together.
func (f *Faults) Wrap(s Store) Store { return decorate(s, f) }

// Fired says whether any call went wrong.
func (f *Faults) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired > 0
}

// Calls is the number of calls so far that could have gone wrong.
func (f *Faults) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// match counts a call and gives its fault, nil if it has none.
func (f *Faults) match(op, name string, names []string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	var hit *Fault
	for i := range f.rules {
		r := &f.rules[i]
		if r.Op != "" && r.Op != op {
			continue
		}
		if r.Name != nil {
			any := names == nil && r.Name(name)
			for _, n := range names {
				any = any || r.Name(n)
			}
			if !any {
				continue
			}
		}
		f.seen[i]++
		if hit == nil && (r.Nth == 0 || r.Nth == f.seen[i]) {
			hit = r
		}
	}
	if hit != nil {
		f.fired++
	}
	return hit
}

// before does what a fault does ahead of the call.
func (r *Fault) before(ctx context.Context) error {
	if r == nil {
		return nil
	}
	if r.Delay > 0 {
		t := time.NewTimer(r.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.Hang {
		if r.Deaf {
			select {}
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if r.Short == 0 && r.Flip == 0 && !r.After {
		return r.failure()
	}
	return nil
}

// failure is the error of the fault, nil if it only delays.
func (r *Fault) failure() error {
	if r.Err == nil && r.Delay > 0 {
		return nil
	}
	if r.Err == nil {
		return ErrInjected
	}
	return r.Err
}

func (f *Faults) do(ctx context.Context, c call, g func(context.Context) (any, error)) (any, error) {
	r := f.match(c.op, c.name, c.names)
	if err := r.before(ctx); err != nil {
		return nil, c.fail(err)
	}
	v, err := g(ctx)
	if err != nil {
		return nil, err
	}
	if r != nil && r.After {
		switch v := v.(type) {
		case Reader:
			v.Close()
		case Writer:
			v.Abort()
		}
		return nil, c.fail(r.failure())
	}
	switch v := v.(type) {
	case Reader:
		fr := &faultReader{Reader: v, f: f, c: c, ctx: ctx, at: c.offset, end: -1}
		if r != nil && r.Short > 0 {
			fr.end, fr.err = c.offset+r.Short, r.Err
		}
		if r != nil {
			fr.flip = r.Flip
		}
		return fr, nil
	case Writer:
		return &faultWriter{Writer: v, f: f, c: c, ctx: ctx}, nil
	}
	return v, nil
}

func (f *Faults) list(ctx context.Context, c call, _ bool, run func(context.Context, string) iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		one := func() bool {
			r := f.match(c.op, c.name, nil)
			err := r.before(ctx)
			if err == nil && r != nil && r.After {
				err = r.failure()
			}
			if err != nil {
				yield(Info{}, c.fail(err))
			}
			return err == nil
		}
		if !one() {
			return
		}
		for i, err := range run(ctx, "") {
			if !yield(i, err) || err != nil || !one() {
				return
			}
		}
	}
}

type faultReader struct {
	Reader
	f    *Faults
	c    call
	ctx  context.Context
	at   int64 // offset in the object of the next byte
	end  int64 // where a short read ends; negative: nowhere
	err  error // what it ends with, nil for io.EOF
	flip int64 // offset + 1
}

func (r *faultReader) fail(err error) error {
	c := r.c
	c.op = "read"
	return c.fail(err)
}

func (r *faultReader) Read(p []byte) (int, error) {
	rule := r.f.match("read", r.c.name, nil)
	if err := rule.before(r.ctx); err != nil {
		return 0, r.fail(err)
	}
	if r.end >= 0 {
		if r.at >= r.end && r.err != nil {
			return 0, r.fail(r.err)
		} else if r.at >= r.end {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), r.end-r.at)]
	}
	n, err := r.Reader.Read(p)
	if i := r.flip - 1 - r.at; r.flip > 0 && i >= 0 && i < int64(n) {
		p[i] ^= 1
	}
	r.at += int64(n)
	if err == nil && rule != nil && rule.After {
		err = r.fail(rule.failure())
	}
	return n, err
}

type faultWriter struct {
	Writer
	f   *Faults
	c   call
	ctx context.Context

	ended bool // what follows does nothing, and is no call
}

func (w *faultWriter) run(op string, g func() error) error {
	c := w.c
	c.op = op
	rule := w.f.match(op, c.name, nil)
	if err := rule.before(w.ctx); err != nil {
		return c.fail(err)
	}
	err := g()
	if err == nil && rule != nil && rule.After {
		err = c.fail(rule.failure())
	}
	return err
}

func (w *faultWriter) Write(p []byte) (n int, err error) {
	err = w.run("write", func() error { n, err = w.Writer.Write(p); return err })
	return n, err
}

// Commit that fails before it happened drops what was written, like any other.
func (w *faultWriter) Commit() error {
	if w.ended {
		return w.Writer.Commit()
	}
	happened := false
	err := w.run("commit", func() error { happened = true; return w.Writer.Commit() })
	if !happened {
		w.Writer.Abort()
	}
	w.ended = true
	return err
}

// Abort that fails leaves what a crash would leave.
func (w *faultWriter) Abort() error {
	if w.ended {
		return w.Writer.Abort()
	}
	w.ended = true
	return w.run("abort", w.Writer.Abort)
}
