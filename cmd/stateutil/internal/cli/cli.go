// Package cli is stateutil's commands: flags, terminal and exit codes around
// the library packages. It has no format knowledge of its own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
)

// Env is all that a run takes from the process around it, so that tests run
// commands in-process.
type Env struct {
	Out     io.Writer
	Err     io.Writer
	Environ []string // as os.Environ gives it
	// Now is the clock that ages are counted from.
	Now func() time.Time
}

// OSEnv is the environment of this process.
func OSEnv() Env {
	return Env{Out: os.Stdout, Err: os.Stderr, Environ: os.Environ(), Now: time.Now}
}

// Run executes one command line (without the program's name) and returns the
// exit code. Whatever goes wrong is one line on env.Err, a panic included.
func Run(ctx context.Context, args []string, env Env) (code exit.Code) {
	g := &global{env: env}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		code = exit.Failed
		g.complain(fmt.Sprintf("internal error: %v: please report it with the command line and what stateutil --version prints", p))
		if g.debugging() {
			fmt.Fprintf(env.Err, "%s", debug.Stack())
		}
	}()
	root := newRoot(g)
	root.SetArgs(args)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	_, err := root.ExecuteContextC(ctx)
	if cerr := g.close(); err == nil && cerr != nil {
		err = cerr
	}
	if ctx.Err() != nil && err != nil {
		// Whatever a store made of the cancellation, the user knows why.
		g.complain("interrupted")
		return exit.Interrupted
	}
	if err == nil {
		return exit.Done
	}
	var silent *exit.Silent
	if !errors.As(err, &silent) {
		g.complain(err.Error())
	}
	return exit.Of(err)
}

// complain prints the one line that says what is wrong.
func (g *global) complain(s string) {
	fmt.Fprintf(g.env.Err, "stateutil: %s\n", terminal.OneLine(g.redact(s)))
}

// note prints something worth knowing that is not an error, unless --quiet.
func (g *global) note(format string, args ...any) {
	if !g.quiet {
		g.complain(fmt.Sprintf(format, args...))
	}
}

func usage(format string, args ...any) error {
	return exit.With(exit.Usage, fmt.Errorf(format, args...))
}

// unreadable is an error of a file that a flag names: a name under which nothing, or no
// file, is to be found is bad usage, and what a disk or its owner refuses is not.
func unreadable(flag string, err error) error {
	err = fmt.Errorf("%s: %w", flag, err)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return exit.With(exit.AccessDenied, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return exit.With(exit.Usage, err)
	}
	return exit.With(exit.Failed, err)
}

// unwritable is an error of the file of -o: it says nothing of the snapshot.
func unwritable(err error) error {
	code := exit.Failed
	if errors.Is(err, fs.ErrPermission) {
		code = exit.AccessDenied
	}
	return exit.With(code, fmt.Errorf("-o: %w", err))
}

func (g *global) getenv(name string) string {
	for _, kv := range g.env.Environ {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// atMost and exactly check the number of arguments; what is wrong is bad usage.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if len(a) > n {
			return usage("%s takes at most %d %s, got %d: see stateutil %s --help", cmd.Name(), n, what, len(a), cmd.Name())
		}
		return nil
	}
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, a []string) error {
		if len(a) != n {
			return usage("%s takes %d %s, got %d: see stateutil %s --help", cmd.Name(), n, what, len(a), cmd.Name())
		}
		return nil
	}
}
