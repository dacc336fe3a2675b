package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// fakeJob is a source with a coordinator and two counters that write real files.
type fakeJob struct {
	t     *testing.T
	c     *Coordinator
	graph Graph

	mu       sync.Mutex
	complete []int64
	aborted  []int64
	events   []string
	failed   chan error
	fatal    bool
	silent   bool                  // tasks do not answer
	named    metadata.StreamHandle // what the first counter acknowledges without having written it
	attempt  int32
	restored []string
	work     sync.WaitGroup
}

func newFakeJob(t *testing.T) *fakeJob {
	source, count := metadata.OperatorIDFromUID("source"), metadata.OperatorIDFromUID("count")
	return &fakeJob{t: t, failed: make(chan error, 10), graph: Graph{Vertices: []Vertex{
		{ID: source, Name: "source", Parallelism: 1, MaxParallelism: 8, Operators: []Operator{{ID: source, Coordinator: true}}},
		{ID: count, Name: "count", Parallelism: 2, MaxParallelism: 8, Operators: []Operator{{ID: count}}, Inputs: []Input{{From: 0}}},
	}}}
}

func (j *fakeJob) tasks() []event.Task {
	var list []event.Task
	for _, v := range j.graph.Vertices {
		for s := range v.Parallelism {
			list = append(list, event.Task{Vertex: v.ID, Subtask: s, Attempt: j.attempt})
		}
	}
	return list
}

// Trigger has all tasks write a file and acknowledge, or decline if it cannot be written.
func (j *fakeJob) Trigger(_ event.Task, b event.Barrier) {
	j.mu.Lock()
	silent, tasks, named := j.silent, j.tasks(), j.named
	j.mu.Unlock()
	for k, task := range tasks {
		j.work.Go(func() {
			decline := func(err error) { j.c.Decline(event.Decline{ID: b.ID, Task: task, Err: err.Error()}) }
			w, err := j.c.Writer(b.ID)
			if err != nil {
				decline(err)
				return
			}
			f := w.File(context.Background(), snapshot.FileScope(k%2))
			fmt.Fprintf(f, "state of %s in %d, long enough for a file", task, b.ID)
			h, err := f.Close()
			if err != nil {
				w.Abort(context.Background())
				decline(err)
				return
			}
			if silent && k == 1 {
				return // what it wrote is the garbage of a task that was lost
			}
			if named != nil && k == 1 {
				w.Abort(context.Background())
				h = named
			}
			j.c.Acknowledge(fakeAck(b.ID, task, k, h))
		})
	}
}

// fakeAck is the acknowledgement of the task with number k.
func fakeAck(id int64, t event.Task, k int, h metadata.StreamHandle) event.Ack {
	st := &metadata.SubtaskState{ManagedKeyed: &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Start: int32(4 * (k % 2)), Count: 4}, Offsets: make([]int64, 4), Delegate: h}}
	return event.Ack{ID: id, Task: t, State: []event.OperatorSubtask{{ID: t.Vertex, State: st}}}
}

func (j *fakeJob) NotifyComplete(t event.Task, id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.complete = append(j.complete, id)
}

func (j *fakeJob) NotifyAborted(t event.Task, id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.aborted = append(j.aborted, id)
}

func (j *fakeJob) OperatorEvent(t event.Task, _ metadata.OperatorID, data []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, string(data))
}

func (j *fakeJob) Fail(err error, fatal bool) {
	j.mu.Lock()
	j.fatal = j.fatal || fatal
	j.mu.Unlock()
	j.failed <- err
}

// fakeCoordinator echoes and counts.
type fakeCoordinator struct {
	j   *fakeJob
	ctx CoordinatorContext
	n   int
}

func (f *fakeCoordinator) note(format string, args ...any) {
	f.j.mu.Lock()
	defer f.j.mu.Unlock()
	f.j.restored = append(f.j.restored, fmt.Sprintf(format, args...))
}
func (f *fakeCoordinator) Start() error { f.note("start"); return nil }
func (f *fakeCoordinator) HandleEvent(subtask, _ int32, data []byte) error {
	f.n++
	if string(data) == "bad" {
		return errors.New("bad event")
	}
	f.ctx.Send(subtask, append([]byte("echo "), data...))
	return nil
}
func (f *fakeCoordinator) SubtaskReady(_, _ int32) error           { return nil }
func (f *fakeCoordinator) SubtaskFailed(_, _ int32, _ error) error { return nil }
func (f *fakeCoordinator) SubtaskReset(int32, int64) error         { return nil }
func (f *fakeCoordinator) Checkpoint(id int64) ([]byte, error) {
	return fmt.Appendf(nil, "%d events", f.n), nil
}
func (f *fakeCoordinator) Completed(int64) error { return nil }
func (f *fakeCoordinator) Aborted(int64) error   { return nil }
func (f *fakeCoordinator) Reset(id int64, state []byte) error {
	f.note("reset %d %s", id, state)
	return nil
}
func (f *fakeCoordinator) Close() error { return nil }

type fakeHook struct {
	mu       sync.Mutex
	got      string
	complete int
}

func (h *fakeHook) Name() string   { return "outside" }
func (h *fakeHook) Version() int32 { return 3 }
func (h *fakeHook) Trigger(_ context.Context, id, _ int64) ([]byte, error) {
	return fmt.Appendf(nil, "at %d", id), nil
}
func (h *fakeHook) Restore(_ context.Context, id int64, version int32, state []byte) error {
	h.got = fmt.Sprintf("%d %d %s", id, version, state)
	return nil
}
func (h *fakeHook) Complete(int64) { h.mu.Lock(); h.complete++; h.mu.Unlock() }

func (j *fakeJob) start(t *testing.T, cfg Config) (stop func()) {
	cfg.Graph, cfg.Tasks = j.graph, j
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	if cfg.Writer == nil {
		cfg.Writer = &snapshot.WriterOptions{MemoryThreshold: -1}
	}
	cfg.NewCoordinator = func(_ metadata.OperatorID, ctx CoordinatorContext) (OperatorCoordinator, error) {
		return &fakeCoordinator{j: j, ctx: ctx}, nil
	}
	c, err := New(t.Context(), cfg)
	require.NoError(t, err)
	j.c = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() { cancel(); <-done; j.work.Wait() }
}

func (j *fakeJob) run(t *testing.T) {
	j.mu.Lock()
	tasks := j.tasks()
	j.mu.Unlock()
	for _, task := range tasks {
		j.c.TaskState(task, TaskRunning, nil)
	}
}

func localConfig(t *testing.T) (Config, blobstore.Store) {
	dir := t.TempDir()
	pool := blobstore.NewPool(nil, nil)
	root, err := blobstore.Parse("file:" + filepath.ToSlash(dir))
	require.NoError(t, err)
	store, name, err := pool.Resolve(t.Context(), root)
	require.NoError(t, err)
	t.Cleanup(func() { pool.Close() })
	return Config{Job: strings.Repeat("ab", 16), Pool: pool, Checkpoints: root.Join("ckp"), Savepoints: root.Join("sp")}, blobstore.Sub(store, name)
}

func objects(t *testing.T, s blobstore.Store) (names []string) {
	for info, err := range s.List(t.Context(), nil) {
		require.NoError(t, err)
		if !strings.Contains(info.Name, "log/") {
			names = append(names, info.Name)
		}
	}
	return names
}

// A coordinator dies with a checkpoint under way; the next goes on from the last
// one that was completed, and the first cannot complete anything any more.
func TestCoordinatorOverRealFiles(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg, store := localConfig(t)
	hook := &fakeHook{}
	cfg.Masters = []MasterHook{hook}
	log, err := NewLogStore(store, "log", nil)
	require.NoError(t, err)
	cfg.Store = log
	j := newFakeJob(t)
	stop := j.start(t, cfg)
	ctx := t.Context()
	_, err = j.c.Restore(ctx, nil, nil)
	require.NoError(t, err)
	_, err = j.c.Trigger(ctx, event.Checkpoint, event.None, "")
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, event.NotAllRequiredTasksRunning, failure.Reason)
	j.run(t)
	j.c.OperatorEvent(j.tasks()[0], j.graph.Vertices[0].ID, []byte("hello"))
	first, err := j.c.Trigger(ctx, event.Checkpoint, event.None, "")
	require.NoError(t, err)
	require.Equal(t, int64(1), first.ID)
	second, err := j.c.Trigger(ctx, event.Checkpoint, event.None, "")
	require.NoError(t, err)
	sp, err := j.c.Trigger(ctx, event.SavepointCanonical, event.None, "")
	require.NoError(t, err)
	for _, p := range []string{second.Path, sp.Path} {
		s, err := j.c.open(ctx, p)
		require.NoError(t, err)
		report, err := snapshot.Check(ctx, s, nil)
		require.NoError(t, err)
		require.True(t, report.Usable, report.Reason)
		require.Len(t, s.Checkpoint.Operators, 2)
		require.Equal(t, "at "+fmt.Sprint(s.Checkpoint.ID), string(s.Checkpoint.MasterStates[0].Payload))
	}
	_, err = j.c.cleaner.Clean(ctx)
	require.NoError(t, err)
	require.Len(t, objects(t, store), 8, "of the checkpoint and of the savepoint: three files and _metadata")
	j.mu.Lock()
	require.Equal(t, []string{"echo hello"}, j.events)
	require.Equal(t, []int64{1, 1, 1, 2, 2, 2}, j.complete, "tasks are not told of a savepoint")
	j.silent = true
	j.mu.Unlock()
	go j.c.Trigger(context.Background(), event.Checkpoint, event.None, "")
	require.Eventually(t, func() bool { return len(objects(t, store)) >= 10 }, time.Minute, time.Millisecond)
	stop()

	second2 := newFakeJob(t)
	second2.attempt = 1
	log2, err := NewLogStore(store, "log", nil)
	require.NoError(t, err)
	cfg.Store = log2
	stop2 := second2.start(t, cfg)
	defer stop2()
	require.ErrorIs(t, log.Put(ctx, Content{NextID: 99}), ErrFenced)
	latest, err := second2.c.Latest(ctx)
	require.NoError(t, err)
	require.Equal(t, second.ID, latest.ID)
	r, err := second2.c.Restore(ctx, latest, nil)
	require.NoError(t, err)
	count := second2.graph.Vertices[1].ID
	require.Len(t, r.Subtask(count, 1).ManagedKeyed, 1)
	require.Equal(t, metadata.KeyGroupRange{Start: 4, Count: 4}, r.Subtask(count, 1).KeyGroups)
	require.Equal(t, "2 3 at 2", hook.got)
	second2.run(t)
	third, err := second2.c.Trigger(ctx, event.Checkpoint, event.None, "")
	require.NoError(t, err)
	require.Greater(t, third.ID, sp.ID+1, "an ID that was begun is not used again")
	require.Equal(t, []string{"reset 2 1 events", "start"}, second2.restored)
	h, err := second2.c.History(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2), h.LatestRestored.ID)
	require.Equal(t, int64(1), h.Counts.Completed)

	// A task fails; the job restarts from what is retained.
	second2.c.TaskState(second2.tasks()[1], TaskFailed, errors.New("boom"))
	from, err := second2.c.Failover(ctx, errors.New("boom"), false)
	require.NoError(t, err)
	require.Equal(t, third.ID, from.ID)
	// The coordinator of an operator fails.
	second2.mu.Lock()
	second2.attempt = 2
	second2.mu.Unlock()
	second2.run(t)
	second2.c.OperatorEvent(second2.tasks()[0], second2.graph.Vertices[0].ID, []byte("bad"))
	require.ErrorContains(t, <-second2.failed, "bad event")
	require.NoError(t, second2.c.Shutdown(ctx, JobFinished, nil))
	var left []string
	for _, n := range objects(t, store) {
		if !strings.HasPrefix(n, "sp/") {
			left = append(left, n)
		}
	}
	require.Empty(t, left, "nor is what the crash left")
}

// The store of checkpoints fails at each of its calls, before and after it has
// happened. A checkpoint that was said to be complete is there with all of its
// files, and what failed leaves nothing behind.
func TestCoordinatorFaults(t *testing.T) {
	broken := errors.New("broken")
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			mem := blobstore.NewMem()
			faults := blobstore.NewFaults(blobstore.Fault{Nth: n, Err: broken, After: after})
			pool := poolOf(faults.Wrap(mem))
			log, err := NewLogStore(blobstore.Sub(faults.Wrap(mem), "log"), "log", &LogOptions{Backoff: time.Microsecond})
			require.NoError(t, err)
			root, err := blobstore.Parse("mem://x/ckp")
			require.NoError(t, err)
			j := newFakeJob(t)
			cfg := Config{Job: strings.Repeat("cd", 16), Pool: pool, Checkpoints: root, Store: log}
			cfg.Options.TolerableFailures = -1
			cfg.Graph, cfg.Tasks = j.graph, j
			stop, ok := j.tryStart(t, cfg)
			if !ok { // the fault was in taking over
				require.True(t, faults.Fired())
				continue
			}
			j.run(t)
			var last Result
			completed := 0
			for range 3 {
				if r, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, ""); err == nil {
					last = r
					completed++
				}
			}
			if !faults.Fired() {
				require.Equal(t, 3, completed)
			}
			fatal := false
			j.mu.Lock()
			fatal = j.fatal
			j.mu.Unlock()
			list, err := j.c.Retained(t.Context())
			require.NoError(t, err)
			if !fatal {
				require.NotEmpty(t, list)
				require.Equal(t, last.ID, list[len(list)-1].ID)
				_, err = j.c.cleaner.Clean(t.Context())
				require.NoError(t, err)
			}
			stop()
			clean := poolOf(mem)
			loc, err := blobstore.Parse(last.Path)
			require.NoError(t, err)
			s, err := snapshot.Open(t.Context(), clean, loc, nil)
			require.NoError(t, err)
			report, err := snapshot.Check(t.Context(), s, nil)
			require.NoError(t, err)
			require.True(t, report.Usable, report.Reason)
			if !faults.Fired() {
				require.Len(t, objects(t, mem), 4)
				break
			}
		}
	}
}

// A checkpoint to which a task does not answer expires, and leaves nothing in its folder;
// a shared file of that task is litter, see TestLitter.
func TestCoordinatorExpires(t *testing.T) {
	cfg, store := localConfig(t)
	cfg.Store = &MemoryStore{}
	cfg.Options.TimeoutMillis = 30
	cfg.Options.TolerableFailures = -1
	j := newFakeJob(t)
	j.silent = true
	stop := j.start(t, cfg)
	j.run(t)
	_, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, event.CheckpointExpired, failure.Reason)
	j.work.Wait() // what is written late goes as well
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(objects(t, store), func(name string) bool { return !strings.Contains(name, "/shared/") })
	}, time.Minute, time.Millisecond)
	stop()
}

func (j *fakeJob) tryStart(t *testing.T, cfg Config) (stop func(), ok bool) {
	cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg.Writer = &snapshot.WriterOptions{MemoryThreshold: -1}
	cfg.NewCoordinator = func(_ metadata.OperatorID, ctx CoordinatorContext) (OperatorCoordinator, error) {
		return &fakeCoordinator{j: j, ctx: ctx}, nil
	}
	c, err := New(t.Context(), cfg)
	if err != nil {
		return nil, false
	}
	j.c = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() { cancel(); <-done; j.work.Wait() }, true
}

// poolOf is a pool of one store.
func poolOf(s blobstore.Store) *blobstore.Pool {
	return blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store { return s })
}

// A checkpoint that cannot be read is an error that names one that can.
func TestNewestUnreadable(t *testing.T) {
	cfg, store := localConfig(t)
	mem := &MemoryStore{}
	cfg.Store = mem
	cfg.Options.Retained = 3
	j := newFakeJob(t)
	stop := j.start(t, cfg)
	j.run(t)
	var paths []string
	for range 3 {
		r, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
		require.NoError(t, err)
		paths = append(paths, r.Path)
	}
	stop()
	name := "ckp/" + cfg.Job + "/chk-3/_metadata"
	require.NoError(t, store.Delete(t.Context(), name))
	require.NoError(t, blobstore.WriteAll(t.Context(), store, name, []byte("not metadata"), nil))
	cfg.Graph, cfg.Tasks = j.graph, j
	cfg.NewCoordinator = func(_ metadata.OperatorID, ctx CoordinatorContext) (OperatorCoordinator, error) {
		return &fakeCoordinator{j: j, ctx: ctx}, nil
	}
	_, err := New(t.Context(), cfg)
	require.ErrorIs(t, err, ErrUnreadable)
	require.ErrorContains(t, err, "chk-3/_metadata")
	require.ErrorContains(t, err, "the newest that can be read is 2 in "+paths[1])
	require.NotContains(t, err.Error(), "\n")
	require.Len(t, mem.content.Retained, 3, "and nothing was forgotten")

	cfg.Restore.FallBack = true
	var log strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c, err := New(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, int64(2), c.content.Retained[1].ID)
	require.Contains(t, log.String(), "the newest checkpoint cannot be read")
}

// A store that does not answer at a start, or a start that is cancelled, is no reason to
// forget a checkpoint, be it an older one: it may be the base of what is shared.
func TestUnansweredIsNotForgotten(t *testing.T) {
	cfg, _ := localConfig(t)
	mem := &MemoryStore{}
	cfg.Store = mem
	cfg.Options.Retained = 3
	j := newFakeJob(t)
	stop := j.start(t, cfg)
	j.run(t)
	for range 3 {
		_, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
		require.NoError(t, err)
	}
	stop()
	cfg.Graph, cfg.Tasks = j.graph, j
	cfg.NewCoordinator = func(_ metadata.OperatorID, ctx CoordinatorContext) (OperatorCoordinator, error) {
		return &fakeCoordinator{j: j, ctx: ctx}, nil
	}
	cfg.Restore.FallBack = true
	for _, id := range []int{1, 2, 3} {
		for _, fault := range []error{blobstore.ErrTemporary, blobstore.ErrPermission, context.Canceled} {
			ctx, cancel := context.WithCancel(t.Context())
			refused := cfg
			refused.Pool = blobstore.NewPool(nil, func(s blobstore.Store) blobstore.Store {
				return unanswered{s, fmt.Sprintf("/chk-%d/", id), fault, cancel}
			})
			_, err := New(ctx, refused)
			require.ErrorIs(t, err, fault)
			require.ErrorContains(t, err, fmt.Sprintf("checkpoint %d", id))
			require.Len(t, mem.content.Retained, 3)
			cancel()
			require.NoError(t, refused.Pool.Close())
		}
	}
	c, err := New(t.Context(), cfg)
	require.NoError(t, err)
	require.Len(t, c.content.Retained, 3)
}

// unanswered fails to open objects of one folder.
type unanswered struct {
	blobstore.Store
	folder string
	err    error
	cancel func()
}

func (s unanswered) Open(ctx context.Context, name string) (blobstore.Reader, error) {
	if !strings.Contains(name, s.folder) {
		return s.Store.Open(ctx, name)
	}
	if errors.Is(s.err, context.Canceled) {
		s.cancel()
	}
	return nil, s.err
}
