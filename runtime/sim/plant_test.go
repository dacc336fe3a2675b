package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// mostSeeds is how many runs each mistake may take to be found.
const mostSeeds = 500

// TestMistakesAreFound makes mistakes on purpose, one at a time.
func TestMistakesAreFound(t *testing.T) {
	for b := noBug + 1; b < bugs; b++ {
		t.Run(b.String(), func(t *testing.T) {
			t.Parallel()
			seed, err := findBug(b)
			require.Error(t, err, "not found in %d seeds", mostSeeds)
			t.Logf("found by seed %d: %v", seed, err)
		})
	}
}

func findBug(b bug) (seed uint64, err error) {
	for seed = 1; seed <= mostSeeds; seed++ {
		c := Of(seed)
		c.bug = b
		if _, err := Run(c); err != nil {
			return seed, err
		}
	}
	return 0, nil
}

// TestShrink makes a failing run small, and it fails still, in the same way each time.
func TestShrink(t *testing.T) {
	shrunk := 0
	for _, b := range []bug{bugNoFence, bugDropsPrepared, bugLateAck} {
		seed, err := findBug(b)
		require.Error(t, err)
		c := Of(seed)
		c.bug = b
		before, _ := Run(c)
		small := Shrink(c, 300)
		after, err := Run(small)
		require.Error(t, err)
		_, again := Run(small)
		require.Equal(t, err.Error(), again.Error())
		require.LessOrEqual(t, len(after.Numbers), len(before.Numbers))
		require.LessOrEqual(t, small.Records, c.Records)
		t.Logf("%s: from %d faults and %d records to %d and %d: %v", b, len(before.Numbers), c.Records, len(after.Numbers), small.Records, err)
		if len(after.Numbers) < len(before.Numbers) || small.Records < c.Records {
			shrunk++
		}
		// Nothing can be left out any more: each fault is needed.
		for _, n := range after.Numbers {
			d := small
			d.Without = map[int]bool{n: true}
			for k := range small.Without {
				d.Without[k] = true
			}
			r, err := Run(d)
			require.False(t, err != nil && len(r.Numbers) < len(after.Numbers), "fault %d is not needed", n)
		}
	}
	require.NotZero(t, shrunk)
}
