package task

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValve(t *testing.T) {
	v := newValve(3)
	at := func(channel int, wm int64) any {
		to, ok := v.watermark(channel, wm)
		if !ok {
			return nil
		}
		return to
	}
	require.Nil(t, at(0, 10))
	require.Nil(t, at(1, 20))
	require.EqualValues(t, 5, at(2, 5))
	require.Nil(t, at(2, 4), "never back")
	require.EqualValues(t, 10, at(2, 15))

	// The slowest becomes idle: the others' minimum counts.
	changed, to, ok := v.setIdle(0, true)
	require.False(t, changed)
	require.True(t, ok)
	require.EqualValues(t, 15, to)
	require.Nil(t, at(0, 100), "an idle channel has no watermark")

	// Active again, but behind: it does not hold the others up until it has caught up.
	changed, _, ok = v.setIdle(0, false)
	require.False(t, changed)
	require.False(t, ok)
	require.EqualValues(t, 20, at(2, 30))
	require.Nil(t, at(0, 19))
	require.Nil(t, at(0, 21))
	require.EqualValues(t, 21, at(1, 40))

	// All idle: the last one had held the others up, so the largest counts.
	for i := range 2 {
		changed, _, _ = v.setIdle(i, true)
		require.False(t, changed)
	}
	changed, to, ok = v.setIdle(2, true)
	require.True(t, changed)
	require.True(t, ok)
	require.EqualValues(t, 40, to)
	changed, _, _ = v.setIdle(1, false)
	require.True(t, changed)
}

// Inputs that become idle before any of them had a watermark have none together.
func TestValveIdleFromTheBeginning(t *testing.T) {
	v := newValve(2)
	for i := range 2 {
		changed, _, ok := v.setIdle(i, true)
		require.Equal(t, i == 1, changed)
		require.False(t, ok)
	}
	v = newValve(2)
	_, _, _ = v.setIdle(0, true)
	to, ok := v.watermark(1, -5)
	require.True(t, ok)
	require.EqualValues(t, -5, to)
	_, _, ok = v.setIdle(1, true)
	require.False(t, ok)
}
