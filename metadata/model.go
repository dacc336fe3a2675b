// Package metadata reads and writes the _metadata object of a Flink checkpoint
// or savepoint, format versions 2 to 7, and models what stands in it.
//
//	offset  bytes  field
//	0       4      magic 0x4960672d
//	4       4      format version
//	8       8      checkpoint ID, at least 0
//	16      4      master state count n, then n master states
//	...            operator state count, then the operator states
//	...            from version 4: the checkpoint properties, a Java object
//	               stream that reaches to the end of the file
//
// Integers are big-endian; strings are modified UTF-8 after a uint16 byte
// length. Source: Flink, Checkpoints.java, MetadataV2V3SerializerBase.java and
// MetadataV3Serializer.java to MetadataV7Serializer.java.
//
// The order of everything is kept as read and nothing is normalized, so that
// what was decoded encodes to the same bytes.
package metadata

import (
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

// FormatError is damage with the object's name, the offset and the field.
type FormatError = damage.Error

// Sentinels of this package; every error of a decoder wraps one of them or a
// read error.
var (
	ErrCorrupt            = damage.ErrCorrupt
	ErrUnsupportedVersion = damage.ErrUnsupportedVersion
	// ErrNotRepresentable is wrapped by an encoder's refusal: the version asked
	// for cannot hold something in the checkpoint. The text names each thing.
	ErrNotRepresentable = errors.New("not representable in this format version")
)

// Versions of the format.
const (
	MinVersion = 2
	MaxVersion = 7
	// DefaultVersion is the newest that Flink 1.20 reads.
	DefaultVersion = 4
)

// String is a Java string with its bytes as they stand in the file.
type String = javaio.String

// Checkpoint is the decoded content of one _metadata object: plain data, safe
// for concurrent use as long as nobody changes it.
type Checkpoint struct {
	Version      int32
	ID           int64
	MasterStates []MasterState
	Operators    []OperatorState
	// Properties is the Java object stream at the end of a version 4 or later
	// file, carried through untouched; nil below version 4.
	Properties RawProperties
	// Changelog114 says that changelog handles with tags 8, 9 and 10 have the
	// shorter layout of Flink 1.14, which the file itself does not tell.
	Changelog114 bool
}

// RawProperties is a Java object stream holding CheckpointProperties or null.
type RawProperties []byte

// MasterState is what one MasterTriggerRestoreHook stored.
type MasterState struct {
	Version int32
	Name    String
	Payload []byte
}

// OperatorID is the 16 bytes of an operator ID in file order; its printed form
// is their lower-case hex.
type OperatorID [16]byte

func (id OperatorID) String() string { return hex.EncodeToString(id[:]) }

// OperatorState is the state of one operator.
type OperatorState struct {
	Name           String // version 5 and later; empty if absent
	UID            String // version 5 and later; empty if absent
	ID             OperatorID
	Parallelism    int32
	MaxParallelism int32
	ChainLength    int32        // version 2 only: written as 1, no meaning
	Coordinator    StreamHandle // nil, or a *ByteStreamHandle; version 3 and later
	// FinishedCount is 0 for an operator that was running; a fully finished
	// operator has the negative number that stood in place of its subtask count
	// (Flink writes -1), and no Subtasks.
	FinishedCount int32
	Subtasks      []SubtaskState // in file order; not every subtask has an entry
}

// FullyFinished says that every subtask had finished when the checkpoint was taken.
func (o *OperatorState) FullyFinished() bool { return o.FinishedCount < 0 }

// SubtaskState is what one subtask acknowledged. All handles may be nil.
type SubtaskState struct {
	Index    int32
	Finished bool  // this subtask had finished; nothing else is set
	Duration int64 // version 2 only, written as -1
	// ManagedOperatorFlag and RawOperatorFlag are the presence ints in front of
	// the two operator handles: 0 is absent; otherwise a handle follows, which
	// may again be null.
	ManagedOperatorFlag int32
	ManagedOperator     *OperatorHandle
	RawOperatorFlag     int32
	RawOperator         *OperatorHandle
	ManagedKeyed        KeyedHandle
	RawKeyed            KeyedHandle
	InputChannels       []ChannelHandle // version 3 and later
	OutputChannels      []ChannelHandle // version 3 and later
	// ReferenceMarker and ReferenceID (version 7): marker 1 says that the state
	// was reused from the older checkpoint ReferenceID.
	ReferenceMarker uint8
	ReferenceID     int64
}

// KeyGroupRange is a range of key groups. The wire holds Start and Count; a
// printed range includes both ends, as in Flink.
type KeyGroupRange struct {
	Start int32
	Count int32
}

// End is the last key group, inclusive; below Start for an empty range.
func (r KeyGroupRange) End() int32 { return r.Start + r.Count - 1 }

// Contains reports whether key group kg lies in the range.
func (r KeyGroupRange) Contains(kg int32) bool { return kg >= r.Start && kg <= r.End() }

// Tag is the type byte in front of a handle.
type Tag uint8

// Tags of stream, keyed and operator handles (one number space).
const (
	TagNull                  Tag = 0
	TagByteStream            Tag = 1
	TagFile                  Tag = 2
	TagKeyGroups             Tag = 3
	TagPartitionableOperator Tag = 4
	TagIncrementalOld        Tag = 5
	TagRelativeFile          Tag = 6
	TagSavepointKeyGroups    Tag = 7
	TagChangelogOld          Tag = 8
	TagChangelogBytes        Tag = 9
	TagChangelogFileOld      Tag = 10
	TagIncremental           Tag = 11
	TagKeyGroupsWithID       Tag = 12
	TagChangelogFile         Tag = 13
	TagChangelog             Tag = 14
	TagSegment               Tag = 15
	TagEmptySegment          Tag = 16
	TagMergedOperator        Tag = 17
)

var tagNames = [...]string{
	"null", "byte stream", "file", "key groups", "operator state", "incremental, old form", "relative file",
	"savepoint key groups", "changelog, old form", "changelog bytes", "changelog file, old form", "incremental",
	"key groups with ID", "changelog file", "changelog", "segment", "empty segment", "operator state, merged files",
}

// String is the number and what it stands for: "11 (incremental)".
func (t Tag) String() string {
	n := strconv.Itoa(int(t))
	if int(t) < len(tagNames) {
		return n + " (" + tagNames[t] + ")"
	}
	return n
}

// StreamHandle names bytes: inline, a file, or a segment of a file. The
// implementations are *ByteStreamHandle, *FileHandle, *RelativeFileHandle,
// *SegmentHandle, *EmptySegmentHandle and, nested and rare, *KeyGroupsHandle
// with TagKeyGroups.
type StreamHandle interface {
	Tag() Tag
	streamHandle()
}

// ByteStreamHandle holds the bytes themselves. Name is an identity only and
// never opened.
type ByteStreamHandle struct {
	Name String
	Data []byte
}

// FileHandle is an absolute path, Flink's Path printed as a URI string, not
// percent-encoded. Size is in bytes, -1 if the writer did not know it.
type FileHandle struct {
	Path String
	Size int64
}

// RelativeFileHandle is a path below the directory that the metadata is read
// from (not: was written to).
type RelativeFileHandle struct {
	Path String
	Size int64
}

// Scope says whose a segment is.
type Scope int32

// Scopes of a segment.
const (
	ScopeExclusive Scope = 0
	ScopeShared    Scope = 1
)

// SegmentHandle is Length bytes at Start of the physical file Path.
type SegmentHandle struct {
	Path      String
	LogicalID String
	Start     int64
	Length    int64
	Scope     Scope
}

// EmptySegmentHandle stands for no data; it cannot be opened.
type EmptySegmentHandle struct{}

// KeyedHandle is keyed state of one subtask. The implementations are
// *KeyGroupsHandle, *IncrementalHandle, *ChangelogHandle,
// *ChangelogBytesHandle and *ChangelogFileHandle.
type KeyedHandle interface {
	Tag() Tag
	KeyGroups() KeyGroupRange
	keyedHandle()
}

// KeyGroupsHandle is one stream with an offset for each key group of Range, in
// order. Offset 0 (and -1 in raw keyed state) says that the key group has no
// data; the others ascend. Form is TagKeyGroups, TagSavepointKeyGroups (canonical
// savepoint) or TagKeyGroupsWithID; only the last has an ID.
type KeyGroupsHandle struct {
	Form     Tag
	Range    KeyGroupRange
	Offsets  []int64
	Delegate StreamHandle
	ID       String
}

// NamedHandle is a file of an embedded database under its local name, such as
// 000012.sst, CURRENT or MANIFEST-000004.
type NamedHandle struct {
	Name   String
	Handle StreamHandle
}

// IncrementalHandle is a RocksDB or ForSt snapshot as files. Form is
// TagIncremental or TagIncrementalOld; the old one lacks CheckpointedSize and ID.
type IncrementalHandle struct {
	Form             Tag
	CheckpointID     int64
	BackendID        String
	Range            KeyGroupRange
	CheckpointedSize int64 // bytes newly persisted by this checkpoint; -1 unknown
	Meta             StreamHandle
	Shared           []NamedHandle
	Private          []NamedHandle
	ID               String
}

// ChangelogHandle is a materialized state plus the changes after it. Form is
// TagChangelog or TagChangelogOld; the old one lacks CheckpointID.
type ChangelogHandle struct {
	Form              Tag
	Range             KeyGroupRange
	CheckpointedSize  int64
	Materialized      []KeyedHandle // entries may be nil (tag 0), which Flink drops
	Changes           []KeyedHandle // *ChangelogBytesHandle or *ChangelogFileHandle
	MaterializationID int64
	CheckpointID      int64
	ID                String
}

// ChangelogChange is one change: KeyGroup -1 is a change of the metadata.
type ChangelogChange struct {
	KeyGroup int32
	Data     []byte
}

// ChangelogBytesHandle holds changes inline.
type ChangelogBytesHandle struct {
	Range   KeyGroupRange
	From    int64 // sequence numbers
	To      int64
	Changes []ChangelogChange
	ID      String
}

// OffsetHandle is a stream and the offset at which to begin.
type OffsetHandle struct {
	Offset int64
	Handle StreamHandle
}

// ChangelogFileHandle holds changes in files. Form is TagChangelogFile or
// TagChangelogFileOld; the old one lacks StorageID ("filesystem" is meant).
type ChangelogFileHandle struct {
	Form            Tag
	Range           KeyGroupRange
	Files           []OffsetHandle
	FullSize        int64
	IncrementalSize int64
	ID              String
	StorageID       String
}

// OperatorHandle is managed or raw operator state: named partitions inside one
// stream. Form is TagPartitionableOperator or TagMergedOperator; only the second
// has the directories and Empty.
type OperatorHandle struct {
	Form         Tag
	States       []NamedPartitions
	TaskOwnedDir String
	SharedDir    String
	Empty        bool
	Delegate     StreamHandle

	emptyByte uint8 // Empty as it stood in the file, if neither 0 nor 1
}

// DistributionMode is how a state's partitions are dealt out at restore.
type DistributionMode uint8

// Distribution modes.
const (
	ModeSplit     DistributionMode = 0
	ModeUnion     DistributionMode = 1
	ModeBroadcast DistributionMode = 2
)

// NamedPartitions is one operator state: the offset of each partition inside
// the delegate stream.
type NamedPartitions struct {
	Name    String
	Mode    DistributionMode
	Offsets []int64
}

// ChannelHandle is in-flight data. Tag is 0 in versions below 6, which have no
// tag; from 6 on 1 or 2 (one input or output channel), 3 or 4 (merged). An
// unmerged handle has exactly one entry in Channels, with Size equal to its size.
type ChannelHandle struct {
	Tag      uint8
	Subtask  int32 // the subtask that wrote it
	Size     int64 // bytes of state; for a merged handle of all channels
	Delegate StreamHandle
	Channels []ChannelOffsets
}

// Merged says that the handle has the merged layout of version 6.
func (h *ChannelHandle) Merged() bool { return h.Tag == 3 || h.Tag == 4 }

// ChannelOffsets is where one channel's buffers begin in the delegate. Gate and
// Channel are gate and channel index of an input, partition and subpartition
// index of an output.
type ChannelOffsets struct {
	Gate    int32
	Channel int32
	Size    int64
	Offsets []int64
}

// Tag implements StreamHandle.
func (*ByteStreamHandle) Tag() Tag { return TagByteStream }

// Tag implements StreamHandle.
func (*FileHandle) Tag() Tag { return TagFile }

// Tag implements StreamHandle.
func (*RelativeFileHandle) Tag() Tag { return TagRelativeFile }

// Tag implements StreamHandle.
func (*SegmentHandle) Tag() Tag { return TagSegment }

// Tag implements StreamHandle.
func (*EmptySegmentHandle) Tag() Tag { return TagEmptySegment }

// Tag implements StreamHandle and KeyedHandle.
func (h *KeyGroupsHandle) Tag() Tag { return h.Form }

// Tag implements KeyedHandle.
func (h *IncrementalHandle) Tag() Tag { return h.Form }

// Tag implements KeyedHandle.
func (h *ChangelogHandle) Tag() Tag { return h.Form }

// Tag implements KeyedHandle.
func (*ChangelogBytesHandle) Tag() Tag { return TagChangelogBytes }

// Tag implements KeyedHandle.
func (h *ChangelogFileHandle) Tag() Tag { return h.Form }

// KeyGroups implements KeyedHandle.
func (h *KeyGroupsHandle) KeyGroups() KeyGroupRange { return h.Range }

// KeyGroups implements KeyedHandle.
func (h *IncrementalHandle) KeyGroups() KeyGroupRange { return h.Range }

// KeyGroups implements KeyedHandle.
func (h *ChangelogHandle) KeyGroups() KeyGroupRange { return h.Range }

// KeyGroups implements KeyedHandle.
func (h *ChangelogBytesHandle) KeyGroups() KeyGroupRange { return h.Range }

// KeyGroups implements KeyedHandle.
func (h *ChangelogFileHandle) KeyGroups() KeyGroupRange { return h.Range }

func (*ByteStreamHandle) streamHandle()   {}
func (*FileHandle) streamHandle()         {}
func (*RelativeFileHandle) streamHandle() {}
func (*SegmentHandle) streamHandle()      {}
func (*EmptySegmentHandle) streamHandle() {}
func (*KeyGroupsHandle) streamHandle()    {}

func (*KeyGroupsHandle) keyedHandle()      {}
func (*IncrementalHandle) keyedHandle()    {}
func (*ChangelogHandle) keyedHandle()      {}
func (*ChangelogBytesHandle) keyedHandle() {}
func (*ChangelogFileHandle) keyedHandle()  {}
