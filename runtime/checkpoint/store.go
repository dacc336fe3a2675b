package checkpoint

import (
	"context"
	"slices"
	"sync"
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
	c.Retained = slices.Clone(c.Retained)
	return c
}
