package runtime_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

type splits = checkpoint.SplitEnumerator[stream.SequenceSplit, []stream.SequenceSplit]

// talking is a sequence whose enumerator greets each reader, which answers, and whose
// readers are told of checkpoints.
type talking struct {
	stream.Source[int64, stream.SequenceSplit, []stream.SequenceSplit]
	deaf     bool // the reader takes no events
	answered chan string
	complete atomic.Int64
}

type greeter struct {
	splits
	c checkpoint.EnumeratorContext[stream.SequenceSplit]
	s *talking
}

type answerer struct {
	stream.Reader[int64, stream.SequenceSplit]
	env *task.Env
	s   *talking
}

func (s *talking) NewEnumerator(c checkpoint.EnumeratorContext[stream.SequenceSplit], restored *[]stream.SequenceSplit) (splits, error) {
	e, err := s.Source.NewEnumerator(c, restored)
	return &greeter{e, c, s}, err
}

func (s *talking) NewReader(e *task.Env) (stream.Reader[int64, stream.SequenceSplit], error) {
	r, err := s.Source.NewReader(e)
	if s.deaf {
		return r, err
	}
	return &answerer{r, e, s}, err
}

func (g *greeter) AddReader(subtask int32) error {
	return g.c.SendSourceEvent(subtask, []byte("hello"))
}

func (g *greeter) HandleSourceEvent(_ int32, data []byte) error {
	g.s.answered <- string(data)
	return nil
}

func (a *answerer) HandleSourceEvent(data []byte) error {
	return stream.SendSourceEvent(a.env, append(data, " yourself"...))
}

func (a *answerer) Complete(id int64) error {
	a.s.complete.Store(id)
	return nil
}

func (*answerer) Aborted(int64) error { return nil }

// TestSourceEvents sends events between an enumerator and a reader, and tells the
// reader of a checkpoint.
func TestSourceEvents(t *testing.T) {
	s := &talking{Source: stream.SlowSequence(0, 1<<40, 1000), answered: make(chan string, 1)}
	j := stream.NewJob("talk", nil)
	stream.Discard(stream.From(j, s))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e, err := runtime.Start(ctx, j, &runtime.Options{Checkpoints: "file://" + filepath.ToSlash(t.TempDir())})
	require.NoError(t, err)
	select {
	case got := <-s.answered:
		require.Equal(t, "hello yourself", got)
	case <-e.Done():
		t.Fatal(e.Wait())
	}
	r := checkpointWhenRunning(t, e)
	for s.complete.Load() < r.ID {
		time.Sleep(time.Millisecond)
	}
	cancel()
	require.ErrorIs(t, e.Wait(), context.Canceled)

	deaf := &talking{Source: stream.Sequence(0, 9), deaf: true}
	j = stream.NewJob("no talk", nil)
	n := 0
	stream.ForEach(stream.From(j, deaf), func(int64) error {
		if n++; n > 10 {
			return errors.New("too many")
		}
		return nil
	})
	require.NoError(t, runtime.Run(t.Context(), j, nil))
	require.Equal(t, 10, n)
}
