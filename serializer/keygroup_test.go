package serializer

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyGroupVectors(t *testing.T) {
	str := func(s string) []byte {
		b := []byte{byte(len(s) + 1)}
		return append(b, s...)
	}
	tuple := (&Type{Kind: KindTuple, enc: encTuple, JavaClass: javaTuple + "2", Fields: []Field{{Type: typeString}, {Type: typeInt}}}).finish()
	row := &Type{Kind: KindRow, enc: encBinaryRow}
	for _, c := range []struct {
		name string
		t    *Type
		key  []byte
		hash int32
		kg   int // of 128
	}{
		{"int 0", typeInt, []byte{0, 0, 0, 0}, 0, 94},
		{"int 1", typeInt, []byte{0, 0, 0, 1}, 1, 86},
		{"int 42", typeInt, []byte{0, 0, 0, 42}, 42, 29},
		{"int -1", typeInt, []byte{255, 255, 255, 255}, -1, 80},
		{"long -1", typeLong, []byte{255, 255, 255, 255, 255, 255, 255, 255}, 0, 94},
		{"long 2^32", typeLong, []byte{0, 0, 0, 1, 0, 0, 0, 0}, 1, 86},
		{"empty string", typeString, str(""), 0, 94},
		{"a", typeString, str("a"), 97, 81},
		{"hello", typeString, str("hello"), 99162322, 35},
		{"key-1", typeString, str("key-1"), 101943363, 54},
		{"true", typeBool, []byte{1}, 1231, 77},
		{"false", typeBool, []byte{0}, 1237, 3},
		{"double 1", typeDouble, []byte{0x3f, 0xf0, 0, 0, 0, 0, 0, 0}, 1072693248, 71},
		{"tuple", tuple, append(str("a"), 0, 0, 0, 1), 3008, 29},
		{"row of long", row, mustHex("000000100000000000000000" + "2a00000000000000"), 907821237, 69},
		{"row of string", row, mustHex("000000100000000000000000" + "68656c6c6f000085"), 243722546, 88},
		{"empty row", row, mustHex("000000080000000000000000"), -1670924195, 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			hash, n, err := NewHasher(c.t, nil, 0).HashCode(c.key)
			require.NoError(t, err)
			require.Equal(t, len(c.key), n)
			require.Equal(t, c.hash, hash)
			require.Equal(t, c.kg, AssignKeyGroup(hash, 128))
		})
	}
	require.EqualValues(t, 0, murmurOf(int32(findMinMurmur())))
}

// findMinMurmur returns a code; murmurOf never gives a negative number.
func findMinMurmur() uint32 {
	for c := range uint32(1 << 16) {
		if murmurOf(int32(c)) < 0 {
			return c
		}
	}
	// The one code whose hash is the least int, of which there is no absolute value.
	h := uint32(1) << 31
	h ^= h >> 16
	h *= 0x7ed1b41d // inverse of 0xc2b2ae35
	h ^= h>>13 ^ h>>26
	h *= 0xa5cb9243 // inverse of 0x85ebca6b
	h ^= h >> 16
	h ^= 4
	h -= 0xe6546b64
	h *= 0xcccccccd // inverse of 5
	h = h>>13 | h<<19
	h *= 0x56ed309b // inverse of 0x1b873593
	h = h>>15 | h<<17
	h *= 0xdee13bb1 // inverse of 0xcc9e2d51
	return h
}

func mustHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func TestKeyGroupRanges(t *testing.T) {
	for _, maxP := range []int{1, 4, 128, 129, 300, 32768} {
		for p := 1; p <= min(maxP, 200); p++ {
			next := 0
			for s := range p {
				first, last := KeyGroupRange(s, p, maxP)
				require.Equal(t, next, first)
				require.GreaterOrEqual(t, last, first)
				require.Equal(t, s, SubtaskOf(first, p, maxP))
				require.Equal(t, s, SubtaskOf(last, p, maxP))
				next = last + 1
			}
			require.Equal(t, maxP, next)
		}
	}
	require.Equal(t, 128, DefaultMaxParallelism(1))
	require.Equal(t, 256, DefaultMaxParallelism(100))
	require.Equal(t, 32768, DefaultMaxParallelism(30000))
}
