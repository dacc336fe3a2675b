package hdfs

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/blobstore"
)

// listing walks the files below a place in the ascending order of the bytes of
// their full names.
type listing struct {
	b      backend
	ctx    context.Context
	opts   blobstore.ListOptions
	hidden func(name string) bool // files to leave out
	yield  func(blobstore.Info, error) bool
}

var errStop = errors.New("the consumer has enough")

// run lists from the deepest folder that the prefix names.
func (l *listing) run() {
	dir := l.opts.Prefix[:strings.LastIndexByte(l.opts.Prefix, '/')+1]
	if dir != "" && checkName(strings.TrimSuffix(dir, "/"), blobstore.ValidName) != nil || !possible(l.opts.Prefix) {
		return // no such folder, and no such name, can be
	}
	if err := l.walk(dir); err != nil && err != errStop {
		l.yield(blobstore.Info{}, err)
	}
}

// walk lists a folder, "" or ending in "/". One that is gone is empty.
func (l *listing) walk(dir string) error {
	prefix := "" // of names in this folder
	if len(dir) < len(l.opts.Prefix) {
		prefix = l.opts.Prefix[len(dir):]
	}
	for s, err := range sortedEntries(l.ctx, l.b, "/"+strings.TrimSuffix(dir, "/"), prefix) {
		if errors.Is(err, blobstore.ErrNotExist) || errors.Is(err, errNotDirectory) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		name := dir + s.name
		switch {
		case s.symlink:
			return fmt.Errorf("/%s: %w", name, errSymlink)
		case !s.dir:
			if strings.HasPrefix(name, l.opts.Prefix) && name > l.opts.StartAfter && !l.hidden(name) && !l.yield(s.info(name), nil) {
				return errStop
			}
		case l.opts.Delimiter:
			name += "/"
			if strings.HasPrefix(name, l.opts.Prefix) && name > l.opts.StartAfter && !l.yield(blobstore.Info{Name: name, IsPrefix: true}, nil) {
				return errStop
			}
		default:
			name += "/"
			// A name below this folder differs from StartAfter within "name" or is
			// compared further down.
			below := name > l.opts.StartAfter || strings.HasPrefix(l.opts.StartAfter, name)
			if below && strings.HasPrefix(name, l.opts.Prefix) {
				if err := l.walk(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// info is the object's Info.
func (s status) info(name string) blobstore.Info {
	return blobstore.Info{Name: name, Size: s.size, ModTime: s.modTime(), ETag: s.etag()}
}

// sortedEntries yields the entries of a directory in ascending order of the bytes
// of name, for a directory of name + "/", which is the order of the full names
// below them. Entries without the prefix may be left out.
//
// The server pages through a directory in the order of *signed* bytes: a name with
// a byte above 127 comes before its ASCII neighbours, and "a" before "a-b" even if
// "a" is a directory. So an entry is held back until no later one can sort before
// it: a file with an ASCII name never, a directory until the names that it is a
// prefix of are past, and one with other bytes until the names that begin with its
// ASCII part are past. Memory is one page and what is held back, which for names
// that Flink makes is next to nothing.
func sortedEntries(ctx context.Context, b backend, dir, prefix string) iter.Seq2[status, error] {
	return func(yield func(status, error) bool) {
		var held entryHeap
		release := func(until string) bool {
			for len(held) > 0 && (until == "" || held[0].settled(until)) {
				if !yield(heap.Pop(&held).(entry).status, nil) {
					return false
				}
			}
			return true
		}
		cursor, last := justBefore(prefix), ""
		for {
			p, err := b.list(ctx, dir, cursor)
			if err != nil {
				yield(status{}, err)
				return
			}
			for _, s := range p.entries {
				if s.name == "" && len(p.entries) == 1 { // dir is a file, which lists itself
					yield(status{}, errNotDirectory)
					return
				}
				// Not after the first cursor: /.reserved begins at the start whatever is asked.
				if err := checkEntry(s.name, last); err != nil {
					yield(status{}, fmt.Errorf("listing %s: %w", dir, err))
					return
				}
				cursor, last = s.name, s.name
				if !strings.HasPrefix(s.name, prefix) {
					if prefix != "" && signedLess(prefix, s.name) {
						release("")
						return // past all names with the prefix
					}
					continue
				}
				e := newEntry(s)
				if len(held) == 0 && e.settled(s.name) {
					if !yield(s, nil) {
						return
					}
					continue
				}
				heap.Push(&held, e)
				if !release(s.name) {
					return
				}
			}
			if !p.more {
				release("")
				return
			}
			if len(p.entries) == 0 {
				yield(status{}, fmt.Errorf("listing %s: an empty page, though more should follow: %w", dir, blobstore.ErrTemporary))
				return
			}
		}
	}
}

// checkEntry refuses what no directory can hold and pages that do not advance.
func checkEntry(name, after string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsRune(name, '/') || !utf8.ValidString(name) {
		return fmt.Errorf("an entry is called %q", name)
	}
	if after != "" && !signedLess(after, name) {
		return fmt.Errorf("%q comes after %q: the server's pages do not advance", name, after)
	}
	return nil
}

// signedLess compares as the namenode does: byte by byte, as Java's signed bytes.
func signedLess(a, b string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return int8(a[i]) < int8(b[i])
		}
	}
	return len(a) < len(b)
}

// justBefore is a cursor below all names with a prefix, and above most others: in
// the server's order names with a common prefix lie together. It is one that every
// server takes, whatever the prefix: made of its start as far as that is the start
// of a name, valid UTF-8 of at most maxPart bytes and without NUL.
func justBefore(prefix string) string {
	prefix = nameStart(prefix)
	n := len(prefix)
	if n == 0 {
		return ""
	}
	if c := prefix[n-1]; c > '!' && c < 0x7f {
		if c--; c == '/' { // a cursor that begins with it means a path
			c--
		}
		return prefix[:n-1] + string(rune(c)) + "~~"
	}
	for n--; n > 0 && !utf8.RuneStart(prefix[n]); n-- {
	}
	return prefix[:n]
}

// nameStart is the longest start of s that a name can have and that ends with a
// whole character.
func nameStart(s string) string {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0 || r == utf8.RuneError && n == 1 || i+n > maxPart {
			return s[:i]
		}
		i += n
	}
	return s
}

// possible says whether a name of HDFS, which is valid UTF-8, can begin with s:
// a prefix may end within a character.
func possible(s string) bool {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return !utf8.FullRuneInString(s[i:])
		}
		i += n
	}
	return true
}

// entry is a directory entry with the text that it is sorted by.
type entry struct {
	status
	key   string
	ascii string // the part of the name before its first byte above 127
}

func newEntry(s status) entry {
	e := entry{status: s, key: s.name, ascii: s.name}
	if s.dir {
		e.key += "/"
	}
	for i := range len(s.name) {
		if s.name[i] >= 0x80 {
			e.ascii = s.name[:i]
			break
		}
	}
	return e
}

// settled says whether all names that the server lists after the one called now,
// which is this entry or a later one, sort after this entry.
func (e *entry) settled(now string) bool {
	allASCII := len(e.ascii) == len(e.name)
	if allASCII && !e.dir {
		return true
	}
	rest, ok := strings.CutPrefix(now, e.ascii)
	return !ok || allASCII && rest != "" && rest[0] > '/' && rest[0] < 0x80
}

type entryHeap []entry

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return h[i].key < h[j].key }
func (h entryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(x any)        { *h = append(*h, x.(entry)) }
func (h *entryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
