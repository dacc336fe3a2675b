package runtime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// gatherer keeps what it gets, and sends the sum of it at the end of the input. It
// drops then what it has sent: Finish may be called again with that state.
type gatherer struct {
	state    *operatorstate.ListState[int64]
	subtask  int
	hook     func(subtask int) error
	finished *atomic.Int64
}

func (g *gatherer) Open(rt *stream.Runtime) error {
	g.subtask = rt.Subtask
	b, err := rt.State()
	if err != nil {
		return err
	}
	g.state, err = operatorstate.List(b, "gathered", serializer.Int64)
	return err
}

func (g *gatherer) Process(_ *stream.Context[string], v int64) error {
	g.state.Append(v)
	return g.hook(g.subtask)
}

func (g *gatherer) Finish(c *stream.Context[string]) error {
	g.finished.Add(1)
	if g.state.Len() == 0 {
		return nil
	}
	sum := int64(0)
	for _, v := range g.state.All() {
		sum += v
	}
	c.Emit(fmt.Sprint(sum))
	g.state.Clear()
	return nil
}

// TestFinishTwice has a job fail when one of its two subtasks has come to the end of
// its input and a checkpoint has that. As in Flink the whole vertex is started again,
// since not all of it had finished, and Finish is called in both subtasks: in one for
// the second time, with the state after the first. Each sum is there once all the same.
func TestFinishTwice(t *testing.T) {
	const n = 200_000 // a millisecond for each in the slow subtask
	to := t.TempDir()
	var finished atomic.Int64
	var slow, began, fail atomic.Bool
	slow.Store(true)
	hook := func(subtask int) error {
		for subtask == 0 && !began.Load() { // else it may take the other's numbers too
			time.Sleep(time.Millisecond)
		}
		if subtask == 1 && slow.Load() {
			began.Store(true)
			if fail.CompareAndSwap(true, false) {
				return errInjected
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}
	j := stream.NewJob("finish", &stream.JobOptions{Parallelism: 2})
	nums := stream.From(j, stream.Sequence(0, n-1), stream.UID("numbers"))
	sums := stream.Apply(nums, func() stream.Function[int64, string] { return &gatherer{hook: hook, finished: &finished} }, stream.UID("gather"))
	sink := stream.Lines(to)
	sink.NoSync = true
	stream.To(sums, sink, stream.UID("sink"))
	e, err := runtime.Start(t.Context(), j, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir()), Restart: fixedDelay(t, 1)})
	require.NoError(t, err)
	for finished.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	checkpointWhenRunning(t, e)
	require.EqualValues(t, 1, finished.Load(), "the other subtask was to be slow")
	fail.Store(true)
	for e.Restarts() == 0 {
		time.Sleep(time.Millisecond)
	}
	slow.Store(false)
	require.NoError(t, e.Wait())
	require.EqualValues(t, 3, finished.Load())
	got := readLines(t, to)
	slices.Sort(got)
	half := int64(n / 2)
	want := []string{fmt.Sprint(half * (half - 1) / 2), fmt.Sprint(half * (half + n - 1) / 2)}
	slices.Sort(want)
	require.Equal(t, want, got)
}

// TestFinishedStaysFinished has a source that is at its end, and fails twice after a
// checkpoint that has it so. The first one after a restart is taken while the tasks of
// that source are there, only to say that they have finished: it has it so as well, or
// the source would begin anew after the next restart.
func TestFinishedStaysFinished(t *testing.T) {
	const n = 10
	var short atomic.Int64
	var fail atomic.Bool
	j := stream.NewJob("finished", nil)
	few := stream.From(j, stream.Sequence(0, n-1), stream.UID("few"))
	many := stream.From(j, stream.SlowSequence(n, 1<<40, 1000), stream.UID("many"))
	stream.ForEach(stream.Union(few, many), func(v int64) error {
		if v < n {
			short.Add(1)
		} else if fail.CompareAndSwap(true, false) {
			return errInjected
		}
		return nil
	}, stream.UID("all"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := runtime.Start(ctx, j, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir()), Restart: fixedDelay(t, 2)})
	require.NoError(t, err)
	for !fullyFinished(t, checkpointWhenRunning(t, e).Path, "few") {
		time.Sleep(time.Millisecond)
	}
	for restarts := range 2 {
		fail.Store(true)
		for e.Restarts() == restarts {
			time.Sleep(time.Millisecond)
		}
		require.True(t, fullyFinished(t, checkpointWhenRunning(t, e).Path, "few"), "restart %d", restarts+1)
	}
	require.EqualValues(t, n, short.Load())
	cancel()
	require.ErrorIs(t, e.Wait(), context.Canceled)
}

// fullyFinished says that a checkpoint has the operator as finished.
func fullyFinished(t *testing.T, url, uid string) bool {
	t.Helper()
	loc, err := blobstore.Parse(url)
	require.NoError(t, err)
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	opened, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	id := metadata.OperatorIDFromUID(uid)
	at := slices.IndexFunc(opened.Checkpoint.Operators, func(o metadata.OperatorState) bool { return o.ID == id })
	require.GreaterOrEqual(t, at, 0)
	return opened.Checkpoint.Operators[at].FullyFinished()
}
