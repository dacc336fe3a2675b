package checkpoint

import (
	"context"
	"slices"
	"sync"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
)

// Store is the completed checkpoint store together with the counter of IDs: what
// has to outlive a coordinator. Its content is changed as a whole, and only by the
// coordinator that took it over last. Flink's CompletedCheckpointStore and
// CheckpointIDCounter.
type Store interface {
	// TakeOver makes the caller the only one that may change the store, and gives its
	// content. Every former caller gets ErrFenced from then on.
	TakeOver(ctx context.Context) (Content, error)
	// Put makes the content the store's. Errors wrap ErrFenced, or ErrInDoubt if
	// it may yet become the store's; after any other one nothing has changed.
	Put(ctx context.Context, c Content) error
}

// Content of a Store.
type Content struct {
	// NextID is the lowest checkpoint ID that was never used. It only rises.
	NextID int64
	// FirstID is the lowest that a coordinator of this store may have used: what lies
	// in the job's folder below it is not ours to delete.
	FirstID int64
	// Stopped is the savepoint that the job was stopped with. Its sinks commit what is
	// in there, so that to begin before it would do that work again. Empty for none.
	Stopped string
	// Result is how the job ended.
	Result JobResult
	// Retained checkpoints, ascending.
	Retained []Completed
}

// MemoryStore is a Store that lives as long as the process: Flink's standalone one.
// The zero value is empty.
type MemoryStore struct {
	mu      sync.Mutex
	content Content
}

// TakeOver implements Store. In one process nobody needs to be fenced.
func (s *MemoryStore) TakeOver(context.Context) (Content, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content.clone(), nil
}

// Put implements Store.
func (s *MemoryStore) Put(_ context.Context, c Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = c.clone()
	return nil
}

func (c Content) clone() Content {
	c.NextID = max(c.NextID, 1)
	c.FirstID = max(c.FirstID, 1)
	c.Retained = slices.Clone(c.Retained)
	return c
}

// Orphan is a checkpoint whose metadata object is there and which the store does
// not have: its coordinator died between the two.
type Orphan struct {
	Path string // of the metadata object
	Meta *metadata.Checkpoint
}

// Sweep has the registry delete what a former coordinator left in the folders of
// checkpoints that were never completed: orphans, the metadata object first, and
// other files there. What a retained checkpoint has stays. It comes after the
// retained checkpoints were restored and before the first checkpoint begins. Files
// that were left in the shared folder are found by gc.
func Sweep(reg *incremental.Registry, orphans []Orphan, files []metadata.StreamHandle) error {
	for _, o := range orphans {
		if _, err := reg.Restore(o.Meta, o.Path, incremental.Claim, nil); err != nil {
			return err
		}
		reg.Subsume(o.Meta.ID)
	}
	acks := make([]incremental.AckFile, len(files))
	for i := range files {
		acks[i].Handle = files[i]
	}
	reg.Discard(acks)
	return nil
}
