package snapshot

import (
	"context"
	"errors"
)

// Problem is what is wrong with one referenced object.
type Problem string

// Problems. The strings are stable.
const (
	ProblemMissing   Problem = "missing"    // there is no such object
	ProblemShort     Problem = "short"      // fewer bytes than the handle needs
	ProblemLong      Problem = "long"       // more bytes than the handle says
	ProblemRefused   Problem = "refused"    // the rules for untrusted metadata forbid to look
	ProblemNotAFile  Problem = "not-a-file" // a directory lies there
	ProblemNoAccess  Problem = "no-access"  // the store denies access to it
	ProblemDuplicate Problem = "conflict"   // handles disagree about the size of one object
)

// ObjectProblem is one referenced object that is not there as it should be.
type ObjectProblem struct {
	Problem  Problem `json:"problem"`
	Object   string  `json:"object"`             // URL, or the path as written if refused
	Expected int64   `json:"expected,omitempty"` // bytes; -1 unknown
	Actual   int64   `json:"actual,omitempty"`   // bytes
	Operator string  `json:"operator"`           // operator ID
	Name     string  `json:"name,omitempty"`     // operator name or uid if known
	Subtask  int32   `json:"subtask"`            // -1 for coordinator state
	Role     Role    `json:"role"`
	Field    string  `json:"field"`
	Detail   string  `json:"detail,omitempty"` // the reason in words
	// Handles is how many handles of the snapshot need this object.
	Handles int `json:"handles"`
	// Hint names a place where an object of the same name was found, if it was.
	Hint string `json:"hint,omitempty"`
}

// Report is the result of Check.
type Report struct {
	Usable bool `json:"usable"`
	// Reason is one line: "3 files missing"; empty if usable.
	Reason string `json:"reason,omitempty"`
	// Problems are in the order of the objects' addresses, at most
	// CheckOptions.MaxProblems of them; ProblemCount is how many there are.
	Problems     []ObjectProblem `json:"problems,omitempty"`
	ProblemCount int             `json:"problemCount"`
	// Counts by problem.
	Counts map[Problem]int `json:"counts,omitempty"`
	// Objects that were looked for, each physical one once, and their true size.
	Objects     int64 `json:"objects"`
	ObjectBytes int64 `json:"objectBytes"`
}

// CheckOptions changes a check. Nil is the default.
type CheckOptions struct {
	// MaxProblems bounds Report.Problems; 0 is 100, negative is no bound.
	MaxProblems int
	// NoHints leaves out the search for missing files elsewhere.
	NoHints bool
	// Parallelism bounds concurrent store calls; 0 is that of Options.
	Parallelism int
	Progress    func(Progress)
}

// Check says whether a snapshot is usable: whether every object it references is
// there with the right size. Sizes: a whole object's must equal the handle's,
// unless that is -1; a segment's object must reach to the segment's end; a
// changelog file must not be empty (its handle counts bytes before
// compression and without the leading flag byte).
//
// A problem is in the Report; an error means that the question could not be
// answered (the store failed, the context ended), never that the answer is no.
// Folders with many referenced objects are listed once instead of asked object by
// object.
func Check(ctx context.Context, s *Snapshot, opts *CheckOptions) (*Report, error) {
	return nil, errors.New("not yet")
}
