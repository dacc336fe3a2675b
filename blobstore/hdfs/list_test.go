package hdfs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

// fakeNames is a backend of names alone, which lists as a namenode does.
type fakeNames struct {
	backend
	pageSize int
	dirs     map[string]map[string]status // absolute path of the directory to its entries
	calls    int
	lie      func(p page) page // what the server says instead; nil: the truth
	beforeOp func(dir string)
}

func newFakeNames(pageSize int, files ...string) *fakeNames {
	f := &fakeNames{pageSize: pageSize, dirs: map[string]map[string]status{"/": {}}}
	for _, n := range files {
		f.add(n)
	}
	return f
}

func (f *fakeNames) add(name string) {
	p := "/" + name
	f.dirs[path.Dir(p)] = entryOf(f.dirs[path.Dir(p)], status{name: path.Base(p), size: int64(len(name))})
	for p = path.Dir(p); p != "/"; p = path.Dir(p) {
		f.dirs[path.Dir(p)] = entryOf(f.dirs[path.Dir(p)], status{name: path.Base(p), dir: true})
	}
}

func entryOf(m map[string]status, s status) map[string]status {
	if m == nil {
		m = map[string]status{}
	}
	m[s.name] = s
	return m
}

func (f *fakeNames) list(_ context.Context, dir, after string) (page, error) {
	f.calls++
	if err := acceptable(after); err != nil {
		return page{}, err
	}
	if f.beforeOp != nil {
		f.beforeOp(dir)
	}
	m, ok := f.dirs[dir]
	if !ok {
		return page{}, blobstore.ErrNotExist
	}
	var all []status
	for _, s := range m {
		if after == "" || signedLess(after, s.name) {
			all = append(all, s)
		}
	}
	sort.Slice(all, func(i, j int) bool { return signedLess(all[i].name, all[j].name) })
	p := page{entries: all[:min(f.pageSize, len(all))], more: len(all) > f.pageSize}
	if f.lie != nil {
		p = f.lie(p)
	}
	return p, nil
}

// acceptable refuses what a namenode or its web server refuses as a cursor, or
// takes for something else.
func acceptable(after string) error {
	switch {
	case !utf8.ValidString(after):
		return fmt.Errorf("HTTP status 400: %q is not UTF-8", after)
	case strings.ContainsRune(after, 0) || strings.HasPrefix(after, "/"):
		return fmt.Errorf("the cursor %q", after)
	case len(after) > maxPart+2:
		return fmt.Errorf("HTTP status 414: a cursor of %d bytes", len(after))
	}
	return nil
}

func listAll(t *testing.T, b backend, o blobstore.ListOptions) []string {
	t.Helper()
	out := []string{}
	l := listing{b: b, ctx: t.Context(), opts: o, hidden: blobstore.IsTemporaryName, yield: func(i blobstore.Info, err error) bool {
		require.NoError(t, err)
		out = append(out, i.Name)
		return true
	}}
	l.run()
	return out
}

// Names made of these sort differently as signed and unsigned bytes, and before
// and after the "/" of a directory.
var pieces = []string{"a", "b", "-", "0", "!", "~", "é", "日", "\U0010ffff", ".", "aa"}

func TestListingMatchesASortedSet(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		word := func(most int) string {
			s := ""
			for range 1 + rnd.IntN(most) {
				s += pieces[rnd.IntN(len(pieces))]
			}
			if s == "." || s == ".." {
				return "x"
			}
			return s
		}
		set := map[string]bool{}
		for range rnd.IntN(60) {
			n := word(3)
			for range rnd.IntN(3) {
				n += "/" + word(2)
			}
			set[n] = true
		}
		for n := range set { // a file is no directory
			for d := path.Dir(n); d != "."; d = path.Dir(d) {
				delete(set, d)
			}
		}
		f := newFakeNames(1 + rnd.IntN(7))
		mem := blobstore.NewMem()
		for n := range set {
			f.add(n)
			put := func() error {
				w, err := mem.Create(t.Context(), n, nil)
				if err != nil {
					return err
				}
				return w.Commit()
			}
			require.NoError(t, put())
		}
		edge := func() string {
			s := word(2)
			if rnd.IntN(2) == 0 {
				s += "/" + word(1)
			}
			return s[:rnd.IntN(len(s)+1)] + []string{"", "", "/", "\xff", "-", "\x00", "\xc3", "é", strings.Repeat("z", 300)}[rnd.IntN(9)]
		}
		for range 20 {
			o := blobstore.ListOptions{Delimiter: rnd.IntN(2) == 0}
			if rnd.IntN(3) > 0 {
				o.Prefix = edge()
			}
			if rnd.IntN(3) > 0 {
				o.StartAfter = edge()
			}
			want := []string{}
			for i, err := range mem.List(t.Context(), &o) {
				require.NoError(t, err)
				want = append(want, i.Name)
			}
			require.Equal(t, want, listAll(t, f, o), "seed %d: %+q", seed, o)
		}
	}
}

// A prefix leads straight to its place: the pages before it are not fetched.
func TestListingSeeksToThePrefix(t *testing.T) {
	f := newFakeNames(10)
	for i := range 1000 {
		f.add(fmt.Sprintf("chk-%03d", i))
	}
	require.Len(t, listAll(t, f, blobstore.ListOptions{Prefix: "chk-99"}), 10)
	require.LessOrEqual(t, f.calls, 3)
}

// What is held back stays small for names as Flink makes them.
func TestListingHoldsLittleBack(t *testing.T) {
	f := newFakeNames(100)
	f.add("shared/x") // a directory before many names that begin with its own
	for i := range 2000 {
		f.add(fmt.Sprintf("shared%05d", i))
		f.add(fmt.Sprintf("shared-%05d", i))
	}
	seen, fetched := 0, 0
	f.beforeOp = func(string) { fetched = f.calls * 100 }
	for _, err := range sortedEntries(t.Context(), f, "/", "") {
		require.NoError(t, err)
		seen++
		require.LessOrEqual(t, fetched-seen, 101)
	}
	require.Equal(t, 4001, seen)
}

func TestListingOfDirectoryThatGoesAway(t *testing.T) {
	f := newFakeNames(10, "a/1", "b/1", "c/1")
	f.beforeOp = func(dir string) {
		if dir == "/a" {
			delete(f.dirs, "/b")
		}
	}
	require.Equal(t, []string{"a/1", "c/1"}, listAll(t, f, blobstore.ListOptions{}))
}

func TestListingRefusesBadPages(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(page) page
		want string
	}{
		"page one for ever":    {func(page) page { return page{entries: []status{{name: "a"}, {name: "b"}}, more: true} }, "do not advance"},
		"empty page, but more": {func(page) page { return page{more: true} }, "an empty page"},
		"out of order":         {func(p page) page { slices.Reverse(p.entries); return p }, "do not advance"},
		"the same name twice":  {func(p page) page { p.entries = append(p.entries, p.entries[2]); return p }, "do not advance"},
		"name with a slash":    {func(p page) page { p.entries[0].name = "../x"; return p }, `"../x"`},
		"name dot-dot":         {func(p page) page { p.entries[0].name = ".."; return p }, `".."`},
		"empty name":           {func(p page) page { p.entries[0].name = ""; return p }, `""`},
		"not UTF-8":            {func(p page) page { p.entries[0].name = "\xff"; return p }, `"\xff"`},
		"symbolic link":        {func(p page) page { p.entries[0].symlink = true; return p }, "symbolic"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNames(10, "a", "b", "c")
			f.lie = c.lie
			var last error
			l := listing{b: f, ctx: t.Context(), hidden: func(string) bool { return false },
				yield: func(_ blobstore.Info, err error) bool { last = err; return true }}
			l.run()
			require.ErrorContains(t, last, c.want)
			require.LessOrEqual(t, f.calls, 2)
		})
	}
}

func TestCursorIsBelowThePrefix(t *testing.T) {
	for _, prefix := range []string{
		"a", "chk-1", "0", "00", "!", "\x01", "é", "日本", "aé", "a\x7f", "~", ":", "a/"[:1],
		"\xc3", "a\xc3", "é\xc3", "\xe6\x97", "x\xe6\x97", "\x00", "a\x00", "a\x00b", "\U0010ffff", "\U0010ffff\xf4\x8f",
		strings.Repeat("n", 255), strings.Repeat("n", 256), strings.Repeat("é", 127) + "a\xc3", strings.Repeat("é", 200), strings.Repeat("0", 1<<20),
	} {
		c := justBefore(prefix)
		require.True(t, c == "" || signedLess(c, prefix), "%q is not below %q", c, prefix)
		require.NoError(t, acceptable(c), "%q", prefix)
		require.True(t, possible(prefix))
	}
	for _, prefix := range []string{"\xff", "\xc3-", "a\xc3\xc3", "\x80", "é\xe6-\x97", "\xed\xa0\x80", "\xf4\x90"} {
		require.False(t, possible(prefix), "%q", prefix)
	}
}
