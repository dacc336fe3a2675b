package pebbledb

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

func TestLevelZeroWaitsUntilItIsWorthIt(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		z   levelZero
		due bool
	}{
		"a lower level":              {levelZero{uploaded: true, runs: 3, bytes: mb, base: 64 * mb}, true},
		"little was written":         {levelZero{uploaded: true, runs: 4, bytes: mb, base: 64 * mb}, false},
		"as much as is below":        {levelZero{uploaded: true, runs: 15, bytes: 64 * mb, base: 64 * mb}, false},
		"twice as much":              {levelZero{uploaded: true, runs: 4, bytes: 128 * mb, base: 64 * mb}, true},
		"too many runs for reads":    {levelZero{uploaded: true, runs: 16, bytes: mb, base: 64 * mb}, true},
		"nothing below":              {levelZero{uploaded: true, runs: 4, bytes: mb}, true},
		"no checkpoint":              {levelZero{runs: 4, bytes: mb, base: 64 * mb}, true},
		"as many as a restore bears": {levelZero{uploaded: true, runs: maxWaiting, bytes: mb, base: 64 * mb}, false},
	} {
		require.Equal(t, c.due, c.z.due(), name)
	}
}

// Ten checkpoints of one key each upload no table but their own.
func TestCheckpointsOfFewChangesDoNotRewriteWhatIsThere(t *testing.T) {
	p, o := newTestProcess(t), newObjects()
	d, err := Open(t.Context(), p, "/w", &Options{KeyGroups: allGroups, FS: vfs.NewMem()})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	put(t, d, 0, 20_000, 1)
	require.NoError(t, d.Flush(t.Context()))
	require.NoError(t, d.Pebble().Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	for id := int64(1); id <= 10; id++ {
		put(t, d, 5, 6, int(id))
		f, err := d.Checkpoint(id, nil)
		require.NoError(t, err)
		up, err := f.Upload(t.Context(), o.create, nil)
		require.NoError(t, err)
		f.Release()
		d.Confirmed(id)
		if id > 1 {
			require.Equal(t, len(up.Handle.Shared)-1, up.Reused, "checkpoint %d", id)
			require.Less(t, up.Bytes, int64(20_000), "checkpoint %d", id)
		}
	}
	require.EqualValues(t, 10, d.Pebble().Metrics().Levels[0].Sublevels)
}
