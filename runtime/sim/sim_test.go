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
	seeds = flag.Int("sim.seeds", 3000, "how many seeds to run")
	first = flag.Uint64("sim.first", 1, "the first of them")
)

// TestSeeds runs many jobs. A failing one is shrunk and told step by step; to see
// it again: -sim.first N -sim.seeds 1.
func TestSeeds(t *testing.T) {
	var mu sync.Mutex
	var sum Result
	var next atomic.Uint64
	next.Store(*first)
	begun := time.Now()
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !t.Failed() {
				seed := next.Add(1) - 1
				if seed >= *first+uint64(*seeds) {
					return
				}
				res, err := Run(Of(seed))
				mu.Lock()
				sum.Add(res)
				failed := t.Failed()
				mu.Unlock()
				if err != nil && !failed {
					t.Errorf("%v", err)
					report(t, Of(seed))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d seeds in %s: %s", *seeds, time.Since(begun).Round(time.Millisecond), sum.String())
	if *seeds >= 1000 {
		for f := range faultKinds {
			require.NotZero(t, sum.Faults[f], "no %s in all runs", f)
		}
		require.NotZero(t, sum.Captured)
	}
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
