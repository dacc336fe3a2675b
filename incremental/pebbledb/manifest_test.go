package pebbledb

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
)

// TestUnchanged: a checkpoint of what did not change since the last one is some kilobytes
// for its few tables, however much was written and compacted before.
func TestUnchanged(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	for i := range 300 { // each writes and compacts a table
		put(t, d, i, i+1, 1)
		require.NoError(t, d.Flush(t.Context()))
		if i%4 == 0 {
			require.NoError(t, d.Pebble().Compact(t.Context(), key(0, 0), key(127, 1000), false))
		}
	}
	snap(t, d, 1, o)
	d.Confirmed(1)
	up := snap(t, d, 2, o)
	require.Equal(t, len(up.Handle.Shared), up.Reused)
	for _, n := range up.Handle.Private {
		if strings.HasPrefix(n.Name.Go(), "MANIFEST-") {
			require.Less(t, n.Handle.(*metadata.FileHandle).Size, int64(manifestBytes+4<<10))
		}
	}
	requireWhole(t, p, []uploadedState{{[]Source{source(o, up)}, map[int]string{7: "value 7 of 1", 299: "value 299 of 1"}}})
	require.NoError(t, d.Close())
}
