package pebbledb

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// Two writers of a half each: one ascends, so that its tables end at the bottom, the
// other comes back to keys that it wrote, of which the last rows hold.
func TestTablesBecomePartOfTheDatabase(t *testing.T) {
	p := newTestProcess(t)
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	require.NoError(t, d.Acquire())
	defer d.Release()
	const n = 3000
	low, high := d.NewTables(), d.NewTables()
	defer low.Discard()
	defer high.Discard()
	for i := range n {
		require.NoError(t, low.Set(key(1, i), fmt.Appendf(nil, "low %d", i)))
	}
	for version := range 3 {
		for i := version; i < n; i += version + 1 {
			require.NoError(t, high.Set(key(2, i), fmt.Appendf(nil, "high %d of %d", i, version)))
		}
	}
	require.Len(t, low.layers, 1)
	require.Len(t, high.layers, 3)
	require.NoError(t, d.Ingest(t.Context(), low, high))
	read := func(g, i int) string {
		v, c, err := d.Pebble().Get(key(g, i))
		require.NoError(t, err)
		defer c.Close()
		return string(v)
	}
	for i := range n {
		version := 0
		for v := 1; v < 3; v++ {
			if i >= v && (i-v)%(v+1) == 0 {
				version = v
			}
		}
		require.Equal(t, fmt.Sprintf("low %d", i), read(1, i))
		require.Equal(t, fmt.Sprintf("high %d of %d", i, version), read(2, i))
	}
	require.EqualValues(t, 2, d.Pebble().Metrics().Levels[6].TablesCount)
	left, err := fs.List("/w/fetch")
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTablesThatAreNotIngestedAreRemoved(t *testing.T) {
	p := newTestProcess(t)
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: fs})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	tables := d.NewTables()
	require.NoError(t, tables.Set(key(1, 1), nil))
	require.NoError(t, tables.Set(key(1, 0), nil))
	tables.Discard()
	left, err := fs.List("/w/fetch")
	require.NoError(t, err)
	require.Empty(t, left)
}
