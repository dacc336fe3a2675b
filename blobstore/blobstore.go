// Package blobstore gives named immutable objects behind a URL.
//
// A Store is a flat space of names below one root: a local folder, a bucket or
// a path in it, a path of an HDFS. A name is a relative path with "/" between
// its parts: valid UTF-8, no leading or trailing "/", no empty, "." or ".." part.
// Objects appear whole, by Commit, and are never changed afterwards.
//
// Drivers register themselves by scheme (see Register); file and mem are always
// there. Cloud and HDFS drivers live in packages of their own, which a program
// links by a blank import, so that a library user pays for none.
//
// Errors are *Error and wrap one of the sentinels below where a caller may want
// to decide. No error, log line or String method ever shows a credential.
package blobstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Sentinels. An error that wraps none of them is a failure of the store.
var (
	ErrNotExist    = errors.New("does not exist")
	ErrExist       = errors.New("already exists")
	ErrPermission  = errors.New("access denied")
	ErrUnsupported = errors.New("not supported by this store")
	ErrInvalidName = errors.New("invalid name")
	ErrIsDirectory = errors.New("is a directory")
	// ErrTemporary marks what another try may cure: throttling, time-outs, resets.
	ErrTemporary = errors.New("temporary failure")
	// ErrDataCorrupt is a checksum mismatch found by the store or its client.
	ErrDataCorrupt = errors.New("checksum mismatch in the store")
	ErrClosed      = errors.New("closed")
	ErrNotEmpty    = errors.New("directory is not empty")
	// ErrSettings is the caller's mistake: an unknown parameter in a URL, or a value
	// there or in Options.Config that a driver cannot use.
	ErrSettings = errors.New("wrong settings")
)

// Info is what a store knows of an object or, in a listing with delimiter, of
// a common prefix (IsPrefix; Name then ends in "/").
type Info struct {
	Name     string
	Size     int64     // bytes; 0 for a prefix
	ModTime  time.Time // zero if the store does not say
	ETag     string    // changes when the content does; empty if the store has none
	IsPrefix bool
}

// ListOptions narrows a listing. Nil lists everything, flat.
type ListOptions struct {
	// Prefix: only names that begin with it (a string prefix, "chk-1" matches "chk-10/x").
	Prefix string
	// Delimiter: fold everything after the next "/" into one prefix entry.
	Delimiter bool
	// StartAfter: only entries whose Name sorts after it, so that the last Name
	// seen goes on with the next. With Delimiter the Name of a folded entry is
	// compared as it is, with its "/".
	StartAfter string
}

// WriteOptions changes a Create. Nil is the default: overwrite, unknown size.
type WriteOptions struct {
	// IfAbsent makes Commit fail with ErrExist if the name exists by then. Of any
	// number of racing writers exactly one commits, where Capabilities say
	// ExclusiveCreate; elsewhere Create fails with ErrUnsupported.
	IfAbsent bool
	// SizeHint in bytes helps a driver choose part sizes; 0 is unknown.
	SizeHint int64
}

// Writer writes one object. Nothing is visible before Commit returns nil, and
// nothing is left after Abort. Exactly one of the two ends a Writer; Abort after
// Commit does nothing, so that it can be deferred. A Writer whose context is
// cancelled aborts at the next call. Not for concurrent use.
type Writer interface {
	io.Writer
	// Commit makes the object durable under its name, whole.
	Commit() error
	// Abort drops all that was written. It uses a context of its own with a time
	// limit, so that it works after cancellation.
	Abort() error
}

// Reader reads one object from the offset at which it was opened.
type Reader interface {
	io.ReadCloser
	// Info is the object's, as known when it was opened.
	Info() Info
}

// Capabilities says what a store promises.
type Capabilities struct {
	// ExclusiveCreate: WriteOptions.IfAbsent is honoured, between processes.
	ExclusiveCreate bool
	// ServerCopy: Copy moves no bytes through the client.
	ServerCopy bool
	// Directories: folders exist by themselves (file, HDFS) and may be empty.
	Directories bool
}

// Store is one root. All methods may be called from many goroutines.
type Store interface {
	// URL is the root's address without credentials.
	URL() string
	Capabilities() Capabilities
	// Open reads the whole object.
	Open(ctx context.Context, name string) (Reader, error)
	// OpenRange reads up to length bytes from offset, to the end if length is
	// negative. An offset at or past the end gives an empty Reader, a negative
	// one is an error. Info().Size is that of the whole object.
	OpenRange(ctx context.Context, name string, offset, length int64) (Reader, error)
	Stat(ctx context.Context, name string) (Info, error)
	// List yields names in ascending order of their bytes ("a-b" before "a/c"), in
	// bounded memory per directory level. Temporary files of unfinished writers are
	// not listed; see ListTemporary; nor are the marker objects ("chk-1/") that
	// some writers to object stores leave for a folder. Where nothing matches, the
	// sequence is empty, also if the root or a folder of the prefix is not there.
	// An error ends the sequence: what was left out silently would look deleted.
	List(ctx context.Context, opts *ListOptions) iter.Seq2[Info, error]
	// Create begins an object. Parents are made where the store has directories.
	Create(ctx context.Context, name string, opts *WriteOptions) (Writer, error)
	// Delete removes an object; absent is success.
	Delete(ctx context.Context, name string) error
	// DeleteAll removes many objects, in bulk where the store can, and reports
	// the failed ones joined, each an *Error with its name.
	DeleteAll(ctx context.Context, names []string) error
	// Copy copies inside the store. Without ServerCopy it is ErrUnsupported.
	Copy(ctx context.Context, dst, src string, opts *WriteOptions) error
	Close() error
}

// TemporaryLister is implemented by stores in which a crashed writer can leave
// something behind: temporary files, unfinished multipart uploads.
type TemporaryLister interface {
	// ListTemporary yields them below prefix. Name can be given to DeleteTemporary.
	ListTemporary(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// DeleteTemporary removes one; absent is success. If its writer is still at work,
	// that one fails, or brings it back and commits the object whole.
	DeleteTemporary(ctx context.Context, name string) error
}

// DirectoryRemover is implemented by stores whose directories exist by themselves
// (Capabilities.Directories). Deleting the last object of a directory leaves it.
type DirectoryRemover interface {
	// RemoveEmptyDir removes a directory. Absent is success; one that holds
	// anything, even a temporary file, is ErrNotEmpty.
	RemoveEmptyDir(ctx context.Context, name string) error
}

// Error is one failed operation: "open s3://bucket/ckp/chk-1/_metadata: access denied".
type Error struct {
	Op  string // open, read, stat, list, create, write, commit, abort, delete, copy
	URL string // address of the object or root, without credentials
	Err error
}

// Error is one line: control characters, which a name may have, are escaped.
func (e *Error) Error() string {
	return e.Op + " " + printable(e.URL) + ": " + printable(e.Err.Error())
}

// Unwrap gives errors.Is and errors.As the cause.
func (e *Error) Unwrap() error { return e.Err }

// printable escapes what would break a line or reach the terminal as a command.
func printable(s string) string {
	plain := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if plain(r) {
			b.WriteRune(r)
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		q := strconv.Quote(s[i : i+n])
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}
