package manual

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
)

// Reference is the generated part of a command's page in docs/commands: usage,
// flags and exit codes. Members of its JSON document follow if it has one;
// comment gives the text for a member.
func Reference(cmd *cobra.Command, schema []Member, comment func(Member) string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "```\n%s\n```\n", cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAlso called `%s`.\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if !cmd.HasParent() {
		flagTable(&b, "Flags of every command", cmd.Flags())
	} else {
		flagTable(&b, "Flags", cmd.NonInheritedFlags())
		b.WriteString("\nThe flags of every command are in [stateutil](stateutil.md).\n")
	}
	b.WriteString("\n### Exit codes\n\n| code | meaning |\n| ---: | --- |\n")
	for _, m := range exit.Meanings {
		fmt.Fprintf(&b, "| %d | %s |\n", m.Code, m.Text)
	}
	if len(schema) > 0 {
		b.WriteString("\n### JSON\n\n`[]` stands for the elements of an array, `{}` for the values of an object whose names are data.\n\n| member | type | meaning |\n| --- | --- | --- |\n")
		for _, m := range schema {
			kind := m.Type
			if m.Optional {
				kind += ", may be absent"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Path, kind, cell(comment(m)))
		}
	}
	return b.Bytes()
}

func flagTable(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	flags.SortFlags = false
	fmt.Fprintf(b, "\n### %s\n\n| flag | meaning |\n| --- | --- |\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" {
			name += " " + value
		}
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if d := Default(f); d != "" {
			usage += " (default " + d + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, cell(usage))
	})
}

// cell makes text safe inside a table of Markdown.
func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(s)
}
