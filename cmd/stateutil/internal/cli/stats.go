package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// statsOutput is the JSON document of stats.
type statsOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// At is the time for which expired values are counted.
	At time.Time `json:"at"`
	*snapshot.Stats
}

type statsOptions struct {
	scanFlags
	by  string
	top int
	ttl []string
	at  string
}

func newStats(g *global) *cobra.Command {
	o := &statsOptions{}
	cmd := &cobra.Command{
		Use:     "stats [URL]",
		GroupID: groupRead,
		Short:   "Count rows and bytes: sizes, skew, largest keys, expired values, serializers",
		Long: `Read all state and count, for each state: rows, keys and bytes; the sizes of rows
(smallest, mean, median, 99th percentile, largest); how unevenly the bytes lie over
key groups; the largest keys. --by shows the same by operator, subtask or key group.

For states with TTL the oldest and newest time of last access are shown. A snapshot
does not say how long values live: with --ttl what is past it at the time --at is
counted as expired.

At the end stand the states with Kryo- and Java-serialized parts: their bytes do not
survive every upgrade of Flink or of the classes. --json has the inventory of all
serializers. A value that cannot be decoded counts with its bytes all the same; the
exit code is 4 if something could not be read.`,
		Example: `  stateutil stats s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil stats --by subtask --state orders /savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  stateutil stats --ttl 7d --ttl sessions=30m --at 2026-11-29T12:00:00Z chk-42`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.stats(cmd.Context(), url, o)
		},
	}
	o.add(cmd.Flags())
	o.complete(cmd)
	cmd.Flags().StringVar(&o.by, "by", "state", "count by `WHAT`: state, operator, subtask or key-group")
	cmd.Flags().IntVar(&o.top, "top", 3, "show the `N` largest keys of each state; 0 shows none")
	cmd.Flags().StringArrayVar(&o.ttl, "ttl", nil, "how long values live: `TIME` for all states with TTL or STATE=TIME, such as 7d or 90m, as often as needed")
	cmd.Flags().StringVar(&o.at, "at", "", "count what is expired at `TIME`: RFC 3339 or epoch milliseconds (default now)")
	must(cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"state", "operator", "subtask", "key-group"}, cobra.ShellCompDirectiveNoFileComp)))
	for _, flag := range []string{"top", "ttl", "at"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return cmd
}

func (g *global) stats(ctx context.Context, url string, o *statsOptions) error {
	switch o.by {
	case "state", "operator", "subtask", "key-group":
	default:
		return usage("--by is %q: state, operator, subtask or key-group", o.by)
	}
	if o.top < 0 {
		return usage("--top is %d: 0 or more", o.top)
	}
	so := &snapshot.StatsOptions{Top: o.top, Now: g.env.Now()}
	if o.top == 0 {
		so.Top = -1
	}
	var err error
	if o.at != "" {
		if so.Now, err = parseTime(o.at); err != nil {
			return usage("--at: %w", err)
		}
	}
	ttl, err := parseTTL(o.ttl)
	if err != nil {
		return err
	}
	if len(o.ttl) > 0 {
		so.TTL = ttl.of
	}
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	if err := ttl.check(ctx, s); err != nil {
		return err
	}
	probs := &problems{g: g}
	if so.Scan, err = g.scanOptions(ctx, s, &o.scanFlags, probs); err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	so.Progress = watchRows(progress)
	stats, err := snapshot.CollectStats(ctx, s, so)
	progress.Stop()
	if err != nil {
		return err
	}
	if g.json {
		err = g.statsJSON(s.Location.String(), so.Now, stats)
	} else {
		err = g.printStats(stats, o)
	}
	if err != nil {
		return err
	}
	if stats.Undecoded > 0 {
		g.note("%s cannot be decoded in part", terminal.Plural(stats.Undecoded, "row", "rows"))
	}
	return probs.end(0, nil)
}

func (g *global) statsJSON(url string, at time.Time, stats *snapshot.Stats) error {
	doc := terminal.NewDocument(g.env.Out, schemaStats)
	doc.Member("snapshot", url)
	doc.Member("at", at.UTC())
	doc.Member("rows", stats.Rows)
	doc.Member("bytes", stats.Bytes)
	doc.Member("undecodedRows", stats.Undecoded)
	doc.Array("operators")
	for i := range stats.Operators {
		doc.Element(&stats.Operators[i])
	}
	doc.Array("states")
	for _, st := range stats.States {
		doc.Element(st)
	}
	doc.Array("serializers")
	for i := range stats.Inventory {
		doc.Element(&stats.Inventory[i])
	}
	doc.Member("incomplete", stats.Incomplete)
	return doc.Close()
}

// parseTime reads a point in time.
func parseTime(text string) (time.Time, error) {
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.UnixMilli(ms).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("%q is neither a time such as 2026-11-29T12:00:00Z nor epoch milliseconds", text)
	}
	return t, nil
}

// parseDuration is time.ParseDuration with days, which come first.
func parseDuration(text string) (time.Duration, error) {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, err
	}
	d := time.Duration(0)
	if rest != "" || !ok {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, err
		}
	}
	if d += time.Duration(n) * 24 * time.Hour; d <= 0 {
		return 0, fmt.Errorf("not more than 0")
	}
	return d, nil
}

func (g *global) printStats(stats *snapshot.Stats, o *statsOptions) error {
	if len(stats.States) == 0 {
		return g.printf(g.env.Out, "no state\n")
	}
	switch o.by {
	case "operator":
		return g.statsByOperator(stats)
	case "subtask":
		return g.statsByPart(stats, "SUBTASK", func(st *snapshot.StateStat) *snapshot.Spread { return st.Subtasks })
	case "key-group":
		return g.statsByPart(stats, "KEY GROUP", func(st *snapshot.StateStat) *snapshot.Spread { return st.KeyGroups })
	}
	for _, print := range []func(*snapshot.Stats) error{g.statsByState, g.statsTTL, g.statsLargest, g.statsRisks} {
		if err := print(stats); err != nil {
			return err
		}
	}
	return nil
}

func (g *global) statsByState(stats *snapshot.Stats) error {
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "KIND", Cut: terminal.End, Min: 5},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "MIN", Right: true},
		terminal.Column{Title: "MEAN", Right: true},
		terminal.Column{Title: "P50", Right: true},
		terminal.Column{Title: "P99", Right: true},
		terminal.Column{Title: "MAX", Right: true},
		terminal.Column{Title: "SKEW", Right: true, Dull: "-"})
	for _, st := range stats.States {
		row := terminal.C(operatorOf(st.UID, st.OpName, st.Operator), st.Name, string(st.Kind), g.count(st.Rows), g.size(st.Bytes))
		if st.Rows == 0 {
			row = append(row, terminal.C("-", "-", "-", "-", "-", "-")...)
		} else {
			mean := strconv.FormatFloat(st.Mean, 'f', 1, 64)
			row = append(row, terminal.C(g.count(st.Min), mean, g.count(st.P50), g.count(st.P99), g.count(st.Max))...)
			row = append(row, skewCell(st.KeyGroups))
		}
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return g.printf(g.env.Out, "%s, %s; sizes of rows in bytes, skew of key groups\n", terminal.Plural(stats.Rows, "row", "rows"), g.size(stats.Bytes))
}

func operatorOf(uid, name, id string) string { return orElse(uid, orElse(name, orElse(id, "master"))) }

// skewCell says how many times the median the largest part has, of those that hold any.
func skewCell(s *snapshot.Spread) terminal.Cell {
	if s == nil || s.Skew == 0 {
		return terminal.Cell{Text: "-"}
	}
	c := terminal.Cell{Text: strconv.FormatFloat(s.Skew, 'f', 1, 64) + "x"}
	if s.Skew >= 3 {
		c.Style = terminal.Warn
	}
	return c
}

func (g *global) statsTTL(stats *snapshot.Stats) error {
	table := g.section(g.env.Out,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE WITH TTL", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "OLDEST ACCESS"},
		terminal.Column{Title: "NEWEST ACCESS"},
		terminal.Column{Title: "EXPIRED", Right: true, Dull: "-"},
		terminal.Column{Title: "SHARE", Right: true, Dull: "-"})
	for _, st := range stats.States {
		t := st.TTL
		if t == nil {
			continue
		}
		row := terminal.C(operatorOf(st.UID, st.OpName, st.Operator), st.Name, g.count(t.Rows), millis(t.Oldest), millis(t.Newest), "-", "-")
		if t.Known {
			row[5].Text = g.count(t.Expired)
			row[6].Text = fmt.Sprintf("%.1f %%", 100*float64(t.Expired)/float64(t.Rows))
		}
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	return table.end()
}

func millis(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05") }

func (g *global) statsLargest(stats *snapshot.Stats) error {
	table := g.section(g.env.Out,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "LARGEST KEY", Cut: terminal.End, Min: 11},
		terminal.Column{Title: "NAMESPACE", Cut: terminal.End, Min: 9, Dull: "-"},
		terminal.Column{Title: "KEY GROUP", Right: true},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "BYTES", Right: true})
	for _, st := range stats.States {
		for _, k := range st.Largest {
			if err := table.Row(terminal.C(operatorOf(st.UID, st.OpName, st.Operator), st.Name, k.Key, orElse(k.Namespace, "-"),
				strconv.Itoa(int(k.KeyGroup)), g.count(k.Rows), g.size(k.Bytes))...); err != nil {
				return err
			}
		}
	}
	return table.end()
}

func (g *global) statsRisks(stats *snapshot.Stats) error {
	table := g.section(g.env.Out,
		terminal.Column{Title: "RISK AT UPGRADE"},
		terminal.Column{Title: "TYPE", Cut: terminal.Middle, Min: 10},
		terminal.Column{Title: "STATES", Cut: terminal.End, Min: 12})
	for _, s := range stats.Inventory {
		if s.Risk == "" {
			continue
		}
		row := terminal.C(s.Risk, orElse(s.Type, s.Class), terminal.Joined(s.States, 5))
		row[0].Style = terminal.Warn
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	return table.end()
}

func (g *global) statsByOperator(stats *snapshot.Stats) error {
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATES", Right: true},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "KEY GROUPS", Right: true, Dull: "-"},
		terminal.Column{Title: "SKEW", Right: true, Dull: "-"},
		terminal.Column{Title: "SUBTASKS", Right: true, Dull: "-"},
		terminal.Column{Title: "SKEW", Right: true, Dull: "-"})
	for i := range stats.Operators {
		op := &stats.Operators[i]
		row := terminal.C(operatorOf(op.UID, op.OpName, op.Operator), g.count(int64(op.States)), g.count(op.Rows), g.size(op.Bytes))
		for _, s := range []*snapshot.Spread{op.KeyGroups, op.Subtasks} {
			used := "-"
			if s != nil {
				used = fmt.Sprintf("%d of %d", s.Count-s.Empty, s.Count)
			}
			row = append(row, terminal.Cell{Text: used}, skewCell(s))
		}
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	return table.Flush()
}

// statsByPart lists each subtask or key group of each state that has rows.
func (g *global) statsByPart(stats *snapshot.Stats, title string, of func(*snapshot.StateStat) *snapshot.Spread) error {
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: title, Right: true},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "SHARE", Right: true})
	for _, st := range stats.States {
		s := of(st)
		if s == nil {
			continue
		}
		for i, p := range s.Each {
			if p.Rows == 0 {
				continue
			}
			share := "-"
			if st.Bytes > 0 {
				share = fmt.Sprintf("%.1f %%", 100*float64(p.Bytes)/float64(st.Bytes))
			}
			if err := table.Row(terminal.C(operatorOf(st.UID, st.OpName, st.Operator), st.Name, strconv.Itoa(i), g.count(p.Rows), g.size(p.Bytes), share)...); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}
