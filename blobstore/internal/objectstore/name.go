package objectstore

import (
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
)

// CheckName refuses names that no store can have. Those of objects that others
// have made need not be valid UTF-8; see blobstore.ValidNewName for ours.
func CheckName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "empty"
	case strings.IndexByte(name, 0) >= 0:
		why = "has a NUL byte"
	default:
		for part := range strings.SplitSeq(name, "/") {
			switch part {
			case "":
				why = "has an empty part"
			case ".", "..":
				why = "has a part " + part
			}
		}
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", blobstore.ErrInvalidName, why)
}

// InXML refuses names with characters that XML 1.0 cannot express, even escaped:
// stores that answer in XML cannot list them.
func InXML(name string) error {
	for _, r := range name {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return fmt.Errorf("%w: has the character %U, which this store cannot list", blobstore.ErrInvalidName, r)
		}
	}
	return nil
}
