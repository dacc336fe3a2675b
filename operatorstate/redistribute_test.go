package operatorstate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

func handle(states ...metadata.NamedPartitions) *metadata.OperatorHandle {
	return &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, States: states}
}

func of(name string, mode metadata.DistributionMode, offsets ...int64) metadata.NamedPartitions {
	return metadata.NamedPartitions{Name: javaio.NewString(name), Mode: mode, Offsets: offsets}
}

// dealt is what each new subtask gets of a state: old subtask and offset.
func dealt(t *testing.T, old []*metadata.OperatorHandle, n int, name string) []string {
	t.Helper()
	r, err := Redistribute(old, n)
	require.NoError(t, err)
	out := make([]string, n)
	for i := range n {
		for _, p := range r.Parts(i) {
			for _, s := range p.States {
				if s.Name.Go() != name {
					continue
				}
				for _, o := range s.Offsets {
					for k, h := range old {
						if h == p.Handle {
							out[i] += fmt.Sprintf("%d:%d ", k, o)
						}
					}
				}
			}
		}
	}
	return out
}

func TestSplit(t *testing.T) {
	old := []*metadata.OperatorHandle{
		handle(of("a", metadata.ModeSplit, 1, 2, 3), of("b", metadata.ModeSplit, 4)),
		nil,
		handle(of("a", metadata.ModeSplit, 1, 2), of("b", metadata.ModeSplit, 3, 4)),
	}
	// 5 partitions of a: runs of 3 and 2. Subtask 0 got the longer one, so that the
	// run of 2 of the 3 of b begins with subtask 1.
	require.Equal(t, []string{"0:1 0:2 0:3 ", "2:1 2:2 "}, dealt(t, old, 2, "a"))
	require.Equal(t, []string{"2:4 ", "0:4 2:3 "}, dealt(t, old, 2, "b"))
	require.Equal(t, []string{"0:1 0:2 0:3 2:1 2:2 "}, dealt(t, old, 1, "a"))
	// One more than partitions: b goes on where a ended, at subtask 5 of 6.
	require.Equal(t, []string{"0:1 ", "0:2 ", "0:3 ", "2:1 ", "2:2 ", ""}, dealt(t, old, 6, "a"))
	require.Equal(t, []string{"2:3 ", "2:4 ", "", "", "", "0:4 "}, dealt(t, old, 6, "b"))
	// The same parallelism: nobody's changes, also where one has nothing.
	require.Equal(t, []string{"0:1 0:2 0:3 ", "", "2:1 2:2 "}, dealt(t, old, 3, "a"))
}

func TestUnionAndBroadcast(t *testing.T) {
	old := []*metadata.OperatorHandle{
		handle(of("u", metadata.ModeUnion, 1, 2), of("bc", metadata.ModeBroadcast, 9)),
		handle(of("u", metadata.ModeUnion, 1), of("bc", metadata.ModeBroadcast, 9)),
		nil,
	}
	for _, n := range []int{1, 2, 3, 5} {
		for _, got := range dealt(t, old, n, "u") {
			require.Equal(t, "0:1 0:2 1:1 ", got)
		}
	}
	require.Equal(t, []string{"0:9 ", "1:9 ", "0:9 ", "1:9 ", "0:9 "}, dealt(t, old, 5, "bc"))
	require.Equal(t, []string{"0:9 ", "1:9 ", "0:9 "}, dealt(t, old, 3, "bc"), "the third had finished")
	require.Equal(t, []string{"0:9 "}, dealt(t, old, 1, "bc"))
}

func TestRedistributeRefuses(t *testing.T) {
	for _, n := range []int{-1, 0, 1<<15 + 1} {
		_, err := Redistribute(nil, n)
		require.ErrorContains(t, err, "from 1 to 32768")
	}
	for _, o := range []metadata.OperatorState{{Parallelism: -3}, {Parallelism: 1 << 30}, {Parallelism: 1, Subtasks: []metadata.SubtaskState{{Index: 1}}}} {
		_, err := Handles(&o)
		require.ErrorIs(t, err, metadata.ErrCorrupt)
	}
	r, err := Redistribute(nil, 3)
	require.NoError(t, err)
	require.Empty(t, r.Parts(2))
}

// Vectors from Java 17: the values of a HashMap into which these names were put with
// their position, for n names in a map of the default size and in one made for n.
func TestHashMapOrder(t *testing.T) {
	names := []metadata.String{"state.list", "state.union", "state.empty", "state.broadcast", "a", "b", "q", "offsets", "SourceReaderState",
		"writer_raw_states", "rules", "x1", "x2", "x3", "x4", "x5", "x6"}
	for _, v := range []struct {
		n, expected int
		want        []int
	}{
		{4, 0, []int{1, 2, 0, 3}},
		{8, 8, []int{1, 2, 4, 6, 0, 5, 7, 3}},
		{12, 0, []int{1, 2, 8, 4, 6, 0, 5, 7, 9, 3, 11, 10}},
		{12, 12, []int{1, 2, 4, 0, 5, 9, 3, 10, 8, 6, 7, 11}},
		{13, 0, []int{1, 2, 4, 0, 5, 9, 3, 10, 8, 6, 7, 11, 12}},
		{17, 0, []int{1, 2, 4, 0, 5, 9, 3, 10, 8, 6, 7, 11, 12, 13, 14, 15, 16}},
	} {
		require.Equal(t, v.want, hashMapOrder(names[:v.n], v.expected), "%d of %d", v.n, v.expected)
	}
}

// flink is RoundRobinOperatorStateRepartitioner for split state, as its loop goes:
// partition by partition, with the remainder counted down.
func flink(states [][][]int64, n int) [][][]int64 {
	result := make([][][]int64, n)
	for i := range result {
		result[i] = make([][]int64, len(states))
	}
	start := 0
	for k, shares := range states {
		var all []int64
		for _, s := range shares {
			all = append(all, s...)
		}
		base, remainder, next := len(all)/n, len(all)%n, start
		for i := range n {
			to := (i + start) % n
			count := base
			if remainder > 0 {
				count++
				remainder--
			} else if remainder == 0 {
				next = to
				remainder--
			}
			result[to][k], all = append(result[to][k], all[:count]...), all[count:]
		}
		start = next
	}
	return result
}

// Random shares against the loop of Flink's class.
func TestSplitAsFlink(t *testing.T) {
	const seed = 20261129
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 3000 {
		oldN, newN, stateN := 1+rnd.IntN(6), 1+rnd.IntN(9), 1+rnd.IntN(4)
		if oldN == newN {
			continue
		}
		var names []metadata.String
		for k := range stateN {
			names = append(names, metadata.String(fmt.Sprintf("s%d-%d", rnd.IntN(100), k)))
		}
		old := make([]*metadata.OperatorHandle, oldN)
		shares := make([][][]int64, stateN)
		next := int64(1)
		for i := range old {
			old[i] = handle()
			for k, name := range names {
				p := metadata.NamedPartitions{Name: name, Offsets: []int64{}}
				for range rnd.IntN(5) {
					p.Offsets = append(p.Offsets, next)
					next++
				}
				old[i].States = append(old[i].States, p)
				shares[k] = append(shares[k], p.Offsets)
			}
		}
		order := hashMapOrder(names, 0)
		inOrder := make([][][]int64, stateN)
		for i, k := range order {
			inOrder[i] = shares[k]
		}
		want := flink(inOrder, newN)
		r, err := Redistribute(old, newN)
		require.NoError(t, err)
		for i := range newN {
			got := map[metadata.String][]int64{}
			for _, p := range r.Parts(i) {
				for _, s := range p.States {
					got[s.Name] = append(got[s.Name], s.Offsets...)
				}
			}
			for pos, k := range order {
				require.Equal(t, want[i][pos], got[names[k]], "seed %d, round %d: subtask %d, state %s", seed, round, i, names[k])
			}
		}
	}
}
