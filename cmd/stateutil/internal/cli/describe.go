package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/snapshot"
)

type describeOptions struct {
	scanFlags
	output string
}

func newDescribe(g *global) *cobra.Command {
	o := &describeOptions{}
	cmd := &cobra.Command{
		Use:     "describe [URL]",
		GroupID: groupRead,
		Short:   "Write a whole snapshot as one readable, diffable text",
		Long: `Write a small snapshot as one JSON text: its operators, the types of their
states, and every entry, sorted, so that two of them can be compared with diff.
docs/format/description.md has the format, which is that of the program in
testdata/flink-verify with a few members more.

Operators are named by uid where it is known (--uid, --uids), else by their ID. The
text is made in memory: it is for snapshots that a person would read.`,
		Example: `  stateutil describe --uid orders /savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  diff <(stateutil describe chk-8840) <(stateutil describe chk-8841)`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.describe(cmd.Context(), url, o)
		},
	}
	o.add(cmd.Flags())
	o.complete(cmd)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "write to `FILE` instead of standard output; it appears when it is whole")
	return cmd
}

func (g *global) describe(ctx context.Context, url string, o *describeOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return err
	}
	out, err := g.rowOutput(o.output)
	if err != nil {
		return err
	}
	defer out.abort()
	if err := snapshot.Describe(ctx, s, opts, io.Writer(out)); err != nil {
		return err
	}
	if err := out.commit(); err != nil {
		return err
	}
	return probs.end(0, nil)
}
