package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"stateutil": main})
}

// TestScripts runs stateutil as a process. Beyond testscript's own commands:
//
//	code N CMD…         run CMD; its exit code must be N, and if it is not 0 and
//	                    not 3 stderr must be exactly one line "stateutil: …"
//	unprivileged N CMD… the same as a user who may read only what others may
//	sparse FILE SIZE    make FILE of SIZE bytes, all zero, taking no room
//	bytes FILE HEX…     make FILE of these bytes
//	patch FILE OFF HEX  overwrite bytes of FILE
//	cutat FILE N        keep the first N bytes of FILE
//	replace FILE A B    overwrite the one place where A stands by B of the same length
//	expand FILE         replace $VAR in FILE by the values of the environment
//	hangs VAR           listen on a port that accepts and never answers; VAR is its address
//	within TIME CMD…    CMD must end in TIME
//
// $GOLDENS is the folder of the committed goldens.
func TestScripts(t *testing.T) {
	goldens := filepath.Join(testdata.Repo(t), "testdata", "goldens")
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GOLDENS", goldens)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":         code,
			"unprivileged": unprivileged,
			"sparse":       sparse,
			"bytes":        makeBytes,
			"patch":        patch,
			"cutat":        cutAt,
			"replace":      replace,
			"expand":       expand,
			"hangs":        hangs,
			"within":       within,
			"copydir":      copyDir,
		},
	})
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	requireCode(ts, want, err)
}

func requireCode(ts *testscript.TestScript, want int, err error) {
	got := 0
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		got = ended.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
	if got == 0 || got == 3 && ts.ReadFile("stderr") == "" {
		return
	}
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "stateutil: ") {
		ts.Fatalf("stderr is not one line of stateutil:\n%s", text)
	}
}

// unprivileged drops to nobody if the tests run as root, for whom no file is
// closed. The work folder and the program are opened for others first.
func unprivileged(ts *testscript.TestScript, neg bool, args []string) {
	if os.Geteuid() != 0 {
		code(ts, neg, args)
		return
	}
	program, err := exec.LookPath("setpriv")
	if err != nil {
		ts.Fatalf("runs as root and there is no setpriv")
	}
	for dir := ts.MkAbs("."); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		ts.Check(os.Chmod(dir, 0o755))
	}
	// The program lies in a folder for root alone: run a copy.
	self, err := os.Executable()
	ts.Check(err)
	b, err := os.ReadFile(self)
	ts.Check(err)
	copied := ts.MkAbs("unprivileged-bin/" + args[1])
	ts.Check(os.MkdirAll(filepath.Dir(copied), 0o755))
	ts.Check(os.WriteFile(copied, b, 0o755))
	args = append([]string{args[0], program, "--reuid=65534", "--regid=65534", "--clear-groups", copied}, args[2:]...)
	code(ts, neg, args)
}

func sparse(ts *testscript.TestScript, _ bool, args []string) {
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(f.Truncate(size))
	ts.Check(f.Close())
}

func unhex(ts *testscript.TestScript, args []string) []byte {
	b, err := hex.DecodeString(strings.Join(args, ""))
	ts.Check(err)
	return b
}

func makeBytes(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), unhex(ts, args[1:]), 0o666))
}

func patch(ts *testscript.TestScript, _ bool, args []string) {
	off, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	_, err = f.WriteAt(unhex(ts, args[2:]), off)
	ts.Check(err)
	ts.Check(f.Close())
}

func replace(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	b, err := os.ReadFile(name)
	ts.Check(err)
	if n := bytes.Count(b, []byte(args[1])); n != 1 || len(args[1]) != len(args[2]) {
		ts.Fatalf("%q stands there %d times, %d bytes for %d", args[1], n, len(args[2]), len(args[1]))
	}
	ts.Check(os.WriteFile(name, bytes.Replace(b, []byte(args[1]), []byte(args[2]), 1), 0o666))
}

func expand(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(name, []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o666))
}

func cutAt(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

func copyDir(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
}

func hangs(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ts.Defer(func() { c.Close() })
		}
	}()
	ts.Setenv(args[0], l.Addr().String())
}

func within(ts *testscript.TestScript, neg bool, args []string) {
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	began := time.Now()
	switch args[1] {
	case "code":
		code(ts, neg, args[2:])
	default:
		ts.Check(ts.Exec(args[1], args[2:]...))
	}
	if took := time.Since(began); took > limit {
		ts.Fatalf("took %s, want at most %s", took, limit)
	}
}

// TestInterrupt holds that one signal ends a command that waits for a store that
// never answers, and that a second signal does as well.
func TestInterrupt(t *testing.T) {
	require.Contains(t, blobstore.Schemes(), "s3", "the driver is linked")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	connected := make(chan struct{}, 16)
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
			connected <- struct{}{}
		}
	}()
	for name, signals := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			exe, err := os.Executable()
			require.NoError(t, err)
			dir := t.TempDir()
			link := filepath.Join(dir, "stateutil")
			require.NoError(t, os.Symlink(exe, link))
			cmd := exec.Command(link, "ls", fmt.Sprintf("s3://bucket/x?endpoint=http://%s&region=us-east-1&use_path_style=true", l.Addr()))
			cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=secretsecret", "HOME="+dir)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			require.NoError(t, cmd.Start())
			select {
			case <-connected:
			case <-time.After(time.Minute):
				cmd.Process.Kill()
				cmd.Wait()
				t.Fatalf("never connected: %s", errs.String())
			}
			began := time.Now()
			for range signals {
				require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
				time.Sleep(20 * time.Millisecond)
			}
			var ended *exec.ExitError
			require.ErrorAs(t, cmd.Wait(), &ended)
			require.Equal(t, 130, ended.ExitCode())
			// The store's own limits are far longer; a busy machine is not held against it.
			require.Less(t, time.Since(began), 10*time.Second)
			require.Equal(t, "stateutil: interrupted\n", errs.String())
		})
	}
}
