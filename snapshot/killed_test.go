package snapshot

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
)

const (
	killedDir   = "TIDEMARK_TEST_KILLED_DIR"   // set in a process that is to be killed
	killedPoint = "TIDEMARK_TEST_KILLED_POINT" // where
)

// killPoint is a store call at which a process says that it is there. It is killed
// then, by chance a few calls later unless it waits.
type killPoint struct {
	Nth    int    // of the calls that Op and Suffix describe; 1 is the first
	Op     string // as in blobstore.Fault; "" is any
	Suffix string // of a name; "" is all names
	Wait   bool
}

// killAt runs the test that calls it in a process of its own, on a folder, and kills that
// at a point. It is false if the process did not come that far and ended well.
func killAt(t *testing.T, dir string, p killPoint) bool {
	t.Helper()
	point, err := json.Marshal(p)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedDir+"="+dir, killedPoint+"="+string(point))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	lines, there := bufio.NewScanner(out), false
	for !there && lines.Scan() {
		there = lines.Text() == "there"
		fmt.Fprintln(&text, lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		require.ErrorIs(t, err, os.ErrProcessDone)
	}
	_, err = io.Copy(&text, out)
	require.NoError(t, err)
	err = cmd.Wait()
	if err == nil {
		require.False(t, there && p.Wait, "it went on: %s", &text)
		return there
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", &text)
	require.Equal(t, -1, exit.ExitCode(), "it failed: %s", &text)
	require.True(t, there, "%s", &text)
	return true
}

// toBeKilled is the fixture of the process that killAt starts; nil in any other.
func toBeKilled(t *testing.T) *fixture {
	dir := os.Getenv(killedDir)
	if dir == "" {
		return nil
	}
	var p killPoint
	require.NoError(t, json.Unmarshal([]byte(os.Getenv(killedPoint)), &p))
	calls := 0
	rule := blobstore.Fault{Op: p.Op, Delay: 1, Name: func(name string) bool {
		if !strings.HasSuffix(name, p.Suffix) {
			return false
		}
		if calls++; calls != p.Nth {
			return false
		}
		fmt.Println("there")
		return true
	}}
	if p.Wait {
		rule.Delay = time.Hour
	}
	pool := blobstore.NewPool(nil, blobstore.NewFaults(rule).Wrap)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return &fixture{t, pool, parse(t, "file://"+dir)}
}

// killRandom are the random numbers of a test that kills.
func killRandom(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
