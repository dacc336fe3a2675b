package metadata

import "io"

func decode(io.Reader, *DecodeOptions) (*Checkpoint, error) { return nil, ErrUnsupportedVersion }
