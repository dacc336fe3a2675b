//go:build integration

package flinkverify_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	_ "github.com/tidemark/tidemark/blobstore/hdfs"
	_ "github.com/tidemark/tidemark/blobstore/s3"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// kind is a way in which a real Flink writes a snapshot, and restores it from a copy.
// {out} is the snapshot's folder.
type kind struct{ name, write, restore string }

const (
	// Timers on the heap beside state in RocksDB stand in the raw keyed slot.
	heapTimers = " --conf state.backend.rocksdb.timer-service.factory=HEAP"
	inFiles    = " --conf execution.checkpointing.data-inline-threshold=0"
	changelog  = " --snapshot checkpoint --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf state.changelog.dstl.dfs.base-path=file://{out}/dstl"
)

var kinds = []kind{
	{"heap-canonical", "--backend hashmap --snapshot canonical", "--backend rocksdb --parallelism 3"},
	{"heap-native", "--backend hashmap --snapshot native", "--backend hashmap --parallelism 1 --claim-mode claim"},
	{"heap-checkpoint", "--backend hashmap --snapshot checkpoint" + inFiles, "--backend hashmap --parallelism 3"},
	{"heap-compressed", "--backend hashmap --snapshot checkpoint --conf execution.checkpointing.snapshot-compression=true", "--backend hashmap --parallelism 1"},
	{"heap-changelog", "--backend hashmap" + changelog, "--backend hashmap --claim-mode claim" + changelog},
	{"heap-unaligned", "--backend hashmap --snapshot checkpoint --unaligned", "--backend hashmap --parallelism 1"},
	{"rocksdb-canonical", "--backend rocksdb --snapshot canonical --conf execution.checkpointing.snapshot-compression=true", "--backend hashmap --parallelism 3"},
	{"rocksdb-native", "--backend rocksdb --snapshot native", "--backend rocksdb --parallelism 1 --claim-mode claim"},
	{"rocksdb-checkpoint", "--backend rocksdb --snapshot checkpoint", "--backend rocksdb --parallelism 3"},
	{"rocksdb-increment", "--backend rocksdb --snapshot checkpoint --incremental" + inFiles, "--backend rocksdb --claim-mode claim --snapshot checkpoint --incremental"},
	{"rocksdb-merging", "--backend rocksdb --snapshot checkpoint --incremental --conf execution.checkpointing.file-merging.enabled=true" + inFiles, "--backend rocksdb --parallelism 1"},
	{"rocksdb-changelog", "--backend rocksdb" + changelog, "--backend rocksdb --claim-mode claim" + changelog},
	{"rocksdb-heaptimers", "--backend rocksdb --snapshot checkpoint" + heapTimers, "--backend rocksdb --parallelism 3" + heapTimers},
	{"rocksdb-unaligned", "--backend rocksdb --snapshot checkpoint --unaligned" + inFiles, "--backend rocksdb --parallelism 3"},
}

// Every example is written in the kinds of forAll, those of everyKind in all; those of
// copied are copied from all, and converted to a format in which they are restored.
var (
	forAll    = map[string]bool{"heap-canonical": true, "heap-checkpoint": true, "rocksdb-canonical": true, "rocksdb-increment": true}
	everyKind = map[string]bool{"types": true, "map": true, "timers": true, "reducing": true}
	copied    = map[string]bool{"map": true, "timers": true}
	converted = map[string]stream.KeyedFormat{"map": stream.CanonicalFormat, "timers": stream.CanonicalFormat, "reducing": stream.HeapFormat}
)

// testWritten lets a real Flink write each example in each kind of snapshot. Our
// description of it is that from which it was written, and our backends restore it at
// another parallelism. Some of each kind are copied to another store and back to
// another place on disk, by way of the stores of TIDEMARK_STORES, and some converted; the
// first is removed, and Flink restores
// the copy and what it was converted to.
func testWritten(t *testing.T, f *fixture, flink *flinkverify.Flink) {
	out := t.TempDir()
	between := storesBetween(t, f)
	for _, example := range flinkverify.Examples(t) {
		name := strings.TrimSuffix(filepath.Base(example), ".json")
		description, err := os.ReadFile(example)
		require.NoError(t, err)
		for _, k := range kinds {
			operators := name == "operator" && strings.HasSuffix(k.name, "increment")
			switch {
			case !everyKind[name] && !forAll[k.name]:
				continue
			case name == "map-null" && k.name != "heap-checkpoint":
				continue // Flink itself writes null longs only in the heap's own format
			}
			t.Run(name+"-"+k.name, func(t *testing.T) {
				from := filepath.Join(out, "from-"+name+"-"+k.name)
				flink.Pass(t, "write %s --out %s %s", example, from, strings.ReplaceAll(k.write, "{out}", from))
				s := f.open(f.at(from))
				f.same(t, description, s)
				h := fnv.New32a()
				fmt.Fprint(h, name, k.name)
				for _, backend := range backends {
					f.restored(t, backend, description, s, 1+int(h.Sum32()%4))
				}
				// Flink restores what lies in from at another place, from is gone then.
				restore := func(to, flags string) {
					again := to + "-again"
					flink.Pass(t, "restore %s %s --out %s %s", to, example, again, strings.ReplaceAll(flags, "{out}", again))
					changed, err := os.ReadFile(filepath.Join(again, "expected.json"))
					require.NoError(t, err)
					f.same(t, changed, f.open(f.at(again)))
				}
				to := filepath.Join(out, "to-"+name+"-"+k.name)
				format, convert := converted[name]
				if convert {
					f.convert(t, s, f.at(to+"-converted"), format)
				}
				if copied[name] || operators {
					at := s
					for _, store := range between {
						middle := store.Join("acceptance/" + flink.Version + "/" + name + "-" + k.name)
						f.copy(t, at, middle)
						at = f.open(middle)
					}
					f.copy(t, at, f.at(to))
				}
				require.NoError(t, os.RemoveAll(from))
				if convert {
					backend := "hashmap"
					if format == stream.CanonicalFormat && h.Sum32()%8 < 4 {
						backend = "rocksdb"
					}
					restore(to+"-converted", fmt.Sprintf("--backend %s --parallelism %d", backend, 1+h.Sum32()/8%3))
				}
				if copied[name] || operators {
					restore(to, k.restore)
				}
			})
		}
	}
}

// copy copies a snapshot, which verifies it.
func (f *fixture) copy(t *testing.T, s *snapshot.Snapshot, to blobstore.Location) {
	p, err := snapshot.PlanCopy(context.Background(), s, to, nil)
	require.NoError(t, err)
	v, err := p.Apply(context.Background())
	require.NoError(t, err)
	require.True(t, v.OK, "%v", v.Findings)
}

// convert converts a snapshot, which verifies the result. The records in flight of
// flink-verify do nothing, so that they may be left out where they have to be.
func (f *fixture) convert(t *testing.T, s *snapshot.Snapshot, to blobstore.Location, format stream.KeyedFormat) {
	p, err := snapshot.PlanConvert(context.Background(), s, to, &snapshot.ConvertOptions{Format: format, DropInFlight: format == stream.CanonicalFormat})
	require.NoError(t, err)
	made, err := p.Apply(context.Background())
	require.NoError(t, err)
	require.True(t, made.Verification.OK, "%v", made.Verification.Findings)
}

// storesBetween are the stores that copies go through: those that TIDEMARK_STORES
// names, s3 and hdfs, whose servers have to be there; else memory.
func storesBetween(t *testing.T, f *fixture) (stores []blobstore.Location) {
	urls := map[string]string{"s3": "TIDEMARK_TEST_S3_URL", "hdfs": "TIDEMARK_TEST_HDFS_URL"}
	for _, name := range strings.Fields(os.Getenv("TIDEMARK_STORES")) {
		require.Contains(t, urls, name, "TIDEMARK_STORES")
		url := os.Getenv(urls[name])
		require.NotEmpty(t, url, "TIDEMARK_STORES names %s, but %s is not set", name, urls[name])
		stores = append(stores, f.at(url))
	}
	if len(stores) == 0 {
		stores = append(stores, f.memory())
	}
	return stores
}
