package blobstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// dirMemory bounds, in bytes, what is held of the names of one directory. A
// variable for the tests.
var dirMemory = 16 << 20

// dirEntry says of what kind a name is, as far as the directory tells.
type entryKind uint8

const (
	kindFile entryKind = iota
	kindDir
	kindLink
	kindSkip // sockets, pipes, devices
)

func kindOf(m fs.FileMode) entryKind {
	switch {
	case m.IsRegular():
		return kindFile
	case m.IsDir():
		return kindDir
	case m&fs.ModeSymlink != 0:
		return kindLink
	}
	return kindSkip
}

// dirReader reads one open directory. There is one for Linux, which reads names
// without an allocation each and looks at files relative to the directory, and a
// portable one.
type dirReader interface {
	// each calls f with each entry, from the beginning, in no order. The name is
	// only valid during the call.
	each(f func(name []byte, kind entryKind) error) error
	// stat is of a regular file, not following links; any other kind, or a file
	// that is gone, is not ok.
	stat(name string) (size int64, mtime time.Time, inode uint64, ok bool, err error)
	// child opens a directory in this one, not following links.
	child(name string) (dirReader, error)
	close()
}

type walker struct {
	s     *localStore
	ctx   context.Context
	root  files
	fold  bool // Delimiter
	temp  bool // temporary files only, else all others
	yield func(Info, error) bool
	buf   []byte
}

// errStop ends a walk whose consumer wants no more.
var errStop = errors.New("stop")

func (s *localStore) walk(ctx context.Context, o ListOptions, temp bool) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		w := &walker{s: s, ctx: ctx, fold: o.Delimiter, temp: temp, yield: yield}
		if err := w.start(o); err != nil && err != errStop {
			yield(Info{}, s.fail("list", strings.TrimSuffix(o.Prefix, "/"), err))
		}
	}
}

func (w *walker) start(o ListOptions) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	// The directory in which all matching names lie, and how they begin in it.
	cut := strings.LastIndexByte(o.Prefix, '/') + 1
	base, begin := o.Prefix[:cut], o.Prefix[cut:]
	dir := "."
	if base != "" {
		if dir = base[:cut-1]; checkLocal(dir) != nil {
			return nil // no name begins so
		}
	}
	after, any := below(o.StartAfter, base)
	if !any {
		return nil
	}
	var err error
	if w.root, err = w.s.files(false); err != nil {
		return noneIfAbsent(err)
	}
	defer w.root.Close()
	f, err := openDir(w.root, dir)
	if err != nil {
		return noneIfAbsent(err)
	}
	d := newDirReader(w.root, f, dir)
	defer d.close()
	return w.dir(d, base, begin, after)
}

func noneIfAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// below gives the part of after that bounds the names in the directory base ("" or
// ending in "/"); false if all of them sort before after.
func below(after, base string) (string, bool) {
	if rest, ok := strings.CutPrefix(after, base); ok {
		return rest, true
	}
	return "", after < base
}

// dir yields what lies in one directory, whose names begin with base: only names
// that begin with begin, and sort after after.
//
// The order of full names is that of the entries' own names if "/" is put behind
// each directory's: a-b, a.c, a/x. A directory of any size is read in bounded
// memory: when it does not fit, the smallest names are kept, and it is read again
// for those that follow. A name that is there all the time is found exactly once,
// whatever comes and goes meanwhile.
func (w *walker) dir(d dirReader, base, begin, after string) error {
	last := "" // all up to it are done; no entry is ""
	for more := true; more; {
		var b batch
		n := 0
		err := d.each(func(name []byte, kind entryKind) error {
			if n++; n%4096 == 0 {
				if err := w.ctx.Err(); err != nil {
					return err
				}
			}
			if kind == kindSkip || len(name) < len(begin) || string(name[:len(begin)]) != begin {
				return nil
			}
			if kind != kindDir && isTemporary(name) != w.temp {
				return nil
			}
			b.add(name, kind, last, after, w.fold)
			return nil
		})
		if noneIfAbsent(err) == nil {
			err = nil // it was removed since it was opened, and so held nothing more
		}
		if err != nil {
			return w.s.fail("list", strings.TrimSuffix(base, "/"), err)
		}
		b.sort()
		for i := range b.refs {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			full := w.join(base, b.key(b.refs[i]))
			if err := w.entry(d, full, len(base), b.refs[i].kind, after); err != nil {
				return err
			}
		}
		if more = b.full; more {
			last = string(b.key(b.refs[len(b.refs)-1]))
		}
	}
	return nil
}

// join makes a name with one allocation.
func (w *walker) join(base string, key []byte) string {
	w.buf = append(append(w.buf[:0], base...), key...)
	return string(w.buf)
}

// entry yields one file, or what is in one directory; name ends in "/" then. Its own
// part begins at own.
func (w *walker) entry(d dirReader, name string, own int, kind entryKind, after string) error {
	key := name[own:]
	switch kind {
	case kindDir:
		if w.fold {
			return w.send(Info{Name: name, IsPrefix: true})
		}
		c, err := d.child(key[:len(key)-1])
		if err != nil {
			if key == "lost+found/" && errors.Is(err, fs.ErrPermission) {
				return nil // at the top of a volume, root's alone
			}
			return w.s.fail("list", name[:len(name)-1], noneIfAbsent(err))
		}
		defer c.close()
		rest, _ := below(after, key) // not before after: it would not be here
		return w.dir(c, name, "", rest)
	case kindLink:
		fi, err := w.root.Stat(name)
		if err != nil || !fi.Mode().IsRegular() {
			w.skipLink(name, fi, err)
			return nil
		}
		return w.send(w.s.info(name, fi))
	default:
		size, mtime, inode, ok, err := d.stat(key)
		if err != nil || !ok {
			return w.s.fail("list", name, err)
		}
		return w.send(Info{Name: name, Size: size, ModTime: mtime, ETag: fileETag(mtime.UnixNano(), size, inode)})
	}
}

func (w *walker) skipLink(name string, fi fs.FileInfo, err error) {
	if w.s.logger == nil {
		return
	}
	reason := "leads to a special file"
	switch {
	case err != nil:
		reason = localError(err).Error()
	case fi.IsDir():
		reason = "leads to a directory"
	}
	w.s.logger.Warn("symbolic link not listed", "link", joinURL(w.s.URL(), name), "reason", reason)
}

func (w *walker) send(i Info) error {
	if !w.yield(i, nil) {
		return errStop
	}
	return nil
}

// batch holds the smallest names of a directory, packed: the bytes in blocks that
// are never moved as a whole, eight bytes of reference for each.
type batch struct {
	blocks [][]byte // blockSize each; no key crosses from one to the next
	end    uint32   // offset after the last key
	refs   []ref
	bound  []byte // if full: keys at and after it were left out
	full   bool
}

type ref struct {
	off  uint32 // bytes from the start of the first block
	len  uint16
	kind entryKind
}

const (
	blockBits = 16
	blockSize = 1 << blockBits
)

func (b *batch) key(r ref) []byte {
	o := r.off & (blockSize - 1)
	return b.blocks[r.off>>blockBits][o : o+uint32(r.len)]
}

// add takes a name if its key lies after last and is to be listed after after.
func (b *batch) add(name []byte, kind entryKind, last, after string, fold bool) {
	n := len(name)
	if kind == kindDir {
		n++
	}
	if n > 1<<12 { // no system has such names
		return
	}
	off := b.end
	if off&(blockSize-1)+uint32(n) > blockSize {
		off = (off + blockSize - 1) &^ (blockSize - 1)
	}
	if int(off>>blockBits) == len(b.blocks) {
		b.blocks = append(b.blocks, make([]byte, blockSize))
	}
	r := ref{off, uint16(n), kind}
	key := b.key(r)
	copy(key, name)
	if kind == kindDir {
		key[n-1] = '/'
	}
	if last != "" && string(key) <= last || b.full && bytes.Compare(key, b.bound) >= 0 {
		return
	}
	if after != "" && string(key) <= after &&
		(fold || kind != kindDir || !strings.HasPrefix(after, string(key))) {
		return
	}
	b.refs = append(b.refs, r)
	b.end = off + uint32(n)
	if int(b.end)+8*len(b.refs) > dirMemory && len(b.refs) > 1 {
		b.halve()
	}
}

func (b *batch) sort() {
	slices.SortFunc(b.refs, func(x, y ref) int { return bytes.Compare(b.key(x), b.key(y)) })
}

// halve keeps the smaller half of the keys. Sliding them down in the order in which
// they lie never overwrites one that is still to be moved.
func (b *batch) halve() {
	b.sort()
	half := len(b.refs) / 2
	b.bound, b.full = bytes.Clone(b.key(b.refs[half])), true
	b.refs = b.refs[:half]
	slices.SortFunc(b.refs, func(x, y ref) int { return int(int64(x.off) - int64(y.off)) })
	b.end = 0
	for i, r := range b.refs {
		off := b.end
		if off&(blockSize-1)+uint32(r.len) > blockSize {
			off = (off + blockSize - 1) &^ (blockSize - 1)
		}
		to := ref{off, r.len, r.kind}
		copy(b.key(to), b.key(r))
		b.refs[i] = to
		b.end = off + uint32(r.len)
	}
}

// portableDir is a dirReader by the os package alone.
type portableDir struct {
	root files
	f    *os.File
	name string // "." or a path below root
}

func (d *portableDir) each(f func(name []byte, kind entryKind) error) error {
	if _, err := d.f.Seek(0, 0); err != nil {
		return err
	}
	for {
		entries, err := d.f.ReadDir(256)
		for _, e := range entries {
			if err := f([]byte(e.Name()), kindOf(e.Type())); err != nil {
				return err
			}
		}
		if len(entries) == 0 || err != nil {
			if err == nil || err == io.EOF {
				return nil
			}
			return err
		}
	}
}

func (d *portableDir) path(name string) string { return path.Join(d.name, name) }

func (d *portableDir) stat(name string) (size int64, mtime time.Time, ino uint64, ok bool, err error) {
	fi, err := d.root.Lstat(d.path(name))
	if err != nil {
		return 0, time.Time{}, 0, false, noneIfAbsent(err)
	}
	return fi.Size(), fi.ModTime(), inode(fi), fi.Mode().IsRegular(), nil
}

func (d *portableDir) child(name string) (dirReader, error) {
	p := d.path(name)
	if fi, err := d.root.Lstat(p); err != nil {
		return nil, err
	} else if !fi.IsDir() {
		return nil, syscall.ENOTDIR
	}
	f, err := openDir(d.root, p)
	if err != nil {
		return nil, err
	}
	return &portableDir{d.root, f, p}, nil
}

func (d *portableDir) close() { d.f.Close() }
