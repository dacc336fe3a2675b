// Stateutil looks into the checkpoints and savepoints of Apache Flink, wherever
// they lie: see docs/commands.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/cli"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
)

func main() { os.Exit(int(run())) }

func run() exit.Code {
	// A crash of the runtime, which no recover sees, prints its one line and no
	// goroutine traces; GOTRACEBACK asks for them.
	debug.SetTraceback("none")

	// The tool runs beside jobs: half the garbage for a fifth more CPU time in the
	// collector is the better bargain (ls over 1,000,000 files: 59 MiB instead of
	// 94). GOGC overrides it.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		// A store that does not notice the end of its context must not keep the
		// user: the second signal, or most of a second, ends the process as it is.
		select {
		case <-signals:
		case <-time.After(patience):
		}
		os.Stderr.WriteString("stateutil: interrupted\n")
		os.Exit(int(exit.Interrupted))
	}()
	return cli.Run(ctx, os.Args[1:], cli.OSEnv())
}

const patience = 800 * time.Millisecond

var errInterrupted = errors.New("interrupted")
