//go:build integration

package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/blobstore"
	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/internal/flinkverify"
	"github.com/tidemark/tidemark/internal/flinkverify/pipeline"
	"github.com/tidemark/tidemark/metadata"
	"github.com/tidemark/tidemark/runtime"
	"github.com/tidemark/tidemark/runtime/checkpoint"
	"github.com/tidemark/tidemark/runtime/event"
	"github.com/tidemark/tidemark/runtime/task"
	"github.com/tidemark/tidemark/snapshot"
)

const (
	numbers = 12_288
	rate    = 4_000 // records each second and subtask
)

// leg is a part of the way of a job.
type leg struct {
	flink       bool
	parallelism int
	backend     string // hashmap, rocksdb (Flink), lsm (here)
	end         string // the kind of snapshot it ends with; "" if it goes to the end
}

func (l leg) String() string {
	engine := map[bool]string{false: "Go", true: "Flink"}[l.flink]
	if l.end == "" {
		return fmt.Sprintf("%s %s %d", engine, l.backend, l.parallelism)
	}
	return fmt.Sprintf("%s %s %d %s", engine, l.backend, l.parallelism, l.end)
}

type chain []leg

func (c chain) String() string {
	s := make([]string, len(c))
	for i, l := range c {
		s[i] = l.String()
	}
	return strings.Join(s, ", ")
}

// exchange is what a leg has of its chain.
type exchange struct {
	results  string
	from, to string // folders of snapshots; from is "" for the first leg
	stopAt   int64  // records of the leg
	flat     bool   // pipeline.Options.Flat
}

// chains are always run: each kind of snapshot in each direction.
func chains() []chain {
	return []chain{
		{{false, 2, "hashmap", "canonical"}, {true, 3, "hashmap", "canonical"}, {false, 4, "lsm", ""}},
		{{true, 2, "rocksdb", "native"}, {false, 3, "lsm", "canonical"}, {true, 3, "rocksdb", ""}},
		{{false, 2, "hashmap", "native"}, {true, 2, "hashmap", "unaligned"}, {false, 3, "hashmap", ""}},
		{{true, 2, "rocksdb", "incremental"}, {false, 2, "hashmap", "unaligned"}, {true, 2, "hashmap", ""}},
		{{true, 2, "hashmap", "native"}, {false, 2, "hashmap", "checkpoint"}, {true, 2, "hashmap", "checkpoint"}, {false, 2, "hashmap", ""}},
	}
}

// flatChains are those of the flat job: its data in flight is rescaled by Flink too.
// (Where it did that it takes no unaligned checkpoint before all of it is processed.)
func flatChains() []chain {
	return []chain{{{true, 2, "hashmap", "unaligned"}, {false, 3, "hashmap", "unaligned"}, {true, 4, "hashmap", ""}}}
}

// randomChains are as many as CHAINS says.
func randomChains(t *testing.T) (all []chain) {
	n, _ := strconv.Atoi(os.Getenv("CHAINS"))
	if n == 0 {
		return nil
	}
	first := uint64(time.Now().UnixNano())
	if s := os.Getenv("SEED"); s != "" {
		var err error
		first, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SEED")
	}
	t.Logf("SEED=%d CHAINS=%d", first, n)
	for i := range uint64(n) {
		rng := rand.New(rand.NewPCG(first+i, 0))
		var c chain
		p := 1 + rng.IntN(3)
		flink := rng.IntN(2) == 0
		for legs := 2 + rng.IntN(3); len(c) < legs; flink = !flink {
			l := leg{flink: flink, parallelism: p, backend: "hashmap"}
			ends := []string{"canonical", "canonical", "native", "checkpoint", "unaligned", "unaligned"}
			// The format of the heap is one that both know, that of RocksDB is read here
			// only, and that of LSM by no Flink.
			switch other := rng.IntN(3); {
			case flink && other == 0 && heapsOwn(c):
				l.backend = "rocksdb"
				ends = append(ends, "incremental", "incremental")
			case !flink && other == 0:
				l.backend = "lsm"
				ends = ends[:2]
			}
			if l.end = ends[rng.IntN(len(ends))]; len(c) == legs-1 {
				l.end = ""
			}
			if c = append(c, l); l.flink || l.end != "unaligned" { // Flink would have to rescale forward edges
				p += rng.IntN(2)
			}
		}
		all = append(all, c)
	}
	return all
}

// heapsOwn says that any backend of Flink reads what a chain has come to.
func heapsOwn(c chain) bool { return len(c) == 0 || c[len(c)-1].end == "canonical" }

func (c chain) run(t *testing.T, flink *flinkverify.Flink, flat bool) {
	dir := t.TempDir()
	x := exchange{results: filepath.Join(dir, "results"), stopAt: numbers / int64(len(c)+1), flat: flat}
	require.NoError(t, os.Mkdir(x.results, 0o777))
	for i, l := range c {
		if x.to = ""; l.end != "" {
			x.to = filepath.Join(dir, fmt.Sprint("after-leg-", i+1))
		}
		begun := time.Now()
		if l.flink {
			l.runFlink(t, flink, x)
		} else {
			x.to = l.runGo(t, x)
			if flat && strings.HasPrefix(flink.Version, "2.") {
				toVersion6(t, x.to)
			}
		}
		t.Logf("leg %d, %s: %v", i+1, l, time.Since(begun).Round(time.Millisecond))
		x.from = x.to
		if l.flink && x.to != "" {
			x.from = folder(t, x.to)
		}
		if l.end == "unaligned" {
			t.Logf("in flight: %d bytes", inFlight(t, x.from))
		}
	}
	got, seen, err := pipeline.Results(x.results)
	require.NoError(t, err)
	requireLines(t, pipeline.Model(numbers, flat), got)
	require.EqualValues(t, numbers, seen)
}

// toVersion6 has a tag in front of each channel handle, and not Flink's merged ones.
func toVersion6(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "_metadata")
	old, err := os.ReadFile(name)
	require.NoError(t, err)
	m, err := metadata.Decode(bytes.NewReader(old), nil)
	require.NoError(t, err)
	m, err = metadata.Convert(m, 6, nil)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, metadata.Encode(&b, m))
	require.NoError(t, os.WriteFile(name, b.Bytes(), 0o666))
}

// folder is that of the metadata which a leg in Flink has written.
func folder(t *testing.T, dir string) string {
	t.Helper()
	for _, p := range []string{"_metadata", "*/chk-*/_metadata"} {
		found, err := filepath.Glob(filepath.Join(dir, p))
		require.NoError(t, err)
		if len(found) > 0 {
			require.Len(t, found, 1)
			return filepath.Dir(found[0])
		}
	}
	t.Fatalf("%s has no _metadata", dir)
	return ""
}

// requireLines compares multisets, and shows some of the differences only.
func requireLines(t *testing.T, want, got []string) {
	t.Helper()
	n := map[string]int{}
	for _, s := range want {
		n[s]++
	}
	for _, s := range got {
		n[s]--
	}
	var missing, extra []string
	for s, d := range n {
		switch {
		case d > 0:
			missing = append(missing, s)
		case d < 0:
			extra = append(extra, s)
		}
	}
	slices.Sort(missing)
	slices.Sort(extra)
	require.Empty(t, append(sample("missing: ", missing), sample("too much: ", extra)...), "%d lines are missing, %d are too much", len(missing), len(extra))
}

func sample(label string, lines []string) (s []string) {
	for i, l := range lines {
		if i%(1+len(lines)/40) == 0 {
			s = append(s, label+l)
		}
	}
	return s
}

// runGo is a leg here; it gives the folder of the snapshot it ended with.
func (l leg) runGo(t *testing.T, x exchange) string {
	t.Helper()
	j := pipeline.New(pipeline.Options{Numbers: numbers, Results: x.results, Parallelism: l.parallelism, Rate: rate, Most: map[bool]int64{true: x.stopAt}[l.end != ""],
		Slow: l.slow(x), Flat: x.flat})
	to := "file://" + filepath.ToSlash(t.TempDir())
	if x.to != "" {
		to = "file://" + filepath.ToSlash(x.to)
	}
	o := &runtime.Options{Checkpoints: to, RestoreMode: incremental.NoClaim, Restart: runtime.NoRestart(), State: task.StateOptions{Dir: t.TempDir()}}
	if x.from != "" {
		o.Restore = "file://" + filepath.ToSlash(x.from)
	}
	if l.backend == "lsm" {
		o.State.Backend = task.BackendLSM
	}
	if l.end == "unaligned" {
		o.Mode = runtime.Unaligned
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("the leg takes too long"))
	defer cancel()
	e, err := runtime.Start(ctx, j.Job, o)
	require.NoError(t, err)
	if l.end == "" {
		require.NoError(t, e.Wait())
		return ""
	}
	for j.Read.Load() < x.stopAt {
		select {
		case <-e.Done():
			t.Fatalf("the job ended: %v", e.Wait())
		case <-time.After(time.Millisecond):
		}
	}
	for {
		r, err := l.snapshot(ctx, e, to)
		var refused *checkpoint.Failure
		if errors.As(err, &refused) && refused.Reason == event.NotAllRequiredTasksRunning {
			time.Sleep(time.Millisecond) // a task restores its state
			continue
		}
		require.NoError(t, err)
		if !l.stops() {
			cancel()
			require.ErrorIs(t, e.Wait(), context.Canceled)
		}
		return filepath.Clean(strings.TrimSuffix(strings.TrimPrefix(r.Path, "file:"), "/_metadata"))
	}
}

// slow is how long a record of two keys takes, so that others are in flight at the end.
// Those that are in flight twice in a chain take less: all must be processed between.
func (l leg) slow(x exchange) time.Duration {
	switch {
	case l.end != "unaligned":
		return 0
	case x.flat:
		return 15 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// stops says that the leg ends with a savepoint that stops the job.
func (l leg) stops() bool { return l.end == "canonical" || l.end == "native" }

// snapshot takes that with which the leg ends.
func (l leg) snapshot(ctx context.Context, e *runtime.Execution, to string) (checkpoint.Result, error) {
	switch l.end {
	case "canonical":
		return e.Stop(ctx, event.SavepointCanonical, to, false)
	case "native":
		return e.Stop(ctx, event.SavepointNative, to, false)
	}
	return e.Checkpoint(ctx, event.Checkpoint, "")
}

// inFlight is how many bytes of channel state a snapshot has: some, or the test would
// show nothing.
func inFlight(t *testing.T, dir string) (n int64) {
	t.Helper()
	at, err := blobstore.Parse("file://" + filepath.ToSlash(dir))
	require.NoError(t, err)
	pool := blobstore.NewPool(nil, nil)
	defer pool.Close()
	s, err := snapshot.Open(t.Context(), pool, at, nil)
	require.NoError(t, err)
	for _, o := range s.Checkpoint.Operators {
		for _, sub := range o.Subtasks {
			for _, h := range sub.InputChannels {
				n += h.Size
			}
			for _, h := range sub.OutputChannels {
				n += h.Size
			}
		}
	}
	require.Positive(t, n)
	return n
}
