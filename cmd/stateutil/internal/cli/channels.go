package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// channelsOutput is the JSON document of channels.
type channelsOutput struct {
	Schema string `json:"schema"`
	// Snapshot is the URL of the metadata.
	Snapshot string `json:"snapshot"`
	// Elements are the records in flight, with --records.
	Elements []elementLine `json:"elements,omitempty"`
	// Channels are the channels that hold data, in the order of the metadata.
	Channels []channelLine `json:"channels"`
	// Totals sum up the channels.
	Totals channelTotals `json:"totals"`
}

// channelTotals sums up channels.
type channelTotals struct {
	// Channels is how many channels hold data.
	Channels int64 `json:"channels"`
	// Buffers is how many network buffers they hold.
	Buffers int64 `json:"buffers"`
	// Bytes is what the handles say, with four bytes of length for each buffer.
	Bytes int64 `json:"bytes"`
	// Records is how many whole records there are; -1 with --no-count.
	Records int64 `json:"records"`
}

type channelPlace struct {
	// OperatorID is the operator's ID in hex.
	OperatorID string `json:"operatorId"`
	// OperatorUID is its uid, if known.
	OperatorUID string `json:"operatorUid,omitempty"`
	// OperatorName is its name, if the snapshot has it.
	OperatorName string `json:"operatorName,omitempty"`
	// Subtask is the subtask whose state it is.
	Subtask int32 `json:"subtask"`
	// Side is input, or output for what a subtask had not yet sent.
	Side string `json:"side"`
	// Gate is the index of the input gate, or of the result partition.
	Gate int32 `json:"gate"`
	// Channel is the index of the input channel, or of the subpartition.
	Channel int32 `json:"channel"`
}

// channelLine is one channel in the output of channels.
type channelLine struct {
	channelPlace
	// WrittenBy is the subtask that wrote it, if that is another one: before rescaling.
	WrittenBy *int32 `json:"writtenBy,omitempty"`
	// Buffers is how many network buffers it holds.
	Buffers int `json:"buffers"`
	// Bytes is what the handle says, with four bytes of length for each buffer.
	Bytes int64 `json:"bytes"`
	// Records is how many whole records there are; -1 with --no-count, or where --limit ended.
	Records int64 `json:"records"`
	// HeadBytes at the start belong to a record that begins in the channel at the other end.
	HeadBytes int64 `json:"headBytes,omitempty"`
	// TailBytes at the end begin a record that goes on at the other end.
	TailBytes int64 `json:"tailBytes,omitempty"`
	// File is where the data lies.
	File string `json:"file"`
	// Error is why it could not be read.
	Error string `json:"error,omitempty"`
}

// elementLine is one stream element in the output of channels --records.
type elementLine struct {
	channelPlace
	// Offset is the element's place among the channel's payload bytes.
	Offset int64 `json:"offset"`
	// Bytes is the element's size, without its length.
	Bytes int `json:"bytes"`
	// Kind is record, watermark, latency-marker, watermark-status, record-attributes or internal-watermark.
	Kind snapshot.ElementKind `json:"kind"`
	// Timestamp is that of a record that has one, or when a latency marker was made, in epoch milliseconds.
	Timestamp *int64 `json:"timestamp,omitempty"`
	// Watermark is in epoch milliseconds.
	Watermark *int64 `json:"watermark,omitempty"`
	// MarkedBy is the ID of the operator that made a latency marker.
	MarkedBy string `json:"markedBy,omitempty"`
	// MarkedBySubtask is its subtask, or the subpartition of an internal watermark.
	MarkedBySubtask *int32 `json:"markedBySubtask,omitempty"`
	// Idle is a watermark status.
	Idle *bool `json:"idle,omitempty"`
	// Backlog is a record attribute.
	Backlog *bool `json:"backlog,omitempty"`
	// Value is a record's value, where its type is known, as docs/format/rows.md has it.
	Value json.RawMessage `json:"value,omitempty"`
	// Hex is a record's value as bytes, where its type is not known.
	Hex string `json:"hex,omitempty"`
}

type channelsOptions struct {
	scanFlags
	records bool
	noCount bool
	typ     string
	limit   int64
}

func newChannels(g *global) *cobra.Command {
	o := &channelsOptions{}
	cmd := &cobra.Command{
		Use:     "channels [URL]",
		GroupID: groupRead,
		Short:   "List the data in flight of an unaligned checkpoint",
		Long: `List the in-flight data that an unaligned checkpoint holds: for each input channel
what had arrived and was not consumed, for each result subpartition what was not
yet sent; its buffers, bytes and whole records. --records prints the records,
watermarks and markers themselves. --no-count reads nothing but the metadata.

A record may begin in the subpartition of one task and end in the input channel of
another; such parts are counted as bytes at the head or tail. A snapshot does not
say what the records of an exchange are. Where a window keeps its elements, those
of its input are known; else --type gives the type, in the words of states, and
without it records are shown in hex.`,
		Example: `  stateutil channels s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil channels --operator orders --records --type 'row<id:long,total:double>' /data/chk-8841`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(*cobra.Command, []string) error {
			if o.noCount && o.records {
				return usage("--records reads the data, --no-count does not: choose one")
			}
			if o.typ != "" && !o.records || o.limit > 0 && !o.records {
				return usage("--type and --limit are for --records")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.channels(cmd.Context(), url, o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.operators, "operator", nil, "only the operator with this `ID`, uid or name, as often as needed")
	f.BoolVar(&o.records, "records", false, "print the records and other elements, not only their number")
	f.StringVar(&o.typ, "type", "", "read records as this `TYPE`, in the words of states: long, row<id:long,…>")
	f.StringVar(&o.classes, "classes", "", "read classes that --type names: `FILE` has a type in words on each line")
	f.Int64Var(&o.limit, "limit", 0, "stop after `N` records; 0 is no limit")
	f.BoolVar(&o.noCount, "no-count", false, "do not read the data: no number of records")
	for _, flag := range []string{"operator", "type", "limit"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return cmd
}

// channelReader reads channels for one run.
type channelReader struct {
	g        *global
	o        *channelsOptions
	types    map[string]*serializer.Type
	decoders map[string]*serializer.Decoder
	options  *serializer.DecodeOptions
	probs    *problems
	progress *terminal.Progress

	lines    []channelLine
	totals   channelTotals
	elements int64
	unknown  int64 // records without a type
	misfit   int64 // records that their type does not fit
}

func (g *global) channels(ctx context.Context, url string, o *channelsOptions) error {
	s, err := g.open(ctx, url)
	if err != nil {
		return err
	}
	r := &channelReader{g: g, o: o, types: map[string]*serializer.Type{}, decoders: map[string]*serializer.Decoder{}, probs: &problems{g: g}}
	opts, err := g.scanOptions(ctx, s, &o.scanFlags, r.probs)
	if err != nil {
		return err
	}
	r.options = &serializer.DecodeOptions{Framed: true, Classes: opts.Classes, Kryo: serializer.KryoOf(s.Checkpoint.Version)}
	var given *serializer.Type
	if o.typ != "" {
		if given, err = serializer.ParseType(o.typ, opts.Classes); err != nil {
			return usage("--type: %w", err)
		}
	}
	r.progress = g.progress()
	defer r.progress.Stop()
	if o.records && given == nil {
		quiet := *opts
		quiet.OnProblem = func(*snapshot.ScanProblem) {} // what cannot be read of the states is not our subject
		states, err := snapshot.States(ctx, s, &quiet)
		if err != nil {
			return err
		}
		r.types = snapshot.InputTypes(states)
	}
	typeOf := func(f *snapshot.InFlight) *serializer.Type {
		switch {
		case given != nil:
			return given
		case f.Output:
			return nil
		}
		return r.types[f.Operator.ID]
	}
	out := g.output(r.progress)
	if g.json {
		err = r.document(ctx, s, out, opts, typeOf)
	} else {
		err = r.tables(ctx, s, out, opts, typeOf)
	}
	r.progress.Stop()
	if err != nil && !errors.Is(err, errLimit) {
		return err
	}
	if r.unknown > 0 {
		g.note("%s shown as bytes: a snapshot does not say what an exchange carries; --type can", terminal.Plural(r.unknown, "record is", "records are"))
	}
	classes := map[string]int64{}
	if r.misfit > 0 {
		g.complain(terminal.Plural(r.misfit, "record is", "records are") + " shown as bytes: the type does not fit")
		return r.probs.endPartly()
	}
	return r.probs.end(0, classes)
}

// endPartly is end where something is shown as bytes that has been told of.
func (p *problems) endPartly() error {
	p.count++
	return p.end(0, nil)
}

// each reads every chosen channel, and gives the elements to element, if not nil.
func (r *channelReader) each(ctx context.Context, s *snapshot.Snapshot, opts *snapshot.ScanOptions, typeOf func(*snapshot.InFlight) *serializer.Type, element func(*elementLine) error) error {
	for f := range snapshot.InFlightChannels(s, opts) {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := channelLine{channelPlace: placeOf(f), Buffers: f.Buffers, Bytes: f.Bytes, Records: -1, File: f.File}
		if f.Subtask != f.Holder {
			l.WrittenBy = &f.Subtask
		}
		r.totals.Channels++
		r.totals.Buffers += int64(f.Buffers)
		r.totals.Bytes += f.Bytes
		if !r.o.noCount {
			if err := r.read(ctx, f, &l, typeOf(f), element); err != nil {
				r.lines = append(r.lines, l)
				return err
			}
		} else {
			r.totals.Records = -1
		}
		r.lines = append(r.lines, l)
		n := r.totals
		r.progress.Update(func() string {
			return terminal.Plural(n.Channels, "channel", "channels") + ", " + terminal.Bytes(n.Bytes)
		})
	}
	return nil
}

func placeOf(f *snapshot.InFlight) channelPlace {
	p := channelPlace{OperatorID: f.Operator.ID, OperatorUID: f.Operator.UID, OperatorName: f.Operator.Name, Subtask: f.Holder, Side: "input", Gate: f.Gate, Channel: f.Channel}
	if f.Output {
		p.Side = "output"
	}
	return p
}

// read counts the records of a channel. What cannot be read is a problem, not an
// error.
func (r *channelReader) read(ctx context.Context, f *snapshot.InFlight, l *channelLine, t *serializer.Type, element func(*elementLine) error) error {
	var failed error
	var n snapshot.InFlightRecords
	var err error
	if element == nil {
		n, err = f.CountRecords(ctx, nil)
	} else {
		n, err = f.Elements(ctx, func(offset int64, size int, e snapshot.InFlightElement) error {
			if r.o.limit > 0 && r.elements == r.o.limit {
				failed = errLimit
				return failed
			}
			r.elements++
			failed = element(r.line(l.channelPlace, offset, size, e, t))
			return failed
		})
	}
	if failed != nil {
		return failed // in the middle: how many there are is not known
	}
	l.Records, l.HeadBytes, l.TailBytes = n.Whole, n.Head, n.Tail
	r.totals.Records += n.Whole
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		l.Error = err.Error()
		r.probs.add(&snapshot.ScanProblem{Operator: f.Operator, Subtask: f.Holder, KeyGroup: -1, Err: err})
	}
	return nil
}

// line is an element for people and programs.
func (r *channelReader) line(at channelPlace, offset int64, size int, e snapshot.InFlightElement, t *serializer.Type) *elementLine {
	l := &elementLine{channelPlace: at, Offset: offset, Bytes: size, Kind: e.Kind}
	switch e.Kind {
	case snapshot.ElementRecord:
		if e.HasTimestamp {
			l.Timestamp = &e.Timestamp
		}
		if t != nil {
			d := r.decoders[at.OperatorID]
			if d == nil || d.Type() != t {
				d = serializer.NewDecoder(t, r.options)
				r.decoders[at.OperatorID] = d
			}
			if b, n, err := d.AppendJSON(nil, e.Value); err == nil && n == len(e.Value) {
				if _, opaque := d.Undecoded(); !opaque {
					l.Value = b
					return l
				}
			}
			r.misfit++
		} else {
			r.unknown++
		}
		l.Hex = hex.EncodeToString(e.Value)
	case snapshot.ElementWatermark:
		l.Watermark = &e.Watermark
	case snapshot.ElementLatencyMarker:
		l.Timestamp, l.MarkedBy, l.MarkedBySubtask = &e.Timestamp, e.Operator, &e.Subtask
	case snapshot.ElementWatermarkStatus:
		l.Idle = &e.Idle
	case snapshot.ElementRecordAttributes:
		l.Backlog = &e.Backlog
	case snapshot.ElementInternalWatermark:
		l.Watermark, l.MarkedBySubtask = &e.Watermark, &e.Subtask
	}
	return l
}

// text is what an element says beside its timestamp.
func (l *elementLine) text() string {
	switch l.Kind {
	case snapshot.ElementRecord:
		if l.Value != nil {
			return string(l.Value)
		}
		return "0x" + l.Hex
	case snapshot.ElementWatermark:
		return strconv.FormatInt(*l.Watermark, 10)
	case snapshot.ElementLatencyMarker:
		return "of " + l.MarkedBy + " subtask " + strconv.Itoa(int(*l.MarkedBySubtask))
	case snapshot.ElementWatermarkStatus:
		if *l.Idle {
			return "idle"
		}
		return "active"
	case snapshot.ElementRecordAttributes:
		if *l.Backlog {
			return "backlog"
		}
		return "no backlog"
	}
	return strconv.FormatInt(*l.Watermark, 10) + " of subpartition " + strconv.Itoa(int(*l.MarkedBySubtask))
}

func (r *channelReader) document(ctx context.Context, s *snapshot.Snapshot, w io.Writer, opts *snapshot.ScanOptions, typeOf func(*snapshot.InFlight) *serializer.Type) error {
	doc := terminal.NewDocument(w, schemaChannels)
	doc.Member("snapshot", s.Location.String())
	var element func(*elementLine) error
	if r.o.records {
		doc.Array("elements")
		element = func(l *elementLine) error { return doc.Element(l) }
	}
	err := r.each(ctx, s, opts, typeOf, element)
	if err != nil && !errors.Is(err, errLimit) {
		return err
	}
	doc.Array("channels")
	for i := range r.lines {
		if err := doc.Element(&r.lines[i]); err != nil {
			return err
		}
	}
	doc.Member("totals", r.totals)
	if cerr := doc.Close(); cerr != nil {
		return cerr
	}
	return err
}

func (r *channelReader) tables(ctx context.Context, s *snapshot.Snapshot, w io.Writer, opts *snapshot.ScanOptions, typeOf func(*snapshot.InFlight) *serializer.Type) error {
	place := []terminal.Column{
		{Title: "OPERATOR", Cut: terminal.Middle, Min: 9},
		{Title: "SUBTASK", Right: true},
		{Title: "SIDE"},
		{Title: "GATE", Right: true},
		{Title: "CHANNEL", Right: true},
	}
	cells := func(p *channelPlace, more ...string) []terminal.Cell {
		return terminal.C(append([]string{orElse(p.OperatorUID, orElse(p.OperatorName, p.OperatorID)), strconv.Itoa(int(p.Subtask)), p.Side,
			strconv.Itoa(int(p.Gate)), strconv.Itoa(int(p.Channel))}, more...)...)
	}
	if r.o.records {
		table := terminal.NewTable(w, r.g.screen, append(place,
			terminal.Column{Title: "OFFSET", Right: true},
			terminal.Column{Title: "ELEMENT"},
			terminal.Column{Title: "TIMESTAMP", Right: true, Dull: "-"},
			terminal.Column{Title: "BYTES", Right: true},
			terminal.Column{Title: "VALUE", Cut: terminal.End, Min: 16})...)
		err := r.each(ctx, s, opts, typeOf, func(l *elementLine) error {
			stamp := "-"
			if l.Timestamp != nil {
				stamp = strconv.FormatInt(*l.Timestamp, 10)
			}
			return table.Row(cells(&l.channelPlace, strconv.FormatInt(l.Offset, 10), string(l.Kind), stamp, strconv.Itoa(l.Bytes), l.text())...)
		})
		if err != nil && !errors.Is(err, errLimit) {
			return err
		}
		if ferr := table.Flush(); ferr != nil {
			return ferr
		}
		return err
	}
	if err := r.each(ctx, s, opts, typeOf, nil); err != nil {
		return err
	}
	if len(r.lines) == 0 {
		return r.g.printf(w, "no data in flight\n")
	}
	table := terminal.NewTable(w, r.g.screen, append(place,
		terminal.Column{Title: "BUFFERS", Right: true},
		terminal.Column{Title: "BYTES", Right: true},
		terminal.Column{Title: "RECORDS", Right: true},
		terminal.Column{Title: "HEAD", Right: true, Dull: "-"},
		terminal.Column{Title: "TAIL", Right: true, Dull: "-"})...)
	part := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return r.g.size(n)
	}
	for i := range r.lines {
		l := &r.lines[i]
		records := "-"
		if l.Records >= 0 {
			records = r.g.count(l.Records)
		}
		if err := table.Row(cells(&l.channelPlace, r.g.count(int64(l.Buffers)), r.g.size(l.Bytes), records, part(l.HeadBytes), part(l.TailBytes))...); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	t := r.totals
	records := ""
	if t.Records >= 0 {
		records = ", " + r.g.count(t.Records) + " whole records"
	}
	return r.g.printf(w, "\n%s, %s, %s%s\n", terminal.Plural(t.Channels, "channel", "channels"), terminal.Plural(t.Buffers, "buffer", "buffers"), r.g.size(t.Bytes), records)
}
