package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

const (
	defaultMaxMetadataBytes = 4 << 30
	defaultParallelism      = 16
)

func (o *Options) parallelism() int {
	if o == nil || o.Parallelism <= 0 {
		return defaultParallelism
	}
	return o.Parallelism
}

// Open reads the metadata at loc, a folder with a _metadata object or a metadata
// object of any name, and decides how its handles resolve. It opens no state
// file; to recognise a moved folder it may ask for the presence of a few.
//
// Errors wrap ErrNoSnapshot, metadata.ErrCorrupt (then a *metadata.FormatError
// with offset and field), metadata.ErrUnsupportedVersion, or a store error.
func Open(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *Options) (*Snapshot, error) {
	s := &Snapshot{pool: pool}
	if opts != nil {
		s.opts = *opts
	}
	r, at, err := openMetadata(ctx, pool, loc)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	info := r.Info()
	s.Ref = newRef(at, info)
	limit := s.opts.MaxMetadataBytes
	if limit <= 0 {
		limit = defaultMaxMetadataBytes
	}
	if info.Size > limit {
		return nil, &metadata.FormatError{Name: at.String(), Offset: -1,
			Detail: fmt.Sprintf("metadata of %d bytes is over the limit of %d", info.Size, limit), Err: metadata.ErrCorrupt}
	}
	// One byte more than the limit, so that a longer object is seen to be longer.
	s.Checkpoint, err = metadata.Decode(io.LimitReader(r, limit+1), &metadata.DecodeOptions{Name: at.String(), Size: info.Size})
	if err != nil {
		return nil, err
	}
	if err := s.resolve(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// newRef describes the metadata object at loc.
func newRef(loc blobstore.Location, info blobstore.Info) Ref {
	dir := loc
	dir.Path = parentPath(loc.Path)
	ref := newDirRef(dir)
	ref.Location, ref.Size, ref.ModTime = loc, info.Size, info.ModTime
	if name := baseName(loc.Path); name != MetadataName {
		ref.Name = name
	}
	return ref
}

// newDirRef describes a folder in which a _metadata object lies or would lie.
func newDirRef(dir blobstore.Location) Ref {
	ref := Ref{Location: dir.Join(MetadataName), Dir: dir, Name: baseName(dir.Path), Kind: RefOther, ID: checkpointNumber(baseName(dir.Path))}
	if _, job, _, ok := jobOf(dir.Path); ok {
		ref.Job = job
	}
	switch job := savepointJob(ref.Name); {
	case ref.ID >= 0:
		ref.Kind = RefCheckpoint
	case job != "":
		ref.Kind, ref.Job = RefSavepoint, job
	}
	return ref
}

// openMetadata opens the metadata object at loc or in the folder loc.
func openMetadata(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location) (blobstore.Reader, blobstore.Location, error) {
	store, name, err := pool.Resolve(ctx, loc)
	if err != nil {
		return nil, loc, err
	}
	tries := []blobstore.Location{loc.Join(MetadataName), loc}
	if baseName(name) == MetadataName {
		tries[0], tries[1] = tries[1], tries[0]
	}
	for _, at := range tries {
		if at.Path == "" {
			continue
		}
		r, err := store.Open(ctx, at.Path)
		switch {
		case err == nil:
			return r, at, nil
		case errors.Is(err, blobstore.ErrNotExist), errors.Is(err, blobstore.ErrIsDirectory):
		default:
			return nil, at, err
		}
	}
	if plain, ok := withoutEntropy(loc); ok {
		return openMetadata(ctx, pool, plain)
	}
	return nil, loc, noSnapshot(ctx, store, loc)
}

// noSnapshot says what lies at loc instead of a snapshot.
func noSnapshot(ctx context.Context, store blobstore.Store, loc blobstore.Location) error {
	prefix := loc.Path
	if prefix != "" {
		prefix += "/"
	}
	var files, folders, checkpoints int
	var example string
	const enough = 1000
	for info, err := range store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		switch {
		case errors.Is(err, blobstore.ErrNotExist):
			return fmt.Errorf("%s: %w: it does not exist", loc, ErrNoSnapshot)
		case err != nil:
			return err
		}
		name := strings.TrimSuffix(info.Name, "/")
		switch {
		case !info.IsPrefix:
			files++
		case checkpointNumber(baseName(name)) >= 0 || savepointJob(baseName(name)) != "":
			checkpoints++
			example = baseName(name)
		default:
			folders++
		}
		if files+folders+checkpoints == enough {
			break
		}
	}
	ref := newDirRef(loc)
	switch {
	case checkpoints > 0:
		return fmt.Errorf("%s: %w: it holds snapshots, such as %s: name one", loc, ErrNoSnapshot, example)
	case files+folders == 0:
		return fmt.Errorf("%s: %w: it does not exist", loc, ErrNoSnapshot)
	case ref.Kind != RefOther:
		return fmt.Errorf("%s: %w: no %s in it, so it is in progress, failed or half deleted", loc, ErrNoSnapshot, MetadataName)
	}
	return fmt.Errorf("%s: %w: a folder without %s", loc, ErrNoSnapshot, MetadataName)
}
