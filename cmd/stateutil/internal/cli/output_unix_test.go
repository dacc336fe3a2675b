//go:build unix

package cli

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pipe gets the rows and is still a pipe: a rename would have replaced it, and for
// root even /dev/null.
func TestOutputToAPipe(t *testing.T) {
	dir := exampleFolder(t)
	root := filepath.Join(dir, "testdata", "goldens")
	t.Chdir(root)
	const s = " f120-hashmap-canonical/checkpoint/savepoint-bf0e3a-a0c987a4378e"
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	got := make(chan string, 1)
	go func() {
		f, err := os.Open("pipe")
		if err != nil {
			got <- err.Error()
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		got <- string(b)
	}()
	require.Empty(t, runExample(root, "stateutil read --all --format csv -o pipe"+s))
	require.Equal(t, runExample(root, "stateutil read --all --format csv"+s), <-got)
	info, err := os.Lstat("pipe")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeNamedPipe)
	require.Equal(t, "stateutil: pipe is no regular file\nexit code 1\n", runExample(root, "stateutil read --state state.value --format parquet -o pipe"+s))
}
