package checkpoint

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
)

// A snapshot whose checkpoint ID leaves none for the job's own is refused: otherwise the
// job would run, and none of its checkpoints could begin.
func TestAdoptLastID(t *testing.T) {
	d := newDurable(t)
	j, stop := d.start()
	sp, err := j.c.Trigger(t.Context(), event.SavepointCanonical, event.None, "")
	require.NoError(t, err)
	s, err := j.c.open(t.Context(), sp.Path)
	require.NoError(t, err)
	stop()
	d.store = blobstore.Sub(d.store, "other") // a log that knows nothing
	for _, id := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
		s.Checkpoint.ID = id
		var b bytes.Buffer
		require.NoError(t, metadata.Encode(&b, s.Checkpoint))
		loc, err := blobstore.Parse(sp.Path)
		require.NoError(t, err)
		store, name, err := d.cfg.Pool.Resolve(t.Context(), loc)
		require.NoError(t, err)
		require.NoError(t, blobstore.WriteAll(t.Context(), store, name, b.Bytes(), nil))
		cfg := d.cfg
		cfg.Graph, cfg.Tasks, cfg.Store = j.graph, j, d.log()
		cfg.Restore = RestoreSettings{Path: sp.Path, Mode: incremental.NoClaim}
		_, err = New(t.Context(), cfg)
		require.ErrorIs(t, err, metadata.ErrCorrupt)
	}
}
