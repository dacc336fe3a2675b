package snapshot_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// TestOneKey looks up keys by their JSON and compares with the rows that a scan of
// everything shows for them: of all kinds of keys, files and states, timers too.
func TestOneKey(t *testing.T) { oneKey(t, testdata.Goldens(t)) }

// TestOneKeyInAllGoldens is the same for the whole set, where it is present.
func TestOneKeyInAllGoldens(t *testing.T) { oneKey(t, testdata.AllGoldens(t)) }

func oneKey(t *testing.T, cases []*testdata.Case) {
	require.NotEmpty(t, cases)
	for _, c := range cases {
		sn := c.Snapshots[len(c.Snapshots)-1]
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			pool := blobstore.NewPool(nil, nil)
			defer pool.Close()
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			s, err := snapshot.Open(t.Context(), pool, loc, nil)
			require.NoError(t, err)
			lines := func(o *snapshot.ScanOptions, f func(key, line string)) {
				o.OnProblem = func(p *snapshot.ScanProblem) { require.True(t, p.Opaque, "%v", p) }
				for r, err := range snapshot.Rows(t.Context(), s, o) {
					require.NoError(t, err)
					if r.State.Kind.Keyed() {
						key, _ := r.AppendKeyJSON(nil)
						line, _ := r.AppendJSON(nil)
						f(string(key), string(line))
					} else {
						require.Empty(t, o.KeyJSON, "a row without a key")
					}
				}
			}
			all := map[string][]string{}
			keys := []string{}
			lines(&snapshot.ScanOptions{}, func(key, line string) {
				if all[key] == nil {
					keys = append(keys, key)
				}
				all[key] = append(all[key], line)
			})
			step := max(1, len(keys)/20)
			for i := 0; i < len(keys); i += step {
				var got []string
				lines(&snapshot.ScanOptions{KeyJSON: keys[i]}, func(key, line string) {
					require.Equal(t, keys[i], key)
					got = append(got, line)
				})
				want := all[keys[i]]
				slices.Sort(want)
				slices.Sort(got)
				require.Equal(t, want, got, "key %s", keys[i])
			}
		})
	}
}

// TestOneKeyReadsLittle counts what a look-up asks of a store: the head of one handle
// of each operator, and one that has the key group, whatever the parallelism.
func TestOneKeyReadsLittle(t *testing.T) {
	for _, name := range []string{"f120-rocksdb-chain", "f230-rocksdb-native", "f120-hashmap-canonical", "f230-hashmap-checkpoint-inline"} {
		t.Run(name, func(t *testing.T) {
			c := testdata.Golden(t, name)
			sn := c.Snapshots[len(c.Snapshots)-1]
			var counter blobstore.Counter
			pool := blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store { return blobstore.Count(s, &counter) })
			defer pool.Close()
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			s, err := snapshot.Open(t.Context(), pool, loc, nil)
			require.NoError(t, err)
			cost := func(o *snapshot.ScanOptions) (requests, read int64, keys []string) {
				before := counter.Counts()
				for r, err := range snapshot.Rows(t.Context(), s, o) {
					require.NoError(t, err)
					if r.State.Kind.Keyed() {
						key, _ := r.AppendKeyJSON(nil)
						keys = append(keys, string(key))
					}
				}
				now := counter.Counts()
				return now.Opens + now.RangedReads - before.Opens - before.RangedReads, now.BytesRead - before.BytesRead, keys
			}
			all, allBytes, keys := cost(&snapshot.ScanOptions{})
			for _, key := range []string{keys[0], keys[len(keys)/2], keys[len(keys)-1]} {
				requests, read, found := cost(&snapshot.ScanOptions{KeyJSON: key})
				require.NotEmpty(t, found)
				require.LessOrEqual(t, requests, int64(20))
				require.LessOrEqual(t, requests, all)
				require.LessOrEqual(t, read, allBytes)
				t.Logf("%d requests of %d, %d bytes of %d", requests, all, read, allBytes)
			}
			requests, _, found := cost(&snapshot.ScanOptions{KeyJSON: `"no key of this type"`})
			require.Empty(t, found)
			operators := map[string]bool{}
			for _, o := range c.Operators {
				operators[o.ID] = true
			}
			require.LessOrEqual(t, requests, int64(2*len(operators)), "a head for each operator says that its keys are numbers")
		})
	}
}
