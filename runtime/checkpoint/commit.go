package checkpoint

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/snapshot"
)

func javaString(s string) metadata.String { return javaio.NewString(s) }

// commitTimeout bounds one commit. One that takes longer is in doubt.
const commitTimeout = 5 * time.Minute

// put changes the content of the store, one change after the other.
func (c *Coordinator) put(ctx context.Context, change func(*Content)) error {
	c.contentMu.Lock()
	defer c.contentMu.Unlock()
	next := c.content.clone()
	change(&next)
	if err := c.cfg.Store.Put(ctx, next); err != nil {
		return err
	}
	c.content = next
	return nil
}

// locate prepares the place of a checkpoint.
func (c *Coordinator) locate(ctx context.Context, id int64, opts event.Options) {
	layout, err := c.layout(id, opts)
	var w *snapshot.Writer
	if err == nil {
		w, err = snapshot.NewWriter(ctx, c.cfg.Pool, layout, c.cfg.Writer)
	}
	if err == nil {
		c.writersMu.Lock()
		c.writers[id] = w
		c.writersMu.Unlock()
	}
	c.event(Event{Kind: EvLocation, ID: id, Dir: layout.Dir.String(), Err: err})
}

func (c *Coordinator) layout(id int64, opts event.Options) (snapshot.Layout, error) {
	if !opts.Type.IsSavepoint() {
		return snapshot.CheckpointLayout(c.cfg.Checkpoints, c.cfg.Job, id)
	}
	target, err := blobstore.Parse(opts.Target)
	if err != nil {
		return snapshot.Layout{}, err
	}
	return snapshot.SavepointLayout(target, c.cfg.Job)
}

// Writer is for a task's part of a checkpoint under way: the caller aborts it
// unless the task acknowledges.
func (c *Coordinator) Writer(id int64) (*snapshot.Writer, error) {
	c.writersMu.Lock()
	defer c.writersMu.Unlock()
	w := c.writers[id]
	if w == nil {
		return nil, &Failure{Reason: event.CheckpointSubsumed, Err: errors.New("the checkpoint has ended")}
	}
	return w.Part(), nil
}

func (c *Coordinator) dropWriter(id int64) *snapshot.Writer {
	c.writersMu.Lock()
	defer c.writersMu.Unlock()
	w := c.writers[id]
	delete(c.writers, id)
	return w
}

// discardLocation removes what may be left of the place of an aborted checkpoint:
// a metadata object whose writing failed, and the folder once it is empty.
func (c *Coordinator) discardLocation(id int64) {
	w := c.dropWriter(id)
	if w == nil {
		return
	}
	c.emptied = append(c.emptied, w.Layout().Dir)
	dirs := slices.Clone(c.emptied)
	c.async(func(ctx context.Context) {
		if err := w.Abort(ctx); err != nil {
			c.log.Warn("what is left of an aborted checkpoint is not removed", "id", id, "err", err)
		}
		if _, err := c.cleaner.Clean(ctx); err != nil {
			return // Run tries again
		}
		gone := c.removeEmpty(ctx, dirs)
		c.post(func() {
			c.emptied = slices.DeleteFunc(c.emptied, func(l blobstore.Location) bool { return slices.Contains(gone, l) })
		})
	})
}

func (c *Coordinator) removeEmptied(ctx context.Context) { c.removeEmpty(ctx, c.emptied) }

// removeEmpty removes empty folders, where the store has folders. A late task may
// still write into one, so that it is tried again another time.
func (c *Coordinator) removeEmpty(ctx context.Context, dirs []blobstore.Location) (gone []blobstore.Location) {
	for _, dir := range dirs {
		store, name, err := c.cfg.Pool.Resolve(ctx, dir)
		if err != nil {
			continue
		}
		r, ok := store.(blobstore.DirectoryRemover)
		if !ok {
			gone = append(gone, dir)
			continue
		}
		if err := r.RemoveEmptyDir(ctx, name); err == nil || errors.Is(err, blobstore.ErrNotExist) {
			gone = append(gone, dir)
		}
	}
	return gone
}

// commit writes the metadata object and then makes the checkpoint one of the store,
// or notes there that the job stops with it.
func (c *Coordinator) commit(ctx context.Context, id int64, m *metadata.Checkpoint, retained []Completed, stop bool) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	c.writersMu.Lock()
	w := c.writers[id]
	c.writersMu.Unlock()
	ev := Event{Kind: EvCommitted, ID: id, Outcome: NotWritten}
	defer func() { c.event(ev) }()
	if w == nil {
		ev.Err = errors.New("the checkpoint has no place")
		return
	}
	ev.Dir = w.Layout().Dir.Join(snapshot.MetadataName).String()
	if err := w.Commit(ctx, m); errors.Is(err, snapshot.ErrNoChecksums) {
		ev.Outcome, ev.Err = NotAdded, err // it is taken back, the metadata object first
		return
	} else if err != nil {
		// Abort finds out whether the object is there after all, and removes it.
		ev.Err = err
		if aerr := w.Abort(ctx); aerr != nil {
			ev.Outcome, ev.Err = InDoubt, errors.Join(err, aerr)
		}
		return
	}
	if retained == nil && !stop { // a savepoint is not in the store
		ev.Outcome = Committed
		return
	}
	err := c.put(ctx, func(s *Content) {
		s.NextID = max(s.NextID, id+1)
		if stop {
			s.Stopped = ev.Dir
		} else {
			s.Retained = retained
		}
	})
	ev.Err = err
	switch {
	case err == nil:
		ev.Outcome = Committed
	case errors.Is(err, ErrFenced):
		ev.Outcome = Fenced
	case errors.Is(err, ErrInDoubt), ctx.Err() != nil:
		ev.Outcome = InDoubt
	default:
		ev.Outcome = NotAdded
	}
}
