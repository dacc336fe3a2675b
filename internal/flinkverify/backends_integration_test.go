//go:build integration

package flinkverify_test

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
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

// testBackends lets our state backends hold the examples of flink-verify and random
// descriptions, and write them in each of their formats. A real Flink restores that at
// another parallelism, finds every value and timer, changes all in a known way and
// takes a snapshot of some kind, which our backends restore at yet another
// parallelism: they hold what Flink says it holds.
func testBackends(t *testing.T, f *fixture, flink *flinkverify.Flink) {
	out := t.TempDir()
	accepted := map[string]int{}
	for _, d := range descriptions(t, 100) {
		file := filepath.Join(out, d.name+".json")
		require.NoError(t, os.WriteFile(file, d.text, 0o666))
		for _, backend := range backends {
			for format, way := range chooseWays(d.name, flink.Version, backend) {
				t.Run(fmt.Sprintf("%s-%s-%s", d.name, backend, way.written.name), func(t *testing.T) {
					dir := filepath.Join(out, d.name+"-"+string(backend)+"-"+format)
					j, err := job.Fill(t.Context(), f.create(d.text), f.options(backend, way.ours))
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
	t.Logf("Flink %s accepted: %v", flink.Version, accepted)
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
	formats := []string{"canonical", "heap"}
	if backend == job.LSM {
		formats = formats[:1] // its own is read by no Flink
	}
	for i, format := range formats {
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
