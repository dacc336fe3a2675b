package cli

import (
	"bufio"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// filesOutput is the JSON document of files.
type filesOutput struct {
	Schema   string          `json:"schema"`
	Snapshot string          `json:"snapshot"` // URL of the metadata object
	Files    []snapshot.File `json:"files"`
	Total    filesTotal      `json:"total"`
}

// filesTotal sums up the files that were printed.
type filesTotal struct {
	Files           int64 `json:"files"`
	Bytes           int64 `json:"bytes"`           // sizes that are known
	ReferencedBytes int64 `json:"referencedBytes"` // less than bytes with merged files
	References      int64 `json:"references"`
	Refused         int64 `json:"refused"`
}

type filesOptions struct {
	classes  []string
	operator string
	urls     bool
}

func newFiles(g *global) *cobra.Command {
	o := &filesOptions{}
	cmd := &cobra.Command{
		Use:     "files [URL]",
		GroupID: groupLook,
		Short:   "List the files that one snapshot references, each once",
		Long: `List every physical file that a checkpoint or savepoint references, each once, in
the order of their addresses, from the metadata alone. CLASS says whose a file is:

  exclusive  in the snapshot's own folder
  shared     in a job's shared folder, may be used by other checkpoints
  taskowned  in a job's taskowned folder
  changelog  in a folder of the changelog
  savepoint  in the folder of another snapshot
  outside    anywhere else

A file that the rules for untrusted metadata forbid to follow is listed last,
with the reason in place of its address.`,
		Example: `  stateutil files s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil files --class shared --urls /data/checkpoints/7f3c…a1/chk-8841
  stateutil files --operator orders --uid orders /data/checkpoints/7f3c…a1/chk-8841`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.files(cmd.Context(), url, o)
		},
	}
	classes := []string{"exclusive", "shared", "taskowned", "changelog", "savepoint", "outside"}
	cmd.Flags().StringSliceVar(&o.classes, "class", nil, "only files of this `CLASS`, as often as needed")
	must(cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(classes, cobra.ShellCompDirectiveNoFileComp)))
	cmd.Flags().StringVar(&o.operator, "operator", "", "only files first referenced by the operator with this `ID`, name or uid")
	must(cmd.RegisterFlagCompletionFunc("operator", cobra.NoFileCompletions))
	cmd.Flags().BoolVar(&o.urls, "urls", false, "print addresses only, one a line")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		for _, c := range o.classes {
			if !slices.Contains(classes, c) {
				return usage("--class is %q: one of %s", c, strings.Join(classes, ", "))
			}
		}
		return nil
	}
	return cmd
}

func (g *global) files(ctx context.Context, url string, o *filesOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	names, err := g.operatorNames(s)
	if err != nil {
		return err
	}
	operator := ""
	if o.operator != "" {
		if operator = names.find(o.operator); operator == "" {
			return usage("no operator %q in %s: inspect lists them, --uid names one by its uid", o.operator, s.Name)
		}
	}
	var total filesTotal
	each := func(yield func(*snapshot.File) error) error {
		for f := range snapshot.Files(s) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if len(o.classes) > 0 && !slices.Contains(o.classes, f.Class.String()) || operator != "" && f.Operator != operator {
				continue
			}
			total.Files++
			total.References += int64(f.References)
			total.ReferencedBytes += max(f.ReferencedBytes, 0)
			total.Bytes += max(f.Bytes, 0)
			if f.Refused != "" {
				total.Refused++
			}
			if err := yield(&f); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case g.json:
		doc := terminal.NewDocument(g.env.Out, schemaFiles)
		doc.Member("snapshot", s.Location.String())
		doc.Array("files")
		if err := each(func(f *snapshot.File) error { return doc.Element(f) }); err != nil {
			return err
		}
		doc.Member("total", total)
		return doc.Close()
	case o.urls:
		w := bufio.NewWriter(g.env.Out)
		if err := each(func(f *snapshot.File) error {
			if f.Refused != "" {
				return nil
			}
			w.WriteString(f.URL)
			return w.WriteByte('\n')
		}); err != nil {
			return err
		}
		return w.Flush()
	}
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "CLASS"},
		terminal.Column{Title: "SIZE", Right: true},
		terminal.Column{Title: "REFS", Right: true},
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "SUBTASK", Right: true},
		terminal.Column{Title: "STATE", Cut: terminal.End, Min: 12},
		terminal.Column{Title: "LOCAL NAME", Cut: terminal.Middle, Min: 10},
		terminal.Column{Title: "FILE", Cut: terminal.Middle, Min: 24})
	if err := each(func(f *snapshot.File) error {
		address := terminal.Cell{Text: f.URL}
		if f.Refused != "" {
			address = terminal.Cell{Text: strings.TrimSpace("not followed: " + g.redact(f.Refused) + ": " + f.URL), Style: terminal.Bad}
		}
		subtask := "-"
		if f.Subtask >= 0 {
			subtask = strconv.Itoa(int(f.Subtask))
		}
		size := g.size(f.Bytes)
		if f.ReferencedBytes != f.Bytes && f.Segments > 0 {
			size = g.size(f.ReferencedBytes) + "/" + size
		}
		row := terminal.C(f.Class.String(), size, g.count(int64(f.References)), names.of(f.Operator), subtask, stateWords(f.Role, f.Part), orElse(f.LocalName, "-"))
		return table.Row(append(row, address)...)
	}); err != nil {
		return err
	}
	if total.Files == 0 {
		if len(o.classes) > 0 || operator != "" {
			return g.printf(g.env.Out, "no such files\n")
		}
		return g.printf(g.env.Out, "no files: what state there is lies in the metadata itself\n")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	line := terminal.Plural(total.Files, "file", "files") + ", " + g.size(total.Bytes)
	if total.ReferencedBytes != total.Bytes {
		line += ", " + g.size(total.ReferencedBytes) + " of them referenced"
	}
	if total.Refused > 0 {
		line += ", " + g.screen.Paint(terminal.Bad, g.count(total.Refused)+" not followed")
	}
	return g.printf(g.env.Out, "%s\n", line)
}

// stateWords says what a file holds.
func stateWords(role snapshot.Role, part snapshot.Part) string {
	words := map[snapshot.Role]string{
		snapshot.RoleCoordinator: "coordinator", snapshot.RoleManagedOperator: "operator", snapshot.RoleRawOperator: "raw operator",
		snapshot.RoleManagedKeyed: "keyed", snapshot.RoleRawKeyed: "raw keyed",
		snapshot.RoleInputChannel: "input channel", snapshot.RoleOutputChannel: "output channel",
	}[role]
	if part != snapshot.PartData {
		words += " " + part.String()
	}
	return words
}
