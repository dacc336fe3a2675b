package pebbledb

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
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

// A store that does not answer for a while delays what is fetched behind the running
// task: then all is fetched, and local files are proven. Compactions wait meanwhile.
func TestStoreComesBack(t *testing.T) {
	fetchPause = time.Millisecond
	defer func() { fetchPause = time.Second }()
	p, o := newTestProcess(t), newObjects()
	fs := vfs.NewMem()
	d, err := Open(t.Context(), p, "/a", &Options{KeyGroups: allGroups, FS: fs, KeepLocal: true})
	require.NoError(t, err)
	put(t, d, 0, 1000, 1)
	snap(t, d, 1, o)
	d.Confirmed(1)
	put(t, d, 0, 1000, 2)
	up := snap(t, d, 2, o)
	require.NoError(t, d.Close())
	left := &failOnce{n: -1, err: errInjected}
	from := source(o, up)
	from.Open = func(ctx context.Context, h metadata.StreamHandle) (sst.Source, error) {
		src, err := o.open(ctx, h)
		if src != nil && slices.ContainsFunc(up.Handle.Shared, func(n metadata.NamedHandle) bool { return n.Handle == h }) {
			return &downSource{src, left}, err
		}
		return src, err
	}
	r, err := Restore(t.Context(), p, "/b", []Source{from}, &Options{KeyGroups: allGroups, FS: fs, Local: []string{"/a/chk-1"}})
	require.NoError(t, err)
	r.work.Wait() // until all that is done in the background is done
	require.Greater(t, left.count.Load(), int32(downFor))
	require.Empty(t, r.fs.remote)
	require.Empty(t, r.linked)
	require.True(t, r.sched.open)
	require.Equal(t, "value 7 of 2", get(t, r.Pebble(), 7))
	require.NoError(t, r.Close())
}

// downFor is how many requests fail while a store is down.
const downFor = 7

type downSource struct {
	sst.Source
	f *failOnce
}

func (s *downSource) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if s.f.count.Add(1) <= downFor {
		return 0, s.f.err
	}
	return s.Source.ReadAt(ctx, p, off)
}
