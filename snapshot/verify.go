package snapshot

import (
	"context"
	"errors"

	"github.com/tidemark/tidemark/blobstore"
)

// Severity of a finding.
type Severity string

// Severities.
const (
	Damage Severity = "damage" // the snapshot cannot be restored as it says
	Note   Severity = "note"   // unusual, or worth knowing, but no damage
)

// Finding is one thing that verification found.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code is stable: "shared-file-missing", "key-groups-overlap"; docs/design lists them.
	Code     string `json:"code"`
	File     string `json:"file"`            // URL of the object it is about
	Offset   int64  `json:"offset"`          // bytes in File, -1 if unknown
	Field    string `json:"field,omitempty"` // path in the metadata
	Detail   string `json:"detail"`          // one line
	Hint     string `json:"hint,omitempty"`  // what may help
	Operator string `json:"operator,omitempty"`
	Subtask  *int32 `json:"subtask,omitempty"`
	Role     string `json:"role,omitempty"`
}

// Verification is the result of Verify.
type Verification struct {
	Snapshot string    `json:"snapshot"` // URL of the metadata object
	OK       bool      `json:"ok"`       // no finding is damage
	Findings []Finding `json:"findings,omitempty"`
	// Damaged and Notes count all findings, also those beyond MaxFindings.
	Damaged int     `json:"damage"`
	Notes   int     `json:"notes"`
	Objects int64   `json:"objects"`
	Bytes   int64   `json:"bytes"`
	Report  *Report `json:"-"`
}

// VerifyOptions changes a verification. Nil is the default.
type VerifyOptions struct {
	Options *Options // for VerifyAt's Open
	// MaxFindings bounds Findings; 0 is 1000, negative is no bound.
	MaxFindings int
	// NoObjects checks the metadata alone.
	NoObjects   bool
	Parallelism int
	Progress    func(Progress)
}

// Verify checks an opened snapshot: that its metadata encodes to the bytes it was
// read from, its key-group ranges, offsets, subtasks and segments, and that every
// object is there with the right size. Findings are in file order, those about
// objects last. An error means that it could not be finished.
func Verify(ctx context.Context, s *Snapshot, opts *VerifyOptions) (*Verification, error) {
	return nil, errors.New("not yet")
}

// VerifyAt opens and verifies. Metadata that cannot be decoded is a finding with
// its offset and field, not an error; ErrNoSnapshot, an unsupported version and
// failures of the store are errors.
func VerifyAt(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *VerifyOptions) (*Verification, error) {
	return nil, errors.New("not yet")
}
