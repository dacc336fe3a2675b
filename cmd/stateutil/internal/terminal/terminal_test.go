package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
)

func threeColumns() []Column {
	return []Column{
		{Title: "JOB", Cut: Middle, Min: 7},
		{Title: "SIZE", Right: true},
		{Title: "REASON", Cut: End, Min: 10},
	}
}

func render(t *testing.T, screen Screen, rows ...[]Cell) string {
	var b bytes.Buffer
	table := NewTable(&b, screen, threeColumns()...)
	for _, r := range rows {
		require.NoError(t, table.Row(r...))
	}
	require.NoError(t, table.Flush())
	return b.String()
}

func TestTableWithoutTerminalPrintsEverything(t *testing.T) {
	long := strings.Repeat("a", 300)
	require.Equal(t, "JOB"+strings.Repeat(" ", 297)+"  SIZE  REASON\n"+long+"   1 B  because\nb"+strings.Repeat(" ", 299)+"  10 B\n",
		render(t, Screen{}, C(long, "1 B", "because"), C("b", "10 B", "")))
}

func TestTableFitsTheScreen(t *testing.T) {
	got := render(t, Screen{Width: 40},
		C("7245eaee7a8e23a71d677622f9a73deb", "118 MiB", "no: 3 files are missing and more"),
		C("漢字漢字漢字漢字漢字漢字漢字漢字", "1 B", "日本語の理由が長い長い長い長い"))
	for line := range strings.Lines(got) {
		require.LessOrEqual(t, text.StringWidth(strings.TrimRight(line, "\n")), 40, line)
	}
	lines := strings.SplitAfter(got, "\n")
	require.Equal(t, "JOB                SIZE  REASON\n7245ea…9a73deb  118 MiB  no: 3 files ar…\n",
		lines[0]+lines[1], "IDs are cut in the middle, text at its end")
}

func TestTableLeavesOutColumnsThatSayNothing(t *testing.T) {
	lines := func(width int, middle ...string) []string {
		var b bytes.Buffer
		table := NewTable(&b, Screen{Width: width}, Column{Title: "NAME", Cut: End, Min: 4}, Column{Title: "CHANNEL", Right: true, Dull: "0 B"}, Column{Title: "KIND"})
		for _, m := range middle {
			require.NoError(t, table.Row(C("a-long-name", m, "kind")...))
		}
		require.NoError(t, table.Flush())
		return strings.Split(b.String(), "\n")
	}
	require.Equal(t, "a-long-name      0 B  kind", lines(40, "0 B")[1], "there is room")
	require.Equal(t, "a-long-name  kind", lines(20, "0 B", "0 B")[1])
	require.Equal(t, "a-lon…      0 B  kind", lines(21, "0 B", "1 B")[1], "one row says something")
	require.Equal(t, "a-long-name      0 B  kind", lines(0, "0 B")[1], "elsewhere columns are always there")
}

func TestTableStreamsAfterItsLayout(t *testing.T) {
	var b bytes.Buffer
	table := NewTable(&b, Screen{Width: 30}, threeColumns()...)
	for i := range layoutRows {
		require.NoError(t, table.Row(C(fmt.Sprint("job", i), "1 B", "x")...))
	}
	require.NotZero(t, b.Len(), "the first rows are out")
	require.NoError(t, table.Row(C(strings.Repeat("j", 40), "1 B", "y")...))
	require.NoError(t, table.Flush())
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, layoutRows+2)
	require.Contains(t, lines[len(lines)-1], "…", "a late wide cell is cut")
	require.Len(t, table.rows, 0)
}

func TestCutKeepsWholeCharacters(t *testing.T) {
	for _, s := range []string{"abcdefghij", "漢字漢字漢字", "e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301", "a漢b字c漢d字"} {
		for w := 1; w <= 12; w++ {
			for _, how := range []Cut{Middle, End} {
				got := s
				if text.StringWidth(s) > w {
					got = cut(s, w, how)
				}
				require.LessOrEqual(t, text.StringWidth(got), w, "%q to %d: %q", s, w, got)
				require.True(t, strings.ToValidUTF8(got, "") == got)
			}
		}
	}
	require.Equal(t, "7f…a1", Shorten("7f3c99a1", 5))
	require.Equal(t, "7f3c", Shorten("7f3c", 5))
}

func TestCleanLetsNothingControlTheTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain name":        "plain name",
		"a\x1b[31mred":      `a\x1b[31mred`,
		"two\nlines":        `two\nlines`,
		"tab\there":         `tab\there`,
		"漢字 é 😀":            "漢字 é 😀",
		"\u202eevil":        `\u202eevil`,
		"bad\xff":           `bad\xff`,
		"e\u0301":           "e\u0301",
		"\u009b31m":         `\u009b31m`,
		"lone \xed\xa0\x80": `lone \xed\xa0\x80`,
	} {
		require.Equal(t, want, Clean(in))
	}
	require.Equal(t, "a; b; c", OneLine("a\n\n b \r\nc"))
}

func TestSizesCountsAndAges(t *testing.T) {
	require.Equal(t, "118 MiB", Bytes(118<<20))
	require.Equal(t, "1.3 GiB", Bytes(1300<<20))
	require.Equal(t, "0 B", Bytes(0))
	require.Equal(t, "?", Bytes(-1))
	require.Equal(t, "41,020,113", Count(41020113))
	require.Equal(t, "1 file", Plural(1, "file", "files"))
	require.Equal(t, "1,221 files", Plural(1221, "file", "files"))
	require.Equal(t, "a, b and 2 more", Joined([]string{"a", "b", "c", "d"}, 2))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		-time.Hour: "0s", 59 * time.Second: "59s", 2 * time.Minute: "2m", 47 * time.Hour: "47h",
		49 * time.Hour: "2d", 41 * 24 * time.Hour: "41d", 3 * 365 * 24 * time.Hour: "3y",
	} {
		require.Equal(t, want, Age(now, now.Add(-age)))
	}
	require.Equal(t, "-", Age(now, time.Time{}))
}

func TestColorsFollowTheRules(t *testing.T) {
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	var b bytes.Buffer
	require.False(t, ScreenOf(&b, ColorAuto, env()).Color, "not a terminal")
	require.True(t, ScreenOf(&b, ColorAlways, env("NO_COLOR", "1")).Color, "asked for by a flag")
	require.False(t, ScreenOf(&b, ColorNever, env()).Color)
	require.Zero(t, ScreenOf(&b, ColorAuto, env("COLUMNS", "20")).Width, "COLUMNS is about terminals")
	require.Equal(t, "\x1b[32myes\x1b[0m", Screen{Color: true}.Paint(Good, "yes"))
	require.Equal(t, "yes", Screen{}.Paint(Good, "yes"))
}

func TestColorsDoNotDisturbTheAlignment(t *testing.T) {
	plain := render(t, Screen{Width: 60}, []Cell{{Text: "a", Style: Bad}, {Text: "1 B"}, {Text: "x", Style: Good}}, C("bbbb", "22 B", "y"))
	painted := render(t, Screen{Width: 60, Color: true}, []Cell{{Text: "a", Style: Bad}, {Text: "1 B"}, {Text: "x", Style: Good}}, C("bbbb", "22 B", "y"))
	for _, code := range sgr[1:] {
		painted = strings.ReplaceAll(painted, "\x1b["+code+"m", "")
	}
	require.Equal(t, plain, strings.ReplaceAll(painted, "\x1b[0m", ""))
}

func TestDocumentIsOneJSONObject(t *testing.T) {
	var b bytes.Buffer
	d := NewDocument(&b, "stateutil.test/1")
	d.Array("empty")
	d.Array("rows")
	require.NoError(t, d.Element(map[string]int{"a": 1}))
	require.NoError(t, d.Element("x<y>\n"))
	d.Members(struct {
		N int      `json:"n"`
		L []string `json:"l,omitempty"`
	}{N: 3})
	d.Base64("bytes", strings.NewReader("hello"))
	require.NoError(t, d.Close())
	var got map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Equal(t, map[string]any{
		"schema": "stateutil.test/1", "empty": []any{}, "n": 3.0, "bytes": "aGVsbG8=",
		"rows": []any{map[string]any{"a": 1.0}, "x<y>\n"},
	}, got)
	require.Equal(t, 2, strings.Count(b.String(), "\n    "), "an element a line")
}

func TestDocumentReportsTheWriter(t *testing.T) {
	d := NewDocument(failing{}, "s")
	d.Array("rows")
	var err error
	for range 10000 {
		if err = d.Element("0123456789"); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.ErrorIs(t, d.Close(), io.ErrClosedPipe)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestProgressShowsNothingOfShortWork(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b)
	p.Update(func() string { return "never made" })
	p.Stop()
	p.Stop()
	require.Zero(t, b.Len())
	var none *Progress
	none.Update(nil)
	none.Stop()
}

// BenchmarkTable prints rows as files does, 8 cells of ASCII each.
func BenchmarkTable(b *testing.B) {
	row := C("shared", "2.4 MiB", "1", "893f647bbeb32875b470d937d8c762bf", "17", "keyed shared", "000037.sst",
		"s3://bucket/checkpoints/7245eaee7a8e23a71d677622f9a73deb/shared/007b1a81-7055-4636-b0d6-84be2a8c7e87")
	cols := make([]Column, len(row))
	cols[7].Cut = Middle
	b.ReportAllocs()
	table := NewTable(io.Discard, Screen{Width: 120}, cols...)
	for b.Loop() {
		if err := table.Row(row...); err != nil {
			b.Fatal(err)
		}
	}
}
