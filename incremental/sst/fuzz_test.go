package sst

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tidemark/tidemark/internal/damage"
)

// committedTables are the small tables of a real RocksDB.
func committedTables(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "matrix", "*", "*", "db", "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string][]byte{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		rel, err := filepath.Rel(filepath.Join("..", "testdata", "matrix"), p)
		require.NoError(t, err)
		out[filepath.ToSlash(rel)] = data
	}
	return out
}

// withoutChecksums makes the table one that was written without checksums, so
// that a changed byte comes through to the decoders behind them.
func withoutChecksums(t testing.TB, table []byte) []byte {
	t.Helper()
	r, err := Open(context.Background(), Bytes(table), nil)
	require.NoError(t, err)
	v := &verifier{ctx: context.Background(), opts: &VerifyOptions{}, report: &Report{}, r: r}
	require.NoError(t, v.run())
	out := bytes.Clone(table)
	modifier := func(off int64) uint32 { return contextModifier(r.footer.BaseContextChecksum, off) }
	for _, e := range v.extents {
		binary.LittleEndian.PutUint32(out[e.end-4:], modifier(e.off))
	}
	if r.footer.FormatVersion > 0 {
		out[r.footer.Offset] = byte(ChecksumNone)
	}
	_, err = Open(context.Background(), Bytes(out), nil)
	require.NoError(t, err)
	return out
}

// requireKnown fails for an error that is no damage.
func requireKnown(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var d *damage.Error
	if !errors.As(err, &d) || !isDamage(err) {
		t.Fatalf("unknown error %T: %v", err, err)
	}
}

// FuzzTable reads tables in every way. Its seeds are without checksums.
func FuzzTable(f *testing.F) {
	for _, data := range committedTables(f) {
		if len(data) < 4000 {
			f.Add(withoutChecksums(f, data), []byte("\x10key"))
			f.Add(data, []byte("\x7f"))
		}
	}
	ctx := context.Background()
	f.Fuzz(func(t *testing.T, data, key []byte) {
		opts := Options{Name: "fuzz", MaxBlockBytes: 1 << 20}
		report, err := Verify(ctx, Bytes(data), &VerifyOptions{Options: opts, OnDamage: func(err error) { requireKnown(t, err) }})
		require.NoError(t, err)
		r, err := Open(ctx, Bytes(data), &opts)
		if err != nil {
			requireKnown(t, err)
			require.NotZero(t, report.Findings)
			return
		}
		_, err = r.Separators(5)
		requireKnown(t, err)
		// A hostile index may point to one block many times.
		const limit = 100000
		it := r.NewIter(ctx, nil)
		n := uint64(0)
		for ok := it.First(); ok && n < limit; ok = it.Next() {
			n++
			_, _, _, _ = it.Key(), it.Value(), it.Seq(), it.Kind()
		}
		requireKnown(t, it.Err())
		if report.Findings == 0 {
			require.NoError(t, it.Err())
			require.Equal(t, report.Entries, n)
		}
		for i := 0; it.Err() != nil && i < 100; i++ {
			if !it.Skip() && it.Err() == nil {
				break
			}
		}
		// The same through small reads, bounded.
		r, err = Open(ctx, ReaderAt(bytes.NewReader(data), int64(len(data))), &Options{Name: "fuzz", MaxBlockBytes: 1 << 20, TailBytes: 64})
		if err != nil {
			requireKnown(t, err)
			return
		}
		it = r.NewIter(ctx, &IterOptions{Lower: key, Upper: append(bytes.Clone(key), 0xff), ReadAhead: 1})
		n = 0
		for ok := it.SeekGE(key); ok && n < limit; ok = it.Next() {
			n++
			if report.Findings == 0 {
				require.GreaterOrEqual(t, string(it.Key()), string(key))
			}
		}
		requireKnown(t, it.Err())
	})
}

// FuzzBlock reads a decoded payload as each kind of block.
func FuzzBlock(f *testing.F) {
	for _, data := range committedTables(f) {
		r, err := Open(context.Background(), Bytes(data), nil)
		require.NoError(f, err)
		f.Add(r.index.data, []byte("k"), true, false, true)
		it := r.NewIter(context.Background(), nil)
		if it.First() {
			f.Add(it.data.data, bytes.Clone(it.Key()), false, false, false)
		}
		if h, ok := r.metaHandle("rocksdb.properties"); ok {
			payload, err := r.readBlock(context.Background(), h, "properties")
			require.NoError(f, err)
			f.Add(payload, []byte("rocksdb.num"), false, true, false)
		}
	}
	f.Fuzz(func(t *testing.T, data, key []byte, delta, withFirst, userKey bool) {
		var it blockIter
		if it.init(data, 0, "block") == nil {
			for it.next() {
				require.LessOrEqual(t, len(it.value), len(data))
			}
			requireKnown(t, it.err)
			require.NoError(t, it.init(data, 0, "block"))
			if it.seekGE(key) {
				require.GreaterOrEqual(t, string(it.key[:len(it.key)-8]), string(key))
			}
			requireKnown(t, it.err)
		}
		b, err := parseBlock(data, 0, "block")
		if err != nil {
			requireKnown(t, err)
			return
		}
		p := &Properties{IndexValueIsDelta: delta, IndexKeyIsUserKey: userKey}
		if withFirst {
			p.IndexType = IndexWithFirstKey
		}
		var x indexIter
		x.init(b, 0, p)
		for n := 0; x.next(); n++ {
			require.LessOrEqual(t, n, len(data))
		}
		requireKnown(t, x.err)
		x.init(b, 0, p)
		if x.seekGE(key) {
			require.GreaterOrEqual(t, string(x.userKey()), string(key))
		}
		requireKnown(t, x.err)
	})
}

// FuzzProperties decodes a payload as a properties block.
func FuzzProperties(f *testing.F) {
	for _, data := range committedTables(f) {
		r, err := Open(context.Background(), Bytes(data), nil)
		require.NoError(f, err)
		h, _ := r.metaHandle("rocksdb.properties")
		payload, err := r.readBlock(context.Background(), h, "properties")
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodeProperties(data, 0)
		requireKnown(t, err)
		if err == nil && p.globalSeqOffset >= 0 {
			require.Equal(t, p.GlobalSeq, binary.LittleEndian.Uint64(data[p.globalSeqOffset:]))
		}
	})
}

// FuzzFooter decodes the end of a file.
func FuzzFooter(f *testing.F) {
	for _, data := range committedTables(f) {
		f.Add(data[len(data)-footerSize:], int64(len(data)))
	}
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		if size < int64(len(tail)) {
			return
		}
		footer, err := decodeFooter(tail, size)
		requireKnown(t, err)
		if err == nil {
			require.LessOrEqual(t, footer.Offset, size)
			require.Positive(t, footer.Offset+1)
		}
	})
}

// FuzzDecompress decodes a payload with every compression.
func FuzzDecompress(f *testing.F) {
	for _, data := range committedTables(f) {
		r, err := Open(context.Background(), Bytes(data), nil)
		require.NoError(f, err)
		it := r.NewIter(context.Background(), nil)
		if it.First() {
			h := it.blockAt
			f.Add(data[h.Offset:h.Offset+h.Size], data[h.Offset+h.Size], r.footer.FormatVersion, []byte(nil))
			f.Add(data[h.Offset:h.Offset+h.Size], data[h.Offset+h.Size], uint32(1), []byte("a dictionary"))
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, kind byte, version uint32, dict []byte) {
		const limit = 1 << 22
		d := decompressor{version: version, dict: dict, maxBytes: limit}
		out, err := d.decode(nil, payload, Compression(kind))
		if err == nil {
			require.LessOrEqual(t, len(out), limit)
		}
	})
}
