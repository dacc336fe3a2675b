//go:build integration

package flinkverify_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/snapshot"
)

// createdWays are ways in which a description is created and a real Flink restores
// it: in both state backends, at other parallelisms than it was created for, and
// into each kind of snapshot, which then is read back.
var createdWays = []struct {
	name   string
	create snapshot.CreateOptions
	flags  string
}{
	{"canonical-hashmap", snapshot.CreateOptions{MemoryThreshold: -1}, "--backend hashmap --parallelism 3 --snapshot checkpoint"},
	{"canonical-rocksdb", snapshot.CreateOptions{Compress: true}, "--backend rocksdb --parallelism 1 --snapshot checkpoint --incremental"},
	{"native-hashmap", snapshot.CreateOptions{Kind: snapshot.CreateNative, Version: 3}, "--backend hashmap --parallelism 3 --snapshot canonical"},
	{"checkpoint-hashmap", snapshot.CreateOptions{Kind: snapshot.CreateCheckpoint, Compress: true, MemoryThreshold: -1}, "--backend hashmap --parallelism 1 --snapshot native --claim-mode claim"},
}

// testCreated creates the examples of flink-verify and random descriptions. A real
// Flink restores each, finds every value, changes it in a known way and takes a
// snapshot, which we read: it holds what Flink says it holds.
func testCreated(t *testing.T, f *fixture, flink *flinkverify.Flink) {
	out := t.TempDir()
	for i, d := range descriptions(t, 0) {
		file := filepath.Join(out, d.name+".json")
		require.NoError(t, os.WriteFile(file, d.text, 0o666))
		for k, way := range createdWays {
			// The second backend is for the canonical format, the others alternate.
			if k > 1 && (i+k)%2 == 0 && d.name != "map-null" {
				continue
			}
			flags := way.flags
			if d.name == "map-null" { // Flink itself writes null longs only in the heap's own format
				if k < 2 {
					continue
				}
				flags = "--backend hashmap --parallelism 1 --snapshot checkpoint"
			}
			t.Run(d.name+"-"+way.name, func(t *testing.T) {
				made := filepath.Join(out, d.name+"-"+way.name)
				read, err := snapshot.ReadDescription(bytes.NewReader(d.text), &snapshot.DescriptionOptions{Classes: f.classes, Hash: f.hash})
				require.NoError(t, err)
				_, err = snapshot.CreateFrom(t.Context(), f.pool, snapshot.SavepointIn(f.at(made)), read, &way.create)
				require.NoError(t, err)
				flink.Pass(t, "metadata %s %s", made, file)
				flink.Pass(t, "restore %s %s --out %s-restored %s", made, file, made, flags)
				changed, err := os.ReadFile(filepath.Join(made+"-restored", "expected.json"))
				require.NoError(t, err)
				f.same(t, changed, f.open(f.at(made+"-restored")))
			})
		}
	}
}

// testWide does the same for descriptions at the edges of the format, each in two ways.
func testWide(t *testing.T, f *fixture, flink *flinkverify.Flink) {
	first, last := uint64(3), uint64(8)
	if s := os.Getenv("SEEDS"); s != "" {
		first, last = seeds(t, s)
	}
	for seed := first; seed <= last; seed++ {
		w := flinkverify.WideDescription(seed, !strings.HasPrefix(flink.Version, "1."))
		for k := range uint64(2) {
			way := createdWays[(seed+2*k+seed/4)%4]
			if w.HashOnly && strings.Contains(way.flags, "rocksdb") {
				way = createdWays[2]
			}
			t.Run(fmt.Sprintf("%d-%s", seed, way.name), func(t *testing.T) {
				out := t.TempDir()
				file, made := filepath.Join(out, "wide.json"), filepath.Join(out, "made")
				require.NoError(t, os.WriteFile(file, w.Text, 0o666))
				read, err := snapshot.ReadDescription(bytes.NewReader(w.Text), &snapshot.DescriptionOptions{Classes: f.classes, Hash: f.hash})
				require.NoError(t, err)
				_, err = snapshot.CreateFrom(t.Context(), f.pool, snapshot.SavepointIn(f.at(made)), read, &way.create)
				require.NoError(t, err)
				flags := strings.Replace(way.flags, "--parallelism 3", fmt.Sprintf("--parallelism %d", min(3, w.MaxParallelism)), 1)
				flink.Pass(t, "metadata %s %s", made, file)
				flink.Pass(t, "restore %s %s --out %s-restored %s", made, file, made, flags)
				changed, err := os.ReadFile(filepath.Join(made+"-restored", "expected.json"))
				require.NoError(t, err)
				f.same(t, changed, f.open(f.at(made+"-restored")))
			})
		}
	}
}

type described struct {
	name string
	text []byte
}

// descriptions are the examples and some random descriptions from a seed on; with
// SEEDS, a number or a range FIRST-LAST, those alone.
func descriptions(t *testing.T, from uint64) (all []described) {
	first, last := from, from+3
	if s := os.Getenv("SEEDS"); s != "" {
		first, last = seeds(t, s)
	} else {
		for _, e := range flinkverify.Examples(t) {
			b, err := os.ReadFile(e)
			require.NoError(t, err)
			name := filepath.Base(e)
			all = append(all, described{name[:len(name)-len(".json")], b})
		}
	}
	for seed := first; seed <= last; seed++ {
		all = append(all, described{fmt.Sprintf("random-%d", seed), flinkverify.RandomDescription(seed)})
	}
	return all
}
