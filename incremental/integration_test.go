//go:build integration

package incremental_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// TestMatrix writes the whole option matrix with three versions of RocksDB and
// reads it back. It needs Java 17 and Maven, and fails without.
func TestMatrix(t *testing.T) {
	out := t.TempDir()
	script := filepath.Join(testdata.Repo(t), "testdata", "rocksdb-matrix", "run.sh")
	for _, writer := range []string{"frocksdb6", "frocksdb8", "rocksdb10"} {
		cmd := exec.Command(script, writer, filepath.Join(out, writer))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		require.NoError(t, err, "%s: is there a JDK 17 and Maven?\n%s", writer, text)
		t.Logf("%s", text)
	}
	runMatrix(t, out)
}
