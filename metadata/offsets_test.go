package metadata

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOffsetsOfFields(t *testing.T) {
	b := examples(t)[7]
	got, err := Offsets(bytes.NewReader(b), nil, "version", "operator[0]", "operator[0].subtask[0].managedKeyed", "operator[0].subtask[0].managedKeyed.delegate.path",
		"operator[0].subtask[0].inputChannel[0].delegate", "properties", "operator[1]", "operator")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"version": 4, "operator[0]": 24, "operator[0].subtask[0].managedKeyed": 114,
		"operator[0].subtask[0].managedKeyed.delegate.path": 140, "operator[0].subtask[0].inputChannel[0].delegate": 175, "properties": 237}, got)

	// Damage behind what is wanted is not reached; damage before it is reported.
	got, err = Offsets(bytes.NewReader(b[:70]), nil, "operator[0].parallelism")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"operator[0].parallelism": 46}, got)
	got, err = Offsets(bytes.NewReader(b[:70]), nil, "operator[0].parallelism", "properties")
	require.ErrorIs(t, err, ErrCorrupt)
	require.Len(t, got, 1)
	got, err = Offsets(bytes.NewReader(nil), nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// Every place that a walk finds has an offset.
func TestOffsetsOfEveryHandle(t *testing.T) {
	for version := int32(MinVersion); version <= MaxVersion; version++ {
		for seed := range uint64(20) {
			c := randomCheckpoint(seed, version)
			var fields []string
			for p := range c.StreamHandles() {
				fields = append(fields, c.Field(p))
			}
			got, err := Offsets(bytes.NewReader(mustEncode(t, c)), nil, fields...)
			require.NoError(t, err)
			require.Len(t, got, len(fields))
		}
	}
}
