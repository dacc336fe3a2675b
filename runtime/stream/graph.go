package stream

import (
	"errors"
	"fmt"

	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/serializer"
)

// JobOptions are the defaults of a job's operators. Nil is the default.
type JobOptions struct {
	// Parallelism is the number of subtasks; 0 is 1.
	Parallelism int
	// MaxParallelism is the number of key groups; 0 is what Flink takes for the
	// operator's parallelism, 128 or more.
	MaxParallelism int
	// NoChaining gives each operator tasks of its own.
	NoChaining bool
}

// Job is a graph of operators. It is built by one goroutine and may be run many
// times.
type Job struct {
	Name  string
	Nodes []*Node

	opts JobOptions
	errs []error
}

// NewJob begins a job.
func NewJob(name string, opts *JobOptions) *Job {
	j := &Job{Name: name}
	if opts != nil {
		j.opts = *opts
	}
	if j.opts.Parallelism == 0 {
		j.opts.Parallelism = 1
	}
	return j
}

func (j *Job) fail(n *Node, err error) {
	j.errs = append(j.errs, fmt.Errorf("operator %s: %w", n.Name, err))
}

// Exchange is how records get from the subtasks of one operator to those of another.
type Exchange uint8

// Exchanges.
const (
	Forward   Exchange = iota // to the subtask of the same index; within a task if possible
	Rebalance                 // to all in turn
	Hash                      // by the key group of the key
	Broadcast                 // each record to all
)

var exchanges = [...]string{"forward", "rebalance", "hash", "broadcast"}

func (e Exchange) String() string { return exchanges[e] }

// Node is an operator of a job.
type Node struct {
	Index          int // in Job.Nodes
	Name           string
	UID            string // may be empty
	ID             metadata.OperatorID
	Parallelism    int
	MaxParallelism int
	In, Out        []*Edge
	// New makes the operator for one subtask.
	New func() task.Wired
	// Coordinator makes the operator's coordinator; nil if it has none.
	Coordinator func(c checkpoint.CoordinatorContext) (checkpoint.OperatorCoordinator, error)
	// FixedMax: MaxParallelism was set, so that a snapshot with another one is refused.
	FixedMax bool

	noChaining bool
}

// Edge connects two operators.
type Edge struct {
	From, To *Node
	// Tag is that of a side output; "" for the main one.
	Tag string
	// Input of To that it leads to.
	Input    int
	Exchange Exchange
	// Codec of the records, if they travel between tasks.
	Codec  task.Codec
	serErr error
}

// Chained reports whether both ends of the edge run in the same task: Flink's
// conditions.
func (e *Edge) Chained() bool {
	return e.Exchange == Forward && e.From.Parallelism == e.To.Parallelism && e.From.MaxParallelism == e.To.MaxParallelism &&
		!e.To.noChaining && !e.From.noChaining && len(e.To.In) == 1
}

// Option changes an operator.
type Option func(*Node)

// UID names the operator in snapshots, whatever becomes of the job's graph. Each
// operator with state should have one.
func UID(uid string) Option { return func(n *Node) { n.UID = uid } }

// Name is for people; the default says what the operator does.
func Name(name string) Option { return func(n *Node) { n.Name = name } }

// Parallelism is the number of subtasks.
func Parallelism(p int) Option { return func(n *Node) { n.Parallelism = p } }

// MaxParallelism is the number of key groups, which limits the parallelism and can
// never change for an operator with keyed state.
func MaxParallelism(p int) Option { return func(n *Node) { n.MaxParallelism = p } }

// NoChaining gives the operator tasks of its own.
func NoChaining() Option { return func(n *Node) { n.noChaining = true } }

func (j *Job) add(name string, parallelism int, make func() task.Wired, opts []Option) *Node {
	n := &Node{Index: len(j.Nodes), Name: name, Parallelism: parallelism, MaxParallelism: j.opts.MaxParallelism, New: make, noChaining: j.opts.NoChaining}
	for _, o := range opts {
		o(n)
	}
	if n.Parallelism < 1 || n.Parallelism > 1<<15 {
		j.fail(n, fmt.Errorf("parallelism %d is not from 1 to 32768", n.Parallelism))
		n.Parallelism = 1
	}
	n.FixedMax = n.MaxParallelism != 0
	if !n.FixedMax {
		n.MaxParallelism = serializer.DefaultMaxParallelism(n.Parallelism)
	}
	if n.MaxParallelism < n.Parallelism || n.MaxParallelism > 1<<15 {
		j.fail(n, fmt.Errorf("max parallelism %d is not from %d, the parallelism, to 32768", n.MaxParallelism, n.Parallelism))
		n.MaxParallelism = n.Parallelism
	}
	j.Nodes = append(j.Nodes, n)
	return n
}

// origin is where a stream comes from.
type origin struct {
	node *Node
	tag  string
}

// Stream is a stream of values of type T.
type Stream[T any] struct {
	job      *Job
	from     []origin // more than one for a union
	exchange Exchange
	ser      serializer.Serializer[T]
	serErr   error
	// group makes what gives the key group of a record, for Hash.
	group func(maxParallelism int) func(T) int
}

func newStream[T any](j *Job, n *Node, tag string) *Stream[T] {
	s := &Stream[T]{job: j, from: []origin{{n, tag}}}
	s.ser, s.serErr = serializerOf[T]()
	return s
}

// serializerOf is the default serializer of a type; those of basic types are faster
// than what Of makes.
func serializerOf[T any]() (serializer.Serializer[T], error) {
	for _, s := range []any{serializer.Bool, serializer.Int8, serializer.Int16, serializer.Int32, serializer.Int64, serializer.Float32, serializer.Float64, serializer.String, serializer.Bytes} {
		if s, ok := s.(serializer.Serializer[T]); ok {
			return s, nil
		}
	}
	return serializer.Of[T]()
}

// As sets the serializer with which records travel between tasks.
func (s *Stream[T]) As(ser serializer.Serializer[T]) *Stream[T] {
	c := *s
	c.ser, c.serErr = ser, nil
	return &c
}

// Rebalance makes the next operator's subtasks get records in turn.
func (s *Stream[T]) Rebalance() *Stream[T] { return s.with(Rebalance) }

// Broadcast makes each of the next operator's subtasks get all records.
func (s *Stream[T]) Broadcast() *Stream[T] { return s.with(Broadcast) }

func (s *Stream[T]) with(e Exchange) *Stream[T] {
	c := *s
	c.exchange, c.group = e, nil
	return &c
}

// Union is one stream of the records of several, in no order.
func Union[T any](first *Stream[T], others ...*Stream[T]) *Stream[T] {
	c := *first
	for _, o := range others {
		if o.exchange != c.exchange {
			c.job.errs = append(c.job.errs, fmt.Errorf("union of a stream with %s exchange and one with %s", c.exchange, o.exchange))
		}
		c.from = append(c.from[:len(c.from):len(c.from)], o.from...)
	}
	return &c
}

// parallelism is what the next operator has by default: Flink's is that of the job,
// and here too.
func (s *Stream[T]) parallelism() int { return s.job.opts.Parallelism }

// into connects the stream to an input of an operator.
func (s *Stream[T]) into(n *Node, input int) {
	for _, o := range s.from {
		e := &Edge{From: o.node, To: n, Tag: o.tag, Input: input, Exchange: s.exchange}
		if e.Exchange == Forward && o.node.Parallelism != n.Parallelism {
			e.Exchange = Rebalance
		}
		e.Codec, e.serErr = task.NewCodec(s.ser, s.group), s.serErr
		o.node.Out = append(o.node.Out, e)
		n.In = append(n.In, e)
	}
}

// Check gives what is wrong with the job and assigns operator IDs. Package runtime
// calls it.
func (j *Job) Check() error {
	errs := append([]error(nil), j.errs...)
	uids := map[string]*Node{}
	if len(j.Nodes) == 0 {
		errs = append(errs, errors.New("the job has no operator"))
	}
	for _, n := range j.Nodes {
		key := n.UID
		if key == "" {
			// Flink hashes the graph; the position is as good for a job that does not change.
			key = fmt.Sprintf("%d %s", n.Index, n.Name)
		} else if other := uids[key]; other != nil {
			errs = append(errs, fmt.Errorf("operators %s and %s have the same uid %q", other.Name, n.Name, key))
		}
		uids[key] = n
		n.ID = metadata.OperatorIDFromUID(key)
		for _, e := range n.In {
			if e.serErr != nil && !e.Chained() {
				errs = append(errs, fmt.Errorf("operator %s: its input has no serializer, see Stream.As: %w", n.Name, e.serErr))
			}
		}
	}
	return errors.Join(errs...)
}
