package incremental

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// The model test plays a job: a coordinator, two tasks in changing incarnations, a
// network that delays, doubles, loses and reorders, a store that fails, crashes and
// restores in all modes. Beside the registry it keeps plain sets of who needs what,
// and compares after every step. More histories:
//
//	go test ./incremental/ -run TestRegistryModel -rapid.checks=100000
//
// A failure prints the seed; -rapid.seed=N plays it again.
func TestRegistryModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"write":   w.write,
			"write2":  w.write,
			"trigger": w.trigger,
			"deliver": w.deliver, "deliver2": w.deliver, "deliver3": w.deliver,
			"complete": w.complete, "complete2": w.complete,
			"abort":   w.abort,
			"subsume": w.subsume,
			"stray":   w.stray,
			"clean":   w.clean,
			"failure": w.taskFailure,
			"crash":   w.crash,
			"":        w.check,
		})
		w.settle()
	})
}

const modelRoot = "mem://model"

// logical is a file of a task's database: its content says who wrote it.
type logical struct {
	content string
	id      Identity
}

// placed is a logical file at a place.
type placed struct {
	logical
	handle metadata.StreamHandle
}

type taskModel struct {
	index       int
	incarnation string
	next        int
	db          map[string]logical // by local name
	base        map[string]placed  // what the last checkpoint that the task knows to be confirmed has
	holders     map[string]bool    // of base: a placeholder will do
	snapshots   map[int64]map[string]placed
}

type ack struct {
	id    int64
	task  int
	inc   string
	files []AckFile
	want  []string // content of each
}

type checkpointModel struct {
	id      int64
	acks    map[int]bool
	files   []placed
	meta    string
	gone    bool // aborted by the coordinator; the registry may not know
	byTask  [2]map[string]placed
	incs    [2]string
	restore bool
}

func (c *checkpointModel) paths() map[string]bool {
	m := map[string]bool{}
	for _, v := range c.files {
		m[pathOf(v.handle)] = true
	}
	return m
}

type world struct {
	t        *rapid.T
	store    blobstore.Store
	journals blobstore.Store
	faults   *blobstore.Faults // of both stores
	now      time.Time
	cl       *Cleaner
	next     int64
	files    int
	lives    int
	tasks    [2]*taskModel
	zombies  []*taskModel
	network  []*ack
	open     map[int64]*checkpointModel // as the registry sees it
	retained map[int64]*checkpointModel
	kept     *checkpointModel
	keptMode RestoreMode
	keptLost bool // the registry does not know of kept any more
	subsumed []*checkpointModel
	lost     map[string]bool // what nobody can know of any more: for gc
}

func (w *world) Resolve(_ context.Context, loc blobstore.Location) (blobstore.Store, string, error) {
	return w.faults.Wrap(w.store), loc.Path, nil
}

func pathOf(h metadata.StreamHandle) string {
	loc, _, _ := locationOf(h, nil)
	return loc.Path
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, store: blobstore.NewMem(), journals: blobstore.NewMem(), now: time.Unix(1e9, 0), next: 1,
		open: map[int64]*checkpointModel{}, retained: map[int64]*checkpointModel{}, lost: map[string]bool{}}
	w.faults = blobstore.NewFaults()
	w.newRegistry()
	w.newTasks(nil, false)
	if rapid.Bool().Draw(t, "restore") {
		// A snapshot of another job, whose database files are not ours.
		snap := &checkpointModel{id: 40, meta: "other/chk-40/_metadata", restore: true}
		w.put(snap.meta, "metadata")
		for i := range 2 {
			snap.byTask[i] = map[string]placed{}
			snap.incs[i] = fmt.Sprintf("other-%d", i)
			for k := range 2 {
				v := placed{logical{content: fmt.Sprintf("other %d %d", i, k)}, w.upload("other/shared", fmt.Sprintf("other %d %d", i, k))}
				snap.byTask[i][fmt.Sprintf("%06d.sst", k)] = v
				snap.files = append(snap.files, v)
			}
		}
		mode := RestoreMode(rapid.IntRange(0, 2).Draw(t, "mode"))
		w.must(w.cl.Restore(t.Context(), snap.metadata(), modelRoot+"/"+snap.meta, mode, nil))
		w.next = 41
		w.keptMode = mode
		if mode == Claim {
			w.retained[40] = snap
			w.must(Restored{}, w.cl.Claimed(t.Context(), 40))
		} else {
			w.kept = snap
		}
		w.newTasks(snap, mode != NoClaim)
	}
	return w
}

func (w *world) must(_ Restored, err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

// setFaults makes coming calls fail.
func (w *world) setFaults(rules ...blobstore.Fault) {
	w.faults = blobstore.NewFaults(rules...)
	w.cl.opts.Journal = w.faults.Wrap(w.journals)
}

func (w *world) newRegistry() {
	w.lives++
	w.cl = NewCleaner(NewRegistry(blobstore.Location{Scheme: "mem", Authority: "model", Path: "job"}), w, &CleanerOptions{Workers: 1, Batch: 3, Now: func() time.Time { return w.now }, Journal: w.faults.Wrap(w.journals)})
	w.cl.life = fmt.Sprint("life", w.lives)
}

// newTasks starts the tasks from a snapshot; reuse says that they may refer to its files.
func (w *world) newTasks(from *checkpointModel, reuse bool) {
	for i := range w.tasks {
		w.newTask(i, from, reuse)
	}
}

func (w *world) newTask(i int, from *checkpointModel, reuse bool) {
	w.files++
	n := &taskModel{index: i, incarnation: fmt.Sprintf("task%d-%d", i, w.files), db: map[string]logical{}, base: map[string]placed{},
		holders: map[string]bool{}, snapshots: map[int64]map[string]placed{}}
	if from != nil {
		for name, v := range from.byTask[i] {
			l := v.logical
			l.id = Identity{n.incarnation, name, int64(len(l.content)), l.content}
			n.db[name] = l
			var number int
			fmt.Sscanf(name, "%d", &number)
			n.next = max(n.next, number+1)
			if reuse {
				n.base[name] = placed{l, v.handle}
			}
		}
	}
	if old := w.tasks[i]; old != nil {
		w.zombies = append(w.zombies, old)
		w.zombies = w.zombies[max(0, len(w.zombies)-3):]
	}
	w.tasks[i] = n
}

func (w *world) put(name, content string) {
	if err := blobstore.WriteAll(w.t.Context(), w.store, name, []byte(content), nil); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) upload(dir, content string) metadata.StreamHandle {
	w.files++
	name := fmt.Sprintf("%s/f%d", dir, w.files)
	w.put(name, content)
	return &metadata.FileHandle{Path: javaio.NewString(modelRoot + "/" + name), Size: int64(len(content))}
}

func (c *checkpointModel) metadata() *metadata.Checkpoint {
	var shared []metadata.NamedHandle
	for _, v := range c.files {
		shared = append(shared, metadata.NamedHandle{Handle: v.handle})
	}
	h := &metadata.IncrementalHandle{Form: metadata.TagIncremental, Shared: shared}
	return &metadata.Checkpoint{ID: c.id, Operators: []metadata.OperatorState{{Subtasks: []metadata.SubtaskState{{ManagedKeyed: h}}}}}
}

func (w *world) aTask(t *rapid.T) *taskModel {
	if len(w.zombies) > 0 && rapid.IntRange(0, 4).Draw(t, "zombie") == 0 {
		return rapid.SampledFrom(w.zombies).Draw(t, "which")
	}
	return w.tasks[rapid.IntRange(0, 1).Draw(t, "task")]
}

// write is a flush, and sometimes a compaction.
func (w *world) write(t *rapid.T) {
	k := w.aTask(t)
	if len(k.db) > 0 && rapid.Bool().Draw(t, "compact") {
		delete(k.db, slices.Sorted(maps.Keys(k.db))[rapid.IntRange(0, len(k.db)-1).Draw(t, "gone")])
	}
	if len(k.db) < 5 {
		name := fmt.Sprintf("%06d.sst", k.next)
		k.next++
		content := k.incarnation + " " + name
		k.db[name] = logical{content, Identity{k.incarnation, name, int64(len(content)), content}}
	}
}

// trigger begins a checkpoint. Tasks, also those that should be dead, upload what
// their base lacks, sometimes as segments of one file, and send acknowledgements.
func (w *world) trigger(t *rapid.T) {
	if len(w.open) > 3 {
		t.Skip()
	}
	id := w.next
	w.next++
	if err := w.cl.Update(func(r *Registry) error { return r.Begin(id) }); err != nil {
		t.Fatal(err)
	}
	cp := &checkpointModel{id: id, acks: map[int]bool{}}
	w.open[id] = cp
	for i, k := range w.tasks {
		cp.incs[i] = k.incarnation
	}
	for _, k := range slices.Concat(w.tasks[:], w.zombies) {
		live := slices.Contains(w.tasks[:], k)
		if !live && rapid.IntRange(0, 3).Draw(t, "silent") > 0 {
			continue
		}
		a := &ack{id: id, task: k.index, inc: k.incarnation}
		k.snapshots[id] = map[string]placed{}
		merged := rapid.Bool().Draw(t, "merged")
		var segments []*metadata.SegmentHandle
		var body strings.Builder
		for _, name := range slices.Sorted(maps.Keys(k.db)) {
			l := k.db[name]
			b, has := k.base[name]
			f := AckFile{Identity: l.id}
			switch {
			case has && k.holders[name] && rapid.Bool().Draw(t, "placeholder"):
			case has:
				f.Handle = b.handle
			case merged:
				s := &metadata.SegmentHandle{Start: int64(body.Len()), Length: int64(len(l.content)), Scope: metadata.ScopeShared}
				body.WriteString(l.content)
				segments = append(segments, s)
				f.Handle = s
			default:
				f.Handle = w.upload("job/shared", l.content)
			}
			a.files = append(a.files, f)
			a.want = append(a.want, l.content)
			k.snapshots[id][name] = placed{l, f.Handle}
		}
		if len(segments) > 0 {
			whole := w.upload("job/shared", body.String()).(*metadata.FileHandle)
			for _, s := range segments {
				s.Path = whole.Path
			}
		}
		// An exclusive file.
		a.files = append(a.files, AckFile{Handle: w.upload(fmt.Sprintf("job/chk-%d", id), "exclusive")})
		a.want = append(a.want, "exclusive")
		w.network = append(w.network, a)
	}
}

// deliver takes an acknowledgement from the network: in any order, perhaps leaving
// it there to come again, perhaps losing it.
func (w *world) deliver(t *rapid.T) {
	if len(w.network) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(w.network)-1).Draw(t, "ack")
	a := w.network[i]
	switch rapid.IntRange(0, 9).Draw(t, "network") {
	case 0: // doubled
	case 1: // lost: whoever uploaded cannot tell either
		w.network = slices.Delete(w.network, i, i+1)
		for _, f := range a.files {
			if f.Handle != nil {
				w.lost[pathOf(f.Handle)] = true
			}
		}
		return
	default:
		w.network = slices.Delete(w.network, i, i+1)
	}
	w.receive(a)
}

func (w *world) receive(a *ack) {
	files := slices.Clone(a.files)
	cp := w.open[a.id]
	if cp != nil && cp.incs[a.task] != a.inc { // the coordinator knows who it asked
		w.cl.Update(func(r *Registry) error { r.Discard(files); return nil })
		return
	}
	err := w.cl.Update(func(r *Registry) error { return r.Register(a.id, files) })
	if cp == nil {
		if !errors.Is(err, ErrNotInProgress) {
			w.t.Fatalf("acknowledgement of checkpoint %d, which is not in progress: %v", a.id, err)
		}
		return
	}
	if err != nil {
		w.t.Fatalf("acknowledgement of %s: %v", a.inc, err)
	}
	cp.byTask[a.task] = map[string]placed{}
	again := cp.acks[a.task]
	cp.acks[a.task] = true
	for i, f := range files {
		if got := w.read(f.Handle); got != a.want[i] {
			w.t.Fatalf("checkpoint %d names %q for %q", a.id, got, a.want[i])
		}
		// Who registered an identity first is named by all.
		if f.Identity.usable() {
			for _, o := range w.having() {
				for _, v := range o.files {
					if v.id == f.Identity && v.handle != f.Handle && pathOf(v.handle) != pathOf(f.Handle) {
						w.t.Fatalf("%v is in two files", f.Identity)
					}
				}
			}
			cp.byTask[a.task][f.Identity.Name] = placed{logical{a.want[i], f.Identity}, f.Handle}
		}
		if !again {
			cp.files = append(cp.files, placed{logical{a.want[i], f.Identity}, f.Handle})
		}
	}
}

func (w *world) having() []*checkpointModel {
	return slices.Concat(slices.Collect(maps.Values(w.open)), slices.Collect(maps.Values(w.retained)))
}

func (w *world) read(h metadata.StreamHandle) string {
	data, err := blobstore.ReadAll(w.t.Context(), w.store, pathOf(h), 1<<20)
	if err != nil {
		w.t.Fatalf("a file is gone: %v", err)
	}
	if s, ok := h.(*metadata.SegmentHandle); ok {
		data = data[s.Start : s.Start+s.Length]
	}
	return string(data)
}

func (w *world) anOpen(t *rapid.T, ok func(*checkpointModel) bool) *checkpointModel {
	var ids []int64
	for id, c := range w.open {
		if ok(c) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		t.Skip()
	}
	slices.Sort(ids)
	return w.open[rapid.SampledFrom(ids).Draw(t, "checkpoint")]
}

func (w *world) complete(t *rapid.T) {
	c := w.anOpen(t, func(c *checkpointModel) bool { return !c.gone && len(c.acks) == 2 })
	c.meta = fmt.Sprintf("job/chk-%d/_metadata", c.id)
	w.put(c.meta, "metadata")
	for range rapid.IntRange(1, 2).Draw(t, "confirmed") {
		if err := w.cl.Update(func(r *Registry) error { return r.Confirm(c.id, modelRoot+"/"+c.meta) }); err != nil {
			t.Fatal(err)
		}
	}
	delete(w.open, c.id)
	w.retained[c.id] = c
	for id := range w.open {
		if id < c.id {
			delete(w.open, id)
		}
	}
	for i, k := range w.tasks {
		if k.incarnation != c.incs[i] || rapid.IntRange(0, 3).Draw(t, "told") == 0 {
			continue // the notification is lost
		}
		k.base, k.holders = map[string]placed{}, map[string]bool{}
		// The task keeps what it named itself: if it was a second upload, that one is gone.
		for name, v := range k.snapshots[c.id] {
			k.holders[name] = v.handle == nil || rapid.Bool().Draw(t, "holder")
			k.base[name] = v
		}
	}
}

func (w *world) abort(t *rapid.T) {
	c := w.anOpen(t, func(*checkpointModel) bool { return true })
	c.gone = true
	n := rapid.IntRange(0, 2).Draw(t, "aborted") // 0: the call is lost
	for range n {
		w.cl.Update(func(r *Registry) error { r.Abort(c.id); return nil })
	}
	if n > 0 {
		delete(w.open, c.id)
	}
}

func (w *world) subsume(t *rapid.T) {
	if len(w.retained) < 2 {
		t.Skip()
	}
	ids := slices.Sorted(maps.Keys(w.retained))
	id := ids[0]
	if rapid.IntRange(0, 3).Draw(t, "any") == 0 {
		id = rapid.SampledFrom(ids[:len(ids)-1]).Draw(t, "subsumed")
	}
	w.subsumed = append(w.subsumed, w.retained[id])
	delete(w.retained, id)
	w.cl.Update(func(r *Registry) error {
		if rapid.Bool().Draw(t, "retain") {
			r.Retain(slices.Collect(maps.Keys(w.retained))...)
			return nil
		}
		r.Subsume(id)
		r.Subsume(id)
		return nil
	})
}

// stray are calls that come out of nowhere.
func (w *world) stray(t *rapid.T) {
	id := int64(rapid.IntRange(0, int(w.next)+2).Draw(t, "id"))
	w.cl.Update(func(r *Registry) error {
		if w.open[id] == nil {
			if err := r.Confirm(id, ""); (err == nil) != (w.retained[id] != nil) {
				t.Fatalf("confirmation of checkpoint %d: %v", id, err)
			}
			r.Abort(id)
			if id <= r.highest && r.Begin(id) == nil {
				t.Fatalf("checkpoint %d began again", id)
			}
		}
		if w.retained[id] == nil {
			r.Subsume(id)
		}
		return nil
	})
}

// clean deletes, with calls that fail before or after they happened.
func (w *world) clean(t *rapid.T) {
	var rules []blobstore.Fault
	for range rapid.IntRange(0, 3).Draw(t, "faults") {
		var name func(string) bool
		if rapid.Bool().Draw(t, "metadata only") {
			name = func(n string) bool { return strings.HasSuffix(n, "/_metadata") }
		}
		rules = append(rules, blobstore.Fault{
			Name:  name,
			Op:    rapid.SampledFrom([]string{"delete", "delete", "create", "commit"}).Draw(t, "op"),
			Nth:   rapid.IntRange(0, 4).Draw(t, "nth"),
			After: rapid.Bool().Draw(t, "after"),
		})
	}
	w.setFaults(rules...)
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
	w.cl.Clean(t.Context())
	w.setFaults()
}

func (w *world) latest() *checkpointModel {
	if len(w.retained) == 0 {
		return nil
	}
	return w.retained[slices.Max(slices.Collect(maps.Keys(w.retained)))]
}

// taskFailure restarts one or both tasks from the newest checkpoint; the coordinator
// lives on and aborts what is in progress. The old incarnation lives on as well.
func (w *world) taskFailure(t *rapid.T) {
	for id := range w.open {
		w.cl.Update(func(r *Registry) error { r.Abort(id); return nil })
	}
	clear(w.open)
	w.restart()
}

func (w *world) restart() {
	if c := w.latest(); c != nil {
		w.newTasks(c, true)
	} else if w.kept != nil {
		w.newTasks(w.kept, w.keptMode == Legacy)
	} else {
		w.newTasks(nil, false)
	}
}

// crash loses the registry. The new one knows the retained checkpoints, by their
// metadata, and the journal.
func (w *world) crash(t *rapid.T) {
	// What was in progress is left to gc, and so is what had become garbage since
	// the journal was last written.
	for _, c := range w.open {
		for p := range c.paths() {
			w.lost[p] = true
		}
	}
	for _, c := range w.cl.reg.all {
		c.spare.each(func(f int32) bool { w.lost[w.cl.reg.files.location(f).Path] = true; return true })
	}
	written := map[string]bool{}
	for info := range w.journals.List(t.Context(), nil) {
		data, err := blobstore.ReadAll(t.Context(), w.journals, info.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		metas, files, err := decodeJournal(info.Name, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, loc := range slices.Concat(metas, files) {
			written[loc.Path] = true
		}
	}
	for loc := range w.cl.reg.Pending() {
		if !written[loc.Path] {
			w.lost[loc.Path] = true
		}
	}
	// A checkpoint whose discarding was not written down still has its metadata, and
	// with it all of its files.
	for _, c := range w.cl.reg.all {
		for _, m := range c.metas {
			if c.phase == Discarding && !written[w.cl.reg.files.location(m).Path] {
				c.files.each(func(f int32) bool { w.lost[w.cl.reg.files.location(f).Path] = true; return true })
				w.subsumed = slices.DeleteFunc(w.subsumed, func(s *checkpointModel) bool { return s.id == c.id })
			}
		}
	}
	clear(w.open)
	if c := w.latest(); c != nil && rapid.Bool().Draw(t, "same IDs") {
		// The counter of IDs was lost as well: those in progress are used again.
		w.next = c.id + 1
		if w.kept != nil {
			w.next = max(w.next, w.kept.id+1)
		}
	}
	if w.kept != nil && !w.keptLost && rapid.IntRange(0, 3).Draw(t, "kept is lost") == 0 {
		// Somebody has removed the journal: what is not in the job's folder is safe all the same.
		w.keptLost = true
		if err := w.journals.Delete(t.Context(), "registry/kept-40-"+w.keptMode.String()); err != nil {
			t.Fatal(err)
		}
	}
	w.newRegistry()
	for id, c := range w.retained {
		c.restore = true
		if _, err := w.cl.Restore(t.Context(), c.metadata(), modelRoot+"/"+c.meta, Claim, nil); err != nil {
			t.Fatalf("restore of checkpoint %d: %v", id, err)
		}
	}
	if err := w.cl.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	w.restart()
}

// check compares the registry with the model, and both with the store.
func (w *world) check(t *rapid.T) {
	needs := map[string][]int64{}
	note := func(c *checkpointModel) {
		for p := range c.paths() {
			needs[p] = append(needs[p], c.id)
		}
	}
	for _, c := range w.having() {
		note(c)
		for _, v := range c.files {
			if got := w.read(v.handle); got != v.content {
				t.Fatalf("checkpoint %d has %q for %q", c.id, got, v.content)
			}
		}
	}
	for _, c := range w.retained {
		if _, err := w.store.Stat(t.Context(), c.meta); err != nil {
			t.Fatalf("checkpoint %d: %v", c.id, err)
		}
	}
	for _, c := range w.subsumed {
		if _, err := w.store.Stat(t.Context(), c.meta); err != nil {
			continue
		}
		for _, v := range c.files { // whoever finds the metadata finds the files
			w.read(v.handle)
		}
	}
	if w.kept != nil {
		if !w.keptLost {
			note(w.kept)
		}
		for p := range w.kept.paths() {
			if _, err := w.store.Stat(t.Context(), p); err != nil {
				t.Fatalf("the snapshot that is not ours: %v", err)
			}
		}
		if _, err := w.store.Stat(t.Context(), w.kept.meta); err != nil {
			t.Fatalf("the snapshot that is not ours: %v", err)
		}
	}
	for info := range w.store.List(t.Context(), nil) {
		if strings.HasSuffix(info.Name, "/_metadata") {
			continue
		}
		why, known, err := w.cl.reg.Why(modelRoot + "/" + info.Name)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, n := range why.Needs {
			if !n.Unused && n.Phase != Discarding {
				got = append(got, n.Checkpoint)
			}
		}
		want := needs[info.Name]
		slices.Sort(want)
		if !slices.Equal(got, slices.Compact(want)) {
			t.Fatalf("%s: needed by %v, expected %v\n%v (%v)", info.Name, got, want, why, known)
		}
		if why.Deleting && len(want) > 0 || len(want) > 0 && why.Since > want[0] && !why.Forever {
			t.Fatalf("%v, expected %v", why, want)
		}
	}
}

// settle ends everything and looks for what is left over.
func (w *world) settle() {
	for id := range w.open {
		w.cl.Update(func(r *Registry) error { r.Abort(id); return nil })
	}
	clear(w.open)
	for _, a := range w.network {
		w.receive(a)
	}
	w.setFaults()
	for range 3 {
		w.now = w.now.Add(time.Hour)
		if _, err := w.cl.Clean(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.check(w.t)
	expected := map[string]bool{}
	for _, c := range slices.Collect(maps.Values(w.retained)) {
		expected[c.meta] = true
		maps.Copy(expected, c.paths())
	}
	if w.kept != nil {
		expected[w.kept.meta] = true
		maps.Copy(expected, w.kept.paths())
	}
	for info := range w.store.List(w.t.Context(), nil) {
		if !expected[info.Name] && !w.lost[info.Name] {
			w.t.Fatalf("%s is left, and nobody needs it", info.Name)
		}
		delete(expected, info.Name)
	}
	if len(expected) > 0 {
		w.t.Fatalf("gone: %v", expected)
	}
	for info := range w.journals.List(w.t.Context(), &blobstore.ListOptions{Prefix: "registry/" + pendingObject}) {
		w.t.Fatalf("the journal still has %s", info.Name)
	}
	if n := w.cl.reg.Unfinished(); n != 0 {
		w.t.Fatalf("%d deletions are left", n)
	}
	if len(w.retained) == 0 && w.kept == nil && len(w.cl.reg.files.byName)+len(w.cl.reg.identities.byHash)+len(w.cl.reg.files.byKey)+len(w.cl.reg.files.byPath) != 0 {
		w.t.Fatal("the registry still knows files")
	}
}
