package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommandsOnDamage runs the commands that read state on wounded snapshots: each
// shows what is left, says so with its exit code, and never fails otherwise.
func TestCommandsOnDamage(t *testing.T) {
	const (
		canonical = "f120-hashmap-canonical/checkpoint/savepoint-bf0e3a-a0c987a4378e"
		chain     = "f120-rocksdb-chain/checkpoint/7245eaee7a8e23a71d677622f9a73deb/chk-6"
		changelog = "f120-changelog-hashmap-materialized/checkpoint/bb993ee3bc02e75dbd57835d5b165314/chk-1"
		heapFile  = canonical + "/49f1faf3-a3b3-4510-84b9-70d2f8d78260"
		table     = "f120-rocksdb-chain/checkpoint/7245eaee7a8e23a71d677622f9a73deb/shared/0ca57726-cf44-4e51-ade1-f96e49195fae"
		dstl      = "f120-changelog-hashmap-materialized/checkpoint/changelog/bb993ee3bc02e75dbd57835d5b165314/dstl/2a770c04-0d7f-46c1-8022-5d7b7d99ae4a"
	)
	for _, c := range []struct {
		name, snapshot, damage string
		verify                 string // its exit code
	}{
		{"unknown serializer", canonical, "patch " + heapFile + " 831 71", "4"},
		{"missing file", canonical, "delete " + heapFile, "3"},
		{"truncated file", canonical, "cut " + heapFile + " 2000", "3"},
		{"wrong key group", canonical, "patch " + canonical + "/_metadata RANGE", "3"},
		{"missing table", chain, "delete " + table, "3"},
		{"truncated table", chain, "cut " + table + " 1000", "3"},
		{"changelog segment gone", changelog, "delete " + dstl, "3"},
		{"changelog segment cut", changelog, "cut " + dstl + " 6000", "3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := exampleFolder(t)
			root := filepath.Join(dir, "testdata", "goldens")
			t.Chdir(root)
			if strings.Contains(c.damage, "RANGE") {
				shiftRange(t, filepath.Join(root, canonical, "_metadata"))
			} else {
				require.NoError(t, wound(strings.Fields(c.damage)))
			}
			for _, command := range []string{"states", "read --all --format jsonl", "stats", "verify --data --no-others"} {
				out := runExample(root, "stateutil "+command+" "+c.snapshot)
				want := "4"
				if strings.HasPrefix(command, "verify") {
					want = c.verify
				}
				require.True(t, strings.HasSuffix(out, "exit code "+want+"\n"), "%s:\n%s", command, out)
				require.NotContains(t, out, "internal error")
				require.NotContains(t, out, "panic")
				if command == "read --all --format jsonl" {
					require.Greater(t, strings.Count(out, `"state":"state.`), 20, "the rest is shown: %s", out)
				}
			}
		})
	}
}

// shiftRange adds one to the first key group of the second subtask, so that the
// offsets of its handle are those of other key groups and the ranges have a gap.
func shiftRange(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	// A savepoint handle's range: int32 start 64, int32 count 64.
	at := strings.Index(string(b), "\x00\x00\x00\x40\x00\x00\x00\x40")
	require.Positive(t, at)
	b[at+3] = 63
	require.NoError(t, os.WriteFile(path, b, 0o666))
}
