package metadata

import "io"

func decode(io.Reader, *DecodeOptions) (*Checkpoint, error) { return nil, ErrUnsupportedVersion }

// maxDepth limits nested handles: changelog handles and key-groups handles of
// the stream grammar, the only recursion of the format.
const maxDepth = 16
