package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// Status of a job, by Flink's names.
type Status string

// Statuses.
const (
	Created    Status = "CREATED"
	Running    Status = "RUNNING"
	Restarting Status = "RESTARTING"
	Canceling  Status = "CANCELLING"
	Failing    Status = "FAILING"
	Finished   Status = "FINISHED"
	Canceled   Status = "CANCELED"
	Failed     Status = "FAILED"
)

// Ended says that the job is over.
func (s Status) Ended() bool { return s == Finished || s == Canceled || s == Failed }

// Execution is a job that runs: Flink's JobMaster. Its methods may be called from
// any goroutine.
type Execution struct {
	opts     Options
	root     blobstore.Location // of checkpoints
	plan     *plan
	channels *channel.Pool
	inbox    *inbox
	done     chan struct{}
	result   error // after done

	statusMu sync.Mutex
	status   Status
	restarts int

	writersMu sync.Mutex
	writers   map[int64]*snapshot.Writer

	// What follows belongs to the job's goroutine.
	core             *checkpoint.Core
	files            *incremental.Cleaner
	actions          []checkpoint.Action
	handling         bool
	pendingEv        []checkpoint.Event
	timers           map[timerKey]*time.Timer
	requests         map[int64]*request
	nextRequest      int64
	restored         *task.Restored
	finishedVertices []bool
	started          bool // periodic checkpoints
	attempt          int32
	run              *run
	failure          error
	restoreKnown     bool
	delayOver        bool
	coreEnded        bool
	background       sync.WaitGroup
	workers          context.Context // of I/O for checkpoints
	stopWorkers      context.CancelFunc
}

type timerKey struct {
	timer checkpoint.Timer
	id    int64
}

// request is a checkpoint or savepoint that somebody waits for.
type request struct {
	done chan struct{}
	id   int64
	path string
	err  error
}

// run is one attempt of the whole job.
type run struct {
	tasks        map[event.Task]*running
	left         int // tasks that have not ended
	cancel       context.CancelCauseFunc
	ends         []*ends
	coordinators map[metadata.OperatorID]stream.Coordinator
	order        []metadata.OperatorID
	ended        map[event.Task]bool // of data
	cancelled    time.Time
	watchdog     *time.Timer
}

type running struct {
	t        *task.Task
	name     string
	finished bool
}

// Run runs a job until it has finished, failed for good or ctx ends, whose cause it
// returns then.
func Run(ctx context.Context, j *stream.Job, opts *Options) error {
	e, err := Start(ctx, j, opts)
	if err != nil {
		return err
	}
	return e.Wait()
}

// Start begins a job. It is cancelled when ctx ends. The error is that of the job's
// graph, of the options or of the snapshot to start from.
func Start(ctx context.Context, j *stream.Job, opts *Options) (*Execution, error) {
	e := &Execution{inbox: newInbox(), done: make(chan struct{}), status: Created, writers: map[int64]*snapshot.Writer{},
		timers: map[timerKey]*time.Timer{}, requests: map[int64]*request{}}
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.fill(); err != nil {
		return nil, err
	}
	var err error
	if e.plan, err = newPlan(j); err != nil {
		return nil, err
	}
	if e.opts.Checkpoints != "" {
		if e.root, err = blobstore.Parse(e.opts.Checkpoints); err != nil {
			return nil, fmt.Errorf("folder of checkpoints: %w", err)
		}
	}
	e.channels = channel.NewPool(&channel.PoolOptions{Limit: e.opts.ChannelMemory})
	start := checkpoint.Start{}
	reg := incremental.NewRegistry()
	if e.opts.Restore != "" {
		if err := e.restoreFrom(ctx, e.opts.Restore); err != nil {
			return nil, err
		}
		c := checkpoint.Completed{ID: e.restored.ID, Path: e.restored.Snapshot.Location.String(), Mode: checkpoint.OwnershipOf(e.opts.RestoreMode)}
		start.NextID = e.restored.ID + 1
		start.Retained = []checkpoint.Completed{c}
		if err := registerRestored(reg, e.restored.Snapshot, e.opts.RestoreMode); err != nil {
			return nil, err
		}
	}
	co, err := e.opts.core()
	if err != nil {
		return nil, err
	}
	e.files = incremental.NewCleaner(reg, e.opts.Pool, nil)
	if e.core, err = checkpoint.NewCore(e.plan.graph(), e.files, co, start); err != nil {
		return nil, err
	}
	e.workers, e.stopWorkers = context.WithCancel(context.WithoutCancel(ctx))
	go e.loop(ctx)
	return e, nil
}

// loop is the job's goroutine.
func (e *Execution) loop(ctx context.Context) {
	defer close(e.done)
	cleaning := make(chan struct{})
	go func() {
		defer close(cleaning)
		_ = e.files.Run(e.workers)
	}()
	stop := context.AfterFunc(ctx, func() { e.inbox.put(func() { e.cancelled(context.Cause(ctx)) }) })
	defer stop()
	e.inbox.put(e.deploy)
	for !e.over() {
		<-e.inbox.wake
		for _, f := range e.inbox.take() {
			f()
		}
	}
	e.inbox.close()
	for _, t := range e.timers {
		t.Stop()
	}
	for _, r := range e.requests {
		r.err = fmt.Errorf("the job is %s", e.Status())
		close(r.done)
	}
	e.background.Wait()
	// What subsumed checkpoints leave is deleted before the job is over.
	if _, err := e.files.Clean(e.workers); err != nil {
		e.opts.Log.Warn("files of old checkpoints are left", "error", err)
	}
	e.stopWorkers()
	<-cleaning
}

// over says that nothing is under way any more.
func (e *Execution) over() bool { return e.Status().Ended() && e.coreEnded && e.run == nil }

// Wait waits until the job has ended: nil if it finished.
func (e *Execution) Wait() error {
	<-e.done
	return e.result
}

// Done is closed when the job has ended.
func (e *Execution) Done() <-chan struct{} { return e.done }

// Status is the job's.
func (e *Execution) Status() Status {
	e.statusMu.Lock()
	defer e.statusMu.Unlock()
	return e.status
}

// Restarts is how often the job was restarted.
func (e *Execution) Restarts() int {
	e.statusMu.Lock()
	defer e.statusMu.Unlock()
	return e.restarts
}

// JobID names the job's folder of checkpoints.
func (e *Execution) JobID() string { return e.opts.JobID }

func (e *Execution) setStatus(s Status) {
	e.statusMu.Lock()
	was := e.status
	e.status = s
	e.statusMu.Unlock()
	if was != s {
		e.opts.Log.Info("job", "name", e.plan.job.Name, "status", s)
	}
}

// Checkpoint takes a checkpoint, or savepoint, now and waits for it. It gives the
// URL of its metadata.
func (e *Execution) Checkpoint(ctx context.Context, t event.SnapshotType, target string) (string, error) {
	return e.take(ctx, checkpoint.Request{Type: t, Target: target})
}

// Stop ends the job with a savepoint in a folder below target: with drain as if the
// input had ended, so that windows and timers fire, otherwise so that it can go on
// where it was. It gives the URL of the savepoint's metadata, once the job has ended.
func (e *Execution) Stop(ctx context.Context, t event.SnapshotType, target string, drain bool) (string, error) {
	r := checkpoint.Request{Type: t, Target: target, Post: event.Suspend}
	if drain {
		r.Post = event.Terminate
	}
	path, err := e.take(ctx, r)
	if err != nil {
		return "", err
	}
	select {
	case <-e.done:
		return path, e.result
	case <-ctx.Done():
		return path, context.Cause(ctx)
	}
}

func (e *Execution) take(ctx context.Context, r checkpoint.Request) (string, error) {
	if e.opts.Checkpoints == "" && r.Target == "" {
		return "", errors.New("the job has no folder for checkpoints")
	}
	q := &request{done: make(chan struct{})}
	e.inbox.put(func() {
		e.nextRequest++
		r.Number = e.nextRequest
		e.requests[r.Number] = q
		e.handle(checkpoint.Event{Kind: checkpoint.EvTrigger, Request: &r})
	})
	select {
	case <-q.done:
		return q.path, q.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-e.done:
		select {
		case <-q.done:
			return q.path, q.err
		default:
			return "", fmt.Errorf("the job is %s", e.Status())
		}
	}
}

// History of the job's checkpoints.
func (e *Execution) History() *checkpoint.History { return e.core.History() }
