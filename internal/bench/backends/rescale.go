//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/keyed"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
)

// w4rescale restores the tables of one subtask and of two into one, lazily: from a local
// disk or, with -store, from a blob store.
func w4rescale() error {
	if *kind != "lsm" {
		return errors.New("for -backend lsm")
	}
	n := count(1_000_000)
	p := newPlace()
	defer p.close()
	to := "file://" + filepath.Join(p.dir, "tables")
	if *store != "" {
		to = *store
	}
	loc, err := blobstore.Parse(to)
	must(err)
	for _, parallelism := range []int{1, 2} {
		at := loc.Join(fmt.Sprintf("from-%d", parallelism))
		saveTables(p.pool, at, n, parallelism)
		if err := restored(fmt.Sprintf("%s/%dk/tables-%d-to-1", *label, n/1000, parallelism), p.pool, at.Join("chk-1").String(), n); err != nil {
			return err
		}
	}
	return nil
}

// saveTables writes an incremental checkpoint of n keys, which subtasks share.
func saveTables(pool *blobstore.Pool, at blobstore.Location, n, parallelism int) {
	ctx := context.Background()
	w, err := snapshot.NewWriter(ctx, pool, snapshot.Layout{Dir: at.Join("chk-1"), Shared: at.Join("shared"), TaskOwned: at.Join("taskowned")}, nil)
	must(err)
	const maxParallelism = 128
	op := metadata.OperatorState{ID: metadata.OperatorID{1}, Parallelism: int32(parallelism), MaxParallelism: maxParallelism}
	for i := range parallelism {
		dir, err := os.MkdirTemp("", "backend")
		must(err)
		first, last := serializer.KeyGroupRange(i, parallelism, maxParallelism)
		b := openIn(dir, keyed.Config[int64]{
			Key: serializer.Int64, MaxParallelism: maxParallelism,
			KeyGroups: metadata.KeyGroupRange{Start: int32(first), Count: int32(last - first + 1)},
		})
		s := keyed.Value(b, "state", serializer.Bytes)
		for _, k := range permutation(n, 3) {
			if key := b.Key(k); key.Group() >= first && key.Group() <= last {
				must(s.Set(key, value100(k, 0)))
			}
		}
		settle(b)
		snap, err := b.Snapshot(ctx, 1)
		must(err)
		h, err := snap.Upload(ctx, w, nil)
		must(err)
		snap.Release()
		op.Subtasks = append(op.Subtasks, metadata.SubtaskState{Index: int32(i), ManagedKeyed: h})
		must(b.Close())
	}
	must(w.Commit(ctx, &metadata.Checkpoint{Version: 3, ID: 1, Operators: []metadata.OperatorState{op}}))
}
