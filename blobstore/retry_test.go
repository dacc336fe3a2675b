package blobstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errFlaky = fmt.Errorf("connection reset: %w", ErrTemporary)

func seeded(t testing.TB, objects map[string]string) Store {
	t.Helper()
	s := NewMem()
	for n, data := range objects {
		require.NoError(t, WriteAll(context.Background(), s, n, []byte(data), nil))
	}
	return s
}

func TestRetryCalls(t *testing.T) {
	once := &WriteOptions{IfAbsent: true}
	for _, c := range []struct {
		name    string
		op      string
		run     func(ctx context.Context, s Store) error
		retried bool
	}{
		{"open", "open", func(ctx context.Context, s Store) error { _, err := s.Open(ctx, "x"); return err }, true},
		{"open range", "open", func(ctx context.Context, s Store) error { _, err := s.OpenRange(ctx, "x", 1, 1); return err }, true},
		{"stat", "stat", func(ctx context.Context, s Store) error { _, err := s.Stat(ctx, "x"); return err }, true},
		{"delete", "delete", func(ctx context.Context, s Store) error { return s.Delete(ctx, "x") }, true},
		{"delete all", "delete", func(ctx context.Context, s Store) error { return s.DeleteAll(ctx, []string{"x", "y"}) }, true},
		{"copy", "copy", func(ctx context.Context, s Store) error { return s.Copy(ctx, "y", "x", nil) }, true},
		{"copy if absent", "copy", func(ctx context.Context, s Store) error { return s.Copy(ctx, "y", "x", once) }, false},
		{"create", "create", func(ctx context.Context, s Store) error { _, err := s.Create(ctx, "y", nil); return err }, true},
		{"write", "write", func(ctx context.Context, s Store) error { return WriteAll(ctx, s, "y", []byte("y"), nil) }, false},
		{"commit", "commit", func(ctx context.Context, s Store) error { return WriteAll(ctx, s, "y", []byte("y"), nil) }, false},
		{"list", "list", func(ctx context.Context, s Store) error {
			for _, err := range s.List(ctx, nil) {
				return err
			}
			return nil
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Two failures, then success.
				f := NewFaults(Fault{Op: c.op, Nth: 1, Err: errFlaky}, Fault{Op: c.op, Nth: 2, Err: errFlaky})
				var events []RetryEvent
				s := Retry(f.Wrap(seeded(t, map[string]string{"x": "content"})), &RetryOptions{OnRetry: func(e RetryEvent) { events = append(events, e) }})
				start := time.Now()
				err := c.run(t.Context(), s)
				require.True(t, f.Fired())
				if !c.retried {
					require.ErrorIs(t, err, ErrTemporary)
					require.NotContains(t, err.Error(), "tries")
					require.Empty(t, events)
					return
				}
				require.NoError(t, err)
				require.Len(t, events, 2)
				require.Equal(t, []int{1, 2}, []int{events[0].Try, events[1].Try})
				require.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
				require.LessOrEqual(t, time.Since(start), 300*time.Millisecond)

				// Failure without end: the budget ends it.
				f = NewFaults(Fault{Op: c.op, Err: errFlaky})
				s = Retry(f.Wrap(seeded(t, map[string]string{"x": "content"})), &RetryOptions{Attempts: 4})
				err = c.run(t.Context(), s)
				require.ErrorIs(t, err, ErrTemporary)
				require.Contains(t, err.Error(), "(4 tries in ")
				require.Equal(t, 4, f.Calls())
				require.NotContains(t, err.Error(), "\n")

				// What no other try can cure is not tried again.
				f = NewFaults(Fault{Op: c.op, Err: ErrPermission})
				err = c.run(t.Context(), Retry(f.Wrap(seeded(t, nil)), nil))
				require.ErrorIs(t, err, ErrPermission)
				require.Equal(t, 1, f.Calls())
			})
		})
	}
}

func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaults(Fault{Err: errFlaky})
		s := Retry(f.Wrap(NewMem()), &RetryOptions{Attempts: 1000, MaxElapsed: 30 * time.Second, MaxDelay: 4 * time.Second})
		start := time.Now()
		_, err := s.Stat(t.Context(), "x")
		require.ErrorIs(t, err, ErrTemporary)
		require.LessOrEqual(t, time.Since(start), 30*time.Second)
		require.Greater(t, f.Calls(), 8)
		require.Less(t, f.Calls(), 25)

		// The caller's context ends the waiting, and the error tells what was waited for.
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err = s.Stat(ctx, "x")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, err.Error(), "connection reset")
		require.Equal(t, 250*time.Millisecond, time.Since(start))

		// A store may ask for patience.
		f = NewFaults(Fault{Nth: 1, Err: askedToWait{}})
		start = time.Now()
		_, err = Retry(f.Wrap(seeded(t, map[string]string{"x": ""})), nil).Stat(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

type askedToWait struct{}

func (askedToWait) Error() string             { return "slow down" }
func (askedToWait) Unwrap() error             { return ErrTemporary }
func (askedToWait) RetryAfter() time.Duration { return 7 * time.Second }

func TestRetryHanging(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				h := &hangingStore{Store: seeded(t, map[string]string{"x": "content"}), deaf: deaf, release: release}
				h.hangs.Store(2)
				s := Retry(h, &RetryOptions{CallTimeout: 5 * time.Second})
				start := time.Now()
				r, err := s.Open(t.Context(), "x")
				require.NoError(t, err, "the third try answers")
				require.Less(t, time.Since(start), 13*time.Second)
				b, err := io.ReadAll(r)
				require.NoError(t, err)
				require.Equal(t, "content", string(b))
				require.NoError(t, r.Close())

				h.hangs.Store(1000)
				start = time.Now()
				_, err = s.Stat(t.Context(), "x")
				require.ErrorIs(t, err, ErrTemporary)
				require.Contains(t, err.Error(), "no answer for 5s (")
				require.NotErrorIs(t, err, context.Canceled)
				require.Less(t, time.Since(start), 2*time.Minute)

				// The caller's own end is not waited out either.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start = time.Now()
				_, err = s.Stat(ctx, "x")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(start), 2*time.Second)

				close(release)
				synctest.Wait()
				require.Equal(t, h.opened.Load(), h.closed.Load(), "readers that came too late are closed")
			})
		})
	}
}

// hangingStore hangs in Open and Stat, some first times.
type hangingStore struct {
	Store
	deaf           bool
	release        chan struct{}
	hangs          atomic.Int64
	opened, closed atomic.Int64
}

func (h *hangingStore) wait(ctx context.Context) error {
	if h.hangs.Add(-1) < 0 {
		return nil
	}
	if h.deaf {
		<-h.release
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hangingStore) Open(ctx context.Context, name string) (Reader, error) {
	if err := h.wait(ctx); err != nil {
		return nil, &Error{"open", name, err}
	}
	r, err := h.Store.Open(context.Background(), name)
	h.opened.Add(1)
	return &closeCounter{r, h}, err
}

func (h *hangingStore) Stat(ctx context.Context, name string) (Info, error) {
	if err := h.wait(ctx); err != nil {
		return Info{}, &Error{"stat", name, err}
	}
	return h.Store.Stat(ctx, name)
}

type closeCounter struct {
	Reader
	h *hangingStore
}

func (c *closeCounter) Close() error { c.h.closed.Add(1); return c.Reader.Close() }

func TestRetryResumesReads(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 50_000)
	for _, c := range []struct {
		name  string
		fault Fault
	}{
		{"broken", Fault{Op: "open", Nth: 1, Short: 123_456, Err: errFlaky}},
		{"ended early without an error", Fault{Op: "open", Nth: 1, Short: 123_456}},
		{"broken at once", Fault{Op: "read", Nth: 1, Err: errFlaky}},
		{"broken, and the reopening too", Fault{Op: "open", Err: errFlaky, Short: 200_000}},
	} {
		for _, rng := range [][2]int64{{0, -1}, {1000, -1}, {7, 400_000}, {0, 1 << 40}} {
			t.Run(fmt.Sprint(c.name, rng), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := NewFaults(c.fault)
					s := Retry(f.Wrap(seeded(t, map[string]string{"x": string(data)})), nil)
					r, err := s.OpenRange(t.Context(), "x", rng[0], rng[1])
					require.NoError(t, err)
					got, err := io.ReadAll(r)
					require.NoError(t, err)
					want := data[rng[0]:]
					if rng[1] >= 0 {
						want = want[:min(int64(len(want)), rng[1])]
					}
					require.True(t, bytes.Equal(want, got))
					require.True(t, f.Fired())
					require.NoError(t, r.Close())
				})
			})
		}
	}
}

func TestRetryReadGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := seeded(t, map[string]string{"x": strings.Repeat("x", 100_000)})
		f := NewFaults(Fault{Op: "read", Err: errFlaky})
		var log bytes.Buffer
		s := Retry(f.Wrap(inner), &RetryOptions{Attempts: 3, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		_, err := ReadAll(t.Context(), s, "x", 1<<20)
		require.ErrorIs(t, err, ErrTemporary)
		require.Contains(t, err.Error(), "(3 tries in ")
		require.Equal(t, 2, strings.Count(log.String(), "trying again"), log.String())

		// An object that is replaced in between is not glued together.
		f = NewFaults(Fault{Op: "open", Nth: 1, Short: 50_000, Err: errFlaky})
		s = Retry(f.Wrap(inner), nil)
		r, err := s.Open(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, WriteAll(t.Context(), inner, "x", []byte(strings.Repeat("y", 100_000)), nil))
		_, err = io.ReadAll(r)
		require.ErrorContains(t, err, "replaced while it was read")

		// Progress renews the budget: a long read survives any number of resets.
		require.NoError(t, WriteAll(t.Context(), inner, "long", make([]byte, 40<<20), nil))
		f = NewFaults(Fault{Op: "open", Short: 1<<20 + 1, Err: errFlaky})
		n := 0
		s = Retry(f.Wrap(inner), &RetryOptions{Attempts: 2, OnRetry: func(RetryEvent) { n++ }})
		b, err := ReadAll(t.Context(), s, "long", 1<<30)
		require.NoError(t, err)
		require.Len(t, b, 40<<20)
		require.Equal(t, 39, n)
	})
}

// A read or a listing in which nothing comes any more is cut and taken up again.
func TestRetryStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaults(Fault{Op: "read", Nth: 2, Hang: true}, Fault{Op: "list", Nth: 3, Hang: true}, Fault{Op: "write", Nth: 2, Hang: true})
		inner := seeded(t, map[string]string{"a": strings.Repeat("a", 10_000), "b": "b", "c": "c"})
		s := Retry(f.Wrap(inner), &RetryOptions{CallTimeout: 10 * time.Second})
		r, err := s.Open(t.Context(), "a")
		require.NoError(t, err)
		time.Sleep(time.Hour) // the reader's own pauses are no stalls
		start := time.Now()
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Len(t, got, 10_000)
		require.GreaterOrEqual(t, time.Since(start), 10*time.Second)
		require.Less(t, time.Since(start), 11*time.Second)
		r.Close()

		var names []string
		for i, err := range s.List(t.Context(), nil) {
			require.NoError(t, err)
			names = append(names, i.Name)
			time.Sleep(time.Hour)
		}
		require.Equal(t, []string{"a", "b", "c"}, names)

		w, err := s.Create(t.Context(), "w", nil)
		require.NoError(t, err)
		_, err = w.Write([]byte("1"))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		_, err = w.Write([]byte("2"))
		require.ErrorIs(t, err, ErrTemporary, "writes are cut, not repeated")
		require.ErrorContains(t, err, "no answer for 10s")
		require.Error(t, w.Commit())
		_, err = inner.Stat(t.Context(), "w")
		require.ErrorIs(t, err, ErrNotExist)
	})
}

func TestRetryListResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := NewMem()
		var want []string
		for i := range 3000 {
			n := fmt.Sprintf("d/%05d", i)
			want = append(want, n)
			require.NoError(t, WriteAll(t.Context(), inner, n, nil, nil))
		}
		var rules []Fault
		for n := 100; n < 3200; n += 130 {
			rules = append(rules, Fault{Op: "list", Nth: n, Err: errFlaky})
		}
		var got []string
		for i, err := range Retry(NewFaults(rules...).Wrap(inner), &RetryOptions{Attempts: 100, MaxElapsed: time.Hour}).List(t.Context(), &ListOptions{Prefix: "d/"}) {
			require.NoError(t, err)
			got = append(got, i.Name)
		}
		require.Equal(t, want, got)
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := seeded(t, map[string]string{"x": "x"})
		s := RateLimit(inner, 10, 5)
		start := time.Now()
		errs := make(chan error)
		for range 105 {
			go func() { _, err := s.Stat(t.Context(), "x"); errs <- err }()
		}
		for range 105 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, 10*time.Second, time.Since(start), "five at once, then ten a second")

		time.Sleep(time.Hour) // a long pause saves up the burst, not more
		start = time.Now()
		for range 15 {
			_, err := s.Stat(t.Context(), "x")
			require.NoError(t, err)
		}
		require.Equal(t, time.Second, time.Since(start))

		// Those who give up delay nobody.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		for range 1000 {
			go func() { _, err := s.Stat(ctx, "x"); errs <- err }()
		}
		start = time.Now()
		for range 1000 {
			if err := <-errs; err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		_, err := s.Stat(t.Context(), "x")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 250*time.Millisecond)

		time.Sleep(time.Hour)
		start = time.Now()
		sub := Sub(RateLimit(inner, 1, 1), "d") // shares the budget of its parent
		for range 3 {
			require.NoError(t, WriteAll(t.Context(), sub, "y", nil, nil))
		}
		require.NoError(t, sub.DeleteAll(t.Context(), make0to(2500)))
		require.Equal(t, 6*time.Second, time.Since(start), "Create and Commit are a call each")
		require.NoError(t, sub.Delete(t.Context(), "y"))
		require.Equal(t, 9*time.Second, time.Since(start), "2500 names are three requests")
		require.Equal(t, inner, RateLimit(inner, 0, 0), "no limit")
	})
}

func make0to(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(i))
	}
	return names
}

func TestCount(t *testing.T) {
	var c Counter
	var seen []string
	c.Observe = func(op string, _ time.Duration, err error) { seen = append(seen, fmt.Sprint(op, " ", err == nil)) }
	ctx := t.Context()
	s := Count(NewMem(), &c)
	sub := Sub(s, "d")
	require.NoError(t, WriteAll(ctx, sub, "x", []byte("12345"), nil))
	require.NoError(t, WriteAll(ctx, s, "y", []byte("1"), nil))
	b, err := ReadAll(ctx, s, "d/x", 100)
	require.NoError(t, err)
	require.Equal(t, "12345", string(b))
	r, err := s.OpenRange(ctx, "d/x", 2, 2)
	require.NoError(t, err)
	_, err = io.ReadAll(r)
	require.NoError(t, err)
	_, err = s.Stat(ctx, "absent")
	require.ErrorIs(t, err, ErrNotExist)
	for _, err := range s.List(ctx, nil) {
		require.NoError(t, err)
	}
	require.NoError(t, s.Copy(ctx, "z", "y", nil))
	before := c.Counts()
	require.NoError(t, s.DeleteAll(ctx, []string{"y", "z"}))
	require.NoError(t, s.Delete(ctx, "q"))
	_, err = s.Stat(ctx, "a//b")
	require.Error(t, err)
	w, err := s.Create(ctx, "q", nil)
	require.NoError(t, err)
	require.NoError(t, w.Abort())
	require.NoError(t, w.Abort())
	require.Equal(t, Counts{Opens: 1, RangedReads: 1, Stats: 2, Lists: 1, Listed: 2, Creates: 3, Commits: 2, Aborts: 1,
		Deletes: 2, Deleted: 3, Copies: 1, BytesRead: 7, BytesWritten: 6, Failures: 1}, c.Counts())
	require.Equal(t, "stats 1, creates 1, aborts 1, deletes 2, deleted 3, failures 1", c.Counts().Sub(before).String())
	require.EqualValues(t, 14, c.Counts().Calls())
	require.Equal(t, []string{"create true", "commit true", "create true", "commit true", "open true", "open true", "stat false", "list true",
		"copy true", "delete true", "delete true", "stat false", "create true", "abort true"}, seen)
}

// The loop of tests that must leave the old state or the new one.
func TestFailAt(t *testing.T) {
	replace := func(ctx context.Context, s Store) error {
		old, err := ReadAll(ctx, s, "state", 100)
		if err != nil {
			return err
		}
		if err := WriteAll(ctx, s, "new", append(old, '!'), nil); err != nil {
			return err
		}
		for _, err := range s.List(ctx, nil) {
			if err != nil {
				return err
			}
		}
		return s.DeleteAll(ctx, []string{"state"})
	}
	failed := map[string]bool{}
	for n := 1; ; n++ {
		inner := seeded(t, map[string]string{"state": "old"})
		faults := FailAt(n)
		err := replace(t.Context(), faults.Wrap(inner))
		if !faults.Fired() {
			require.NoError(t, err)
			require.Greater(t, n, 8)
			break
		}
		require.ErrorIs(t, err, ErrInjected)
		var e *Error
		require.ErrorAs(t, err, &e)
		failed[e.Op] = true
		old, err := ReadAll(t.Context(), inner, "state", 100)
		require.NoError(t, err, "the old state stays until all is done")
		require.Equal(t, "old", string(old))
	}
	require.Equal(t, map[string]bool{"open": true, "read": true, "create": true, "write": true, "commit": true, "list": true, "delete": true}, failed)
}

func TestFaultKinds(t *testing.T) {
	ctx := t.Context()
	inner := seeded(t, map[string]string{"x": "0123456789", "y": "y"})
	onX := func(n string) bool { return n == "x" }

	got, err := readAllOf(ctx, NewFaults(Fault{Op: "open", Name: onX, Flip: 4}).Wrap(inner), "x")
	require.NoError(t, err)
	require.Equal(t, "0122456789", got)
	got, err = readAllOf(ctx, NewFaults(Fault{Op: "open", Name: onX, Short: 4}).Wrap(inner), "x")
	require.NoError(t, err)
	require.Equal(t, "0123", got)
	_, err = ReadAll(ctx, NewFaults(Fault{Op: "open", Name: onX, Short: 4}).Wrap(inner), "x", 100)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "ReadAll notices")
	_, err = readAllOf(ctx, NewFaults(Fault{Op: "open", Name: onX, Short: 4, Err: errFlaky}).Wrap(inner), "x")
	require.ErrorIs(t, err, ErrTemporary)

	s := NewFaults(Fault{Op: "stat", Name: onX, Err: ErrPermission}).Wrap(inner)
	_, err = s.Stat(ctx, "x")
	require.ErrorIs(t, err, ErrPermission)
	_, err = s.Stat(ctx, "y")
	require.NoError(t, err)

	// The answer is lost, but it happened.
	f := NewFaults(Fault{Op: "commit", After: true}, Fault{Op: "delete", After: true, Name: func(n string) bool { return n == "y" }})
	require.ErrorIs(t, WriteAll(ctx, f.Wrap(inner), "z", []byte("z"), nil), ErrInjected)
	_, err = inner.Stat(ctx, "z")
	require.NoError(t, err)
	require.ErrorIs(t, f.Wrap(inner).DeleteAll(ctx, []string{"q", "y"}), ErrInjected)
	_, err = inner.Stat(ctx, "y")
	require.ErrorIs(t, err, ErrNotExist)

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = NewFaults(Fault{Hang: true}).Wrap(inner).Stat(short, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = NewFaults(Fault{Delay: time.Millisecond}).Wrap(inner).Stat(ctx, "x")
	require.NoError(t, err)
}

func readAllOf(ctx context.Context, s Store, name string) (string, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestErrorIsOneLine(t *testing.T) {
	err := &Error{"open", "s3://b/a\nb\x1b[31m\xffü", errors.New("first\nsecond")}
	require.Equal(t, `open s3://b/a\nb\x1b[31m\xffü: first\nsecond`, err.Error())
}
