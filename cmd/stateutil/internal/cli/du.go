package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// duOutput is the JSON document of du.
type duOutput struct {
	Schema string `json:"schema"`
	// Objects are there with --list.
	Objects []snapshot.UsageObject `json:"objects,omitempty"`
	*snapshot.Usage
}

type duOptions struct {
	list  []string
	grace time.Duration
}

func newDu(g *global) *cobra.Command {
	o := &duOptions{}
	cmd := &cobra.Command{
		Use:     "du [URL]",
		GroupID: groupLook,
		Short:   "Say what below a URL is referenced, shared, or referenced by nothing",
		Long: `List everything below a root once, read every snapshot in it, and say whose the
bytes are: referenced by snapshots or by nothing, used by one snapshot alone or
shared between several. Each physical file counts once, however many handles or
snapshots use it; LOGICAL is what the handles add up to.

Unreferenced does not mean unneeded: a checkpoint that is being written is not
complete yet, and snapshots elsewhere may use files here. Files younger than
--grace are counted apart. When a snapshot could not be read, the answer is not
conclusive: what it may use is called unknown, and the exit code is 1.`,
		Example: `  stateutil du s3://bucket/checkpoints
  stateutil du --list unreferenced /data/flink/checkpoints
  stateutil du --json hdfs://nn/flink/checkpoints`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.du(cmd.Context(), url, o)
		},
	}
	verdicts := []string{"referenced", "metadata", "unreferenced", "incomplete", "unknown", "all"}
	cmd.Flags().StringSliceVar(&o.list, "list", nil, "print every object with this `VERDICT`: "+strings.Join(verdicts, ", "))
	must(cmd.RegisterFlagCompletionFunc("list", cobra.FixedCompletions(verdicts, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().DurationVar(&o.grace, "grace", 24*time.Hour, "count unreferenced files younger than this `TIME` as recent")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, v := range o.list {
			if !slices.Contains(verdicts, v) {
				return usage("--list is %q: one of %s", v, strings.Join(verdicts, ", "))
			}
		}
		if o.grace <= 0 {
			return usage("--grace is %s: more than 0", o.grace)
		}
		return nil
	}
	return cmd
}

func (g *global) du(ctx context.Context, url string, o *duOptions) error {
	loc, err := g.location(url)
	if err != nil {
		return err
	}
	opts, err := g.options()
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	out := g.output(progress)
	uo := &snapshot.UsageOptions{Options: opts, Grace: o.grace, Now: g.env.Now(), Progress: watch(progress)}

	var doc *terminal.Document
	if g.json {
		doc = terminal.NewDocument(out, schemaDu)
	}
	finish := func() error { return nil }
	if len(o.list) > 0 {
		wanted := func(v snapshot.Verdict) bool {
			return slices.Contains(o.list, string(v)) || slices.Contains(o.list, "all")
		}
		if doc != nil {
			doc.Array("objects")
			uo.Each = func(u snapshot.UsageObject) error {
				if !wanted(u.Verdict) {
					return nil
				}
				return doc.Element(u)
			}
		} else {
			table := terminal.NewTable(out, g.screen,
				terminal.Column{Title: "VERDICT"},
				terminal.Column{Title: "BYTES", Right: true},
				terminal.Column{Title: "AGE", Right: true},
				terminal.Column{Title: "SNAPSHOTS", Right: true},
				terminal.Column{Title: "NAME", Cut: terminal.Middle, Min: 24})
			uo.Each = func(u snapshot.UsageObject) error {
				if !wanted(u.Verdict) {
					return nil
				}
				verdict := string(u.Verdict)
				if u.Recent {
					verdict += ", recent"
				}
				return table.Row(terminal.C(verdict, g.size(u.Bytes), terminal.Age(g.env.Now(), u.ModTime), strconv.Itoa(u.Snapshots), u.Name)...)
			}
			finish = func() error {
				if err := table.Flush(); err != nil {
					return err
				}
				return g.printf(out, "\n")
			}
		}
	}
	u, err := snapshot.DiskUsage(ctx, g.stores(), loc, uo)
	progress.Stop()
	if err != nil {
		return err
	}
	if doc != nil {
		doc.Members(u)
		if err := doc.Close(); err != nil {
			return err
		}
	} else {
		if err := finish(); err != nil {
			return err
		}
		if err := g.printUsage(u); err != nil {
			return err
		}
	}
	for _, w := range u.Warnings {
		g.note("warning: %s", w)
	}
	if !u.Conclusive {
		return errors.New("not conclusive: " + inconclusive(u))
	}
	return nil
}

func inconclusive(u *snapshot.Usage) string {
	var unread []string
	for _, s := range u.Snapshots {
		if s.Error != "" {
			unread = append(unread, s.Name)
		}
	}
	if len(unread) == 0 {
		return "not everything below " + u.Root + " could be listed"
	}
	return fmt.Sprintf("%s could not be read: %s", terminal.Plural(int64(len(unread)), "snapshot", "snapshots"), terminal.Joined(unread, 3))
}

func (g *global) printUsage(u *snapshot.Usage) error {
	w := g.env.Out
	if err := g.printf(w, "below %s:\n", terminal.Clean(u.Root)); err != nil {
		return err
	}
	table := terminal.NewTable(w, g.screen,
		terminal.Column{Title: "WHAT", Cut: terminal.End, Min: 16},
		terminal.Column{Title: "OBJECTS", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "SHARE", Right: true})
	line := func(name string, c snapshot.Count, style terminal.Style, always bool) error {
		if c.Objects == 0 && !always {
			return nil
		}
		share := "-"
		if u.Total.Bytes > 0 {
			share = fmt.Sprintf("%.1f %%", 100*float64(c.Bytes)/float64(u.Total.Bytes))
		}
		row := terminal.C(name, g.count(c.Objects), g.size(c.Bytes), share)
		row[0].Style = style
		return table.Row(row...)
	}
	unreferenced := terminal.Plain
	if u.Unreferenced.Objects > 0 {
		unreferenced = terminal.Warn
	}
	for _, err := range []error{
		line("metadata", u.Metadata, terminal.Plain, true),
		line("referenced by snapshots", u.Referenced, terminal.Plain, true),
		line("unreferenced", u.Unreferenced, unreferenced, true),
		line("  of it recent", u.UnreferencedRecent, terminal.Plain, false),
		line("in incomplete snapshots", u.Incomplete, terminal.Plain, false),
		line("left by unfinished writers", u.Temporary, terminal.Plain, false),
		line("unknown", u.Unknown, terminal.Warn, false),
		line("all", u.Total, terminal.Bold, true),
		table.Flush(),
	} {
		if err != nil {
			return err
		}
	}
	var facts []string
	facts = append(facts, g.size(u.LogicalBytes)+" by handles")
	if u.DeadSegmentBytes > 0 {
		facts = append(facts, g.size(u.DeadSegmentBytes)+" of merged files used by no segment")
	}
	if u.Outside.Objects > 0 {
		facts = append(facts, fmt.Sprintf("%s outside (%s)", terminal.Plural(u.Outside.Objects, "object", "objects"), g.size(u.Outside.Bytes)))
	}
	if u.Missing > 0 {
		facts = append(facts, g.screen.Paint(terminal.Bad, terminal.Plural(u.Missing, "referenced object is", "referenced objects are")+" missing"))
	}
	if err := g.printf(w, "%s\n", strings.Join(facts, "; ")); err != nil {
		return err
	}

	per := g.section(w,
		terminal.Column{Title: "JOB", Cut: terminal.Middle, Min: 7},
		terminal.Column{Title: "SNAPSHOT", Cut: terminal.Middle, Min: 12},
		terminal.Column{Title: "LOGICAL", Right: true},
		terminal.Column{Title: "PHYSICAL", Right: true},
		terminal.Column{Title: "FILES", Right: true},
		terminal.Column{Title: "IT ALONE", Right: true},
		terminal.Column{Title: "SHARED", Right: true},
		terminal.Column{Title: "OUTSIDE", Right: true, Dull: g.size(0)},
		terminal.Column{Title: "NOTE", Cut: terminal.End, Min: 12})
	for i := range u.Snapshots {
		s := &u.Snapshots[i]
		note := terminal.Cell{Style: terminal.Bad}
		switch {
		case s.Error != "":
			note.Text = g.redact(strings.TrimPrefix(s.Error, s.URL+": "))
		case s.Missing > 0:
			note.Text = terminal.Plural(s.Missing, "file", "files") + " missing"
		}
		if s.Refused > 0 && s.Error == "" {
			note.Text = strings.TrimPrefix(note.Text+", ", ", ") + g.count(s.Refused) + " not followed"
		}
		row := terminal.C(orElse(s.Job, "-"), s.Name)
		if s.Error != "" {
			row = append(row, terminal.C("-", "-", "-", "-", "-", "-")...)
		} else {
			row = append(row, terminal.C(g.size(s.LogicalBytes), g.size(s.Physical.Bytes), g.count(s.Physical.Objects), g.size(s.Unique.Bytes), g.size(s.Shared.Bytes), g.size(s.Outside.Bytes))...)
		}
		if err := per.Row(append(row, note)...); err != nil {
			return err
		}
	}
	if err := per.end(); err != nil {
		return err
	}

	const most = 10
	sharing := g.section(w,
		terminal.Column{Title: "SHARED BETWEEN", Cut: terminal.End, Min: 24},
		terminal.Column{Title: "FILES", Right: true},
		terminal.Column{Title: "BYTES", Right: true})
	for i, s := range u.Sharings {
		if i == most {
			break
		}
		names := make([]string, len(s.Snapshots))
		for i, at := range s.Snapshots {
			names[i] = u.Snapshots[at].Name
		}
		if err := sharing.Row(terminal.C(terminal.Joined(names, 6), g.count(s.Objects), g.size(s.Bytes))...); err != nil {
			return err
		}
	}
	if err := sharing.end(); err != nil {
		return err
	}
	if n := len(u.Sharings) - most; n > 0 {
		return g.printf(w, "and %s: --json has all\n", terminal.Plural(int64(n), "smaller group", "smaller groups"))
	}
	return nil
}
