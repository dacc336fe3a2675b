package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/testdata"
)

func TestOperatorIDsOfTheGoldens(t *testing.T) {
	for _, c := range testdata.Goldens(t) {
		checkUIDs(t, c)
	}
}

func TestOperatorIDsOfAllGoldens(t *testing.T) {
	n := 0
	for _, c := range testdata.AllGoldens(t) {
		n += checkUIDs(t, c)
	}
	require.Greater(t, n, 400)
}

func checkUIDs(t *testing.T, c *testdata.Case) (n int) {
	for _, o := range c.Operators {
		if o.UID == "" {
			continue
		}
		n++
		require.Equal(t, o.ID, OperatorIDFromUID(o.UID).String(), "%s: %s", c.Name, o.UID)
	}
	return n
}

func TestParseOperatorID(t *testing.T) {
	id, err := ParseOperatorID("0c80f7e50ab54b30f6a2580946f9e942")
	require.NoError(t, err)
	require.Equal(t, OperatorIDFromUID("events"), id)
	upper, err := ParseOperatorID("0C80F7E50AB54B30F6A2580946F9E942")
	require.NoError(t, err)
	require.Equal(t, id, upper)
	for _, bad := range []string{"", "0c80", "0c80f7e50ab54b30f6a2580946f9e94g", "0c80f7e50ab54b30f6a2580946f9e9420"} {
		_, err := ParseOperatorID(bad)
		require.Error(t, err, bad)
	}
}

func TestUIDNames(t *testing.T) {
	names, err := NewUIDNames([]string{"events", "", "# a comment", "counters\r\n", "legacy sink=00112233445566778899aabbccddeeff", "a=b"})
	require.NoError(t, err)
	require.Len(t, names, 4)
	require.Equal(t, "events", names[OperatorIDFromUID("events")])
	require.Equal(t, "a=b", names[OperatorIDFromUID("a=b")])
	id, _ := ParseOperatorID("00112233445566778899aabbccddeeff")
	require.Equal(t, "legacy sink", names.Label(&OperatorState{ID: id}))
	require.Equal(t, "own", names.Label(&OperatorState{ID: id, UID: "own"}))
	require.Equal(t, "0102030405060708090a0b0c0d0e0f10", names.Label(&OperatorState{ID: OperatorID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}))
	_, err = NewUIDNames([]string{"x=00112233445566778899aabbccddeeff", "y=00112233445566778899aabbccddeeff"})
	require.EqualError(t, err, `operator ID 00112233445566778899aabbccddeeff is given two names, "x" and "y"`)
}

func TestFindOperator(t *testing.T) {
	id, _ := ParseOperatorID("00112233445566778899aabbccddeeff")
	c := &Checkpoint{Operators: []OperatorState{
		{ID: OperatorIDFromUID("events"), Name: "Source"},
		{ID: id, Name: "Sink"},
		{ID: OperatorIDFromUID("other"), UID: "other", Name: "Sink"},
	}}
	names, err := NewUIDNames([]string{"legacy=00112233445566778899aabbccddeeff"})
	require.NoError(t, err)
	for s, want := range map[string]int{"events": 1, "other": 1, "Sink": 2, "00112233445566778899AABBCCDDEEFF": 1, "001122": 1, "0011": 0, "legacy": 1, "nobody": 0, "": 0} {
		require.Len(t, names.Find(c, s), want, "%q", s)
	}
	require.Len(t, UIDNames(nil).Find(c, "events"), 1)
}
