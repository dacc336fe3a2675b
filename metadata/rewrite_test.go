package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A checkpoint of random handles is mapped to itself, to other handles in the order
// of StreamHandles, and is never changed.
func TestMapStreams(t *testing.T) {
	for seed := range uint64(300) {
		c := randomCheckpoint(seed, MinVersion+int32(seed)%(MaxVersion-MinVersion+1))
		var before bytes.Buffer
		require.NoError(t, Encode(&before, c))
		same, err := c.MapStreams(func(_ KeyedHandle, h StreamHandle) (StreamHandle, error) { return h, nil })
		require.NoError(t, err)
		var after bytes.Buffer
		require.NoError(t, Encode(&after, same))
		require.Equal(t, before.Bytes(), after.Bytes(), "seed %d", seed)

		n := 0
		other, err := c.MapStreams(func(KeyedHandle, StreamHandle) (StreamHandle, error) {
			n++
			return &ByteStreamHandle{Name: String(fmt.Sprint(n))}, nil
		})
		require.NoError(t, err)
		seen := 0
		for _, h := range other.StreamHandles() {
			seen++
			require.Equal(t, &ByteStreamHandle{Name: String(fmt.Sprint(seen))}, h)
		}
		require.Equal(t, n, seen)
		after.Reset()
		require.NoError(t, Encode(&after, c))
		require.Equal(t, before.Bytes(), after.Bytes(), "the original is changed, seed %d", seed)
		if n > 0 {
			failed := errors.New("failed")
			_, err = c.MapStreams(func(KeyedHandle, StreamHandle) (StreamHandle, error) { return nil, failed })
			require.ErrorIs(t, err, failed)
		}
	}
}
