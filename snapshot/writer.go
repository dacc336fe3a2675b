package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/google/uuid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// Layout says where a new snapshot lies.
type Layout struct {
	// Dir gets _metadata and the files that belong to this snapshot alone.
	Dir blobstore.Location
	// Shared and TaskOwned get files that later checkpoints refer to, and files
	// that tasks own. Those of a savepoint are Dir.
	Shared, TaskOwned blobstore.Location
}

// CheckpointLayout is that of a checkpoint below the folder that checkpoints are
// configured to go to: <root>/<job>/chk-<id>, shared and taskowned. job is a job
// ID, 32 hex digits.
func CheckpointLayout(root blobstore.Location, job string, id int64) (Layout, error) {
	if !isJobID(job) {
		return Layout{}, fmt.Errorf("%q is no job ID: 32 hex digits are", job)
	}
	if id < 0 {
		return Layout{}, fmt.Errorf("checkpoint ID %d is negative", id)
	}
	of := root.Join(job)
	return Layout{Dir: of.Join("chk-" + strconv.FormatInt(id, 10)), Shared: of.Join(sharedDir), TaskOwned: of.Join(taskOwnedDir)}, nil
}

// SavepointLayout is a new folder for a savepoint, as Flink names it:
// <target>/savepoint-<6 digits of the job ID>-<12 random digits>.
func SavepointLayout(target blobstore.Location, job string) (Layout, error) {
	if !isJobID(job) {
		return Layout{}, fmt.Errorf("%q is no job ID: 32 hex digits are", job)
	}
	return SavepointIn(target.Join("savepoint-" + job[:6] + "-" + randomHex(6))), nil
}

// SavepointIn is the layout of a savepoint that lies in dir.
func SavepointIn(dir blobstore.Location) Layout { return Layout{Dir: dir, Shared: dir, TaskOwned: dir} }

// NewJobID makes a random job ID.
func NewJobID() string { return randomHex(16) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// FileScope says which folder of a Layout a file goes to.
type FileScope uint8

// Scopes of files.
const (
	ScopeExclusive FileScope = iota // Layout.Dir
	ScopeShared                     // Layout.Shared
	ScopeTaskOwned                  // Layout.TaskOwned
)

// DefaultMemoryThreshold is Flink's execution.checkpointing.data-inline-threshold:
// state of up to that many bytes lies in _metadata and not in a file.
const DefaultMemoryThreshold = 20 << 10

// WriterOptions changes a Writer. Nil is the default.
type WriterOptions struct {
	// MemoryThreshold in bytes; 0 is DefaultMemoryThreshold, negative none: all
	// state goes to files.
	MemoryThreshold int
	// Checksums writes the checksums of all files that this Writer writes beside
	// _metadata; AddChecksum adds those of others that the snapshot names.
	Checksums bool
	// Merge has small shared files written as segments of larger ones, which Flink reads
	// from 1.20 on. Nil does not. A savepoint, whose files move with it, has none.
	Merge *incremental.FileMerging
}

// ErrAlreadyThere says that a snapshot was not written because its folder has a
// _metadata already.
var ErrAlreadyThere = errors.New("there is a snapshot already")

// ErrNoChecksums says that a snapshot is there whose checksums could not be written.
var ErrNoChecksums = errors.New("the snapshot is there, but not its checksums")

// Writer writes a new snapshot: first its files, by File, then _metadata, by
// Commit. Before Commit returns nil there is no snapshot, after it all of it is
// there and durable. Abort, or a Writer that is dropped after Abort, leaves nothing.
//
// File may be called from many goroutines. Commit and Abort wait for none of them:
// all FileWriters have to be closed before.
type Writer struct {
	pool      *blobstore.Pool
	layout    Layout
	threshold int
	merge     *incremental.FileMerging // nil for none

	mu    sync.Mutex
	made  []blobstore.Location // files that may exist
	sums  *Checksums           // nil if none are wanted
	ended bool
	// What Commit may have written of _metadata, when it failed.
	attempted *fingerprint
}

// fingerprint tells an object's content.
type fingerprint struct {
	size int64
	sum  [sha256.Size]byte
}

// NewWriter begins a snapshot. Its error is ErrAlreadyThere if there is one in
// layout.Dir, or that of the store.
func NewWriter(ctx context.Context, pool *blobstore.Pool, layout Layout, opts *WriterOptions) (*Writer, error) {
	w := &Writer{pool: pool, layout: layout, threshold: DefaultMemoryThreshold}
	if opts != nil && opts.MemoryThreshold != 0 {
		w.threshold = max(opts.MemoryThreshold, 0)
	}
	if opts != nil && opts.Checksums {
		w.sums = &Checksums{}
	}
	if opts != nil && opts.Merge != nil && !layout.Shared.Same(layout.Dir) {
		m := opts.Merge.OrDefault()
		w.merge = &m
	}
	store, name, err := pool.Resolve(ctx, layout.Dir.Join(MetadataName))
	if err != nil {
		return nil, err
	}
	switch _, err := store.Stat(ctx, name); {
	case err == nil:
		return nil, fmt.Errorf("%s: %w", layout.Dir, ErrAlreadyThere)
	case !errors.Is(err, blobstore.ErrNotExist):
		return nil, err
	}
	return w, nil
}

// Part is a Writer for a part of the same snapshot, which another task writes: its
// Abort removes the files of that part alone. The _metadata is not its to commit.
// It makes no call of a store.
func (w *Writer) Part() *Writer {
	return &Writer{pool: w.pool, layout: w.layout, threshold: w.threshold, merge: w.merge}
}

// Merging says how shared files are to be written as segments of larger ones; nil: not
// at all. Whoever writes them does it, by one File for a physical file.
func (w *Writer) Merging() *incremental.FileMerging { return w.merge }

// Layout is where the snapshot lies.
func (w *Writer) Layout() Layout { return w.layout }

// File begins a file of a random name. ctx holds until it is closed.
func (w *Writer) File(ctx context.Context, scope FileScope) *FileWriter {
	return w.named(ctx, scope, uuid.NewString())
}

// named begins a file of that name, which must be its alone.
func (w *Writer) named(ctx context.Context, scope FileScope, name string) *FileWriter {
	dir := [...]blobstore.Location{w.layout.Dir, w.layout.Shared, w.layout.TaskOwned}[scope]
	// A path relative to _metadata survives a move of the folder. Flink writes one
	// for every file of a savepoint and the exclusive files of a checkpoint.
	return &FileWriter{w: w, ctx: ctx, name: name, loc: dir.Join(name), relative: dir.Same(w.layout.Dir), inline: w.threshold}
}

// FileWriter writes one state file, or what lies in _metadata instead of it. It
// holds up to the memory threshold. Not for concurrent use. Close or Abort ends it.
type FileWriter struct {
	w        *Writer
	ctx      context.Context
	name     string
	loc      blobstore.Location
	relative bool
	inline   int // the memory threshold
	buf      []byte
	out      blobstore.Writer
	size     int64
	sum      *xxhash.Digest // nil if no checksum is wanted
	copy     *localCopy     // nil if no copy is wanted
	ended    bool
}

// Write implements io.Writer.
func (f *FileWriter) Write(p []byte) (int, error) {
	if f.ended {
		return 0, blobstore.ErrClosed
	}
	if f.out == nil && len(f.buf)+len(p) <= f.inline {
		f.buf = append(f.buf, p...)
		f.size += int64(len(p))
		return len(p), nil
	}
	if f.out == nil {
		if err := f.create(); err != nil {
			return 0, err
		}
	}
	n, err := f.out.Write(p)
	f.size += int64(n)
	if f.sum != nil {
		f.sum.Write(p[:n])
	}
	if f.copy != nil {
		f.copy.write(p[:n])
	}
	return n, err
}

func (f *FileWriter) create() error {
	store, name, err := f.w.pool.Resolve(f.ctx, f.loc)
	if err != nil {
		return err
	}
	if f.out, err = store.Create(f.ctx, name, nil); err != nil {
		f.out = nil
		return err
	}
	if f.w.sums != nil || f.copy != nil {
		f.sum = xxhash.New()
		f.sum.Write(f.buf)
	}
	if f.copy != nil {
		f.copy.create(f.name)
		f.copy.write(f.buf)
	}
	if len(f.buf) > 0 {
		_, err = f.out.Write(f.buf)
		f.buf = nil
	}
	return err
}

// Size is the number of bytes written so far.
func (f *FileWriter) Size() int64 { return f.size }

// Close ends the file and gives its handle; nil for a file of no bytes, which is
// not written. After an error the Writer's Abort removes what may be left of it.
func (f *FileWriter) Close() (metadata.StreamHandle, error) {
	if f.ended {
		return nil, blobstore.ErrClosed
	}
	f.ended = true
	h, err := f.close()
	if f.copy != nil && f.out != nil {
		if err != nil {
			f.copy.drop(nil)
		} else {
			f.copy.close(copyProof{Location: f.loc.String(), Size: f.size, XXH64: sumText(f.sum.Sum64())})
		}
	}
	return h, err
}

func (f *FileWriter) close() (metadata.StreamHandle, error) {
	switch {
	case f.out == nil && f.size == 0:
		return nil, nil
	case f.out == nil:
		// Flink has the path of a file that might have been there; it only has to differ.
		return &metadata.ByteStreamHandle{Name: javaio.NewString(f.name), Data: f.buf}, nil
	}
	f.w.mu.Lock()
	ended := f.w.ended
	if !ended {
		f.w.made = append(f.w.made, f.loc) // before Commit, whose answer may be lost
	}
	f.w.mu.Unlock()
	if ended {
		return nil, errors.Join(fmt.Errorf("%s: the snapshot was ended before its file: %w", f.loc, blobstore.ErrClosed), f.out.Abort())
	}
	if err := f.out.Commit(); err != nil {
		return nil, err
	}
	var h metadata.StreamHandle
	if h = (&metadata.FileHandle{Path: javaio.NewString(flinkPath(f.loc)), Size: f.size}); f.relative {
		h = &metadata.RelativeFileHandle{Path: javaio.NewString(f.name), Size: f.size}
	}
	if f.sum != nil {
		f.w.AddChecksum(FileChecksum{Path: writtenPath(h), Size: f.size, XXH64: sumText(f.sum.Sum64())})
	}
	return h, nil
}

// AddChecksum adds the checksum of a file that this Writer did not write, under the
// path that its handle has. Without WriterOptions.Checksums it does nothing.
func (w *Writer) AddChecksum(f FileChecksum) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sums != nil {
		w.sums.Files = append(w.sums.Files, f)
	}
}

// writeSums writes the checksums, behind _metadata: of two writers only the one whose
// _metadata it is gets here.
func (w *Writer) writeSums(ctx context.Context, c *metadata.Checkpoint) error {
	h := xxhash.New()
	if err := metadata.Encode(h, c); err != nil {
		return err
	}
	size, err := metadata.EncodedSize(c)
	if err != nil {
		return err
	}
	at := w.layout.Dir.Join(ChecksumsName)
	store, name, err := w.pool.Resolve(ctx, at)
	if err != nil {
		return err
	}
	w.mu.Lock()
	sums := &Checksums{Metadata: FileChecksum{Size: size, XXH64: sumText(h.Sum64())}, Files: slices.Clone(w.sums.Files)}
	w.mu.Unlock()
	return writeChecksums(ctx, store, name, sums)
}

// Abort drops the file. After Close it does nothing.
func (f *FileWriter) Abort() error {
	if f.ended {
		return nil
	}
	f.ended = true
	if f.out == nil {
		return nil
	}
	if f.copy != nil {
		f.copy.drop(nil)
	}
	return f.out.Abort()
}

// flinkPath is a location as Flink's Path prints it: file:/a/b. Flink takes schemes in
// lower case only.
func flinkPath(l blobstore.Location) string {
	l.Spelling = strings.ToLower(l.Spelling)
	if l.Scheme == "file" {
		return "file:/" + strings.TrimPrefix(l.Path, "/")
	}
	return l.String()
}

// Commit writes _metadata and ends the Writer. If it returns nil the snapshot is
// there. With WriterOptions.Checksums it is there after ErrNoChecksums as well, and Abort
// does nothing then. ErrAlreadyThere is the error if another one came to its place meanwhile;
// on stores that cannot create exclusively (see blobstore.Capabilities) a writer
// that is only a moment ahead may go unnoticed. After any error Abort cleans up.
func (w *Writer) Commit(ctx context.Context, c *metadata.Checkpoint) error {
	w.mu.Lock()
	ended := w.ended
	w.mu.Unlock()
	if ended {
		return blobstore.ErrClosed
	}
	at := w.layout.Dir.Join(MetadataName)
	store, name, err := w.pool.Resolve(ctx, at)
	if err != nil {
		return err
	}
	exclusive := store.Capabilities().ExclusiveCreate
	if !exclusive {
		switch _, err := store.Stat(ctx, name); {
		case err == nil:
			return fmt.Errorf("%s: %w", w.layout.Dir, ErrAlreadyThere)
		case !errors.Is(err, blobstore.ErrNotExist):
			return err
		}
	}
	out, err := store.Create(ctx, name, &blobstore.WriteOptions{IfAbsent: exclusive})
	if err != nil {
		return w.commitFailed(ctx, err)
	}
	defer out.Abort()
	sum := &summing{h: sha256.New()}
	b := bufio.NewWriterSize(io.MultiWriter(out, sum), 8<<10)
	if err := metadata.Encode(b, c); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	// From here on _metadata may be there whatever the answer is.
	w.attempted = sum.fingerprint()
	if err := out.Commit(); err != nil {
		return w.commitFailed(ctx, err)
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	if w.sums != nil {
		if err := w.writeSums(ctx, c); err != nil {
			return fmt.Errorf("%s: %w: %w", w.layout.Dir, ErrNoChecksums, err)
		}
	}
	return nil
}

// commitFailed finds out whether a _metadata whose writing failed is there after
// all: an answer may have been lost, and another try of it be refused.
func (w *Writer) commitFailed(ctx context.Context, failed error) error {
	if w.attempted != nil {
		if state, err := w.metadataState(ctx); err == nil && state == metadataOurs {
			w.mu.Lock()
			w.ended = true
			w.mu.Unlock()
			return nil
		}
	}
	if errors.Is(failed, blobstore.ErrExist) {
		return fmt.Errorf("%s: %w", w.layout.Dir, ErrAlreadyThere)
	}
	return failed
}

type metadataState uint8

const (
	metadataAbsent metadataState = iota
	metadataOurs
	metadataOther
)

// metadataState compares the _metadata that is there with what Commit wrote.
func (w *Writer) metadataState(ctx context.Context) (metadataState, error) {
	store, name, err := w.pool.Resolve(ctx, w.layout.Dir.Join(MetadataName))
	if err != nil {
		return 0, err
	}
	r, err := store.Open(ctx, name)
	if errors.Is(err, blobstore.ErrNotExist) {
		return metadataAbsent, nil
	}
	if err != nil {
		return 0, err
	}
	defer r.Close()
	sum := &summing{h: sha256.New()}
	if _, err := io.Copy(sum, io.LimitReader(r, w.attempted.size+1)); err != nil {
		return 0, err
	}
	if got := sum.fingerprint(); got.size == w.attempted.size && bytes.Equal(got.sum[:], w.attempted.sum[:]) {
		return metadataOurs, nil
	}
	return metadataOther, nil
}

type summing struct {
	h    hash.Hash
	size int64
}

func (s *summing) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return s.h.Write(p)
}

func (s *summing) fingerprint() *fingerprint {
	return &fingerprint{size: s.size, sum: [sha256.Size]byte(s.h.Sum(nil))}
}

// abortTimeout bounds an Abort, which goes on after its context was cancelled.
const abortTimeout = time.Minute

// Abort removes what was written; after a Commit that returned nil it does
// nothing, so that it can be deferred. It works, for up to a minute, after ctx was
// cancelled. If it cannot tell whether a failed Commit left its _metadata behind,
// it leaves the files and says so: a snapshot without its files would be worse.
func (w *Writer) Abort(ctx context.Context) error {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return nil
	}
	w.ended = true
	made := w.made
	w.made = nil
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if w.attempted != nil {
		state, err := w.metadataState(ctx)
		if err == nil && state == metadataOurs {
			err = deleteFiles(ctx, w.pool, []blobstore.Location{w.layout.Dir.Join(MetadataName)})
		}
		if err != nil {
			return fmt.Errorf("%s: %d files are left, since their %s may be there: %w", w.layout.Dir, len(made), MetadataName, err)
		}
	}
	if err := deleteFiles(ctx, w.pool, made); err != nil {
		return err
	}
	// A folder that another checkpoint may be about to use stays.
	store, name, err := w.pool.Resolve(ctx, w.layout.Dir)
	if err != nil {
		return err
	}
	if d, ok := store.(blobstore.DirectoryRemover); ok && name != "" {
		if err := d.RemoveEmptyDir(ctx, name); err != nil && !errors.Is(err, blobstore.ErrNotEmpty) {
			return err
		}
	}
	return nil
}

// deleteFiles removes files, which may lie in several stores.
func deleteFiles(ctx context.Context, pool *blobstore.Pool, files []blobstore.Location) error {
	var errs []error
	for len(files) > 0 {
		store, _, err := pool.Resolve(ctx, files[0])
		if err != nil {
			return err
		}
		var names []string
		var rest []blobstore.Location
		for _, f := range files {
			if f.SameStore(files[0]) {
				names = append(names, f.Path)
			} else {
				rest = append(rest, f)
			}
		}
		errs = append(errs, store.DeleteAll(ctx, names))
		files = rest
	}
	return errors.Join(errs...)
}
