package sim

import (
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/serializer"
)

// Shape of a job.
type Shape uint8

// Shapes.
const (
	// Keyed is source → count → sink, each record going to the counter of its key,
	// and each count to the sink of its key. All tasks restart together.
	Keyed Shape = iota
	// Pipelines are several source → pass → sink beside each other, which share
	// nothing but the source's coordinator: one that fails restarts alone.
	Pipelines
)

func (s Shape) String() string {
	if s == Pipelines {
		return "pipelines"
	}
	return "keyed"
}

// Vertices of a job.
const (
	theSource = iota
	theCounter
	theSink
	vertexCount
)

// maxParallelism is the number of key groups.
const maxParallelism = 8

var (
	vertices     = [vertexCount]metadata.OperatorID{metadata.OperatorIDFromUID("source"), metadata.OperatorIDFromUID("count"), metadata.OperatorIDFromUID("sink")}
	vertexNames  = [vertexCount]string{"source", "count", "sink"}
	firstDegrees = degrees{2, 2, 1}
)

// degrees is the parallelism of each vertex.
type degrees [vertexCount]int32

// drawDegrees picks the parallelism of a life of the job.
func (w *world) drawDegrees() degrees {
	d := firstDegrees
	if w.cfg.Shape == Pipelines {
		d = degrees{2, 2, 2}
	}
	if !w.cfg.Rescale {
		return d
	}
	if w.cfg.Shape == Pipelines {
		n := 1 + w.r.Int32N(3)
		return degrees{n, n, n}
	}
	return degrees{1 + w.r.Int32N(3), 1 + w.r.Int32N(3), 1 + w.r.Int32N(2)}
}

func same(subtask int32) []int32 { return []int32{subtask} }

// graph is the job as its coordinator sees it.
func (w *world) graph(d degrees) checkpoint.Graph {
	var g checkpoint.Graph
	for v := range vertices {
		x := checkpoint.Vertex{ID: vertices[v], Name: vertexNames[v], Parallelism: d[v], MaxParallelism: maxParallelism,
			Operators: []checkpoint.Operator{{ID: vertices[v], Coordinator: v == theSource}}}
		if v > 0 {
			in := checkpoint.Input{From: v - 1}
			if w.cfg.Shape == Pipelines {
				in.Producers = same
			}
			x.Inputs = []checkpoint.Input{in}
		}
		g.Vertices = append(g.Vertices, x)
	}
	return g
}

// place is where a task stands in the job.
type place struct {
	vertex  int
	subtask int32
}

// placeOf finds a task's place.
func placeOf(t event.Task) place {
	for v := range vertices {
		if vertices[v] == t.Vertex {
			return place{v, t.Subtask}
		}
	}
	return place{-1, 0}
}

// channels is how many inputs a task of a vertex has.
func (w *world) channels(d degrees, v int) int {
	switch {
	case v == theSource:
		return 0
	case w.cfg.Shape == Pipelines:
		return 1
	}
	return int(d[v-1])
}

// groups are the key groups of the keys: those of a BIGINT, whose hash code a small
// number is itself.
var groups = func() (g [keyCount]int32) {
	for key := range g {
		g[key] = int32(serializer.AssignKeyGroup(int32(key), maxParallelism))
	}
	return g
}()

func keyGroupRange(subtask, n int32) (first, last int32) {
	a, b := serializer.KeyGroupRange(int(subtask), int(n), maxParallelism)
	return int32(a), int32(b)
}

// ownerOf is the subtask of n that a key belongs to.
func ownerOf(key int32, n int32) int32 {
	return int32(serializer.SubtaskOf(int(groups[key]), int(n), maxParallelism))
}
