// Package exit holds stateutil's exit codes, which are API: scripts branch on
// them. Each is listed in every command's help.
package exit

import (
	"context"
	"errors"
	"io/fs"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/snapshot"
)

// Code is a process exit code.
type Code int

// The codes. 2 is left to a crash of the Go runtime.
const (
	Done         Code = 0
	Failed       Code = 1
	Damage       Code = 3
	Partly       Code = 4
	Differs      Code = 5
	Migration    Code = 6
	Incompatible Code = 7
	NoCheckpoint Code = 10
	Unsupported  Code = 11
	AccessDenied Code = 12
	Usage        Code = 64
	Interrupted  Code = 130
)

// Meaning is one line of the table in the help texts.
type Meaning struct {
	Code Code
	Text string
}

// Meanings lists every code in ascending order.
var Meanings = []Meaning{
	{Done, "done"},
	{Failed, "failed"},
	{Damage, "damage found"},
	{Partly, "partly decoded: the rest is shown, what could not be read is named"},
	{Differs, "the snapshots differ (diff)"},
	{Migration, "compatible after a migration (compat)"},
	{Incompatible, "not compatible (compat)"},
	{NoCheckpoint, "no checkpoint there"},
	{Unsupported, "unsupported version"},
	{AccessDenied, "access denied"},
	{Usage, "bad usage"},
	{Interrupted, "interrupted"},
}

// Error is an error that knows its code.
type Error struct {
	Code Code
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// With gives err a code; nil stays nil.
func With(code Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Err: err}
}

// Silent is an error that has been reported already: it ends the process with
// its code and prints nothing.
type Silent struct{ Code Code }

func (s *Silent) Error() string { return "reported" }

// Of is the code for an error: its own, or that of the sentinel it wraps. What
// is both damage and absence is damage: a handle that points at nothing is
// corruption, not absence.
func Of(err error) Code {
	var own *Error
	var silent *Silent
	var description *snapshot.DescriptionError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &silent):
		return silent.Code
	case errors.As(err, &own):
		return own.Code
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &description):
		return Usage
	case errors.Is(err, damage.ErrUnsupportedVersion):
		return Unsupported
	case errors.Is(err, damage.ErrCorrupt), errors.Is(err, blobstore.ErrDataCorrupt):
		return Damage
	case errors.Is(err, blobstore.ErrPermission), errors.Is(err, fs.ErrPermission):
		return AccessDenied
	case errors.Is(err, blobstore.ErrUnknownScheme), errors.Is(err, blobstore.ErrInvalidName), errors.Is(err, blobstore.ErrSettings):
		return Usage
	case errors.Is(err, snapshot.ErrNoneUsable):
		return Damage
	case errors.Is(err, snapshot.ErrNoSnapshot), errors.Is(err, blobstore.ErrNotExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, blobstore.ErrIsDirectory):
		return NoCheckpoint
	}
	return Failed
}
