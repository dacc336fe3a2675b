package query

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// ErrStatement says that a statement is wrong, or not allowed: its text is what the
// user should change.
var ErrStatement = errors.New("bad statement")

// statementError is a complaint about a statement.
type statementError struct{ text string }

func (e *statementError) Error() string        { return e.text }
func (e *statementError) Is(target error) bool { return target == ErrStatement }

func wrong(format string, args ...any) error { return &statementError{fmt.Sprintf(format, args...)} }

// Options tunes queries. Nil is the default.
type Options struct {
	// Scan narrows and tunes how states are read: operators, key groups, workers, names,
	// classes, and who is told of what cannot be read.
	Scan *snapshot.ScanOptions
	// MemoryBytes is how much of copied states, and of what is sorted or grouped, is
	// held in memory; 0 is 64 MiB.
	MemoryBytes int64
	// OnSpill is told in words when more than that is needed, and a temporary file is
	// used. It is called by the goroutine that walks over the rows.
	OnSpill func(message string)
	// OnUndecoded is told of the class of each part that could not be read and is null
	// in its column. It is called by many goroutines.
	OnUndecoded func(class string)
	// Progress is told of how many rows of states were read so far.
	Progress func(rows int64)
}

const defaultMemory = 64 << 20

// Tables lists the states of a snapshot as tables, by reading the head of each
// handle.
func Tables(ctx context.Context, s *snapshot.Snapshot, opts *Options) ([]*Table, error) {
	cat, err := readCatalog(ctx, s, scanOf(opts), nil)
	if err != nil {
		return nil, err
	}
	return cat.tables, nil
}

func scanOf(opts *Options) *snapshot.ScanOptions {
	var o snapshot.ScanOptions
	if opts != nil && opts.Scan != nil {
		o = *opts.Scan
	}
	if tell := o.OnProblem; tell != nil {
		// Heads of handles are read for the tables and again for their rows.
		var mu sync.Mutex
		told := map[string]bool{}
		o.OnProblem = func(p *snapshot.ScanProblem) {
			mu.Lock()
			defer mu.Unlock()
			if text := p.Error(); !told[text] {
				if len(told) < maxTold {
					told[text] = true
				}
				tell(p)
			}
		}
	}
	return &o
}

// maxTold bounds the problems that are remembered, so as to tell of each once.
const maxTold = 1000

// readCatalog reads the states of the operators that are mentioned, or of all.
func readCatalog(ctx context.Context, s *snapshot.Snapshot, scan *snapshot.ScanOptions, mentioned map[string]bool) (*catalog, error) {
	o := *scan
	if mentioned != nil {
		o.Operator = func(op *snapshot.StateOperator) bool {
			if scan.Operator != nil && !scan.Operator(op) {
				return false
			}
			for _, n := range []string{op.UID, op.Name, op.ID} {
				if n = fold(n); n == "" {
					continue
				}
				if mentioned[n] {
					return true
				}
				for m := range mentioned {
					if strings.HasPrefix(m, n+".") {
						return true
					}
				}
			}
			return false
		}
	}
	states, err := snapshot.States(ctx, s, &o)
	if err != nil {
		return nil, err
	}
	if o.State != nil {
		var kept []*snapshot.State
		for _, st := range states {
			if o.State(st) {
				kept = append(kept, st)
			}
		}
		states = kept
	}
	return newCatalog(states), nil
}

// ResultColumn is a column of a result.
type ResultColumn struct {
	Name string
	// JSON: it is a column of a state that holds JSON.
	JSON bool
}

// run is one statement.
type run struct {
	ctx  context.Context
	s    *snapshot.Snapshot
	scan *snapshot.ScanOptions
	opts Options
	cat  *catalog

	db      *sql.DB
	conn    *sql.Conn
	inside  atomic.Bool // the statement is our own
	reads   map[[2]string]map[string]bool
	refused string
	noKey   bool

	mu     sync.Mutex
	failed error

	rows    atomic.Int64
	copied  int64 // bytes of states being copied
	copying bool
	spilled bool
}

func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

func (r *run) undecoded(class string) {
	if r.opts.OnUndecoded != nil {
		r.opts.OnUndecoded(class)
	}
}

// counted is called with each piece of rows that the statement gets.
func (r *run) counted(b *table.Batch) {
	n := r.rows.Add(int64(b.Rows))
	if r.opts.Progress != nil {
		r.opts.Progress(n)
	}
	if !r.copying {
		return
	}
	r.copied += int64(b.Size()) + 8*int64(b.Rows)
	if r.copied > r.opts.MemoryBytes && !r.spilled {
		r.spilled = true
		r.spill(fmt.Sprintf("a join needs states as tables of more than %s: they go on in a temporary file in %s, which vanishes at the end", size(r.opts.MemoryBytes), tempDir()))
	}
}

func (r *run) spill(message string) {
	if r.opts.OnSpill != nil {
		r.opts.OnSpill(message)
	}
}

// tempDir is where SQLite makes its temporary files, which have no names.
func tempDir() string {
	for _, d := range []string{os.Getenv("SQLITE_TMPDIR"), os.Getenv("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp"} {
		if fi, err := os.Stat(d); d != "" && err == nil && fi.IsDir() {
			return d
		}
	}
	return "."
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

// Rows is a result that is walked over once. It belongs to one goroutine.
type Rows struct {
	run     *run
	rows    *sql.Rows
	columns []ResultColumn
	values  []any
	into    []any
	err     error
	closed  bool
}

// Columns are the columns of the result.
func (r *Rows) Columns() []ResultColumn { return r.columns }

// Next moves to the next row; false at the end or after an error.
func (r *Rows) Next() bool {
	if r.err != nil || r.closed || !r.rows.Next() {
		return false
	}
	r.err = r.rows.Scan(r.into...)
	return r.err == nil
}

// Values are those of the row, valid until Next: nil, int64, float64, string or
// []byte.
func (r *Rows) Values() []any { return r.values }

// Read is how many rows of states were read.
func (r *Rows) Read() int64 { return r.run.rows.Load() }

// Err is what ended the rows: nil at their end.
func (r *Rows) Err() error {
	if r.err != nil {
		return r.run.explain(r.err)
	}
	if err := r.rows.Err(); err != nil {
		return r.run.explain(err)
	}
	return nil
}

// Close ends the statement and frees its memory and files.
func (r *Rows) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.rows.Close()
	if n := r.run.sorted(); n > 0 {
		r.run.spill(fmt.Sprintf("sorting and grouping needed %s of temporary files in %s", size(n), tempDir()))
	}
	if cerr := r.run.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return r.run.explain(err)
	}
	return nil
}

func (r *run) close() error {
	err := r.conn.Close()
	if cerr := r.db.Close(); err == nil {
		err = cerr
	}
	return err
}

// sorted is how many bytes sorting and grouping wrote to temporary files.
func (r *run) sorted() (n int64) {
	_ = r.conn.Raw(func(c any) error {
		if st, ok := c.(interface {
			Status(sqlite.DBStatusOp, bool) (int, int, error)
		}); ok {
			x, _, err := st.Status(sqlite.DBStatusTempbufSpill, false)
			n = int64(x)
			return err
		}
		return nil
	})
	return n
}

// connector opens connections of a driver of our own: what is registered on it is
// seen by no other user of SQLite in the process.
type connector struct{ d *sqlite.Driver }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.d.Open("") }
func (c connector) Driver() driver.Driver                        { return c.d }

// Query runs one SELECT over the states of a snapshot. Errors of the statement wrap
// ErrStatement; those of the data are as those of snapshot.Scan. The caller closes
// the rows.
func Query(ctx context.Context, s *snapshot.Snapshot, statement string, opts *Options) (*Rows, error) {
	r := &run{ctx: ctx, s: s, scan: scanOf(opts), reads: map[[2]string]map[string]bool{}}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.MemoryBytes <= 0 {
		r.opts.MemoryBytes = defaultMemory
	}
	tokens := lex(statement)
	if err := allowed(tokens); err != nil {
		return nil, err
	}
	mentioned := mentions(tokens)
	var err error
	if r.cat, err = readCatalog(ctx, s, r.scan, mentioned); err != nil {
		return nil, err
	}
	all := false
	if len(r.cat.named(mentioned)) == 0 { // a state by its own name, or a wrong one
		all = true
		if r.cat, err = readCatalog(ctx, s, r.scan, nil); err != nil {
			return nil, err
		}
	}
	rows, err := r.query(statement, tokens, mentioned)
	if err != nil && !all && isUnknownTable(err) { // beside an operator's state, one by its own name
		if r.cat, err = readCatalog(ctx, s, r.scan, nil); err != nil {
			return nil, err
		}
		rows, err = r.query(statement, tokens, mentioned)
	}
	if err != nil {
		return nil, r.explain(err)
	}
	return rows, nil
}

// allowed reports whether the tokens are one statement that only reads.
func allowed(tokens []token) error {
	if len(tokens) == 0 {
		return wrong("there is no statement")
	}
	switch first := fold(tokens[0].text); {
	case tokens[0].kind != tokenName:
		return wrong("a statement begins with SELECT, WITH, VALUES or EXPLAIN, not with %q", tokens[0].text)
	case first != "select" && first != "with" && first != "values" && first != "explain":
		return wrong("%s is not allowed: a snapshot is only read, by SELECT, WITH, VALUES or EXPLAIN", strings.ToUpper(first))
	}
	for i, t := range tokens {
		if t.kind == tokenOther && t.text == ";" && i < len(tokens)-1 {
			return wrong("one statement at a time: there is more behind the first semicolon")
		}
	}
	return nil
}

// query prepares the tables and runs the statement.
func (r *run) query(statement string, tokens []token, mentioned map[string]bool) (rows *Rows, err error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	names := r.cat.named(mentioned)
	fields := map[string]bool{}
	for _, n := range names {
		for i := range n.table.Columns {
			fields[fold(n.table.Columns[i].Name)] = true
		}
	}
	if err := r.create(names); err != nil {
		return nil, err
	}
	statement = joinFields(statement, tokens, fields)
	explains := fold(tokens[0].text) == "explain"
	commas := 0
	for _, t := range tokens {
		if t.text == "," {
			commas++
		}
	}
	// A walk for each of very many keys costs more than one over all.
	r.noKey = commas > mostKeys
	if !explains {
		if err := r.plan(statement, names); err != nil {
			return nil, err
		}
	}
	return r.begin(statement)
}

// mostKeys is how many keys are looked up one by one.
const mostKeys = 64

// maxCell bounds a text, a blob and a row, so that no function of a statement makes
// one that takes the machine's memory: 256 MiB, above what is kept in one value.
const (
	maxCell           = 256 << 20
	sqliteLimitLength = 0 // SQLITE_LIMIT_LENGTH
)

func (r *run) open() error {
	d := &sqlite.Driver{}
	if err := d.RegisterModule(moduleName, module{r}); err != nil {
		return err
	}
	if err := d.RegisterCollationUtf8("decimal", compareDecimals); err != nil {
		return err
	}
	r.db = sql.OpenDB(connector{d})
	var err error
	if r.conn, err = r.db.Conn(r.ctx); err != nil {
		r.db.Close()
		return err
	}
	if _, err = sqlite.Limit(r.conn, sqliteLimitLength, maxCell); err != nil {
		r.close()
		return err
	}
	err = r.conn.Raw(func(c any) error {
		a, ok := c.(sqlite.AuthorizerRegisterer)
		if !ok {
			return errors.New("SQLite has no authorizer")
		}
		return a.RegisterAuthorizer(r.authorize)
	})
	if err != nil {
		r.close()
	}
	return err
}

// own executes a statement of our own.
func (r *run) own(statement string) error {
	r.inside.Store(true)
	defer r.inside.Store(false)
	_, err := r.conn.ExecContext(r.ctx, statement)
	return err
}

// authorize lets a statement read and call functions, and notes what it reads.
func (r *run) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, database, _ string) sqlite.AuthorizerReturnCode {
	if r.inside.Load() {
		return sqlite.AuthorizerOK
	}
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRecursive:
		return sqlite.AuthorizerOK
	case sqlite.AuthRead:
		k := [2]string{fold(database), fold(arg1)}
		if r.reads[k] == nil {
			r.reads[k] = map[string]bool{}
		}
		r.reads[k][fold(arg2)] = true
		return sqlite.AuthorizerOK
	case sqlite.AuthFunction:
		if !forbidden[fold(arg2)] {
			return sqlite.AuthorizerOK
		}
		r.refused = "function " + arg2
	case sqlite.AuthPragma:
		r.refused = "PRAGMA " + arg1
	case sqlite.AuthAttach:
		r.refused = "ATTACH"
	default:
		r.refused = "a statement that changes something"
	}
	return sqlite.AuthorizerDeny
}

// forbidden are functions that reach out of the database, in builds of SQLite that
// have them.
var forbidden = map[string]bool{"load_extension": true, "readfile": true, "writefile": true, "edit": true, "fts3_tokenizer": true, "sqlite_log": true}

// create declares the tables that a statement may mean.
func (r *run) create(names []named) error {
	attached := map[string]bool{}
	for _, n := range names {
		if n.schema != "" && !attached[n.schema] {
			attached[n.schema] = true
			if len(attached) > maxAttached {
				return wrong("a statement can name %d operators; write the tables as one name, \"operator.state\"", maxAttached)
			}
			if err := r.own("ATTACH '' AS " + quote(n.schema)); err != nil {
				return err
			}
		}
	}
	// What a statement makes up by itself has an end too: texts that it doubles.
	if err := r.own(fmt.Sprintf("PRAGMA hard_heap_limit = %d", r.opts.MemoryBytes+1<<30)); err != nil {
		return err
	}
	budget := max(r.opts.MemoryBytes>>10, 512) / int64(1+len(attached))
	for _, schema := range append(sortedKeys(attached), "main") {
		if err := r.own(fmt.Sprintf("PRAGMA %s.cache_size = -%d", quote(schema), budget)); err != nil {
			return err
		}
		if err := r.own(fmt.Sprintf("PRAGMA %s.journal_mode = OFF", quote(schema))); err != nil {
			return err
		}
	}
	for _, n := range names {
		if err := r.own(fmt.Sprintf("CREATE VIRTUAL TABLE %s USING %s(%d)", n.sql(), moduleName, n.table.id)); err != nil {
			return err
		}
	}
	return nil
}

// maxAttached is SQLite's own limit.
const maxAttached = 10

func (n *named) sql() string {
	if n.schema == "" {
		return "main." + quote(n.name)
	}
	return quote(n.schema) + "." + quote(n.name)
}

// begin begins the statement.
func (r *run) begin(statement string) (*Rows, error) {
	rows, err := r.conn.QueryContext(r.ctx, statement)
	if err != nil {
		return nil, err
	}
	types, err := rows.ColumnTypes()
	if err != nil {
		rows.Close()
		return nil, err
	}
	res := &Rows{run: r, rows: rows, values: make([]any, len(types)), into: make([]any, len(types))}
	for i, t := range types {
		res.columns = append(res.columns, ResultColumn{Name: t.Name(), JSON: t.DatabaseTypeName() == sqlJSON})
		res.into[i] = &res.values[i]
	}
	return res, nil
}

var _ io.Closer = (*Rows)(nil)
