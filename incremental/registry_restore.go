package incremental

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// RestoreOptions change how a restored snapshot is registered. Nil is the default.
type RestoreOptions struct {
	// Resolve finds the object that a handle names, false if it names none; nil
	// takes absolute paths as they are written. A snapshot that was moved needs one.
	Resolve func(metadata.StreamHandle) (blobstore.Location, bool, error)
	// Trust are folders in which a claimed snapshot may have files. The default is
	// the registry's own folders for a checkpoint that lies there: one of the job's,
	// which may name files of a snapshot that the job does not own. For any other it is
	// the folder two above chk-N, where all jobs of a cluster lie; only the job's own
	// if that is the whole store, and a savepoint's own folder. Metadata that was
	// tampered with must not delete other files.
	Trust []blobstore.Location
}

// Restored says what a snapshot brought.
type Restored struct {
	Files int // physical objects
	// Untrusted of them lie outside the trusted folders and will never be deleted.
	Untrusted int
}

// Restore registers a snapshot that a job starts from, and, in mode Claim, each
// checkpoint that the job itself has retained when it restarts. metadataObject is
// its address; relative handles are below its folder. c may be dropped afterwards.
//
// In mode Claim it is a completed checkpoint from then on. In the others it stays
// Kept as long as the registry lives, and has to be restored again after a restart.
func (r *Registry) Restore(c *metadata.Checkpoint, metadataObject string, mode RestoreMode, opts *RestoreOptions) (Restored, error) {
	if opts == nil {
		opts = &RestoreOptions{}
	}
	var res Restored
	if r.byID[c.ID] != nil {
		return res, fmt.Errorf("restore of checkpoint %d: %w", c.ID, ErrKnownCheckpoint)
	}
	at, err := blobstore.Parse(metadataObject)
	if err != nil {
		return res, err
	}
	folder := at.Dir()
	trust := opts.Trust
	if trust == nil && slices.ContainsFunc(r.files.own, folder.HasPrefix) {
		trust = r.files.own
	}
	if trust == nil {
		trust = []blobstore.Location{folder}
		if job := folder.Dir(); strings.HasPrefix(folder.Base(), "chk-") && job.Path != "" {
			trust[0] = job
			if root := job.Dir(); root.Path != "" {
				trust[0] = root
			}
		}
	}
	resolve := opts.Resolve
	if resolve == nil {
		resolve = func(h metadata.StreamHandle) (blobstore.Location, bool, error) { return locationOf(h, &folder) }
	}
	cp := &checkpoint{id: c.ID, phase: Completed, mode: mode, restored: true}
	if mode != Claim {
		cp.phase = Kept
	}
	trusted := trustedFolders{trust: trust, known: map[int32]bool{}}
	var claimed bitmap // what it makes ours
	for p, h := range c.StreamHandles() {
		f := none
		if opts.Resolve == nil && absolutePath(h) != "" {
			f, err = r.files.written(h)
		} else {
			var loc blobstore.Location
			var ok bool
			if loc, ok, err = resolve(h); err == nil && !ok {
				continue
			}
			if err == nil {
				f = r.files.intern(loc)
			}
		}
		if err != nil {
			r.forgetNew(&cp.files)
			return Restored{}, fmt.Errorf("%s: %s: %w", at, c.Field(p), err)
		}
		if cp.files.has(f) {
			continue
		}
		cp.files.set(f)
		rec := r.files.at(f)
		if rec.phase == fileDoomed || rec.phase == fileDeleting {
			r.forgetNew(&cp.files)
			return Restored{}, fmt.Errorf("%s: %s: %w", at, c.Field(p), ErrBeingDeleted)
		}
		res.Files++
		if mode != Claim {
			continue
		}
		if trusted.has(rec.dir, r.files.dirs[rec.dir].loc) {
			claimed.set(f)
			continue
		}
		if rec.phase == fileNew {
			rec.foreign = true
		}
		if rec.foreign {
			res.Untrusted++
		}
	}
	if err := r.addMeta(cp, metadataObject); err != nil {
		r.forgetNew(&cp.files)
		return Restored{}, err
	}
	cp.files.each(func(f int32) bool {
		r.bring(f, c.ID)
		if claimed.has(f) {
			r.files.at(f).foreign = false
		}
		return true
	})
	r.highest = max(r.highest, c.ID)
	r.add(cp)
	r.changes++
	return res, nil
}

// Keep protects files of a snapshot that is not ours and whose metadata is not at
// hand, as KeptFiles of a former registry gave them. It comes before Recover.
func (r *Registry) Keep(id int64, mode RestoreMode, files []blobstore.Location) {
	cp := &checkpoint{id: id, phase: Kept, mode: mode, restored: true}
	for _, loc := range files {
		f := r.files.intern(loc)
		r.bring(f, id)
		cp.files.set(f)
	}
	r.highest = max(r.highest, id)
	r.add(cp)
}

// KeptFiles yields the files of the snapshots of an ID that are not ours, metadata
// objects included, with their restore mode.
func (r *Registry) KeptFiles(id int64) iter.Seq2[blobstore.Location, RestoreMode] {
	return func(yield func(blobstore.Location, RestoreMode) bool) {
		for _, c := range r.all {
			if c.phase != Kept || c.id != id {
				continue
			}
			one := func(f int32) bool { return yield(r.files.location(f), c.mode) }
			for _, m := range c.metas {
				if !one(m) {
					return
				}
			}
			if !c.files.each(one) {
				return
			}
		}
	}
}

// ClaimedFiles yields the files of a snapshot that was restored in mode Claim, as far
// as they may be deleted, each with whether it is a metadata object.
func (r *Registry) ClaimedFiles(id int64) iter.Seq2[blobstore.Location, bool] {
	return func(yield func(loc blobstore.Location, isMetadata bool) bool) {
		c := r.byID[id]
		if c == nil || !c.restored || c.phase == Kept {
			return
		}
		for _, m := range c.metas {
			if !yield(r.files.location(m), true) {
				return
			}
		}
		c.files.each(func(f int32) bool { return r.files.at(f).foreign || yield(r.files.location(f), false) })
	}
}

// forgetNew undoes the interning of a restore that failed.
func (r *Registry) forgetNew(set *bitmap) {
	set.each(func(f int32) bool {
		if r.files.at(f).phase == fileNew {
			r.files.forget(f)
		}
		return true
	})
}

// addMeta gives a checkpoint its metadata object.
func (r *Registry) addMeta(c *checkpoint, object string) error {
	if object == "" {
		return nil
	}
	loc, err := blobstore.Parse(object)
	if err == nil && loc.Path == "" {
		err = fmt.Errorf("%s names no object: %w", loc, blobstore.ErrInvalidName)
	}
	if err != nil {
		return err
	}
	f := r.files.intern(loc)
	rec := r.files.at(f)
	if rec.phase != fileNew {
		return fmt.Errorf("checkpoint %d: %s is already known: %w", c.id, loc, ErrKnownCheckpoint)
	}
	rec.phase, rec.isMeta, rec.since, rec.foreign = fileLive, true, c.id, false
	r.files.dirs[rec.dir].snapshot = true
	c.metas = append(c.metas, f)
	return nil
}

// trustedFolders remembers which folders are trusted.
type trustedFolders struct {
	trust []blobstore.Location
	known map[int32]bool
}

func (t *trustedFolders) has(dir int32, loc blobstore.Location) bool {
	ok, seen := t.known[dir]
	if !seen {
		ok = slices.ContainsFunc(t.trust, loc.HasPrefix)
		t.known[dir] = ok
	}
	return ok
}

// keeps says whether a snapshot with this metadata object is kept already.
func (r *Registry) keeps(id int64, mode RestoreMode, metadataObject string) bool {
	loc, err := blobstore.Parse(metadataObject)
	if err != nil {
		return false
	}
	f := r.files.find(loc)
	for _, c := range r.all {
		if f != none && c.phase == Kept && c.id == id && c.mode == mode && (c.files.has(f) || slices.Contains(c.metas, f)) {
			return true
		}
	}
	return false
}
