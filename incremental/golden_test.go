package incremental_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

// handle is one incremental handle of a golden.
type handle struct {
	*metadata.IncrementalHandle
	operator       *metadata.OperatorState
	subtask        int32
	maxParallelism int32
	files          []incremental.File
}

func (h *handle) bounds() (lower, upper []byte) {
	return incremental.KeyGroupBounds(h.Range, h.maxParallelism)
}

func checkpoint(t testing.TB, c *testdata.Case, path string) *metadata.Checkpoint {
	t.Helper()
	f, err := os.Open(filepath.Join(c.File(path), "_metadata"))
	require.NoError(t, err)
	defer f.Close()
	cp, err := metadata.Decode(bufio.NewReader(f), nil)
	require.NoError(t, err)
	return cp
}

// handles gives the incremental handles of a snapshot with their files opened.
func handles(t testing.TB, c *testdata.Case, path string) []*handle {
	t.Helper()
	cp := checkpoint(t, c, path)
	var out []*handle
	add := func(o *metadata.OperatorState, subtask int32, kh metadata.KeyedHandle) {
		h, ok := kh.(*metadata.IncrementalHandle)
		if !ok {
			return
		}
		x := &handle{IncrementalHandle: h, operator: o, subtask: subtask, maxParallelism: o.MaxParallelism}
		for _, list := range [][]metadata.NamedHandle{h.Shared, h.Private} {
			for _, nh := range list {
				x.files = append(x.files, incremental.File{Name: nh.Name.String(), Source: source(t, c, path, nh.Handle)})
			}
		}
		out = append(out, x)
	}
	for i := range cp.Operators {
		o := &cp.Operators[i]
		for _, s := range o.Subtasks {
			if cl, ok := s.ManagedKeyed.(*metadata.ChangelogHandle); ok {
				for _, m := range cl.Materialized {
					add(o, s.Index, m)
				}
				continue
			}
			add(o, s.Index, s.ManagedKeyed)
		}
	}
	return out
}

func source(t testing.TB, c *testdata.Case, snapshot string, h metadata.StreamHandle) sst.Source {
	t.Helper()
	local := func(p string) []byte {
		p = strings.TrimPrefix(p, "file:")
		if rest, ok := strings.CutPrefix(p, c.WrittenUnder); ok {
			p = c.File(rest)
		}
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		return data
	}
	switch h := h.(type) {
	case *metadata.ByteStreamHandle:
		return sst.Bytes(h.Data)
	case *metadata.FileHandle:
		return sst.Bytes(local(h.Path.String()))
	case *metadata.RelativeFileHandle:
		return sst.Bytes(local(c.WrittenUnder + "/" + snapshot + "/" + h.Path.String()))
	case *metadata.SegmentHandle:
		return sst.Section(sst.Bytes(local(h.Path.String())), h.Start, h.Length)
	}
	t.Fatalf("stream handle %T", h)
	return nil
}

// expectedEntry is a line of expected.jsonl.
type expectedEntry struct {
	OperatorUID string          `json:"operator_uid"`
	State       string          `json:"state"`
	Kind        string          `json:"kind"`
	Key         json.RawMessage `json:"key"`
	KeyGroup    int32           `json:"key_group"`
	Namespace   json.RawMessage `json:"namespace"`
	MapKey      json.RawMessage `json:"map_key"`
	Value       json.RawMessage `json:"value"`
}

func expected(t testing.TB, c *testdata.Case, name string) []expectedEntry {
	t.Helper()
	data, err := os.ReadFile(c.File(name))
	require.NoError(t, err)
	var out []expectedEntry
	sc := bufio.NewScanner(bytes.NewReader(data))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e expectedEntry
		require.NoError(t, json.Unmarshal(sc.Bytes(), &e))
		out = append(out, e)
	}
	return out
}

var keyedKinds = map[string]bool{"value": true, "list": true, "map": true, "reducing": true, "aggregating": true, "timer": true}

// TestGoldenCounts compares the number of live entries of each state with what
// the job wrote down.
func TestGoldenCounts(t *testing.T) { goldenCounts(t, testdata.Goldens(t)) }

func TestAllGoldenCounts(t *testing.T) { goldenCounts(t, testdata.AllGoldens(t)) }

func goldenCounts(t *testing.T, cases []*testdata.Case) {
	databases, entries := 0, 0
	check := func(t *testing.T, c *testdata.Case) {
		for _, s := range c.Snapshots {
			hs := handles(t, c, s.Path)
			if len(hs) == 0 || s.Expected == "" {
				continue
			}
			uids := map[string]string{}
			for _, o := range c.Operators {
				uids[o.ID] = o.UID
			}
			got := map[string]int{}
			for _, h := range hs {
				databases++
				name := fmt.Sprintf("%s/%s/%d", s.Path, h.operator.ID, h.subtask)
				db, err := incremental.Open(context.Background(), h.files, &incremental.Options{Name: name})
				require.NoError(t, err)
				require.True(t, db.FromManifest())
				_, err = db.Verify(context.Background(), &incremental.VerifyOptions{OnDamage: func(f incremental.Finding) { t.Error(f.File, f.Family, f.Err) }})
				require.NoError(t, err)
				for _, f := range db.Families() {
					lower, upper := h.bounds()
					it := f.Scan(context.Background(), &incremental.ScanOptions{Lower: lower, Upper: upper})
					for it.Next() {
						got[uids[h.operator.ID.String()]+"/"+f.Name]++
						entries++
					}
					require.NoError(t, it.Err())
					it.Close()
				}
			}
			if strings.Contains(c.Name, "changelog") {
				continue // the database is what was materialized, not the whole state
			}
			want := map[string]int{}
			for _, e := range expected(t, c, s.Expected) {
				if keyedKinds[e.Kind] {
					want[e.OperatorUID+"/"+e.State]++
				}
			}
			for state, n := range want {
				if strings.Contains(state, "_timer_state/") && got[state] == 0 {
					continue // heap timers are in the raw keyed slot, or nowhere
				}
				require.Equal(t, n, got[state], "%s %s", s.Path, state)
			}
			for state, n := range got {
				if want[state] == 0 && !strings.Contains(c.Name, "sql") {
					t.Errorf("%s: %d entries of %s, which are not expected", s.Path, n, state)
				}
			}
		}
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { check(t, c) })
	}
	t.Logf("%d databases, %d entries", databases, entries)
	require.Greater(t, databases, 4)
}
