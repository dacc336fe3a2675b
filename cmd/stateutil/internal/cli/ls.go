package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// lsOutput is the JSON document of ls.
type lsOutput struct {
	Schema    string         `json:"schema"`
	Snapshots []snapshot.Row `json:"snapshots"`
	// Errors are folders that could not be searched.
	Errors []pathError `json:"errors"`
}

// pathError is something that could not be read, in a document that goes on.
type pathError struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

type lsOptions struct {
	noCheck  bool
	maxDepth int
}

func newLs(g *global) *cobra.Command {
	o := &lsOptions{}
	cmd := &cobra.Command{
		Use:     "ls [URL…]",
		Aliases: []string{"list"},
		GroupID: groupLook,
		Short:   "List the snapshots below a URL, over many jobs",
		Long: `List every checkpoint and savepoint at and below a URL: of one job or of many.

USABLE says whether the snapshot could be restored from: its metadata parses and
every file that it references is there with the right size. If not, the reason
stands there; a snapshot that cannot be read is a row like the others and does
not stop the listing.

NEW is what the checkpoint says it has newly written, SINCE PREV the bytes of
files that the checkpoint before it in the same job does not use.

The exit code is 0 whatever USABLE says; it is not 0 if a folder or a metadata
file could not be read because the store failed or denied access.`,
		Example: `  stateutil ls s3://bucket/checkpoints
  stateutil ls --no-check --json /data/flink/checkpoints
  stateutil ls --flink-conf /opt/flink/conf`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			urls, err := g.urls(a)
			if err != nil {
				return err
			}
			return g.ls(cmd.Context(), urls, o)
		},
	}
	cmd.Flags().BoolVar(&o.noCheck, "no-check", false, "do not look whether the referenced files are there")
	cmd.Flags().IntVar(&o.maxDepth, "max-depth", 0, "look at most `N` levels of folders below the URL (default 8)")
	return cmd
}

func (g *global) ls(ctx context.Context, urls []string, o *lsOptions) error {
	opts, err := g.options()
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	out := g.output(progress)
	listOpts := &snapshot.ListOptions{
		Options: opts,
		Find:    &snapshot.FindOptions{MaxDepth: o.maxDepth, Progress: watch(progress)},
		NoCheck: o.noCheck,
	}

	var doc *terminal.Document
	var table *terminal.Table
	if g.json {
		doc = terminal.NewDocument(out, schemaLs)
		doc.Array("snapshots")
	} else {
		table = terminal.NewTable(out, g.screen,
			terminal.Column{Title: "JOB", Cut: terminal.Middle, Min: 7},
			terminal.Column{Title: "SNAPSHOT", Cut: terminal.Middle, Min: 12},
			terminal.Column{Title: "KIND", Cut: terminal.End, Min: 11},
			terminal.Column{Title: "AGE", Right: true},
			terminal.Column{Title: "FLINK"},
			terminal.Column{Title: "FORMAT"},
			terminal.Column{Title: "OPERATORS", Right: true},
			terminal.Column{Title: "SIZE", Right: true},
			terminal.Column{Title: "NEW", Right: true},
			terminal.Column{Title: "SINCE PREV", Right: true},
			terminal.Column{Title: "USABLE", Cut: terminal.End, Min: 24})
	}
	rows, moved := 0, 0
	var folders []pathError
	var worst error
	for _, url := range urls {
		loc, err := g.location(url)
		if err != nil {
			return err
		}
		listOpts.Snapshots = snapshotsAtOnce(loc)
		for row, err := range snapshot.List(ctx, g.stores(), loc, listOpts) {
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if errors.Is(err, snapshot.ErrNoSnapshot) && len(urls) == 1 {
					return err
				}
				worst = worse(worst, err)
				folders = append(folders, pathError{row.Dir.String(), g.redact(err.Error())})
				continue
			}
			if row.Err != nil && !isVerdict(row.Err) {
				worst = worse(worst, row.Err)
			}
			rows++
			if row.Relocation != nil {
				moved++
			}
			if doc != nil {
				err = doc.Element(row)
			} else {
				err = table.Row(g.lsRow(&row, o.noCheck)...)
			}
			if err != nil {
				return err
			}
		}
	}
	progress.Stop()
	if rows == 0 && worst == nil {
		return fmt.Errorf("%s: %w", strings.Join(urls, ", "), snapshot.ErrNoSnapshot)
	}
	if doc != nil {
		doc.Array("errors")
		for _, f := range folders {
			doc.Element(f)
		}
		if err := doc.Close(); err != nil {
			return err
		}
	} else if rows > 0 {
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if moved > 0 {
		g.note("%s read where they lie, not where they were written: verify says where that was; --no-relocate forbids it", terminal.Plural(int64(moved), "snapshot is", "snapshots are"))
	}
	for _, f := range folders[min(1, len(folders)):] {
		g.complain(f.Error)
	}
	if worst != nil && len(folders) == 0 {
		return &exit.Silent{Code: exit.Of(worst)} // its row says it
	}
	return worst
}

// snapshotsAtOnce bounds how many snapshots are held in memory: a disk gains
// nothing from more than two at a time, a store far away does (0 is the library's
// default). With 10 × 2 checkpoints of 45,000 files each, ls peaks at 59 MiB with
// two and at 111 MiB with four.
func snapshotsAtOnce(loc blobstore.Location) int {
	if loc.Scheme == "file" {
		return 2
	}
	return 0
}

// isVerdict tells an answer about the snapshot from a failure to get one.
func isVerdict(err error) bool {
	switch exit.Of(err) {
	case exit.Damage, exit.Unsupported, exit.NoCheckpoint:
		return true
	}
	return errors.Is(err, snapshot.ErrRefused)
}

// worse keeps the first error.
func worse(a, b error) error {
	if a == nil {
		return b
	}
	return a
}

func (g *global) lsRow(r *snapshot.Row, unchecked bool) []terminal.Cell {
	cell := func(s string) terminal.Cell { return terminal.Cell{Text: s} }
	usable := terminal.Cell{Text: "yes", Style: terminal.Good}
	switch {
	case !r.Usable && r.Incomplete:
		usable = terminal.Cell{Text: "no: " + orElse(g.redact(r.Reason), "no _metadata"), Style: terminal.Warn}
	case !r.Usable:
		usable = terminal.Cell{Text: "no: " + g.redact(r.Reason), Style: terminal.Bad}
	case unchecked:
		usable = terminal.Cell{Text: "not checked", Style: terminal.Faint}
	}
	job := orElse(r.Job, "-")
	if r.FormatVersion == 0 { // could not be read
		return []terminal.Cell{cell(job), cell(r.Name), cell("-"), cell(terminal.Age(g.env.Now(), r.ModTime)), cell("-"), cell("-"), cell("-"), cell("-"), cell("-"), cell("-"), usable}
	}
	return []terminal.Cell{
		cell(job), cell(r.Name), cell(kindOf(r.SnapshotKind, r.Unaligned, r.Changelog)),
		cell(terminal.Age(g.env.Now(), r.ModTime)),
		cell(orElse(strings.ReplaceAll(r.WrittenBy, " .. ", "–"), "-")),
		cell(fmt.Sprintf("v%d", r.FormatVersion)),
		cell(g.count(int64(r.Operators))),
		cell(g.size(r.FullBytes)), cell(g.sizeOr(r.NewBytes, "-")), cell(g.sizeOr(r.SincePrev, "-")),
		usable,
	}
}

func kindOf(kind snapshot.Kind, unaligned, changelog bool) string {
	s := string(kind)
	if unaligned {
		s += " unaligned"
	}
	if changelog {
		s += " changelog"
	}
	return s
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
