package metadata

import "io"

// DecodeOptions changes how Decode reads. Nil is the default.
type DecodeOptions struct {
	// Name is put into errors: the object's name or URL without credentials.
	Name string
	// Size is the object's size in bytes if known, else 0: counts are checked
	// against what is left of it.
	Size int64
}

// Decode reads one _metadata object to its end. Every error is a *FormatError
// or wraps r's error. It allocates as it reads, never by a length alone.
func Decode(r io.Reader, opts *DecodeOptions) (*Checkpoint, error) {
	return decode(r, opts)
}

// Encode writes c in c.Version. What Decode gave encodes to the same bytes. If
// the version cannot hold something, nothing is written and the error, wrapping
// ErrNotRepresentable, names each such thing.
func Encode(w io.Writer, c *Checkpoint) error {
	return encode(w, c)
}
