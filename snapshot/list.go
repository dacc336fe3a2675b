package snapshot

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
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
	return func(yield func(Row, error) bool) {
		l := lister{pool: pool}
		if opts != nil {
			l.opts = *opts
		}
		l.run(ctx, loc, yield)
	}
}

type lister struct {
	pool *blobstore.Pool
	opts ListOptions
}

// listItem is a snapshot being read, or an error of the search.
type listItem struct {
	row   Row
	files []fileHash // of a checkpoint: sorted, to compare with the next one
	err   error
	done  chan struct{}
}

// fileHash stands for a file's address. A collision would make a sum in a table
// wrong by one file.
type fileHash struct {
	hash uint64
	size int64
}

func (l *lister) run(ctx context.Context, loc blobstore.Location, yield func(Row, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	weights := newWeights(maxMetadataInFlight)
	workers := l.opts.Snapshots
	if workers <= 0 {
		workers = 4
	}
	items := make(chan *listItem, workers)
	slots := make(chan struct{}, workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(items)
		for ref, err := range Find(ctx, l.pool, loc, l.opts.Find) {
			it := &listItem{row: Row{Ref: ref, URL: ref.Location.String(), CheckpointID: ref.ID, NewBytes: -1, SincePrev: -1}, err: err, done: make(chan struct{})}
			if err != nil {
				close(it.done)
			} else {
				// A slot is free again when the item is taken, so that the files of few
				// snapshots are held.
				select {
				case slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				wg.Go(func() {
					defer close(it.done)
					weights.acquire(ref.Size)
					defer weights.release(ref.Size)
					l.read(ctx, it)
				})
			}
			select {
			case items <- it:
			case <-ctx.Done():
				return
			}
		}
	})
	var previous []fileHash
	previousDir := ""
	for it := range items {
		<-it.done
		if it.err != nil {
			if !yield(it.row, it.err) || ctx.Err() != nil {
				return
			}
			continue
		}
		<-slots
		if err := context.Cause(ctx); err != nil {
			yield(it.row, err)
			return
		}
		if it.row.Kind == RefCheckpoint && it.row.Err == nil && !it.row.Incomplete {
			dir := it.row.Dir.Dir().Key()
			if previousDir == dir {
				it.row.SincePrev = newSince(it.files, previous)
			}
			previous, previousDir = it.files, dir
		}
		if !yield(it.row, nil) {
			return
		}
	}
	if err := context.Cause(ctx); err != nil {
		yield(Row{}, err)
	}
}

// newSince sums the files of a that b lacks.
func newSince(a, b []fileHash) int64 {
	var n int64
	j := 0
	for _, f := range a {
		for j < len(b) && b[j].hash < f.hash {
			j++
		}
		if j == len(b) || b[j].hash != f.hash {
			n += f.size
		}
	}
	return n
}

func (l *lister) read(ctx context.Context, it *listItem) {
	row := &it.row
	if row.Incomplete {
		row.Reason = "no " + MetadataName + ": in progress, failed or half deleted"
		return
	}
	s, err := Open(ctx, l.pool, row.Location, l.opts.Options)
	if err != nil {
		row.Err, row.Reason = err, briefError(err)
		return
	}
	in := Inspect(s, &InspectOptions{MaxExamples: 1, MaxChannels: 1})
	row.CheckpointID, row.FormatVersion, row.WrittenBy = in.CheckpointID, in.FormatVersion, in.WrittenBy
	row.SnapshotKind, row.Unaligned, row.Changelog = in.Kind, in.Unaligned, in.Changelog
	row.Operators = len(in.Operators)
	row.FullBytes, row.NewBytes = in.Totals.PhysicalBytes+in.Totals.InlinedBytes, in.Totals.NewBytes
	row.Relocation = s.Relocation
	if row.Kind == RefCheckpoint {
		it.files = s.fileHashes()
	}
	if l.opts.NoCheck {
		row.Usable = in.Totals.Refused == 0
		if !row.Usable {
			row.Reason = strconv.FormatInt(in.Totals.Refused, 10) + " handles refused"
		}
		return
	}
	report, err := Check(ctx, s, &CheckOptions{MaxProblems: 10, NoHints: true})
	if err != nil {
		row.Err, row.Reason = err, "could not be checked: "+briefError(err)
		return
	}
	row.Report, row.Usable, row.Reason = report, report.Usable, report.Reason
}

// hashSeed is one for the process, so that hashes of two snapshots compare.
var hashSeed = maphash.MakeSeed()

// fileHashes gives every file once, with its size, sorted by hash.
func (s *Snapshot) fileHashes() []fileHash {
	out := make([]fileHash, 0, s.fileHandles)
	folders := map[*place]uint64{}
	var buf [17]byte
	for _, h := range s.Checkpoint.StreamHandles() {
		f := fileHash{}
		switch h := h.(type) {
		case *metadata.FileHandle:
			f.size = max(h.Size, 0)
		case *metadata.RelativeFileHandle:
			f.size = max(h.Size, 0)
		case *metadata.SegmentHandle:
			// A segment is what is new in a merged file.
			f.size = h.Length
			buf[0] = 1
			binary.LittleEndian.PutUint64(buf[1:], uint64(h.Start))
			binary.LittleEndian.PutUint64(buf[9:], uint64(h.Length))
		default:
			continue
		}
		o, err := s.res.locate(h)
		if err != nil {
			continue
		}
		dir, ok := folders[o.place]
		if !ok {
			dir = maphash.String(hashSeed, o.place.loc.Key())
			if len(folders) < maxPlaces {
				folders[o.place] = dir
			}
		}
		var mh maphash.Hash
		mh.SetSeed(hashSeed)
		var d [8]byte
		binary.LittleEndian.PutUint64(d[:], dir)
		mh.Write(d[:])
		mh.WriteString(o.name)
		if buf[0] != 0 {
			mh.Write(buf[:])
			buf[0] = 0
		}
		f.hash = mh.Sum64()
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fileHash) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(b.size, a.size)) })
	return slices.CompactFunc(out, func(a, b fileHash) bool { return a.hash == b.hash })
}

// briefError is an error for a table's cell: without the address that stands
// beside it.
func briefError(err error) string {
	var format *metadata.FormatError
	if errors.As(err, &format) {
		f := *format
		f.Name = ""
		return f.Error()
	}
	var store *blobstore.Error
	if errors.As(err, &store) {
		return store.Op + ": " + store.Err.Error()
	}
	return err.Error()
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
	if opts == nil {
		opts = &ListOptions{}
	}
	var refs []Ref
	for ref, err := range Find(ctx, pool, loc, opts.Find) {
		if err != nil {
			return nil, err // a newer one may lie in what could not be searched
		}
		refs = append(refs, ref)
	}
	result := &LatestResult{}
	if len(refs) == 0 {
		return result, fmt.Errorf("%s: %w", loc, ErrNoSnapshot)
	}
	complete := 0
	for _, ref := range newestFirst(refs) {
		c := Candidate{URL: ref.Location.String(), Name: ref.Name, Job: ref.Job, ID: ref.ID, Time: ref.ModTime}
		if ref.Incomplete {
			c.Reason = "no " + MetadataName + ": in progress, failed or half deleted"
			result.Candidates = append(result.Candidates, c)
			continue
		}
		complete++
		s, err := Open(ctx, pool, ref.Location, opts.Options)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && !passable(err):
			return nil, err
		case err != nil:
			c.Reason = briefError(err)
		case opts.NoCheck:
			c.ID, c.Usable = s.Checkpoint.ID, true
		default:
			c.ID = s.Checkpoint.ID
			report, err := Check(ctx, s, &CheckOptions{MaxProblems: 10})
			if err != nil {
				return nil, err
			}
			c.Usable, c.Reason = report.Usable, report.Reason
		}
		result.Candidates = append(result.Candidates, c)
		if c.Usable {
			result.Snapshot, result.URL, result.Dir = s, c.URL, s.Dir.String()
			return result, nil
		}
	}
	if complete == 0 {
		return result, fmt.Errorf("%s: %w: %d without %s, in progress or failed", loc, ErrNoSnapshot, len(refs), MetadataName)
	}
	return result, fmt.Errorf("%s: %w: %d were passed over, the newest, %s: %s", loc, ErrNoneUsable, len(result.Candidates), result.Candidates[0].Name, result.Candidates[0].Reason)
}

// passable reports whether an error of Open tells something about the snapshot.
// What tells something about the store ends the search: the next older one must
// not be chosen because of a time-out.
func passable(err error) bool {
	return errors.Is(err, metadata.ErrCorrupt) || errors.Is(err, metadata.ErrUnsupportedVersion) ||
		errors.Is(err, ErrNoSnapshot) || errors.Is(err, blobstore.ErrNotExist)
}

// newestFirst orders snapshots by the time of their metadata object. Within one
// job's folder the number decides, whatever the times say: a copy of a folder has
// new times in any order. A checkpoint without metadata comes right before the
// next older one with.
func newestFirst(refs []Ref) []Ref {
	byKey := map[string]*refGroup{}
	var groups refGroups
	for _, ref := range refs {
		key := ref.Location.Key()
		if ref.Kind == RefCheckpoint {
			key = ref.Dir.Dir().Key()
		}
		g := byKey[key]
		if g == nil {
			g = &refGroup{order: len(groups)}
			byKey[key] = g
			groups = append(groups, g)
		}
		g.refs = append(g.refs, ref)
	}
	for _, g := range groups {
		slices.SortStableFunc(g.refs, func(a, b Ref) int { return cmp.Compare(b.ID, a.ID) })
		g.look()
	}
	heap.Init(&groups)
	out := make([]Ref, 0, len(refs))
	for len(groups) > 0 {
		g := groups[0]
		out = append(out, g.refs[:g.n]...)
		g.refs = g.refs[g.n:]
		if len(g.refs) == 0 {
			heap.Pop(&groups)
			continue
		}
		g.look()
		heap.Fix(&groups, 0)
	}
	return out
}

// refGroup are the snapshots of one folder, newest first.
type refGroup struct {
	refs  []Ref
	n     int // up to and including the first complete one
	time  time.Time
	order int // of the group's first appearance
}

func (g *refGroup) look() {
	g.n, g.time = len(g.refs), time.Time{}
	for i, ref := range g.refs {
		if !ref.Incomplete {
			g.n, g.time = i+1, ref.ModTime
			return
		}
	}
}

type refGroups []*refGroup

func (h refGroups) Len() int { return len(h) }
func (h refGroups) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(b.time.Compare(a.time), cmp.Compare(b.refs[0].ID, a.refs[0].ID), cmp.Compare(a.order, b.order)) < 0
}
func (h refGroups) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *refGroups) Push(x any)   { *h = append(*h, x.(*refGroup)) }
func (h *refGroups) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
