package checkpoint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

// The metadata object of a checkpoint is written and its checksums are not. It has failed,
// and its metadata object does not stay without its files.
func TestChecksumsAreNotWritten(t *testing.T) {
	mem := blobstore.NewMem()
	faults := blobstore.NewFaults(blobstore.Fault{Op: "commit", Name: func(n string) bool { return strings.HasSuffix(n, snapshot.ChecksumsName) }, Nth: 1},
		blobstore.Fault{Op: "commit", Name: func(n string) bool { return strings.HasSuffix(n, snapshot.ChecksumsName) }, Nth: 2})
	root, err := blobstore.Parse("mem://x/ckp")
	require.NoError(t, err)
	j := newFakeJob(t)
	cfg := Config{Job: strings.Repeat("cd", 16), Pool: poolOf(faults.Wrap(mem)), Checkpoints: root.Join("ckp"), Savepoints: root.Join("sp"),
		Writer: &snapshot.WriterOptions{MemoryThreshold: -1, Checksums: true}}
	cfg.Options.TolerableFailures = -1
	stop := j.start(t, cfg)
	defer stop()
	j.run(t)
	for _, typ := range []event.SnapshotType{event.Checkpoint, event.SavepointCanonical} {
		_, err = j.c.Trigger(t.Context(), typ, event.None, "")
		require.ErrorIs(t, err, blobstore.ErrInjected)
		_, err = j.c.cleaner.Clean(t.Context())
		require.NoError(t, err)
		require.Empty(t, objects(t, mem))
	}
	r, err := j.c.Trigger(t.Context(), event.Checkpoint, event.None, "")
	require.NoError(t, err)
	list, err := j.c.Retained(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Completed{{ID: r.ID, Path: r.Path}}, list)
}
