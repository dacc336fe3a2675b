package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
	"github.com/tidemark/tidemark/metadata"
)

// Before Flink 1.16 RocksDB wrote canonical bodies behind the heap's handles, those
// with an ID in 1.15: the body tells, not the handle.
func TestCanonicalBodiesBehindOtherHandles(t *testing.T) {
	c := testdata.Golden(t, "f120-hashmap-canonical")
	rows := func(form metadata.Tag) (lines []string) {
		s, err := Open(t.Context(), testPool(t), parse(t, c.File(c.Snapshot)), nil)
		require.NoError(t, err)
		changed := 0
		for i := range s.Checkpoint.Operators {
			for k := range s.Checkpoint.Operators[i].Subtasks {
				if h, ok := s.Checkpoint.Operators[i].Subtasks[k].ManagedKeyed.(*metadata.KeyGroupsHandle); ok {
					require.Equal(t, metadata.TagSavepointKeyGroups, h.Form)
					h.Form = form
					changed++
				}
			}
		}
		require.NotZero(t, changed)
		for r, err := range Rows(t.Context(), s, nil) {
			require.NoError(t, err)
			b, undecoded := r.AppendJSON(nil)
			require.Empty(t, undecoded)
			lines = append(lines, string(b))
		}
		return lines
	}
	want := rows(metadata.TagSavepointKeyGroups)
	require.Greater(t, len(want), 20)
	require.Equal(t, want, rows(metadata.TagKeyGroupsWithID))
	require.Equal(t, want, rows(metadata.TagKeyGroups))
}
