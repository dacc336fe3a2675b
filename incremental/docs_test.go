package incremental_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/manifest"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/testdata"
)

var frame = regexp.MustCompile("(?ms)^```dump (\\S+)\n(.*?)^```")

// TestDocumentedFrames holds that each line of a frame in the format pages stands
// in the dump of the file that it names, in that order and, but for "…", without a gap.
func TestDocumentedFrames(t *testing.T) {
	for _, page := range []string{"rocksdb-sst.md", "rocksdb-manifest.md"} {
		text, err := os.ReadFile(filepath.Join(testdata.Repo(t), "docs", "format", page))
		require.NoError(t, err)
		frames := frame.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, frames)
		for _, f := range frames {
			data, err := os.ReadFile(filepath.Join("testdata", "matrix", filepath.FromSlash(f[1])))
			require.NoError(t, err)
			var dump bytes.Buffer
			if strings.HasSuffix(f[1], ".sst") {
				require.NoError(t, sst.Dump(context.Background(), &dump, sst.Bytes(data), nil))
			} else {
				require.NoError(t, manifest.Dump(&dump, data, nil))
			}
			got := strings.Split(dump.String(), "\n")
			anywhere := true
			for line := range strings.Lines(f[2]) {
				line = strings.TrimSuffix(line, "\n")
				if line == "…" {
					anywhere = true
					continue
				}
				i := slices.Index(got, line)
				require.GreaterOrEqual(t, i, 0, "%s: %s has no line %q", page, f[1], line)
				if !anywhere {
					require.Zero(t, i, "%s: %s has %q before %q", page, f[1], got[0], line)
				}
				got, anywhere = got[i+1:], false
			}
		}
	}
}

// TestDump writes every committed file, and damaged ones, without leaving bytes out.
func TestDump(t *testing.T) {
	offsets := regexp.MustCompile(`(?m)^(\d+)-(\d+): `)
	for _, dir := range matrixDirs(t, filepath.Join("testdata", "matrix")) {
		c := readMatrixCase(t, dir)
		for _, f := range c.files {
			data := content(t, f.Source)
			var dump bytes.Buffer
			switch {
			case isTable(f.Name):
				require.NoError(t, sst.Dump(context.Background(), &dump, f.Source, nil))
			case manifest.IsManifest(f.Name):
				require.NoError(t, manifest.Dump(&dump, data, nil))
			default:
				continue
			}
			next := 0
			for _, m := range offsets.FindAllStringSubmatch(dump.String(), -1) {
				require.Equal(t, next, atoi(t, m[1]), "%s/%s", dir, f.Name)
				next = atoi(t, m[2]) + 1
			}
			require.Equal(t, len(data), next, "%s/%s", dir, f.Name)

			data[len(data)/3] ^= 8
			dump.Reset()
			var err error
			if isTable(f.Name) {
				err = sst.Dump(context.Background(), &dump, sst.Bytes(data), &sst.DumpOptions{Options: sst.Options{Name: f.Name}})
			} else {
				err = manifest.Dump(&dump, data, &manifest.Options{Name: f.Name})
			}
			requireDamage(t, err)
			require.Contains(t, dump.String(), "# damaged: ")
		}
	}
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}
