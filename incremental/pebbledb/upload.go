package pebbledb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// FileWriter writes one file of a checkpoint; *snapshot.FileWriter is one. Close
// gives its handle, Abort drops it.
type FileWriter interface {
	io.Writer
	Close() (metadata.StreamHandle, error)
	Abort() error
}

// Create begins a file of a checkpoint, in the folder of shared files or in the
// checkpoint's own. It is called from many goroutines.
//
//	func(ctx context.Context, shared bool) pebbledb.FileWriter {
//		if shared {
//			return w.File(ctx, snapshot.ScopeShared)
//		}
//		return w.File(ctx, snapshot.ScopeExclusive)
//	}
type Create func(ctx context.Context, shared bool) FileWriter

// UploadOptions change an upload. Nil is the default.
type UploadOptions struct {
	// Full uploads all tables. Without Forward they go into the checkpoint's own
	// folder: a native savepoint, to which no later checkpoint refers.
	Full bool
	// Forward makes a Full upload one that later checkpoints refer to once it is
	// confirmed, with its tables among the shared files: a full checkpoint, after which
	// the earlier ones may be deleted.
	Forward bool
	// Exists says whether the object of a handle is still there. It is asked, for the
	// tables that would not be uploaded again, after a checkpoint was aborted. Nil:
	// the third checkpoint in a row that follows aborted ones uploads all tables.
	Exists func(context.Context, metadata.StreamHandle) (bool, error)
	// Merge writes small tables as segments of larger files, for which Create has to give
	// handles with absolute paths; nil does not, nor does a Full upload without Forward.
	Merge *incremental.FileMerging
}

// Uploaded is what an upload made.
type Uploaded struct {
	// Handle has all but Meta, which is the caller's.
	Handle *metadata.IncrementalHandle
	// Identities are those of Handle.Shared, for the shared state registry.
	Identities []incremental.Identity
	// Files and Bytes are what was written; Reused is how many tables were not.
	Files, Reused int
	Bytes         int64
}

// Upload is the asynchronous part of a checkpoint: it waits until the tables are
// linked and writes those that the last confirmed checkpoint lacks, the MANIFEST
// and the like, and the checksums.
//
// After an error, also that of ctx, the files that are begun are aborted; those that
// were closed are the caller's to delete, as snapshot.Writer's Abort does.
func (f *Frozen) Upload(ctx context.Context, create Create, opts *UploadOptions) (*Uploaded, error) {
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	d := f.d
	if err := d.Acquire(); err != nil {
		return nil, err
	}
	defer d.Release()
	if err := f.hold(); err != nil {
		return nil, err
	}
	defer f.unhold()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.life, func() { cancel(context.Cause(d.life)) })()
	up, err := f.upload(ctx, create, &o)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		return nil, fmt.Errorf("%s: checkpoint %d: %w", d.name(), f.id, err)
	}
	return up, nil
}

// stored is a file that lies in the blob store.
type stored struct {
	entry  sumEntry
	handle metadata.StreamHandle
}

func (f *Frozen) upload(ctx context.Context, create Create, o *UploadOptions) (*Uploaded, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	d := f.d
	list, err := d.list(f)
	if err != nil {
		return nil, err
	}
	base := map[string]stored{}
	if !o.Full {
		if base, err = d.up.reusable(ctx, list, o.Exists); err != nil {
			return nil, err
		}
	}
	merge := o.merging()
	if merge != nil {
		base = merge.dense(list, base)
	}
	up := &Uploaded{}
	shared := make([]stored, len(list.shared))
	private := make([]stored, len(list.private))
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxUploads)
	put := func(files []listed, isShared bool, to ...*stored) {
		g.Go(func() error {
			written, err := d.put(gctx, files, create, isShared)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			up.Files++
			for i, s := range written {
				*to[i] = s
				up.Bytes += s.entry.Size
			}
			return nil
		})
	}
	var fresh []int
	for i, file := range list.shared {
		if s, ok := base[file.name]; ok && s.entry.Size == file.size {
			shared[i] = s
			up.Reused++
			continue
		}
		fresh = append(fresh, i)
	}
	for _, group := range merge.pack(list, fresh) {
		files, to := make([]listed, len(group)), make([]*stored, len(group))
		for k, i := range group {
			files[k], to[k] = list.shared[i], &shared[i]
		}
		put(files, !o.Full || o.Forward, to...)
	}
	for i, file := range list.private {
		put([]listed{file}, false, &private[i])
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	d.up.count(list, fresh, shared)
	own := d.opts.KeyGroups
	sum := sums{Format: uint64(formatVersion), Comparer: d.popts.Comparer.Name, Merger: d.popts.Merger.Name,
		Incarnation: d.incarnation, Checkpoint: f.id, KeyGroups: [2]int{int(own.Start), int(own.End())}, Empty: list.empty}
	h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, CheckpointID: f.id, BackendID: javaio.NewString(d.incarnation),
		Range: own, ID: javaio.NewString(uuid.NewString())}
	now := make(map[string]stored, len(shared))
	for _, s := range shared {
		if reusable(s.handle) {
			now[s.entry.Name] = s
		}
		sum.Files = append(sum.Files, s.entry)
		h.Shared = append(h.Shared, metadata.NamedHandle{Name: javaio.NewString(s.entry.Name), Handle: s.handle})
		up.Identities = append(up.Identities, s.entry.registered())
	}
	for _, s := range private {
		sum.Files = append(sum.Files, s.entry)
		h.Private = append(h.Private, metadata.NamedHandle{Name: javaio.NewString(s.entry.Name), Handle: s.handle})
	}
	text := sum.encode()
	w := create(ctx, false)
	if _, err := copyTo(ctx, w, bytes.NewReader(text)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", SumsName, err), w.Abort())
	}
	handle, err := w.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", SumsName, err)
	}
	h.Private = append(h.Private, metadata.NamedHandle{Name: javaio.NewString(SumsName), Handle: handle})
	up.Files++
	up.Bytes += int64(len(text))
	h.CheckpointedSize = up.Bytes
	up.Handle = h
	if !o.Full || o.Forward {
		d.up.uploaded(f, now)
		if d.opts.KeepLocal {
			f.keepLocal(text)
		}
	}
	d.fs.keepObjects(list.objects)
	return up, nil
}

// reusable says whether the handle means the same in another checkpoint's metadata:
// a relative path does not.
func reusable(h metadata.StreamHandle) bool {
	_, relative := metadata.Innermost(h).(*metadata.RelativeFileHandle)
	return !relative
}

// maxUploads bounds the goroutines of one upload; Process.Transfers bounds what
// they do at a time.
const maxUploads = 16

// put writes files, one behind the other, into one object.
func (d *DB) put(ctx context.Context, files []listed, create Create, shared bool) ([]stored, error) {
	if err := d.p.uploads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer d.p.uploads.Release(1)
	w := create(ctx, shared)
	entries := make([]sumEntry, len(files))
	for i, file := range files {
		var err error
		if entries[i], err = d.copyFile(ctx, w, file); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", file.name, err), w.Abort())
		}
	}
	h, err := w.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", files[0].name, err)
	}
	handles, err := segments(h, entries)
	if err != nil {
		return nil, err
	}
	written := make([]stored, len(files))
	for i := range written {
		written[i] = stored{entries[i], handles[i]}
	}
	return written, nil
}

// copyFile writes what a listed file holds.
func (d *DB) copyFile(ctx context.Context, w io.Writer, file listed) (e sumEntry, err error) {
	src, done, err := d.open(file)
	if err != nil {
		return e, err
	}
	defer done()
	sum, err := copyTo(ctx, w, io.NewSectionReader(atContext{ctx, src}, 0, file.size))
	if err != nil {
		return e, err
	}
	if sum.n != file.size {
		return e, fmt.Errorf("has %d bytes, not %d", sum.n, file.size)
	}
	e = sumEntry{Name: file.name, Size: file.size, Sum: checksum(sum.h.Sum64())}
	if file.table {
		e.Incarnation, e.Local = d.incarnation, file.name
		if l, ok := d.unproven(file.name); ok && file.remote == nil && l.entry.Sum != e.Sum {
			err := l.entry.mismatch(l.from, e.Sum)
			d.fail(err)
			return e, err
		}
	}
	if r := file.remote; r != nil {
		if r.entry.Sum != e.Sum {
			return e, r.entry.mismatch(r.display, e.Sum)
		}
		e.Incarnation, e.Local = r.entry.Incarnation, r.entry.Local
	}
	return e, nil
}

// open reads a listed file.
func (d *DB) open(file listed) (src sst.Source, done func(), err error) {
	if r := file.remote; r != nil {
		err := r.use()
		if err == nil {
			return r.source(), r.done, nil
		}
		if !errors.Is(err, errGone) || file.path == "" {
			return nil, nil, err
		}
		// It arrived meanwhile, and is a file like any other.
	}
	h, err := d.fs.Open(file.path)
	if err != nil {
		return nil, nil, err
	}
	return sst.ReaderAt(h, file.size), func() { h.Close() }, nil
}

type atContext struct {
	ctx context.Context
	src sst.Source
}

func (a atContext) ReadAt(p []byte, off int64) (int, error) { return a.src.ReadAt(a.ctx, p, off) }

type summed struct {
	h *xxhash.Digest
	n int64
}

func (s *summed) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	return s.h.Write(p)
}

// copyTo writes what r has.
func copyTo(ctx context.Context, w io.Writer, r io.Reader) (*summed, error) {
	sum := &summed{h: xxhash.New()}
	buf := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := r.Read(buf)
		if n > 0 {
			sum.Write(buf[:n])
			if _, err := w.Write(buf[:n]); err != nil {
				return nil, err
			}
		}
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// uploads knows what lies in the blob store: what the last confirmed checkpoint
// has, and what those that are not confirmed yet have.
type uploads struct {
	mu      sync.Mutex
	frozen  map[int64]*Frozen // not ended
	base    map[string]stored
	baseID  int64
	aborts  int // since the last confirmation
	pending map[int64]map[string]stored
	// copies are folders that stay after their checkpoint was released.
	copies map[int64]string
	d      *DB
}

func (u *uploads) init(d *DB) {
	u.d, u.baseID = d, -1
	u.frozen, u.pending, u.copies = map[int64]*Frozen{}, map[int64]map[string]stored{}, map[int64]string{}
}

// any tells whether a checkpoint has tables of the database.
func (u *uploads) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.base) > 0 || len(u.pending) > 0
}

func (u *uploads) begin(f *Frozen) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.frozen[f.id] != nil {
		return false
	}
	u.frozen[f.id] = f
	return true
}

// end removes the links of a checkpoint that was released, once it is settled.
func (u *uploads) end(f *Frozen) {
	remove := func() {
		u.mu.Lock()
		delete(u.frozen, f.id)
		_, keep := u.copies[f.id]
		u.mu.Unlock()
		if !keep {
			u.d.removeDir(f.dir)
		}
	}
	select {
	case <-f.settled:
		remove()
	default:
		go func() {
			<-f.settled
			remove()
		}()
	}
}

func (u *uploads) uploaded(f *Frozen, files map[string]stored) {
	u.mu.Lock()
	if f.id > u.baseID {
		u.pending[f.id] = files
	}
	u.mu.Unlock()
}

// count numbers the copies of tables that are written although the base has them, so that
// the shared state registry does not take the new object for the old.
func (u *uploads) count(list *listing, fresh []int, to []stored) {
	u.mu.Lock()
	base := u.base
	u.mu.Unlock()
	for _, i := range fresh {
		if s, ok := base[list.shared[i].name]; ok && s.entry.identity() == to[i].entry.identity() {
			to[i].entry.Copy = s.entry.Copy + 1
		}
	}
}

// reusable gives the files of the base that need not be uploaded again.
func (u *uploads) reusable(ctx context.Context, list *listing, exists func(context.Context, metadata.StreamHandle) (bool, error)) (map[string]stored, error) {
	u.mu.Lock()
	base, doubt := u.base, u.aborts
	u.mu.Unlock()
	if doubt == 0 {
		return base, nil
	}
	if exists == nil {
		if doubt >= 3 {
			return nil, nil
		}
		return base, nil
	}
	there := make(map[string]stored, len(list.shared))
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxUploads)
	for _, file := range list.shared {
		s, ok := base[file.name]
		if !ok {
			continue
		}
		g.Go(func() error {
			switch ok, err := exists(ctx, s.handle); {
			case err != nil:
				return err
			case ok:
				mu.Lock()
				there[file.name] = s
				mu.Unlock()
			}
			return nil
		})
	}
	return there, g.Wait()
}

// Confirmed says that a checkpoint is complete: later ones refer to its tables. It
// may come late, twice, never, or after that of a later checkpoint.
func (d *DB) Confirmed(id int64) {
	u := &d.up
	u.mu.Lock()
	var remove []string
	if files, ok := u.pending[id]; ok && id > u.baseID {
		u.base, u.baseID, u.aborts = files, id, 0
		for k := range u.pending {
			if k <= id {
				delete(u.pending, k)
			}
		}
		remove = u.dropCopiesLocked(func(k int64) bool { return k < id })
	}
	u.mu.Unlock()
	for _, dir := range remove {
		d.removeDir(dir)
	}
}

// Aborted says that a checkpoint will never be complete: it failed somewhere, or a
// later one overtook it. Its files are the coordinator's to delete. Like Confirmed
// it may come late, twice, or never.
func (d *DB) Aborted(id int64) {
	u := &d.up
	u.mu.Lock()
	var remove []string
	if _, ok := u.pending[id]; ok {
		delete(u.pending, id)
		u.aborts++
		remove = u.dropCopiesLocked(func(k int64) bool { return k == id })
	}
	u.mu.Unlock()
	for _, dir := range remove {
		d.removeDir(dir)
	}
}

// dropCopiesLocked forgets local copies and gives the folders to remove.
func (u *uploads) dropCopiesLocked(which func(int64) bool) []string {
	var dirs []string
	for id, dir := range u.copies {
		if which(id) {
			delete(u.copies, id)
			if u.frozen[id] == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	slices.Sort(dirs)
	return dirs
}
