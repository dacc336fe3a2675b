// Package killtest kills processes of tests that save their work and go on from it.
package killtest

import (
	"bufio"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// DirEnv is set in a process that is to be killed: the folder it works in.
const DirEnv = "TIDEMARK_KILL_DIR"

// Dir is the folder of a process that is to be killed. In any other it skips the test.
func Dir(t testing.TB) string {
	dir := os.Getenv(DirEnv)
	if dir == "" {
		t.Skip("is a part of another test")
	}
	return dir
}

// Kill runs a test, named child, in processes of its own, one after the other on one
// folder, and kills each of them; TIDEMARK_KILLS is how often, if it is set. A child
// prints lines:
//
//	started
//	restored N    it goes on from step N; 0 is from nothing
//	committed N   step N is saved, with all before it
//
// and does not end by itself. It fails if a step that was committed is not restored. The
// first child is killed when it has committed a step, and the second when it has restored
// that; the others after a random number of lines and a random time of at most pause, or
// at once.
func Kill(t *testing.T, child, dir string, kills int, pause time.Duration) {
	if s := os.Getenv("TIDEMARK_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		kills = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	last, restored := 0, 0
	for i := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^"+child+"$", "-test.v")
		cmd.Env = append(os.Environ(), DirEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		lines := make(chan string, 1024)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
		}()
		var all []string
		until := func(enough func(line string) bool) {
			for {
				line, ok := <-lines
				if !ok {
					return // it has ended, which is an error below
				}
				if all = append(all, line); enough(line) {
					return
				}
			}
		}
		switch n := random.IntN(6); {
		case i == 0:
			until(func(line string) bool { return strings.HasPrefix(line, "committed ") })
		case i == 1:
			until(func(line string) bool { return strings.HasPrefix(line, "restored ") })
		case n > 0:
			until(func(string) bool { return len(all) == n })
			fallthrough
		default:
			time.Sleep(time.Duration(random.Int64N(int64(pause))))
		}
		_ = cmd.Process.Kill() // how it ended is looked at below
		until(func(string) bool { return false })
		err = cmd.Wait()
		text := strings.Join(all, "\n")
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "the child ended by itself: %s", text)
		require.Equal(t, -1, exit.ExitCode(), "the child failed: %s", text)
		require.NotContains(t, text, "FAIL")
		for _, line := range all {
			what, number, _ := strings.Cut(line, " ")
			switch what {
			case "committed":
				last, err = strconv.Atoi(number)
				require.NoError(t, err, line)
			case "restored":
				got, err := strconv.Atoi(number)
				require.NoError(t, err, line)
				require.GreaterOrEqual(t, got, last, "a step that was committed is lost")
				if got > 0 {
					restored++
				}
			}
		}
	}
	t.Logf("%d kills, %d restores, %d steps survived", kills, restored, last)
	require.True(t, restored > 0 || kills < 2)
}
