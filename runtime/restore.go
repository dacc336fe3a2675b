package runtime

import (
	"context"
	"fmt"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// restoreFrom opens the snapshot that the next attempt starts from and checks that
// the job can take its state.
func (e *Execution) restoreFrom(ctx context.Context, url string) error {
	loc, err := blobstore.Parse(url)
	if err != nil {
		return fmt.Errorf("snapshot to start from: %w", err)
	}
	s, err := snapshot.Open(ctx, e.opts.Pool, loc, nil)
	if err != nil {
		return fmt.Errorf("snapshot to start from: %w", err)
	}
	assigned, err := checkpoint.Assign(s.Checkpoint, e.plan.graph(), &checkpoint.AssignOptions{AllowNonRestored: e.opts.AllowNonRestored})
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	for i, v := range e.plan.vertices {
		v.max = int(assigned.MaxParallelism[i])
	}
	for _, id := range assigned.Dropped {
		e.opts.Log.Warn("state is dropped", "snapshot", url, "operator", id)
	}
	e.restored = task.NewRestored(s)
	e.finishedVertices = assigned.FinishedVertices
	return nil
}

// registerRestored tells the registry of the snapshot that the job starts from.
func registerRestored(reg *incremental.Registry, s *snapshot.Snapshot, mode incremental.RestoreMode) error {
	_, err := reg.Restore(s.Checkpoint, s.Location.String(), mode, nil)
	return err
}
