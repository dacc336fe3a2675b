package snapshot

import (
	"errors"
	"iter"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Role is the place of a handle in an operator: the kind of state it holds.
type Role uint8

// Roles, in the order they stand in the file.
const (
	RoleCoordinator Role = iota
	RoleManagedOperator
	RoleRawOperator
	RoleManagedKeyed
	RoleRawKeyed
	RoleInputChannel
	RoleOutputChannel
	numRoles
)

var roleNames = [numRoles]string{"coordinator", "managedOperator", "rawOperator", "managedKeyed", "rawKeyed", "inputChannel", "outputChannel"}

// String is the name used in JSON and in field paths.
func (r Role) String() string {
	if r < numRoles {
		return roleNames[r]
	}
	return "unknown"
}

// MarshalText implements encoding.TextMarshaler.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Part is which part of a keyed handle a stream is.
type Part uint8

// Parts.
const (
	PartData      Part = iota // the one stream of a handle
	PartMeta                  // meta of an incremental handle
	PartShared                // file in its shared list
	PartPrivate               // file in its private list
	PartChangelog             // changelog file
)

var partNames = [...]string{"data", "meta", "shared", "private", "changelog"}

// String is the name used in JSON.
func (p Part) String() string { return partNames[p] }

// MarshalText implements encoding.TextMarshaler.
func (p Part) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Handle is one reference to bytes in the metadata: a stream handle with where it
// stands.
type Handle struct {
	Operator     int   // index in Checkpoint.Operators
	Subtask      int32 // -1 for coordinator state
	Role         Role
	Part         Part
	Materialized bool // inside the materialized part of a changelog handle
	// LocalName is the file's name in the embedded database ("000012.sst") for
	// PartShared and PartPrivate, else "".
	LocalName metadata.String
	Stream    metadata.StreamHandle

	index [3]int32 // for Field: element in its list, level by level
}

// Field is the handle's path in the metadata, as in errors of the decoder:
// "operator[3].subtask[0].managedKeyed.shared[12]".
func (h *Handle) Field() string { return "" }

// Handles yields every stream handle of the snapshot in file order. The *Handle
// is reused for the next one: copy what is kept.
func (s *Snapshot) Handles() iter.Seq[*Handle] { return func(func(*Handle) bool) {} }

// Class is whose a handle's bytes are by the place they lie in, as far as the
// metadata says.
type Class uint8

// Classes.
const (
	ClassInlined   Class = iota // in the metadata itself
	ClassExclusive              // in the snapshot's own folder
	ClassShared                 // in a job's shared folder
	ClassTaskOwned              // in a job's taskowned folder
	ClassChangelog              // in a changelog (dstl) folder
	ClassSavepoint              // in the folder of another snapshot (claimed or legacy restore)
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

// TargetKind is what a handle resolves to.
type TargetKind uint8

// Kinds of targets.
const (
	TargetInline  TargetKind = iota // bytes in the metadata
	TargetEmpty                     // an empty segment: nothing to open
	TargetObject                    // a whole object
	TargetSegment                   // a range of an object
	TargetRefused                   // see Target.Refused
)

// Target is what a handle resolves to.
type Target struct {
	Kind  TargetKind
	Class Class
	// Owner is the job ID whose folder the object lies in; "" if none is visible.
	Owner string
	// Claimed: Owner is another job than the snapshot's own.
	Claimed bool
	// Location of the physical object; zero for inline and empty.
	Location blobstore.Location
	// Start and Length in bytes: a segment's place in the object. For a whole
	// object Start is 0 and Length its size, -1 if the writer did not know it. For
	// inline state Length is the length of Data.
	Start, Length int64
	// Data is the inline bytes, shared with the metadata.
	Data []byte
	// Relocated: an absolute path was replaced, by relocation or mapping.
	Relocated bool
	// Refused is why the handle is not followed; it wraps ErrRefused.
	Refused error
}

// Resolve says what a handle means. It touches no store.
func (s *Snapshot) Resolve(h metadata.StreamHandle) Target {
	return Target{Kind: TargetRefused, Refused: errors.New("not yet")}
}
