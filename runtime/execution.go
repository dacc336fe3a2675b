package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
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
	plan     *plan
	channels *channel.Pool
	inbox    *inbox
	done     chan struct{}
	result   error // after done

	coordinator *checkpoint.Coordinator

	mu       sync.Mutex
	status   Status
	restarts int
	current  map[event.Task]*task.Task // that run, for the coordinator

	// What follows belongs to the job's goroutine.
	restored     *checkpoint.RestoredState
	state        *task.Restored
	from         *checkpoint.Completed // what the next attempt starts from
	attempt      int32
	run          *run
	restoreKnown bool
	delayOver    bool
	shutDown     bool // the coordinator has ended
	ownDir       bool // State.Dir was made by openLocal
	ownProcess   bool // likewise State.LSM
	background   sync.WaitGroup
}

// run is one attempt of the whole job.
type run struct {
	tasks     map[event.Task]*running
	left      int // tasks that have not ended
	ready     int // tasks that run
	ctx       context.Context
	cancel    context.CancelCauseFunc
	links     channel.Links
	ends      []*ends
	dataEnds  map[event.Task]bool
	cancelled bool
	watchdog  *time.Timer
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
	e := &Execution{inbox: newInbox(), done: make(chan struct{}), status: Created, current: map[event.Task]*task.Task{}}
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
	e.opts.State.NoClaim = e.opts.RestoreMode == incremental.NoClaim
	e.channels = channel.NewPool(&channel.PoolOptions{BufferSize: e.opts.BufferSize, Limit: e.opts.ChannelMemory})
	if e.coordinator, err = e.newCoordinator(ctx); err != nil {
		return nil, err
	}
	e.background.Go(func() { _ = e.coordinator.Run(context.WithoutCancel(ctx)) })
	if e.from, err = e.coordinator.Latest(ctx); err != nil {
		_ = e.coordinator.Shutdown(context.WithoutCancel(ctx), checkpoint.JobSuspended, nil)
		e.background.Wait()
		return nil, err
	}
	if err := e.openLocal(); err != nil {
		_ = e.coordinator.Shutdown(context.WithoutCancel(ctx), checkpoint.JobSuspended, nil)
		e.background.Wait()
		return nil, err
	}
	go e.loop(ctx)
	return e, nil
}

// openLocal makes what backends on disk and local copies need and nobody has given.
func (e *Execution) openLocal() error {
	o := &e.opts.State
	if o.Log == nil {
		o.Log = e.opts.Log
	}
	if o.Backend != task.BackendLSM && !o.LocalRecovery {
		return nil
	}
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "tidemark-")
		if err != nil {
			return fmt.Errorf("folder of state: %w", err)
		}
		o.Dir, e.ownDir = dir, true
	}
	if o.Backend == task.BackendLSM && o.LSM == nil && e.opts.ManagedMemory > 0 {
		o.LSM = lsm.NewProcess(&lsm.ProcessOptions{MemoryBytes: e.opts.ManagedMemory})
		e.ownProcess = true
	}
	return nil
}

// newCoordinator makes the checkpoint coordinator, also for a job without
// checkpoints: the coordinators of its operators are there.
func (e *Execution) newCoordinator(ctx context.Context) (*checkpoint.Coordinator, error) {
	o, err := e.opts.core()
	if err != nil {
		return nil, err
	}
	c := checkpoint.Config{Job: e.opts.JobID, Graph: e.plan.graph(), Options: o, Pool: e.opts.Pool, Store: e.opts.Store, Tasks: (*owner)(e), Masters: e.opts.Masters,
		NewCoordinator: e.plan.coordinator, Logger: e.opts.Log, Observer: e.opts.Observer, Writer: e.opts.Writer, Cleaner: e.opts.Cleaner,
		Restore: checkpoint.RestoreSettings{Path: e.opts.Restore, Mode: e.opts.RestoreMode, AllowNonRestored: e.opts.AllowNonRestored}}
	folder := e.opts.Checkpoints
	if folder == "" {
		folder = "mem://none/checkpoints" // nothing is written there
	}
	if c.Checkpoints, err = blobstore.Parse(folder); err != nil {
		return nil, fmt.Errorf("folder of checkpoints: %w", err)
	}
	if e.opts.Durable {
		store, name, err := e.opts.Pool.Resolve(ctx, c.Checkpoints.Join(e.opts.JobID).Join("checkpoints-log"))
		if err != nil {
			return nil, err
		}
		if c.Store, err = checkpoint.NewLogStore(store, name, nil); err != nil {
			return nil, err
		}
	}
	if e.opts.Savepoints != "" {
		if c.Savepoints, err = blobstore.Parse(e.opts.Savepoints); err != nil {
			return nil, fmt.Errorf("folder of savepoints: %w", err)
		}
	}
	return checkpoint.New(ctx, c)
}

// loop is the job's goroutine.
func (e *Execution) loop(ctx context.Context) {
	defer close(e.done)
	stop := context.AfterFunc(ctx, func() { e.inbox.put(func() { e.cancelled(context.Cause(ctx)) }) })
	defer stop()
	if e.coordinator.Result().Ended() {
		e.inbox.put(e.endedBefore)
	} else {
		e.inbox.put(e.deploy)
	}
	for !e.over() {
		<-e.inbox.wake
		for _, f := range e.inbox.take() {
			f()
		}
	}
	e.inbox.close()
	e.background.Wait()
	e.removeLocal()
}

// removeLocal removes the folders that backends on disk have left for a restart,
// and what openLocal has made. Tasks that do not end keep theirs.
func (e *Execution) removeLocal() {
	var stuck *CancelError
	if e.opts.State.Dir == "" || errors.As(e.result, &stuck) {
		return
	}
	for _, n := range e.plan.job.Nodes {
		if err := os.RemoveAll(filepath.Join(e.opts.State.Dir, n.ID.String())); err != nil {
			e.opts.Log.Warn("a folder of state is left", "error", err)
		}
	}
	if e.ownDir {
		if err := os.Remove(e.opts.State.Dir); err != nil {
			e.opts.Log.Warn("a folder of state is left", "error", err)
		}
	}
	if e.ownProcess {
		e.opts.State.LSM.Close()
	}
}

// over says that nothing is under way any more.
func (e *Execution) over() bool { return e.Status().Ended() && e.shutDown && e.run == nil }

var jobStatuses = map[Status]checkpoint.JobStatus{Finished: checkpoint.JobFinished, Canceled: checkpoint.JobCanceled, Failed: checkpoint.JobFailed}

// ErrEnded says that the job had ended before it was started, not by finishing, and
// that its checkpoints were discarded.
var ErrEnded = errors.New("the job has ended and does not begin anew")

// endedBefore ends a job whose store has its result: what the process that wrote it
// did not come to clean up is cleaned up.
func (e *Execution) endedBefore() {
	r := e.coordinator.Result()
	for s, how := range jobStatuses {
		if how != r.Status {
			continue
		}
		if s != Finished {
			e.result = fmt.Errorf("job %s: %w: it was %s: %s", e.plan.job.Name, ErrEnded, s, r.Error)
		}
		e.opts.Log.Info("the job had ended before", "status", s, "clean", r.Clean)
		e.end(s)
	}
}

// end tells the coordinator how the job ended, and waits for it.
func (e *Execution) end(s Status) {
	e.setStatus(s)
	how, cause := jobStatuses[s], e.result
	e.background.Go(func() {
		err := e.coordinator.Shutdown(context.Background(), how, cause)
		e.inbox.put(func() {
			if err != nil {
				e.opts.Log.Error("the job's end", "error", err)
				e.result = errors.Join(e.result, err)
			}
			e.shutDown = true
		})
	})
}

// Wait waits until the job has ended: nil if it finished.
func (e *Execution) Wait() error {
	<-e.done
	return e.result
}

// Done is closed when the job has ended.
func (e *Execution) Done() <-chan struct{} { return e.done }

// Status is the job's.
func (e *Execution) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status
}

// Restarts is how often the job was restarted.
func (e *Execution) Restarts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restarts
}

// Name is the job's.
func (e *Execution) Name() string { return e.plan.job.Name }

// JobID names the job's folder of checkpoints.
func (e *Execution) JobID() string { return e.opts.JobID }

func (e *Execution) setStatus(s Status) {
	e.mu.Lock()
	was := e.status
	e.status = s
	e.mu.Unlock()
	if was != s {
		e.opts.Log.Info("job", "name", e.plan.job.Name, "status", s)
	}
}

// Checkpoint takes a checkpoint, or a savepoint in a new folder below target, now and
// waits for it. Path is the URL of its metadata.
func (e *Execution) Checkpoint(ctx context.Context, t event.SnapshotType, target string) (checkpoint.Result, error) {
	if e.opts.Checkpoints == "" && !t.IsSavepoint() {
		return checkpoint.Result{}, errors.New("the job has no folder for checkpoints")
	}
	return e.coordinator.Trigger(ctx, t, event.None, target)
}

// Stop ends the job with a savepoint in a new folder below target: with drain as if
// the input had ended, so that windows and timers fire, otherwise so that it can go on
// where it was. It waits for the job's end.
func (e *Execution) Stop(ctx context.Context, t event.SnapshotType, target string, drain bool) (checkpoint.Result, error) {
	post := event.Suspend
	if drain && e.opts.Checkpoints == "" {
		return checkpoint.Result{}, errors.New("the job has no folder for checkpoints: its tasks would end before the savepoint")
	}
	if drain {
		post = event.Terminate
	}
	r, err := e.coordinator.Trigger(ctx, t, post, target)
	if err != nil {
		return r, err
	}
	select {
	case <-e.done:
		return r, e.result
	case <-ctx.Done():
		return r, context.Cause(ctx)
	}
}

// History of the job's checkpoints, a copy; also after its end.
func (e *Execution) History(ctx context.Context) (*checkpoint.History, error) {
	return e.coordinator.History(ctx)
}
