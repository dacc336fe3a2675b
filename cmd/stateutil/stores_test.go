package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/cli"
	"github.com/tidemark/tidemark/cmd/stateutil/internal/exit"
	"github.com/tidemark/tidemark/internal/testdata"
)

// testStores are the stores that a server can be started for, with the variable
// that the scripts in testdata/servers export for it.
var testStores = map[string]string{
	"s3": "TIDEMARK_TEST_S3_URL", "gs": "TIDEMARK_TEST_GCS_URL", "azblob": "TIDEMARK_TEST_AZURE_URL",
	"hdfs": "TIDEMARK_TEST_HDFS_URL", "webhdfs": "TIDEMARK_TEST_WEBHDFS",
}

// wantedStores are those to test: the names in TIDEMARK_STORES, all of which must
// have their server, or without it those that happen to have one.
func wantedStores(getenv func(string) string) (urls map[string]string, err error) {
	urls = map[string]string{}
	names := strings.Fields(getenv("TIDEMARK_STORES"))
	for _, name := range names {
		switch variable, ok := testStores[name]; {
		case !ok:
			return nil, fmt.Errorf("TIDEMARK_STORES names %q, which is no store of this test", name)
		case getenv(variable) == "":
			return nil, fmt.Errorf("TIDEMARK_STORES names %s, but %s is not set", name, variable)
		default:
			urls[name] = getenv(variable)
		}
	}
	if len(names) == 0 {
		for name, variable := range testStores {
			if u := getenv(variable); u != "" {
				urls[name] = u
			}
		}
	}
	return urls, nil
}

func TestWantedStores(t *testing.T) {
	env := map[string]string{"TIDEMARK_TEST_S3_URL": "s3://b", "TIDEMARK_TEST_GCS_URL": "gs://b"}
	getenv := func(k string) string { return env[k] }
	got, err := wantedStores(getenv)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"s3": "s3://b", "gs": "gs://b"}, got)
	env["TIDEMARK_STORES"] = "gs"
	got, err = wantedStores(getenv)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"gs": "gs://b"}, got)
	env["TIDEMARK_STORES"] = "gs hdfs"
	_, err = wantedStores(getenv)
	require.ErrorContains(t, err, "TIDEMARK_TEST_HDFS_URL is not set")
	env["TIDEMARK_STORES"] = "gcs"
	_, err = wantedStores(getenv)
	require.ErrorContains(t, err, "no store")
}

// TestEveryStoreSaysTheSame puts the goldens into each store whose server runs and
// holds that ls, files, du, latest, verify and cat say there what they say of the
// local folder. The stages of CI name the stores that must be there.
func TestEveryStoreSaysTheSame(t *testing.T) {
	stores, err := wantedStores(os.Getenv)
	require.NoError(t, err)
	if len(stores) == 0 {
		t.Skip("no store has a server; the stages of CI set TIDEMARK_STORES")
	}
	goldens := filepath.Join(testdata.Repo(t), "testdata", "goldens")
	want := sayings(t, goldens)
	require.Len(t, want["verify"], 19, "snapshots in the goldens")
	for name, root := range stores {
		t.Run(name, func(t *testing.T) {
			if name == "webhdfs" {
				root = "webhdfs://" + root[strings.LastIndex(root, "/")+1:]
			}
			folder := fmt.Sprintf("tmp/stateutil-test-%d", time.Now().UnixNano())
			load(t, root, folder, goldens)
			url := below(root, folder)
			got := sayings(t, url)
			for command := range want {
				require.Equal(t, want[command], got[command], command)
			}
		})
	}
}

// below puts a path behind a URL that may have a query.
func below(url, path string) string {
	url, query, ok := strings.Cut(url, "?")
	url = strings.TrimSuffix(url, "/") + "/" + path
	if ok {
		url += "?" + query
	}
	return url
}

// load puts a local folder into a store, for the time of the test: nothing of it
// stays, neither objects nor empty folders.
func load(t *testing.T, root, at, folder string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	store, err := blobstore.Open(ctx, root, nil)
	require.NoError(t, err)
	var names []string
	folders := map[string]bool{at: true}
	t.Cleanup(func() {
		require.NoError(t, store.DeleteAll(ctx, names))
		if remover, ok := store.(blobstore.DirectoryRemover); ok {
			for _, f := range slices.Backward(slices.Sorted(maps.Keys(folders))) { // the deeper ones first
				require.NoError(t, remover.RemoveEmptyDir(ctx, f))
			}
		}
		for i, err := range store.List(ctx, &blobstore.ListOptions{Prefix: at, Delimiter: true}) {
			require.NoError(t, err)
			require.Fail(t, "left behind", i.Name)
		}
		require.NoError(t, store.Close())
	})
	require.NoError(t, filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		name = path.Join(at, filepath.ToSlash(name))
		for dir := path.Dir(name); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
		w, err := store.Create(ctx, name, nil)
		if err != nil {
			return err
		}
		defer w.Abort()
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		names = append(names, name)
		return w.Commit()
	}))
}

// sayings are what the commands say of the goldens at a URL, without what depends
// on the place and the time.
func sayings(t *testing.T, url string) map[string][]string {
	t.Helper()
	run := func(args ...string) []byte {
		var out, errs bytes.Buffer
		env := cli.Env{Out: &out, Err: &errs, Environ: []string{"HOME=" + t.TempDir()}, Now: time.Now}
		require.Equal(t, exit.Done, cli.Run(t.Context(), args, env), "%v: %s", args, errs.String())
		return out.Bytes()
	}
	decode := func(v any, args ...string) { require.NoError(t, json.Unmarshal(run(args...), v), "%v", args) }
	said := map[string][]string{}
	say := func(command, format string, args ...any) {
		said[command] = append(said[command], fmt.Sprintf(format, args...))
	}
	base := strings.TrimSuffix(strings.SplitN(url, "?", 2)[0], "/")
	name := func(u string) string { // what follows the root, however it is spelled
		_, rest, ok := strings.Cut(u, base[strings.LastIndex(base, "/"):]+"/")
		require.True(t, ok, "%s is below %s", u, base)
		return rest
	}

	var ls struct {
		Snapshots []struct {
			URL, Job, Kind, Reason      string
			FullBytes, NewSincePrevious int64
			Usable                      bool
		}
	}
	decode(&ls, "ls", "--json", url)
	for _, s := range ls.Snapshots {
		say("ls", "%s %s %s %d %d %t %s", name(s.URL), s.Job, s.Kind, s.FullBytes, s.NewSincePrevious, s.Usable, s.Reason)
	}

	var verify struct {
		Snapshots []struct {
			Snapshot       string
			OK             bool
			Objects, Bytes int64
			Damage, Notes  int
		}
	}
	decode(&verify, "verify", "--all", "--json", url)
	for _, s := range verify.Snapshots {
		say("verify", "%s %t %d %d %d %d", name(s.Snapshot), s.OK, s.Objects, s.Bytes, s.Damage, s.Notes)
	}

	var du struct {
		Total, Referenced, Unreferenced struct{ Objects, Bytes int64 }
	}
	decode(&du, "du", "--json", url)
	say("du", "%+v", du)

	chain := below(url, "f120-rocksdb-chain/checkpoint/7245eaee7a8e23a71d677622f9a73deb")
	var files struct {
		Files []struct {
			URL, Class string
			Bytes      int64
		}
	}
	decode(&files, "files", "--json", below(chain, "chk-6"))
	for _, f := range files.Files {
		say("files", "%s %s %d", name(f.URL), f.Class, f.Bytes)
	}
	var latest struct{ Candidates []struct{ Usable bool } }
	decode(&latest, "latest", "--json", chain)
	say("latest", "%d usable %t", len(latest.Candidates), latest.Candidates[len(latest.Candidates)-1].Usable)
	say("cat", "%x", run("cat", "--offset", "100", "--length", "300", below(chain, "chk-6")))
	say("dump", "%s", run("dump", "--hex", below(chain, "chk-6")))
	return said
}
