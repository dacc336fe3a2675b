package snapshot

import (
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Role is the slot of an operator's state that a handle stands in: the kind of
// state it holds. Its text is that of metadata.Slot.
type Role metadata.Slot

// Roles, in the order they stand in the file.
const (
	RoleCoordinator     = Role(metadata.SlotCoordinator)
	RoleManagedOperator = Role(metadata.SlotManagedOperator)
	RoleRawOperator     = Role(metadata.SlotRawOperator)
	RoleManagedKeyed    = Role(metadata.SlotManagedKeyed)
	RoleRawKeyed        = Role(metadata.SlotRawKeyed)
	RoleInputChannel    = Role(metadata.SlotInputChannel)
	RoleOutputChannel   = Role(metadata.SlotOutputChannel)
	numRoles            = RoleOutputChannel + 1
)

// String is the name used in JSON and in field paths.
func (r Role) String() string { return metadata.Slot(r).String() }

// MarshalText implements encoding.TextMarshaler.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Role) UnmarshalText(b []byte) error {
	for i := range numRoles {
		if i.String() == string(b) {
			*r = i
			return nil
		}
	}
	return fmt.Errorf("unknown role %q", b)
}

// Part is what a stream is to the handle around it.
type Part uint8

// Parts.
const (
	PartData      Part = iota // the one stream of a handle
	PartMeta                  // meta of an incremental handle
	PartShared                // file in its shared list
	PartPrivate               // file in its private list
	PartChangelog             // file of changes
)

var partNames = [...]string{"data", "meta", "shared", "private", "changelog"}

func partOf(p metadata.Part) Part {
	switch p {
	case metadata.PartMeta:
		return PartMeta
	case metadata.PartShared:
		return PartShared
	case metadata.PartPrivate:
		return PartPrivate
	case metadata.PartChangelog:
		return PartChangelog
	}
	return PartData
}

// String is the name used in JSON.
func (p Part) String() string {
	if int(p) < len(partNames) {
		return partNames[p]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (p Part) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Part) UnmarshalText(b []byte) error {
	for i, name := range partNames {
		if name == string(b) {
			*p = Part(i)
			return nil
		}
	}
	return fmt.Errorf("unknown part %q", b)
}

// Class is whose the bytes of a handle are, told from the place they lie in.
type Class uint8

// Classes.
const (
	ClassInlined   Class = iota // in the metadata itself
	ClassExclusive              // in the snapshot's own folder
	ClassShared                 // in a job's shared folder
	ClassTaskOwned              // in a job's taskowned folder
	ClassChangelog              // in a changelog (dstl) folder
	ClassSavepoint              // in the folder of another snapshot: restored in CLAIM or LEGACY mode
	ClassOutside                // anywhere else
	numClasses
)

var classNames = [numClasses]string{"inlined", "exclusive", "shared", "taskowned", "changelog", "savepoint", "outside"}

// String is the name used in JSON.
func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Class) UnmarshalText(b []byte) error {
	for i, name := range classNames {
		if name == string(b) {
			*c = Class(i)
			return nil
		}
	}
	return fmt.Errorf("unknown class %q", b)
}

// TargetKind is what a handle resolves to.
type TargetKind uint8

// Kinds of targets.
const (
	TargetInline  TargetKind = iota // bytes in the metadata
	TargetEmpty                     // an empty segment, or no handle: nothing to open
	TargetObject                    // a whole object
	TargetSegment                   // a range of an object
	TargetRefused                   // see Target.Refused
)

// Target is what a handle resolves to.
type Target struct {
	Kind  TargetKind
	Class Class
	// Owner is the job ID in whose folder the object lies; "" if none is visible.
	Owner string
	// Claimed: it belongs to another job, or to another snapshot's folder.
	Claimed bool
	// Location of the physical object; zero for inline, empty and refused.
	Location blobstore.Location
	// Start and Length in bytes: a segment's place in the object. For a whole
	// object Start is 0 and Length its size, -1 if the writer did not know it. For
	// inline state Length is the length of Data.
	Start, Length int64
	// Data is the inline bytes, shared with the metadata.
	Data []byte
	// Written is the path as it stands in the handle; "" for inline and empty.
	Written string
	// Relocated: an absolute path was replaced, by relocation or mapping.
	Relocated bool
	// Refused is why the handle is not followed; it wraps ErrRefused.
	Refused error
}

// Resolve says what a handle means. It asks no store.
func (s *Snapshot) Resolve(h metadata.StreamHandle) Target {
	h = metadata.Innermost(h)
	switch h := h.(type) {
	case nil, *metadata.EmptySegmentHandle:
		return Target{Kind: TargetEmpty}
	case *metadata.ByteStreamHandle:
		return Target{Kind: TargetInline, Length: int64(len(h.Data)), Data: h.Data}
	}
	f, err := s.res.locate(h)
	t := Target{Kind: TargetObject, Written: writtenPath(h), Length: metadata.StateSize(h),
		Class: f.place.class, Owner: f.place.owner, Claimed: f.place.claimed, Relocated: f.place.relocated}
	if err != nil {
		t.Kind, t.Refused = TargetRefused, err
		return t
	}
	t.Location = f.location()
	if seg, ok := h.(*metadata.SegmentHandle); ok {
		t.Kind, t.Start = TargetSegment, seg.Start
	}
	return t
}

func writtenPath(h metadata.StreamHandle) string {
	switch h := h.(type) {
	case *metadata.FileHandle:
		return h.Path.Go()
	case *metadata.RelativeFileHandle:
		return h.Path.Go()
	case *metadata.SegmentHandle:
		return h.Path.Go()
	}
	return ""
}

// place is a folder as handles write it, and what follows from it.
type place struct {
	loc       blobstore.Location // of the folder
	written   string             // the folder as the first handle writes it; "" for the snapshot's own
	class     Class
	owner     string
	claimed   bool
	relocated bool // replaced by a mapping or because of a move
	moved     bool // because of a move
	refused   error
	id        int32 // position in resolver.places; -1 for one made on the fly
	// same is the first place with this location: two spellings of a folder, or a
	// moved one and its new place, are one folder.
	same *place
}

// file is a physical object: a name in a place.
type file struct {
	place *place
	name  string
}

func (f file) location() blobstore.Location { return f.place.loc.Join(f.name) }

// identity is equal for equal objects of one resolver. Places beyond its tables
// are told apart by the whole path.
func (f file) identity() file {
	if f.place.id < 0 {
		if f.place.refused != nil {
			return file{nil, "refused " + f.place.written + "/" + f.name}
		}
		return file{nil, f.location().Key()}
	}
	return file{f.place.same, f.name}
}

// resolver turns paths of handles into places. It is immutable once made, so
// that it may be shared; places beyond its bounded tables are made on the fly.
type resolver struct {
	self  self
	trust []blobstore.Location
	maps  []mapping
	reloc *mapping

	own      *place // the snapshot's folder
	nowhere  *place // of handles without any
	places   []*place
	absolute map[string]*place // by folder as written, raw
	relative map[string]*place
}

// maxPlaces bounds the folders a resolver remembers. With entropy injection every
// file may have a folder of its own.
const maxPlaces = 4096

type mapping struct{ from, to blobstore.Location }

// self is where the metadata was read from.
type self struct {
	dir  blobstore.Location // folder of the metadata object
	job  string             // job ID among the parts of dir, "" if none
	base string             // path before the job ID
	root string             // path of the folder above dir: the job folder, if dir is chk-N
	name string             // last part of dir
}

func newSelf(dir blobstore.Location) self {
	s := self{dir: dir, root: parentPath(dir.Path), name: baseName(dir.Path)}
	if before, job, _, ok := jobOf(dir.Path); ok {
		s.job, s.base = job, before
	}
	return s
}

// locate finds the object of a file, relative file or segment handle. If err
// refuses it, place and name are what could be made of it, for display.
func (r *resolver) locate(h metadata.StreamHandle) (file, error) {
	switch h := h.(type) {
	case *metadata.RelativeFileHandle:
		return r.locateRelative(string(h.Path))
	case *metadata.FileHandle:
		return r.locateAbsolute(string(h.Path))
	case *metadata.SegmentHandle:
		if h.Start < 0 || h.Length < 0 || h.Start+h.Length < h.Start {
			return file{r.nowhere, string(h.Path)}, refuse(codeBadSegment, "segment %d+%d is out of range", h.Start, h.Length)
		}
		return r.locateAbsolute(string(h.Path))
	}
	return file{r.nowhere, ""}, refuse(codeBadPath, "handle type %d has no object", h.Tag())
}

func (r *resolver) locateRelative(raw string) (file, error) {
	i := strings.LastIndexByte(raw, '/')
	if i < 0 {
		name, err := lastName(raw, true)
		return file{r.own, name}, err
	}
	p := r.relative[raw[:i]]
	if p == nil {
		p = r.makeRelative(raw[:i])
	}
	name, err := lastName(raw[i+1:], false)
	if p.refused != nil {
		err = p.refused
	}
	return file{p, name}, err
}

func (r *resolver) locateAbsolute(raw string) (file, error) {
	i := strings.LastIndexByte(raw, '/')
	if i < 0 {
		return file{r.nowhere, raw}, refuse(codeBadPath, "not an absolute path")
	}
	p := r.absolute[raw[:i]]
	if p == nil {
		p = r.makeAbsolute(raw[:i])
	}
	name, err := lastName(raw[i+1:], false)
	if p.refused != nil {
		err = p.refused
	}
	return file{p, name}, err
}

// lastName checks the last part of a path. Nearly all are UUIDs: the common case
// is decided by one look at each byte.
func lastName(raw string, alone bool) (string, error) {
	plain := raw != "" && raw[0] != '.'
	for i := 0; i < len(raw); i++ {
		if c := raw[i]; c < 0x20 || c >= 0x7f || c == ':' {
			plain = false
			break
		}
	}
	if plain {
		return raw, nil
	}
	name := metadata.String(raw).Go()
	if alone {
		return name, checkRelative(name)
	}
	return name, checkParts(name)
}

func (r *resolver) makeRelative(rawDir string) *place {
	dir := metadata.String(rawDir).Go()
	if err := checkRelative(dir); err != nil {
		return &place{written: dir, class: ClassOutside, refused: err, id: -1}
	}
	return &place{loc: r.self.dir.Join(dir), written: dir, class: ClassExclusive, owner: r.self.job, id: -1}
}

// makeAbsolute decides about a folder: mapped by hand, relocated, or as written;
// whose it is; and whether it may be followed.
func (r *resolver) makeAbsolute(rawDir string) *place {
	p := &place{written: metadata.String(rawDir).Go(), class: ClassOutside, id: -1}
	if strings.HasSuffix(rawDir, ":/") { // what follows is an authority, not a name
		p.refused = refuse(codeBadPath, "not an absolute path")
		return p
	}
	loc, hasScheme, err := parseWritten(p.written + "/")
	if err != nil {
		p.refused = err
		return p
	}
	switch {
	case r.mapped(p, loc, hasScheme):
	case r.reloc != nil && r.relocated(p, loc, hasScheme):
	default:
		if !hasScheme && r.self.dir.Scheme != "file" {
			// Flink's default file system, which is not in the file. It is never taken
			// for a local file; the metadata's own store is the only safe reading.
			own := r.self.dir.Root()
			own.Path = loc.Path
			loc = own
		}
		p.loc, p.refused = r.allowed(loc)
	}
	p.class, p.owner, p.claimed = r.self.classify(p.loc)
	return p
}

func (r *resolver) mapped(p *place, loc blobstore.Location, hasScheme bool) bool {
	best := -1
	for i := range r.maps {
		from := r.maps[i].from
		rest, ok := loc.Rel(from)
		if !ok && !hasScheme && from.Scheme == r.self.dir.Scheme {
			rest, ok = below(loc.Path, from.Path)
		}
		if ok && (best < 0 || len(from.Path) > len(r.maps[best].from.Path)) {
			best = i
			p.loc = r.maps[i].to.Join(rest)
		}
	}
	p.relocated = best >= 0
	return p.relocated
}

func (r *resolver) relocated(p *place, loc blobstore.Location, hasScheme bool) bool {
	rest, ok := loc.Rel(r.reloc.from)
	if ok {
		p.loc, p.relocated, p.moved = r.reloc.to.Join(rest), true, true
	}
	return ok
}

// allowed applies the rules for untrusted metadata. The location it gives has
// the parameters (endpoint, region) of the store it is allowed by.
func (r *resolver) allowed(loc blobstore.Location) (blobstore.Location, error) {
	if loc.SameStore(r.self.dir) {
		own := r.self.dir
		own.Path = loc.Path
		if loc.Scheme == "file" && isSpecial(loc.Path) {
			return loc, refuse(codeSpecial, "not a place for state files")
		}
		return own, nil
	}
	for _, t := range r.trust {
		if _, ok := loc.Rel(t); ok {
			own := t
			own.Path = loc.Path
			return own, nil
		}
	}
	switch {
	case loc.Scheme == "file":
		return loc, refuse(codeLocalFile, "a local file, named by metadata on %s", storeText(r.self.dir))
	case r.self.dir.Scheme == "file":
		return loc, refuse(codeOtherStore, "on %s, named by local metadata", storeText(loc))
	}
	return loc, refuse(codeOtherStore, "on %s, named by metadata on %s", storeText(loc), storeText(r.self.dir))
}

// isSpecial keeps local metadata from naming devices and kernel interfaces.
func isSpecial(path string) bool {
	switch firstPart(path) {
	case "dev", "proc", "sys":
		return true
	}
	return false
}

func storeText(l blobstore.Location) string {
	if l.Scheme == "file" {
		return "the local disk"
	}
	return shown(strings.TrimSuffix(l.Root().String(), "/"))
}

// classify says whose a folder is.
func (s *self) classify(loc blobstore.Location) (class Class, owner string, claimed bool) {
	if loc.SameStore(s.dir) {
		if _, ok := below(loc.Path, s.dir.Path); ok {
			return ClassExclusive, s.job, false
		}
		if rest, ok := below(loc.Path, s.root); ok && s.root != "" && (checkpointNumber(s.name) >= 0 || s.job != "") {
			if class, ok := classOfFolder(firstPart(rest)); ok {
				return class, s.job, class == ClassSavepoint
			}
		}
	}
	if _, job, after, ok := jobOf(loc.Path); ok {
		other := s.job != "" && job != s.job
		first := firstPart(after)
		if first == s.name && job == s.job {
			return ClassExclusive, job, false // under an entropy prefix
		}
		if class, ok := classOfFolder(first); ok {
			return class, job, other || class == ClassSavepoint
		}
		return ClassOutside, job, other
	}
	// No job ID above it: by its own name, or that of the folder around the one of a
	// merged file or a ForSt database.
	dir := loc.Path
	if baseName(dir) == "db" && strings.HasPrefix(baseName(parentPath(dir)), "op_") {
		dir = parentPath(parentPath(dir))
	} else if strings.HasPrefix(baseName(dir), "job_") {
		dir = parentPath(dir)
	}
	if savepointJob(baseName(dir)) != "" {
		return ClassSavepoint, "", true
	}
	if class, ok := classOfFolder(baseName(dir)); ok {
		return class, "", class == ClassSavepoint
	}
	return ClassOutside, "", false
}

func classOfFolder(name string) (Class, bool) {
	switch {
	case name == sharedDir:
		return ClassShared, true
	case name == taskOwnedDir:
		return ClassTaskOwned, true
	case name == changelogDir:
		return ClassChangelog, true
	case checkpointNumber(name) >= 0:
		return ClassSavepoint, true
	}
	return 0, false
}

// remember makes places for folders.
func (r *resolver) remember(absolute, relative []string) {
	byLoc := map[string]*place{}
	add := func(p *place) *place {
		p.id, p.same = int32(len(r.places)), p
		r.places = append(r.places, p)
		if p.loc.Scheme != "" {
			key := p.loc.Key()
			if q := byLoc[key]; q != nil {
				p.same = q
			} else {
				byLoc[key] = p
			}
		}
		return p
	}
	r.own = add(&place{loc: r.self.dir, class: ClassExclusive, owner: r.self.job})
	r.nowhere = add(&place{class: ClassOutside, refused: ErrRefused})
	r.absolute = make(map[string]*place, len(absolute))
	for _, d := range absolute {
		r.absolute[d] = add(r.makeAbsolute(d))
	}
	r.relative = make(map[string]*place, len(relative))
	for _, d := range relative {
		r.relative[d] = add(r.makeRelative(d))
	}
}
