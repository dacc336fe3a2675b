// Package flinkverify runs the program in testdata/flink-verify, which hands
// snapshots to a real Apache Flink, and makes what it is to be given: random
// descriptions. It is made for tests; Java 17 and Maven are needed to run it.
package flinkverify

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

// Versions are the Flinks to test with: those that FLINK names, else 1.20.0 and 2.3.0.
func Versions() []string {
	if v := strings.Fields(os.Getenv("FLINK")); len(v) > 0 {
		return v
	}
	return []string{"1.20.0", "2.3.0"}
}

// Dir is the folder of the program.
func Dir(t testing.TB) string { return filepath.Join(testdata.Repo(t), "testdata", "flink-verify") }

// Examples are the descriptions that come with the program.
func Examples(t testing.TB) []string {
	files, err := filepath.Glob(filepath.Join(Dir(t), "examples", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// Flink is the program in one JVM, which takes one command after the other. For one
// goroutine.
type Flink struct {
	Version string

	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	Done int // commands that passed
}

// Start starts it; it ends with the test.
func Start(t testing.TB, version string) *Flink {
	f := &Flink{Version: version, t: t, cmd: exec.Command(filepath.Join(Dir(t), "run.sh"), "batch", "-")}
	f.cmd.Env = append(os.Environ(), "FLINK="+version)
	f.cmd.Stderr = os.Stderr
	var err error
	f.in, err = f.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := f.cmd.StdoutPipe()
	require.NoError(t, err)
	f.out = bufio.NewScanner(out)
	f.out.Buffer(nil, 64<<20)
	require.NoError(t, f.cmd.Start())
	t.Cleanup(func() {
		f.in.Close()
		_ = f.cmd.Wait() // its code says that a command failed, which its caller knows
	})
	return f
}

// Run runs a command, of which there is one line, and gives the checks that failed.
// A program that cannot run ends the test.
func (f *Flink) Run(format string, args ...any) (failed []string) {
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(f.in, line); err != nil {
		f.t.Fatalf("Flink %s does not run: is there a JDK 17 and Maven? %v", f.Version, err)
	}
	for f.out.Scan() {
		var m struct {
			Event, Check string
			OK           *bool
			Checks       *int
		}
		if json.Unmarshal(f.out.Bytes(), &m) != nil {
			continue
		}
		switch {
		case m.OK == nil: // an event
		case m.Check == "" && m.Checks != nil: // the last line
			if !*m.OK && len(failed) == 0 {
				failed = append(failed, "no check was made")
			}
			if len(failed) == 0 {
				f.Done++
			}
			return failed
		case !*m.OK:
			s := f.out.Text()
			failed = append(failed, s[:min(len(s), 1500)])
		}
	}
	f.t.Fatalf("Flink %s ended before it answered %q: is there a JDK 17 and Maven? %v", f.Version, line, f.out.Err())
	return nil
}

// Pass runs a command that has to pass.
func (f *Flink) Pass(t testing.TB, format string, args ...any) {
	t.Helper()
	require.Empty(t, f.Run(format, args...), "Flink %s: %s", f.Version, fmt.Sprintf(format, args...))
}
