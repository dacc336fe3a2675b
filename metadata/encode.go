package metadata

import "io"

func encode(io.Writer, *Checkpoint) error { return ErrNotRepresentable }
