package pipeline_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/flinkverify/pipeline"
	"github.com/tidemark/tidemark/runtime"
)

// TestPipeline runs the job here from beginning to end: without that, no leg means
// anything.
func TestPipeline(t *testing.T) {
	const n = 12_288
	for _, flat := range []bool{false, true} {
		dir := t.TempDir()
		j := pipeline.New(pipeline.Options{Numbers: n, Results: dir, Parallelism: 2, Rate: 6_000, Flat: flat})
		require.NoError(t, runtime.Run(t.Context(), j.Job, nil))
		lines, seen, err := pipeline.Results(dir)
		require.NoError(t, err)
		require.EqualValues(t, n, seen)
		want := pipeline.Model(n, flat)
		slices.Sort(want)
		slices.Sort(lines)
		require.Equal(t, want, lines)
	}
}
