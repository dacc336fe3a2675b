package serializer_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// goldenClasses are the classes of the goldens' job that its snapshots do not
// describe.
func goldenClasses(t testing.TB) serializer.Classes {
	classes := serializer.Classes{}
	for _, words := range []string{
		"enum:tidemark.goldens.model.Color<RED,GREEN,BLUE>",
		"pojo:tidemark.goldens.model.Animal$Cat<legs int, lives int, name string, weight double>",
		"pojo:tidemark.goldens.model.Blob<bytes bytes, maybe long?, number int, parts list<string>, title string>",
		"pojo:tidemark.goldens.model.Blob$Registered<bytes bytes, color enum:Color, extra double, maybe long?, number int, parts list<string>, title string>",
	} {
		typ, err := serializer.ParseType(words, classes)
		require.NoError(t, err)
		classes[typ.JavaClass] = typ
	}
	return classes
}

var goldenHashes = serializer.HashRules{"tidemark.goldens.model.PlaceKey": {Fields: []string{"city", "zip", "zone"}}}

// normal rewrites JSON so that equal values have equal text: objects with sorted
// keys, floating-point numbers by their value.
func normal(t testing.TB, text string) string {
	if text == "" {
		return ""
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var x any
	require.NoError(t, dec.Decode(&x), text)
	var fix func(x any) any
	fix = func(x any) any {
		switch x := x.(type) {
		case json.Number:
			if strings.ContainsAny(string(x), ".eE") {
				f, err := strconv.ParseFloat(string(x), 64)
				require.NoError(t, err)
				return fmt.Sprintf("float %v", f)
			}
		case []any:
			for i := range x {
				x[i] = fix(x[i])
			}
		case map[string]any:
			for k := range x {
				x[k] = fix(x[k])
			}
		}
		return x
	}
	b, err := json.Marshal(fix(x))
	require.NoError(t, err)
	return string(b)
}

// TestGoldenRows compares every keyed value and timer of the goldens in canonical
// and heap native form with what the job put there, and its key group with the
// one that Flink computed.
func TestGoldenRows(t *testing.T) {
	t.Run("committed", func(t *testing.T) { compareRows(t, testdata.Goldens(t)) })
	t.Run("all", func(t *testing.T) { compareRows(t, testdata.AllGoldens(t)) })
}

func compareRows(t *testing.T, goldens []*testdata.Case) {
	classes := goldenClasses(t)
	cases, rows, groups := 0, 0, 0
	for _, c := range goldens {
		for _, s := range c.Snapshots {
			if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(c.Name, "f120-"), "f230-"), "changelog") && !strings.Contains(c.Name, "canonical") {
				continue // the rows are those after the changes
			}
			path := filepath.Join(c.File(s.Path), "_metadata")
			m := readMetadata(t, path)
			r := &stateReader{t: t, opaque: map[string]int{}, kryo: serializer.KryoOf(m.Version), classes: classes}
			p := place{dir: filepath.Dir(path), from: c.WrittenUnder, to: c.Dir}
			got := map[string]int{}
			read := map[string]bool{} // operators
			for i := range m.Operators {
				op := &m.Operators[i]
				for _, sub := range op.Subtasks {
					for _, h := range keyedHandles(sub.ManagedKeyed) {
						if _, ok := h.(*metadata.KeyGroupsHandle); ok {
							read[op.ID.String()] = true
						}
					}
					require.NoError(t, r.keyed(p, op, sub.ManagedKeyed, func(rec record) {
						for _, line := range lines(t, rec) {
							got[line]++
						}
						kg, _, err := serializer.NewHasher(rec.key, goldenHashes, r.kryo).KeyGroup(rec.keyBytes, int(op.MaxParallelism))
						require.NoError(t, err)
						require.Equal(t, rec.keyGroup, kg, "%s: key %s", c.Name, rec.keyJSON)
						groups++
					}), "%s", path)
				}
			}
			ids := map[string]string{}
			for _, o := range c.Operators {
				ids[o.UID] = o.ID
			}
			want := map[string]int{}
			for line := range expected(t, c.File(s.Expected)) {
				var e struct {
					UID       string `json:"operator_uid"`
					State     string
					Kind      string
					Key       json.RawMessage
					KeyGroup  *int `json:"key_group"`
					Namespace json.RawMessage
					MapKey    json.RawMessage `json:"map_key"`
					Value     json.RawMessage
					Timestamp int64
					TTLMin    int64 `json:"ttl_timestamp_min"`
					TTLMax    int64 `json:"ttl_timestamp_max"`
					Unordered bool
				}
				require.NoError(t, json.Unmarshal(line, &e))
				if e.Key == nil || !read[ids[e.UID]] {
					continue
				}
				if e.Unordered {
					e.Value = unordered(t, e.Value)
				}
				ns := string(e.Namespace)
				want[text(t, ids[e.UID], e.State, e.Kind, string(e.Key), *e.KeyGroup, ns, string(e.MapKey), string(e.Value), e.Timestamp, e.Unordered)]++
			}
			if len(read) == 0 {
				continue
			}
			if strings.Contains(c.Name, "-sql-") {
				continue // what SQL stores nobody wrote down; it was decoded
			}
			cases++
			var missing, extra []string
			for line, n := range want {
				rows += n
				if got[line] < n {
					missing = append(missing, line)
				}
			}
			for line, n := range got {
				if want[line] < n && !emptyList(line) {
					extra = append(extra, line)
				}
			}
			sort.Strings(missing)
			sort.Strings(extra)
			if len(missing)+len(extra) > 0 {
				t.Errorf("%s %s: %d missing, %d extra of %d\n  %s\n  %s", c.Name, s.Path, len(missing), len(extra), len(want), first(missing), first(extra))
			}
		}
	}
	require.NotZero(t, rows)
	t.Logf("%d snapshots, %d rows equal, %d key groups checked", cases, rows, groups)
}

func first(list []string) string { return strings.Join(list[:min(3, len(list))], "\n  ") }

func emptyList(line string) bool { return strings.Contains(line, " value []") }

func expected(t testing.TB, path string) func(func([]byte) bool) {
	f, err := os.Open(path)
	require.NoError(t, err)
	return func(yield func([]byte) bool) {
		defer f.Close()
		in := bufio.NewScanner(f)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			if !yield(bytes.Clone(in.Bytes())) {
				return
			}
		}
		require.NoError(t, in.Err())
	}
}

func unordered(t testing.TB, b []byte) []byte {
	var list []json.RawMessage
	require.NoError(t, json.Unmarshal(b, &list))
	slices.SortFunc(list, func(a, b json.RawMessage) int { return strings.Compare(normal(t, string(a)), normal(t, string(b))) })
	b, err := json.Marshal(list)
	require.NoError(t, err)
	return b
}

func text(t testing.TB, op, state, kind, key string, kg int, ns, mapKey, value string, ts int64, sorted bool) string {
	if kind == "timer" {
		return fmt.Sprintf("%s %s timer key %s group %d ns %s at %d", op, state, normal(t, key), kg, normal(t, ns), ts)
	}
	return fmt.Sprintf("%s %s %s key %s group %d ns %s map key %s value %s", op, state, kind, normal(t, key), kg, normal(t, ns), normal(t, mapKey), normal(t, value))
}

// lines are the expected rows that a record stands for: a map one for each entry.
func lines(t testing.TB, rec record) []string {
	kind := strings.ToLower(rec.state.StateType())
	if rec.state.Kind == serializer.PriorityQueue {
		kind = "timer"
	}
	if kind == "map" && rec.mapKey == "" {
		var pairs [][2]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(rec.value), &pairs))
		var list []string
		for _, p := range pairs {
			list = append(list, text(t, rec.operator, rec.state.Name, kind, rec.keyJSON, rec.keyGroup, rec.nsJSON, string(p[0]), string(p[1]), 0, false))
		}
		return list
	}
	value := rec.value
	if rec.state.Name == "merging-window-set" {
		value = string(unordered(t, []byte(value)))
	}
	return []string{text(t, rec.operator, rec.state.Name, kind, rec.keyJSON, rec.keyGroup, rec.nsJSON, rec.mapKey, value, rec.timestamp, false)}
}
