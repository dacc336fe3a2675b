package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
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

// TestSnapshotsTravelOverStores takes each golden from disk through every store whose
// server runs, one after the other, and back: copied, and converted in the last of
// them. What arrives holds the same rows and is whole, data included.
func TestSnapshotsTravelOverStores(t *testing.T) {
	stores, err := wantedStores(os.Getenv)
	require.NoError(t, err)
	if len(stores) == 0 {
		t.Skip("no store has a server; the stages of CI set TIDEMARK_STORES")
	}
	names := slices.Sorted(maps.Keys(stores))
	folder := fmt.Sprintf("tmp/stateutil-travel-%d", time.Now().UnixNano())
	for _, name := range names {
		cleanStore(t, storeRoot(name, stores[name]), folder)
	}
	for n, c := range testdata.Goldens(t) {
		for k, sn := range c.Snapshots {
			local := t.TempDir()
			from := c.File(sn.Path)
			want := rowsAt(t, from)
			// The first copy needs no other, and so the original may be anywhere.
			for _, name := range names {
				// Two names may be doors to one server, as those of HDFS are.
				to := below(storeRoot(name, stores[name]), fmt.Sprintf("%s/%s-%d-%d", folder, name, n, k))
				stateutil(t, exit.Done, "copy", "--apply", "--checksums", from, to)
				require.Equal(t, want, rowsAt(t, to), "%s in %s", sn.Path, name)
				from = to
			}
			last := names[len(names)-1]
			flat := below(storeRoot(last, stores[last]), fmt.Sprintf("%s/%d-%d-flat", folder, n, k))
			stateutil(t, exit.Done, "convert", "--to", "heap", "--apply", from, flat)
			for what, at := range map[string]string{"copied": from, "converted": flat} {
				back := filepath.Join(local, what)
				stateutil(t, exit.Done, "copy", "--apply", at, back)
				stateutil(t, exit.Done, "verify", "--data", back)
				require.Equal(t, want, rowsAt(t, back), "%s, %s over %v", sn.Path, what, names)
			}
		}
	}
}

func storeRoot(name, url string) string {
	if name == "webhdfs" {
		return "webhdfs://" + url[strings.LastIndex(url, "/")+1:]
	}
	return url
}

// cleanStore removes a folder of a store when the test ends.
func cleanStore(t *testing.T, root, folder string) {
	store, err := blobstore.Open(t.Context(), root, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := t.Context()
		if ctx.Err() != nil {
			ctx = context.Background()
		}
		var names []string
		folders := map[string]bool{}
		for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: folder + "/"}) {
			require.NoError(t, err)
			names = append(names, info.Name)
			folders[info.Name[:strings.LastIndexByte(info.Name, '/')]] = true
		}
		require.NoError(t, store.DeleteAll(ctx, names))
		if remover, ok := store.(blobstore.DirectoryRemover); ok {
			for f := range folders {
				require.NoError(t, remover.RemoveEmptyDir(ctx, f))
			}
			require.NoError(t, remover.RemoveEmptyDir(ctx, folder))
		}
		require.NoError(t, store.Close())
	})
}

func stateutil(t *testing.T, code exit.Code, args ...string) string {
	var out, errs bytes.Buffer
	env := cli.Env{Out: &out, Err: &errs, Environ: []string{"HOME=" + t.TempDir()}, Now: time.Now}
	require.Equal(t, code, cli.Run(t.Context(), args, env), "%v: %s%s", args, errs.String(), out.String())
	return out.String()
}

// rowsAt are the rows of a snapshot, sorted, without empty lists and maps, which only
// the heap's format has.
func rowsAt(t *testing.T, url string) []string {
	var out, errs bytes.Buffer
	env := cli.Env{Out: &out, Err: &errs, Environ: []string{"HOME=" + t.TempDir()}, Now: time.Now}
	code := cli.Run(t.Context(), []string{"read", "--all", "--format", "jsonl", url}, env)
	require.Contains(t, []exit.Code{exit.Done, exit.Partly}, code, "read %s: %s", url, errs.String())
	var rows []string
	for line := range strings.Lines(out.String()) {
		var row map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if string(row["value"]) != "[]" {
			rows = append(rows, line)
		}
	}
	slices.Sort(rows)
	return rows
}
