package sim

import (
	"errors"
	"slices"
	"strings"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
)

// store is what outlives every process: files, metadata objects, and the log of
// completed checkpoints with its fence.
type store struct {
	w     *world
	files map[string]*file
	metas map[string]*metadata.Checkpoint
	// refs of each metadata object that is there.
	refs map[string][]string
	late map[string]bool
	// writer is the coordinator that wrote a metadata object.
	writer  map[string]int
	highest int64 // checkpoint ID that was ever begun

	content checkpoint.Content
	owner   int           // number of the coordinator that took over last
	commits map[int64]int // by ID: how often the store was told
	lastID  int64         // highest committed
}

type file struct {
	content *state
	// heard is the coordinator that was told of it by an acknowledgement that it
	// took or refused; 0 for none.
	heard int
}

var errBroken = errors.New("the store is broken")

func newStore(w *world) *store {
	return &store{w: w, files: map[string]*file{}, metas: map[string]*metadata.Checkpoint{}, refs: map[string][]string{}, late: map[string]bool{}, writer: map[string]int{}, commits: map[int64]int{}, content: checkpoint.Content{NextID: 1}}
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
		delete(s.metas, name)
		delete(s.refs, name)
		return
	}
	for meta, refs := range s.refs {
		if slices.Contains(refs, name) {
			s.w.fail("file %s is deleted, and %s has it", name, meta)
		}
	}
	delete(s.files, name)
}

// commit writes a metadata object.
func (s *store) writeMeta(by *process, name string, m *metadata.Checkpoint) bool {
	if s.metas[name] != nil {
		return false
	}
	if by.number != s.owner {
		// The call of a dead coordinator comes to its end after another one took over.
		// Nobody looks at what it wrote; gc finds it.
		s.late[name] = true
		return true
	}
	var refs []string
	for p, h := range m.StreamHandles() {
		name := pathOf(h)
		if name == "" {
			continue
		}
		if s.files[name] == nil {
			s.w.fail("checkpoint %d is completed without its file %s (%s)", m.ID, name, m.Field(p))
		}
		refs = append(refs, name)
	}
	s.metas[name], s.refs[name], s.writer[name] = m, refs, by.number
	return true
}

func pathOf(h metadata.StreamHandle) string {
	if f, ok := metadata.Innermost(h).(*metadata.FileHandle); ok && f != nil {
		return f.Path.Go()
	}
	return ""
}

// put changes the log: only by its owner.
func (s *store) put(by int, change func(*checkpoint.Content)) error {
	if by != s.owner {
		return checkpoint.ErrFenced
	}
	next := s.content
	next.Retained = slices.Clone(next.Retained)
	change(&next)
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
		case f.heard == coordinator:
			leaked = append(leaked, name)
		default:
			left++
		}
	}
	for name := range s.metas {
		kept := slices.ContainsFunc(s.content.Retained, func(c checkpoint.Completed) bool { return c.Path == name })
		switch {
		case kept || strings.Contains(name, "savepoint"):
		case s.writer[name] == coordinator:
			leaked = append(leaked, name)
		default:
			left++
		}
	}
	slices.Sort(leaked)
	return leaked, left
}

// outside is the system that the sink writes to: transactions that are prepared and
// then committed or aborted.
type outside struct {
	w     *world
	txns  map[int]*txn
	next  int
	lines []line // committed
}

type txn struct {
	lines    []line
	prepared bool
	ended    byte // c or a
}

// line is one result: a key and its count.
type line struct{ key, count int32 }

func newOutside(w *world) *outside { return &outside{w: w, txns: map[int]*txn{}} }

func (o *outside) begin() int {
	o.next++
	o.txns[o.next] = &txn{}
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

// recover commits what the restored state has and aborts everything else that is open.
func (o *outside) recover(pending []pendingTxn) {
	keep := map[int]bool{}
	for _, p := range pending {
		keep[p.txn] = true
		o.commit(p.txn)
	}
	for id, t := range o.txns {
		if !keep[id] && t.ended == 0 {
			t.ended = 'a'
		}
	}
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
	var files []metadata.StreamHandle
	for _, name := range names {
		files = append(files, fileHandle(name))
	}
	return checkpoint.Sweep(reg, orphans, files)
}

func dirOf(name string) string { return name[:strings.LastIndexByte(name, '/')] }
