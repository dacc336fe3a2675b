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
	"github.com/tidemark/tidemark/runtime/channel"
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
	// BufferTimeout after which a buffer that is not full is sent; 0: after each batch
	// of records.
	BufferTimeout time.Duration

	Checkpointing Checkpointing
	State         State
	Recovery      Recovery
	Restart       Restart
	Network       Network
}

// Network is the memory between subtasks.
type Network struct {
	BufferSize        int64 // bytes
	BuffersPerChannel int
	Limit             int64 // bytes of all buffers; 0 is none
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
	Dir                   string        // of checkpoints
	SavepointDir          string
	Retained              int // completed checkpoints that are kept
	Compression           bool
	History               int // checkpoints whose statistics are remembered
	FileMerging           FileMerging
}

// FileMerging is execution.checkpointing.file-merging.*.
type FileMerging struct {
	Enabled               bool
	MaxFileSize           int64   // bytes
	MaxSpaceAmplification float64 // below 1: no bound
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
		Checkpointing: Checkpointing{ExactlyOnce: true, Timeout: 10 * time.Minute, MaxConcurrent: 1, Retention: NoRetention, Retained: 1, History: 10,
			FileMerging: FileMerging{MaxFileSize: incremental.DefaultMergedFileBytes, MaxSpaceAmplification: incremental.DefaultSpaceAmplification}},
		State:    State{Backend: HashMap, Storage: "jobmanager", InlineThreshold: 20 << 10, ManagedMemory: 256 << 20},
		Recovery: Recovery{Mode: incremental.NoClaim},
		Network:  Network{BufferSize: channel.DefaultBufferSize, BuffersPerChannel: channel.DefaultBuffersPerChannel},
	}
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
	case c.BufferTimeout > 0 && c.BufferTimeout < time.Millisecond:
		return fmt.Errorf("buffer timeout of %s: 0 and from 1 ms on is possible", c.BufferTimeout)
	case c.Network.BufferSize < 1<<10 || c.Network.BufferSize > 1<<30:
		return fmt.Errorf("buffers of %d bytes: from 1 KiB to 1 GiB is possible", c.Network.BufferSize)
	case c.Network.BuffersPerChannel < 2 || c.Network.BuffersPerChannel > 1<<20:
		return fmt.Errorf("%d buffers for each channel: from 2 to %d is possible", c.Network.BuffersPerChannel, 1<<20)
	case k.FileMerging.MaxFileSize < 1:
		return fmt.Errorf("merged files of %d bytes: from 1 on is possible", k.FileMerging.MaxFileSize)
	case k.History < 1:
		return fmt.Errorf("%d checkpoints in the history: from 1 on is possible", k.History)
	case len(c.State.LocalDirs) > 1:
		return fmt.Errorf("%d folders for local state: one is possible", len(c.State.LocalDirs))
	case c.State.Storage == "filesystem" && k.Dir == "":
		return fmt.Errorf("checkpoints go to files, and no folder is set for them (execution.checkpointing.dir)")
	}
	_, err := c.Strategy()
	return err
}
