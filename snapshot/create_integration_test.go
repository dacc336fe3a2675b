//go:build integration

package snapshot_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/snapshot"
)

// restoreWays are ways in which a description is created and a real Flink restores
// it: in both state backends, at other parallelisms than it was created for, and
// into each kind of snapshot, which then is read back.
var restoreWays = []struct {
	name   string
	create snapshot.CreateOptions
	flags  string
}{
	{"canonical-hashmap", snapshot.CreateOptions{MemoryThreshold: -1}, "--backend hashmap --parallelism 3 --snapshot checkpoint"},
	{"canonical-rocksdb", snapshot.CreateOptions{Compress: true}, "--backend rocksdb --parallelism 1 --snapshot checkpoint --incremental"},
	{"native-hashmap", snapshot.CreateOptions{Kind: snapshot.CreateNative, Version: 3}, "--backend hashmap --parallelism 3 --snapshot canonical"},
	{"checkpoint-hashmap", snapshot.CreateOptions{Kind: snapshot.CreateCheckpoint, Compress: true, MemoryThreshold: -1}, "--backend hashmap --parallelism 1 --snapshot native --claim-mode claim"},
}

// TestCreatedIsRestoredByARealFlink creates the examples of flink-verify and random
// descriptions. A real Flink restores each, finds every value, changes it in a known
// way and takes a snapshot, which we read: it holds what Flink says it holds.
//
// FLINK names the versions, by default 1.20.0 and 2.3.0. SEEDS is the number of
// random descriptions, by default 4, or a range FIRST-LAST.
func TestCreatedIsRestoredByARealFlink(t *testing.T) {
	versions := strings.Fields(os.Getenv("FLINK"))
	if len(versions) == 0 {
		versions = []string{"1.20.0", "2.3.0"}
	}
	dir := filepath.Join(testdata.Repo(t), "testdata", "flink-verify")
	classes, err := os.Open(filepath.Join(dir, "classes.txt"))
	require.NoError(t, err)
	defer classes.Close()
	var opts snapshot.DescriptionOptions
	opts.Classes, opts.Hash, err = snapshot.ReadClasses(classes)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "examples", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	random := t.TempDir()
	first, last := seeds(t)
	for seed := first; seed <= last; seed++ {
		file := filepath.Join(random, fmt.Sprintf("random-%d.json", seed))
		require.NoError(t, os.WriteFile(file, flinkverify.RandomDescription(seed), 0o666))
		files = append(files, file)
	}
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	for _, version := range versions {
		out := t.TempDir()
		type restored struct{ file, dir, line string }
		var all []restored
		var commands strings.Builder
		for i, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			for k, way := range restoreWays {
				// The second backend is for the canonical format, the others alternate.
				if k > 1 && (i+k)%2 == 0 && name != "map-null" {
					continue
				}
				flags := way.flags
				if name == "map-null" { // Flink itself writes null longs only in the heap's own format
					if k < 2 {
						continue
					}
					flags = "--backend hashmap --parallelism 1 --snapshot checkpoint"
				}
				made := filepath.Join(out, name+"-"+way.name)
				createExample(t, pool, file, made, &opts, way.create)
				r := restored{file, made + "-restored", fmt.Sprintf("restore %s %s --out %s-restored %s", made, file, made, flags)}
				all = append(all, r)
				fmt.Fprintf(&commands, "metadata %s %s\n%s\n", made, file, r.line)
			}
		}
		cmd := exec.Command(filepath.Join(dir, "run.sh"), "batch", "-")
		cmd.Env = append(os.Environ(), "FLINK="+version)
		cmd.Stdin = strings.NewReader(commands.String())
		cmd.Stderr = os.Stderr
		log, failed := cmd.Output()
		bad := failedChecks(log)
		for _, r := range all {
			t.Run(version+"/"+strings.TrimSuffix(filepath.Base(r.dir), "-restored"), func(t *testing.T) {
				require.Empty(t, bad[r.line], "%s", r.line)
				require.Empty(t, bad[fmt.Sprintf("metadata %s %s", strings.TrimSuffix(r.dir, "-restored"), r.file)])
				compareDescription(t, filepath.Join(r.dir, "expected.json"), r.dir)
			})
		}
		require.NoError(t, failed, "Flink %s: is there a JDK 17 and Maven?\n%s", version, tail(log))
	}
}

func seeds(t *testing.T) (first, last uint64) {
	from, to, ok := strings.Cut(os.Getenv("SEEDS"), "-")
	switch {
	case from == "":
		return 0, 3
	case !ok:
		to, from = from, "1"
	}
	var err error
	first, err = strconv.ParseUint(from, 10, 32)
	require.NoError(t, err, "SEEDS")
	last, err = strconv.ParseUint(to, 10, 32)
	require.NoError(t, err, "SEEDS")
	return first, last
}

func createExample(t *testing.T, pool *blobstore.Pool, file, to string, opts *snapshot.DescriptionOptions, o snapshot.CreateOptions) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	d, err := snapshot.ReadDescription(f, opts)
	require.NoError(t, err, file)
	loc, err := blobstore.Parse(to)
	require.NoError(t, err)
	_, err = snapshot.CreateFrom(t.Context(), pool, snapshot.SavepointIn(loc), d, &o)
	require.NoError(t, err, file)
}

// failedChecks are the checks that failed, by command.
func failedChecks(log []byte) map[string][]string {
	bad := map[string][]string{}
	line := ""
	sc := bufio.NewScanner(bytes.NewReader(log))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var m struct {
			Event, Line string
			Check       string
			OK          *bool
		}
		if json.Unmarshal(sc.Bytes(), &m) != nil {
			continue
		}
		switch {
		case m.Event == "command":
			line = m.Line
		case m.OK != nil && !*m.OK:
			s := sc.Text()
			bad[line] = append(bad[line], s[:min(len(s), 1500)])
		}
	}
	return bad
}
