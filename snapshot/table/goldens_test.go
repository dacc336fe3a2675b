package table_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// TestGoldens turns every row of every golden into columns and compares each with
// the row's JSON line, which other tests compare with what the job wrote. What is
// not in its column must stand in other_json, to the letter.
func TestGoldens(t *testing.T) { goldens(t, testdata.Goldens(t)) }

// TestAllGoldens is the same for the whole set, where it is present.
func TestAllGoldens(t *testing.T) {
	cases, _ := testdata.ManyGoldens(t, 0)
	goldens(t, cases)
}

func goldens(t *testing.T, cases []*testdata.Case) {
	require.NotEmpty(t, cases)
	for _, c := range cases {
		for _, sn := range c.Snapshots {
			t.Run(c.Name+"/"+sn.Path[strings.LastIndexByte(sn.Path, '/')+1:], func(t *testing.T) {
				t.Parallel()
				pool := blobstore.NewPool(nil, nil)
				defer pool.Close()
				loc, err := blobstore.Parse(c.File(sn.Path))
				require.NoError(t, err)
				s, err := snapshot.Open(t.Context(), pool, loc, nil)
				require.NoError(t, err)
				compareRows(t, s, nil)
				compareRows(t, s, jobClasses(t))
			})
		}
	}
}

// jobClasses are some of the generator's job that no snapshot describes. Without
// them, values stand for what cannot be read.
func jobClasses(t *testing.T) serializer.Classes {
	classes := serializer.Classes{}
	for _, words := range []string{
		"enum:tidemark.goldens.model.Color<RED,GREEN,BLUE>",
		"pojo:tidemark.goldens.model.Animal$Cat<legs int, lives int, name string, weight double>",
		"pojo:tidemark.goldens.model.Blob<bytes bytes, maybe long?, number int, parts list<string>, title string>",
	} {
		typ, err := serializer.ParseType(words, classes)
		require.NoError(t, err)
		classes[typ.JavaClass] = typ
	}
	return classes
}

func compareRows(t *testing.T, s *snapshot.Snapshot, classes serializer.Classes) {
	opts := &snapshot.ScanOptions{Classes: classes, OnProblem: func(p *snapshot.ScanProblem) { require.True(t, p.Opaque, "%v", p) }}
	batches := map[*snapshot.State]*table.Batch{}
	rows, typed := 0, 0
	for r, err := range snapshot.Rows(t.Context(), s, opts) {
		require.NoError(t, err)
		b := batches[r.State]
		if b == nil {
			b = table.NewBatch(table.Of(r.State))
			batches[r.State] = b
			for i, c := range b.Schema.Columns {
				if b.Vectors[i] != nil && strings.Contains(c.String(), "json") && c.Name != "other_json" {
					t.Logf("%s.%s: %s %s", r.State.Operator.UID, r.State.Name, c.Name, c)
				}
			}
		}
		line, undecoded := r.AppendJSON(nil)
		require.Equal(t, undecoded, b.Add(r), "%s", line)
		var want map[string]any
		require.NoError(t, decode(line, &want))
		rows++
		if compareRow(t, b, b.Rows-1, want, line) {
			typed++
		}
	}
	require.Positive(t, rows)
	t.Logf("%d rows, %d of them without other_json", rows, typed)
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

func compareRow(t *testing.T, b *table.Batch, i int, want map[string]any, line []byte) (typed bool) {
	last := len(b.Vectors) - 1
	require.Equal(t, "other_json", b.Schema.Columns[last].Name)
	other := map[string]any{}
	if s, ok := b.Vectors[last].Value(i).(string); ok {
		require.NoError(t, decode([]byte(s), &other))
	}
	seen := map[string]bool{"subtask": true}
	for k, c := range b.Schema.Columns[:last] {
		seen[c.Name] = true
		var got any
		if v := b.Vectors[k]; v != nil {
			require.Equal(t, i+1, v.Len, "%s", c.Name)
			got = v.Value(i)
		} else if b.Schema.Const[k] != "" {
			got = b.Schema.Const[k]
		}
		if c.Name == "subtask" {
			continue
		}
		w, ok := want[c.Name]
		if o, ok := other[c.Name]; ok {
			require.Equal(t, w, o, "%s", line)
			continue
		}
		if !ok {
			require.Nil(t, got, "%s %s", c.Name, line)
			continue
		}
		require.True(t, same(c, got, w), "column %s %s\nis   %v\nwant %v\n%s", c.Name, c, got, w, line)
	}
	for name := range want {
		require.True(t, seen[name], "member %s has no column: %s", name, line)
	}
	return len(other) == 0
}

// same compares a column's value with its JSON form.
func same(c *table.Column, got, want any) bool {
	if got == nil || want == nil {
		return got == nil && want == nil
	}
	switch c.Type {
	case table.Boolean:
		return fmt.Sprint(got) == fmt.Sprint(want)
	case table.Int8, table.Int16, table.Int32, table.Int64:
		return fmt.Sprint(got) == fmt.Sprint(want)
	case table.Float32, table.Float64:
		var f float64
		if _, err := fmt.Sscan(fmt.Sprint(want), &f); err != nil {
			return false
		}
		if c.Type == table.Float32 {
			f = float64(float32(f))
		}
		return f == got || math.IsNaN(f) && math.IsNaN(got.(float64))
	case table.Text:
		return got == want
	case table.JSON:
		var v any
		return decode([]byte(got.(string)), &v) == nil && reflect.DeepEqual(v, want)
	case table.Binary:
		m, ok := want.(map[string]any)
		return ok && m["base64"] == base64.StdEncoding.EncodeToString(got.([]byte))
	case table.Decimal:
		a, ok := new(big.Rat).SetString(got.(string))
		b, ok2 := new(big.Rat).SetString(want.(string))
		return ok && ok2 && a.Cmp(b) == 0
	case table.Date:
		d, err := time.Parse("2006-01-02", want.(string))
		return err == nil && d.Unix() == 86400*got.(int64)
	case table.Time:
		ns := got.(int64) * map[int32]int64{3: 1e6, 6: 1e3}[c.Precision]
		d, err := parseTime(want.(string), "15:04")
		return err == nil && d.Sub(d.Truncate(24*time.Hour)) == time.Duration(ns)
	case table.Timestamp:
		unit := map[int32]int64{3: 1e6, 6: 1e3, 9: 1}[c.Precision]
		switch w := want.(type) {
		case json.Number: // java.util.Date
			return w.String() == fmt.Sprint(got)
		case map[string]any: // java.sql.Timestamp
			ms, _ := w["millis"].(json.Number).Int64()
			ns, _ := w["nanos"].(json.Number).Int64()
			return floorDiv(ms, 1000)*1e9+ns == got.(int64)*unit
		case string:
			d, err := parseTime(strings.TrimSuffix(w, "Z"), "2006-01-02T15:04")
			return err == nil && strings.HasSuffix(w, "Z") == c.UTC && d.Unix() == floorDiv(got.(int64)*unit, 1e9) && d.UnixNano() == got.(int64)*unit
		}
	case table.List:
		w, ok := want.([]any)
		g := got.([]any)
		if !ok || len(w) != len(g) {
			return false
		}
		return anyOrder(len(g), func(i, k int) bool { return same(c.Fields[0], g[i], w[k]) })
	case table.Map:
		w, ok := want.([]any)
		g := got.([][2]any)
		return ok && len(w) == len(g) && anyOrder(len(g), func(i, k int) bool {
			pair := w[k].([]any)
			return same(c.Fields[0], g[i][0], pair[0]) && same(c.Fields[1], g[i][1], pair[1])
		})
	case table.Struct:
		return sameStruct(c, got.([]any), want)
	}
	return false
}

// anyOrder reports whether there is a match for each: JSON sorts sets and maps.
func anyOrder(n int, match func(i, k int) bool) bool {
	taken := make([]bool, n)
	for i := range n {
		k := i
		if taken[k] || !match(i, k) {
			k = slices.IndexFunc(slices.Collect(func(yield func(int) bool) {
				for k := range n {
					if !yield(k) {
						return
					}
				}
			}), func(k int) bool { return !taken[k] && match(i, k) })
		}
		if k < 0 {
			return false
		}
		taken[k] = true
	}
	return true
}

func sameStruct(c *table.Column, got []any, want any) bool {
	fields, values := c.Fields, got
	if fields[0].Name == "@row_kind" {
		m, ok := want.(map[string]any)
		if !ok || m["row_kind"] != values[0] {
			return false
		}
		want, fields, values = m["fields"], fields[1:], values[1:]
	}
	switch w := want.(type) {
	case []any:
		if len(w) != len(values) {
			return false
		}
		for i := range w {
			if !same(fields[i], values[i], w[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		seen := 0
		for i, f := range fields {
			m, ok := w[f.Name]
			if !ok && values[i] == nil {
				continue
			}
			if !ok || !same(f, values[i], m) {
				return false
			}
			seen++
		}
		if _, ok := w["@class"]; ok && fields[0].Name != "@class" {
			seen++
		}
		return seen == len(w)
	}
	return false
}

func parseTime(s, short string) (time.Time, error) {
	if d, err := time.Parse(short+":05.999999999", s); err == nil {
		return d, nil
	}
	return time.Parse(short, s)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
