package incremental

import "math"

// FileMerging has small shared files of a checkpoint written as segments of larger
// physical files, as Flink 1.20 and later do it and read it (FLIP-306).
//
// A physical file is written for one checkpoint of one subtask and never added to. It
// is needed while a retained checkpoint names any of its segments, so it may hold
// bytes that nobody needs; MaxSpaceAmplification bounds how many.
type FileMerging struct {
	// MaxFileBytes is the size that no physical file exceeds; files of more than half of
	// it are not merged. 0 is DefaultMergedFileBytes.
	MaxFileBytes int64
	// MaxSpaceAmplification is the largest ratio of a physical file's size to the bytes
	// of it that a subtask's checkpoint names: beyond it the checkpoint writes these
	// segments anew and names the file no more. 0 is DefaultSpaceAmplification, 1 writes
	// them anew as soon as one is not needed, and below that there is no bound.
	MaxSpaceAmplification float64
}

// Defaults of FileMerging, which are Flink's.
const (
	DefaultMergedFileBytes    = 32 << 20
	DefaultSpaceAmplification = 2
)

// OrDefault gives the options with the defaults put in.
func (m FileMerging) OrDefault() FileMerging {
	if m.MaxFileBytes <= 0 {
		m.MaxFileBytes = DefaultMergedFileBytes
	}
	switch a := &m.MaxSpaceAmplification; {
	case *a == 0:
		*a = DefaultSpaceAmplification
	case !(*a >= 1):
		*a = math.Inf(1)
	}
	return m
}
