package cli

import (
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// operatorNames maps operator IDs to what people call them.
type operatorNames map[string]*snapshot.Operator

// operatorNames names the operators of a snapshot as it does itself, or else by
// the uids of --uid and --uids.
func (g *global) operatorNames(s *snapshot.Snapshot) (operatorNames, error) {
	uids, err := g.uidNames()
	if err != nil {
		return nil, err
	}
	known, err := metadata.NewUIDNames(uids)
	if err != nil {
		return nil, err
	}
	n := operatorNames{}
	for i := range s.Checkpoint.Operators {
		op := &s.Checkpoint.Operators[i]
		id := op.ID.String()
		n[id] = &snapshot.Operator{ID: id, Name: op.Name.Go(), UID: orElse(op.UID.Go(), known[op.ID])}
	}
	return n, nil
}

// uid is an operator's uid; "" if it is not known, or is of another snapshot.
func (n operatorNames) uid(id metadata.OperatorID) string {
	if op := n[id.String()]; op != nil {
		return op.UID
	}
	return ""
}

// of is an operator's name in one word.
func (n operatorNames) of(id string) string {
	if op := n[id]; op != nil {
		return shortName(op)
	}
	return id
}

// find is the ID of the operator that a user calls by its ID, uid or name; empty
// if there is none.
func (n operatorNames) find(word string) string {
	for id, op := range n {
		if id == word || op.UID == word || op.Name == word {
			return id
		}
	}
	return ""
}
