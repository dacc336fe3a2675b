package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/settings"
	"github.com/tidemark/tidemark/internal/testdata"
)

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("boom\nsecond line") }

func TestAPanicIsOneLine(t *testing.T) {
	var errs bytes.Buffer
	code := Run(t.Context(), []string{"completion", "bash"}, Env{Out: panicking{}, Err: &errs, Now: time.Now})
	require.Equal(t, exit.Failed, code)
	require.Equal(t, "stateutil: internal error: boom; second line: please report it with the command line and what stateutil --version prints\n", errs.String())
}

func TestACancelledRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	code := Run(ctx, []string{"ls", t.TempDir()}, Env{Out: &out, Err: &errs, Now: time.Now})
	require.Equal(t, exit.Interrupted, code)
	require.Equal(t, "stateutil: interrupted\n", errs.String())
}

func TestCredentialsNeverShow(t *testing.T) {
	g := &global{
		loaded: &settings.Loaded{},
		store:  map[string]string{"s3.secret-key": "hunter2hunter2", "s3.endpoint": "http://localhost:9000", "fs.azure.account.key.acct": "YWJjZA=="},
		env:    Env{Environ: []string{"AWS_SECRET_ACCESS_KEY=envsecret/envsecret", "HOME=/home/someone"}},
	}
	for in, want := range map[string]string{
		"plain": "plain",
		"get http://localhost:9000: key hunter2hunter2 refused": "get http://localhost:9000: key *** refused",
		"account key YWJjZA==":                                      "account key ***",
		"signed with envsecret/envsecret":                           "signed with ***",
		"open s3://user:pass@bucket/x: no":                          "open s3://***@bucket/x: no",
		"open abfss://container@account/x: no":                      "open abfss://container@account/x: no",
		"GET https://h/x?sv=1&sig=abc%2Bdef&se=2: 403":              "GET https://h/x?sv=1&sig=***&se=2: 403",
		"GET https://h/x?X-Amz-Signature=abc&X-Amz-Credential=AK/d": "GET https://h/x?X-Amz-Signature=***&X-Amz-Credential=***",
		"open /home/someone/x":                                      "open /home/someone/x",
	} {
		require.Equal(t, want, g.redact(in))
	}
}

func TestSettingsReachCommands(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(conf, []byte("execution.checkpointing.dir: s3://b/ckp\nstate.savepoints.dir: s3://b/sp\ns3.endpoint: http://flink\ns3.region: r1\n"), 0o600))
	own := filepath.Join(t.TempDir(), "own.yaml")
	require.NoError(t, os.WriteFile(own, []byte("store:\n  s3.endpoint: http://own\nretries: 2\n"), 0o600))
	setup := func(t *testing.T, environ []string, args ...string) *global {
		g := &global{env: Env{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Environ: environ, Now: time.Now}}
		root := newRoot(g)
		cmd, rest, err := root.Find(append([]string{"ls"}, args...))
		require.NoError(t, err)
		require.NoError(t, cmd.ParseFlags(rest))
		require.NoError(t, g.setup(cmd))
		return g
	}
	g := setup(t, []string{"STATEUTIL_RETRIES=3"}, "--flink-conf", conf, "--config", own)
	require.Equal(t, 3, g.retries)
	require.Equal(t, "http://own", g.store["s3.endpoint"], "our file beats Flink's")
	require.Equal(t, "r1", g.store["s3.region"])
	urls, err := g.urls(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"s3://b/ckp", "s3://b/sp"}, urls)
	urls, err = g.urls([]string{"/given"})
	require.NoError(t, err)
	require.Equal(t, []string{"/given"}, urls)

	g = setup(t, []string{"STATEUTIL_URL=/from/env", "STATEUTIL_FLINK_CONF=" + conf})
	urls, err = g.urls(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"/from/env"}, urls, "a named URL beats Flink's directories")

	g = setup(t, nil)
	_, err = g.urls(nil)
	require.Equal(t, exit.Usage, exit.Of(err))
}

func complete(t *testing.T, args ...string) []string {
	var out bytes.Buffer
	require.Equal(t, exit.Done, Run(t.Context(), append([]string{"__completeNoDesc"}, args...), Env{Out: &out, Err: &bytes.Buffer{}, Now: time.Now, Environ: []string{"HOME=/nonexistent"}}))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // the last is the directive
}

func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"chk-1", "chk-2", "shared", ".hidden"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o777))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chk-1", "_metadata"), nil, 0o666))

	require.Equal(t, []string{dir + "/chk-1/", dir + "/chk-2/"}, complete(t, "inspect", dir+"/chk"))
	require.Equal(t, []string{"file:" + dir + "/chk-1/_metadata"}, complete(t, "inspect", "file:"+dir+"/chk-1/"))
	require.Equal(t, []string{"/old=" + dir + "/shared/"}, complete(t, "inspect", "--map", "/old="+dir+"/sh"))
	require.ElementsMatch(t, []string{"always", "auto", "never"}, complete(t, "ls", "--color", ""))
	require.Contains(t, complete(t, "insp"), "inspect")
	require.Contains(t, complete(t, "inspect", "mem:"), "mem://")
	require.Empty(t, complete(t, "inspect", dir+"/nothing"))
	blobstore.Register(func(ctx context.Context, loc blobstore.Location, _ *blobstore.Options) (blobstore.Store, error) {
		s := blobstore.NewMem()
		w, err := s.Create(ctx, "ck/y", nil)
		if err != nil {
			return nil, err
		}
		return s, w.Commit()
	}, "completed")
	require.Equal(t, []string{"completed://b/ck/"}, complete(t, "inspect", "completed://b/c"))
	require.Equal(t, []string{"completed://b/ck/y"}, complete(t, "inspect", "completed://b/ck/"))
	require.Empty(t, complete(t, "inspect", "completed://b/ck?endpoint=http://h/"), "the slashes of parameters are none of a path")
	t.Chdir(dir)
	require.Equal(t, []string{"chk-1/", "chk-2/", "shared/"}, complete(t, "ls", ""))
}

// TestTruncationAtEveryByte cuts a small metadata file at each of its bytes: every
// command says in one line which file, byte and field it is, and ends with 3.
func TestTruncationAtEveryByte(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join(testdata.Repo(t), "testdata", "goldens", "f120-hashmap-canonical", "checkpoint", "savepoint-bf0e3a-a0c987a4378e", "_metadata"))
	require.NoError(t, err)
	dir := t.TempDir()
	name := filepath.Join(dir, "_metadata")
	for n := range whole {
		require.NoError(t, os.WriteFile(name, whole[:n], 0o666))
		for i, command := range []string{"inspect", "verify", "dump"} {
			if i > 0 && n%13 != 0 {
				break // they read as inspect does
			}
			var out, errs bytes.Buffer
			code := Run(t.Context(), []string{command, "--no-progress", dir}, Env{Out: &out, Err: &errs, Now: time.Now})
			require.Equal(t, exit.Damage, code, "%s of the first %d bytes: %s%s", command, n, out.String(), errs.String())
			line := errs.String()
			if command == "verify" {
				require.Empty(t, line)
				line, _, _ = strings.Cut(out.String(), "\n")
				line += "\n"
			}
			require.Regexp(t, `^(stateutil|damage): `+regexp.QuoteMeta(name)+`: byte \d+: \S+ .+\n$`, line, "%s of the first %d bytes", command, n)
		}
	}
}
