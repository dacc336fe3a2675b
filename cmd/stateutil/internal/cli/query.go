package cli

import (
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/query"
)

// queryOutput is the JSON document of query: of the tables without a statement, of
// the result with one.
type queryOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// Tables are the states, without a statement.
	Tables []queryTable `json:"tables,omitempty"`
	// Columns are those of the result.
	Columns []queryResultColumn `json:"columns,omitempty"`
	// Rows are objects with the names of Columns; bytes are {"base64":…}, a state's JSON is nested.
	Rows []json.RawMessage `json:"rows,omitempty"`
}

// queryTable is a state as a table.
type queryTable struct {
	// Name is what the table is called in a statement, quoted where it must be.
	Name string `json:"name"`
	// OperatorID is the operator's ID in hex.
	OperatorID string `json:"operatorId"`
	// Kind is value, list, map, reducing, aggregating, timer, operator-list, …
	Kind snapshot.StateKind `json:"kind"`
	// Columns are those of the table, nested fields after what they are in.
	Columns []queryColumn `json:"columns"`
}

// queryColumn is a column of a table.
type queryColumn struct {
	// Name is the column's, without quotes.
	Name string `json:"name"`
	// Type is what it holds, in words.
	Type string `json:"type"`
	// SQL is how SQLite holds it: INTEGER, REAL, TEXT, BLOB or JSON TEXT.
	SQL string `json:"sql"`
}

// queryResultColumn is a column of a result.
type queryResultColumn struct {
	// Name is the column's; the second of a name has :1 behind it.
	Name string `json:"name"`
}

type queryOptions struct {
	scanFlags
	format string
	output string
	memory string
}

var queryFormats = []string{"table", "jsonl", "csv", "json"}

func newQuery(g *global) *cobra.Command {
	o := &queryOptions{}
	cmd := &cobra.Command{
		Use:     "query URL [SQL]",
		GroupID: groupRead,
		Short:   "Run SQL over the states of a snapshot",
		Long: `Run a SELECT over the states of a snapshot, in the SQL of SQLite. Each state is a
table, named by the operator's uid, name or ID and the state's name:
orders.lastOrder. Without a statement the tables and their columns are listed.

Fields of rows, POJOs and records are columns of their own: value.price. Lists and
maps are JSON, for json_each, json_extract and ->>. docs/format/sql.md describes
names and types.

Only the states that the statement names are read, and with key = … only that key.
States that are joined are copied first: in memory up to --memory, in a temporary
file beyond.`,
		Example: `  stateutil query s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil query /savepoints/savepoint-5f6b2a-02c1f9a4bb1d 'select key, value.price from orders.lastOrder order by 2 desc limit 10'
  stateutil query --format csv chk-8841 'select count(*) from "enrich orders"."last-order" where key_group < 64'`,
		Args: func(cmd *cobra.Command, a []string) error {
			if len(a) == 0 {
				return usage("query takes a URL and a statement: see stateutil query --help")
			}
			return atMost(2, "arguments")(cmd, a)
		},
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			if !slices.Contains(queryFormats, o.format) {
				return usage("--format is %q: one of %s", o.format, strings.Join(queryFormats, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			statement := ""
			if len(a) == 2 {
				statement = a[1]
			}
			return g.query(cmd.Context(), a[0], statement, len(a) == 2, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.format, "format", "table", "print a table, jsonl, csv or json")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(queryFormats, cobra.ShellCompDirectiveNoFileComp)))
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output; it appears when it is whole")
	f.StringVar(&o.memory, "memory", "64MiB", "hold up to `SIZE` of copied or sorted states in memory, and the rest in a temporary file")
	f.StringVar(&o.classes, "classes", "", "read classes that the snapshot does not describe: `FILE` has a type in words on each line")
	must(cmd.RegisterFlagCompletionFunc("memory", cobra.NoFileCompletions))
	return cmd
}

// parseSize reads bytes with a unit: 64MiB, 2GiB, 500000.
func parseSize(s string) (int64, bool) {
	unit := int64(1)
	number := strings.TrimSpace(s)
	for _, u := range []struct {
		name string
		size int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}} {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
}

func (g *global) query(ctx context.Context, url, statement string, run bool, o *queryOptions) error {
	memory, ok := parseSize(o.memory)
	if !ok {
		return usage("--memory is %q: a number of bytes, or one with KiB, MiB or GiB", o.memory)
	}
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	scan, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return err
	}
	format := o.format
	if g.json {
		format = "json"
	}
	progress := g.progress()
	defer progress.Stop()
	count := &undecodedCount{}
	opts := &query.Options{Scan: scan, MemoryBytes: memory, OnUndecoded: count.add, Progress: watchRows(progress),
		OnSpill: func(message string) {
			if g.quiet || progress.Print("stateutil: "+terminal.OneLine(g.redact(message))) {
				return
			}
			g.note("%s", message)
		}}
	out, err := g.rowOutput(o.output)
	if err != nil {
		return err
	}
	defer out.abort()
	w := io.Writer(out)
	if out.file == nil {
		w = g.output(progress)
	}
	if !run {
		err = g.queryTables(ctx, s, opts, format, w)
	} else {
		err = g.queryRows(ctx, s, statement, opts, format, w, out.file != nil)
	}
	progress.Stop()
	if errors.Is(err, query.ErrStatement) {
		return exit.With(exit.Usage, err)
	}
	if err != nil {
		return err
	}
	if err := out.commit(); err != nil {
		return err
	}
	return probs.end(count.rows, count.classes)
}

// queryTables lists the tables.
func (g *global) queryTables(ctx context.Context, s *snapshot.Snapshot, opts *query.Options, format string, w io.Writer) error {
	tables, err := query.Tables(ctx, s, opts)
	if err != nil {
		return err
	}
	if format == "json" || format == "jsonl" {
		doc := terminal.NewDocument(w, schemaQuery)
		doc.Member("snapshot", s.Location.String())
		doc.Array("tables")
		for _, t := range tables {
			q := queryTable{Name: t.Name(), OperatorID: t.OperatorID(), Kind: t.Kind(), Columns: []queryColumn{}}
			for _, c := range t.Columns {
				q.Columns = append(q.Columns, queryColumn{Name: c.Name, Type: c.Type, SQL: c.SQL})
			}
			if err := doc.Element(q); err != nil {
				return err
			}
		}
		return doc.Close()
	}
	if format == "csv" {
		c := csv.NewWriter(w)
		if err := c.Write([]string{"table", "kind", "column", "type", "sql"}); err != nil {
			return err
		}
		for _, t := range tables {
			for _, col := range t.Columns {
				if err := c.Write([]string{t.Name(), string(t.Kind()), col.Name, col.Type, col.SQL}); err != nil {
					return err
				}
			}
		}
		c.Flush()
		return c.Error()
	}
	if len(tables) == 0 {
		return g.printf(w, "no state\n")
	}
	out := terminal.NewTable(w, g.screen,
		terminal.Column{Title: "TABLE", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "KIND"},
		terminal.Column{Title: "COLUMN", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "TYPE", Cut: terminal.End, Min: 12},
		terminal.Column{Title: "SQL"})
	for _, t := range tables {
		name, kind := t.Name(), string(t.Kind())
		for _, c := range t.Columns {
			if err := out.Row(terminal.C(name, kind, c.Name, c.Type, c.SQL)...); err != nil {
				return err
			}
			name, kind = "", "" // once for all of its columns
		}
	}
	return out.Flush()
}

// queryRows prints the result of a statement.
func (g *global) queryRows(ctx context.Context, s *snapshot.Snapshot, statement string, opts *query.Options, format string, w io.Writer, toFile bool) (err error) {
	rows, err := query.Query(ctx, s, statement, opts)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	columns := rows.Columns()
	switch format {
	case "csv":
		err = queryCSV(rows, columns, w)
	case "table":
		screen := g.screen
		if toFile {
			screen = terminal.Screen{}
		}
		err = queryTableRows(rows, columns, w, screen)
	default:
		err = queryJSON(s, rows, columns, w, format == "json")
	}
	return err
}

// uniqueNames are the columns' names, each once.
func uniqueNames(columns []query.ResultColumn) []string {
	seen := map[string]bool{}
	names := make([]string, len(columns))
	for i, c := range columns {
		name := c.Name
		for n := 1; seen[name]; n++ {
			name = c.Name + ":" + strconv.Itoa(n)
		}
		seen[name] = true
		names[i] = name
	}
	return names
}

func queryJSON(s *snapshot.Snapshot, rows *query.Rows, columns []query.ResultColumn, w io.Writer, document bool) error {
	names := uniqueNames(columns)
	heads := make([][]byte, len(names))
	for i, n := range names {
		b, err := json.Marshal(n)
		if err != nil {
			return err
		}
		heads[i] = append(b, ':')
	}
	var doc *terminal.Document
	if document {
		doc = terminal.NewDocument(w, schemaQuery)
		doc.Member("snapshot", s.Location.String())
		doc.Array("columns")
		for _, n := range names {
			if err := doc.Element(queryResultColumn{n}); err != nil {
				return err
			}
		}
		doc.Array("rows")
	}
	buf := make([]byte, 0, 64<<10)
	for rows.Next() {
		if document {
			buf = buf[:0]
		}
		buf = append(buf, '{')
		for i, v := range rows.Values() {
			if i > 0 {
				buf = append(buf, ',')
			}
			buf = appendSQLValue(append(buf, heads[i]...), v, columns[i].JSON)
		}
		buf = append(buf, '}')
		if document {
			if err := doc.Element(json.RawMessage(buf)); err != nil {
				return err
			}
			continue
		}
		if buf = append(buf, '\n'); len(buf) > 60<<10 {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if document {
		return doc.Close()
	}
	_, err := w.Write(buf)
	return err
}

func appendSQLValue(dst []byte, v any, isJSON bool) []byte {
	switch v := v.(type) {
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return strconv.AppendQuote(dst, floatText(v))
		}
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case string:
		if isJSON && v != "" && (v[0] == '{' || v[0] == '[') && json.Valid([]byte(v)) {
			return append(dst, v...)
		}
		b, err := json.Marshal(v)
		if err != nil {
			return append(dst, "null"...)
		}
		return append(dst, b...)
	case []byte:
		dst = append(dst, `{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, `"}`...)
	}
	return append(dst, "null"...)
}

func floatText(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// sqlText is a value as text; null is the empty text.
func sqlText(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case string:
		return v
	case []byte:
		return "0x" + hex.EncodeToString(v)
	}
	return ""
}

func queryCSV(rows *query.Rows, columns []query.ResultColumn, w io.Writer) error {
	c := csv.NewWriter(w)
	cells := make([]string, len(columns))
	for i := range columns {
		cells[i] = columns[i].Name
	}
	if err := c.Write(cells); err != nil {
		return err
	}
	for rows.Next() {
		for i, v := range rows.Values() {
			cells[i] = sqlText(v)
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	if err := rows.Err(); err != nil {
		return err
	}
	return c.Error()
}

func queryTableRows(rows *query.Rows, columns []query.ResultColumn, w io.Writer, screen terminal.Screen) error {
	var out *terminal.Table
	var numbers []bool
	for rows.Next() {
		values := rows.Values()
		if out == nil { // the first row tells what is a number
			var titles []terminal.Column
			for i, c := range columns {
				numbers = append(numbers, isNumber(values[i]))
				titles = append(titles, terminal.Column{Title: c.Name, Right: numbers[i], Cut: terminal.End, Min: 8})
			}
			out = terminal.NewTable(w, screen, titles...)
		}
		cells := make([]string, len(values))
		for i, v := range values {
			if cells[i] = sqlText(v); v == nil {
				cells[i] = "null"
			}
		}
		if err := out.Row(terminal.C(cells...)...); err != nil {
			return err
		}
	}
	if out == nil {
		if err := rows.Err(); err != nil {
			return err
		}
		_, err := io.WriteString(w, "no rows\n")
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return rows.Err()
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}
