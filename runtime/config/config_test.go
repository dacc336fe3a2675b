package config

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
)

func TestDefaults(t *testing.T) {
	c, notes, err := Parse(nil)
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Equal(t, Default(), c)
	require.Equal(t, 10*time.Minute, c.Checkpointing.Timeout)
	require.Equal(t, NoRetention, c.Checkpointing.Retention)
	s, err := c.Strategy()
	require.NoError(t, err)
	require.Equal(t, "no restart", s.String(), "without checkpoints")
}

func TestKeys(t *testing.T) {
	c, notes, err := Parse(map[string]string{
		"execution.checkpointing.interval":                          "10 s",
		"execution.checkpointing.interval-during-backlog":           "0",
		"execution.checkpointing.mode":                              "exactly-once",
		"execution.checkpointing.timeout":                           "2min",
		"execution.checkpointing.min-pause":                         "500",
		"execution.checkpointing.max-concurrent-checkpoints":        "2",
		"execution.checkpointing.tolerable-failed-checkpoints":      "3",
		"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
		"execution.checkpointing.unaligned.enabled":                 "true",
		"execution.checkpointing.aligned-checkpoint-timeout":        "30 s",
		"execution.checkpointing.dir":                               "s3://b/ckp",
		"execution.checkpointing.num-retained":                      "5",
		"execution.checkpointing.local-backup.dirs":                 "/a;",
		"execution.checkpointing.file-merging.enabled":              "true",
		"state.backend.type":                                        "rocksdb",
		"execution.state-recovery.claim-mode":                       "claim",
		"restart-strategy.type":                                     "fixed-delay",
		"restart-strategy.fixed-delay.attempts":                     "2147483647",
		"restart-strategy.fixed-delay.delay":                        "0 s",
		"taskmanager.memory.managed.size":                           "1g",
	})
	require.NoError(t, err)
	require.Empty(t, notes)
	require.Equal(t, LSM, c.State.Backend)
	require.Equal(t, "filesystem", c.State.Storage)
	require.Equal(t, []string{"/a"}, c.State.LocalDirs)
	require.Equal(t, incremental.Claim, c.Recovery.Mode)
	require.Equal(t, int64(1<<30), c.State.ManagedMemory)
	require.Equal(t, Checkpointing{Interval: 10 * time.Second, HasBacklogInterval: true, ExactlyOnce: true, Timeout: 2 * time.Minute, MinPause: 500 * time.Millisecond, MaxConcurrent: 2,
		TolerableFailures: 3, Retention: RetainOnCancellation, Unaligned: true, AlignedTimeout: 30 * time.Second, Dir: "s3://b/ckp", Retained: 5, History: 10,
		FileMerging: FileMerging{Enabled: true, MaxFileSize: 32 << 20, MaxSpaceAmplification: 2}}, c.Checkpointing)
	s, err := c.Strategy()
	require.NoError(t, err)
	require.Equal(t, "fixed delay of 0s, 2147483647 times", s.String())
}

// The keys that the issue of old configurations is about: each works under its
// former name, and the note says what it is called now.
func TestFormerKeys(t *testing.T) {
	c, notes, err := Parse(map[string]string{
		"state.backend":                         "filesystem",
		"state.backend.incremental":             "true",
		"state.backend.async":                   "false",
		"state.backend.fs.memory-threshold":     "1kb",
		"state.backend.local-recovery":          "true",
		"taskmanager.state.local.root-dirs":     "/local",
		"state.checkpoints.dir":                 "file:///c",
		"state.savepoints.dir":                  "file:///s",
		"state.checkpoints.num-retained":        "3",
		"execution.checkpointing.unaligned":     "true",
		"execution.savepoint-restore-mode":      "LEGACY",
		"execution.savepoint.path":              "file:///old",
		"restart-strategy":                      "exponentialdelay",
		"execution.buffer-timeout":              "5 ms",
		"execution.checkpointing.interval":      "1 s",
		"execution.checkpointing.savepoint-dir": "file:///new",
	})
	require.NoError(t, err)
	require.Equal(t, HashMap, c.State.Backend)
	require.Equal(t, int64(1024), c.State.InlineThreshold)
	require.True(t, c.State.Incremental && c.State.LocalRecovery && c.Checkpointing.Unaligned)
	require.Equal(t, "file:///c", c.Checkpointing.Dir)
	require.Equal(t, "file:///new", c.Checkpointing.SavepointDir)
	require.Equal(t, 3, c.Checkpointing.Retained)
	require.Equal(t, incremental.Legacy, c.Recovery.Mode)
	require.Contains(t, notes, "state.backend is called state.backend.type now")
	require.Contains(t, notes, "state.checkpoints.num-retained is called execution.checkpointing.num-retained now")
	require.Contains(t, notes, "state.savepoints.dir is ignored, since execution.checkpointing.savepoint-dir is set")
	require.Contains(t, notes, "state.backend.async has no effect: snapshots are always asynchronous")
	require.Len(t, notes, 14)
	c, _, err = Parse(map[string]string{"state.backend": "jobmanager"})
	require.NoError(t, err)
	require.Equal(t, "jobmanager", c.State.Storage)
	require.Equal(t, HashMap, c.State.Backend)
}

func TestBadKeys(t *testing.T) {
	for key, c := range map[string]struct {
		value, want string
		is          error
	}{
		"execution.checkpointing.intervall":                      {"1", "unknown key execution.checkpointing.intervall: is execution.checkpointing.interval meant?", ErrUnknownKey},
		"state.backend.rocksdb.block.cache-size":                 {"1", "the database is not RocksDB", ErrUnknownKey},
		"my.key":                                                 {"1", "unknown key my.key", ErrUnknownKey},
		"execution.checkpointing.interval":                       {"soon", `execution.checkpointing.interval: bad value: "soon" is no duration`, ErrValue},
		"execution.checkpointing.timeout":                        {"3 fortnights", `"fortnights" is no unit of time`, ErrValue},
		"execution.checkpointing.mode":                           {"twice", "is none of EXACTLY_ONCE, AT_LEAST_ONCE", ErrValue},
		"execution.checkpointing.max-concurrent-checkpoints":     {"0", "0 concurrent checkpoints", ErrValue},
		"execution.checkpointing.data-inline-threshold":          {"99999999999 tb", "larger than a size can be", ErrValue},
		"execution.checkpointing.file-merging.max-file-size":     {"0", "merged files of 0 bytes", ErrValue},
		"execution.checkpointing.file-merging.pool-blocking":     {"true", "of one checkpoint of one subtask", ErrUnknownKey},
		"execution.checkpointing.storage":                        {"filesystem", "no folder is set", ErrValue},
		"state.backend":                                          {"memory", "hashmap and rocksdb are", ErrValue},
		"restart-strategy.fixed-delay.attempts":                  {"0", "from 1 on is possible", ErrValue},
		"parallelism.default":                                    {"40000", "from 1 to 32768", ErrValue},
		"state.backend.incremental":                              {"yes", "neither true nor false", ErrValue},
		"execution.checkpointing.checkpoints-after-tasks-finish": {"false", "always go on", ErrValue},
		"execution.checkpointing.local-backup.dirs":              {"/a;/b", "2 folders for local state", ErrValue},
		"taskmanager.memory.segment-size":                        {"10 b", "buffers of 10 bytes", ErrValue},
		"web.checkpoints.history":                                {"0", "0 checkpoints in the history", ErrValue},
	} {
		_, _, err := Parse(map[string]string{key: c.value})
		require.ErrorIs(t, err, c.is, key)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n")
	}
	_, _, err := Parse(map[string]string{"a": "", "b": ""})
	require.Equal(t, 2, len(strings.Split(err.Error(), "\n")))
}

func TestDurations(t *testing.T) {
	for s, want := range map[string]time.Duration{"10": 10 * time.Millisecond, " 7 min ": 7 * time.Minute, "1m": time.Minute, "2 d": 48 * time.Hour, "3HOURS": 3 * time.Hour,
		"4 µs": 4 * time.Microsecond, "5nanos": 5, "106751 d": 106751 * 24 * time.Hour} {
		got, err := ParseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "-1 s", "1.5 s", "106752 d", "99999999999999999999", "s"} {
		_, err := ParseDuration(s)
		require.Error(t, err, s)
	}
	for s, want := range map[string]int64{"10": 10, "20kb": 20480, "64 MB": 64 << 20, "1 gibibytes": 1 << 30, "2t": 2 << 40} {
		got, err := ParseSize(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
}

func TestKeysAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		require.NotEmpty(t, k.Does)
		for _, n := range append([]string{k.Name}, k.Former...) {
			require.False(t, seen[n], n)
			require.NotContains(t, retired, n)
			seen[n] = true
		}
	}
}

func TestParseFlat(t *testing.T) {
	got, err := ParseFlat("# a job\nstate.backend: rocksdb # fast\r\n\nexecution.checkpointing.dir: \"s3://b/c\"\n")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"state.backend": "rocksdb", "execution.checkpointing.dir": "s3://b/c"}, got)
	for _, s := range []string{"a: 1\na: 2", "state:\n  backend: x", "nonsense"} {
		_, err := ParseFlat(s)
		require.ErrorIs(t, err, ErrValue, s)
	}
}
