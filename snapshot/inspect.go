package snapshot

import (
	"time"
)

// Kind is what a snapshot is, told from its properties and handles, not from names.
type Kind string

// Kinds of snapshots.
const (
	KindFull               Kind = "full"        // checkpoint, nothing shared
	KindIncremental        Kind = "incremental" // checkpoint with shared files
	KindCanonicalSavepoint Kind = "savepoint canonical"
	KindNativeSavepoint    Kind = "savepoint native"
	// KindSavepoint: a savepoint without keyed state by which to tell its format.
	KindSavepoint Kind = "savepoint"
)

// InspectOptions changes an inspection. Nil is the default.
type InspectOptions struct {
	// UIDs are operator uids whose hashes are shown as names, or lines "name=ID", as
	// metadata.NewUIDNames takes them; those it refuses are not used.
	UIDs []string
	// MaxExamples bounds the example handles per group; 0 is 3.
	MaxExamples int
	// MaxChannels bounds Operator.Channels, which then holds the fullest; 0 is 100,
	// negative is no bound.
	MaxChannels int
	// Subtasks fills Operator.Subtasks.
	Subtasks bool
}

// Amount is a number of handles and their bytes.
type Amount struct {
	Handles int64 `json:"handles"`
	Bytes   int64 `json:"bytes"`
}

func (a *Amount) add(bytes int64) {
	a.Handles++
	a.Bytes += bytes
}

// Properties are the checkpoint properties in words; Present is false below
// version 4 and for a null object.
type Properties struct {
	Present bool   `json:"present"`
	Type    string `json:"type,omitempty"`   // "Checkpoint", "Savepoint", "Suspend Savepoint", …
	Format  string `json:"format,omitempty"` // savepoints: "canonical", "native"
	// Action of a stop with savepoint: "suspend", "terminate".
	Action    string `json:"action,omitempty"`
	Sharing   string `json:"sharing,omitempty"`   // FORWARD_BACKWARD, FORWARD, NO_SHARING
	Retention string `json:"retention,omitempty"` // words of metadata.Properties.Retention
	Forced    bool   `json:"forced"`
	Unclaimed bool   `json:"unclaimed"`
	// Discarded on these events, by Flink's names: SUBSUMED, FINISHED, CANCELED,
	// FAILED, SUSPENDED.
	DiscardOn []string `json:"discardOn,omitempty"`
	savepoint bool
	// Error is why the properties could not be decoded for display.
	Error string `json:"error,omitempty"`
}

// Movable says whether the snapshot's folder can be moved or copied as it is.
type Movable struct {
	Movable bool `json:"movable"`
	// Blockers are groups of handles that stop it.
	Blockers []Blocker `json:"blockers,omitempty"`
}

// Blocker is one group of handles that keep a snapshot from being moved.
type Blocker struct {
	Reason   string   `json:"reason"` // "absolute path", "segment of a merged file"
	Class    Class    `json:"class"`
	Dir      string   `json:"dir,omitempty"` // folder as written, if all handles of the group share it
	Handles  int64    `json:"handles"`
	Bytes    int64    `json:"bytes"`
	Examples []string `json:"examples,omitempty"` // paths as written
}

// Inspection explains one snapshot.
type Inspection struct {
	URL           string    `json:"url"` // of the metadata object
	Name          string    `json:"name"`
	Job           string    `json:"job,omitempty"`
	CheckpointID  int64     `json:"checkpointId"`
	FormatVersion int32     `json:"formatVersion"`
	Time          time.Time `json:"time,omitzero"`
	MetadataBytes int64     `json:"metadataBytes"`
	Kind          Kind      `json:"kind"`
	Unaligned     bool      `json:"unaligned"` // has in-flight data
	Changelog     bool      `json:"changelog"`
	FileMerging   bool      `json:"fileMerging"`
	Entropy       bool      `json:"entropy"` // data files under several prefixes (entropy injection)
	// Backends are guesses from the handles: "heap", "rocksdb or forst", "lsm" (our own), "changelog".
	Backends []string `json:"backends,omitempty"`
	// WrittenBy is the range of Flink releases that write such a file, "1.16 .. 1.20".
	WrittenBy  string     `json:"writtenBy"`
	Properties Properties `json:"properties"`
	Movable    Movable    `json:"movable"`
	// References are older checkpoints from which subtask state was reused (format
	// version 7); they must be kept.
	References []int64     `json:"references,omitempty"`
	Relocation *Relocation `json:"relocation,omitempty"`

	// MaxParallelism is the smallest of all operators; the job may be started with
	// 1 up to it. 0 without operators.
	MaxParallelism int32         `json:"maxParallelism"`
	MasterStates   []MasterState `json:"masterStates,omitempty"`
	Operators      []Operator    `json:"operators"`

	Totals Totals `json:"totals"`
}

// Totals of a snapshot, from its metadata alone.
type Totals struct {
	Handles int64 `json:"handles"`
	// LogicalBytes is the state's size: every handle counts, inlined ones too, and
	// of a file with the data of many channels each one's part.
	LogicalBytes int64 `json:"logicalBytes"`
	// PhysicalBytes is the size of the files, each once; of merged files the
	// segments, each once.
	PhysicalBytes int64 `json:"physicalBytes"`
	InlinedBytes  int64 `json:"inlinedBytes"` // inside the metadata
	Files         int64 `json:"files"`        // physical objects
	UnknownSizes  int64 `json:"unknownSizes"` // files whose writer did not know their size
	NewBytes      int64 `json:"newBytes"`     // written by this checkpoint, as it declares
	Refused       int64 `json:"refused"`      // handles not followed
	// Roles are logical bytes by Role.
	Roles map[string]Amount `json:"roles,omitempty"`
	// Classes are physical and inlined bytes by Class.
	Classes   map[string]Amount `json:"classes,omitempty"`
	Owners    []Owner           `json:"owners,omitempty"`
	FileSizes []HistogramBucket `json:"fileSizes,omitempty"`
}

// Owner is a job or place whose folder holds files of the snapshot.
type Owner struct {
	Job     string `json:"job,omitempty"`
	Class   Class  `json:"class"`
	Claimed bool   `json:"claimed"` // another job's
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
}

// HistogramBucket counts physical files of up to and including UpTo bytes (and
// more than the bucket before). The last one has UpTo -1: no bound.
type HistogramBucket struct {
	UpTo  int64 `json:"upTo"`
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// MasterState is the state of one master hook.
type MasterState struct {
	Name    string `json:"name"`
	Version int32  `json:"version"`
	Bytes   int64  `json:"bytes"`
}

// Operator explains one operator.
type Operator struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
	// UIDFrom is "metadata" or "list" (matched by hash).
	UIDFrom        string `json:"uidFrom,omitempty"`
	Parallelism    int32  `json:"parallelism"`
	MaxParallelism int32  `json:"maxParallelism"`
	FullyFinished  bool   `json:"fullyFinished"`
	// FinishedSubtasks had finished; StatefulSubtasks have an entry with state.
	FinishedSubtasks int32 `json:"finishedSubtasks"`
	StatefulSubtasks int32 `json:"statefulSubtasks"`

	Roles        map[string]Amount `json:"roles,omitempty"` // by Role name
	Bytes        int64             `json:"bytes"`           // logical, all roles
	InlinedBytes int64             `json:"inlinedBytes"`
	Files        int64             `json:"files"` // physical, each once
	// Handles counts by role and Flink's class name:
	// "managedKeyed:KeyGroupsStateHandle(RelativeFileStateHandle)".
	Handles        map[string]int64 `json:"handles,omitempty"`
	OperatorStates []NamedState     `json:"operatorStates,omitempty"`
	Skew           *Skew            `json:"skew,omitempty"`
	// InFlightBytes are the bytes in ChannelCount channels; Channels has the fullest
	// of them, in order of direction, subtask, gate and channel.
	InFlightBytes int64     `json:"inFlightBytes"`
	ChannelCount  int64     `json:"channelCount"`
	Channels      []Channel `json:"channels,omitempty"`
	Subtasks      []Subtask `json:"subtasks,omitempty"`
}

// NamedState is an operator state by name, over all subtasks.
type NamedState struct {
	Name       string `json:"name"`
	Mode       string `json:"mode"` // split, union, broadcast
	Raw        bool   `json:"raw,omitempty"`
	Partitions int64  `json:"partitions"`
}

// Skew compares the subtasks that had not finished by their logical bytes.
type Skew struct {
	MaxBytes       int64   `json:"maxBytes"`
	MedianBytes    int64   `json:"medianBytes"`
	HottestSubtask int32   `json:"hottestSubtask"`
	Ratio          float64 `json:"ratio"` // max / median; 0 if the median is 0
}

// Channel is the in-flight data of one channel of one subtask.
type Channel struct {
	Direction string `json:"direction"` // "input", "output"
	Subtask   int32  `json:"subtask"`   // that wrote it
	// Gate and Channel: input gate and channel, or partition and subpartition.
	Gate    int32 `json:"gate"`
	Channel int32 `json:"channel"`
	Bytes   int64 `json:"bytes"`
	Buffers int64 `json:"buffers"`
}

// Subtask is one subtask's share.
type Subtask struct {
	Index    int32             `json:"index"`
	Finished bool              `json:"finished,omitempty"`
	Bytes    int64             `json:"bytes"`
	Roles    map[string]Amount `json:"roles,omitempty"`
	// KeyGroups is the managed keyed range "0..63"; empty if none.
	KeyGroups string `json:"keyGroups,omitempty"`
}
