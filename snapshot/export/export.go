// Package export writes states as Parquet and Arrow files: one file for each state,
// with the columns and types of package table (docs/format/columns.md).
//
// Rows come in the order of snapshot.Rows, so that the same snapshot gives the same
// file. Parquet row groups hold about 8 MiB of values; Arrow record batches about
// one. A file is written under a temporary name beside its own and renamed when all
// files are whole: after an error or an interrupt there is nothing.
package export

import (
	"cmp"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/tidemark/tidemark/serializer"
	"github.com/tidemark/tidemark/snapshot"
	"github.com/tidemark/tidemark/snapshot/table"
)

// Format is a file format.
type Format uint8

// Formats.
const (
	Parquet Format = iota
	// Arrow is the IPC file format, version 1.0, uncompressed: also known as
	// Feather version 2. It can be mapped into memory.
	Arrow
	// ArrowStream is the IPC stream format, which needs no seekable reader.
	ArrowStream
)

// Extension is what file names of the format end with, with its dot.
func (f Format) Extension() string {
	switch f {
	case Arrow:
		return ".arrow"
	case ArrowStream:
		return ".arrows"
	}
	return ".parquet"
}

// Options tune an export. Nil is Parquet of everything.
type Options struct {
	Format Format
	// Scan selects states and rows; see snapshot.ScanOptions.
	Scan *snapshot.ScanOptions
	// Match, if set, gives each worker a function that chooses rows.
	Match func(worker int) func(*snapshot.StateRow) bool
	// Limit is how many rows are written over all states; 0 is no limit.
	Limit int64
	// Undecoded is told the class of each row that has a part nothing describes. It
	// is called by several goroutines.
	Undecoded func(class string)
	// Progress is called now and then with the rows written so far.
	Progress func(rows int64)
}

// ErrStates says that a single file was asked for and there is not one state.
var ErrStates = errors.New("a file holds one state")

// file is one state's file that is being written.
type file interface {
	// encode prepares batches, concurrently with others; commit then writes them,
	// one after the other.
	encode([]*table.Batch) (commit func() error, err error)
	close() error
}

// Bounds of memory: values that wait to become a row group of one state, and of all
// states together.
const (
	groupBytes   = 8 << 20
	pendingBytes = 24 << 20
	batchBytes   = 1 << 20
)

// Write writes the selected states, each to what create gives for it: for every
// state that the snapshot declares, with rows or without, before its first row.
func Write(ctx context.Context, s *snapshot.Snapshot, create func(*table.Schema) (io.Writer, error), opts *Options) error {
	e := &exporter{create: create, files: map[stateID]*stateFile{}}
	if opts != nil {
		e.opts = *opts
	}
	return e.run(ctx, s)
}

type stateID struct {
	operator int
	name     string
	kind     snapshot.StateKind
}

func idOf(s *snapshot.State) stateID { return stateID{s.Operator.Position, s.Name, s.Kind} }

type exporter struct {
	opts   Options
	create func(*table.Schema) (io.Writer, error)

	mu    sync.Mutex
	files map[stateID]*stateFile
	order []*stateFile

	pending int // bytes of batches that wait
	rows    int64
}

// stateFile is the file of one state with the batches that wait for it.
type stateFile struct {
	schema  *table.Schema
	file    file
	batches []*table.Batch
	bytes   int
	turn    chan struct{} // closed when what was submitted before is committed
	free    sync.Pool
}

// errLimit ends a scan that has given all rows that were asked for.
var errLimit = errors.New("limit reached")

func (e *exporter) run(ctx context.Context, s *snapshot.Snapshot) error {
	scan := snapshot.ScanOptions{}
	if e.opts.Scan != nil {
		scan = *e.opts.Scan
	}
	// The schema of a state is fixed by its first row: whether handles differ must
	// be known before. Problems are told once, by the scan.
	heads := scan
	if scan.OnProblem != nil {
		heads.OnProblem = func(*snapshot.ScanProblem) {}
	}
	states, err := snapshot.States(ctx, s, &heads)
	if err != nil {
		return err
	}
	for _, st := range states {
		if scan.State != nil && !scan.State(st) || (scan.Key != nil || scan.KeyGroups != nil) && !st.Kind.Keyed() {
			continue
		}
		if _, err := e.open(st); err != nil {
			return err
		}
	}
	workers := scan.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	err = e.pump(ctx, workers, func(ctx context.Context, submit func(*stateFile) error) error {
		return snapshot.Collect(ctx, s, &scan, func(worker int) snapshot.Collector[[]*table.Batch] {
			c := &collector{e: e, batches: map[*snapshot.State]*table.Batch{}}
			if e.opts.Match != nil {
				c.match = e.opts.Match(worker)
			}
			return c
		}, func(batches []*table.Batch) error { return e.take(batches, submit) })
	})
	if err != nil {
		return err
	}
	for _, f := range e.order {
		if err := f.file.close(); err != nil {
			return err
		}
	}
	return nil
}

// pump runs produce, which submits files whose batches are to be encoded, beside
// the encoders, and encodes what is left.
func (e *exporter) pump(ctx context.Context, workers int, produce func(ctx context.Context, submit func(*stateFile) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type job struct {
		f            *stateFile
		batches      []*table.Batch
		before, done chan struct{}
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				commit, err := j.f.file.encode(j.batches)
				if j.before != nil {
					select {
					case <-j.before:
					case <-ctx.Done():
					}
				}
				if err == nil && ctx.Err() == nil {
					err = commit()
				}
				if err != nil {
					cancel(err)
				}
				close(j.done)
				for _, b := range j.batches {
					b.Reset()
					j.f.free.Put(b)
				}
			}
		})
	}
	submit := func(f *stateFile) error {
		j := job{f: f, batches: f.batches, before: f.turn, done: make(chan struct{})}
		e.pending -= f.bytes
		f.batches, f.bytes, f.turn = nil, 0, j.done
		select {
		case jobs <- j:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := produce(ctx, submit)
	if errors.Is(err, errLimit) {
		err = nil
	}
	for _, f := range e.order {
		if err == nil && len(f.batches) > 0 {
			err = submit(f)
		}
	}
	close(jobs)
	if err != nil {
		cancel(err)
	}
	wg.Wait()
	if err != nil {
		return err
	}
	return context.Cause(ctx)
}

// take gathers batches by state, and submits those that have enough.
func (e *exporter) take(batches []*table.Batch, submit func(*stateFile) error) error {
	for _, b := range batches {
		e.mu.Lock() // workers may open files of states that show up late
		f := e.files[idOf(b.Schema.State)]
		e.mu.Unlock()
		if e.opts.Limit > 0 {
			b.Truncate(int(min(int64(b.Rows), e.opts.Limit-e.rows)))
		}
		n := b.Size()
		e.rows += int64(b.Rows)
		f.batches, f.bytes, e.pending = append(f.batches, b), f.bytes+n, e.pending+n
		if f.bytes >= groupBytes {
			if err := submit(f); err != nil {
				return err
			}
		}
		if e.opts.Limit > 0 && e.rows >= e.opts.Limit {
			return errLimit
		}
	}
	for e.pending >= pendingBytes {
		e.mu.Lock()
		most := slices.MaxFunc(e.order, func(a, b *stateFile) int { return cmp.Compare(a.bytes, b.bytes) })
		e.mu.Unlock()
		if err := submit(most); err != nil {
			return err
		}
	}
	if e.opts.Progress != nil {
		e.opts.Progress(e.rows)
	}
	return nil
}

// open gives the file of a state, and makes it if there is none yet.
func (e *exporter) open(st *snapshot.State) (*stateFile, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.files[idOf(st)]; f != nil {
		return f, nil
	}
	f := &stateFile{schema: table.Of(st)}
	w, err := e.create(f.schema)
	if err != nil {
		return nil, err
	}
	if f.file, err = newFile(w, f.schema, e.opts.Format); err != nil {
		return nil, err
	}
	f.free.New = func() any { return table.NewBatch(f.schema) }
	e.files[idOf(st)] = f
	e.order = append(e.order, f)
	return f, nil
}

// collector turns a worker's rows into batches.
type collector struct {
	e       *exporter
	match   func(*snapshot.StateRow) bool
	batches map[*snapshot.State]*table.Batch
	last    *table.Batch
	state   *snapshot.State
	count   int
	bytes   int
}

func (c *collector) Add(r *snapshot.StateRow) (full bool, err error) {
	if c.match != nil && !c.match(r) {
		return false, nil
	}
	if r.State != c.state || c.last == nil {
		c.state, c.last = r.State, c.batches[r.State]
		if c.last == nil {
			f, err := c.e.open(r.State)
			if err != nil {
				return false, err
			}
			c.last = f.free.Get().(*table.Batch)
			c.batches[r.State] = c.last
		}
	}
	if class := c.last.Add(r); class != "" && c.e.opts.Undecoded != nil {
		c.e.opts.Undecoded(class)
	}
	c.bytes += len(r.Value)
	if c.count++; c.count < 256 && c.bytes < batchBytes/4 {
		return false, nil
	}
	c.count, c.bytes = 0, 0
	size := 0
	for _, b := range c.batches {
		size += b.Size()
	}
	return size >= batchBytes, nil
}

func (c *collector) Take() ([]*table.Batch, bool) {
	out := c.e.sorted(c.batches)
	clear(c.batches)
	c.last, c.count, c.bytes = nil, 0, 0
	return out, len(out) > 0
}

// sorted gives batches in the order of their files, which does not hang on the
// order of a map.
func (e *exporter) sorted(batches map[*snapshot.State]*table.Batch) []*table.Batch {
	if len(batches) == 0 {
		return nil
	}
	byID := make(map[stateID]*table.Batch, len(batches))
	for st, b := range batches {
		byID[idOf(st)] = b
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]*table.Batch, 0, len(batches))
	for _, f := range e.order {
		if b := byID[idOf(f.schema.State)]; b != nil {
			out = append(out, b)
		}
	}
	return out
}

// metadata is what a file says of its state: the types in words, for whoever wants
// to know more than the columns tell.
func metadata(s *table.Schema) [][2]string {
	st := s.State
	kv := [][2]string{
		{"tidemark.operator_id", st.Operator.ID},
		{"tidemark.operator_uid", st.Operator.UID},
		{"tidemark.operator_name", st.Operator.Name},
		{"tidemark.state", st.Name},
		{"tidemark.kind", string(st.Kind)},
		{"tidemark.max_parallelism", strconv.Itoa(int(st.Operator.MaxParallelism))},
	}
	for _, t := range []struct {
		name string
		t    *serializer.Type
	}{{"key", st.Key}, {"namespace", st.Namespace}, {"map_key", st.UserKey}, {"value", st.Value}} {
		if t.t != nil {
			kv = append(kv, [2]string{"tidemark." + t.name + "_type", t.t.String()})
		}
	}
	return kv
}
