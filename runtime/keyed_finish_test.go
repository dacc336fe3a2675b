package runtime_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/stream"
)

// tally counts its records, of each kind it takes, and says so at the end of the
// input. It is a function of each keyed operator.
type tally struct{ n [2]int64 }

func (f *tally) Open(*stream.KeyedRuntime[int64]) error { return nil }

func (f *tally) count(i int) error {
	f.n[i]++
	return nil
}

func (f *tally) Finish(c *stream.Context[string]) error {
	if at, ok := c.Timestamp(); ok {
		return fmt.Errorf("the end of the input has timestamp %d", at)
	}
	c.Emit(fmt.Sprint(f.n))
	return nil
}

type keyedCounter struct{ tally }

func (f *keyedCounter) Process(*stream.KeyedContext[int64, string], int64) error { return f.count(0) }

type coCounter struct{ tally }

func (f *coCounter) Process1(*stream.KeyedContext[int64, string], int64) error { return f.count(0) }
func (f *coCounter) Process2(*stream.KeyedContext[int64, string], int64) error { return f.count(1) }

type broadcastCounter struct{ keyedCounter }

func (f *broadcastCounter) ProcessBroadcast(*stream.Context[string], int64) error { return f.count(1) }

// TestKeyedFunctionsFinish has each kind of keyed function send something at the end of
// the input.
func TestKeyedFunctionsFinish(t *testing.T) {
	j := stream.NewJob("finish", &stream.JobOptions{Parallelism: 1})
	in := timed(j, 1000, 1)
	a, b := byMod(in, 7), stream.Filter(in, func(v int64) bool { return v < 300 })
	var got lines
	stream.ForEach(stream.Union(
		stream.Process(a, func() stream.KeyedFunction[int64, int64, string] { return &keyedCounter{} }),
		stream.Connect(a, byMod(b, 7), func() stream.KeyedCoFunction[int64, int64, int64, string] { return &coCounter{} }),
		stream.ConnectBroadcast(a, b, func() stream.BroadcastFunction[int64, int64, int64, string] { return &broadcastCounter{} })), got.add)
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	require.Equal(t, []string{"[1000 0]", "[1000 300]", "[1000 300]"}, got.sorted())
}
