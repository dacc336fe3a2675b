// Package terminal is how stateutil looks: tables that fit the screen, sizes
// and ages for people, colours, progress. It knows nothing of checkpoints.
package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// Screen describes where output goes.
type Screen struct {
	// Width in columns; 0 is unlimited: not a terminal, so values are printed
	// whole and the layout is the same everywhere.
	Width int
	Color bool
}

// ColorMode is the value of --color.
type ColorMode string

// The colour modes.
const (
	ColorAuto   ColorMode = "auto"
	ColorAlways ColorMode = "always"
	ColorNever  ColorMode = "never"
)

// ScreenOf finds out what w is. COLUMNS overrides the width of a terminal;
// NO_COLOR (set to anything) and TERM=dumb turn automatic colours off.
func ScreenOf(w io.Writer, mode ColorMode, getenv func(string) string) Screen {
	var s Screen
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.Width = 80
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.Width = width
		}
		if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n > 0 {
			s.Width = n
		}
		s.Color = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	}
	switch mode {
	case ColorAlways:
		s.Color = true
	case ColorNever:
		s.Color = false
	}
	return s
}

// IsTerminal reports whether w is one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Style is how a piece of text is meant; it shows only where colours are on.
type Style int

// The styles.
const (
	Plain Style = iota
	Bold        // headings
	Good        // usable, no finding
	Bad         // damage
	Warn        // works, but look at it
	Faint       // of second importance
)

var sgr = [...]string{Plain: "", Bold: "1", Good: "32", Bad: "31", Warn: "33", Faint: "2"}

// Paint returns text in a style if colours are on.
func (s Screen) Paint(style Style, text string) string {
	if !s.Color || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + sgr[style] + "m" + text + "\x1b[0m"
}
