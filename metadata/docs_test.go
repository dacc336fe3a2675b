package metadata

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// The frames of the format pages are lines of real dumps: each block that begins
// with ```dump FILE must stand in the dump of that file, in order; … stands for
// lines left out.
func TestFramesOfTheFormatPages(t *testing.T) {
	frames := 0
	for _, page := range []string{"metadata.md", "java-streams.md"} {
		b, err := os.ReadFile(filepath.Join(testdata.Repo(t), "docs", "format", page))
		require.NoError(t, err)
		for _, block := range strings.Split(string(b), "```dump ")[1:] {
			head, rest, ok := strings.Cut(block, "\n")
			require.True(t, ok)
			frame, _, ok := strings.Cut(rest, "\n```")
			require.True(t, ok, head)
			frames++
			dump := dumpOf(t, strings.Fields(head))
			at, gap := 0, true
			for line := range strings.Lines(frame + "\n") {
				line = strings.TrimSuffix(line, "\n")
				if line == "…" {
					gap = true
					continue
				}
				i := at
				for gap && i < len(dump) && dump[i] != line {
					i++
				}
				require.Less(t, i, len(dump), "%s: %s: no such line: %s", page, head, line)
				require.Equal(t, dump[i], line, "%s: %s", page, head)
				at, gap = i+1, false
			}
		}
	}
	require.Greater(t, frames, 12)
}

func dumpOf(t *testing.T, file []string) []string {
	t.Helper()
	require.Len(t, file, 2)
	var in []byte
	if file[0] == "example" {
		v, err := strconv.Atoi(file[1])
		require.NoError(t, err)
		in = examples(t)[int32(v)]
	} else {
		for _, f := range testdata.MetadataFiles(t, filepath.Join(testdata.Repo(t), "testdata", "goldens", file[0])) {
			if filepath.Base(filepath.Dir(f)) == file[1] {
				b, err := os.ReadFile(f)
				require.NoError(t, err)
				in = b
			}
		}
	}
	require.NotNil(t, in, "%s", file)
	var out bytes.Buffer
	require.NoError(t, Dump(&out, bytes.NewReader(in), nil))
	return strings.Split(out.String(), "\n")
}
