package event

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for i := range reasons {
		r := Reason(i)
		require.NotEmpty(t, r.String())
		require.NotEmpty(t, r.Text())
		require.False(t, seen[r.String()], r.String())
		seen[r.String()] = true
		back, ok := ParseReason(r.String())
		require.True(t, ok)
		require.Equal(t, r, back)
	}
	_, ok := ParseReason("NO_SUCH")
	require.False(t, ok)
	require.Equal(t, "UNKNOWN", Reason(200).String())
	require.True(t, IOException.PreFlight())
	require.False(t, CheckpointExpired.PreFlight())
	require.False(t, NoFailure.PreFlight())
}

func TestOptions(t *testing.T) {
	o := Options{Type: SavepointNative, Post: Terminate, Alignment: Aligned, AlignedTimeout: 2 * time.Second, Target: "file:/s"}
	require.Equal(t, "native savepoint aligned for 2s then terminate to file:/s", o.String())
	require.True(t, o.Timeoutable())
	require.True(t, o.NeedsAlignment())
	u := o.ToUnaligned()
	require.Equal(t, Unaligned, u.Alignment)
	require.False(t, u.Timeoutable())
	require.False(t, Options{Alignment: Aligned, AlignedTimeout: NoTimeout}.Timeoutable())
	require.False(t, Options{Alignment: Aligned}.Timeoutable())
	require.Equal(t, Forward, FullCheckpoint.Sharing())
	require.Equal(t, "barrier 7 (checkpoint unaligned)", Barrier{ID: 7, Options: Options{Alignment: Unaligned}}.String())
	require.Equal(t, "alignment(9)", Alignment(9).String())
}
