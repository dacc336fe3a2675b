package metadata

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two small files with a bit of everything, made by hand: the format pages
// explain them byte by byte.
const (
	exampleV3 = `
4960672d00000003000000000000000700000001c96b16960000000d0000000100016d000000020102000000010000
0000000000010000000000000002000000020000008000000000020000000000000001040000000100046f66667300
00000002000000000000000000000000000000080100016800000003aabbcc000000000c0000000000000002000000
00000000000000000000000010060002643100000000000000200003696431000000000000000000fffffffe`
	exampleV7 = `
4960672d000000070000000000000007000000000000000100026f7000000000000000000001000000000000000200
0000020000008000000000010000000000000001040000000100046f66667300000000020000000000000000000000
00000000080100016800000003aabbcc000000000c0000000000000002000000000000000000000000000000100600
0264310000000000000020000369643100000000010300000000000000000000000906000263310000000000000014
00000020000000010000000000000001000000000000000900000001000000000000000400000000010000000000
000005aced000570`
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

func mustDecode(t testing.TB, b []byte) *Checkpoint {
	t.Helper()
	c, err := Decode(bytes.NewReader(b), nil)
	require.NoError(t, err)
	return c
}

func mustEncode(t testing.TB, c *Checkpoint) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Encode(&b, c))
	return b.Bytes()
}

// examples returns a small file of each version, made by editing bytes.
func examples(t testing.TB) map[int32][]byte {
	t.Helper()
	v3, v7 := unhex(t, exampleV3), unhex(t, exampleV7)
	require.Len(t, v3, 185)
	require.Len(t, v7, 242)
	out := map[int32][]byte{3: v3, 7: v7}
	setVersion := func(b []byte, v uint32) []byte {
		binary.BigEndian.PutUint32(b[4:], v)
		return b
	}
	cut := func(b []byte, from, to int, with ...byte) []byte {
		return append(append(append([]byte(nil), b[:from]...), with...), b[to:]...)
	}
	v6 := setVersion(cut(v7, 0xe4, 0xed), 6)
	out[6] = v6
	// The merged channel handle (a2..df) in the layout of a single one.
	single := unhex(t, "00000000 00000000 00000001 00000001 0000000000000004 0000000000000009 0600026331 0000000000000014")
	v5 := setVersion(cut(v6, 0xa2, 0xe0, single...), 5)
	out[5] = v5
	out[4] = setVersion(cut(v5, 0x18, 0x1e), 4)
	// Version 2: no coordinator, channels or finished subtask; chain length,
	// duration and legacy states instead.
	v2 := cut(v3, 0xad, 0xb9)                                          // two empty channel lists, the finished subtask
	v2 = cut(v2, 0x4e, 0x4e, unhex(t, "ffffffffffffffff 00000000")...) // behind the subtask's index
	binary.BigEndian.PutUint32(v2[0x46:], 1)
	v2 = cut(v2, 0x45, 0x46, 0, 0, 0, 1)
	out[2] = setVersion(v2, 2)
	return out
}

func TestExamplesOfEachVersion(t *testing.T) {
	for version, b := range examples(t) {
		c := mustDecode(t, b)
		require.Equal(t, version, c.Version)
		require.Equal(t, b, mustEncode(t, c), "version %d", version)
		require.NoError(t, VerifyRoundTrip(bytes.NewReader(b), nil))
		s := c.Operators[0].Subtasks[0]
		require.Equal(t, "offs", s.ManagedOperator.States[0].Name.Go())
		require.Equal(t, []int64{0, 8}, s.ManagedOperator.States[0].Offsets)
		require.Equal(t, &ByteStreamHandle{Name: "h", Data: []byte{0xaa, 0xbb, 0xcc}}, s.ManagedOperator.Delegate)
		require.Equal(t, &KeyGroupsHandle{Form: TagKeyGroupsWithID, Range: KeyGroupRange{0, 2}, Offsets: []int64{0, 16},
			Delegate: &RelativeFileHandle{Path: "d1", Size: 32}, ID: "id1"}, s.ManagedKeyed)
	}
	v3 := mustDecode(t, examples(t)[3])
	require.Equal(t, []MasterState{{Version: 1, Name: "m", Payload: []byte{1, 2}}}, v3.MasterStates)
	require.Equal(t, SubtaskState{Index: 1, Finished: true}, v3.Operators[0].Subtasks[1])
	v7 := mustDecode(t, examples(t)[7])
	require.Equal(t, "op", v7.Operators[0].Name.Go())
	require.Equal(t, []ChannelHandle{{Tag: 3, Size: 9, Delegate: &RelativeFileHandle{Path: "c1", Size: 20},
		Channels: []ChannelOffsets{{Gate: 0, Channel: 1, Size: 9, Offsets: []int64{4}}}}}, v7.Operators[0].Subtasks[0].InputChannels)
	require.EqualValues(t, 5, v7.Operators[0].Subtasks[0].ReferenceID)
	require.True(t, v7.Properties.Decode().Null)
}

func TestConvertBetweenVersions(t *testing.T) {
	ex := examples(t)
	all := &ConvertOptions{DropNames: true, DropProperties: true, DropReferences: true}
	c := mustDecode(t, ex[7])
	for v := int32(6); v >= 4; v-- {
		down, err := Convert(c, v, all)
		require.NoError(t, err)
		require.Equal(t, ex[v], mustEncode(t, down), "version 7 as %d", v)
	}
	require.Equal(t, ex[7], mustEncode(t, c), "the original is untouched")

	v3 := mustDecode(t, ex[3])
	for v := int32(4); v <= 7; v++ {
		up, err := Convert(v3, v, nil)
		require.NoError(t, err)
		back, err := Convert(mustDecode(t, mustEncode(t, up)), 3, nil)
		require.NoError(t, err, "null properties and absent names are no loss")
		require.Equal(t, ex[3], mustEncode(t, back), "version 3 as %d and back", v)
	}
	v2 := mustDecode(t, ex[2])
	up, err := Convert(v2, 6, nil)
	require.NoError(t, err)
	back, err := Convert(up, 2, nil)
	require.NoError(t, err)
	require.Equal(t, ex[2], mustEncode(t, back))

	// An unmerged handle of version 5 gets a tag, and loses it again.
	v5 := mustDecode(t, ex[5])
	up, err = Convert(v5, 6, nil)
	require.NoError(t, err)
	require.EqualValues(t, channelInput, up.Operators[0].Subtasks[0].InputChannels[0].Tag)
	back, err = Convert(mustDecode(t, mustEncode(t, up)), 5, nil)
	require.NoError(t, err)
	require.Equal(t, ex[5], mustEncode(t, back))
}

func TestConvertNamesWhatWouldBeLost(t *testing.T) {
	c := mustDecode(t, examples(t)[7])
	c.Operators[0].UID = "u"
	c.Operators[0].Coordinator = &ByteStreamHandle{Name: "c"}
	c.Operators[0].Subtasks = append(c.Operators[0].Subtasks, SubtaskState{Index: 1, Finished: true})
	c.Operators = append(c.Operators, OperatorState{ID: OperatorID{9}, Parallelism: 1, MaxParallelism: 128, FinishedCount: -1})
	p, err := NewProperties(SavepointProperties(FormatNative))
	require.NoError(t, err)
	c.Properties = p
	_, err = Convert(c, 2, nil)
	require.ErrorIs(t, err, ErrNotRepresentable)
	var e *NotRepresentableError
	require.ErrorAs(t, err, &e)
	require.Equal(t, []string{
		`operator[0].name: operator names ("op") need version 5`,
		`operator[0].uid: operator uids ("u") need version 5`,
		`operator[0].coordinator: coordinator state needs version 3`,
		`operator[0].subtask[0].inputChannel: channel state needs version 3`,
		`operator[0].subtask[0].referenceID: references to older checkpoints (5) need version 7`,
		`operator[0].subtask[1]: finished subtasks need version 3`,
		`operator[1]: fully finished operators need version 3`,
		`properties: checkpoint properties need version 4`,
	}, e.Problems)
	var out bytes.Buffer
	c.Version = 4
	require.ErrorIs(t, Encode(&out, c), ErrNotRepresentable)
	require.Zero(t, out.Len(), "nothing is written")
	require.ErrorContains(t, Encode(&out, c), "operator[0].subtask[0].inputChannel[0]: merged channel state needs version 6")
}

func TestConvertVersionsThatAreNone(t *testing.T) {
	for _, v := range []int32{-1, 0, 1, 8, 99} {
		_, err := Convert(mustDecode(t, examples(t)[3]), v, nil)
		require.ErrorIs(t, err, ErrUnsupportedVersion)
	}
}
