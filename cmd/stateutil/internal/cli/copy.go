package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// copyOutput is the JSON document of copy.
type copyOutput struct {
	Schema string `json:"schema"`
	*snapshot.CopyPlan
	// Applied: the copy was made and verified by this run or one before.
	Applied bool `json:"applied"`
	// Damage is what verification found in the copy, each finding as a line.
	Damage []string `json:"damage,omitempty"`
}

type copyOptions struct {
	apply     bool
	parallel  int
	checksums bool
}

func newCopy(g *global) *cobra.Command {
	o := &copyOptions{}
	cmd := &cobra.Command{
		Use:     "copy FROM TO",
		GroupID: groupMake,
		Short:   "Copy a snapshot, with every file it needs, to any store",
		Long: `Copy a checkpoint or savepoint of any kind to another folder, of the same store or
any other. TO becomes the copy's folder: it gets _metadata and each file that the
snapshot references, once, wherever it lay, and needs nothing else. Paths in it are
relative where Flink can do with such. Files that later checkpoints would go on to
use (of incremental and changelog checkpoints) and segments of merged files have
absolute ones, of the copy.

Without --apply the plan is printed and nothing is written. With it files are copied,
then _metadata is written, then the copy is verified. Until then there is no snapshot
at TO, and a run that was interrupted is completed by the same command. A snapshot
that is there already is never overwritten, and a folder with anything else in it, or
inside of a snapshot's, is refused.`,
		Example: `  stateutil copy s3://bucket/checkpoints/7f3c…a1/chk-8841 /backup/orders
  stateutil copy --apply /savepoints/savepoint-5f6b2a-02c1f9a4bb1d gs://other/savepoints/orders`,
		Args:              exactly(2, "URLs, FROM and TO"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			if o.parallel < 1 {
				return usage("--parallel is %d: at least 1", o.parallel)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, a []string) error { return g.copy(cmd.Context(), a[0], a[1], o) },
	}
	cmd.Flags().BoolVar(&o.apply, "apply", false, "copy, where otherwise the plan is printed")
	cmd.Flags().BoolVar(&o.checksums, "checksums", false, "write a checksum of every file beside _metadata, for verify; it reads the copy once more")
	cmd.Flags().IntVar(&o.parallel, "parallel", 4, "copy `N` files at a time")
	must(cmd.RegisterFlagCompletionFunc("parallel", cobra.NoFileCompletions))
	return cmd
}

func (g *global) copy(ctx context.Context, from, to string, o *copyOptions) error {
	loc, err := g.location(to)
	if err != nil {
		return err
	}
	s, err := g.open(ctx, from)
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	opts := &snapshot.CopyOptions{Parallelism: o.parallel, Checksums: o.checksums}
	if progress != nil {
		opts.Progress = func(c snapshot.CopyProgress) {
			progress.Update(func() string {
				return fmt.Sprintf("%d of %d files, %s of %s", c.Files, c.OfFiles, terminal.Bytes(c.Bytes), terminal.Bytes(c.OfBytes))
			})
		}
	}
	plan, err := snapshot.PlanCopy(ctx, s, loc, opts)
	if err != nil {
		return err
	}
	out := copyOutput{CopyPlan: plan}
	before := plan.Done
	if o.apply {
		v, err := plan.Apply(ctx)
		if err != nil {
			return err
		}
		for _, f := range v.Findings {
			if f.Severity == snapshot.Damage {
				out.Damage = append(out.Damage, g.redact(f.Detail)+" ["+f.Code+"]")
			}
		}
		out.Applied = true
	}
	progress.Stop()
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaCopy)
		doc.Members(plan)
		doc.Member("applied", out.Applied)
		if len(out.Damage) > 0 {
			doc.Member("damage", out.Damage)
		}
		err = doc.Close()
	} else {
		err = g.printCopy(&out, before)
	}
	if err == nil && len(out.Damage) > 0 {
		return &exit.Silent{Code: exit.Damage}
	}
	return err
}

func (g *global) printCopy(out *copyOutput, before bool) error {
	p := out.CopyPlan
	present := 0
	for _, f := range p.Files {
		if f.Present {
			present++
		}
	}
	var b strings.Builder
	files := func(n int, bytes int64) string {
		return terminal.Plural(int64(n), "file", "files") + ", " + g.size(bytes)
	}
	switch {
	case before:
		fmt.Fprintf(&b, "%s: is there already: %s and _metadata\n", terminal.Clean(p.To), files(len(p.Files), p.PresentBytes))
	case out.Applied:
		fmt.Fprintf(&b, "%s: copied: %s and _metadata\n", terminal.Clean(p.To), files(len(p.Files), p.Bytes+p.PresentBytes))
	default:
		fmt.Fprintf(&b, "%s → %s\n", terminal.Clean(p.From), terminal.Clean(p.To))
		fmt.Fprintf(&b, "%s to copy, and _metadata\n", files(len(p.Files)-present, p.Bytes))
		if present > 0 {
			fmt.Fprintf(&b, "%s of an earlier run are there\n", files(present, p.PresentBytes))
		}
		if p.Rewritten > 0 {
			fmt.Fprintf(&b, "%s: the copy cannot be moved by hand\n", terminal.Plural(int64(p.Rewritten), "handle keeps an absolute path", "handles keep absolute paths"))
		}
	}
	for _, d := range out.Damage {
		fmt.Fprintf(&b, "damage: %s\n", terminal.Clean(d))
	}
	if err := g.printf(g.env.Out, "%s", b.String()); err != nil {
		return err
	}
	if !out.Applied && !before {
		g.note("nothing is written without --apply")
	}
	return nil
}
