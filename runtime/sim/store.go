package sim

import (
	"errors"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
)

// store is what outlives every process: files, metadata objects, and the log of
// completed checkpoints with its fence.
type store struct {
	w *world
	// objects are what real backends read and write: those of files and metas.
	objects blobstore.Store
	pool    *blobstore.Pool
	files   map[string]*file
	metas   map[string]*metadata.Checkpoint
	// refs of each metadata object that is there.
	refs map[string][]string
	late map[string]bool
	// complete are savepoints whose user was told.
	complete map[string]bool
	// writer is the coordinator that wrote a metadata object.
	writer map[string]int
	ids    map[int64]bool // that were ever begun
	// claimed savepoints are the job's to delete.
	claimed map[string]bool
	// claims are their files, as the registry's journal has them.
	claims []claim

	content checkpoint.Content
	owner   int           // number of the coordinator that took over last
	commits map[int64]int // by ID: how often the store was told
	lastID  int64         // highest committed
}

// claim is a file of a snapshot that was claimed.
type claim struct {
	at     blobstore.Location
	isMeta bool
}

type file struct {
	content *state
	// heard is the coordinator that was told of it by an acknowledgement that it
	// took or refused; 0 for none.
	heard int
}

var errBroken = errors.New("the store is broken")

func newStore(w *world) *store {
	s := &store{w: w, files: map[string]*file{}, metas: map[string]*metadata.Checkpoint{}, refs: map[string][]string{}, late: map[string]bool{}, complete: map[string]bool{}, writer: map[string]int{}, ids: map[int64]bool{}, claimed: map[string]bool{}, commits: map[int64]int{}, content: checkpoint.Content{NextID: 1}}
	if w.cfg.Backend != ModelBackend {
		s.objects = blobstore.NewMem()
		s.pool = blobstore.NewPool(nil, func(blobstore.Store) blobstore.Store { return s.objects })
	}
	return s
}

func (s *store) write(name string, content *state) {
	if s.files[name] != nil {
		s.w.fail("file %s is written twice", name)
	}
	s.files[name] = &file{content: content}
}

// remove deletes a file or a metadata object. No checkpoint that is retained, and
// none whose metadata object is there, may lack it.
func (s *store) remove(name string) {
	if _, ok := s.metas[name]; ok {
		for i := range s.content.Retained {
			if s.content.Retained[i].Path == name {
				s.w.fail("the metadata of checkpoint %d, which is retained, is deleted", s.content.Retained[i].ID)
			}
		}
		if strings.HasPrefix(name, "file:/sp/") && !s.claimed[name] && s.complete[name] {
			s.w.fail("the metadata of a user's savepoint, %s, is deleted", name)
		}
		delete(s.metas, name)
		delete(s.refs, name)
		s.unlink(name)
		return
	}
	var who []string
	for meta, refs := range s.refs {
		if slices.Contains(refs, name) {
			who = append(who, meta)
		}
	}
	if len(who) > 0 {
		slices.Sort(who)
		s.w.fail("file %s is deleted, and %s has it", name, who[0])
	}
	delete(s.files, name)
	s.unlink(name)
}

// writeMeta writes a metadata object.
func (s *store) writeMeta(by *process, name string, m *metadata.Checkpoint) bool {
	if s.metas[name] != nil {
		return false
	}
	if by.number != s.owner && s.w.cfg.bug != bugNoFence {
		// The call of a dead coordinator comes to its end after another one took over.
		// Nobody looks at what it wrote; gc finds it.
		s.late[name] = true
		return true
	}
	var refs []string
	for p, h := range m.StreamHandles() {
		name := pathIn(dirOf(name), h)
		if name == "" {
			continue
		}
		if s.files[name] == nil {
			s.w.fail("checkpoint %d is completed without its file %s (%s)", m.ID, name, m.Field(p))
		}
		refs = append(refs, name)
	}
	s.metas[name], s.refs[name], s.writer[name] = m, refs, by.number
	s.encode(name, m)
	return true
}

// dropShared is a mistake: see bugDeletesShared.
func (s *store) dropShared(before, after []checkpoint.Completed) {
	for _, c := range before {
		if !slices.ContainsFunc(after, func(o checkpoint.Completed) bool { return o.ID == c.ID }) {
			for _, name := range s.refs[c.Path] {
				if strings.Contains(name, "/shared/") {
					delete(s.files, name)
				}
			}
		}
	}
}

// pathIn is the file of a handle of a checkpoint that lies in dir.
func pathIn(dir string, h metadata.StreamHandle) string {
	if f, ok := metadata.Innermost(h).(*metadata.RelativeFileHandle); ok && f != nil {
		return dir + "/" + f.Path.Go()
	}
	return pathOf(h)
}

func pathOf(h metadata.StreamHandle) string {
	if f, ok := metadata.Innermost(h).(*metadata.FileHandle); ok && f != nil {
		return f.Path.Go()
	}
	return ""
}

// put changes the log: only by its owner.
func (s *store) put(by int, change func(*checkpoint.Content)) error {
	if by != s.owner && s.w.cfg.bug != bugNoFence {
		return checkpoint.ErrFenced
	}
	next := s.content
	next.Retained = slices.Clone(next.Retained)
	change(&next)
	if next.Stopped != "" && s.content.Stopped == "" && s.metas[next.Stopped] == nil {
		s.w.fail("the job is stopped with savepoint %s, which has no metadata", next.Stopped)
	}
	if next.NextID < s.content.NextID {
		s.w.fail("the next checkpoint ID goes back from %d to %d", s.content.NextID, next.NextID)
	}
	for _, c := range next.Retained {
		if c.ID >= next.NextID {
			s.w.fail("checkpoint %d is retained, and the next ID is %d", c.ID, next.NextID)
		}
		if slices.ContainsFunc(s.content.Retained, func(o checkpoint.Completed) bool { return o.ID == c.ID }) {
			continue
		}
		s.commits[c.ID]++
		if s.commits[c.ID] > 1 {
			s.w.fail("checkpoint %d is completed twice", c.ID)
		}
		if c.ID <= s.lastID {
			s.w.fail("checkpoint %d is completed after %d", c.ID, s.lastID)
		}
		s.lastID = c.ID
		if s.metas[c.Path] == nil {
			s.w.fail("checkpoint %d is retained without metadata", c.ID)
		}
	}
	s.content = next
	return nil
}

// leaks are files that nobody needs and that the living coordinator knows of.
func (s *store) leaks(coordinator int) (leaked []string, left int) {
	needed := map[string]bool{}
	for _, refs := range s.refs {
		for _, r := range refs {
			needed[r] = true
		}
	}
	for name, f := range s.files {
		switch {
		case needed[name]:
		case f.heard == coordinator || s.claimed[dirOf(name)+"/_metadata"]:
			leaked = append(leaked, name)
		default:
			left++
		}
	}
	for name := range s.metas {
		kept := slices.ContainsFunc(s.content.Retained, func(c checkpoint.Completed) bool { return c.Path == name })
		switch {
		case kept || strings.Contains(name, "savepoint") && !s.claimed[name]:
		case s.writer[name] == coordinator || s.claimed[name]:
			leaked = append(leaked, name)
		default:
			left++
		}
	}
	leaked = append(leaked, s.stray()...)
	slices.Sort(leaked)
	return leaked, left
}

// outside is the system that the sink writes to: transactions that are prepared and
// then committed or aborted.
type outside struct {
	w     *world
	txns  map[int]*txn
	next  int
	epoch int    // number of the coordinator whose tasks recovered last
	lines []line // committed
}

type txn struct {
	lines    []line
	owner    int32 // subtask of the sink
	prepared bool
	ended    byte // c or a
}

// line is one result: a key and its count.
type line struct{ key, count int32 }

func newOutside(w *world) *outside { return &outside{w: w, txns: map[int]*txn{}} }

func (o *outside) begin(owner int32) int {
	o.next++
	o.txns[o.next] = &txn{owner: owner}
	return o.next
}

func (o *outside) commit(id int) {
	t := o.txns[id]
	switch {
	case t == nil || !t.prepared:
		o.w.fail("transaction %d is committed and was not prepared", id)
	case t.ended == 'a':
		o.w.fail("transaction %d is committed and was aborted: its records are lost", id)
	case t.ended == 0:
		t.ended = 'c'
		o.lines = append(o.lines, t.lines...)
	}
}

// recover commits what the restored state has and aborts everything else that is open
// of the sink's subtasks for which only is true, or of all if it is nil. It refuses
// what another process has been replaced by, as transactional systems do: the fence
// of the checkpoint store cannot reach this far.
func (o *outside) recover(process int, pending []pendingTxn, only func(place) bool) (ok bool) {
	if process < o.epoch {
		return false
	}
	o.epoch = process
	keep := map[int]bool{}
	for _, p := range pending {
		if o.w.cfg.bug == bugDropsPrepared {
			continue
		}
		keep[p.txn] = true
		o.commit(p.txn)
	}
	for id, t := range o.txns {
		if !keep[id] && t.ended == 0 && (only == nil || only(place{theSink, t.owner})) {
			t.ended = 'a'
		}
	}
	return true
}

// sweep is what a coordinator does that takes over: see checkpoint.Sweep.
func (s *store) sweep(reg *incremental.Registry) error {
	var orphans []checkpoint.Orphan
	folders := map[string]bool{}
	for _, c := range s.content.Retained {
		folders[dirOf(c.Path)] = true
	}
	for name, m := range s.metas {
		if !folders[dirOf(name)] && strings.HasPrefix(name, "file:/ckp/") {
			orphans = append(orphans, checkpoint.Orphan{Path: name, Meta: m})
		}
	}
	slices.SortFunc(orphans, func(a, b checkpoint.Orphan) int { return strings.Compare(a.Path, b.Path) })
	var names []string
	for name := range s.files {
		if strings.HasPrefix(name, "file:/ckp/chk-") && !folders[dirOf(name)] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var left checkpoint.Orphan
	for _, name := range names {
		left.Files = append(left.Files, fileHandle(name))
	}
	return checkpoint.Sweep(reg, append(orphans, left))
}

// recoverClaims is what Cleaner.Recover and Cleaner.Claimed do with the files of
// snapshots that were claimed: the registry hears of them in each life, until they are
// gone.
func (s *store) recoverClaims(reg *incremental.Registry) {
	if s.w.cfg.bug == bugForgetsClaims {
		return
	}
	var metas, files []blobstore.Location
	left := s.claims[:0]
	for _, c := range s.claims {
		name := "file:/" + c.at.Path
		switch {
		case s.metas[name] == nil && s.files[name] == nil:
			continue
		case c.isMeta:
			metas = append(metas, c.at)
		default:
			files = append(files, c.at)
		}
		left = append(left, c)
	}
	s.claims = left
	reg.Recover(metas, files)
	for _, c := range s.content.Retained {
		if c.Mode != checkpoint.Claimed || slices.ContainsFunc(s.claims, func(o claim) bool { return o.at.Same(location(c.Path)) }) {
			continue
		}
		for at, isMeta := range reg.ClaimedFiles(c.ID) {
			s.claims = append(s.claims, claim{at, isMeta})
		}
	}
}

func dirOf(name string) string { return name[:strings.LastIndexByte(name, '/')] }
