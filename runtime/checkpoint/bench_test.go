package checkpoint

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// quickTasks acknowledge at once, with state that lies in the metadata.
type quickTasks struct {
	c     *Coordinator
	graph Graph
}

func (q *quickTasks) Trigger(t event.Task, b event.Barrier) {
	if t.Subtask != 0 {
		return
	}
	for _, v := range q.graph.Vertices {
		for s := range v.Parallelism {
			st := &metadata.SubtaskState{ManagedKeyed: &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Start: s, Count: 1},
				Offsets: []int64{1}, Delegate: &metadata.ByteStreamHandle{Data: make([]byte, 100)}}}
			q.c.Acknowledge(event.Ack{ID: b.ID, Task: event.Task{Vertex: v.ID, Subtask: s}, State: []event.OperatorSubtask{{ID: v.ID, State: st}}})
		}
	}
}
func (q *quickTasks) NotifyComplete(event.Task, int64)                      {}
func (q *quickTasks) NotifyAborted(event.Task, int64)                       {}
func (q *quickTasks) OperatorEvent(event.Task, metadata.OperatorID, []byte) {}
func (q *quickTasks) Fail(error, bool)                                      {}

// BenchmarkBackToBack is one checkpoint after the other at parallelism 4, without
// the tasks' part: what the coordinator itself costs.
func BenchmarkBackToBack(b *testing.B) {
	for _, place := range []string{"mem", "local", "local with log"} {
		b.Run(place, func(b *testing.B) {
			pool := blobstore.NewPool(nil, nil)
			defer pool.Close()
			where := "mem://bench/ckp"
			if place != "mem" {
				where = "file:" + b.TempDir()
			}
			root, err := blobstore.Parse(where)
			require.NoError(b, err)
			q := &quickTasks{}
			for i := range 3 {
				id := metadata.OperatorIDFromUID(fmt.Sprint("v", i))
				v := Vertex{ID: id, Name: fmt.Sprint("v", i), Parallelism: 4, MaxParallelism: 128, Operators: []Operator{{ID: id}}}
				if i > 0 {
					v.Inputs = []Input{{From: i - 1}}
				}
				q.graph.Vertices = append(q.graph.Vertices, v)
			}
			cfg := Config{Job: strings.Repeat("ef", 16), Graph: q.graph, Pool: pool, Checkpoints: root, Tasks: q, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
			if strings.HasSuffix(place, "log") {
				store, name, err := pool.Resolve(b.Context(), root.Join("log"))
				require.NoError(b, err)
				cfg.Store, err = NewLogStore(store, name, nil)
				require.NoError(b, err)
			}
			c, err := New(b.Context(), cfg)
			require.NoError(b, err)
			q.c = c
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			for _, v := range q.graph.Vertices {
				for s := range v.Parallelism {
					c.TaskState(event.Task{Vertex: v.ID, Subtask: s}, TaskRunning, nil)
				}
			}
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				t := time.Now()
				_, err := c.Trigger(ctx, event.Checkpoint, event.None, "")
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(t))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			cancel()
			<-done
		})
	}
}
