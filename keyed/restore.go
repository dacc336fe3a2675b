package keyed

import (
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// RestoreSource is where a backend's state comes from. Any kind of snapshot will do,
// of any parallelism.
type RestoreSource struct {
	Snapshot *snapshot.Snapshot
	// Operator selects the one whose state it is; nil selects all, for a snapshot of
	// one stateful operator.
	Operator func(*snapshot.StateOperator) bool
	// Classes are fields of Java classes that the snapshot does not describe.
	Classes serializer.Classes
}
