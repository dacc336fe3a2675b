package snapshot

import "github.com/tidemark/tidemark/metadata"

func properties(c *metadata.Checkpoint) Properties { return Properties{} }

func uidNames(uids []string) map[metadata.OperatorID]string { return nil }
