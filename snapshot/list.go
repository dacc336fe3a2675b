package snapshot

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// Row is one line of a listing of snapshots.
type Row struct {
	Ref
	URL           string `json:"url"`
	CheckpointID  int64  `json:"checkpointId"`
	SnapshotKind  Kind   `json:"kind,omitempty"`
	Unaligned     bool   `json:"unaligned"`
	Changelog     bool   `json:"changelog"`
	FormatVersion int32  `json:"formatVersion"`
	WrittenBy     string `json:"writtenBy,omitempty"`
	Operators     int    `json:"operators"`
	FullBytes     int64  `json:"fullBytes"` // physical, each file once, and inlined
	NewBytes      int64  `json:"newBytes"`  // as the checkpoint declares; -1 unknown
	// SincePrev is the bytes of files that the previous readable checkpoint of the
	// same job does not reference; -1 if there is none.
	SincePrev int64 `json:"newSincePrevious"`
	Usable    bool  `json:"usable"`
	// Reason is why it is not usable, one line.
	Reason     string      `json:"reason,omitempty"`
	Relocation *Relocation `json:"relocation,omitempty"`
	Report     *Report     `json:"-"`
	// Err is why it could not be opened; Reason has its text.
	Err error `json:"-"`
}

// ListOptions changes a listing. Nil is the default.
type ListOptions struct {
	Options *Options
	Find    *FindOptions
	// NoCheck leaves out the presence of files: Usable then means only that the
	// metadata parses and no handle is refused.
	NoCheck bool
	// Snapshots bounds how many are read at a time; 0 is 4.
	Snapshots int
}

// List finds snapshots as Find does, opens and checks each, and yields a Row for
// each in Find's order. A snapshot that cannot be read is a Row with Reason; an
// error is a folder that could not be searched, or the end of the context.
func List(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *ListOptions) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) { yield(Row{}, errors.New("not yet")) }
}

// Candidate is a snapshot that Latest looked at.
type Candidate struct {
	URL    string    `json:"url"`
	Name   string    `json:"name"`
	Job    string    `json:"job,omitempty"`
	ID     int64     `json:"checkpointId"`
	Time   time.Time `json:"time,omitzero"`
	Usable bool      `json:"usable"`
	Reason string    `json:"reason,omitempty"` // why it was passed over
}

// LatestResult is what Latest found. Candidates are newest first and end with
// the chosen one.
type LatestResult struct {
	Snapshot   *Snapshot   `json:"-"`
	URL        string      `json:"url,omitempty"`
	Dir        string      `json:"dir,omitempty"` // folder to give to Flink
	Candidates []Candidate `json:"candidates"`
}

// Latest gives the newest usable snapshot at or below loc: by the time of its
// metadata object, then by checkpoint ID. If there are snapshots but none is
// usable, the result has the reasons and the error wraps ErrNoneUsable; if there
// is none at all it wraps ErrNoSnapshot.
func Latest(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *ListOptions) (*LatestResult, error) {
	return nil, errors.New("not yet")
}
