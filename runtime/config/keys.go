package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/runtime/restart"
)

// Sentinels of Parse.
var (
	// ErrUnknownKey says that a key is not one of Flink's, or means nothing here.
	ErrUnknownKey = errors.New("unknown key")
	// ErrValue says that a value cannot be read.
	ErrValue = errors.New("bad value")
)

// Key is a key of the configuration.
type Key struct {
	Name   string
	Former []string // names that it had in earlier releases of Flink, newest first
	Type   string   // Duration, MemorySize, Boolean, Integer, Double, String, List, Enum
	Does   string
	set    func(c *Config, value string) error
}

func durationKey(name, does string, to func(*Config) *time.Duration, former ...string) Key {
	return Key{name, former, "Duration", does, func(c *Config, v string) (err error) { *to(c), err = ParseDuration(v); return err }}
}

func boolKey(name, does string, to func(*Config) *bool, former ...string) Key {
	return Key{name, former, "Boolean", does, func(c *Config, v string) (err error) { *to(c), err = parseBool(v); return err }}
}

func intKey(name, does string, to func(*Config) *int, former ...string) Key {
	return Key{name, former, "Integer", does, func(c *Config, v string) (err error) { *to(c), err = parseInt(v); return err }}
}

func floatKey(name, does string, to func(*Config) *float64, former ...string) Key {
	return Key{name, former, "Double", does, func(c *Config, v string) (err error) { *to(c), err = parseFloat(v); return err }}
}

func sizeKey(name, does string, to func(*Config) *int64, former ...string) Key {
	return Key{name, former, "MemorySize", does, func(c *Config, v string) (err error) { *to(c), err = ParseSize(v); return err }}
}

func stringKey(name, does string, to func(*Config) *string, former ...string) Key {
	return Key{name, former, "String", does, func(c *Config, v string) error { *to(c) = strings.TrimSpace(v); return nil }}
}

// enumKey takes one of some words, in any case and with "-" or "_".
func enumKey(name, does string, words []string, set func(c *Config, i int), former ...string) Key {
	return Key{name, former, "Enum", does, func(c *Config, v string) error {
		plain := func(s string) string {
			return strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(s), "-", "_"))
		}
		i := slices.IndexFunc(words, func(w string) bool { return plain(w) == plain(v) })
		if i < 0 {
			return fmt.Errorf("%q is none of %s", v, strings.Join(words, ", "))
		}
		set(c, i)
		return nil
	}}
}

// noDelay takes a duration where zero would mean the default.
func noDelay(to func(*Config) *time.Duration) func(c *Config, v string) error {
	return func(c *Config, v string) error {
		d, err := ParseDuration(v)
		if d == 0 {
			d = restart.NoDelay
		}
		*to(c) = d
		return err
	}
}

const checkpointing = "execution.checkpointing."

// Keys are all keys, in the order in which they are set.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	intKey("parallelism.default", "how many subtasks an operator has that sets no number", func(c *Config) *int { return &c.Parallelism }),
	intKey("pipeline.max-parallelism", "key groups of operators that set no number", func(c *Config) *int { return &c.MaxParallelism }),
	durationKey("execution.buffer-timeout.interval", "how long a record waits for its buffer to be full", func(c *Config) *time.Duration { return &c.BufferTimeout }, "execution.buffer-timeout"),

	durationKey(checkpointing+"interval", "time between periodic checkpoints; 0 is none", func(c *Config) *time.Duration { return &c.Checkpointing.Interval }),
	{checkpointing + "interval-during-backlog", nil, "Duration", "the same while a source works through a backlog; 0 is none in that time", func(c *Config, v string) (err error) {
		c.Checkpointing.HasBacklogInterval = true
		c.Checkpointing.IntervalDuringBacklog, err = ParseDuration(v)
		return err
	}},
	enumKey(checkpointing+"mode", "EXACTLY_ONCE or AT_LEAST_ONCE", []string{"EXACTLY_ONCE", "AT_LEAST_ONCE"}, func(c *Config, i int) { c.Checkpointing.ExactlyOnce = i == 0 }),
	durationKey(checkpointing+"timeout", "after which a checkpoint is aborted", func(c *Config) *time.Duration { return &c.Checkpointing.Timeout }),
	durationKey(checkpointing+"min-pause", "between the end of a checkpoint and the next trigger", func(c *Config) *time.Duration { return &c.Checkpointing.MinPause }),
	intKey(checkpointing+"max-concurrent-checkpoints", "checkpoints at the same time", func(c *Config) *int { return &c.Checkpointing.MaxConcurrent }),
	intKey(checkpointing+"tolerable-failed-checkpoints", "failed checkpoints in a row before the job fails", func(c *Config) *int { return &c.Checkpointing.TolerableFailures }),
	enumKey(checkpointing+"externalized-checkpoint-retention", "what happens to checkpoints of a job that ends", []string{string(NoRetention), string(DeleteOnCancellation), string(RetainOnCancellation)},
		func(c *Config, i int) {
			c.Checkpointing.Retention = []Retention{NoRetention, DeleteOnCancellation, RetainOnCancellation}[i]
		}),
	boolKey(checkpointing+"unaligned.enabled", "barriers may overtake records", func(c *Config) *bool { return &c.Checkpointing.Unaligned }, checkpointing+"unaligned"),
	durationKey(checkpointing+"aligned-checkpoint-timeout", "how long an unaligned checkpoint is aligned first", func(c *Config) *time.Duration { return &c.Checkpointing.AlignedTimeout }, checkpointing+"alignment-timeout"),
	{checkpointing + "checkpoints-after-tasks-finish", []string{checkpointing + "checkpoints-after-tasks-finish.enabled"}, "Boolean", "checkpoints go on after some tasks have finished; only true is possible", func(c *Config, v string) error {
		on, err := parseBool(v)
		if err == nil && !on {
			err = errors.New("checkpoints always go on after some tasks have finished")
		}
		return err
	}},
	boolKey(checkpointing+"snapshot-compression", "full snapshots are compressed with snappy", func(c *Config) *bool { return &c.Checkpointing.Compression }),
	intKey("web.checkpoints.history", "checkpoints whose statistics are remembered", func(c *Config) *int { return &c.Checkpointing.History }),
	enumKey(checkpointing+"storage", "jobmanager or filesystem", []string{"jobmanager", "filesystem"}, func(c *Config, i int) { c.State.Storage = []string{"jobmanager", "filesystem"}[i] }, "state.checkpoint-storage"),
	{checkpointing + "dir", []string{"state.checkpoints.dir", "state.backend.fs.checkpointdir"}, "String", "folder of checkpoints; it makes the storage filesystem", func(c *Config, v string) error {
		c.Checkpointing.Dir, c.State.Storage = strings.TrimSpace(v), "filesystem"
		return nil
	}},
	stringKey(checkpointing+"savepoint-dir", "folder of savepoints that are given no other", func(c *Config) *string { return &c.Checkpointing.SavepointDir }, "state.savepoints.dir", "savepoints.state.backend.fs.dir"),
	intKey(checkpointing+"num-retained", "completed checkpoints that are kept", func(c *Config) *int { return &c.Checkpointing.Retained }, "state.checkpoints.num-retained"),
	boolKey(checkpointing+"incremental", "checkpoints build on earlier ones", func(c *Config) *bool { return &c.State.Incremental }, "state.backend.incremental"),
	sizeKey(checkpointing+"data-inline-threshold", "smaller state lies in the metadata", func(c *Config) *int64 { return &c.State.InlineThreshold }, "state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
	boolKey(checkpointing+"local-backup.enabled", "tasks keep a local copy of their last state", func(c *Config) *bool { return &c.State.LocalRecovery }, "execution.state-recovery.from-local", "state.backend.local-recovery"),
	boolKey(checkpointing+"file-merging.enabled", "small files of databases are written as segments of larger files", func(c *Config) *bool { return &c.Checkpointing.FileMerging.Enabled }),
	sizeKey(checkpointing+"file-merging.max-file-size", "that no merged file exceeds", func(c *Config) *int64 { return &c.Checkpointing.FileMerging.MaxFileSize }),
	floatKey(checkpointing+"file-merging.max-space-amplification", "of a merged file, above which what is needed of it is written anew; below 1 is no bound", func(c *Config) *float64 { return &c.Checkpointing.FileMerging.MaxSpaceAmplification }),
	{checkpointing + "local-backup.dirs", []string{"taskmanager.state.local.root-dirs"}, "List", "folders of local copies", func(c *Config, v string) error {
		c.State.LocalDirs = parseList(v, ";,")
		return nil
	}},

	{"state.backend.type", []string{"state.backend"}, "Enum", "hashmap or rocksdb; the former jobmanager and filesystem are hashmap with that storage", setBackend},
	sizeKey("taskmanager.memory.segment-size", "size of a buffer between two subtasks", func(c *Config) *int64 { return &c.Network.BufferSize }),
	intKey("taskmanager.network.memory.buffers-per-channel", "buffers that wait between two subtasks", func(c *Config) *int { return &c.Network.BuffersPerChannel }),
	sizeKey("taskmanager.memory.network.max", "memory of all buffers between subtasks", func(c *Config) *int64 { return &c.Network.Limit }, "taskmanager.network.memory.max"),
	sizeKey("taskmanager.memory.managed.size", "memory of all databases", func(c *Config) *int64 { return &c.State.ManagedMemory }),

	stringKey("execution.state-recovery.path", "snapshot to start from", func(c *Config) *string { return &c.Recovery.Path }, "execution.savepoint.path"),
	boolKey("execution.state-recovery.ignore-unclaimed-state", "state that no operator takes is dropped", func(c *Config) *bool { return &c.Recovery.AllowNonRestored }, "execution.savepoint.ignore-unclaimed-state"),
	enumKey("execution.state-recovery.claim-mode", "whose the snapshot's files are", []string{"CLAIM", "NO_CLAIM", "LEGACY"},
		func(c *Config, i int) {
			c.Recovery.Mode = []incremental.RestoreMode{incremental.Claim, incremental.NoClaim, incremental.Legacy}[i]
		}, "execution.savepoint-restore-mode"),

	{"restart-strategy.type", []string{"restart-strategy"}, "Enum", "none, fixed-delay, failure-rate or exponential-delay", setStrategy},
	{"restart-strategy.fixed-delay.attempts", nil, "Integer", "restarts before the job has failed", func(c *Config, v string) (err error) {
		c.Restart.FixedDelay.Attempts, err = positiveInt(v)
		return err
	}},
	{"restart-strategy.fixed-delay.delay", nil, "Duration", "before each restart", noDelay(func(c *Config) *time.Duration { return &c.Restart.FixedDelay.Delay })},
	{"restart-strategy.failure-rate.max-failures-per-interval", nil, "Integer", "failures that are tolerated", func(c *Config, v string) (err error) {
		c.Restart.FailureRate.MaxFailures, err = positiveInt(v)
		return err
	}},
	durationKey("restart-strategy.failure-rate.failure-rate-interval", "in which they are counted", func(c *Config) *time.Duration { return &c.Restart.FailureRate.Interval }),
	{"restart-strategy.failure-rate.delay", nil, "Duration", "before each restart", noDelay(func(c *Config) *time.Duration { return &c.Restart.FailureRate.Delay })},
	durationKey("restart-strategy.exponential-delay.initial-backoff", "before the first restart", func(c *Config) *time.Duration { return &c.Restart.Exponential.Initial }),
	durationKey("restart-strategy.exponential-delay.max-backoff", "that is not exceeded", func(c *Config) *time.Duration { return &c.Restart.Exponential.Max }),
	floatKey("restart-strategy.exponential-delay.backoff-multiplier", "by which it grows", func(c *Config) *float64 { return &c.Restart.Exponential.Multiplier }),
	durationKey("restart-strategy.exponential-delay.reset-backoff-threshold", "after which it begins anew", func(c *Config) *time.Duration { return &c.Restart.Exponential.ResetAfter }),
	{"restart-strategy.exponential-delay.jitter-factor", nil, "Double", "part of the delay that is left to chance", func(c *Config, v string) error {
		f, err := parseFloat(v)
		if f == 0 {
			f = restart.NoJitter
		}
		c.Restart.Exponential.Jitter = f
		return err
	}},
	{"restart-strategy.exponential-delay.attempts-before-reset-backoff", nil, "Integer", "restarts before the job has failed", func(c *Config, v string) (err error) {
		c.Restart.Exponential.Attempts, err = positiveInt(v)
		return err
	}},
}

func positiveInt(v string) (int, error) {
	n, err := parseInt(v)
	if err == nil && n < 1 {
		err = fmt.Errorf("%d: from 1 on is possible", n)
	}
	return n, err
}

func setBackend(c *Config, v string) error {
	switch strings.ToLower(strings.TrimSpace(v)) {
	case "hashmap", "org.apache.flink.runtime.state.hashmap.hashmapstatebackendfactory":
		c.State.Backend = HashMap
	case "rocksdb", "lsm", "forst", "org.apache.flink.contrib.streaming.state.embeddedrocksdbstatebackendfactory", "org.apache.flink.state.rocksdb.embeddedrocksdbstatebackendfactory":
		c.State.Backend = LSM
	case "jobmanager":
		c.State.Backend, c.State.Storage = HashMap, "jobmanager"
	case "filesystem":
		c.State.Backend, c.State.Storage = HashMap, "filesystem"
	default:
		return fmt.Errorf("%q is no state backend: hashmap and rocksdb are", v)
	}
	return nil
}

// setStrategy takes the names that Flink takes for each strategy.
func setStrategy(c *Config, v string) error {
	switch s := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(strings.TrimSpace(v))); s {
	case "none", "off", "disable":
		c.Restart.Type = "none"
	case "fixeddelay":
		c.Restart.Type = "fixed-delay"
	case "failurerate":
		c.Restart.Type = "failure-rate"
	case "exponentialdelay":
		c.Restart.Type = "exponential-delay"
	default:
		return fmt.Errorf("%q is none of none, fixed-delay, failure-rate, exponential-delay", v)
	}
	return nil
}

// retired are keys of former releases that have no counterpart: setting one has no
// effect but its note.
var retired = map[string]string{
	"state.backend.async":                            "snapshots are always asynchronous",
	"state.checkpoint.cleaner.parallel-mode":         "files are always deleted in parallel",
	checkpointing + "cleaner.parallel-mode":          "files are always deleted in parallel",
	"state.storage.fs.write-buffer-size":             "buffers have the size that the store asks for",
	"state.backend.fs.write-buffer-size":             "buffers have the size that the store asks for",
	checkpointing + "write-buffer-size":              "buffers have the size that the store asks for",
	checkpointing + "prefer-checkpoint-for-recovery": "a job always starts from its newest checkpoint",
	"state.backend.rocksdb.memory.managed":           "the memory of databases is always managed, see taskmanager.memory.managed.size",
	checkpointing + "unaligned.forced":               "there are no iterations and custom partitioners, for which Flink has it",
	"jobmanager.execution.failover-strategy":         "the whole job restarts when a task fails",
}

// foreign are beginnings of keys that Flink has and that mean nothing here.
var foreign = []struct{ prefix, why string }{
	{"state.changelog.", "there is no changelog backend: incremental checkpoints of rocksdb are the nearest to it"},
	{"state.backend.changelog.", "there is no changelog backend: incremental checkpoints of rocksdb are the nearest to it"},
	{"dstl.", "there is no changelog backend"},
	{checkpointing + "file-merging.", "a merged file is that of one checkpoint of one subtask"},
	{"state.backend.rocksdb.", "the database is not RocksDB and is tuned by its memory alone, see taskmanager.memory.managed.size"},
	{"state.backend.forst.", "the database is not ForSt and is tuned by its memory alone, see taskmanager.memory.managed.size"},
	{"high-availability", "completed checkpoints are kept in a log beside them, which needs no other service"},
	{"kubernetes.", "a job is one process"},
	{"yarn.", "a job is one process"},
	{"rest.", "a job is one process without a REST API"},
	{"jobmanager.", "a job is one process"},
	{"taskmanager.", "a job is one process"},
}

// Parse reads a configuration from Flink's keys. What is not set has its default.
// Notes are for people, a line each: keys that are called otherwise now, or have no
// effect. All errors are joined, a line each, and wrap ErrUnknownKey or ErrValue.
func Parse(values map[string]string) (c *Config, notes []string, err error) {
	c = Default()
	var errs []error
	known := map[string]bool{}
	for i := range keys {
		k := &keys[i]
		used := ""
		for _, name := range append([]string{k.Name}, k.Former...) {
			known[name] = true
			v, ok := values[name]
			if !ok {
				continue
			}
			if used != "" {
				notes = append(notes, fmt.Sprintf("%s is ignored, since %s is set", name, used))
				continue
			}
			used = name
			if name != k.Name {
				notes = append(notes, fmt.Sprintf("%s is called %s now", name, k.Name))
			}
			if err := k.set(c, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %w", name, ErrValue, err))
			}
		}
	}
	for _, name := range sorted(values) {
		if known[name] {
			continue
		}
		if why, ok := retired[name]; ok {
			notes = append(notes, fmt.Sprintf("%s has no effect: %s", name, why))
			continue
		}
		errs = append(errs, unknownKey(name, known))
	}
	if len(errs) == 0 {
		if err := c.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrValue, err))
		}
	}
	return c, notes, errors.Join(errs...)
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func unknownKey(name string, known map[string]bool) error {
	for _, f := range foreign {
		if strings.HasPrefix(name, f.prefix) {
			return fmt.Errorf("%w %s: %s", ErrUnknownKey, name, f.why)
		}
	}
	best, distance := "", 4
	var names []string
	for k := range known {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if d := editDistance(name, k, distance); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Errorf("%w %s: is %s meant?", ErrUnknownKey, name, best)
	}
	return fmt.Errorf("%w %s", ErrUnknownKey, name)
}

// editDistance is Levenshtein's, or limit if it is at least that.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return min(row[len(b)], limit)
}

// ParseFlat reads the lines of a flink-conf.yaml: "key: value" each, with comments.
// Nested YAML is not read.
func ParseFlat(text string) (map[string]string, error) {
	values := map[string]string{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(strings.TrimRight(line, "\r\n"), " #")
		if t := strings.TrimSpace(line); t == "" || t[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(key) != key || key == "" {
			return nil, fmt.Errorf("line %d is not of the form \"key: value\": %w", n, ErrValue)
		}
		if _, twice := values[key]; twice {
			return nil, fmt.Errorf("line %d sets %s a second time: %w", n, key, ErrValue)
		}
		values[key] = strings.Trim(strings.TrimSpace(value), `"'`)
	}
	return values, nil
}
