package incremental

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/metadata"
)

// Sentinels of the registry.
var (
	// ErrNotInProgress is the answer to an acknowledgement or a confirmation of a
	// checkpoint that was not begun, or has ended. What the late acknowledgement
	// uploaded is deleted.
	ErrNotInProgress = errors.New("checkpoint is not in progress")
	// ErrUnknownFile says that a placeholder stands for a file that no checkpoint has.
	ErrUnknownFile = errors.New("no checkpoint has this file")
	// ErrBeingDeleted says that a file is named which nobody needed any more.
	ErrBeingDeleted = errors.New("file is being deleted")
	// ErrNotClaimed says that a file of a snapshot is named which was restored in
	// NO_CLAIM mode.
	ErrNotClaimed = errors.New("file belongs to a snapshot that was not claimed")
	// ErrKnownCheckpoint says that a checkpoint ID is in use, or was.
	ErrKnownCheckpoint = errors.New("checkpoint ID was used before")
)

// RestoreMode is what a job may do with the files of the snapshot it started from.
type RestoreMode uint8

// Restore modes, as Flink defines them.
const (
	// Claim makes the snapshot a checkpoint of the job: once it is subsumed, its
	// files are deleted as soon as no later checkpoint needs them.
	Claim RestoreMode = iota
	// NoClaim leaves the snapshot to its owner: its files are never deleted, and a
	// checkpoint that refers to one of them is refused, so that the owner may
	// delete it after the job's first checkpoint.
	NoClaim
	// Legacy lets checkpoints refer to the snapshot's files and never deletes
	// them, the metadata object included.
	Legacy
)

var restoreModes = [...]string{"CLAIM", "NO_CLAIM", "LEGACY"}

// String is CLAIM, NO_CLAIM or LEGACY.
func (m RestoreMode) String() string {
	if int(m) < len(restoreModes) {
		return restoreModes[m]
	}
	return fmt.Sprintf("restore mode %d", uint8(m))
}

// Phase is how far a checkpoint is.
type Phase uint8

// Phases, in their order. Kept is that of a restored snapshot that is not ours.
const (
	InProgress Phase = iota
	Completed
	// Discarding: it was subsumed; its metadata object is deleted first, and until
	// that is done all of its files stay.
	Discarding
	Kept
)

var phases = [...]string{"in progress", "completed", "being discarded", "kept for its owner"}

// String is the phase in words.
func (p Phase) String() string {
	if int(p) < len(phases) {
		return phases[p]
	}
	return fmt.Sprintf("phase %d", uint8(p))
}

// Identity is what makes two uploads the same file of the same database. The zero
// Identity, and one without checksum, is the same as no other.
type Identity struct {
	// Incarnation names one life of one backend: two attempts of a task, which may
	// both write a 000012.sst, have different ones.
	Incarnation string
	Name        string // the local name, such as 000012.sst
	Size        int64  // bytes
	// Checksum of the content, in a form that the backends agree on.
	Checksum string
}

func (i *Identity) usable() bool { return i.Checksum != "" }

// AckFile is a file in a task's acknowledgement.
type AckFile struct {
	Identity Identity
	// Handle is where the file is: a file or a segment of one. Nil is a placeholder
	// (Flink's PlaceholderStreamStateHandle): the file was not uploaded again since
	// a confirmed checkpoint has it. Other handles name no file and are left alone.
	Handle metadata.StreamHandle
}

// Registry is the shared state registry: it knows which checkpoint needs which
// file, and so which files nobody needs. It is a state machine without clock,
// goroutine or I/O: deletions are taken with Take, carried out by a Cleaner, and
// reported with Done. Not for concurrent use.
//
// A checkpoint's life:
//
//	Begin(7)                      in progress
//	Register(7, files) …          once for each acknowledgement
//	(the metadata object is written)
//	Confirm(7, metadata object)   completed; older ones in progress are aborted
//	Subsume(7)                    metadata object deleted, then what only 7 needed
//
// or Abort(7) instead of Confirm. Each call may be repeated, lost or late:
//
//	call                      that was lost                    repeated or late
//	Register                  (the checkpoint never completes) files nobody has are deleted
//	Abort                     the next Confirm does it         nothing
//	Confirm                   (the coordinator's own step)     nothing
//	Subsume                   Retain does it                   nothing
//
// References are sets of checkpoint IDs, never counts. Every file that a handle
// names is registered, exclusive ones and those of changelogs too; a file with
// segments is needed while any of them is. Savepoints in progress are not
// registered: they own all of their files and are not aborted by a later checkpoint.
//
// What an acknowledgement or a retained checkpoint names need not be the job's: after
// a restore in mode Legacy both name files of the snapshot, which belongs to somebody
// else. Therefore a file outside the registry's own folders is never deleted, unless
// it is known from elsewhere to be the job's: a claimed snapshot has it (Restore), a
// former registry of the job says so (Recover), or it was uploaded to a folder that
// the caller names (Discard).
//
// Memory is about 200 bytes for a file, 150 for an Identity and one bit for each
// file and checkpoint.
type Registry struct {
	files      fileTable
	identities identityTable
	byID       map[int64]*checkpoint // in progress, completed
	all        []*checkpoint         // also those being discarded and kept, oldest first
	highest    int64                 // highest ID ever begun or restored
	doomed     doomed
	changes    uint64 // what was added to Pending,
	gone       uint64 // and what is gone from it
}

// checkpoint is a set of files and what is known of who needs them.
type checkpoint struct {
	id    int64
	phase Phase
	mode  RestoreMode // of a restored one
	// restored is false for checkpoints of this registry's life.
	restored bool
	metas    []int32 // metadata objects: one, or many after Recover
	files    bitmap
	spare    bitmap // uploads it turned out not to need: deleted when it ends
}

// NewRegistry makes an empty registry. own are the folders to which the job's
// checkpoints are written: see Registry. Without any, every file that is named is
// taken for the job's, which is right only for a job that restores from nobody else's
// snapshot.
func NewRegistry(own ...blobstore.Location) *Registry {
	r := &Registry{byID: map[int64]*checkpoint{}, highest: -1}
	r.files.init()
	r.files.own = own
	r.identities.init()
	return r
}

// Begin opens a checkpoint. IDs ascend; to begin one twice does nothing.
func (r *Registry) Begin(id int64) error {
	if c := r.byID[id]; c != nil && c.phase == InProgress {
		return nil
	}
	if id <= r.highest {
		return fmt.Errorf("checkpoint %d after %d: %w", id, r.highest, ErrKnownCheckpoint)
	}
	r.highest = id
	r.add(&checkpoint{id: id})
	return nil
}

func (r *Registry) add(c *checkpoint) {
	r.all = append(r.all, c)
	if c.phase == InProgress || c.phase == Completed {
		r.byID[c.id] = c
	}
}

func (r *Registry) remove(c *checkpoint) {
	r.all = slices.DeleteFunc(r.all, func(o *checkpoint) bool { return o == c })
	if r.byID[c.id] == c {
		delete(r.byID, c.id)
	}
}

// Register notes what a task acknowledged for a checkpoint in progress, and puts
// into files the handles that the checkpoint must name: a placeholder becomes the
// file it stands for, and of two uploads of one Identity the first stays and the
// second is deleted once the checkpoint has ended.
//
// An error refuses the acknowledgement as a whole, and the checkpoint has to be
// aborted. Whatever was uploaded for an acknowledgement that is refused, or comes
// too late (ErrNotInProgress), is deleted, unless some checkpoint has it or it lies
// outside the registry's own folders.
func (r *Registry) Register(id int64, files []AckFile) error {
	c := r.byID[id]
	if c == nil || c.phase != InProgress {
		r.Discard(files)
		return fmt.Errorf("acknowledgement of checkpoint %d: %w", id, ErrNotInProgress)
	}
	// Two passes, so that an acknowledgement is registered as a whole or not at all,
	// and a duplicate inside a merged file does not cost the others their file.
	own, chosen := make([]int32, len(files)), make([]int32, len(files))
	var refused error
	for i := range files {
		f, err := r.files.written(files[i].Handle)
		own[i] = f
		if err == nil {
			chosen[i], err = r.choose(&files[i], f)
		}
		if err != nil && refused == nil {
			refused = fmt.Errorf("acknowledgement of checkpoint %d: %w", id, err)
		}
	}
	// Every new file is held until the checkpoint ends, and deleted then if it turns
	// out not to be needed. Not earlier: another acknowledgement may bring segments of it.
	for _, f := range own {
		if f != none && r.files.at(f).phase == fileNew {
			r.bring(f, id)
			c.spare.set(f)
		}
	}
	if refused != nil {
		return refused
	}
	for i, f := range chosen {
		if f == none {
			continue
		}
		c.files.set(f)
		c.spare.clear(f)
		r.bring(f, id)
		if a := &files[i]; a.Identity.usable() {
			if l := r.identities.find(&a.Identity); l != nil {
				a.Handle = l.handle
			} else {
				r.files.at(f).logical = r.identities.add(logicalFile{id: a.Identity, handle: a.Handle, file: f, next: r.files.at(f).logical})
			}
		}
	}
	return nil
}

// choose finds the file that an acknowledged one is: that of its identity or, if it
// has no known one, its own; none for a handle without file.
func (r *Registry) choose(a *AckFile, own int32) (int32, error) {
	if a.Identity.usable() {
		if l := r.identities.find(&a.Identity); l != nil {
			return l.file, nil
		}
	}
	switch {
	case a.Handle == nil:
		return none, fmt.Errorf("placeholder for %s of %s: %w", a.Identity.Name, a.Identity.Incarnation, ErrUnknownFile)
	case own == none:
		return none, nil
	}
	switch r.files.at(own).phase {
	case fileNew:
		return own, nil
	case fileDoomed, fileDeleting:
		return none, fmt.Errorf("%s: %w", r.files.location(own), ErrBeingDeleted)
	}
	for _, o := range r.all {
		if o.phase == Kept && o.mode == NoClaim && o.files.has(own) {
			return none, fmt.Errorf("%s: %w", r.files.location(own), ErrNotClaimed)
		}
	}
	return own, nil
}

// bring notes that a checkpoint has a file.
func (r *Registry) bring(f int32, checkpoint int64) {
	rec := r.files.at(f)
	rec.phase = fileLive
	if rec.since < 0 || rec.since > checkpoint {
		rec.since = checkpoint
	}
}

// Discard deletes what was uploaded for an acknowledgement that belongs to no
// checkpoint: of a task's former incarnation, say. Files that any checkpoint has
// stay, and those outside the registry's own folders and uploadedTo, the folder of a
// savepoint: the task has named them, but it has not written them.
func (r *Registry) Discard(files []AckFile, uploadedTo ...blobstore.Location) {
	for i := range files {
		f, err := r.files.written(files[i].Handle)
		if err != nil || f == none || r.files.at(f).phase != fileNew {
			continue
		}
		if rec := r.files.at(f); slices.ContainsFunc(uploadedTo, r.files.dirs[rec.dir].loc.HasPrefix) {
			rec.foreign = false
		}
		r.doom(f)
	}
}

// Confirm completes a checkpoint whose metadata object is durable. Older ones that
// are still in progress are aborted, as Flink does. To confirm one twice does
// nothing; any other that is not in progress is ErrNotInProgress and changes
// nothing. metadataObject is its address, "" if deleting it is not the registry's task.
func (r *Registry) Confirm(id int64, metadataObject string) error {
	c := r.byID[id]
	if c != nil && c.phase == Completed {
		return nil
	}
	if c == nil {
		return fmt.Errorf("confirmation of checkpoint %d: %w", id, ErrNotInProgress)
	}
	if err := r.addMeta(c, metadataObject); err != nil {
		return err
	}
	c.phase = Completed
	r.release(&c.spare)
	for _, o := range slices.Clone(r.all) {
		if o.phase == InProgress && o.id < id {
			r.Abort(o.id)
		}
	}
	return nil
}

// Abort ends a checkpoint in progress; what only it needed is deleted. Of any other
// it does nothing: a confirmed checkpoint cannot be aborted.
func (r *Registry) Abort(id int64) {
	c := r.byID[id]
	if c == nil || c.phase != InProgress {
		return
	}
	r.remove(c)
	r.release(&c.files)
	r.release(&c.spare)
}

// Subsume gives up a completed checkpoint: its metadata object is deleted and, once
// it is gone, what no other checkpoint needs. Of any other it does nothing.
func (r *Registry) Subsume(id int64) {
	c := r.byID[id]
	if c == nil || c.phase != Completed {
		return
	}
	delete(r.byID, id)
	c.phase = Discarding
	r.changes++
	for _, m := range slices.Clone(c.metas) {
		if r.needed(m) { // of metadata that names it, which only a forger writes
			r.files.at(m).isMeta = false
			c.metas = slices.DeleteFunc(c.metas, func(o int32) bool { return o == m })
			continue
		}
		r.doom(m)
	}
	r.endDiscard(c)
}

// needed says whether a checkpoint has a file among those its handles name.
func (r *Registry) needed(f int32) bool {
	return slices.ContainsFunc(r.all, func(c *checkpoint) bool { return c.files.has(f) || c.spare.has(f) })
}

// Retain subsumes every completed checkpoint but those given, so that a lost call
// of Subsume does no harm.
func (r *Registry) Retain(ids ...int64) {
	for _, c := range slices.Clone(r.all) {
		if c.phase == Completed && !slices.Contains(ids, c.id) {
			r.Subsume(c.id)
		}
	}
}

// endDiscard releases the files of a subsumed checkpoint that has no metadata
// object any more.
func (r *Registry) endDiscard(c *checkpoint) {
	if len(c.metas) > 0 {
		return
	}
	r.remove(c)
	r.release(&c.files)
}

// release dooms those files of a set that no checkpoint has. The set is emptied.
func (r *Registry) release(set *bitmap) {
	words := *set
	*set = nil
	for w, bits := range words {
		if bits == 0 {
			continue
		}
		for _, o := range r.all {
			bits &^= o.files.word(w) | o.spare.word(w)
		}
		eachBit(w, bits, func(f int32) bool { r.doom(f); return true })
	}
}

// Checkpoints gives the IDs in a phase, ascending. Those being discarded since
// before a restart have none.
func (r *Registry) Checkpoints(p Phase) []int64 {
	var ids []int64
	for _, c := range r.all {
		if c.phase == p && c.id >= 0 {
			ids = append(ids, c.id)
		}
	}
	slices.Sort(ids)
	return ids
}
