//go:build integration

package snapshot_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// copiedKinds are snapshots of kinds of their own that a real Flink writes, copied,
// and restored from the copy alone.
var copiedKinds = []struct{ name, write, restore string }{
	{"heap-checkpoint", verifyKinds["heap-checkpoint"], "--backend hashmap --parallelism 3"},
	{"rocksdb-increment", verifyKinds["rocksdb-increment"] + " --conf execution.checkpointing.data-inline-threshold=0", "--backend rocksdb --claim-mode claim --snapshot checkpoint --incremental"},
	{"rocksdb-merging", verifyKinds["rocksdb-merging"] + " --conf execution.checkpointing.data-inline-threshold=0", "--backend rocksdb --parallelism 1"},
	{"rocksdb-native", verifyKinds["rocksdb-native"], "--backend rocksdb --parallelism 1 --claim-mode claim"},
	{"rocksdb-unaligned", "--backend rocksdb --snapshot checkpoint --unaligned --conf execution.checkpointing.data-inline-threshold=0", "--backend rocksdb --parallelism 3"},
	{"heap-changelog", verifyKinds["heap-changelog"], "--backend hashmap --claim-mode claim --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf dstl.dfs.base-path=file://{out}/dstl --snapshot checkpoint"},
}

// TestCopiesAreRestoredByARealFlink lets a real Flink write a snapshot of each kind,
// copies it into another store and back to another place on disk, removes the first,
// and lets Flink restore the copy.
func TestCopiesAreRestoredByARealFlink(t *testing.T) {
	versions := strings.Fields(os.Getenv("FLINK"))
	if len(versions) == 0 {
		versions = []string{"1.20.0", "2.3.0"}
	}
	dir := filepath.Join(testdata.Repo(t), "testdata", "flink-verify")
	var examples []string
	for _, name := range []string{"map", "timers", "operator"} {
		examples = append(examples, filepath.Join(dir, "examples", name+".json"))
	}
	run := func(version, commands string) map[string][]string {
		cmd := exec.Command(filepath.Join(dir, "run.sh"), "batch", "-")
		cmd.Env = append(os.Environ(), "FLINK="+version)
		cmd.Stdin = strings.NewReader(commands)
		cmd.Stderr = os.Stderr
		log, err := cmd.Output()
		bad := failedChecks(log)
		if err != nil && len(bad) == 0 {
			require.NoError(t, err, "Flink %s: is there a JDK 17 and Maven?\n%s", version, tail(log))
		}
		return bad
	}
	for _, version := range versions {
		out := t.TempDir()
		type copied struct{ example, from, to, line string }
		var all []copied
		var writes, restores strings.Builder
		for _, e := range examples {
			for _, kind := range copiedKinds {
				name := strings.TrimSuffix(filepath.Base(e), ".json") + "-" + kind.name
				c := copied{example: e, from: filepath.Join(out, "from", name), to: filepath.Join(out, "to", name)}
				fmt.Fprintf(&writes, "write %s --out %s %s\n", e, c.from, strings.ReplaceAll(kind.write, "{out}", c.from))
				c.line = fmt.Sprintf("restore %s %s --out %s-restored %s", c.to, e, c.to, strings.ReplaceAll(kind.restore, "{out}", c.to+"-restored"))
				restores.WriteString(c.line + "\n")
				all = append(all, c)
			}
		}
		require.Empty(t, run(version, writes.String()))
		pool := blobstore.NewPool(nil, nil)
		defer pool.Close()
		for i, c := range all {
			middle := fmt.Sprintf("mem://copies-%s-%d/c", strings.ReplaceAll(version, ".", "-"), i)
			copySnapshot(t, pool, c.from, middle)
			copySnapshot(t, pool, middle, c.to)
		}
		require.NoError(t, os.RemoveAll(filepath.Join(out, "from")))
		bad := run(version, restores.String())
		for _, c := range all {
			t.Run(version+"/"+filepath.Base(c.to), func(t *testing.T) {
				require.Empty(t, bad[c.line], "%s", c.line)
				compareDescription(t, filepath.Join(c.to+"-restored", "expected.json"), c.to+"-restored")
			})
		}
	}
}

func copySnapshot(t *testing.T, pool *blobstore.Pool, from, to string) {
	loc, err := blobstore.Parse(from)
	require.NoError(t, err)
	latest, err := snapshot.Latest(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	dst, err := blobstore.Parse(to)
	require.NoError(t, err)
	p, err := snapshot.PlanCopy(t.Context(), latest.Snapshot, dst, nil)
	require.NoError(t, err)
	v, err := p.Apply(t.Context())
	require.NoError(t, err)
	require.True(t, v.OK, "%v", v.Findings)
}
