package snapshot

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// writtenDir is a folder as absolute handles write it, with a few of the files
// they name in it.
type writtenDir struct {
	raw     string
	handles int
	samples []string // names, raw; the first ones and the last
}

const maxSamples = 3

// writtenDirs collects the folders that handles name, at most maxPlaces of them;
// more says that there are others.
func writtenDirs(c *metadata.Checkpoint) (absolute []*writtenDir, relative []string, files int) {
	abs := map[string]*writtenDir{}
	rel := map[string]bool{}
	var last *writtenDir
	for _, h := range c.StreamHandles() {
		var raw string
		files++
		switch h := h.(type) {
		case *metadata.FileHandle:
			raw = string(h.Path)
		case *metadata.SegmentHandle:
			raw = string(h.Path)
		case *metadata.RelativeFileHandle:
			if i := strings.LastIndexByte(string(h.Path), '/'); i >= 0 && len(rel) < maxPlaces {
				rel[string(h.Path[:i])] = true
			}
			continue
		default:
			files--
			continue
		}
		i := strings.LastIndexByte(raw, '/')
		if i < 0 {
			continue
		}
		d := last
		if d == nil || d.raw != raw[:i] {
			if d = abs[raw[:i]]; d == nil {
				if len(abs) >= maxPlaces {
					continue
				}
				d = &writtenDir{raw: raw[:i]}
				abs[d.raw] = d
				absolute = append(absolute, d)
			}
			last = d
		}
		d.handles++
		if len(d.samples) < maxSamples {
			d.samples = append(d.samples, raw[i+1:])
		} else {
			d.samples[maxSamples-1] = raw[i+1:]
		}
	}
	for d := range rel {
		relative = append(relative, d)
	}
	slices.Sort(relative)
	return absolute, relative, files
}

// resolve decides how the handles of s are read.
func (s *Snapshot) resolve(ctx context.Context) error {
	r := &resolver{self: newSelf(s.Dir)}
	for _, t := range s.opts.Trust {
		loc, err := blobstore.Parse(t)
		if err != nil {
			return err
		}
		r.trust = append(r.trust, loc)
	}
	for _, m := range s.opts.Map {
		from, err := blobstore.Parse(m.Old)
		if err != nil {
			return err
		}
		to, err := blobstore.Parse(m.New)
		if err != nil {
			return err
		}
		r.maps = append(r.maps, mapping{from, to})
	}
	absolute, relative, files := writtenDirs(s.Checkpoint)
	s.fileHandles = files
	if !s.opts.NoRelocate && len(absolute) > 0 {
		f := relocator{r: r, pool: s.pool}
		reloc, err := f.find(ctx, absolute)
		if err != nil {
			return err
		}
		r.reloc = reloc
	}
	raw := make([]string, len(absolute))
	for i, d := range absolute {
		raw[i] = d.raw
	}
	r.remember(raw, relative)
	s.res = r
	if r.reloc != nil {
		s.Relocation = &Relocation{From: r.reloc.from.String(), To: r.reloc.to.String(), Handles: s.countRelocated()}
	}
	return nil
}

func (s *Snapshot) countRelocated() int {
	n := 0
	for _, h := range s.Checkpoint.StreamHandles() {
		switch h.(type) {
		case *metadata.FileHandle, *metadata.SegmentHandle:
			if f, err := s.res.locate(h); err == nil && f.place.moved {
				n++
			}
		}
	}
	return n
}

// relocator finds out whether a snapshot's folder was moved as a whole. It
// trusts files, not names: a place counts as moved only if files that handles
// name are not where they were written and are at the new place.
//
// The new place always is in the store that the metadata was read from, and
// above, beside or in its folder, so that untrusted metadata cannot choose it.
type relocator struct {
	r    *resolver
	pool *blobstore.Pool
}

// maxProbedDirs bounds how many folders are asked about.
const maxProbedDirs = 4

func (f *relocator) find(ctx context.Context, dirs []*writtenDir) (*mapping, error) {
	dirs = slices.Clone(dirs)
	slices.SortStableFunc(dirs, func(a, b *writtenDir) int {
		if a.handles != b.handles {
			return b.handles - a.handles
		}
		return strings.Compare(a.raw, b.raw)
	})
	var found *mapping
	var left []movedDir
	probed := 0
	for _, d := range dirs {
		m, ok := f.parse(d)
		if !ok {
			continue
		}
		if found != nil {
			if _, ok := m.loc.Rel(found.from); ok {
				continue
			}
		}
		if probed++; probed > maxProbedDirs {
			break
		}
		old, err := f.existsOld(ctx, m)
		denied := errors.Is(err, blobstore.ErrPermission)
		if err != nil && !denied {
			return nil, err
		}
		if old {
			continue
		}
		if found != nil {
			left = append(left, m)
			continue
		}
		for i, c := range f.candidates(m.loc) {
			names := m.samples
			if i > 0 {
				names = names[:1] // unlikely ones cost one call each
			}
			ok, err := f.existsNew(ctx, m, names, c)
			if errors.Is(err, blobstore.ErrPermission) {
				// Surely not where they were written, and maybe at the likeliest new place:
				// that nobody may look there is then what whoever reads them has to hear.
				ok, err = i == 0 && !denied, nil
			}
			if err != nil {
				return nil, err
			}
			if ok {
				found = &c
				break
			}
		}
		if found == nil {
			left = append(left, m)
		} else {
			// Those before it may lie under a wider prefix.
			probed = 0
		}
	}
	if found == nil {
		return nil, nil
	}
	for _, m := range left {
		wider, err := f.widen(ctx, m, *found)
		if err != nil {
			return nil, err
		}
		if wider != nil {
			found = wider
		}
	}
	return found, nil
}

// movedDir is a written folder that may have been moved.
type movedDir struct {
	*writtenDir
	loc       blobstore.Location
	hasScheme bool
}

// parse gives the location of a folder, and false if it needs no thought: it is
// malformed, mapped by hand, or lies where the metadata does.
func (f *relocator) parse(d *writtenDir) (movedDir, bool) {
	self := &f.r.self
	if strings.HasSuffix(d.raw, ":/") {
		return movedDir{}, false
	}
	loc, hasScheme, err := parseWritten(metadata.String(d.raw).Go() + "/")
	if err != nil || f.r.mapped(&place{}, loc, hasScheme) {
		return movedDir{}, false
	}
	if !hasScheme && self.dir.Scheme != "file" {
		own := self.dir.Root()
		own.Path = loc.Path
		loc = own
	}
	m := movedDir{d, loc, hasScheme}
	if !loc.SameStore(self.dir) {
		return m, true
	}
	if _, ok := below(loc.Path, self.dir.Path); ok {
		return m, false
	}
	if before, job, _, ok := jobOf(loc.Path); ok && self.job != "" {
		// Beside the job's folder, or under an entropy prefix of that place.
		if before == self.base || job == self.job && isInserted(before, self.base) {
			return m, false
		}
	}
	if _, ok := below(loc.Path, self.root); ok && checkpointNumber(self.name) >= 0 && self.root != "" {
		return m, false
	}
	return m, true
}

// isInserted reports whether p is q with one part put in.
func isInserted(p, q string) bool {
	if len(p) <= len(q) {
		return false
	}
	rest := p
	pos := 0 // start of the part of p that is looked at
	for {
		part, after, more := strings.Cut(rest, "/")
		if joinPath(strings.TrimSuffix(p[:pos], "/"), after) == q {
			return true
		}
		if !more {
			return false
		}
		pos += len(part) + 1
		rest = after
	}
}

// candidates lists what a move may have replaced by what, likeliest first.
func (f *relocator) candidates(loc blobstore.Location) []mapping {
	self := &f.r.self
	var out []mapping
	add := func(from, to string) {
		m := mapping{loc, self.dir}
		m.from.Path, m.to.Path = from, to
		m.from.Query = ""
		if m.from.SameStore(m.to) && (from == to || from == "") {
			return // no move, or everything on the store
		}
		for _, o := range out {
			if o.from.Path == from && o.to.Path == to {
				return
			}
		}
		out = append(out, m)
	}
	before, _, after, hasJob := jobOf(loc.Path)
	if hasJob && self.job != "" {
		// <old>/<job>/shared, read from <new>/<job>/chk-N. The folder may lie deeper
		// than the job's own, as <old>/changelog/<job>/dstl, and have been moved along
		// with folders above.
		from := before
		for range 4 {
			to := self.base
			for range 4 {
				add(from, to)
				if to == "" {
					break
				}
				to = parentPath(to)
			}
			if from == "" {
				break
			}
			from = parentPath(from)
		}
	}
	if checkpointNumber(self.name) >= 0 || hasJob && self.job == "" {
		// The job's folder was renamed or has no job ID: <old>/shared beside chk-N.
		if hasJob {
			if _, ok := classOfFolder(firstPart(after)); ok {
				add(strings.TrimSuffix(loc.Path[:len(loc.Path)-len(after)], "/"), self.root)
			}
		} else {
			for at := 0; at < len(loc.Path); {
				part := firstPart(loc.Path[at:])
				if _, ok := classOfFolder(part); ok {
					add(strings.TrimSuffix(loc.Path[:at], "/"), self.root)
				}
				at += len(part) + 1
			}
		}
	}
	if baseName(loc.Path) == self.name {
		add(parentPath(loc.Path), self.root)
	}
	// Everything was put into one folder.
	add(loc.Path, self.dir.Path)
	return out
}

// widen replaces a mapping by that of folders above, where the parts in between
// are the same, if that finds m too.
func (f *relocator) widen(ctx context.Context, m movedDir, found mapping) (*mapping, error) {
	if !m.loc.SameStore(found.from) {
		return nil, nil
	}
	for w := found; w.from.Path != "" && w.to.Path != "" && baseName(w.from.Path) == baseName(w.to.Path); {
		w.from.Path, w.to.Path = parentPath(w.from.Path), parentPath(w.to.Path)
		if w.from.Path == "" {
			return nil, nil // everything: too wide
		}
		if _, ok := below(m.loc.Path, w.from.Path); !ok {
			continue
		}
		ok, err := f.existsNew(ctx, m, m.samples, w)
		if errors.Is(err, blobstore.ErrPermission) {
			ok, err = false, nil
		}
		if err != nil || !ok {
			return nil, err
		}
		return &w, nil
	}
	return nil, nil
}

// existsOld reports whether one of the samples is where it was written. A place
// that may not be followed, or that no driver knows, does not count.
func (f *relocator) existsOld(ctx context.Context, m movedDir) (bool, error) {
	loc, err := f.r.allowed(m.loc)
	if err != nil {
		return false, nil
	}
	there, err := f.exists(ctx, loc, m.samples)
	if err != nil && ctx.Err() == nil && !loc.SameStore(f.r.self.dir) {
		if _, _, rerr := f.pool.Resolve(ctx, loc); rerr == nil {
			// The caller trusts a store that does not answer. So nothing says that its
			// files were moved, and whoever reads them will hear why he cannot.
			return true, nil
		}
	}
	return there, err
}

func (f *relocator) existsNew(ctx context.Context, m movedDir, names []string, c mapping) (bool, error) {
	rest, ok := m.loc.Rel(c.from)
	if !ok {
		return false, nil
	}
	return f.exists(ctx, c.to.Join(rest), names)
}

func (f *relocator) exists(ctx context.Context, dir blobstore.Location, names []string) (bool, error) {
	store, path, err := f.pool.Resolve(ctx, dir)
	if errors.Is(err, blobstore.ErrUnknownScheme) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, raw := range names {
		name, err := lastName(raw, false)
		if err != nil {
			continue
		}
		_, err = store.Stat(ctx, joinPath(path, name))
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, blobstore.ErrNotExist), errors.Is(err, blobstore.ErrIsDirectory),
			errors.Is(err, blobstore.ErrInvalidName):
		default:
			return false, err // ErrPermission if it may not be looked at
		}
	}
	return false, nil
}
