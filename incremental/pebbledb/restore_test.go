package pebbledb

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/metadata"
)

func groups(from, to int32) metadata.KeyGroupRange {
	return metadata.KeyGroupRange{Start: from, Count: to - from}
}

func snap(t testing.TB, d *DB, id int64, o *objects) *Uploaded {
	f, err := d.Checkpoint(id, nil)
	require.NoError(t, err)
	defer f.Release()
	up, err := f.Upload(t.Context(), o.create, nil)
	require.NoError(t, err)
	return up
}

func source(o *objects, up *Uploaded) Source {
	return Source{Name: fmt.Sprint("chk-", up.Handle.CheckpointID), Handle: up.Handle, Open: o.open}
}

func TestRestoreAtOtherParallelisms(t *testing.T) {
	for _, eager := range []bool{false, true} {
		t.Run(fmt.Sprint("eager=", eager), func(t *testing.T) {
			p, o := newTestProcess(t), newObjects()
			fs := vfs.NewMem()
			d, err := Open(t.Context(), p, "/one", &Options{KeyGroups: allGroups, FS: fs})
			require.NoError(t, err)
			const n = 3000
			put(t, d, 0, n, 1)
			snap(t, d, 1, o)
			put(t, d, 0, n/3, 2)
			up := snap(t, d, 2, o)
			require.NoError(t, d.Close())

			bounds := []int32{0, 40, 41, 128}
			var parts []Source
			for i := range 3 {
				own := groups(bounds[i], bounds[i+1])
				d, err := Restore(t.Context(), p, fmt.Sprint("/part", i), []Source{source(o, up)}, &Options{KeyGroups: own, FS: fs, Eager: eager})
				require.NoError(t, err)
				for k := range n {
					want := ""
					if own.Contains(int32(k % 128)) {
						want = fmt.Sprintf("value %d of %d", k, 1+b2i(k < n/3))
					}
					require.Equal(t, want, get(t, d.Pebble(), k), k)
				}
				again := snap(t, d, 3, o)
				require.Equal(t, len(up.Handle.Shared), again.Reused, "nothing is uploaded again")
				b := d.Pebble().NewBatch()
				require.NoError(t, b.Set(key(int(own.Start), 1<<20), []byte{byte(i)}, nil))
				require.NoError(t, d.Apply(t.Context(), b))
				require.NoError(t, b.Close())
				parts = append(parts, source(o, snap(t, d, 4, o)))
				require.NoError(t, d.Close())
			}
			d, err = Restore(t.Context(), p, "/all", parts, &Options{KeyGroups: allGroups, FS: fs, Eager: eager})
			require.NoError(t, err)
			for k := range n {
				require.Equal(t, fmt.Sprintf("value %d of %d", k, 1+b2i(k < n/3)), get(t, d.Pebble(), k), k)
			}
			v, c, err := d.Pebble().Get(key(40, 1<<20))
			require.NoError(t, err)
			require.Equal(t, []byte{1}, v)
			c.Close()
			up = snap(t, d, 5, o)
			require.Equal(t, len(up.Handle.Private), up.Files, "attached tables are referred to")
			require.NoError(t, d.Close())
			// And once more from what has attached tables.
			d, err = Restore(t.Context(), p, "/last", []Source{source(o, up)}, &Options{KeyGroups: groups(10, 90), FS: fs, Eager: eager})
			require.NoError(t, err)
			for k := range n {
				want := ""
				if g := k % 128; g >= 10 && g < 90 {
					want = fmt.Sprintf("value %d of %d", k, 1+b2i(k < n/3))
				}
				require.Equal(t, want, get(t, d.Pebble(), k), k)
			}
			require.NoError(t, d.Close())
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
