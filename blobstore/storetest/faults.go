package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/faultproxy"
)

// FaultEnv is a store behind a network that can be made to fail.
type FaultEnv struct {
	// Store is reached through the network, empty at the start, and closed by the suite.
	Store blobstore.Store
	// Direct is the same root by a way without faults; the suite closes it.
	Direct blobstore.Store
	Network
	// Denied is a store of the same kind in which everything is forbidden: a wrong
	// key, a user without rights. The suite closes it. Nil leaves the case out.
	Denied blobstore.Store
	// Patience is how long an operation may go on by the driver's own retries when
	// the server is gone; 0 is 30 s.
	Patience time.Duration
}

// Network is a *faultproxy.Proxy, or several that act as one.
type Network interface {
	Set(faultproxy.Rule)
	Cut() int
}

// fault makes a rule hold for all connections from now on.
func (f *FaultEnv) fault(r faultproxy.Rule) {
	f.Set(r)
	if r.Refuse || r.Blackhole {
		f.Cut()
	}
}

func (f *FaultEnv) heal() { f.Set(faultproxy.Rule{}); f.Cut() }

var faultCases = []struct {
	name string
	run  func(*env, *FaultEnv)
}{
	{"ResetMidRead", testResetMidRead},
	{"ClosedMidRead", testClosedMidRead},
	{"StalledRead", testStalledRead},
	{"SlowLink", testSlowLink},
	{"ResetMidWrite", testResetMidWrite},
	{"ResetMidList", testResetMidList},
	{"ServerGone", testServerGone},
	{"Blackhole", testBlackhole},
	{"Denied", testDenied},
}

func runFaults(t *testing.T, o *Options) {
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			f := o.Faults(t)
			if f.Patience == 0 {
				f.Patience = 30 * time.Second
			}
			t.Cleanup(func() {
				f.heal()
				for _, s := range []blobstore.Store{f.Store, f.Direct, f.Denied} {
					if s != nil {
						s.Close()
					}
				}
			})
			c.run(&env{t, f.Store, o}, &f)
		})
	}
}

// direct is the env of the way without faults.
func (f *FaultEnv) direct(e *env) *env { return &env{e.T, f.Direct, e.opts} }

// within gives what g gives, and fails the test if that takes longer than limit; it
// does not wait for a driver that hangs.
func (e *env) within(limit time.Duration, what string, g func() error) error {
	e.Helper()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- g() }()
	select {
	case err := <-done:
		took := time.Since(start)
		e.Logf("%s: %v after %s", what, err, took.Round(time.Millisecond))
		require.Less(e.T, took, limit, what)
		return e.check(err)
	case <-time.After(limit):
		require.FailNow(e.T, "hangs", "%s: no answer within %s", what, limit)
		return nil
	}
}

// promptly bounds what should end at once. Drivers wait longer for servers that do not
// answer, and a busy machine may stand still for seconds.
var promptly = 10 * time.Second

func readAll(ctx context.Context, s blobstore.Store, name string) ([]byte, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

const faultSize = 4 << 20

// brokenRead: a broken connection gives the right bytes or an error that another
// try may cure, never a short object.
func brokenRead(e *env, f *FaultEnv, r faultproxy.Rule) {
	data := pattern(faultSize, 20)
	f.direct(e).put("dir/x", data)
	r.Direction, r.Limit = "down", 1
	f.fault(r)
	var got []byte
	err := e.within(f.Patience, "read, one fault", func() (err error) { got, err = readAll(e.ctx(), e, "dir/x"); return err })
	if err == nil {
		requireBytes(e.T, data, got)
	} else {
		require.ErrorIs(e.T, err, blobstore.ErrTemporary)
	}
	r.Limit = 0
	f.fault(r)
	err = e.within(f.Patience, "read, a fault each time", func() (err error) { got, err = readAll(e.ctx(), e, "dir/x"); return err })
	if err == nil { // in pieces that came through
		requireBytes(e.T, data, got)
	} else {
		require.ErrorIs(e.T, err, blobstore.ErrTemporary)
	}
	f.heal()
	e.requireObject("dir/x", data)
}

func testResetMidRead(e *env, f *FaultEnv) { brokenRead(e, f, faultproxy.Rule{ResetAfter: 1_000_000}) }

func testClosedMidRead(e *env, f *FaultEnv) { brokenRead(e, f, faultproxy.Rule{CloseAfter: 1_000_000}) }

func testStalledRead(e *env, f *FaultEnv) {
	data := pattern(faultSize, 21)
	f.direct(e).put("x", data)
	f.fault(faultproxy.Rule{Direction: "down", StallAfter: 1_000_000})
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	var cancelled time.Time
	time.AfterFunc(1500*time.Millisecond, func() { cancelled = time.Now(); cancel() })
	err := e.within(1500*time.Millisecond+promptly, "stalled read", func() error { _, err := readAll(ctx, e, "x"); return err })
	e.fails(err, context.Canceled)
	require.Less(e.T, time.Since(cancelled), promptly, "a stalled read ends when it is cancelled")
	f.heal()
	e.requireObject("x", data)
}

func testSlowLink(e *env, f *FaultEnv) {
	data := pattern(300_000, 22)
	f.fault(faultproxy.Rule{BytesPerS: 400_000, LatencyMS: 2})
	e.ok(e.within(f.Patience, "slow write", func() error { return e.write("x", data, nil) }))
	var got []byte
	e.ok(e.within(f.Patience, "slow read", func() (err error) { got, err = readAll(e.ctx(), e, "x"); return err }))
	requireBytes(e.T, data, got)
}

func testResetMidWrite(e *env, f *FaultEnv) {
	data := pattern(max(faultSize, e.opts.PartSize*3/2), 23)
	direct := f.direct(e)
	direct.put("old", []byte("old"))
	for _, limit := range []int64{1, 0} {
		for _, name := range []string{"dir/new", "old"} {
			f.fault(faultproxy.Rule{Direction: "up", ResetAfter: 700_000, Limit: limit})
			err := e.within(f.Patience, fmt.Sprintf("write %s, limit %d", name, limit), func() error { return e.write(name, data, nil) })
			f.heal()
			if err == nil {
				direct.requireObject(name, data)
				direct.ok(f.Direct.Delete(e.ctx(), "dir/new"))
				direct.put("old", []byte("old"))
				continue
			}
			// An error may come after the store has made the object; it is whole then.
			got, err := readAll(e.ctx(), f.Direct, name)
			switch {
			case errors.Is(err, blobstore.ErrNotExist) && name == "dir/new":
			case err == nil && name == "old" && string(got) == "old":
			default:
				direct.ok(err)
				requireBytes(e.T, data, got)
			}
		}
	}
	direct.put("dir/new", data)
	e.requireObject("dir/new", data)
}

func testResetMidList(e *env, f *FaultEnv) {
	direct := f.direct(e)
	var all []string
	for i := range min(e.opts.Objects, 1500) {
		all = append(all, fmt.Sprintf("list/%06d-with-a-name-that-is-not-short", i))
	}
	direct.putAll(all)
	for _, limit := range []int64{1, 0} {
		f.fault(faultproxy.Rule{Direction: "down", ResetAfter: 50_000, Limit: limit})
		got := []string{}
		err := e.within(f.Patience, "list", func() error {
			for i, err := range e.List(e.ctx(), nil) {
				if err != nil {
					return err
				}
				got = append(got, i.Name)
			}
			return nil
		})
		f.heal()
		require.Equal(e.T, all[:len(got)], append([]string{}, got...))
		if err == nil {
			require.Len(e.T, got, len(all), "a listing is whole or ends in an error")
		} else {
			require.ErrorIs(e.T, err, blobstore.ErrTemporary)
		}
	}
}

// operations are one of each kind; none of them can succeed.
func operations(ctx context.Context, s blobstore.Store) map[string]func() error {
	return map[string]func() error{
		"open":       func() error { _, err := readAll(ctx, s, "x"); return err },
		"stat":       func() error { _, err := s.Stat(ctx, "x"); return err },
		"delete":     func() error { return s.Delete(ctx, "x") },
		"delete all": func() error { return s.DeleteAll(ctx, []string{"x", "y"}) },
		"list": func() error {
			for _, err := range s.List(ctx, nil) {
				return err
			}
			return nil
		},
		"create": func() error {
			w, err := s.Create(ctx, "y", nil)
			if err != nil {
				return err
			}
			defer w.Abort()
			if _, err = w.Write([]byte("y")); err != nil {
				return err
			}
			return w.Commit()
		},
	}
}

func testServerGone(e *env, f *FaultEnv) {
	direct := f.direct(e)
	direct.put("x", []byte("x"))
	f.fault(faultproxy.Rule{Refuse: true})
	for what, op := range operations(e.ctx(), e.Store) {
		err := e.within(f.Patience, what, op)
		require.ErrorIs(e.T, err, blobstore.ErrTemporary, what)
	}
	f.heal()
	direct.requireObject("x", []byte("x"))
	direct.requireAbsent("y")
	require.Eventually(e.T, func() bool { // some clients wait before they try an address again
		_, err := e.Stat(e.ctx(), "x")
		return err == nil
	}, f.Patience, 100*time.Millisecond, "the store is well again")
	e.requireObject("x", []byte("x"))
}

// testBlackhole: whatever hangs ends with its context.
func testBlackhole(e *env, f *FaultEnv) {
	f.direct(e).put("x", []byte("x"))
	f.fault(faultproxy.Rule{Blackhole: true})
	for what := range operations(e.ctx(), e.Store) {
		for _, how := range []string{"deadline", "cancel"} {
			ctx, cancel := context.WithCancel(e.ctx())
			want := context.Canceled
			if how == "deadline" {
				ctx, cancel = context.WithTimeout(e.ctx(), 500*time.Millisecond)
				want = context.DeadlineExceeded
			} else {
				time.AfterFunc(500*time.Millisecond, cancel)
			}
			err := e.within(500*time.Millisecond+promptly, what+" until "+how, operations(ctx, e.Store)[what])
			cancel()
			require.ErrorIs(e.T, err, want, what)
		}
	}
	f.heal()
	f.direct(e).requireObject("x", []byte("x"))
	f.direct(e).requireAbsent("y")
}

func testDenied(e *env, f *FaultEnv) {
	if f.Denied == nil {
		e.Skip("no store without rights")
	}
	for what, op := range operations(e.ctx(), f.Denied) {
		err := e.within(f.Patience, what, op)
		require.ErrorIs(e.T, err, blobstore.ErrPermission, what)
	}
}
