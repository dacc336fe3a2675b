package runtime

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/channel"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/restart"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// Options are how a job is run. Nil is the default: without checkpoints, so that a
// failure ends the job.
type Options struct {
	// Checkpoints is the URL of the folder below which the job's checkpoints go; ""
	// is none.
	Checkpoints string
	// JobID names the job's folder there: 32 hex digits; "" is a random one.
	JobID string
	// Pool opens stores; nil is one for local files and memory.
	Pool *blobstore.Pool
	// Interval between checkpoints; 0 is none but those that are asked for.
	Interval time.Duration
	// MinPause between the end of a checkpoint and the next.
	MinPause time.Duration
	// BacklogInterval is the interval while a source works through a backlog: never
	// below Interval; negative is none in that time, 0 the same as ever.
	BacklogInterval time.Duration
	// Timeout of a checkpoint; 0 is ten minutes.
	Timeout time.Duration
	// MaxConcurrent checkpoints; 0 is 1.
	MaxConcurrent int
	// TolerableFailures of checkpoints in a row; the job fails at one more. Negative
	// is any number.
	TolerableFailures int
	// Retained completed checkpoints; 0 is 1.
	Retained int
	// Mode of barriers; the default is Aligned.
	Mode Mode
	// AlignedTimeout makes Aligned checkpoints unaligned after a time; 0 is never.
	AlignedTimeout time.Duration
	// Delete says at which ends of a job its checkpoints are deleted; none by default.
	Delete []checkpoint.JobStatus

	// Restore is the URL of the snapshot that the job starts from; "" is none.
	Restore string
	// RestoreMode says whose that snapshot is then; the default is CLAIM.
	RestoreMode incremental.RestoreMode
	// AllowNonRestored starts a job that lacks operators with state in the snapshot.
	AllowNonRestored bool
	// Store of completed checkpoints; nil is one that lives as long as the Execution. A
	// job whose store has checkpoints goes on from them. One whose store has its result,
	// since it had finished, or failed or was cancelled and Delete says so, does not run
	// again: it ends at once with that result, and what is left to delete is deleted.
	Store checkpoint.Store
	// Durable keeps which checkpoints are completed in a log beside them, so that a job
	// with the same JobID that is started anew, by another process, goes on from the
	// newest; one that is still running elsewhere is fenced. It is for jobs without Store,
	// and has the job's result as well: see there.
	Durable bool
	// Savepoints is the URL of the folder where savepoints go that are given no other
	// place; "" is none.
	Savepoints string
	// Masters keep state of something outside the job.
	Masters []checkpoint.MasterHook
	// Observer is told of checkpoints.
	Observer checkpoint.Observer

	// Restart decides about failures, of this job alone; nil is, as in Flink,
	// exponential delay if there are periodic checkpoints, and no restart otherwise.
	Restart restart.Strategy
	// CancelTimeout is after how long a task that does not end is reported; 0 is 30 s.
	CancelTimeout time.Duration

	// State of the tasks. A backend on disk without a folder gets a temporary one.
	State task.StateOptions
	// ManagedMemory is the budget in bytes of the job's databases, if State.LSM is
	// nil; 0 leaves them to that of the whole program.
	ManagedMemory int64
	// Writer says how snapshots are written, Cleaner how files are deleted.
	Writer  *snapshot.WriterOptions
	Cleaner *incremental.CleanerOptions
	// FlushInterval is Flink's execution.buffer-timeout; 0 is 100 ms, negative sends
	// what there is after each batch of records.
	FlushInterval time.Duration
	// ChannelMemory bounds the bytes of buffers between tasks; 0 is no bound.
	ChannelMemory int64
	// BufferSize in bytes and BuffersPerChannel are how much waits between two
	// subtasks; 0 is channel.DefaultBufferSize and channel.DefaultBuffersPerChannel.
	BufferSize, BuffersPerChannel int
	// Transport joins the subtasks; nil is channel.InMemory. channel.Loopback does it by
	// TCP, as between processes.
	Transport channel.Transport
	// HistorySize is how many checkpoints History remembers; 0 is 10.
	HistorySize int

	// Log is told of what happens; nil is nobody.
	Log *slog.Logger
}

// Mode is how barriers travel.
type Mode uint8

// Modes.
const (
	Aligned Mode = iota
	Unaligned
	AtLeastOnce
)

// NoRestart is the strategy that ends a job with its first failure.
func NoRestart() restart.Strategy { return restart.None() }

func (o *Options) fill() error {
	if o.Checkpoints == "" && (o.Interval > 0 || o.Mode != Aligned) {
		return errors.New("an interval or mode of checkpoints is set, but no folder for them")
	}
	if o.Durable && (o.JobID == "" || o.Checkpoints == "" || o.Store != nil) {
		return errors.New("a durable job needs an ID and a folder for checkpoints, and has no other store")
	}
	if o.JobID == "" {
		o.JobID = snapshot.NewJobID()
	}
	if o.Pool == nil {
		o.Pool = blobstore.NewPool(nil, nil)
	}
	if o.Restart == nil {
		o.Restart = restart.None()
		if o.Interval > 0 {
			o.Restart, _ = restart.NewExponentialDelay(restart.ExponentialDelayOptions{}) // its defaults are good
		}
	}
	if o.Transport == nil {
		o.Transport = channel.InMemory{}
	}
	if o.CancelTimeout <= 0 {
		o.CancelTimeout = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Delete == nil {
		o.Delete = []checkpoint.JobStatus{}
	}
	return nil
}

func (o *Options) core() (checkpoint.Options, error) {
	c := checkpoint.Options{
		IntervalMillis: o.Interval.Milliseconds(), MinPauseMillis: o.MinPause.Milliseconds(), TimeoutMillis: o.Timeout.Milliseconds(),
		MaxConcurrent: o.MaxConcurrent, TolerableFailures: o.TolerableFailures, Retained: o.Retained, Discard: o.Delete,
		HasBacklogInterval: o.BacklogInterval != 0, BacklogIntervalMillis: max(0, o.BacklogInterval.Milliseconds()), HistorySize: o.HistorySize,
	}
	switch o.Mode {
	case Aligned:
		c.Alignment, c.AlignedTimeoutMillis = event.Aligned, o.AlignedTimeout.Milliseconds()
	case Unaligned:
		c.Alignment = event.Unaligned
	case AtLeastOnce:
		c.Alignment = event.AtLeastOnce
	default:
		return c, fmt.Errorf("mode %d of checkpoints is not known", o.Mode)
	}
	return c, nil
}
