package keyed

import (
	"errors"
	"fmt"

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

var errKind = errors.New("is of a kind that cannot be kept")

// RestoredMeta declares a restored state as it is, for backends that keep one that nobody
// has registered.
func RestoredMeta(s *snapshot.State) (m serializer.StateMeta, err error) {
	word, value := "", s.Value
	switch s.Kind {
	case snapshot.StateTimer:
		return serializer.NewTimerState(s.Name, serializer.NewTimer(s.Key, s.Namespace)), nil
	case snapshot.StateValue:
		word = "VALUE"
	case snapshot.StateReducing:
		word = "REDUCING"
	case snapshot.StateAggregating:
		word = "AGGREGATING"
	case snapshot.StateList:
		word = "LIST"
		if value != nil && value.Kind != serializer.KindList {
			value = serializer.NewList(value)
		}
	case snapshot.StateMap:
		word = "MAP"
		if s.UserKey == nil || value == nil {
			return m, fmt.Errorf("%w without the types of its entries", errKind)
		}
		value = serializer.NewMap(s.UserKey, value)
	default:
		return m, fmt.Errorf("%s: %w", s.Kind, errKind)
	}
	if value == nil || s.Namespace == nil {
		return m, fmt.Errorf("%w without its types", errKind)
	}
	return serializer.NewKeyedState(s.Name, word, s.Namespace, value), nil
}

// KindOf is the kind of a declared state.
func KindOf(m *serializer.StateMeta) snapshot.StateKind {
	switch m.StateType() {
	case "VALUE":
		return snapshot.StateValue
	case "LIST":
		return snapshot.StateList
	case "MAP":
		return snapshot.StateMap
	case "REDUCING":
		return snapshot.StateReducing
	case "AGGREGATING":
		return snapshot.StateAggregating
	}
	return snapshot.StateTimer
}

// SameKind compares what a restored state is with what it is registered as.
func SameKind(s *snapshot.State, m *serializer.StateMeta) error {
	if kind := KindOf(m); s.Kind != kind {
		return fmt.Errorf("is a %s state in the snapshot, registered as %s: %w", s.Kind, kind, ErrIncompatible)
	}
	return nil
}
