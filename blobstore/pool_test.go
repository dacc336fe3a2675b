package blobstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// testDriver opens memory stores and counts.
type testDriver struct {
	opened, closed atomic.Int64
	fail           atomic.Bool
	gate           chan struct{} // nil: does not wait
}

type testStore struct {
	Store
	d   *testDriver
	loc Location
}

func (s *testStore) Close() error { s.d.closed.Add(1); return s.Store.Close() }

func (d *testDriver) open(ctx context.Context, loc Location, _ *Options) (Store, error) {
	if d.gate != nil {
		select {
		case <-d.gate:
		case <-ctx.Done():
			return nil, &Error{"open", loc.String(), ctx.Err()}
		}
	}
	if loc.Path != "" {
		panic("a driver is given the root")
	}
	if d.fail.Load() {
		return nil, &Error{"open", loc.String(), ErrTemporary}
	}
	d.opened.Add(1)
	return &testStore{NewMem(), d, loc}, nil
}

// registered gives each test a scheme of its own.
var registered atomic.Int64

func (d *testDriver) register() string {
	scheme := fmt.Sprintf("test%d", registered.Add(1))
	Register(d.open, scheme)
	return scheme
}

func TestPool(t *testing.T) {
	d := &testDriver{}
	scheme := d.register()
	ctx := t.Context()
	wrapped := 0
	p := NewPool(nil, func(s Store) Store { wrapped++; return s })
	get := func(url string) (*testStore, string) {
		s, name, err := p.Resolve(ctx, mustParse(t, scheme+url))
		require.NoError(t, err)
		return s.(*testStore), name
	}
	a, name := get("://a/x/y?region=1")
	require.Equal(t, "x/y", name)
	require.Equal(t, "region=1", a.loc.Query)
	again, name := get("://a/z?region=1")
	require.Same(t, a, again)
	require.Equal(t, "z", name)
	bare, _ := get("://a/from/metadata")
	require.Same(t, a, bare, "a path without parameters belongs to the store known")
	other, _ := get("://a?region=2")
	require.NotSame(t, a, other)
	bare, _ = get("://a/from/metadata")
	require.Same(t, a, bare, "the first one counts")
	b, name := get("://b")
	require.NotSame(t, a, b)
	require.Empty(t, name)
	require.EqualValues(t, 3, d.opened.Load())
	require.Equal(t, 3, wrapped)

	d.fail.Store(true)
	_, _, err := p.Resolve(ctx, mustParse(t, scheme+"://c/x"))
	require.ErrorIs(t, err, ErrTemporary)
	d.fail.Store(false)
	get("://c/x") // a failure is not kept

	require.NoError(t, p.Close())
	require.EqualValues(t, 4, d.closed.Load(), "each store once")
	_, _, err = p.Resolve(ctx, mustParse(t, scheme+"://a/x"))
	require.ErrorIs(t, err, ErrClosed)
}

func TestPoolOpensOnce(t *testing.T) {
	d := &testDriver{gate: make(chan struct{})}
	scheme := d.register()
	p := NewPool(nil, nil)
	var wg sync.WaitGroup
	stores := make([]Store, 20)
	for i := range stores {
		wg.Go(func() {
			s, _, err := p.Resolve(t.Context(), mustParse(t, scheme+"://slow/x"))
			if err == nil {
				stores[i] = s
			}
		})
	}
	// One slow root holds up nobody who wants another, or wants no more.
	_, _, err := p.Resolve(t.Context(), mustParse(t, "mem://quick/x"))
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = p.Resolve(gone, mustParse(t, scheme+"://slow/x"))
	require.ErrorIs(t, err, context.Canceled)
	close(d.gate)
	wg.Wait()
	for _, s := range stores {
		require.Same(t, stores[0], s)
	}
	require.LessOrEqual(t, d.opened.Load(), int64(2)) // 2 if the cancelled one came first
	require.NoError(t, p.Close())
	require.Equal(t, d.opened.Load(), d.closed.Load())
}

func TestPoolClosedWhileOpening(t *testing.T) {
	d := &testDriver{gate: make(chan struct{})}
	scheme := d.register()
	p := NewPool(nil, nil)
	got := make(chan error)
	go func() {
		_, _, err := p.Resolve(t.Context(), mustParse(t, scheme+"://slow/x"))
		got <- err
	}()
	for { // until it is being opened
		p.mu.Lock()
		n := len(p.stores)
		p.mu.Unlock()
		if n > 0 {
			break
		}
	}
	require.NoError(t, p.Close())
	close(d.gate)
	require.ErrorIs(t, <-got, ErrClosed)
	require.EqualValues(t, 1, d.closed.Load())
}

func TestUnknownScheme(t *testing.T) {
	for _, url := range []string{"oss://bucket/x?key=SECRET", "https://host/x?sig=SECRET", "chk://1/x"} {
		_, err := Open(t.Context(), url, nil)
		require.ErrorIs(t, err, ErrUnknownScheme)
		require.NotContains(t, err.Error(), "SECRET")
		require.Contains(t, err.Error(), "file, mem")
	}
}

func TestMounts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "job"), 0o777))
	ctx := t.Context()
	o := &Options{
		Mounts: map[string]string{"viewfs://cluster/flink": "file://" + dir, "viewfs://cluster/flink/deep": "mem://deep-mount/base", "viewfs://loop/": "viewfs://loop/x"},
		Config: map[string]string{
			"fs.viewfs.mounttable.prod.link./ckp":    "viewfs://cluster/flink/job",
			"fs.viewfs.mounttable.default.link./tmp": "mem://tmp-mount",
			"unrelated":                              "://",
		},
	}
	s, err := Open(ctx, "viewfs://cluster/flink/x", o)
	require.NoError(t, err)
	require.Equal(t, "file:"+filepath.ToSlash(dir)+"/x", s.URL())
	s, err = Open(ctx, "viewfs://cluster/flink/deep/er", o)
	require.NoError(t, err)
	require.Equal(t, "mem://deep-mount/base/er", s.URL())
	s, err = Open(ctx, "viewfs://prod/ckp/chk-1", o)
	require.NoError(t, err)
	require.Equal(t, "file:"+filepath.ToSlash(dir)+"/job/chk-1", s.URL(), "through two mounts")
	s, err = Open(ctx, "viewfs:///tmp/x", o)
	require.NoError(t, err)
	require.Equal(t, "mem://tmp-mount/x", s.URL())

	p := NewPool(o, nil)
	defer p.Close()
	_, name, err := p.Resolve(ctx, mustParse(t, "viewfs://cluster/flink/deep/er"))
	require.NoError(t, err)
	require.Equal(t, "base/er", name)

	for _, url := range []string{"viewfs://cluster/other", "viewfs://cluster/flinkx", "viewfs://x/flink"} {
		_, err = Open(ctx, url, o)
		require.ErrorIs(t, err, ErrUnknownScheme, url)
		require.ErrorContains(t, err, "no mount is configured")
	}
	_, err = Open(ctx, "viewfs://cluster/flink", nil)
	require.ErrorIs(t, err, ErrUnknownScheme)
	_, err = Open(ctx, "viewfs://loop/y", o)
	require.ErrorContains(t, err, "circle")
}

func TestMemStores(t *testing.T) {
	ctx := t.Context()
	a, err := Open(ctx, "mem://shared-name/x", nil)
	require.NoError(t, err)
	require.NoError(t, WriteAll(ctx, a, "y", []byte("1"), nil))
	require.NoError(t, a.Close())
	b, err := Open(ctx, "mem://shared-name", nil)
	require.NoError(t, err)
	require.Equal(t, []string{"x/y"}, listed(t, b, nil), "it lives as long as the process")
	require.Empty(t, listed(t, NewMem(), nil))
	_, err = Open(ctx, "mem://x?y=1", nil)
	require.Error(t, err)
}

// The index of the memory store stays sorted and whole at any size.
func TestMemIndex(t *testing.T) {
	s := NewMem().(*memStore)
	const n = 20_000
	order := func(i int) int { return i * 7919 % n }
	for i := range n {
		require.NoError(t, s.put("create", fmt.Sprintf("%05d", order(i)), "", false))
	}
	require.Equal(t, n, len(listed(t, s, nil)))
	for i := range n {
		if k := order(i); k%3 != 0 {
			require.NoError(t, s.Delete(t.Context(), fmt.Sprintf("%05d", k)))
		}
	}
	names := listed(t, s, nil)
	for i, name := range names {
		require.Equal(t, fmt.Sprintf("%05d", 3*i), name)
	}
	require.Len(t, names, (n+2)/3)
	for _, p := range s.objects.pieces {
		require.NotEmpty(t, p)
		require.LessOrEqual(t, len(p), memPiece)
	}
}

// Commit syncs the file before it gets its name, then the directory; a new
// directory is synced into its parent before anything is in it; Delete syncs too.
func TestLocalSyncs(t *testing.T) {
	dir := t.TempDir()
	var log []string
	defer func(f func(*os.File) error) { fsync = f }(fsync)
	fsync = func(f *os.File) error {
		_, err := os.Stat(filepath.Join(dir, "a/b/x"))
		base := filepath.Base(f.Name())
		if IsTemporaryName(base) {
			base = "temporary"
		} else if base == filepath.Base(dir) || base == "." {
			base = "root"
		}
		log = append(log, fmt.Sprint(base, " ", err == nil))
		return nil
	}
	ctx := t.Context()
	s, err := Open(ctx, "file://"+dir, nil)
	require.NoError(t, err)
	for _, o := range []*WriteOptions{nil, {IfAbsent: true}} {
		require.NoError(t, WriteAll(ctx, s, "a/b/x", nil, o))
		require.NoError(t, s.DeleteAll(ctx, []string{"a/b/x", "a/b/y", "absent"}))
	}
	require.Equal(t, []string{"root false", "a false", "temporary false", "b true", "b false", "temporary false", "b true", "b false"}, log)
	log = nil
	require.NoError(t, s.Delete(ctx, "a/b/x"))
	require.Empty(t, log, "nothing was deleted")

	// A disk that cannot sync is a failed commit, which leaves nothing.
	fsync = func(*os.File) error { return errors.New("input/output error") }
	require.ErrorContains(t, WriteAll(ctx, s, "a/b/z", nil, nil), "commit ")
	require.Empty(t, listed(t, s, nil))
	require.Empty(t, temporaries(t, s, ""))
}
