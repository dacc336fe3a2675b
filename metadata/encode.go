package metadata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark/tidemark/internal/javaio"
)

// NotRepresentableError says everything that stopped an encoder. It wraps
// ErrNotRepresentable.
type NotRepresentableError struct {
	Version int32
	// Problems names the field and what is wrong, one each, in file order:
	// "operator[0].uid: operator uids need version 5". At most 20.
	Problems []string
	More     int // problems beyond those
}

func (e *NotRepresentableError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d: ", e.Version)
	b.WriteString(strings.Join(e.Problems, "; "))
	if e.More > 0 {
		fmt.Fprintf(&b, "; and %d more", e.More)
	}
	b.WriteString(": ")
	b.WriteString(ErrNotRepresentable.Error())
	return b.String()
}

// Unwrap gives errors.Is its sentinel.
func (e *NotRepresentableError) Unwrap() error { return ErrNotRepresentable }

const mostProblems = 20

// encode writes c after a dry run that finds all problems.
func encode(w io.Writer, c *Checkpoint, opts *EncodeOptions) error {
	e, err := dryRun(c, opts)
	if err != nil {
		return err
	}
	if opts != nil && opts.SelfCheck {
		if err := selfCheck(c); err != nil {
			return err
		}
	}
	e = &encoder{w: w, buf: make([]byte, 0, int(min(e.n, outputSize)))}
	e.checkpoint(c)
	e.flush()
	return e.err
}

// EncodedSize is the number of bytes that Encode writes for c.
func EncodedSize(c *Checkpoint) (int64, error) {
	e, err := dryRun(c, nil)
	if err != nil {
		return 0, err
	}
	return e.n, nil
}

func dryRun(c *Checkpoint, opts *EncodeOptions) (*encoder, error) {
	e := &encoder{problems: &NotRepresentableError{Version: c.Version}}
	if opts != nil && opts.Release != "" {
		r, err := parseRelease(opts.Release)
		if err != nil {
			return nil, err
		}
		e.release = &r
	}
	if c.Version < MinVersion || c.Version > MaxVersion {
		return nil, &FormatError{Offset: 4, Field: "version", Detail: fmt.Sprintf("is %d; %d to %d can be written", c.Version, MinVersion, MaxVersion), Err: ErrUnsupportedVersion}
	}
	e.checkpoint(c)
	if len(e.problems.Problems) > 0 {
		return nil, e.problems
	}
	return e, nil
}

const outputSize = 64 << 10

// encoder writes a checkpoint. In a dry run (problems is set) it writes nothing,
// counts the bytes and checks what the version can hold.
type encoder struct {
	w        io.Writer
	buf      []byte
	n        int64
	err      error
	problems *NotRepresentableError
	release  *release
	path     fieldPath
	version  int32
	short    bool // changelog handles of Flink 1.14
	depth    int

	maxParallelism int32 // of the operator that is being written
}

func (e *encoder) dry() bool { return e.problems != nil }

func (e *encoder) problem(field, format string, args ...any) {
	if !e.dry() {
		return
	}
	if len(e.problems.Problems) == mostProblems {
		e.problems.More++
		return
	}
	text := fmt.Sprintf(format, args...)
	if f := e.path.field(field); f != "" {
		text = f + ": " + text
	}
	e.problems.Problems = append(e.problems.Problems, text)
}

// room makes room for n bytes, at most outputSize, and returns the buffer.
func (e *encoder) room(n int) {
	if cap(e.buf)-len(e.buf) < n {
		e.flush()
		if cap(e.buf) < n {
			e.buf = make([]byte, 0, n)
		}
	}
}

func (e *encoder) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

func (e *encoder) u8(v uint8) {
	if e.dry() {
		e.n++
		return
	}
	e.room(1)
	e.buf = append(e.buf, v)
}

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) i32(v int32) {
	if e.dry() {
		e.n += 4
		return
	}
	e.room(4)
	e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v))
}

func (e *encoder) i64(v int64) {
	if e.dry() {
		e.n += 8
		return
	}
	e.room(8)
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v))
}

// length writes a count or length as an i32.
func (e *encoder) length(field string, n int) {
	if int64(n) > 1<<31-1 {
		e.problem(field, "%d do not fit a 32-bit count", n)
	}
	e.i32(int32(n))
}

func (e *encoder) utf(field string, s String) {
	if e.dry() {
		e.n += 2 + int64(len(s))
		if len(s) > javaio.MaxStringBytes {
			e.problem(field, "is a string of %d encoded bytes; %d fit", len(s), javaio.MaxStringBytes)
		}
		if !asciiText(s) && !s.Valid() {
			e.problem(field, "is not modified UTF-8")
		}
		return
	}
	e.room(2 + len(s))
	e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(len(s)))
	e.buf = append(e.buf, s...)
}

func asciiText(s String) bool {
	i := 0
	for ; i+4 <= len(s); i += 4 {
		if (s[i]|s[i+1]|s[i+2]|s[i+3])&0x80 != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if s[i]&0x80 != 0 {
			return false
		}
	}
	return true
}

// rest writes bytes without a length.
func (e *encoder) rest(b []byte) {
	if e.dry() {
		e.n += int64(len(b))
		return
	}
	if len(b) >= outputSize {
		e.flush()
		if e.err == nil {
			_, e.err = e.w.Write(b)
		}
		return
	}
	e.room(len(b))
	e.buf = append(e.buf, b...)
}

func (e *encoder) bytes32(field string, b []byte) {
	e.length(field, len(b))
	e.rest(b)
}

func (e *encoder) int64s(vs []int64) {
	if e.dry() {
		e.n += 8 * int64(len(vs))
		return
	}
	for _, v := range vs {
		e.i64(v)
	}
}

func (e *encoder) offsets(field string, vs []int64) {
	e.length(field, len(vs))
	e.int64s(vs)
}

func (e *encoder) checkpoint(c *Checkpoint) {
	e.header(c)
	e.length("operators", len(c.Operators))
	seen := make(map[OperatorID]struct{})
	for i := range c.Operators {
		e.path.push("operator", i)
		if e.dry() {
			if _, dup := seen[c.Operators[i].ID]; dup {
				e.problem("id", "is %s, which an operator before it has", c.Operators[i].ID)
			}
			seen[c.Operators[i].ID] = struct{}{}
		}
		e.operator(&c.Operators[i])
		e.path.pop()
	}
	e.properties(c)
}

// header writes all in front of the operator count.
func (e *encoder) header(c *Checkpoint) {
	e.version, e.short = c.Version, c.Changelog114
	e.i32(fileMagic)
	e.i32(c.Version)
	if e.release != nil {
		e.checkVersion(c.Version)
	}
	if c.ID < 0 {
		e.problem("checkpointID", "is %d", c.ID)
	}
	e.i64(c.ID)
	e.length("masterStates", len(c.MasterStates))
	for i := range c.MasterStates {
		e.path.push("masterState", i)
		m := &c.MasterStates[i]
		e.i32(-0x3694e96a) // c96b1696
		e.length("payload", 10+len(m.Name)+len(m.Payload))
		e.i32(m.Version)
		e.utf("name", m.Name)
		e.bytes32("payload", m.Payload)
		e.path.pop()
	}
}

func (e *encoder) properties(c *Checkpoint) {
	switch {
	case c.Version < 4:
		if len(c.Properties) > 0 {
			e.problem("properties", "checkpoint properties need version 4")
		}
	case len(c.Properties) < 5:
		e.problem("properties", "are missing; version %d ends with a Java object stream, at least that of null", c.Version)
	case [4]byte(c.Properties[:4]) != propertiesMagic:
		e.problem("properties", "begin with %x, not with the header of a Java object stream", []byte(c.Properties[:4]))
	default:
		e.rest(c.Properties)
	}
}

func (e *encoder) operator(o *OperatorState) {
	if e.version >= 5 {
		e.utf("name", o.Name)
		e.utf("uid", o.UID)
	} else {
		if o.Name != "" {
			e.problem("name", "operator names (%q) need version 5", o.Name.Go())
		}
		if o.UID != "" {
			e.problem("uid", "operator uids (%q) need version 5", o.UID.Go())
		}
	}
	e.rest(o.ID[:])
	if o.Parallelism < 0 {
		e.problem("parallelism", "is %d", o.Parallelism)
	}
	if o.MaxParallelism < o.Parallelism || o.MaxParallelism > maxKeyGroups {
		e.problem("maxParallelism", "is %d with the parallelism %d; Flink allows up to %d", o.MaxParallelism, o.Parallelism, maxKeyGroups)
	}
	e.maxParallelism = o.MaxParallelism
	e.i32(o.Parallelism)
	e.i32(o.MaxParallelism)
	if e.version == 2 {
		e.i32(o.ChainLength)
		if o.Coordinator != nil {
			e.problem("coordinator", "coordinator state needs version 3")
		}
	} else {
		if o.ChainLength != 0 {
			e.problem("chainLength", "only version 2 has it")
		}
		if o.Coordinator != nil && o.Coordinator.Tag() != TagByteStream {
			e.problem("coordinator", "is a handle with tag %s; coordinator state is inline or absent", o.Coordinator.Tag())
		}
		e.path.enter("coordinator")
		e.stream(o.Coordinator)
		e.path.pop()
	}
	if o.FinishedCount < 0 {
		if e.version == 2 {
			e.problem("", "fully finished operators need version 3")
		}
		if len(o.Subtasks) > 0 {
			e.problem("", "is fully finished but has %d subtask states", len(o.Subtasks))
		}
		if o.Coordinator != nil {
			e.problem("coordinator", "is there though the operator is fully finished")
		}
		e.finishing()
		e.i32(o.FinishedCount)
		return
	}
	if o.FinishedCount > 0 {
		e.problem("", "has the finished count %d; finished operators have a negative one", o.FinishedCount)
	}
	e.length("subtasks", len(o.Subtasks))
	if e.dry() {
		e.uniqueSubtasks(o)
	}
	for i := range o.Subtasks {
		e.path.push("subtask", i)
		e.subtask(o, &o.Subtasks[i])
		e.path.pop()
	}
}

func (e *encoder) uniqueSubtasks(o *OperatorState) {
	sorted := true
	for i := 1; i < len(o.Subtasks); i++ {
		sorted = sorted && o.Subtasks[i].Index > o.Subtasks[i-1].Index
	}
	if sorted {
		return
	}
	seen := make(map[int32]struct{}, len(o.Subtasks))
	for i := range o.Subtasks {
		index := o.Subtasks[i].Index
		if _, dup := seen[index]; dup {
			e.path.push("subtask", i)
			e.problem("index", "is %d, which an entry before it has", index)
			e.path.pop()
		}
		seen[index] = struct{}{}
	}
}

// finishing checks that the release knows finished operators and subtasks.
func (e *encoder) finishing() {
	if e.release != nil && e.release.before(1, 14) {
		e.problem("", "finished operators and subtasks need Flink 1.14, not %s", e.release)
	}
}

func (e *encoder) subtask(o *OperatorState, s *SubtaskState) {
	if s.Index < 0 || s.Index >= o.Parallelism {
		e.problem("index", "is %d with the parallelism %d", s.Index, o.Parallelism)
	}
	if s.Finished {
		if e.version == 2 {
			e.problem("", "finished subtasks need version 3")
		}
		if s.ManagedOperator != nil || s.RawOperator != nil || s.ManagedKeyed != nil || s.RawKeyed != nil ||
			len(s.InputChannels)+len(s.OutputChannels) > 0 || s.ReferenceMarker != 0 {
			e.problem("", "is finished but has state")
		}
		e.finishing()
		e.i32(-s.Index - 1)
		return
	}
	e.i32(s.Index)
	if e.version == 2 {
		e.i64(s.Duration)
		e.i32(0)
	} else if s.Duration != 0 {
		e.problem("duration", "only version 2 has it")
	}
	e.flagged("managedOperator", s.ManagedOperatorFlag, s.ManagedOperator)
	e.flagged("rawOperator", s.RawOperatorFlag, s.RawOperator)
	e.path.enter("managedKeyed")
	e.keyed(s.ManagedKeyed)
	e.path.pop()
	e.path.enter("rawKeyed")
	e.keyed(s.RawKeyed)
	e.path.pop()
	if e.version >= 3 {
		e.channels("inputChannel", s.InputChannels, true)
		e.channels("outputChannel", s.OutputChannels, false)
	} else {
		if len(s.InputChannels) > 0 {
			e.problem("inputChannel", "channel state needs version 3")
		}
		if len(s.OutputChannels) > 0 {
			e.problem("outputChannel", "channel state needs version 3")
		}
	}
	if e.version >= 7 {
		e.u8(s.ReferenceMarker)
		if s.ReferenceMarker == 1 {
			e.i64(s.ReferenceID)
		}
	} else if s.ReferenceMarker != 0 {
		e.problem("referenceID", "references to older checkpoints (%d) need version 7", s.ReferenceID)
	}
}

func (e *encoder) flagged(slot string, flag int32, h *OperatorHandle) {
	e.path.enter(slot)
	if h != nil && flag == 0 {
		flag = 1 // a handle made by hand
	}
	e.i32(flag)
	if flag != 0 {
		e.operatorHandle(h)
	}
	e.path.pop()
}

// tag writes the type byte of a handle.
func (e *encoder) tag(t Tag) {
	if e.release != nil {
		e.checkTag(t)
	}
	e.u8(uint8(t))
}

func (e *encoder) operatorHandle(h *OperatorHandle) {
	if h == nil {
		e.tag(TagNull)
		return
	}
	if h.Form != TagPartitionableOperator && h.Form != TagMergedOperator {
		e.problem("tag", "is %s, which is no handle of operator state", h.Form)
	}
	e.tag(h.Form)
	e.length("states", len(h.States))
	var seen map[String]struct{}
	if e.dry() {
		seen = make(map[String]struct{}, len(h.States))
	}
	for i := range h.States {
		e.path.push("state", i)
		s := &h.States[i]
		if e.dry() {
			if _, dup := seen[s.Name]; dup {
				e.problem("name", "is %q, which a state before it has", s.Name.Go())
			}
			seen[s.Name] = struct{}{}
		}
		if s.Mode > ModeBroadcast {
			e.problem("mode", "is %d", s.Mode)
		}
		e.utf("name", s.Name)
		e.u8(uint8(s.Mode))
		e.offsets("offsets", s.Offsets)
		e.path.pop()
	}
	if h.Form == TagMergedOperator {
		e.utf("taskOwnedDir", h.TaskOwnedDir)
		e.utf("sharedDir", h.SharedDir)
		if h.Empty && h.emptyByte > 1 {
			e.u8(h.emptyByte)
		} else {
			e.bool(h.Empty)
		}
		if t := tagOf(h.Delegate); t != TagSegment && t != TagEmptySegment {
			e.problem("delegate", "is a handle with tag %s; merged operator state lies in a segment", t)
		}
	} else if h.TaskOwnedDir != "" || h.SharedDir != "" || h.Empty {
		e.problem("", "has directories of merged files, which tag %s cannot hold", h.Form)
	}
	e.path.enter("delegate")
	e.stream(h.Delegate)
	e.path.pop()
}

func tagOf(h StreamHandle) Tag {
	if h == nil {
		return TagNull
	}
	return h.Tag()
}

func (e *encoder) nest() bool {
	if e.depth >= maxDepth {
		e.problem("", "is nested more than %d deep", maxDepth)
		return false
	}
	e.depth++
	return true
}

func (e *encoder) keyed(h KeyedHandle) {
	if h == nil {
		e.tag(TagNull)
		return
	}
	switch h := h.(type) {
	case *KeyGroupsHandle:
		switch h.Form {
		case TagKeyGroupsWithID:
		case TagKeyGroups, TagSavepointKeyGroups:
			if h.ID != "" {
				e.problem("stateHandleID", "(%q) needs tag %s, not %s", h.ID.Go(), TagKeyGroupsWithID, h.Form)
			}
		default:
			e.problem("tag", "is %s, which is no handle of key groups", h.Form)
		}
		e.tag(h.Form)
		e.keyGroups(h)
		if h.Form == TagKeyGroupsWithID {
			e.utf("stateHandleID", h.ID)
		}
	case *IncrementalHandle:
		e.incremental(h)
	case *ChangelogHandle:
		if e.nest() {
			e.changelog(h)
			e.depth--
		}
	case *ChangelogBytesHandle:
		e.changelogBytes(h)
	case *ChangelogFileHandle:
		e.changelogFile(h)
	default:
		e.problem("", "is a %T, which no format version has", h)
	}
}

func (e *encoder) keyGroups(h *KeyGroupsHandle) {
	e.keyGroupRange(h.Range)
	if int64(h.Range.Count) != int64(len(h.Offsets)) {
		e.problem("offset", "has %d entries for %d key groups", len(h.Offsets), h.Range.Count)
	}
	e.int64s(h.Offsets)
	e.path.enter("delegate")
	e.stream(h.Delegate)
	e.path.pop()
}

func (e *encoder) keyGroupRange(r KeyGroupRange) {
	if r.Start < 0 || r.Count < 0 || (r.Count > 0 && int64(r.Start)+int64(r.Count) > int64(e.maxParallelism)) {
		e.problem("keyGroupStart", "is %d with a count of %d and the max parallelism %d", r.Start, r.Count, e.maxParallelism)
	}
	e.i32(r.Start)
	e.i32(r.Count)
}

func (e *encoder) incremental(h *IncrementalHandle) {
	switch h.Form {
	case TagIncremental:
	case TagIncrementalOld:
		if h.ID != "" || h.CheckpointedSize != 0 {
			e.problem("", "has a state handle ID or a checkpointed size, which tag %s cannot hold", h.Form)
		}
	default:
		e.problem("tag", "is %s, which is no incremental handle", h.Form)
	}
	e.tag(h.Form)
	e.i64(h.CheckpointID)
	e.utf("backendID", h.BackendID)
	e.keyGroupRange(h.Range)
	if h.Form == TagIncremental {
		e.size64("checkpointedSize", h.CheckpointedSize)
	}
	e.path.enter("meta")
	e.stream(h.Meta)
	e.path.pop()
	e.namedHandles("shared", h.Shared)
	e.namedHandles("private", h.Private)
	if h.Form == TagIncremental {
		e.utf("stateHandleID", h.ID)
	}
}

func (e *encoder) size64(field string, n int64) {
	if n < -1 {
		e.problem(field, "is %d", n)
	}
	e.i64(n)
}

func (e *encoder) namedHandles(element string, hs []NamedHandle) {
	e.length(element, len(hs))
	for i := range hs {
		e.path.push(element, i)
		e.utf("name", hs[i].Name)
		e.path.enter("handle")
		e.stream(hs[i].Handle)
		e.path.pop()
		e.path.pop()
	}
}

func (e *encoder) changelog(h *ChangelogHandle) {
	switch h.Form {
	case TagChangelog:
	case TagChangelogOld:
		if h.CheckpointID != 0 {
			e.problem("checkpointID", "needs tag %s, not %s", TagChangelog, h.Form)
		}
	default:
		e.problem("tag", "is %s, which is no changelog handle", h.Form)
	}
	if h.Range.Count == 0 {
		e.problem("keyGroupCount", "is 0, which a changelog handle cannot have")
	}
	short := e.short && h.Form == TagChangelogOld
	e.tag(h.Form)
	e.keyGroupRange(h.Range)
	if !short {
		e.size64("checkpointedSize", h.CheckpointedSize)
	}
	e.length("materialized", len(h.Materialized))
	for i, m := range h.Materialized {
		e.path.push("materialized", i)
		e.keyed(m)
		e.path.pop()
	}
	e.length("changes", len(h.Changes))
	for i, m := range h.Changes {
		e.path.push("changes", i)
		switch m.(type) {
		case *ChangelogBytesHandle, *ChangelogFileHandle:
			e.keyed(m)
		default:
			e.problem("", "is a %T, which holds no changes", m)
		}
		e.path.pop()
	}
	if !short {
		e.i64(h.MaterializationID)
	}
	if h.Form == TagChangelog {
		e.i64(h.CheckpointID)
	}
	if !short {
		e.utf("stateHandleID", h.ID)
	} else if h.CheckpointedSize != 0 || h.MaterializationID != 0 || h.ID != "" {
		e.problem("", "has fields that the layout of Flink 1.14 cannot hold")
	}
}

func (e *encoder) changelogBytes(h *ChangelogBytesHandle) {
	e.tag(TagChangelogBytes)
	e.keyGroupRange(h.Range)
	e.i64(h.From)
	e.i64(h.To)
	e.length("changes", len(h.Changes))
	for i := range h.Changes {
		e.path.push("change", i)
		e.i32(h.Changes[i].KeyGroup)
		e.bytes32("data", h.Changes[i].Data)
		e.path.pop()
	}
	if !e.short {
		e.utf("stateHandleID", h.ID)
	} else if h.ID != "" {
		e.problem("stateHandleID", "cannot be held by the layout of Flink 1.14")
	}
}

func (e *encoder) changelogFile(h *ChangelogFileHandle) {
	switch h.Form {
	case TagChangelogFile:
	case TagChangelogFileOld:
		if h.StorageID != "" {
			e.problem("storageID", "(%q) needs tag %s, not %s", h.StorageID.Go(), TagChangelogFile, h.Form)
		}
	default:
		e.problem("tag", "is %s, which is no changelog file handle", h.Form)
	}
	e.tag(h.Form)
	e.keyGroupRange(h.Range)
	e.length("files", len(h.Files))
	for i := range h.Files {
		e.path.push("files", i)
		e.i64(h.Files[i].Offset)
		e.path.enter("handle")
		e.stream(h.Files[i].Handle)
		e.path.pop()
		e.path.pop()
	}
	e.size64("fullSize", h.FullSize)
	if e.short && h.Form == TagChangelogFileOld {
		if h.IncrementalSize != 0 || h.ID != "" {
			e.problem("", "has fields that the layout of Flink 1.14 cannot hold")
		}
		return
	}
	e.size64("incrementalSize", h.IncrementalSize)
	e.utf("stateHandleID", h.ID)
	if h.Form == TagChangelogFile {
		e.utf("storageID", h.StorageID)
	}
}

func (e *encoder) stream(h StreamHandle) {
	if h == nil {
		e.tag(TagNull)
		return
	}
	switch h := h.(type) {
	case *ByteStreamHandle:
		e.tag(TagByteStream)
		e.utf("name", h.Name)
		e.bytes32("data", h.Data)
	case *FileHandle:
		e.tag(TagFile)
		e.size64("size", h.Size)
		e.utf("path", h.Path)
	case *RelativeFileHandle:
		e.tag(TagRelativeFile)
		e.utf("path", h.Path)
		e.size64("size", h.Size)
	case *SegmentHandle:
		if h.Start < 0 || h.Length < 0 || h.Start+h.Length < 0 {
			e.problem("start", "is %d with a length of %d", h.Start, h.Length)
		}
		if h.Scope != ScopeExclusive && h.Scope != ScopeShared {
			e.problem("scope", "is %d", h.Scope)
		}
		e.tag(TagSegment)
		e.i64(h.Start)
		e.i64(h.Length)
		e.i32(int32(h.Scope))
		e.utf("path", h.Path)
		e.utf("logicalID", h.LogicalID)
	case *EmptySegmentHandle:
		e.tag(TagEmptySegment)
	case *KeyGroupsHandle:
		if h.Form != TagKeyGroups || h.ID != "" {
			e.problem("tag", "is %s with the ID %q: as a stream only tag %s without an ID can stand", h.Form, h.ID.Go(), TagKeyGroups)
		}
		if e.nest() {
			e.tag(TagKeyGroups)
			e.keyGroups(h)
			e.depth--
		}
	default:
		e.problem("", "is a %T, which no format version has", h)
	}
}

func (e *encoder) channels(element string, hs []ChannelHandle, input bool) {
	e.length(element, len(hs))
	for i := range hs {
		e.path.push(element, i)
		e.channel(&hs[i], input)
		e.path.pop()
	}
}

func (e *encoder) channel(h *ChannelHandle, input bool) {
	switch {
	case e.version < 6:
		if h.Merged() {
			e.problem("", "merged channel state needs version 6")
			return
		}
		if h.Tag != 0 {
			e.problem("tag", "is %d, which needs version 6", h.Tag)
		}
	case h.Tag < channelInput || h.Tag > channelOutputMerged || (h.Tag%2 == 1) != input:
		e.problem("tag", "is %d, which cannot stand here", h.Tag)
		return
	default:
		e.u8(h.Tag)
	}
	if h.Merged() {
		e.i32(h.Subtask)
		e.size64("size", h.Size)
		e.path.enter("delegate")
		e.stream(h.Delegate)
		e.path.pop()
		block := 4
		for i := range h.Channels {
			block += minChannelBlock + 8*len(h.Channels[i].Offsets)
		}
		e.length("offset block", block)
		e.length("channels", len(h.Channels))
		for i := range h.Channels {
			e.path.push("channel", i)
			ch := &h.Channels[i]
			e.i32(ch.Gate)
			e.i32(ch.Channel)
			e.size64("size", ch.Size)
			e.offsets("offsets", ch.Offsets)
			e.path.pop()
		}
		return
	}
	if len(h.Channels) != 1 {
		e.problem("", "has %d channels; without merging it has one", len(h.Channels))
		return
	}
	ch := &h.Channels[0]
	if ch.Size != h.Size {
		e.problem("size", "is %d, but that of its one channel is %d", h.Size, ch.Size)
	}
	e.i32(h.Subtask)
	e.i32(ch.Gate)
	e.i32(ch.Channel)
	e.offsets("offsets", ch.Offsets)
	e.size64("size", ch.Size)
	e.path.enter("delegate")
	e.stream(h.Delegate)
	e.path.pop()
}

var errSelfCheck = errors.New("self-check failed")

// selfCheck reads what would be written, and writes what was read.
func selfCheck(c *Checkpoint) error {
	pr, pw := io.Pipe()
	go func() {
		e := &encoder{w: pw, buf: make([]byte, 0, outputSize)}
		e.checkpoint(c)
		e.flush()
		pw.CloseWithError(e.err)
	}()
	err := verifyRoundTrip(pr, &DecodeOptions{Changelog114: c.Changelog114})
	pr.CloseWithError(errSelfCheck)
	if err != nil {
		return fmt.Errorf("%w: %w", errSelfCheck, err)
	}
	return nil
}
