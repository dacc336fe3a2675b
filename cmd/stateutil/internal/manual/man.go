// Package manual writes the documentation of commands from the commands
// themselves: man pages, the reference part of docs/commands, and the JSON
// schemas of their output.
package manual

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
)

// Commands are all commands that users see, the root first, then by name.
func Commands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, Commands(c)...)
		}
	}
	slices.SortFunc(all[1:], func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	return all
}

// ManName is the file name of a command's page, "stateutil-ls.1".
func ManName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
}

// Man is the page of one command in the man macros of troff. It has no date, so
// that it changes only when the command does. Source of the macros: groff_man(7).
func Man(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %q 1 \"\" \"Tidemark\" \"Tidemark manual\"\n", strings.ToUpper(name))
	b.WriteString(".nh\n.ad l\n")
	b.WriteString(".SH NAME\n")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(name), roff(lowerFirst(cmd.Short)))
	b.WriteString(".SH SYNOPSIS\n")
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".B %s\n.I COMMAND\n[flags]\n", roff(cmd.CommandPath()))
	} else {
		path := cmd.CommandPath()
		fmt.Fprintf(&b, ".B %s\n%s\n", roff(path), roff(strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), path))))
	}
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, orShort(cmd))
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(strings.ReplaceAll(c.CommandPath(), " ", "-")), roff(c.Short))
			}
		}
	}
	manFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(&b, "GLOBAL OPTIONS", cmd.InheritedFlags())
	b.WriteString(".SH EXIT STATUS\n")
	for _, m := range exit.Meanings {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", m.Code, roff(m.Text))
	}
	b.WriteString(".SH ENVIRONMENT\n.TP\n.B STATEUTIL_\\fIOPTION\\fP\n")
	b.WriteString("Sets a global option: \\-\\-max\\-rps is STATEUTIL_MAX_RPS. Lists are separated by commas. A flag is stronger, the configuration file weaker.\n")
	b.WriteString(".TP\n.B NO_COLOR\nTurns colours off.\n")
	if cmd.HasExample() {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roffLines(undent(cmd.Example)))
	}
	if cmd.HasParent() {
		b.WriteString(".SH SEE ALSO\n.BR stateutil (1)\n")
	}
	return b.Bytes()
}

func orShort(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// paragraphs prints text: an indented block keeps its lines, the rest is filled.
func paragraphs(b *bytes.Buffer, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, "  ") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", roffLines(p))
			continue
		}
		fmt.Fprintf(b, "%s\n", roffLines(p))
	}
}

func manFlags(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	flags.SortFlags = false
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fP, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fP", roff(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(b, "\n%s", roff(usage))
		if d := Default(f); d != "" {
			fmt.Fprintf(b, " (default %s)", roff(d))
		}
		b.WriteString("\n")
	})
}

// Default is a flag's default value as documented; empty if it is the obvious one.
func Default(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "false", "[]", "0s": // says nothing
		return ""
	}
	return f.DefValue
}

var roffSpecial = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "…", "...", "→", "\\(->", "–", `\(en`)

// roff escapes a piece of a line.
func roff(s string) string { return roffSpecial.Replace(s) }

// roffLines escapes whole lines: one that begins with a dot or a quote would be a
// request.
func roffLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = roff(l)
		if strings.HasPrefix(l, ".") {
			l = `\&` + l
		}
		lines[i] = l
	}
	return strings.Join(lines, "\n")
}

func undent(s string) string { return strings.ReplaceAll(strings.TrimPrefix(s, "  "), "\n  ", "\n") }
