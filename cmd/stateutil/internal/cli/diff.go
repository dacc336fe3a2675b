package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// diffOutput is the JSON document of diff.
type diffOutput struct {
	Schema string `json:"schema"`
	// Old and New are the URLs of the metadata.
	Old string `json:"old"`
	New string `json:"new"`
	// Rows are those that differ, in the order of operators, key groups, states and
	// keys; empty with --summary and --files. A row has the members of read's JSON
	// lines, value being the new one, and besides: change, "added", "removed" or
	// "changed"; before, the old value of a changed row; and before_ttl_timestamp_min
	// and before_ttl_timestamp_max if the old value carried times.
	Rows []json.RawMessage `json:"rows"`
	// Files are those that one of the two names and the other does not, with --files.
	Files []snapshot.FileDiff `json:"files"`
	// States are the counts; empty with --files.
	States []*snapshot.StateDiff `json:"states"`
	// Notes are about operators.
	Notes []string `json:"notes"`
	// Same says that nothing differs.
	Same bool `json:"same"`
	// Incomplete: a part of a snapshot could not be read.
	Incomplete bool `json:"incomplete"`
}

type diffOptions struct {
	scanFlags
	summary   bool
	files     bool
	jsonl     bool
	ignoreTTL bool
	tempDir   string
}

func newDiff(g *global) *cobra.Command {
	o := &diffOptions{}
	cmd := &cobra.Command{
		Use:     "diff OLD NEW",
		GroupID: groupRead,
		Short:   "Compare two snapshots row by row",
		Long: `Compare the rows of two snapshots of a job: what was added, removed and changed in
each state. The snapshots may be of different kinds (heap or RocksDB, checkpoint,
canonical or native savepoint, changelog), of different parallelism, and written by
different versions: rows are the same if they decode to the same, maps and sets
without regard to order.

A line begins with + for an added row, - for a removed one, ~ for a changed one with
its value before and after. --summary only counts. --files compares no rows but the
files that the snapshots name, to show what a checkpoint has added to the one before.

Rows that RocksDB holds stream past; others are sorted a few key groups at a time,
in temporary files if need be. The exit code is 0 if nothing differs and 5 if
something does.`,
		Example: `  stateutil diff chk-41 chk-42
  stateutil diff --summary s3://bucket/checkpoints/7f3c…a1/chk-8841 s3://bucket/savepoints/savepoint-7f3c11-02c1f9a4bb1d
  stateutil diff --operator orders --state totals --jsonl chk-41 chk-42
  stateutil diff --files chk-41 chk-42`,
		Args:              exactly(2, "URLs"),
		ValidArgsFunction: g.completeURL,
		RunE:              func(cmd *cobra.Command, a []string) error { return g.diff(cmd.Context(), a[0], a[1], o) },
	}
	o.add(cmd.Flags())
	o.complete(cmd)
	cmd.Flags().BoolVar(&o.summary, "summary", false, "print counts only")
	cmd.Flags().BoolVar(&o.files, "files", false, "compare the files that the snapshots name, not the rows")
	cmd.Flags().BoolVar(&o.jsonl, "jsonl", false, "print each row that differs as a JSON line, and nothing else")
	cmd.Flags().BoolVar(&o.ignoreTTL, "ignore-ttl", false, "values are the same if only their time of last access differs")
	cmd.Flags().StringVar(&o.tempDir, "temp-dir", "", "sort in temporary files in `DIR` (default the system's)")
	return cmd
}

func (g *global) diff(ctx context.Context, oldURL, newURL string, o *diffOptions) error {
	if o.files && (o.summary || o.jsonl) || o.summary && o.jsonl {
		return usage("--files, --summary and --jsonl exclude each other")
	}
	if o.jsonl && g.json {
		return usage("--jsonl and --json exclude each other")
	}
	a, err := g.open(ctx, oldURL)
	if err != nil {
		return err
	}
	b, err := g.open(ctx, newURL)
	if err != nil {
		return err
	}
	if o.files {
		return g.diffFiles(a, b)
	}
	probs := &problems{g: g}
	scan, err := g.diffScan(ctx, a, b, &o.scanFlags)
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	out := g.output(progress)
	opts := &snapshot.DiffOptions{Scan: scan, IgnoreTTL: o.ignoreTTL, TempDir: o.tempDir, Progress: watchRows(progress),
		OnProblem: func(isNew bool, p *snapshot.ScanProblem) {
			which := "old: "
			if isNew {
				which = "new: "
			}
			probs.note(which, p)
		}}
	var encoder func(int) snapshot.DiffEncoder
	var doc *terminal.Document
	write := func(p []byte) error { _, err := out.Write(p); return err }
	switch {
	case g.json:
		doc = terminal.NewDocument(out, schemaDiff)
		doc.Member("old", a.Location.String())
		doc.Member("new", b.Location.String())
		doc.Array("rows")
		if !o.summary {
			encoder = func(int) snapshot.DiffEncoder { return &diffLines{} }
			write = func(p []byte) error {
				return eachLine(p, func(line []byte) error { return doc.Element(json.RawMessage(line)) })
			}
		}
	case o.summary:
	case o.jsonl:
		encoder = func(int) snapshot.DiffEncoder { return &diffLines{} }
	default:
		encoder = func(int) snapshot.DiffEncoder { return &diffText{g: g} }
	}
	report, err := snapshot.Diff(ctx, a, b, opts, encoder, write)
	progress.Stop()
	if err != nil {
		return err
	}
	switch {
	case doc != nil:
		doc.Array("files")
		doc.Array("states")
		for _, st := range report.States {
			doc.Element(st)
		}
		doc.Array("notes")
		for _, n := range report.Notes {
			doc.Element(n)
		}
		doc.Member("same", report.Same())
		doc.Member("incomplete", report.Incomplete)
		if err := doc.Close(); err != nil {
			return err
		}
	case !o.jsonl:
		if err := g.printDiff(out, report); err != nil {
			return err
		}
	}
	if err := probs.end(0, nil); err != nil {
		return err
	}
	for _, name := range o.states {
		if !slices.ContainsFunc(report.States, func(st *snapshot.StateDiff) bool { return st.Name == name }) {
			return usage("no state %q in %s and %s: stateutil states lists them", name, a.Name, b.Name)
		}
	}
	if !report.Same() {
		return &exit.Silent{Code: exit.Differs}
	}
	return nil
}

// diffScan selects by the names of both snapshots: an operator need not be in both.
func (g *global) diffScan(ctx context.Context, a, b *snapshot.Snapshot, f *scanFlags) (*snapshot.ScanOptions, error) {
	x, errA := g.scanOptions(ctx, a, f, nil)
	y, errB := g.scanOptions(ctx, b, f, nil)
	switch {
	case errA != nil && errB != nil:
		return nil, errA
	case errA != nil:
		return y, nil
	case errB != nil || x.Operator == nil:
		return x, nil
	}
	inOld := x.Operator
	x.Operator = func(op *snapshot.StateOperator) bool { return inOld(op) || y.Operator(op) }
	return x, nil
}

func (g *global) printDiff(w io.Writer, r *snapshot.DiffReport) error {
	table := terminal.NewTable(w, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "KIND", Cut: terminal.End, Min: 5},
		terminal.Column{Title: "OLD", Right: true},
		terminal.Column{Title: "NEW", Right: true},
		terminal.Column{Title: "ADDED", Right: true},
		terminal.Column{Title: "REMOVED", Right: true},
		terminal.Column{Title: "CHANGED", Right: true},
		terminal.Column{Title: "NOTE", Cut: terminal.End, Min: 12})
	count := func(n int64, style terminal.Style) terminal.Cell {
		if n == 0 {
			return terminal.Cell{Text: "-"}
		}
		return terminal.Cell{Text: g.count(n), Style: style}
	}
	for _, st := range r.States {
		note := ""
		if st.OnlyIn != "" {
			note = "only in the " + st.OnlyIn
		}
		for _, n := range st.Notes {
			if note != "" {
				note += "; "
			}
			note += n
		}
		row := terminal.C(operatorOf(st.UID, st.OpName, st.Operator), st.Name, string(st.Kind), g.count(st.Old), g.count(st.New))
		row = append(row, count(st.Added, terminal.Good), count(st.Removed, terminal.Bad), count(st.Changed, terminal.Warn), terminal.Cell{Text: note})
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		if err := g.printf(w, "%s\n", terminal.Clean(n)); err != nil {
			return err
		}
	}
	if r.Same() {
		return g.printf(w, "nothing differs\n")
	}
	return nil
}

// diffText writes a line for people.
type diffText struct {
	g *global
	b []byte
}

func (e *diffText) Append(dst []byte, r *snapshot.DiffRow) ([]byte, error) {
	row, sign, style := r.New, "+", terminal.Good
	switch r.Change {
	case snapshot.Removed:
		row, sign, style = r.Old, "-", terminal.Bad
	case snapshot.Changed:
		sign, style = "~", terminal.Warn
	}
	st := row.State
	b := append(e.b[:0], operatorOf(st.Operator.UID, st.Operator.Name, st.Operator.ID)...)
	b = append(b, ' ')
	b = append(b, st.Name...)
	part := func(name string, there bool, add func([]byte) ([]byte, string)) {
		if there {
			b = append(append(append(b, ' '), name...), '=')
			b, _ = add(b)
		}
	}
	part("key", row.Key != nil, row.AppendKeyJSON)
	part("namespace", len(row.Namespace) > 1, row.AppendNamespaceJSON)
	part("map_key", row.UserKey != nil, row.AppendMapKeyJSON)
	switch {
	case st.Kind == snapshot.StateTimer:
		b = strconv.AppendInt(append(b, " timestamp="...), row.Timestamp, 10)
	case r.Change == snapshot.Changed:
		b, _ = r.Old.AppendValueJSON(append(b, ": "...))
		b, _ = r.New.AppendValueJSON(append(b, " -> "...))
		lo, hi, had := r.Old.TTL()
		lo2, hi2, has := r.New.TTL()
		if had && has && (lo != lo2 || hi != hi2) {
			b = fmt.Appendf(b, " (last access %d -> %d)", hi, hi2)
		}
	default:
		b, _ = row.AppendValueJSON(append(b, ": "...))
	}
	e.b = b
	dst = append(dst, e.g.screen.Paint(style, sign)...)
	dst = append(append(dst, ' '), terminal.Clean(string(b))...)
	return append(dst, '\n'), nil
}

// diffLines writes a JSON line.
type diffLines struct{ row []byte }

func (e *diffLines) Append(dst []byte, r *snapshot.DiffRow) ([]byte, error) {
	row := r.New
	if row == nil {
		row = r.Old
	}
	dst = append(dst, `{"change":"`...)
	dst = append(append(dst, r.Change...), '"')
	if r.Change == snapshot.Changed {
		dst, _ = r.Old.AppendValueJSON(append(dst, `,"before":`...))
		if lo, hi, ok := r.Old.TTL(); ok {
			dst = fmt.Appendf(dst, `,"before_ttl_timestamp_min":%d,"before_ttl_timestamp_max":%d`, lo, hi)
		}
	}
	e.row, _ = row.AppendJSON(e.row[:0])
	dst = append(append(dst, ','), e.row[1:]...)
	return append(dst, '\n'), nil
}

func eachLine(p []byte, f func([]byte) error) error {
	for len(p) > 0 {
		n := 0
		for n < len(p) && p[n] != '\n' {
			n++
		}
		if err := f(p[:n]); err != nil {
			return err
		}
		p = p[min(n+1, len(p)):]
	}
	return nil
}

func (g *global) diffFiles(a, b *snapshot.Snapshot) error {
	var doc *terminal.Document
	var table *terminal.Table
	if g.json {
		doc = terminal.NewDocument(g.env.Out, schemaDiff)
		doc.Member("old", a.Location.String())
		doc.Member("new", b.Location.String())
		doc.Array("rows")
		doc.Array("files")
	} else {
		table = terminal.NewTable(g.env.Out, g.screen,
			terminal.Column{Title: "CHANGE"},
			terminal.Column{Title: "CLASS"},
			terminal.Column{Title: "SIZE", Right: true},
			terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
			terminal.Column{Title: "SUBTASK", Right: true},
			terminal.Column{Title: "LOCAL NAME", Dull: "-"},
			terminal.Column{Title: "FILE", Cut: terminal.Middle, Min: 16})
	}
	var files, sizes [2]int64
	for f := range snapshot.DiffFiles(a, b) {
		i := 0
		if f.Change == snapshot.Added {
			i = 1
		}
		files[i]++
		sizes[i] += max(f.ReferencedBytes, 0)
		var err error
		if doc != nil {
			err = doc.Element(f)
		} else {
			err = table.Row(terminal.C(string(f.Change), f.Class.String(), g.size(f.ReferencedBytes), f.Operator, strconv.Itoa(int(f.Subtask)), orElse(f.LocalName, "-"), f.URL)...)
		}
		if err != nil {
			return err
		}
	}
	same := files[0]+files[1] == 0
	if doc != nil {
		for _, name := range []string{"states", "notes"} {
			doc.Array(name)
		}
		doc.Member("same", same)
		doc.Member("incomplete", false)
		if err := doc.Close(); err != nil {
			return err
		}
	} else {
		if err := table.Flush(); err != nil {
			return err
		}
		if err := g.printf(g.env.Out, "added: %s, %s; removed: %s, %s\n", terminal.Plural(files[1], "file", "files"), g.size(sizes[1]),
			terminal.Plural(files[0], "file", "files"), g.size(sizes[0])); err != nil {
			return err
		}
	}
	if !same {
		return &exit.Silent{Code: exit.Differs}
	}
	return nil
}
