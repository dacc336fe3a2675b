package sim

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seeds   = flag.Int("sim.seeds", 2000, "how many seeds to run")
	first   = flag.Uint64("sim.first", 1, "the first of them")
	backend = flag.Int("sim.backend", int(ModelBackend), "backend of the counters: 0 model, 1 heap, 2 lsm")
)

// TestSeeds runs many jobs. A failing one is shrunk and told step by step; to see
// it again: -sim.first N -sim.seeds 1.
func TestSeeds(t *testing.T) {
	sum := runSeeds(t, *first, *seeds, Backend(*backend))
	if *seeds >= 1000 {
		for f := range faultKinds {
			require.NotZero(t, sum.Faults[f], "no %s in all runs", f)
		}
		require.NotZero(t, sum.Captured)
		require.NotZero(t, sum.Rescales)
		if Backend(*backend) == ModelBackend { // jobs with keys are one pipeline
			require.NotZero(t, sum.Partial)
		}
		require.NotZero(t, sum.Stops)
	}
}

// TestFoundSeeds runs those that found a mistake after millions of others had not.
func TestFoundSeeds(t *testing.T) {
	for _, seed := range []uint64{
		22013918, // a late acknowledgement named a file of a snapshot that was not claimed, and it was deleted
		20007112, // periodic checkpoints that were stopped went on when the savepoint to stop with failed
	} {
		_, err := Run(Of(seed))
		require.NoError(t, err)
	}
}

// TestBackends runs jobs whose counters have real backends.
func TestBackends(t *testing.T) {
	for _, b := range []struct {
		of Backend
		n  int
	}{{HeapBackend, 100}, {LSMBackend, 10}} {
		t.Run(b.of.String(), func(t *testing.T) { runSeeds(t, 1, b.n, b.of) })
	}
}

// configOf is that of a seed, with a backend: real ones are for jobs with keys.
func configOf(seed uint64, b Backend) Config {
	c := Of(seed)
	if c.Backend = b; b != ModelBackend {
		c.Shape = Keyed
	}
	return c
}

func runSeeds(t *testing.T, first uint64, n int, b Backend) (sum Result) {
	var mu sync.Mutex
	modes := map[string]int{}
	var next atomic.Uint64
	next.Store(first)
	begun := time.Now()
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= first+uint64(n) {
					return
				}
				cfg := configOf(seed, b)
				res, err := Run(cfg)
				mu.Lock()
				sum.Add(res)
				modes[cfg.mode()]++
				failed := t.Failed()
				mu.Unlock()
				if err != nil && !failed {
					t.Errorf("%v", err)
					report(t, cfg)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds in %s, %v: %s", n, time.Since(begun).Round(time.Millisecond), modes, sum.String())
	return sum
}

func report(t *testing.T, cfg Config) {
	small := Shrink(cfg, 500)
	small.Trace = func(s string) { t.Log(s) }
	res, err := Run(small)
	t.Logf("shrunk to faults %v and %d records: %v", res.Numbers, small.Records, err)
}

// The same seed is the same run, to the last step.
func TestReplay(t *testing.T) {
	for seed := uint64(1); seed < 40; seed++ {
		trace := func() (lines []string) {
			c := Of(seed)
			c.Trace = func(s string) { lines = append(lines, s) }
			_, err := Run(c)
			require.NoError(t, err)
			return lines
		}
		a := trace()
		require.Equal(t, a, trace())
		require.NotEmpty(t, a)
	}
}

func BenchmarkSeeds(b *testing.B) {
	b.ReportAllocs()
	seed := uint64(0)
	for b.Loop() {
		seed++
		if _, err := Run(Of(seed)); err != nil {
			b.Fatal(err)
		}
	}
}
