package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPace: a batch that takes long makes the next ones smaller, down to a single
// record, and batches grow again once records are fast.
func TestPace(t *testing.T) {
	d := &decoder[int64]{limit: BatchSize}
	perRecord := 10 * time.Millisecond
	for range 10 {
		d.pace(time.Duration(d.limit)*perRecord, d.limit)
	}
	require.Equal(t, 1, d.limit)
	d.pace(2*time.Millisecond, 1)
	require.Equal(t, 1, d.limit, "neither slow nor fast")
	for range 8 {
		d.pace(time.Duration(d.limit)*time.Microsecond, d.limit)
	}
	require.Equal(t, BatchSize, d.limit)

	// The rest of a buffer says little about the batches that are full.
	d.limit = 16
	d.pace(time.Microsecond, 3)
	require.Equal(t, 16, d.limit)
	d.pace(time.Second, 3)
	require.Equal(t, 1, d.limit)
}
