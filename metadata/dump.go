package metadata

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidemark/tidemark/internal/javaio"
)

// DumpOptions changes what Dump shows. Nil is the default.
type DumpOptions struct {
	// Name, Size and Changelog114 are those of DecodeOptions.
	Name         string
	Size         int64
	Changelog114 bool
	// MaxBytes is how many bytes of inline data are shown; the rest is counted.
	// 0 means 64, a negative number all.
	MaxBytes int
	// UIDs gives operator IDs names.
	UIDs UIDNames
}

// Dump writes the bytes of a _metadata object with what they mean, one field a
// line, or several if it is long:
//
//	00-03: 4960672d                          # magic
//	04-07: 00000003                          # format version 3
//	08-15: 0000000000000007                  # checkpoint ID 7
//
// Offsets are decimal, both ends included. A field is named by the path that
// errors use. Of a damaged object all up to the damage is written, and then a
// line that says what it is; the error is returned, too. Memory follows the
// largest operator.
func Dump(w io.Writer, r io.Reader, opts *DumpOptions) error {
	if opts == nil {
		opts = &DumpOptions{}
	}
	d := newDecoder(r, &DecodeOptions{Name: opts.Name, Size: opts.Size, Changelog114: opts.Changelog114})
	p := &dumper{w: bufio.NewWriterSize(w, 64<<10), uids: opts.UIDs, most: opts.MaxBytes, width: 2}
	if p.most == 0 {
		p.most = 64
	}
	if d.size > 0 {
		p.width = max(2, len(strconv.FormatInt(d.size-1, 10)))
	}
	d.trace = p.field
	d.opts.Warn = func(e *FormatError) {
		p.notes = append(p.notes, fmt.Sprintf("Flink does not write this: %s %s", e.Field, e.Detail))
	}
	d.checkpoint(visitor{operator: func(*OperatorState, int64) error {
		p.flushNotes()
		return p.err
	}})
	p.flushNotes()
	if p.err != nil {
		return p.err
	}
	if d.err != nil {
		fmt.Fprintf(p.w, "# damaged: %s\n", printable(d.err.Error()))
	}
	if err := p.w.Flush(); err != nil {
		return err
	}
	return d.err
}

const dumpWidth = 16 // bytes a line

// dumper prints fields.
type dumper struct {
	w     *bufio.Writer
	width int // digits of an offset
	most  int
	uids  UIDNames
	notes []string // of the field that comes last
	text  []byte   // scratch of line
	err   error
}

func (p *dumper) flushNotes() {
	for _, n := range p.notes {
		fmt.Fprintf(p.w, "# %s\n", printable(n))
	}
	p.notes = p.notes[:0]
}

// lines prints size bytes at offset, of which b are shown; the rest stands
// behind them.
func (p *dumper) lines(offset int64, b []byte, size int64, comment string) {
	var text [2 * dumpWidth]byte
	for first := true; len(b) > 0 || first; first = false {
		n := min(len(b), dumpWidth)
		hex.Encode(text[:], b[:n])
		p.line(offset, int64(n), string(text[:2*n]), comment)
		comment = ""
		b, offset, size = b[n:], offset+int64(n), size-int64(n)
	}
	if size > 0 {
		p.line(offset, size, "…", fmt.Sprintf("%d more bytes", size))
	}
}

func (p *dumper) line(offset, n int64, text, comment string) {
	if p.err != nil {
		return
	}
	b := p.text[:0]
	b = appendPadded(b, offset, p.width)
	b = append(b, '-')
	b = appendPadded(b, max(offset, offset+n-1), p.width)
	b = append(b, ": "...)
	b = append(b, text...)
	if comment != "" {
		for range 2*dumpWidth - utf8.RuneCountInString(text) {
			b = append(b, ' ')
		}
		b = append(b, "  # "...)
		b = append(b, printable(comment)...)
	}
	p.text = append(b, '\n')
	_, p.err = p.w.Write(p.text)
}

// appendPadded appends n with zeros in front.
func appendPadded(b []byte, n int64, width int) []byte {
	digits := 1
	for v := n; v >= 10; v /= 10 {
		digits++
	}
	for ; digits < width; digits++ {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, n, 10)
}

// printable keeps control characters of names out of the terminal.
func printable(s string) string {
	for _, r := range s {
		if r < utf8.RuneSelf && r >= ' ' && r != 0x7f {
			continue
		}
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			q := strconv.Quote(s)
			return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		}
	}
	return s
}

func (p *dumper) field(t traced) {
	p.flushNotes()
	switch t.kind {
	case traceInt:
		p.lines(t.offset, t.raw, t.size, p.number(t))
	case traceTag:
		p.lines(t.offset, t.raw, t.size, t.field+" "+Tag(t.value).String())
	case traceText:
		b := append(javaio.AppendI16(nil, int16(len(t.raw))), t.raw...)
		p.lines(t.offset, b, t.size, fmt.Sprintf("%s %q", t.field, String(t.raw).Go()))
	case traceRaw:
		comment := t.field + " " + hex.EncodeToString(t.raw)
		if len(t.raw) == len(OperatorID{}) {
			if name, ok := p.uids[OperatorID(t.raw)]; ok {
				comment += " (" + name + ")"
			}
		}
		p.lines(t.offset, t.raw, t.size, comment)
	case traceBytes:
		p.lines(t.offset, javaio.AppendI32(nil, int32(len(t.raw))), 4, fmt.Sprintf("%s of %d bytes", t.field, len(t.raw)))
		if len(t.raw) > 0 {
			p.lines(t.offset+4, p.shown(t.raw), int64(len(t.raw)), "")
		}
	case traceRest:
		p.properties(t)
	}
}

func (p *dumper) shown(b []byte) []byte {
	if p.most >= 0 && len(b) > p.most {
		return b[:p.most]
	}
	return b
}

func (p *dumper) properties(t traced) {
	fmt.Fprintf(p.w, "# %s\n", printable(describeProperties(RawProperties(t.raw).Decode())))
	done := 0
	if len(t.raw) <= maxProperties {
		javaio.TraceObjectStream(t.raw, func(from, to int, what string) {
			p.lines(t.offset+int64(from), t.raw[from:to], int64(to-from), t.field+": "+what)
			done = to
		})
	}
	if rest := t.raw[done:]; len(rest) > 0 {
		p.lines(t.offset+int64(done), p.shown(rest), int64(len(rest)), t.field+": not understood")
	}
}

func describeProperties(p Properties) string {
	switch {
	case p.Null:
		return "properties: null"
	case p.Opaque != "":
		return "properties: not decoded: " + p.Opaque
	}
	s := "properties: " + p.Kind.String()
	if p.Format != "" {
		s += ", " + strings.ToLower(p.Format)
	}
	s += ", " + p.Retention()
	if p.Forced {
		s += ", forced"
	}
	if p.Unclaimed {
		s += ", unclaimed"
	}
	return s
}

// number is the comment of an integer: its path, its value and what that means.
func (p *dumper) number(t traced) string {
	parent, name := "", t.field
	if i := strings.LastIndexByte(t.field, '.'); i >= 0 {
		parent, name = t.field[:i], t.field[i+1:]
	}
	comment := t.field + " " + strconv.FormatInt(t.value, 10)
	meaning := ""
	switch {
	case parent == "" && name == "magic":
		return "magic"
	case parent == "" && name == "version":
		return fmt.Sprintf("format version %d", t.value)
	case parent == "" && name == "checkpointID":
		return fmt.Sprintf("checkpoint ID %d", t.value)
	case name == "magic":
		return t.field
	case name == "subtaskCount" && t.value < 0:
		meaning = "the operator has finished"
	case name == "index" && t.value < 0:
		meaning = fmt.Sprintf("subtask %d, finished", -(t.value + 1))
	case name == "managedOperatorFlag" || name == "rawOperatorFlag":
		meaning = "present"
		if t.value == 0 {
			meaning = "absent"
		}
	case name == "mode":
		meaning = pick(t.value, "split", "union", "broadcast")
	case name == "scope":
		meaning = pick(t.value, "exclusive", "shared")
	case name == "empty":
		meaning = pick(t.value, "no", "yes")
	case name == "referenceMarker":
		meaning = pick(t.value, "absent", "present")
	case name == "tag": // of a channel; other tags are traced as such
		meaning = pick(t.value, "", "input channel", "output channel", "merged input channels", "merged output channels")
	case strings.HasPrefix(name, "offset[") && strings.Contains(parent, "eyed") && t.value <= 0:
		meaning = "no data"
	case strings.HasSuffix(name, "ize") && t.value == -1:
		meaning = "not known"
	case name == "keyGroup" && t.value == -1:
		meaning = "metadata"
	}
	if meaning != "" {
		comment += " (" + meaning + ")"
	}
	return comment
}

func pick(i int64, names ...string) string {
	if i >= 0 && i < int64(len(names)) {
		return names[i]
	}
	return ""
}
