package incremental_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental"
	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/testdata"
)

// The few serializers whose values this test decodes by hand: Long and Integer
// are big-endian; a String is a varint of its length plus 1 and a varint for each
// UTF-16 unit; a list has "," between its elements; a map value has a null flag
// in front; Tuple2 is its fields.
type decoder func(b []byte) (v any, rest []byte)

func long(b []byte) (any, []byte) { return int64(binary.BigEndian.Uint64(b)), b[8:] }

func integer(b []byte) (any, []byte) { return int64(int32(binary.BigEndian.Uint32(b))), b[4:] }

func text(b []byte) (any, []byte) {
	n, k := binary.Uvarint(b)
	b = b[k:]
	units := make([]uint16, 0, n)
	for range n - 1 {
		u, k := binary.Uvarint(b)
		units = append(units, uint16(u))
		b = b[k:]
	}
	return string(utf16.Decode(units)), b
}

func pair(first, second decoder) decoder {
	return func(b []byte) (any, []byte) {
		x, b := first(b)
		y, b := second(b)
		return []any{x, y}, b
	}
}

func listOf(element decoder) decoder {
	return func(b []byte) (any, []byte) {
		out := []any{}
		for {
			var v any
			v, b = element(b)
			out = append(out, v)
			if len(b) == 0 {
				return out, nil
			}
			b = b[1:]
		}
	}
}

func mapValue(value decoder) decoder {
	return func(b []byte) (any, []byte) {
		if b[0] != 0 {
			return nil, b[1:]
		}
		return value(b[1:])
	}
}

func none(b []byte) (any, []byte) { return nil, b }

// layout is how one state's user keys and values are decoded.
type layout struct{ mapKey, value decoder }

var wide = map[string]layout{
	"state.text":       {none, text},
	"state.numbers":    {none, listOf(integer)},
	"state.attributes": {text, mapValue(text)},
}

var counters = map[string]layout{
	"state.value":       {none, long},
	"state.list":        {none, listOf(text)},
	"state.map":         {text, mapValue(long)},
	"state.reducing":    {none, long},
	"state.aggregating": {none, pair(long, long)},
}

var async = map[string]layout{
	"state.value":       {none, text},
	"state.list":        {none, listOf(long)},
	"state.map":         {text, mapValue(integer)},
	"state.reducing":    {none, long},
	"state.aggregating": {none, pair(long, long)},
}

var exactCases = map[string]map[string]layout{
	"rocksdb-chain": wide, "rescale-out": wide, "rescale-in": wide, "rescale-ingest": wide,
	"claim": wide, "no-claim": wide,
	"rocksdb-native": counters, "rocksdb-native-incremental": counters, "rocksdb-full": counters,
	"sst-none": wide, "sst-snappy": wide, "sst-lz4": wide, "sst-zstd": wide, "sst-zlib": wide,
	"sst-bloom-full": wide, "sst-bloom-block": wide, "sst-partitioned": wide,
	"merging-rocksdb": counters, "merging-across-rocksdb": counters,
	"forst-sync": counters, "forst-async": async, "forst-async-ownpath": async, "forst-async-local": async,
	"forst-async-full": async, "forst-async-native": async, "async-rocksdb": async,
}

// TestGoldenRows compares keys, key groups and values, and that each key comes
// from one handle only, which rescaled databases need their clipping for.
func TestGoldenRows(t *testing.T) { goldenRows(t, testdata.Goldens(t)) }

func TestAllGoldenRows(t *testing.T) { goldenRows(t, testdata.AllGoldens(t)) }

func goldenRows(t *testing.T, cases []*testdata.Case) {
	compared, outside := 0, 0
	for _, c := range cases {
		layouts := exactCases[c.Name[len("f120-"):]]
		if layouts == nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			for _, s := range c.Snapshots {
				if s.Expected == "" {
					continue
				}
				want := map[string]string{}
				for _, e := range expected(t, c, s.Expected) {
					if _, ok := layouts[e.State]; ok && keyedKinds[e.Kind] {
						want[fmt.Sprintf("%s %d %s %s", e.State, e.KeyGroup, e.Key, e.MapKey)] = string(e.Value)
					}
				}
				require.NotEmpty(t, want)
				for _, h := range handles(t, c, s.Path) {
					db, err := incremental.Open(context.Background(), h.files, nil)
					require.NoError(t, err)
					lower, upper := h.bounds()
					for name, l := range layouts {
						f := db.Family(name)
						if f == nil {
							continue
						}
						inside := scan(t, f, &incremental.ScanOptions{Lower: lower, Upper: upper})
						outside += storedOutside(t, h, f)
						for _, e := range inside {
							kg := int64(e.key[0])
							key, rest := long(e.key[1:])
							require.Zero(t, rest[0], "VoidNamespace")
							mapKey, rest := l.mapKey(rest[1:])
							require.Empty(t, rest)
							value, rest := l.value(e.value)
							require.Empty(t, rest)
							id := fmt.Sprintf("%s %d %d ", name, kg, key)
							if mapKey != nil {
								id += string(marshal(t, mapKey))
							}
							require.JSONEq(t, want[id], string(marshal(t, value)), "%s %s", s.Path, id)
							delete(want, id)
							compared++
							got, ok, err := f.Get(context.Background(), e.key, nil)
							require.NoError(t, err)
							require.True(t, ok)
							require.Equal(t, e.value, append([]byte{}, got...))
						}
					}
				}
				require.Empty(t, want, "missing in %s", s.Path)
			}
		})
	}
	t.Logf("%d entries compared; %d stored ones lay outside of their handle's key groups", compared, outside)
	require.NotZero(t, compared)
}

// storedOutside counts entries in the tables, hidden or not, that are not of the
// handle's key groups.
func storedOutside(t *testing.T, h *handle, f *incremental.Family) (n int) {
	for i := range f.Tables {
		for _, file := range h.files {
			if file.Name != f.Tables[i].FileName() {
				continue
			}
			r, err := sst.Open(context.Background(), file.Source, nil)
			require.NoError(t, err)
			it := r.NewIter(context.Background(), nil)
			for ok := it.First(); ok; ok = it.Next() {
				if !h.Range.Contains(int32(it.Key()[0])) {
					n++
				}
			}
			require.NoError(t, it.Err())
		}
	}
	return n
}

func marshal(t *testing.T, v any) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(v))
	return []byte(strings.TrimSpace(b.String()))
}
