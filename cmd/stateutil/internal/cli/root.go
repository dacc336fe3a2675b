package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/settings"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/terminal"
)

// global is the state of one run: the global flags and what they open.
type global struct {
	env Env

	json       bool
	bytes      bool
	color      string
	quiet      bool
	noProgress bool
	logLevel   string

	noRelocate bool
	relocate   []string
	trust      []string
	uidFile    string
	uids       []string

	maxRPS  float64
	retries int
	timeout time.Duration

	config    string
	flinkConf string

	loaded *settings.Loaded
	flink  *settings.FlinkConf
	store  map[string]string // driver settings, secret
	screen terminal.Screen
	log    *slog.Logger
	pool   *blobstore.Pool
}

// Groups of the root's help.
const (
	groupLook  = "look"
	groupRead  = "read"
	groupCheck = "check"
	groupMake  = "make"
	groupShell = "shell"
)

func newRoot(g *global) *cobra.Command {
	root := &cobra.Command{
		Use:   "stateutil",
		Short: "Look into Flink checkpoints and savepoints, wherever they lie",
		Long: `stateutil opens the checkpoints and savepoints of Apache Flink and says what is
in them, without a JVM, a cluster or the job's classes.

A URL names a _metadata file, a checkpoint or savepoint folder, the folder of a
job or a folder above many jobs: a plain path, file:, s3:// (also s3a, s3p, s3n),
gs://, azblob:// (also abfs, abfss, wasb, wasbs), hdfs:// or webhdfs://.`,
		Example: `  stateutil ls s3://bucket/checkpoints
  stateutil inspect s3://bucket/checkpoints/7f3c…a1/chk-8841
  stateutil verify --all /data/flink/savepoints`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, a []string) error {
			if len(a) > 0 {
				return usage("unknown command %q%s: see stateutil --help", a[0], suggest(cmd, a[0]))
			}
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := noNegative(cmd.Flags()); err != nil {
				return err
			}
			return g.setup(cmd)
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w: see %s --help", err, cmd.CommandPath())
	})
	root.SetUsageTemplate(usageTemplate())
	root.SetHelpTemplate(helpTemplate)
	root.Version = version()
	root.SetVersionTemplate("stateutil {{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Looking:"},
		&cobra.Group{ID: groupRead, Title: "Reading state:"},
		&cobra.Group{ID: groupCheck, Title: "Checking:"},
		&cobra.Group{ID: groupMake, Title: "Making and changing:"},
		&cobra.Group{ID: groupShell, Title: "Setting up:"},
	)
	g.flags(root.PersistentFlags())
	for flag, values := range map[string][]string{
		"color":     {"auto", "always", "never"},
		"log-level": {"debug", "info", "warn", "error"},
	} {
		must(root.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)))
	}
	for _, flag := range []string{"uid", "max-rps", "retries", "timeout"} {
		must(root.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions))
	}
	for _, flag := range []string{"map", "trust"} {
		must(root.RegisterFlagCompletionFunc(flag, g.completeURL))
	}
	root.Flags().SortFlags = false
	root.SuggestionsMinimumDistance = 2
	for _, add := range commands {
		cmd := add(g)
		cmd.Flags().SortFlags = false
		cmd.PersistentFlags().SortFlags = false
		root.AddCommand(cmd)
	}
	return root
}

// commands makes each command; a command's file adds itself here by name.
var commands = []func(*global) *cobra.Command{
	newLs, newInspect, newStates, newStats, newDiff, newRead, newGet, newTimers, newChannels, newSources, newQuery, newDescribe, newFiles, newDu, newLatest, newVerify, newCompat, newCat, newDump, newCreate, newCopy, newConvert, newCompletion, newMan,
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (g *global) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.BoolVar(&g.json, "json", false, "print JSON instead of a table; its schema is documented and only grows")
	f.BoolVar(&g.bytes, "bytes", false, "print sizes as exact numbers of bytes")
	f.StringVar(&g.color, "color", "auto", "use colours: `WHEN` is auto, always or never; NO_COLOR is honoured")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print no notes, only data and errors")
	f.BoolVar(&g.noProgress, "no-progress", false, "show no progress on long work")
	f.StringVar(&g.logLevel, "log-level", "warn", "log to standard error from this `LEVEL` up: debug, info, warn, error")

	f.BoolVar(&g.noRelocate, "no-relocate", false, "do not look for files of a moved snapshot at its new place")
	f.StringArrayVar(&g.relocate, "map", nil, "read `OLD=NEW` URL prefix instead of the old one, as often as needed")
	f.StringArrayVar(&g.trust, "trust", nil, "follow handles that lead out of the snapshot's store to URLs below `PREFIX`")
	f.StringVar(&g.uidFile, "uids", "", "show operators by name: `FILE` has a uid, or name=ID, on each line")
	f.StringArrayVar(&g.uids, "uid", nil, "show the operator with this `UID` by name; name=ID gives a name to an ID")

	f.Float64Var(&g.maxRPS, "max-rps", 0, "limit requests to a store to `N` a second; 0 is no limit")
	f.IntVar(&g.retries, "retries", 5, "try a failed store call again up to `N` times")
	f.DurationVar(&g.timeout, "timeout", time.Minute, "give up a store call, with all its retries, after this `TIME`")

	f.StringVar(&g.config, "config", "", "read settings from `FILE` (default stateutil/stateutil.yaml in the user's configuration folder)")
	f.StringVar(&g.flinkConf, "flink-conf", "", "take directories and credentials from Flink's config.yaml or flink-conf.yaml at `PATH`")
}

// setup reads the settings and checks them, once the flags are parsed.
func (g *global) setup(cmd *cobra.Command) error {
	loaded, err := settings.Apply(cmd.Flags(), settings.Sources{File: g.config, Environ: g.env.Environ})
	if err != nil {
		return settingsError(err)
	}
	if loaded.Denied != nil {
		g.note("%v: goes on without it", loaded.Denied)
	}
	g.loaded, g.store = loaded, map[string]string{}
	if g.flinkConf != "" {
		if g.flink, err = settings.ReadFlinkConf(g.flinkConf); err != nil {
			return settingsError(err)
		}
		for k, v := range g.flink.Store {
			g.store[k] = v
		}
	}
	for k, v := range loaded.Store {
		g.store[k] = v
	}
	switch mode := terminal.ColorMode(g.color); mode {
	case terminal.ColorAuto, terminal.ColorAlways, terminal.ColorNever:
		g.screen = terminal.ScreenOf(g.env.Out, mode, g.getenv)
	default:
		return usage("--color is %q: auto, always or never", g.color)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(g.logLevel)); err != nil {
		return usage("--log-level is %q: debug, info, warn or error", g.logLevel)
	}
	g.log = slog.New(slog.NewTextHandler(g.env.Err, &slog.HandlerOptions{Level: level}))
	switch {
	case g.retries < 0:
		return usage("--retries is %d: 0 or more", g.retries)
	case g.timeout <= 0:
		return usage("--timeout is %s: more than 0", g.timeout)
	case g.maxRPS < 0:
		return usage("--max-rps is %g: 0 or more", g.maxRPS)
	}
	return nil
}

// settingsError is bad usage, unless a file may not be read.
func settingsError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return exit.With(exit.AccessDenied, err)
	}
	return exit.With(exit.Usage, err)
}

func (g *global) debugging() bool { return g.logLevel == "debug" }

// urls is what a command works on: its arguments, or else the configured URLs,
// or else the directories of the Flink configuration.
func (g *global) urls(args []string) ([]string, error) {
	switch {
	case len(args) > 0:
		return args, nil
	case len(g.loaded.URLs) > 0:
		return g.loaded.URLs, nil
	case g.flink != nil && len(g.flink.URLs()) > 0:
		return g.flink.URLs(), nil
	case g.flink != nil:
		return nil, usage("no URL given, and %s has neither execution.checkpointing.dir nor state.checkpoints.dir", g.flink.File)
	}
	return nil, usage("no URL given, and neither a configuration nor --flink-conf names one")
}

// url is urls for a command that works on one.
func (g *global) url(args []string) (string, error) {
	all, err := g.urls(args)
	if err != nil {
		return "", err
	}
	return all[0], nil
}

func (g *global) close() error {
	if g.pool == nil {
		return nil
	}
	err := g.pool.Close()
	g.pool = nil
	return err
}

func suggest(cmd *cobra.Command, arg string) string {
	if s := cmd.SuggestionsFor(arg); len(s) > 0 {
		return ", did you mean " + strings.Join(s, " or ") + "?"
	}
	return ""
}

// version is the module's version and the revision as the Go tool recorded them.
func version() string {
	v, rev := "(devel)", ""
	if bi, ok := debug.ReadBuildInfo(); ok {
		if bi.Main.Version != "" {
			v = bi.Main.Version
		}
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
				rev = ", " + s.Value[:12]
			}
		}
	}
	return fmt.Sprintf("%s (%s, %s/%s%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, rev)
}

// flagUsages lists flags as they were declared: what belongs together stands
// together.
func flagUsages(f *pflag.FlagSet) string {
	f.SortFlags = false
	return strings.TrimRight(f.FlagUsagesWrapped(100), "\n ")
}

func init() { cobra.AddTemplateFunc("flagUsages", flagUsages) }

func exitCodes() string {
	var b strings.Builder
	for _, m := range exit.Meanings {
		fmt.Fprintf(&b, "  %3d  %s\n", m.Code, m.Text)
	}
	return b.String()
}

const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{if or .Runnable .HasSubCommands}}{{.UsageString}}{{end}}`

// helpCommand is "stateutil help COMMAND", which people try before --help. It is not
// listed: the flag is the documented way.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Hidden: true,
		Args:   cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, a []string) error {
			cmd, rest, err := root.Find(a)
			if err != nil || len(rest) > 0 {
				return usage("unknown command %q%s: see stateutil --help", strings.Join(a, " "), suggest(root, a[0]))
			}
			cmd.InitDefaultHelpFlag()
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// noNegative refuses numbers below zero: none of the flags that count has a meaning
// for them, but for the length of cat.
func noNegative(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "float64", "duration":
			if v := f.Value.String(); strings.HasPrefix(v, "-") && f.Name != "length" && err == nil {
				err = usage("--%s is %s: it cannot be negative", f.Name, v)
			}
		}
	})
	return err
}

func usageTemplate() string {
	return `Usage:
{{- if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND [flags]
{{- else}}
  {{.UseLine}}
{{- end}}
{{- if .HasExample}}

Examples:
{{.Example}}
{{- end}}
{{- if .HasAvailableSubCommands}}{{$cmds := .Commands}}
{{- range $group := .Groups}}

{{.Title}}
{{- range $cmds}}{{if (and (eq .GroupID $group.ID) .IsAvailableCommand)}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{- end}}
{{- end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{flagUsages .LocalFlags}}
{{- end}}
{{- if .HasAvailableInheritedFlags}}

Global flags:
{{flagUsages .InheritedFlags}}
{{- end}}

Exit codes:
` + exitCodes() + `{{if .HasAvailableSubCommands}}
Use "{{.CommandPath}} COMMAND --help" for more about a command.
{{end}}`
}
