package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/config"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/stream"
	"github.com/tidemark/tidemark/runtime/task"
)

// effect is what a configuration comes to: what the engine is given.
type effect struct {
	*Options
	core checkpoint.Options
	job  *stream.JobOptions
}

func effectOf(t *testing.T, values map[string]string) effect {
	t.Helper()
	c, _, err := config.Parse(values)
	require.NoError(t, err)
	o, j, err := FromConfig(c)
	require.NoError(t, err)
	require.NoError(t, o.fill())
	core, err := o.core()
	require.NoError(t, err)
	return effect{o, core, j}
}

// TestEachKeyHasAnEffect sets each key that config knows, by all of its names, and
// looks at what it changes in the engine.
func TestEachKeyHasAnEffect(t *testing.T) {
	const ck = "execution.checkpointing."
	lsm := map[string]string{"state.backend.type": "rocksdb"}
	strategy := func(s string) map[string]string { return map[string]string{"restart-strategy.type": s} }
	restarts := func(e effect) any { return e.Restart.String() }
	none := map[string]string{}
	merging := map[string]string{ck + "file-merging.enabled": "true"}
	type row struct {
		value string
		with  map[string]string
		of    func(e effect) any
		want  any
	}
	rows := map[string]row{
		"parallelism.default":                                              {"3", none, func(e effect) any { return e.job.Parallelism }, 3},
		"pipeline.max-parallelism":                                         {"300", none, func(e effect) any { return e.job.MaxParallelism }, 300},
		"execution.buffer-timeout.interval":                                {"0", none, func(e effect) any { return e.FlushInterval < 0 }, true},
		ck + "interval":                                                    {"10 s", none, func(e effect) any { return e.core.IntervalMillis }, int64(10_000)},
		ck + "interval-during-backlog":                                     {"0", none, func(e effect) any { return e.core.HasBacklogInterval && e.core.BacklogIntervalMillis == 0 }, true},
		ck + "mode":                                                        {"AT_LEAST_ONCE", nil, func(e effect) any { return e.core.Alignment }, event.AtLeastOnce},
		ck + "timeout":                                                     {"2 min", none, func(e effect) any { return e.core.TimeoutMillis }, int64(120_000)},
		ck + "min-pause":                                                   {"50", none, func(e effect) any { return e.core.MinPauseMillis }, int64(50)},
		ck + "max-concurrent-checkpoints":                                  {"4", none, func(e effect) any { return e.core.MaxConcurrent }, 4},
		ck + "tolerable-failed-checkpoints":                                {"7", none, func(e effect) any { return e.core.TolerableFailures }, 7},
		ck + "externalized-checkpoint-retention":                           {"RETAIN_ON_CANCELLATION", none, func(e effect) any { return len(e.core.Discard) }, 1},
		ck + "unaligned.enabled":                                           {"true", nil, func(e effect) any { return e.core.Alignment }, event.Unaligned},
		ck + "aligned-checkpoint-timeout":                                  {"30 s", map[string]string{ck + "unaligned.enabled": "true", ck + "dir": "mem://a/b"}, func(e effect) any { return e.core.AlignedTimeoutMillis }, int64(30_000)},
		ck + "snapshot-compression":                                        {"true", none, func(e effect) any { return e.State.Compress }, true},
		ck + "storage":                                                     {"jobmanager", map[string]string{ck + "interval": "1 s", ck + "dir": "mem://a/b"}, func(e effect) any { return e.Checkpoints }, "mem://a/b"},
		ck + "dir":                                                         {"file:///c", none, func(e effect) any { return e.Checkpoints }, "file:///c"},
		ck + "savepoint-dir":                                               {"file:///s", none, func(e effect) any { return e.Savepoints }, "file:///s"},
		ck + "num-retained":                                                {"5", none, func(e effect) any { return e.core.Retained }, 5},
		ck + "incremental":                                                 {"true", lsm, func(e effect) any { return e.State.Full }, false},
		ck + "data-inline-threshold":                                       {"1kb", none, func(e effect) any { return e.Writer.MemoryThreshold }, 1024},
		ck + "file-merging.enabled":                                        {"true", none, func(e effect) any { return e.Writer.Merge != nil }, true},
		ck + "file-merging.max-file-size":                                  {"1mb", merging, func(e effect) any { return e.Writer.Merge.MaxFileBytes }, int64(1 << 20)},
		ck + "file-merging.max-space-amplification":                        {"0.5", merging, func(e effect) any { return e.Writer.Merge.MaxSpaceAmplification }, -1.0},
		ck + "local-backup.enabled":                                        {"true", none, func(e effect) any { return e.State.LocalRecovery }, true},
		ck + "local-backup.dirs":                                           {"/local", lsm, func(e effect) any { return e.State.Dir }, "/local"},
		"web.checkpoints.history":                                          {"25", none, func(e effect) any { return e.core.HistorySize }, 25},
		"state.backend.type":                                               {"rocksdb", none, func(e effect) any { return e.State.Backend }, task.BackendLSM},
		"taskmanager.memory.managed.size":                                  {"64 mb", lsm, func(e effect) any { return e.ManagedMemory }, int64(64 << 20)},
		"taskmanager.memory.segment-size":                                  {"8kb", none, func(e effect) any { return e.BufferSize }, 8 << 10},
		"taskmanager.network.memory.buffers-per-channel":                   {"2", none, func(e effect) any { return e.BuffersPerChannel }, 2},
		"taskmanager.memory.network.max":                                   {"1 gb", none, func(e effect) any { return e.ChannelMemory }, int64(1 << 30)},
		"execution.state-recovery.path":                                    {"file:///p", none, func(e effect) any { return e.Restore }, "file:///p"},
		"execution.state-recovery.ignore-unclaimed-state":                  {"true", none, func(e effect) any { return e.AllowNonRestored }, true},
		"execution.state-recovery.claim-mode":                              {"CLAIM", none, func(e effect) any { return e.RestoreMode }, incremental.Claim},
		"restart-strategy.type":                                            {"fixed-delay", none, restarts, "fixed delay of 1s, 1 times"},
		"restart-strategy.fixed-delay.attempts":                            {"4", strategy("fixed-delay"), restarts, "fixed delay of 1s, 4 times"},
		"restart-strategy.fixed-delay.delay":                               {"0", strategy("fixed-delay"), restarts, "fixed delay of 0s, 1 times"},
		"restart-strategy.failure-rate.max-failures-per-interval":          {"9", strategy("failure-rate"), restarts, "failure rate of at most 9 per 1m0s, delay of 1s"},
		"restart-strategy.failure-rate.failure-rate-interval":              {"9 s", strategy("failure-rate"), restarts, "failure rate of at most 1 per 9s, delay of 1s"},
		"restart-strategy.failure-rate.delay":                              {"9 s", strategy("failure-rate"), restarts, "failure rate of at most 1 per 1m0s, delay of 9s"},
		"restart-strategy.exponential-delay.initial-backoff":               {"2 s", strategy("exponential-delay"), restarts, "exponential delay from 2s to 1m0s by 1.5, jitter 0.1, reset after 1h0m0s"},
		"restart-strategy.exponential-delay.max-backoff":                   {"2 min", strategy("exponential-delay"), restarts, "exponential delay from 1s to 2m0s by 1.5, jitter 0.1, reset after 1h0m0s"},
		"restart-strategy.exponential-delay.backoff-multiplier":            {"2", strategy("exponential-delay"), restarts, "exponential delay from 1s to 1m0s by 2, jitter 0.1, reset after 1h0m0s"},
		"restart-strategy.exponential-delay.reset-backoff-threshold":       {"2 h", strategy("exponential-delay"), restarts, "exponential delay from 1s to 1m0s by 1.5, jitter 0.1, reset after 2h0m0s"},
		"restart-strategy.exponential-delay.jitter-factor":                 {"0", strategy("exponential-delay"), restarts, "exponential delay from 1s to 1m0s by 1.5, jitter 0, reset after 1h0m0s"},
		"restart-strategy.exponential-delay.attempts-before-reset-backoff": {"3", strategy("exponential-delay"), restarts, "exponential delay from 1s to 1m0s by 1.5, jitter 0.1, reset after 1h0m0s, 3 times in a row"},
	}
	rows[ck+"mode"] = row{"AT_LEAST_ONCE", map[string]string{ck + "dir": "mem://a/b"}, rows[ck+"mode"].of, event.AtLeastOnce}
	rows[ck+"unaligned.enabled"] = row{"true", map[string]string{ck + "dir": "mem://a/b"}, rows[ck+"unaligned.enabled"].of, event.Unaligned}
	rows[ck+"storage"] = row{"jobmanager", map[string]string{ck + "interval": "1 s"}, rows[ck+"storage"].of, memoryStorage}
	for _, k := range config.Keys() {
		if k.Name == ck+"checkpoints-after-tasks-finish" {
			continue // it has one value only
		}
		r, ok := rows[k.Name]
		require.True(t, ok, "no row for %s", k.Name)
		delete(rows, k.Name)
		for _, name := range append([]string{k.Name}, k.Former...) {
			if name == "state.backend" && k.Name != "state.backend.type" {
				continue
			}
			values := map[string]string{name: r.value}
			for key, v := range r.with {
				values[key] = v
			}
			require.Equal(t, r.want, r.of(effectOf(t, values)), name)
			delete(values, name)
			if name != ck+"storage" && name != "state.checkpoint-storage" { // the default, and what comes without a folder
				require.NotEqual(t, r.want, r.of(effectOf(t, values)), "%s is not needed for it", name)
			}
		}
	}
	require.Empty(t, rows)
}

// TestConfiguredJob runs a job from the lines of a configuration file.
func TestConfiguredJob(t *testing.T) {
	dir := t.TempDir()
	values, err := config.ParseFlat(strings.ReplaceAll(`
parallelism.default: 2
execution.checkpointing.interval: 5 ms
execution.checkpointing.unaligned: true
execution.checkpointing.tolerable-failed-checkpoints: 1000
execution.checkpointing.externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
state.backend: rocksdb
state.backend.incremental: true
taskmanager.memory.managed.size: 32 mb
taskmanager.memory.segment-size: 4kb
state.checkpoints.dir: file://DIR
state.checkpoints.num-retained: 3
execution.checkpointing.file-merging.enabled: true
restart-strategy: fixed-delay
restart-strategy.fixed-delay.attempts: 2
restart-strategy.fixed-delay.delay: 1 ms
`, "DIR", filepath.ToSlash(dir)))
	require.NoError(t, err)
	c, notes, err := config.Parse(values)
	require.NoError(t, err)
	require.Contains(t, notes, "state.backend is called state.backend.type now")
	o, jo, err := FromConfig(c)
	require.NoError(t, err)
	injected := errors.New("injected")
	j := stream.NewJob("configured", jo)
	numbers := stream.From(j, stream.SlowSequence(0, 1<<40, 10_000))
	stream.Discard(stream.Apply(numbers, func() stream.Function[int64, int64] { return &failing{err: injected} }, stream.Parallelism(1)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := Start(ctx, j, o)
	require.NoError(t, err)
	folders := e.opts.State.Dir
	require.NotEmpty(t, folders)
	err = e.Wait()
	require.ErrorIs(t, err, injected)
	require.ErrorContains(t, err, "the job was restarted 2 times, which is the limit")
	require.Equal(t, 2, e.Restarts())
	require.NoDirExists(t, folders)
	// A job that has failed keeps its checkpoints.
	kept, err := filepath.Glob(filepath.Join(dir, e.JobID(), "chk-*", "_metadata"))
	require.NoError(t, err)
	require.Len(t, kept, 3)
	require.NoError(t, os.RemoveAll(dir))
}

// failing fails once some checkpoints are complete, in each attempt.
type failing struct {
	err  error
	done int
}

func (f *failing) Open(*stream.Runtime) error { return nil }

func (f *failing) Process(c *stream.Context[int64], v int64) error {
	if f.done >= 3 {
		return f.err
	}
	c.Emit(v)
	return nil
}

func (f *failing) Complete(int64) error {
	f.done++
	return nil
}

func (f *failing) Aborted(int64) error { return nil }
