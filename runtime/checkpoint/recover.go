package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/snapshot"
)

// RestoreSettings say where a job starts from.
type RestoreSettings struct {
	// Path of a snapshot to start from, if the store has no checkpoint of this job:
	// one that has goes on from its own, as in Flink. A job that was stopped with a
	// savepoint has to be given a path: without one New gives ErrStopped.
	Path string
	Mode incremental.RestoreMode
	// AllowNonRestored drops state that no operator of the job takes.
	AllowNonRestored bool
	// FallBack lets the job start from an older retained checkpoint when the newest
	// cannot be read. Without it that is an error, since results would be silently
	// other ones than those that were given out: sinks have committed what the newest
	// checkpoint has. The error names what could be used.
	FallBack bool
}

// ErrUnreadable says that a checkpoint which the job has to start from cannot be read.
var ErrUnreadable = errors.New("the checkpoint to restore from cannot be read")

// recover takes the store over and registers what it retains.
func (c *Coordinator) recover(ctx context.Context) error {
	content, err := c.cfg.Store.TakeOver(ctx)
	if err != nil {
		return err
	}
	if content.Stopped != "" {
		if c.cfg.Restore.Path == "" {
			return fmt.Errorf("%w: it goes on from %s, if it is started from there", ErrStopped, content.Stopped)
		}
		if len(content.Retained) > 0 {
			c.log.Warn("checkpoints from before the job was stopped with a savepoint are deleted", "checkpoints", completedList(content.Retained))
		}
		content.Stopped, content.Retained, content.Result = "", nil, JobResult{}
	}
	c.found = content.Result
	c.content = content.clone()
	var usable []Completed
	var snapshots []*snapshot.Snapshot
	var unreadable []error
	for _, k := range content.Retained {
		s, err := c.open(ctx, k.Path)
		if err == nil && s.Checkpoint.ID != k.ID && k.Mode == Own {
			err = fmt.Errorf("it is checkpoint %d: %w", s.Checkpoint.ID, metadata.ErrCorrupt)
		}
		if err != nil {
			err = fmt.Errorf("checkpoint %d: %w", k.ID, err)
			if !lost(err) {
				return fmt.Errorf("a retained checkpoint cannot be read now: %w", err)
			}
			unreadable = append(unreadable, err)
			continue
		}
		usable, snapshots = append(usable, k), append(snapshots, s)
	}
	if n := len(content.Retained); len(unreadable) > 0 {
		err := unreadableError(unreadable, usable)
		newestReads := len(usable) > 0 && usable[len(usable)-1].ID == content.Retained[n-1].ID
		switch {
		case newestReads:
			// An older one is not needed to start, but it must not be forgotten in silence.
			c.log.Error("a retained checkpoint cannot be read and is not kept any more", "err", errors.Join(unreadable...))
		case content.Result.Ended():
			c.log.Error("checkpoints of the job, which has ended, cannot be read and are not kept any more", "err", err)
		case !c.cfg.Restore.FallBack || len(usable) == 0:
			return err
		default:
			c.log.Error("the newest checkpoint cannot be read: the job starts from an older one, as it was told to; results after it are given out again", "checkpoint", usable[len(usable)-1].ID, "err", err)
		}
	}
	for i, k := range usable {
		if err := c.register(ctx, snapshots[i], k); err != nil {
			return err
		}
	}
	if len(usable) == 0 && c.cfg.Restore.Path != "" && !content.Result.Ended() {
		k, err := c.adopt(ctx)
		if err != nil {
			return err
		}
		usable = append(usable, k)
	}
	first, orphans, err := c.findOrphans(ctx, usable)
	if err != nil {
		return err
	}
	switch err := c.cleaner.Recover(ctx, func(reg *incremental.Registry) error { c.sweep(reg, orphans); return nil }); {
	case errors.Is(err, incremental.ErrKeptUnknown):
		return fmt.Errorf("the journal of the shared state registry: %w", err)
	case err != nil:
		// The rest of the journal protects from litter only.
		c.log.Warn("the journal of files to be deleted cannot be read", "err", err)
	}
	if len(unreadable) > 0 || len(usable) != len(content.Retained) || first > c.content.NextID {
		if err := c.put(ctx, func(s *Content) {
			s.Retained = usable
			if first > s.NextID {
				s.FirstID, s.NextID = first, first
			}
			for i := range usable {
				s.NextID = max(s.NextID, usable[i].ID+1)
			}
		}); err != nil {
			return err
		}
	}
	for _, k := range usable {
		if k.Mode != Claimed {
			continue
		}
		if err := c.cleaner.Claimed(ctx, k.ID); err != nil {
			// The journal protects from litter only.
			c.log.Warn("what was claimed cannot be written to the journal", "checkpoint", k.ID, "err", err)
		}
	}
	return nil
}

// findOrphans finds what former coordinators of this store left in folders of
// checkpoints that were not completed. For a store that has just begun it gives the
// ID to begin with: behind all that are in the job's folder already.
func (c *Coordinator) findOrphans(ctx context.Context, usable []Completed) (first int64, orphans []Orphan, err error) {
	begun := c.content.NextID > c.content.FirstID // IDs were used
	c.succeeds = begun
	// By their place: a snapshot of another job may have the ID of one of ours.
	var kept []blobstore.Location
	for _, k := range usable {
		loc, err := blobstore.Parse(k.Path)
		if err != nil {
			return 0, nil, err
		}
		kept = append(kept, loc.Dir())
	}
	dir := c.folder()
	for ref, err := range snapshot.Find(ctx, c.cfg.Pool, dir, &snapshot.FindOptions{MaxDepth: 1}) {
		if errors.Is(err, snapshot.ErrNoSnapshot) || errors.Is(err, blobstore.ErrNotExist) {
			return 0, nil, nil // nothing is there yet
		}
		if err != nil {
			return 0, nil, fmt.Errorf("what is in %s: %w", dir, err)
		}
		if ref.Kind != snapshot.RefCheckpoint || ref.ID < 0 || ref.ID > maxStartID {
			continue
		}
		if !begun {
			first = max(first, ref.ID+1)
			continue
		}
		if ref.ID < c.content.FirstID || ref.ID >= c.content.NextID {
			c.foreign = true
			continue
		}
		if slices.ContainsFunc(kept, ref.Dir.Same) {
			continue
		}
		var o Orphan
		if !ref.Incomplete {
			s, err := snapshot.Open(ctx, c.cfg.Pool, ref.Location, nil)
			if err != nil {
				c.log.Warn("a checkpoint that was not completed cannot be read and stays", "path", ref.Location.String(), "err", err)
				c.foreign = true
				continue
			}
			o = Orphan{Path: ref.Location.String(), Meta: s.Checkpoint}
		}
		if o.Files, err = c.filesIn(ctx, ref.Dir); err != nil {
			return 0, nil, fmt.Errorf("what is in %s: %w", ref.Dir, err)
		}
		orphans = append(orphans, o)
		c.emptied = append(c.emptied, ref.Dir)
	}
	return first, orphans, nil
}

// sweep has what findOrphans found deleted.
func (c *Coordinator) sweep(reg *incremental.Registry, orphans []Orphan) {
	if len(orphans) > 0 {
		c.log.Info("checkpoints that were not completed are deleted", "checkpoints", len(orphans))
	}
	if err := Sweep(reg, orphans); err != nil {
		c.log.Warn("a checkpoint that was not completed cannot be deleted and stays", "err", err)
		c.foreign = true
	}
}

// filesIn are the files of a folder but for the metadata object.
func (c *Coordinator) filesIn(ctx context.Context, dir blobstore.Location) (files []metadata.StreamHandle, err error) {
	store, name, err := c.cfg.Pool.Resolve(ctx, dir)
	if err != nil {
		return nil, err
	}
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: name + "/"}) {
		if err != nil {
			return nil, err
		}
		base := strings.TrimPrefix(info.Name, name+"/")
		if base != snapshot.MetadataName {
			files = append(files, &metadata.FileHandle{Path: javaString(dir.Join(base).String()), Size: info.Size})
		}
	}
	return files, nil
}

// lost says whether a snapshot that cannot be opened is gone or damaged. A store that
// does not answer, or a start that is cancelled, is no reason to forget a checkpoint.
func lost(err error) bool {
	for _, e := range []error{blobstore.ErrNotExist, blobstore.ErrDataCorrupt, metadata.ErrCorrupt, metadata.ErrUnsupportedVersion, snapshot.ErrNoSnapshot} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func unreadableError(unreadable []error, usable []Completed) error {
	var b strings.Builder
	for i, err := range unreadable {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	if len(usable) == 0 {
		return fmt.Errorf("%w, and no other is retained: %s", ErrUnreadable, b.String())
	}
	k := usable[len(usable)-1]
	return fmt.Errorf("%w: %s; the newest that can be read is %d in %s", ErrUnreadable, b.String(), k.ID, k.Path)
}

func (c *Coordinator) open(ctx context.Context, path string) (*snapshot.Snapshot, error) {
	loc, err := blobstore.Parse(path)
	if err != nil {
		return nil, err
	}
	return snapshot.Open(ctx, c.cfg.Pool, loc, nil)
}

// register tells the shared state registry of a snapshot.
func (c *Coordinator) register(ctx context.Context, s *snapshot.Snapshot, k Completed) error {
	opts := &incremental.RestoreOptions{Resolve: func(h metadata.StreamHandle) (blobstore.Location, bool, error) {
		t := s.Resolve(h)
		switch t.Kind {
		case snapshot.TargetObject, snapshot.TargetSegment:
			return t.Location, true, nil
		case snapshot.TargetRefused:
			return blobstore.Location{}, false, t.Refused
		}
		return blobstore.Location{}, false, nil
	}}
	if k.Mode == Own {
		opts = nil // its handles are where we wrote them
	}
	r, err := c.cleaner.Restore(ctx, s.Checkpoint, k.Path, k.Mode.Mode(), opts)
	if err != nil {
		return fmt.Errorf("checkpoint %d in %s: %w", k.ID, k.Path, err)
	}
	if r.Untrusted > 0 && k.Mode != Own { // those of an own one were told of when they were restored
		c.log.Warn("files of the snapshot lie outside its folder and will never be deleted", "snapshot", k.Path, "files", r.Untrusted)
	}
	return nil
}

// maxStartID leaves room for IDs behind that of a snapshot to start from: Flink counts
// from one, so that a larger one is none that a job has got to.
const maxStartID = math.MaxInt64 / 2

// adopt begins with the snapshot that the job was told to start from.
func (c *Coordinator) adopt(ctx context.Context) (Completed, error) {
	s, err := c.open(ctx, c.cfg.Restore.Path)
	if err != nil {
		return Completed{}, fmt.Errorf("snapshot to start from: %w", err)
	}
	if s.Checkpoint.ID > maxStartID {
		return Completed{}, fmt.Errorf("snapshot to start from: %s has checkpoint ID %d, behind which there are no more for the job's own: %w", s.Ref.Location, s.Checkpoint.ID, metadata.ErrCorrupt)
	}
	// What cannot be dealt out is better known before anything is changed.
	if _, err := Assign(s.Checkpoint, c.cfg.Graph, &AssignOptions{AllowNonRestored: c.cfg.Restore.AllowNonRestored}); err != nil {
		return Completed{}, fmt.Errorf("snapshot to start from: %w", err)
	}
	k := Completed{ID: s.Checkpoint.ID, Path: s.Ref.Location.String(), Mode: OwnershipOf(c.cfg.Restore.Mode)}
	if p := s.Checkpoint.Properties; len(p) > 0 {
		k.Savepoint = p.Decode().Kind.Savepoint()
	}
	return k, c.register(ctx, s, k)
}

// RestoredState is what a job starts from.
type RestoredState struct {
	From     Completed
	Snapshot *snapshot.Snapshot
	*Assignment
}

// Restore reads the checkpoint that Failover gave, or, before the first one, the
// one that New found; from is nil for none. The coordinators of operators and the
// master hooks get their state back; that of the tasks is dealt out in the result,
// which is nil if there is nothing to restore. fixedMax is AssignOptions.FixedMax.
func (c *Coordinator) Restore(ctx context.Context, from *Completed, fixedMax func(vertex int) bool) (*RestoredState, error) {
	if from == nil {
		for _, op := range c.core.g.coordinators {
			c.runners[op].reset(0, nil)
		}
		return nil, nil
	}
	s, err := c.open(ctx, from.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: checkpoint %d: %w", ErrUnreadable, from.ID, err)
	}
	a, err := Assign(s.Checkpoint, c.cfg.Graph, &AssignOptions{AllowNonRestored: c.cfg.Restore.AllowNonRestored, FixedMax: fixedMax})
	if err != nil {
		return nil, err
	}
	if len(a.Dropped) > 0 {
		c.log.Warn("state of operators that the job does not have is dropped, as allowed", "operators", fmt.Sprint(a.Dropped))
	}
	if err := c.restoreMasters(ctx, s.Checkpoint); err != nil {
		return nil, err
	}
	for _, op := range c.core.g.coordinators {
		c.runners[op].reset(from.ID, a.Coordinator(op))
	}
	at := time.Now().UnixMilli()
	c.post(func() { c.core.Restored(Restored{ID: from.ID, At: at, Path: from.Path, Savepoint: from.Savepoint}) })
	c.log.Info("the job is restored", "checkpoint", from.ID, "path", from.Path)
	return &RestoredState{From: *from, Snapshot: s, Assignment: a}, nil
}

// Latest is the checkpoint that New found, nil for none.
func (c *Coordinator) Latest(ctx context.Context) (*Completed, error) {
	list, err := c.Retained(ctx)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[len(list)-1], nil
}

func (c *Coordinator) restoreMasters(ctx context.Context, m *metadata.Checkpoint) error {
	taken := map[string]bool{}
	for _, h := range c.cfg.Masters {
		for i := range m.MasterStates {
			s := &m.MasterStates[i]
			if s.Name.Go() != h.Name() {
				continue
			}
			taken[h.Name()] = true
			if err := h.Restore(ctx, m.ID, s.Version, s.Payload); err != nil {
				return fmt.Errorf("checkpoint %d: master hook %s: %w", m.ID, h.Name(), err)
			}
		}
	}
	for i := range m.MasterStates {
		name := m.MasterStates[i].Name.Go()
		if !taken[name] && !c.cfg.Restore.AllowNonRestored {
			return fmt.Errorf("checkpoint %d has state of master hook %q, which the job does not have: %w; it may be dropped by allowing non-restored state", m.ID, name, ErrNonRestored)
		}
	}
	return nil
}
