package snapshot

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// UsageOptions changes DiskUsage. Nil is the default.
type UsageOptions struct {
	Options *Options
	// Grace: unreferenced objects modified less than this before Now are also
	// counted as recent, since a checkpoint that is being written may need them;
	// 0 is 24 hours.
	Grace time.Duration
	Now   time.Time // zero: the time at the call
	// MemoryBytes bounds what is sorted in memory before it spills to files in
	// TempDir; 0 is 16 MiB.
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
	VerdictMetadata     Verdict = "metadata"     // a snapshot's metadata object, or what our runtime keeps beside checkpoints
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
	// SharingsLeftOff are files of groups beyond the first 4096 met.
	SharingsLeftOff Count `json:"sharingsLeftOff"`
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
	u := usage{pool: pool, root: root, out: &Usage{Root: root.String(), Examples: map[Verdict][]string{}}}
	if opts != nil {
		u.opts = *opts
	}
	u.progress.report = u.opts.Progress
	u.opts.Grace = cmp.Or(u.opts.Grace, 24*time.Hour)
	if u.opts.Now.IsZero() {
		u.opts.Now = time.Now()
	}
	if u.opts.MemoryBytes <= 0 {
		u.opts.MemoryBytes = 16 << 20
	}
	u.opts.MaxExamples = cmp.Or(u.opts.MaxExamples, 10)
	u.listed = newSpool(u.opts.TempDir, int(u.opts.MemoryBytes/4))
	u.inside = &sorter{dir: u.opts.TempDir, budget: u.opts.MemoryBytes / 2}
	u.outside = &sorter{dir: u.opts.TempDir, budget: u.opts.MemoryBytes / 4}
	err := u.run(ctx)
	err = errors.Join(err, u.listed.close(), u.inside.close(), u.outside.close())
	if err != nil {
		return nil, fmt.Errorf("disk usage of %s: %w", root, err)
	}
	return u.out, nil
}

type usage struct {
	progress
	pool   *blobstore.Pool
	root   blobstore.Location
	opts   UsageOptions
	store  blobstore.Store
	prefix string // of names below the root
	out    *Usage

	listed  *spool
	inside  *sorter // by name below the root
	outside *sorter // by Location.Key

	refs     []Ref           // of out.Snapshots
	complete map[string]bool // folders with a _metadata object, below the root
	meta     map[string]bool // metadata objects, below the root

	mu       sync.Mutex // guards the fields below and the sorters
	doubts   []string   // why the result is not conclusive
	entropy  bool
	foreign  map[string]int64 // handles by store and folder outside the root
	sharings map[string]*Count
}

func (u *usage) run(ctx context.Context) error {
	store, path, err := u.pool.Resolve(ctx, u.root)
	if err != nil {
		return err
	}
	u.store = store
	if u.prefix = path; path != "" {
		u.prefix += "/"
	}
	u.complete, u.meta, u.foreign, u.sharings = map[string]bool{}, map[string]bool{}, map[string]int64{}, map[string]*Count{}
	if err := u.list(ctx); err != nil {
		return err
	}
	if u.out.Total.Objects == 0 {
		return fmt.Errorf("%w: it does not exist or is empty", ErrNoSnapshot)
	}
	slices.SortFunc(u.refs, func(a, b Ref) int { return comparePaths(a.Dir.Path, b.Dir.Path) })
	u.out.Snapshots = make([]SnapshotUsage, len(u.refs))
	if err := u.read(ctx, 0); err != nil {
		return err
	}
	if err := u.lookAgain(ctx); err != nil {
		return err
	}
	u.doubtRoot()
	u.out.Conclusive = len(u.doubts) == 0
	if err := u.judge(); err != nil {
		return err
	}
	if err := u.judgeOutside(); err != nil {
		return err
	}
	if err := u.temporary(ctx); err != nil {
		return err
	}
	u.finish()
	return nil
}

// list spools the listing and finds the metadata objects in it.
func (u *usage) list(ctx context.Context) error {
	last := ""
	for info, err := range u.store.List(ctx, &blobstore.ListOptions{Prefix: u.prefix}) {
		if errors.Is(err, blobstore.ErrNotExist) && u.out.Total.Objects == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if info.IsPrefix {
			continue
		}
		if info.Name <= last && last != "" {
			return fmt.Errorf("the store lists %q after %q, out of order", info.Name, last)
		}
		last = info.Name
		name := info.Name[len(u.prefix):]
		if err := u.listed.add(listed{name, info.Size, info.ModTime}); err != nil {
			return err
		}
		u.out.Total.add(info.Size)
		if u.out.Total.Objects%1000 == 0 {
			u.add(0, 1000, 0)
		}
		if baseName(name) == MetadataName {
			u.found(newRef(u.root.Join(name), info), strings.Clone(name))
		}
	}
	return context.Cause(ctx)
}

// doubtRoot doubts a root without snapshots: a shared folder, or no place of
// Flink's at all.
func (u *usage) doubtRoot() {
	for i := range u.out.Snapshots {
		if u.out.Snapshots[i].Error == "" {
			return
		}
	}
	u.doubt("%s: no snapshot lies below this root", u.root)
}

func (u *usage) found(ref Ref, name string) {
	u.refs = append(u.refs, ref)
	u.complete[parentPath(name)] = true
	u.meta[name] = true
}

// comparePaths orders paths part by part, chk-N by number.
func comparePaths(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, "/")
		y, b, _ = strings.Cut(b, "/")
		if r := compareFolders(x, y); r != 0 {
			return r
		}
	}
	return cmp.Compare(len(a), len(b))
}

// maxMetadataInFlight bounds the metadata read at one time; a larger one is read
// alone. Decoded it takes a few times as much.
const maxMetadataInFlight = 8 << 20

// read reads the metadata of u.refs[from:].
func (u *usage) read(ctx context.Context, from int) error {
	parallelism := u.opts.Parallelism
	if parallelism <= 0 {
		parallelism = u.opts.Options.parallelism()
	}
	weights := newWeights(maxMetadataInFlight)
	return parallel(ctx, parallelism, len(u.refs)-from, func(ctx context.Context, i int) error {
		i += from
		size := u.refs[i].Size
		weights.acquire(size)
		defer weights.release(size)
		return u.readOne(ctx, i)
	})
}

func (u *usage) readOne(ctx context.Context, i int) error {
	ref := &u.refs[i]
	out := &u.out.Snapshots[i]
	*out = SnapshotUsage{URL: ref.Location.String(), Name: ref.Name, Job: ref.Job}
	s, err := Open(ctx, u.pool, ref.Location, u.opts.Options)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out.Error = err.Error()
		if errors.Is(err, ErrNoSnapshot) || errors.Is(err, blobstore.ErrNotExist) {
			// Deleted since it was listed. A newer one is found by looking again.
			out.Error = "deleted while it was read"
			return nil
		}
		u.doubt("%s could not be read: %v", ref.Location, err)
		return nil
	}
	u.add(0, 0, 1)
	return u.references(s, int32(i), out)
}

func (u *usage) doubt(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.doubts = append(u.doubts, fmt.Sprintf(format, args...))
}

// references adds what a snapshot names to the sorters.
func (u *usage) references(s *Snapshot, index int32, out *SnapshotUsage) error {
	type folder struct {
		rel    string // below the root
		inside bool
		own    bool // of the snapshot's own job, yet outside the root
	}
	folders := map[*place]folder{}
	var (
		batch    []reference
		batchOut []reference
		astray   int64
		example  string
		refusal  error
	)
	flush := func() error {
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, r := range batch {
			if err := u.inside.add(r); err != nil {
				return err
			}
		}
		for _, r := range batchOut {
			if err := u.outside.add(r); err != nil {
				return err
			}
		}
		batch, batchOut = batch[:0], batchOut[:0]
		return nil
	}
	self := &s.res.self
	jobRoot := self.dir
	jobRoot.Path = self.root
	_, jobInside := jobRoot.Rel(u.root)
	for p, h := range s.Checkpoint.StreamHandles() {
		out.LogicalBytes += max(logicalSize(p, h), 0)
		r := reference{snapshot: index, whole: true, end: -1}
		switch h := h.(type) {
		case *metadata.FileHandle:
			r.end = max(h.Size, -1)
		case *metadata.RelativeFileHandle:
			r.end = max(h.Size, -1)
		case *metadata.SegmentHandle:
			r.whole, r.start, r.end = false, h.Start, h.Start+h.Length
		default:
			continue
		}
		f, err := s.res.locate(h)
		if err != nil {
			out.Refused++
			if refusal == nil {
				refusal = fmt.Errorf("%s: %w", shown(writtenPath(h)), err)
			}
			continue
		}
		d, ok := folders[f.place]
		if !ok {
			d.rel, d.inside = f.place.loc.Rel(u.root)
			if !d.inside {
				d.own = jobInside && u.isAstray(self, f.place)
				u.countForeign(f.place)
			}
			if len(folders) < maxPlaces {
				folders[f.place] = d
			}
		}
		if d.own {
			astray++
			example = f.place.loc.String()
		}
		if d.inside {
			r.name = joinPath(d.rel, f.name)
			batch = append(batch, r)
		} else {
			r.name = f.location().Key()
			batchOut = append(batchOut, r)
		}
		if len(batch)+len(batchOut) >= 1024 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if out.Refused > 0 {
		u.doubt("%s: %d handles are not followed (%v); they may mean files here", s.Location, out.Refused, refusal)
	}
	if astray > 0 {
		u.doubt("%s: %d handles name files of its own job outside this root (%s); what lies here in their stead is not judged", s.Location, astray, example)
	}
	return flush()
}

// isAstray reports whether a place outside the root is one that belongs to the
// snapshot's own job, whose folder is below the root: the folder is a copy whose
// original still exists, or the store is known here by another name. Files below
// the root must not be called unreferenced then.
func (u *usage) isAstray(self *self, p *place) bool {
	if self.job == "" {
		return p.class == ClassExclusive
	}
	if p.owner != self.job || p.class == ClassChangelog {
		return false
	}
	if before, _, _, ok := jobOf(p.loc.Path); ok && p.loc.SameStore(self.dir) && isInserted(before, self.base) {
		u.mu.Lock()
		u.entropy = true
		u.mu.Unlock()
		return false
	}
	return true
}

// maxForeign bounds the folders outside the root that are told.
const maxForeign = 1000

func (u *usage) countForeign(p *place) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := p.loc.String()
	if _, ok := u.foreign[key]; ok || len(u.foreign) < maxForeign {
		u.foreign[key]++
	}
}

// logicalSize is the size of the state behind a handle: of a file with the data
// of many channels, this channel's.
func logicalSize(p metadata.Place, h metadata.StreamHandle) int64 {
	switch p.Slot {
	case metadata.SlotInputChannel:
		return p.Subtask.InputChannels[p.Pos].Size
	case metadata.SlotOutputChannel:
		return p.Subtask.OutputChannels[p.Pos].Size
	}
	return metadata.StateSize(h)
}

// lookAgain searches for snapshots that were completed since the listing: files
// that it shows may be theirs.
func (u *usage) lookAgain(ctx context.Context) error {
	known := make(map[string]bool, len(u.refs))
	for i := range u.refs {
		known[u.refs[i].Location.Path] = true
	}
	const rounds = 5
	for round := 0; ; round++ {
		from := len(u.refs)
		for ref, err := range Find(ctx, u.pool, u.root, &FindOptions{Parallelism: u.opts.Parallelism, MaxDepth: maxFindDepth}) {
			if errors.Is(err, ErrNoSnapshot) {
				break
			}
			if err != nil {
				return err
			}
			if !ref.Incomplete && !known[ref.Location.Path] {
				known[ref.Location.Path] = true
				name, _ := ref.Location.Rel(u.root)
				u.found(ref, name)
			}
		}
		if len(u.refs) == from {
			return nil
		}
		if round == rounds {
			u.doubts = append(u.doubts, "snapshots are completed faster than they can be read")
			return nil
		}
		u.out.Snapshots = append(u.out.Snapshots, make([]SnapshotUsage, len(u.refs)-from)...)
		if err := u.read(ctx, from); err != nil {
			return err
		}
	}
}

// maxFindDepth is for searches that must not miss anything.
const maxFindDepth = 64

// judge merges the listing with the references.
func (u *usage) judge() error {
	next, stop := iter.Pull2(u.inside.sorted())
	defer stop()
	g := group{}
	head, err, ok := next()
	for o, lerr := range u.listed.all() {
		if lerr != nil {
			return lerr
		}
		for ok && err == nil && head.name < o.name {
			g.reset(head.name)
			for ok && err == nil && head.name == g.name {
				g.add(head)
				head, err, ok = next()
			}
			u.missing(&g)
		}
		g.reset(o.name)
		for ok && err == nil && head.name == o.name {
			g.add(head)
			head, err, ok = next()
		}
		if err != nil {
			return err
		}
		if err := u.verdict(o, &g); err != nil {
			return err
		}
	}
	for ok && err == nil {
		g.reset(head.name)
		for ok && err == nil && head.name == g.name {
			g.add(head)
			head, err, ok = next()
		}
		u.missing(&g)
	}
	return err
}

// group is all references to one object.
type group struct {
	name      string
	snapshots []int32
	whole     bool
	size      int64 // the largest size said
	ranges    [][2]int64
}

func (g *group) reset(name string) {
	*g = group{name: name, snapshots: g.snapshots[:0], ranges: g.ranges[:0], size: -1}
}

func (g *group) add(r reference) {
	if n := len(g.snapshots); n == 0 || g.snapshots[n-1] != r.snapshot {
		g.snapshots = append(g.snapshots, r.snapshot)
	}
	g.size = max(g.size, r.end)
	if r.whole {
		g.whole = true
		return
	}
	if n := len(g.ranges); n > 0 && g.ranges[n-1] == [2]int64{r.start, r.end} {
		return
	}
	g.ranges = append(g.ranges, [2]int64{r.start, r.end})
}

// names gives the snapshots, each once, in order.
func (g *group) names() []int32 {
	slices.Sort(g.snapshots)
	g.snapshots = slices.Compact(g.snapshots)
	return g.snapshots
}

// covered is how many bytes of an object of the given size are named.
func (g *group) covered(size int64) int64 {
	if g.whole {
		return size
	}
	slices.SortFunc(g.ranges, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var n, end int64
	for _, r := range g.ranges {
		from, to := max(r[0], end), min(r[1], size)
		if to > from {
			n += to - from
		}
		end = max(end, to)
	}
	return n
}

func (u *usage) verdict(o listed, g *group) error {
	v := UsageObject{Name: o.name, Bytes: o.size, ModTime: o.modTime}
	v.Recent = !o.modTime.IsZero() && u.opts.Now.Sub(o.modTime) < u.opts.Grace
	names := g.names()
	switch {
	case len(names) > 0:
		v.Verdict, v.Snapshots, v.ReferencedBytes = VerdictReferenced, len(names), g.covered(o.size)
		u.out.Referenced.add(o.size)
		u.out.DeadSegmentBytes += o.size - v.ReferencedBytes
		for _, i := range names {
			s := &u.out.Snapshots[i]
			s.Physical.add(o.size)
			if len(names) == 1 {
				s.Unique.add(o.size)
			} else {
				s.Shared.add(o.size)
			}
		}
		if len(names) > 1 {
			u.share(names, o.size)
		}
	case u.meta[o.name], isBookkeeping(o.name), baseName(o.name) == ChecksumsName && u.complete[parentPath(o.name)]:
		v.Verdict = VerdictMetadata
		u.out.Metadata.add(o.size)
	case u.isIncomplete(o.name):
		v.Verdict = VerdictIncomplete
		u.out.Incomplete.add(o.size)
	case !u.out.Conclusive:
		v.Verdict = VerdictUnknown
		u.out.Unknown.add(o.size)
	default:
		v.Verdict = VerdictUnreferenced
		u.out.Unreferenced.add(o.size)
		if v.Recent {
			u.out.UnreferencedRecent.add(o.size)
		}
	}
	if v.Verdict != VerdictReferenced && v.Verdict != VerdictMetadata {
		if ex := u.out.Examples[v.Verdict]; len(ex) < u.opts.MaxExamples {
			u.out.Examples[v.Verdict] = append(ex, v.Name)
		}
	}
	if u.opts.Each != nil {
		return u.opts.Each(v)
	}
	return nil
}

// isIncomplete reports whether a name lies in the folder of a checkpoint or
// savepoint that has no _metadata object.
func (u *usage) isIncomplete(name string) bool {
	if newDirRef(u.root).Kind != RefOther && !u.complete[""] {
		return true
	}
	for at := 0; ; {
		i := strings.IndexByte(name[at:], '/')
		if i < 0 {
			return false
		}
		part := name[at : at+i]
		if checkpointNumber(part) >= 0 || savepointJob(part) != "" {
			return !u.complete[name[:at+i]]
		}
		at += i + 1
	}
}

// maxSharings bounds the groups of snapshots that are told apart.
const maxSharings = 4096

func (u *usage) share(names []int32, size int64) {
	key := make([]byte, 0, 64)
	for _, n := range names {
		key = binary.AppendUvarint(key, uint64(n))
	}
	c := u.sharings[string(key)]
	if c == nil {
		if len(u.sharings) >= maxSharings {
			u.out.SharingsLeftOff.add(size)
			return
		}
		c = &Count{}
		u.sharings[string(key)] = c
	}
	c.add(size)
}

func (u *usage) missing(g *group) {
	u.out.Missing++
	for _, i := range g.names() {
		u.out.Snapshots[i].Missing++
	}
}

func (u *usage) judgeOutside() error {
	g := group{}
	flush := func() {
		if g.name == "" {
			return
		}
		u.out.Outside.add(max(g.size, 0))
		for _, i := range g.names() {
			u.out.Snapshots[i].Outside.add(max(g.size, 0))
		}
	}
	for r, err := range u.outside.sorted() {
		if err != nil {
			return err
		}
		if r.name != g.name {
			flush()
			g.reset(r.name)
		}
		g.add(r)
	}
	flush()
	return nil
}

func (u *usage) temporary(ctx context.Context) error {
	lister, ok := u.store.(blobstore.TemporaryLister)
	if !ok {
		return nil
	}
	for info, err := range lister.ListTemporary(ctx, u.prefix) {
		if errors.Is(err, blobstore.ErrPermission) || errors.Is(err, blobstore.ErrUnsupported) {
			u.out.Warnings = append(u.out.Warnings, "what unfinished writers left could not be listed: "+err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		u.out.Temporary.add(info.Size)
	}
	return nil
}

func (u *usage) finish() {
	out := u.out
	for i := range out.Snapshots {
		out.LogicalBytes += out.Snapshots[i].LogicalBytes
	}
	for key, c := range u.sharings {
		s := Sharing{Count: *c}
		for b := []byte(key); len(b) > 0; {
			n, w := binary.Uvarint(b)
			s.Snapshots = append(s.Snapshots, int(n))
			b = b[w:]
		}
		out.Sharings = append(out.Sharings, s)
	}
	slices.SortFunc(out.Sharings, func(a, b Sharing) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Objects, a.Objects), slices.Compare(a.Snapshots, b.Snapshots))
	})
	slices.Sort(u.doubts)
	const maxDoubts = 20
	for i, d := range u.doubts {
		if i == maxDoubts {
			out.Warnings = append(out.Warnings, fmt.Sprintf("and %d more like these", len(u.doubts)-i))
			break
		}
		out.Warnings = append(out.Warnings, d)
	}
	if !out.Conclusive {
		out.Warnings = append(out.Warnings, "what no snapshot names is therefore counted as unknown, not as unreferenced")
	}
	if u.entropy {
		out.Warnings = append(out.Warnings, "entropy injection: data lies under random prefixes outside this root; only a root above all of them shows what is unreferenced there")
	}
	if len(u.foreign) > 0 {
		names := slices.Sorted(maps.Keys(u.foreign))
		line := fmt.Sprintf("%d objects outside this root are named, in %s", out.Outside.Objects, names[0])
		if len(names) > 1 {
			line += fmt.Sprintf(" and %d other folders", len(names)-1)
		}
		out.Warnings = append(out.Warnings, line)
	}
	if _, _, _, ok := jobOf(u.root.Path); ok {
		out.Warnings = append(out.Warnings, "this is one job's folder: a job that was restored from it may name files in it, which only a root above both shows")
	} else if out.Unreferenced.Objects > 0 {
		out.Warnings = append(out.Warnings, "snapshots outside this root were not looked at: jobs restored from here (CLAIM, LEGACY) and kept elsewhere may name files in it")
	}
}

func (c *Count) add(bytes int64) {
	c.Objects++
	c.Bytes += bytes
}

// weights is a semaphore for sizes. A size over the limit gets it alone.
type weights struct {
	mu    sync.Mutex
	cond  *sync.Cond
	limit int64
	used  int64
}

func newWeights(limit int64) *weights {
	w := &weights{limit: limit}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *weights) acquire(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.used > 0 && w.used+n > w.limit {
		w.cond.Wait()
	}
	w.used += n
}

func (w *weights) release(n int64) {
	w.mu.Lock()
	w.used -= n
	w.mu.Unlock()
	w.cond.Broadcast()
}
