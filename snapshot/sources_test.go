package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/javaio"
	"github.com/tidemark/tidemark/serializer"
)

var be = binary.BigEndian

func utf(s string) []byte { return append(be.AppendUint16(nil, uint16(len(s))), s...) }

func int64s(b []byte, x ...int64) []byte {
	for _, v := range x {
		b = be.AppendUint64(b, uint64(v))
	}
	return b
}

// kafkaSplitBytes is what KafkaPartitionSplitSerializer writes.
func kafkaSplitBytes(topic string, partition uint32, from, to int64) []byte {
	return int64s(be.AppendUint32(utf(topic), partition), from, to)
}

// readerState is a row of SourceReaderState.
func readerState(op *StateOperator, subtask int32, version uint32, splits ...[]byte) *StateRow {
	r := &StateRow{State: &State{Operator: op, Name: stateSourceReader, Kind: StateOperatorList}, Subtask: subtask, KeyGroup: -1, Form: FormVersioned, Version: int32(version)}
	for _, s := range splits {
		part := append(be.AppendUint32(be.AppendUint32(nil, version), uint32(len(s))), s...)
		r.Value = append(append(r.Value, be.AppendUint32(nil, uint32(len(part)))...), part...)
	}
	return r
}

func TestSourceSplits(t *testing.T) {
	op := &StateOperator{Parallelism: 2}
	number := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		rows       []*StateRow
		enumerator *SourcePart
		connector  string
		want       []SourceSplit // without the parts
	}{
		"kafka": {
			rows:       []*StateRow{readerState(op, 0, 0, kafkaSplitBytes("orders", 3, 42, -1<<63), kafkaSplitBytes("orders", 4, -2, 100)), readerState(op, 1, 0, kafkaSplitBytes("orders", 0, -3, -1<<63))},
			enumerator: &SourcePart{Version: 2, Bytes: append(be.AppendUint32(be.AppendUint32(append([]byte{0, 0, 0, 1}, utf("orders")...), 9), 1), 1)},
			connector:  "kafka",
			want: []SourceSplit{
				{Reader: 0, Status: "reading", ID: "orders-3", Topic: "orders", Offset: number(42)},
				{Reader: 0, Status: "reading", ID: "orders-4", Topic: "orders", Start: "earliest", End: number(100)},
				{Reader: 1, Status: "reading", ID: "orders-0", Topic: "orders", Start: "committed"},
				{Reader: -1, Status: "unassigned", ID: "orders-9", Topic: "orders"},
			},
		},
		"sequence": {
			rows:       []*StateRow{readerState(op, 1, 1, int64s(utf("1"), 500, 999))},
			enumerator: &SourcePart{Version: 1, Bytes: int64s(append([]byte{0, 0, 0, 1}, utf("2")...), 1000, 1499)},
			connector:  "sequence",
			want: []SourceSplit{
				{Reader: 1, Status: "reading", ID: "1", Offset: number(500), End: number(999)},
				{Reader: -1, Status: "unassigned", ID: "2", Offset: number(1000), End: number(1499)},
			},
		},
		"unknown": {
			rows:       []*StateRow{readerState(op, 0, 7, []byte("whatever"))},
			enumerator: &SourcePart{Version: 1, Bytes: []byte{0, 0, 0, 0}}, // would fit a sequence
			want:       []SourceSplit{{Reader: 0, Status: "reading"}},
		},
		"hybrid": {
			rows: []*StateRow{readerState(op, 0, 0, append(be.AppendUint32(be.AppendUint32(append([]byte{0, 0, 0, 1}, utf("k")...), 0),
				uint32(len(kafkaSplitBytes("t", 1, 5, 6)))), kafkaSplitBytes("t", 1, 5, 6)...))},
			connector: "hybrid",
			want:      []SourceSplit{{Reader: 0, Status: "reading", ID: "t-1", Topic: "t", Offset: number(5), End: number(6)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := &Source{Operator: op, Enumerator: c.enumerator}
			for _, r := range c.rows {
				src.readerSplits(r)
			}
			src.enumerate()
			require.Equal(t, c.connector, src.Connector)
			require.Len(t, src.Splits, len(c.want))
			for i := range src.Splits {
				got := src.Splits[i]
				require.Equal(t, c.connector == "" || got.Reader < 0, got.JSON == nil)
				if got.Topic != "" {
					require.NotNil(t, got.Partition)
				}
				got.SourcePart, got.Partition = SourcePart{}, nil
				require.Equal(t, c.want[i], got)
			}
		})
	}
}

func TestOffsetsOfLegacyKafkaConsumer(t *testing.T) {
	classes := serializer.Classes{}
	classes[kafkaTopicPartition] = serializer.NewPOJO(kafkaTopicPartition,
		serializer.Field{Name: "cachedHash", Type: serializer.Basic(serializer.KindInt)},
		serializer.Field{Name: "partition", Type: serializer.Basic(serializer.KindInt)},
		serializer.Field{Name: "topic", Type: serializer.Basic(serializer.KindString)})
	// A Kryo snapshot without registrations: proxy version, class, version, value class.
	snap := append(be.AppendUint32(nil, 2), utf("org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot")...)
	snap = append(be.AppendUint32(snap, 2), utf(kafkaTopicPartition)...)
	for range 3 {
		snap = be.AppendUint32(be.AppendUint64(snap, 0x4f2c69a3d70), 0)
	}
	kryo, err := serializer.ReadSnapshot(javaio.NewReader(snap))
	require.NoError(t, err)
	typ := serializer.NewTuple(kryo, serializer.Basic(serializer.KindLong))
	ascii := func(s string) []byte { // Kryo marks the last byte
		b := []byte(s)
		b[len(b)-1] |= 0x80
		return b
	}
	pair := func(topic string, partition byte, offset int64) []byte {
		b := append([]byte{1, 0}, ascii(kafkaTopicPartition)...)
		b = append(b, 1, 20, 2*partition, 1) // a new object; hash 10; partition; a new string
		return int64s(append(b, ascii(topic)...), offset)
	}
	op := &StateOperator{}
	r := &StateRow{State: &State{Operator: op, Name: stateKafkaOffsets, Kind: StateUnion}, Subtask: 1, Form: FormElements,
		Value: append(pair("orders", 3, 41), pair("orders", 4, -915623761773)...),
		dec:   &rowDecoders{elem: serializer.NewDecoder(typ, &serializer.DecodeOptions{Classes: classes, Kryo: serializer.Kryo2})}}
	src := &Source{Operator: op}
	src.kafkaOffsets(r)
	require.Equal(t, "kafka consumer", src.Connector)
	require.Len(t, src.Splits, 2)
	require.Equal(t, "orders-3", src.Splits[0].ID)
	require.EqualValues(t, 42, *src.Splits[0].Offset, "the record after the last one read")
	require.Equal(t, "committed", src.Splits[1].Start)
	require.Nil(t, src.Splits[1].Offset)
	require.True(t, json.Valid(src.Splits[0].JSON))
}

func TestOldCoordinatorFrame(t *testing.T) {
	b := append([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 8, 9}, "registered readers"...)
	require.Equal(t, &SourcePart{Version: 1, Bytes: []byte{8, 9}}, oldCoordinator(b))
	for _, b := range [][]byte{nil, b[:11], b[:13], append([]byte{1}, b[1:]...)} {
		require.Nil(t, oldCoordinator(b))
	}
}
