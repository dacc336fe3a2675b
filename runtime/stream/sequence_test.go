package stream

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitSequence(t *testing.T) {
	require.Equal(t, []SequenceSplit{{"1", 0, 3}, {"2", 4, 6}, {"3", 7, 9}}, splitSequence(0, 9, 3))
	require.Equal(t, []SequenceSplit{{"1", 5, 5}, {"2", 6, 6}}, splitSequence(5, 6, 4), "no empty splits")
	require.Empty(t, splitSequence(1, 0, 2))
	require.Equal(t, []SequenceSplit{{"1", math.MinInt64, math.MaxInt64}}, splitSequence(math.MinInt64, math.MaxInt64, 1))
	for _, parts := range []int{2, 3, 7} {
		list := splitSequence(math.MinInt64, math.MaxInt64, parts)
		require.Len(t, list, parts)
		require.EqualValues(t, math.MinInt64, list[0].From)
		require.EqualValues(t, math.MaxInt64, list[parts-1].To)
		for i := 1; i < parts; i++ {
			require.Equal(t, list[i-1].To+1, list[i].From)
		}
	}
}

// The bytes are those of Flink's NumberSequenceSource: writeUTF, writeLong, writeLong,
// and in front of a list writeInt.
func TestSequenceBytes(t *testing.T) {
	b, err := sequenceSplits{}.Serialize(SequenceSplit{"12", 3, -1})
	require.NoError(t, err)
	require.Equal(t, "0002"+"3132"+"0000000000000003"+"ffffffffffffffff", hex.EncodeToString(b))
	s, err := sequenceSplits{}.Deserialize(1, b)
	require.NoError(t, err)
	require.Equal(t, SequenceSplit{"12", 3, -1}, s)
	list, err := sequenceCheckpoints{}.Serialize([]SequenceSplit{s})
	require.NoError(t, err)
	require.Equal(t, "00000001"+hex.EncodeToString(b), hex.EncodeToString(list))
	_, err = sequenceSplits{}.Deserialize(2, b)
	require.ErrorContains(t, err, "version 2")
	for n := range b {
		_, err := sequenceSplits{}.Deserialize(1, b[:n])
		require.Error(t, err)
	}
}

func FuzzSequenceCheckpoints(f *testing.F) {
	list, _ := sequenceCheckpoints{}.Serialize([]SequenceSplit{{"1", 0, 9}, {"2", 10, 19}})
	f.Add(list)
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := sequenceCheckpoints{}.Deserialize(1, b)
		if err != nil {
			return
		}
		again, err := sequenceCheckpoints{}.Serialize(list)
		require.NoError(t, err)
		back, err := sequenceCheckpoints{}.Deserialize(1, again)
		require.NoError(t, err)
		require.Equal(t, list, back)
	})
}

func FuzzFileCommittables(f *testing.F) {
	b, _ := fileCommittables{}.Serialize(FileCommittable{".part-x-0-0.inprogress", "part-x-0-0.txt", 17})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := fileCommittables{}.Deserialize(1, b)
		if err != nil {
			return
		}
		again, err := fileCommittables{}.Serialize(c)
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

func TestMergeSet(t *testing.T) {
	var m mergeSet
	type call struct {
		result, state Window
		from, others  []Window
	}
	var calls []call
	add := func(w Window) Window {
		got, err := m.add(w, func(result Window, from []Window, state Window, others []Window) error {
			calls = append(calls, call{result, state, from, others})
			return nil
		})
		require.NoError(t, err)
		return got
	}
	require.Equal(t, Window{Start: 0, End: 10}, add(Window{Start: 0, End: 10}))
	require.Equal(t, Window{Start: 20, End: 30}, add(Window{Start: 20, End: 30}))
	require.Empty(t, calls)
	require.Equal(t, Window{Start: 0, End: 10}, add(Window{Start: 2, End: 9}), "inside of another")
	require.Empty(t, calls)
	require.Equal(t, Window{Start: 0, End: 15}, add(Window{Start: 5, End: 15}))
	require.Equal(t, Window{Start: 0, End: 30}, add(Window{Start: 14, End: 24}))
	require.Equal(t, []call{
		{Window{Start: 0, End: 15}, Window{Start: 0, End: 10}, []Window{{Start: 0, End: 10}}, nil},
		{Window{Start: 0, End: 30}, Window{Start: 0, End: 10}, []Window{{Start: 0, End: 15}, {Start: 20, End: 30}}, []Window{{Start: 20, End: 30}}},
	}, calls)
	state, ok := m.state(Window{Start: 0, End: 30})
	require.True(t, ok)
	require.Equal(t, Window{Start: 0, End: 10}, state, "the state stays in the first window's namespace")
	m.retire(Window{Start: 0, End: 30})
	require.Empty(t, m.pairs)
}
