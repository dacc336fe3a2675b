package snapshot

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/metadata"
)

// TestCreateFromRandom creates random descriptions in every kind of snapshot; they
// all describe to the same, and from that text once more.
func TestCreateFromRandom(t *testing.T) {
	createFromSeeds(t, 100, flinkverify.RandomDescription)
}

// TestCreateFromWide is the same for descriptions at the edges of the format.
func TestCreateFromWide(t *testing.T) {
	createFromSeeds(t, 10, func(seed uint64) []byte { return flinkverify.WideDescription(seed, true).Text })
}

func createFromSeeds(t *testing.T, seeds uint64, describe func(seed uint64) []byte) {
	classes, hash := verifyClasses(t)
	uids := map[metadata.OperatorID]string{}
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		f := memFixture(t)
		text := describe(seed)
		for uid := range flinkverify.Compared(t, text) {
			uids[metadata.OperatorIDFromUID(uid)] = uid
		}
		d, err := ReadDescription(bytes.NewReader(text), &DescriptionOptions{Classes: classes, Hash: hash})
		require.NoError(t, err, "seed %d", seed)
		first := ""
		for name, o := range createKinds {
			if name == "lsm" && seed%10 > 0 { // which makes databases on disk
				continue
			}
			o.Now = func() time.Time { return time.UnixMilli(1_700_000_000_000) }
			_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc(name)), d, &o)
			require.NoError(t, err, "seed %d", seed)
			got := nameMember.ReplaceAllString(describeAt(t, f.pool, f.loc(name), uids, nil), "$1")
			if first == "" {
				first = got
			}
			if got != first {
				t.Fatalf("seed %d as %s: %s", seed, name, firstDifference(first, got))
			}
		}
		d, err = ReadDescription(strings.NewReader(first), nil)
		require.NoError(t, err, "seed %d", seed)
		_, err = CreateFrom(t.Context(), f.pool, SavepointIn(f.loc("again")), d, nil)
		require.NoError(t, err, "seed %d", seed)
		if got := describeAt(t, f.pool, f.loc("again"), uids, nil); got != first {
			t.Fatalf("seed %d: %s", seed, firstDifference(first, got))
		}
	}
}
