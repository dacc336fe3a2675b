package javaio

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStringKeepsEveryCodeUnit(t *testing.T) {
	for _, s := range []string{"", "plain", "a\x00b", "é", "漢", "😀", "\xed\xa0\x80", "x\xed\xb0\x80y"} {
		j := NewString(s)
		require.True(t, j.Valid(), "%q", s)
		require.Equal(t, s, j.Go(), "%q", s)
	}
	require.Equal(t, String("\xc0\x80"), NewString("\x00"))
	require.Equal(t, String("\xed\xa0\xbd\xed\xb8\x80"), NewString("😀"))
	require.False(t, String("\xf0\x9f\x98\x80").Valid(), "four-byte UTF-8 is not modified UTF-8")
	require.False(t, String("\xe0\x80").Valid())
}

func TestCountIsCheckedAgainstWhatIsLeft(t *testing.T) {
	r := NewReader([]byte{0x7f, 0xff, 0xff, 0xff, 1, 2})
	require.Zero(t, r.Count(1))
	require.ErrorIs(t, r.Err(), ErrCount)
	require.Zero(t, r.Offset(), "the offset is that of the count")
}
