package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// DataOptions makes Verify read the state files: every block's checksum where
// there is one, and every record decoded to its last byte. Nil members are defaults.
type DataOptions struct {
	// Sample verifies a part of the data; nil is all.
	Sample *Sample
	// Workers is how many goroutines read and decode; 0 is GOMAXPROCS.
	Workers int
	// UID and Classes are as in ScanOptions.
	UID     func(metadata.OperatorID) string
	Classes serializer.Classes
	// Cache, if not nil, remembers what was found in tables of RocksDB, so that what
	// several snapshots share is read once. It may be used for verifications with
	// the same Sample, one after the other.
	Cache *DataCache
	// Progress, if not nil, is called now and then, from any goroutine.
	Progress func(DataProgress)
	// NoOthers: do not look for other snapshots that share what is damaged.
	NoOthers bool
	// Around are places to look for other snapshots in, beside the folder above the
	// snapshot's.
	Around []blobstore.Location
}

// DataProgress is how far the verification of data has come.
type DataProgress struct {
	Bytes int64 // read from state files
	Of    int64 // bytes of state that the metadata names; a sample reads fewer
}

// DataReport is what the verification of data saw.
type DataReport struct {
	// Sample is the part that was verified, "3/10" or "5%:SEED"; empty for all.
	Sample string `json:"sample,omitempty"`
	// Bytes were read from state files.
	Bytes int64 `json:"bytes"`
	// Records were decoded to their last byte: entries of tables (older versions and
	// list pieces too), rows of other files, changes of a changelog.
	Records int64 `json:"records"`
	// Blocks are data blocks of RocksDB tables, Tables their files.
	Blocks int64 `json:"blocks"`
	Tables int64 `json:"tables"`
	// Recalled are tables that were verified with an earlier snapshot.
	Recalled int64 `json:"recalledTables,omitempty"`
	// LeftOut are units outside the sample: data blocks, key groups, states,
	// change sets and channels.
	LeftOut int64 `json:"leftOut,omitempty"`
	// Undecoded are records with a part that nothing here can decode, by class.
	Undecoded int64            `json:"undecodedRecords"`
	Classes   map[string]int64 `json:"undecodedClasses,omitempty"`
	// NoChecksum are the files without a checksum of their own, in which only what
	// is structurally impossible can be found, by kind; the first of each are named.
	NoChecksum []NoChecksum `json:"withoutChecksum,omitempty"`
	// SharedBy are the other snapshots that name a damaged file.
	SharedBy []SharedDamage `json:"sharedBy,omitempty"`
	// NewestClean is the newest other snapshot nearby that was verified in the same
	// way and is sound; it names none of the damaged files.
	NewestClean string `json:"newestClean,omitempty"`
	// Searched is how many other snapshots were looked at.
	Searched int `json:"searchedSnapshots,omitempty"`
	// SearchError is why the search is not complete.
	SearchError string `json:"searchError,omitempty"`
}

// NoChecksum is a kind of files without checksums.
type NoChecksum struct {
	Kind string `json:"kind"` // "heap state", "channel state", …
	// Files are how many there are, Bytes the part of them that belongs to the
	// snapshot, Examples the first by name.
	Files    int64    `json:"files"`
	Bytes    int64    `json:"bytes"`
	Examples []string `json:"examples"`
}

// SharedDamage says who else needs a damaged file.
type SharedDamage struct {
	File      string   `json:"file"`
	Snapshots []string `json:"snapshots"` // URLs, newest first
}

// dataCheck is one verification of data.
type dataCheck struct {
	v    *verifier
	sc   *scan
	opts *DataOptions

	bytes atomic.Int64
	total int64
	slots chan struct{}

	mu       sync.Mutex
	report   DataReport
	findings []Finding
	seen     map[findingKey]bool
	missing  map[string]bool // URLs that the check of objects told of
	damaged  map[string]bool // URLs
	bare     map[string]map[string]int64
	held     map[*StateOperator][][]bool // key groups of which a table has entries
	// firstOptions is the first OPTIONS file of each operator.
	firstOptions map[*StateOperator]optionsFile
	workers      []*dataWorker
	failed       error
}

type findingKey struct {
	file, detail, state string
	offset              int64
}

// maxDamagedFiles bounds for how many files other snapshots are looked for.
const maxDamagedFiles = 10_000

func (v *verifier) data(ctx context.Context, opts *DataOptions, covered map[string]bool) error {
	s := *v.s
	c := &dataCheck{v: v, opts: opts, seen: map[findingKey]bool{}, missing: map[string]bool{}, damaged: map[string]bool{}, bare: map[string]map[string]int64{}, held: map[*StateOperator][][]bool{}, firstOptions: map[*StateOperator]optionsFile{}}
	for _, h := range s.Checkpoint.StreamHandles() {
		if t := s.Resolve(h); t.Kind == TargetObject || t.Kind == TargetSegment {
			c.total += max(t.Length, 0)
		}
	}
	s.onRead = func(n int64) {
		now := c.bytes.Add(n)
		if opts.Progress != nil {
			opts.Progress(DataProgress{now, c.total})
		}
	}
	for i := range v.out.Findings {
		f := &v.out.Findings[i]
		if strings.HasSuffix(f.Code, "-file-missing") || f.Code == "directory-as-file" || f.Severity == Unread {
			c.missing[f.File] = true
		}
		if f.Severity == Damage && f.File != v.file {
			c.damaged[f.File] = true
		}
	}
	c.sc = newScan(&s, &ScanOptions{Workers: opts.Workers, UID: opts.UID, Classes: opts.Classes, OnProblem: func(p *ScanProblem) { c.problem(p) }})
	c.sc.verify = c
	c.slots = make(chan struct{}, c.sc.opts.Workers)
	err := c.sc.run(ctx, func(int) func(*StateRow) error { return c.newWorker().row })
	if err == nil && c.failed == nil {
		err = c.channels(ctx)
	}
	if err = cmp.Or(err, c.failed); err != nil {
		return err
	}
	c.uncovered()
	c.finish(covered)
	if len(c.damaged) > 0 && !opts.NoOthers {
		if err := c.others(ctx); err != nil {
			return err
		}
	}
	v.out.Data = &c.report
	return nil
}

// finish puts together what the workers saw.
// finish makes the report; covered are files that have a checksum after all.
func (c *dataCheck) finish(covered map[string]bool) {
	r := &c.report
	r.Sample, r.Bytes = c.opts.Sample.String(), c.bytes.Load()
	classes := map[string]int64{}
	for _, w := range c.workers {
		r.Records += w.records
		for class, n := range w.opaque {
			r.Undecoded += n
			classes[cmp.Or(class, "unknown")] += n
		}
	}
	if r.Undecoded > 0 {
		r.Classes = classes
	}
	for kind, files := range c.bare {
		maps.DeleteFunc(files, func(file string, _ int64) bool { return covered[file] })
		if len(files) == 0 {
			continue
		}
		n := NoChecksum{Kind: kind, Files: int64(len(files))}
		for file, size := range files {
			n.Bytes += size
			n.Examples = append(n.Examples, file)
		}
		slices.Sort(n.Examples)
		n.Examples = n.Examples[:min(len(n.Examples), 10)]
		r.NoChecksum = append(r.NoChecksum, n)
	}
	slices.SortFunc(r.NoChecksum, func(a, b NoChecksum) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.State, b.State), cmp.Compare(a.Detail, b.Detail))
	})
	for _, f := range c.findings {
		c.v.add(f)
	}
	c.findings = nil
}

// coded gives a problem's error the code of its finding and the file it is about.
type coded struct {
	code string
	url  string
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// problem makes a finding of a problem, or ends the verification if the store failed.
func (c *dataCheck) problem(p *ScanProblem) {
	f := Finding{Severity: Damage, Code: "stream-corrupt", File: c.v.file, Offset: -1, Detail: p.Err.Error(),
		Operator: p.Operator.ID, State: p.State}
	if p.Operator.Position < 0 {
		f.Operator = ""
	}
	if p.Subtask >= 0 {
		f.Subtask = &p.Subtask
	}
	if p.KeyGroup >= 0 {
		f.KeyGroups = &KeyGroupSpan{p.KeyGroup, p.KeyGroup}
	}
	var d *damage.Error
	if errors.As(p.Err, &d) {
		f.Offset, f.Detail = d.Offset, d.Detail
		if f.Detail == "" && d.Err != nil {
			f.Detail = d.Err.Error()
		}
		if d.Field != "" {
			f.Detail = d.Field + " " + f.Detail
		}
		if name, inline := strings.CutSuffix(d.Name, " (inline)"); name != "" {
			f.File = name
			if inline {
				f.Offset = -1
			}
		}
	}
	var own *coded
	if errors.As(p.Err, &own) {
		f.Code = own.code
		if own.url != "" {
			f.File = own.url
		}
	}
	var block *sst.BlockError
	if errors.As(p.Err, &block) {
		f.Code = "block-corrupt"
	}
	var file *fileError
	hasFile := errors.As(p.Err, &file)
	if hasFile && d == nil {
		f.File, f.Detail = file.name, file.err.Error()
	}
	var call *blobstore.Error
	if !hasFile && d == nil && own == nil && errors.As(p.Err, &call) {
		f.File = call.URL
	}
	switch {
	case p.Opaque:
		f.Severity, f.Code = Note, "opaque-state"
	case errors.Is(p.Err, damage.ErrUnsupportedVersion) && own != nil && own.code == "database-corrupt":
		// A flipped bit in a footer looks like this, too.
		f.Code, f.Detail = "table-version", f.Detail+": damage, or a version that is not supported"
	case errors.Is(p.Err, damage.ErrUnsupportedVersion):
		f.Severity, f.Code = Note, "unsupported-data"
		c.count("unsupported version", 1)
	case errors.Is(p.Err, ErrRefused), notThere(p.Err) && c.missing[f.File]:
		return // the check of objects has told
	case errors.Is(p.Err, blobstore.ErrPermission):
		f.Severity, f.Code, f.Detail = Unread, "no-access", "cannot be read: access denied"
		c.deny(f.File)
	case notThere(p.Err):
		f.Code, f.Detail = "file-missing", "is missing"
	case errors.Is(p.Err, damage.ErrCorrupt), errors.Is(p.Err, blobstore.ErrDataCorrupt):
	case errors.Is(p.Err, io.EOF), errors.Is(p.Err, io.ErrUnexpectedEOF):
		f.Detail = "ends early"
	case errors.Is(p.Err, errMerge):
		f.Severity, f.Code = Note, "merged-by-job"
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = cmp.Or(c.failed, p.Err)
		return
	}
	if p.Opaque && p.Rows > 0 {
		c.count("unknown", p.Rows)
	}
	c.add(f, p)
}

// notThere says that there is no file to read, or none that may be read.
func notThere(err error) bool {
	return errors.Is(err, blobstore.ErrNotExist) || errors.Is(err, blobstore.ErrIsDirectory) ||
		errors.Is(err, blobstore.ErrUnsupported) || errors.Is(err, blobstore.ErrPermission)
}

func (c *dataCheck) deny(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.v.denied(file)
}

// add keeps a finding once.
func (c *dataCheck) add(f Finding, p *ScanProblem) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var block *sst.BlockError
	if p != nil && errors.As(p.Err, &block) && f.KeyGroups == nil {
		f.KeyGroups = keyGroupsOfBlock(block, p.Operator.MaxParallelism)
	}
	k := findingKey{f.File, f.Detail, f.State, f.Offset}
	if f.Severity == Note {
		k.offset = -1
	}
	if c.seen[k] {
		return
	}
	if f.Severity == Damage && len(c.damaged) < maxDamagedFiles {
		c.damaged[f.File] = true
	}
	if m := c.v.max; m >= 0 && len(c.findings) >= m {
		// Counted, not kept.
		c.v.count(f.Severity)
		return
	}
	c.seen[k] = true
	c.findings = append(c.findings, f)
}

// keyGroupsOfBlock is the span of key groups that a block's keys lie in; nil if the
// index does not tell.
func keyGroupsOfBlock(b *sst.BlockError, maxParallelism int32) *KeyGroupSpan {
	group := func(key []byte) (int32, bool) {
		if maxParallelism <= 128 {
			if len(key) < 1 {
				return 0, false
			}
			return int32(key[0]), true
		}
		if len(key) < 2 {
			return 0, false
		}
		return int32(key[0])<<8 | int32(key[1]), true
	}
	last, ok := group(b.Upper)
	if !ok {
		return nil
	}
	first, ok := group(b.Lower)
	if !ok {
		first = 0
	}
	return &KeyGroupSpan{min(first, last), min(last, max(maxParallelism-1, 0))}
}

// holds registers the key groups that a table has entries of, filled in later.
func (c *dataCheck) holds(op *StateOperator, groups []bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[op] = append(c.held[op], groups)
}

// uncovered looks for entries of key groups that no handle of the operator covers:
// after a rescale a database still holds key groups that others have taken over,
// never such that nobody has.
func (c *dataCheck) uncovered() {
	for op, tables := range c.held {
		covered := make([]bool, op.MaxParallelism)
		o := &c.sc.s.Checkpoint.Operators[op.Position]
		for i := range o.Subtasks {
			if h := o.Subtasks[i].ManagedKeyed; h != nil {
				for kg := max(h.KeyGroups().Start, 0); kg <= h.KeyGroups().End() && int(kg) < len(covered); kg++ {
					covered[kg] = true
				}
			}
		}
		first, last, n := int32(-1), int32(-1), 0
		for kg := range covered {
			if !covered[kg] && slices.ContainsFunc(tables, func(held []bool) bool { return held[kg] }) {
				if n++; first < 0 {
					first = int32(kg)
				}
				last = int32(kg)
			}
		}
		if n > 0 {
			c.add(Finding{Severity: Damage, Code: "key-groups-lost", File: c.v.file, Offset: -1, Operator: op.ID, KeyGroups: &KeyGroupSpan{first, last},
				Detail: fmt.Sprintf("%d key groups with entries in tables of the operator, such as %d, lie in no handle's range", n, first)}, nil)
		}
	}
}

func (c *dataCheck) count(class string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.workers = append(c.workers, &dataWorker{opaque: map[string]int64{class: n}})
}

// unprotected notes a file without checksums.
func (c *dataCheck) unprotected(kind, file string, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bare[kind] == nil {
		c.bare[kind] = map[string]int64{}
	}
	c.bare[kind][file] += size
}

func (c *dataCheck) leftOut(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.LeftOut += n
}

// metaEnd sees that what follows a meta block begins where it ends.
func (c *dataCheck) metaEnd(j handleJob, name, kind string, end, next int64) {
	if kind == "meta" {
		c.unprotected("state descriptions", name, next)
	}
	if end < 0 || end == next {
		return
	}
	err := &damage.Error{Name: name, Offset: min(end, next), Field: "meta block", Detail: fmt.Sprintf("ends at byte %d, and what follows it begins at %d", end, next), Err: damage.ErrCorrupt}
	c.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: &coded{"unclaimed-bytes", name, err}})
}

// keyGroups looks at a stream of key groups and chooses among them.
func (c *dataCheck) keyGroups(j handleJob, f *keyedFile, src sst.Source, regions []stream.Region, canonical bool) []stream.Region {
	if !f.meta.Compressed {
		kind := "heap state"
		if canonical {
			kind = "canonical savepoints"
		}
		c.unprotected(kind, f.name, src.Size())
	} else {
		c.unprotected("state descriptions", f.name, max(f.meta.Size, 0))
	}
	next := src.Size()
	for _, r := range regions {
		next = min(next, r.From)
	}
	c.metaEnd(j, f.name, "key groups", f.meta.Size, next)
	return c.chooseRegions(f.name, regions)
}

func (c *dataCheck) chooseRegions(name string, regions []stream.Region) []stream.Region {
	choose := c.opts.Sample.choose(name)
	if choose == nil {
		return regions
	}
	var kept []stream.Region
	for _, r := range regions {
		if choose(uint64(r.KeyGroup)) {
			kept = append(kept, r)
		}
	}
	c.leftOut(int64(len(regions) - len(kept)))
	return kept
}

func (c *dataCheck) rawKeyed(name string, src sst.Source, regions []stream.Region) []stream.Region {
	c.unprotected("raw keyed state", name, src.Size())
	return c.chooseRegions(name, regions)
}

// partition says whether the i-th state of an operator state file is chosen. Without
// src it stands in the metadata.
func (c *dataCheck) partition(name, kind string, src sst.Source, compressed bool, i int) bool {
	if src != nil && !compressed && i == 0 {
		c.unprotected(kind, name, src.Size())
	}
	choose := c.opts.Sample.choose(name)
	if choose == nil || choose(uint64(i)) {
		return true
	}
	c.leftOut(1)
	return false
}

// channels reads the buffers of in-flight data.
func (c *dataCheck) channels(ctx context.Context) error {
	type numbered struct {
		*InFlight
		n uint64
	}
	var all []numbered
	counts := map[string]uint64{}
	for f := range InFlightChannels(c.sc.s, &ScanOptions{UID: c.opts.UID}) {
		n := counts[f.File]
		counts[f.File]++
		if choose := c.opts.Sample.choose(f.File); choose != nil && !choose(n) {
			c.leftOut(1)
			continue
		}
		all = append(all, numbered{f, n})
	}
	var records atomic.Int64
	err := parallel(ctx, c.sc.opts.Workers, len(all), func(ctx context.Context, i int) error {
		f := all[i]
		c.unprotected("channel state", f.File, f.Bytes)
		n, err := checkChannel(ctx, f.InFlight)
		records.Add(n)
		if ctxErr(err) {
			return err
		}
		if err != nil {
			side := "input"
			if f.Output {
				side = "output"
			}
			c.problem(&ScanProblem{Operator: f.Operator, State: fmt.Sprintf("%s channel %d.%d", side, f.Gate, f.Channel), Subtask: f.Subtask, KeyGroup: -1, Err: err})
		}
		return c.failed
	})
	c.report.Records += records.Load()
	return err
}

// checkChannel reads all buffers of a channel and counts the records of an input.
func checkChannel(ctx context.Context, f *InFlight) (records int64, err error) {
	r, err := f.Open(ctx)
	if err != nil {
		return 0, err
	}
	var payload int64
	if f.Output {
		payload, err = io.Copy(io.Discard, r)
	} else {
		var split InFlightRecords
		split, err = splitRecords(r, nil)
		records, payload = split.Whole, split.Payload
	}
	if err != nil {
		return records, named(f.File, err)
	}
	want := f.Bytes - 4*int64(f.Buffers)
	for _, p := range f.parts {
		if f.s.Resolve(p.handle).Kind == TargetInline {
			want -= 4 // of the stream's version, counted where a stream holds one channel
		}
	}
	if payload != want {
		return records, &damage.Error{Name: f.File, Offset: -1, Field: "buffers", Detail: fmt.Sprintf("hold %d bytes, %d by the metadata", payload, want), Err: damage.ErrCorrupt}
	}
	return records, nil
}
