package incremental_test

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

func subset(t testing.TB, name string) *matrixCase {
	return readMatrixCase(t, filepath.Join("testdata", "matrix", filepath.FromSlash(name)))
}

// with gives the case's files with one replaced, or left out if src is nil.
func (c *matrixCase) with(name string, src sst.Source) []incremental.File {
	files := slices.DeleteFunc(slices.Clone(c.files), func(f incremental.File) bool { return f.Name == name })
	if src != nil {
		files = append(files, incremental.File{Name: name, Source: src})
	}
	return files
}

func (c *matrixCase) named(prefix string) string {
	for _, f := range c.files {
		if strings.HasPrefix(f.Name, prefix) {
			return f.Name
		}
	}
	return ""
}

// tolerant opens files and collects damage.
func tolerant(t *testing.T, files []incremental.File) (*incremental.Database, *[]error) {
	t.Helper()
	var found []error
	db, err := incremental.Open(context.Background(), files, &incremental.Options{Name: "chk-1", OnDamage: func(err error) { found = append(found, err) }})
	require.NoError(t, err)
	return db, &found
}

func TestMissingTable(t *testing.T) {
	c := subset(t, "frocksdb8/workload-merges") // many tables of one family
	db, err := incremental.Open(context.Background(), c.files, nil)
	require.NoError(t, err)
	tables := db.Family("list").Tables
	require.Greater(t, len(tables), 3)
	gone := tables[1].FileName()
	files := c.with(gone, nil)

	db, err = incremental.Open(context.Background(), files, &incremental.Options{Name: "chk-1"})
	require.NoError(t, err)
	it := db.Family("list").Scan(context.Background(), nil)
	require.False(t, it.Next())
	require.EqualError(t, it.Err(), "chk-1/"+gone+": is live by the MANIFEST, but the handle does not list it: corrupt")
	it.Close()

	db, found := tolerant(t, files)
	got := scan(t, db.Family("list"), nil)
	require.Len(t, *found, 1)
	require.NotEmpty(t, got)
	keys := map[string]bool{}
	for _, e := range got {
		keys[string(e.key)] = true
	}
	missing := 0
	for _, e := range c.want["list"] {
		if !keys[string(e.key)] {
			missing++
		}
	}
	require.Less(t, missing, len(c.want["list"])/4)
	_, _, err = db.Family("list").Get(context.Background(), got[0].key, nil)
	require.NoError(t, err)

	var names []string
	_, err = db.Verify(context.Background(), &incremental.VerifyOptions{OnDamage: func(f incremental.Finding) { names = append(names, f.Family+" "+f.File) }})
	require.NoError(t, err)
	require.Equal(t, []string{"list " + gone}, names)
}

// storeGone is a Source whose blob is not there.
type storeGone struct{ sst.Source }

func (storeGone) ReadAt(context.Context, []byte, int64) (int, error) {
	return 0, &blobstore.Error{Op: "open", URL: "mem:///x", Err: blobstore.ErrNotExist}
}

type denied struct{ sst.Source }

func (denied) ReadAt(context.Context, []byte, int64) (int, error) {
	return 0, &blobstore.Error{Op: "open", URL: "mem:///x", Err: blobstore.ErrPermission}
}

func TestBlobGone(t *testing.T) {
	c := subset(t, "frocksdb8/tiny-format-5")
	db, err := incremental.Open(context.Background(), c.files, nil)
	require.NoError(t, err)
	name := db.Family("state").Tables[0].FileName()
	files := c.with(name, storeGone{c.source(name)})
	db, err = incremental.Open(context.Background(), files, nil)
	require.NoError(t, err)
	it := db.Family("state").Scan(context.Background(), nil)
	defer it.Close()
	require.False(t, it.Next())
	require.ErrorIs(t, it.Err(), damage.ErrCorrupt)
	require.ErrorIs(t, it.Err(), blobstore.ErrNotExist)
	requireDamage(t, it.Err())
	var findings []error
	_, err = db.Verify(context.Background(), &incremental.VerifyOptions{OnDamage: func(f incremental.Finding) { findings = append(findings, f.Err) }})
	require.NoError(t, err)
	require.Len(t, findings, 1)

	m := c.named("MANIFEST")
	_, err = incremental.Open(context.Background(), c.with(m, storeGone{c.source(m)}), nil)
	require.ErrorIs(t, err, damage.ErrCorrupt)

	// What the store refuses is no damage, and not passed by.
	db, found := tolerant(t, c.with(name, denied{c.source(name)}))
	it = db.Family("state").Scan(context.Background(), nil)
	defer it.Close()
	require.False(t, it.Next())
	require.ErrorIs(t, it.Err(), blobstore.ErrPermission)
	require.ErrorContains(t, it.Err(), name)
	_, _, err = db.Family("state").Get(context.Background(), c.want["state"][0].key, nil)
	require.ErrorIs(t, err, blobstore.ErrPermission)
	_, err = db.Verify(context.Background(), nil)
	require.ErrorIs(t, err, blobstore.ErrPermission)
	require.Empty(t, *found)
}

// TestDamagedBlocks flips a bit in each block of a table in turn: the other
// blocks' entries still come, and none that is not live.
func TestDamagedBlocks(t *testing.T) {
	for _, name := range []string{"frocksdb6/tiny-no", "frocksdb8/tiny-format-5", "rocksdb10/tiny-format-7"} {
		t.Run(name, func(t *testing.T) {
			c := subset(t, name)
			db, err := incremental.Open(context.Background(), c.files, nil)
			require.NoError(t, err)
			tb := db.Family("state").Tables[0]
			data := content(t, c.source(tb.FileName()))
			partial := 0
			for at := 10; at < len(data); at += 101 {
				changed := bytes.Clone(data)
				changed[at] ^= 4
				db, found := tolerant(t, c.with(tb.FileName(), sst.Bytes(changed)))
				got := scan(t, db.Family("state"), nil)
				if len(*found) > 0 {
					requireDamage(t, (*found)[0])
				} else {
					require.Len(t, got, len(c.want["state"]), "byte %d", at) // a filter, say
				}
				if len(got) > 0 && len(got) < len(c.want["state"]) {
					partial++
				}
				rest := c.want["state"]
				for _, e := range got {
					i := slices.IndexFunc(rest, func(w entry) bool { return bytes.Equal(w.key, e.key) && bytes.Equal(w.value, e.value) })
					require.GreaterOrEqual(t, i, 0, "%x is not live", e.key)
					rest = rest[i+1:]
				}
				// Every other family is whole.
				requireEntries(t, c.want["list"], scan(t, db.Family("list"), nil), "list")
			}
			require.Greater(t, partial, 2)
		})
	}
}

func TestTruncatedTable(t *testing.T) {
	c := subset(t, "frocksdb6/tiny-lz4")
	db, err := incremental.Open(context.Background(), c.files, nil)
	require.NoError(t, err)
	name := db.Family("state").Tables[0].FileName()
	data := content(t, c.source(name))
	for n := range len(data) {
		db, found := tolerant(t, c.with(name, sst.Bytes(data[:n])))
		require.Empty(t, scan(t, db.Family("state"), nil))
		require.Len(t, *found, 1)
		require.ErrorContains(t, (*found)[0], "the file ends here")
	}
}

func TestWrongSizeInHandle(t *testing.T) {
	// Flink restores whatever size the handle has; so the MANIFEST's counts.
	c := subset(t, "frocksdb8/tiny-lz4")
	db, err := incremental.Open(context.Background(), c.files, nil)
	require.NoError(t, err)
	name := db.Family("state").Tables[0].FileName()
	src := c.source(name)
	for _, size := range []int64{0, src.Size() - 1, src.Size() + 1000} {
		db, err := incremental.Open(context.Background(), c.with(name, sized{src, size}), nil)
		require.NoError(t, err)
		requireEntries(t, c.want["state"], scan(t, db.Family("state"), nil), "state")
		var findings []error
		_, err = db.Verify(context.Background(), &incremental.VerifyOptions{OnDamage: func(f incremental.Finding) { findings = append(findings, f.Err) }})
		require.NoError(t, err)
		require.Len(t, findings, 1)
		require.ErrorContains(t, findings[0], "by the MANIFEST")
	}
}

type sized struct {
	sst.Source
	size int64
}

func (s sized) Size() int64 { return s.size }

func TestManifestDamage(t *testing.T) {
	c := subset(t, "frocksdb6/tiny-snappy")
	m := c.named("MANIFEST")
	data := content(t, c.source(m))
	data[len(data)-1] ^= 1
	files := c.with(m, sst.Bytes(data))
	_, err := incremental.Open(context.Background(), files, nil)
	requireDamage(t, err)

	db, found := tolerant(t, files)
	require.Len(t, *found, 1)
	require.False(t, db.FromManifest())
	requireEntries(t, c.want["list"], scan(t, db.Family("list"), nil), "list")
	requireEntries(t, c.want["state"], scan(t, db.Family("state"), nil), "state") // one table, so its range deletions do no harm
}

func TestCurrentChoosesManifest(t *testing.T) {
	c := subset(t, "frocksdb6/tiny-snappy")
	files := append([]incremental.File{{Name: "MANIFEST-000999", Source: sst.Bytes(nil)}}, c.files...)
	db, err := incremental.Open(context.Background(), files, nil)
	require.NoError(t, err)
	requireEntries(t, c.want["state"], scan(t, db.Family("state"), nil), "state")

	_, err = incremental.Open(context.Background(), slices.DeleteFunc(slices.Clone(files), func(f incremental.File) bool { return f.Name == "CURRENT" }), nil)
	require.ErrorContains(t, err, "more than one MANIFEST")
	_, err = incremental.Open(context.Background(), c.with(c.named("MANIFEST"), nil), nil)
	require.ErrorContains(t, err, "names a MANIFEST that the handle does not list")
	_, err = incremental.Open(context.Background(), append(c.files, c.files[0]), nil)
	require.ErrorContains(t, err, "stands twice in the handle")
}

func TestCancelled(t *testing.T) {
	c := subset(t, "frocksdb6/tiny-snappy")
	db, found := tolerant(t, c.files)
	ctx, cancel := context.WithCancel(context.Background())
	it := db.Family("state").Scan(ctx, nil)
	defer it.Close()
	require.True(t, it.Next())
	cancel()
	for it.Next() {
	}
	require.ErrorIs(t, it.Err(), context.Canceled)
	require.False(t, it.Next())
	require.Empty(t, *found)
	_, err := db.Verify(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// TestStaleTableWithoutManifest: a stale table beside its successor cannot be
// told from a live one, and is refused instead of believed.
func TestStaleTableWithoutManifest(t *testing.T) {
	c := subset(t, "frocksdb6/tiny-snappy")
	var files []incremental.File
	for _, f := range c.files {
		if isTable(f.Name) {
			files = append(files, f, incremental.File{Name: "9" + f.Name, Source: f.Source})
		}
	}
	db, err := incremental.Open(context.Background(), files, nil)
	require.NoError(t, err)
	it := db.Family("state").Scan(context.Background(), nil)
	defer it.Close()
	for it.Next() {
	}
	require.ErrorContains(t, it.Err(), "without a MANIFEST the live ones cannot be told")
	_, _, err = db.Family("state").Get(context.Background(), c.want["state"][0].key, nil)
	require.ErrorContains(t, err, "without a MANIFEST the live ones cannot be told")
}

// TestReads counts ranged reads: what a look-up costs on an object store.
func TestReads(t *testing.T) {
	c := subset(t, "frocksdb8/workload-merges")
	ctx := context.Background()
	var sources []*counted
	var files []incremental.File
	for _, f := range c.files {
		s := &counted{Source: f.Source}
		sources = append(sources, s)
		files = append(files, incremental.File{Name: f.Name, Source: s})
	}
	reads := func() (n int) {
		for _, s := range sources {
			n += s.reads
			s.reads = 0
		}
		return n
	}
	db, err := incremental.Open(ctx, files, nil)
	require.NoError(t, err)
	require.Equal(t, 1, reads(), "the MANIFEST")
	f := db.Family("list")
	for _, e := range c.want["list"] {
		_, ok, err := f.Get(ctx, e.key, nil)
		require.NoError(t, err)
		require.True(t, ok)
	}
	// Files up to 64 KiB come whole with their tail, and stay.
	require.LessOrEqual(t, reads(), len(f.Tables))

	db, err = incremental.Open(ctx, files, &incremental.Options{CacheBytes: -1})
	require.NoError(t, err)
	reads()
	_, _, err = db.Family("list").Get(ctx, c.want["list"][5].key, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, reads(), len(f.Tables))
}

func TestBlobSource(t *testing.T) {
	ctx := context.Background()
	store, err := blobstore.Open(ctx, "mem://", nil)
	require.NoError(t, err)
	defer store.Close()
	w, err := store.Create(ctx, "segments", nil)
	require.NoError(t, err)
	defer w.Abort()
	c := subset(t, "frocksdb6/tiny-zstd")
	var files []incremental.File
	off := int64(7)
	_, err = w.Write(make([]byte, off))
	require.NoError(t, err)
	for _, f := range c.files {
		n, err := w.Write(content(t, f.Source))
		require.NoError(t, err)
		files = append(files, incremental.File{Name: f.Name, Source: incremental.BlobSource(store, "segments", off, int64(n))})
		off += int64(n)
	}
	require.NoError(t, w.Commit())
	db, err := incremental.Open(ctx, files, nil)
	require.NoError(t, err)
	for name, want := range c.want {
		requireEntries(t, want, scan(t, db.Family(name), nil), name)
	}
	var b [10]byte
	n, err := incremental.BlobSource(store, "segments", off-3, 10).ReadAt(ctx, b[:], 0)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, io.EOF)
}

func TestKeyGroupBounds(t *testing.T) {
	for _, c := range []struct {
		start, count, max int32
		lower, upper      []byte
	}{
		{0, 128, 128, []byte{0}, []byte{128}},
		{5, 1, 128, []byte{5}, []byte{6}},
		{0, 32768, 32768, []byte{0, 0}, []byte{0x80, 0}},
		{200, 57, 300, []byte{0, 200}, []byte{1, 1}},
		{3, 0, 128, []byte{3}, []byte{3}},
	} {
		lower, upper := incremental.KeyGroupBounds(metadata.KeyGroupRange{Start: c.start, Count: c.count}, c.max)
		require.Equal(t, c.lower, lower)
		require.Equal(t, c.upper, upper)
	}
}

// TestConcurrent uses one database from many goroutines, with a cache that drops
// tables while they are in use.
func TestConcurrent(t *testing.T) {
	c := subset(t, "frocksdb8/workload-merges")
	var files []incremental.File
	for _, f := range c.files {
		files = append(files, incremental.File{Name: f.Name, Source: &slow{Source: f.Source}})
	}
	for _, cache := range []int64{-1, 20000, 0} {
		db, err := incremental.Open(context.Background(), files, &incremental.Options{CacheBytes: cache})
		require.NoError(t, err)
		f := db.Family("list")
		want := c.want["list"]
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := g; i < len(want); i += 7 {
					v, ok, err := f.Get(context.Background(), want[i].key, nil)
					if err != nil || !ok || !bytes.Equal(v, want[i].value) {
						t.Error(ok, err)
						return
					}
				}
				it := f.Scan(context.Background(), &incremental.ScanOptions{Lower: want[g].key, ReadAhead: 100})
				defer it.Close()
				n := g
				for it.Next() {
					if !bytes.Equal(it.Key(), want[n].key) || !bytes.Equal(it.Value(), want[n].value) {
						t.Errorf("entry %d differs", n)
						return
					}
					n++
				}
				if it.Err() != nil || n != len(want) {
					t.Error(n, it.Err())
				}
			})
		}
		wg.Wait()
	}
}

// slow hides that a source is in memory.
type slow struct{ sst.Source }
