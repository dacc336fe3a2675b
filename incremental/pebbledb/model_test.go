package pebbledb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/metadata"
)

// The model test plays a job on raw keys: tasks that write, checkpoints that are
// confirmed, aborted, late, twice or never, subsumed ones whose files the shared
// state registry deletes for good, failures, and restores from any retained
// checkpoint at any parallelism. Beside it is a plain map. Every retained
// checkpoint must stay readable. More histories:
//
//	go test ./incremental/pebbledb -run TestModel -rapid.checks=10000
//
// A failure prints the seed; -rapid.seed=N plays it again.
func TestModel(t *testing.T) {
	p := newTestProcess(t)
	rapid.Check(t, func(t *rapid.T) {
		j := newJob(t, p)
		defer j.close()
		t.Repeat(map[string]func(*rapid.T){
			"write": j.write, "write2": j.write, "write3": j.write,
			"checkpoint": j.checkpoint, "checkpoint2": j.checkpoint,
			"complete": j.complete, "complete2": j.complete,
			"notify": j.notify, "notify2": j.notify,
			"abort":   j.abort,
			"cancel":  j.cancelled,
			"subsume": j.subsume,
			"lose":    j.lose,
			"restore": j.restore,
			"read":    j.readRetained,
			"":        j.check,
		})
		j.readAll()
	})
}

const modelGroups = 12

// appendMerger joins operands by ",", as list states do.
var appendMerger = &pebble.Merger{Name: "test.append", Merge: func(_, value []byte) (pebble.ValueMerger, error) {
	return &appender{bytes.Clone(value)}, nil
}}

type appender struct{ v []byte }

func (a *appender) MergeNewer(v []byte) error {
	a.v = append(append(a.v, ','), v...)
	return nil
}

func (a *appender) MergeOlder(v []byte) error {
	a.v = slices.Concat(v, []byte(","), a.v)
	return nil
}

func (a *appender) Finish(bool) ([]byte, io.Closer, error) { return a.v, nil, nil }

type job struct {
	t     *rapid.T
	p     *Process
	fs    vfs.FS
	store blobstore.Store
	cl    *incremental.Cleaner

	now      map[string]string // key to value
	tasks    []*DB
	bounds   []int32
	id       int64
	attempt  int
	from     *jobCheckpoint // what the attempt was restored from
	changes  int
	made     atomic.Int64 // files
	open     map[int64]*jobCheckpoint
	retained map[int64]*jobCheckpoint
	// notices are confirmations and aborts that are still on their way.
	notices []notice
	locals  []string
	merge   *incremental.FileMerging // of the attempt
	// moved are physical files that the registry put into metadata in place of another
	// upload: tasks do not know them, so that they need not be dense.
	moved map[string]bool
}

type notice struct {
	id      int64
	attempt int
	task    int
	confirm bool
}

type jobCheckpoint struct {
	id      int64
	attempt int
	state   map[string]string
	handles []*metadata.IncrementalHandle
}

const jobRoot = "mem://job"

func newJob(t *rapid.T, p *Process) *job {
	j := &job{t: t, p: p, fs: vfs.NewMem(), store: blobstore.NewMem(), now: map[string]string{},
		open: map[int64]*jobCheckpoint{}, retained: map[int64]*jobCheckpoint{}, moved: map[string]bool{}}
	j.cl = incremental.NewCleaner(incremental.NewRegistry(), j, nil)
	j.start(t, nil)
	return j
}

func (j *job) Resolve(_ context.Context, loc blobstore.Location) (blobstore.Store, string, error) {
	return j.store, loc.Path, nil
}

func (j *job) close() {
	for _, d := range j.tasks {
		if err := d.Close(); err != nil {
			j.t.Errorf("close: %v", err)
		}
	}
	j.tasks = nil
}

// start makes the tasks of an attempt, empty or from a checkpoint.
func (j *job) start(t *rapid.T, from *jobCheckpoint) {
	j.attempt++
	j.from = from
	n := rapid.IntRange(1, 4).Draw(t, "parallelism")
	cuts := map[int32]bool{0: true, modelGroups: true}
	for len(cuts) < n+1 {
		cuts[rapid.Int32Range(1, modelGroups-1).Draw(t, "cut")] = true
	}
	j.bounds = slices.Sorted(maps.Keys(cuts))
	if j.merge = nil; rapid.Bool().Draw(t, "merge files") {
		j.merge = &incremental.FileMerging{MaxFileBytes: rapid.SampledFrom([]int64{2 << 10, 6 << 10, 1 << 20}).Draw(t, "merged file"),
			MaxSpaceAmplification: rapid.SampledFrom([]float64{1, 1.5, 2}).Draw(t, "space amplification")}
	}
	eager, keep := rapid.Bool().Draw(t, "eager"), rapid.Bool().Draw(t, "local copies")
	var sources []Source
	if from != nil {
		for i, h := range from.handles {
			sources = append(sources, Source{Name: fmt.Sprintf("chk-%d/%d", from.id, i), Handle: h, Open: j.openHandle})
		}
		slices.Reverse(sources)
	}
	for i := range n {
		opts := &Options{Name: fmt.Sprintf("task %d.%d", j.attempt, i), KeyGroups: groups(j.bounds[i], j.bounds[i+1]), FS: j.fs,
			Merger: appendMerger, Eager: eager, KeepLocal: keep, Local: j.locals, MemTableBytes: 256 << 10}
		d, err := Restore(t.Context(), j.p, fmt.Sprintf("/attempt-%d-%d", j.attempt, i), sources, opts)
		if err != nil {
			t.Fatalf("restore: %v", err)
		}
		j.tasks = append(j.tasks, d)
	}
	j.locals = nil
}

func (j *job) taskOf(kg int) *DB {
	for i, d := range j.tasks {
		if int32(kg) >= j.bounds[i] && int32(kg) < j.bounds[i+1] {
			return d
		}
	}
	panic("no task")
}

func modelKey(kg, k int) []byte {
	return fmt.Appendf(binary.BigEndian.AppendUint16(nil, uint16(kg)), "key-%02d", k)
}

// batch makes changes to one key group, in a batch and in the model.
func (j *job) batch(t *rapid.T, kg int, b *pebble.Batch) {
	for range rapid.IntRange(1, 12).Draw(t, "changes") {
		k := modelKey(kg, rapid.IntRange(0, 20).Draw(t, "key"))
		j.changes++
		v := fmt.Sprintf("%d-%s", j.changes, strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "length")))
		var err error
		switch rapid.IntRange(0, 9).Draw(t, "change") {
		case 0, 1, 2, 3:
			err = b.Set(k, []byte(v), nil)
			j.now[string(k)] = v
		case 4, 5, 6:
			err = b.Merge(k, []byte(v), nil)
			if old, ok := j.now[string(k)]; ok {
				v = old + "," + v
			}
			j.now[string(k)] = v
		case 7, 8:
			err = b.Delete(k, nil)
			delete(j.now, string(k))
		case 9:
			end := modelKey(kg, rapid.IntRange(0, 25).Draw(t, "end"))
			if bytes.Compare(k, end) < 0 {
				err = b.DeleteRange(k, end, nil)
				for o := range j.now {
					if o >= string(k) && o < string(end) {
						delete(j.now, o)
					}
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (j *job) write(t *rapid.T) {
	kg := rapid.IntRange(0, modelGroups-1).Draw(t, "key group")
	d := j.taskOf(kg)
	b := d.Pebble().NewBatch()
	defer b.Close()
	j.batch(t, kg, b)
	if err := d.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "flush") == 0 {
		if err := d.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// checkpoint takes one of all tasks and acknowledges it.
func (j *job) checkpoint(t *rapid.T) {
	j.id++
	c := &jobCheckpoint{id: j.id, attempt: j.attempt}
	if err := j.cl.Update(func(r *incremental.Registry) error { return r.Begin(c.id) }); err != nil {
		t.Fatal(err)
	}
	var frozen []*Frozen
	for i, d := range j.tasks {
		// What a task holds back is part of it, what it writes afterwards is not.
		held := d.Pebble().NewBatch()
		defer held.Close()
		if rapid.Bool().Draw(t, "held back") {
			j.batch(t, int(j.bounds[i]), held)
		}
		f, err := d.Checkpoint(c.id, func(apply func(*pebble.Batch) error) error {
			if held.Empty() {
				return nil
			}
			return apply(held)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release()
		frozen = append(frozen, f)
	}
	c.state = maps.Clone(j.now)
	if rapid.Bool().Draw(t, "write on") {
		j.write(t)
	}
	for _, f := range frozen {
		up, err := f.Upload(t.Context(), j.create, &UploadOptions{Merge: j.merge})
		if err != nil {
			t.Fatal(err)
		}
		j.requireDense(t, up.Handle)
		var files []incremental.AckFile
		h := up.Handle
		for i := range h.Shared {
			files = append(files, incremental.AckFile{Identity: up.Identities[i], Handle: h.Shared[i].Handle})
		}
		for i := range h.Private {
			files = append(files, incremental.AckFile{Handle: h.Private[i].Handle})
		}
		if err := j.cl.Update(func(r *incremental.Registry) error { return r.Register(c.id, files) }); err != nil {
			t.Fatalf("acknowledgement: %v", err)
		}
		for i := range h.Shared {
			if h.Shared[i].Handle != files[i].Handle {
				j.moved[physical(files[i].Handle)] = true
			}
			h.Shared[i].Handle = files[i].Handle
		}
		c.handles = append(c.handles, h)
	}
	j.open[c.id] = c
}

// cancelled is a checkpoint whose upload is cancelled in the middle.
func (j *job) cancelled(t *rapid.T) {
	j.id++
	d := j.tasks[rapid.IntRange(0, len(j.tasks)-1).Draw(t, "task")]
	f, err := d.Checkpoint(j.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := rapid.IntRange(0, 4).Draw(t, "files until then")
	var made []*jobWriter
	var mu sync.Mutex // of the two
	_, err = f.Upload(ctx, func(ctx context.Context, shared bool) FileWriter {
		mu.Lock()
		defer mu.Unlock()
		if left--; left < 0 {
			cancel()
		}
		w := j.create(ctx, shared).(*jobWriter)
		made = append(made, w)
		return w
	}, &UploadOptions{Merge: j.merge})
	if left < 0 && !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled upload: %v", err)
	}
	f.Release()
	for _, w := range made { // as snapshot.Writer's Abort does
		if !w.ended {
			t.Fatal("a file was neither closed nor aborted")
		}
		j.store.Delete(t.Context(), w.name)
	}
	if err == nil {
		d.Aborted(j.id)
	}
}

type jobWriter struct {
	blobstore.Writer
	name  string
	n     int64
	ended bool
}

func (j *job) create(ctx context.Context, shared bool) FileWriter {
	name := fmt.Sprintf("chk/%d", j.made.Add(1))
	if shared {
		name = "shared" + name
	}
	w, err := j.store.Create(context.WithoutCancel(ctx), name, nil)
	if err != nil {
		panic(err)
	}
	return &jobWriter{Writer: w, name: name}
}

func (w *jobWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return w.Writer.Write(p)
}

func (w *jobWriter) Abort() error {
	w.ended = true
	return w.Writer.Abort()
}

func (w *jobWriter) Close() (metadata.StreamHandle, error) {
	w.ended = true
	return &metadata.FileHandle{Path: javaio.NewString(jobRoot + "/" + w.name), Size: w.n}, w.Commit()
}

func (j *job) openHandle(_ context.Context, h metadata.StreamHandle) (sst.Source, error) {
	var start int64
	if s, ok := h.(*metadata.SegmentHandle); ok {
		start = s.Start
	}
	return incremental.BlobSource(j.store, physical(h), start, metadata.StateSize(h)), nil
}

// physical is the name of the object that a handle names.
func physical(h metadata.StreamHandle) string {
	var path metadata.String
	switch h := h.(type) {
	case *metadata.FileHandle:
		path = h.Path
	case *metadata.SegmentHandle:
		path = h.Path
	}
	return strings.TrimPrefix(path.Go(), jobRoot+"/")
}

// requireDense checks that a checkpoint names enough of each physical file.
func (j *job) requireDense(t *rapid.T, h *metadata.IncrementalHandle) {
	live := map[string]int64{}
	for _, n := range h.Shared {
		if s, ok := n.Handle.(*metadata.SegmentHandle); ok && !j.moved[physical(s)] {
			live[physical(s)] += s.Length
		}
	}
	for name, n := range live {
		info, err := j.store.Stat(t.Context(), name)
		if errors.Is(err, blobstore.ErrNotExist) {
			continue // a second upload, in whose place the registry puts the first
		}
		if err != nil {
			t.Fatal(err)
		}
		if j.merge != nil && float64(info.Size) > j.merge.MaxSpaceAmplification*float64(n) {
			t.Fatalf("checkpoint %d names %d bytes of %s, which has %d: more than %v times", h.CheckpointID, n, name, info.Size, j.merge.MaxSpaceAmplification)
		}
	}
}

func (j *job) anyOf(t *rapid.T, m map[int64]*jobCheckpoint) *jobCheckpoint {
	if len(m) == 0 {
		t.Skip()
	}
	return m[rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "checkpoint")]
}

func (j *job) complete(t *rapid.T) {
	c := j.anyOf(t, j.open)
	if err := j.cl.Update(func(r *incremental.Registry) error { return r.Confirm(c.id, "") }); err != nil {
		t.Fatal(err)
	}
	delete(j.open, c.id)
	j.retained[c.id] = c
	j.notifyAll(c, true)
	for id, o := range j.open {
		if id < c.id {
			delete(j.open, id)
			j.notifyAll(o, false)
		}
	}
}

func (j *job) notifyAll(c *jobCheckpoint, confirm bool) {
	if c.attempt != j.attempt {
		return
	}
	for i := range j.tasks {
		j.notices = append(j.notices, notice{c.id, c.attempt, i, confirm})
	}
}

func (j *job) abort(t *rapid.T) {
	c := j.anyOf(t, j.open)
	j.cl.Update(func(r *incremental.Registry) error { r.Abort(c.id); return nil })
	delete(j.open, c.id)
	j.notifyAll(c, false)
}

// notify delivers a notice, perhaps again later.
func (j *job) notify(t *rapid.T) {
	if len(j.notices) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(j.notices)-1).Draw(t, "notice")
	n := j.notices[i]
	if n.confirm {
		j.tasks[n.task].Confirmed(n.id)
	} else {
		j.tasks[n.task].Aborted(n.id)
	}
	if rapid.IntRange(0, 4).Draw(t, "again") > 0 {
		j.notices = slices.Delete(j.notices, i, i+1)
	}
}

func (j *job) lose(t *rapid.T) {
	if len(j.notices) == 0 {
		t.Skip()
	}
	i := rapid.IntRange(0, len(j.notices)-1).Draw(t, "notice")
	j.notices = slices.Delete(j.notices, i, i+1)
}

func (j *job) subsume(t *rapid.T) {
	c := j.anyOf(t, j.retained)
	// Tasks build on the newest, and read from what they were restored from until
	// there is one of theirs.
	newest := j.retained[slices.Max(slices.Collect(maps.Keys(j.retained)))]
	if c == newest || c == j.from && newest.attempt != j.attempt {
		t.Skip()
	}
	j.cl.Update(func(r *incremental.Registry) error { r.Subsume(c.id); return nil })
	delete(j.retained, c.id)
	if _, err := j.cl.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// restore ends all tasks as a failure does, and starts others from a checkpoint.
func (j *job) restore(t *rapid.T) {
	c := j.anyOf(t, j.retained)
	for _, d := range j.tasks {
		if dir := d.LocalCopy(c.id); dir != "" && rapid.Bool().Draw(t, "local copy") {
			j.locals = append(j.locals, dir)
		}
	}
	j.close()
	j.notices = nil
	for id := range j.open {
		j.cl.Update(func(r *incremental.Registry) error { r.Abort(id); return nil })
		delete(j.open, id)
	}
	j.now = maps.Clone(c.state)
	j.start(t, c)
}

// check compares the tasks with the model, by a digest of each key group.
func (j *job) check(t *rapid.T) {
	want := digests(j.now)
	got := map[int]uint64{}
	for i, d := range j.tasks {
		if err := d.Err(); err != nil {
			t.Fatal(err)
		}
		m := j.scan(d.Pebble(), nil)
		for k := range m {
			if g := int32(groupOf(k)); g < j.bounds[i] || g >= j.bounds[i+1] {
				t.Fatalf("task %d has key group %d", i, g)
			}
		}
		maps.Copy(got, digests(m))
	}
	if !maps.Equal(want, got) {
		t.Fatalf("the state is not that of the model: %s", j.difference())
	}
}

func (j *job) difference() string {
	all := map[string]string{}
	for _, d := range j.tasks {
		maps.Copy(all, j.scan(d.Pebble(), nil))
	}
	return diffMaps(j.now, all)
}

func diffMaps(want, got map[string]string) string {
	for k, v := range want {
		if got[k] != v {
			return fmt.Sprintf("%q is %.80q, not %.80q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("%q is there", k)
		}
	}
	return "no difference"
}

func groupOf(k string) int { return int(binary.BigEndian.Uint16([]byte(k[:2]))) }

func digests(m map[string]string) map[int]uint64 {
	d := map[int]uint64{}
	for k, v := range m {
		d[groupOf(k)] += xxhash.Sum64String(k + "=" + v)
	}
	return d
}

func (j *job) scan(r pebble.Reader, own *metadata.KeyGroupRange) map[string]string {
	o := &pebble.IterOptions{}
	if own != nil {
		s := span(*own)
		o.LowerBound, o.UpperBound = s.Start, s.End
	}
	it, err := r.NewIter(o)
	if err != nil {
		j.t.Fatal(err)
	}
	defer it.Close()
	m := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		m[string(it.Key())] = string(it.Value())
	}
	if err := it.Error(); err != nil {
		j.t.Fatal(err)
	}
	return m
}

// readRetained reads a retained checkpoint where it lies.
func (j *job) readRetained(t *rapid.T) { j.read(j.anyOf(t, j.retained)) }

func (j *job) readAll() {
	for _, c := range j.retained {
		j.read(c)
	}
}

func (j *job) read(c *jobCheckpoint) {
	all := map[string]string{}
	for i, h := range c.handles {
		var files []incremental.File
		for _, n := range slices.Concat(h.Shared, h.Private) {
			src, _ := j.openHandle(j.t.Context(), n.Handle)
			files = append(files, incremental.File{Name: n.Name.Go(), Source: src})
		}
		r, err := OpenReadOnly(j.t.Context(), j.p, files, &ReadOnlyOptions{Name: fmt.Sprintf("chk-%d/%d", c.id, i),
			Merger: func(string) *pebble.Merger { return appendMerger }})
		if err != nil {
			j.t.Fatalf("a retained checkpoint: %v", err)
		}
		m := j.scan(r.Pebble(), &h.Range)
		if err := r.Close(); err != nil {
			j.t.Fatal(err)
		}
		maps.Copy(all, m)
	}
	if !maps.Equal(c.state, all) {
		j.t.Fatalf("checkpoint %d is not what it was: %s", c.id, diffMaps(c.state, all))
	}
}
