package metadata

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// Each file of testdata/dump holds dumps. Commands:
//
//	golden FILE [max-bytes=N]   a _metadata below testdata/goldens
//	example VERSION [cut=N]     a small file of that version, cut after N bytes
//	bytes                       the input, in hex
func TestDump(t *testing.T) {
	datadriven.Walk(t, "testdata/dump", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var in []byte
			opts := &DumpOptions{}
			switch td.Cmd {
			case "golden":
				var err error
				in, err = os.ReadFile(testdata.Repo(t) + "/testdata/goldens/" + td.CmdArgs[0].Key)
				require.NoError(t, err)
			case "example":
				v, err := strconv.Atoi(td.CmdArgs[0].Key)
				require.NoError(t, err)
				in = examples(t)[int32(v)]
				if td.HasArg("cut") {
					var n int
					td.ScanArgs(t, "cut", &n)
					in = in[:n]
				}
			case "bytes":
				in = unhex(t, td.Input)
			default:
				td.Fatalf(t, "unknown command %s", td.Cmd)
			}
			td.MaybeScanArgs(t, "max-bytes", &opts.MaxBytes)
			if td.HasArg("uids") {
				var err error
				opts.UIDs, err = NewUIDNames([]string{"events", "counters"})
				require.NoError(t, err)
			}
			var out bytes.Buffer
			Dump(&out, bytes.NewReader(in), opts)
			return out.String()
		})
	})
}

var dumpLine = regexp.MustCompile(`^(\d+)-(\d+): ([0-9a-f]+)( +# .*)?$`)

// The lines of a dump are the file: put together they give its bytes.
func TestDumpCoversEveryByte(t *testing.T) {
	files := map[string][]byte{}
	for _, f := range testdata.GoldenMetadata(t) {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		files[f] = b
	}
	for v, b := range examples(t) {
		files[fmt.Sprintf("example %d", v)] = b
	}
	for name, b := range files {
		var out bytes.Buffer
		require.NoError(t, Dump(&out, bytes.NewReader(b), &DumpOptions{MaxBytes: -1}), name)
		var got []byte
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "#") {
				continue
			}
			m := dumpLine.FindStringSubmatch(line)
			require.NotNil(t, m, "%s: %s", name, line)
			from, _ := strconv.Atoi(m[1])
			to, _ := strconv.Atoi(m[2])
			require.Equal(t, len(got), from, "%s: %s", name, line)
			h, err := hex.DecodeString(m[3])
			require.NoError(t, err)
			require.Equal(t, to-from+1, len(h), "%s: %s", name, line)
			got = append(got, h...)
		}
		require.True(t, bytes.Equal(b, got), name)
	}
}

func TestDumpReturnsTheWritersError(t *testing.T) {
	require.ErrorIs(t, Dump(failingWriter{}, bytes.NewReader(examples(t)[3]), nil), io.ErrClosedPipe)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
