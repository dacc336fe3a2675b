package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a user mistypes is refused in one line with exit code 64: it is never taken
// for "nothing there".
func TestMistypedArguments(t *testing.T) {
	dir := exampleFolder(t)
	root := filepath.Join(dir, "testdata", "goldens")
	t.Chdir(root)
	const s = "f120-hashmap-canonical/checkpoint/savepoint-bf0e3a-a0c987a4378e"
	for _, command := range []string{
		"read --state state.vlaue", "read --state state.value --state state.vlaue --limit 1",
		"read --state state.vlaue --format csv -o rows.csv", "states --state state.vlaue", "stats --state state.vlaue",
		"timers --state state.vlaue", "describe --state state.vlaue", "diff --state state.vlaue " + s,
	} {
		out := runExample(root, "stateutil "+command+" "+s)
		require.Contains(t, out, `stateutil: no state "state.vlaue" in savepoint-bf0e3a-a0c987a4378e`, command)
		require.True(t, strings.HasSuffix(out, "exit code 64\n"), "%s:\n%s", command, out)
	}
	require.NoFileExists(t, filepath.Join(root, "rows.csv"))
	// A state that is there and has nothing to show is no mistake.
	for _, command := range []string{"read --state state.value --key-group 0", "get --state state.value", "read --state state.value --key 1 --limit 0"} {
		tail := ""
		if strings.HasPrefix(command, "get") {
			tail = " 1"
		}
		out := runExample(root, "stateutil "+command+" "+s+tail)
		require.NotContains(t, out, "exit code", command)
	}
	for _, flag := range []string{"--limit -1", "--retries -1", "--max-rps -0.5", "--timeout -1s"} {
		out := runExample(root, "stateutil read --all "+flag+" "+s)
		require.Contains(t, out, "it cannot be negative\nexit code 64\n", flag)
	}
	require.NotContains(t, runExample(root, "stateutil cat --length -1 "+s+"/_metadata"), "negative")
}

func TestHelpIsACommandToo(t *testing.T) {
	dir := t.TempDir()
	for _, words := range []string{"", " read", " completion"} {
		require.Equal(t, runExample(dir, "stateutil"+words+" --help"), runExample(dir, "stateutil help"+words))
	}
	require.Equal(t, "stateutil: unknown command \"raed\", did you mean read?: see stateutil --help\nexit code 64\n", runExample(dir, "stateutil help raed"))
}

// A key that is no JSON becomes a JSON string, whatever is in it.
func TestKeysThatAreNoJSON(t *testing.T) {
	for in, want := range map[string]string{
		"alice": `"alice"`, "a\x01b": `"a\u0001b"`, "\x7f": "\"\x7f\"", "<&>": `"<&>"`, "a\u200bb": "\"a\u200bb\"", "12": "12", ` [ 1, "x" ] `: `[1,"x"]`,
	} {
		require.Equal(t, want, compactJSON(in), "%q", in)
	}
}

// -o replaces a file when the new one is whole; a device or pipe is written, not
// replaced; a folder and a place that is not there are refused.
func TestOutputNames(t *testing.T) {
	dir := exampleFolder(t)
	root := filepath.Join(dir, "testdata", "goldens")
	t.Chdir(root)
	const s = " f120-hashmap-canonical/checkpoint/savepoint-bf0e3a-a0c987a4378e"
	require.NoError(t, os.Mkdir("folder", 0o700))
	require.NoError(t, os.WriteFile("old", []byte("old"), 0o600))
	for _, command := range []string{"read --all --format csv", "read --all --format jsonl", "describe", "query --format csv"} {
		require.Equal(t, "stateutil: -o: folder is a folder\nexit code 64\n", runExample(root, "stateutil "+command+" -o folder"+s))
		out := runExample(root, "stateutil "+command+" -o nowhere/x"+s)
		require.True(t, strings.HasSuffix(out, "no such file or directory\nexit code 1\n"), out)
		require.Equal(t, runExample(root, "stateutil "+command+s), runExample(root, "stateutil "+command+" -o -"+s))
		require.Empty(t, runExample(root, "stateutil "+command+" -o old"+s))
		b, err := os.ReadFile("old")
		require.NoError(t, err)
		require.Equal(t, runExample(root, "stateutil "+command+s), string(b))
	}
	out := runExample(root, "stateutil read --all --format parquet -o nowhere/x"+s)
	require.True(t, strings.HasSuffix(out, "no such file or directory\nexit code 1\n"), out)
	require.NoFileExists(t, "-")
	left, err := filepath.Glob(".stateutil-*")
	require.NoError(t, err)
	require.Empty(t, left)
}
