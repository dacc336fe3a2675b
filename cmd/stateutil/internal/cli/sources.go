package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// sourcesOutput is the JSON document of sources.
type sourcesOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// Sources are in the order of the metadata.
	Sources []sourceLine `json:"sources"`
}

// sourceLine is one source in the output of sources.
type sourceLine struct {
	// OperatorID is the operator's ID in hex.
	OperatorID string `json:"operatorId"`
	// OperatorUID is its uid, if known.
	OperatorUID string `json:"operatorUid,omitempty"`
	// OperatorName is its name, if the snapshot has it.
	OperatorName string `json:"operatorName,omitempty"`
	// Connector is kafka, file, sequence, hybrid or kafka consumer (the legacy one), by the layout; omitted if none fits.
	Connector string `json:"connector,omitempty"`
	// Enumerator is the checkpoint of the split enumerator, which the source coordinator keeps.
	Enumerator *sourcePart `json:"enumerator,omitempty"`
	// Splits are those of the readers, then those in the enumerator's checkpoint.
	Splits []splitLine `json:"splits"`
}

// sourcePart is what a connector's serializer wrote.
type sourcePart struct {
	// Version is the version of the connector's serializer.
	Version int32 `json:"version"`
	// Value is the payload decoded; omitted if its layout is not known.
	Value json.RawMessage `json:"value,omitempty"`
	// Hex is the payload as bytes, if its layout is not known.
	Hex string `json:"hex,omitempty"`
}

// splitLine is one split in the output of sources.
type splitLine struct {
	sourcePart
	// Reader is the subtask that reads the split; omitted for those of the enumerator.
	Reader *int32 `json:"reader,omitempty"`
	// Status is reading, unassigned, assigned, or known where the enumerator does not say.
	Status string `json:"status"`
	// ID is topic-partition, or the split's own ID.
	ID string `json:"id,omitempty"`
	// Topic is that of a Kafka split.
	Topic string `json:"topic,omitempty"`
	// Partition is that of a Kafka split.
	Partition *int32 `json:"partition,omitempty"`
	// Path is that of a file split.
	Path string `json:"path,omitempty"`
	// Offset is where reading goes on: a Kafka offset, a byte of a file, a number of a sequence.
	Offset *int64 `json:"offset,omitempty"`
	// Start is earliest, latest or committed, where there is no offset yet.
	Start string `json:"start,omitempty"`
	// End is where reading stops; omitted if nowhere. Of Kafka and a file it is the first that is not read, of a sequence the last number.
	End *int64 `json:"end,omitempty"`
}

func newSources(g *global) *cobra.Command {
	o := &scanFlags{}
	cmd := &cobra.Command{
		Use:     "sources [URL]",
		GroupID: groupRead,
		Short:   "List the splits and offsets of the sources",
		Long: `List where each source was: the splits that its readers had, with offsets, and what
the split enumerator had not handed out. Kafka, file and number sequence sources
(also inside a hybrid source) are read, and the offsets of the legacy
FlinkKafkaConsumer. Nothing in a snapshot names a source's connector: it is told by
the layout of its bytes. What fits none is shown in hex, with its version.`,
		Example: `  stateutil sources s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil sources --json --operator orders /savepoints/savepoint-5f6b2a-02c1f9a4bb1d | jq '.sources[].splits[].offset'`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.sources(cmd.Context(), url, o)
		},
	}
	cmd.Flags().StringArrayVar(&o.operators, "operator", nil, "only the operator with this `ID`, uid or name, as often as needed")
	must(cmd.RegisterFlagCompletionFunc("operator", cobra.NoFileCompletions))
	return cmd
}

func (g *global) sources(ctx context.Context, url string, o *scanFlags) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	probs := &problems{g: g}
	opts, err := g.scanOptions(ctx, s, o, probs)
	if err != nil {
		return err
	}
	list, err := snapshot.Sources(ctx, s, opts)
	if err != nil {
		return err
	}
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaSources)
		doc.Member("snapshot", s.Location.String())
		doc.Array("sources")
		for _, src := range list {
			if err := doc.Element(sourceLineOf(src)); err != nil {
				return err
			}
		}
		if err := doc.Close(); err != nil {
			return err
		}
		return probs.end(0, nil)
	}
	if len(list) == 0 {
		if err := g.printf(g.env.Out, "no source keeps splits here\n"); err != nil {
			return err
		}
		return probs.end(0, nil)
	}
	table := terminal.NewTable(g.env.Out, g.screen,
		terminal.Column{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		terminal.Column{Title: "CONNECTOR", Dull: "-"},
		terminal.Column{Title: "READER", Right: true},
		terminal.Column{Title: "SPLIT", Cut: terminal.Middle, Min: 16},
		terminal.Column{Title: "OFFSET", Right: true},
		terminal.Column{Title: "END", Right: true, Dull: "-"},
		terminal.Column{Title: "STATUS"})
	number := func(n *int64, none string) string {
		if n == nil {
			return none
		}
		return strconv.FormatInt(*n, 10)
	}
	for _, src := range list {
		op := orElse(src.Operator.UID, orElse(src.Operator.Name, src.Operator.ID))
		connector := orElse(src.Connector, "-")
		for i := range src.Splits {
			sp := &src.Splits[i]
			reader := "-"
			if sp.Reader >= 0 {
				reader = strconv.Itoa(int(sp.Reader))
			}
			id := orElse(sp.Path, sp.ID)
			if sp.JSON == nil && id == "" {
				id = g.opaquePart(&sp.SourcePart)
			}
			if err := table.Row(terminal.C(op, connector, reader, id, number(sp.Offset, orElse(sp.Start, "-")), number(sp.End, "-"), sp.Status)...); err != nil {
				return err
			}
		}
		if e := src.Enumerator; e != nil {
			what := g.opaquePart(&snapshot.SourcePart{Version: e.Version, Bytes: e.Bytes})
			if e.JSON != nil {
				what = string(e.JSON)
			}
			if err := table.Row(terminal.C(op, connector, "-", what, "-", "-", "enumerator")...); err != nil {
				return err
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return probs.end(0, nil)
}

// opaquePart is a payload of an unknown layout in a table.
func (g *global) opaquePart(p *snapshot.SourcePart) string {
	return "version " + strconv.Itoa(int(p.Version)) + ", " + g.size(int64(len(p.Bytes))) + ": 0x" + hex.EncodeToString(p.Bytes)
}

func sourceLineOf(src *snapshot.Source) sourceLine {
	l := sourceLine{OperatorID: src.Operator.ID, OperatorUID: src.Operator.UID, OperatorName: src.Operator.Name, Connector: src.Connector, Splits: []splitLine{}}
	if src.Enumerator != nil {
		p := sourcePartOf(src.Enumerator)
		l.Enumerator = &p
	}
	for i := range src.Splits {
		sp := &src.Splits[i]
		line := splitLine{sourcePart: sourcePartOf(&sp.SourcePart), Status: sp.Status, ID: sp.ID, Topic: sp.Topic, Partition: sp.Partition, Path: sp.Path, Offset: sp.Offset, Start: sp.Start, End: sp.End}
		if sp.Reader >= 0 {
			line.Reader = &sp.Reader
		}
		l.Splits = append(l.Splits, line)
	}
	return l
}

func sourcePartOf(p *snapshot.SourcePart) sourcePart {
	out := sourcePart{Version: p.Version, Value: p.JSON}
	if p.JSON == nil {
		out.Hex = hex.EncodeToString(p.Bytes)
	}
	return out
}
