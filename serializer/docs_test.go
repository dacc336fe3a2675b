package serializer

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// TestFormatPage reads and writes the examples of the format's page, and looks for
// each class that it names among those that are read.
func TestFormatPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(testdata.Repo(t), "docs", "format", "serializers.md"))
	require.NoError(t, err)
	examples := regexp.MustCompile("(?s)```example ([^\n]*)\n([^\n]*)\n([^\n]*)\n```").FindAllStringSubmatch(string(page), -1)
	require.GreaterOrEqual(t, len(examples), 7)
	for _, e := range examples {
		t.Run(e[1], func(t *testing.T) {
			typ, err := ParseType(e[1], nil)
			require.NoError(t, err)
			b := mustHex(strings.ReplaceAll(e[2], " ", ""))
			js, n, err := NewDecoder(typ, &DecodeOptions{Strict: true}).AppendJSON(nil, b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			require.Equal(t, e[3], string(js))
			again, err := typ.AppendFromJSON(nil, js)
			require.NoError(t, err)
			require.Equal(t, b, again)
		})
	}
	for _, m := range regexp.MustCompile("`((?:kryo\\.)?[A-Za-z]+Serializer)`").FindAllStringSubmatch(string(page), -1) {
		found := false
		for class := range bodies {
			found = found || strings.Contains(class, m[1])
		}
		require.True(t, found, m[1])
	}
}
