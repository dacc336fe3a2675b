package checkpoint

import (
	"fmt"

	"github.com/tidemark/tidemark/incremental"
)

// Ownership is whose a completed checkpoint is.
type Ownership uint8

// Ownerships: our own, and the three restore modes of a snapshot that the job was
// started from.
const (
	Own Ownership = iota
	Claimed
	NotClaimed
	Legacy
)

var ownerships = [...]string{"own", "CLAIM", "NO_CLAIM", "LEGACY"}

// String is own, CLAIM, NO_CLAIM or LEGACY.
func (o Ownership) String() string {
	if int(o) < len(ownerships) {
		return ownerships[o]
	}
	return fmt.Sprintf("ownership(%d)", uint8(o))
}

// OwnershipOf is the ownership of a snapshot restored in a mode.
func OwnershipOf(m incremental.RestoreMode) Ownership {
	switch m {
	case incremental.NoClaim:
		return NotClaimed
	case incremental.Legacy:
		return Legacy
	}
	return Claimed
}

// Mode is how the shared state registry treats the checkpoint's files.
func (o Ownership) Mode() incremental.RestoreMode {
	switch o {
	case NotClaimed:
		return incremental.NoClaim
	case Legacy:
		return incremental.Legacy
	}
	return incremental.Claim
}

// Completed is a completed checkpoint in the store.
type Completed struct {
	ID int64
	// Path of the metadata object, as a URI.
	Path string
	Mode Ownership
	// Savepoint: it can be restored by other means, and is never incremental.
	Savepoint bool
}

// retain adds a checkpoint to those retained, ascending by ID, and takes out what
// is more than n: the oldest first. Flink's DefaultCompletedCheckpointStore.
func retain(list []Completed, c Completed, n int) (kept, subsumed []Completed) {
	kept = make([]Completed, 0, len(list)+1)
	kept = append(kept, list...)
	i := len(kept)
	for i > 0 && kept[i-1].ID > c.ID {
		i--
	}
	kept = append(kept, Completed{})
	copy(kept[i+1:], kept[i:])
	kept[i] = c
	if over := len(kept) - max(n, 1); over > 0 {
		subsumed, kept = kept[:over:over], kept[over:]
	}
	return kept, subsumed
}
