package manifest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
)

// committed are the MANIFESTs of a real RocksDB.
func committed(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "matrix", "*", "*", "db", "MANIFEST-*"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string][]byte{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		out[filepath.ToSlash(p)] = data
	}
	return out
}

// log frames records as RocksDB does.
func log(records ...[]byte) []byte {
	var out []byte
	for _, r := range records {
		for first, done := true, false; !done; first = false {
			left := logBlockSize - len(out)%logBlockSize
			if left < logHeaderSize {
				out = append(out, make([]byte, left)...)
				left = logBlockSize
			}
			n := min(len(r), left-logHeaderSize)
			kind := byte(3)
			done = n == len(r)
			switch last := done; {
			case first && last:
				kind = 1
			case first:
				kind = 2
			case last:
				kind = 4
			}
			body := append([]byte{kind}, r[:n]...)
			out = binary.LittleEndian.AppendUint32(out, bits.RotateLeft32(crc32.Checksum(body, castagnoli), -15)+0xa282ead8)
			out = binary.LittleEndian.AppendUint16(out, uint16(n))
			out = append(out, body...)
			r = r[n:]
		}
	}
	return out
}

// rec builds an edit: ints are varints, strings length-prefixed, bytes as they are.
func rec(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.AppendUvarint(b, uint64(p))
		case uint64:
			b = binary.AppendUvarint(b, p)
		case string:
			b = binary.AppendUvarint(b, uint64(len(p)))
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func ikey(user string, seq uint64, kind byte) string {
	return string(binary.LittleEndian.AppendUint64([]byte(user), seq<<8|uint64(kind)))
}

func file4(level, number int, smallest, largest string, fields ...any) []byte {
	return rec(append([]any{103, level, number, 1000, ikey(smallest, 5, 1), ikey(largest, 9, 1), 5, 9}, append(fields, 1)...)...)
}

func TestDecode(t *testing.T) {
	data := log(
		rec(1, "leveldb.BytewiseComparator", 2, 0, 3, 10, 4, 7),
		rec(200, 1, 201, "state", 1, "leveldb.BytewiseComparator"),
		append(rec(200, 1), file4(0, 12, "a", "m", 5, string(rec(1234)), 6, "\x05", 7, "", 8, "Unknown", 13, "\x03")...),
		append(rec(200, 1), file4(0, 14, "b", "z", 13, "\x04")...),
		append(rec(200, 1, 6, 0, 12), file4(2, 12, "a", "m")...), // a trivial move
		rec(200, 2, 201, "gone"),
		append(rec(200, 2), file4(0, 15, "a", "b")...),
		rec(200, 2, 202),
		rec(8193, "db-id", 8200, "ignored", 203, 2),
		rec(4, 99, 300, 1, 200, 1, 6, 0, 14),
		append(rec(200, 1), append(file4(3, 14, "b", "z"), rec(300, 0)...)...),
		rec(4, 200, 300, 3), // a group without its end was never in force
	)
	v, err := Decode(data, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(99), v.LastSequence)
	require.Equal(t, "db-id", v.DBID)
	require.Len(t, v.Families, 2)
	require.Equal(t, "default", v.Families[0].Name)
	require.Empty(t, v.Families[0].Tables)
	state := v.Families[1]
	require.Equal(t, "state", state.Name)
	require.Len(t, state.Tables, 2)
	require.Equal(t, uint64(12), state.Tables[0].Number)
	require.Equal(t, 2, state.Tables[0].Level)
	require.Equal(t, Bound{[]byte("a"), 5<<8 | 1}, state.Tables[0].Smallest)
	require.Equal(t, 3, state.Tables[1].Level)
	require.Equal(t, "000012.sst", TableName(12))
	require.Equal(t, "1234567.sst", TableName(1234567))
}

func TestDecodeFragments(t *testing.T) {
	// Records that end anywhere around the end of a log block.
	for pad := logBlockSize - 40; pad < logBlockSize+20; pad++ {
		data := log(rec(4, 1), rec(8193, strings.Repeat("x", pad)), rec(4, 2), rec(8193, strings.Repeat("y", 3*logBlockSize)))
		v, err := Decode(data, nil)
		require.NoError(t, err, pad)
		require.Equal(t, uint64(2), v.LastSequence)
		require.Equal(t, 4, v.Edits)
		require.Len(t, v.DBID, 3*logBlockSize)
	}
}

func TestDecodeOldFiles(t *testing.T) {
	v, err := Decode(log(
		rec(7, 1, 4, 100, ikey("a", 1, 1), ikey("b", 2, 1)),
		rec(100, 1, 5, 100, ikey("c", 1, 1), ikey("d", 2, 1), 1, 2),
		rec(102, 1, 6, 3, 100, ikey("e", 1, 1), ikey("f", 2, 1), 1, 2),
	), nil)
	require.NoError(t, err)
	tables := v.Families[0].Tables
	require.Len(t, tables, 3)
	require.False(t, tables[0].HasSeqs)
	require.Equal(t, uint64(maxSeq), tables[0].LargestSeq)
	require.True(t, tables[1].HasSeqs)
	require.Equal(t, uint32(3), tables[2].PathID)
}

func TestDecodeDamage(t *testing.T) {
	good := log(rec(1, "leveldb.BytewiseComparator"), file4(0, 12, "a", "m"))
	flip := func(at int) []byte {
		b := append([]byte{}, good...)
		b[at] ^= 0x40
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":               {nil, "has no records"},
		"checksum":            {flip(0), "fragment has checksum"},
		"payload":             {flip(20), "fragment has checksum"},
		"type":                {flip(6), "fragment has checksum"},
		"length":              {flip(5), "more than is left"},
		"cut header":          {good[:40], "header is cut off"},
		"cut payload":         {good[:len(good)-1], "more than is left"},
		"unknown tag":         {log(rec(55, 1)), "tag at byte 0 of the record is 55: unsupported version"},
		"unknown file field":  {log(file4(0, 12, "a", "m", 77, "x")), "file field at byte 27 of the record is 77: unsupported version"},
		"cut varint":          {log([]byte{0x80}), "tag at byte 0 of the record is no varint"},
		"cut slice":           {log([]byte{1, 200, 1}), "reaches beyond the record"},
		"added twice":         {log(file4(0, 12, "a", "m"), file4(0, 12, "a", "m")), "new file 12 is there already"},
		"deleted absent":      {log(rec(6, 0, 3)), "deleted file 3 is not on level 0"},
		"deleted wrong level": {log(file4(0, 12, "a", "m"), rec(6, 1, 12)), "deleted file 12 is not on level 1"},
		"no family":           {log(rec(200, 9, 4, 1)), "column family 9 does not exist"},
		"family twice":        {log(rec(200, 1, 201, "a"), rec(200, 1, 201, "b")), "column family 1 is added twice"},
		"overlap":             {log(file4(1, 12, "a", "m"), file4(1, 13, "k", "z")), `level 1 of column family "default" has overlapping files 12 and 13`},
		"short key":           {log(rec(103, 0, 1, 1, "short", "short", 1, 1, 1)), "smallest key at byte 4 of the record is no internal key"},
		"group broken":        {log(rec(300, 2), rec(300, 0)), "atomic group has 0 edits left behind one with 2 left"},
		"group interrupted":   {log(rec(300, 2), rec(4, 1)), "atomic group is not complete"},
		"WAL record":          {append([]byte{}, walRecord()...), "fragment type is 5"},
		"middle first":        {fragment(3), "continues no record"},
		"last missing":        {fragment(2), "is cut off by the end of the file"},
		"level":               {log(rec(6, 100, 3)), "level at byte 1 of the record is 100"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(c.data, &Options{Name: "MANIFEST-000004"})
			var d *damage.Error
			require.ErrorAs(t, err, &d)
			require.Equal(t, "MANIFEST-000004", d.Name)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func fragment(kind byte) []byte {
	body := []byte{kind, 4, 1}
	out := binary.LittleEndian.AppendUint32(nil, bits.RotateLeft32(crc32.Checksum(body, castagnoli), -15)+0xa282ead8)
	return append(binary.LittleEndian.AppendUint16(out, 2), body...)
}

func walRecord() []byte { return fragment(5) }

func TestPreallocatedTail(t *testing.T) {
	data := append(log(rec(4, 7)), make([]byte, 5000)...)
	v, err := Decode(data, nil)
	require.NoError(t, err)
	require.Equal(t, uint64(7), v.LastSequence)
	data[3000] = 1
	_, err = Decode(data, nil)
	require.ErrorContains(t, err, "byte 3000: preallocated area is not zero")
}

func TestCurrent(t *testing.T) {
	name, err := Current([]byte("MANIFEST-000004\n"), nil)
	require.NoError(t, err)
	require.Equal(t, "MANIFEST-000004", name)
	for _, bad := range []string{"", "MANIFEST-000004", "MANIFEST-000004\n\n", "MANIFEST-\n", "manifest-000004\n", "MANIFEST-00004x\n", strings.Repeat("x", 100)} {
		_, err := Current([]byte(bad), &Options{Name: "CURRENT"})
		require.ErrorIs(t, err, damage.ErrCorrupt, bad)
	}
}

func FuzzDecode(f *testing.F) {
	for _, data := range committed(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { requireKnown(t, data) })
}

// FuzzEdits frames the input as records, so that changes come through to the edits.
func FuzzEdits(f *testing.F) {
	for _, data := range committed(f) {
		l := &logReader{data: data}
		var all []byte
		for {
			r, _, ok, err := l.next()
			require.NoError(f, err)
			if !ok {
				break
			}
			all = append(binary.LittleEndian.AppendUint16(all, uint16(len(r))), r...)
		}
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var records [][]byte
		for len(data) >= 2 {
			n := min(int(binary.LittleEndian.Uint16(data)), len(data)-2)
			records = append(records, data[2:2+n])
			data = data[2+n:]
		}
		requireKnown(t, log(records...))
	})
}

func requireKnown(t *testing.T, data []byte) {
	v, err := Decode(data, nil)
	if err != nil {
		var d *damage.Error
		require.ErrorAs(t, err, &d)
		require.True(t, errors.Is(err, damage.ErrCorrupt) || errors.Is(err, damage.ErrUnsupportedVersion), err)
		return
	}
	n := 0
	for _, f := range v.Families {
		n += len(f.Tables)
	}
	require.LessOrEqual(t, n*16, len(data)) // at least as long as a file's bounds
}
