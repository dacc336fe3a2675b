package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// latestOutput is the JSON document of latest.
type latestOutput struct {
	Schema string `json:"schema"`
	*snapshot.LatestResult
}

type latestOptions struct {
	why     bool
	noCheck bool
}

func newLatest(g *global) *cobra.Command {
	o := &latestOptions{}
	cmd := &cobra.Command{
		Use:     "latest [URL]",
		GroupID: groupCheck,
		Short:   "Print the newest usable snapshot below a URL",
		Long: `Print the folder of the newest checkpoint or savepoint, at or below the URL, that
a job can be restored from: its metadata parses and every file it references is
there with the right size. The line can be given to Flink as it is.

Newest is by the time at which the metadata file was written, then by checkpoint
ID. A newer one that is not usable is passed over and never in silence: a note on
standard error counts them, and --why prints each with its reason.

If snapshots are there but none is usable the exit code is 3, if there is none at
all it is 10.`,
		Example: `  stateutil latest s3://bucket/checkpoints/7f3c…a1
  stateutil latest --why --flink-conf /opt/flink/conf
  flink run -s "$(stateutil latest s3://bucket/checkpoints/7f3c…a1)" job.jar`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.latest(cmd.Context(), url, o)
		},
	}
	cmd.Flags().BoolVar(&o.why, "why", false, "say of each newer snapshot why it was passed over")
	cmd.Flags().BoolVar(&o.noCheck, "no-check", false, "do not look whether the referenced files are there")
	return cmd
}

func (g *global) latest(ctx context.Context, url string, o *latestOptions) error {
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
	res, err := snapshot.Latest(ctx, g.stores(), loc, &snapshot.ListOptions{
		Options: opts, NoCheck: o.noCheck, Snapshots: snapshotsAtOnce(loc),
		Find: &snapshot.FindOptions{Progress: watch(progress)},
	})
	progress.Stop()
	none := errors.Is(err, snapshot.ErrNoneUsable)
	if err != nil && (!none || res == nil) {
		return err
	}
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaLatest)
		doc.Members(res)
		if cerr := doc.Close(); cerr != nil {
			return cerr
		}
		return exit.With(exit.Damage, err)
	}
	if o.why {
		table := terminal.NewTable(g.env.Out, g.screen,
			terminal.Column{Title: "JOB", Cut: terminal.Middle, Min: 7},
			terminal.Column{Title: "SNAPSHOT", Cut: terminal.Middle, Min: 12},
			terminal.Column{Title: "AGE", Right: true},
			terminal.Column{Title: "USABLE", Cut: terminal.End, Min: 24})
		for _, c := range res.Candidates {
			usable := terminal.Cell{Text: "yes: taken", Style: terminal.Good}
			if !c.Usable {
				usable = terminal.Cell{Text: "no: " + g.redact(c.Reason), Style: terminal.Bad}
			}
			if err := table.Row(append(terminal.C(orElse(c.Job, "-"), c.Name, terminal.Age(g.env.Now(), c.Time)), usable)...); err != nil {
				return err
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if none {
		return exit.With(exit.Damage, err)
	}
	if passed := len(res.Candidates) - 1; passed > 0 && !o.why {
		verb := " was"
		if passed > 1 {
			verb = " were"
		}
		g.note("%s%s passed over: --why says why", terminal.Plural(int64(passed), "newer snapshot", "newer snapshots"), verb)
	}
	if res.Snapshot != nil {
		g.relocated(res.Snapshot.Name, res.Snapshot.Relocation)
	}
	return g.printf(g.env.Out, "%s\n", terminal.Clean(res.Dir))
}
