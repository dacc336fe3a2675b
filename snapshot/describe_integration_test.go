//go:build integration

package snapshot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// verifyKinds are ways in which a real Flink writes each example.
var verifyKinds = map[string]string{
	"heap-canonical":     "--backend hashmap --snapshot canonical",
	"heap-native":        "--backend hashmap --snapshot native",
	"heap-checkpoint":    "--backend hashmap --snapshot checkpoint --conf execution.checkpointing.data-inline-threshold=0",
	"heap-compressed":    "--backend hashmap --snapshot checkpoint --conf execution.checkpointing.snapshot-compression=true",
	"heap-changelog":     "--backend hashmap --snapshot checkpoint --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf dstl.dfs.base-path=file://{out}/dstl",
	"heap-unaligned":     "--backend hashmap --snapshot checkpoint --unaligned",
	"rocksdb-canonical":  "--backend rocksdb --snapshot canonical --conf execution.checkpointing.snapshot-compression=true",
	"rocksdb-native":     "--backend rocksdb --snapshot native",
	"rocksdb-checkpoint": "--backend rocksdb --snapshot checkpoint",
	"rocksdb-increment":  "--backend rocksdb --snapshot checkpoint --incremental",
	"rocksdb-merging":    "--backend rocksdb --snapshot checkpoint --incremental --conf execution.checkpointing.file-merging.enabled=true",
	"rocksdb-changelog":  "--backend rocksdb --snapshot checkpoint --conf state.changelog.enabled=true --conf state.changelog.storage=filesystem --conf dstl.dfs.base-path=file://{out}/dstl",
}

// Every example is written in the kinds of forAll, those of everyKind in all.
var (
	forAll    = map[string]bool{"heap-canonical": true, "heap-checkpoint": true, "rocksdb-canonical": true, "rocksdb-increment": true}
	everyKind = map[string]bool{"types": true, "map": true, "timers": true, "reducing": true}
)

// TestDescriptionsOfARealFlink lets a real Flink write each example in each kind
// of snapshot, and compares our description with the one it was written from.
// FLINK names the versions, by default 1.20.0 and 2.3.0.
func TestDescriptionsOfARealFlink(t *testing.T) {
	versions := strings.Fields(os.Getenv("FLINK"))
	if len(versions) == 0 {
		versions = []string{"1.20.0", "2.3.0"}
	}
	dir := filepath.Join(testdata.Repo(t), "testdata", "flink-verify")
	examples, err := filepath.Glob(filepath.Join(dir, "examples", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for _, version := range versions {
		out := t.TempDir()
		type written struct{ example, kind, dir string }
		var all []written
		var commands strings.Builder
		for _, e := range examples {
			for kind, flags := range verifyKinds {
				name := strings.TrimSuffix(filepath.Base(e), ".json")
				if !everyKind[name] && !forAll[kind] {
					continue
				}
				if name == "map-null" && !strings.HasPrefix(kind, "heap-checkpoint") {
					continue // Flink itself writes null longs only in the heap's own format
				}
				w := written{e, kind, filepath.Join(out, name+"-"+kind)}
				all = append(all, w)
				fmt.Fprintf(&commands, "write %s --out %s %s\n", e, w.dir, strings.ReplaceAll(flags, "{out}", w.dir))
			}
		}
		cmd := exec.Command(filepath.Join(dir, "run.sh"), "batch", "-")
		cmd.Env = append(os.Environ(), "FLINK="+version)
		cmd.Stdin = strings.NewReader(commands.String())
		cmd.Stderr = os.Stderr
		log, err := cmd.Output()
		require.NoError(t, err, "Flink %s: is there a JDK 17 and Maven?\n%s", version, tail(log))
		for _, w := range all {
			t.Run(version+"/"+filepath.Base(w.dir), func(t *testing.T) {
				compareDescription(t, w.example, w.dir)
			})
		}
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }

func compareDescription(t *testing.T, example, dir string) {
	b, err := os.ReadFile(example)
	require.NoError(t, err)
	want := description(t, b)
	uids := map[metadata.OperatorID]string{}
	for uid := range want {
		uids[metadata.OperatorIDFromUID(uid)] = uid
	}
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	latest, err := snapshot.Latest(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, snapshot.Describe(t.Context(), latest.Snapshot, &snapshot.ScanOptions{UID: func(id metadata.OperatorID) string { return uids[id] }}, &out))
	got := description(t, out.Bytes())
	for uid, w := range want {
		require.Equal(t, w, got[uid], "operator %s", uid)
		delete(got, uid)
	}
	for uid := range got {
		require.True(t, strings.HasPrefix(uid, "uid_hash"), "operator %s", uid) // the job's own sources
	}
}

var (
	className = regexp.MustCompile(`\b(pojo|enum):(?:[\w$]+\.)+(\w+)`)
	fieldName = regexp.MustCompile(`[<,]\w+:`)
)

// description is a description in a form that can be compared: operator by uid,
// states and entries sorted, class names short, rows without the names that no
// snapshot has.
func description(t *testing.T, b []byte) map[string]map[string]any {
	var d struct {
		Operators []struct {
			UID, UIDHash string
			Max          int `json:"max_parallelism"`
			Parallelism  int
			Keyed        struct {
				KeyType string `json:"key_type"`
				States  []struct {
					Name, Kind, Type string
					Entries          []struct{ Key, Value any }
				}
				Timers []struct {
					Key    any
					Time   int64
					Domain string
				}
			}
			OperatorStates []struct {
				Name, Mode, Type string
				Entries          []any
			} `json:"operator_states"`
		}
	}
	require.NoError(t, json.Unmarshal(b, &d), "%s", b)
	ops := map[string]map[string]any{}
	for i, o := range d.Operators {
		uid := o.UID
		if uid == "" {
			uid = fmt.Sprint("uid_hash ", i)
		}
		m := map[string]any{"max": o.Max, "parallelism": o.Parallelism, "key": shortType(o.Keyed.KeyType)}
		for _, s := range o.Keyed.States {
			var entries []string
			for _, e := range s.Entries {
				entries = append(entries, plain(s.Type, o.Keyed.KeyType, []any{e.Key, e.Value}))
			}
			sort.Strings(entries)
			m["state "+s.Name] = []any{s.Kind, shortType(s.Type), entries}
		}
		var timers []string
		for _, x := range o.Keyed.Timers {
			timers = append(timers, plain("", o.Keyed.KeyType, []any{x.Key, x.Time, x.Domain}))
		}
		sort.Strings(timers)
		m["timers"] = timers
		for _, s := range o.OperatorStates {
			entries := []string{}
			for _, e := range s.Entries {
				entries = append(entries, plain(s.Type, "", e))
			}
			sort.Strings(entries)
			m["operator state "+s.Name] = []any{s.Mode, shortType(s.Type), entries}
		}
		ops[uid] = m
	}
	return ops
}

func shortType(words string) string {
	if strings.HasPrefix(words, "avro<") || strings.Contains(words, "<avro<") {
		return "avro"
	}
	words = className.ReplaceAllString(words, "$1:$2")
	return fieldName.ReplaceAllStringFunc(words, func(f string) string {
		if name := f[1 : len(f)-1]; name == "pojo" || name == "enum" {
			return f
		}
		return f[:1]
	})
}

// plain is a value as text. Where rows are inside, objects are their values in order
// of the text, since the names differ; fields that are missing are null or zero.
func plain(typ, keyType string, v any) string {
	if strings.Contains(typ, "row<") || strings.Contains(keyType, "row<") {
		v = withoutNames(v)
	}
	b, err := json.Marshal(withDefaults(v))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func withoutNames(v any) any {
	switch v := v.(type) {
	case map[string]any:
		var values []string
		for _, x := range v {
			b, _ := json.Marshal(withoutNames(x))
			values = append(values, string(b))
		}
		sort.Strings(values)
		return values
	case []any:
		for i := range v {
			v[i] = withoutNames(v[i])
		}
	}
	return v
}

// withDefaults leaves out what a description may leave out: fields with null, zero,
// false or an empty text.
func withDefaults(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0 // no negative zero
	case string: // numbers that may stand as text, and zeros with a sign that Java drops
		switch v {
		case "-0.0":
			return 0.0
		case "-0.000":
			return "0.000"
		}
	case map[string]any:
		for k, x := range v {
			if x = withDefaults(x); x == nil || x == false || x == "" || x == 0.0 {
				delete(v, k)
			} else if m, ok := x.(map[string]any); ok && len(m) == 0 {
				delete(v, k)
			} else {
				v[k] = x
			}
		}
	case []any:
		for i := range v {
			v[i] = withDefaults(v[i])
		}
	}
	return v
}
