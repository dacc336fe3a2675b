package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"time"
)

// Counts is what was asked of a store, and what came of it. Calls count when they
// are made, whatever their outcome.
type Counts struct {
	Opens       int64 // whole objects
	RangedReads int64 // parts of objects, by OpenRange
	Stats       int64
	Lists       int64
	Listed      int64 // entries that listings gave
	Creates     int64
	Commits     int64
	Aborts      int64
	Deletes     int64 // calls, of Delete and DeleteAll
	Deleted     int64 // names in them
	Copies      int64

	BytesRead    int64 // as they were read, also when the object was not read to its end
	BytesWritten int64 // given to writers, committed or not

	// Failures are calls and reads that failed, apart from objects that were not
	// there and names that existed, which callers ask for.
	Failures int64
}

// Calls is the number of calls of all kinds, which is about that of the requests
// that a server sees.
func (c Counts) Calls() int64 {
	return c.Opens + c.RangedReads + c.Stats + c.Lists + c.Creates + c.Commits + c.Aborts + c.Deletes + c.Copies
}

// Sub gives what was counted after o.
func (c Counts) Sub(o Counts) Counts {
	return Counts{c.Opens - o.Opens, c.RangedReads - o.RangedReads, c.Stats - o.Stats, c.Lists - o.Lists, c.Listed - o.Listed,
		c.Creates - o.Creates, c.Commits - o.Commits, c.Aborts - o.Aborts, c.Deletes - o.Deletes, c.Deleted - o.Deleted,
		c.Copies - o.Copies, c.BytesRead - o.BytesRead, c.BytesWritten - o.BytesWritten, c.Failures - o.Failures}
}

// String leaves out what is zero: "opens 1, ranged reads 12, bytes read 4096".
func (c Counts) String() string {
	var parts []string
	for _, p := range []struct {
		what string
		n    int64
	}{
		{"opens", c.Opens}, {"ranged reads", c.RangedReads}, {"stats", c.Stats}, {"lists", c.Lists}, {"listed", c.Listed},
		{"creates", c.Creates}, {"commits", c.Commits}, {"aborts", c.Aborts}, {"deletes", c.Deletes}, {"deleted", c.Deleted},
		{"copies", c.Copies}, {"bytes read", c.BytesRead}, {"bytes written", c.BytesWritten}, {"failures", c.Failures},
	} {
		if p.n != 0 {
			parts = append(parts, fmt.Sprint(p.what, " ", p.n))
		}
	}
	return strings.Join(parts, ", ")
}

// Counter counts what passes through the stores that Count puts it around; one
// may serve many. The zero value is ready. For concurrent use.
type Counter struct {
	// Observe, if not nil, is called after each call with its kind (as in Error.Op),
	// for metrics: how long it took until it returned, and how it ended. A listing is
	// observed at its end. It is set before use, and called from many goroutines.
	Observe func(op string, took time.Duration, err error)

	opens, ranged, stats, lists, listed, creates, commits, aborts atomic.Int64
	deletes, deleted, copies, read, written, failures             atomic.Int64
}

// Count gives a store that works on s and counts in c.
func Count(s Store, c *Counter) Store { return decorate(s, c) }

// Counts are the numbers so far.
func (c *Counter) Counts() Counts {
	return Counts{c.opens.Load(), c.ranged.Load(), c.stats.Load(), c.lists.Load(), c.listed.Load(),
		c.creates.Load(), c.commits.Load(), c.aborts.Load(), c.deletes.Load(), c.deleted.Load(),
		c.copies.Load(), c.read.Load(), c.written.Load(), c.failures.Load()}
}

func (c *Counter) ended(op string, start time.Time, err error) {
	if err != nil && !errors.Is(err, ErrNotExist) && !errors.Is(err, ErrExist) {
		c.failures.Add(1)
	}
	if c.Observe != nil {
		c.Observe(op, time.Since(start), err)
	}
}

func (c *Counter) do(ctx context.Context, k call, f func(context.Context) (any, error)) (any, error) {
	switch k.op {
	case "open":
		if k.offset == 0 && k.length < 0 {
			c.opens.Add(1)
		} else {
			c.ranged.Add(1)
		}
	case "stat":
		c.stats.Add(1)
	case "create":
		c.creates.Add(1)
	case "delete":
		c.deletes.Add(1)
		c.deleted.Add(int64(max(1, len(k.names))))
	case "copy":
		c.copies.Add(1)
	}
	start := time.Now()
	v, err := f(ctx)
	c.ended(k.op, start, err)
	switch v := v.(type) {
	case Reader:
		return &countingReader{v, c}, nil
	case Writer:
		return &countingWriter{Writer: v, c: c}, nil
	}
	return v, err
}

func (c *Counter) list(ctx context.Context, k call, _ bool, run func(context.Context, string) iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		c.lists.Add(1)
		start := time.Now()
		var err error
		defer func() { c.ended(k.op, start, err) }()
		var i Info
		for i, err = range run(ctx, "") {
			if err == nil {
				c.listed.Add(1)
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

type countingReader struct {
	Reader
	c *Counter
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.c.read.Add(int64(n))
	if err != nil && err != io.EOF {
		r.c.failures.Add(1)
	}
	return n, err
}

type countingWriter struct {
	Writer
	c     *Counter
	ended bool
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.c.written.Add(int64(n))
	if err != nil {
		w.c.failures.Add(1)
	}
	return n, err
}

func (w *countingWriter) Commit() error {
	w.ended = true
	w.c.commits.Add(1)
	start := time.Now()
	err := w.Writer.Commit()
	w.c.ended("commit", start, err)
	return err
}

// Abort is counted when it does something.
func (w *countingWriter) Abort() error {
	if w.ended {
		return w.Writer.Abort()
	}
	w.ended = true
	w.c.aborts.Add(1)
	start := time.Now()
	err := w.Writer.Abort()
	w.c.ended("abort", start, err)
	return err
}
