//go:build integration

package snapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// verifyKinds are ways in which a real Flink writes each example.
var verifyKinds = map[string]string{
	"heap-canonical":     "--backend hashmap --snapshot canonical",
	"heap-native":        "--backend hashmap --snapshot native",
	"heap-checkpoint":    "--backend hashmap --snapshot checkpoint --conf execution.checkpointing.data-inline-threshold=0",
	"heap-compressed":    "--backend hashmap --snapshot checkpoint --conf execution.checkpointing.snapshot-compression=true",
	"heap-changelog":     "--backend hashmap --snapshot checkpoint --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf dstl.dfs.base-path=file://{out}/dstl",
	"heap-unaligned":     "--backend hashmap --snapshot checkpoint --unaligned",
	"rocksdb-canonical":  "--backend rocksdb --snapshot canonical --conf execution.checkpointing.snapshot-compression=true",
	"rocksdb-native":     "--backend rocksdb --snapshot native",
	"rocksdb-checkpoint": "--backend rocksdb --snapshot checkpoint",
	"rocksdb-increment":  "--backend rocksdb --snapshot checkpoint --incremental",
	"rocksdb-merging":    "--backend rocksdb --snapshot checkpoint --incremental --conf execution.checkpointing.file-merging.enabled=true",
	"rocksdb-changelog":  "--backend rocksdb --snapshot checkpoint --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf dstl.dfs.base-path=file://{out}/dstl",
}

// Every example is written in the kinds of forAll, those of everyKind in all.
var (
	forAll    = map[string]bool{"heap-canonical": true, "heap-checkpoint": true, "rocksdb-canonical": true, "rocksdb-increment": true}
	everyKind = map[string]bool{"types": true, "map": true, "timers": true, "reducing": true}
)

// TestDescriptionsOfARealFlink lets a real Flink write each example in each kind
// of snapshot, and compares our description with the one it was written from.
// FLINK names the versions, by default 1.20.0 and 2.3.0.
func TestDescriptionsOfARealFlink(t *testing.T) {
	versions := strings.Fields(os.Getenv("FLINK"))
	if len(versions) == 0 {
		versions = []string{"1.20.0", "2.3.0"}
	}
	dir := filepath.Join(testdata.Repo(t), "testdata", "flink-verify")
	examples, err := filepath.Glob(filepath.Join(dir, "examples", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, version := range versions {
		out := t.TempDir()
		type written struct{ example, kind, dir string }
		var all []written
		var commands strings.Builder
		for _, e := range examples {
			for kind, flags := range verifyKinds {
				name := strings.TrimSuffix(filepath.Base(e), ".json")
				if !everyKind[name] && !forAll[kind] {
					continue
				}
				if name == "map-null" && !strings.HasPrefix(kind, "heap-checkpoint") {
					continue // Flink itself writes null longs only in the heap's own format
				}
				w := written{e, kind, filepath.Join(out, name+"-"+kind)}
				all = append(all, w)
				fmt.Fprintf(&commands, "write %s --out %s %s\n", e, w.dir, strings.ReplaceAll(flags, "{out}", w.dir))
			}
		}
		cmd := exec.Command(filepath.Join(dir, "run.sh"), "batch", "-")
		cmd.Env = append(os.Environ(), "FLINK="+version)
		cmd.Stdin = strings.NewReader(commands.String())
		cmd.Stderr = os.Stderr
		log, err := cmd.Output()
		require.NoError(t, err, "Flink %s: is there a JDK 17 and Maven?\n%s", version, tail(log))
		for _, w := range all {
			t.Run(version+"/"+filepath.Base(w.dir), func(t *testing.T) {
				compareDescription(t, w.example, w.dir)
			})
		}
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }

func compareDescription(t *testing.T, example, dir string) {
	b, err := os.ReadFile(example)
	require.NoError(t, err)
	want := flinkverify.Compared(t, b)
	uids := map[metadata.OperatorID]string{}
	for uid := range want {
		uids[metadata.OperatorIDFromUID(uid)] = uid
	}
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	latest, err := snapshot.Latest(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, snapshot.Describe(t.Context(), latest.Snapshot, &snapshot.ScanOptions{UID: func(id metadata.OperatorID) string { return uids[id] }}, &out))
	got := flinkverify.Compared(t, out.Bytes())
	for uid, w := range want {
		require.Equal(t, w, got[uid], "operator %s", uid)
		delete(got, uid)
	}
	for uid := range got {
		require.True(t, strings.HasPrefix(uid, "uid_hash"), "operator %s", uid) // the job's own sources
	}
}
