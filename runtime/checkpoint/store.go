package checkpoint

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemark/tidemark/blobstore"
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

// Orphan is a checkpoint that a coordinator began and the store does not have, since
// the coordinator died before it was completed.
type Orphan struct {
	// Path of the metadata object, and what is in it: its coordinator died between that
	// object and the store. Empty for none.
	Path string
	Meta *metadata.Checkpoint
	// Files in its folder, without the metadata object.
	Files []metadata.StreamHandle
}

// Sweep has the registry delete what a former coordinator left in the folders of
// checkpoints that were never completed: the metadata object first, and then what it
// names and other files there. What a retained checkpoint has stays, and so does an
// orphan that the registry keeps for its owner. It comes after the retained checkpoints
// were restored and those of others are kept, and before the first checkpoint begins.
// Files that were left in the shared folder are found by gc. An error is that of orphans
// whose metadata object cannot be registered: they are left as they are, and the others
// are deleted nevertheless.
func Sweep(reg *incremental.Registry, orphans []Orphan) error {
	var errs []error
	for _, o := range orphans {
		if o.Meta != nil {
			switch ours, err := restoreOrphan(reg, o); {
			case err != nil:
				errs = append(errs, err)
				continue
			case !ours:
				continue
			}
		}
		acks := make([]incremental.AckFile, len(o.Files))
		for i := range o.Files {
			acks[i].Handle = o.Files[i]
		}
		reg.Discard(acks)
	}
	return errors.Join(errs...)
}

// restoreOrphan registers an orphan and gives it up at once; ours is false if it is kept
// for somebody else.
func restoreOrphan(reg *incremental.Registry, o Orphan) (ours bool, err error) {
	loc, err := blobstore.Parse(o.Path)
	if err != nil {
		return false, err
	}
	if len(reg.Unknown([]blobstore.Location{loc})) == 0 {
		return false, nil
	}
	m := *o.Meta
	m.ID = -1 // its own may be that of a snapshot which the job was started from
	if _, err := reg.Restore(&m, o.Path, incremental.Claim, nil); err != nil {
		return false, err
	}
	reg.Subsume(m.ID)
	return true, nil
}
