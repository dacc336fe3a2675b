package terminal

import (
	"bufio"
	"io"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Cut says how a column may give way when a row is wider than the screen.
type Cut int

// The cuts.
const (
	Whole  Cut = iota // never
	Middle            // "7f3c…99a1": an ID is known by its ends
	End               // "some long rea…"
)

// Column is one column of a Table.
type Column struct {
	Title string
	Right bool // numbers
	Cut   Cut
	Min   int // columns that a cut leaves, at least
	// Dull is what a cell says that says nothing, "0 B": where room is short, a
	// column of such cells alone is left out before anything is cut. A column of
	// empty cells is left out on every terminal.
	Dull string
}

// Cell is the text of one cell.
type Cell struct {
	Text  string
	Style Style
}

// C makes plain cells.
func C(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, t := range texts {
		cells[i].Text = t
	}
	return cells
}

// layoutRows is how many rows a Table sees before it fixes its widths.
const layoutRows = 1000

// Table prints rows under a heading, aligned, in memory that does not grow with
// their number: the first 1,000 rows decide the widths, and a later cell that
// is wider is cut on a terminal and printed whole elsewhere. Cells are cleaned.
// Without a limit on the width nothing is ever cut. Not for concurrent use.
type Table struct {
	w      *bufio.Writer
	screen Screen
	cols   []Column
	width  []int // nil until fixed; -1 for a column that is left out
	rows   [][]Cell
}

// NewTable makes a table. Close prints what is buffered.
func NewTable(w io.Writer, screen Screen, cols ...Column) *Table {
	return &Table{w: bufio.NewWriterSize(w, 32<<10), screen: screen, cols: cols}
}

// Row adds a row; missing cells are empty. The error is the writer's.
func (t *Table) Row(cells ...Cell) error {
	row := make([]Cell, len(t.cols))
	copy(row, cells)
	for i := range row {
		row[i].Text = Clean(row[i].Text)
	}
	if t.width != nil {
		return t.print(row)
	}
	t.rows = append(t.rows, row)
	if len(t.rows) < layoutRows {
		return nil
	}
	return t.Flush()
}

// Flush fixes the widths and prints what was added; a table without rows
// prints its heading.
func (t *Table) Flush() error {
	if t.width == nil {
		t.layout()
		head := make([]Cell, len(t.cols))
		for i, c := range t.cols {
			head[i] = Cell{c.Title, Bold}
		}
		if err := t.print(head); err != nil {
			return err
		}
	}
	for _, r := range t.rows {
		if err := t.print(r); err != nil {
			return err
		}
	}
	t.rows = nil
	return t.w.Flush()
}

const gap = 2

func (t *Table) layout() {
	t.width = make([]int, len(t.cols))
	for i, c := range t.cols {
		t.width[i] = columns(c.Title)
	}
	for _, r := range t.rows {
		for i, c := range r {
			t.width[i] = max(t.width[i], columns(c.Text))
		}
	}
	if t.screen.Width == 0 {
		return
	}
	over := -gap - t.screen.Width
	for i, w := range t.width {
		if t.all(i, "") {
			t.width[i] = -1
			continue
		}
		over += gap + w
	}
	for i := len(t.cols) - 1; i >= 0 && over > 0; i-- {
		if t.width[i] >= 0 && t.cols[i].Dull != "" && t.all(i, t.cols[i].Dull) {
			over -= t.width[i] + gap
			t.width[i] = -1
		}
	}
	// One column off the widest that may still give way, until all fits: wide
	// columns end up equally wide and narrow ones whole.
	for ; over > 0; over-- {
		widest := -1
		for i, c := range t.cols {
			if c.Cut == Whole || t.width[i] <= max(c.Min, columns(c.Title), 4) {
				continue
			}
			if widest < 0 || t.width[i] > t.width[widest] {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.width[widest]--
	}
}

// all reports whether every row is known and says text in column i.
func (t *Table) all(i int, text string) bool {
	if len(t.rows) == 0 || len(t.rows) >= layoutRows {
		return false
	}
	for _, r := range t.rows {
		if r[i].Text != text {
			return false
		}
	}
	return true
}

func (t *Table) print(row []Cell) error {
	last := len(row) - 1
	for last > 0 && (row[last].Text == "" || t.width[last] < 0) {
		last--
	}
	for i := 0; i <= last; i++ {
		if t.width[i] < 0 {
			continue
		}
		s, w := row[i].Text, t.width[i]
		n := columns(s)
		if n > w && t.screen.Width > 0 {
			s = cut(s, w, t.cols[i].Cut)
			n = columns(s)
		}
		pad := max(w-n, 0)
		if t.cols[i].Right {
			writeSpaces(t.w, pad)
			pad = 0
		}
		t.w.WriteString(t.screen.Paint(row[i].Style, s))
		if i < last {
			writeSpaces(t.w, pad+gap)
		}
	}
	return t.w.WriteByte('\n')
}

const spaces = "                                                                "

func writeSpaces(w *bufio.Writer, n int) {
	for n > 0 {
		k := min(n, len(spaces))
		w.WriteString(spaces[:k])
		n -= k
	}
}

// cut shortens s to at most w columns.
func cut(s string, w int, how Cut) string {
	if w <= 0 || how == Whole {
		return s
	}
	if how == End || w < 3 {
		return headColumns(s, w-1) + "…"
	}
	// The tail gets the odd column: hex IDs differ more at either end alike, but
	// a file name says more at its end.
	head := (w - 1) / 2
	return headColumns(s, head) + "…" + tailColumns(s, w-1-head)
}

// Shorten cuts the middle out of s if it is wider than w columns.
func Shorten(s string, w int) string {
	if columns(s) <= w {
		return s
	}
	return cut(s, w, Middle)
}

// headColumns is the longest prefix of whole runes no wider than w.
func headColumns(s string, w int) string {
	used := 0
	for i, r := range s {
		used += text.RuneWidth(r)
		if used > w {
			return s[:i]
		}
	}
	return s
}

// tailColumns is the longest suffix of whole runes no wider than w, without a
// leading combining mark.
func tailColumns(s string, w int) string {
	runes := []rune(s)
	used, i := 0, len(runes)
	for i > 0 && used+text.RuneWidth(runes[i-1]) <= w {
		i--
		used += text.RuneWidth(runes[i])
	}
	for i < len(runes) && text.RuneWidth(runes[i]) == 0 {
		i++
	}
	return string(runes[i:])
}

// columns is how many columns of a terminal s takes. Nearly all cells are ASCII,
// which needs no look at grapheme clusters.
func columns(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return text.StringWidth(s)
		}
	}
	return len(s)
}
