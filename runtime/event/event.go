// Package event is the vocabulary that the parts of the runtime share: what the
// checkpoint coordinator, the barrier handler, the channels and the tasks say to
// each other about a checkpoint. It is plain data, each value prints in one line
// (that is what the stories under testdata show), and it imports nothing but
// package metadata.
//
// The names are Flink's: SnapshotType and its subclasses, CheckpointOptions,
// CheckpointBarrier, CancelCheckpointMarker, CheckpointMetrics,
// CheckpointFailureReason.
package event

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tidemark/tidemark/metadata"
)

// CheckpointID numbers checkpoints and savepoints of a job, from 1, ever rising.
type CheckpointID = int64

// named is the name of value i of an enumeration.
func named(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return kind + "(" + strconv.Itoa(int(i)) + ")"
}

// SnapshotType is what kind of snapshot is taken.
type SnapshotType uint8

// Snapshot types.
const (
	// Checkpoint may build on earlier checkpoints (Flink's CHECKPOINT).
	Checkpoint SnapshotType = iota
	// FullCheckpoint is a checkpoint that builds on none: taken first after a
	// restore in NO_CLAIM mode (Flink's FULL_CHECKPOINT).
	FullCheckpoint
	// SavepointCanonical is a savepoint in the format all backends share.
	SavepointCanonical
	// SavepointNative is a savepoint in the backend's own format.
	SavepointNative
)

var snapshotTypes = []string{"checkpoint", "full checkpoint", "canonical savepoint", "native savepoint"}

func (t SnapshotType) String() string { return named(snapshotTypes, uint8(t), "snapshot type") }

// IsSavepoint says that the snapshot belongs to the user: never subsumed, never
// deleted, and sharing no file with anything.
func (t SnapshotType) IsSavepoint() bool { return t == SavepointCanonical || t == SavepointNative }

// Sharing is which files of other checkpoints a snapshot may use.
type Sharing uint8

// Strategies of sharing (Flink's SnapshotType.SharingFilesStrategy).
const (
	ForwardBackward Sharing = iota // may use older files, and later ones may use its files
	Forward                        // uses no older file, later ones may use its files
	NoSharing
)

// Sharing is the strategy of the type.
func (t SnapshotType) Sharing() Sharing {
	switch t {
	case Checkpoint:
		return ForwardBackward
	case FullCheckpoint:
		return Forward
	default:
		return NoSharing
	}
}

// PostAction is what a task does after its part of the snapshot completed
// (Flink's PostCheckpointAction).
type PostAction uint8

// Post actions.
const (
	None      PostAction = iota
	Suspend              // stop-with-savepoint: end without flushing windows and timers
	Terminate            // stop-with-savepoint --drain: the maximum watermark first, then the end of all input
)

var postActions = []string{"none", "suspend", "terminate"}

func (p PostAction) String() string { return named(postActions, uint8(p), "post action") }

// Alignment is how barriers of a checkpoint travel (Flink's
// CheckpointOptions.AlignmentType).
type Alignment uint8

// Alignments.
const (
	// AtLeastOnce tracks barriers without blocking any input.
	AtLeastOnce Alignment = iota
	// Aligned blocks an input from its barrier to the last input's barrier. With
	// an AlignedTimeout below NoTimeout the barrier turns Unaligned after it.
	Aligned
	// Unaligned barriers overtake the records in channels, which become channel state.
	Unaligned
	// ForcedAligned is a checkpoint that asked for Unaligned where the exchange
	// cannot do it (pointwise and broadcast edges): aligned there, unaligned again after.
	ForcedAligned
)

var alignments = []string{"at-least-once", "aligned", "unaligned", "forced-aligned"}

func (a Alignment) String() string { return named(alignments, uint8(a), "alignment") }

// NoTimeout is an AlignedTimeout that never passes.
const NoTimeout = time.Duration(math.MaxInt64)

// Options are how a checkpoint is taken (Flink's CheckpointOptions).
type Options struct {
	Type      SnapshotType
	Post      PostAction
	Alignment Alignment
	// AlignedTimeout of an Aligned checkpoint: how long an alignment may take
	// before the checkpoint goes on unaligned. Zero and NoTimeout: for ever.
	AlignedTimeout time.Duration
	// Target is the directory of a savepoint; empty for a checkpoint, which goes
	// to the job's checkpoint directory.
	Target string
}

// Timeoutable says that an aligned checkpoint may still turn unaligned.
func (o Options) Timeoutable() bool {
	return o.Alignment == Aligned && o.AlignedTimeout > 0 && o.AlignedTimeout < NoTimeout
}

// ToUnaligned is the options after the alignment timed out.
func (o Options) ToUnaligned() Options {
	o.Alignment, o.AlignedTimeout = Unaligned, 0
	return o
}

// NeedsAlignment says that inputs are blocked until all barriers are there.
func (o Options) NeedsAlignment() bool { return o.Alignment == Aligned || o.Alignment == ForcedAligned }

func (o Options) String() string {
	s := o.Type.String() + " " + o.Alignment.String()
	if o.Timeoutable() {
		s += " for " + o.AlignedTimeout.String()
	}
	if o.Post != None {
		s += " then " + o.Post.String()
	}
	if o.Target != "" {
		s += " to " + o.Target
	}
	return s
}

// Barrier separates what belongs to checkpoint ID from what comes after it.
type Barrier struct {
	ID        CheckpointID
	Timestamp int64 // milliseconds since 1970 when the coordinator triggered it
	// Base is the newest completed checkpoint when this one was triggered, 0 for
	// none. Its files, and those of any that completes meanwhile, stay until this one
	// has ended: an incremental snapshot may build on them. A task that has not heard
	// of its completion hears of it by this.
	Base    CheckpointID
	Options Options
}

func (b Barrier) String() string { return fmt.Sprintf("barrier %d (%s)", b.ID, b.Options) }

// CancelMarker travels in place of a barrier: checkpoint ID is not to be waited
// for (Flink's CancelCheckpointMarker).
type CancelMarker struct{ ID CheckpointID }

func (m CancelMarker) String() string { return fmt.Sprintf("cancel %d", m.ID) }

// Task is one attempt of one subtask. Vertex is the ID of its job vertex, which
// is the operator ID of the chain's head.
type Task struct {
	Vertex  metadata.OperatorID
	Subtask int32 // index from 0
	Attempt int32 // from 0, rising with each restart
}

// String is the last four hex digits of the vertex, the subtask and the attempt: "a51c[0]#2".
func (t Task) String() string {
	v := t.Vertex.String()
	return v[len(v)-4:] + "[" + strconv.Itoa(int(t.Subtask)) + "]#" + strconv.Itoa(int(t.Attempt))
}

// Metrics is what a task measured of its part (Flink's CheckpointMetrics). A
// duration or size that is not known is -1; the zero value claims zeros.
type Metrics struct {
	SyncMillis                    int64 // in the mailbox
	AsyncMillis                   int64 // after it
	AlignmentMillis               int64 // from the first barrier to the last
	StartDelayMillis              int64 // from the trigger to the first barrier
	BytesProcessedDuringAlignment int64
	BytesPersistedDuringAlignment int64 // channel state
	BytesPersisted                int64 // written by this checkpoint: Flink's checkpointed size
	TotalBytes                    int64 // of all handles, shared ones included: Flink's full size
	Unaligned                     bool  // this subtask's part was taken unaligned
}

// OperatorSubtask is the state of one operator in one subtask. State is nil, or
// has no handle, for an operator without state.
type OperatorSubtask struct {
	ID    metadata.OperatorID
	State *metadata.SubtaskState
}

// Ack acknowledges a task's part of a checkpoint. The receiver owns State.
type Ack struct {
	ID      CheckpointID
	Task    Task
	State   []OperatorSubtask
	Metrics Metrics
	// Finished says that the operators of the task have finished: what it
	// acknowledges is the last there will be of it.
	Finished bool
	// FinishedBefore says that they had finished in the snapshot that the task was
	// started from: it has no state (Flink's isTaskDeployedAsFinished).
	FinishedBefore bool
}

func (a Ack) String() string { return fmt.Sprintf("ack %d by %s", a.ID, a.Task) }

// Decline says that a task takes no part in a checkpoint.
type Decline struct {
	ID     CheckpointID
	Task   Task
	Reason Reason
	Err    string // what happened, for people; may be empty
}

func (d Decline) String() string {
	s := fmt.Sprintf("decline %d by %s: %s", d.ID, d.Task, d.Reason)
	if d.Err != "" {
		s += ": " + d.Err
	}
	return s
}
