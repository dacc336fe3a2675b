package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// macros are those that Man uses, with the least and greatest number of arguments
// that groff_man(7) gives them; -1 is any number.
var macros = map[string][2]int{
	"TH": {5, 5}, "SH": {1, -1}, "PP": {0, 0}, "TP": {0, 0}, "B": {1, 6}, "I": {1, 6}, "BR": {2, 6},
	"nf": {0, 0}, "fi": {0, 0}, "nh": {0, 0}, "ad": {1, 1},
}

var (
	escapes  = regexp.MustCompile(`^(-|e|&|\(aq|\(->|\(en|f[BIP])`)
	nameLine = regexp.MustCompile(`^[a-z]+(\\-[a-z]+)* \\- [^ ]`)
	quoted   = regexp.MustCompile(`^(?:"([^"]*)"|([^" ]+))(?: |$)`)
)

// lintRoff checks a page in the part of troff that Man writes: whether every request
// is known and has its arguments, every escape is known, fonts are given back, and
// no text is taken for a request. What groff -ww warns of is an error here; the
// other way round it need not be.
func lintRoff(page string) (problems []string) {
	at := 0
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("line %d: ", at)+fmt.Sprintf(format, args...))
	}
	if !strings.HasSuffix(page, "\n") {
		bad("no end of line at the end")
	}
	unfilled := false
	tag := 0 // 2 after .TP: the tag's line is next; 1: its text is next
	section, titled := "", false
	for line := range strings.Lines(page) {
		at++
		line = strings.TrimSuffix(line, "\n")
		if strings.TrimRight(line, " ") != line {
			bad("a space at the end")
		}
		for _, r := range line {
			if r < ' ' || r > '~' {
				bad("the character %q", r)
			}
		}
		// Escapes and fonts.
		font := false
		for rest := line; ; {
			_, after, ok := strings.Cut(rest, `\`)
			if !ok {
				break
			}
			e := escapes.FindString(after)
			if e == "" {
				bad(`the escape \%.2s`, after)
				break
			}
			if e[0] == 'f' {
				if (e == "fP") != font {
					bad(`\%s after another font`, e)
				}
				font = e != "fP"
			}
			rest = after[len(e):]
		}
		if font {
			bad("a font is not given back")
		}
		if !strings.HasPrefix(line, ".") && !strings.HasPrefix(line, "'") {
			switch {
			case line == "" && !unfilled:
				bad("an empty line in filled text")
			case !titled || section == "":
				bad("text before a heading")
			case section == "NAME" && !nameLine.MatchString(line):
				bad(`NAME is not "name \- purpose"`)
			}
			tag = max(0, tag-1)
			continue
		}
		name, rest, _ := strings.Cut(line[1:], " ")
		var args []string
		for rest != "" {
			m := quoted.FindStringSubmatch(rest)
			if m == nil {
				bad("the arguments %s", rest)
				break
			}
			args = append(args, m[1]+m[2])
			rest = rest[len(m[0]):]
		}
		count, ok := macros[name]
		switch {
		case !ok || line[0] == '\'':
			bad("the request %s", line)
			continue
		case len(args) < count[0] || count[1] >= 0 && len(args) > count[1]:
			bad(".%s with %d arguments", name, len(args))
		case name == "TH" && (at != 1 || titled || len(args) > 1 && args[1] != "1"):
			bad(".TH not at the start, or not of section 1")
		case unfilled && name != "fi", name == "fi" && !unfilled:
			bad(".%s where lines are kept %t", name, unfilled)
		}
		switch name {
		case "B", "I", "BR":
			tag = max(0, tag-1)
			continue
		case "TH":
			titled = true
		case "SH":
			section = strings.Join(args, " ")
		case "nf", "fi":
			unfilled = name == "nf"
		}
		if tag > 0 {
			bad("a .TP before has no text")
		}
		tag = 0
		if name == "TP" {
			tag = 2
		}
	}
	if tag > 0 || unfilled {
		bad("the page ends within a .TP or .nf")
	}
	return problems
}

func TestLintRoff(t *testing.T) {
	good := string(Man(Commands(command())[1]))
	require.Empty(t, lintRoff(good))
	for name, edit := range map[string]struct{ from, to, want string }{
		"text as request":   {"\\&.with", ".with", "the request .with"},
		"quote as request":  {"Last \\- one", "'Last \\- one", "the request 'Last"},
		"bare backslash":    {"\\e in it", "\\in it", `the escape \in`},
		"backslash at end":  {"\\e in it.", "\\", `the escape \`},
		"font left on":      {"\\fB\\-\\-all\\fP", "\\fB\\-\\-all", "not given back"},
		"font twice":        {"\\fB\\-\\-all\\fP", "\\fB\\fI\\-\\-all\\fP", `\fI after`},
		"no title":          {".TH ", ".PP\n.TH ", "not at the start"},
		"title's arguments": {`"Tidemark manual"`, "", ".TH with 4"},
		"open quote":        {`"Tidemark manual"`, `"Tidemark manual`, "the arguments"},
		"other character":   {"everything", "everything →", `the character '→'`},
		"tag without text":  {".TP\n.B 130\ninterrupted\n", ".TP\n.B 130\n", "has no text"},
		"no end of kept":    {".fi\n", "", "where lines are kept true"},
		"kept twice":        {".nf\n", ".nf\n.nf\n", "where lines are kept true"},
		"empty line":        {"Last", "\nLast", "an empty line"},
		"name":              {"tool\\-look \\- ", "tool\\-look ", "NAME is not"},
		"heading":           {".SH NAME", ".SH", ".SH with 0"},
		"cut off":           {"\n.fi\n.SH SEE ALSO\n.BR stateutil (1)\n", "\n", "ends within"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, good, edit.from)
			page := strings.Replace(good, edit.from, edit.to, 1)
			require.True(t, slices.ContainsFunc(lintRoff(page), func(p string) bool { return strings.Contains(p, edit.want) }), "%q", lintRoff(page))
		})
	}
}

// The pages of stateutil itself, which another test keeps equal to its commands.
func TestPagesAreRoff(t *testing.T) {
	pages, err := filepath.Glob("../../../../docs/man/*.1")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(pages), 10)
	for _, p := range pages {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		require.Empty(t, lintRoff(string(b)), p)
	}
}
