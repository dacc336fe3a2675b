//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

// childEnv has the JSON of a child. The test's own binary is then a process that
// runs the example's job and nothing else.
const childEnv = "TIDEMARK_FILECOPY"

func TestMain(m *testing.M) {
	if s := os.Getenv(childEnv); s != "" {
		os.Exit(runChild(s))
	}
	os.Exit(m.Run())
}

// child is one run of the job, by a process of its own.
type child struct {
	From, To, Dir, Databases, Phases string

	Job            string
	Parallelism    int
	PauseMillis    int
	IntervalMillis int
	Retained       int
	Local          bool // local recovery
	Unaligned      bool
	Restore        string // "": from the job's own checkpoints
	RestoreMode    incremental.RestoreMode
	Log            string // file; "" is none
}

// Exit codes of a child.
const (
	childFinished = 0
	childFailed   = 1
	childCanceled = 5
)

func runChild(s string) int {
	var c child
	if err := json.Unmarshal([]byte(s), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return childFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := c.run(ctx)
	switch {
	case err == nil:
		return childFinished
	case ctx.Err() != nil:
		return childCanceled
	}
	fmt.Fprintln(os.Stderr, err)
	return childFailed
}

func (c *child) run(ctx context.Context) error {
	p, err := openPhases(c.Phases)
	if err != nil {
		return err
	}
	leave := p.enter(phaseTakeOver)
	example := config{from: c.From, to: c.To, dir: c.Dir, job: c.Job, parallelism: c.Parallelism, pause: time.Duration(c.PauseMillis) * time.Millisecond,
		number: true, retained: c.Retained, state: task.StateOptions{Dir: c.Databases, LocalRecovery: c.Local}}
	if c.Log != "" {
		f, err := os.OpenFile(c.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		example.log = slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})).With("pid", os.Getpid())
	}
	o := example.options()
	o.Pool = blobstore.NewPool(nil, p.watch)
	o.Interval = time.Duration(c.IntervalMillis) * time.Millisecond
	o.Restore, o.RestoreMode = c.Restore, c.RestoreMode
	if c.Unaligned {
		o.Mode = runtime.Unaligned
	}
	restored := p.enter(phaseRestore)
	var closed atomic.Int32
	once := sync.OnceFunc(restored)
	opened := func() {
		if int(closed.Add(1)) == c.Parallelism {
			once()
		}
	}
	sink := stream.Lines(c.To)
	sink.NoSync = true // the process is killed, not the computer
	e, err := runtime.Start(ctx, example.pipeline(watchedSink{sink, p}, func() stream.KeyedFunction[string, string, string] {
		return &watchedNumber{phases: p, opened: opened}
	}), o)
	leave()
	if err != nil {
		return err
	}
	return e.Wait()
}
