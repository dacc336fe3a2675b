package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

func assignGraph(parallelism, maxParallelism int32) Graph {
	source, count := metadata.OperatorIDFromUID("source"), metadata.OperatorIDFromUID("count")
	return Graph{Vertices: []Vertex{
		{ID: source, Name: "source", Parallelism: 1, MaxParallelism: maxParallelism, Operators: []Operator{{ID: source, Coordinator: true}}},
		{ID: count, Name: "count", Parallelism: parallelism, MaxParallelism: maxParallelism, Operators: []Operator{{ID: count, Name: "count"}}, Inputs: []Input{{From: 0}}},
	}}
}

// taken is a checkpoint of two counters with 8 key groups.
func taken() *metadata.Checkpoint {
	keyed := func(start, n int32) metadata.KeyedHandle {
		return &metadata.KeyGroupsHandle{Form: metadata.TagKeyGroups, Range: metadata.KeyGroupRange{Start: start, Count: n}, Offsets: make([]int64, n), Delegate: &metadata.ByteStreamHandle{}}
	}
	list := func(n int) *metadata.OperatorHandle {
		return &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, Delegate: &metadata.ByteStreamHandle{}, States: []metadata.NamedPartitions{{Name: javaio.NewString("l"), Offsets: make([]int64, n)}}}
	}
	return &metadata.Checkpoint{Version: 4, ID: 7, Operators: []metadata.OperatorState{
		{ID: metadata.OperatorIDFromUID("source"), Parallelism: 1, MaxParallelism: 8, Coordinator: &metadata.ByteStreamHandle{Data: []byte("splits")}},
		{ID: metadata.OperatorIDFromUID("count"), Parallelism: 2, MaxParallelism: 8, Subtasks: []metadata.SubtaskState{
			{Index: 0, ManagedKeyed: keyed(0, 4), ManagedOperator: list(3)},
			{Index: 1, ManagedKeyed: keyed(4, 4), RawKeyed: keyed(4, 4), ManagedOperator: list(3)},
		}},
	}}
}

func TestAssignRescaled(t *testing.T) {
	count := metadata.OperatorIDFromUID("count")
	for _, c := range []struct {
		parallelism int32
		groups      [][2]int32 // first and last key group of each new subtask
		old         [][]int32
		lists       []int // partitions of the list
	}{
		{1, [][2]int32{{0, 7}}, [][]int32{{0, 1}}, []int{6}},
		{2, [][2]int32{{0, 3}, {4, 7}}, [][]int32{{0}, {1}}, []int{3, 3}},
		{3, [][2]int32{{0, 2}, {3, 5}, {6, 7}}, [][]int32{{0}, {0, 1}, {1}}, []int{2, 2, 2}},
		{8, [][2]int32{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 6}, {7, 7}}, [][]int32{{0}, {0}, {0}, {0}, {1}, {1}, {1}, {1}}, []int{1, 1, 1, 1, 1, 1, 0, 0}},
	} {
		// 128 key groups were configured; the state has 8.
		a, err := Assign(taken(), assignGraph(c.parallelism, 128), nil)
		require.NoError(t, err)
		require.Equal(t, []int32{8, 8}, a.MaxParallelism)
		for s := range c.parallelism {
			r := a.Subtask(count, s)
			require.Equal(t, c.groups[s], [2]int32{r.KeyGroups.Start, r.KeyGroups.End()})
			require.Equal(t, c.old[s], r.Old)
			require.Equal(t, c.parallelism != 2, r.Rescaled)
			partitions := 0
			for _, p := range r.ManagedOperator {
				for _, n := range p.States {
					partitions += len(n.Offsets)
				}
			}
			require.Equal(t, c.lists[s], partitions, "subtask %d of %d", s, c.parallelism)
		}
		require.Equal(t, "splits", string(a.Coordinator(metadata.OperatorIDFromUID("source"))))
	}
}

func TestAssignRefused(t *testing.T) {
	_, err := Assign(taken(), assignGraph(9, 128), nil)
	require.ErrorIs(t, err, ErrParallelism)
	require.ErrorContains(t, err, "operator count: the snapshot's state cannot be restored at this parallelism: parallelism 9, and the state has 8 key groups")
	_, err = Assign(taken(), assignGraph(2, 128), &AssignOptions{FixedMax: func(int) bool { return true }})
	require.ErrorIs(t, err, ErrParallelism)

	m := taken()
	m.Operators[1].ID = metadata.OperatorIDFromUID("gone")
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.ErrorIs(t, err, ErrNonRestored)
	require.ErrorContains(t, err, metadata.OperatorIDFromUID("gone").String())
	a, err := Assign(m, assignGraph(2, 8), &AssignOptions{AllowNonRestored: true})
	require.NoError(t, err)
	require.Equal(t, []metadata.OperatorID{metadata.OperatorIDFromUID("gone")}, a.Dropped)
	require.Empty(t, a.Subtask(metadata.OperatorIDFromUID("count"), 0).ManagedKeyed)
	m.Operators[1].Subtasks = nil // without state nothing is lost
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.NoError(t, err)

	m = taken()
	m.Operators[1].Subtasks[1].Index = 5
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.ErrorIs(t, err, metadata.ErrCorrupt)
	m = taken()
	m.Operators[1].MaxParallelism = 1 << 20
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.ErrorIs(t, err, metadata.ErrCorrupt)
	m = taken()
	m.Operators = append(m.Operators, m.Operators[1])
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.ErrorIs(t, err, metadata.ErrCorrupt)
}

func TestAssignFinished(t *testing.T) {
	m := taken()
	m.Operators[0] = metadata.OperatorState{ID: m.Operators[0].ID, Parallelism: 1, MaxParallelism: 8, FinishedCount: -1}
	m.Operators[1].Subtasks[0] = metadata.SubtaskState{Index: 0, Finished: true}
	a, err := Assign(m, assignGraph(2, 8), nil)
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, a.FinishedVertices)
	count := metadata.OperatorIDFromUID("count")
	require.True(t, a.Subtask(metadata.OperatorIDFromUID("source"), 0).Finished)
	require.True(t, a.Subtask(count, 0).Finished)
	require.False(t, a.Subtask(count, 1).Finished)
	a, err = Assign(m, assignGraph(3, 8), nil)
	require.NoError(t, err)
	require.False(t, a.Subtask(count, 0).Finished, "at another parallelism it is another subtask")

	// Behind a source that is new nothing can have finished.
	m = taken()
	m.Operators[0].ID = metadata.OperatorIDFromUID("old source")
	m.Operators[0].Coordinator = nil
	m.Operators[1] = metadata.OperatorState{ID: count, Parallelism: 2, MaxParallelism: 8, FinishedCount: -1}
	_, err = Assign(m, assignGraph(2, 8), nil)
	require.ErrorContains(t, err, "vertex count had finished, but its input source had not or is new")
}

func TestGraphRefused(t *testing.T) {
	for name, change := range map[string]func(*Graph){
		"parallelism 0 of at most 8":                          func(g *Graph) { g.Vertices[1].Parallelism = 0 },
		"parallelism 9 of at most 8":                          func(g *Graph) { g.Vertices[1].Parallelism = 9 },
		"has no operator":                                     func(g *Graph) { g.Vertices[1].Operators = nil },
		"stands twice in the job":                             func(g *Graph) { g.Vertices[1].ID = g.Vertices[0].ID },
		"which does not stand before":                         func(g *Graph) { g.Vertices[1].Inputs[0].From = 1 },
		"ID " + metadata.OperatorIDFromUID("source").String(): func(g *Graph) { g.Vertices[1].Operators[0].ID = g.Vertices[0].ID },
	} {
		g := assignGraph(2, 8)
		change(&g)
		_, err := Assign(taken(), g, nil)
		require.ErrorContains(t, err, name)
	}
}

// The queue is bounded, and what matters least is dropped.
func TestDeciderBound(t *testing.T) {
	var d decider
	require.Nil(t, d.add(&Request{}))
	require.NotNil(t, d.add(&Request{}), "a second periodic one is of no use")
	for i := range int64(maxQueued - 1) {
		require.Nil(t, d.add(&Request{Number: i + 1}))
	}
	sp := &Request{Number: 5000, Type: 2}
	dropped := d.add(sp)
	require.True(t, dropped.periodic())
	require.Equal(t, sp, d.queue[0])
	late := &Request{Number: 5001}
	require.Equal(t, late, d.add(late), "there are only requests of users: the new one is dropped")
	r, _, _ := d.next(0, 100, 9, 1)
	require.Equal(t, sp, r, "neither the limit nor the pause hold up a savepoint")
	r, _, _ = d.next(0, 100, 1, 1)
	require.Nil(t, r)
	r, early, _ := d.next(0, 100, 0, 1)
	require.Nil(t, early, "the pause holds up the periodic one only")
	require.Equal(t, int64(1), r.Number)
}
