package metadata

import (
	"fmt"
	"math"
)

func (d *decoder) operatorHandle() *OperatorHandle {
	at := d.offset()
	tag := d.tag("tag")
	switch tag {
	case TagNull:
		return nil
	case TagPartitionableOperator, TagMergedOperator:
	default:
		d.badTag(at, tag, "operator state")
		return nil
	}
	h := &OperatorHandle{Form: tag}
	h.States = d.partitions()
	if tag == TagMergedOperator {
		h.TaskOwnedDir = d.filePath("taskOwnedDir")
		h.SharedDir = d.filePath("sharedDir")
		at = d.offset()
		b := d.u8("empty")
		h.Empty = b != 0
		if b > 1 {
			h.emptyByte = b
			d.deviation(at, "empty", fmt.Sprintf("is %d; Flink writes 0 or 1", b))
		}
	}
	d.path.enter("delegate")
	at = d.offset()
	if tag == TagMergedOperator {
		if t := d.peekTag("tag"); d.err == nil && t != TagSegment && t != TagEmptySegment {
			d.damage(at, "tag", fmt.Sprintf("is %s; merged operator state lies in a segment", t))
		}
	}
	h.Delegate = d.some()
	d.path.pop()
	return h
}

func (d *decoder) partitions() []NamedPartitions {
	n := d.count("stateCount", minNamedState)
	states := list[NamedPartitions](n)
	var seen map[String]struct{}
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("state", i)
		at := d.offset()
		s := NamedPartitions{Name: d.utf("name")}
		if d.err == nil {
			var dup bool
			if i < 16 {
				for j := range states {
					dup = dup || states[j].Name == s.Name
				}
			} else {
				if seen == nil {
					seen = make(map[String]struct{}, 2*i)
					for j := range states {
						seen[states[j].Name] = struct{}{}
					}
				}
				_, dup = seen[s.Name]
				seen[s.Name] = struct{}{}
			}
			if dup {
				d.damage(at, "name", fmt.Sprintf("is %q, which a state before it has", s.Name.Go()))
			}
		}
		at = d.offset()
		s.Mode = DistributionMode(d.u8("mode"))
		if d.err == nil && s.Mode > ModeBroadcast {
			d.is(at, "mode", int64(s.Mode))
		}
		s.Offsets = d.offsets("offsetCount", 0)
		states = append(states, s)
		d.path.pop()
	}
	return states
}

// offsets reads a count and that many offsets of at least lowest.
func (d *decoder) offsets(field string, lowest int64) []int64 {
	n := d.count(field, minOffset)
	return d.int64s("offset", n, lowest)
}

// keyed reads a keyed handle. In raw keyed state an offset may be -1.
func (d *decoder) keyed(raw bool) KeyedHandle {
	at := d.offset()
	tag := d.tag("tag")
	if d.err != nil {
		return nil
	}
	switch tag {
	case TagNull:
		return nil
	case TagKeyGroups, TagSavepointKeyGroups, TagKeyGroupsWithID:
		h := d.slabs.keyGroups.new()
		d.keyGroups(h, tag)
		if tag == TagKeyGroupsWithID {
			h.ID = d.utf("stateHandleID")
		}
		return h
	case TagIncremental, TagIncrementalOld:
		return d.incremental(tag)
	case TagChangelog, TagChangelogOld:
		if !d.descend(at, "tag") {
			return nil
		}
		h := d.changelog(tag, raw)
		d.depth--
		return h
	case TagChangelogBytes:
		return d.changelogBytes()
	case TagChangelogFile, TagChangelogFileOld:
		return d.changelogFile(tag)
	}
	d.badTag(at, tag, "keyed state")
	return nil
}

// descend counts nested handles.
func (d *decoder) descend(at int64, field string) bool {
	if d.depth >= maxDepth {
		d.damage(at, field, fmt.Sprintf("begins a handle nested more than %d deep", maxDepth))
		return false
	}
	d.depth++
	return true
}

// keyGroups reads what tags 3, 7 and 12 have in common.
func (d *decoder) keyGroups(h *KeyGroupsHandle, tag Tag) {
	h.Form = tag
	h.Range = d.keyGroupRange(minOffset)
	h.Offsets = d.int64s("offset", int(h.Range.Count), -1)
	d.path.enter("delegate")
	h.Delegate = d.some()
	d.path.pop()
}

// keyGroupRange reads first and count; each key group takes perGroup more bytes.
func (d *decoder) keyGroupRange(perGroup int64) (r KeyGroupRange) {
	at := d.offset()
	r.Start = d.i32("keyGroupStart")
	if d.err == nil && r.Start < 0 {
		d.is(at, "keyGroupStart", int64(r.Start))
	}
	at = d.offset()
	r.Count = d.i32("keyGroupCount")
	switch end := int64(r.Start) + int64(r.Count); {
	case d.err != nil:
	case r.Count < 0:
		d.is(at, "keyGroupCount", int64(r.Count))
	case end > int64(d.maxParallelism) && r.Count > 0:
		d.damage(at, "keyGroupCount", fmt.Sprintf("is %d: from %d on that is beyond the max parallelism %d", r.Count, r.Start, d.maxParallelism))
	case d.beyond(int64(r.Count), perGroup):
		d.tooMany(at, "keyGroupCount", int64(r.Count))
	}
	if d.err != nil {
		return KeyGroupRange{}
	}
	return r
}

func (d *decoder) incremental(tag Tag) *IncrementalHandle {
	h := d.slabs.incremental.new()
	h.Form = tag
	h.CheckpointID = d.i64("checkpointID")
	h.BackendID = d.utf("backendID")
	h.Range = d.keyGroupRange(0)
	if tag == TagIncremental {
		h.CheckpointedSize = d.size64("checkpointedSize")
	}
	d.path.enter("meta")
	h.Meta = d.some()
	d.path.pop()
	h.Shared = d.namedHandles("sharedCount", "shared")
	h.Private = d.namedHandles("privateCount", "private")
	if tag == TagIncremental {
		h.ID = d.utf("stateHandleID")
	}
	return h
}

func (d *decoder) namedHandles(count, element string) []NamedHandle {
	n := d.count(count, minNamedHandle)
	hs := list[NamedHandle](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push(element, i)
		name := d.utf("name")
		d.path.enter("handle")
		h := d.some()
		d.path.pop()
		d.path.pop()
		hs = append(hs, NamedHandle{name, h})
	}
	return hs
}

func (d *decoder) changelog(tag Tag, raw bool) *ChangelogHandle {
	h := &ChangelogHandle{Form: tag}
	at := d.offset()
	h.Range = d.keyGroupRange(0)
	if d.err == nil && h.Range.Count == 0 {
		d.damage(at+4, "keyGroupCount", "is 0, which a changelog handle cannot have")
	}
	short := tag == TagChangelogOld && d.opts.Changelog114
	if !short {
		h.CheckpointedSize = d.size64("checkpointedSize")
	}
	n := d.count("materializedCount", minKeyedHandle)
	h.Materialized = list[KeyedHandle](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("materialized", i)
		at := d.offset()
		m := d.keyed(raw)
		if m == nil && d.err == nil {
			d.deviation(at, "tag", "is null, which Flink drops with a warning")
		}
		h.Materialized = append(h.Materialized, m)
		d.path.pop()
	}
	n = d.count("changesCount", minKeyedHandle)
	h.Changes = list[KeyedHandle](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("changes", i)
		at := d.offset()
		switch tag := d.peekTag("tag"); tag {
		case TagChangelogBytes, TagChangelogFile, TagChangelogFileOld:
			h.Changes = append(h.Changes, d.keyed(raw))
		default:
			if d.err == nil {
				d.badTag(at, tag, "changes")
			}
		}
		d.path.pop()
	}
	if !short {
		h.MaterializationID = d.i64("materializationID")
	}
	if tag == TagChangelog {
		h.CheckpointID = d.i64("checkpointID")
	}
	if !short {
		h.ID = d.utf("stateHandleID")
	}
	return h
}

func (d *decoder) changelogBytes() *ChangelogBytesHandle {
	h := &ChangelogBytesHandle{Range: d.keyGroupRange(0)}
	h.From = d.i64("fromSequence")
	h.To = d.i64("toSequence")
	n := d.count("changeCount", minChange)
	h.Changes = list[ChangelogChange](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("change", i)
		at := d.offset()
		kg := d.i32("keyGroup")
		if d.err == nil && (kg < -1 || kg >= d.maxParallelism) {
			d.damage(at, "keyGroup", fmt.Sprintf("is %d, but the max parallelism is %d", kg, d.maxParallelism))
		}
		h.Changes = append(h.Changes, ChangelogChange{kg, d.bytes32("data")})
		d.path.pop()
	}
	if !d.opts.Changelog114 {
		h.ID = d.utf("stateHandleID")
	}
	return h
}

func (d *decoder) changelogFile(tag Tag) *ChangelogFileHandle {
	h := &ChangelogFileHandle{Form: tag, Range: d.keyGroupRange(0)}
	n := d.count("fileCount", minChangeFile)
	h.Files = list[OffsetHandle](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push("files", i)
		at := d.offset()
		off := d.i64("offset")
		if d.err == nil && off < 0 {
			d.is(at, "offset", off)
		}
		d.path.enter("handle")
		s := d.some()
		d.path.pop()
		d.path.pop()
		h.Files = append(h.Files, OffsetHandle{off, s})
	}
	h.FullSize = d.size64("fullSize")
	if tag == TagChangelogFileOld && d.opts.Changelog114 {
		return h
	}
	h.IncrementalSize = d.size64("incrementalSize")
	h.ID = d.utf("stateHandleID")
	if tag == TagChangelogFile {
		h.StorageID = d.utf("storageID")
	}
	return h
}

// stream reads a stream handle.
func (d *decoder) stream() StreamHandle {
	at := d.offset()
	tag := d.tag("tag")
	if d.err != nil {
		return nil
	}
	switch tag {
	case TagNull:
		return nil
	case TagByteStream:
		h := d.slabs.byteStream.new()
		h.Name = d.utf("name")
		h.Data = d.bytes32("data")
		return h
	case TagFile:
		h := d.slabs.file.new()
		h.Size = d.size64("size")
		h.Path = d.filePath("path")
		return h
	case TagRelativeFile:
		h := d.slabs.relative.new()
		h.Path = d.filePath("path")
		h.Size = d.size64("size")
		return h
	case TagSegment:
		h := d.slabs.segment.new()
		d.segment(h)
		return h
	case TagEmptySegment:
		return &EmptySegmentHandle{}
	case TagKeyGroups:
		if !d.descend(at, "tag") {
			return nil
		}
		h := d.slabs.keyGroups.new()
		d.keyGroups(h, tag)
		d.depth--
		return h
	}
	d.badTag(at, tag, "a stream")
	return nil
}

// filePath reads a path. Flink cannot make its Path of an empty string.
func (d *decoder) filePath(field string) String {
	at := d.offset()
	p := d.utf(field)
	if p == "" {
		d.damage(at, field, "is empty")
	}
	return p
}

func (d *decoder) segment(h *SegmentHandle) {
	at := d.offset()
	h.Start = d.i64("start")
	if d.err == nil && h.Start < 0 {
		d.is(at, "start", h.Start)
	}
	at = d.offset()
	h.Length = d.i64("length")
	if d.err == nil && (h.Length < 0 || h.Length > math.MaxInt64-h.Start) {
		d.is(at, "length", h.Length)
	}
	at = d.offset()
	h.Scope = Scope(d.i32("scope"))
	if d.err == nil && h.Scope != ScopeExclusive && h.Scope != ScopeShared {
		d.is(at, "scope", int64(h.Scope))
	}
	h.Path = d.filePath("path")
	h.LogicalID = d.utf("logicalID")
}

func (d *decoder) channels(version int32, input bool) []ChannelHandle {
	count, element := "outputChannelCount", "outputChannel"
	if input {
		count, element = "inputChannelCount", "inputChannel"
	}
	n := d.count(count, minChannel(version))
	hs := list[ChannelHandle](n)
	for i := 0; i < n && d.err == nil; i++ {
		d.path.push(element, i)
		hs = append(hs, d.channel(version, input))
		d.path.pop()
	}
	return hs
}

// Tags of channel handles from version 6 on: a number space of their own.
const (
	channelInput        = 1
	channelOutput       = 2
	channelInputMerged  = 3
	channelOutputMerged = 4
)

func (d *decoder) channel(version int32, input bool) (h ChannelHandle) {
	if version >= 6 {
		at := d.offset()
		h.Tag = d.u8("tag")
		if d.err == nil && (h.Tag < channelInput || h.Tag > channelOutputMerged || (h.Tag%2 == 1) != input) {
			what := "an output channel"
			if input {
				what = "an input channel"
			}
			d.damage(at, "tag", fmt.Sprintf("is %d, not that of %s", h.Tag, what))
		}
	}
	h.Subtask = d.i32("subtask")
	if h.Merged() {
		h.Size = d.size64("size")
		d.path.enter("delegate")
		h.Delegate = d.some()
		d.path.pop()
		at := d.offset()
		n := d.i32("offsetBlockLength")
		if d.err == nil && n < 4 {
			d.is(at, "offsetBlockLength", int64(n))
		}
		if d.err != nil || !d.frame(at, "offsetBlockLength", int64(n)) {
			return h
		}
		count := d.count("channelCount", minChannelBlock)
		h.Channels = list[ChannelOffsets](count)
		for i := 0; i < count && d.err == nil; i++ {
			d.path.push("channel", i)
			var ch ChannelOffsets
			ch.Gate, ch.Channel = d.channelInfo(input)
			ch.Size = d.size64("size")
			ch.Offsets = d.offsets("offsetCount", 0)
			h.Channels = append(h.Channels, ch)
			d.path.pop()
		}
		d.unframe("offsetBlockLength")
		return h
	}
	var ch ChannelOffsets
	ch.Gate, ch.Channel = d.channelInfo(input)
	ch.Offsets = d.offsets("offsetCount", 0)
	ch.Size = d.size64("size")
	h.Size = ch.Size
	h.Channels = []ChannelOffsets{ch}
	d.path.enter("delegate")
	h.Delegate = d.some()
	d.path.pop()
	return h
}

func (d *decoder) channelInfo(input bool) (gate, channel int32) {
	if input {
		return d.i32("gate"), d.i32("channel")
	}
	return d.i32("partition"), d.i32("subpartition")
}
