package snapshot

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/metadata"
)

// wholeRecords is the definition that recordsStart goes by.
func wholeRecords(b []byte) bool {
	for len(b) > 0 {
		if len(b) < 5 {
			return false
		}
		n := int64(int32(be32(b)))
		if n < 1 || n > int64(len(b)-4) || b[4] > largestTag {
			return false
		}
		b = b[4+n:]
	}
	return true
}

func TestRecordsStartIsTheFirstPlaceWithWholeRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		var b []byte
		for range random.IntN(6) { // what may look like a length or like anything
			b = append(b, byte(random.IntN(3)))
		}
		for range random.IntN(5) {
			n := 1 + random.IntN(9)
			b = binary.BigEndian.AppendUint32(b, uint32(n))
			b = append(b, byte(random.IntN(8))) // a tag too large now and then
			b = append(b, make([]byte, n-1)...)
		}
		want := len(b)
		for at := range b {
			if wholeRecords(b[at:]) {
				want = at
				break
			}
		}
		if want < len(b) {
			found++
		}
		require.Equal(t, want, recordsStart(b), "% x", b)
	}
	require.Greater(t, found, 500)
}

// A payload in which every byte looks like the start of a record must not cost
// more than a look at each byte.
func TestRecordsStartOfHostilePayload(t *testing.T) {
	b := make([]byte, 4<<20)
	for i := 3; i < len(b); i += 4 {
		b[i] = 4
	}
	b[len(b)-1] = 0xff
	require.LessOrEqual(t, recordsStart(b), len(b))
}

// channelFile is a file of chunks and the offset of each.
func channelBytes(chunks ...[]byte) (file []byte, offsets []int64) {
	file = make([]byte, 4)
	for _, c := range chunks {
		offsets = append(offsets, int64(len(file)))
		file = binary.BigEndian.AppendUint32(file, uint32(len(c)))
		file = append(file, c...)
	}
	return file, offsets
}

func record(value string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(value)))
	return append(append(b, 1), value...)
}

// snapshotOf is a snapshot in memory, all of whose state is inline.
func snapshotOf(t *testing.T, c *metadata.Checkpoint) *Snapshot {
	t.Helper()
	s := &Snapshot{Checkpoint: c}
	require.NoError(t, s.resolve(t.Context()))
	return s
}

func TestInFlightOfRepeatedAndSplitHandles(t *testing.T) {
	stream := append(append(record("one"), record("two")...), record("three")...)
	first, firstOffsets := channelBytes(stream[:3], stream[3:10])
	second, secondOffsets := channelBytes(stream[10:])
	handle := func(subtask int32, file []byte, offsets []int64) metadata.ChannelHandle {
		return metadata.ChannelHandle{Subtask: subtask, Delegate: &metadata.ByteStreamHandle{Data: file},
			Channels: []metadata.ChannelOffsets{{Gate: 0, Channel: 7, Size: int64(len(file)), Offsets: offsets}}}
	}
	c := &metadata.Checkpoint{Version: 4, Operators: []metadata.OperatorState{{MaxParallelism: 8, Parallelism: 1, Subtasks: []metadata.SubtaskState{{
		Index: 0,
		InputChannels: []metadata.ChannelHandle{
			handle(0, first, firstOffsets), handle(0, first, firstOffsets), handle(0, second, secondOffsets), handle(3, second, secondOffsets),
		},
	}}}}}
	var got []string
	var list []*InFlight
	for f := range InFlightChannels(snapshotOf(t, c), nil) {
		list = append(list, f)
	}
	require.Len(t, list, 2)
	require.Equal(t, []int{3, 2}, []int{list[0].Buffers, list[0].Parts})
	require.EqualValues(t, len(first)+len(second), list[0].Bytes, "the repeated handle counts once")
	n, err := list[0].Elements(t.Context(), func(offset int64, size int, e InFlightElement) error {
		require.Equal(t, ElementRecord, e.Kind)
		require.Equal(t, len(e.Value)+1, size)
		require.Equal(t, stream[offset+5:offset+4+int64(size)], e.Value)
		got = append(got, string(e.Value))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two", "three"}, got)
	require.Equal(t, InFlightRecords{Whole: 3, Payload: int64(len(stream)), Known: true}, n)
	require.Equal(t, [2]int32{3, 0}, [2]int32{list[1].Subtask, list[1].Holder}, "from before a rescaling")
}

func TestParseInFlightElement(t *testing.T) {
	be := binary.BigEndian
	marker := append([]byte{3}, make([]byte, 28)...)
	be.PutUint64(marker[1:], 1000)
	marker[9], marker[28] = 0xab, 5
	for name, c := range map[string]struct {
		in   []byte
		want InFlightElement
	}{
		"record":             {[]byte{1, 42}, InFlightElement{Kind: ElementRecord, Value: []byte{42}}},
		"record with time":   {append(be.AppendUint64([]byte{0}, 77), 42), InFlightElement{Kind: ElementRecord, HasTimestamp: true, Timestamp: 77, Value: []byte{42}}},
		"empty record":       {[]byte{1}, InFlightElement{Kind: ElementRecord, Value: []byte{}}},
		"watermark":          {be.AppendUint64([]byte{2}, 99), InFlightElement{Kind: ElementWatermark, Watermark: 99}},
		"marker":             {marker, InFlightElement{Kind: ElementLatencyMarker, Timestamp: 1000, Operator: "ab000000000000000000000000000000", Subtask: 5}},
		"idle":               {be.AppendUint32([]byte{4}, 0xffffffff), InFlightElement{Kind: ElementWatermarkStatus, Idle: true}},
		"attributes":         {[]byte{5, 1}, InFlightElement{Kind: ElementRecordAttributes, Backlog: true}},
		"internal watermark": {be.AppendUint64(be.AppendUint32([]byte{6}, 2), 98), InFlightElement{Kind: ElementInternalWatermark, Subtask: 2, Watermark: 98}},
	} {
		got, err := ParseInFlightElement(c.in)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
		if c.want.Kind != ElementRecord {
			_, err = ParseInFlightElement(append(c.in, 0))
			require.ErrorIs(t, err, damage.ErrCorrupt, name)
		}
		if len(c.in) > 1 && c.want.Kind != ElementRecord {
			_, err = ParseInFlightElement(c.in[:len(c.in)-1])
			require.ErrorIs(t, err, damage.ErrCorrupt, name)
		}
	}
	for _, b := range [][]byte{nil, {7}, {255, 1}, {0, 1, 2}} {
		_, err := ParseInFlightElement(b)
		require.ErrorIs(t, err, damage.ErrCorrupt)
	}
}
