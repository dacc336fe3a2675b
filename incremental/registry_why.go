package incremental

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
)

// Need is a checkpoint that needs a file.
type Need struct {
	Checkpoint int64 // -1: one or more that were being discarded before a restart
	Phase      Phase
	Mode       RestoreMode // of a restored one
	Restored   bool
	// Unused: it was uploaded for the checkpoint, which turned out not to need it;
	// it stays until the checkpoint has ended.
	Unused bool
}

// Reason says who needs a file.
type Reason struct {
	Location blobstore.Location
	Needs    []Need // ascending by checkpoint
	// Since is the oldest checkpoint that ever named the file, as far as this registry
	// has seen: it may be gone since. -1 if none is known.
	Since int64
	// Until is the last of Needs: the file goes when that one and all others are
	// gone. -1 if there is none.
	Until int64
	// Forever: a snapshot that is not ours has the file, or it lies where nothing
	// may be deleted.
	Forever bool
	// Metadata: it is a metadata object.
	Metadata bool
	// Deleting: nobody needs it, and it is to be deleted; Attempts failed so far.
	Deleting bool
	Attempts int
}

// Why explains who needs a file and until which checkpoint. ok is false for a file
// that the registry does not know, which may be anybody's. An address that cannot
// be read is an error.
func (r *Registry) Why(file string) (reason Reason, ok bool, err error) {
	loc, err := blobstore.Parse(file)
	if err != nil {
		return reason, false, err
	}
	reason = Reason{Location: loc, Since: -1, Until: -1}
	f := r.files.find(loc)
	if f == none {
		return reason, false, nil
	}
	rec := r.files.at(f)
	reason.Since, reason.Metadata, reason.Forever = rec.since, rec.isMeta, rec.foreign
	reason.Deleting = rec.phase == fileDoomed || rec.phase == fileDeleting
	reason.Attempts = int(rec.attempts)
	for _, c := range r.all {
		has, spare := c.files.has(f) || slices.Contains(c.metas, f), c.spare.has(f)
		if !has && !spare || reason.Deleting {
			continue
		}
		reason.Needs = append(reason.Needs, Need{c.id, c.phase, c.mode, c.restored, !has})
		reason.Until = max(reason.Until, c.id)
		reason.Forever = reason.Forever || c.phase == Kept
	}
	slices.SortStableFunc(reason.Needs, func(a, b Need) int { return int(min(1, max(-1, a.Checkpoint-b.Checkpoint))) })
	return reason, true, nil
}

// String is the explanation in lines, without a newline at the end.
func (w Reason) String() string {
	var b strings.Builder
	b.WriteString(w.Location.String())
	switch {
	case w.Deleting && w.Attempts > 0:
		fmt.Fprintf(&b, ": needed by nobody; %d attempts to delete it failed", w.Attempts)
	case w.Deleting:
		b.WriteString(": needed by nobody; will be deleted")
	case len(w.Needs) == 0:
		b.WriteString(": not known here")
	default:
		b.WriteString(": needed")
		if w.Since >= 0 {
			fmt.Fprintf(&b, " since checkpoint %d", w.Since)
		}
		if w.Forever {
			b.WriteString(", never deleted")
		} else {
			fmt.Fprintf(&b, ", until checkpoint %d is subsumed", w.Until)
		}
	}
	for _, n := range w.Needs {
		fmt.Fprintf(&b, "\n  checkpoint %d, %s", n.Checkpoint, n.Phase)
		if n.Restored {
			fmt.Fprintf(&b, ", restored in mode %s", n.Mode)
		}
		if n.Unused {
			b.WriteString(", a second upload that it does not use")
		}
	}
	return b.String()
}
