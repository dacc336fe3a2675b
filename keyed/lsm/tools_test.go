package lsm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/keyed/lsm"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/stream"
)

// A checkpoint of the backend is read, verified, compared and converted by the tools.
func TestToolsReadCheckpoints(t *testing.T) {
	ctx := t.Context()
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	root, err := blobstore.Parse("mem://" + snapshot.NewJobID() + "/ckp")
	require.NoError(t, err)
	_, _, err = pool.Resolve(ctx, root)
	require.NoError(t, err)
	process := lsm.NewProcess(nil)
	defer process.Close()
	b, err := lsm.Open(t.TempDir(), keyed.Config[string]{Key: serializer.String, MaxParallelism: 128}, &lsm.Options{Process: process})
	require.NoError(t, err)
	defer b.Close()
	values := keyed.Value(b, "values", serializer.Int64)
	lists := keyed.List(b, "lists", serializer.String)
	maps := keyed.Map(b, "maps", serializer.Int64, serializer.String)
	const keys = 500
	for i := range keys {
		k := b.Key(fmt.Sprint("key-", i))
		require.NoError(t, values.Set(k, int64(i)))
		for n := range i % 4 {
			require.NoError(t, lists.Add(k, fmt.Sprint(n, ",")))
			require.NoError(t, maps.Put(k, int64(n), fmt.Sprint(i)))
		}
	}
	layout, err := snapshot.CheckpointLayout(root, snapshot.NewJobID(), 1)
	require.NoError(t, err)
	w, err := snapshot.NewWriter(ctx, pool, layout, &snapshot.WriterOptions{MemoryThreshold: -1, Checksums: true, Merge: &incremental.FileMerging{}})
	require.NoError(t, err)
	snap, err := b.Snapshot(ctx, 1)
	require.NoError(t, err)
	h, err := snap.Upload(ctx, w, nil)
	require.NoError(t, err)
	snap.Release()
	require.NoError(t, w.Commit(ctx, &metadata.Checkpoint{Version: 4, ID: 1, Properties: metadata.NullProperties(), Operators: []metadata.OperatorState{{
		ID: metadata.OperatorIDFromUID("op"), Parallelism: 1, MaxParallelism: 128, Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}},
	}}}))
	count := func(at blobstore.Location) map[string]int {
		s, err := snapshot.Open(ctx, pool, at, nil)
		require.NoError(t, err)
		rows := map[string]int{}
		for r, err := range snapshot.Rows(ctx, s, nil) {
			require.NoError(t, err)
			line, undecoded := r.AppendJSON(nil)
			require.Empty(t, undecoded, "%s", line)
			rows[string(line)]++
		}
		return rows
	}
	rows := count(layout.Dir)
	require.Len(t, rows, keys+keys*3/4+keys/4*(1+2+3))
	v, err := snapshot.VerifyAt(ctx, pool, layout.Dir, &snapshot.VerifyOptions{Data: &snapshot.DataOptions{}})
	require.NoError(t, err)
	require.True(t, v.OK, "%v", v.Findings)
	require.EqualValues(t, len(rows), v.Data.Records)
	require.Zero(t, v.Checksums.Without)
	s, err := snapshot.Open(ctx, pool, layout.Dir, nil)
	require.NoError(t, err)
	for _, format := range []stream.KeyedFormat{stream.CanonicalFormat, stream.HeapFormat} {
		to := root.Join(format.String())
		p, err := snapshot.PlanConvert(context.WithoutCancel(ctx), s, to, &snapshot.ConvertOptions{Format: format})
		require.NoError(t, err)
		made, err := p.Apply(ctx)
		require.NoError(t, err)
		require.True(t, made.Verification.OK)
		require.Equal(t, rows, count(to), "%s", format)
	}
}
