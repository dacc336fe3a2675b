// Package config is the configuration of the runtime: a struct, and Flink's own
// keys for it, current and former.
//
//	c, notes, err := config.Parse(map[string]string{
//		"execution.checkpointing.interval": "10 s",
//		"state.backend":                    "rocksdb",
//	})
//
// A former key works, and a note says what it is called now. A key that Flink has
// and that means nothing here is an error that says so; so is one that nobody knows.
// Durations and sizes are written as in Flink: "10 s", "5min", "20kb".
package config

import (
	"fmt"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/restart"
)

// Backend is a state backend.
type Backend string

// State backends.
const (
	HashMap Backend = "hashmap" // keyed/heap
	LSM     Backend = "rocksdb" // keyed/lsm, which stands where Flink has RocksDB
)

// Retention of checkpoints after a job was cancelled or has failed.
type Retention string

// Retentions, as Flink names them.
const (
	NoRetention          Retention = "NO_EXTERNALIZED_CHECKPOINTS"
	DeleteOnCancellation Retention = "DELETE_ON_CANCELLATION"
	RetainOnCancellation Retention = "RETAIN_ON_CANCELLATION"
)

// Config of a job. Default gives Flink's defaults; the zero value is not one.
type Config struct {
	Parallelism    int // of operators that set none
	MaxParallelism int // 0: by the parallelism, as in Flink
	// BufferTimeout after which a buffer that is not full is sent; negative: only
	// full ones.
	BufferTimeout time.Duration

	Checkpointing Checkpointing
	State         State
	Recovery      Recovery
	Restart       Restart
}

// Checkpointing is execution.checkpointing.*.
type Checkpointing struct {
	Interval              time.Duration // 0: no periodic checkpoints
	IntervalDuringBacklog time.Duration // 0: none in that time; used if set
	HasBacklogInterval    bool
	ExactlyOnce           bool
	Timeout               time.Duration
	MinPause              time.Duration
	MaxConcurrent         int
	TolerableFailures     int // negative: any number
	Retention             Retention
	Unaligned             bool
	AlignedTimeout        time.Duration // 0: unaligned from the beginning
	ForceUnaligned        bool          // also for edges that cannot do it in Flink
	AfterTasksFinish      bool
	Dir                   string // of checkpoints
	SavepointDir          string
	Retained              int // completed checkpoints that are kept
}

// State is state.*.
type State struct {
	Backend     Backend
	Incremental bool
	// Storage is "filesystem" or "jobmanager": the second keeps everything in the
	// coordinator's memory, so that it dies with it.
	Storage         string
	InlineThreshold int64 // bytes: smaller state lies in the metadata
	LocalRecovery   bool
	LocalDirs       []string // of local recovery, and of databases
	// ManagedMemory is the budget of all databases of the process, in bytes.
	ManagedMemory int64
}

// Recovery is execution.state-recovery.*.
type Recovery struct {
	Path             string
	AllowNonRestored bool
	Mode             incremental.RestoreMode
}

// Restart is restart-strategy.*.
type Restart struct {
	Type        string // none, fixed-delay, failure-rate, exponential-delay
	FixedDelay  restart.FixedDelayOptions
	FailureRate restart.FailureRateOptions
	Exponential restart.ExponentialDelayOptions
}

// Default is what holds for keys that are not set.
func Default() *Config {
	return &Config{
		Parallelism: 1, BufferTimeout: 100 * time.Millisecond,
		Checkpointing: Checkpointing{ExactlyOnce: true, Timeout: 10 * time.Minute, MaxConcurrent: 1, Retention: NoRetention, AfterTasksFinish: true, Retained: 1},
		State:         State{Backend: HashMap, Storage: "jobmanager", InlineThreshold: 20 << 10, ManagedMemory: 256 << 20},
		Recovery:      Recovery{Mode: incremental.NoClaim},
	}
}

// Coordinator is the part of the configuration that the checkpoint coordinator needs.
func (c *Config) Coordinator() checkpoint.Options {
	k := &c.Checkpointing
	o := checkpoint.Options{
		IntervalMillis: k.Interval.Milliseconds(), BacklogIntervalMillis: k.IntervalDuringBacklog.Milliseconds(), HasBacklogInterval: k.HasBacklogInterval,
		MinPauseMillis: k.MinPause.Milliseconds(), TimeoutMillis: k.Timeout.Milliseconds(), MaxConcurrent: k.MaxConcurrent,
		TolerableFailures: k.TolerableFailures, Retained: k.Retained, Alignment: event.Aligned,
	}
	switch {
	case !k.ExactlyOnce:
		o.Alignment = event.AtLeastOnce
	case k.Unaligned && k.AlignedTimeout > 0:
		o.AlignedTimeoutMillis = k.AlignedTimeout.Milliseconds()
	case k.Unaligned:
		o.Alignment = event.Unaligned
	}
	switch k.Retention {
	case RetainOnCancellation:
		o.Discard = []checkpoint.JobStatus{checkpoint.JobFinished}
	case DeleteOnCancellation:
		o.Discard = []checkpoint.JobStatus{checkpoint.JobFinished, checkpoint.JobCanceled}
	default:
		o.Discard = []checkpoint.JobStatus{checkpoint.JobFinished, checkpoint.JobCanceled, checkpoint.JobFailed}
	}
	return o
}

// Strategy is the restart strategy. If none is set it is, as in Flink, exponential
// delay for a job with periodic checkpoints, and none for another.
func (c *Config) Strategy() (restart.Strategy, error) {
	switch c.Restart.Type {
	case "":
		if c.Checkpointing.Interval == 0 {
			return restart.None(), nil
		}
		return restart.NewExponentialDelay(c.Restart.Exponential)
	case "none":
		return restart.None(), nil
	case "fixed-delay":
		return restart.NewFixedDelay(c.Restart.FixedDelay)
	case "failure-rate":
		return restart.NewFailureRate(c.Restart.FailureRate)
	case "exponential-delay":
		return restart.NewExponentialDelay(c.Restart.Exponential)
	}
	return nil, fmt.Errorf("restart strategy %q is not known", c.Restart.Type)
}

// Validate checks what concerns more than one key.
func (c *Config) Validate() error {
	k := &c.Checkpointing
	switch {
	case k.Interval > 0 && k.Interval < time.Millisecond:
		return fmt.Errorf("checkpoint interval of %s: from 1 ms on is possible", k.Interval)
	case k.Timeout < time.Millisecond:
		return fmt.Errorf("checkpoint timeout of %s: from 1 ms on is possible", k.Timeout)
	case k.MaxConcurrent < 1:
		return fmt.Errorf("%d concurrent checkpoints: from 1 on is possible", k.MaxConcurrent)
	case k.Retained < 1:
		return fmt.Errorf("%d retained checkpoints: from 1 on is possible", k.Retained)
	case k.Unaligned && !k.ExactlyOnce:
		return fmt.Errorf("unaligned checkpoints need the mode EXACTLY_ONCE")
	case k.HasBacklogInterval && k.IntervalDuringBacklog != 0 && k.IntervalDuringBacklog < k.Interval:
		return fmt.Errorf("checkpoint interval of %s during a backlog is below the interval of %s", k.IntervalDuringBacklog, k.Interval)
	case c.Parallelism < 1 || c.Parallelism > 1<<15:
		return fmt.Errorf("parallelism is %d: from 1 to 32768 is possible", c.Parallelism)
	case c.MaxParallelism < 0 || c.MaxParallelism > 1<<15 || c.MaxParallelism > 0 && c.MaxParallelism < c.Parallelism:
		return fmt.Errorf("maximum parallelism is %d: from the parallelism, %d, to 32768 is possible", c.MaxParallelism, c.Parallelism)
	case c.State.Storage == "filesystem" && k.Dir == "":
		return fmt.Errorf("checkpoints go to files, and no folder is set for them (execution.checkpointing.dir)")
	}
	_, err := c.Strategy()
	return err
}
