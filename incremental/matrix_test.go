package incremental_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
)

// A matrix case is a database that testdata/rocksdb-matrix wrote with a real
// RocksDB, and the entries that RocksDB's own iterator showed.
type matrixCase struct {
	dir     string
	options map[string]string
	files   []incremental.File
	want    map[string][]entry // by family
}

type entry struct{ key, value []byte }

func readMatrixCase(t testing.TB, dir string) *matrixCase {
	t.Helper()
	c := &matrixCase{dir: dir, options: map[string]string{}, want: map[string][]entry{}}
	text, err := os.ReadFile(filepath.Join(dir, "case.txt"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		c.options[k] = v
	}
	entries, err := os.ReadDir(filepath.Join(dir, "db"))
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, "db", e.Name()))
		require.NoError(t, err)
		c.files = append(c.files, incremental.File{Name: e.Name(), Source: sst.Bytes(data)})
	}
	f, err := os.Open(filepath.Join(dir, "expected.txt"))
	require.NoError(t, err)
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		parts := strings.Split(sc.Text(), " ")
		require.Len(t, parts, 3)
		b := make([][]byte, 3)
		for i, p := range parts {
			b[i], err = hex.DecodeString(p)
			require.NoError(t, err)
		}
		c.want[string(b[0])] = append(c.want[string(b[0])], entry{b[1], b[2]})
	}
	require.NoError(t, sc.Err())
	return c
}

func scan(t testing.TB, f *incremental.Family, opts *incremental.ScanOptions) []entry {
	t.Helper()
	it := f.Scan(context.Background(), opts)
	defer it.Close()
	var out []entry
	for it.Next() {
		out = append(out, entry{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
	}
	require.NoError(t, it.Err())
	return out
}

func requireEntries(t testing.TB, want, got []entry, what string) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		if !bytes.Equal(want[i].key, got[i].key) || !bytes.Equal(want[i].value, got[i].value) {
			t.Fatalf("%s: entry %d is %x -> %q, want %x -> %q", what, i, got[i].key, clip(got[i].value), want[i].key, clip(want[i].value))
		}
	}
	require.Len(t, got, len(want), what)
}

func clip(b []byte) []byte { return b[:min(len(b), 100)] }

// check compares every way of reading the database with what RocksDB showed.
func (c *matrixCase) check(t *testing.T) {
	ctx := context.Background()
	db, err := incremental.Open(ctx, c.files, &incremental.Options{Name: filepath.Base(c.dir)})
	require.NoError(t, err)
	require.True(t, db.FromManifest())
	names := 0
	for _, f := range db.Families() {
		want := c.want[f.Name]
		if len(want) > 0 {
			names++
		}
		requireEntries(t, want, scan(t, f, nil), f.Name)
		c.checkRanges(t, f, want)
		c.checkLookups(t, f, want)
		c.checkSplit(t, f, want)
	}
	require.Equal(t, len(c.want), names, "families")
	summary, err := db.Verify(ctx, &incremental.VerifyOptions{Workers: 2, OnDamage: func(f incremental.Finding) { t.Error(f.File, f.Family, f.Err) }})
	require.NoError(t, err)
	require.NotZero(t, summary.Tables)
	c.checkTables(t)
	c.checkWithoutManifest(t)
}

func (c *matrixCase) checkRanges(t *testing.T, f *incremental.Family, want []entry) {
	for i := 0; i < len(want); i += 1 + len(want)/15 {
		for j := i; j < len(want); j += 1 + len(want)/7 {
			lower, upper := want[i].key, want[j].key
			requireEntries(t, want[i:j], scan(t, f, &incremental.ScanOptions{Lower: lower, Upper: upper, ReadAhead: 1}), fmt.Sprintf("[%x, %x)", lower, upper))
		}
	}
	it := f.Scan(context.Background(), nil)
	defer it.Close()
	for i := len(want) - 1; i >= 0; i -= 1 + len(want)/20 {
		require.True(t, it.SeekGE(want[i].key))
		require.Equal(t, want[i].key, it.Key())
		require.Equal(t, want[i].value, append([]byte{}, it.Value()...))
		if i+1 < len(want) {
			require.True(t, it.SeekGE(append(bytes.Clone(want[i].key), 0)))
			require.Equal(t, want[i+1].key, it.Key())
		} else {
			require.False(t, it.SeekGE(append(bytes.Clone(want[i].key), 0)))
			require.NoError(t, it.Err())
		}
	}
}

func (c *matrixCase) checkLookups(t *testing.T, f *incremental.Family, want []entry) {
	ctx := context.Background()
	for i, e := range want {
		got, ok, err := f.Get(ctx, e.key, nil)
		require.NoError(t, err)
		require.True(t, ok, "key %x", e.key)
		require.Equal(t, e.value, append([]byte{}, got...), "key %x", e.key)
		absent := append(bytes.Clone(e.key), 0)
		if i+1 == len(want) || !bytes.Equal(want[i+1].key, absent) {
			_, ok, err = f.Get(ctx, absent, nil)
			require.NoError(t, err)
			require.False(t, ok)
		}
	}
	// What is in a table but not live must not be found.
	live := map[string]bool{}
	for _, e := range want {
		live[string(e.key)] = true
	}
	for i := range f.Tables {
		r := c.open(t, &f.Tables[i])
		it := r.NewIter(ctx, nil)
		for ok := it.First(); ok; ok = it.Next() {
			if live[string(it.Key())] {
				continue
			}
			v, ok, err := f.Get(ctx, it.Key(), nil)
			require.NoError(t, err)
			require.False(t, ok, "key %x is dead, found %q", it.Key(), v)
		}
		require.NoError(t, it.Err())
	}
}

func (c *matrixCase) source(name string) sst.Source {
	for _, f := range c.files {
		if f.Name == name {
			return f.Source
		}
	}
	return nil
}

func (c *matrixCase) open(t testing.TB, tb *incremental.Table) *sst.Reader {
	r, err := sst.Open(context.Background(), c.source(tb.FileName()), &sst.Options{Name: tb.FileName(), LargestSeq: tb.LargestSeq, HasLargestSeq: true})
	require.NoError(t, err)
	return r
}

func (c *matrixCase) checkSplit(t *testing.T, f *incremental.Family, want []entry) {
	for _, prefix := range []int{0, 1} {
		keys, err := f.Split(context.Background(), nil, nil, 4, prefix)
		require.NoError(t, err)
		require.LessOrEqual(t, len(keys), 3)
		var got []entry
		var lower []byte
		for _, upper := range append(keys, nil) {
			got = append(got, scan(t, f, &incremental.ScanOptions{Lower: lower, Upper: upper})...)
			lower = upper
		}
		requireEntries(t, want, got, "split")
	}
}

func (c *matrixCase) checkTables(t *testing.T) {
	format, err := strconv.Atoi(c.options["format"])
	require.NoError(t, err)
	for _, f := range c.files {
		if !strings.HasSuffix(f.Name, ".sst") {
			continue
		}
		report, err := sst.Verify(context.Background(), f.Source, &sst.VerifyOptions{
			Options: sst.Options{Name: f.Name}, FormatVersion: uint32(format), OnDamage: func(err error) { t.Error(err) },
		})
		require.NoError(t, err)
		require.Equal(t, f.Source.Size(), report.Bytes)
		// The same through ranged reads of all lengths.
		for _, tail := range []int{60, 1000} {
			src := &counted{Source: f.Source}
			r, err := sst.Open(context.Background(), src, &sst.Options{Name: f.Name, TailBytes: tail})
			require.NoError(t, err)
			it := r.NewIter(context.Background(), &sst.IterOptions{ReadAhead: tail})
			n := uint64(len(r.RangeDels()))
			for ok := it.First(); ok; ok = it.Next() {
				n++
			}
			require.NoError(t, it.Err())
			require.Equal(t, r.Properties().NumEntries, n)
		}
	}
}

// counted hides that a source is in memory, and counts reads.
type counted struct {
	sst.Source
	reads, bytes int
}

func (c *counted) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.Source.ReadAt(ctx, p, off)
}

// checkWithoutManifest reads the tables alone. The view is exact unless range
// deletions have lost their bounds or sequence numbers are known to the MANIFEST only.
func (c *matrixCase) checkWithoutManifest(t *testing.T) {
	ctx := context.Background()
	live := map[string]bool{}
	db, err := incremental.Open(ctx, c.files, nil)
	require.NoError(t, err)
	rangeDels := false
	for _, f := range db.Families() {
		for i := range f.Tables {
			live[f.Tables[i].FileName()] = true
			p, err := f.Properties(ctx, &f.Tables[i])
			require.NoError(t, err)
			rangeDels = rangeDels || p.NumRangeDels > 0
		}
	}
	if rangeDels {
		return
	}
	var files []incremental.File
	for _, f := range c.files {
		if live[f.Name] {
			files = append(files, f)
		}
	}
	db, err = incremental.Open(ctx, files, nil)
	if strings.HasPrefix(c.options["workload"], "ingested") {
		require.ErrorContains(t, err, "outside of the database")
		return
	}
	require.NoError(t, err)
	require.False(t, db.FromManifest())
	for name, want := range c.want {
		f := db.Family(name)
		require.NotNil(t, f, name)
		requireEntries(t, want, scan(t, f, nil), name+" without MANIFEST")
		for _, e := range want {
			got, ok, err := f.Get(ctx, e.key, nil)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, e.value, append([]byte{}, got...))
		}
	}
}

// matrixDirs are the cases below a folder with one folder for each writer.
func matrixDirs(t testing.TB, root string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "*", "*", "case.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	slices.Sort(files)
	for i, f := range files {
		files[i] = filepath.Dir(f)
	}
	return files
}

func runMatrix(t *testing.T, root string) {
	for _, dir := range matrixDirs(t, root) {
		rel, err := filepath.Rel(root, dir)
		require.NoError(t, err)
		t.Run(filepath.ToSlash(rel), func(t *testing.T) { readMatrixCase(t, dir).check(t) })
	}
}

// TestMatrixSubset reads the databases that are committed.
func TestMatrixSubset(t *testing.T) { runMatrix(t, filepath.Join("testdata", "matrix")) }
