package cli

import "github.com/tidemark/tidemark/snapshot"

// namesOf gives the operators of a snapshot the names that it stores.
func namesOf(s *snapshot.Snapshot, uids []string) operatorNames {
	n := operatorNames{}
	for i := range s.Checkpoint.Operators {
		op := &s.Checkpoint.Operators[i]
		id := op.ID.String()
		n[id] = &snapshot.Operator{ID: id, Name: op.Name.Go(), UID: op.UID.Go()}
	}
	return n
}
