package runtime

import (
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/config"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

// memoryStorage is where checkpoints go that Flink would keep in the memory of its
// JobManager: they live as long as the Execution's pool of stores.
const memoryStorage = "mem://jobmanager/checkpoints"

// FromConfig makes the options of a job, and those of its graph, from a
// configuration, which comes of Flink's keys by config.Parse. What no key is for, such
// as Log or Observer, is set in the Options afterwards.
func FromConfig(c *config.Config) (*Options, *stream.JobOptions, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	strategy, err := c.Strategy()
	if err != nil {
		return nil, nil, err
	}
	k := &c.Checkpointing
	o := &Options{
		Checkpoints: k.Dir, Savepoints: k.SavepointDir,
		Interval: k.Interval, MinPause: k.MinPause, Timeout: k.Timeout, MaxConcurrent: k.MaxConcurrent, TolerableFailures: k.TolerableFailures,
		Retained: k.Retained, Delete: retention[k.Retention], HistorySize: k.History,
		Restore: c.Recovery.Path, RestoreMode: c.Recovery.Mode, AllowNonRestored: c.Recovery.AllowNonRestored,
		Restart: strategy, FlushInterval: c.BufferTimeout,
		ChannelMemory: c.Network.Limit, BufferSize: int(c.Network.BufferSize), BuffersPerChannel: c.Network.BuffersPerChannel,
		Writer: &snapshot.WriterOptions{MemoryThreshold: int(c.State.InlineThreshold)},
		State:  task.StateOptions{LocalRecovery: c.State.LocalRecovery, Compress: k.Compression},
	}
	if c.BufferTimeout == 0 {
		o.FlushInterval = -time.Millisecond
	}
	if o.Writer.MemoryThreshold == 0 {
		o.Writer.MemoryThreshold = -1 // there 0 is the default
	}
	if m := k.FileMerging; m.Enabled {
		o.Writer.Merge = &incremental.FileMerging{MaxFileBytes: m.MaxFileSize, MaxSpaceAmplification: m.MaxSpaceAmplification}
		if m.MaxSpaceAmplification < 1 {
			o.Writer.Merge.MaxSpaceAmplification = -1 // there 0 is the default
		}
	}
	switch {
	case !k.HasBacklogInterval:
	case k.IntervalDuringBacklog == 0:
		o.BacklogInterval = -time.Millisecond
	default:
		o.BacklogInterval = k.IntervalDuringBacklog
	}
	switch {
	case !k.ExactlyOnce:
		o.Mode = AtLeastOnce
	case k.Unaligned && k.AlignedTimeout > 0:
		o.AlignedTimeout = k.AlignedTimeout
	case k.Unaligned:
		o.Mode = Unaligned
	}
	if c.State.Storage == "jobmanager" {
		// Without an interval nothing is to be kept: a savepoint has a folder of its own.
		if o.Checkpoints = ""; k.Interval > 0 {
			o.Checkpoints = memoryStorage
		}
	}
	if o.Checkpoints == "" {
		o.Mode = Aligned
	}
	if c.State.Backend == config.LSM {
		o.State.Backend, o.State.Full, o.ManagedMemory = task.BackendLSM, !c.State.Incremental, c.State.ManagedMemory
	}
	if len(c.State.LocalDirs) > 0 {
		o.State.Dir = c.State.LocalDirs[0]
	}
	return o, &stream.JobOptions{Parallelism: c.Parallelism, MaxParallelism: c.MaxParallelism}, nil
}

// retention says at which ends of a job its checkpoints are deleted.
var retention = map[config.Retention][]checkpoint.JobStatus{
	config.NoRetention:          {checkpoint.JobFinished, checkpoint.JobCanceled, checkpoint.JobFailed},
	config.DeleteOnCancellation: {checkpoint.JobFinished, checkpoint.JobCanceled},
	config.RetainOnCancellation: {checkpoint.JobFinished},
}
