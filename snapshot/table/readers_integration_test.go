//go:build integration

package table_test

import (
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/export"
	"github.com/tidemark/tidemark/snapshot/table"
)

var formats = []export.Format{export.Parquet, export.Arrow, export.ArrowStream}

// TestDuckDBAndPandas lets testdata/export/check.py read, with the Python that
// TIDEMARK_PYTHON names, a table of all types and the states of the goldens.
func TestDuckDBAndPandas(t *testing.T) {
	python := os.Getenv("TIDEMARK_PYTHON")
	require.NotEmpty(t, python, "run testdata/export/ci.sh")
	check := func(t *testing.T, mode, dir string) {
		out, err := exec.Command(python, filepath.Join(testdata.Repo(t), "testdata", "export", "check.py"), mode, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("%s", strings.TrimSpace(string(out)))
	}
	t.Run("all types", func(t *testing.T) {
		dir := t.TempDir()
		b := allTypes(t)
		for _, f := range formats {
			w, err := os.Create(filepath.Join(dir, "all"+f.Extension()))
			require.NoError(t, err)
			e, err := export.NewWriter(w, b.Schema, f)
			require.NoError(t, err)
			require.NoError(t, e.Write(b))
			require.NoError(t, e.Close())
			require.NoError(t, w.Close())
		}
		check(t, "all", dir)
	})
	t.Run("goldens", func(t *testing.T) {
		dir := t.TempDir()
		for _, c := range append(testdata.Goldens(t), testdata.AllGoldens(t)...) {
			sn := c.Snapshots[len(c.Snapshots)-1]
			pool := blobstore.NewPool(nil, nil)
			defer pool.Close()
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			s, err := snapshot.Open(t.Context(), pool, loc, nil)
			require.NoError(t, err)
			into := filepath.Join(dir, c.Name)
			require.NoError(t, os.MkdirAll(into, 0o777))
			scan := &snapshot.ScanOptions{OnProblem: func(p *snapshot.ScanProblem) { require.True(t, p.Opaque, "%v", p) }}
			for _, f := range formats {
				_, err := export.ToDir(t.Context(), s, filepath.Join(into, f.Extension()[1:]), &export.Options{Format: f, Scan: scan})
				require.NoError(t, err)
			}
		}
		check(t, "same", dir)
	})
}

// allTypes has a value and then a null of every type of column.
func allTypes(t *testing.T) *table.Batch {
	var names []string
	var types []*serializer.Type
	rows := make([][]func(serializer.Visitor), 2)
	add := func(name string, typ *serializer.Type, first, second func(serializer.Visitor)) {
		names, types = append(names, name), append(types, typ)
		rows[0], rows[1] = append(rows[0], first), append(rows[1], second)
	}
	null := func(typ *serializer.Type) func(serializer.Visitor) { return func(v serializer.Visitor) { v.Null(typ) } }
	words := func(name, words, first, second string) {
		typ, err := serializer.ParseType(words, nil)
		require.NoError(t, err)
		visit := func(text string) func(serializer.Visitor) {
			if text == "" {
				return null(typ)
			}
			b, err := typ.AppendFromJSON(nil, []byte(text))
			require.NoError(t, err, "%s", text)
			return func(v serializer.Visitor) {
				_, err := serializer.NewDecoder(typ, nil).Visit(b, v)
				require.NoError(t, err)
			}
		}
		add(name, typ, visit(first), visit(second))
	}
	sql := func(name string, typ serializer.Type, visit func(serializer.Visitor, *serializer.Type)) {
		add(name, &typ, func(v serializer.Visitor) { visit(v, &typ) }, null(&typ))
	}
	decimal := func(name string, precision, scale int32, digits string) {
		x, ok := new(big.Int).SetString(digits, 10)
		require.True(t, ok)
		if x.Sign() < 0 {
			x.Add(x, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		sql(name, serializer.Type{Kind: serializer.KindDecimal, Precision: precision, Scale: scale}, func(v serializer.Visitor, typ *serializer.Type) {
			v.Decimal(typ, x.FillBytes(make([]byte, 16)), scale)
		})
	}
	stamp := func(name string, kind serializer.Kind, precision int32, at time.Time) {
		sql(name, serializer.Type{Kind: kind, Precision: precision}, func(v serializer.Visitor, typ *serializer.Type) {
			v.Time(typ, at.Unix(), int32(at.Nanosecond()))
		})
	}
	words("ok", "boolean", "true", "false")
	words("tiny", "byte", "-128", "127")
	words("small", "short", "-32768", "32767")
	words("number", "int", "-2147483648", "2147483647")
	words("long", "long", "-9223372036854775808", "9223372036854775807")
	words("real", "float", "0.5", `"-Infinity"`)
	words("double", "double", "-1.25e300", `"NaN"`)
	words("text", "string", `"héllo \ud83d\ude00"`, "")
	words("bytes", "bytes", `{"base64":"AP8="}`, "")
	decimal("money", 9, 2, "-123456789")
	decimal("wide", 18, 4, "123456789012345678")
	decimal("widest", 38, 10, "-12345678901234567890123456780123456789")
	words("big", "bigint", `"123456789012345678901234567890"`, "")
	words("day", "localdate", `"2026-11-29"`, "")
	noon := time.Date(2026, 11, 29, 12, 30, 0, 500_000_000, time.UTC)
	sql("clock", serializer.Type{Kind: serializer.KindLocalTime, Precision: 3}, func(v serializer.Visitor, typ *serializer.Type) { v.Int(typ, 45_000_500_000_000) })
	words("date", "date", "1795955400500", "")
	stamp("ts3", serializer.KindTimestamp, 3, noon)
	stamp("ts6", serializer.KindTimestamp, 6, time.Unix(-1, 999_999_000))
	stamp("ltz6", serializer.KindTimestampLTZ, 6, noon.Truncate(time.Second).Add(time.Microsecond))
	stamp("t9", serializer.KindTimestamp, 9, noon.Truncate(time.Second).Add(1))
	stamp("ltz9", serializer.KindTimestampLTZ, 9, time.Unix(-1, 999_999_999))
	words("time9", "localtime", `"12:30:00.000001"`, "")
	words("color", "enum:com.example.Color<RED,GREEN>", `"RED"`, "")
	words("list", "list<int>", "[1,2,3]", "")
	nested := serializer.NewList(serializer.NewList(mustType(t, "string")))
	add("nested", nested, func(v serializer.Visitor) {
		inner := nested.Args[0]
		v.Begin(nested, 3)
		v.Begin(inner, 2)
		v.Text(inner.Args[0], []byte("a"))
		v.Null(inner.Args[0])
		v.End(inner)
		v.Begin(inner, 0)
		v.End(inner)
		v.Null(inner)
		v.End(nested)
	}, null(nested))
	words("map", "map<string,long>", `[["a",1],["b",null]]`, "")
	words("row", "row<id:long,tags:list<string>>", `{"id":7,"tags":["x"]}`, "")
	words("tuple", "tuple<int,string>", `[1,null]`, "")
	words("either", "either<string,long>", `{"right":5}`, "")
	words("window", "timewindow", `{"window_start":0,"window_end":1000}`, "")
	return table.TableOf(names, types, rows...)
}

func mustType(t *testing.T, words string) *serializer.Type {
	typ, err := serializer.ParseType(words, nil)
	require.NoError(t, err)
	return typ
}
