package objectstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/blobstore"
)

// Page is one answer of a store: objects and common prefixes in any order.
type Page struct {
	Entries []blobstore.Info
	Next    string // token of the next page, "" after the last
}

// Lister lists one store.
type Lister struct {
	// Page gets the page of token ("" for the first) of the names that begin with
	// prefix and sort after startAfter. A driver whose store cannot skip names may
	// give those too. Its errors are *blobstore.Error.
	Page func(ctx context.Context, prefix string, delimiter bool, startAfter, token string) (Page, error)
	// Sort is for a store whose pages do not come in the order of bytes: each
	// folder is then read whole before its first name is given.
	Sort bool
	// Op wraps an error of the listing itself.
	Op func(err error) error
	// Logger is told of names that no Store can have; nil: not.
	Logger *slog.Logger
}

var (
	errOrder    = errors.New("the store does not list names in the order of their bytes: add list=sort to its URL")
	errSamePage = errors.New("the store gives the same page of the listing again")
)

// List is blobstore.Store.List.
func (l *Lister) List(ctx context.Context, opts *blobstore.ListOptions) iter.Seq2[blobstore.Info, error] {
	var o blobstore.ListOptions
	if opts != nil {
		o = *opts
	}
	return func(yield func(blobstore.Info, error) bool) {
		if _, possible := validPart(o.Prefix); !possible && ctx.Err() == nil {
			return // stores have no such names, and some do not like to be asked
		}
		switch {
		case !l.Sort:
			l.stream(ctx, o, yield)
		case o.Delimiter:
			l.level(ctx, o.Prefix, o.StartAfter, func(in blobstore.Info, err error) bool {
				if err == nil && in.Name <= o.StartAfter {
					return true
				}
				return yield(in, err)
			})
		default:
			l.walk(ctx, o.Prefix, o.StartAfter, yield)
		}
	}
}

// stream gives the names page by page. Objects and prefixes of a page are merged
// here; that the pages follow each other in order is checked.
func (l *Lister) stream(ctx context.Context, o blobstore.ListOptions, yield func(blobstore.Info, error) bool) {
	last, first, token := "", true, ""
	prefix, _ := validPart(o.Prefix)
	startAfter, _ := validPart(o.StartAfter)
	for {
		page, err := l.Page(ctx, prefix, o.Delimiter, startAfter, token)
		if err != nil {
			yield(blobstore.Info{}, err)
			return
		}
		sortByName(page.Entries)
		for _, in := range page.Entries {
			if !l.wanted(in, o.Prefix) || in.Name <= o.StartAfter && o.StartAfter != "" {
				continue
			}
			if !first && in.Name <= last {
				if in.Name == last && in.IsPrefix {
					continue // a store may give a prefix at the end of one page and the start of the next
				}
				yield(blobstore.Info{}, l.Op(errOrder))
				return
			}
			last, first = in.Name, false
			if !yield(in, nil) {
				return
			}
		}
		if page.Next == "" {
			return
		}
		if page.Next == token {
			yield(blobstore.Info{}, l.Op(errSamePage))
			return
		}
		token = page.Next
	}
}

// level gives one folder in order. It returns false after an error or when yield
// wants no more.
func (l *Lister) level(ctx context.Context, prefix, startAfter string, yield func(blobstore.Info, error) bool) bool {
	var all []blobstore.Info
	token := ""
	asked, _ := validPart(prefix)
	for {
		page, err := l.Page(ctx, asked, true, "", token)
		if err != nil {
			yield(blobstore.Info{}, err)
			return false
		}
		for _, in := range page.Entries {
			// A prefix that sorts before startAfter may hold names that sort after it.
			if l.wanted(in, prefix) && (in.Name > startAfter || in.IsPrefix && strings.HasPrefix(startAfter, in.Name)) {
				all = append(all, in)
			}
		}
		if page.Next == "" {
			break
		}
		if page.Next == token {
			yield(blobstore.Info{}, l.Op(errSamePage))
			return false
		}
		token = page.Next
	}
	sortByName(all)
	all = slices.CompactFunc(all, func(a, b blobstore.Info) bool { return a.Name == b.Name })
	for _, in := range all {
		if !yield(in, nil) {
			return false
		}
	}
	return true
}

// walk gives all names below prefix, folder by folder. What a prefix folds sorts
// together, and where the prefix itself would.
func (l *Lister) walk(ctx context.Context, prefix, startAfter string, yield func(blobstore.Info, error) bool) bool {
	return l.level(ctx, prefix, startAfter, func(in blobstore.Info, err error) bool {
		if err == nil && in.IsPrefix {
			return l.walk(ctx, in.Name, startAfter, yield)
		}
		return yield(in, err)
	})
}

// wanted says whether in has a name that a Store can have. Others are the folder
// markers of consoles and of Hadoop, "chk-1/", and rarely names such as "a//b".
func (l *Lister) wanted(in blobstore.Info, prefix string) bool {
	if !strings.HasPrefix(in.Name, prefix) {
		return false
	}
	name := in.Name
	if in.IsPrefix {
		name = strings.TrimSuffix(name, "/")
	} else if strings.HasSuffix(name, "/") && in.Size == 0 {
		return false
	}
	if CheckName(name) == nil {
		return true
	}
	if l.Logger != nil {
		l.Logger.Warn("object with a name that cannot be used is left out", "name", in.Name)
	}
	return false
}

// validPart gives s up to its first byte that is NUL or not UTF-8, and whether a
// valid name can begin with s: it may end in the middle of a character.
func validPart(s string) (part string, possible bool) {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0:
			return s[:i], false
		case r == utf8.RuneError && n == 1:
			return s[:i], !utf8.FullRuneInString(s[i:])
		}
		i += n
	}
	return s, true
}

func sortByName(in []blobstore.Info) {
	byName := func(a, b blobstore.Info) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(in, byName) {
		slices.SortFunc(in, byName)
	}
}
