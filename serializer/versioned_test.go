package serializer

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
	"github.com/tidemark/tidemark/internal/javaio"
)

func utf16len(s string) []byte {
	b, _ := javaio.AppendUTF(nil, javaio.NewString(s))
	return b
}

func join(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, utf16len(p)...)
		case int:
			b = javaio.AppendI32(b, int32(p))
		case int16:
			b = javaio.AppendI16(b, p)
		case int64:
			b = javaio.AppendI64(b, p)
		case bool:
			b = javaio.AppendBool(b, p)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func TestVersioned(t *testing.T) {
	b := join(2, 3, []byte("abc"), []byte("rest"))
	v, n, err := ReadVersioned(b)
	require.NoError(t, err)
	require.Equal(t, Versioned{2, []byte("abc")}, v)
	require.Equal(t, 11, n)
	for k := range 11 {
		_, _, err := ReadVersioned(b[:k])
		require.ErrorIs(t, err, ErrShort)
	}
	list, n, err := ReadVersionedList(join(7, 2, 1, []byte("x"), 0))
	require.NoError(t, err)
	require.Equal(t, 17, n)
	require.Equal(t, []Versioned{{7, []byte("x")}, {7, []byte{}}}, list)
	_, _, err = ReadVersioned(join(1, -1))
	require.ErrorIs(t, err, damage.ErrCorrupt)
}

func TestConnectors(t *testing.T) {
	split := join("orders", 3, int64(42), int64(-1<<63))
	ns := func(s string) []byte { return append([]byte{1}, AppendString(nil, s)...) }
	none := []byte{0}
	file := join("0000000001", []byte{1}, ns("hdfs"), none, ns("nn"), 8020, ns("/in/a.csv"), none, none, int64(0), int64(100), int64(5), int64(100), 1, "host", true, int64(10), int64(2))
	le := func(n ...uint32) (b []byte) {
		for _, x := range n {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
		return b
	}
	for _, c := range []struct {
		name string
		kind Connector
		v    Versioned
		json string
	}{
		{"kafka split", KafkaSplit, Versioned{0, split}, `{"topic":"orders","partition":3,"starting_offset":42,"stopping_offset":null}`},
		{"kafka enumerator 0", KafkaEnumerator, Versioned{0, join(1, 0, 5, 1, len(split), split)}, `{"assignments":[{"subtask":5,"splits":[{"topic":"orders","partition":3,"starting_offset":42,"stopping_offset":null}]}]}`},
		{"kafka enumerator 1", KafkaEnumerator, Versioned{1, join(1, "t", 2)}, `{"assigned":[{"topic":"t","partition":2}]}`},
		{"kafka enumerator 2", KafkaEnumerator, Versioned{2, join(1, "t", 2, 1, true)}, `{"partitions":[{"topic":"t","partition":2,"status":"unassigned"}],"discovered":true}`},
		{"kafka enumerator 3", KafkaEnumerator, Versioned{3, join(1, 0, len(split), split, 0, false)}, `{"splits":[{"split":{"topic":"orders","partition":3,"starting_offset":42,"stopping_offset":null},"status":"assigned"}],"discovered":false}`},
		{"kafka writer 1", KafkaWriter, Versioned{1, join("p")}, `{"transactional_id_prefix":"p"}`},
		{"kafka writer 2", KafkaWriter, Versioned{2, join("p", 1, 2, 0, 1, "id", int64(9))}, `{"transactional_id_prefix":"p","owned_subtask":1,"total_owned":2,"ownership":0,"transactions":[{"transactional_id":"id","checkpoint":9}]}`},
		{"kafka committable", KafkaCommittable, Versioned{1, join(int16(4), int64(77), "id")}, `{"epoch":4,"producer":77,"transactional_id":"id"}`},
		{"file split", FileSplit, Versioned{1, file}, `{"split_id":"0000000001","path":"hdfs://nn:8020/in/a.csv","offset":0,"length":100,"modification_time":5,"file_size":100,"hosts":["host"],"position":{"offset":10,"records_after":2}}`},
		{"file enumerator", FileEnumerator, Versioned{1, join(le(0xdeadbeef, 1, 1, 1, uint32(len(file))), file, le(3), []byte("/in"))}, `{"splits":[{"split_id":"0000000001","path":"hdfs://nn:8020/in/a.csv","offset":0,"length":100,"modification_time":5,"file_size":100,"hosts":["host"],"position":{"offset":10,"records_after":2}}],"processed_paths":["/in"]}`},
		{"sequence split", SequenceSplit, Versioned{1, join("1", int64(5), int64(9))}, `{"split_id":"1","from":5,"to":9}`},
		{"sequence enumerator", SequenceEnumerator, Versioned{1, join(1, "1", int64(5), int64(9))}, `{"splits":[{"split_id":"1","from":5,"to":9}]}`},
		{"hybrid split", HybridSplit, Versioned{0, join(1, "k", 0, len(split), split)}, `{"source":1,"split_id":"k","split":{"topic":"orders","partition":3,"starting_offset":42,"stopping_offset":null}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			js, err := c.kind.AppendJSON(nil, c.v)
			require.NoError(t, err)
			require.Equal(t, c.json, string(js))
			_, err = c.kind.Decode(c.v)
			require.NoError(t, err)
			guess, ok := c.v.Guess(append(append([]Connector{}, SplitConnectors...), EnumeratorConnectors...)...)
			if c.kind != KafkaWriter && c.kind != KafkaCommittable {
				require.True(t, ok)
				require.Equal(t, c.kind, guess)
			}
			for k := range c.v.Data {
				_, err := c.kind.AppendJSON(nil, Versioned{c.v.Version, c.v.Data[:k]})
				require.ErrorIs(t, err, damage.ErrCorrupt)
			}
			_, err = c.kind.Decode(Versioned{99, c.v.Data})
			require.ErrorIs(t, err, damage.ErrUnsupportedVersion)
		})
	}
}
