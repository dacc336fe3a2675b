package snapshot

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// File is one physical object that a snapshot references.
type File struct {
	URL   string `json:"url"`
	Class Class  `json:"class"`
	Owner string `json:"owner,omitempty"` // job ID
	// Claimed: it lies in another job's folder.
	Claimed bool `json:"claimed,omitempty"`
	// Bytes is the object's size as the handles say: for segments the highest end
	// seen; -1 unknown.
	Bytes int64 `json:"bytes"`
	// ReferencedBytes of it: the sum of its segments, each once.
	ReferencedBytes int64 `json:"referencedBytes"`
	References      int   `json:"references"` // handles
	Segments        int   `json:"segments,omitempty"`
	// Operator, Subtask and Role of the first reference.
	Operator  string `json:"operator"`
	Subtask   int32  `json:"subtask"`
	Role      Role   `json:"role"`
	Part      Part   `json:"part"`
	LocalName string `json:"localName,omitempty"`
	Refused   string `json:"refused,omitempty"`

	Location blobstore.Location `json:"-"`
}

// Files yields every physical object the snapshot references, each once, in the
// order of their addresses; refused ones last. It asks no store.
func Files(s *Snapshot) iter.Seq[File] { return func(func(File) bool) {} }

// UsageOptions changes DiskUsage. Nil is the default.
type UsageOptions struct {
	Options *Options
	// Grace: unreferenced objects modified less than this before Now are also
	// counted as recent, since a checkpoint that is being written may need them;
	// 0 is 24 hours.
	Grace time.Duration
	Now   time.Time // zero: the time at the call
	// MemoryBytes bounds what is sorted in memory before it spills to files in
	// TempDir; 0 is 32 MiB.
	MemoryBytes int64
	TempDir     string // "" is the system's
	// MaxExamples bounds Examples in each group; 0 is 10.
	MaxExamples int
	// Each, if not nil, is called for every object below the root, in the order of
	// names.
	Each        func(UsageObject) error
	Parallelism int
	Progress    func(Progress)
}

// Verdict on an object below the root.
type Verdict string

// Verdicts. The strings are stable.
const (
	VerdictReferenced   Verdict = "referenced"
	VerdictMetadata     Verdict = "metadata"     // a snapshot's metadata object
	VerdictUnreferenced Verdict = "unreferenced" // no snapshot below this root names it
	VerdictIncomplete   Verdict = "incomplete"   // in a chk-N or savepoint folder without _metadata
	VerdictUnknown      Verdict = "unknown"      // not named, but some snapshot could not be read
)

// UsageObject is one object with its verdict.
type UsageObject struct {
	Name      string    `json:"name"` // below the root
	Bytes     int64     `json:"bytes"`
	ModTime   time.Time `json:"time,omitzero"`
	Verdict   Verdict   `json:"verdict"`
	Recent    bool      `json:"recent,omitempty"`
	Snapshots int       `json:"snapshots,omitempty"` // how many name it
	// ReferencedBytes are the bytes of it that are named; less than Bytes for
	// merged files with dead segments.
	ReferencedBytes int64 `json:"referencedBytes,omitempty"`
}

// Count is a number of objects and their bytes.
type Count struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// SnapshotUsage is one snapshot's part in a Usage.
type SnapshotUsage struct {
	URL          string `json:"url"`
	Name         string `json:"name"`
	Job          string `json:"job,omitempty"`
	LogicalBytes int64  `json:"logicalBytes"` // sum of its handles
	Physical     Count  `json:"physical"`     // files below the root it names, each once
	Unique       Count  `json:"unique"`       // files that only it names: freed by its deletion
	Shared       Count  `json:"shared"`       // files others name too
	Outside      Count  `json:"outside"`      // objects it names outside the root
	Missing      int64  `json:"missing"`      // objects below the root it names that are not there
	Refused      int64  `json:"refused"`
	Error        string `json:"error,omitempty"` // it could not be read
}

// Sharing is a group of files that are named by exactly the same snapshots.
type Sharing struct {
	Snapshots []int `json:"snapshots"` // indexes in Usage.Snapshots
	Count
}

// Usage is the result of DiskUsage.
type Usage struct {
	Root         string `json:"root"`
	Total        Count  `json:"total"`
	Metadata     Count  `json:"metadata"`
	Referenced   Count  `json:"referenced"` // each physical file once
	Unreferenced Count  `json:"unreferenced"`
	// UnreferencedRecent is the part of Unreferenced younger than the grace time.
	UnreferencedRecent Count `json:"unreferencedRecent"`
	Incomplete         Count `json:"incomplete"`
	Temporary          Count `json:"temporary"` // left by writers that did not finish
	// Unknown: not named by a snapshot that was read, while others were not readable.
	Unknown Count `json:"unknown"`
	// LogicalBytes is the sum over all snapshots of all their handles.
	LogicalBytes int64 `json:"logicalBytes"`
	// DeadSegmentBytes are bytes of merged files that no segment covers.
	DeadSegmentBytes int64           `json:"deadSegmentBytes"`
	Outside          Count           `json:"outside"` // objects outside the root that are named
	Missing          int64           `json:"missing"` // named objects below the root that are not there
	Snapshots        []SnapshotUsage `json:"snapshots"`
	// Sharings are the groups of files named by two or more snapshots, biggest first.
	Sharings []Sharing `json:"sharings,omitempty"`
	// Conclusive: every snapshot below the root was read and every folder listed.
	Conclusive bool `json:"conclusive"`
	// Warnings are lines for people: why not conclusive, what outside may matter.
	Warnings []string             `json:"warnings,omitempty"`
	Examples map[Verdict][]string `json:"examples,omitempty"`
}

// DiskUsage says what below root is named by snapshots below root and what is
// not. It lists the root once and reads every metadata object in it. Sorted streams are merged and
// sets spill to temporary files, so that memory does not grow with the number of
// objects.
func DiskUsage(ctx context.Context, pool *blobstore.Pool, root blobstore.Location, opts *UsageOptions) (*Usage, error) {
	return nil, errors.New("not yet")
}
