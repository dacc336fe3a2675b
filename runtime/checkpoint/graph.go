package checkpoint

import (
	"fmt"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// Graph is what the coordinator has to know of a running job. It is not changed
// once a Core or Coordinator was made of it.
type Graph struct {
	// Vertices in topological order: a vertex stands behind all its inputs.
	Vertices []Vertex
}

// Vertex is a chain of operators that runs as Parallelism tasks (Flink's JobVertex).
type Vertex struct {
	// ID is that of the head of the chain.
	ID             metadata.OperatorID
	Name           string // for people
	Parallelism    int32
	MaxParallelism int32
	Operators      []Operator // the chain, head first
	Inputs         []Input    // none for a source
}

// Operator is one operator of a chain.
type Operator struct {
	ID   metadata.OperatorID
	UID  string // empty if the user gave none
	Name string
	// Coordinator says that an OperatorCoordinator belongs to it.
	Coordinator bool
}

// Input is an edge from another vertex.
type Input struct {
	From int // index in Graph.Vertices
	// Producers are the subtasks of From that a subtask reads, for a pointwise
	// edge; nil for one from all to all.
	Producers func(subtask int32) []int32
}

// graph is a Graph with its tasks numbered: those of a vertex are consecutive.
type graph struct {
	Graph
	first     []int // of each vertex, and the number of all tasks at the end
	vertexOf  map[metadata.OperatorID]int
	operators map[metadata.OperatorID]operatorPlace
	// coordinators in the order of the graph.
	coordinators []metadata.OperatorID
}

type operatorPlace struct{ vertex, index int }

func newGraph(g Graph) (*graph, error) {
	n := &graph{Graph: g, vertexOf: map[metadata.OperatorID]int{}, operators: map[metadata.OperatorID]operatorPlace{}}
	total := 0
	for i := range g.Vertices {
		v := &g.Vertices[i]
		if v.Parallelism < 1 || v.MaxParallelism < v.Parallelism || v.MaxParallelism > 1<<15 {
			return nil, fmt.Errorf("vertex %s: parallelism %d of at most %d: from 1 to the maximum, and that up to 32768, are possible", v.label(), v.Parallelism, v.MaxParallelism)
		}
		if _, ok := n.vertexOf[v.ID]; ok {
			return nil, fmt.Errorf("vertex %s: its ID %s stands twice in the job", v.label(), v.ID)
		}
		if len(v.Operators) == 0 {
			return nil, fmt.Errorf("vertex %s has no operator", v.label())
		}
		for k := range v.Operators {
			o := &v.Operators[k]
			if _, ok := n.operators[o.ID]; ok {
				return nil, fmt.Errorf("operator %s: its ID %s stands twice in the job", o.label(), o.ID)
			}
			n.operators[o.ID] = operatorPlace{i, k}
			if o.Coordinator {
				n.coordinators = append(n.coordinators, o.ID)
			}
		}
		for _, in := range v.Inputs {
			if in.From < 0 || in.From >= i {
				return nil, fmt.Errorf("vertex %s: input from vertex %d, which does not stand before it", v.label(), in.From)
			}
		}
		n.vertexOf[v.ID] = i
		n.first = append(n.first, total)
		total += int(v.Parallelism)
	}
	n.first = append(n.first, total)
	return n, nil
}

func (v *Vertex) label() string {
	if v.Name != "" {
		return v.Name
	}
	return v.ID.String()
}

func (o *Operator) label() string {
	switch {
	case o.Name != "":
		return o.Name
	case o.UID != "":
		return o.UID
	}
	return o.ID.String()
}

func (g *graph) tasks() int { return g.first[len(g.first)-1] }

// task is the number of a task, -1 if the job has no such.
func (g *graph) task(t event.Task) int {
	v, ok := g.vertexOf[t.Vertex]
	if !ok || t.Subtask < 0 || t.Subtask >= g.Vertices[v].Parallelism {
		return -1
	}
	return g.first[v] + int(t.Subtask)
}

// place is the vertex and subtask of a task number.
func (g *graph) place(task int) (vertex int, subtask int32) {
	for vertex+1 < len(g.first)-1 && task >= g.first[vertex+1] {
		vertex++
	}
	return vertex, int32(task - g.first[vertex])
}

// taskName is "count[1]".
func (g *graph) taskName(t event.Task) string {
	v, ok := g.vertexOf[t.Vertex]
	if !ok {
		return t.String()
	}
	name := fmt.Sprintf("%s[%d]", g.Vertices[v].label(), t.Subtask)
	if t.Attempt > 0 {
		name += fmt.Sprintf("#%d", t.Attempt)
	}
	return name
}

func (g *graph) operatorName(id metadata.OperatorID) string {
	p, ok := g.operators[id]
	if !ok {
		return id.String()
	}
	return g.Vertices[p.vertex].Operators[p.index].label()
}
