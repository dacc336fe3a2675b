package snapshot_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// TestRowsOfGoldens compares the rows of every golden with what the job that
// wrote it put into its state.
func TestRowsOfGoldens(t *testing.T) { rowsOfGoldens(t, testdata.Goldens(t)) }

// TestRowsOfAllGoldens is the same for the whole set, where it is present.
func TestRowsOfAllGoldens(t *testing.T) { rowsOfGoldens(t, testdata.AllGoldens(t)) }

func rowsOfGoldens(t *testing.T, cases []*testdata.Case) {
	require.NotEmpty(t, cases)
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			t.Run(c.Name+"/"+sn.Path[strings.LastIndexByte(sn.Path, '/')+1:], func(t *testing.T) {
				t.Parallel()
				compareRows(t, c, sn)
			})
		}
	}
}

// notInState are kinds of expected lines that tell of the job, not of its state.
var notInState = map[string]bool{"processed-records": true, "in-flight-records": true, "sql-input": true, "sql-result": true}

// jobClasses are those of the generator's job that no snapshot describes: they go to
// Kryo, or were first met after it was taken, and who wants them read must know them.
var jobClasses = []string{
	"enum:tidemark.goldens.model.Color<RED,GREEN,BLUE>",
	"pojo:tidemark.goldens.model.Animal$Cat<legs int, lives int, name string, weight double>",
	"pojo:tidemark.goldens.model.Blob<bytes bytes, maybe long?, number int, parts list<string>, title string>",
	"pojo:tidemark.goldens.model.Blob$Registered<bytes bytes, color enum:Color, extra double, maybe long?, number int, parts list<string>, title string>",
}

func compareRows(t *testing.T, c *testdata.Case, sn testdata.Snapshot) {
	want, states := expectedRows(t, c, sn)
	ops := map[string]testdata.Operator{}
	for _, o := range c.Operators {
		ops[o.ID] = o
	}
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	loc, err := blobstore.Parse(c.File(sn.Path))
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	got := map[string][]map[string]any{}
	classes := serializer.Classes{}
	for _, words := range jobClasses {
		typ, err := serializer.ParseType(words, classes)
		require.NoError(t, err)
		classes[typ.JavaClass] = typ
	}
	opts := &snapshot.ScanOptions{Classes: classes, UID: func(id metadata.OperatorID) string { return ops[id.String()].UID }}
	for r, err := range snapshot.Rows(t.Context(), s, opts) {
		require.NoError(t, err)
		line, undecoded := r.AppendJSON(nil)
		var m map[string]any
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		require.NoError(t, d.Decode(&m), "%s", line)
		normalize(m)
		if !states[stateID(m)] && (strings.HasPrefix(fmt.Sprint(m["operator_uid"]), "sql") || m["operator_uid"] == nil || isSQL(c)) {
			continue
		}
		require.Empty(t, undecoded, "%s", line)
		got[rowID(m)] = append(got[rowID(m)], m)
	}
	for id, rows := range want {
		require.Len(t, got[id], len(rows), "rows %s", id)
		for i, w := range rows {
			compareRow(t, w, got[id][i])
		}
		delete(got, id)
	}
	for id := range got {
		if !states[got[id][0]["_state"].(string)] {
			t.Logf("rows of a state that the job does not tell of: %s", id)
			continue
		}
		t.Errorf("row that the job did not write: %s", id)
	}
}

func isSQL(c *testdata.Case) bool { return strings.Contains(c.Name, "-sql-") }

func expectedRows(t *testing.T, c *testdata.Case, sn testdata.Snapshot) (rows map[string][]map[string]any, states map[string]bool) {
	name := sn.Expected
	if name == "" {
		name = "expected.jsonl"
	}
	b, err := os.ReadFile(c.File(name))
	require.NoError(t, err)
	rows, states = map[string][]map[string]any{}, map[string]bool{}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var m map[string]any
		d := json.NewDecoder(bytes.NewReader(sc.Bytes()))
		d.UseNumber()
		require.NoError(t, d.Decode(&m))
		if notInState[m["kind"].(string)] {
			continue
		}
		// Flink loses heap timers in native savepoints of RocksDB.
		if m["kind"] == "timer" && strings.Contains(c.Name, "heaptimers-native") {
			continue
		}
		normalize(m)
		states[stateID(m)] = true
		rows[rowID(m)] = append(rows[rowID(m)], m)
	}
	return rows, states
}

func stateID(m map[string]any) string { return fmt.Sprint(m["operator_uid"], "/", m["state"]) }

// normalize brings both sides to one form: the splits of the generator's source
// and the strings of its sink, which are bytes for everybody else, decoded; sets
// sorted; the operator of committables, which the job notes under its writer.
func normalize(m map[string]any) {
	m["_state"] = stateID(m)
	switch m["kind"] {
	case "source-coordinator":
		if b, ok := payload(m["value"]); ok {
			// int32 n, n × split: one expected line each.
			n := int(binary.BigEndian.Uint32(b))
			var splits []any
			for b = b[4:]; len(splits) < n; {
				var s any
				s, b = split(b)
				splits = append(splits, s)
			}
			m["value"] = splits
		} else {
			m["value"] = []any{m["value"]}
		}
	case "operator-list":
		if m["state"] == "SourceReaderState" {
			eachPayload(m, func(b []byte) any { s, _ := split(b); return s })
		}
	case "sink-writer", "sink-committables":
		m["operator_uid"] = "sink"
		m["_state"] = stateID(m)
		eachPayload(m, func(b []byte) any { return string(b) })
	}
	if m["unordered"] == true {
		sortJSON(m["value"])
	}
}

func eachPayload(m map[string]any, f func([]byte) any) {
	list, _ := m["value"].([]any)
	for i, v := range list {
		if b, ok := payload(v); ok {
			list[i] = f(b)
		}
	}
}

func payload(v any) ([]byte, bool) {
	o, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	s, ok := o["base64"].(string)
	if !ok {
		return nil, false
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return b, err == nil
}

// split is the generator's own split: utf id, int32 number, int32 count, int64 next.
func split(b []byte) (any, []byte) {
	n := int(binary.BigEndian.Uint16(b))
	id := string(b[2 : 2+n])
	b = b[2+n:]
	num := func(v uint64) json.Number { return json.Number(fmt.Sprint(int64(v))) }
	return map[string]any{
		"split_id": id,
		"number":   num(uint64(binary.BigEndian.Uint32(b))),
		"count":    num(uint64(binary.BigEndian.Uint32(b[4:]))),
		"next":     num(binary.BigEndian.Uint64(b[8:])),
	}, b[16:]
}

func sortJSON(v any) {
	if l, ok := v.([]any); ok {
		sort.Slice(l, func(i, j int) bool { return toJSON(l[i]) < toJSON(l[j]) })
	}
}

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// rowID identifies a row by what makes it one.
func rowID(m map[string]any) string {
	id := map[string]any{}
	for _, k := range []string{"operator_uid", "state", "kind", "key", "key_group", "namespace", "map_key", "timestamp", "subtask"} {
		if v, ok := m[k]; ok {
			id[k] = v
		}
	}
	return toJSON(id)
}

func compareRow(t *testing.T, want, got map[string]any) {
	if want["unordered"] == true {
		sortJSON(got["value"])
	}
	require.Equal(t, toJSON(want["value"]), toJSON(got["value"]), "value of %s", rowID(want))
	if v, ok := want["serializer_version"]; ok && toJSON(want["value"]) != "[]" { // an empty list has no version
		require.Equal(t, v, got["serializer_version"], "version of %s", rowID(want))
	}
	if least, ok := want["ttl_timestamp_min"].(json.Number); ok {
		lo, err := got["ttl_timestamp_min"].(json.Number).Int64()
		require.NoError(t, err)
		hi, err := got["ttl_timestamp_max"].(json.Number).Int64()
		require.NoError(t, err)
		wantLo, _ := least.Int64()
		wantHi, _ := want["ttl_timestamp_max"].(json.Number).Int64()
		require.LessOrEqual(t, wantLo, lo)
		require.GreaterOrEqual(t, wantHi, hi)
	} else {
		require.NotContains(t, got, "ttl_timestamp_min")
	}
}

// TestUnknownClassesDoNotStopTheRest reads the goldens with classes that nothing
// describes: each of their values is there as bytes under its class, or counted
// in a problem that is marked opaque, and every other value is as the job wrote it.
func TestUnknownClassesDoNotStopTheRest(t *testing.T) {
	for _, c := range testdata.AllGoldens(t) {
		if !strings.Contains(c.Name, "types-classes") {
			continue
		}
		for _, sn := range c.Snapshots {
			t.Run(c.Name, func(t *testing.T) {
				want, _ := expectedRows(t, c, sn)
				pool := blobstore.NewPool(nil, nil)
				defer pool.Close()
				loc, err := blobstore.Parse(c.File(sn.Path))
				require.NoError(t, err)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				lost := map[string]int64{}
				opts := &snapshot.ScanOptions{
					UID: func(metadata.OperatorID) string { return "" },
					OnProblem: func(p *snapshot.ScanProblem) {
						require.True(t, p.Opaque, "%v", p)
						lost[p.State] += p.Rows
					},
				}
				got, opaque := map[string]map[string]any{}, 0
				for r, err := range snapshot.Rows(t.Context(), s, opts) {
					require.NoError(t, err)
					line, undecoded := r.AppendJSON(nil)
					var m map[string]any
					d := json.NewDecoder(bytes.NewReader(line))
					d.UseNumber()
					require.NoError(t, d.Decode(&m), "%s", line)
					normalize(m)
					m["_undecoded"] = undecoded
					m["operator_uid"] = nil
					got[rowID(m)] = m
				}
				for _, rows := range want {
					w := rows[0]
					if w["state"] == "SourceReaderState" || w["kind"] == "source-coordinator" {
						continue
					}
					w["operator_uid"] = nil
					g := got[rowID(w)]
					if g == nil {
						lost[w["state"].(string)]--
						continue
					}
					if toJSON(g["value"]) != toJSON(w["value"]) {
						require.Contains(t, toJSON(g["value"]), `"base64":`, "%s", rowID(w))
						require.NotEmpty(t, g["_undecoded"], "%s", toJSON(g))
						opaque++
					}
				}
				for state, n := range lost {
					require.Zero(t, n, "rows of %s that are neither shown nor counted", state)
				}
				t.Logf("%d opaque values, lost %v", opaque, lost)
				require.NotZero(t, opaque)
			})
		}
	}
}
