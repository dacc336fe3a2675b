package task

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waits notes for how long it was asked to wait.
type waits struct{ d []time.Duration }

func (*waits) Millis() int64 { return 1_700_000_000_000 }

func (w *waits) AfterFunc(d time.Duration, _ func()) func() {
	w.d = append(w.d, d)
	return func() {}
}

// A timer that is further away than a time.Duration goes is not due now.
func TestTimersFarAway(t *testing.T) {
	w := &waits{}
	s := (*timerService)(New(Descriptor{Clock: w}))
	for _, at := range []int64{math.MaxInt64, math.MaxInt64 / 2, w.Millis() + 5, w.Millis() - 5, math.MinInt64} {
		s.At(at, nil)
		s.alarm(at, nil)
	}
	const longest = time.Duration(math.MaxInt64) / time.Millisecond * time.Millisecond
	for i, want := range []time.Duration{longest, longest, 5 * time.Millisecond, 0, 0} {
		require.Equal(t, []time.Duration{want, want}, w.d[2*i:2*i+2])
	}
}
