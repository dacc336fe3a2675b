package snapshot

import (
	"iter"
	"strings"
)

// FileDiff is a physical file that one of two snapshots names and the other does not.
type FileDiff struct {
	// Change is "added" if the newer one names it, else "removed".
	Change Change `json:"change"`
	File
}

// DiffFiles yields the files by which two snapshots differ, in the order of their
// addresses. A file is the same if it is the same object, however handles spell it.
// No store is asked.
func DiffFiles(older, newer *Snapshot) iter.Seq[FileDiff] {
	return func(yield func(FileDiff) bool) {
		nextA, stopA := iter.Pull(Files(older))
		defer stopA()
		nextB, stopB := iter.Pull(Files(newer))
		defer stopB()
		a, okA := nextA()
		b, okB := nextB()
		// Refused files come last, in no order, and are no objects.
		for okA && a.Refused == "" || okB && b.Refused == "" {
			c := 0
			switch {
			case !okA || a.Refused != "":
				c = 1
			case !okB || b.Refused != "":
				c = -1
			default:
				c = compareFiles(&a, &b)
			}
			if c < 0 && !yield(FileDiff{Removed, a}) || c > 0 && !yield(FileDiff{Added, b}) {
				return
			}
			if c <= 0 {
				a, okA = nextA()
			}
			if c >= 0 {
				b, okB = nextB()
			}
		}
	}
}

func compareFiles(a, b *File) int {
	x, y := a.Location, b.Location
	x.Path, y.Path = parentPath(x.Path), parentPath(y.Path)
	if c := compareLocations(x, y); c != 0 {
		return c
	}
	return strings.Compare(baseName(a.Location.Path), baseName(b.Location.Path))
}
