package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// describeAt is the description of the snapshot at loc; uids name operators.
func describeAt(t testing.TB, pool *blobstore.Pool, loc blobstore.Location, uids map[metadata.OperatorID]string, classes serializer.Classes) string {
	s, err := Open(t.Context(), pool, loc, nil)
	require.NoError(t, err)
	var out bytes.Buffer
	opts := &ScanOptions{UID: func(id metadata.OperatorID) string { return uids[id] }, Classes: classes}
	require.NoError(t, Describe(t.Context(), s, opts, &out))
	return out.String()
}

// createKinds are the ways in which the tests create.
var createKinds = map[string]CreateOptions{
	"canonical":  {},
	"native":     {Kind: CreateNative, MemoryThreshold: -1},
	"checkpoint": {Kind: CreateCheckpoint, Version: 6},
	"compressed": {Compress: true, Version: 3},
	"lsm":        {Kind: CreateCheckpoint, Backend: CreateForLSM},
	"files":      {Kind: CreateCheckpoint, Compress: true, MemoryThreshold: -1},
}

// TestCreateFromGoldens describes every golden, creates a snapshot of that, and
// describes it again, to the same text.
func TestCreateFromGoldens(t *testing.T) { createFromGoldens(t, testdata.Goldens(t), 8) }

// TestCreateFromAllGoldens is the same for the whole set, where it is present.
func TestCreateFromAllGoldens(t *testing.T) {
	cases, least := testdata.ManyGoldens(t, 50)
	createFromGoldens(t, cases, least)
}

func createFromGoldens(t *testing.T, cases []*testdata.Case, least int) {
	created := 0
	refused := map[string]int{}
	for _, c := range cases {
		uids := map[metadata.OperatorID]string{}
		for _, o := range c.Operators {
			id, err := metadata.ParseOperatorID(o.ID)
			require.NoError(t, err)
			uids[id] = o.UID
		}
		for _, sn := range c.Snapshots {
			f := memFixture(t)
			classes := goldenClasses(t)
			loc, err := blobstore.Parse(c.File(sn.Path))
			require.NoError(t, err)
			original, err := Open(t.Context(), f.pool, loc, nil)
			require.NoError(t, err)
			for i := range original.Checkpoint.Operators {
				if o := &original.Checkpoint.Operators[i]; o.UID != "" {
					uids[o.ID] = o.UID.Go()
				}
			}
			want := describeAt(t, f.pool, loc, uids, classes)
			d, err := ReadDescription(strings.NewReader(want), &DescriptionOptions{Name: c.Name, Classes: classes})
			require.NoError(t, err, "%s/%s", c.Name, sn.Path)
			for name, o := range createKinds {
				where := fmt.Sprintf("%s/%s as %s", c.Name, sn.Path, name)
				_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc(name)), d, &o)
				if err != nil {
					require.NotContains(t, err.Error(), "\n")
					refused[where+": "+err.Error()]++
					require.Empty(t, f.names())
					break
				}
				created++
				want := want
				if o.Version < 5 { // which has no names
					want = nameMember.ReplaceAllString(want, "$1")
				}
				if got := describeAt(t, f.pool, f.loc(name), uids, classes); got != want {
					t.Errorf("%s: %s", where, firstDifference(want, got))
				}
				v, err := VerifyAt(t.Context(), f.pool, f.loc(name), &VerifyOptions{Data: &DataOptions{Classes: classes}})
				require.NoError(t, err)
				require.Empty(t, codes(v), where)
			}
		}
	}
	for r := range refused {
		t.Log(r)
	}
	require.Greater(t, created, least)
}

var nameMember = regexp.MustCompile(`, "name": "(?:[^"\\]|\\.)*"(, "max_parallelism": )`)

// firstDifference shows where two texts part.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			other := ""
			if i < len(g) {
				other = g[i]
			}
			return fmt.Sprintf("line %d is\n%.400s\nnot\n%.400s", i+1, other, w[i])
		}
	}
	return fmt.Sprintf("%d lines more", len(g)-len(w))
}

// verifyClasses are those of testdata/flink-verify.
func verifyClasses(t testing.TB) (serializer.Classes, serializer.HashRules) {
	file, err := os.Open(filepath.Join(testdata.Repo(t), "testdata", "flink-verify", "classes.txt"))
	require.NoError(t, err)
	defer file.Close()
	classes, hash, err := ReadClasses(file)
	require.NoError(t, err)
	return classes, hash
}

// TestCreateFromExamples creates each example of flink-verify, and from its
// description once more.
func TestCreateFromExamples(t *testing.T) {
	examples, err := filepath.Glob(filepath.Join(testdata.Repo(t), "testdata", "flink-verify", "examples", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	classes, hash := verifyClasses(t)
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	for _, e := range examples {
		for name, o := range createKinds {
			t.Run(strings.TrimSuffix(filepath.Base(e), ".json")+"/"+name, func(t *testing.T) {
				f := memFixture(t)
				text, err := os.ReadFile(e)
				require.NoError(t, err)
				d, err := ReadDescription(bytes.NewReader(text), &DescriptionOptions{Classes: classes, Hash: hash})
				require.NoError(t, err)
				o.Now = now
				made, err := CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("a")), d, &o)
				require.NoError(t, err)
				require.NotZero(t, made.Operators)
				first := describeAt(t, f.pool, f.loc("a"), nil, nil)
				d, err = ReadDescription(strings.NewReader(first), nil)
				require.NoError(t, err)
				_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("b")), d, &o)
				require.NoError(t, err)
				if second := describeAt(t, f.pool, f.loc("b"), nil, nil); first != second {
					t.Error(firstDifference(first, second))
				}
			})
		}
	}
}
