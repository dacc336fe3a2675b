package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// getOutput is the JSON document of get.
type getOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// Key is the key that was asked for.
	Key json.RawMessage `json:"key"`
	// Rows are what the states have for it, in the form of docs/format/rows.md.
	Rows []json.RawMessage `json:"rows"`
}

func newGet(g *global) *cobra.Command {
	o := &scanFlags{}
	cmd := &cobra.Command{
		Use:     "get URL KEY",
		GroupID: groupRead,
		Short:   "Print what all states have for one key",
		Long: `Print the value of one key in every keyed state of every operator, with its map
entries and timers. KEY is JSON in the form in which rows show keys; what is no
JSON is taken as a string, and '"12"' is the string 12. A negative number goes
behind --, which ends the flags.

Only the blocks that may have the key are read: of RocksDB and ForSt tables by
their index, of other state files the key group of the key. Keys whose bytes do
not follow from their JSON (BigInteger, maps, Kryo) take a scan of their operator.`,
		Example: `  stateutil get s3://bucket/checkpoints/7f3c…a1/chk-8841 alice
  stateutil get --operator orders /savepoints/savepoint-5f6b2a-02c1f9a4bb1d 4711
  stateutil get /savepoints/savepoint-5f6b2a-02c1f9a4bb1d -- -4711
  stateutil get --json /savepoints/savepoint-5f6b2a-02c1f9a4bb1d '{"row_kind":"INSERT","fields":{"id":7}}'`,
		Args: func(_ *cobra.Command, a []string) error {
			if len(a) != 2 {
				return usage("get wants two arguments, URL and KEY: %d are given", len(a))
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, a []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(a) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return g.completeURL(cmd, a, word)
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			return g.get(cmd.Context(), a[0], a[1], o)
		},
	}
	f := cmd.Flags()
	o.add(f)
	o.complete(cmd)
	must(f.MarkHidden("key-group"))
	return cmd
}

func (g *global) get(ctx context.Context, url, key string, o *scanFlags) error {
	if key == "" {
		key = `""`
	}
	key = compactJSON(key)
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, o, probs)
	if err != nil {
		return err
	}
	opts.KeyJSON = key
	progress := g.progress()
	defer progress.Stop()
	w := g.output(progress)
	count := &undecodedCount{}
	found := 0
	var doc *terminal.Document
	var table *terminal.Table
	if g.json {
		doc = terminal.NewDocument(w, schemaGet)
		doc.Member("snapshot", s.Location.String())
		doc.Member("key", json.RawMessage(key))
		doc.Array("rows")
	} else {
		table = terminal.NewTable(w, g.screen,
			terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
			terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 10},
			terminal.Column{Title: "KIND"},
			terminal.Column{Title: "KEY GROUP", Right: true},
			terminal.Column{Title: "NAMESPACE", Dull: "-", Cut: terminal.End, Min: 8},
			terminal.Column{Title: "MAP KEY", Dull: "-", Cut: terminal.End, Min: 8},
			terminal.Column{Title: "VALUE", Cut: terminal.End, Min: 16})
	}
	for r, err := range snapshot.Rows(ctx, s, opts) {
		if err != nil {
			return err
		}
		found++
		if doc != nil {
			line, undecoded := r.AppendJSON(nil)
			if undecoded != "" {
				count.add(undecoded)
			}
			if err := doc.Element(json.RawMessage(line)); err != nil {
				return err
			}
			continue
		}
		c := g.cells(r, count)
		if c[5] == "null" {
			c[5] = ""
		}
		for i := range c {
			c[i] = orElse(c[i], "-")
		}
		if err := table.Row(terminal.C(c[0], c[1], c[2], c[4], c[5], c[7], c[8])...); err != nil {
			return err
		}
	}
	progress.Stop()
	if doc != nil {
		err = doc.Close()
	} else if found > 0 {
		err = table.Flush()
	}
	if err != nil {
		return err
	}
	if found == 0 {
		g.note("no state has the key %s; keys are %s", key, g.keyTypes(ctx, s, opts))
	}
	return probs.end(count.rows, count.classes)
}

// keyTypes says what the keys of the selected operators are: a key that was
// written as a number and is a string finds nothing.
func (g *global) keyTypes(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions) string {
	all := *opts
	all.KeyJSON = ""
	all.OnProblem = func(*snapshot.ScanProblem) {}
	states, err := snapshot.States(ctx, s, &all)
	if err != nil {
		return "not known"
	}
	var words []string
	seen := map[string]bool{}
	for _, st := range states {
		if !st.Kind.Keyed() || st.Key == nil {
			continue
		}
		w := st.Key.String() + " in " + orElse(st.Operator.UID, orElse(st.Operator.Name, st.Operator.ID))
		if !seen[w] {
			seen[w] = true
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return "in no state of the selection"
	}
	if len(words) > 5 {
		words = append(words[:5], strconv.Itoa(len(words)-5)+" more")
	}
	return strings.Join(words, ", ")
}
