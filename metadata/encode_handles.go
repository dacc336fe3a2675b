package metadata

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
		e.filePath("taskOwnedDir", h.TaskOwnedDir)
		e.filePath("sharedDir", h.SharedDir)
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
		e.filePath("path", h.Path)
	case *RelativeFileHandle:
		e.tag(TagRelativeFile)
		e.filePath("path", h.Path)
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
		e.filePath("path", h.Path)
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

func (e *encoder) filePath(field string, p String) {
	if p == "" {
		e.problem(field, "is empty")
	}
	e.utf(field, p)
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
