package blobstore

import (
	"crypto/rand"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"
)

// ValidName says whether name can be given to a new object: a relative path with
// "/" between its parts, valid UTF-8, no leading or trailing "/", no empty, "."
// or ".." part and no NUL byte. The error wraps ErrInvalidName.
//
// An object that others have put into a local folder or a bucket can have a name
// that is not valid UTF-8; it is listed, and opened and deleted by that name.
func ValidName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%w: not UTF-8", ErrInvalidName)
	}
	return nil
}

// checkName is ValidName for objects that may be there already.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: empty", ErrInvalidName)
	}
	if strings.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%w: has a NUL byte", ErrInvalidName)
	}
	for rest, more := name, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch part {
		case "":
			return fmt.Errorf("%w: has an empty part", ErrInvalidName)
		case ".", "..":
			return fmt.Errorf("%w: has a part %q", ErrInvalidName, part)
		}
	}
	return nil
}

// Temporary objects, in stores that need them, lie beside the object to come under
// a name of this shape:
//
//	.tidemark-<26 letters and digits of base 32>.tmp
const (
	tempPrefix    = ".tidemark-"
	tempSuffix    = ".tmp"
	tempRandomLen = 26
)

// TemporaryName makes a random name in the folder of name, for the unfinished
// object that a driver renames when it is committed. Its last part is 40 bytes
// long whatever name is, so that a name of the greatest length still has one.
func TemporaryName(name string) string {
	return path.Join(path.Dir(name), tempPrefix+rand.Text()+tempSuffix)
}

// IsTemporaryName says whether name, or its last part, was made by TemporaryName.
// Such objects are hidden from List, cannot be created by name, and stay behind
// when a writer's process dies; TemporaryLister finds them.
func IsTemporaryName(name string) bool {
	return isTemporary(name[strings.LastIndexByte(name, '/')+1:])
}

func isTemporary[T string | []byte](base T) bool {
	if len(base) != len(tempPrefix)+tempRandomLen+len(tempSuffix) ||
		string(base[:len(tempPrefix)]) != tempPrefix || string(base[len(base)-len(tempSuffix):]) != tempSuffix {
		return false
	}
	for i := range tempRandomLen {
		c := base[len(tempPrefix)+i]
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// ValidNewName is ValidName for Create and for the destination of Copy, in all
// drivers alike: it also refuses the names kept for temporary objects.
func ValidNewName(name string) error {
	if err := ValidName(name); err != nil {
		return err
	}
	if IsTemporaryName(name) {
		return fmt.Errorf("%w: kept for temporary files", ErrInvalidName)
	}
	return nil
}
