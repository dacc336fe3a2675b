package settings

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

type values struct {
	color   string
	trust   []string
	rps     float64
	timeout time.Duration
	quiet   bool
}

func flagSet() (*pflag.FlagSet, *values) {
	v := &values{}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.StringVar(&v.color, "color", "auto", "")
	f.StringArrayVar(&v.trust, "trust", nil, "")
	f.Float64Var(&v.rps, "max-rps", 0, "")
	f.DurationVar(&v.timeout, "timeout", time.Minute, "")
	f.BoolVar(&v.quiet, "quiet", false, "")
	f.String("config", "", "")
	return f, v
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFlagBeatsEnvironmentBeatsFile(t *testing.T) {
	file := write(t, "stateutil.yaml", `
color: never
max-rps: 10
timeout: 5s
trust: [s3://a/, s3://b/]
url: s3://configured/
store:
  s3.endpoint: http://localhost:9000
  s3:
    access-key: fromfile
`)
	f, v := flagSet()
	require.NoError(t, f.Parse([]string{"--timeout", "7s"}))
	got, err := Apply(f, Sources{File: file, Environ: []string{"STATEUTIL_MAX_RPS=20", "STATEUTIL_TIMEOUT=6s", "STATEUTIL_QUIET=true", "STATEUTIL_NOBODY=1", "COLOR=x"}})
	require.NoError(t, err)
	require.Equal(t, &values{color: "never", trust: []string{"s3://a/", "s3://b/"}, rps: 20, timeout: 7 * time.Second, quiet: true}, v)
	require.Equal(t, &Loaded{
		URLs: []string{"s3://configured/"}, File: file,
		Store: map[string]string{"s3.endpoint": "http://localhost:9000", "s3.access-key": "fromfile"},
	}, got)
}

func TestEnvironmentSplitsListsAtCommas(t *testing.T) {
	f, v := flagSet()
	got, err := Apply(f, Sources{File: write(t, "c.yaml", "trust: s3://file/\n"), Environ: []string{"STATEUTIL_TRUST=s3://a/, s3://b/", "STATEUTIL_URL=/x,/y"}})
	require.NoError(t, err)
	require.Equal(t, []string{"s3://a/", "s3://b/"}, v.trust)
	require.Equal(t, []string{"/x", "/y"}, got.URLs)
}

func TestOneValueServesAsList(t *testing.T) {
	f, v := flagSet()
	got, err := Apply(f, Sources{Environ: []string{"STATEUTIL_CONFIG=" + write(t, "c.yaml", "trust: s3://file/\nurl: /x\n")}})
	require.NoError(t, err)
	require.Equal(t, []string{"s3://file/"}, v.trust)
	require.Equal(t, []string{"/x"}, got.URLs)
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		environ    []string
	}{
		"unknown":            {text: "colour: never\n", want: `unknown setting "colour"`},
		"unknown nested":     {text: "color:\n  when: never\n", want: `unknown setting "color.when"`},
		"a flag's type":      {text: "max-rps: fast\n", want: `setting max-rps: "fast"`},
		"not YAML":           {text: "a: b: c\n", want: "configuration file"},
		"in the environment": {environ: []string{"STATEUTIL_TIMEOUT=soon"}, want: `setting timeout: "soon"`},
		"config in config":   {text: "config: other.yaml\n", want: `unknown setting "config"`},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := flagSet()
			_, err := Apply(f, Sources{File: write(t, "c.yaml", c.text), Environ: c.environ})
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestANamedFileMustBeThereTheDefaultOneNeedNot(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	f, _ := flagSet()
	_, err := Apply(f, Sources{})
	require.NoError(t, err)
	_, err = Apply(f, Sources{File: filepath.Join(t.TempDir(), "none.yaml")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestParseErrorsShowNoValues(t *testing.T) {
	for _, text := range []string{"s3.secret-key hunter2-hunter2\n", "[hunter2-hunter2]\n", "store: {s3.secret-key: hunter2-hunter2\n"} {
		f, _ := flagSet()
		_, err := Apply(f, Sources{File: write(t, "c.yaml", text)})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestFlinkConf(t *testing.T) {
	nested := `
state:
  checkpoints:
    dir: s3://old/checkpoints
  savepoints.dir: s3://bucket/savepoints
execution.checkpointing:
  dir: s3://bucket/checkpoints
s3:
  access-key: AKIA
  path.style.access: true
flink.hadoop.dfs.nameservices: ns1
some.list: [a, b]
`
	legacy := `# comment
state.checkpoints.dir: hdfs://nn:8020/flink/checkpoints   # where
state.backend.fs.checkpointdir: ignored
s3.secret-key:nospace
fs.azure.account.key.acct.blob.core.windows.net: abc==
broken line
empty:
`
	t.Run("config.yaml", func(t *testing.T) {
		c, err := ReadFlinkConf(write(t, "config.yaml", nested))
		require.NoError(t, err)
		require.Equal(t, []string{"s3://bucket/checkpoints", "s3://bucket/savepoints"}, c.URLs())
		require.Equal(t, "AKIA", c.Store["s3.access-key"])
		require.Equal(t, "true", c.Store["s3.path.style.access"])
		require.Equal(t, "ns1", c.Store["dfs.nameservices"])
		require.Equal(t, "a;b", c.Store["some.list"])
	})
	t.Run("flink-conf.yaml", func(t *testing.T) {
		c, err := ReadFlinkConf(write(t, "flink-conf.yaml", legacy))
		require.NoError(t, err)
		require.Equal(t, []string{"hdfs://nn:8020/flink/checkpoints"}, c.URLs())
		require.Equal(t, "abc==", c.Store["fs.azure.account.key.acct.blob.core.windows.net"])
		require.NotContains(t, c.Store, "s3.secret-key", "Flink wants a space after the colon")
		require.NotContains(t, c.Store, "empty")
	})
	t.Run("folder prefers flink-conf.yaml", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(nested), 0o600))
		c, err := ReadFlinkConf(dir)
		require.NoError(t, err)
		require.Equal(t, "s3://bucket/checkpoints", c.CheckpointDir)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "flink-conf.yaml"), []byte(legacy), 0o600))
		c, err = ReadFlinkConf(dir)
		require.NoError(t, err)
		require.Equal(t, "hdfs://nn:8020/flink/checkpoints", c.CheckpointDir)
	})
	t.Run("absent", func(t *testing.T) {
		_, err := ReadFlinkConf(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}
