package cli

import (
	"context"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// stateLine is one state in the output of states.
type stateLine struct {
	// OperatorID is the operator's ID in hex.
	OperatorID string `json:"operatorId"`
	// OperatorUID is its uid, if known.
	OperatorUID string `json:"operatorUid,omitempty"`
	// OperatorName is its name, if the snapshot has it.
	OperatorName string `json:"operatorName,omitempty"`
	// State is the name under which it was registered.
	State string `json:"state"`
	// Kind is value, list, map, reducing, aggregating, timer, operator-list, …
	Kind snapshot.StateKind `json:"kind"`
	// Key is the key's type in words.
	Key string `json:"key,omitempty"`
	// Namespace is the namespace's type in words; omitted if there is only one.
	Namespace string `json:"namespace,omitempty"`
	// MapKey is the type of a map state's own key.
	MapKey string `json:"mapKey,omitempty"`
	// Value is the value's type in words.
	Value string `json:"value,omitempty"`
	// TTL says that values carry the time of their last access.
	TTL bool `json:"ttl"`
	// Opaque is the class of a serializer that cannot be read here.
	Opaque string `json:"opaque,omitempty"`
	// Rows is how many entries there are; -1 with --no-rows.
	Rows int64 `json:"rows"`
	// Bytes are those of keys, namespaces and values as serialized; -1 with --no-rows.
	Bytes int64 `json:"bytes"`
	// Undecoded is how many rows have a part that cannot be read.
	Undecoded int64 `json:"undecodedRows"`
}

// statesOutput is the JSON document of states.
type statesOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// States are in the order of operators, keyed states first.
	States []stateLine `json:"states"`
}

type statesOptions struct {
	scanFlags
	noRows bool
}

func newStates(g *global) *cobra.Command {
	o := &statesOptions{}
	cmd := &cobra.Command{
		Use:     "states [URL]",
		GroupID: groupRead,
		Short:   "List the states of a snapshot with their types, rows and bytes",
		Long: `List every state of every operator: what kind of state it is, the types of key,
namespace and value in words, whether values expire, and how many rows and bytes
it has. Counting reads all state; --no-rows reads only the head of each file.

Types come from the snapshot itself. What it does not describe is named by its
class.`,
		Example: `  stateutil states s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil states --no-rows --operator orders /savepoints/savepoint-5f6b2a-02c1f9a4bb1d`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.states(cmd.Context(), url, o)
		},
	}
	o.add(cmd.Flags())
	o.complete(cmd)
	cmd.Flags().BoolVar(&o.noRows, "no-rows", false, "do not count rows and bytes: read only the head of each file")
	return cmd
}

func (g *global) states(ctx context.Context, url string, o *statesOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, probs)
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	var lines []stateLine
	var undecoded int64
	if o.noRows {
		states, err := snapshot.States(ctx, s, opts)
		if err != nil {
			return err
		}
		for _, st := range states {
			if opts.State == nil || opts.State(st) {
				lines = append(lines, lineOf(st, -1, -1, 0))
			}
		}
	} else {
		stats, err := snapshot.CollectStats(ctx, s, &snapshot.StatsOptions{Scan: opts, Top: -1, Progress: watchRows(progress)})
		if err != nil {
			return err
		}
		for _, st := range stats.States {
			lines = append(lines, lineOf(st.State, st.Rows, st.Bytes, st.Undecoded))
			undecoded += st.Undecoded
		}
	}
	progress.Stop()
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaStates)
		doc.Member("snapshot", s.Location.String())
		doc.Array("states")
		for i := range lines {
			if err := doc.Element(lines[i]); err != nil {
				return err
			}
		}
		if err := doc.Close(); err != nil {
			return err
		}
		return probs.end(0, nil)
	}
	if len(lines) == 0 {
		if err := g.printf(g.env.Out, "no state\n"); err != nil {
			return err
		}
		return probs.end(0, nil)
	}
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "STATE", Cut: terminal.Middle, Min: 10},
		terminal.Column{Title: "KIND"},
		terminal.Column{Title: "KEY", Cut: terminal.End, Min: 8},
		terminal.Column{Title: "NAMESPACE", Dull: "-", Cut: terminal.End, Min: 8},
		terminal.Column{Title: "VALUE", Cut: terminal.End, Min: 14},
		terminal.Column{Title: "TTL", Dull: "-"},
		terminal.Column{Title: "ROWS", Right: true},
		terminal.Column{Title: "BYTES", Right: true})
	for i := range lines {
		l := &lines[i]
		rows, size, ttl := "-", "-", "-"
		if l.Rows >= 0 {
			rows, size = g.count(l.Rows), g.size(l.Bytes)
		}
		if l.TTL {
			ttl = "yes"
		}
		value := l.Value
		if l.MapKey != "" {
			value = "map<" + l.MapKey + ", " + l.Value + ">"
		}
		cell := terminal.Cell{Text: orElse(value, "-")}
		if l.Opaque != "" {
			cell.Style = terminal.Bad
		}
		op := orElse(l.OperatorUID, orElse(l.OperatorName, orElse(l.OperatorID, "master")))
		row := append(terminal.C(op, l.State, string(l.Kind), orElse(l.Key, "-"), orElse(l.Namespace, "-")), cell)
		if err := table.Row(append(row, terminal.C(ttl, rows, size)...)...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if undecoded > 0 {
		g.note("%s cannot be decoded in part", terminal.Plural(undecoded, "row", "rows"))
	}
	return probs.end(0, nil)
}

func lineOf(st *snapshot.State, rows, size, undecoded int64) stateLine {
	l := stateLine{OperatorID: st.Operator.ID, OperatorUID: st.Operator.UID, OperatorName: st.Operator.Name, State: st.Name, Kind: st.Kind,
		Key: typeWords(st.Key), MapKey: typeWords(st.UserKey), Value: typeWords(st.Value), TTL: st.TTL, Rows: rows, Bytes: size, Undecoded: undecoded}
	if st.Namespace != nil && st.Namespace.Kind != serializer.KindVoidNamespace {
		l.Namespace = typeWords(st.Namespace)
	}
	for _, t := range []*serializer.Type{st.Key, st.Namespace, st.UserKey, st.Value} {
		if t == nil || l.Opaque != "" {
			continue
		}
		if class, ok := t.IsOpaque(); ok {
			l.Opaque = class
		}
	}
	return l
}

func typeWords(t *serializer.Type) string {
	if t == nil {
		return ""
	}
	return t.String()
}

// watchRows turns counted rows into a progress line.
func watchRows(p *terminal.Progress) func(int64) {
	if p == nil {
		return nil
	}
	var rows atomic.Int64
	return func(n int64) {
		rows.Store(n)
		p.Update(func() string { return terminal.Plural(rows.Load(), "row", "rows") })
	}
}
