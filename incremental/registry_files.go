package incremental

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// none is no file.
const none = int32(-1)

// filePhase is what became of a file.
type filePhase uint8

const (
	fileNew      filePhase = iota // interned, no checkpoint has it yet
	fileLive                      // some checkpoint has it
	fileDoomed                    // nobody needs it
	fileDeleting                  // nobody needs it and its deletion has been handed out
)

// fileTable numbers files. A number is used again once its file is gone.
//
// A file is its folder and its name in it, since a checkpoint's files lie in few
// folders. Folders are compared by blobstore.Location.Key, so that s3a://b/x and
// s3://b/x are one file.
type fileTable struct {
	own     []blobstore.Location // folders whose files may be deleted; none: all may
	byName  map[fileName]int32
	files   []fileRecord
	free    []int32
	dirs    []dirRecord
	freeDir []int32
	byKey   map[string]int32 // Key of a folder
	byPath  map[string]int32 // a folder as handles write it
}

type fileName struct {
	dir  int32
	base string
}

type fileRecord struct {
	base     string
	since    int64 // the oldest checkpoint that named it; -1 unknown
	dir      int32
	logical  int32 // the last registered identity, see identityTable; none
	attempts int32 // of deleting it
	phase    filePhase
	isMeta   bool // a metadata object
	foreign  bool // not ours to delete
}

type dirRecord struct {
	loc   blobstore.Location
	files int32
	own   bool // it lies in one of fileTable.own
	// snapshot: a metadata object lies in it, so that it is removed when empty.
	snapshot bool
	paths    []string // in byPath
}

func (t *fileTable) init() {
	t.byName, t.byKey, t.byPath = map[fileName]int32{}, map[string]int32{}, map[string]int32{}
}

func (t *fileTable) at(f int32) *fileRecord { return &t.files[f] }

func (t *fileTable) location(f int32) blobstore.Location {
	r := &t.files[f]
	return t.dirs[r.dir].loc.Join(r.base)
}

// find gives the number of a file, none if it has none.
func (t *fileTable) find(loc blobstore.Location) int32 {
	d, ok := t.byKey[loc.Dir().Key()]
	if !ok {
		return none
	}
	if f, ok := t.byName[fileName{d, loc.Base()}]; ok {
		return f
	}
	return none
}

// intern gives the number of a file, a new one if it has none.
func (t *fileTable) intern(loc blobstore.Location) int32 {
	return t.internIn(t.internDir(loc.Dir()), loc.Base())
}

// internDir gives the number of a folder; it lasts until the last file of it is gone.
func (t *fileTable) internDir(loc blobstore.Location) int32 {
	key := loc.Key()
	d, ok := t.byKey[key]
	if !ok {
		loc.Query = "" // may be secret
		rec := dirRecord{loc: loc, own: len(t.own) == 0 || slices.ContainsFunc(t.own, loc.HasPrefix)}
		if n := len(t.freeDir); n > 0 {
			d, t.freeDir = t.freeDir[n-1], t.freeDir[:n-1]
			t.dirs[d] = rec
		} else {
			d = int32(len(t.dirs))
			t.dirs = append(t.dirs, rec)
		}
		t.byKey[key] = d
	}
	return d
}

func (t *fileTable) internIn(d int32, base string) int32 {
	name := fileName{d, base}
	if f, ok := t.byName[name]; ok {
		return f
	}
	name.base = strings.Clone(base) // not to keep a whole metadata object for it
	r := fileRecord{base: name.base, dir: d, since: -1, logical: none, foreign: !t.dirs[d].own}
	t.dirs[d].files++
	var f int32
	if n := len(t.free); n > 0 {
		f, t.free = t.free[n-1], t.free[:n-1]
		t.files[f] = r
	} else {
		f = int32(len(t.files))
		t.files = append(t.files, r)
	}
	t.byName[name] = f
	return f
}

// forget frees a number and gives the folder if it held no other file.
func (t *fileTable) forget(f int32) (emptied blobstore.Location, snapshot bool) {
	r := t.files[f]
	delete(t.byName, fileName{r.dir, r.base})
	t.files[f] = fileRecord{}
	t.free = append(t.free, f)
	d := &t.dirs[r.dir]
	if d.files--; d.files > 0 {
		return blobstore.Location{}, false
	}
	emptied, snapshot = d.loc, d.snapshot
	delete(t.byKey, d.loc.Key())
	for _, p := range d.paths {
		delete(t.byPath, p)
	}
	*d = dirRecord{}
	t.freeDir = append(t.freeDir, r.dir)
	return emptied, snapshot
}

// written interns the object that a handle outside of a snapshot names; none if it
// names none. Each folder is parsed once.
func (t *fileTable) written(h metadata.StreamHandle) (int32, error) {
	path := string(absolutePath(h))
	i := strings.LastIndexByte(path, '/')
	plain := i > 0 && plainName(path[i+1:])
	if plain {
		if d, ok := t.byPath[path[:i]]; ok {
			return t.internIn(d, path[i+1:]), nil
		}
	}
	loc, ok, err := locationOf(h, nil)
	if err != nil || !ok {
		return none, err
	}
	f := t.intern(loc)
	if plain {
		dir := strings.Clone(path[:i])
		d := t.files[f].dir
		t.byPath[dir] = d
		t.dirs[d].paths = append(t.dirs[d].paths, dir)
	}
	return f, nil
}

// absolutePath is the path of a handle that has an absolute one.
func absolutePath(h metadata.StreamHandle) metadata.String {
	switch h := metadata.Innermost(h).(type) {
	case *metadata.FileHandle:
		return h.Path
	case *metadata.SegmentHandle:
		return h.Path
	}
	return ""
}

// plainName says that a last part of a path means itself.
func plainName(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return s != "" && s != "." && s != ".."
}

// locationOf is the object that a handle names; ok is false if it names none. A
// relative handle is below folder, and an error without one.
func locationOf(h metadata.StreamHandle, folder *blobstore.Location) (loc blobstore.Location, ok bool, err error) {
	var path metadata.String
	switch h := metadata.Innermost(h).(type) {
	case *metadata.FileHandle:
		path = h.Path
	case *metadata.SegmentHandle:
		path = h.Path
	case *metadata.RelativeFileHandle:
		if folder == nil {
			return loc, false, fmt.Errorf("%s: a relative handle outside of a snapshot: %w", h.Path, blobstore.ErrInvalidName)
		}
		name := h.Path.Go()
		if err := blobstore.ValidName(name); err != nil {
			return loc, false, fmt.Errorf("%s: %w", h.Path, err)
		}
		return folder.Join(name), true, nil
	default:
		return loc, false, nil
	}
	if loc, err = blobstore.ParsePath(path.Go()); err == nil && loc.Path == "" {
		err = fmt.Errorf("%s names no file: %w", loc, blobstore.ErrInvalidName)
	}
	return loc, err == nil, err
}

// bitmap is a set of file numbers.
type bitmap []uint64

func (b *bitmap) set(f int32) {
	w := int(f >> 6)
	for len(*b) <= w {
		*b = append(*b, 0)
	}
	(*b)[w] |= 1 << (f & 63)
}

func (b bitmap) clear(f int32) {
	if w := int(f >> 6); w < len(b) {
		b[w] &^= 1 << (f & 63)
	}
}

func (b bitmap) has(f int32) bool { return b.word(int(f>>6))>>(f&63)&1 != 0 }

func (b bitmap) word(w int) uint64 {
	if w < len(b) {
		return b[w]
	}
	return 0
}

// eachBit visits the files of word w.
func eachBit(w int, set uint64, visit func(int32) bool) bool {
	for ; set != 0; set &= set - 1 {
		if !visit(int32(w<<6 + bits.TrailingZeros64(set))) {
			return false
		}
	}
	return true
}

func (b bitmap) each(visit func(int32) bool) bool {
	for w, set := range b {
		if set != 0 && !eachBit(w, set, visit) {
			return false
		}
	}
	return true
}
