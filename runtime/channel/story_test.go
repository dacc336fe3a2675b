package channel

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// TestStories restores in-flight data at another parallelism.
//
//	snapshot up=U
//	<subtask>.<channel> <record>...    what was in flight; "g3-a" has key group 3 of 16
//	----
//	restore mapper=M up=U down=D       what each new subtask gets, channel by channel
//	----
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var s *snapshot.Snapshot
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var up, down int
			d.ScanArgs(t, "up", &up)
			switch d.Cmd {
			case "snapshot":
				var payloads [][]string
				for line := range strings.Lines(d.Input) {
					f := strings.Fields(line)
					at, channel, ok := strings.Cut(f[0], ".")
					require.True(t, ok, line)
					i, err := strconv.Atoi(at)
					require.NoError(t, err)
					c, err := strconv.Atoi(channel)
					require.NoError(t, err)
					for len(payloads) <= i {
						payloads = append(payloads, make([]string, up))
					}
					var records [][]byte
					for _, r := range f[1:] {
						records = append(records, plainRecord(r))
					}
					payloads[i][c] = elements(records...)
				}
				s, _ = inFlightOf(t, up, payloads...)
				return ""
			case "restore":
				var name string
				d.ScanArgs(t, "mapper", &name)
				d.ScanArgs(t, "down", &down)
				e := Exchange{Up: upID, Down: downID, UpParallelism: up, DownParallelism: down, MaxParallelism: 16}
				e.Mapper = map[string]Mapper{"range": Range, "round-robin": RoundRobin}[name]
				return restoreStory(t, s, e)
			}
			d.Fatalf(t, "no command %s", d.Cmd)
			return ""
		})
	})
}

func restoreStory(t *testing.T, s *snapshot.Snapshot, e Exchange) string {
	var out strings.Builder
	for k := range e.DownParallelism {
		fmt.Fprintf(&out, "subtask %d:", k)
		got, err := recoverKept(t, s, e, k, func(b []byte) (bool, error) { // of its key groups
			group, _, _ := strings.Cut(strings.TrimPrefix(string(b[1:]), "g"), "-")
			g, err := strconv.Atoi(group)
			return serializer.SubtaskOf(g, e.DownParallelism, e.MaxParallelism) == k, err
		})
		require.NoError(t, err)
		for _, x := range got {
			f := strings.SplitN(x, ":", 3)
			fmt.Fprintf(&out, " %s:%s", f[0], f[2])
		}
		out.WriteByte('\n')
	}
	return out.String()
}
