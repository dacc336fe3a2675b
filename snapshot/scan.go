package snapshot

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/serializer"
)

// ScanOptions narrows and tunes a scan. Nil reads everything.
type ScanOptions struct {
	// Operator and State select; nil selects all. They are called once for each
	// handle and state.
	Operator func(*StateOperator) bool
	State    func(*State) bool
	// KeyGroups narrows keyed state to a range of key groups.
	KeyGroups *metadata.KeyGroupRange
	// Key narrows keyed state to one key, given as serialized: only its key group
	// is read, and of RocksDB state only the blocks that may hold it. Operator state
	// is left out.
	Key []byte
	// KeyJSON narrows keyed state to one key as well, given as JSON in the form in
	// which rows show it: each handle's key serializer turns it into bytes, and a
	// handle whose keys are of another type has no rows. Keys whose bytes do not
	// follow from their JSON (BigInteger, maps, Kryo) are found by reading all rows.
	KeyJSON string
	// Workers is how many goroutines read and decode; 0 is GOMAXPROCS.
	Workers int
	// Unordered lets rows come as they are read. Otherwise they come in the order
	// of the metadata: operators, subtasks, handles, then key groups, and within one
	// as the file has them (RocksDB state: state by state).
	Unordered bool
	// UID gives the uid of an operator ID, "" if unknown.
	UID func(metadata.OperatorID) string
	// OnProblem is told of each part that cannot be read, and the scan goes on
	// without it: a missing file, damage, an unknown serializer. It is called by one
	// goroutine at a time. Nil ends the scan with the first problem.
	OnProblem func(*ScanProblem)
	// Kryo is the version with which Kryo values were written; KryoAuto goes by the
	// metadata's version.
	Kryo serializer.KryoVersion
	// Classes are fields of classes that the snapshot does not describe. Those that
	// it describes anywhere are learned as handles are read.
	Classes serializer.Classes
}

// ScanProblem is a part of a snapshot that could not be read.
type ScanProblem struct {
	Operator *StateOperator
	State    string // "" if all of the handle's states are meant
	Subtask  int32
	KeyGroup int32 // -1 if all of the handle's are meant
	// Opaque: nothing is damaged, a serializer is unknown.
	Opaque bool
	// Rows is how many rows are not shown for it, if that is known.
	Rows int64
	Err  error
}

func (p *ScanProblem) Error() string {
	op := p.Operator.ID
	if p.Operator.UID != "" {
		op = p.Operator.UID
	} else if p.Operator.Name != "" {
		op = p.Operator.Name
	}
	at := "operator " + op
	if p.State != "" {
		at += ", state " + p.State
	}
	if p.Subtask >= 0 {
		at += fmt.Sprintf(", subtask %d", p.Subtask)
	}
	if p.KeyGroup >= 0 {
		at += fmt.Sprintf(", key group %d", p.KeyGroup)
	}
	return at + ": " + p.Err.Error()
}

// Unwrap gives errors.Is and errors.As the cause.
func (p *ScanProblem) Unwrap() error { return p.Err }

// unitBytes is about how much of a file one unit of work covers.
const unitBytes = 2 << 20

// unit is a piece of a scan that one worker does: some key groups of a handle, or
// a whole small handle.
type unit struct {
	operator *StateOperator
	subtask  int32
	run      func(ctx context.Context, w *worker) error
}

// worker is what a unit needs of the goroutine that runs it. Its row is written
// for each row of the state, so the cache line it ends in must not hold another
// worker's: that made two cores as slow as one.
type worker struct {
	scan *scan
	emit func(*StateRow) error
	unit *unit
	row  StateRow
	_    [128]byte
}

// scan is one run over a snapshot's state.
type scan struct {
	s    *Snapshot
	opts ScanOptions
	cat  *catalog

	// metaOnly: only the states are wanted, not their rows.
	metaOnly bool

	places map[int]*keyPlace // by operator; if one key is wanted
	// verify, if not nil, takes a look at everything that is opened.
	verify *dataCheck

	// ctx is that of the run, set before its first unit.
	ctx atomic.Pointer[context.Context]
	dbs openDBs // to be closed when no unit runs any more

	mu      sync.Mutex // for OnProblem
	classes atomic.Pointer[serializer.Classes]
}

func newScan(s *Snapshot, opts *ScanOptions) *scan {
	sc := &scan{s: s}
	if opts != nil {
		sc.opts = *opts
	}
	if sc.opts.Workers <= 0 {
		sc.opts.Workers = runtime.GOMAXPROCS(0)
	}
	if sc.opts.KeyJSON != "" {
		if text, err := compactKey(sc.opts.KeyJSON); err == nil {
			sc.opts.KeyJSON = text
		}
	}
	if sc.opts.Kryo == serializer.KryoAuto {
		sc.opts.Kryo = serializer.KryoOf(s.Checkpoint.Version)
	}
	classes := maps.Clone(sc.opts.Classes)
	if classes == nil {
		classes = serializer.Classes{}
	}
	sc.classes.Store(&classes)
	sc.cat = newCatalog(s.Checkpoint, sc.opts.UID)
	return sc
}

// decode gives the options of the decoders made from here on.
func (sc *scan) decode(framed bool) *serializer.DecodeOptions {
	return &serializer.DecodeOptions{Framed: framed, Kryo: sc.opts.Kryo, Classes: *sc.classes.Load()}
}

// learn adds the classes that a meta block describes.
func (sc *scan) learn(meta *serializer.KeyedBackendMeta) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	old := *sc.classes.Load()
	classes := maps.Clone(old)
	classes.Learn(meta.Key)
	for i := range meta.States {
		for _, t := range meta.States[i].Serializers {
			classes.Learn(t.Type)
		}
	}
	if len(classes) > len(old) {
		sc.classes.Store(&classes)
	}
}

// errStop ends a scan whose consumer has had enough.
var errStop = errors.New("stop")

// problem tells of one, or returns it where nobody wants to be told.
func (sc *scan) problem(p *ScanProblem) error {
	if ctxErr(p.Err) {
		return p.Err
	}
	if ctx := sc.ctx.Load(); ctx != nil && (*ctx).Err() != nil {
		return context.Cause(*ctx) // a store may call it what it likes
	}
	if inner := (*ScanProblem)(nil); errors.As(p.Err, &inner) {
		return p.Err // told already, and the scan is to end
	}
	var opaque *serializer.OpaqueError
	p.Opaque = p.Opaque || errors.As(p.Err, &opaque)
	if sc.opts.OnProblem == nil {
		return p
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.opts.OnProblem(p)
	return nil
}

func ctxErr(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStop)
}

func (w *worker) problem(state string, keyGroup int32, err error) error {
	return w.scan.problem(&ScanProblem{Operator: w.unit.operator, State: state, Subtask: w.unit.subtask, KeyGroup: keyGroup, Err: err})
}

// handleJob is one handle to be opened and split into units.
type handleJob struct {
	operator *StateOperator
	subtask  int32
	keyed    bool // the handle holds key groups
	prepare  func(ctx context.Context) ([]*unit, error)
}

// jobs yields the handles of the snapshot in order.
func (sc *scan) jobs() iter.Seq[handleJob] {
	return func(yield func(handleJob) bool) {
		c := sc.s.Checkpoint
		for i := range c.Operators {
			o, op := &c.Operators[i], &sc.cat.operators[i]
			if sc.opts.Operator != nil && !sc.opts.Operator(op) {
				continue
			}
			job := func(subtask int32, prepare func(ctx context.Context, j handleJob) ([]*unit, error)) bool {
				j := handleJob{operator: op, subtask: subtask}
				j.prepare = func(ctx context.Context) ([]*unit, error) { return prepare(ctx, j) }
				return yield(j)
			}
			keyed := func(subtask int32, prepare func(ctx context.Context, j handleJob) ([]*unit, error)) bool {
				j := handleJob{operator: op, subtask: subtask, keyed: true}
				j.prepare = func(ctx context.Context) ([]*unit, error) { return prepare(ctx, j) }
				return yield(j)
			}
			keyedOnly := sc.narrowed() || sc.opts.KeyGroups != nil
			if b, ok := o.Coordinator.(*metadata.ByteStreamHandle); ok && !keyedOnly {
				if !job(-1, func(_ context.Context, j handleJob) ([]*unit, error) { return sc.coordinator(j, b) }) {
					return
				}
			}
			for k := range o.Subtasks {
				st := &o.Subtasks[k]
				if h := st.ManagedKeyed; h != nil {
					if !keyed(st.Index, func(ctx context.Context, j handleJob) ([]*unit, error) { return sc.keyed(ctx, j, h) }) {
						return
					}
				}
				if h := st.RawKeyed; h != nil {
					if !keyed(st.Index, func(ctx context.Context, j handleJob) ([]*unit, error) { return sc.rawKeyed(ctx, j, h) }) {
						return
					}
				}
				if keyedOnly {
					continue
				}
				if h := st.ManagedOperator; h != nil {
					if !job(st.Index, func(ctx context.Context, j handleJob) ([]*unit, error) { return sc.managedOperator(ctx, j, h, o) }) {
						return
					}
				}
				if h := st.RawOperator; h != nil {
					if !job(st.Index, func(ctx context.Context, j handleJob) ([]*unit, error) { return sc.rawOperator(ctx, j, h) }) {
						return
					}
				}
			}
		}
		if sc.narrowed() || sc.opts.KeyGroups != nil || sc.opts.Operator != nil && !sc.opts.Operator(&sc.cat.master) {
			return
		}
		for i := range c.MasterStates {
			m := &c.MasterStates[i]
			j := handleJob{operator: &sc.cat.master, subtask: -1}
			j.prepare = func(context.Context) ([]*unit, error) { return sc.master(j, m) }
			if !yield(j) {
				return
			}
		}
	}
}

// ranges tells of operators whose key groups cannot be as the handles say: their
// rows are read all the same. Verify has its own words for it.
func (sc *scan) ranges() error {
	if sc.verify != nil {
		return nil
	}
	for i := range sc.s.Checkpoint.Operators {
		o, op := &sc.s.Checkpoint.Operators[i], &sc.cat.operators[i]
		if sc.opts.Operator != nil && !sc.opts.Operator(op) {
			continue
		}
		owner := map[int32]int32{} // subtask by key group
		for k := range o.Subtasks {
			t := &o.Subtasks[k]
			if t.ManagedKeyed == nil {
				continue
			}
			r := t.ManagedKeyed.KeyGroups()
			var detail string
			if r.Count > 0 && (r.Start < 0 || int64(r.Start)+int64(r.Count) > int64(o.MaxParallelism)) {
				detail = fmt.Sprintf("are %s, beyond the max parallelism %d", rangeText(r.Start, r.End()), o.MaxParallelism)
			} else {
				for kg := r.Start; kg < r.Start+r.Count; kg++ {
					if other, ok := owner[kg]; ok && detail == "" {
						detail = fmt.Sprintf("are %s; key group %d belongs to subtask %d, too", rangeText(r.Start, r.End()), kg, other)
					}
					owner[kg] = t.Index
				}
			}
			if detail != "" {
				err := &damage.Error{Name: sc.s.Location.String(), Offset: -1, Field: "key groups", Detail: detail, Err: damage.ErrCorrupt}
				if err := sc.problem(&ScanProblem{Operator: op, Subtask: t.Index, KeyGroup: -1, Err: err}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// prepareAhead is how many handles are opened at a time and ahead of the readers.
const prepareAhead = 8

// units yields the scan's units in order. Handles are opened a few ahead.
func (sc *scan) units(ctx context.Context) iter.Seq2[*unit, error] {
	return func(yield func(*unit, error) bool) {
		sc.ctx.Store(&ctx)
		if err := sc.ranges(); err != nil {
			yield(nil, err)
			return
		}
		for units, err := range inOrder(ctx, prepareAhead, sc.jobs(), func(ctx context.Context, j handleJob) ([]*unit, error) {
			units, err := j.prepare(ctx)
			if err != nil && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				return nil, sc.problem(&ScanProblem{Operator: j.operator, Subtask: j.subtask, KeyGroup: -1, Err: err})
			}
			return units, nil
		}) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, u := range units {
				if !yield(u, nil) {
					return
				}
			}
		}
	}
}

// inOrder applies do to the elements of in, ahead of the consumer by up to n,
// concurrently, and yields the results in the order of in. The first error ends it.
func inOrder[A, B any](ctx context.Context, n int, in iter.Seq[A], do func(context.Context, A) (B, error)) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		type result struct {
			b   B
			err error
		}
		queue := make(chan chan result, n)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			defer close(queue)
			for a := range in {
				out := make(chan result, 1)
				select {
				case queue <- out:
				case <-ctx.Done():
					return
				}
				wg.Go(func() {
					b, err := do(ctx, a)
					out <- result{b, err}
				})
			}
		})
		for out := range queue {
			r := <-out
			if !yield(r.b, r.err) || r.err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			var zero B
			yield(zero, err)
		}
	}
}

// Scan reads all selected state and calls, on each of Workers goroutines, the
// function that visitor gave for it, with one row after the other. Rows of one
// unit (some key groups of a handle) come in order, units as they come; see
// Blocks and Rows for an order over all. It returns the first error of a visitor,
// of the store or, without OnProblem, of the data.
//
// Memory: one window of a file for each worker, as large as the file's largest
// entry; index blocks of RocksDB tables; the changes of a changelog that are not
// materialized.
func Scan(ctx context.Context, s *Snapshot, opts *ScanOptions, visitor func(worker int) func(*StateRow) error) error {
	return newScan(s, opts).run(ctx, visitor)
}

func (sc *scan) run(ctx context.Context, visitor func(worker int) func(*StateRow) error) error {
	defer sc.dbs.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan *unit)
	var wg sync.WaitGroup
	for i := range sc.opts.Workers {
		wg.Go(func() {
			w := &worker{scan: sc, emit: visitor(i)}
			for u := range work {
				if err := w.do(ctx, u); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	var err error
feed:
	for u, uerr := range sc.units(ctx) {
		if err = uerr; err != nil {
			break
		}
		select {
		case work <- u:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errStop) {
		return cause
	}
	return err
}

func (w *worker) do(ctx context.Context, u *unit) error {
	w.unit = u
	return u.run(ctx, w)
}

// States lists all states of a snapshot in the order of operators, keyed states
// first, by reading the head of each handle. Rows are not read, but for legacy
// timers and payloads that only their bytes tell apart.
func States(ctx context.Context, s *Snapshot, opts *ScanOptions) ([]*State, error) {
	sc := newScan(s, opts)
	defer sc.dbs.close()
	sc.metaOnly = true
	for _, err := range sc.units(ctx) {
		if err != nil {
			return sc.cat.settle(), err
		}
	}
	return sc.cat.settle(), nil
}
