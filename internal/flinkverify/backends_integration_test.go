//go:build integration

package flinkverify_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/flinkverify/job"
)

// The ways in which a real Flink restores what our backends wrote, with the kind of
// snapshot that it takes then: one of each backend for the canonical format, one for
// the heap's own. %d is the parallelism.
var flinkWays = map[string][]string{
	"canonical": {
		"--backend hashmap --parallelism %d --snapshot checkpoint",
		"--backend rocksdb --parallelism %d --snapshot checkpoint --incremental --conf execution.checkpointing.data-inline-threshold=0",
		"--backend rocksdb --parallelism %d --snapshot native",
		"--backend hashmap --parallelism %d --snapshot native",
		"--backend rocksdb --parallelism %d --snapshot canonical --conf execution.checkpointing.snapshot-compression=true",
	},
	"heap": {
		"--backend hashmap --parallelism %d --snapshot canonical",
		"--backend hashmap --parallelism %d --snapshot checkpoint --claim-mode claim --conf execution.checkpointing.snapshot-compression=true",
		"--backend hashmap --parallelism %d --snapshot checkpoint",
	},
}

// TestBackendsAreRestoredByARealFlink lets our state backends hold the examples of
// flink-verify and random descriptions, and write them in each of their formats. A
// real Flink restores that at another parallelism, finds every value and timer,
// changes all in a known way and takes a snapshot of some kind, which our backends
// restore at yet another parallelism: they hold what Flink says it holds.
//
// FLINK names the versions, by default 1.20.0 and 2.3.0. SEEDS is the number of
// random descriptions, by default 4, or a range FIRST-LAST; with SEEDS the examples
// are left out.
func TestBackendsAreRestoredByARealFlink(t *testing.T) {
	f := newFixture(t)
	descriptions := map[string][]byte{}
	var names []string
	first, last := uint64(100), uint64(103)
	if s := os.Getenv("SEEDS"); s != "" {
		first, last = seeds(t, s)
	} else {
		for _, e := range flinkverify.Examples(t) {
			name := strings.TrimSuffix(filepath.Base(e), ".json")
			b, err := os.ReadFile(e)
			require.NoError(t, err)
			descriptions[name], names = b, append(names, name)
		}
	}
	for seed := first; seed <= last; seed++ {
		name := fmt.Sprintf("random-%d", seed)
		descriptions[name], names = flinkverify.RandomDescription(seed), append(names, name)
	}
	accepted := map[string]int{}
	for _, version := range flinkverify.Versions() {
		flink := flinkverify.Start(t, version)
		out := t.TempDir()
		mustNotice(t, f, flink, out)
		for _, name := range names {
			file := filepath.Join(out, name+".json")
			require.NoError(t, os.WriteFile(file, descriptions[name], 0o666))
			for _, backend := range backends {
				for format, way := range chooseWays(name, version, backend) {
					t.Run(fmt.Sprintf("%s/%s-%s-%s", version, name, backend, way.written.name), func(t *testing.T) {
						dir := filepath.Join(out, name+"-"+string(backend)+"-"+format)
						j, err := job.Fill(t.Context(), f.create(descriptions[name]), f.options(backend, way.ours))
						require.NoError(t, err)
						defer j.Close()
						f.write(j, f.at(dir), way.written.threshold, &way.written.o)
						flink.Pass(t, "metadata %s", dir)
						flink.Pass(t, "restore %s %s --out %s %s", dir, file, dir+"-restored", way.flags)
						changed, err := os.ReadFile(filepath.Join(dir+"-restored", "expected.json"))
						require.NoError(t, err)
						s := f.open(f.at(dir + "-restored"))
						f.same(t, changed, s)
						for _, into := range backends {
							f.restored(t, into, changed, s, way.back)
						}
						accepted[string(backend)+" "+format]++
						accepted[way.flags[:strings.Index(way.flags, " --par")]]++
						require.NoError(t, os.RemoveAll(dir+"-restored"))
						require.NoError(t, os.RemoveAll(dir))
					})
				}
			}
		}
	}
	t.Logf("accepted: %v", accepted)
}

// mustNotice fails if Flink finds nothing wrong with a value that is not what is
// expected: then it would find nothing wrong with anything.
func mustNotice(t *testing.T, f *fixture, flink *flinkverify.Flink, out string) {
	describe := func(value int) []byte {
		return fmt.Appendf(nil, `{"format": 1, "operators": [{"uid": "u", "max_parallelism": 128, "parallelism": 1, "keyed":
			{"key_type": "string", "states": [{"name": "s", "kind": "value", "type": "long", "entries": [{"key": "k", "value": %d}]}]}}]}`, value)
	}
	dir, file := filepath.Join(out, "other"), filepath.Join(out, "other.json")
	j, err := job.Fill(t.Context(), f.create(describe(1)), f.options(job.Heap, 0))
	require.NoError(t, err)
	defer j.Close()
	f.write(j, f.at(dir), 0, nil)
	require.NoError(t, os.WriteFile(file, describe(2), 0o666))
	failed := flink.Run("restore %s %s --out %s-restored", dir, file, dir)
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], `"check":"state"`)
}

// way is how one description goes to Flink and back.
type way struct {
	written struct {
		name      string
		threshold int
		o         job.WriteOptions
	}
	flags      string
	ours, back int // parallelisms of ours before and after
}

// chooseWays takes one way for each format of a backend, by the name and version, so
// that all ways are used among the descriptions.
func chooseWays(name, version string, backend job.Kind) map[string]way {
	h := fnv.New32a()
	fmt.Fprint(h, name, version, backend)
	n := int(h.Sum32() >> 8)
	ways := map[string]way{}
	for i, format := range []string{"canonical", "heap"} {
		w := way{written: written[2*i+n%2], ours: n / 2 % 4, back: 1 + n/8%4} // 0 is what is described
		flags := flinkWays[format][n/32%len(flinkWays[format])]
		if name == "map-null" { // Flink itself writes null longs only in the heap's own format
			if format == "canonical" {
				continue
			}
			flags = flinkWays[format][2]
		}
		w.flags = fmt.Sprintf(flags, 1+(n/8+1+n/512%3)%4)
		ways[format] = w
		n = n*31 + 7
	}
	return ways
}

func seeds(t *testing.T, s string) (first, last uint64) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		from, to = "0", s
	}
	first, err := strconv.ParseUint(from, 10, 32)
	require.NoError(t, err, "SEEDS")
	last, err = strconv.ParseUint(to, 10, 32)
	require.NoError(t, err, "SEEDS")
	if !ok {
		last--
	}
	return first, last
}
