package stream

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/incremental/sst"
	"github.com/tidemark/tidemark/internal/damage"
)

// short8 is a serializer of byte length and bytes.
type short8 struct{}

func (short8) Skip(b []byte) (int, error) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return 0, io.ErrUnexpectedEOF
	}
	return 1 + int(b[0]), nil
}

// fixed is a serializer of that many bytes.
type fixed int

func (n fixed) Skip(b []byte) (int, error) {
	if len(b) < int(n) {
		return 0, io.ErrUnexpectedEOF
	}
	return int(n), nil
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func frame(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := snappy.NewBufferedWriter(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// The worked example of the format page: one entry of state 0, key long 1 in key
// group 86, value long 5.
const canonicalExample = "0000 0000000a d6 0000000000000001 00 00000008 0000000000000005 ffff"

func TestCanonicalEntry(t *testing.T) {
	plain := unhex(t, canonicalExample)
	for name, compressed := range map[string]bool{"plain": false, "snappy": true} {
		t.Run(name, func(t *testing.T) {
			b := plain
			if compressed {
				b = frame(t, plain)
			}
			file := append(make([]byte, 7), b...)
			c := NewCanonical(t.Context(), sst.Bytes(file), "f", compressed)
			for range 2 { // opening the same group again
				c.Open(Region{KeyGroup: 86, From: 7, To: int64(len(file))})
				require.True(t, c.Next())
				require.Equal(t, 0, c.State())
				require.Equal(t, unhex(t, "56 0000000000000001 00"), c.Key())
				require.Equal(t, unhex(t, "0000000000000005"), c.Value())
				require.False(t, c.Next())
				require.NoError(t, c.Err())
			}
			require.Equal(t, append(make([]byte, 7), b...), file, "the source is not changed")
		})
	}
}

func TestCanonicalDamage(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"empty":                   {"", "byte 0: state id ends early: corrupt"},
		"end mark at once":        {"ffff", "byte 0: state id is the end mark of an empty key group: corrupt"},
		"negative key length":     {"0000 ffffffff 00", "byte 2: key length is -1: corrupt"},
		"key of no bytes":         {"0000 00000000 00", "byte 2: key length is 0: corrupt"},
		"huge key length":         {"0000 7fffffff 56", "byte 2: key of 2147483647 bytes ends early: corrupt"},
		"negative value length":   {"0000 00000001 d6 ffffffff", "byte 7: value length is -1: corrupt"},
		"huge value length":       {"0000 00000001 d6 7fffffff", "byte 2: value of 2147483647 bytes ends early: corrupt"},
		"no next state":           {"0000 00000001 d6 00000000", "byte 11: state id ends early: corrupt"},
		"bytes after the end":     {"0000 00000001 d6 00000000 ffff 00", "byte 13: key group has bytes after its end mark: corrupt"},
		"entry without flag last": {"0000 00000001 56 00000000", "byte 11: key length ends early: corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, tc.body)
			c := NewCanonical(t.Context(), sst.Bytes(b), "f", false)
			c.Open(Region{From: 0, To: int64(len(b))})
			for c.Next() {
			}
			require.ErrorIs(t, c.Err(), damage.ErrCorrupt)
			require.Equal(t, "f: "+tc.want, c.Err().Error())
		})
	}
}

func TestCanonicalFindsATruncationAtEveryByte(t *testing.T) {
	whole := unhex(t, canonicalExample)
	for n := range whole {
		for _, compressed := range []bool{false, true} {
			b := whole[:n]
			if compressed {
				b = frame(t, whole)
				b = b[:len(b)-1-n*(len(b)-2)/len(whole)]
			}
			c := NewCanonical(t.Context(), sst.Bytes(b), "f", compressed)
			c.Open(Region{From: 0, To: int64(len(b))})
			for c.Next() {
			}
			require.Error(t, c.Err(), "%d bytes, compressed %v", len(b), compressed)
		}
	}
}

func TestSnappyChecksumIsVerified(t *testing.T) {
	b := frame(t, unhex(t, canonicalExample))
	b[len(b)-3] ^= 1
	c := NewCanonical(t.Context(), sst.Bytes(b), "f", true)
	c.Open(Region{From: 0, To: int64(len(b))})
	for c.Next() {
	}
	require.ErrorIs(t, c.Err(), damage.ErrCorrupt)
}

func TestLargeEntriesGrowTheWindow(t *testing.T) {
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	b := unhex(t, "0001 00000002 d601")
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	b = append(append(b, value...), 0xff, 0xff)
	c := NewCanonical(t.Context(), sst.Bytes(b), "f", false)
	c.Open(Region{From: 0, To: int64(len(b))})
	require.True(t, c.Next())
	require.True(t, bytes.Equal(value, c.Value()))
	require.False(t, c.Next())
	require.NoError(t, c.Err())
}

func heapStates() []HeapState {
	return []HeapState{
		{Name: "v", Namespace: fixed(1), Key: short8{}, Value: short8{}},
		{Name: "t", Queue: true, Element: fixed(3)},
	}
}

const heapExample = "00000005  0001 00000001 aabbcc  0000 00000002 00 0161 0101 00 0162 00"

func TestHeapElements(t *testing.T) {
	plain := unhex(t, heapExample)
	for name, compressed := range map[string]bool{"plain": false, "snappy": true} {
		t.Run(name, func(t *testing.T) {
			b := plain
			if compressed { // one stream for each block, each with its identifier
				b = append(append(bytes.Clone(plain[:4]), frame(t, plain[4:13])...), frame(t, plain[13:])...)
			}
			h := NewHeap(t.Context(), sst.Bytes(b), "f", compressed, heapStates())
			h.Open(Region{KeyGroup: 5, From: 0, To: int64(len(b))})
			var got []string
			for h.Next() {
				got = append(got, string(rune('0'+h.State()))+" "+hex.EncodeToString(h.Namespace())+" "+hex.EncodeToString(h.Key())+" "+hex.EncodeToString(h.Value()))
			}
			require.NoError(t, h.Err())
			require.Equal(t, []string{"1  aabbcc ", "0 00 0161 0101", "0 00 0162 00"}, got)
		})
	}
}

func TestHeapDamage(t *testing.T) {
	for name, tc := range map[string]struct{ body, want string }{
		"other key group":     {"00000006", "byte 0: key group is 6 where 5 was expected: corrupt"},
		"no blocks":           {"00000005", "byte 4: state block ends early: corrupt"},
		"unknown state":       {"00000005 0009 00000000", "byte 4: state id is 9 of 2 states: corrupt"},
		"state twice":         {"00000005 0000 00000000 0000 00000000", "byte 10: state id 0 comes twice: corrupt"},
		"negative count":      {"00000005 0000 ffffffff", "byte 6: element count is -1: corrupt"},
		"element ends early":  {"00000005 0000 00000001 00 05 61", "byte 10: element of state v ends early: corrupt"},
		"bytes after the end": {"00000005 0000 00000000 0001 00000000 00", "byte 16: key group 5 ends before its region does, at byte 17: corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			b := unhex(t, tc.body)
			h := NewHeap(t.Context(), sst.Bytes(b), "f", false, heapStates())
			h.Open(Region{KeyGroup: 5, From: 0, To: int64(len(b))})
			for h.Next() {
			}
			require.ErrorIs(t, h.Err(), damage.ErrCorrupt)
			require.Equal(t, "f: "+tc.want, h.Err().Error())
		})
	}
}

func TestOperatorPartitions(t *testing.T) {
	// Two list elements and a broadcast map of one entry behind a head of 4 bytes.
	plain := unhex(t, "00000000  0161 026263  00000001 0178 0179")
	o := NewOperator(t.Context(), sst.Bytes(plain), "f", false, []int64{4, 6, 9})
	for offset, want := range map[int64]string{4: "0161", 6: "026263"} {
		require.NoError(t, o.Open(offset))
		v, err := o.Value("element", short8{})
		require.NoError(t, err)
		require.Equal(t, want, hex.EncodeToString(v))
		require.NoError(t, o.End())
	}
	require.NoError(t, o.Open(9))
	n, err := o.Count()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	k, v, err := o.Pair(short8{}, short8{})
	require.NoError(t, err)
	require.Equal(t, "0178 0179", hex.EncodeToString(k)+" "+hex.EncodeToString(v))
	require.NoError(t, o.End())
	require.ErrorContains(t, o.Open(99), "partition offset is 99 in a stream of 17 bytes")

	// Compressed: an offset is that of a frame, without an identifier in front.
	framed := frame(t, unhex(t, "0161"))
	second := frame(t, unhex(t, "026263"))[10:]
	file := append(bytes.Clone(framed), second...)
	o = NewOperator(t.Context(), sst.Bytes(file), "f", true, []int64{10, int64(len(framed))})
	require.NoError(t, o.Open(int64(len(framed))))
	b, err := o.Value("element", short8{})
	require.NoError(t, err)
	require.Equal(t, "026263", hex.EncodeToString(b))
	require.NoError(t, o.End())
}

func TestChangelogSets(t *testing.T) {
	body := unhex(t, "00000001 00000001 00000003 00000002 0102"+"00000002 00000001 ffffffff 00000000 00000002 00000007 00000001 09 00000000")
	for name, compressed := range map[string]bool{"plain": false, "snappy": true} {
		t.Run(name, func(t *testing.T) {
			file := append([]byte{0}, body...)
			if compressed {
				file = append([]byte{1}, frame(t, body)...)
			}
			c := NewChangelog(t.Context())
			var got []string
			for _, offset := range []int64{18, 0} {
				require.NoError(t, c.Read(sst.Bytes(file), "f", offset, func(ch Change) error {
					got = append(got, hex.EncodeToString(binary.BigEndian.AppendUint32(nil, uint32(ch.KeyGroup)))+":"+hex.EncodeToString(ch.Data))
					return nil
				}))
			}
			require.Equal(t, []string{"ffffffff:", "00000007:09", "00000007:", "00000003:0102"}, got)
		})
	}
	err := NewChangelog(t.Context()).Read(sst.Bytes([]byte{2, 0}), "f", 0, nil)
	require.EqualError(t, err, "f: byte 0: compression flag is 2: corrupt")
	for body, want := range map[string]string{
		"00 00000000 00000000 00000000":          "f: byte 0: key group count is 0: corrupt", // a file of zeros
		"00 00000001 00000000 00000007 00000000": "f: byte 4: change count is 0: corrupt",
		"00 00000001 00000001 fffffffe 00000000": "f: byte 8: key group is -2: corrupt",
		"00 00000001 00000001 00008000 00000000": "f: byte 8: key group is 32768: corrupt",
	} {
		err := NewChangelog(t.Context()).Read(sst.Bytes(unhex(t, body)), "f", 0, func(Change) error { return nil })
		require.EqualError(t, err, want)
	}
	err = NewChangelog(t.Context()).Read(sst.Bytes(nil), "f", 0, nil)
	require.ErrorIs(t, err, damage.ErrCorrupt)
}

func TestChannelRecords(t *testing.T) {
	// Two records of 3 and 2 bytes, split over three buffers.
	file := unhex(t, "00000000  00000005 0000000301  00000004 02030000  00000004 00020405")
	c, err := NewChannel(t.Context(), sst.Bytes(file), "f", []int64{4, 13, 21})
	require.NoError(t, err)
	r := NewRecords(c)
	var got []string
	for r.Next() {
		got = append(got, hex.EncodeToString(r.Record()))
	}
	require.NoError(t, r.Err())
	require.Equal(t, []string{"010203", "0405"}, got)

	c, err = NewChannel(t.Context(), sst.Bytes(file), "f", []int64{4, 13})
	require.NoError(t, err)
	r = NewRecords(c)
	require.True(t, r.Next())
	require.False(t, r.Next(), "the second record ends in a later buffer")
	require.ErrorIs(t, r.Err(), damage.ErrCorrupt)
	require.Equal(t, 2, r.Rest())
}

func TestRegions(t *testing.T) {
	r, err := Regions("f", 10, []int64{0, 40, 0, 20, 90}, 100, 0)
	require.NoError(t, err)
	require.Equal(t, []Region{{11, 40, 90}, {13, 20, 40}, {14, 90, 100}}, r)
	r, err = Regions("f", 0, []int64{-1, 0, 5, 5}, 9, -1)
	require.NoError(t, err)
	require.Equal(t, []Region{{1, 0, 5}, {2, 5, 5}, {3, 5, 9}}, r)
	for _, bad := range [][]int64{{100}, {101}, {-2}, {20, 20}, {30, 20, 30}} {
		_, err = Regions("f", 0, bad, 100, 0)
		require.ErrorIs(t, err, damage.ErrCorrupt, "%v", bad)
	}
}

// knownError reports whether err is one that a decoder may give for bad bytes.
func knownError(err error) bool {
	var d *damage.Error
	return err == nil || errors.As(err, &d) && errors.Is(err, damage.ErrCorrupt) || errors.Is(err, errCompressed)
}

func FuzzCanonical(f *testing.F) {
	f.Add(unhex(f, canonicalExample), false)
	f.Add(frame(f, unhex(f, canonicalExample)), true)
	f.Fuzz(func(t *testing.T, b []byte, compressed bool) {
		c := NewCanonical(t.Context(), sst.Bytes(b), "f", compressed)
		c.Open(Region{From: 0, To: int64(len(b))})
		for c.Next() {
			require.NotEmpty(t, c.Key())
		}
		require.True(t, knownError(c.Err()), "%v", c.Err())
	})
}

func FuzzHeap(f *testing.F) {
	f.Add(unhex(f, heapExample), false)
	f.Add(append(unhex(f, "00000005"), frame(f, unhex(f, heapExample)[4:])...), true)
	f.Fuzz(func(t *testing.T, b []byte, compressed bool) {
		h := NewHeap(t.Context(), sst.Bytes(b), "f", compressed, heapStates())
		h.Open(Region{KeyGroup: 5, From: 0, To: int64(len(b))})
		for h.Next() {
			require.Less(t, h.State(), 2)
		}
		require.True(t, knownError(h.Err()), "%v", h.Err())
	})
}

func FuzzOperator(f *testing.F) {
	f.Add(unhex(f, "00000000 0161 026263 00000001 0178 0179"), int64(4), false)
	f.Add(frame(f, unhex(f, "00000001 0178 0179")), int64(10), true)
	f.Fuzz(func(t *testing.T, b []byte, offset int64, compressed bool) {
		o := NewOperator(t.Context(), sst.Bytes(b), "f", compressed, []int64{offset})
		if err := o.Open(offset); err != nil {
			require.True(t, knownError(err), "%v", err)
			return
		}
		n, err := o.Count()
		for i := 0; i < n && err == nil; i++ {
			_, _, err = o.Pair(short8{}, short8{})
		}
		if err == nil {
			err = o.End()
		}
		require.True(t, knownError(err), "%v", err)
	})
}

func FuzzChangelog(f *testing.F) {
	body := unhex(f, "00000001 00000001 00000003 00000002 0102")
	f.Add(append([]byte{0}, body...), int64(0))
	f.Add(append([]byte{1}, frame(f, body)...), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		err := NewChangelog(t.Context()).Read(sst.Bytes(b), "f", offset, func(Change) error { return nil })
		require.True(t, knownError(err), "%v", err)
	})
}

func FuzzChannel(f *testing.F) {
	f.Add(unhex(f, "00000000 00000005 0000000301 00000004 02030000 00000004 00020405"), int64(4), int64(13))
	f.Fuzz(func(t *testing.T, b []byte, first, second int64) {
		c, err := NewChannel(t.Context(), sst.Bytes(b), "f", []int64{first, second})
		if err != nil {
			require.True(t, knownError(err), "%v", err)
			return
		}
		r := NewRecords(c)
		for r.Next() {
		}
		require.True(t, knownError(r.Err()), "%v", r.Err())
	})
}
