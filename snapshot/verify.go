package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Severity of a finding.
type Severity string

// Severities.
const (
	Damage Severity = "damage" // the snapshot cannot be restored as it says
	Note   Severity = "note"   // unusual, or worth knowing, but no damage
	Unread Severity = "unread" // the store denies access: nothing is known of it
)

// Finding is one thing that verification found.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code is stable: "shared-file-missing", "key-groups-overlap"; docs/design lists them.
	Code   string `json:"code"`
	File   string `json:"file"`            // URL of the object it is about
	Offset int64  `json:"offset"`          // bytes in File, -1 if unknown or the whole is meant
	Field  string `json:"field,omitempty"` // path in the metadata
	// HandleOffset is where Field stands in the metadata, if File is another
	// object; -1 unknown.
	HandleOffset int64  `json:"handleOffset,omitempty"`
	Detail       string `json:"detail"`         // one line
	Hint         string `json:"hint,omitempty"` // what may help
	Operator     string `json:"operator,omitempty"`
	Subtask      *int32 `json:"subtask,omitempty"`
	Role         string `json:"role,omitempty"`
	State        string `json:"state,omitempty"`
	// KeyGroups are those that may have lost entries.
	KeyGroups *KeyGroupSpan `json:"keyGroups,omitempty"`
}

// KeyGroupSpan is a span of key groups, both ends included.
type KeyGroupSpan struct {
	First int32 `json:"first"`
	Last  int32 `json:"last"`
}

// Verification is the result of Verify.
type Verification struct {
	Snapshot string    `json:"snapshot"` // URL of the metadata object
	OK       bool      `json:"ok"`       // no finding is damage, and all could be read
	Findings []Finding `json:"findings,omitempty"`
	// Damaged and Notes count all findings, also those beyond MaxFindings.
	Damaged int     `json:"damage"`
	Notes   int     `json:"notes"`
	Unread  int     `json:"unread,omitempty"`
	Objects int64   `json:"objects"`
	Bytes   int64   `json:"bytes"`
	Report  *Report `json:"-"`
	// Checksums are those beside _metadata; absent if there are none.
	Checksums *ChecksumReport `json:"checksums,omitempty"`
	// Data is what the verification of data saw; absent if only the metadata and the
	// presence of files were verified.
	Data *DataReport `json:"data,omitempty"`

	unread error
}

// Err is why something could not be read (blobstore.ErrPermission), with the first
// object's address; nil if all could.
func (v *Verification) Err() error {
	if v.Unread > 1 {
		return fmt.Errorf("%d objects could not be read: %w", v.Unread, v.unread)
	}
	return v.unread
}

// VerifyOptions changes a verification. Nil is the default.
type VerifyOptions struct {
	Options *Options // for VerifyAt's Open
	// MaxFindings bounds Findings; 0 is 1000, negative is no bound.
	MaxFindings int
	// NoObjects checks the metadata alone.
	NoObjects bool
	// Data, if not nil, verifies the bytes of state files as well.
	Data        *DataOptions
	Parallelism int
	Progress    func(Progress)
}

// Verify checks an opened snapshot: that its metadata encodes to the bytes it was
// read from, its key-group ranges, offsets, subtasks and segments, and that every
// object is there with the right size. Findings about the metadata come first, in
// file order, then those about objects, in the order of their addresses.
//
// An error means that it could not be finished, because the store failed. Damage is
// a finding, not an error, and so is an object to which the store denies access.
func Verify(ctx context.Context, s *Snapshot, opts *VerifyOptions) (*Verification, error) {
	if opts == nil {
		opts = &VerifyOptions{}
	}
	v := newVerifier(s.Location, opts)
	v.s = s
	if err := v.roundTrip(ctx); err != nil {
		return nil, fmt.Errorf("verify %s: %w", s.Location, err)
	}
	v.structure()
	v.notes()
	if !opts.NoObjects {
		report, err := Check(ctx, s, &CheckOptions{MaxProblems: v.max, Parallelism: opts.Parallelism, Progress: opts.Progress})
		if err != nil {
			return nil, err
		}
		v.objects(report)
	}
	if err := v.locate(ctx); err != nil {
		return nil, fmt.Errorf("verify %s: %w", s.Location, err)
	}
	covered, err := v.checksums(ctx, opts.Data)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", s.Location, err)
	}
	if opts.Data != nil {
		if err := v.data(ctx, opts.Data, covered); err != nil {
			return nil, fmt.Errorf("verify %s: %w", s.Location, err)
		}
	}
	return v.finish(), nil
}

// VerifyAt opens and verifies. Metadata that cannot be decoded is a finding with
// its offset and field, not an error; ErrNoSnapshot, an unsupported version and
// failures of the store are errors.
func VerifyAt(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *VerifyOptions) (*Verification, error) {
	if opts == nil {
		opts = &VerifyOptions{}
	}
	s, err := Open(ctx, pool, loc, opts.Options)
	if err == nil {
		return Verify(ctx, s, opts)
	}
	var format *metadata.FormatError
	if !errors.As(err, &format) || !errors.Is(err, metadata.ErrCorrupt) {
		return nil, err
	}
	v := newVerifier(loc, opts)
	v.out.Snapshot = format.Name
	v.format(format, Damage, "metadata-corrupt")
	return v.finish(), nil
}

type verifier struct {
	s    *Snapshot
	file string
	max  int
	out  *Verification
}

func newVerifier(loc blobstore.Location, opts *VerifyOptions) *verifier {
	v := &verifier{file: loc.String(), max: opts.MaxFindings, out: &Verification{Snapshot: loc.String()}}
	if v.max == 0 {
		v.max = 1000
	}
	return v
}

func (v *verifier) add(f Finding) {
	v.count(f.Severity)
	if v.max >= 0 && len(v.out.Findings) >= v.max {
		return
	}
	if f.File == "" {
		f.File = v.file
	}
	v.out.Findings = append(v.out.Findings, f)
}

func (v *verifier) count(s Severity) {
	switch s {
	case Damage:
		v.out.Damaged++
	case Unread:
		v.out.Unread++
	default:
		v.out.Notes++
	}
}

// denied keeps the first error of a store that denies access.
func (v *verifier) denied(file string) {
	if v.out.unread == nil {
		v.out.unread = fmt.Errorf("%s: %w", file, blobstore.ErrPermission)
	}
}

func (v *verifier) finish() *Verification {
	v.out.OK = v.out.Damaged == 0 && v.out.Unread == 0
	return v.out
}

func (v *verifier) format(err *metadata.FormatError, severity Severity, code string) {
	detail := err.Detail
	if detail == "" && err.Err != nil {
		detail = err.Err.Error()
	}
	v.add(Finding{Severity: severity, Code: code, File: err.Name, Offset: err.Offset, Field: err.Field, Detail: detail})
}

// roundTrip reads the metadata once more, operator by operator.
func (v *verifier) roundTrip(ctx context.Context) error {
	store, name, err := v.s.pool.Resolve(ctx, v.s.Location)
	if err != nil {
		return err
	}
	r, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	if size := r.Info().Size; size != v.s.Size {
		return fmt.Errorf("the metadata object changed from %d to %d bytes since it was opened", v.s.Size, size)
	}
	err = metadata.VerifyRoundTrip(r, &metadata.DecodeOptions{Name: v.file, Size: v.s.Size, Warn: func(e *metadata.FormatError) {
		v.format(e, Note, "unusual-encoding")
	}})
	var format *metadata.FormatError
	switch {
	case err == nil:
	case errors.As(err, &format) && errors.Is(err, metadata.ErrCorrupt):
		v.format(format, Damage, "not-reencodable")
	case errors.Is(err, metadata.ErrNotRepresentable):
		v.add(Finding{Severity: Damage, Code: "not-reencodable", Offset: -1, Detail: err.Error()})
	default:
		return err
	}
	return nil
}

// structure checks the model against itself.
func (v *verifier) structure() {
	c := v.s.Checkpoint
	ids := make(map[metadata.OperatorID]int, len(c.Operators))
	segments := &segmentCheck{v: v}
	for i := range c.Operators {
		o := &c.Operators[i]
		op := opCheck{v: v, o: o, field: fmt.Sprintf("operator[%d]", i)}
		if j, ok := ids[o.ID]; ok {
			op.add(Damage, "operator-twice", op.field+".id", nil, fmt.Sprintf("is %s, as that of operator[%d]", o.ID, j))
		}
		ids[o.ID] = i
		op.check()
	}
	ordinal := int32(-1)
	for _, h := range c.StreamHandles() {
		ordinal++
		if seg, ok := h.(*metadata.SegmentHandle); ok {
			segments.add(ordinal, seg)
		}
	}
	segments.finish()
}

// opCheck checks one operator.
type opCheck struct {
	v     *verifier
	o     *metadata.OperatorState
	field string
}

func (c *opCheck) add(severity Severity, code, field string, t *metadata.SubtaskState, detail string) {
	f := Finding{Severity: severity, Code: code, Offset: -1, Field: field, Detail: detail, Operator: c.o.ID.String()}
	if t != nil {
		index := t.Index
		f.Subtask = &index
	}
	c.v.add(f)
}

type ownedRange struct {
	metadata.KeyGroupRange
	pos int // of the subtask's entry
}

func (c *opCheck) check() {
	o := c.o
	if o.Parallelism > o.MaxParallelism {
		c.add(Damage, "parallelism", c.field+".parallelism", nil, fmt.Sprintf("is %d, over the max parallelism %d", o.Parallelism, o.MaxParallelism))
	}
	seen := make(map[int32]int, len(o.Subtasks))
	var ranges []ownedRange
	stateless := 0
	for i := range o.Subtasks {
		t := &o.Subtasks[i]
		field := fmt.Sprintf("%s.subtask[%d]", c.field, i)
		if t.Index < 0 || t.Index >= o.Parallelism {
			c.add(Damage, "subtask-index", field+".index", t, fmt.Sprintf("is %d at parallelism %d", t.Index, o.Parallelism))
		}
		if j, ok := seen[t.Index]; ok {
			c.add(Damage, "subtask-twice", field+".index", t, fmt.Sprintf("is %d, as that of subtask[%d]", t.Index, j))
		}
		seen[t.Index] = i
		if t.Finished {
			continue
		}
		if h := t.ManagedOperator; h != nil {
			c.operatorHandle(field+".managedOperator", t, h)
		}
		if h := t.RawOperator; h != nil {
			c.operatorHandle(field+".rawOperator", t, h)
		}
		if h := t.ManagedKeyed; h != nil {
			c.keyed(field+".managedKeyed", t, h, false, 0)
			if r := h.KeyGroups(); r.Count > 0 {
				ranges = append(ranges, ownedRange{r, i})
			}
		} else {
			stateless++
		}
		if h := t.RawKeyed; h != nil {
			c.keyed(field+".rawKeyed", t, h, true, 0)
		}
		for j := range t.InputChannels {
			c.channel(fmt.Sprintf("%s.inputChannel[%d]", field, j), t, &t.InputChannels[j])
		}
		for j := range t.OutputChannels {
			c.channel(fmt.Sprintf("%s.outputChannel[%d]", field, j), t, &t.OutputChannels[j])
		}
		if t.ReferenceMarker == 1 {
			c.add(Note, "references-older", field+".referenceID", t, fmt.Sprintf("the state was reused from checkpoint %d, which must be kept", t.ReferenceID))
		}
	}
	c.cover(ranges)
}

// cover checks that the ranges of managed keyed state do not overlap and leave no
// gap. A subtask without keyed state leaves a gap that is no damage: it had none.
func (c *opCheck) cover(ranges []ownedRange) {
	if len(ranges) == 0 {
		return
	}
	slices.SortStableFunc(ranges, func(a, b ownedRange) int { return cmp.Compare(a.Start, b.Start) })
	subtask := func(r ownedRange) (string, *metadata.SubtaskState) {
		return fmt.Sprintf("%s.subtask[%d].managedKeyed.keyGroupStart", c.field, r.pos), &c.o.Subtasks[r.pos]
	}
	next := int32(0) // first key group not yet covered
	var widest ownedRange
	gaps, gapGroups := 0, int32(0)
	firstGap := ""
	gap := func(from, to int32) {
		gaps++
		gapGroups += to - from + 1
		if firstGap == "" {
			firstGap = rangeText(from, to)
		}
	}
	for i, r := range ranges {
		if i > 0 && r.Start < next {
			field, t := subtask(r)
			c.add(Damage, "key-groups-overlap", field, t, fmt.Sprintf("is %s and overlaps %s of subtask[%d]",
				rangeText(r.Start, r.End()), rangeText(widest.Start, widest.End()), widest.pos))
		}
		if r.Start > next {
			gap(next, r.Start-1)
		}
		if r.End()+1 > next {
			next, widest = r.End()+1, r
		}
	}
	if next < c.o.MaxParallelism {
		gap(next, c.o.MaxParallelism-1)
	}
	if gaps > 0 {
		c.add(Note, "key-groups-gap", c.field, nil, fmt.Sprintf("%d of %d key groups, such as %s, have no keyed state", gapGroups, c.o.MaxParallelism, firstGap))
	}
}

func rangeText(from, to int32) string {
	return strconv.Itoa(int(from)) + ".." + strconv.Itoa(int(to))
}

func (c *opCheck) rangeFits(field string, t *metadata.SubtaskState, r metadata.KeyGroupRange) {
	if r.Start < 0 || r.Count < 0 || int64(r.Start)+int64(r.Count) > int64(c.o.MaxParallelism) {
		c.add(Damage, "key-groups-range", field+".keyGroupStart", t, fmt.Sprintf("start %d and count %d are outside the max parallelism %d", r.Start, r.Count, c.o.MaxParallelism))
	}
}

// maxNesting bounds the recursion into changelog handles, as the decoder does.
const maxNesting = 17

func (c *opCheck) keyed(field string, t *metadata.SubtaskState, h metadata.KeyedHandle, raw bool, depth int) {
	if depth > maxNesting {
		return
	}
	c.rangeFits(field, t, h.KeyGroups())
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		c.keyGroups(field, t, h, raw)
	case *metadata.IncrementalHandle:
		c.names(field, t, h)
	case *metadata.ChangelogHandle:
		for i, m := range h.Materialized {
			if m != nil {
				c.keyed(fmt.Sprintf("%s.materialized[%d]", field, i), t, m, raw, depth+1)
			}
		}
		for i, m := range h.Changes {
			if m != nil {
				c.keyed(fmt.Sprintf("%s.changes[%d]", field, i), t, m, raw, depth+1)
			}
		}
	case *metadata.ChangelogBytesHandle:
		for i := range h.Changes {
			if kg := h.Changes[i].KeyGroup; kg != -1 && !h.Range.Contains(kg) {
				c.add(Damage, "change-outside", fmt.Sprintf("%s.changes[%d].keyGroup", field, i), t,
					fmt.Sprintf("is %d, outside %s", kg, rangeText(h.Range.Start, h.Range.End())))
				break
			}
		}
	case *metadata.ChangelogFileHandle:
		for i := range h.Files {
			f := &h.Files[i]
			if size := metadata.StateSize(f.Handle); f.Handle == nil || size >= 0 && f.Offset > size+1 {
				c.add(Damage, "offset-outside", fmt.Sprintf("%s.files[%d].offset", field, i), t, fmt.Sprintf("is %d in a file of %d bytes", f.Offset, size))
			}
		}
	}
}

// keyGroups checks the offsets: 0 (in raw keyed state also -1) is a key group
// without data; the others ascend and lie inside the stream.
func (c *opCheck) keyGroups(field string, t *metadata.SubtaskState, h *metadata.KeyGroupsHandle, raw bool) {
	size := metadata.StateSize(h.Delegate)
	if h.Delegate == nil {
		c.add(Damage, "no-stream", field+".delegate", t, "is null")
		return
	}
	last, lastAt := int64(0), -1
	for i, at := range h.Offsets {
		if at == 0 || at == -1 && raw {
			continue
		}
		offset := func() string { return fmt.Sprintf("%s.offset[%d]", field, i) }
		switch {
		case at < 0:
			c.add(Damage, "offset-negative", offset(), t, fmt.Sprintf("is %d", at))
			return
		case lastAt >= 0 && at <= last:
			c.add(Damage, "offsets-unordered", offset(), t, fmt.Sprintf("is %d after %d of key group %d", at, last, int(h.Range.Start)+lastAt))
			return
		case size >= 0 && at >= size:
			c.add(Damage, "offset-outside", offset(), t, fmt.Sprintf("is %d in a stream of %d bytes", at, size))
			return
		}
		last, lastAt = at, i
	}
}

// names checks the local file names of an incremental handle.
func (c *opCheck) names(field string, t *metadata.SubtaskState, h *metadata.IncrementalHandle) {
	if h.Meta == nil {
		c.add(Damage, "no-stream", field+".meta", t, "is null")
	}
	for _, list := range [...]struct {
		name  string
		files []metadata.NamedHandle
	}{{"shared", h.Shared}, {"private", h.Private}} {
		seen := make(map[metadata.String]int, len(list.files))
		for i := range list.files {
			f := &list.files[i]
			if f.Handle == nil {
				c.add(Damage, "no-stream", fmt.Sprintf("%s.%s[%d].handle", field, list.name, i), t, "is null")
			}
			if j, ok := seen[f.Name]; ok {
				c.add(Note, "file-name-twice", fmt.Sprintf("%s.%s[%d].name", field, list.name, i), t, fmt.Sprintf("is %s, as that of %s[%d]", shown(f.Name.Go()), list.name, j))
			}
			seen[f.Name] = i
		}
	}
}

// operatorHandle checks that partitions begin inside the stream. An empty one may
// begin at its end.
func (c *opCheck) operatorHandle(field string, t *metadata.SubtaskState, h *metadata.OperatorHandle) {
	size := metadata.StateSize(h.Delegate)
	if h.Delegate == nil && len(h.States) > 0 {
		c.add(Damage, "no-stream", field+".delegate", t, "is null")
		return
	}
	seen := make(map[metadata.String]int, len(h.States))
	for i := range h.States {
		st := &h.States[i]
		if j, ok := seen[st.Name]; ok {
			c.add(Damage, "state-twice", fmt.Sprintf("%s.state[%d].name", field, i), t, fmt.Sprintf("is %q, as that of state[%d]: Flink keeps the last", shown(st.Name.Go()), j))
		}
		seen[st.Name] = i
		last := int64(-1)
		for j, at := range st.Offsets {
			offset := func() string { return fmt.Sprintf("%s.state[%d].offset[%d]", field, i, j) }
			if at < 0 || size >= 0 && at > size {
				c.add(Damage, "offset-outside", offset(), t, fmt.Sprintf("is %d in a stream of %d bytes", at, size))
				break
			}
			if at < last {
				c.add(Note, "offsets-unordered", offset(), t, fmt.Sprintf("is %d after %d", at, last))
				break
			}
			last = at
		}
	}
}

func (c *opCheck) channel(field string, t *metadata.SubtaskState, h *metadata.ChannelHandle) {
	size := metadata.StateSize(h.Delegate)
	if h.Delegate == nil {
		c.add(Damage, "no-stream", field+".delegate", t, "is null")
		return
	}
	var sum int64
	for i := range h.Channels {
		ch := &h.Channels[i]
		sum += ch.Size
		for j, at := range ch.Offsets {
			if at < 0 || size >= 0 && at >= size {
				if h.Merged() {
					field = fmt.Sprintf("%s.channel[%d]", field, i)
				}
				c.add(Damage, "offset-outside", fmt.Sprintf("%s.offset[%d]", field, j), t, fmt.Sprintf("is %d in a stream of %d bytes", at, size))
				return
			}
		}
	}
	if sum != h.Size {
		c.add(Damage, "channel-sizes", field+".size", t, fmt.Sprintf("is %d, but the channels have %d bytes", h.Size, sum))
	}
}

// segmentCheck finds segments that share bytes. It holds one small entry for each
// segment.
type segmentCheck struct {
	v   *verifier
	all []placedSegment
}

type placedSegment struct {
	file       file
	start, end int64
	ordinal    int32 // in Checkpoint.StreamHandles
}

func (c *segmentCheck) add(ordinal int32, h *metadata.SegmentHandle) {
	if f, err := c.v.s.res.locate(h); err == nil && h.Length > 0 {
		c.all = append(c.all, placedSegment{f.identity(), h.Start, h.Start + h.Length, ordinal})
	}
}

func (c *segmentCheck) finish() {
	id := func(p *place) int32 {
		if p == nil {
			return -1
		}
		return p.id
	}
	slices.SortFunc(c.all, func(a, b placedSegment) int {
		return cmp.Or(cmp.Compare(id(a.file.place), id(b.file.place)), cmp.Compare(a.file.name, b.file.name),
			cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.ordinal, b.ordinal))
	})
	type overlap struct{ a, b placedSegment }
	var overlaps []overlap
	for i := 1; i < len(c.all); i++ {
		a, b := c.all[i-1], c.all[i]
		if a.file != b.file {
			continue
		}
		if b.start < a.end && (a.start != b.start || a.end != b.end) {
			overlaps = append(overlaps, overlap{a, b})
		}
		if b.end < a.end { // the next one is compared with what reaches farthest
			c.all[i].start, c.all[i].end, c.all[i].ordinal = a.start, a.end, a.ordinal
		}
	}
	if len(overlaps) == 0 {
		return
	}
	places := map[int32]metadata.Place{}
	for _, o := range overlaps {
		places[o.a.ordinal], places[o.b.ordinal] = metadata.Place{}, metadata.Place{}
	}
	checkpoint := c.v.s.Checkpoint
	ordinal := int32(-1)
	for p := range checkpoint.StreamHandles() {
		ordinal++
		if _, ok := places[ordinal]; ok {
			places[ordinal] = p
		}
	}
	for _, o := range overlaps {
		p := places[o.b.ordinal]
		index := p.Subtask.Index
		c.v.add(Finding{Severity: Damage, Code: "segments-overlap", Offset: -1, Field: checkpoint.Field(p),
			Detail: fmt.Sprintf("bytes %d..%d of a merged file overlap those of %s, %d..%d", o.b.start, o.b.end-1,
				checkpoint.Field(places[o.a.ordinal]), o.a.start, o.a.end-1),
			Operator: p.Operator.ID.String(), Subtask: &index, Role: Role(p.Slot).String()})
	}
}

// notes are about what the snapshot as a whole depends on.
func (v *verifier) notes() {
	s := v.s
	if s.Relocation != nil {
		v.add(Finding{Severity: Note, Code: "moved", Offset: -1,
			Detail: fmt.Sprintf("%d handles name %s, which was moved to %s: Flink cannot restore it from here", s.Relocation.Handles, s.Relocation.From, s.Relocation.To)})
	}
	type owner struct {
		class Class
		job   string
	}
	counts := map[owner]int{}
	for _, h := range s.Checkpoint.StreamHandles() {
		switch h.(type) {
		case *metadata.FileHandle, *metadata.RelativeFileHandle, *metadata.SegmentHandle:
			f, err := s.res.locate(h)
			if err == nil && (f.place.claimed || f.place.class == ClassOutside) {
				counts[owner{f.place.class, f.place.owner}]++
			}
		}
	}
	owners := slices.SortedFunc(maps.Keys(counts), func(a, b owner) int { return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.job, b.job)) })
	for _, o := range owners {
		code, whose := "claimed-files", "another job's "+o.class.String()+" folder"
		switch {
		case o.class == ClassSavepoint:
			whose = "another snapshot's folder"
		case o.class == ClassOutside:
			code, whose = "outside-files", "folders that are no job's"
		}
		if o.job != "" {
			whose += " (job " + o.job + ")"
		}
		v.add(Finding{Severity: Note, Code: code, Offset: -1, Detail: fmt.Sprintf("%d handles name files in %s, which must be kept", counts[o], whose)})
	}
}

// objects turns the problems of a check into findings.
func (v *verifier) objects(r *Report) {
	v.out.Report, v.out.Objects, v.out.Bytes = r, r.Objects, r.ObjectBytes
	for i := range r.Problems {
		p := &r.Problems[i]
		f := Finding{Severity: Damage, Code: p.code(), File: p.Object, Offset: -1, Field: p.Field, Hint: p.Hint,
			Operator: p.Operator, Role: p.Role.String(), Detail: p.Text()}
		if p.Subtask >= 0 {
			f.Subtask = &p.Subtask
		}
		if p.Problem == ProblemNoAccess {
			f.Severity = Unread
			v.denied(p.Object)
		}
		v.add(f)
	}
	// Those that the check counted and did not keep.
	rest := r.ProblemCount - len(r.Problems)
	if n := r.Counts[ProblemNoAccess] - v.out.Unread; n > 0 {
		v.denied(v.file)
		v.out.Unread += n
		rest -= n
	}
	v.out.Damaged += rest
}

func (p *ObjectProblem) code() string {
	switch p.Problem {
	case ProblemMissing:
		return p.Class.String() + "-file-missing"
	case ProblemShort:
		return "short-file"
	case ProblemLong:
		return "long-file"
	case ProblemNotAFile:
		return "directory-as-file"
	case ProblemRefused:
		if p.RefusedBy != "" {
			return p.RefusedBy
		}
	}
	return string(p.Problem)
}

// Text is the problem in words, without the object's address.
func (p *ObjectProblem) Text() string {
	text := ""
	switch p.Problem {
	case ProblemMissing:
		text = "is missing"
		if p.Expected >= 0 {
			text += ", " + bytesText(p.Expected) + " expected"
		}
	case ProblemShort, ProblemLong:
		text = fmt.Sprintf("has %s, %s expected", bytesText(p.Actual), bytesText(p.Expected))
	case ProblemRefused:
		text = "is not followed"
	case ProblemNotAFile:
		if p.Detail == "" {
			text = "is a directory"
		}
	case ProblemNoAccess:
		text = "cannot be looked at"
	}
	switch {
	case text == "":
		text = p.Detail
	case p.Detail != "":
		text += ": " + p.Detail
	}
	if p.Handles > 1 {
		text += fmt.Sprintf(" (%d handles)", p.Handles)
	}
	return text
}

func bytesText(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
