package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// convertOutput is the JSON document of convert.
type convertOutput struct {
	Schema string `json:"schema"`
	*snapshot.ConvertPlan
	// Applied: the snapshot was made and verified by this run or one before.
	Applied bool `json:"applied"`
	// Made is what this run made; absent without --apply.
	Made *snapshot.Converted `json:"made,omitempty"`
	// Damage is what verification found in the result, each finding as a line.
	Damage []string `json:"damage,omitempty"`
}

type convertOptions struct {
	to           string
	apply        bool
	version      int32
	compression  string
	dropExpired  bool
	ttl          []string
	at           string
	dropInFlight bool
	classes      string
	verifyData   bool
	checksums    bool
}

var (
	convertFormats = []string{stream.CanonicalFormat.String(), stream.HeapFormat.String()}
	compressions   = []string{string(snapshot.CompressionKeep), string(snapshot.CompressionNone), string(snapshot.CompressionSnappy)}
)

func newConvert(g *global) *cobra.Command {
	o := &convertOptions{}
	cmd := &cobra.Command{
		Use:     "convert FROM TO --to FORMAT",
		GroupID: groupMake,
		Short:   "Write a snapshot of any kind as one flat snapshot",
		Long: `Write a checkpoint or savepoint of any kind (heap, RocksDB full or incremental,
changelog, ForSt, our own LSM) as one that needs no other folder and has one flat file of keyed
state for each subtask. --to canonical makes a savepoint that every state backend
restores; --to heap one in the format of the heap backend (Flink's hashmap). Keys
that were deleted and changes that were overtaken are gone.

Operator state, raw state, the state of coordinators and master hooks is carried
over as it is. Data in flight of an unaligned checkpoint is carried over by --to heap;
a canonical savepoint has no place for it, and --drop-in-flight leaves it out: its
records are lost. --drop-expired leaves out values past their time to live, which no
snapshot tells and --ttl does.

Without --apply the plan is printed and nothing is written. With it files are
written, then _metadata, then the result is verified, data included. An interrupted
run is continued by the same command. A snapshot that is there already is never
overwritten, and a folder with anything else in it, or inside of a snapshot's, is
refused.`,
		Example: `  stateutil convert --to canonical /checkpoints/7f3c…a1/chk-8841 /savepoints/orders
  stateutil convert --to heap --apply s3://bucket/checkpoints/7f3c…a1/chk-8841 /tmp/orders-heap
  stateutil convert --to canonical --drop-expired --ttl 7d --ttl sessions=30m --apply chk-42 slim`,
		Args:              exactly(2, "URLs, FROM and TO"),
		ValidArgsFunction: g.completeURL,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.to == "":
				return usage("--to is needed: one of %s", strings.Join(convertFormats, ", "))
			case !slices.Contains(convertFormats, o.to):
				return usage("--to is %q: one of %s", o.to, strings.Join(convertFormats, ", "))
			case !slices.Contains(compressions, o.compression):
				return usage("--compression is %q: one of %s", o.compression, strings.Join(compressions, ", "))
			case cmd.Flags().Changed("format-version") && (o.version < metadata.MinVersion || o.version > metadata.MaxVersion):
				return usage("--format-version is %d: from %d to %d", o.version, metadata.MinVersion, metadata.MaxVersion)
			case o.dropExpired && len(o.ttl) == 0:
				return usage("--drop-expired needs --ttl: a snapshot does not tell how long values live")
			case !o.dropExpired && (len(o.ttl) > 0 || o.at != ""):
				return usage("--ttl and --at are for --drop-expired")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, a []string) error { return g.convert(cmd.Context(), a[0], a[1], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "the `FORMAT` of keyed state: canonical or heap")
	f.BoolVar(&o.apply, "apply", false, "convert, where otherwise the plan is printed")
	f.Int32Var(&o.version, "format-version", 0, "`VERSION` of the metadata format: 3 for Flink 1.11 to 1.15, 4 from 1.16, 5 from 2.0, 6 from 2.1; by default the original's, at least 3")
	f.StringVar(&o.compression, "compression", compressions[0], "key groups as they are (keep), uncompressed (none) or in snappy frames (snappy)")
	f.BoolVar(&o.dropExpired, "drop-expired", false, "leave out values, list elements and map entries past their --ttl")
	f.StringArrayVar(&o.ttl, "ttl", nil, "how long values live: `TIME` for all states with TTL or STATE=TIME, such as 7d or 90m, as often as needed")
	f.StringVar(&o.at, "at", "", "expired at this `TIME` instead of now: 2026-11-29T12:00:00Z or epoch milliseconds; an interrupted run is continued with the same")
	f.BoolVar(&o.dropInFlight, "drop-in-flight", false, "leave out the data in flight of an unaligned checkpoint: its records are lost")
	f.StringVar(&o.classes, "classes", "", "read classes that the snapshot does not describe: `FILE` has a type in words on each line")
	f.BoolVar(&o.verifyData, "verify-data", true, "read the result at the end and check every entry; else only that its files are there")
	f.BoolVar(&o.checksums, "checksums", false, "write a checksum of every file beside _metadata, for verify; it reads the result once more")
	for flag, values := range map[string][]string{"to": convertFormats, "compression": compressions} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	for _, flag := range []string{"format-version", "ttl", "at"} {
		must(cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	return cmd
}

// forSnapshot are the options as the package has them.
func (o *convertOptions) forSnapshot(ctx context.Context, g *global, s *snapshot.Snapshot) (*snapshot.ConvertOptions, error) {
	opts := &snapshot.ConvertOptions{Version: o.version, Compression: snapshot.Compression(o.compression), DropInFlight: o.dropInFlight, NoVerifyData: !o.verifyData, Checksums: o.checksums, Now: g.env.Now()}
	if o.to == stream.HeapFormat.String() {
		opts.Format = stream.HeapFormat
	}
	var err error
	if o.dropExpired {
		ttl, err := parseTTL(o.ttl)
		if err == nil {
			err = ttl.check(ctx, s)
		}
		if err != nil {
			return nil, err
		}
		opts.TTL = ttl.of
		if o.at != "" {
			if opts.Now, err = parseTime(o.at); err != nil {
				return nil, usage("--at: %w", err)
			}
		}
	}
	if o.classes != "" {
		if opts.Classes, _, err = readClasses(o.classes); err != nil {
			return nil, err
		}
	}
	names, err := g.operatorNames(s)
	if err != nil {
		return nil, err
	}
	opts.UID = names.uid
	return opts, nil
}

func (g *global) convert(ctx context.Context, from, to string, o *convertOptions) error {
	loc, err := g.location(to)
	if err != nil {
		return err
	}
	s, err := g.open(ctx, from)
	if err != nil {
		return err
	}
	opts, err := o.forSnapshot(ctx, g, s)
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	if progress != nil {
		opts.Progress = func(c snapshot.ConvertProgress) {
			progress.Update(func() string {
				return fmt.Sprintf("%d of %d files, %s written, of %s", c.Files, c.OfFiles, terminal.Bytes(c.Bytes), terminal.Bytes(c.OfBytes))
			})
		}
	}
	plan, err := snapshot.PlanConvert(ctx, s, loc, opts)
	if errors.Is(err, snapshot.ErrInFlight) {
		return fmt.Errorf("%w: --to heap keeps it, --drop-in-flight leaves it out", err)
	}
	if err != nil {
		return err
	}
	out := convertOutput{ConvertPlan: plan}
	before := plan.Done
	if o.apply {
		if out.Made, err = plan.Apply(ctx); err != nil {
			return err
		}
		for _, f := range out.Made.Verification.Findings {
			if f.Severity == snapshot.Damage {
				out.Damage = append(out.Damage, g.redact(f.Detail)+" ["+f.Code+"]")
			}
		}
		out.Applied = true
	}
	progress.Stop()
	if g.json {
		doc := terminal.NewDocument(g.env.Out, schemaConvert)
		doc.Members(plan)
		doc.Member("applied", out.Applied)
		if out.Made != nil {
			doc.Member("made", out.Made)
		}
		if len(out.Damage) > 0 {
			doc.Member("damage", out.Damage)
		}
		err = doc.Close()
	} else {
		err = g.printConvert(&out, before)
	}
	if err == nil && len(out.Damage) > 0 {
		return &exit.Silent{Code: exit.Damage}
	}
	return err
}

func (g *global) printConvert(out *convertOutput, before bool) error {
	p := out.ConvertPlan
	var b strings.Builder
	switch {
	case before:
		fmt.Fprintf(&b, "%s: is there already\n", terminal.Clean(p.To))
	case out.Applied:
		m := out.Made
		fmt.Fprintf(&b, "%s: converted: %s, %s", terminal.Clean(p.To), terminal.Plural(int64(m.Files)+1, "file", "files"), g.size(m.Bytes))
		if m.Entries > 0 {
			fmt.Fprintf(&b, ", %s", terminal.Plural(m.Entries, "entry", "entries"))
		}
		if m.Expired > 0 {
			fmt.Fprintf(&b, ", %d expired left out", m.Expired)
		}
		b.WriteString("\n")
		if m.Resumed > 0 {
			fmt.Fprintf(&b, "%s of an earlier run\n", terminal.Plural(int64(m.Resumed), "file is", "files are"))
		}
	default:
		fmt.Fprintf(&b, "%s → %s\n", terminal.Clean(p.From), terminal.Clean(p.To))
		g.convertWork(&b, p)
	}
	for _, d := range out.Damage {
		fmt.Fprintf(&b, "damage: %s\n", terminal.Clean(d))
	}
	if err := g.printf(g.env.Out, "%s", b.String()); err != nil {
		return err
	}
	if out.Made != nil && out.Made.Left > 0 {
		g.note("%s of earlier runs could not be removed", terminal.Plural(int64(out.Made.Left), "file", "files"))
	}
	if !out.Applied && !before {
		g.note("nothing is written without --apply")
	}
	return nil
}

// convertWork says what is to be done.
func (g *global) convertWork(b *strings.Builder, p *snapshot.ConvertPlan) {
	type work struct {
		n     int64
		bytes int64
	}
	from := map[string]work{}
	for i := range p.Files {
		f := &p.Files[i]
		w := from[f.From]
		from[f.From] = work{w.n + 1, w.bytes + max(f.Bytes, 0)}
	}
	var kinds []string
	for k := range from {
		if k != "" {
			kinds = append(kinds, k)
		}
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		fmt.Fprintf(b, "keyed state of %s, %s: %s to %s\n", terminal.Plural(from[k].n, "subtask", "subtasks"), g.size(from[k].bytes), k, p.Format)
	}
	if w := from[""]; w.n > 0 {
		fmt.Fprintf(b, "%s, %s, to copy as they are\n", terminal.Plural(w.n, "other file", "other files"), g.size(w.bytes))
	}
	fmt.Fprintf(b, "_metadata of version %d\n", p.Version)
	if p.Names {
		fmt.Fprintf(b, "left out: names and uids of operators, which version %d has no place for\n", p.Version)
	}
	if p.InFlight > 0 {
		fmt.Fprintf(b, "left out: data in flight, %s\n", g.size(p.InFlight))
	}
}
