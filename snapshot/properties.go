package snapshot

import "github.com/tidemark/tidemark/metadata"

func properties(c *metadata.Checkpoint) Properties { return Properties{} }

// uidNames hashes uids. What cannot be used is left out: the caller has checked
// them, and a name is never worth an inspection.
func uidNames(uids []string) metadata.UIDNames {
	names, err := metadata.NewUIDNames(uids)
	if err != nil {
		return nil
	}
	return names
}
