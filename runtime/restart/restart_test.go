package restart

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var t0 = time.UnixMilli(1_700_000_000_000)

func TestFixedDelay(t *testing.T) {
	s, err := NewFixedDelay(FixedDelayOptions{Attempts: 2, Delay: 3 * time.Second})
	require.NoError(t, err)
	require.Equal(t, Decision{Restart: true, Delay: 3 * time.Second, Attempt: 1}, s.Failed(t0))
	require.Equal(t, Decision{Restart: true, Delay: 3 * time.Second, Attempt: 2}, s.Failed(t0))
	d := s.Failed(t0.Add(100 * time.Hour))
	require.False(t, d.Restart)
	require.Equal(t, "the job was restarted 2 times, which is the limit", d.Why)
	s, err = NewFixedDelay(FixedDelayOptions{Attempts: -1, Delay: NoDelay})
	require.NoError(t, err)
	for i := range 1000 {
		require.Equal(t, Decision{Restart: true, Attempt: i + 1}, s.Failed(t0))
	}
}

func TestFailureRate(t *testing.T) {
	s, err := NewFailureRate(FailureRateOptions{MaxFailures: 2, Interval: time.Minute})
	require.NoError(t, err)
	at := func(sec int) Decision { return s.Failed(t0.Add(time.Duration(sec) * time.Second)) }
	require.True(t, at(0).Restart)
	require.True(t, at(10).Restart)
	require.True(t, at(61).Restart, "the first is more than a minute ago")
	require.True(t, at(71).Restart)
	d := at(100)
	require.False(t, d.Restart)
	require.Equal(t, "3 failures within 1m0s, 2 are allowed", d.Why)
	require.True(t, at(200).Restart)
}

func TestExponentialDelay(t *testing.T) {
	s, err := NewExponentialDelay(ExponentialDelayOptions{Initial: time.Second, Max: 10 * time.Second, Multiplier: 2, Jitter: NoJitter, ResetAfter: time.Minute, Attempts: 6})
	require.NoError(t, err)
	now := t0
	fail := func(after time.Duration) Decision {
		now = now.Add(after)
		d := s.Failed(now)
		now = now.Add(d.Delay)
		return d
	}
	for i, want := range []int{1, 2, 4, 8, 10, 10} {
		require.Equal(t, Decision{Restart: true, Delay: time.Duration(want) * time.Second, Attempt: i + 1}, fail(time.Second))
	}
	require.False(t, fail(time.Second).Restart)
	require.Equal(t, Decision{Restart: true, Delay: time.Second, Attempt: 7}, fail(time.Minute), "it ran well for a minute: from the beginning")
	require.Equal(t, 2*time.Second, fail(59*time.Second).Delay)
}

func TestJitter(t *testing.T) {
	delays := func(seed uint64) (list []time.Duration) {
		s, err := NewExponentialDelay(ExponentialDelayOptions{Initial: 10 * time.Second, Max: 11 * time.Second, Multiplier: 1, Jitter: 0.5, Seed: seed})
		require.NoError(t, err)
		for range 200 {
			list = append(list, s.Failed(t0).Delay)
		}
		return list
	}
	a := delays(1)
	require.Equal(t, a, delays(1))
	require.NotEqual(t, a, delays(2))
	low := 0
	for _, d := range a {
		require.GreaterOrEqual(t, d, 5*time.Second)
		require.LessOrEqual(t, d, 11*time.Second, "the maximum holds with jitter as well")
		if d < 10*time.Second {
			low++
		}
	}
	require.Greater(t, low, 50)
	require.Less(t, low, 150)
}

func TestOptions(t *testing.T) {
	for _, o := range []ExponentialDelayOptions{{Initial: -5}, {Max: time.Millisecond}, {Multiplier: 0.5}, {Multiplier: math.NaN()}, {Jitter: 2}, {Initial: NoDelay}} {
		_, err := NewExponentialDelay(o)
		require.ErrorIs(t, err, ErrOption, "%+v", o)
	}
	_, err := NewFixedDelay(FixedDelayOptions{Delay: -3})
	require.ErrorIs(t, err, ErrOption)
	_, err = NewFailureRate(FailureRateOptions{MaxFailures: -1})
	require.ErrorIs(t, err, ErrOption)
	s, err := NewExponentialDelay(ExponentialDelayOptions{})
	require.NoError(t, err)
	require.Equal(t, "exponential delay from 1s to 1m0s by 1.5, jitter 0.1, reset after 1h0m0s", s.String())
	require.False(t, None().Failed(t0).Restart)
}
