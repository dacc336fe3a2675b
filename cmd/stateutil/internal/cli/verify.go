package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/snapshot"
)

// verifyOutput is the JSON document of verify.
type verifyOutput struct {
	Schema    string                   `json:"schema"`
	Snapshots []*snapshot.Verification `json:"snapshots"`
	// Incomplete are the folders of snapshots without _metadata: in progress, failed
	// or half deleted.
	Incomplete []string `json:"incomplete"`
	// Errors are snapshots and folders that could not be verified.
	Errors []pathError   `json:"errors"`
	Total  verifySummary `json:"total"`
}

// verifySummary counts snapshots by what verification said.
type verifySummary struct {
	Snapshots  int64 `json:"snapshots"`  // looked at, with all that follow
	OK         int64 `json:"ok"`         // no damage
	Damaged    int64 `json:"damaged"`    // at least one finding is damage
	Incomplete int64 `json:"incomplete"` // a folder without _metadata; not verified
	Failed     int64 `json:"failed"`     // could not be verified
	Findings   int64 `json:"findings"`   // damage and notes
	Undecoded  int64 `json:"undecoded"`  // snapshots with records that cannot be decoded
	Objects    int64 `json:"objects"`
	Bytes      int64 `json:"bytes"`
}

type verifyOptions struct {
	all         bool
	noObjects   bool
	data        bool
	sample      string
	around      []string
	noOthers    bool
	classes     string
	maxFindings int
	writeSums   bool
}

func newVerify(g *global) *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:     "verify [URL]",
		GroupID: groupCheck,
		Short:   "Check that a snapshot is whole: structure, files, sizes, data",
		Long: `Check one checkpoint or savepoint, or with --all every one below a root:

  - the metadata decodes, and encodes again to the same bytes;
  - key-group ranges, offsets, subtasks and segments fit together;
  - every referenced file is there with the right size.

With --data the state files are read as well: every checksum of RocksDB blocks and
of compressed streams, every record decoded to its last byte, every key hashed to
its key group. Files without a checksum of their own are counted: in those only
what is impossible is found. Damage is told with the operator, the state and the
key groups that it may have cost, with the other snapshots that name the file and
with the newest one nearby that is sound. --sample reads a part: with n/t, t runs
read each block and key group once.

Checksums that lie beside _metadata (docs/format/checksums.md) are compared: that of
_metadata always, those of files with --data. --write-checksums writes them.

Each finding is one line that names the file, the offset and the field. Damage is
what keeps a snapshot from being restored as it says; a note is unusual but no
damage; unread is a file to which the store denies access, and the others are
verified all the same. The exit code is 3 if there is damage, else 12 if something
is unread, else 4 if --data met records that cannot be decoded. With --all a
snapshot that cannot be verified does not stop the others; the exit code is then
that of the first failure, unless there is damage, which wins.`,
		Example: `  stateutil verify s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil verify --data hdfs://nn:8020/flink/savepoints/savepoint-5f6b2a-02c1f9a4bb1d
  stateutil verify --data --sample 3/7 s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil verify --all --json /data/flink/checkpoints`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			return g.verify(cmd.Context(), url, o)
		},
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "verify every snapshot below the URL")
	cmd.Flags().BoolVar(&o.noObjects, "no-objects", false, "check the metadata alone, not the files")
	cmd.Flags().BoolVar(&o.data, "data", false, "read the state files: verify every checksum and decode every record")
	cmd.Flags().StringVar(&o.sample, "sample", "", "with --data: read a `PART`, n/t for the n-th of t equal parts or 5% for a share chosen by lot")
	cmd.Flags().StringArrayVar(&o.around, "around", nil, "with --data: look for snapshots that share what is damaged below this `URL`, too, as often as needed")
	cmd.Flags().BoolVar(&o.noOthers, "no-others", false, "with --data: do not look for other snapshots that share what is damaged")
	cmd.Flags().StringVar(&o.classes, "classes", "", "with --data: read classes that the snapshot does not describe: `FILE` has a type in words on each line")
	for flag, complete := range map[string]cobra.CompletionFunc{"sample": cobra.NoFileCompletions, "around": g.completeURL} {
		must(cmd.RegisterFlagCompletionFunc(flag, complete))
	}
	cmd.Flags().BoolVar(&o.writeSums, "write-checksums", false, "write a checksum of every file beside _metadata of each snapshot that is sound and has none")
	cmd.Flags().IntVar(&o.maxFindings, "max-findings", 100, "print at most `N` findings of a snapshot; 0 is all")
	return cmd
}

func (g *global) verify(ctx context.Context, url string, o *verifyOptions) error {
	loc, err := g.location(url)
	if err != nil {
		return err
	}
	opts, err := g.options()
	if err != nil {
		return err
	}
	data, err := g.dataOptions(o)
	if err != nil {
		return err
	}
	progress := g.progress()
	defer progress.Stop()
	if data != nil {
		data.Progress = watchData(progress)
	}
	v := &verifier{
		g: g, out: g.output(progress), progress: progress, writeSums: o.writeSums,
		opts: &snapshot.VerifyOptions{Options: opts, NoObjects: o.noObjects, MaxFindings: o.maxFindings, Data: data, Progress: watch(progress)},
	}
	if o.maxFindings == 0 {
		v.opts.MaxFindings = -1
	}
	if !o.all && !g.json {
		return v.one(ctx, loc)
	}
	if g.json {
		v.doc = terminal.NewDocument(v.out, schemaVerify)
		v.doc.Array("snapshots")
	}
	if o.all {
		err = v.below(ctx, loc)
	} else {
		err = v.add(ctx, loc, loc.String())
		if err != nil {
			return err
		}
		err = v.failed
	}
	progress.Stop()
	if err != nil && (ctx.Err() != nil || v.total.Snapshots == 0) {
		if len(v.errors) > 0 && v.doc == nil {
			return &exit.Silent{Code: exit.Of(err)} // its line says it
		}
		return err
	}
	if v.doc != nil {
		v.doc.Array("incomplete")
		for _, dir := range v.incomplete {
			v.doc.Element(dir)
		}
		v.doc.Array("errors")
		for _, e := range v.errors {
			v.doc.Element(e)
		}
		v.doc.Member("total", v.total)
		if cerr := v.doc.Close(); cerr != nil {
			return cerr
		}
	} else if werr := v.summary(); werr != nil {
		return werr
	}
	switch {
	case v.total.Damaged > 0:
		return &exit.Silent{Code: exit.Damage} // the output says it
	case err == nil && v.total.Undecoded > 0:
		return &exit.Silent{Code: exit.Partly}
	case err != nil && o.all && !g.json:
		return &exit.Silent{Code: exit.Of(err)} // its line says it
	}
	return err
}

type verifier struct {
	g        *global
	out      io.Writer
	progress *terminal.Progress
	opts     *snapshot.VerifyOptions
	doc      *terminal.Document // nil for people
	total    verifySummary
	errors   []pathError
	failed   error // the first
	// writeSums: checksums are written beside sound snapshots.
	writeSums bool
	// incomplete are folders without _metadata, kept for doc alone.
	incomplete []string
}

func (v *verifier) one(ctx context.Context, loc blobstore.Location) error {
	res, err := v.verify(ctx, loc)
	v.progress.Stop()
	if err != nil {
		return lookFurther(err)
	}
	if err := v.print(res, strings.TrimSuffix(res.Snapshot, "/"+snapshot.MetadataName)); err != nil {
		return err
	}
	switch {
	case res.Damaged > 0:
		return &exit.Silent{Code: exit.Damage}
	case res.Err() != nil:
		return &exit.Silent{Code: exit.Of(res.Err())}
	case partly(res):
		return &exit.Silent{Code: exit.Partly}
	}
	return nil
}

// verify verifies one snapshot, and writes its checksums if that is wanted.
func (v *verifier) verify(ctx context.Context, loc blobstore.Location) (*snapshot.Verification, error) {
	res, err := snapshot.VerifyAt(ctx, v.g.stores(), loc, v.opts)
	if err != nil || !v.writeSums || !res.OK || res.Checksums != nil {
		return res, err
	}
	s, err := snapshot.Open(ctx, v.g.stores(), loc, v.opts.Options)
	if err != nil {
		return nil, err
	}
	c, err := snapshot.WriteChecksums(ctx, s, nil)
	if err != nil {
		return nil, err
	}
	v.g.note("%s: checksums of %s are written", s.Dir, terminal.Plural(int64(len(c.Files)), "file", "files"))
	return res, nil
}

// add verifies one snapshot and goes on if it cannot be; the error is that of
// the output.
func (v *verifier) add(ctx context.Context, loc blobstore.Location, name string) error {
	res, err := v.verify(ctx, loc)
	if err != nil {
		v.fail(name, err)
		v.total.Failed++
		v.total.Snapshots++
		return nil
	}
	v.total.Snapshots++
	v.total.Objects += res.Objects
	v.total.Bytes += res.Bytes
	v.total.Findings += int64(res.Damaged + res.Notes)
	switch err := res.Err(); {
	case res.OK:
		v.total.OK++
	case res.Damaged > 0:
		v.total.Damaged++
	default:
		v.total.Failed++
		if v.failed == nil {
			v.failed = err
		}
	}
	if partly(res) {
		v.total.Undecoded++
	}
	if v.doc != nil {
		return v.doc.Element(res)
	}
	return v.print(res, name)
}

func (v *verifier) fail(path string, err error) {
	if v.failed == nil {
		v.failed = err
	}
	v.errors = append(v.errors, pathError{path, terminal.OneLine(v.g.redact(err.Error()))})
	if v.doc == nil {
		v.progress.Stop()
		v.g.complain(err.Error())
	}
}

// below verifies every snapshot below root.
func (v *verifier) below(ctx context.Context, root blobstore.Location) error {
	for ref, err := range snapshot.Find(ctx, v.g.stores(), root, &snapshot.FindOptions{Progress: v.opts.Progress}) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, snapshot.ErrNoSnapshot):
			return err
		case err != nil:
			v.fail(ref.Dir.String(), err)
			continue
		case ref.Incomplete:
			v.total.Snapshots++
			v.total.Incomplete++
			if v.doc != nil {
				v.incomplete = append(v.incomplete, ref.Dir.String())
			} else {
				if err := v.g.printf(v.out, "%s: %s\n", terminal.Clean(ref.Dir.String()), v.g.screen.Paint(terminal.Warn, "incomplete: no _metadata")); err != nil {
					return err
				}
			}
			continue
		}
		if err := v.add(ctx, ref.Location, ref.Dir.String()); err != nil {
			return err
		}
	}
	if v.total.Snapshots == 0 && v.failed == nil {
		return fmt.Errorf("%s: %w", root, snapshot.ErrNoSnapshot)
	}
	return v.failed
}

func (v *verifier) print(res *snapshot.Verification, name string) error {
	g := v.g
	for i := range res.Findings {
		if err := g.printf(v.out, "%s\n", g.findingLine(&res.Findings[i], res.Snapshot)); err != nil {
			return err
		}
	}
	if n := res.Damaged + res.Unread + res.Notes - len(res.Findings); n > 0 {
		if err := g.printf(v.out, "and %s\n", terminal.Plural(int64(n), "more finding", "more findings")); err != nil {
			return err
		}
	}
	verdict := g.screen.Paint(terminal.Good, "ok")
	switch {
	case res.Damaged > 0:
		verdict = g.screen.Paint(terminal.Bad, "damaged")
	case !res.OK:
		verdict = g.screen.Paint(terminal.Warn, "not all of it could be read")
	}
	var facts []string
	if res.Damaged > 0 {
		facts = append(facts, fmt.Sprintf("%d damage", res.Damaged))
	}
	if res.Unread > 0 {
		facts = append(facts, fmt.Sprintf("%d unread", res.Unread))
	}
	if res.Notes > 0 {
		facts = append(facts, terminal.Plural(int64(res.Notes), "note", "notes"))
	}
	if v.opts.NoObjects {
		facts = append(facts, "metadata only")
	} else {
		facts = append(facts, fmt.Sprintf("%s, %s", terminal.Plural(res.Objects, "file", "files"), g.size(res.Bytes)))
	}
	if c := res.Checksums; c != nil {
		fact := terminal.Plural(c.Files, "checksum", "checksums")
		if c.Verified > 0 {
			fact = fmt.Sprintf("%s compared", terminal.Plural(c.Verified, "checksum", "checksums"))
		}
		facts = append(facts, fact)
	}
	if d := res.Data; d != nil {
		if err := v.printData(d); err != nil {
			return err
		}
		facts = append(facts, v.dataFacts(d)...)
	}
	return g.printf(v.out, "%s: %s: %s\n", terminal.Clean(name), verdict, strings.Join(facts, ", "))
}

// findingLine is "damage: METADATA: byte N: FIELD detail [code]" for what the
// metadata itself says, and for what it names
// "damage: FILE: detail; named by METADATA: byte N: FIELD [code] (hint)".
func (g *global) findingLine(f *snapshot.Finding, metadataURL string) string {
	style := terminal.Faint
	switch f.Severity {
	case snapshot.Damage:
		style = terminal.Bad
	case snapshot.Unread:
		style = terminal.Warn
	}
	var b strings.Builder
	b.WriteString(g.screen.Paint(style, string(f.Severity)) + ": " + terminal.Clean(f.File) + ": ")
	if f.Offset >= 0 {
		fmt.Fprintf(&b, "byte %d: ", f.Offset)
	}
	own := f.File == metadataURL
	detail := terminal.OneLine(g.redact(f.Detail))
	if f.Field != "" && own {
		b.WriteString(terminal.Clean(f.Field))
		if !strings.HasPrefix(detail, "is ") && !strings.HasPrefix(detail, "has ") {
			b.WriteByte(':')
		}
		b.WriteByte(' ')
	}
	b.WriteString(detail)
	if where := dataPlace(f); where != "" {
		b.WriteString("; " + terminal.Clean(where))
	}
	if f.Field != "" && !own {
		b.WriteString("; named by " + terminal.Clean(metadataURL) + ": ")
		if f.HandleOffset > 0 {
			fmt.Fprintf(&b, "byte %d: ", f.HandleOffset)
		}
		b.WriteString(terminal.Clean(f.Field))
	}
	b.WriteString(" [" + f.Code + "]")
	if f.Hint != "" {
		b.WriteString(" (" + terminal.OneLine(f.Hint) + ")")
	}
	return b.String()
}

func (v *verifier) summary() error {
	t := &v.total
	parts := []string{fmt.Sprintf("%d ok", t.OK)}
	for _, c := range []struct {
		n     int64
		what  string
		style terminal.Style
	}{{t.Damaged, "damaged", terminal.Bad}, {t.Incomplete, "incomplete", terminal.Warn}, {t.Failed, "not verified", terminal.Bad}} {
		if c.n > 0 {
			parts = append(parts, v.g.screen.Paint(c.style, fmt.Sprintf("%d %s", c.n, c.what)))
		}
	}
	return v.g.printf(v.out, "%s: %s; %s, %s\n", terminal.Plural(t.Snapshots, "snapshot", "snapshots"), strings.Join(parts, ", "),
		terminal.Plural(t.Objects, "file", "files"), v.g.size(t.Bytes))
}
