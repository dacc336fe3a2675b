package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/snapshot"
)

func TestMergedFilesNeedAVersionThatKnowsThem(t *testing.T) {
	root, err := blobstore.Parse("mem://merging/checkpoints")
	require.NoError(t, err)
	_, err = New(t.Context(), Config{Checkpoints: root, Options: Options{FormatVersion: 3}, Writer: &snapshot.WriterOptions{Merge: &incremental.FileMerging{}}})
	require.ErrorContains(t, err, "need metadata version 4, not 3")
}
