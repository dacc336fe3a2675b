package cli

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// unprivileged takes from this test's thread what lets root open every file.
func unprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread()
	require.NoError(t, syscall.Setfsuid(65534))
	t.Cleanup(func() {
		require.NoError(t, syscall.Setfsuid(0))
		runtime.UnlockOSThread()
	})
}

// Files that flags name and this user may not open are no bad usage, and say nothing of
// the snapshot.
func TestFilesThatAreDenied(t *testing.T) {
	dir := exampleFolder(t)
	root := filepath.Join(dir, "testdata", "goldens")
	t.Chdir(root)
	const s = " f120-hashmap-canonical/checkpoint/savepoint-bf0e3a-a0c987a4378e"
	require.NoError(t, os.WriteFile("secret", []byte("{}"), 0o600))
	require.NoError(t, os.Chmod("secret", 0))
	require.NoError(t, os.Mkdir("closed", 0o555))
	require.NoError(t, os.Chmod("closed", 0o500))
	require.NoError(t, os.Mkdir("folder", 0o777))
	for at := root; at != filepath.Clean(os.TempDir()) && at != filepath.Dir(at); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	t.Setenv("XDG_CONFIG_HOME", "/nonexistent")
	unprivileged(t)
	for _, c := range []struct{ command, want string }{
		{"create --from secret x", "--from: open secret: permission denied\nexit code 12"},
		{"create --from folder x", "--from: read folder: is a directory\nexit code 64"},
		{"create --from none x", "--from: open none: no such file or directory\nexit code 64"},
		{"create --from - --classes secret x", "--classes: open secret: permission denied\nexit code 12"},
		{"inspect --uids secret" + s, "--uids: open secret: permission denied\nexit code 12"},
		{"inspect --config secret" + s, "configuration file: open secret: permission denied\nexit code 12"},
		{"inspect --flink-conf secret" + s, "configuration of Flink: open secret: permission denied\nexit code 12"},
		{"compat secret.json" + s, "schema: open secret.json: no such file or directory\nexit code 64"},
		{"read --state state.value -o closed/a.csv" + s, "-o: open closed/.stateutil-*: permission denied\nexit code 12"},
		{"read --state state.value -o none/a.csv" + s, "-o: open none/.stateutil-*: no such file or directory\nexit code 1"},
		{"read --state state.value -o closed/a.parquet" + s, "permission denied\nexit code 12"},
		{"describe -o closed/a.json" + s, "permission denied\nexit code 12"},
		{"query -o closed/a.csv" + s + " 'select 1'", "permission denied\nexit code 12"},
	} {
		out := runExample(root, "stateutil "+c.command)
		for _, part := range strings.Split(strings.ReplaceAll(c.want, ".stateutil-*", "*"), "*") {
			require.Contains(t, out, part, c.command)
		}
		require.Equal(t, 2, strings.Count(out, "\n"), "%s: %s", c.command, out)
	}
	// The user's own settings are not this one's to read: a service that runs with the
	// home of another goes on, and says so.
	home := filepath.Join(root, "home")
	t.Setenv("XDG_CONFIG_HOME", home)
	require.NoError(t, syscall.Setfsuid(os.Geteuid()))
	require.NoError(t, os.MkdirAll(filepath.Join(home, "stateutil"), 0o777))
	file := filepath.Join(home, "stateutil", "stateutil.yaml")
	require.NoError(t, os.WriteFile(file, []byte("color: never\n"), 0o600))
	require.NoError(t, os.Chmod(file, 0))
	if os.Geteuid() == 0 {
		require.NoError(t, syscall.Setfsuid(65534))
	}
	var out, notes strings.Builder
	env := Env{Out: &out, Err: &notes}
	require.Zero(t, Run(t.Context(), []string{"files", strings.TrimSpace(s)}, env))
	require.NotEmpty(t, out.String())
	require.Equal(t, "stateutil: configuration file: open "+file+": permission denied: goes on without it\n", notes.String())
	notes.Reset()
	require.Zero(t, Run(t.Context(), []string{"--quiet", "files", strings.TrimSpace(s)}, Env{Out: io.Discard, Err: &notes}))
	require.Empty(t, notes.String())
}
