package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strconv"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/snapshot"
)

// litter is what former coordinators of the store left behind when their process
// died, as far as it lies where the files of other checkpoints lie: files in the
// shared folder that no checkpoint has, and what writers had begun.
//
// It is looked for in the background, since a listing of the shared folder takes its
// time, and so beside the first checkpoints of this coordinator. A file that is being
// uploaded for one of those looks like litter. Therefore nothing is deleted before all
// checkpoints have ended that had begun when the listing ended: then the registry has
// the files of those that were completed.
//
// Nor does a listing tell litter from the files of a coordinator that has taken over
// meanwhile. So the store's content is written once more as it is, behind the listing: if
// that is accepted nobody had taken over before, and whoever does so later writes files
// that the listing has not seen.
type litter struct {
	files     []blobstore.Location
	store     blobstore.Store
	dir       string   // the job's folder there
	temporary []string // to be given to DeleteTemporary
	folders   []string // of checkpoints, which may be empty
	before    int64    // the lowest checkpoint ID that had not begun when the listing ended
}

// foldersBefore is how many folders of former checkpoints are tried: a coordinator
// that is killed leaves the last ones that it began or deleted.
const foldersBefore = 64

// findLitter lists the job's folder. next is the lowest checkpoint ID that was not used
// before this coordinator, and kept are those that the store has. The result is nil if
// the folder cannot be listed, or another coordinator may have taken over.
func (c *Coordinator) findLitter(ctx context.Context, next int64, kept map[int64]bool) *litter {
	l := &litter{}
	if err := c.listLitter(ctx, l); err != nil {
		if ctx.Err() == nil {
			c.log.Warn("files that a former coordinator may have left are not looked for", "err", err)
		}
		return nil
	}
	if len(l.files)+len(l.temporary) > 0 {
		if err := c.put(ctx, func(*Content) {}); err != nil {
			if ctx.Err() == nil {
				c.log.Warn("files that a former coordinator may have left stay, since they may be those of a later one", "err", err)
			}
			return nil
		}
	}
	for id := max(next-foldersBefore, 1); id < next; id++ {
		if !kept[id] {
			l.folders = append(l.folders, path.Join(l.dir, "chk-"+strconv.FormatInt(id, 10)))
		}
	}
	return l
}

// lookForLitter has mayRemoveLitter know what findLitter finds.
func (c *Coordinator) lookForLitter(ctx context.Context) (found <-chan *litter, run func()) {
	kept := map[int64]bool{}
	for _, k := range c.content.Retained {
		kept[k.ID] = true
	}
	next := c.content.NextID
	ready := make(chan *litter, 1)
	return ready, func() {
		ready <- c.findLitter(ctx, next, kept)
		c.post(func() {
			c.looked = true
			if c.litter = <-ready; c.litter != nil {
				c.litter.before = c.core.nextID
				c.mayRemoveLitter()
			}
		})
	}
}

// lastLitter removes what there is at the end of the job, when no checkpoint is in
// progress any more. If the job has finished, so that nobody comes after this
// coordinator, it waits until the folder is listed.
func (c *Coordinator) lastLitter(ctx context.Context, found <-chan *litter, finished bool) {
	l := c.litter
	if l == nil && finished && !c.looked {
		select {
		case l = <-found:
		case <-ctx.Done():
		}
	}
	if l != nil {
		c.removeLitter(ctx, l)
	}
}

// folder is the job's.
func (c *Coordinator) folder() blobstore.Location { return c.cfg.Checkpoints.Join(c.cfg.Job) }

func (c *Coordinator) listLitter(ctx context.Context, l *litter) (err error) {
	layout, err := snapshot.CheckpointLayout(c.cfg.Checkpoints, c.cfg.Job, 0)
	if err != nil {
		return err
	}
	store, shared, err := c.cfg.Pool.Resolve(ctx, layout.Shared)
	if err != nil {
		return err
	}
	l.store, l.dir = store, path.Dir(shared)
	const batch = 1000
	names := make([]blobstore.Location, 0, batch)
	unknown := func() {
		_ = c.cleaner.Update(func(r *incremental.Registry) error {
			l.files = append(l.files, r.Unknown(names)...)
			return nil
		})
		names = names[:0]
	}
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: shared + "/"}) {
		if err != nil {
			return fmt.Errorf("files in %s: %w", layout.Shared, err)
		}
		if names = append(names, layout.Shared.Join(info.Name[len(shared)+1:])); len(names) == batch {
			unknown()
		}
	}
	unknown()
	t, ok := store.(blobstore.TemporaryLister)
	if !ok {
		return nil
	}
	// Not those in the folder of the log: a record may be written at any time.
	for _, prefix := range []string{shared + "/", path.Join(l.dir, "chk-")} {
		for info, err := range t.ListTemporary(ctx, prefix) {
			if err != nil {
				return fmt.Errorf("what writers have begun in %s: %w", c.folder(), err)
			}
			l.temporary = append(l.temporary, info.Name)
		}
	}
	return nil
}

// mayRemoveLitter begins to delete what was found, once that may be done.
func (c *Coordinator) mayRemoveLitter() {
	l := c.litter
	if l == nil || c.core.oldest() < l.before {
		return
	}
	c.litter = nil
	c.async(func(ctx context.Context) { c.removeLitter(ctx, l) })
}

func (c *Coordinator) removeLitter(ctx context.Context, l *litter) {
	if len(l.files) > 0 {
		c.log.Info("files of checkpoints that were not completed are deleted", "files", len(l.files))
		_ = c.cleaner.Update(func(r *incremental.Registry) error {
			r.Recover(nil, l.files) // without those that a checkpoint has by now
			return nil
		})
	}
	if t, ok := l.store.(blobstore.TemporaryLister); ok {
		for _, name := range l.temporary {
			if err := t.DeleteTemporary(ctx, name); err != nil {
				c.log.Warn("what a writer has begun and left is not removed", "name", name, "err", err)
				return
			}
		}
	}
	if r, ok := l.store.(blobstore.DirectoryRemover); ok {
		for _, name := range l.folders {
			if err := r.RemoveEmptyDir(ctx, name); err != nil && !errors.Is(err, blobstore.ErrNotEmpty) && !errors.Is(err, blobstore.ErrNotExist) {
				c.log.Warn("the folder of a checkpoint is left", "name", name, "err", err)
				return
			}
		}
	}
}

// journalOf says which files the journal of deletions has to have: those that no
// listing of the job's folder finds after a restart.
func (c *Coordinator) journalOf(entries iter.Seq2[blobstore.Location, bool]) iter.Seq2[blobstore.Location, bool] {
	folder := c.folder()
	return func(yield func(blobstore.Location, bool) bool) {
		for loc, meta := range entries {
			if (c.foreign || !loc.HasPrefix(folder)) && !yield(loc, meta) {
				return
			}
		}
	}
}
