package event

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourceEventRoundTrip(t *testing.T) {
	for _, e := range []SourceEvent{
		{Kind: RegisterReader, Host: "worker-1"}, {Kind: RequestSplit}, {Kind: NoMoreSplits},
		{Kind: AddSplits, Version: -3, Splits: [][]byte{[]byte("a"), {}, []byte("ccc")}}, {Kind: SourceUser, Data: []byte{0, 1}},
	} {
		b := e.Encode()
		got, err := DecodeSource(b)
		require.NoError(t, err)
		require.Equal(t, e, *got)
		for n := range b {
			_, err := DecodeSource(b[:n])
			require.ErrorIs(t, err, errSourceEvent, "%d of %d bytes", n, len(b))
		}
	}
}

func FuzzDecodeSource(f *testing.F) {
	f.Add((&SourceEvent{Kind: AddSplits, Version: 1, Splits: [][]byte{[]byte("ab"), []byte("c")}}).Encode())
	f.Add([]byte{3, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeSource(b)
		if err != nil {
			require.ErrorIs(t, err, errSourceEvent)
			return
		}
		back, err := DecodeSource(e.Encode())
		require.NoError(t, err)
		require.Equal(t, e, back)
	})
}
