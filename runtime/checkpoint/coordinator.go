package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// Tasks is the job as the Coordinator drives it. Its methods are called by the
// coordinator's goroutine, in order; they must not block and not wait for a method
// of the Coordinator.
type Tasks interface {
	Trigger(t event.Task, b event.Barrier)
	NotifyComplete(t event.Task, id int64)
	NotifyAborted(t event.Task, id int64)
	OperatorEvent(t event.Task, op metadata.OperatorID, data []byte)
	// Fail fails the job. fatal says that this coordinator must not go on: another
	// one has taken over, or has to find out what is stored.
	Fail(err error, fatal bool)
}

// MasterHook keeps state of something outside the job with the checkpoints: Flink's
// MasterTriggerRestoreHook. Calls of one hook do not overlap.
type MasterHook interface {
	// Name identifies the hook's state over restores.
	Name() string
	Version() int32
	// Trigger takes the state; nil is none. ctx ends with the hooks' timeout.
	Trigger(ctx context.Context, id, timestampMillis int64) ([]byte, error)
	// Restore gives it back. It is not called for a snapshot without state of the hook.
	Restore(ctx context.Context, id int64, version int32, state []byte) error
	// Complete says that a checkpoint is complete. It may come late or never.
	Complete(id int64)
}

// Observer is told what becomes of checkpoints: the seam for metrics and traces. A
// Stats has the time of each phase, so that spans can be made of it afterwards. It
// is called by the coordinator's goroutine and must not keep the Stats.
type Observer interface {
	CheckpointCompleted(s *Stats)
	CheckpointFailed(s *Stats)
}

// Config of a Coordinator. Graph, Pool, Checkpoints and Tasks are needed.
type Config struct {
	Job   string // job ID, 32 hex digits; empty for a random one
	Graph Graph
	Options
	Pool *blobstore.Pool
	// Checkpoints is the folder below which the job's own is; Savepoints where
	// savepoints go that are given no other place.
	Checkpoints blobstore.Location
	Savepoints  blobstore.Location
	// Store of completed checkpoints; nil is a new MemoryStore.
	Store   Store
	Tasks   Tasks
	Masters []MasterHook
	// NewCoordinator makes the coordinator of an operator that has one.
	NewCoordinator func(op metadata.OperatorID, ctx CoordinatorContext) (OperatorCoordinator, error)
	Restore        RestoreSettings
	Writer         *snapshot.WriterOptions
	Cleaner        *incremental.CleanerOptions
	Logger         *slog.Logger // nil is slog.Default
	Observer       Observer
}

// Coordinator is the shell around a Core: one goroutine that feeds it, the real
// clock and the real stores. Flink's CheckpointCoordinator. Its methods may be
// called from any goroutine.
type Coordinator struct {
	cfg     Config
	log     *slog.Logger
	core    *Core
	cleaner *incremental.Cleaner
	base    time.Time

	mu     sync.Mutex
	inbox  []func()
	wake   chan struct{}
	closed bool

	// The goroutine's.
	timers    map[timerKey]*time.Timer
	waiting   map[*Request]chan Result
	restoring []chan *Completed
	runners   map[metadata.OperatorID]*runner
	ended     chan struct{}
	actions   []Action
	emptied   []blobstore.Location // folders of aborted checkpoints
	litter    *litter              // nil: none is known
	looked    bool                 // for litter

	finished bool  // so ended the job
	endErr   error // what the end did not come to; for others once ended is closed

	found JobResult // in the store

	// Since New.
	succeeds bool // former coordinators of the store have begun checkpoints
	foreign  bool // the job's folder has checkpoints that are not the store's

	writersMu sync.Mutex
	writers   map[int64]*snapshot.Writer

	contentMu sync.Mutex
	content   Content

	ctx    context.Context // of I/O; ends with Run
	cancel context.CancelCauseFunc
	io     sync.WaitGroup
	number int64
}

type timerKey struct {
	timer Timer
	id    int64
}

// Result is a checkpoint that was asked for.
type Result struct {
	ID   int64
	Path string // of the metadata object

	failure *Failure
}

// Failure is the error of a checkpoint that was asked for.
type Failure struct {
	Reason event.Reason
	Err    error
}

func (f *Failure) Error() string {
	if f.Err == nil {
		return f.Reason.String() + ": " + f.Reason.Text()
	}
	return fmt.Sprintf("%s: %v", f.Reason, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// errStopped is what calls get after the coordinator has ended.
var errStopped = errors.New("the checkpoint coordinator has ended")

// New takes the store of completed checkpoints over, reads what it retains, and
// makes a Coordinator that begins there. A retained checkpoint that cannot be read
// is an error: see RestoreSettings.
func New(ctx context.Context, cfg Config) (*Coordinator, error) {
	if cfg.Job == "" {
		cfg.Job = snapshot.NewJobID()
	}
	if cfg.Store == nil {
		cfg.Store = &MemoryStore{}
	}
	c := &Coordinator{cfg: cfg, log: cfg.Logger, base: time.Now(), wake: make(chan struct{}, 1), timers: map[timerKey]*time.Timer{}, waiting: map[*Request]chan Result{},
		runners: map[metadata.OperatorID]*runner{}, ended: make(chan struct{}), writers: map[int64]*snapshot.Writer{}}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.log = c.log.With("job", cfg.Job)
	if _, err := snapshot.CheckpointLayout(cfg.Checkpoints, cfg.Job, 0); err != nil {
		return nil, err
	}
	if v := cfg.FormatVersion; v > 0 && v < 4 && cfg.Writer != nil && cfg.Writer.Merge != nil {
		return nil, fmt.Errorf("checkpoints with merged files need metadata version 4, not %d: no Flink that writes that version knows segments", v)
	}
	opts := incremental.CleanerOptions{}
	if cfg.Cleaner != nil {
		opts = *cfg.Cleaner
	}
	if opts.Failed == nil {
		opts.Failed = func(d incremental.Deletion, err error) {
			c.log.Warn("a file that nobody needs is not deleted yet", "file", d.Location.String(), "err", err)
		}
	}
	if _, volatile := cfg.Store.(*MemoryStore); !volatile && opts.Journal == nil {
		store, name, err := cfg.Pool.Resolve(ctx, c.folder())
		if err != nil {
			return nil, err
		}
		opts.Journal, opts.JournalDir, opts.Journaled = store, path.Join(name, "registry"), c.journalOf
	}
	c.cleaner = incremental.NewCleaner(incremental.NewRegistry(c.folder()), cfg.Pool, &opts)
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := c.recover(ctx); err != nil {
		c.cancel(err)
		return nil, err
	}
	names := make([]string, len(cfg.Masters))
	for i, h := range cfg.Masters {
		names[i] = h.Name()
	}
	c.cfg.Options.Hooks = names
	core, err := NewCore(cfg.Graph, c.cleaner, c.cfg.Options, Start{NextID: c.content.NextID, Retained: c.content.Retained})
	if err != nil {
		c.cancel(err)
		return nil, err
	}
	c.core = core
	for _, op := range core.g.coordinators {
		r := &runner{c: c, op: op, parallelism: core.g.Vertices[core.g.operators[op].vertex].Parallelism, wake: make(chan struct{}, 1)}
		if cfg.NewCoordinator == nil {
			err = errors.New("the job gives none")
		} else {
			r.of, err = cfg.NewCoordinator(op, r)
		}
		if err != nil {
			c.cancel(err)
			return nil, fmt.Errorf("coordinator of operator %s: %w", core.g.operatorName(op), err)
		}
		c.runners[op] = r
	}
	return c, nil
}

// Job is the job's ID.
func (c *Coordinator) Job() string { return c.cfg.Job }

// Cleaner deletes what no checkpoint needs.
func (c *Coordinator) Cleaner() *incremental.Cleaner { return c.cleaner }

// Run is the coordinator's goroutine: it returns when Shutdown is done, or when ctx
// ends, which is what the death of a coordinator is: everything stays as it is.
func (c *Coordinator) Run(ctx context.Context) error {
	var background sync.WaitGroup
	cleanCtx, stopClean := context.WithCancel(c.ctx)
	background.Go(func() { c.cleaner.Run(cleanCtx) })
	for _, r := range c.runners {
		background.Go(func() { r.run(c.ctx) })
	}
	var found <-chan *litter // nil: is not looked for
	if c.succeeds && !c.foreign {
		var look func()
		found, look = c.lookForLitter(cleanCtx)
		background.Go(look)
	}
	err := c.loop(ctx)
	c.mu.Lock()
	c.closed = true
	left := c.inbox
	c.inbox = nil
	c.mu.Unlock()
	_ = left // their callers wait for ended as well
	for _, t := range c.timers {
		t.Stop()
	}
	if err == nil {
		// What is to be deleted at the end of the job is deleted now; before stopClean,
		// since a deletion that is cut off would wait for its next try.
		cleanup, done := context.WithTimeout(c.ctx, time.Minute)
		if (c.litter != nil || found != nil) && !c.core.inDoubt {
			c.lastLitter(cleanup, found, c.finished)
		}
		left, failed := c.cleaner.Clean(cleanup)
		if failed != nil || left > 0 {
			c.log.Warn("files that nobody needs are left", "files", left, "err", failed)
		}
		c.removeEmptied(cleanup)
		if failed == nil && left == 0 && c.endErr == nil && !c.core.inDoubt {
			c.recordClean(cleanup)
		}
		done()
	} else {
		c.endErr = errStopped
	}
	stopClean()
	c.cancel(errStopped)
	close(c.ended)
	c.io.Wait()
	background.Wait()
	return err
}

func (c *Coordinator) loop(ctx context.Context) error {
	for {
		c.mu.Lock()
		batch := c.inbox
		c.inbox = nil
		c.mu.Unlock()
		for _, f := range batch {
			f()
		}
		if c.core.Ended() {
			return nil
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.wake:
		}
	}
}

// post has f called by the goroutine.
func (c *Coordinator) post(f func()) bool {
	c.mu.Lock()
	ok := !c.closed
	if ok {
		c.inbox = append(c.inbox, f)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return ok
}

// millis is the time; it never goes back, also when the computer's clock does.
func (c *Coordinator) millis() int64 {
	return c.base.UnixMilli() + time.Since(c.base).Milliseconds()
}

func (c *Coordinator) event(ev Event) { c.post(func() { c.feed(&ev) }) }

func (c *Coordinator) feed(ev *Event) {
	c.actions = c.core.Handle(c.millis(), ev, c.actions[:0])
	for i := range c.actions {
		c.act(&c.actions[i])
		c.actions[i] = Action{}
	}
	if c.litter != nil {
		c.mayRemoveLitter()
	}
}

// async does I/O beside the goroutine.
func (c *Coordinator) async(f func(ctx context.Context)) {
	c.io.Go(func() { f(c.ctx) })
}

func (c *Coordinator) act(a *Action) {
	switch a.Kind {
	case ActStartTimer:
		c.startTimer(timerKey{a.Timer, a.ID}, a.At)
	case ActStopTimer:
		c.stopTimer(timerKey{a.Timer, a.ID})
	case ActReserve:
		id := a.ID
		c.async(func(ctx context.Context) {
			err := c.put(ctx, func(s *Content) { s.NextID = max(s.NextID, id) })
			c.event(Event{Kind: EvReserved, ID: id, Err: err})
		})
	case ActLocation:
		id, opts := a.ID, a.Barrier.Options
		c.log.Debug("checkpoint begins", "id", id, "options", opts.String())
		c.async(func(ctx context.Context) { c.locate(ctx, id, opts) })
	case ActDiscardLocation:
		c.discardLocation(a.ID)
	case ActCoordinator:
		c.runners[a.Operator].checkpoint(a.ID)
	case ActCoordinatorComplete:
		id := a.ID
		c.runners[a.Operator].do(func(o OperatorCoordinator) error { return o.Completed(id) })
	case ActCoordinatorAborted:
		id := a.ID
		c.runners[a.Operator].do(func(o OperatorCoordinator) error { return o.Aborted(id) })
	case ActHook:
		c.hook(a.ID, a.Hook, a.At)
	case ActHooksComplete:
		for _, h := range c.cfg.Masters {
			id := a.ID
			c.async(func(context.Context) { h.Complete(id) })
		}
	case ActTrigger:
		c.cfg.Tasks.Trigger(a.Task, a.Barrier)
	case ActCommit:
		id, m, retained, stop := a.ID, a.Checkpoint, a.Retained, a.Stop
		c.async(func(ctx context.Context) { c.commit(ctx, id, m, retained, stop) })
	case ActStore:
		retained := a.Retained
		c.async(func(ctx context.Context) {
			c.event(Event{Kind: EvStored, Err: c.put(ctx, func(s *Content) { s.Retained = retained })})
		})
	case ActNotifyComplete:
		c.cfg.Tasks.NotifyComplete(a.Task, a.ID)
	case ActNotifyAborted:
		c.cfg.Tasks.NotifyAborted(a.Task, a.ID)
	case ActDeliver:
		c.cfg.Tasks.OperatorEvent(a.Task, a.Operator, a.Data)
	case ActResult:
		c.answer(a)
	case ActRestore:
		var from *Completed
		if len(a.Retained) > 0 {
			from = &a.Retained[0]
		}
		for _, w := range c.restoring {
			w <- from
		}
		c.restoring = nil
	case ActEnded:
		c.endErr = a.Err
	case ActFailJob:
		c.log.Error("checkpoints fail the job", "err", a.Err, "fatal", a.Fatal)
		c.cfg.Tasks.Fail(a.Err, a.Fatal)
	case ActCompleted:
		s := a.Stats
		c.log.Info("checkpoint completed", "id", s.ID, "type", s.Type.String(), "path", s.Path, "millis", s.EndToEndMillis(), "bytes", s.CheckpointedSize)
		c.dropWriter(a.ID)
		if c.cfg.Observer != nil {
			c.cfg.Observer.CheckpointCompleted(s)
		}
	case ActFailed:
		c.log.Warn("checkpoint failed", "id", a.ID, "reason", a.Reason.String(), "err", a.Err)
		if c.cfg.Observer != nil {
			c.cfg.Observer.CheckpointFailed(a.Stats)
		}
	}
}

func (c *Coordinator) startTimer(k timerKey, at int64) {
	c.stopTimer(k)
	// At least until the millisecond has come.
	wait := time.UnixMilli(at).Sub(time.UnixMilli(c.base.UnixMilli())) - time.Since(c.base)
	c.timers[k] = time.AfterFunc(max(wait, 0), func() { c.event(Event{Kind: EvTimer, Timer: k.timer, ID: k.id}) })
}

func (c *Coordinator) stopTimer(k timerKey) {
	if t := c.timers[k]; t != nil {
		t.Stop()
		delete(c.timers, k)
	}
}

func (c *Coordinator) answer(a *Action) {
	w := c.waiting[a.Request]
	if w == nil {
		return
	}
	delete(c.waiting, a.Request)
	r := Result{ID: a.ID, Path: a.Dir}
	if a.Reason != event.NoFailure {
		r.failure = &Failure{Reason: a.Reason, Err: a.Err}
	}
	w <- r
}

func (c *Coordinator) hook(id int64, i int, timestamp int64) {
	h := c.cfg.Masters[i]
	timeout := time.Duration(c.core.opts.HookTimeoutMillis) * time.Millisecond
	c.async(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		state, err := h.Trigger(ctx, id, timestamp)
		ev := Event{Kind: EvHook, ID: id, Hook: i, Err: err}
		if err == nil && state != nil {
			ev.Master = metadata.MasterState{Version: h.Version(), Name: javaString(h.Name()), Payload: state}
		}
		c.event(ev)
	})
}

// What others tell the coordinator.

// TaskState says that a task has come to a state.
func (c *Coordinator) TaskState(t event.Task, s TaskState, err error) {
	c.post(func() {
		c.feed(&Event{Kind: EvTask, Task: t, State: s, Err: err})
		for _, op := range c.core.g.coordinators {
			if v := c.core.g.operators[op].vertex; c.core.g.Vertices[v].ID != t.Vertex {
				continue
			}
			switch s {
			case TaskRunning:
				c.runners[op].do(func(o OperatorCoordinator) error { return o.SubtaskReady(t.Subtask, t.Attempt) })
			case TaskFailed:
				c.runners[op].do(func(o OperatorCoordinator) error { return o.SubtaskFailed(t.Subtask, t.Attempt, err) })
			}
		}
	})
}

// StartPeriodic begins periodic checkpoints: all tasks run. The first comes after a
// random time between the minimum pause and the interval, as in Flink.
func (c *Coordinator) StartPeriodic() {
	pause, interval := c.cfg.Options.MinPauseMillis, c.cfg.Options.IntervalMillis
	delay := pause
	if interval > pause {
		delay += rand.Int64N(interval - pause + 1)
	}
	c.event(Event{Kind: EvStart, Delay: delay})
}

// StopPeriodic ends them and aborts what is pending.
func (c *Coordinator) StopPeriodic() { c.event(Event{Kind: EvStop}) }

// Acknowledge takes a task's acknowledgement.
func (c *Coordinator) Acknowledge(a event.Ack) { c.event(Event{Kind: EvAck, Ack: &a}) }

// Decline takes a task's refusal.
func (c *Coordinator) Decline(d event.Decline) { c.event(Event{Kind: EvDecline, Decline: &d}) }

// BarrierPassed says that the barrier of a checkpoint has passed the coordinated
// operator in a task: events may go there again.
func (c *Coordinator) BarrierPassed(t event.Task, op metadata.OperatorID, id int64) {
	c.event(Event{Kind: EvPassed, ID: id, Operator: op, Task: t})
}

// OperatorEvent takes an event from a task for the coordinator of op.
func (c *Coordinator) OperatorEvent(t event.Task, op metadata.OperatorID, data []byte) {
	c.post(func() {
		r := c.runners[op]
		if i := c.core.g.task(t); r == nil || i < 0 || c.core.tasks[i].attempt != t.Attempt || c.core.tasks[i].state == TaskFailed {
			return
		}
		r.do(func(o OperatorCoordinator) error { return o.HandleEvent(t.Subtask, t.Attempt, data) })
	})
}

// Abort aborts a pending checkpoint.
func (c *Coordinator) Abort(id int64) { c.event(Event{Kind: EvAbort, ID: id}) }

// Trigger takes a checkpoint or savepoint now and waits for it; target is the
// folder of a savepoint, the configured one if it is empty. The error is a *Failure
// if the checkpoint failed. If ctx ends, the checkpoint goes on.
func (c *Coordinator) Trigger(ctx context.Context, t event.SnapshotType, post event.PostAction, target string) (Result, error) {
	if t.IsSavepoint() && target == "" {
		if c.cfg.Savepoints == (blobstore.Location{}) {
			return Result{}, errors.New("no folder for the savepoint was given, and none is configured (state.savepoints.dir)")
		}
		target = c.cfg.Savepoints.String()
	}
	w := make(chan Result, 1)
	c.post(func() {
		c.number++
		r := &Request{Number: c.number, Type: t, Post: post, Target: target}
		c.waiting[r] = w
		c.feed(&Event{Kind: EvTrigger, Request: r})
	})
	select {
	case r := <-w:
		if r.failure != nil {
			return Result{ID: r.ID}, r.failure
		}
		return r, nil
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	case <-c.ended:
		select {
		case r := <-w:
			if r.failure != nil {
				return Result{ID: r.ID}, r.failure
			}
			return r, nil
		default:
		}
		return Result{}, errStopped
	}
}

// Failover says that the job restarts, all of it or only the tasks that were
// reported as failed, and waits until it may: no checkpoint completes any more then
// that the restart would not see. It gives the checkpoint to restart from, nil for
// none.
func (c *Coordinator) Failover(ctx context.Context, cause error, partly bool) (*Completed, error) {
	w := make(chan *Completed, 1)
	c.post(func() {
		c.restoring = append(c.restoring, w)
		c.feed(&Event{Kind: EvFailover, Reason: event.JobFailoverRegion, Err: cause, On: partly})
	})
	select {
	case from := <-w:
		return from, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.ended:
		return nil, errStopped
	}
}

// Shutdown ends the coordinator and waits for it. The retained checkpoints are
// discarded if the configuration says so for this end of the job. If that makes it the
// end for good it is written to the store first, with the cause, which is nil for a job
// that finished; an error says that it was not written, or that nothing was discarded.
// A coordinator that had to give up, since another one has taken over or it does not know
// what is stored, writes nothing and discards nothing, whatever the status is.
func (c *Coordinator) Shutdown(ctx context.Context, status JobStatus, cause error) error {
	gaveUp := false
	switch err := c.ask(ctx, func() { gaveUp = c.core.inDoubt }); {
	case errors.Is(err, errStopped): // after another call, or its goroutine has ended
		return c.endErr
	case err != nil:
		return err
	}
	var failed error
	if gaveUp {
		status = JobSuspended
	} else if c.final(status) {
		if failed = c.record(ctx, status, cause); failed != nil {
			status = JobSuspended
		}
	}
	c.post(func() {
		c.finished = status == JobFinished
		c.feed(&Event{Kind: EvShutdown, Status: status})
	})
	select {
	case <-c.ended:
		return errors.Join(failed, c.endErr)
	case <-ctx.Done():
		return errors.Join(failed, context.Cause(ctx))
	}
}

// ask has f called by the goroutine and waits for it.
func (c *Coordinator) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	c.post(func() { f(); close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ended:
		return errStopped
	}
}

// History is a copy of the checkpoint history, which is there after the coordinator
// has ended too.
func (c *Coordinator) History(ctx context.Context) (h *History, err error) {
	err = c.ask(ctx, func() { h = c.core.History().Clone() })
	if errors.Is(err, errStopped) {
		return c.core.History().Clone(), nil // nobody changes it any more
	}
	return h, err
}

// Retained are the completed checkpoints in the store, ascending.
func (c *Coordinator) Retained(ctx context.Context) (list []Completed, err error) {
	err = c.ask(ctx, func() { list = slices.Clone(c.core.Retained()) })
	return list, err
}
