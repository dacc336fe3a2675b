// Package pipeline is a job for both engines: built here for package runtime, and by
// the class Pipeline of testdata/flink-verify for Flink, with the same uids, states
// and results. A savepoint or checkpoint of one goes on in the other, and what both
// have written is, line by line, what Model says.
//
// It has a source in splits, of which some wait in the enumerator and some are being
// read; keyed state of all kinds with timers of both times and a time to live;
// tumbling, sliding and session windows, and a trigger with state; broadcast, list and
// union state; raw keyed and raw operator state; and a sink that commits in two phases.
// What is written does not depend on the order in which records come. It is made for
// tests.
package pipeline

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// What both jobs have in common.
const (
	splits   = 12
	keys     = 37
	rules    = 30
	disorder = 16  // records come in blocks of so many, each backwards; milliseconds
	bucket   = 512 // milliseconds
	tumble   = 500
	size     = 300 // of sliding windows
	slide    = 100
	gap      = 100 // of sessions
	second   = 1000
	marks    = 64 // every so many records one is marked
)

// Options of a job.
type Options struct {
	// Numbers is how many records there are: a multiple of 6144, so that splits, blocks
	// and buckets end together.
	Numbers int64
	// Results is the folder of results.
	Results string
	// Parallelism of all operators but the source of the rules.
	Parallelism int
	// Rate is how many records a subtask reads each second; 0 is no limit.
	Rate float64
	// Most is how many records the job reads about at most before it waits for ever, so
	// that a snapshot can be taken; 0 is no limit.
	Most int64
	// Slow is how long a record of two of the keys takes.
	Slow time.Duration
	// Flat leaves out the edges over which Flink does not rescale data in flight:
	// forward ones, which deal records out instead, and that of the rules.
	Flat bool
}

type pair = serializer.Pair[int64, int64]

var pairs = serializer.Tuple2(serializer.Int64, serializer.Int64)

// Job is a job and how many records it has read in this run.
type Job struct {
	*stream.Job
	Read atomic.Int64

	o      Options
	opened atomic.Int64 // subtasks of accounts
}

// reads says whether a record may be read: only when the timers of accounts are there,
// so that those of processing time that are due fire before the input ends.
func (j *Job) reads() bool {
	return j.opened.Load() >= int64(j.o.Parallelism) && (j.o.Most == 0 || j.Read.Load() < j.o.Most)
}

// New makes the job.
func New(o Options) *Job {
	j := &Job{Job: stream.NewJob("pipeline", &stream.JobOptions{Parallelism: o.Parallelism, MaxParallelism: 128}), o: o}
	nums := stream.From(j.Job, numbers{stream.SlowSequence(0, o.Numbers-1, o.Rate), o.Numbers - 1, splits, j.reads}, stream.UID("numbers"))
	scrambled := stream.Map(nums, func(v int64) int64 {
		j.Read.Add(1)
		return scramble(v)
	}, stream.UID("scramble"))
	stamped := stream.Watermarks(scrambled, stream.WatermarkStrategy[int64]{
		Timestamp: func(v, _ int64) int64 { return v }, OutOfOrder: disorder * time.Millisecond, Interval: 5 * time.Millisecond}, stream.UID("stamps"))

	byKey := stream.KeyBy(stamped, serializer.Int64, keyOf)
	all := []*stream.Stream[string]{
		stream.Process(byKey, func() stream.KeyedFunction[int64, int64, string] {
			return &accounts{numbers: o.Numbers, slow: o.Slow, opened: &j.opened}
		}, stream.UID("accounts")),
		stream.ReduceWindowWith(stream.Windows(byKey, stream.Tumbling(tumble*time.Millisecond)), sum, tumbled, stream.UID("tumbling")),
		stream.AggregateWindowWith(stream.Windows(byKey, stream.Sliding(size*time.Millisecond, slide*time.Millisecond)), sumAndCount{}, pairs, slid, stream.UID("sliding")),
		stream.ProcessWindow(stream.Windows(stream.KeyBy(stamped, serializer.Int64, sessionKey), stream.Sessions(gap*time.Millisecond)), session, stream.UID("sessions")),
	}
	if !o.Flat {
		all = append(all, stream.ConnectBroadcast(byKey, j.rules(), func() stream.BroadcastFunction[int64, int64, int64, string] { return &matches{} }, stream.UID("matches")))
	}
	forOnes := stamped
	if o.Flat {
		forOnes = stamped.Rebalance()
	}
	all = append(all, stream.Apply(stamped.Rebalance(), func() stream.Function[int64, string] { return &seen{} }, stream.UID("seen")))
	ones := stream.Map(forOnes, func(v int64) pair { return pair{F0: keyOf(v), F1: 1} }, stream.UID("ones"), stream.NoChaining()).As(pairs)
	byFirst := stream.KeyBy(ones, serializer.Int64, func(p pair) int64 { return p.F0 })
	totals := stream.Reduce(byFirst, addSeconds, stream.UID("totals"))
	all = append(all,
		stream.Map(totals, func(p pair) string { return fmt.Sprintf("total %d %d", p.F0, p.F1) }, stream.UID("total-lines")),
		stream.ReduceWindowWith(stream.Windows(byFirst, stream.Tumbling(second*time.Millisecond)).Trigger(stream.Count(10, true)), addSeconds, tens, stream.UID("tens")))
	all = append(all, stream.Process(byKey, func() stream.KeyedFunction[int64, int64, string] { return &raw{} }, stream.UID("raw")))
	if o.Flat {
		for i := range all {
			all[i] = all[i].Rebalance()
		}
	}
	stream.To(stream.Union(all[0], all[1:]...), results{o.Results}, stream.UID("result"))
	return j
}

// rules is the stream of the rules, one behind the other.
func (j *Job) rules() *stream.Stream[int64] {
	perSecond := 0.0
	if j.o.Rate > 0 {
		perSecond = 20
	}
	nums := stream.From(j.Job, numbers{stream.SlowSequence(0, rules-1, perSecond), rules - 1, 1, func() bool { return true }}, stream.UID("rules"), stream.Parallelism(1))
	return stream.Map(nums, func(v int64) int64 { return v }, stream.UID("rule-values"), stream.Parallelism(1))
}

// numbers is a sequence in so many splits, whatever the parallelism.
type numbers struct {
	stream.Source[int64, stream.SequenceSplit, []stream.SequenceSplit]
	last   int64
	splits int64
	more   func() bool // false: nothing more is to be read
}

// NewReader implements stream.Source.
func (n numbers) NewReader(e *task.Env) (stream.Reader[int64, stream.SequenceSplit], error) {
	r, err := n.Source.NewReader(e)
	return &limited{r, e, n.more}, err
}

type limited struct {
	stream.Reader[int64, stream.SequenceSplit]
	env  *task.Env
	more func() bool
}

// Poll implements stream.Reader.
func (l *limited) Poll(out *task.Collector[int64]) (task.PollResult, error) {
	if !l.more() {
		time.AfterFunc(5*time.Millisecond, l.env.Wake) // at worst of a task that is gone
		return task.PollNone, nil
	}
	return l.Reader.Poll(out)
}

// NewEnumerator implements stream.Source.
func (n numbers) NewEnumerator(c checkpoint.EnumeratorContext[stream.SequenceSplit], restored *[]stream.SequenceSplit) (checkpoint.SplitEnumerator[stream.SequenceSplit, []stream.SequenceSplit], error) {
	if restored == nil {
		var all []stream.SequenceSplit
		each := (n.last + 1) / n.splits
		for i := range n.splits {
			all = append(all, stream.SequenceSplit{ID: fmt.Sprint(i + 1), From: i * each, To: (i+1)*each - 1})
		}
		restored = &all
	}
	return n.Source.NewEnumerator(c, restored)
}

func scramble(v int64) int64   { return v/disorder*disorder + disorder - 1 - v%disorder }
func keyOf(v int64) int64      { return v % keys }
func sessionKey(v int64) int64 { return v%keys + v/500%2*keys }
func sum(a, b int64) int64     { return a + b }
func addSeconds(a, b pair) pair {
	return pair{F0: a.F0, F1: a.F1 + b.F1}
}
