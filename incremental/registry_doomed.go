package incremental

import (
	"container/heap"
	"iter"
	"time"

	"github.com/tidemark/tidemark/blobstore"
)

// Deletion is an object that is to be deleted.
type Deletion struct {
	Location blobstore.Location
	// Metadata: it is a metadata object, whose checkpoint's files stay until it is gone.
	Metadata bool
	// Attempts is how often it failed so far.
	Attempts int

	file int32
}

// doomed are the files to delete: those not tried yet in the order in which they
// came, metadata objects before the others, and those that failed.
type doomed struct {
	metas, files []int32
	failed       retries
	deleting     int
}

type retry struct {
	at   time.Time
	file int32
}

type retries []retry

func (h retries) Len() int           { return len(h) }
func (h retries) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h retries) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *retries) Push(x any)        { *h = append(*h, x.(retry)) }
func (h *retries) Pop() any          { o := *h; x := o[len(o)-1]; *h = o[:len(o)-1]; return x }

// doom puts a file that nobody needs among those to delete.
func (r *Registry) doom(f int32) {
	rec := r.files.at(f)
	if rec.phase == fileDoomed || rec.phase == fileDeleting {
		return
	}
	r.identities.removeFile(rec.logical)
	rec.logical = none
	if rec.foreign {
		r.files.forget(f)
		return
	}
	rec.phase = fileDoomed
	r.changes++
	if rec.isMeta {
		r.doomed.metas = append(r.doomed.metas, f)
	} else {
		r.doomed.files = append(r.doomed.files, f)
	}
}

// Take hands out up to limit deletions that are due at a time. Each must come
// back through Done.
func (r *Registry) Take(now time.Time, limit int) []Deletion {
	var out []Deletion
	take := func(f int32) {
		rec := r.files.at(f)
		rec.phase = fileDeleting
		r.doomed.deleting++
		out = append(out, Deletion{r.files.location(f), rec.isMeta, int(rec.attempts), f})
	}
	for _, queue := range []*[]int32{&r.doomed.metas, &r.doomed.files} {
		n := min(len(*queue), limit-len(out))
		for _, f := range (*queue)[:n] {
			take(f)
		}
		if *queue = (*queue)[n:]; len(*queue) == 0 {
			*queue = nil
		}
	}
	for len(out) < limit && len(r.doomed.failed) > 0 && !r.doomed.failed[0].at.After(now) {
		take(heap.Pop(&r.doomed.failed).(retry).file)
	}
	return out
}

// Done reports a deletion: gone if err is nil, else to be tried again at a time.
// If the folder of a snapshot has become empty, it is given back to be removed.
func (r *Registry) Done(d Deletion, err error, again time.Time) (emptied blobstore.Location, ok bool) {
	rec := r.files.at(d.file)
	r.doomed.deleting--
	if err != nil {
		rec.attempts++
		rec.phase = fileDoomed
		heap.Push(&r.doomed.failed, retry{again, d.file})
		return blobstore.Location{}, false
	}
	r.gone++
	emptied, ok = r.files.forget(d.file)
	if d.Metadata {
		r.metaGone(d.file)
	}
	return emptied, ok
}

// metaGone ends the discarding of the checkpoint whose last metadata object is gone.
func (r *Registry) metaGone(f int32) {
	for _, c := range r.all {
		for i, m := range c.metas {
			if m != f || c.phase != Discarding {
				continue
			}
			c.metas = append(c.metas[:i:i], c.metas[i+1:]...)
			r.endDiscard(c)
			return
		}
	}
}

// NextRetry is when the next failed deletion is due; ok is false if none failed.
func (r *Registry) NextRetry() (at time.Time, ok bool) {
	if len(r.doomed.failed) == 0 {
		return time.Time{}, false
	}
	return r.doomed.failed[0].at, true
}

// Due is how many deletions were not tried yet.
func (r *Registry) Due() int { return len(r.doomed.metas) + len(r.doomed.files) }

// Unfinished is how many objects are to be deleted and are not known to be gone.
func (r *Registry) Unfinished() int {
	return r.Due() + len(r.doomed.failed) + r.doomed.deleting
}

// Pending yields what is to be deleted, now or once metadata objects are gone:
// what a restarted registry must be told, see Recover.
func (r *Registry) Pending() iter.Seq2[blobstore.Location, bool] {
	return func(yield func(loc blobstore.Location, isMetadata bool) bool) {
		for f := range r.files.files {
			if p := r.files.files[f].phase; p == fileDoomed || p == fileDeleting {
				if !yield(r.files.location(int32(f)), r.files.files[f].isMeta) {
					return
				}
			}
		}
		for i, c := range r.all {
			if c.phase != Discarding {
				continue
			}
			for w, set := range c.files {
				for k, o := range r.all {
					if o.phase != Discarding || k < i { // those before it have yielded theirs
						set &^= o.files.word(w) | o.spare.word(w)
					}
				}
				if !eachBit(w, set, func(f int32) bool {
					return r.files.at(f).foreign || yield(r.files.location(f), false)
				}) {
					return
				}
			}
		}
	}
}

// Changes counts what was added to Pending, and what is gone from it: a record of
// it is of no use without the former, and only longer than needed without the latter.
func (r *Registry) Changes() (added, gone uint64) { return r.changes, r.gone }

// Recover takes over what a former registry had to delete, as its Pending gave it.
// It comes after the Restore of every checkpoint that is still retained: what one
// of them has is not deleted. Metadata objects go first and all files stay until
// they are gone.
func (r *Registry) Recover(metas, files []blobstore.Location) {
	c := &checkpoint{id: -1, phase: Discarding, restored: true}
	for _, loc := range files {
		f := r.files.intern(loc)
		rec := r.files.at(f)
		if rec.isMeta || rec.phase == fileDoomed || rec.phase == fileDeleting {
			continue
		}
		rec.phase, rec.foreign = fileLive, false // a registry of ours says so
		c.files.set(f)
	}
	for _, loc := range metas {
		f := r.files.intern(loc)
		if rec := r.files.at(f); rec.phase == fileNew {
			rec.phase, rec.isMeta, rec.foreign = fileLive, true, false
			r.files.dirs[rec.dir].snapshot = true
			c.metas = append(c.metas, f)
		}
	}
	r.changes++
	r.all = append(r.all, c)
	for _, m := range c.metas {
		r.doom(m)
	}
	r.endDiscard(c)
}

// Unknown gives those of some files that the registry does not know: no checkpoint
// has them that it has heard of, and they are not among those to be deleted.
func (r *Registry) Unknown(files []blobstore.Location) (unknown []blobstore.Location) {
	for _, loc := range files {
		if r.files.find(loc) == none {
			unknown = append(unknown, loc)
		}
	}
	return unknown
}
