package metadata

import "io"

// DecodeOptions changes how Decode reads. Nil is the default.
type DecodeOptions struct {
	// Name is put into errors: the object's name or URL without credentials.
	Name string
	// Size is the object's size in bytes if known, else 0: counts are checked
	// against what is left of it.
	Size int64
	// Strict refuses what Flink never writes, though it can be understood:
	// presence flags other than 0 and 1, a finished operator whose count is not
	// -1, null handles where there must be one (Flink 1.20 and 2.3 fail on these;
	// on null entries in the materialized part of a changelog handle they do
	// not), bytes behind the properties. By default they are kept and encode to
	// the same bytes.
	Strict bool
	// Warn, if set and not Strict, is told of each of them.
	Warn func(*FormatError)
	// Changelog114 reads changelog handles with tags 8, 9 and 10 in the shorter
	// layout of Flink 1.14; nothing in a file tells the two apart.
	Changelog114 bool
}

// Decode reads one _metadata object to its end. Every error is a *FormatError
// or wraps r's error. It allocates as it reads, never by a length alone.
func Decode(r io.Reader, opts *DecodeOptions) (*Checkpoint, error) {
	return decode(r, opts)
}

// EncodeOptions changes how EncodeWith writes. Nil is the default.
type EncodeOptions struct {
	// Release names the Flink release that shall read the file, such as "1.11"
	// or "1.20.0". Handle tags are not tied to the format version: within one
	// version newer releases added tags. Whatever the release cannot read is
	// named and refused. Empty means any release that reads the version.
	Release string
	// SelfCheck reads the file back in memory, operator by operator, before
	// anything is written, so that what this package itself would call damage
	// is found first. It takes about three times as long.
	SelfCheck bool
}

// EncodeWith is Encode with options.
func EncodeWith(w io.Writer, c *Checkpoint, opts *EncodeOptions) error {
	return encode(w, c, opts)
}

// Encode writes c in c.Version. What Decode gave encodes to the same bytes. If
// the version cannot hold something, nothing is written and the error, wrapping
// ErrNotRepresentable, is a *NotRepresentableError that names each such thing.
func Encode(w io.Writer, c *Checkpoint) error {
	return encode(w, c, nil)
}
