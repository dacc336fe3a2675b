package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// RefKind is what a place looks like by its names alone. What a snapshot is can
// only be told from its metadata: see Inspection.Kind.
type RefKind string

// Kinds of places.
const (
	RefCheckpoint RefKind = "checkpoint" // chk-N
	RefSavepoint  RefKind = "savepoint"  // savepoint-xxxxxx-xxxxxxxxxxxx
	RefOther      RefKind = "other"      // any other folder or file
)

// Ref is a place at which a snapshot was found, not yet opened.
type Ref struct {
	// Location of the metadata object; if Incomplete, where it would be.
	Location blobstore.Location `json:"-"`
	// Dir is the folder relative handles resolve against.
	Dir blobstore.Location `json:"-"`
	// Job is the job ID in hex if a folder above the snapshot is named so, the six
	// digits in its name for a savepoint, else "".
	Job string `json:"job,omitempty"`
	// Name is the folder's name, "chk-17"; for a metadata object of another name
	// its own.
	Name string  `json:"name"`
	Kind RefKind `json:"place"`
	// ID is the number in chk-N; -1 if the name has none.
	ID int64 `json:"-"`
	// Incomplete: a chk-N or savepoint folder without _metadata: in progress,
	// failed, or being deleted.
	Incomplete bool      `json:"incomplete,omitempty"`
	Size       int64     `json:"metadataBytes"` // of the metadata object
	ModTime    time.Time `json:"time,omitzero"` // of the metadata object
}

// FindOptions narrows a search. Nil is the default.
type FindOptions struct {
	// MaxDepth is how many levels of folders below the location are looked into;
	// 0 is 8.
	MaxDepth int
	// Parallelism bounds concurrent store calls; 0 is 16.
	Parallelism int
	// Progress, if not nil, is called now and then, from any goroutine.
	Progress func(Progress)
}

// Progress is how far a long function has come.
type Progress struct {
	Folders   int64 // folders listed
	Objects   int64 // objects seen
	Snapshots int64 // snapshots found or read
}

// Find looks for snapshots at and below loc: a metadata object, a snapshot's
// folder, a job folder (with or without the job ID level), or a root above many.
// It yields them in the order of their paths, chk-N by number, with incomplete
// ones among them, and holds one folder's subfolder names per level.
//
// It asks for folders level by level and never lists what is below shared,
// taskowned, dstl or a snapshot's folder, so that it costs calls in proportion to
// folders, not to objects. Nothing found is not an error unless loc itself does
// not exist (ErrNoSnapshot). A folder copied from a configuration with the entropy
// marker "_entropy_" in it is looked for without. After a folder that cannot be listed the search goes
// on: the error is yielded with a Ref whose Dir is that folder, and the caller
// decides. Only a cancelled context ends it.
func Find(ctx context.Context, pool *blobstore.Pool, loc blobstore.Location, opts *FindOptions) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		if opts == nil {
			opts = &FindOptions{}
		}
		store, _, err := pool.Resolve(ctx, loc)
		if err != nil {
			yield(Ref{Dir: loc}, err)
			return
		}
		f := &finder{store: store, progress: progress{report: opts.Progress}, maxDepth: cmp.Or(opts.MaxDepth, 8)}
		f.slots = make(chan struct{}, cmp.Or(max(opts.Parallelism, 0), defaultParallelism))
		f.run(ctx, loc, yield)
	}
}

// progress counts and reports.
type progress struct {
	report                      func(Progress)
	folders, objects, snapshots atomic.Int64
}

func (p *progress) add(folders, objects, snapshots int64) {
	if p.report == nil {
		return
	}
	p.report(Progress{p.folders.Add(folders), p.objects.Add(objects), p.snapshots.Add(snapshots)})
}

// finder walks folders depth first. Up to cap(slots) of the next folders are
// asked about while the first one's answer is awaited.
type finder struct {
	progress
	store    blobstore.Store
	maxDepth int
	slots    chan struct{}
	wg       sync.WaitGroup
}

// node is a folder to be asked about.
type node struct {
	dir     blobstore.Location
	depth   int
	started bool
	done    chan struct{}

	// The answer.
	ref      *Ref
	children []string // names of folders
	empty    bool
	err      error
}

func (f *finder) run(ctx context.Context, loc blobstore.Location, yield func(Ref, error) bool) {
	if loc.Path != "" {
		info, err := f.store.Stat(ctx, loc.Path)
		switch {
		case err == nil && !info.IsPrefix:
			f.add(0, 1, 1)
			yield(newRef(loc, info), nil)
			return
		case err == nil, errors.Is(err, blobstore.ErrNotExist), errors.Is(err, blobstore.ErrIsDirectory):
		default:
			yield(Ref{Dir: loc}, err)
			return
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer f.wg.Wait()
	defer cancel()
	// next are the folders still to be answered for, the first one last.
	next := []*node{{dir: loc}}
	for len(next) > 0 {
		for i := len(next) - 1; i >= max(0, len(next)-cap(f.slots)); i-- {
			f.start(ctx, next[i])
		}
		n := next[len(next)-1]
		next = next[:len(next)-1]
		select {
		case <-n.done:
		case <-ctx.Done():
			yield(Ref{Dir: n.dir}, context.Cause(ctx))
			return
		}
		switch {
		case n.err != nil:
			if !yield(Ref{Dir: n.dir, Name: baseName(n.dir.Path)}, n.err) || ctx.Err() != nil {
				return
			}
		case n.ref != nil:
			if !yield(*n.ref, nil) {
				return
			}
		case n.depth == 0 && n.empty:
			if plain, ok := withoutEntropy(n.dir); ok {
				loc = plain
				next = append(next, &node{dir: plain})
				continue
			}
			yield(Ref{Dir: loc}, fmt.Errorf("%s: %w: it does not exist or is empty", loc, ErrNoSnapshot))
			return
		}
		if n.depth < f.maxDepth {
			for _, name := range slices.Backward(n.children) {
				next = append(next, &node{dir: n.dir.Join(name), depth: n.depth + 1})
			}
		}
	}
}

func (f *finder) start(ctx context.Context, n *node) {
	if n.started {
		return
	}
	n.started = true
	n.done = make(chan struct{})
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		defer close(n.done)
		select {
		case f.slots <- struct{}{}:
			defer func() { <-f.slots }()
		case <-ctx.Done():
			n.err = context.Cause(ctx)
			return
		}
		f.ask(ctx, n)
	}()
}

// ask looks for a _metadata object in n's folder, and if there is none for
// folders below.
func (f *finder) ask(ctx context.Context, n *node) {
	ref := newDirRef(n.dir)
	info, err := f.store.Stat(ctx, ref.Location.Path)
	switch {
	case err == nil && !info.IsPrefix:
		ref.Size, ref.ModTime = info.Size, info.ModTime
		n.ref = &ref
		f.add(1, 1, 1)
		return
	case err == nil, errors.Is(err, blobstore.ErrNotExist), errors.Is(err, blobstore.ErrIsDirectory):
	default:
		n.err = err
		return
	}
	if ref.Kind != RefOther && n.depth > 0 {
		ref.Incomplete = true
		n.ref = &ref
		f.add(1, 0, 0)
		return
	}
	n.children, n.empty, n.err = f.subfolders(ctx, n.dir)
	if n.err == nil && ref.Kind != RefOther && !n.empty {
		ref.Incomplete = true
		n.ref = &ref
		n.children = nil
	}
}

// subfolders lists the folders in dir worth looking into, chk-N by number.
func (f *finder) subfolders(ctx context.Context, dir blobstore.Location) (names []string, empty bool, err error) {
	prefix := dir.Path
	if prefix != "" {
		prefix += "/"
	}
	objects := int64(0)
	for info, err := range f.store.List(ctx, &blobstore.ListOptions{Prefix: prefix, Delimiter: true}) {
		if errors.Is(err, blobstore.ErrNotExist) {
			break
		}
		if err != nil {
			return nil, false, err
		}
		if !info.IsPrefix {
			if objects++; objects%10000 == 0 {
				f.add(0, 10000, 0)
			}
			continue
		}
		names = append(names, strings.Clone(strings.TrimSuffix(info.Name[len(prefix):], "/")))
	}
	f.add(1, objects%10000, 0)
	empty = objects == 0 && len(names) == 0
	job := isJobID(baseName(dir.Path))
	structure := 0 // folders that only a job's folder has
	for _, name := range names {
		if _, ok := classOfFolder(name); ok {
			structure++
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		switch name {
		case sharedDir, taskOwnedDir:
			return job || structure > 1
		case changelogDir:
			return job
		}
		return name == ""
	})
	slices.SortFunc(names, compareFolders)
	return names, empty, nil
}

// compareFolders orders names by their bytes, but those of checkpoints by number.
func compareFolders(a, b string) int {
	na, nb := checkpointNumber(a), checkpointNumber(b)
	const prefix = "chk-"
	switch {
	case na >= 0 && nb >= 0:
		return cmp.Compare(na, nb)
	case na >= 0 && strings.HasPrefix(b, prefix):
		return -1
	case nb >= 0 && strings.HasPrefix(a, prefix):
		return 1
	case na >= 0:
		return cmp.Compare(prefix, b)
	case nb >= 0:
		return cmp.Compare(a, prefix)
	}
	return cmp.Compare(a, b)
}
