//go:build integration

package flinkverify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/flinkverify/job"
)

// TestARealFlink hands snapshots to Flinks of some versions, each in one JVM, and
// takes theirs; the versions at the same time, but for the first command, before which
// Maven builds. FLINK names the versions, by default 1.20.0 and 2.3.0. SEEDS is the
// number of random descriptions, by default 4, or a range FIRST-LAST.
func TestARealFlink(t *testing.T) {
	for _, version := range flinkverify.Versions() {
		t.Run(version, func(t *testing.T) {
			f, flink := newFixture(t), flinkverify.Start(t, version)
			mustNotice(t, f, flink, t.TempDir())
			t.Parallel()
			t.Run("written", func(t *testing.T) { testWritten(t, f, flink) })
			t.Run("created", func(t *testing.T) { testCreated(t, f, flink) })
			t.Run("wide", func(t *testing.T) { testWide(t, f, flink) })
			t.Run("backends", func(t *testing.T) { testBackends(t, f, flink) })
			t.Run("evolved", func(t *testing.T) { testEvolved(t, f, flink) })
			t.Logf("Flink %s passed %d commands", version, flink.Done)
		})
	}
}

// mustNotice fails if Flink finds nothing wrong with a value that is not what is
// expected: then it would find nothing wrong with anything.
func mustNotice(t *testing.T, f *fixture, flink *flinkverify.Flink, out string) {
	describe := func(value int) []byte {
		return fmt.Appendf(nil, `{"format": 1, "operators": [{"uid": "u", "max_parallelism": 128, "parallelism": 1, "keyed":
			{"key_type": "string", "states": [{"name": "s", "kind": "value", "type": "long", "entries": [{"key": "k", "value": %d}]}]}}]}`, value)
	}
	dir, file := filepath.Join(out, "other"), filepath.Join(out, "other.json")
	j, err := job.Fill(t.Context(), f.create(describe(1)), f.options(job.Heap, 0))
	require.NoError(t, err)
	defer j.Close()
	f.write(j, f.at(dir), 0, nil)
	require.NoError(t, os.WriteFile(file, describe(2), 0o666))
	failed := flink.Run("restore %s %s --out %s-restored", dir, file, dir)
	require.Len(t, failed, 1)
	require.Contains(t, failed[0], `"check":"state"`)
}

func seeds(t *testing.T, s string) (first, last uint64) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		from, to = "0", s
	}
	first, err := strconv.ParseUint(from, 10, 32)
	require.NoError(t, err, "SEEDS")
	last, err = strconv.ParseUint(to, 10, 32)
	require.NoError(t, err, "SEEDS")
	if !ok {
		last--
	}
	return first, last
}
