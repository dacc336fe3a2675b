package incremental

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Resolver finds the store of an object; a *blobstore.Pool is one.
type Resolver interface {
	Resolve(ctx context.Context, loc blobstore.Location) (blobstore.Store, string, error)
}

// CleanerOptions change how a Cleaner works. Nil is the default.
type CleanerOptions struct {
	// Workers is how many calls of stores run at a time; 0 is 8.
	Workers int
	// Batch is how many names one call deletes; 0 is 500.
	Batch int
	// Journal is where the files still to be deleted are written down, so that a
	// restart does not forget them; nil for nowhere, so that they are left to gc.
	Journal blobstore.Store
	// JournalDir is the folder in Journal, of this job alone; "" is "registry".
	JournalDir string
	// Journaled leaves out of what is to be deleted what need not be in Journal, since
	// it is found after a restart by other means. Nil leaves out nothing.
	Journaled func(iter.Seq2[blobstore.Location, bool]) iter.Seq2[blobstore.Location, bool]
	// MinBackoff and MaxBackoff are the waits after the first and after many
	// failures of a deletion; each failure doubles it. 0 is 1 s and 5 min.
	MinBackoff, MaxBackoff time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Failed is told each deletion that failed, and, with an empty Deletion, each
	// failure of the journal. It must not call the Cleaner.
	Failed func(Deletion, error)
}

// Cleaner is a Registry with hands: it deletes what the registry says nobody needs.
// An object that is already gone is deleted. For concurrent use.
//
//	c := incremental.NewCleaner(incremental.NewRegistry(), pool, nil)
//	go c.Run(ctx)
//	…
//	err := c.Update(func(r *incremental.Registry) error { return r.Confirm(7, "s3://b/ckp/…/chk-7/_metadata") })
//
// Deletions never hold up Update. Before the first file of a set is deleted the set
// is in the journal, if there is one; a journal that cannot be written is reported
// and does not stop deletions, since nothing but garbage depends on it.
type Cleaner struct {
	stores Resolver
	opts   CleanerOptions

	mu  sync.Mutex // of reg
	reg *Registry

	wake chan struct{}
	// turn is held by the one pass that runs, and protects what follows.
	turn    chan struct{}
	life    string
	seq     int
	written [2]uint64 // reg.Changes when the journal was written
	objects []string  // journal objects that may exist, the newest last
	keep    int       // how many of them at the end count
	claimed []claimed
}

// claimed are the files of a claimed snapshot that are not known to be gone, and the
// journal object that lists them.
type claimed struct {
	object string
	files  []blobstore.Location
}

// NewCleaner makes a Cleaner of a registry, which is its own from then on.
func NewCleaner(reg *Registry, stores Resolver, opts *CleanerOptions) *Cleaner {
	c := &Cleaner{stores: stores, reg: reg, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), life: rand.Text()}
	if opts != nil {
		c.opts = *opts
	}
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&c.opts.Workers, 8)
	set(&c.opts.Batch, 500)
	if c.opts.JournalDir == "" {
		c.opts.JournalDir = "registry"
	}
	if c.opts.MinBackoff <= 0 {
		c.opts.MinBackoff = time.Second
	}
	if c.opts.MaxBackoff <= 0 {
		c.opts.MaxBackoff = 5 * time.Minute
	}
	c.opts.MaxBackoff = max(c.opts.MaxBackoff, c.opts.MinBackoff)
	if c.opts.Now == nil {
		c.opts.Now = time.Now
	}
	return c
}

// Update works on the registry, alone, and then has Run look for deletions. f must
// not keep the registry or call the Cleaner.
func (c *Cleaner) Update(f func(*Registry) error) error {
	c.mu.Lock()
	err := f(c.reg)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return err
}

// Run deletes until ctx ends, and returns its error. It has no goroutine left when
// it returns.
func (c *Cleaner) Run(ctx context.Context) error {
	for {
		if _, err := c.Clean(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			c.failed(Deletion{}, err)
		}
		c.mu.Lock()
		at, ok := c.reg.NextRetry()
		c.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		if ok {
			timer = time.NewTimer(max(0, at.Sub(c.opts.Now())))
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// Clean deletes all that is due now and tells how much is left: what failed, and
// what has to wait for its next try. The error is that of ctx or of the journal.
func (c *Cleaner) Clean(ctx context.Context) (left int, err error) {
	if err := ctx.Err(); err != nil {
		return c.unfinished(), err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return c.unfinished(), ctx.Err()
	}
	for ctx.Err() == nil {
		err = c.writeJournal(ctx, false)
		c.mu.Lock()
		batch := c.reg.Take(c.opts.Now(), c.opts.Workers*c.opts.Batch)
		c.mu.Unlock()
		if len(batch) == 0 {
			break
		}
		c.delete(ctx, batch)
	}
	if ctx.Err() == nil {
		err = errors.Join(c.writeJournal(ctx, true), c.forgetClaimed(ctx))
	}
	return c.unfinished(), errors.Join(err, ctx.Err())
}

func (c *Cleaner) unfinished() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reg.Unfinished()
}

func (c *Cleaner) failed(d Deletion, err error) {
	if c.opts.Failed != nil {
		c.opts.Failed(d, err)
	}
}

// delete carries out deletions: in bulk those that are tried for the first time,
// the others alone, so that one that cannot be deleted holds up no other.
func (c *Cleaner) delete(ctx context.Context, batch []Deletion) {
	type group struct {
		store blobstore.Store
		names []string
		of    []Deletion
	}
	var groups []*group
	open := map[blobstore.Store]*group{}
	for _, d := range batch {
		store, name, err := c.stores.Resolve(ctx, d.Location)
		if err != nil {
			c.done(ctx, d, err)
			continue
		}
		g := open[store]
		if g == nil || d.Attempts > 0 {
			g = &group{store: store}
			groups = append(groups, g)
		}
		g.names, g.of = append(g.names, name), append(g.of, d)
		switch {
		case d.Attempts > 0:
		case len(g.names) == c.opts.Batch:
			delete(open, store)
		default:
			open[store] = g
		}
	}
	var workers errgroup.Group
	workers.SetLimit(c.opts.Workers)
	for _, g := range groups {
		workers.Go(func() error {
			var err error
			if len(g.names) == 1 {
				err = g.store.Delete(ctx, g.names[0])
			} else {
				err = g.store.DeleteAll(ctx, g.names)
			}
			if len(g.names) == 1 && errors.Is(err, blobstore.ErrNotExist) {
				err = nil // of a bulk deletion it may be the error of another object
			}
			for _, d := range g.of {
				c.done(ctx, d, err)
			}
			return nil
		})
	}
	workers.Wait()
}

func (c *Cleaner) done(ctx context.Context, d Deletion, err error) {
	wait := c.opts.MaxBackoff
	if d.Attempts < 40 {
		if w := c.opts.MinBackoff << d.Attempts; w > 0 {
			wait = min(wait, w)
		}
	}
	c.mu.Lock()
	emptied, ok := c.reg.Done(d, err, c.opts.Now().Add(wait))
	c.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		c.failed(d, err)
	}
	if ok && ctx.Err() == nil {
		c.removeFolder(ctx, emptied)
	}
}

// ChecksumsName is the name of the object with the checksums of a checkpoint's files,
// in its folder: see snapshot.ChecksumsName.
const ChecksumsName = "_checksums"

// removeFolder removes a folder, and what may be left in it of a checkpoint: its
// checksums. One that stays is no harm, so that it is not tried again.
func (c *Cleaner) removeFolder(ctx context.Context, folder blobstore.Location) {
	store, name, err := c.stores.Resolve(ctx, folder)
	if err == nil && name == "" {
		return
	}
	if err == nil {
		err = store.Delete(ctx, path.Join(name, ChecksumsName))
	}
	if err == nil {
		remover, can := store.(blobstore.DirectoryRemover)
		if !can {
			return
		}
		err = remover.RemoveEmptyDir(ctx, name)
	}
	if err != nil && !errors.Is(err, blobstore.ErrNotEmpty) && ctx.Err() == nil {
		c.failed(Deletion{Location: folder}, err)
	}
}

// Names of journal objects: pending-<life>-<number>, kept-<checkpoint>-<mode> and
// kept-<checkpoint>-CLAIM-<life>.
const (
	pendingObject = "pending-"
	keptObject    = "kept-"
	maxJournal    = 1 << 30 // bytes
)

// writeJournal brings the journal up to date: one object with everything that is to
// be deleted, written before the older ones are removed; none if that is nothing.
// What is gone from it is taken out only at the end of a pass.
func (c *Cleaner) writeJournal(ctx context.Context, atEnd bool) error {
	if c.opts.Journal == nil {
		return nil
	}
	c.mu.Lock()
	added, gone := c.reg.Changes()
	due := added != c.written[0] || atEnd && gone != c.written[1]
	var pending []byte
	if due {
		entries := c.reg.Pending()
		if c.opts.Journaled != nil {
			entries = c.opts.Journaled(entries)
		}
		for range entries {
			pending = encodeJournal(entries)
			break
		}
	}
	c.mu.Unlock()
	fail := func(err error) error { return fmt.Errorf("journal of the shared state registry: %w", err) }
	if due {
		c.keep = 0
		if pending != nil {
			c.seq++
			name := path.Join(c.opts.JournalDir, fmt.Sprintf("%s%s-%d", pendingObject, c.life, c.seq))
			err := blobstore.WriteAll(ctx, c.opts.Journal, name, pending, nil)
			c.objects = append(c.objects, name) // also after an error: an answer can get lost
			if err != nil {
				c.keep = len(c.objects) // the older ones still count
				return fail(err)
			}
			c.keep = 1
		}
		c.written = [2]uint64{added, gone}
	}
	if old := c.objects[:len(c.objects)-c.keep]; len(old) > 0 {
		if err := c.opts.Journal.DeleteAll(ctx, old); err != nil {
			return fail(err)
		}
		c.objects = slices.Clone(c.objects[len(old):])
	}
	return nil
}

// Restore is Registry.Restore. The files of a snapshot that is not claimed are
// written to the journal, so that they are safe after a restart too; if that fails
// the snapshot is registered nevertheless, and the call may be repeated for the
// journal's sake.
func (c *Cleaner) Restore(ctx context.Context, cp *metadata.Checkpoint, metadataObject string, mode RestoreMode, opts *RestoreOptions) (res Restored, err error) {
	err = c.Update(func(r *Registry) error {
		if mode != Claim && r.keeps(cp.ID, mode, metadataObject) {
			return nil
		}
		res, err = r.Restore(cp, metadataObject, mode, opts)
		return err
	})
	if err != nil || mode == Claim || c.opts.Journal == nil {
		return res, err
	}
	c.mu.Lock()
	data := encodeJournal(c.keptOf(cp.ID, mode))
	c.mu.Unlock()
	name := path.Join(c.opts.JournalDir, keptObject+strconv.FormatInt(cp.ID, 10)+"-"+mode.String())
	if err := blobstore.WriteAll(ctx, c.opts.Journal, name, data, nil); err != nil {
		return res, fmt.Errorf("journal of the shared state registry: %w", err)
	}
	return res, nil
}

// Claimed writes the files of a snapshot that was restored in mode Claim to the
// journal, where they stand until all of them are gone: after a restart nothing else
// may tell that they are the job's to delete, since they need not lie in its folder.
// It comes once it is durable elsewhere that the job has claimed the snapshot, and may
// be repeated.
func (c *Cleaner) Claimed(ctx context.Context, id int64) error {
	if c.opts.Journal == nil {
		return nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	n := claimed{object: path.Join(c.opts.JournalDir, fmt.Sprintf("%s%d-%s-%s", keptObject, id, Claim, c.life))}
	c.mu.Lock()
	data := encodeJournal(c.reg.ClaimedFiles(id))
	for loc := range c.reg.ClaimedFiles(id) {
		n.files = append(n.files, loc)
	}
	c.mu.Unlock()
	if len(n.files) == 0 {
		return nil
	}
	if err := blobstore.WriteAll(ctx, c.opts.Journal, n.object, data, nil); err != nil {
		return fmt.Errorf("journal of the shared state registry: %w", err)
	}
	c.claimed = append(c.claimed, n)
	return nil
}

// forgetClaimed removes the journal objects of claimed snapshots that are gone.
func (c *Cleaner) forgetClaimed(ctx context.Context) error {
	var gone []string
	c.mu.Lock()
	left := c.claimed[:0:0]
	for _, n := range c.claimed {
		n.files = slices.DeleteFunc(n.files, func(loc blobstore.Location) bool { return c.reg.files.find(loc) == none })
		if len(n.files) == 0 {
			gone = append(gone, n.object)
		} else {
			left = append(left, n)
		}
	}
	c.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	if err := c.opts.Journal.DeleteAll(ctx, gone); err != nil {
		return fmt.Errorf("journal of the shared state registry: %w", err)
	}
	c.claimed = left
	return nil
}

func (c *Cleaner) keptOf(id int64, mode RestoreMode) iter.Seq2[blobstore.Location, bool] {
	return func(yield func(blobstore.Location, bool) bool) {
		for loc, m := range c.reg.KeptFiles(id) {
			if m == mode && !yield(loc, false) {
				return
			}
		}
	}
}

// ErrKeptUnknown says that the journal's list of files that belong to somebody else
// cannot be read. Those that lie in the registry's own folders are then not safe.
var ErrKeptUnknown = errors.New("which files belong to a snapshot that is not the job's is not known")

// Recover reads the journal of former lives. It comes after the retained
// checkpoints were restored and before the first checkpoint is begun. A journal
// object that is damaged is left where it is and reported in the error, after the
// others were taken over. The registry works without it, unless the error wraps
// ErrKeptUnknown: then the job must not begin.
//
// Of two journal objects that name a file, one as another's and one as the job's, the
// former counts. also, if not nil, tells the registry what else is to be deleted, as
// Update does, once it knows which files are not the job's; its error is joined to
// that of Recover.
func (c *Cleaner) Recover(ctx context.Context, also func(*Registry) error) error {
	if c.opts.Journal == nil {
		if also == nil {
			return nil
		}
		return c.Update(also)
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	type journal struct {
		name         string
		metas, files []blobstore.Location
	}
	var pending, claims, kept []journal
	var damaged []error
	prefix := c.opts.JournalDir + "/"
	if t, ok := c.opts.Journal.(blobstore.TemporaryLister); ok {
		// What former lives had begun to write when they ended.
		for info, err := range t.ListTemporary(ctx, prefix) {
			if err == nil {
				err = t.DeleteTemporary(ctx, info.Name)
			}
			if err != nil {
				damaged = append(damaged, err)
				break
			}
		}
	}
	for info, err := range c.opts.Journal.List(ctx, &blobstore.ListOptions{Prefix: prefix}) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrKeptUnknown, err)
		}
		base := strings.TrimPrefix(info.Name, prefix)
		isPending := strings.HasPrefix(base, pendingObject)
		if !isPending && !strings.HasPrefix(base, keptObject) {
			continue
		}
		data, err := blobstore.ReadAll(ctx, c.opts.Journal, info.Name, maxJournal)
		if errors.Is(err, blobstore.ErrNotExist) {
			continue
		}
		j := journal{name: info.Name}
		if err == nil {
			j.metas, j.files, err = decodeJournal(info.Name, data)
		}
		if err != nil {
			if !isPending && !isClaimed(base) {
				err = fmt.Errorf("%w: %w", ErrKeptUnknown, err)
			}
			damaged = append(damaged, err)
		} else if isPending {
			pending = append(pending, j)
		} else if isClaimed(base) {
			claims = append(claims, j)
		} else {
			kept = append(kept, j)
		}
	}
	err := c.Update(func(r *Registry) error {
		for _, j := range kept { // first: what is kept is not deleted
			var id int64
			var mode string
			name := strings.TrimPrefix(j.name, prefix+keptObject)
			if i := strings.LastIndexByte(name, '-'); i > 0 {
				mode = name[i+1:]
				id, _ = strconv.ParseInt(name[:i], 10, 64)
			}
			k := NoClaim
			if mode == Legacy.String() {
				k = Legacy
			}
			r.Keep(id, k, j.files)
		}
		var err error
		if also != nil {
			err = also(r)
		}
		for _, j := range claims {
			r.Recover(j.metas, j.files)
			c.claimed = append(c.claimed, claimed{j.name, slices.Concat(j.metas, j.files)})
		}
		for _, j := range pending {
			r.Recover(j.metas, j.files)
			c.objects = append(c.objects, j.name)
		}
		return err
	})
	return errors.Join(append(damaged, err)...)
}

// isClaimed says whether a journal object that begins with keptObject lists the files
// of a claimed snapshot.
func isClaimed(name string) bool { return strings.Contains(name, "-"+Claim.String()+"-") }
