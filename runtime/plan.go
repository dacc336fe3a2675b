package runtime

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// vertex is a chain of operators that runs as tasks: Flink's JobVertex.
type vertex struct {
	nodes   []*stream.Node // the head first; topological
	inputs  []*exchange
	outputs []*exchange
	max     int // max parallelism: the snapshot's if there is one
}

func (v *vertex) head() *stream.Node { return v.nodes[0] }
func (v *vertex) parallelism() int   { return v.head().Parallelism }

func (v *vertex) name() string {
	names := make([]string, len(v.nodes))
	for i, n := range v.nodes {
		names[i] = n.Name
	}
	return strings.Join(names, " -> ")
}

func (v *vertex) task(subtask int, attempt int32) event.Task {
	return event.Task{Vertex: v.head().ID, Subtask: int32(subtask), Attempt: attempt}
}

// exchange is an edge between two vertices.
type exchange struct {
	edge     *stream.Edge
	from, to *vertex
}

// plan is a job as vertices, in topological order: Flink's JobGraph.
type plan struct {
	job      *stream.Job
	vertices []*vertex
	byNode   []*vertex // by Node.Index
}

// newPlan chains the operators of a job.
func newPlan(j *stream.Job) (*plan, error) {
	if err := j.Check(); err != nil {
		return nil, fmt.Errorf("job %s: %w", j.Name, err)
	}
	p := &plan{job: j, byNode: make([]*vertex, len(j.Nodes))}
	for _, n := range j.Nodes {
		if len(n.In) == 1 && n.In[0].Chained() {
			v := p.byNode[n.In[0].From.Index]
			v.nodes = append(v.nodes, n)
			p.byNode[n.Index] = v
			continue
		}
		v := &vertex{nodes: []*stream.Node{n}, max: n.MaxParallelism}
		p.vertices = append(p.vertices, v)
		p.byNode[n.Index] = v
		for _, e := range n.In {
			x := &exchange{e, p.byNode[e.From.Index], v}
			v.inputs = append(v.inputs, x)
			x.from.outputs = append(x.from.outputs, x)
		}
	}
	return p, nil
}

// graph is the plan as the checkpoint coordinator knows it.
func (p *plan) graph() checkpoint.Graph {
	var g checkpoint.Graph
	index := map[*vertex]int{}
	for i, v := range p.vertices {
		index[v] = i
		c := checkpoint.Vertex{ID: v.head().ID, Name: v.name(), Parallelism: int32(v.parallelism()), MaxParallelism: int32(v.max)}
		for _, n := range v.nodes {
			c.Operators = append(c.Operators, checkpoint.Operator{ID: n.ID, UID: n.UID, Name: n.Name, Coordinator: n.Coordinator != nil})
		}
		for _, x := range v.inputs {
			in := checkpoint.Input{From: index[x.from]}
			if x.pointwise() {
				in.Producers = func(subtask int32) []int32 { return []int32{subtask} }
			}
			c.Inputs = append(c.Inputs, in)
		}
		g.Vertices = append(g.Vertices, c)
	}
	return g
}

// pointwise says that a subtask sends to that of the same index only.
func (x *exchange) pointwise() bool { return x.edge.Exchange == stream.Forward }

func (x *exchange) route() task.Route {
	return [...]task.Route{stream.Forward: task.RouteForward, stream.Rebalance: task.RouteRebalance, stream.Hash: task.RouteHash, stream.Broadcast: task.RouteBroadcast}[x.edge.Exchange]
}

// ends are the two ends of an exchange, by subtask.
type ends struct {
	partitions []*channel.Partition
	gates      []*channel.Gate
}

// connect makes the channels of an exchange. With an error it gives those that there
// are: links may be joined to them.
func (x *exchange) connect(pool *channel.Pool, links channel.Links, partitionIndex, gateIndex, buffers int) (*ends, error) {
	from, to := x.from.parallelism(), x.to.parallelism()
	e := &ends{}
	opts := &channel.PartitionOptions{BuffersPerChannel: buffers, AlignedOnly: x.edge.Exchange == stream.Forward || x.edge.Exchange == stream.Broadcast}
	subs, channels := to, from
	if x.pointwise() {
		subs, channels = 1, 1
	}
	for range to {
		e.gates = append(e.gates, channel.NewGate(gateIndex, channels))
	}
	for i := range from {
		p, err := channel.NewPartition(pool, partitionIndex, subs, opts)
		if err != nil {
			return e, err
		}
		e.partitions = append(e.partitions, p)
		for s := range subs {
			gate, from := s, i
			if x.pointwise() {
				gate, from = i, 0
			}
			if err := links.Join(p, s, e.gates[gate], from); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

// close gives the memory back; all tasks have ended.
func (e *ends) close() {
	for _, p := range e.partitions {
		p.Close()
	}
	for _, g := range e.gates {
		g.Close()
	}
}

// coordinator makes the coordinator of an operator.
func (p *plan) coordinator(op metadata.OperatorID, c checkpoint.CoordinatorContext) (checkpoint.OperatorCoordinator, error) {
	for _, n := range p.job.Nodes {
		if n.ID == op && n.Coordinator != nil {
			return n.Coordinator(c)
		}
	}
	return nil, fmt.Errorf("operator %s has no coordinator", op)
}

// recovery is what was in flight on the exchange for a subtask of its receiver.
func (x *exchange) recovery(s *snapshot.Snapshot, partition, gate, subtask int) (*channel.Recovery, error) {
	mapper := channel.RoundRobin
	switch x.edge.Exchange {
	case stream.Hash:
		mapper = channel.Range
	case stream.Broadcast:
		mapper = channel.Replicate
	}
	return channel.Restore(s, channel.Exchange{Up: x.from.nodes[len(x.from.nodes)-1].ID, Down: x.to.head().ID, Partition: int32(partition), Gate: int32(gate),
		Mapper: mapper, Pointwise: x.pointwise(), UpParallelism: x.from.parallelism(), DownParallelism: x.to.parallelism(), MaxParallelism: x.to.max}, subtask)
}

// takesInFlight checks that what was in flight in front of and behind the operators of
// the job has a channel that gives it back.
func (p *plan) takesInFlight(s *snapshot.Snapshot) error {
	nodes := map[string]*stream.Node{}
	for _, n := range p.job.Nodes {
		nodes[n.ID.String()] = n
	}
	for f := range snapshot.InFlightChannels(s, nil) {
		n := nodes[f.Operator.ID]
		if n == nil {
			continue // it may be left out as a whole
		}
		v := p.byNode[n.Index]
		end, exchanges, where := v.head(), v.inputs, "in front of"
		if f.Output {
			end, exchanges, where = v.nodes[len(v.nodes)-1], v.outputs, "behind"
		}
		if end != n || f.Gate < 0 || int(f.Gate) >= len(exchanges) {
			return fmt.Errorf("operator %s: %w: the snapshot %s has some %s it, where the job has no exchange between tasks", n.Name, ErrInFlight, s.Location, where)
		}
	}
	return nil
}

// ErrInFlight says that the job's graph has no place for data that was in flight in
// the snapshot it starts from. An operator that got its records from other tasks may
// run in one task with those now, since their parallelisms have become the same. A
// job is changed so from a savepoint, or an aligned checkpoint.
var ErrInFlight = errors.New("in-flight data has no place in the job")

// fixedMax says that the user set a vertex's max parallelism.
func (p *plan) fixedMax(vertex int) bool { return p.vertices[vertex].head().FixedMax }
