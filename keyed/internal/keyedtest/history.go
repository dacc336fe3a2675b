package keyedtest

import (
	"bytes"
	"context"
	"flag"
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/snapshot"
)

var (
	histories    = flag.Int("keyed.histories", 60, "how many short histories to run")
	firstHistory = flag.Uint64("keyed.first", 1, "the number of the first, at least 1")
)

// Histories runs many short histories of Model's: of few operations and keys, with
// at least one snapshot each, of any kind, which is restored at another parallelism; a
// quarter of them end with a restore from there at the first one, and equal digests of all
// key groups. Each has a number and does the same every time:
//
//	GOGC=1000 go test ./keyed/lsm -run 'TestHistories$' -keyed.first 1 -keyed.histories 100000 -timeout 0
//
// A failing one is made smaller and told; to see it again: -keyed.first N -keyed.histories 1.
func (o Opener) Histories(t *testing.T) {
	for name, value := range map[string]string{"rapid.checks": "1", "rapid.steps": "12", "rapid.seed": "", "rapid.nofailfile": "true"} {
		f := flag.Lookup(name)
		old := f.Value.String()
		if value != "" {
			require.NoError(t, f.Value.Set(value))
		}
		defer func() { require.NoError(t, f.Value.Set(old)) }()
	}
	for n := *firstHistory; n < *firstHistory+uint64(*histories); n++ {
		require.NoError(t, flag.Set("rapid.seed", strconv.FormatUint(n, 10)))
		rapid.Check(&quiet{t, n}, o.history)
		if done := n - *firstHistory + 1; done%5000 == 0 {
			t.Logf("%d histories, up to number %d", done, n)
		}
	}
	t.Logf("%d histories, from number %d", *histories, *firstHistory)
}

// quiet tells of a history only if it fails.
type quiet struct {
	*testing.T
	n uint64
}

func (q *quiet) Logf(format string, args ...any) {
	if q.Failed() {
		q.T.Logf(format, args...)
	}
}

func (q *quiet) Errorf(format string, args ...any) {
	q.T.Errorf("history %d (-keyed.first %d -keyed.histories 1): "+format, append([]any{q.n, q.n}, args...)...)
}

func (o Opener) history(t *rapid.T) {
	m := newMachine(t, o, true)
	defer m.close()
	actions := m.actions()
	for _, name := range []string{"snapshot", "finish snapshot"} {
		actions[name+" 2"], actions[name+" 3"] = actions[name], actions[name]
	}
	t.Repeat(actions)
	if m.last == nil && len(m.snaps) == 0 {
		m.snapshot(t)
	}
	m.compare(t, &frozen{tasks: m.tasks, model: m.model})
	for _, v := range m.views {
		m.compare(t, v)
	}
	for len(m.snaps) > 0 {
		m.finish(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "there and back") == 0 {
		m.thereAndBack(t)
	}
}

// thereAndBack restores the state at another parallelism and from there at the present
// one: what each key group holds has to be the same, byte for byte.
func (m *machine) thereAndBack(t *rapid.T) {
	before := m.digests(t, m.tasks)
	from := m.tasks
	for _, parallelism := range []int{m.parallelism(t, 4), len(m.tasks)} {
		k := rapid.SampledFrom(kinds).Draw(t, "kind")
		sn := save(t, m.storage, m.max, k, from)
		var near []*subtask
		if k == local {
			near = from
		}
		from = m.open(parallelism, sn, near...)
		require.Equal(t, before, m.digests(t, from), "of a snapshot of kind %s at parallelism %d", k, parallelism)
	}
	want := m.model.clone()
	if !m.ttl.KeepInSnapshots {
		want.expire(m.ttl, m.now())
	}
	m.compare(t, &frozen{tasks: from, model: want})
}

// save is a complete snapshot of some subtasks, all at once.
func save(t *rapid.T, s *Storage, max int, k kind, tasks []*subtask) *snapshot.Snapshot {
	var backends []Backend[string]
	for _, s := range tasks {
		backends = append(backends, s.Backend)
	}
	return saveAs(t, s, k.options(false), max, backends)
}

// digests are those of the rows of each key group, whatever their order.
func (m *machine) digests(t *rapid.T, tasks []*subtask) map[int32]uint64 {
	sn := save(t, m.storage, m.max, canonical, tasks)
	sums := map[int32]uint64{}
	var row bytes.Buffer
	for r, err := range snapshot.Rows(context.Background(), sn, nil) {
		require.NoError(t, err)
		row.Reset()
		for _, part := range [][]byte{[]byte(r.State.Name), r.Key, r.Namespace, r.UserKey, r.Value, strconv.AppendInt(nil, r.Timestamp, 10), strconv.AppendBool(nil, r.Null)} {
			row.WriteString(strconv.Itoa(len(part)))
			row.WriteByte(':')
			row.Write(part)
		}
		sums[r.KeyGroup] += maphash.Bytes(digestSeed, row.Bytes())
	}
	return sums
}

var digestSeed = maphash.MakeSeed()
