package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Problem is what is wrong with one referenced object.
type Problem string

// Problems. The strings are stable.
const (
	ProblemMissing  Problem = "missing"    // there is no such object
	ProblemShort    Problem = "short"      // fewer bytes than the handle needs
	ProblemLong     Problem = "long"       // more bytes than the handle says
	ProblemRefused  Problem = "refused"    // the rules for untrusted metadata forbid to look
	ProblemNotAFile Problem = "not-a-file" // a directory lies there, or no regular file
	ProblemNoAccess Problem = "no-access"  // the store denies access to it
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
	Class    Class   `json:"class"`
	// RefusedBy names the rule by which a handle is refused: climbs-out, bad-path,
	// local-from-remote, other-store, special-file, bad-segment.
	RefusedBy string `json:"refusedBy,omitempty"`
	// Handles is how many handles of the snapshot need this object.
	Handles int `json:"handles"`
	// Relative: the handle is relative to the metadata's folder.
	Relative bool `json:"relative,omitempty"`
	// Found is where an object of the same name lies, if it was found elsewhere;
	// Hint says so in words.
	Found string `json:"found,omitempty"`
	Hint  string `json:"hint,omitempty"`
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
	if opts == nil {
		opts = &CheckOptions{}
	}
	c := checker{s: s, opts: opts, parallelism: opts.Parallelism, progress: progress{report: opts.Progress}}
	if c.parallelism <= 0 {
		c.parallelism = s.opts.parallelism()
	}
	c.maxProblems = opts.MaxProblems
	if c.maxProblems == 0 {
		c.maxProblems = 100
	}
	c.collect()
	c.objectsOf()
	if err := c.look(ctx); err != nil {
		return nil, fmt.Errorf("check %s: %w", s.Location, err)
	}
	if err := c.judge(ctx); err != nil {
		return nil, fmt.Errorf("check %s: %w", s.Location, err)
	}
	if !opts.NoHints {
		if err := c.hints(ctx); err != nil {
			return nil, fmt.Errorf("check %s: %w", s.Location, err)
		}
	}
	return c.finish(), nil
}

type checker struct {
	progress
	s           *Snapshot
	opts        *CheckOptions
	parallelism int
	maxProblems int

	needs   []need
	places  []*place // by need.rank
	objects []object
	refused []refusedHandle
	nRefuse int

	report   Report
	ordinals []int32 // of the problems' handles, for details
}

// need is what one handle wants of an object.
type need struct {
	name    string
	size    int64 // bytes; -1 any
	rank    int32 // of the place, in the order of addresses
	ordinal int32 // number of the handle in Checkpoint.StreamHandles
	kind    needKind
	rel     bool // a relative handle
}

type needKind uint8

const (
	needExact     needKind = iota
	needAtLeast            // a segment that ends there
	needChangelog          // a changelog file
)

type refusedHandle struct {
	ordinal int32
	written string
	place   *place
	size    int64
	err     error
}

// object is a physical object: the needs from first to last, all with one name.
type object struct {
	first, last int32
	status      objectStatus
	size        int64
}

type objectStatus uint8

const (
	statusUnknown objectStatus = iota
	statusFound
	statusMissing
	statusDirectory
	statusSpecial
	statusNoAccess
)

// collect walks the handles.
func (c *checker) collect() {
	index := make(map[*place]int32, len(c.s.res.places))
	c.needs = make([]need, 0, c.s.fileHandles)
	ordinal := int32(-1)
	for p, h := range c.s.Checkpoint.StreamHandles() {
		ordinal++
		n := need{size: -1, ordinal: ordinal}
		switch h := h.(type) {
		case *metadata.FileHandle:
			n.size = h.Size
			if p.Part == metadata.PartChangelog {
				n.kind = needChangelog
			}
		case *metadata.RelativeFileHandle:
			n.size, n.rel = h.Size, true
			if p.Part == metadata.PartChangelog {
				n.kind = needChangelog
			}
		case *metadata.SegmentHandle:
			n.size, n.kind = h.Start+h.Length, needAtLeast
		default:
			continue
		}
		f, err := c.s.res.locate(h)
		if err != nil {
			c.nRefuse++
			if c.maxProblems < 0 || len(c.refused) < c.maxProblems {
				c.refused = append(c.refused, refusedHandle{ordinal, shown(writtenPath(h)), f.place, n.size, err})
			}
			continue
		}
		i, ok := index[f.place]
		if !ok {
			i = int32(len(c.places))
			index[f.place] = i
			c.places = append(c.places, f.place)
		}
		n.name, n.rank = f.name, i
		c.needs = append(c.needs, n)
	}
	// Ranks in the order of addresses; equal locations share one.
	order := make([]int32, len(c.places))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return compareLocations(c.places[a].loc, c.places[b].loc) })
	rank := make([]int32, len(c.places))
	sorted := make([]*place, 0, len(c.places))
	for i, o := range order {
		if i == 0 || compareLocations(c.places[order[i-1]].loc, c.places[o].loc) != 0 {
			sorted = append(sorted, c.places[o])
		}
		rank[o] = int32(len(sorted) - 1)
	}
	for i := range c.needs {
		c.needs[i].rank = rank[c.needs[i].rank]
	}
	c.places = sorted
	slices.SortFunc(c.needs, func(a, b need) int {
		if a.rank != b.rank {
			return int(a.rank - b.rank)
		}
		if r := strings.Compare(a.name, b.name); r != 0 {
			return r
		}
		return int(a.ordinal - b.ordinal)
	})
}

func compareLocations(a, b blobstore.Location) int { return strings.Compare(a.Key(), b.Key()) }

func (c *checker) objectsOf() {
	n := 0
	for i := range c.needs {
		if i == 0 || c.needs[i].rank != c.needs[i-1].rank || c.needs[i].name != c.needs[i-1].name {
			n++
		}
	}
	c.objects = make([]object, 0, n)
	for i := range c.needs {
		if i == 0 || c.needs[i].rank != c.needs[i-1].rank || c.needs[i].name != c.needs[i-1].name {
			c.objects = append(c.objects, object{first: int32(i)})
		}
		c.objects[len(c.objects)-1].last = int32(i)
	}
}

func (c *checker) nameOf(o *object) string  { return c.needs[o.first].name }
func (c *checker) placeOf(o *object) *place { return c.places[c.needs[o.first].rank] }

const (
	// listFrom is the number of objects of one folder from which a listing is
	// cheaper than asking for each: a listing's page has about 1000 entries.
	listFrom = 16
	// listPatience is how many entries a listing may show per object looked for
	// before the rest is asked for one by one.
	listPatience = 500
	// confirm is how many objects that a listing did not show are asked for, folder
	// by folder, before they are called missing.
	confirm = 1000
	// statBatch is how many objects one worker asks for in a row.
	statBatch = 64
)

// look finds out about every object.
func (c *checker) look(ctx context.Context) error {
	type task struct {
		objects []object
		list    bool
	}
	var tasks []task
	for from := 0; from < len(c.objects); {
		rank := c.needs[c.objects[from].first].rank
		to := from + 1
		for to < len(c.objects) && c.needs[c.objects[to].first].rank == rank {
			to++
		}
		group := c.objects[from:to]
		from = to
		// On a local disk asking is as cheap as an entry of a listing.
		if len(group) >= listFrom && c.places[rank].loc.Scheme != "file" {
			tasks = append(tasks, task{group, true})
			continue
		}
		for len(group) > 0 {
			n := min(len(group), max(1, min(statBatch, len(group)/c.parallelism)))
			tasks = append(tasks, task{objects: group[:n]})
			group = group[n:]
		}
	}
	return parallel(ctx, c.parallelism, len(tasks), func(ctx context.Context, i int) error {
		t := tasks[i]
		if t.list {
			if err := c.list(ctx, t.objects); err != nil {
				return err
			}
		}
		return c.stat(ctx, t.objects)
	})
}

// list marks the objects of one folder that its listing shows, and those beyond
// the number to confirm as missing.
func (c *checker) list(ctx context.Context, group []object) error {
	dir := c.placeOf(&group[0]).loc
	store, path, err := c.s.pool.Resolve(ctx, dir)
	if err != nil {
		return err
	}
	prefix := path
	if prefix != "" {
		prefix += "/"
	}
	next, seen := 0, 0
	last := ""
	// Begin right before the first name: all but its last byte sorts before it.
	first := c.nameOf(&group[0])
	opts := &blobstore.ListOptions{Prefix: prefix, Delimiter: true}
	if len(first) > 1 {
		opts.StartAfter = prefix + first[:len(first)-1]
	}
	for info, err := range store.List(ctx, opts) {
		if errors.Is(err, blobstore.ErrNotExist) {
			break
		}
		if errors.Is(err, blobstore.ErrPermission) {
			return nil // asking for the objects may be allowed
		}
		if err != nil {
			return err
		}
		if info.Name <= last || !strings.HasPrefix(info.Name, prefix) {
			return nil // out of order: do not rely on it
		}
		last = info.Name
		seen++
		if seen%1000 == 0 {
			c.add(0, 1000, 0)
		}
		name := info.Name[len(prefix):]
		for next < len(group) && c.nameOf(&group[next]) < name {
			next++
		}
		if next == len(group) || seen > listPatience*len(group) {
			return nil
		}
		if !info.IsPrefix && c.nameOf(&group[next]) == name {
			group[next].status, group[next].size = statusFound, info.Size
			next++
		}
	}
	c.add(1, 0, 0)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	unseen := 0
	for i := range group {
		if group[i].status == statusUnknown {
			if unseen++; unseen > confirm {
				group[i].status = statusMissing
			}
		}
	}
	return nil
}

// stat asks for each object not yet known.
func (c *checker) stat(ctx context.Context, group []object) error {
	dir := c.placeOf(&group[0]).loc
	store, path, err := c.s.pool.Resolve(ctx, dir)
	if err != nil {
		return err
	}
	asked := int64(0)
	for i := range group {
		o := &group[i]
		if o.status != statusUnknown {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		asked++
		info, err := store.Stat(ctx, joinPath(path, c.nameOf(o)))
		switch {
		case err == nil && info.IsPrefix, errors.Is(err, blobstore.ErrIsDirectory):
			o.status = statusDirectory
		case err == nil:
			o.status, o.size = statusFound, info.Size
		case errors.Is(err, blobstore.ErrNotExist), errors.Is(err, blobstore.ErrInvalidName):
			o.status = statusMissing
		case errors.Is(err, blobstore.ErrPermission):
			o.status = statusNoAccess
		case errors.Is(err, blobstore.ErrUnsupported):
			o.status = statusSpecial
		default:
			return err
		}
	}
	c.add(0, asked, 0)
	return nil
}

// judge compares what there is with what is needed.
func (c *checker) judge(ctx context.Context) error {
	c.report.Counts = map[Problem]int{}
	for i := range c.objects {
		o := &c.objects[i]
		c.report.Objects++
		needs := c.needs[o.first : o.last+1]
		switch o.status {
		case statusFound:
			c.report.ObjectBytes += o.size
			if err := c.judgeSize(ctx, o, needs); err != nil {
				return err
			}
		case statusMissing:
			c.problem(o, &needs[0], ProblemMissing, "")
		case statusDirectory:
			c.problem(o, &needs[0], ProblemNotAFile, "")
		case statusSpecial:
			c.problem(o, &needs[0], ProblemNotAFile, "is no regular file")
		case statusNoAccess:
			c.problem(o, &needs[0], ProblemNoAccess, "")
		default:
			return errors.New("an object was not looked for")
		}
	}
	for _, r := range c.refused {
		p := ObjectProblem{Problem: ProblemRefused, Class: r.place.class, Object: r.written, Expected: r.size, Actual: -1, Detail: r.err.Error(), Handles: 1}
		var why *refusal
		if errors.As(r.err, &why) {
			p.RefusedBy = why.code
		}
		c.addProblem(p, r.ordinal)
	}
	if c.nRefuse > 0 {
		c.report.ProblemCount += c.nRefuse - len(c.refused)
		c.report.Counts[ProblemRefused] = c.nRefuse
	}
	return nil
}

func (c *checker) judgeSize(ctx context.Context, o *object, needs []need) error {
	for i := range needs {
		n := &needs[i]
		switch {
		case n.kind == needChangelog:
			return c.judgeChangelog(ctx, o, needs)
		case n.size < 0:
		case o.size < n.size:
			c.problem(o, n, ProblemShort, "")
			return nil
		case o.size > n.size && n.kind == needExact:
			c.problem(o, n, ProblemLong, "")
			return nil
		}
	}
	return nil
}

// judgeChangelog knows that a changelog file has a flag byte in front that its
// handles do not count, and that they count bytes before compression. The flag
// is read only if the plain size does not fit.
func (c *checker) judgeChangelog(ctx context.Context, o *object, needs []need) error {
	fits := true
	for i := range needs {
		if n := &needs[i]; n.size >= 0 && o.size != n.size+1 {
			fits = false
		}
	}
	if fits {
		return nil
	}
	if o.size > 0 {
		compressed, err := c.changelogCompressed(ctx, o)
		if err != nil {
			return err
		}
		if compressed && o.size > 1 {
			return nil
		}
	}
	for i := range needs {
		n := &needs[i]
		switch {
		case n.size < 0 && o.size > 0:
		case n.size < 0 || o.size < n.size+1:
			c.problem(o, n, ProblemShort, "")
			return nil
		case o.size > n.size+1:
			c.problem(o, n, ProblemLong, "")
			return nil
		}
	}
	return nil
}

func (c *checker) changelogCompressed(ctx context.Context, o *object) (bool, error) {
	loc := c.placeOf(o).loc.Join(c.nameOf(o))
	store, name, err := c.s.pool.Resolve(ctx, loc)
	if err != nil {
		return false, err
	}
	r, err := store.OpenRange(ctx, name, 0, 1)
	if err != nil {
		return false, err
	}
	defer r.Close()
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return false, err
	}
	return b[0] != 0, nil
}

func (c *checker) problem(o *object, n *need, kind Problem, detail string) {
	p := ObjectProblem{Problem: kind, Expected: n.size, Actual: -1, Detail: detail, Handles: int(o.last - o.first + 1)}
	if n.kind == needChangelog && n.size >= 0 {
		p.Expected++
	}
	if o.status == statusFound {
		p.Actual = o.size
	}
	c.report.Counts[kind]++
	if c.full() {
		c.report.ProblemCount++
		return
	}
	p.Object, p.Class = c.placeOf(o).loc.Join(n.name).String(), c.placeOf(o).class
	p.Relative = n.rel
	c.addProblem(p, n.ordinal)
}

func (c *checker) full() bool {
	return c.maxProblems >= 0 && len(c.report.Problems) >= c.maxProblems
}

func (c *checker) addProblem(p ObjectProblem, ordinal int32) {
	c.report.ProblemCount++
	if c.full() {
		return
	}
	c.report.Problems = append(c.report.Problems, p)
	c.ordinals = append(c.ordinals, ordinal)
}

// hints looks for missing files elsewhere. The first incremental checkpoint after
// a CLAIM restore from a native savepoint may name the savepoint's files as if
// they were its own (FLINK-39964); and files are moved by hand.
func (c *checker) hints(ctx context.Context) error {
	const maxHints, maxFolders = 5, 8
	var folders []blobstore.Location
	add := func(loc blobstore.Location) {
		for _, f := range folders {
			if compareLocations(f, loc) == 0 {
				return
			}
		}
		if len(folders) < maxFolders {
			folders = append(folders, loc)
		}
	}
	self := &c.s.res.self
	add(self.dir)
	for _, p := range c.places {
		if p.class == ClassSavepoint {
			add(p.loc)
		}
	}
	if root := self.dir; checkpointNumber(self.name) >= 0 {
		root.Path = self.root
		add(root.Join(sharedDir))
		add(root.Join(taskOwnedDir))
	}
	for _, p := range c.places {
		add(p.loc)
	}
	hints := 0
	for i := range c.report.Problems {
		p := &c.report.Problems[i]
		if p.Problem != ProblemMissing || hints == maxHints {
			continue
		}
		hints++
		name := baseName(p.Object)
		for _, dir := range folders {
			loc := dir.Join(name)
			if loc.String() == p.Object {
				continue
			}
			store, path, err := c.s.pool.Resolve(ctx, loc)
			if err != nil {
				return err
			}
			_, err = store.Stat(ctx, path)
			if err == nil {
				p.Found = loc.String()
				p.Hint = "a file of this name lies at " + p.Found
				if p.Relative {
					p.Hint += " (FLINK-39964: the handle should have been absolute)"
				}
				break
			}
			if !errors.Is(err, blobstore.ErrNotExist) && !errors.Is(err, blobstore.ErrPermission) &&
				!errors.Is(err, blobstore.ErrIsDirectory) && !errors.Is(err, blobstore.ErrInvalidName) {
				return err
			}
		}
	}
	return nil
}

// finish fills in whose the problems are, and the verdict.
func (c *checker) finish() *Report {
	if len(c.ordinals) > 0 {
		byOrdinal := map[int32][]int{}
		for i, o := range c.ordinals {
			byOrdinal[o] = append(byOrdinal[o], i)
		}
		ordinal := int32(-1)
		for p := range c.s.Checkpoint.StreamHandles() {
			ordinal++
			for _, i := range byOrdinal[ordinal] {
				q := &c.report.Problems[i]
				q.Operator, q.Name = p.Operator.ID.String(), operatorName(p.Operator)
				q.Subtask, q.Role = -1, Role(p.Slot)
				if p.Subtask != nil {
					q.Subtask = p.Subtask.Index
				}
				q.Field = c.s.Checkpoint.Field(p)
			}
		}
	}
	r := &c.report
	r.Usable = r.ProblemCount == 0
	r.Reason = r.reason()
	return r
}

func operatorName(o *metadata.OperatorState) string {
	if o.Name != "" {
		return o.Name.Go()
	}
	return o.UID.Go()
}

func (r *Report) reason() string {
	var parts []string
	for _, p := range [...]struct {
		problem   Problem
		one, many string
	}{
		{ProblemMissing, "file missing", "files missing"},
		{ProblemShort, "file too short", "files too short"},
		{ProblemLong, "file too long", "files too long"},
		{ProblemNotAFile, "directory where a file should be", "directories where files should be"},
		{ProblemNoAccess, "file without access", "files without access"},
		{ProblemRefused, "handle refused", "handles refused"},
	} {
		n := r.Counts[p.problem]
		switch {
		case n == 0:
			continue
		case n == 1:
			parts = append(parts, "1 "+p.one)
		default:
			parts = append(parts, strconv.Itoa(n)+" "+p.many)
		}
		if p.problem == ProblemRefused {
			for i := range r.Problems {
				if r.Problems[i].Problem == ProblemRefused {
					parts[len(parts)-1] += " (" + r.Problems[i].Detail + ")"
					break
				}
			}
		}
	}
	return strings.Join(parts, ", ")
}
