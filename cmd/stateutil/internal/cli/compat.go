package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// compatOutput is the JSON document of compat.
type compatOutput struct {
	Schema string `json:"schema"`
	// Old is the URL of the metadata, New that of the other or the schema file.
	Old string `json:"old"`
	New string `json:"new"`
	*snapshot.CompatReport
}

type compatOptions struct {
	scanFlags
	write    string
	ttl      bool
	allowNon bool
}

func newCompat(g *global) *cobra.Command {
	o := &compatOptions{}
	cmd := &cobra.Command{
		Use:     "compat OLD [NEW]",
		GroupID: groupCheck,
		Short:   "Say whether a job can be restored from a snapshot: state by state, with the reason",
		Long: `Compare the states that a snapshot holds with those of a new version of the job, and
say for each state whether the new serializers can read it as it is, after a
migration (Flink reads each value with the old and writes it with the new
serializer), or not at all, and why. Operators and states that came or went, a
changed max parallelism and probable changes of a uid are told as well.

NEW is a snapshot that the new version wrote, perhaps an empty one from a test, or a
schema file (.json): made from a snapshot with --write-schema or states --json, or
written by hand with types in words. What snapshots say is compared: what only the
job's classes know, such as a changed hashCode, stays unseen.

The exit code is 0 if everything can be read as it is, 6 if something needs a
migration, 7 if something is incompatible, and 4 if that could not be decided.`,
		Example: `  stateutil compat s3://bucket/savepoints/savepoint-5f6b2a-02c1f9a4bb1d /tmp/new-version/chk-1
  stateutil compat chk-42 --write-schema schema.json
  stateutil compat chk-43 schema.json`,
		Args: func(cmd *cobra.Command, a []string) error {
			if len(a) < 1 || len(a) > 2 {
				return usage("compat takes OLD and NEW, or OLD with --write-schema: see stateutil compat --help")
			}
			return nil
		},
		ValidArgsFunction: g.completeURL,
		RunE:              func(cmd *cobra.Command, a []string) error { return g.compat(cmd.Context(), a, o) },
	}
	cmd.Flags().StringArrayVar(&o.operators, "operator", nil, "only the operator with this `ID`, uid or name, as often as needed")
	cmd.Flags().StringVar(&o.classes, "classes", "", "classes for types in words: `FILE` has a type in words on each line")
	must(cmd.RegisterFlagCompletionFunc("operator", cobra.NoFileCompletions))
	cmd.Flags().StringVar(&o.write, "write-schema", "", "write the snapshot's schema to `FILE`, - for standard output, and compare nothing")
	cmd.Flags().BoolVar(&o.ttl, "ttl-migration", false, "TTL may be switched on or off, as in Flink 2 with RocksDB")
	cmd.Flags().BoolVar(&o.allowNon, "allow-non-restored-state", false, "an operator that is gone is no reason against, as with Flink's option")
	return cmd
}

func (g *global) compat(ctx context.Context, a []string, o *compatOptions) error {
	if (o.write != "") == (len(a) == 2) {
		return usage("compat takes OLD and NEW, or OLD with --write-schema")
	}
	probs := &problems{g: g}
	older, url, err := g.schemaOf(ctx, a[0], o, probs)
	if err != nil {
		return err
	}
	if o.write != "" {
		if err := g.writeSchema(older, o.write); err != nil {
			return err
		}
		return probs.end(0, nil)
	}
	newer, newURL, err := g.schemaOf(ctx, a[1], o, probs)
	if err != nil {
		return err
	}
	report := snapshot.CompareSchemas(older, newer, &snapshot.CompatOptions{
		Serializers: serializer.CompatOptions{TTLMigration: o.ttl}, AllowNonRestored: o.allowNon})
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaCompat)
		doc.Member("old", url)
		doc.Member("new", newURL)
		doc.Member("verdict", report.Verdict)
		doc.Array("states")
		for i := range report.States {
			doc.Element(&report.States[i])
		}
		err = doc.Close()
	} else {
		err = g.printCompat(report)
	}
	if err != nil {
		return err
	}
	code := exit.Done
	switch report.Worst() {
	case serializer.AfterMigration:
		code = exit.Migration
	case serializer.Undecided:
		code = exit.Partly
	case serializer.Incompatible:
		code = exit.Incompatible
	}
	if code < exit.Incompatible {
		if err := probs.end(0, nil); err != nil {
			return err
		}
	}
	if code != exit.Done {
		return &exit.Silent{Code: code}
	}
	return nil
}

// schemaOf reads the schema of a snapshot, or a schema file.
func (g *global) schemaOf(ctx context.Context, arg string, o *compatOptions, probs *problems) (*snapshot.Schema, string, error) {
	if strings.HasSuffix(arg, ".json") {
		f, err := os.Open(arg)
		if err == nil {
			defer f.Close()
			var classes serializer.Classes
			if o.classes != "" {
				if classes, _, err = readClasses(o.classes); err != nil {
					return nil, arg, err
				}
			}
			s, err := snapshot.ParseSchema(f, classes)
			if err != nil {
				return nil, arg, exit.With(exit.Usage, fmt.Errorf("%s: %w", arg, err))
			}
			return s, arg, nil
		}
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(arg, "://") {
			return nil, arg, unreadable("schema", err)
		}
	}
	s, err := g.open(ctx, arg)
	if err != nil {
		return nil, arg, err
	}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return nil, arg, err
	}
	schema, err := snapshot.ReadSchema(ctx, s, opts)
	return schema, s.Location.String(), err
}

// writeSchema writes to a file beside it first, so that no half file is left.
func (g *global) writeSchema(s *snapshot.Schema, name string) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // types have angle brackets
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	b := buf.Bytes()
	if name == "-" {
		_, err := g.env.Out.Write(b)
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (g *global) printCompat(r *snapshot.CompatReport) error {
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 8},
		terminal.Column{Title: "KIND", Cut: terminal.End, Min: 5},
		terminal.Column{Title: "VERDICT"},
		terminal.Column{Title: "REASON", Cut: terminal.End, Min: 20})
	styles := map[string]terminal.Style{
		serializer.AsIs.String(): terminal.Good, serializer.AfterMigration.String(): terminal.Warn,
		serializer.Undecided.String(): terminal.Warn, serializer.Incompatible.String(): terminal.Bad,
	}
	for i := range r.States {
		st := &r.States[i]
		reason := st.Reason
		if st.Path != "" {
			reason = st.Path + ": " + reason
		}
		row := terminal.C(operatorOf(st.UID, st.OpName, st.Operator), orElse(st.Name, "-"), orElse(string(st.Kind), "-"))
		row = append(row, terminal.Cell{Text: st.Verdict, Style: styles[st.Verdict]}, terminal.Cell{Text: reason})
		if err := table.Row(row...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return g.printf(g.env.Out, "%s\n", g.screen.Paint(styles[r.Verdict], r.Verdict))
}
