// Package storetest is the one conformance suite of the stores: what the doc
// comments of package blobstore promise, every driver shows by passing it.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) blobstore.Store { … an empty store … }, nil)
//	}
//
// Run looks at every error on the way: it must be a *blobstore.Error of one line
// and hold none of the given secrets.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
)

// Options tell the suite of a driver's limits. Nil is the default.
type Options struct {
	// Secrets that must not appear in any error or URL.
	Secrets []string
	// SkipName gives the reason why a name cannot be used on this store, "" if it
	// can. What is excluded is to be documented by the driver. Creating such a
	// name must fail.
	SkipName func(name string) string
	// PartSize in bytes: an object of two and a half parts is written in parts.
	// 0 is 8 MiB.
	PartSize int64
	// Objects in the long listing; 0 is 2600, which is three pages of most stores.
	Objects int
	// NoObjectBesideFolder is for a server (not a store) that keeps objects as files
	// and so has no object "p" while there is one "p/q".
	NoObjectBesideFolder bool
	// NoLeakCheck leaves out the look for goroutines left behind.
	NoLeakCheck bool
	// Faults gives a store behind a faulty network; nil leaves these cases out.
	Faults func(t *testing.T) FaultEnv
}

func (opts *Options) withDefaults() Options {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.PartSize == 0 {
		o.PartSize = 8 << 20
	}
	if o.Objects == 0 {
		o.Objects = 2600
	}
	if o.SkipName == nil {
		o.SkipName = func(string) string { return "" }
	}
	return o
}

// Factory gives an empty store, which the test closes; a server behind it is
// stopped by t.Cleanup.
type Factory func(t *testing.T) blobstore.Store

// Run runs the suite as subtests of t.
func Run(t *testing.T, factory Factory, opts *Options) {
	o := opts.withDefaults()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := factory(t)
			if !o.NoLeakCheck {
				leaks := goleak.IgnoreCurrent()
				t.Cleanup(func() {
					if !t.Failed() && !t.Skipped() {
						goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
							goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
					}
				})
			}
			e := &env{T: t, Store: s, opts: &o}
			c.run(e)
			require.NoError(t, s.Close())
		})
	}
	if o.Faults != nil {
		t.Run("Faults", func(t *testing.T) { runFaults(t, &o) })
	}
}

var cases = []struct {
	name string
	run  func(*env)
}{
	{"Names", testNames},
	{"InvalidNames", testInvalidNames},
	{"EmptyObject", testEmptyObject},
	{"SmallObject", testSmallObject},
	{"BigObject", testBigObject},
	{"Ranges", testRanges},
	{"Absent", testAbsent},
	{"Overwrite", testOverwrite},
	{"InvisibleBeforeCommit", testInvisible},
	{"WriterEnds", testWriterEnds},
	{"CancelledWrite", testCancelledWrite},
	{"Temporary", testTemporary},
	{"IfAbsent", testIfAbsent},
	{"IfAbsentRace", testIfAbsentRace},
	{"ListOrder", testListOrder},
	{"ListBounds", testListBounds},
	{"ListPages", testListPages},
	{"ListAbsent", testListAbsent},
	{"ListStops", testListStops},
	{"Property", testProperty},
	{"Delete", testDelete},
	{"DeleteAll", testDeleteAll},
	{"Copy", testCopy},
	{"Sub", testSub},
	{"Directories", testDirectories},
	{"ConcurrentReaders", testConcurrentReaders},
	{"ConcurrentWriters", testConcurrentWriters},
	{"CancelledContext", testCancelledContext},
	{"ReaderClose", testReaderClose},
}

// env is one test with its store. Its methods fail the test on an error that
// should not be, and check the form of those that should.
type env struct {
	*testing.T
	blobstore.Store
	opts *Options
}

func (e *env) ctx() context.Context { return e.Context() }

// check looks at the form of an error; every error of the store goes through it.
func (e *env) check(err error) error {
	e.Helper()
	checkError(e.T, err, e.opts.Secrets)
	return err
}

func checkError(t *testing.T, err error, secrets []string) {
	t.Helper()
	if err == nil {
		return
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			checkError(t, e, secrets)
		}
		return
	}
	var be *blobstore.Error
	require.ErrorAs(t, err, &be, "every error is a *blobstore.Error")
	require.NotContains(t, err.Error(), "\n", "an error is one line")
	require.NotEmpty(t, be.Op)
	for _, s := range secrets {
		require.NotContains(t, err.Error(), s, "a credential is shown")
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), s, "a credential is shown")
	}
}

func (e *env) fails(err error, target error, args ...any) {
	e.Helper()
	require.ErrorIs(e.T, e.check(err), target, args...)
}

func (e *env) ok(err error, args ...any) {
	e.Helper()
	require.NoError(e.T, e.check(err), args...)
}

func (e *env) put(name string, data []byte) {
	e.Helper()
	e.ok(e.write(name, data, nil), name)
}

// write creates an object in writes of uneven length.
func (e *env) write(name string, data []byte, opts *blobstore.WriteOptions) error {
	w, err := e.Create(e.ctx(), name, opts)
	if err != nil {
		return e.check(err)
	}
	defer w.Abort()
	for step := 1; len(data) > 0; step = step*3 + 1 {
		n, err := w.Write(data[:min(step, len(data))])
		if err != nil {
			return e.check(err)
		}
		require.Equal(e.T, min(step, len(data)), n)
		data = data[n:]
	}
	return e.check(w.Commit())
}

func (e *env) read(name string, offset, length int64) []byte {
	e.Helper()
	r, err := e.OpenRange(e.ctx(), name, offset, length)
	e.ok(err, name)
	b, err := io.ReadAll(r)
	e.ok(err, name)
	e.ok(r.Close())
	return b
}

func (e *env) requireObject(name string, want []byte) {
	e.Helper()
	r, err := e.Open(e.ctx(), name)
	e.ok(err, name)
	requireInfo(e, r.Info(), name, len(want))
	got, err := io.ReadAll(r)
	e.ok(err)
	e.ok(r.Close())
	requireBytes(e.T, want, got)
	info, err := e.Stat(e.ctx(), name)
	e.ok(err)
	requireInfo(e, info, name, len(want))
	require.Equal(e.T, r.Info().ETag, info.ETag, "Open and Stat know one ETag")
}

func requireInfo(e *env, i blobstore.Info, name string, size int) {
	e.Helper()
	require.Equal(e.T, name, i.Name)
	require.EqualValues(e.T, size, i.Size)
	require.False(e.T, i.IsPrefix)
	if !i.ModTime.IsZero() {
		require.WithinDuration(e.T, time.Now(), i.ModTime, time.Hour)
	}
}

// requireBytes does not print megabytes.
func requireBytes(t *testing.T, want, got []byte) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	require.Failf(t, "other bytes", "%d bytes wanted, %d got, first difference at %d", len(want), len(got), i)
}

func (e *env) requireAbsent(name string) {
	e.Helper()
	_, err := e.Stat(e.ctx(), name)
	e.fails(err, blobstore.ErrNotExist, name)
	r, err := e.Open(e.ctx(), name)
	e.fails(err, blobstore.ErrNotExist, name)
	require.Nil(e.T, r)
}

// names lists; prefixes of empty directories are left out if the store has such,
// because a flat store cannot show them.
func (e *env) names(o *blobstore.ListOptions) []string {
	e.Helper()
	return names(e, e.List(e.ctx(), o))
}

func names(e *env, seq iter.Seq2[blobstore.Info, error]) []string {
	e.Helper()
	out := []string{}
	for i, err := range seq {
		e.ok(err)
		require.Equal(e.T, strings.HasSuffix(i.Name, "/"), i.IsPrefix, i.Name)
		if len(out) > 0 {
			require.Less(e.T, out[len(out)-1], i.Name, "names ascend")
		}
		out = append(out, i.Name)
	}
	return out
}

// pattern is data of which every part differs.
func pattern(n int64, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8(sha256.Sum256([]byte{seed})).Read(b)
	return b
}

// OddNames are the names that every store is tried with.
var OddNames = []string{
	"plain", "with space", " leading", "trailing ", "a/b/c/d/e/f/g", "UPPER", "upper",
	"per%cent", "%41", "%2F", "%", "hash#mark", "quest?ion", "a=b&c=d", "plus+plus", "quote'", `double"quote`,
	"semi;colon", "com,ma", "at@sign", "dol$lar", "ex!clam", "par(en)", "brack[et]", "cur{ly}", "pi|pe", "ca^ret",
	"til~de", "back`tick", "less<than>", "ast*risk", "co:lon", `back\slash`, "dot.", ".hidden", "..two", "...", "-dash", "--", "_",
	"tab\there", "new\nline", "carriage\rreturn", "esc\x1bape", "del\x7f", "\x01",
	"ümläut", "\u00e9", "e\u0301", "日本語", "🦦", "\u200b", "\ufeffbom", "ﬀ", "\u2028", "\U0010ffff",
	"key=1/dt=2024-01-01/x", "__0x41__", "x.attrs", "_metadata", "._metadata.inprogress.1", "_entropy_/x",
	"part/.;", "part/..;", ".;/x", "..;/x", ";", "a;b=c/x", "%2e", "%2e%2e/x", "%00", "\ufffd", "\uffff",
	".tidemark-short.tmp", "s3:/x", "http:", strings.Repeat("n", 200), strings.Repeat("long/", 60) + "end",
}

func testNames(e *env) {
	var want []string
	for i, n := range OddNames {
		if why := e.opts.SkipName(n); why != "" {
			e.Logf("%q is excluded: %s", n, why)
			require.Error(e.T, e.write(n, []byte("x"), nil), "%q is excluded, so creating it fails", n)
			continue
		}
		e.put(n, fmt.Appendf(nil, "content %d", i))
		want = append(want, n)
	}
	for i, n := range OddNames {
		if e.opts.SkipName(n) == "" {
			e.requireObject(n, fmt.Appendf(nil, "content %d", i))
			found := e.names(&blobstore.ListOptions{Prefix: n})
			require.NotEmpty(e.T, found, "%q as a prefix", n)
			require.Equal(e.T, n, found[0])
		}
	}
	slices.Sort(want)
	require.Equal(e.T, want, e.names(nil))
	e.ok(e.DeleteAll(e.ctx(), want))
	require.Empty(e.T, e.names(nil))
}

func testInvalidNames(e *env) {
	e.put("a/b", []byte("x"))
	bad := []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "./a", "a/.", "a/./b", "a\x00b", "a/b/"}
	for _, n := range bad {
		_, err := e.Open(e.ctx(), n)
		e.fails(err, blobstore.ErrInvalidName, "open %q", n)
		_, err = e.OpenRange(e.ctx(), n, 1, 1)
		e.fails(err, blobstore.ErrInvalidName, "open %q", n)
		_, err = e.Stat(e.ctx(), n)
		e.fails(err, blobstore.ErrInvalidName, "stat %q", n)
		e.fails(e.Delete(e.ctx(), n), blobstore.ErrInvalidName, "delete %q", n)
		e.fails(e.DeleteAll(e.ctx(), []string{n}), blobstore.ErrInvalidName, "delete all %q", n)
	}
	temp := blobstore.TemporaryName("a/b")
	require.True(e.T, blobstore.IsTemporaryName(temp))
	for _, n := range append(bad, "\xff", "a/\xc3", temp) {
		_, err := e.Create(e.ctx(), n, nil)
		e.fails(err, blobstore.ErrInvalidName, "create %q", n)
		if e.Capabilities().ServerCopy {
			e.fails(e.Copy(e.ctx(), n, "a/b", nil), blobstore.ErrInvalidName, "copy to %q", n)
		}
	}
	// Whether a name that is not UTF-8 can be there depends on the store. It has one
	// clear answer, not the server's that it does not understand.
	for _, n := range []string{"\xff", "\xc3", "\xc3-", "a/\xc3", "\xe6\x97", "\xed\xa0\x80", "a\xff/b"} {
		_, err := e.Open(e.ctx(), n)
		e.clear(err, blobstore.ErrNotExist, "open %q", n)
		_, err = e.OpenRange(e.ctx(), n, 1, 1)
		e.clear(err, blobstore.ErrNotExist, "open %q", n)
		_, err = e.Stat(e.ctx(), n)
		e.clear(err, blobstore.ErrNotExist, "stat %q", n)
		e.clear(e.Delete(e.ctx(), n), nil, "delete %q", n)
		e.clear(e.DeleteAll(e.ctx(), []string{n}), nil, "delete all %q", n)
		if e.Capabilities().ServerCopy {
			e.clear(e.Copy(e.ctx(), "c", n, nil), blobstore.ErrNotExist, "copy %q", n)
		}
	}
	require.Equal(e.T, []string{"a/b"}, e.names(nil))
}

// clear is for names that a store may hold or refuse: the error is ErrInvalidName
// or the given one.
func (e *env) clear(err, absent error, args ...any) {
	e.Helper()
	if e.check(err); !errors.Is(err, blobstore.ErrInvalidName) {
		require.ErrorIs(e.T, err, absent, args...)
	}
}

func testEmptyObject(e *env) {
	e.put("empty", nil)
	e.requireObject("empty", nil)
	require.Empty(e.T, e.read("empty", 0, 10))
	require.Empty(e.T, e.read("empty", 5, -1))
	require.Empty(e.T, e.read("empty", 0, 0))
	w, err := e.Create(e.ctx(), "dir/empty", nil)
	e.ok(err)
	_, err = w.Write(nil)
	e.ok(err)
	e.ok(w.Commit())
	require.Equal(e.T, []string{"dir/empty", "empty"}, e.names(nil))
}

func testSmallObject(e *env) {
	for _, n := range []int64{1, 2, 511, 512, 513, 4095, 4096, 65537, 1 << 20} {
		name := fmt.Sprintf("dir/%d", n)
		e.put(name, pattern(n, 1))
		e.requireObject(name, pattern(n, 1))
	}
	for i, err := range e.List(e.ctx(), nil) {
		e.ok(err)
		require.Equal(e.T, fmt.Sprintf("dir/%d", i.Size), i.Name, "a listing knows sizes")
	}
}

func testBigObject(e *env) {
	size := e.opts.PartSize*5/2 + 17
	data := pattern(size, 2)
	w, err := e.Create(e.ctx(), "dir/big", &blobstore.WriteOptions{SizeHint: size})
	e.ok(err)
	defer w.Abort()
	_, err = w.Write(data[:size/3])
	e.ok(err)
	_, err = io.Copy(w, iotestOneThird{bytes.NewReader(data[size/3:])})
	e.ok(err)
	e.ok(w.Commit())
	e.requireObject("dir/big", data)
	p := e.opts.PartSize
	for _, r := range [][2]int64{{p - 1, 2}, {p, p}, {size - 18, 100}, {1, size}, {2*p - 3, 7}} {
		requireBytes(e.T, data[r[0]:min(size, r[0]+r[1])], e.read("dir/big", r[0], r[1]))
	}
	e.put("dir/big", data[:p+1]) // without a hint
	e.requireObject("dir/big", data[:p+1])
}

// iotestOneThird hides all methods but Read.
type iotestOneThird struct{ r io.Reader }

func (r iotestOneThird) Read(p []byte) (int, error) { return r.r.Read(p[:max(1, len(p)/3)]) }

func testRanges(e *env) {
	data := pattern(10_000, 3)
	e.put("r", data)
	for _, c := range []struct {
		name           string
		offset, length int64
		from, to       int64
	}{
		{"all", 0, -1, 0, 10_000},
		{"start", 0, 10, 0, 10},
		{"middle", 4_000, 513, 4_000, 4_513},
		{"last byte", 9_999, 1, 9_999, 10_000},
		{"to the end", 9_000, -1, 9_000, 10_000},
		{"very negative length", 9_000, -1 << 62, 9_000, 10_000},
		{"over the end", 9_990, 100, 9_990, 10_000},
		{"far over the end", 9_990, 1<<62 + 5, 9_990, 10_000},
		{"zero length", 10, 0, 10, 10},
		{"zero length at the end", 10_000, 0, 10_000, 10_000},
		{"at the end", 10_000, 10, 10_000, 10_000},
		{"at the end, open", 10_000, -1, 10_000, 10_000},
		{"past the end", 20_000, 10, 10_000, 10_000},
		{"past the end, open", 1 << 61, -1, 10_000, 10_000},
	} {
		r, err := e.OpenRange(e.ctx(), "r", c.offset, c.length)
		e.ok(err, c.name)
		require.EqualValues(e.T, 10_000, r.Info().Size, "%s: Info is of the whole object", c.name)
		require.Equal(e.T, "r", r.Info().Name)
		got, err := io.ReadAll(r)
		e.ok(err, c.name)
		requireBytes(e.T, data[c.from:c.to], got)
		n, err := r.Read(make([]byte, 1))
		require.Zero(e.T, n)
		require.Equal(e.T, io.EOF, err, "%s: the end stays the end", c.name)
		e.ok(r.Close())
	}
	_, err := e.OpenRange(e.ctx(), "r", -1, 10)
	require.Error(e.T, e.check(err), "negative offset")
	_, err = e.OpenRange(e.ctx(), "absent", 5, 0)
	e.fails(err, blobstore.ErrNotExist, "zero length of an absent object")
}

func testAbsent(e *env) {
	e.put("there/x", []byte("x"))
	for _, n := range []string{"absent", "there/y", "there/x/y", "no/such/dir/x", "ther", "there/xx"} {
		e.requireAbsent(n)
		_, err := e.OpenRange(e.ctx(), n, 3, 4)
		e.fails(err, blobstore.ErrNotExist, n)
		e.ok(e.Delete(e.ctx(), n), "deleting what is absent succeeds: %s", n)
	}
	e.requireObject("there/x", []byte("x"))
}

func testOverwrite(e *env) {
	e.put("dir/o", pattern(100, 4))
	before, err := e.Stat(e.ctx(), "dir/o")
	e.ok(err)
	e.put("dir/o", pattern(101, 5))
	e.requireObject("dir/o", pattern(101, 5))
	after, err := e.Stat(e.ctx(), "dir/o")
	e.ok(err)
	if before.ETag != "" {
		require.NotEqual(e.T, before.ETag, after.ETag, "the ETag changes with the content")
	}
	require.Equal(e.T, []string{"dir/o"}, e.names(nil))
}

func testInvisible(e *env) {
	e.put("old", []byte("old"))
	for _, name := range []string{"dir/new", "old"} {
		w, err := e.Create(e.ctx(), name, nil)
		e.ok(err)
		_, err = w.Write(pattern(e.opts.PartSize+1, 6))
		e.ok(err)
		e.requireAbsent("dir/new")
		e.requireObject("old", []byte("old"))
		require.Equal(e.T, []string{"old"}, e.names(nil), "nothing is listed before Commit")
		for _, n := range e.names(&blobstore.ListOptions{Delimiter: true}) {
			require.NotContains(e.T, n, "tidemark")
		}
		e.ok(w.Abort())
	}
	e.requireAbsent("dir/new")
	e.requireObject("old", []byte("old"))
	e.requireNoTemporary()
}

func (e *env) requireNoTemporary() {
	e.Helper()
	if tl, ok := e.Store.(blobstore.TemporaryLister); ok {
		for i, err := range tl.ListTemporary(e.ctx(), "") {
			e.ok(err)
			require.Fail(e.T, "left behind", i.Name)
		}
	}
}

func testWriterEnds(e *env) {
	begin := func() blobstore.Writer {
		w, err := e.Create(e.ctx(), "x", nil)
		e.ok(err)
		n, err := w.Write([]byte("hello"))
		e.ok(err)
		require.Equal(e.T, 5, n)
		return w
	}
	w := begin()
	e.ok(w.Commit())
	_, err := w.Write([]byte("more"))
	e.fails(err, blobstore.ErrClosed, "write after commit")
	e.fails(w.Commit(), blobstore.ErrClosed, "commit twice")
	e.ok(w.Abort(), "abort after commit does nothing")
	e.requireObject("x", []byte("hello"))

	e.ok(e.Delete(e.ctx(), "x"))
	w = begin()
	e.ok(w.Abort())
	e.ok(w.Abort(), "abort twice")
	_, err = w.Write([]byte("more"))
	e.fails(err, blobstore.ErrClosed, "write after abort")
	e.fails(w.Commit(), blobstore.ErrClosed, "commit after abort")
	e.requireAbsent("x")

	w, err = e.Create(e.ctx(), "y", nil)
	e.ok(err)
	e.ok(w.Abort(), "abort before the first write")
	e.requireAbsent("y")
	e.requireNoTemporary()

	// The bytes given to Write are the caller's again afterwards.
	w, err = e.Create(e.ctx(), "z", nil)
	e.ok(err)
	buf := []byte("first ")
	_, err = w.Write(buf)
	e.ok(err)
	copy(buf, "second")
	_, err = w.Write(buf)
	e.ok(err)
	copy(buf, "XXXXXX")
	e.ok(w.Commit())
	e.requireObject("z", []byte("first second"))
}

func testCancelledWrite(e *env) {
	for _, size := range []int64{1, e.opts.PartSize + 1} {
		ctx, cancel := context.WithCancel(e.ctx())
		w, err := e.Create(ctx, "dir/x", nil)
		e.ok(err)
		_, err = w.Write(pattern(size, 7))
		e.ok(err)
		cancel()
		_, err = w.Write([]byte("more"))
		e.fails(err, context.Canceled, "write after cancel")
		e.fails(w.Commit(), context.Canceled, "commit after cancel")
		e.ok(w.Abort(), "abort works after cancel")
		e.requireAbsent("dir/x")

		ctx, cancel = context.WithCancel(e.ctx())
		w, err = e.Create(ctx, "dir/x", nil)
		e.ok(err)
		_, err = w.Write(pattern(size, 7))
		e.ok(err)
		cancel()
		e.ok(w.Abort(), "abort as the first call after cancel")
		e.requireAbsent("dir/x")

		ctx, cancel = context.WithCancel(e.ctx())
		w, err = e.Create(ctx, "dir/x", nil)
		e.ok(err)
		_, err = w.Write(pattern(size, 7))
		e.ok(err)
		cancel()
		e.fails(w.Commit(), context.Canceled, "commit as the first call after cancel")
		e.ok(w.Abort())
		e.requireAbsent("dir/x")
	}
	require.Empty(e.T, e.names(nil))
	e.requireNoTemporary()
	ctx, cancel := context.WithCancel(e.ctx())
	cancel()
	_, err := e.Create(ctx, "dir/x", nil)
	e.fails(err, context.Canceled)
}

// testTemporary plays a crash: a writer that is never ended. What it leaves is
// found and removed, and nothing else.
func testTemporary(e *env) {
	tl, ok := e.Store.(blobstore.TemporaryLister)
	if !ok {
		e.Skip("nothing temporary can be left in this store")
	}
	e.put("a/object", []byte("x"))
	w, err := e.Create(e.ctx(), "a/b/unfinished", nil)
	e.ok(err)
	defer w.Abort()
	_, err = w.Write(pattern(2*e.opts.PartSize+1, 8))
	e.ok(err)
	var found []string
	deadline := time.Now().Add(10 * time.Second)
	for len(found) == 0 && time.Now().Before(deadline) { // parts are sent in the background
		for i, err := range tl.ListTemporary(e.ctx(), "a/") {
			e.ok(err)
			found = append(found, i.Name)
		}
	}
	require.NotEmpty(e.T, found, "an unfinished object is found")
	for i, err := range tl.ListTemporary(e.ctx(), "other/") {
		e.ok(err)
		require.Fail(e.T, "not below the prefix", i.Name)
	}
	e.fails(tl.DeleteTemporary(e.ctx(), "a/object"), blobstore.ErrInvalidName, "an object is not temporary")
	for _, n := range found {
		e.ok(tl.DeleteTemporary(e.ctx(), n))
		e.ok(tl.DeleteTemporary(e.ctx(), n), "absent is success")
	}
	// Its bytes are gone, or those that were still on their way brought it back to
	// life: then it is whole. No part of an object ever stands for it.
	if e.check(w.Commit()) == nil {
		e.requireObject("a/b/unfinished", pattern(2*e.opts.PartSize+1, 8))
		e.ok(e.Delete(e.ctx(), "a/b/unfinished"))
	}
	w.Abort()
	e.requireNoTemporary()
	require.Equal(e.T, []string{"a/object"}, e.names(nil))
}

func (e *env) exclusive() bool { return e.Capabilities().ExclusiveCreate }

func testIfAbsent(e *env) {
	if !e.exclusive() {
		_, err := e.Create(e.ctx(), "x", &blobstore.WriteOptions{IfAbsent: true})
		e.fails(err, blobstore.ErrUnsupported, "a store without ExclusiveCreate says so")
		return
	}
	once := &blobstore.WriteOptions{IfAbsent: true}
	for i, size := range []int64{5, e.opts.PartSize*2 + 1} {
		name := fmt.Sprintf("dir/once-%d", i)
		e.ok(e.write(name, pattern(size, 9), once))
		e.fails(e.write(name, pattern(size, 10), once), blobstore.ErrExist)
		e.requireObject(name, pattern(size, 9))
		e.ok(e.Delete(e.ctx(), name))
		e.ok(e.write(name, pattern(size, 11), once), "after Delete the name is free")
		e.put(name, []byte("overwritten")) // without IfAbsent it may be
		e.requireObject(name, []byte("overwritten"))
	}
	// It is Commit that decides, not Create.
	w, err := e.Create(e.ctx(), "late", once)
	e.ok(err)
	defer w.Abort()
	_, err = w.Write([]byte("late"))
	e.ok(err)
	e.put("late", []byte("early"))
	e.fails(w.Commit(), blobstore.ErrExist)
	e.ok(w.Abort())
	e.requireObject("late", []byte("early"))
	e.requireNoTemporary()
}

func testIfAbsentRace(e *env) {
	if !e.exclusive() {
		e.Skip("no exclusive create")
	}
	const writers = 16
	for _, c := range []struct {
		name   string
		size   int64
		rounds int
	}{{"one-shot", 100, 8}, {"in parts", e.opts.PartSize + 1, 1}} {
		for round := range c.rounds {
			name := fmt.Sprintf("race/%s-%d", c.name, round)
			start := make(chan struct{})
			errs := make(chan error, writers)
			for i := range writers {
				go func() {
					data := pattern(c.size, byte(i))
					w, err := e.Create(e.ctx(), name, &blobstore.WriteOptions{IfAbsent: true})
					if err == nil {
						defer w.Abort()
						if _, err = w.Write(data); err == nil {
							<-start
							err = w.Commit()
						}
					}
					if err == nil {
						err = winner(i)
					}
					errs <- err
				}()
			}
			close(start)
			won := -1
			for range writers {
				err := <-errs
				if w, ok := err.(winner); ok {
					require.Equal(e.T, -1, won, "%s: two writers won", c.name)
					won = int(w)
					continue
				}
				e.fails(err, blobstore.ErrExist, c.name)
			}
			require.NotEqual(e.T, -1, won, "%s: nobody won", c.name)
			e.requireObject(name, pattern(c.size, byte(won)))
		}
	}
	e.requireNoTemporary()
}

type winner int

func (winner) Error() string { return "won" }

// listNames hold the trap in which a walk by directories goes wrong: siblings of a
// directory whose names go on with a byte before "/"; and names whose order by
// signed bytes, by UTF-16 or without case is another one.
var listNames = []string{
	"shared/0", "shared/1", "shared/sub/x", "shared-old/1", "shared.txt", "shared!", "shared 2/x", "shared0", "sharee",
	"chk-1/_metadata", "chk-1/a", "chk-10/_metadata", "chk-10/b", "chk-2/_metadata",
	"a/b/c/d", "a/b-/x", "a/b.c", "a-b", "a.c/x", "A", "B/x", "_", "z",
	"é/x", "é-", "日本/語", "\uffee", "🦦", "~",
}

func (e *env) usable(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return e.opts.SkipName(n) != "" })
}

func testListOrder(e *env) {
	all := e.usable(listNames)
	for _, i := range rand.Perm(len(all)) {
		e.put(all[i], []byte(all[i]))
	}
	model := modelOf(all)
	slices.Sort(all)
	require.Equal(e.T, all, e.names(nil))
	require.Equal(e.T, all, e.names(&blobstore.ListOptions{}))
	for i, err := range e.List(e.ctx(), nil) {
		e.ok(err)
		requireInfo(e, i, i.Name, len(i.Name))
	}
	prefixes := []string{"", "s", "shared", "shared/", "shared/s", "shared-", "shared/sub/", "chk-1", "chk-1/", "chk-1/_metadata",
		"a", "a/", "a/b", "a/b/", "a/b/c/d", "a/b/c/d/", "é", "é/", "zz", "/", "//", "a//", "../", "a/../", ".", "日本/", "nothing/at/all/"}
	after := []string{"", "a", "a/", "a/b", "a/b/", "a/b/c", "a/b/c/d", "a/b/zz", "shared", "shared-", "shared/", "shared/0", "shared/1",
		"shared/sub", "shared0", "chk-1/", "chk-1/_metadata", "é", "é/", "é/x", "\xff", "~", "zzz", "/", "../x"}
	for _, p := range prefixes {
		for _, a := range after {
			for _, d := range []bool{false, true} {
				o := &blobstore.ListOptions{Prefix: p, StartAfter: a, Delimiter: d}
				require.Equal(e.T, names(e, model.List(e.ctx(), o)), e.names(o), "%+v", *o)
			}
		}
	}
}

// testListBounds lists from and below what can be no name: bounds are bytes.
func testListBounds(e *env) {
	all := e.usable([]string{"a", "a-b", "d/d!", "d/é", "d!", "é/d!", "é/日/x", "é-", "ê", "日", "日本", "🦦", "z"})
	e.putAll(all)
	model := modelOf(all)
	bounds := []string{
		// a character cut off, alone and followed by another
		"\xc3", "\xc3-", "\xc3\xa9", "\xc3\xa9\xc3", "\xc3\xc3", "\xc3/", "\xe6\x97", "\xe6\x97-", "\xe6\x97\xa5\xe6", "\xf0\x9f\xa6", "\xf0\x9f\xa6/",
		"d/\xc3", "d/\xc3-", "d/\xff", "é/\xe6", "é/\xe6-", "é/\xe6\x97\xa5/\xff", "a\xff/b",
		// no start of a character at all
		"\x80", "\xa9", "\xff", "a\xff", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80",
		// what else no name has, or no store takes
		"\x00", "a\x00", "a\x00b", "\x00/", "d/\x00", "d\x00/x", "\x01", "\x7f", ":", "a:", "a:b", "d/:", "a:/x", ".", "..", "./", "../", "d/.", "d/..", "d/../", "/", "//", "d//", "d//d", "\\",
		"%", "%41", "%c3", "a?b", "a#b", "a&b=c", ";", "a;b",
		strings.Repeat("a", 256), strings.Repeat("n", 1100), strings.Repeat("d/", 600), "d/" + strings.Repeat("é", 300),
	}
	for _, b := range bounds {
		for _, o := range []blobstore.ListOptions{{Prefix: b}, {StartAfter: b}, {Prefix: "d/", StartAfter: b}, {Prefix: b, StartAfter: b}, {Prefix: b, StartAfter: "a"}} {
			for _, o.Delimiter = range []bool{false, true} {
				require.Equal(e.T, names(e, model.List(e.ctx(), &o)), e.names(&o), "%+q", o)
			}
		}
	}
}

// modelOf is a memory store with the given objects, or with their sizes.
func modelOf(all []string) blobstore.Store {
	m := blobstore.NewMem()
	for _, n := range all {
		w, err := m.Create(context.Background(), n, nil)
		if err == nil {
			w.Write([]byte(n))
			err = w.Commit()
		}
		if err != nil {
			panic(err)
		}
	}
	return m
}

func testListPages(e *env) {
	n := e.opts.Objects
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("ckp/shared/%08d", i*7919%n))
	}
	all = append(all, "ckp/shared-old/1", "ckp/shared.x", "ckp/shared/00000100-", "ckp/sharee/x", "other/x", "ckp-2/x")
	e.putAll(all)
	model := modelOf(all)
	for _, o := range []blobstore.ListOptions{
		{}, {Prefix: "ckp/"}, {Prefix: "ckp/shared"}, {Prefix: "ckp/shared/"}, {Prefix: "ckp/shared/0000001"},
		{Delimiter: true}, {Prefix: "ckp/", Delimiter: true}, {Prefix: "ckp/shared/", Delimiter: true},
		{StartAfter: "ckp/shared/00000999"}, {StartAfter: "ckp/shared/00001000", Delimiter: true, Prefix: "ckp/shared/"},
		{StartAfter: all[n/2], Prefix: "ckp/shared/"},
	} {
		require.Equal(e.T, names(e, model.List(e.ctx(), &o)), e.names(&o), "%+v", o)
	}
	// Going on from where one stopped gives each name once.
	var seen []string
	for last, more := "", true; more; {
		more = false
		got := 0
		for i, err := range e.List(e.ctx(), &blobstore.ListOptions{StartAfter: last}) {
			e.ok(err)
			seen, last, more = append(seen, i.Name), i.Name, true
			if got++; got == 999 {
				break
			}
		}
	}
	require.Equal(e.T, names(e, model.List(e.ctx(), nil)), seen)
}

// putAll creates many small objects, some at a time.
func (e *env) putAll(all []string) {
	e.Helper()
	todo := make(chan string)
	errs := make(chan error)
	const workers = 16
	for range workers {
		go func() {
			var err error
			for n := range todo {
				if err == nil {
					err = e.write(n, []byte(n), nil)
				}
			}
			errs <- err
		}()
	}
	for _, n := range all {
		todo <- n
	}
	close(todo)
	for range workers {
		e.ok(<-errs)
	}
}

func testListAbsent(e *env) {
	require.Empty(e.T, e.names(nil), "a new store is empty")
	require.Empty(e.T, e.names(&blobstore.ListOptions{Delimiter: true}))
	require.Empty(e.T, e.names(&blobstore.ListOptions{Prefix: "no/such/"}))
	e.put("file", []byte("x"))
	require.Empty(e.T, e.names(&blobstore.ListOptions{Prefix: "file/"}), "below a file there is nothing")
	require.Empty(e.T, e.names(&blobstore.ListOptions{Prefix: "file/x/y"}))
	require.Empty(e.T, e.names(&blobstore.ListOptions{StartAfter: "file"}))
}

func testListStops(e *env) {
	e.put("a/1", nil)
	e.put("a/2", nil)
	e.put("b", nil)
	for i, err := range e.List(e.ctx(), nil) {
		e.ok(err)
		require.Equal(e.T, "a/1", i.Name)
		break
	}
	seq := e.List(e.ctx(), nil)
	require.Equal(e.T, names(e, seq), names(e, seq), "a sequence can be ranged over again")

	// Deleting behind the cursor loses nothing.
	var seen []string
	for i, err := range e.List(e.ctx(), nil) {
		e.ok(err)
		seen = append(seen, i.Name)
		e.ok(e.Delete(e.ctx(), i.Name))
	}
	require.Equal(e.T, []string{"a/1", "a/2", "b"}, seen)
	require.Empty(e.T, e.names(nil))
}

func testDelete(e *env) {
	e.put("dir/a", []byte("a"))
	e.put("dir/ab", []byte("ab"))
	e.ok(e.Delete(e.ctx(), "dir/a"))
	e.requireAbsent("dir/a")
	e.requireObject("dir/ab", []byte("ab"))
	e.ok(e.Delete(e.ctx(), "dir/a"))
	e.put("dir/a", []byte("again"))
	e.requireObject("dir/a", []byte("again"))
}

func testDeleteAll(e *env) {
	var doomed []string
	for i := range 1100 {
		doomed = append(doomed, fmt.Sprintf("doomed/%d/x%d", i%3, i))
	}
	kept := []string{"doomed", "kept", "doomed-not/x1"}
	if e.Capabilities().Directories || e.opts.NoObjectBesideFolder {
		kept = kept[1:]
	}
	e.putAll(append(slices.Clone(kept), doomed...))
	asked := append(slices.Clone(doomed), "absent", "doomed/0/absent", "absent/too")
	rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
	e.ok(e.DeleteAll(e.ctx(), asked))
	slices.Sort(kept)
	require.Equal(e.T, kept, e.names(nil))
	e.ok(e.DeleteAll(e.ctx(), nil))
	e.ok(e.DeleteAll(e.ctx(), []string{"absent"}))
	require.Equal(e.T, kept, e.names(nil))

	// A bad name does not keep the others from being deleted.
	e.put("x", nil)
	err := e.DeleteAll(e.ctx(), []string{"a//b", "x"})
	e.fails(err, blobstore.ErrInvalidName)
	e.requireAbsent("x")
}

func testCopy(e *env) {
	data := pattern(e.opts.PartSize+5, 12)
	e.put("src/%41 ü+&", data)
	err := e.Copy(e.ctx(), "dst/deep/copy of ü%", "src/%41 ü+&", nil)
	if !e.Capabilities().ServerCopy {
		e.fails(err, blobstore.ErrUnsupported)
		return
	}
	e.ok(err)
	e.requireObject("dst/deep/copy of ü%", data)
	e.requireObject("src/%41 ü+&", data)
	e.put("empty", nil)
	e.ok(e.Copy(e.ctx(), "dst/deep/copy of ü%", "empty", nil), "over another")
	e.requireObject("dst/deep/copy of ü%", nil)
	e.fails(e.Copy(e.ctx(), "dst/y", "absent", nil), blobstore.ErrNotExist)
	e.requireAbsent("dst/y")
	once := &blobstore.WriteOptions{IfAbsent: true}
	if e.exclusive() {
		err := e.Copy(e.ctx(), "empty", "src/%41 ü+&", once)
		if !errors.Is(err, blobstore.ErrUnsupported) { // a store may have exclusive create, but no exclusive copy
			e.fails(err, blobstore.ErrExist)
			e.ok(e.Copy(e.ctx(), "dst/z", "empty", once))
			e.requireObject("dst/z", nil)
		} else {
			e.check(err)
		}
		e.requireObject("empty", nil)
	} else {
		e.fails(e.Copy(e.ctx(), "dst/z", "empty", once), blobstore.ErrUnsupported)
	}
	e.requireNoTemporary()
}

func testSub(e *env) {
	sub := &env{e.T, blobstore.Sub(e.Store, "below/it"), e.opts}
	e.put("below/its", []byte("not in it"))
	e.put("below/it/x", []byte("x"))
	sub.requireObject("x", []byte("x"))
	sub.put("d/y", []byte("y"))
	e.requireObject("below/it/d/y", []byte("y"))
	require.Equal(e.T, []string{"d/y", "x"}, sub.names(nil))
	require.Equal(e.T, []string{"d/", "x"}, sub.names(&blobstore.ListOptions{Delimiter: true}))
	require.Equal(e.T, []string{"x"}, sub.names(&blobstore.ListOptions{StartAfter: "d/y"}))
	require.Equal(e.T, []string{"d/y"}, sub.names(&blobstore.ListOptions{Prefix: "d"}))
	require.Equal(e.T, e.Capabilities(), sub.Capabilities())
	root, err := blobstore.Parse(e.URL())
	require.NoError(e.T, err, "the URL of a store can be parsed")
	require.Equal(e.T, root.Join("below/it").String(), sub.URL())

	deeper := &env{e.T, blobstore.Sub(sub.Store, "d"), e.opts}
	deeper.requireObject("y", []byte("y"))
	require.Equal(e.T, []string{"y"}, deeper.names(nil))
	for _, n := range []string{"../x", "", "/x", "..", "a/../../x"} {
		_, err := deeper.Stat(e.ctx(), n)
		deeper.fails(err, blobstore.ErrInvalidName, "%q does not lead out", n)
		deeper.fails(deeper.Delete(e.ctx(), n), blobstore.ErrInvalidName, "%q", n)
	}
	for _, n := range []string{"absent", "y/z"} {
		_, err := deeper.Stat(e.ctx(), n)
		deeper.fails(err, blobstore.ErrNotExist)
		require.Contains(e.T, err.Error(), "below/it/d/"+n, "an error has the full address")
	}
	bad := &env{e.T, blobstore.Sub(e.Store, "../up"), e.opts}
	_, err = bad.Stat(e.ctx(), "x")
	bad.fails(err, blobstore.ErrInvalidName)
	for _, err := range bad.List(e.ctx(), nil) {
		bad.fails(err, blobstore.ErrInvalidName)
	}
	_, a := e.Store.(blobstore.TemporaryLister)
	_, b := deeper.Store.(blobstore.TemporaryLister)
	require.Equal(e.T, a, b, "Sub keeps TemporaryLister")
	_, a = e.Store.(blobstore.DirectoryRemover)
	_, b = deeper.Store.(blobstore.DirectoryRemover)
	require.Equal(e.T, a, b, "Sub keeps DirectoryRemover")
	if sub.Capabilities().ServerCopy {
		sub.ok(sub.Copy(e.ctx(), "x2", "x", nil))
		sub.requireObject("x2", []byte("x"))
	}
	sub.ok(sub.DeleteAll(e.ctx(), []string{"d/y", "x", "x2"}))
	require.Equal(e.T, []string{"below/its"}, e.names(nil))
	for _, s := range e.opts.Secrets {
		require.NotContains(e.T, e.URL(), s)
	}
}

func testDirectories(e *env) {
	e.put("dir/sub/x", []byte("x"))
	if !e.Capabilities().Directories {
		e.requireAbsent("dir")
		e.requireAbsent("dir/sub")
		e.ok(e.Delete(e.ctx(), "dir"))
		if e.opts.NoObjectBesideFolder {
			return
		}
		e.put("dir", []byte("an object, not a folder"))
		e.requireObject("dir/sub/x", []byte("x"))
		require.Equal(e.T, []string{"dir", "dir/"}, e.names(&blobstore.ListOptions{Delimiter: true}))
		return
	}
	for _, n := range []string{"dir", "dir/sub"} {
		_, err := e.Open(e.ctx(), n)
		e.fails(err, blobstore.ErrIsDirectory)
		_, err = e.Stat(e.ctx(), n)
		e.fails(err, blobstore.ErrIsDirectory)
		e.fails(e.Delete(e.ctx(), n), blobstore.ErrIsDirectory)
		e.fails(e.DeleteAll(e.ctx(), []string{n}), blobstore.ErrIsDirectory)
		e.fails(e.write(n, []byte("y"), nil), blobstore.ErrIsDirectory)
	}
	require.Error(e.T, e.write("dir/sub/x/y", []byte("y"), nil), "a file is no parent")
	e.requireObject("dir/sub/x", []byte("x"))
	e.requireNoTemporary()

	dr, ok := e.Store.(blobstore.DirectoryRemover)
	if !ok {
		return
	}
	e.fails(dr.RemoveEmptyDir(e.ctx(), "dir"), blobstore.ErrNotEmpty)
	e.fails(dr.RemoveEmptyDir(e.ctx(), "dir/sub"), blobstore.ErrNotEmpty)
	require.Error(e.T, e.check(dr.RemoveEmptyDir(e.ctx(), "dir/sub/x")), "a file is no directory")
	e.ok(e.Delete(e.ctx(), "dir/sub/x"))
	require.Equal(e.T, []string{"dir/"}, e.names(&blobstore.ListOptions{Delimiter: true}), "an emptied directory stays")
	e.ok(dr.RemoveEmptyDir(e.ctx(), "dir/sub"))
	e.ok(dr.RemoveEmptyDir(e.ctx(), "dir/sub"), "absent is success")
	e.ok(dr.RemoveEmptyDir(e.ctx(), "dir"))
	require.Empty(e.T, e.names(&blobstore.ListOptions{Delimiter: true}))
	e.put("dir/sub/x", []byte("again"))
	e.requireObject("dir/sub/x", []byte("again"))
}

func testConcurrentReaders(e *env) {
	data := pattern(300_000, 13)
	e.put("r", data)
	errs := make(chan error)
	const readers = 16
	for i := range readers {
		go func() {
			errs <- func() error {
				for j := range 8 {
					off := int64((i*8+j)*2_001) % int64(len(data))
					n := int64(i*j*100 + 1)
					r, err := e.OpenRange(e.ctx(), "r", off, n)
					if err != nil {
						return err
					}
					got, err := io.ReadAll(r)
					r.Close()
					if err != nil {
						return err
					}
					if !bytes.Equal(got, data[off:min(int64(len(data)), off+n)]) {
						return &blobstore.Error{Op: "read", URL: "r", Err: fmt.Errorf("other bytes at %d+%d", off, n)}
					}
				}
				return nil
			}()
		}()
	}
	for range readers {
		e.ok(<-errs)
	}
}

// testConcurrentWriters: a reader sees one of the contents, whole.
func testConcurrentWriters(e *env) {
	const writers, rounds = 4, 4
	size := int64(50_000)
	e.put("w", pattern(size, 0))
	errs := make(chan error)
	for i := range writers {
		go func() {
			var err error
			for j := 0; j < rounds && err == nil; j++ {
				err = e.write("w", pattern(size, byte(i*rounds+j)), nil)
			}
			errs <- err
		}()
	}
	for left := writers; left > 0; {
		select {
		case err := <-errs:
			e.ok(err)
			left--
		default:
		}
		got := e.read("w", 0, -1)
		whole := false
		for k := range writers * rounds {
			whole = whole || bytes.Equal(got, pattern(size, byte(k)))
		}
		require.True(e.T, whole, "a mix of two contents was read")
	}
	e.requireNoTemporary()
}

// soon fails the test if f takes longer than promptly.
func (e *env) soon(what string, f func()) {
	e.Helper()
	start := time.Now()
	f()
	require.Less(e.T, time.Since(start), promptly, what)
}

func testCancelledContext(e *env) {
	data := pattern(4<<20, 14)
	e.put("x", data)
	ctx, cancel := context.WithCancel(e.ctx())
	defer cancel()
	r, err := e.Open(ctx, "x")
	e.ok(err)
	_, err = io.ReadFull(r, make([]byte, 100))
	e.ok(err)
	w, err := e.Create(ctx, "w", nil)
	e.ok(err)
	listed := 0
	for _, err := range e.List(ctx, nil) {
		if listed++; err != nil {
			e.fails(err, context.Canceled)
			break
		}
		cancel()
	}
	require.LessOrEqual(e.T, listed, 2, "a cancelled listing ends")
	e.soon("read", func() {
		_, err := io.Copy(io.Discard, r)
		e.fails(err, context.Canceled, "a read in the middle")
		r.Close()
	})
	e.soon("write", func() {
		_, err := w.Write(data)
		if err == nil {
			err = w.Commit()
		}
		e.fails(err, context.Canceled)
		e.ok(w.Abort())
	})
	for what, f := range map[string]func() error{
		"open":       func() error { _, err := e.Open(ctx, "x"); return err },
		"open range": func() error { _, err := e.OpenRange(ctx, "x", 1, 1); return err },
		"stat":       func() error { _, err := e.Stat(ctx, "x"); return err },
		"delete":     func() error { return e.Delete(ctx, "x") },
		"delete all": func() error { return e.DeleteAll(ctx, []string{"x", "y"}) },
		"create":     func() error { _, err := e.Create(ctx, "y", nil); return err },
		"list": func() error {
			for _, err := range e.List(ctx, nil) {
				return err
			}
			return nil
		},
	} {
		e.soon(what, func() { e.fails(f(), context.Canceled, what) })
	}
	if e.Capabilities().ServerCopy {
		e.soon("copy", func() { e.fails(e.Copy(ctx, "y", "x", nil), context.Canceled) })
	}
	require.Equal(e.T, []string{"x"}, e.names(nil))
	e.requireObject("x", data)

	late, stop := context.WithDeadline(e.ctx(), time.Now().Add(-time.Second))
	defer stop()
	_, err = e.Stat(late, "x")
	e.fails(err, context.DeadlineExceeded)
}

func testReaderClose(e *env) {
	e.put("x", pattern(1<<20, 15))
	r, err := e.Open(e.ctx(), "x")
	e.ok(err)
	_, err = io.ReadFull(r, make([]byte, 10))
	e.ok(err)
	e.ok(r.Close(), "before the end")
	_, err = r.Read(make([]byte, 10))
	require.Error(e.T, err, "read after close")
	require.NotErrorIs(e.T, err, io.EOF, "a closed reader is not at its end")
	r.Close() // twice: must not panic
	r, err = e.Open(e.ctx(), "x")
	e.ok(err)
	e.ok(r.Close(), "without reading")
	r, err = e.Open(e.ctx(), "x")
	e.ok(err)
	n, err := r.Read(nil)
	require.Zero(e.T, n)
	require.NoError(e.T, err, "a read of nothing")
	e.ok(r.Close())
	// What was opened stays readable, or fails clearly, when the object is replaced or deleted.
	r, err = e.Open(e.ctx(), "x")
	e.ok(err)
	e.put("x", []byte("new"))
	b, err := io.ReadAll(r)
	if e.check(err) == nil {
		requireBytes(e.T, pattern(1<<20, 15), b)
	}
	r.Close()
}
