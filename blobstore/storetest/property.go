package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
)

// Parts of names for the property test. No leaf is also a folder, so that stores
// with directories can hold any of them, and the two sort in between each other.
var (
	folders = []string{"d", "d-", "d.", "d ", "d1", "dd", "é", "D", "~"}
	leaves  = []string{"d!", "d+", "d,", "d.x", "d0", "d-x", "ddd", "e", "é-", "日", "A", "zz"}
)

// drawName draws a name that the store can have.
func (e *env) drawName(t *rapid.T, label string) string {
	folders := slices.DeleteFunc(slices.Clone(folders), func(f string) bool { return e.opts.SkipName(f+"/x") != "" })
	leaves := e.usable(leaves)
	name := ""
	for range rapid.IntRange(0, 3).Draw(t, label+" depth") {
		name += rapid.SampledFrom(folders).Draw(t, label+" folder") + "/"
	}
	return name + rapid.SampledFrom(leaves).Draw(t, label+" leaf")
}

// drawEdge is a prefix or a start: a piece of a name, or one beside it.
func (e *env) drawEdge(t *rapid.T, label string) string {
	n := e.drawName(t, label)
	n = n[:rapid.IntRange(0, len(n)).Draw(t, label+" cut")]
	return n + rapid.SampledFrom([]string{"", "", "/", "-", "0", "\xff"}).Draw(t, label+" end")
}

var propertyRuns atomic.Int64

// testProperty does the same at random to the store and to a memory store, and
// they must agree.
func testProperty(e *env) {
	rapid.Check(e.T, func(t *rapid.T) {
		ctx := context.Background()
		real := blobstore.Sub(e.Store, fmt.Sprintf("run-%d", propertyRuns.Add(1)))
		model := blobstore.NewMem()
		both := func(what string, f func(blobstore.Store) (any, error)) {
			got, gotErr := f(real)
			want, wantErr := f(model)
			if wantErr == nil {
				require.NoError(t, gotErr, what)
			} else {
				require.Error(t, gotErr, what)
			}
			for _, is := range []error{blobstore.ErrNotExist, blobstore.ErrExist} {
				require.Equal(t, errors.Is(wantErr, is), errors.Is(gotErr, is), "%s: %v", what, gotErr)
			}
			require.Equal(t, want, got, what)
		}
		for range rapid.IntRange(1, 24).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op <= 3:
				name, size := e.drawName(t, "name"), rapid.IntRange(0, 100).Draw(t, "size")
				opts := &blobstore.WriteOptions{IfAbsent: e.exclusive() && rapid.Bool().Draw(t, "if absent")}
				abort := rapid.IntRange(0, 4).Draw(t, "abort") == 0
				both("create "+name, func(s blobstore.Store) (any, error) {
					w, err := s.Create(ctx, name, opts)
					if err != nil {
						return nil, err
					}
					if _, err := w.Write(pattern(int64(size), byte(size))); err != nil {
						return nil, err
					}
					if abort {
						return nil, w.Abort()
					}
					err = w.Commit()
					w.Abort()
					return nil, err
				})
			case op == 4:
				name := e.drawName(t, "name")
				both("delete "+name, func(s blobstore.Store) (any, error) { return nil, s.Delete(ctx, name) })
			case op == 5:
				all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return e.drawName(t, "name") }), 0, 5).Draw(t, "names")
				both("delete all", func(s blobstore.Store) (any, error) { return nil, s.DeleteAll(ctx, all) })
			case op == 6:
				name := e.drawName(t, "name")
				off, n := rapid.Int64Range(0, 120).Draw(t, "offset"), rapid.Int64Range(-1, 120).Draw(t, "length")
				both("read "+name, func(s blobstore.Store) (any, error) {
					r, err := s.OpenRange(ctx, name, off, n)
					if err != nil {
						return nil, err
					}
					defer r.Close()
					b := make([]byte, 200)
					k := 0
					for err == nil && k < len(b) {
						var m int
						m, err = r.Read(b[k:])
						k += m
					}
					return string(b[:k]), nil
				})
			default:
				o := &blobstore.ListOptions{
					Prefix: e.drawEdge(t, "prefix"), StartAfter: e.drawEdge(t, "start"), Delimiter: rapid.Bool().Draw(t, "delimiter"),
				}
				both(fmt.Sprintf("list %+v", *o), func(s blobstore.Store) (any, error) {
					out := []string{}
					for i, err := range s.List(ctx, o) {
						if err != nil {
							return nil, err
						}
						// A folder whose objects are gone is there on stores with directories only.
						if i.IsPrefix && s == real && e.Capabilities().Directories && !holds(ctx, real, i.Name) {
							continue
						}
						out = append(out, fmt.Sprint(i.Name, " ", i.Size))
					}
					return out, nil
				})
			}
		}
		var left []string
		for i, err := range real.List(ctx, nil) {
			require.NoError(t, err)
			left = append(left, i.Name)
		}
		require.True(t, slices.IsSorted(left))
		require.NoError(t, real.DeleteAll(ctx, left))
	})
}

func holds(ctx context.Context, s blobstore.Store, prefix string) bool {
	for range s.List(ctx, &blobstore.ListOptions{Prefix: prefix}) {
		return true
	}
	return false
}
