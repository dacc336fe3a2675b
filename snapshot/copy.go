package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// CopyOptions changes a copy. Nil is the default.
type CopyOptions struct {
	// Parallelism is how many files are copied at a time; 0 is 4. Each holds two
	// buffers of 256 KiB, besides what the stores hold.
	Parallelism int
	// Progress is told of bytes and files as they arrive; one call at a time.
	Progress func(CopyProgress)
	// Checksums reads the files of the copy when it is whole, and writes their
	// checksums beside _metadata; see WriteChecksums.
	Checksums bool
}

// CopyProgress is how far a copy is.
type CopyProgress struct {
	Files, OfFiles int
	Bytes, OfBytes int64 // OfBytes as the handles say; less if some do not
}

// CopyFile is one physical file of a copy.
type CopyFile struct {
	From  string `json:"from"`  // URL
	Name  string `json:"name"`  // in the copy's folder
	Bytes int64  `json:"bytes"` // as the handles say; -1 unknown
	// Present: it was copied before, by a run that was interrupted.
	Present bool `json:"present,omitempty"`

	location blobstore.Location
	copied   bool // by this run
}

// CopyPlan says what a copy will do. Its methods may not be used concurrently.
type CopyPlan struct {
	From  string     `json:"from"`  // the snapshot's folder
	To    string     `json:"to"`    // the copy's folder
	Files []CopyFile `json:"files"` // each referenced file once, in order of their addresses
	// Bytes of files that are not there yet, and of those that are.
	Bytes        int64 `json:"bytes"`
	PresentBytes int64 `json:"presentBytes"`
	// Rewritten is how many handles keep an absolute path, which then is that of
	// the copy: files that later checkpoints of a job may refer to, segments of merged
	// files, and all in metadata before version 3. Such a copy is not moved by hand.
	Rewritten int `json:"rewritten"`
	// Done: the copy is there already, whole.
	Done bool `json:"done"`

	src  *Snapshot
	to   blobstore.Location
	cp   *metadata.Checkpoint // of the copy
	opts CopyOptions
}

// PlanCopy plans to copy a snapshot of any kind, with every file it references,
// into the folder to of any store that its pool reaches. The result needs no other
// folder: handles become relative where Flink can do with such, and are rewritten
// elsewhere (CopyPlan.Rewritten). Nothing is written.
//
// ErrAlreadyThere says that another snapshot lies there; ErrOccupied that something
// else does, files of another copy that was interrupted among it; ErrRefused that a
// handle points where it may not be followed (Options.Trust allows it).
func PlanCopy(ctx context.Context, s *Snapshot, to blobstore.Location, opts *CopyOptions) (*CopyPlan, error) {
	p := &CopyPlan{From: s.Dir.String(), To: to.String(), src: s, to: to, Files: []CopyFile{}}
	if opts != nil {
		p.opts = *opts
	}
	if err := apartFrom(s, to, "copied"); err != nil {
		return nil, err
	}
	names := map[string]string{} // by address
	taken := map[string]bool{MetadataName: true}
	for f := range Files(s) {
		if f.Refused != "" {
			return nil, fmt.Errorf("%s: %w: %s", f.URL, ErrRefused, f.Refused)
		}
		name := copyName(f.Location)
		for taken[name] {
			name += "-1"
		}
		taken[name] = true
		if f.Location.Dir().Same(to) {
			return nil, fmt.Errorf("%s: %w: files of the snapshot that is copied lie there", to, ErrOccupied)
		}
		names[f.Location.Key()] = name
		p.Files = append(p.Files, CopyFile{From: f.Location.String(), Name: name, Bytes: f.Bytes, location: f.Location})
	}
	var err error
	if p.cp, err = s.Checkpoint.MapStreams(func(around metadata.KeyedHandle, h metadata.StreamHandle) (metadata.StreamHandle, error) {
		return p.rewrite(around, h, names)
	}); err != nil {
		return nil, err
	}
	p.rewriteFolders()
	present, there, err := folderFor(ctx, p.src.pool, p.to, func(name string) bool { return taken[name] || name == ChecksumsName })
	if err != nil {
		return nil, err
	}
	for i := range p.Files {
		f := &p.Files[i]
		if size, ok := present[f.Name]; ok {
			info, err := p.stat(ctx, f.location)
			if err != nil {
				return nil, err
			}
			if f.Bytes = info.Size; size == info.Size {
				f.Present = true
				p.PresentBytes += size
				continue
			}
		}
		p.Bytes += max(f.Bytes, 0)
	}
	if !there {
		return p, nil
	}
	same, err := p.sameMetadata(ctx)
	switch {
	case err != nil:
		return nil, err
	case !same:
		return nil, fmt.Errorf("%s: %w", to, ErrAlreadyThere)
	}
	p.Done = !slices.ContainsFunc(p.Files, func(f CopyFile) bool { return !f.Present })
	return p, nil
}

// copyName is the name of a file in a copy, the same in every run: Flink's own
// random names are kept, others get a part of their address's hash.
func copyName(l blobstore.Location) string {
	base := baseName(l.Path)
	if uuid.Validate(base) == nil {
		return base
	}
	sum := sha256.Sum256([]byte(l.Key()))
	return base + "-" + hex.EncodeToString(sum[:6])
}

// reused reports whether later checkpoints take over the files of a handle, when a
// job is restored from this one and claims it. Flink takes a relative path over as it
// is, and then it means a file of the later checkpoint, which is not there. So it
// writes absolute paths for such files, and a copy keeps to that.
func reused(around metadata.KeyedHandle) bool {
	switch around.(type) {
	case *metadata.IncrementalHandle, *metadata.ChangelogHandle, *metadata.ChangelogFileHandle:
		return true
	}
	return false
}

// rewrite gives the handle of the copied file.
func (p *CopyPlan) rewrite(around metadata.KeyedHandle, h metadata.StreamHandle, names map[string]string) (metadata.StreamHandle, error) {
	t := p.src.Resolve(h)
	switch t.Kind {
	case TargetInline, TargetEmpty:
		return h, nil
	case TargetRefused:
		return nil, fmt.Errorf("%s: %w", t.Written, t.Refused)
	}
	name, ok := names[t.Location.Key()]
	if !ok {
		return nil, fmt.Errorf("%s: is not among the snapshot's files", t.Location)
	}
	switch h := h.(type) {
	case *metadata.SegmentHandle:
		path, err := p.absolute(name)
		c := *h
		c.Path = path
		return &c, err
	case *metadata.FileHandle:
		if p.src.Checkpoint.Version < 3 || reused(around) { // Flink 1.11 brought relative handles
			path, err := p.absolute(name)
			return &metadata.FileHandle{Path: path, Size: h.Size}, err
		}
		return &metadata.RelativeFileHandle{Path: javaio.NewString(name), Size: h.Size}, nil
	case *metadata.RelativeFileHandle:
		return &metadata.RelativeFileHandle{Path: javaio.NewString(name), Size: h.Size}, nil
	}
	return nil, fmt.Errorf("%s: a handle of tag %s cannot be copied", t.Location, h.Tag())
}

// absolute is the path of a file of the copy as its handle has it. The folder may have
// a name that no handle may: whoever reads the copy would not follow it.
func (p *CopyPlan) absolute(name string) (metadata.String, error) {
	at := p.to.Join(name)
	path := javaio.NewString(flinkPath(at))
	if back, _, err := parseWritten(path.Go()); err != nil {
		return "", fmt.Errorf("%s: %w: %w", shown(p.to.String()), blobstore.ErrInvalidName, err)
	} else if !back.Same(at) {
		return "", fmt.Errorf("%s: %w: a handle with such a path means %s", p.to, blobstore.ErrInvalidName, back)
	}
	p.Rewritten++
	return path, nil
}

// rewriteFolders sets the folders that handles of merged files name beside them.
func (p *CopyPlan) rewriteFolders() {
	dir := javaio.NewString(flinkPath(p.to))
	for i := range p.cp.Operators {
		for k := range p.cp.Operators[i].Subtasks {
			s := &p.cp.Operators[i].Subtasks[k]
			for _, h := range []*metadata.OperatorHandle{s.ManagedOperator, s.RawOperator} {
				if h != nil && h.Form == metadata.TagMergedOperator {
					h.TaskOwnedDir, h.SharedDir = dir, dir
				}
			}
		}
	}
}

// objectsIn are the sizes of the objects in a folder, by name.
func objectsIn(ctx context.Context, pool *blobstore.Pool, dir blobstore.Location) (map[string]int64, error) {
	store, prefix, err := pool.Resolve(ctx, dir)
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		prefix += "/"
	}
	sizes := map[string]int64{}
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		if err != nil {
			return nil, err
		}
		if !info.IsPrefix {
			sizes[info.Name[len(prefix):]] = info.Size
		}
	}
	return sizes, nil
}

func (p *CopyPlan) stat(ctx context.Context, l blobstore.Location) (blobstore.Info, error) {
	store, name, err := p.src.pool.Resolve(ctx, l)
	if err != nil {
		return blobstore.Info{}, err
	}
	info, err := store.Stat(ctx, name)
	return info, missing(l, err)
}

// missing makes of an absent file damage: a handle points at nothing.
func missing(l blobstore.Location, err error) error {
	if errors.Is(err, blobstore.ErrNotExist) {
		return &damage.Error{Name: l.String(), Offset: -1, Field: "file", Detail: "is referenced and not there", Err: damage.ErrCorrupt}
	}
	return err
}

// sameMetadata reports whether the _metadata in the copy's folder is the copy's.
func (p *CopyPlan) sameMetadata(ctx context.Context) (bool, error) {
	store, name, err := p.src.pool.Resolve(ctx, p.to.Join(MetadataName))
	if err != nil {
		return false, err
	}
	var want bytes.Buffer
	if err := metadata.Encode(&want, p.cp); err != nil {
		return false, err
	}
	r, err := store.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(want.Len())+1))
	return err == nil && bytes.Equal(got, want.Bytes()), err
}

// Apply copies what is not there yet, then writes _metadata, then verifies the
// copy. A run that is interrupted, or fails, leaves files and no _metadata; the same
// copy planned and applied again goes on from there. The verification is nil after
// an error; damage that it finds is not an error, and may be the original's.
func (p *CopyPlan) Apply(ctx context.Context) (*Verification, error) {
	if !p.Done {
		if err := p.copyFiles(ctx); err != nil {
			return nil, err
		}
		if err := p.commit(ctx); err != nil {
			return nil, err
		}
		p.Done = true
	}
	return verifyAndSum(ctx, p.src.pool, p.to, nil, p.opts.Checksums)
}

// verifyAndSum verifies what was made, and, if it is sound, writes its checksums if
// it has none.
func verifyAndSum(ctx context.Context, pool *blobstore.Pool, at blobstore.Location, o *VerifyOptions, checksums bool) (*Verification, error) {
	v, err := VerifyAt(ctx, pool, at, o)
	if err != nil || !checksums || !v.OK || v.Checksums != nil {
		return v, err
	}
	s, err := Open(ctx, pool, at, nil)
	if err != nil {
		return nil, err
	}
	_, err = WriteChecksums(ctx, s, nil)
	return v, err
}

func (p *CopyPlan) commit(ctx context.Context) error {
	w, err := NewWriter(ctx, p.src.pool, SavepointIn(p.to), nil)
	if errors.Is(err, ErrAlreadyThere) {
		// A run before this one wrote it, and files were lost since.
		if same, failed := p.sameMetadata(ctx); failed != nil || same {
			return failed
		}
	}
	if err == nil {
		err = w.Commit(ctx, p.cp)
	}
	if errors.Is(err, ErrAlreadyThere) { // another copy began as this one did, and was faster
		err = errors.Join(err, p.withdraw(ctx))
	}
	return err
}

// withdraw removes the files that this run copied from a folder that has become that
// of another snapshot, but for those which that one names.
func (p *CopyPlan) withdraw(ctx context.Context) error {
	other, err := Open(ctx, p.src.pool, p.to, nil)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for f := range Files(other) {
		named[f.Location.Key()] = true
	}
	for i := range p.Files {
		at := p.to.Join(p.Files[i].Name)
		if !p.Files[i].copied || named[at.Key()] {
			continue
		}
		store, name, err := p.src.pool.Resolve(ctx, at)
		if err == nil {
			err = store.Delete(ctx, name)
		}
		if err != nil && !errors.Is(err, blobstore.ErrNotExist) {
			return err
		}
		p.Files[i].Present, p.Files[i].copied = false, false
	}
	return nil
}

func (p *CopyPlan) copyFiles(ctx context.Context) error {
	var todo []*CopyFile
	progress := CopyProgress{}
	for i := range p.Files {
		if f := &p.Files[i]; !f.Present {
			todo = append(todo, f)
			progress.OfBytes += max(f.Bytes, 0)
		}
	}
	progress.OfFiles = len(todo)
	var mu sync.Mutex
	tell := func(bytes int64, files int) {
		mu.Lock()
		defer mu.Unlock()
		progress.Bytes += bytes
		progress.Files += files
		if p.opts.Progress != nil {
			p.opts.Progress(progress)
		}
	}
	limit := p.opts.Parallelism
	if limit <= 0 {
		limit = 4
	}
	return parallel(ctx, limit, len(todo), func(ctx context.Context, i int) error {
		if err := p.copyFile(ctx, todo[i], func(n int64) { tell(n, 0) }); err != nil {
			return err
		}
		todo[i].Present, todo[i].copied = true, true
		tell(0, 1)
		return nil
	})
}

// copyFile copies one file; inside a store that can, without moving its bytes.
func (p *CopyPlan) copyFile(ctx context.Context, f *CopyFile, tell func(int64)) error {
	from, src, err := p.src.pool.Resolve(ctx, f.location)
	if err != nil {
		return err
	}
	at := p.to.Join(f.Name)
	to, dst, err := p.src.pool.Resolve(ctx, at)
	if err != nil {
		return err
	}
	if from == to && from.Capabilities().ServerCopy {
		if err := from.Copy(ctx, dst, src, nil); err != nil {
			return missing(f.location, err)
		}
		a, err := from.Stat(ctx, src)
		if err != nil {
			return missing(f.location, err)
		}
		b, err := to.Stat(ctx, dst)
		if err != nil {
			return err
		}
		f.Bytes = a.Size
		tell(a.Size)
		return sameSize(f, at, b.Size)
	}
	r, err := from.Open(ctx, src)
	if err != nil {
		return missing(f.location, err)
	}
	defer r.Close()
	f.Bytes = r.Info().Size
	w, err := to.Create(ctx, dst, &blobstore.WriteOptions{SizeHint: f.Bytes})
	if err != nil {
		return err
	}
	defer w.Abort()
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{&counted{r: r, tell: tell}}, make([]byte, 256<<10))
	if err != nil {
		return err
	}
	if err := sameSize(f, at, n); err != nil {
		return err
	}
	return w.Commit()
}

func sameSize(f *CopyFile, at blobstore.Location, n int64) error {
	if n == f.Bytes {
		return nil
	}
	return fmt.Errorf("%s: %d of the %d bytes of %s arrived", at, n, f.Bytes, f.From)
}

// counted tells of the bytes that are read or written.
type counted struct {
	r    io.Reader
	w    io.Writer
	tell func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.tell(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.tell(int64(n))
	return n, err
}
