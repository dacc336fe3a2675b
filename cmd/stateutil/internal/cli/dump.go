package cli

import (
	"bufio"
	"bytes"
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
	"github.com/tidemark/tidemark/metadata"
)

// dumpOutput is the JSON document of dump.
type dumpOutput struct {
	Schema string      `json:"schema"`
	URL    string      `json:"url"`
	Fields []dumpField `json:"fields"`
	// Damage is what ended the file's decoding.
	Damage string `json:"damage,omitempty"`
}

// dumpField is one field of a metadata file.
type dumpField struct {
	Offset int64 `json:"offset"` // of the first byte
	Length int64 `json:"length"` // in bytes
	// Hex are its bytes; of inline data only the first --data-bytes.
	Hex string `json:"hex"`
	// Meaning is the field's path, as errors name it, and its value.
	Meaning string `json:"meaning"`
}

type dumpOptions struct {
	hex       bool
	dataBytes int
}

func newDump(g *global) *cobra.Command {
	o := &dumpOptions{}
	cmd := &cobra.Command{
		Use:     "dump [URL]",
		GroupID: groupLook,
		Short:   "Explain every byte of a metadata file",
		Long: `Print the fields of a metadata file in the order in which they stand there, each
with its offset, its path (as error messages name it) and its value; with --hex
also its bytes. Of a damaged file everything up to the damage is printed.`,
		Example: `  stateutil dump /data/checkpoints/7f3c…a1/chk-8841 | less
  stateutil dump --hex s3://bucket/savepoints/savepoint-5f6b2a-02c1f9a4bb1d`,
		Args:              atMost(1, "URL"),
		ValidArgsFunction: g.completeURL,
		RunE: func(cmd *cobra.Command, a []string) error {
			url, err := g.url(a)
			if err != nil {
				return err
			}
			if o.dataBytes < 0 {
				return usage("--data-bytes is %d: 0 or more", o.dataBytes)
			}
			return g.dump(cmd.Context(), url, o)
		},
	}
	cmd.Flags().BoolVar(&o.hex, "hex", false, "print the bytes of every field")
	cmd.Flags().IntVar(&o.dataBytes, "data-bytes", 64, "print at most `N` bytes of inline data; 0 is all")
	return cmd
}

func (g *global) dump(ctx context.Context, url string, o *dumpOptions) error {
	loc, err := g.location(url)
	if err != nil {
		return err
	}
	lines, err := g.uidNames()
	if err != nil {
		return err
	}
	uids, err := metadata.NewUIDNames(lines)
	if err != nil {
		return err
	}
	r, loc, err := g.openObject(ctx, loc, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	opts := &metadata.DumpOptions{Name: loc.String(), Size: r.Info().Size, UIDs: uids, MaxBytes: o.dataBytes}
	if o.dataBytes == 0 {
		opts.MaxBytes = -1
	}
	if o.hex && !g.json {
		return metadata.Dump(g.env.Out, r, opts)
	}
	var p dumpPrinter
	if g.json {
		j := &dumpJSON{doc: terminal.NewDocument(g.env.Out, schemaDump)}
		j.doc.Member("url", loc.String())
		j.doc.Array("fields")
		p = j
	} else {
		p = &dumpText{w: bufio.NewWriter(g.env.Out)}
	}
	split := &dumpSplitter{p: p}
	err = metadata.Dump(split, r, opts)
	if split.flush(); split.err != nil {
		return split.err
	}
	if cerr := p.close(split); cerr != nil {
		return cerr
	}
	return err
}

type dumpPrinter interface {
	field(*dumpField) error
	close(*dumpSplitter) error
}

type dumpJSON struct{ doc *terminal.Document }

func (p *dumpJSON) field(f *dumpField) error { return p.doc.Element(f) }

func (p *dumpJSON) close(s *dumpSplitter) error {
	if s.damage != "" {
		p.doc.Member("damage", s.damage)
	}
	return p.doc.Close()
}

type dumpText struct{ w *bufio.Writer }

func (p *dumpText) field(f *dumpField) error {
	_, err := p.w.WriteString(strconv.FormatInt(f.Offset, 10) + ": " + f.Meaning + "\n")
	return err
}

func (p *dumpText) close(*dumpSplitter) error { return p.w.Flush() }

// dumpSplitter takes the lines that metadata.Dump documents apart again:
//
//	0049-0064: 00203063383066376535306162353462  # operator[0].name "abc"
//	0065-0080: 33306636613235383039343666396539
//
// A line without a comment goes on with the field before it. Lines that begin
// with # are remarks.
type dumpSplitter struct {
	p      dumpPrinter
	rest   []byte
	last   dumpField
	open   bool
	damage string
	err    error
}

func (s *dumpSplitter) Write(b []byte) (int, error) {
	n := len(b)
	for s.err == nil {
		line, after, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			s.rest = append(s.rest, b...)
			return n, nil
		}
		s.line(string(append(s.rest, line...)))
		s.rest, b = s.rest[:0], after
	}
	return 0, s.err
}

func (s *dumpSplitter) line(line string) {
	if damage, ok := strings.CutPrefix(line, "# damaged: "); ok {
		s.damage = damage
		s.flush()
		return
	}
	span, text, ok := strings.Cut(line, ": ")
	from, to, spans := strings.Cut(span, "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	if !ok || !spans || err1 != nil || err2 != nil {
		return
	}
	text, meaning, begins := strings.Cut(text, "  # ")
	text = strings.TrimSpace(text)
	if text == "…" { // more of the same field, not shown
		s.last.Length = last + 1 - s.last.Offset
		return
	}
	if begins {
		s.flush()
		s.open = true
		s.last = dumpField{Offset: first, Meaning: meaning}
	}
	s.last.Hex += text
	s.last.Length = last + 1 - s.last.Offset
	if text == "" {
		s.last.Length = 0
	}
}

func (s *dumpSplitter) flush() {
	if s.open && s.err == nil {
		s.err = s.p.field(&s.last)
	}
	s.open = false
}
