package snapshot

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark/tidemark/metadata"
)

// Inspect explains a snapshot from its metadata alone; it asks no store. It takes
// one walk over the handles and about 60 bytes for each file.
func Inspect(s *Snapshot, opts *InspectOptions) *Inspection {
	if opts == nil {
		opts = &InspectOptions{}
	}
	e := explainer{s: s, opts: *opts, out: new(Inspection)}
	e.opts.MaxExamples = cmp.Or(opts.MaxExamples, 3)
	e.opts.MaxChannels = cmp.Or(opts.MaxChannels, 100)
	return e.run()
}

// fileSizeLimits are the upper bounds of the histogram's buckets, in bytes.
var fileSizeLimits = [...]int64{1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20, 512 << 20, -1}

type explainer struct {
	s    *Snapshot
	opts InspectOptions
	out  *Inspection // an allocation of its own, so that it does not keep the rest alive

	files    *fileSet
	segments map[segmentKey]struct{}
	blockers map[blockerKey]*Blocker
	owners   map[ownerKey]*Owner
	roles    [numRoles]Amount
	classes  [numClasses]Amount
	tags     tagSet

	// Of the operator at hand.
	op       *Operator
	opIndex  int32
	opRoles  [numRoles]Amount
	subtasks []int64 // bytes by subtask index, -1 for finished
	subRoles map[int32]*[numRoles]Amount
	subRange map[int32]metadata.KeyGroupRange
	handles  map[handleKey]int64
}

type segmentKey struct {
	file          file
	start, length int64
}

type ownerKey struct {
	job     string
	class   Class
	claimed bool
}

type blockerKey struct {
	place   *place // nil for places made on the fly
	class   Class
	segment bool
}

type handleKey struct {
	role     Role
	tag      metadata.Tag
	delegate metadata.Tag
	merged   bool
	empty    bool
}

func (e *explainer) run() *Inspection {
	c, out := e.s.Checkpoint, e.out
	*out = Inspection{
		URL: e.s.Location.String(), Name: e.s.Name, Job: e.s.Job, CheckpointID: c.ID, FormatVersion: c.Version,
		Time: e.s.ModTime, MetadataBytes: e.s.Size, Relocation: e.s.Relocation, Properties: properties(c),
		Operators: make([]Operator, len(c.Operators)),
	}
	for i := range c.MasterStates {
		m := &c.MasterStates[i]
		out.MasterStates = append(out.MasterStates, MasterState{m.Name.Go(), m.Version, int64(len(m.Payload))})
	}
	e.files = newFileSet(e.s.fileHandles)
	e.segments = map[segmentKey]struct{}{}
	e.blockers = map[blockerKey]*Blocker{}
	e.owners = map[ownerKey]*Owner{}
	uids := uidNames(e.opts.UIDs)
	for i := range c.Operators {
		e.operator(i, uids)
	}
	e.finishTotals()
	e.finishMovable()
	slices.Sort(out.References)
	out.References = slices.Compact(out.References)
	out.Kind = kindOf(c, &out.Properties, e.tags)
	out.Unaligned = e.tags.channels
	out.Changelog = e.tags.hasAny(metadata.TagChangelogOld, metadata.TagChangelog, metadata.TagChangelogBytes, metadata.TagChangelogFile, metadata.TagChangelogFileOld)
	out.FileMerging = e.tags.hasAny(metadata.TagSegment, metadata.TagEmptySegment, metadata.TagMergedOperator)
	out.Entropy = e.entropy()
	out.Backends = e.tags.backends()
	out.WrittenBy = writtenBy(c.Version, e.tags)
	return out
}

func (e *explainer) operator(i int, uids metadata.UIDNames) {
	o := &e.s.Checkpoint.Operators[i]
	e.op, e.opIndex = &e.out.Operators[i], int32(i)
	op := e.op
	*op = Operator{ID: o.ID.String(), Name: o.Name.Go(), UID: o.UID.Go(), Parallelism: o.Parallelism,
		MaxParallelism: o.MaxParallelism, FullyFinished: o.FullyFinished()}
	if op.UID != "" {
		op.UIDFrom = "metadata"
	} else if uid := uids[o.ID]; uid != "" {
		op.UID, op.UIDFrom = uid, "list"
	}
	if o.MaxParallelism > 0 && (e.out.MaxParallelism == 0 || o.MaxParallelism < e.out.MaxParallelism) {
		e.out.MaxParallelism = o.MaxParallelism
	}
	e.opRoles = [numRoles]Amount{}
	e.handles = map[handleKey]int64{}
	e.subtasks = e.subtasks[:0]
	if !o.FullyFinished() && len(o.Subtasks) > 0 && o.Parallelism > 0 && int(o.Parallelism) <= maxSubtasks {
		e.subtasks = append(e.subtasks, make([]int64, o.Parallelism)...)
	}
	e.subRoles, e.subRange = nil, nil
	if e.opts.Subtasks {
		e.subRoles, e.subRange = map[int32]*[numRoles]Amount{}, map[int32]metadata.KeyGroupRange{}
	}
	if o.Coordinator != nil {
		e.handles[handleKey{role: RoleCoordinator, tag: o.Coordinator.Tag()}]++
		e.stream(-1, RoleCoordinator, o.Coordinator, metadata.StateSize(o.Coordinator))
	}
	states := namedStates{}
	for j := range o.Subtasks {
		e.subtask(&o.Subtasks[j], states)
	}
	op.OperatorStates = states.list()
	op.Roles = roleMap(&e.opRoles)
	for r := range numRoles {
		op.Bytes += e.opRoles[r].Bytes
		e.roles[r].Handles += e.opRoles[r].Handles
		e.roles[r].Bytes += e.opRoles[r].Bytes
	}
	if len(e.handles) > 0 {
		op.Handles = make(map[string]int64, len(e.handles))
		for k, n := range e.handles {
			op.Handles[k.String()] += n
		}
	}
	op.Skew = skewOf(e.subtasks)
	e.channels(o)
	if e.opts.Subtasks {
		e.listSubtasks(o)
	}
}

// maxSubtasks bounds what a damaged parallelism can allocate; Flink's largest max
// parallelism is 32768.
const maxSubtasks = 1 << 15

func (e *explainer) subtask(t *metadata.SubtaskState, states namedStates) {
	if t.Finished {
		e.op.FinishedSubtasks++
		if i := int(t.Index); i >= 0 && i < len(e.subtasks) {
			e.subtasks[i] = -1
		}
		return
	}
	if t.ReferenceMarker == 1 {
		e.out.References = append(e.out.References, t.ReferenceID)
	}
	stateful := false
	if h := t.ManagedOperator; h != nil {
		stateful = true
		states.add(h, false)
		e.operatorHandle(t.Index, RoleManagedOperator, h)
	}
	if h := t.RawOperator; h != nil {
		stateful = true
		states.add(h, true)
		e.operatorHandle(t.Index, RoleRawOperator, h)
	}
	if h := t.ManagedKeyed; h != nil {
		stateful = true
		e.tags.managedKeyed(h)
		if e.subRange != nil {
			e.subRange[t.Index] = h.KeyGroups()
		}
		e.keyed(t.Index, RoleManagedKeyed, h, true)
		e.addNew(newBytes(h))
	}
	if h := t.RawKeyed; h != nil {
		stateful = true
		e.keyed(t.Index, RoleRawKeyed, h, true)
		e.addNew(newBytes(h))
	}
	for i := range t.InputChannels {
		stateful = true
		e.channelHandle(t.Index, RoleInputChannel, &t.InputChannels[i])
	}
	for i := range t.OutputChannels {
		stateful = true
		e.channelHandle(t.Index, RoleOutputChannel, &t.OutputChannels[i])
	}
	if stateful {
		e.op.StatefulSubtasks++
	}
}

func (e *explainer) addNew(bytes int64) { e.out.Totals.NewBytes += bytes }

func (e *explainer) operatorHandle(subtask int32, role Role, h *metadata.OperatorHandle) {
	e.tags.add(h.Form)
	e.handles[handleKey{role: role, tag: h.Form, empty: h.Empty}]++
	size := metadata.StateSize(h.Delegate)
	if h.Delegate != nil {
		e.stream(subtask, role, h.Delegate, size)
	}
	e.addNew(max(size, 0))
}

func (e *explainer) channelHandle(subtask int32, role Role, h *metadata.ChannelHandle) {
	e.tags.channels = true
	k := handleKey{role: role, merged: h.Merged()}
	e.handles[k]++
	e.stream(subtask, role, h.Delegate, h.Size)
	e.addNew(max(h.Size, 0))
}

// keyed counts a keyed handle and its streams. top is false inside a changelog.
func (e *explainer) keyed(subtask int32, role Role, h metadata.KeyedHandle, top bool) {
	e.tags.add(h.Tag())
	if top {
		k := handleKey{role: role, tag: h.Tag()}
		if kg, ok := h.(*metadata.KeyGroupsHandle); ok && kg.Delegate != nil {
			k.delegate = kg.Delegate.Tag()
		}
		e.handles[k]++
	}
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		e.stream(subtask, role, h.Delegate, metadata.StateSize(h.Delegate))
	case *metadata.IncrementalHandle:
		if len(h.Shared) > 0 {
			e.tags.shared = true
		}
		e.stream(subtask, role, h.Meta, metadata.StateSize(h.Meta))
		for i := range h.Shared {
			e.stream(subtask, role, h.Shared[i].Handle, metadata.StateSize(h.Shared[i].Handle))
		}
		for i := range h.Private {
			e.stream(subtask, role, h.Private[i].Handle, metadata.StateSize(h.Private[i].Handle))
		}
	case *metadata.ChangelogHandle:
		for _, m := range h.Materialized {
			if m != nil {
				e.keyed(subtask, role, m, false)
			}
		}
		for _, m := range h.Changes {
			if m != nil {
				e.keyed(subtask, role, m, false)
			}
		}
	case *metadata.ChangelogFileHandle:
		for i := range h.Files {
			e.stream(subtask, role, h.Files[i].Handle, metadata.StateSize(h.Files[i].Handle))
		}
	case *metadata.ChangelogBytesHandle:
		var n int64
		for i := range h.Changes {
			n += int64(len(h.Changes[i].Data))
		}
		e.count(subtask, role, n)
		e.inlined(n)
	}
}

// stream counts one stream handle. size is its logical size, -1 for unknown.
func (e *explainer) stream(subtask int32, role Role, h metadata.StreamHandle, size int64) {
	h = metadata.Innermost(h)
	if h == nil {
		return
	}
	e.tags.add(h.Tag())
	e.count(subtask, role, max(size, 0))
	switch h := h.(type) {
	case *metadata.ByteStreamHandle:
		e.inlined(int64(len(h.Data)))
	case *metadata.FileHandle:
		e.object(h, h.Size, false)
	case *metadata.RelativeFileHandle:
		e.object(h, h.Size, true)
	case *metadata.SegmentHandle:
		e.segment(h)
	}
}

func (e *explainer) count(subtask int32, role Role, bytes int64) {
	e.out.Totals.Handles++
	e.out.Totals.LogicalBytes += bytes
	e.opRoles[role].add(bytes)
	if i := int(subtask); i >= 0 && i < len(e.subtasks) && e.subtasks[i] >= 0 {
		e.subtasks[i] += bytes
	}
	if e.subRoles != nil && subtask >= 0 {
		roles := e.subRoles[subtask]
		if roles == nil {
			roles = new([numRoles]Amount)
			e.subRoles[subtask] = roles
		}
		roles[role].add(bytes)
	}
}

func (e *explainer) inlined(bytes int64) {
	e.out.Totals.InlinedBytes += bytes
	e.op.InlinedBytes += bytes
	e.classes[ClassInlined].add(bytes)
}

// fileOf finds or makes what is known of a file, and counts it for the operator.
func (e *explainer) fileOf(f file) (facts *fileFacts, isNew bool) {
	facts, isNew = e.files.get(f.identity())
	if facts.operator != e.opIndex {
		facts.operator = e.opIndex
		e.op.Files++
	}
	return facts, isNew
}

// object counts a handle of a whole object. One that may not be followed counts
// as well: this is about what the metadata says.
func (e *explainer) object(h metadata.StreamHandle, size int64, relative bool) {
	f := e.place(h)
	if !relative {
		e.block(f.place, h, size, false)
	}
	facts, isNew := e.fileOf(f)
	o := e.owner(f.place)
	if isNew {
		o.Files++
	}
	if size > facts.size {
		grown := size - max(facts.size, 0)
		facts.size = size
		e.classes[f.place.class].Bytes += grown
		e.out.Totals.PhysicalBytes += grown
		o.Bytes += grown
	}
}

func (e *explainer) segment(h *metadata.SegmentHandle) {
	f := e.place(h)
	e.block(f.place, h, h.Length, true)
	facts, isNew := e.fileOf(f)
	o := e.owner(f.place)
	if isNew {
		o.Files++
	}
	facts.size = max(facts.size, h.Start+h.Length)
	k := segmentKey{f.identity(), h.Start, h.Length}
	if _, ok := e.segments[k]; ok {
		return
	}
	e.segments[k] = struct{}{}
	e.classes[f.place.class].Bytes += h.Length
	e.out.Totals.PhysicalBytes += h.Length
	o.Bytes += h.Length
}

func (e *explainer) place(h metadata.StreamHandle) file {
	f, err := e.s.res.locate(h)
	if err != nil {
		e.out.Totals.Refused++
	}
	e.classes[f.place.class].Handles++
	return f
}

func (e *explainer) owner(p *place) *Owner {
	k := ownerKey{p.owner, p.class, p.claimed}
	o := e.owners[k]
	if o == nil {
		o = &Owner{Job: p.owner, Class: p.class, Claimed: p.claimed}
		e.owners[k] = o
	}
	return o
}

// maxBlockers bounds the groups of handles that keep a snapshot from being moved.
const maxBlockers = 32

func (e *explainer) block(p *place, h metadata.StreamHandle, size int64, segment bool) {
	k := blockerKey{place: p, class: p.class, segment: segment}
	if p.id < 0 {
		k.place = nil
	}
	b := e.blockers[k]
	if b == nil {
		if len(e.blockers) >= maxBlockers {
			k.place = nil
			b = e.blockers[k]
		}
		if b == nil {
			b = &Blocker{Reason: "absolute path", Class: k.class}
			if segment {
				b.Reason = "segment of a merged file"
			}
			if k.place != nil {
				b.Dir = shown(writtenDirOf(h))
			}
			e.blockers[k] = b
		}
	}
	b.Handles++
	b.Bytes += max(size, 0)
	if len(b.Examples) < e.opts.MaxExamples {
		b.Examples = append(b.Examples, shown(writtenPath(h)))
	}
}

func writtenDirOf(h metadata.StreamHandle) string {
	p := writtenPath(h)
	return p[:max(0, strings.LastIndexByte(p, '/'))]
}

func (e *explainer) finishMovable() {
	m := &e.out.Movable
	for _, b := range e.blockers {
		m.Blockers = append(m.Blockers, *b)
	}
	slices.SortFunc(m.Blockers, func(a, b Blocker) int {
		return cmp.Or(cmp.Compare(b.Handles, a.Handles), cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Class, b.Class))
	})
	m.Movable = len(m.Blockers) == 0
}

func (e *explainer) finishTotals() {
	t := &e.out.Totals
	t.Files = int64(len(e.files.facts))
	t.Roles = roleMap(&e.roles)
	for c := range numClasses {
		if a := e.classes[c]; a.Handles > 0 {
			if t.Classes == nil {
				t.Classes = map[string]Amount{}
			}
			t.Classes[c.String()] = a
		}
	}
	for _, o := range e.owners {
		t.Owners = append(t.Owners, *o)
	}
	slices.SortFunc(t.Owners, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Job, b.Job), compareBools(a.Claimed, b.Claimed))
	})
	if t.Files == 0 {
		return
	}
	buckets := make([]HistogramBucket, len(fileSizeLimits))
	for i, limit := range fileSizeLimits {
		buckets[i].UpTo = limit
	}
	for i := range e.files.facts {
		f := &e.files.facts[i]
		if f.size < 0 {
			t.UnknownSizes++
			continue
		}
		i := 0
		for i < len(buckets)-1 && f.size > buckets[i].UpTo {
			i++
		}
		buckets[i].Files++
		buckets[i].Bytes += f.size
	}
	t.FileSizes = buckets
}

func roleMap(roles *[numRoles]Amount) map[string]Amount {
	var m map[string]Amount
	for r := range numRoles {
		if roles[r].Handles > 0 {
			if m == nil {
				m = map[string]Amount{}
			}
			m[r.String()] = roles[r]
		}
	}
	return m
}

// newBytes is what a checkpoint newly wrote for a keyed handle, as it declares.
func newBytes(h metadata.KeyedHandle) int64 {
	switch h := h.(type) {
	case *metadata.KeyGroupsHandle:
		return max(metadata.StateSize(h.Delegate), 0)
	case *metadata.IncrementalHandle:
		if h.Form == metadata.TagIncremental && h.CheckpointedSize >= 0 {
			return h.CheckpointedSize
		}
		// Without a declaration Flink takes the full size.
		n := max(metadata.StateSize(h.Meta), 0)
		for i := range h.Shared {
			n += max(metadata.StateSize(h.Shared[i].Handle), 0)
		}
		for i := range h.Private {
			n += max(metadata.StateSize(h.Private[i].Handle), 0)
		}
		return n
	case *metadata.ChangelogHandle:
		return max(h.CheckpointedSize, 0)
	case *metadata.ChangelogFileHandle:
		return max(h.IncrementalSize, 0)
	}
	return 0
}

func skewOf(bytes []int64) *Skew {
	var sorted []int64
	s := Skew{HottestSubtask: -1}
	for i, n := range bytes {
		if n < 0 {
			continue
		}
		sorted = append(sorted, n)
		if s.HottestSubtask < 0 || n > s.MaxBytes {
			s.MaxBytes, s.HottestSubtask = n, int32(i)
		}
	}
	if len(sorted) == 0 || s.MaxBytes == 0 {
		return nil
	}
	slices.Sort(sorted)
	m := len(sorted) / 2
	s.MedianBytes = sorted[m]
	if len(sorted)%2 == 0 {
		s.MedianBytes = sorted[m-1] + (sorted[m]-sorted[m-1])/2
	}
	if s.MedianBytes > 0 {
		s.Ratio = float64(s.MaxBytes) / float64(s.MedianBytes)
	}
	return &s
}

func (e *explainer) channels(o *metadata.OperatorState) {
	limit := e.opts.MaxChannels
	var all []Channel
	// A bounded list is cut back to the fullest each time it has twice as many.
	cut := func() {
		slices.SortFunc(all, func(a, b Channel) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), compareChannels(a, b))
		})
		all = all[:limit]
	}
	add := func(direction string, hs []metadata.ChannelHandle) {
		for i := range hs {
			for _, c := range hs[i].Channels {
				e.op.ChannelCount++
				e.op.InFlightBytes += c.Size
				all = append(all, Channel{direction, hs[i].Subtask, c.Gate, c.Channel, c.Size, int64(len(c.Offsets))})
				if limit > 0 && len(all) >= 2*limit+64 {
					cut()
				}
			}
		}
	}
	for i := range o.Subtasks {
		add("input", o.Subtasks[i].InputChannels)
		add("output", o.Subtasks[i].OutputChannels)
	}
	if limit > 0 && len(all) > limit {
		cut()
	}
	slices.SortFunc(all, compareChannels)
	e.op.Channels = all
}

func compareChannels(a, b Channel) int {
	return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Subtask, b.Subtask), cmp.Compare(a.Gate, b.Gate), cmp.Compare(a.Channel, b.Channel))
}

func (e *explainer) listSubtasks(o *metadata.OperatorState) {
	for i := range o.Subtasks {
		t := &o.Subtasks[i]
		s := Subtask{Index: t.Index, Finished: t.Finished}
		if roles := e.subRoles[t.Index]; roles != nil {
			s.Roles = roleMap(roles)
			for r := range numRoles {
				s.Bytes += roles[r].Bytes
			}
		}
		if r, ok := e.subRange[t.Index]; ok && r.Count > 0 {
			s.KeyGroups = strconv.Itoa(int(r.Start)) + ".." + strconv.Itoa(int(r.End()))
		}
		e.op.Subtasks = append(e.op.Subtasks, s)
	}
	slices.SortStableFunc(e.op.Subtasks, func(a, b Subtask) int { return cmp.Compare(a.Index, b.Index) })
}

// entropy reports whether files of the snapshot's own job lie under a prefix with
// one part more than the metadata's.
func (e *explainer) entropy() bool {
	self := &e.s.res.self
	if self.job == "" {
		return false
	}
	for _, p := range e.s.res.places {
		if p.refused != nil || p.relocated || p.owner != self.job {
			continue
		}
		if before, job, _, ok := jobOf(p.loc.Path); ok && job == self.job && isInserted(before, self.base) {
			return true
		}
	}
	return false
}

type namedStateKey struct {
	name metadata.String
	raw  bool
	mode metadata.DistributionMode
}

type namedStates map[namedStateKey]int64

func (n namedStates) add(h *metadata.OperatorHandle, raw bool) {
	for i := range h.States {
		n[namedStateKey{h.States[i].Name, raw, h.States[i].Mode}] += int64(len(h.States[i].Offsets))
	}
}

func (n namedStates) list() []NamedState {
	var out []NamedState
	for k, partitions := range n {
		out = append(out, NamedState{k.name.Go(), modeText(k.mode), k.raw, partitions})
	}
	slices.SortFunc(out, func(a, b NamedState) int {
		return cmp.Or(compareBools(a.Raw, b.Raw), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Mode, b.Mode))
	})
	return out
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func modeText(m metadata.DistributionMode) string {
	switch m {
	case metadata.ModeSplit:
		return "split"
	case metadata.ModeUnion:
		return "union"
	case metadata.ModeBroadcast:
		return "broadcast"
	}
	return "mode " + strconv.Itoa(int(m))
}

// String is the role and Flink's class of the handle.
func (k handleKey) String() string {
	name := ""
	switch {
	case k.role == RoleInputChannel && k.merged:
		name = "MergedInputChannelStateHandle"
	case k.role == RoleInputChannel:
		name = "InputChannelStateHandle"
	case k.role == RoleOutputChannel && k.merged:
		name = "MergedResultSubpartitionStateHandle"
	case k.role == RoleOutputChannel:
		name = "ResultSubpartitionStateHandle"
	case k.tag == metadata.TagMergedOperator && k.empty:
		name = "EmptyFileMergingOperatorStreamStateHandle"
	default:
		name = handleClass(k.tag)
	}
	if k.delegate != 0 {
		name += "(" + handleClass(k.delegate) + ")"
	}
	return k.role.String() + ":" + name
}

// handleClass is the name of Flink's class for a tag.
func handleClass(t metadata.Tag) string {
	switch t {
	case metadata.TagByteStream:
		return "ByteStreamStateHandle"
	case metadata.TagFile:
		return "FileStateHandle"
	case metadata.TagRelativeFile:
		return "RelativeFileStateHandle"
	case metadata.TagSegment:
		return "SegmentFileStateHandle"
	case metadata.TagEmptySegment:
		return "EmptySegmentFileStateHandle"
	case metadata.TagKeyGroups, metadata.TagKeyGroupsWithID:
		return "KeyGroupsStateHandle"
	case metadata.TagSavepointKeyGroups:
		return "KeyGroupsSavepointStateHandle"
	case metadata.TagIncremental, metadata.TagIncrementalOld:
		return "IncrementalRemoteKeyedStateHandle"
	case metadata.TagChangelog, metadata.TagChangelogOld:
		return "ChangelogStateBackendHandleImpl"
	case metadata.TagChangelogBytes:
		return "InMemoryChangelogStateHandle"
	case metadata.TagChangelogFile, metadata.TagChangelogFileOld:
		return "ChangelogStateHandleStreamImpl"
	case metadata.TagPartitionableOperator:
		return "OperatorStreamStateHandle"
	case metadata.TagMergedOperator:
		return "FileMergingOperatorStreamStateHandle"
	}
	return "tag " + strconv.Itoa(int(t))
}
