package heap_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// TestReadme keeps the README's example what Example runs.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(testdata.Repo(t), "README.md"))
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(readme), "## Link it into your engine")
	require.True(t, ok)
	_, code, ok := strings.Cut(section, "```go\n")
	require.True(t, ok)
	code, _, _ = strings.Cut(code, "```")
	_, body, ok := strings.Cut(string(source), "func Example() {\n")
	require.True(t, ok)
	body, _, _ = strings.Cut(body, "\t// Output:")
	var plain strings.Builder
	for line := range strings.Lines(body) {
		plain.WriteString(strings.TrimPrefix(line, "\t"))
	}
	require.Equal(t, plain.String(), code)
}
