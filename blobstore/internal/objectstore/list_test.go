package objectstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/blobstore/internal/objectstore"
)

// fakeStore lists names in an order of its own, in pages.
type fakeStore struct {
	names    []string
	less     func(a, b string) int
	pageSize int
	split    bool // prefixes after the objects of a page, as in S3's answers
	skips    bool // the store itself leaves out what is not after startAfter
	asked    []string
}

func (f *fakeStore) page(_ context.Context, prefix string, delimiter bool, startAfter, token string) (objectstore.Page, error) {
	f.asked = append(f.asked, prefix)
	var all []blobstore.Info
	seen := map[string]bool{}
	names := slices.Clone(f.names)
	slices.SortFunc(names, f.less)
	for _, n := range names {
		if !strings.HasPrefix(n, prefix) || f.skips && n <= startAfter {
			continue
		}
		in := blobstore.Info{Name: n, Size: int64(len(n))}
		if i := strings.IndexByte(n[len(prefix):], '/'); delimiter && i >= 0 {
			in = blobstore.Info{Name: n[:len(prefix)+i+1], IsPrefix: true}
		}
		if !seen[in.Name] {
			seen[in.Name] = true
			all = append(all, in)
		}
	}
	from := 0
	if token != "" {
		fmt.Sscan(token, &from)
	}
	to := min(from+f.pageSize, len(all))
	p := objectstore.Page{Entries: all[from:to]}
	if to < len(all) {
		p.Next = fmt.Sprint(to)
	}
	if f.split {
		slices.SortStableFunc(p.Entries, func(a, b blobstore.Info) int {
			if a.IsPrefix == b.IsPrefix {
				return 0
			}
			if a.IsPrefix {
				return 1
			}
			return -1
		})
	}
	return p, nil
}

func (f *fakeStore) lister(sort bool) *objectstore.Lister {
	return &objectstore.Lister{Page: f.page, Sort: sort, Op: func(err error) error {
		return &blobstore.Error{Op: "list", URL: "fake://x", Err: err}
	}}
}

func collect(t require.TestingT, l *objectstore.Lister, o *blobstore.ListOptions) []string {
	out := []string{}
	for in, err := range l.List(context.Background(), o) {
		require.NoError(t, err)
		out = append(out, in.Name)
	}
	return out
}

// hierarchical is the order of Azure's hierarchical namespaces: "/" before all else.
func hierarchical(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

func TestListAgreesWithMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "b", "a-", "a.", "a!", "é", "日", "a b", "z"})
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
		})
		f := &fakeStore{
			names:    slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(name, 0, 30).Draw(t, "names")))),
			pageSize: rapid.IntRange(1, 7).Draw(t, "page"),
			split:    rapid.Bool().Draw(t, "split"),
			skips:    rapid.Bool().Draw(t, "skips"),
			less:     strings.Compare,
		}
		sort := rapid.Bool().Draw(t, "sort")
		if sort && rapid.Bool().Draw(t, "hierarchical") {
			f.less, f.skips = hierarchical, false
		}
		model := blobstore.NewMem()
		for _, n := range f.names {
			w, err := model.Create(context.Background(), n, nil)
			require.NoError(t, err)
			require.NoError(t, w.Commit())
		}
		edge := func(label string) string {
			n := name.Draw(t, label)
			return n[:rapid.IntRange(0, len(n)).Draw(t, label+" cut")] + rapid.SampledFrom([]string{"", "/", "-", "\xff"}).Draw(t, label+" end")
		}
		o := &blobstore.ListOptions{Prefix: edge("prefix"), StartAfter: edge("start"), Delimiter: rapid.Bool().Draw(t, "delimiter")}
		want := []string{}
		for in, err := range model.List(context.Background(), o) {
			require.NoError(t, err)
			want = append(want, in.Name)
		}
		require.Equal(t, want, collect(t, f.lister(sort), o))
	})
}

func TestListOutOfOrderIsAnError(t *testing.T) {
	f := &fakeStore{names: []string{"a/x", "a-b", "a"}, less: hierarchical, pageSize: 1}
	var err error
	for _, err = range f.lister(false).List(t.Context(), nil) {
		if err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "list=sort")
	require.Equal(t, []string{"a", "a-b", "a/x"}, collect(t, f.lister(true), nil))
}

func TestListLeavesOutMarkers(t *testing.T) {
	f := &fakeStore{names: []string{"chk-1/x", "b//c", "./d", "e"}, less: strings.Compare, pageSize: 10}
	l := f.lister(false)
	page := l.Page
	l.Page = func(ctx context.Context, prefix string, delimiter bool, startAfter, token string) (objectstore.Page, error) {
		p, err := page(ctx, prefix, delimiter, startAfter, token)
		p.Entries = append(p.Entries, blobstore.Info{Name: "chk-1/"}, blobstore.Info{Name: "other"})
		return p, err
	}
	require.Equal(t, []string{"chk-1/x", "e", "other"}, collect(t, l, nil))
	require.Equal(t, []string{"chk-1/x"}, collect(t, l, &blobstore.ListOptions{Prefix: "chk-1/"}), "the server's folding of a prefix is not trusted")
}

func TestListPrefixThatIsNotUTF8(t *testing.T) {
	f := &fakeStore{names: []string{"é1", "è"}, less: strings.Compare, pageSize: 10}
	require.Equal(t, []string{"è", "é1"}, collect(t, f.lister(false), &blobstore.ListOptions{Prefix: "\xc3"}), "half a character")
	require.Equal(t, []string{"é1"}, collect(t, f.lister(false), &blobstore.ListOptions{StartAfter: "\xc3\xa8\xff"}))
	f.asked = nil
	require.Empty(t, collect(t, f.lister(false), &blobstore.ListOptions{Prefix: "\xff"}))
	require.Empty(t, f.asked, "no name can begin so")
}

func TestListErrorAndEndlessPage(t *testing.T) {
	broken := errors.New("broken")
	l := &objectstore.Lister{Op: func(err error) error { return err }}
	for name, c := range map[string]struct {
		page func(token string) (objectstore.Page, error)
		want string
	}{
		"error":     {func(string) (objectstore.Page, error) { return objectstore.Page{}, broken }, "broken"},
		"same page": {func(string) (objectstore.Page, error) { return objectstore.Page{Next: "1"}, nil }, "again"},
	} {
		t.Run(name, func(t *testing.T) {
			l.Page = func(_ context.Context, _ string, _ bool, _, token string) (objectstore.Page, error) {
				return c.page(token)
			}
			for _, sort := range []bool{false, true} {
				l.Sort = sort
				var last error
				n := 0
				for _, last = range l.List(t.Context(), nil) {
					n++
				}
				require.ErrorContains(t, last, c.want)
				require.Equal(t, 1, n)
			}
		})
	}
}
