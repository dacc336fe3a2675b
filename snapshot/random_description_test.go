package snapshot

import (
	"fmt"
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
	classes, hash := verifyClasses(t)
	uids := map[metadata.OperatorID]string{}
	for i := range 3 {
		uid := fmt.Sprintf("op-%d", i)
		uids[metadata.OperatorIDFromUID(uid)] = uid
	}
	for seed := range uint64(200) {
		f := memFixture(t)
		d, err := ReadDescription(strings.NewReader(string(flinkverify.RandomDescription(seed))), &DescriptionOptions{Classes: classes, Hash: hash})
		require.NoError(t, err, "seed %d", seed)
		first := ""
		for name, o := range createKinds {
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
