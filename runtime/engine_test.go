package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/restart"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pair = serializer.Pair[int64, int64]

// counter counts the records of each key and sends key and count.
type counter struct {
	n *keyed.ValueState[int64, int64]
}

func (c *counter) Open(rt *stream.KeyedRuntime[int64]) error {
	c.n = keyed.Value(rt.Keyed, "count", serializer.Int64)
	return nil
}

func (c *counter) Process(x *stream.KeyedContext[int64, pair], v int64) error {
	n, _, err := c.n.Get(x.Key)
	if err != nil {
		return err
	}
	n++
	x.Emit(pair{F0: x.Key.Value(), F1: n})
	return c.n.Set(x.Key, n)
}

func newCounter() stream.KeyedFunction[int64, int64, pair] { return &counter{} }

// collected is the largest count of each key.
type collected struct {
	mu  sync.Mutex
	max map[int64]int64
	all int
}

func (c *collected) add(p pair) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.max == nil {
		c.max = map[int64]int64{}
	}
	c.all++
	c.max[p.F0] = max(c.max[p.F0], p.F1)
	return nil
}

func countJob(n, keys int64, parallelism int, to *collected, hook func(int64) error) *stream.Job {
	j := stream.NewJob("count", &stream.JobOptions{Parallelism: parallelism})
	nums := stream.From(j, stream.Sequence(0, n-1), stream.UID("numbers"))
	same := stream.Apply(nums, func() stream.Function[int64, int64] { return &hooked{hook} }, stream.UID("hook"))
	byKey := stream.KeyBy(same, serializer.Int64, func(v int64) int64 { return v % keys })
	counts := stream.Process(byKey, newCounter, stream.UID("count"))
	stream.ForEach(counts, to.add)
	return j
}

// hooked passes records on and fails where a test wants it.
type hooked struct{ f func(int64) error }

func (h *hooked) Open(*stream.Runtime) error { return nil }
func (h *hooked) Process(c *stream.Context[int64], v int64) error {
	if h.f != nil {
		if err := h.f(v); err != nil {
			return err
		}
	}
	c.Emit(v)
	return nil
}

func TestCountWithoutCheckpoints(t *testing.T) {
	for _, p := range []int{1, 2, 3} {
		var got collected
		require.NoError(t, runtime.Run(t.Context(), countJob(100_000, 1000, p, &got, nil), nil))
		require.Equal(t, 100_000, got.all)
		require.Len(t, got.max, 1000)
		for k, n := range got.max {
			require.EqualValues(t, 100, n, "key %d", k)
		}
	}
}

// fixedDelay restarts so many times, after a millisecond.
func fixedDelay(t *testing.T, attempts int) restart.Strategy {
	s, err := restart.NewFixedDelay(restart.FixedDelayOptions{Attempts: attempts, Delay: time.Millisecond})
	require.NoError(t, err)
	return s
}

var errInjected = errors.New("injected")

func TestCountExactlyOnceAfterFailures(t *testing.T) {
	const n, keys = 200_000, 1000
	dir := t.TempDir()
	var got collected
	var seen, failures atomic.Int64
	hook := func(int64) error {
		if i := seen.Add(1); i%70_000 == 0 && failures.Add(1) <= 4 {
			return errInjected
		}
		if seen.Load()%512 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		return nil
	}
	e, err := runtime.Start(t.Context(), countJob(n, keys, 2, &got, hook), &runtime.Options{
		Checkpoints: "file://" + filepath.ToSlash(dir), Interval: 10 * time.Millisecond, Restart: fixedDelay(t, 10)})
	require.NoError(t, err)
	require.NoError(t, e.Wait())
	require.Positive(t, e.Restarts())
	require.Len(t, got.max, keys)
	for k, c := range got.max {
		require.EqualValues(t, n/keys, c, "key %d", k)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var got collected
	running := make(chan struct{})
	once := sync.OnceFunc(func() { close(running) })
	e, err := runtime.Start(ctx, countJob(1<<40, 1000, 2, &got, func(int64) error { once(); return nil }), &runtime.Options{CancelTimeout: time.Minute})
	require.NoError(t, err)
	<-running
	cause := errors.New("enough")
	cancel(cause)
	require.ErrorIs(t, e.Wait(), cause)
	require.Equal(t, runtime.Canceled, e.Status())
}
