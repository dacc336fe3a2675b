package manual

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func command() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	root.PersistentFlags().StringP("color", "c", "auto", "use `WHEN`'s colours")
	cmd := &cobra.Command{
		Use: "look [URL]", Short: "Look at it", Aliases: []string{"see"},
		Long:    "First paragraph\n.with a dot and a \\ in it.\n\n  a  table\n  b  kept\n\nLast - one.",
		Example: "  tool look --all x\n  tool look y",
		RunE:    func(*cobra.Command, []string) error { return nil },
	}
	cmd.Flags().Bool("all", false, "everything | and <more>")
	root.AddCommand(cmd, &cobra.Command{Use: "hidden", Hidden: true, RunE: cmd.RunE})
	return root
}

func TestManPage(t *testing.T) {
	pages := Commands(command())
	require.Len(t, pages, 2, "a hidden command has no page")
	require.Equal(t, "tool-look.1", ManName(pages[1]))
	page := string(Man(pages[1]))
	for _, want := range []string{
		".TH \"TOOL-LOOK\" 1", "tool\\-look \\- look at it\n", "\n\\&.with a dot and a \\e in it.\n",
		".nf\n  a  table\n  b  kept\n.fi\n", "Last \\- one.\n", "\\fB\\-\\-all\\fP\n", "\\fB\\-c\\fP, \\fB\\-\\-color\\fP \\fIWHEN\\fP\nuse WHEN\\(aqs colours (default auto)\n",
		".B 130\ninterrupted\n", ".nf\ntool look \\-\\-all x\ntool look y\n.fi\n",
	} {
		require.Contains(t, page, want)
	}
}

// TestTroffTakesThePages asks our own reader and, where there is one, groff as well.
func TestTroffTakesThePages(t *testing.T) {
	groff, err := exec.LookPath("groff")
	for _, cmd := range Commands(command()) {
		page := Man(cmd)
		require.Empty(t, lintRoff(string(page)), cmd.CommandPath())
		if err != nil {
			continue
		}
		run := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z")
		run.Stdin = bytes.NewReader(page)
		out, err := run.CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(out), "warnings of %s", cmd.CommandPath())
	}
}

func TestReference(t *testing.T) {
	cmd := Commands(command())[1]
	got := string(Reference(cmd, []Member{{Path: "a[].b", Type: "integer", Optional: true}}, func(Member) string { return "the\nmeaning" }))
	require.Contains(t, got, "Also called `see`.")
	require.Contains(t, got, "| `--all` | everything \\| and &lt;more> |\n")
	require.Contains(t, got, "| `a[].b` | integer, may be absent | the meaning |\n")
	require.Contains(t, got, "| 130 | interrupted |\n")
}

type inner struct {
	N     int `json:"n"`
	Extra *int64
}

type Embedded struct {
	When time.Time `json:"when,omitzero"`
}

type document struct {
	Schema string `json:"schema"`
	*Embedded
	inner
	List   []inner          `json:"list"`
	Ptrs   []*inner         `json:"ptrs,omitempty"`
	Map    map[string]inner `json:"map"`
	Counts map[string]int   `json:"counts"`
	Data   []byte           `json:"data"`
	Names  []string         `json:"names"`
	Hidden int              `json:"-"`
	Ratio  float64          `json:"ratio"`
	Yes    bool             `json:"yes"`
	Groups map[string][]int `json:"groups"`
}

func TestSchema(t *testing.T) {
	var got []string
	for _, m := range Schema(document{}) {
		got = append(got, m.String())
	}
	require.Equal(t, []string{
		"schema string", "when time optional", "n integer", "Extra integer optional",
		"list array", "list[].n integer", "list[].Extra integer optional",
		"ptrs array optional", "ptrs[].n integer", "ptrs[].Extra integer optional",
		"map object", "map{}.n integer", "map{}.Extra integer optional",
		"counts object", "counts{} integer", "data base64", "names array", "names[] string", "ratio number", "yes boolean",
		"groups object", "groups{} array", "groups{}[] integer",
	}, got)
}
