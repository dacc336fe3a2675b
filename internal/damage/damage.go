// Package damage holds the one error type with which every decoder of the
// project reports bad input, so that a caller needs one errors.As and one
// errors.Is for all file kinds. Public packages re-export it under their own
// names (metadata.FormatError, metadata.ErrCorrupt).
package damage

import (
	"errors"
	"strconv"
	"strings"
)

// ErrCorrupt is wrapped by every error that says: these bytes are not what
// the format allows.
var ErrCorrupt = errors.New("corrupt")

// ErrUnsupportedVersion is wrapped by every error that says: the bytes may
// well be right, but this program does not know their version.
var ErrUnsupportedVersion = errors.New("unsupported version")

// Error is damage with coordinates. Its text is one line:
//
//	chk-42/_metadata: byte 137: operator[3].keyed.keyGroupCount is -3: corrupt
type Error struct {
	Name   string // blob name or URL without credentials; empty for a plain reader
	Offset int64  // bytes from the start of the object; negative if unknown
	Field  string // path of the field, "operator[3].keyed.keyGroupCount"; empty if the whole is meant
	Detail string // what is wrong with it, "is -3"; may be empty
	Err    error  // wraps ErrCorrupt or ErrUnsupportedVersion, or a read error
}

func (e *Error) Error() string {
	var b strings.Builder
	if e.Name != "" {
		b.WriteString(e.Name)
		b.WriteString(": ")
	}
	if e.Offset >= 0 {
		b.WriteString("byte ")
		b.WriteString(strconv.FormatInt(e.Offset, 10))
		b.WriteString(": ")
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Detail != "" {
			b.WriteByte(' ')
		}
	}
	if e.Detail != "" {
		b.WriteString(e.Detail)
	}
	if e.Err != nil {
		if e.Field != "" || e.Detail != "" {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }
