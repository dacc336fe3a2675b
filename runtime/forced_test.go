package runtime_test

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/serializer"
)

// TestUnalignedBehindForward has a forward edge, over which barriers are forced to be
// aligned, in front of a hash edge to slow subtasks: there the barrier overtakes
// again, at once or when the alignment times out, and what it overtakes is in the
// checkpoint.
func TestUnalignedBehindForward(t *testing.T) {
	for name, o := range map[string]runtime.Options{"unaligned": {Mode: runtime.Unaligned}, "aligned with timeout": {AlignedTimeout: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			j := stream.NewJob("forward", &stream.JobOptions{Parallelism: 2, NoChaining: true})
			numbers := stream.From(j, stream.Sequence(0, math.MaxInt64-1))
			same := stream.Apply(numbers, func() stream.Function[int64, int64] { return &hooked{} })
			byKey := stream.KeyBy(same, serializer.Int64, func(v int64) int64 { return v % 100 })
			stream.Discard(stream.Process(byKey, func() stream.KeyedFunction[int64, int64, int64] { return slowly{} }))
			o.Checkpoints, o.Restart = "file://"+filepath.ToSlash(t.TempDir()), runtime.NoRestart()
			o.BufferSize, o.BuffersPerChannel, o.FlushInterval = 1<<10, 2, 5*time.Millisecond
			e, err := runtime.Start(t.Context(), j, &o)
			require.NoError(t, err)
			// The first ones may come before there is anything in flight, or to tasks that
			// do not run yet.
			for deadline := time.Now().Add(time.Minute); ; {
				require.True(t, time.Now().Before(deadline), "no checkpoint has data in flight")
				r, err := e.Checkpoint(t.Context(), event.Checkpoint, "")
				if err != nil {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				h, err := e.History(t.Context())
				require.NoError(t, err)
				if h.Find(r.ID).InFlightBytes > 0 {
					break
				}
			}
			_, err = e.Stop(t.Context(), event.SavepointCanonical, o.Checkpoints, false)
			require.NoError(t, err)
		})
	}
}

type slowly struct{}

func (slowly) Open(*stream.KeyedRuntime[int64]) error { return nil }

func (slowly) Process(x *stream.KeyedContext[int64, int64], v int64) error {
	time.Sleep(200 * time.Microsecond)
	x.Emit(v)
	return nil
}
