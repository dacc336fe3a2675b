package snapshot

import (
	"strings"

	"github.com/tidemark/tidemark/metadata"
)

// properties decodes the checkpoint properties for display.
func properties(c *metadata.Checkpoint) Properties {
	if len(c.Properties) == 0 {
		return Properties{}
	}
	p := c.Properties.Decode()
	switch {
	case p.Opaque != "":
		return Properties{Error: p.Opaque}
	case p.Null:
		return Properties{}
	}
	out := Properties{Present: true, Type: p.Name, Sharing: p.Sharing, Retention: p.Retention(), Forced: p.Forced,
		Unclaimed: p.Unclaimed, savepoint: p.Kind.Savepoint()}
	if out.savepoint {
		out.Format = strings.ToLower(p.Format)
		if p.Action != metadata.ActionNone {
			out.Action = strings.ToLower(p.Action)
		}
	}
	for _, d := range [...]struct {
		set  bool
		name string
	}{
		{p.DiscardSubsumed, "SUBSUMED"}, {p.DiscardFinished, "FINISHED"}, {p.DiscardCancelled, "CANCELED"},
		{p.DiscardFailed, "FAILED"}, {p.DiscardSuspended, "SUSPENDED"},
	} {
		if d.set {
			out.DiscardOn = append(out.DiscardOn, d.name)
		}
	}
	return out
}

// uidNames hashes uids. What cannot be used is left out: the caller has checked
// them, and a name is never worth an inspection.
func uidNames(uids []string) metadata.UIDNames {
	names, err := metadata.NewUIDNames(uids)
	if err != nil {
		return nil
	}
	return names
}
