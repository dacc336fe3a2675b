package testdata

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommittedGoldensAreComplete(t *testing.T) {
	versions := map[string]bool{}
	for _, c := range Goldens(t) {
		versions[c.FlinkVersion] = true
		require.NotEmpty(t, c.Snapshots, c.Name)
		for _, s := range c.Snapshots {
			require.FileExists(t, c.File(s.Path+"/_metadata"), c.Name)
			require.FileExists(t, c.File(s.Expected), c.Name)
		}
		fi, err := os.Stat(c.File("checkpoint"))
		require.NoError(t, err)
		require.True(t, fi.IsDir())
	}
	require.Equal(t, map[string]bool{"1.20.0": true, "2.3.0": true}, versions)
	require.GreaterOrEqual(t, len(GoldenMetadata(t)), len(Goldens(t)))
}

func TestSharedIsFoundByEnvironmentOrPosition(t *testing.T) {
	require.DirExists(t, Shared(t))
	require.NotEmpty(t, AllGoldens(t))
}
