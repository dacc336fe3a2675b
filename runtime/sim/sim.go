// Package sim runs a whole job on a seeded scheduler with virtual time: the real
// checkpoint coordinator (package checkpoint), the real barrier handlers (package
// barrier) and the real shared state registry, with small model tasks, a model
// network that loses, doubles and delays messages, and a model store that fails and
// loses answers. Tasks crash, the coordinator dies at any step.
//
//	source → count (keyed) → sink (two-phase commit), each of some subtasks
//
// Or several pipelines beside each other, which restart one by one: see Shape. The
// job is rescaled between its lives, stopped with savepoints and started from them,
// and taken over by a second coordinator while the first one goes on.
//
// A run checks after each step what must never happen, and at the end that what the
// sink has committed is what a sequential program would have given: Run's error
// says what was wrong and when. The same Config gives the same run, so that a
// failing seed replays exactly; Shrink makes it small.
package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/tidemark/tidemark/runtime/event"
)

// Fault is a kind of fault that a run injects.
type Fault uint8

// Faults.
const (
	FaultTaskCrash       Fault = iota
	FaultCoordinatorDies       // the whole process, at any event
	FaultDiesInCommit          // the coordinator, while its store is at work
	FaultLost                  // a message between coordinator and task
	FaultDoubled
	FaultLate        // a message that comes after much later ones
	FaultUpload      // a task cannot write its state
	FaultSlowUpload  // for longer than the checkpoint's timeout
	FaultMetadata    // the metadata object is not written
	FaultPut         // the store of completed checkpoints refuses
	FaultPutLost     // it has changed, and the answer is lost for good
	FaultDelete      // a file is not deleted, once or more
	FaultLocation    // a checkpoint's place cannot be made
	FaultReserve     // checkpoint IDs cannot be reserved
	FaultCoordinator // an operator coordinator gives no state
	FaultDecline     // a task declines for no reason
	FaultSecond      // a second coordinator takes over while the first one goes on
	FaultTakeOver    // a coordinator dies in taking over
	FaultRestore     // a task crashes as soon as it is restored
	FaultSlowStore   // a store call that takes longer than a checkpoint may
	faultKinds
)

var faultNames = [...]string{"task crash", "coordinator dies", "coordinator dies in commit", "lost message", "doubled message", "late message", "failed upload",
	"slow upload", "failed metadata", "refused put", "put with lost answer", "failed deletion", "failed location", "failed reservation", "failed operator coordinator", "declined",
	"second coordinator", "death in takeover", "crash in restore", "slow store"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return "fault"
}

// Config of a run. Of gives one from a seed alone.
type Config struct {
	Seed        uint64
	Alignment   event.Alignment
	AlignedMs   int64 // of Aligned: turns unaligned after it; 0: never
	Incremental bool
	Concurrent  int
	Retained    int
	Records     int32 // of each source subtask
	Finish      bool  // sources end, and tasks finish
	Savepoints  bool  // among the checkpoints
	Shape       Shape
	Backend     Backend
	Rescale     bool // each life of the job has another parallelism
	Stops       int  // with a savepoint, and started again from there
	// Rate of faults, in 1/1000 of the occasions for each.
	Rate int
	// Without is a set of faults, by their number in the run, that do not happen:
	// what Shrink varies.
	Without map[int]bool
	// Trace is told each step, if it is not nil.
	Trace func(string)

	bug bug
}

// Of is the configuration that a seed stands for.
func Of(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	c := Config{Seed: seed, Incremental: r.IntN(2) == 0, Concurrent: 1 + r.IntN(3), Retained: 1 + r.IntN(2), Records: 5 + r.Int32N(60), Finish: r.IntN(3) == 0, Savepoints: r.IntN(3) == 0}
	switch r.IntN(4) {
	case 0:
		c.Alignment = event.AtLeastOnce
	case 1:
		c.Alignment = event.Aligned
	case 2:
		c.Alignment = event.Unaligned
	case 3:
		c.Alignment, c.AlignedMs = event.Aligned, 1+r.Int64N(20)
	}
	c.Rate = []int{0, 10, 30, 80}[r.IntN(4)]
	if r.IntN(3) == 0 {
		c.Shape = Pipelines
	}
	c.Rescale = r.IntN(2) == 0
	c.Stops = max(0, r.IntN(5)-2)
	return c
}

// mode is the barriers' and, if it matters, how state is written.
func (c Config) mode() string {
	s := c.Alignment.String()
	if c.AlignedMs > 0 {
		s += " with timeout"
	}
	if c.Incremental {
		return s + ", incremental"
	}
	return s + ", full"
}

func (c Config) String() string {
	mode := c.Alignment.String()
	if c.AlignedMs > 0 {
		mode += fmt.Sprintf(" for %d ms", c.AlignedMs)
	}
	return fmt.Sprintf("seed %d: %s, incremental %v, concurrent %d, retained %d, %d records, finish %v, savepoints %v, rate %d, %s, %s backend, rescale %v, stops %d", c.Seed, mode, c.Incremental, c.Concurrent, c.Retained, c.Records, c.Finish, c.Savepoints, c.Rate, c.Shape, c.Backend, c.Rescale, c.Stops)
}

// Result of a run.
type Result struct {
	Faults       [faultKinds]int // that happened, by kind
	Numbers      []int           // their numbers in the run, for Shrink
	Steps        int
	Millis       int64 // of virtual time
	Completed    int   // checkpoints
	Failed       int
	Savepoints   int // of the completed ones
	Restores     int
	LeftToGC     int // files that a crash left, which nobody but gc knows
	Captured     int // records that were channel state
	Unaligned    int // snapshots that were taken unaligned
	Coordinators int
	Rescales     int // restores at another parallelism
	Partial      int // restarts of single pipelines
	Stops        int // jobs that were started again from the savepoint they were stopped with
}

// Add sums results up.
func (r *Result) Add(o *Result) {
	for i := range r.Faults {
		r.Faults[i] += o.Faults[i]
	}
	r.Steps += o.Steps
	r.Millis += o.Millis
	r.Completed += o.Completed
	r.Failed += o.Failed
	r.Savepoints += o.Savepoints
	r.Restores += o.Restores
	r.LeftToGC += o.LeftToGC
	r.Captured += o.Captured
	r.Unaligned += o.Unaligned
	r.Coordinators += o.Coordinators
	r.Rescales += o.Rescales
	r.Partial += o.Partial
	r.Stops += o.Stops
}

func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, %d s of virtual time, %d checkpoints completed (%d savepoints), %d failed, %d coordinators, %d restores, %d rescales, %d restarts of single pipelines, %d stops with savepoint, %d unaligned snapshots, %d records captured, %d files left to gc; faults:",
		r.Steps, r.Millis/1000, r.Completed, r.Savepoints, r.Failed, r.Coordinators, r.Restores, r.Rescales, r.Partial, r.Stops, r.Unaligned, r.Captured, r.LeftToGC)
	for f := range faultKinds {
		fmt.Fprintf(&b, " %s %d,", f, r.Faults[f])
	}
	return strings.TrimSuffix(b.String(), ",")
}

// happening is a step that is due.
type happening struct {
	at  int64
	seq int
	f   func()
}

// agenda is a heap, the earliest step first.
type agenda []happening

func (a agenda) less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}

func (a *agenda) push(h happening) {
	*a = append(*a, h)
	q := *a
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (a *agenda) pop() happening {
	q := *a
	first, n := q[0], len(q)-1
	q[0], q[n] = q[n], happening{}
	q = q[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && q.less(c+1, c) {
			c++
		}
		if !q.less(c, i) {
			break
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
	*a = q
	return first
}

// world is a run.
type world struct {
	cfg    Config
	r      *rand.Rand
	now    int64
	seq    int
	todo   agenda
	res    Result
	faults int // occasions that came true so far, suppressed ones included
	err    error
	calm   bool // no more faults: the job is to come to its end
	stops  int  // with a savepoint that are still to come
	// backends are open.
	backends map[*task]bool

	store *store
	sink  *outside
	proc  *process
}

// Run runs a job to its end. The error says which invariant was broken.
func Run(cfg Config) (*Result, error) {
	w := &world{cfg: cfg, r: rand.New(rand.NewPCG(cfg.Seed, 2)), stops: cfg.Stops, backends: map[*task]bool{}}
	w.store, w.sink = newStore(w), newOutside(w)
	w.startProcess()
	const calmAt, limit = 4000, 600_000
	w.after(calmAt, func() { w.calm = true })
	for len(w.todo) > 0 && w.err == nil && !w.proc.done() {
		h := w.todo.pop()
		w.now = h.at
		w.res.Steps++
		h.f()
		if w.now > limit {
			w.fail("the job has not come to its end after %d s: %s", limit/1000, w.proc.describe())
		}
	}
	if w.err == nil {
		w.finish()
	}
	for k := range w.backends {
		k.closeBackend()
	}
	if w.store.pool != nil {
		_ = w.store.pool.Close() // in memory
	}
	w.res.Millis = w.now
	return &w.res, w.err
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%s: at %d ms: %s", w.cfg, w.now, fmt.Sprintf(format, args...))
	}
}

func (w *world) trace(format string, args ...any) {
	if w.cfg.Trace != nil {
		w.cfg.Trace(fmt.Sprintf("%6d ", w.now) + fmt.Sprintf(format, args...))
	}
}

// storeTime is how long a call of the store takes.
func (w *world) storeTime() int64 {
	if w.happens(FaultSlowStore, 2) {
		return 250
	}
	return 1 + w.r.Int64N(8)
}

// after schedules a step.
func (w *world) after(ms int64, f func()) {
	w.seq++
	w.todo.push(happening{w.now + ms, w.seq, f})
}

// happens says whether a fault happens now. It draws from the seed whether or not
// it is suppressed, so that a run without some faults is otherwise the same for as
// long as it can be.
func (w *world) happens(f Fault, weight int) bool {
	x := w.r.IntN(1000)
	if w.calm || x >= w.cfg.Rate*weight/10 {
		return false
	}
	n := w.faults
	w.faults++
	if w.cfg.Without[n] {
		return false
	}
	w.res.Faults[f]++
	w.res.Numbers = append(w.res.Numbers, n)
	w.trace("FAULT %d: %s", n, f)
	return true
}

// Shrink looks for a smaller run that fails as well: fewer records, fewer faults.
// It tries at most so many runs.
func Shrink(cfg Config, tries int) Config {
	fails := func(c Config) (*Result, bool) {
		if tries <= 0 {
			return nil, false
		}
		tries--
		c.Trace = nil
		res, err := Run(c)
		return res, err != nil
	}
	with := func(c Config, more []int) Config {
		m := make(map[int]bool, len(c.Without)+len(more))
		for k := range c.Without {
			m[k] = true
		}
		for _, k := range more {
			m[k] = true
		}
		c.Without = m
		return c
	}
	res, bad := fails(cfg)
	if !bad {
		return cfg
	}
	// Halves of the faults first, then each alone.
	for n := len(res.Numbers); n > 0; {
		smaller := false
		for i := 0; i < len(res.Numbers); i += n {
			c := with(cfg, res.Numbers[i:min(i+n, len(res.Numbers))])
			if r, bad := fails(c); bad && len(r.Numbers) < len(res.Numbers) {
				cfg, res, smaller = c, r, true
				break
			}
		}
		if !smaller {
			n /= 2
		}
	}
	for _, c := range []Config{{Records: cfg.Records / 2}, {Records: cfg.Records - 1}} {
		d := cfg
		d.Records = max(c.Records, 1)
		if _, bad := fails(d); bad && d.Records < cfg.Records {
			cfg = d
		}
	}
	return cfg
}
