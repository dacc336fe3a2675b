// Package hexlines prints bytes of a file with what they mean, in the form that
// metadata.Dump has, too:
//
//	0000-0003: 4960672d                          # magic
//	0004-0019: 00000004000000030000000200000001  # offsets, 4 of 40
//	0020-0163: …                                 # 144 more bytes
package hexlines

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const perLine = 16

// Printer prints lines. The first error of the writer sticks and comes from Flush.
type Printer struct {
	w     *bufio.Writer
	width int
}

// New prints to w offsets that are wide enough for a file of size bytes.
func New(w io.Writer, size int64) *Printer {
	return &Printer{bufio.NewWriter(w), max(2, len(strconv.FormatInt(max(size-1, 0), 10)))}
}

// Bytes prints b, which stands at offset off of the file, at most most bytes of it.
func (p *Printer) Bytes(off int64, b []byte, most int, comment string) {
	shown := b[:min(len(b), most)]
	for len(shown) > 0 {
		n := min(len(shown), perLine)
		p.line(off, int64(n), hex.EncodeToString(shown[:n]), comment)
		comment = ""
		shown, b, off = shown[n:], b[n:], off+int64(n)
	}
	if len(b) > 0 {
		if comment == "" {
			comment = fmt.Sprintf("%d more bytes", len(b))
		}
		p.line(off, int64(len(b)), "…", comment)
	}
}

func (p *Printer) line(off, n int64, text, comment string) {
	pad := strings.Repeat(" ", max(0, 2*perLine-utf8.RuneCountInString(text)))
	if comment == "" {
		fmt.Fprintf(p.w, "%0*d-%0*d: %s\n", p.width, off, p.width, off+n-1, text)
		return
	}
	fmt.Fprintf(p.w, "%0*d-%0*d: %s%s  # %s\n", p.width, off, p.width, off+n-1, text, pad, printable(comment))
}

// Note prints a line that stands for no bytes of the file by itself.
func (p *Printer) Note(format string, args ...any) {
	fmt.Fprintf(p.w, "# %s\n", printable(fmt.Sprintf(format, args...)))
}

// Flush ends the output.
func (p *Printer) Flush() error { return p.w.Flush() }

// printable keeps text of a file from moving a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '·'
		}
		return r
	}, s)
}
