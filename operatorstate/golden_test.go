package operatorstate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/operatorstate"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

func openSnapshot(t testing.TB, dir string) *snapshot.Snapshot {
	t.Helper()
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { pool.Close() })
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	return s
}

// onGoldens runs a test on the committed goldens and on all there are.
func onGoldens(t *testing.T, test func(*testing.T, []*testdata.Case)) {
	t.Run("committed", func(t *testing.T) { test(t, testdata.Goldens(t)) })
	t.Run("shared", func(t *testing.T) { test(t, testdata.AllGoldens(t)) })
}

// subtasks opens the state of an operator as a job with a number of subtasks would.
func subtasks(t *testing.T, s *snapshot.Snapshot, id string, n int) []*operatorstate.Backend {
	t.Helper()
	for i := range s.Checkpoint.Operators {
		o := &s.Checkpoint.Operators[i]
		if o.ID.String() != id {
			continue
		}
		handles, err := operatorstate.Handles(o)
		require.NoError(t, err)
		if n == 0 {
			n = len(handles)
		}
		r, err := operatorstate.Redistribute(handles, n)
		require.NoError(t, err)
		out := make([]*operatorstate.Backend, n)
		for i := range out {
			out[i], err = operatorstate.Open(t.Context(), s, r.Parts(i))
			require.NoError(t, err)
		}
		return out
	}
	return nil
}

type row struct {
	Operator string          `json:"operator_uid"`
	State    string          `json:"state"`
	Kind     string          `json:"kind"`
	Subtask  int             `json:"subtask"`
	MapKey   string          `json:"map_key"`
	Value    json.RawMessage `json:"value"`
}

func rows(t *testing.T, c *testdata.Case, uid string) (out []row) {
	data, err := os.ReadFile(c.File("expected.jsonl"))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		var r row
		if json.Unmarshal([]byte(line), &r) == nil && r.Operator == uid {
			out = append(out, r)
		}
	}
	return out
}

func operatorID(c *testdata.Case, uid string) string {
	for _, o := range c.Operators {
		if o.UID == uid {
			return o.ID
		}
	}
	return ""
}

type pair = serializer.Pair[int64, string]

// Every golden with operator state of its own: list, union and broadcast state at
// the same, a lower and a higher parallelism has what the job had put into it.
func TestGoldens(t *testing.T) { onGoldens(t, testGoldens) }

func testGoldens(t *testing.T, cases []*testdata.Case) {
	checked := 0
	for _, c := range cases {
		id := operatorID(c, "uid.checkpointed")
		if id == "" {
			continue
		}
		checked++
		t.Run(c.Name, func(t *testing.T) {
			s := openSnapshot(t, c.File(c.Snapshot))
			var split []pair
			var union []string
			bySubtask := map[int][]pair{}
			broadcast := map[string]int64{}
			for _, r := range rows(t, c, "uid.checkpointed") {
				switch r.State {
				case "state.split":
					var list [][2]any
					require.NoError(t, json.Unmarshal(r.Value, &list))
					for _, e := range list {
						p := pair{F0: int64(e[0].(float64)), F1: e[1].(string)}
						split = append(split, p)
						bySubtask[r.Subtask] = append(bySubtask[r.Subtask], p)
					}
				case "state.union":
					var list []string
					require.NoError(t, json.Unmarshal(r.Value, &list))
					union = append(union, list...)
				case "state.broadcast":
					var v int64
					require.NoError(t, json.Unmarshal(r.Value, &v))
					broadcast[r.MapKey] = v
				}
			}
			require.NotEmpty(t, split)
			slices.Sort(union)
			for _, n := range []int{0, 1, 2, 5, 40} {
				var got []pair
				for i, b := range subtasks(t, s, id, n) {
					st, err := operatorstate.List(b, "state.split", serializer.Tuple2(serializer.Int64, serializer.String))
					require.NoError(t, err)
					var mine []pair
					for _, e := range st.All() {
						mine = append(mine, e)
					}
					if n == 0 {
						require.Equal(t, bySubtask[i], mine)
					}
					got = append(got, mine...)
					un, err := operatorstate.Union(b, "state.union", serializer.String)
					require.NoError(t, err)
					var all []string
					for _, e := range un.All() {
						all = append(all, e)
					}
					slices.Sort(all)
					require.Equal(t, union, all)
					bc, err := operatorstate.Broadcast(b, "state.broadcast", serializer.String, serializer.Int64)
					require.NoError(t, err)
					entries := map[string]int64{}
					for k, v := range bc.All() {
						entries[k] = v
					}
					require.Equal(t, broadcast, entries)
					require.Equal(t, len(entries), bc.Len())
				}
				require.ElementsMatch(t, split, got, "parallelism %d", n)
			}
		})
	}
	require.NotZero(t, checked)
}

// What a real Flink did with the source readers of jobs that it restored at another
// parallelism: each new subtask had these splits afterwards.
func TestRescaledGoldens(t *testing.T) {
	checked := 0
	var rescaled []string
	for _, c := range testdata.AllGoldens(t) {
		id := operatorID(c, "events")
		if !strings.Contains(c.Name, "-rescale-") || id == "" || len(c.Snapshots) < 2 {
			continue
		}
		for k := range len(c.Snapshots) - 1 {
			before, after := c.Snapshots[k], c.Snapshots[k+1]
			if before.Parallelism == after.Parallelism {
				continue
			}
			was, is := openSnapshot(t, c.File(before.Path)), openSnapshot(t, c.File(after.Path))
			got, want := subtasks(t, was, id, after.Parallelism), subtasks(t, is, id, 0)
			require.Len(t, want, after.Parallelism)
			for i := range want {
				var splits [2][]string
				for k, b := range []*operatorstate.Backend{got[i], want[i]} {
					st, err := operatorstate.List(b, "SourceReaderState", serializer.Bytes)
					require.NoError(t, err)
					for _, e := range st.All() {
						splits[k] = append(splits[k], fmt.Sprintf("%x", e))
					}
				}
				require.Equal(t, splits[1], splits[0], "%s: subtask %d", c.Name, i)
				checked += len(splits[0])
			}
			rescaled = append(rescaled, c.Name)
		}
	}
	t.Log("rescaled:", rescaled)
	require.NotZero(t, checked)
}

// Every golden's operator state, written again by us without a registered type,
// has the same rows.
func TestGoldensAgain(t *testing.T) { onGoldens(t, testGoldensAgain) }

func testGoldensAgain(t *testing.T, cases []*testdata.Case) {
	checked := 0
	for _, c := range cases {
		s := openSnapshot(t, c.File(c.Snapshot))
		for i := range s.Checkpoint.Operators {
			o := &s.Checkpoint.Operators[i]
			for k := range o.Subtasks {
				h := o.Subtasks[k].ManagedOperator
				if h == nil || h.Empty {
					continue
				}
				b, err := operatorstate.Open(t.Context(), s, []operatorstate.Part{{Handle: h, States: h.States}})
				require.NoError(t, err, c.Dir)
				for _, compress := range []bool{false, true} {
					snap := b.Snapshot()
					var out memory
					states, err := snap.WriteTo(t.Context(), &out, &operatorstate.WriteOptions{Compress: compress})
					require.NoError(t, err, c.Dir)
					again := &metadata.OperatorHandle{Form: metadata.TagPartitionableOperator, States: states, Delegate: &metadata.ByteStreamHandle{Data: out}}
					require.Equal(t, content(t, s, h), content(t, s, again), "%s: operator %s, subtask %d", c.Dir, o.ID, k)
					checked++
				}
			}
		}
	}
	require.NotZero(t, checked)
}

type memory []byte

func (m *memory) Write(p []byte) (int, error) { *m = append(*m, p...); return len(p), nil }

// content reads a handle with the types that its file tells.
func content(t *testing.T, s operatorstate.Opener, h *metadata.OperatorHandle) map[string][]string {
	ctx := context.Background()
	out := map[string][]string{}
	b, err := operatorstate.Open(ctx, s, []operatorstate.Part{{Handle: h, States: h.States}})
	require.NoError(t, err)
	for _, meta := range b.Restored() {
		name := meta.Name
		switch meta.Mode() {
		case "BROADCAST":
			st, err := operatorstate.Broadcast(b, name, serializer.Serializer[string](rawOf{meta.Key()}), serializer.Serializer[string](rawOf{meta.Value()}))
			require.NoError(t, err)
			for k, v := range st.All() {
				out[name] = append(out[name], fmt.Sprintf("%x=%x", k, v))
			}
			slices.Sort(out[name])
		default:
			reg := operatorstate.List[string]
			if meta.Mode() == "UNION" {
				reg = operatorstate.Union[string]
			}
			st, err := reg(b, name, rawOf{meta.Value()})
			require.NoError(t, err)
			out[name] = []string{}
			for _, v := range st.All() {
				out[name] = append(out[name], fmt.Sprintf("%x", v))
			}
		}
	}
	return out
}

// rawOf keeps values as their bytes.
type rawOf struct{ t *serializer.Type }

func (r rawOf) Append(dst []byte, v string) []byte { return append(dst, v...) }
func (r rawOf) Type() *serializer.Type             { return r.t }
func (r rawOf) Read(b []byte) (string, int, error) {
	n, err := serializer.NewDecoder(r.t, nil).Skip(b)
	if err != nil {
		return "", 0, err
	}
	return string(b[:n]), n, nil
}
