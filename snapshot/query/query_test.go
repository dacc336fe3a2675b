package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/query"
)

func open(t testing.TB, dir string) *snapshot.Snapshot {
	t.Helper()
	pool := blobstore.NewPool(nil, nil)
	t.Cleanup(func() { pool.Close() })
	loc, err := blobstore.Parse(dir)
	require.NoError(t, err)
	s, err := snapshot.Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	return s
}

func golden(t testing.TB, name string) *snapshot.Snapshot {
	t.Helper()
	c := testdata.Golden(t, name)
	return open(t, c.File(c.Snapshot))
}

// ask gives the rows of a statement as text, and how many rows of states were read.
func ask(t testing.TB, s *snapshot.Snapshot, statement string, opts *query.Options) (lines []string, read int64) {
	t.Helper()
	rows, err := query.Query(t.Context(), s, statement, opts)
	require.NoError(t, err, statement)
	defer rows.Close()
	for rows.Next() {
		var cells []string
		for _, v := range rows.Values() {
			if v == nil {
				v = "null"
			}
			cells = append(cells, fmt.Sprint(v))
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	require.NoError(t, rows.Err(), statement)
	return lines, rows.Read()
}

// TestRowsOfGoldens compares every table of the goldens with the rows of the scan:
// their number and order, and in each row whatever JSON and SQL write alike.
func TestRowsOfGoldens(t *testing.T) {
	cases := testdata.Goldens(t)
	if all := os.Getenv("TIDEMARK_SHARED"); all != "" || hasShared(t) {
		many, _ := testdata.ManyGoldens(t, 0)
		cases = append(cases, many...)
	}
	compared := 0
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			s := open(t, c.File(c.Snapshot))
			scan := &snapshot.ScanOptions{OnProblem: func(*snapshot.ScanProblem) {}}
			tables, err := query.Tables(t.Context(), s, &query.Options{Scan: scan})
			require.NoError(t, err)
			want := map[string][]map[string]any{}
			for r, err := range snapshot.Rows(t.Context(), s, scan) {
				require.NoError(t, err)
				b, _ := r.AppendJSON(nil)
				var m map[string]any
				d := json.NewDecoder(strings.NewReader(string(b)))
				d.UseNumber()
				require.NoError(t, d.Decode(&m))
				k := r.State.Operator.ID + "." + r.State.Name + "." + string(r.State.Kind)
				want[k] = append(want[k], m)
			}
			for _, tab := range tables {
				name := tab.State
				if i := strings.Index(name, "#"); i >= 0 {
					name = name[:i]
				}
				expected := want[tab.OperatorID()+"."+name+"."+string(tab.Kind())]
				rows, err := query.Query(t.Context(), s, "select * from "+tab.Name(), &query.Options{Scan: scan})
				require.NoError(t, err)
				require.Len(t, rows.Columns(), len(tab.Columns))
				n := 0
				for rows.Next() {
					require.Less(t, n, len(expected), tab.Name())
					for i, v := range rows.Values() {
						compared += compare(t, tab.Name()+"."+tab.Columns[i].Name, expected[n], strings.Split(tab.Columns[i].Name, "."), v)
					}
					n++
				}
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
				require.Equal(t, len(expected), n, tab.Name())
			}
		})
	}
	t.Logf("%d values compared", compared)
	require.Greater(t, compared, 1000)
}

func hasShared(t *testing.T) (ok bool) {
	t.Run("shared", func(t *testing.T) { testdata.Shared(t); ok = true })
	return ok
}

// compare looks for the column's value in the row as JSON has it, and compares what
// both write alike: numbers, texts, booleans.
func compare(t *testing.T, where string, row any, path []string, v any) int {
	t.Helper()
	for _, p := range path {
		m, ok := row.(map[string]any)
		if !ok {
			return 0
		}
		if fields, ok := m["fields"].(map[string]any); ok {
			m = fields
		}
		if row, ok = m[p]; !ok {
			return 0
		}
	}
	switch x := row.(type) {
	case nil:
		require.Nil(t, v, where)
	case bool:
		b := int64(0)
		if x {
			b = 1
		}
		require.Equal(t, b, v, where)
	case json.Number:
		switch v := v.(type) {
		case int64:
			require.Equal(t, x.String(), fmt.Sprint(v), where)
		case float64:
			f, err := x.Float64()
			require.NoError(t, err)
			require.InDelta(t, f, v, 1e-6*max(1, f, -f), where)
		case string: // a time of java.util or SQL
			return 0
		default:
			require.Fail(t, "a number is "+fmt.Sprint(v), where)
		}
	case string:
		text, ok := v.(string)
		if !ok || len(text) > 0 && (text[0] >= '0' && text[0] <= '9' || text[0] == '-') {
			return 0 // times and decimals are written otherwise, NaN is null
		}
		require.Equal(t, x, text, where)
	default:
		return 0
	}
	return 1
}

func TestNamesOfTables(t *testing.T) {
	s := golden(t, "f120-hashmap-canonical")
	scan := &snapshot.ScanOptions{}
	tables, err := query.Tables(t.Context(), s, &query.Options{Scan: scan})
	require.NoError(t, err)
	var values *query.Table
	for _, tab := range tables {
		if tab.State == "state.value" {
			values = tab
		}
	}
	require.NotNil(t, values)
	want, _ := ask(t, s, `select count(*), max(value), min(key) from `+values.Name(), nil)
	id := values.OperatorID()
	for _, name := range []string{
		`"` + id + `"."state.value"`, `"` + id + `.state.value"`, `"` + strings.ToUpper(id) + `".[STATE.VALUE]`, "`state.value`", `"state.value"`, `main."state.value"`,
	} {
		got, _ := ask(t, s, `select count(*), max(value), min(key) from `+name, nil)
		require.Equal(t, want, got, name)
	}
}

func TestKeyAndKeyGroupsAreLookedUp(t *testing.T) {
	for _, name := range []string{"f120-hashmap-canonical", "f230-rocksdb-native"} {
		t.Run(name, func(t *testing.T) {
			s := golden(t, name)
			all, n := ask(t, s, `select key, key_group, value from "state.value" order by key`, nil)
			if len(all) == 0 {
				t.Fatal("no rows")
			}
			require.EqualValues(t, len(all), n)
			key, group := strings.Split(all[0], "|")[0], strings.Split(all[0], "|")[1]
			got, n := ask(t, s, `select key, key_group, value from "state.value" where key = `+key, nil)
			require.Equal(t, all[:1], got)
			require.EqualValues(t, 1, n, "only that key is read")
			got, _ = ask(t, s, `select key, key_group, value from "state.value" where key in (`+key+`, 123456789)`, nil)
			require.Equal(t, all[:1], got)
			for _, never := range []string{"'x'", "null", "0.5", "x'00'", "9223372036854775807"} {
				got, _ = ask(t, s, `select key from "state.value" where key = `+never, nil)
				require.Empty(t, got, never)
			}
			got, _ = ask(t, s, `select key, key_group, value from "state.value" where key = `+key+`.0`, nil)
			require.Equal(t, all[:1], got, "a number that is whole")
			for _, where := range []string{"= " + group, "between " + group + " and " + group, "> " + group + " - 1 and key_group < " + group + " + 1", "= 1.0 * " + group} {
				inGroup, few := ask(t, s, `select key, key_group, value from "state.value" where key_group `+where+` order by key`, nil)
				var want []string
				for _, l := range all {
					if strings.Split(l, "|")[1] == group {
						want = append(want, l)
					}
				}
				require.Equal(t, want, inGroup, where)
				if !strings.Contains(where, "1.0") {
					require.EqualValues(t, len(want), few, where)
				}
			}
			for _, where := range []string{"> 40000", "< -5", "> 9223372036854775807", "< -9223372036854775808", "= 'x'", "between 5 and 4"} {
				none, _ := ask(t, s, `select key from "state.value" where key_group `+where, nil)
				require.Empty(t, none, where)
			}
		})
	}
}

func TestLimitEndsTheScan(t *testing.T) {
	s := golden(t, "f230-rocksdb-native")
	got, _ := ask(t, s, `select key from "state.value" limit 2`, nil)
	require.Len(t, got, 2)
}

func TestJoinsCopyTables(t *testing.T) {
	s := golden(t, "f120-hashmap-canonical")
	n, _ := ask(t, s, `select count(*) from "state.value"`, nil)
	t.Setenv("SQLITE_TMPDIR", t.TempDir())
	for _, statement := range []string{
		`select count(*) from "state.value" a join "state.value" b on a.key = b.key and a.value = b.value`,
		`select count(*) from "state.value" a where exists (select 1 from "state.value" b where b.key = a.key)`,
		`select count(*) from "state.value" a where a.key in (select key from "state.value")`,
		`with recursive r(i, k) as (select 0, min(key) from "state.value" union all select i + 1, (select min(key) from "state.value" where key > k) from r where k is not null) select count(k) from r`,
		`select count(*) from "state.value" a left join (select distinct key from "state.list") b using (key)`,
		`select count(distinct a.key) from "state.value" a, (select 1 union all select 2 limit 2)`,
	} {
		var told []string
		got, _ := ask(t, s, statement, &query.Options{MemoryBytes: 1 << 10, OnSpill: func(m string) { told = append(told, m) }})
		require.Equal(t, n, got, statement)
		plenty, _ := ask(t, s, statement, &query.Options{OnSpill: func(m string) { require.Fail(t, m) }})
		require.Equal(t, n, plenty, statement)
		for _, m := range told {
			require.Contains(t, m, "KiB")
		}
	}
	left, err := os.ReadDir(os.Getenv("SQLITE_TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary files have no names")
}

// There is nothing to bind: the user is told what to do, and that it is the statement.
func TestParametersAreRefused(t *testing.T) {
	for _, statement := range []string{"select ?", "select ?2", "select :a", "select @a", "select $a"} {
		_, err := query.Query(t.Context(), golden(t, "f120-hashmap-canonical"), statement, nil)
		require.ErrorIs(t, err, query.ErrStatement, statement)
		require.ErrorContains(t, err, "has no parameters", statement)
	}
}

// A statement can reach nothing but the tables.
func TestHostileStatements(t *testing.T) {
	s := golden(t, "f120-hashmap-canonical")
	dir := t.TempDir()
	for _, statement := range []string{
		"attach '" + dir + "/x' as y", "pragma journal_mode", "vacuum into '" + dir + "/x'", `insert into "state.value" values (1)`,
		`with a as (select 1) insert into "state.value"(key) select * from a`, `with a as (select 1) delete from "state.value"`,
		`explain delete from "state.value"`, `explain attach 'x' as y`, `explain pragma database_list`, `select * from pragma_database_list`, `select * from pragma_compile_options`,
		`select load_extension('x')`, `select readfile('/etc/passwd')`, `select writefile('` + dir + `/x', 'y')`, `select fts3_tokenizer('x')`,
		`select edit('x')`, `select * from csv('/etc/passwd')`, `select * from tidemark_state`, `select * from dbstat_x`, `select zeroblob(2000000000)`, `select zeroblob(300000000)`,
		`select randomblob(1000000001)`, `select 1 from`, `select`, `select ?`, `select :a`, `select * from "state.value"; drop table "state.value"`,
		`select * from "state.value" where key = (`, "select \x00 1", `select '`, strings.Repeat("(", 5000), "select " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000),
		"select " + strings.Repeat("1,", 5000) + "1",
		`select json_extract('{', '$')`, `create temp table t(x)`, `explain create temp table t(x)`, `begin`, `explain begin`, `reindex`, `analyze`, `detach main`,
	} {
		func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			rows, err := query.Query(ctx, s, statement, nil)
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			require.Error(t, err, "%.80s", statement)
			require.NotContains(t, err.Error(), "\n", statement)
			require.NotErrorIs(t, err, context.DeadlineExceeded, statement)
		}()
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWrongNamesAreCorrected(t *testing.T) {
	s := golden(t, "f120-hashmap-canonical")
	for statement, want := range map[string]string{
		`select * from "state.valu"`:                   `no table state.valu, did you mean`,
		`select vallue from "state.value"`:             `no column vallue, did you mean value?`,
		`select a.kee from "state.value" a`:            `no column a.kee, did you mean key?`,
		`select * from nothing_like_it`:                `no table nothing_like_it: query without a statement lists them`,
		`select * from "state.value" join "state.txt"`: `did you mean`,
	} {
		_, err := query.Query(t.Context(), s, statement, nil)
		require.ErrorIs(t, err, query.ErrStatement)
		require.ErrorContains(t, err, want, statement)
	}
}

func TestInterrupt(t *testing.T) {
	s := golden(t, "f120-hashmap-canonical")
	for _, statement := range []string{
		`with recursive r(x) as (select 1 union all select x + 1 from r) select sum(x) from r`,
		`select count(*) from "state.value" a, "state.value" b, "state.value" c, "state.value" d, "state.value" e`,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		rows, err := query.Query(ctx, s, statement, nil)
		if err == nil {
			for rows.Next() {
			}
			err = rows.Err()
			require.NoError(t, rows.Close())
		}
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}
