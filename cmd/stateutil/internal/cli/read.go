package cli

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

type readOptions struct {
	scanFlags
	rowFlags
	all       bool
	limit     int64
	format    string
	output    string
	unordered bool
}

func newRead(g *global) *cobra.Command {
	o := &readOptions{}
	cmd := &cobra.Command{
		Use:     "read [URL]",
		GroupID: groupRead,
		Short:   "Print the entries of states as rows",
		Long: `Print the entries of the states that --operator and --state choose, or of every
state with --all: a row for each value, list, map entry and timer, for each
subtask's operator list and each entry of a broadcast state.

Formats are a table, JSON lines (one object for each row; docs/format/rows.md has
their members), CSV (the same members as columns, nested values as JSON), Parquet
and Arrow (columns with types; docs/format/columns.md). Files of columns hold one
state: with --all, or if -o names a folder, each state gets a file OPERATOR.STATE
there. Without -o, arrow is the stream format on standard output.

Rows come in the order of the files: operators, subtasks, key groups, and for
RocksDB state by state. --unordered gives them as they are read. What cannot be
decoded is shown as bytes under the name of its class, and the exit code is 4.`,
		Example: `  stateutil read --operator orders --state lastOrder --key '"alice"' s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil read --all --format jsonl /savepoints/savepoint-5f6b2a-02c1f9a4bb1d | jq .value
  stateutil read --state clicks --format csv -o clicks.csv /savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  stateutil read --all --format parquet -o state/ s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil read --state lastOrder --where "value.total > 100 and value.note is null" /savepoints/savepoint-5f6b2a-02c1f9a4bb1d`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			if !o.all && len(o.operators) == 0 && len(o.states) == 0 {
				return usage("say which states: --operator, --state, or --all; stateutil states lists them")
			}
			if !slices.Contains(rowFormats, o.format) {
				return usage("--format is %q: one of %s", o.format, strings.Join(rowFormats, ", "))
			}
			if o.format == "parquet" && o.output == "" {
				return usage("--format parquet wants -o: a file, or a folder for more than one state")
			}
			return o.parse()
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.read(cmd.Context(), url, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every state of every operator")
	o.scanFlags.add(f)
	o.scanFlags.complete(cmd)
	o.rowFlags.add(f)
	o.rowFlags.complete(cmd)
	f.Int64Var(&o.limit, "limit", 0, "stop after `N` rows; 0 is no limit")
	f.StringVar(&o.format, "format", "table", "print a table, jsonl or csv, or write parquet or arrow")
	must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(rowFormats, cobra.ShellCompDirectiveNoFileComp)))
	f.StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output, or files of columns to a folder; they appear when they are whole")
	f.BoolVar(&o.unordered, "unordered", false, "give rows as they are read, in no order")
	must(cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions))
	return cmd
}

var rowFormats = []string{"table", "jsonl", "csv", "parquet", "arrow"}

// errLimit ends a scan that has given as many rows as were asked for.
var errLimit = errors.New("limit reached")

func (g *global) read(ctx context.Context, url string, o *readOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return err
	}
	opts.Unordered = o.unordered
	format := o.format
	if g.json && format == "table" {
		format = "jsonl"
	}
	progress := g.progress()
	defer progress.Stop()
	choose, err := o.chooser(ctx, s, opts)
	if err != nil {
		return err
	}
	if o.count > 0 && (o.limit == 0 || o.limit > int64(o.count)) {
		o.limit = int64(o.count) // two rows may have one hash
	}
	count := &undecodedCount{}
	if _, columns := columnFormats[format]; columns {
		if err := g.readColumns(ctx, s, opts, o, format, choose, count, progress); err != nil {
			return err
		}
		progress.Stop()
		return probs.end(count.rows, count.classes)
	}
	out, err := g.rowOutput(o.output)
	if err != nil {
		return err
	}
	defer out.abort()
	w := io.Writer(out)
	if out.file == nil {
		w = g.output(progress)
	}
	switch format {
	case "jsonl":
		err = g.readLines(ctx, s, opts, o, w, choose, count, progress)
	case "csv":
		err = g.readCSV(ctx, s, opts, o, w, choose, count)
	default:
		err = g.readTable(ctx, s, opts, o, w, choose, count)
	}
	progress.Stop()
	if err != nil && !errors.Is(err, errLimit) {
		return err
	}
	if err := probs.unknownState(); err != nil {
		return err
	}
	if err := out.commit(); err != nil {
		return err
	}
	return probs.end(count.rows, count.classes)
}

// undecodedCount counts rows that are shown in part as bytes. For concurrent use.
type undecodedCount struct {
	mu      sync.Mutex
	rows    int64
	classes map[string]int64
}

func (c *undecodedCount) add(class string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows++
	if c.classes == nil {
		c.classes = map[string]int64{}
	}
	c.classes[class]++
}

// lineEncoder writes rows as JSON lines.
type lineEncoder struct {
	match func(*snapshot.StateRow) bool
	count *undecodedCount
}

func (e *lineEncoder) Append(dst []byte, r *snapshot.StateRow) ([]byte, error) {
	if !e.match(r) {
		return dst, nil
	}
	dst, undecoded := r.AppendJSON(dst)
	if undecoded != "" {
		e.count.add(undecoded)
	}
	return append(dst, '\n'), nil
}

func (g *global) readLines(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, o *readOptions, w io.Writer, choose *rowChooser, count *undecodedCount, progress *terminal.Progress) error {
	var written int64
	left := o.limit
	return snapshot.Blocks(ctx, s, opts, func(int) snapshot.Encoder {
		return &lineEncoder{match: choose.match(), count: count}
	}, func(b []byte) error {
		if o.limit > 0 {
			n := 0
			for left > 0 && n < len(b) {
				n += slices.Index(b[n:], '\n') + 1
				left--
			}
			b = b[:n]
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		written += int64(len(b))
		if progress != nil {
			at := written
			progress.Update(func() string { return terminal.Bytes(at) })
		}
		if o.limit > 0 && left == 0 {
			return errLimit
		}
		return nil
	})
}

// rows calls f for each chosen row, one after the other.
func rows(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, choose *rowChooser, limit int64, f func(*snapshot.StateRow) error) error {
	match := choose.match()
	n := int64(0)
	for r, err := range snapshot.Rows(ctx, s, opts) {
		if err != nil {
			return err
		}
		if !match(r) {
			continue
		}
		if err := f(r); err != nil {
			return err
		}
		if n++; limit > 0 && n == limit {
			return errLimit
		}
	}
	return nil
}

// cells are a row's members as text.
func (g *global) cells(r *snapshot.StateRow, count *undecodedCount) []string {
	var undecoded [4]string
	key, group, ns, mapKey, value := "", "", "", "", ""
	if r.State.Kind.Keyed() {
		var b []byte
		b, undecoded[0] = r.AppendKeyJSON(nil)
		key = string(b)
		b, undecoded[1] = r.AppendNamespaceJSON(nil)
		ns = string(b)
	}
	if r.KeyGroup >= 0 {
		group = strconv.Itoa(int(r.KeyGroup))
	}
	if r.UserKey != nil {
		var b []byte
		b, undecoded[2] = r.AppendMapKeyJSON(nil)
		mapKey = string(b)
	}
	if r.State.Kind == snapshot.StateTimer {
		value = strconv.FormatInt(r.Timestamp, 10)
	} else {
		var b []byte
		b, undecoded[3] = r.AppendValueJSON(nil)
		value = string(b)
	}
	for _, u := range undecoded {
		if u != "" {
			count.add(u)
			break
		}
	}
	subtask := ""
	if r.Subtask >= 0 {
		subtask = strconv.Itoa(int(r.Subtask))
	}
	op := orElse(r.State.Operator.UID, orElse(r.State.Operator.Name, orElse(r.State.Operator.ID, "master")))
	return []string{op, r.State.Name, string(r.State.Kind), subtask, group, ns, key, mapKey, value}
}

func (g *global) readTable(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, o *readOptions, w io.Writer, choose *rowChooser, count *undecodedCount) error {
	screen := g.screen
	if o.output != "" {
		screen = terminal.Screen{}
	}
	table := terminal.NewTable(w, screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 10},
		terminal.Column{Title: "KIND"},
		terminal.Column{Title: "KEY GROUP", Right: true},
		terminal.Column{Title: "NAMESPACE", Dull: "-", Cut: terminal.End, Min: 8},
		terminal.Column{Title: "KEY", Cut: terminal.End, Min: 8},
		terminal.Column{Title: "MAP KEY", Dull: "-", Cut: terminal.End, Min: 8},
		terminal.Column{Title: "VALUE", Cut: terminal.End, Min: 16})
	err := rows(ctx, s, opts, choose, o.limit, func(r *snapshot.StateRow) error {
		c := g.cells(r, count)
		if c[5] == "null" {
			c[5] = ""
		}
		for i := range c {
			c[i] = orElse(c[i], "-")
		}
		return table.Row(terminal.C(c[0], c[1], c[2], c[4], c[5], c[6], c[7], c[8])...)
	})
	if err != nil && !errors.Is(err, errLimit) {
		return err
	}
	return table.Flush()
}

func (g *global) readCSV(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, o *readOptions, w io.Writer, choose *rowChooser, count *undecodedCount) error {
	c := csv.NewWriter(w)
	if err := c.Write([]string{"operator", "state", "kind", "subtask", "key_group", "namespace", "key", "map_key", "value"}); err != nil {
		return err
	}
	err := rows(ctx, s, opts, choose, o.limit, func(r *snapshot.StateRow) error {
		cells := g.cells(r, count)
		for i := 5; i < len(cells); i++ {
			cells[i] = plainText(cells[i])
		}
		return c.Write(cells)
	})
	c.Flush()
	if err == nil || errors.Is(err, errLimit) {
		return c.Error()
	}
	return err
}

// plainText takes a JSON string out of its quotes; null is empty.
func plainText(s string) string {
	if s == "null" {
		return ""
	}
	if strings.HasPrefix(s, `"`) {
		if t, ok := unquoteJSON(s); ok {
			return t
		}
	}
	return s
}

// rowFile is where rows go: standard output, a file that appears when it is whole, or
// a device or pipe, which is written as it is.
type rowFile struct {
	io.Writer
	buf    *bufio.Writer
	file   *os.File
	name   string
	direct bool
}

func (g *global) rowOutput(name string) (*rowFile, error) {
	if name == "" || name == "-" {
		return &rowFile{Writer: g.env.Out}, nil
	}
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return nil, usage("-o: %s is a folder", name)
	}
	direct := err == nil && !info.Mode().IsRegular() // a rename would replace the device
	var f *os.File
	if direct {
		f, err = os.OpenFile(name, os.O_WRONLY, 0)
	} else {
		f, err = os.CreateTemp(dirOf(name), ".stateutil-*")
	}
	if err != nil {
		return nil, unwritable(err)
	}
	b := bufio.NewWriterSize(f, 1<<20)
	return &rowFile{Writer: b, buf: b, file: f, name: name, direct: direct}, nil
}

func (r *rowFile) commit() error {
	if r.file == nil {
		return nil
	}
	err := r.buf.Flush()
	if err == nil && !r.direct {
		err = r.file.Chmod(0o644)
	}
	if cerr := r.file.Close(); err == nil {
		err = cerr
	}
	if err == nil && !r.direct {
		err = os.Rename(r.file.Name(), r.name)
	}
	if err != nil && !r.direct {
		os.Remove(r.file.Name())
	}
	r.file = nil
	if err != nil {
		return unwritable(err)
	}
	return nil
}

func (r *rowFile) abort() {
	if r.file != nil {
		r.file.Close()
		if !r.direct {
			os.Remove(r.file.Name())
		}
	}
}
