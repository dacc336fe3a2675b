package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// inspectOutput is the JSON document of inspect.
type inspectOutput struct {
	Schema string `json:"schema"`
	*snapshot.Inspection
}

type inspectOptions struct {
	subtasks bool
	channels bool
}

func newInspect(g *global) *cobra.Command {
	o := &inspectOptions{}
	cmd := &cobra.Command{
		Use:     "inspect [URL]",
		GroupID: groupLook,
		Short:   "Explain one snapshot: operators, state, files, whether it can be moved",
		Long: `Explain one checkpoint or savepoint from its metadata alone; no state file is
read. URL is its folder or its metadata file.

It says what kind of snapshot it is, whether its folder can be moved or which
handles stop that, at which parallelism a job may be started from it, and for
every operator the state by kind, how uneven the subtasks are, and the in-flight
data. Operators without a stored name are known by their ID only: --uid and
--uids name them.`,
		Example: `  stateutil inspect s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil inspect --uid orders --uid payments --subtasks /savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  stateutil inspect --json /savepoints/savepoint-5f6b2a-02c1f9a4bb1d/_metadata`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.inspect(cmd.Context(), url, o)
		},
	}
	cmd.Flags().BoolVar(&o.subtasks, "subtasks", false, "also print every subtask")
	cmd.Flags().BoolVar(&o.channels, "channels", false, "print in-flight data of every channel, not only the largest")
	return cmd
}

// open opens the one snapshot that a URL names.
func (g *global) open(ctx context.Context, url string) (*snapshot.Snapshot, error) {
	loc, err := g.location(url)
	if err != nil {
		return nil, err
	}
	opts, err := g.options()
	if err != nil {
		return nil, err
	}
	s, err := snapshot.Open(ctx, g.stores(), loc, opts)
	if err != nil {
		return nil, lookFurther(err)
	}
	g.relocated(s.Name, s.Relocation)
	return s, nil
}

// lookFurther adds to "a folder without _metadata" the command that looks below it.
func lookFurther(err error) error {
	if errors.Is(err, snapshot.ErrNoSnapshot) && strings.HasSuffix(err.Error(), "a folder without "+snapshot.MetadataName) {
		return fmt.Errorf("%w: stateutil ls looks below it", err)
	}
	return err
}

func (g *global) inspect(ctx context.Context, url string, o *inspectOptions) error {
	uids, err := g.uidNames()
	if err != nil {
		return err
	}
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	in := snapshot.Inspect(s, &snapshot.InspectOptions{UIDs: uids, Subtasks: o.subtasks})
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaInspect)
		doc.Members(in)
		return doc.Close()
	}
	return g.printInspection(g.env.Out, in, o)
}

func (g *global) printInspection(w io.Writer, in *snapshot.Inspection, o *inspectOptions) error {
	t := &in.Totals
	kind, what := kindOf(in.Kind, in.Unaligned, in.Changelog), "checkpoint"
	if rest, ok := strings.CutPrefix(kind, "savepoint"); ok { // "canonical savepoint 7"
		kind, what = "", strings.TrimSpace(rest+" savepoint")
	}
	head := []string{fmt.Sprintf("%s %d", what, in.CheckpointID), fmt.Sprintf("format v%d", in.FormatVersion)}
	if kind != "" {
		head = append(head, kind)
	}
	if in.FileMerging {
		head = append(head, "merged files")
	}
	if in.Entropy {
		head = append(head, "entropy prefixes")
	}
	head = append(head, movable(&in.Movable))
	var lines []string
	lines = append(lines, strings.Join(head, ", "))

	if in.MaxParallelism > 0 {
		lines = append(lines, fmt.Sprintf("max parallelism %d; can run at 1..%d", in.MaxParallelism, in.MaxParallelism))
	}
	size := fmt.Sprintf("%s in %s", g.size(t.PhysicalBytes), terminal.Plural(t.Files, "file", "files"))
	if t.InlinedBytes > 0 {
		size += ", " + g.size(t.InlinedBytes) + " inlined"
	}
	if byHandles := g.size(t.LogicalBytes); byHandles != g.size(t.PhysicalBytes+t.InlinedBytes) {
		size += ", " + byHandles + " by handles"
	}
	if t.NewBytes >= 0 {
		size += ", " + g.size(t.NewBytes) + " newly written"
	}
	if t.UnknownSizes > 0 {
		size += ", " + terminal.Plural(t.UnknownSizes, "size", "sizes") + " unknown"
	}
	lines = append(lines, size+"; metadata "+g.size(in.MetadataBytes))

	var by []string
	if in.WrittenBy != "" {
		by = append(by, "written by Flink "+in.WrittenBy)
	}
	if len(in.Backends) > 0 {
		by = append(by, "keyed state of "+strings.Join(in.Backends, ", "))
	}
	if !in.Time.IsZero() {
		by = append(by, fmt.Sprintf("%s (%s ago)", in.Time.UTC().Format("2006-01-02 15:04:05 UTC"), terminal.Age(g.env.Now(), in.Time)))
	}
	if in.Job != "" {
		by = append(by, "job "+in.Job)
	}
	if len(by) > 0 {
		lines = append(lines, strings.Join(by, "; "))
	}
	if p := propertiesLine(&in.Properties); p != "" {
		lines = append(lines, p)
	}
	if t.Refused > 0 {
		lines = append(lines, g.screen.Paint(terminal.Bad, terminal.Plural(t.Refused, "handle is", "handles are")+" not followed: stateutil verify says which and why"))
	}
	for _, l := range lines {
		if err := g.printf(w, "%s\n", l); err != nil {
			return err
		}
	}
	for _, section := range []func(io.Writer, *snapshot.Inspection, *inspectOptions) error{
		g.printOperators, g.printOperatorStates, g.printSubtasks, g.printChannels, g.printMasterStates, g.printBlockers, g.printPlaces, g.printFileSizes,
	} {
		if err := section(w, in, o); err != nil {
			return err
		}
	}
	return nil
}

func movable(m *snapshot.Movable) string {
	if m.Movable {
		return "movable"
	}
	n, reasons := int64(0), []string{}
	byReason := map[string]int64{}
	for _, b := range m.Blockers {
		n += b.Handles
		if _, ok := byReason[b.Reason]; !ok {
			reasons = append(reasons, b.Reason)
		}
		byReason[b.Reason] += b.Handles
	}
	if n == 0 {
		return "not movable"
	}
	for i, r := range reasons {
		reasons[i] = terminal.Plural(byReason[r], r, plural(r))
	}
	return "not movable (" + strings.Join(reasons, ", ") + ")"
}

// plural is the English plural of a reason: "absolute path", "segment of a merged file".
func plural(s string) string {
	head, tail, ok := strings.Cut(s, " of ")
	if ok {
		return head + "s of " + tail
	}
	return s + "s"
}

func propertiesLine(p *snapshot.Properties) string {
	if p.Error != "" {
		return "properties cannot be shown: " + terminal.OneLine(p.Error)
	}
	if !p.Present {
		return ""
	}
	parts := []string{}
	if p.Type != "" {
		parts = append(parts, strings.ToLower(p.Type))
	}
	if p.Format != "" {
		parts = append(parts, p.Format)
	}
	if p.Action != "" {
		parts = append(parts, "then "+p.Action)
	}
	if p.Forced {
		parts = append(parts, "forced")
	}
	if p.Retention != "" {
		parts = append(parts, p.Retention)
	}
	if p.Sharing != "" {
		parts = append(parts, "sharing "+p.Sharing)
	}
	if p.Unclaimed {
		parts = append(parts, "unclaimed")
	}
	return "properties: " + strings.Join(parts, ", ")
}

// operatorName is what people know an operator by.
func operatorName(op *snapshot.Operator) string {
	switch {
	case op.Name != "" && op.UID != "":
		return op.Name + " (uid " + op.UID + ")"
	case op.Name != "":
		return op.Name
	case op.UID != "":
		return "uid " + op.UID
	}
	return "-"
}

// shortName is operatorName in one word, the ID if there is none.
func shortName(op *snapshot.Operator) string {
	return orElse(op.UID, orElse(op.Name, op.ID))
}

func roleBytes(roles map[string]snapshot.Amount, names ...snapshot.Role) int64 {
	var n int64
	for _, r := range names {
		n += roles[r.String()].Bytes
	}
	return n
}

func (g *global) printOperators(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	if len(in.Operators) == 0 {
		return g.printf(w, "no operator has state\n")
	}
	if err := g.printf(w, "\n"); err != nil {
		return err
	}
	table := terminal.NewTable(w, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.End, Min: 16},
		terminal.Column{Title: "ID", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "PARALLELISM", Right: true},
		terminal.Column{Title: "KEYED", Right: true},
		terminal.Column{Title: "OPERATOR", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "CHANNEL", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "COORD", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "FILES", Right: true},
		terminal.Column{Title: "HOTTEST SUBTASK", Cut: terminal.End, Min: 15})
	for i := range in.Operators {
		op := &in.Operators[i]
		last := terminal.Cell{Text: "-"}
		switch {
		case op.FullyFinished:
			last = terminal.Cell{Text: "finished", Style: terminal.Faint}
		case op.Skew != nil && op.Skew.Ratio > 0 && op.Skew.Ratio < 1.1:
			last.Text = "even"
		case op.Skew != nil && op.Skew.Ratio > 0:
			last.Text = fmt.Sprintf("#%d: %.1fx median", op.Skew.HottestSubtask, op.Skew.Ratio)
			if op.Skew.Ratio >= 3 {
				last.Style = terminal.Warn
			}
		case op.Skew != nil && op.Skew.MaxBytes > 0:
			last.Text = fmt.Sprintf("#%d: all of it", op.Skew.HottestSubtask)
		}
		if op.FinishedSubtasks > 0 && !op.FullyFinished {
			last.Text = strings.TrimPrefix(last.Text+", ", "-, ") + fmt.Sprintf("%d finished", op.FinishedSubtasks)
		}
		row := terminal.C(operatorName(op), op.ID,
			fmt.Sprintf("%d/%d", op.Parallelism, op.MaxParallelism),
			g.size(roleBytes(op.Roles, snapshot.RoleManagedKeyed, snapshot.RoleRawKeyed)),
			g.size(roleBytes(op.Roles, snapshot.RoleManagedOperator, snapshot.RoleRawOperator)),
			g.size(roleBytes(op.Roles, snapshot.RoleInputChannel, snapshot.RoleOutputChannel)),
			g.size(roleBytes(op.Roles, snapshot.RoleCoordinator)),
			g.count(op.Files), "")
		row[len(row)-1] = last
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	return table.Flush()
}

func (g *global) printOperatorStates(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	table := g.section(w,
		terminal.Column{Title: "OPERATOR STATE", Cut: terminal.Middle, Min: 16},
		terminal.Column{Title: "OF OPERATOR", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "MODE"},
		terminal.Column{Title: "PARTITIONS", Right: true})
	for i := range in.Operators {
		op := &in.Operators[i]
		for _, st := range op.OperatorStates {
			mode := st.Mode
			if st.Raw {
				mode = "raw " + mode
			}
			if err := table.Row(terminal.C(st.Name, shortName(op), mode, g.count(st.Partitions))...); err != nil {
				return err
			}
		}
	}
	return table.end()
}

func (g *global) printSubtasks(w io.Writer, in *snapshot.Inspection, o *inspectOptions) error {
	if !o.subtasks {
		return nil
	}
	table := g.section(w,
		terminal.Column{Title: "SUBTASK", Right: true},
		terminal.Column{Title: "OF OPERATOR", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "KEY GROUPS"},
		terminal.Column{Title: "KEYED", Right: true},
		terminal.Column{Title: "OPERATOR", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "CHANNEL", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "HANDLES", Right: true},
		terminal.Column{Title: "NOTE"})
	for i := range in.Operators {
		op := &in.Operators[i]
		for _, st := range op.Subtasks {
			var handles int64
			for _, a := range st.Roles {
				handles += a.Handles
			}
			note := ""
			if st.Finished {
				note = "finished"
			}
			if err := table.Row(terminal.C(strconv.Itoa(int(st.Index)), shortName(op), orElse(st.KeyGroups, "-"),
				g.size(roleBytes(st.Roles, snapshot.RoleManagedKeyed, snapshot.RoleRawKeyed)),
				g.size(roleBytes(st.Roles, snapshot.RoleManagedOperator, snapshot.RoleRawOperator)),
				g.size(roleBytes(st.Roles, snapshot.RoleInputChannel, snapshot.RoleOutputChannel)),
				g.count(handles), note)...); err != nil {
				return err
			}
		}
	}
	return table.end()
}

// topChannels is how many channels are printed without --channels.
const topChannels = 10

func (g *global) printChannels(w io.Writer, in *snapshot.Inspection, o *inspectOptions) error {
	type channel struct {
		op *snapshot.Operator
		*snapshot.Channel
	}
	var all []channel
	for i := range in.Operators {
		op := &in.Operators[i]
		for j := range op.Channels {
			all = append(all, channel{op, &op.Channels[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b channel) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
	shown := all
	if !o.channels && len(all) > topChannels {
		shown = all[:topChannels]
	}
	table := g.section(w,
		terminal.Column{Title: "IN-FLIGHT DATA", Cut: terminal.Middle, Min: 14},
		terminal.Column{Title: "SUBTASK", Right: true},
		terminal.Column{Title: "GATE", Right: true},
		terminal.Column{Title: "CHANNEL", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "BUFFERS", Right: true},
		terminal.Column{Title: "OF OPERATOR", Cut: terminal.Middle, Min: 12})
	for _, c := range shown {
		if err := table.Row(terminal.C(c.Direction, strconv.Itoa(int(c.Subtask)), strconv.Itoa(int(c.Gate)), strconv.Itoa(int(c.Channel.Channel)),
			g.size(c.Bytes), g.count(c.Buffers), shortName(c.op))...); err != nil {
			return err
		}
	}
	if err := table.end(); err != nil {
		return err
	}
	if n := len(all) - len(shown); n > 0 {
		return g.printf(w, "and %s: --channels prints them\n", terminal.Plural(int64(n), "smaller channel", "smaller channels"))
	}
	return nil
}

func (g *global) printMasterStates(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	table := g.section(w,
		terminal.Column{Title: "MASTER STATE", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "VERSION", Right: true},
		terminal.Column{Title: "BYTES", Right: true})
	for _, m := range in.MasterStates {
		if err := table.Row(terminal.C(m.Name, strconv.Itoa(int(m.Version)), g.size(m.Bytes))...); err != nil {
			return err
		}
	}
	return table.end()
}

func (g *global) printBlockers(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	table := g.section(w,
		terminal.Column{Title: "NOT MOVABLE", Cut: terminal.End, Min: 13},
		terminal.Column{Title: "HANDLES", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "LEAD INTO", Cut: terminal.Middle, Min: 24})
	for _, b := range in.Movable.Blockers {
		into := b.Dir
		if into == "" && len(b.Examples) > 0 {
			into = b.Examples[0]
			if b.Handles > 1 {
				into += " and others"
			}
		}
		if err := table.Row(terminal.C(b.Reason, g.count(b.Handles), g.size(b.Bytes), into)...); err != nil {
			return err
		}
	}
	return table.end()
}

func (g *global) printPlaces(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	table := g.section(w,
		terminal.Column{Title: "FILES ARE"},
		terminal.Column{Title: "FILES", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "OF JOB", Cut: terminal.Middle, Min: 12})
	for _, o := range in.Totals.Owners {
		job := orElse(o.Job, "-")
		if o.Claimed {
			job += " (another job)"
		}
		if err := table.Row(terminal.C(o.Class.String(), g.count(o.Files), g.size(o.Bytes), job)...); err != nil {
			return err
		}
	}
	return table.end()
}

func (g *global) printFileSizes(w io.Writer, in *snapshot.Inspection, _ *inspectOptions) error {
	table := g.section(w,
		terminal.Column{Title: "FILES OF", Right: true},
		terminal.Column{Title: "FILES", Right: true},
		terminal.Column{Title: "BYTES", Right: true})
	var before int64
	for _, b := range in.Totals.FileSizes {
		upTo := "up to " + g.size(b.UpTo)
		if b.UpTo < 0 {
			upTo = "over " + g.size(before)
		}
		before = b.UpTo
		if b.Files == 0 {
			continue
		}
		if err := table.Row(terminal.C(upTo, g.count(b.Files), g.size(b.Bytes))...); err != nil {
			return err
		}
	}
	return table.end()
}

// optional is a table that is printed, with an empty line before it, only if it
// has rows.
type optional struct {
	*terminal.Table
	w    io.Writer
	rows int
}

func (g *global) section(w io.Writer, cols ...terminal.Column) *optional {
	return &optional{Table: terminal.NewTable(w, g.screen, cols...), w: w}
}

func (t *optional) Row(cells ...terminal.Cell) error {
	if t.rows++; t.rows == 1 {
		if _, err := io.WriteString(t.w, "\n"); err != nil {
			return err
		}
	}
	return t.Table.Row(cells...)
}

func (t *optional) end() error {
	if t.rows == 0 {
		return nil
	}
	return t.Flush()
}
