package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/manual"
	"github.com/tidemark/tidemark/internal/testdata"
)

// rewriting is go test's -rewrite, a flag of package datadriven: what the commands
// print now is written into pages, transcripts and schemas.
func rewriting() bool { return flag.Lookup("rewrite").Value.String() == "true" }

// documents are the JSON documents of the commands.
var documents = map[string]any{
	"ls":       lsOutput{},
	"inspect":  inspectOutput{},
	"files":    filesOutput{},
	"du":       duOutput{},
	"latest":   latestOutput{},
	"verify":   verifyOutput{},
	"cat":      catOutput{},
	"dump":     dumpOutput{},
	"states":   statesOutput{},
	"compat":   compatOutput{},
	"diff":     diffOutput{},
	"stats":    statsOutput{},
	"get":      getOutput{},
	"timers":   timersOutput{},
	"channels": channelsOutput{},
	"sources":  sourcesOutput{},
	"create":   createOutput{},
	"copy":     copyOutput{},
	"convert":  convertOutput{},
	"query":    queryOutput{},
}

// withoutDocument are the commands that print no data about snapshots.
var withoutDocument = []string{"stateutil", "completion", "man", "read", "describe"} // read prints rows, see docs/format/rows.md

func pageOf(t *testing.T, cmd *cobra.Command) string {
	return filepath.Join(testdata.Repo(t), "docs", "commands", cmd.Name()+".md")
}

// TestEveryCommandIsDocumented holds that each command has a page, whose
// reference lists each of its flags and each member of its JSON and is current.
func TestEveryCommandIsDocumented(t *testing.T) {
	root := newRoot(&global{env: Env{}})
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	comment := commentsOf(t, "cmd/stateutil/internal/cli", "snapshot", "metadata")
	pages := map[string]bool{"README.md": true, "settings.md": true}
	for _, cmd := range manual.Commands(root) {
		t.Run(cmd.Name(), func(t *testing.T) {
			cmd.InitDefaultHelpFlag()
			pages[cmd.Name()+".md"] = true
			var schema []manual.Member
			if doc, ok := documents[cmd.Name()]; ok {
				schema = manual.Schema(doc)
				for _, m := range schema {
					require.NotEmpty(t, comment(m), "%s: %s.%s has no comment that could explain %s", cmd.Name(), m.Struct, m.Field, m.Path)
				}
			} else {
				require.Contains(t, withoutDocument, cmd.Name(), "a command prints JSON, or is excused")
			}
			want := "<!-- reference: made from the command, by go test ./cmd/stateutil/internal/cli -rewrite -->\n\n## Reference\n\n" +
				string(manual.Reference(cmd, schema, comment))
			name := pageOf(t, cmd)
			page, err := os.ReadFile(name)
			require.NoError(t, err, "each command has a page")
			hand, _, _ := strings.Cut(string(page), "<!-- reference:")
			if got := hand + want; got != string(page) {
				if !rewriting() {
					require.Equal(t, got, string(page), "the reference of %s is old: go test ./cmd/stateutil/internal/cli -rewrite", name)
				}
				require.NoError(t, os.WriteFile(name, []byte(got), 0o666))
			}
			require.Contains(t, hand, "```console\n$ stateutil ", "%s shows an example with its real output", name)
			require.NotEmpty(t, cmd.Example)
			cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
				require.NotEmpty(t, f.Usage, "--%s says what it does", f.Name)
			})
			require.Contains(t, cmd.UsageString(), "130  interrupted", "help lists the exit codes")
		})
	}
	entries, err := os.ReadDir(filepath.Join(testdata.Repo(t), "docs", "commands"))
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, pages[e.Name()], "docs/commands/%s is no command's page", e.Name())
	}
}

// TestManPagesAreCurrent holds that docs/man is what stateutil man writes.
func TestManPagesAreCurrent(t *testing.T) {
	made := t.TempDir()
	committed := filepath.Join(testdata.Repo(t), "docs", "man")
	if rewriting() {
		require.NoError(t, os.RemoveAll(committed))
		made = committed
	}
	require.Equal(t, exit.Done, Run(t.Context(), []string{"man", made}, Env{Out: &bytes.Buffer{}, Err: os.Stderr, Now: time.Now}))
	want, err := os.ReadDir(made)
	require.NoError(t, err)
	got, err := os.ReadDir(committed)
	require.NoError(t, err)
	require.Equal(t, names(want), names(got), "pages in docs/man")
	for _, e := range want {
		a, err := os.ReadFile(filepath.Join(made, e.Name()))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(committed, e.Name()))
		require.NoError(t, err)
		require.Equal(t, string(a), string(b), "%s is old: go test ./cmd/stateutil/internal/cli -rewrite", e.Name())
	}
}

func names(entries []os.DirEntry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestSchemasOnlyGrow holds that no member of a JSON document ever goes, moves or
// changes its type. -rewrite adds members and removes none.
func TestSchemasOnlyGrow(t *testing.T) {
	for command, doc := range documents {
		t.Run(command, func(t *testing.T) {
			name := filepath.Join("testdata", "schema", command+".txt")
			b, err := os.ReadFile(name)
			if !rewriting() {
				require.NoError(t, err)
			}
			pinned := strings.Fields(strings.ReplaceAll(string(b), " ", "\x00"))
			var now []string
			for _, m := range manual.Schema(doc) {
				now = append(now, m.String())
			}
			for _, line := range pinned {
				line = strings.ReplaceAll(line, "\x00", " ")
				// What was always there may not become optional; the reverse is growth.
				if must, ok := strings.CutSuffix(line, " optional"); ok && slices.Contains(now, must) {
					continue
				}
				require.Contains(t, now, line, "the schema of %s only grows", command)
			}
			if text := strings.Join(now, "\n") + "\n"; text != string(b) {
				if !rewriting() {
					require.Equal(t, text, string(b), "pin the new members: go test ./cmd/stateutil/internal/cli -rewrite")
				}
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
				require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
			}
		})
	}
}

// commentsOf reads the comments of struct fields from the sources of packages.
func commentsOf(t *testing.T, dirs ...string) func(manual.Member) string {
	found := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(testdata.Repo(t), dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			require.NoError(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				st, ok := spec.Type.(*ast.StructType)
				if !ok {
					return true
				}
				for i, field := range st.Fields.List {
					text := field.Doc.Text()
					if text == "" {
						text = field.Comment.Text()
					}
					for _, id := range field.Names {
						found[f.Name.Name+"."+spec.Name.Name+"."+id.Name] = text
					}
					_ = i
				}
				return true
			})
		}
	}
	return func(m manual.Member) string {
		text := found[m.Struct+"."+m.Field]
		if text == "" {
			// A field whose name says it needs no comment: say the name in words.
			text = words(m.Field)
		}
		return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
	}
}

var capital = regexp.MustCompile(`([a-z])([A-Z])`)

func words(field string) string {
	return strings.ToLower(capital.ReplaceAllString(field, "$1 $2"))
}

// fixedNow and fixedTime are the clock of examples and the time at which the
// goldens in them were written: a checkout gives files times of its own.
var (
	fixedNow  = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	fixedTime = fixedNow.Add(-2 * time.Minute)
)

// exampleFolder is a folder in which the committed goldens lie as in the
// checkout, at a fixed time; chk-N are five minutes apart.
func exampleFolder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	from := filepath.Join(testdata.Repo(t), "testdata", "goldens")
	to := filepath.Join(dir, "testdata", "goldens")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	require.NoError(t, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := fixedTime
		if n := chkNumber.FindStringSubmatch(filepath.ToSlash(path)); n != nil {
			var id int
			fmt.Sscan(n[1], &id)
			at = fixedTime.Add(time.Duration(id-10) * 5 * time.Minute)
		}
		return os.Chtimes(path, at, at)
	}))
	return dir
}

var chkNumber = regexp.MustCompile(`/chk-(\d+)/`)

// runExample runs a command line as a shell without quoting would, in-process in
// folder dir, and returns what a person sees: messages, then output, then an exit
// code that is not 0. The folder is shown as /tidemark.
func runExample(dir, line string) string {
	var out, errs bytes.Buffer
	env := Env{Out: &out, Err: &errs, Now: func() time.Time { return fixedNow }, Environ: []string{"XDG_CONFIG_HOME=/nonexistent", "HOME=/nonexistent"}}
	code := Run(context.Background(), shellWords(line)[1:], env)
	s := errs.String() + out.String()
	if code != exit.Done {
		s += fmt.Sprintf("exit code %d\n", code)
	}
	return strings.ReplaceAll(s, filepath.ToSlash(dir), "/tidemark")
}

// shellWords splits a command line as a shell does: quotes of both kinds, and
// backslashes in double ones.
func shellWords(line string) []string {
	var words []string
	var w strings.Builder
	in, some := byte(0), false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case in == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if some {
				words = append(words, w.String())
			}
			w.Reset()
			some = false
		case in == 0 && (c == '\'' || c == '"'):
			in, some = c, true
		case in != 0 && c == in:
			in = 0
		case in == '"' && c == '\\' && i+1 < len(line):
			i++
			w.WriteByte(line[i])
		default:
			w.WriteByte(c)
			some = true
		}
	}
	if some {
		words = append(words, w.String())
	}
	return words
}

// TestExamplesInPagesAreTrue runs every command line in a console block of
// docs/commands and compares what follows it. A line "…" stands for left-out
// lines.
func TestExamplesInPagesAreTrue(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(testdata.Repo(t), "docs", "commands", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	dir := exampleFolder(t)
	t.Chdir(dir)
	ran := 0
	for _, name := range pages {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var out strings.Builder
		rest := string(b)
		for {
			i := strings.Index(rest, "```console\n")
			if i < 0 {
				break
			}
			i += len("```console\n")
			block, after, ok := strings.Cut(rest[i:], "```\n")
			require.True(t, ok, "%s: a console block without end", name)
			out.WriteString(rest[:i])
			for j, part := range strings.Split("\n"+block, "\n$ ") {
				if j == 0 {
					require.Empty(t, strings.TrimSpace(part), "%s: a console block begins with a command", name)
					continue
				}
				line, shown, _ := strings.Cut(part, "\n")
				if !strings.HasSuffix(shown, "\n") && shown != "" {
					shown += "\n"
				}
				got := shown
				if strings.HasPrefix(line, "stateutil ") {
					ran++
					if now := runExample(dir, line); !rewriting() {
						require.Regexp(t, pattern(shown), now, "%s: $ %s", name, line)
					} else if ok, _ := regexp.MatchString(pattern(shown), now); !ok || !strings.Contains(shown, "…\n") {
						got = now
					}
				}
				out.WriteString("$ " + line + "\n" + got)
			}
			out.WriteString("```\n")
			rest = after
		}
		out.WriteString(rest)
		if rewriting() && out.String() != string(b) {
			require.NoError(t, os.WriteFile(name, []byte(out.String()), 0o666))
		}
	}
	require.Greater(t, ran, 10, "examples that ran")
}

// pattern matches output in which a line "…" stands for any lines.
func pattern(shown string) string {
	parts := strings.Split(shown, "…\n")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return `(?s)\A` + strings.Join(parts, `.*`) + `\z`
}
